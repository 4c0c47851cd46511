"""`gbt demo`: a ranking from simulated comparisons."""

from typing import Annotated

import typer

from . import _session
from ._fit import summary
from ._ranking_table import show_ranking
from ._session import console

# Names for the simulated items: teas need no explanation.
_ITEMS = (
    "Assam",
    "Ceylon",
    "Chai",
    "Darjeeling",
    "Earl Grey",
    "Genmaicha",
    "Hojicha",
    "Jasmine",
    "Keemun",
    "Lapsang",
    "Matcha",
    "Oolong",
    "Pu-erh",
    "Rooibos",
    "Sencha",
)
_USERS, _COMPARISONS, _LEVELS = 40, 12, 21


def demo(
    seed: Annotated[int, typer.Option(help="Random seed of the simulation.")] = 1,
) -> int:
    """Rank fifteen teas from the sliders of forty simulated users."""
    _session.start()
    import jax
    import numpy as np
    import pyarrow as pa

    from .. import simulate
    from .._model import Model
    from ..frames import fit_table
    from ..laws import KNary

    law = KNary(_LEVELS)
    keys = jax.random.split(jax.random.key(seed), 3)
    truth = simulate.scores(Model(law), len(_ITEMS), key=keys[0])
    pairs = simulate.random_pairs(len(_ITEMS), _USERS * _COMPARISONS, key=keys[1])
    drawn = simulate.comparisons(law, truth, pairs, key=keys[2])
    names = np.array(_ITEMS)
    table = pa.table(
        {
            "taster": [f"taster {i:02}" for i in np.repeat(np.arange(_USERS), _COMPARISONS)],
            "tea": names[pairs.a],
            "other_tea": names[pairs.b],
            "slider": np.round(np.asarray(drawn.value) * 10),
        }
    )
    ranking = fit_table(
        table,
        a="tea",
        b="other_tea",
        value="slider",
        judge="taster",
        positive_favours="a",
        max_value=10,
        law=law,
    )
    terminal = console()
    terminal.print(
        f"{_USERS} simulated tasters moved a slider {_COMPARISONS} times each, between two teas, "
        "from −10 to 10."
    )
    for line in summary(ranking):
        terminal.print(line)
    terminal.print()
    show_ranking(ranking)
    order = [_ITEMS.index(row["item"]) for row in ranking.arrow.to_pylist()]
    inside = _count_covered(ranking, np.asarray(truth)[order])
    terminal.print()
    terminal.print(
        f"{inside} of the {len(_ITEMS)} intervals contain the true score. With your own file:"
    )
    terminal.print("  gbt fit votes.csv --preset arena -o ranking.csv    (see gbt presets)")
    return 0


def _count_covered(ranking, truth) -> int:
    rows = ranking.arrow.to_pylist()
    pairs = zip(rows, truth, strict=True)
    return sum(row["lower"] <= score <= row["upper"] for row, score in pairs)
