"""`gbt simulate`: random comparisons with known true scores."""

import sys
from typing import Annotated

import typer

from . import _session
from ._session import note


def simulate(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File to write: .csv, .tsv, .parquet, .json, .jsonl."),
    ] = None,
    items: Annotated[int, typer.Option(min=2, help="Number of items.")] = 20,
    comparisons: Annotated[int, typer.Option(min=1, help="Comparisons per user.")] = 200,
    users: Annotated[
        int, typer.Option(min=1, help="Number of users, who have separate scores.")
    ] = 1,
    law: Annotated[
        str, typer.Option(help="Law of the comparisons, such as uniform or knary:5.")
    ] = ("uniform"),
    prior_std: Annotated[
        float, typer.Option(help="Standard deviation σ of the true scores.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    truth: Annotated[str | None, typer.Option(help="File to write the true scores to.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> int:
    """Write simulated comparisons: columns user, a, b and value, where value > 0 favours a."""
    from ..frames._files import check_output_name, write_table, write_text

    for path in (output, truth):
        if path is not None:
            check_output_name(path)
    _session.start()
    import jax
    import numpy as np
    import pyarrow as pa

    from .. import simulate as simulated
    from .._model import Model
    from ..frames import law_named

    chosen = law_named(law)
    keys = jax.random.split(jax.random.key(seed), 3)
    scores = simulated.scores(Model(chosen, prior_std), items * users, key=keys[0])
    pairs = simulated.random_pairs(items, comparisons * users, key=keys[1])
    owner = np.repeat(np.arange(users), comparisons)
    shifted = type(pairs)(pairs.a + owner * items, pairs.b + owner * items)
    drawn = simulated.comparisons(chosen, scores, shifted, key=keys[2])
    width = len(str(items - 1))
    names = np.array([f"item{i:0{width}}" for i in range(items)])
    labels = np.array([f"user{i:0{len(str(users - 1))}}" for i in range(users)])
    table = pa.table(
        {
            "user": labels[owner],
            "a": names[pairs.a],
            "b": names[pairs.b],
            "value": np.asarray(drawn.value),
        }
    )
    if truth is not None:
        columns = {"user": np.repeat(labels, items), "item": np.tile(names, users)}
        write_table(pa.table(columns | {"score": np.asarray(scores)}), truth)
    if output is None:
        write_text(table, sys.stdout.buffer)
        sys.stdout.flush()
        return 0
    write_table(table, output)
    scale = f"--max-value {float(chosen.max_value):g}"
    note(
        f"rank them with: gbt fit {output} --law {law} {scale} --positive-favours a --by user",
        quiet=quiet,
    )
    return 0
