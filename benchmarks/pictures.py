"""Draw the figure at the top of the README: a comparison graph and its ranking.

    python benchmarks/pictures.py [--output docs/images]

Simulated tasters compare teas with a slider, as in `gbt demo` but with fewer comparisons.
"""

import argparse
from pathlib import Path

import jax
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import gbt_jax as gbt
from gbt_jax import laws, plots, simulate

TEAS = ("Assam", "Ceylon", "Chai", "Darjeeling", "Genmaicha", "Jasmine", "Matcha", "Oolong")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figure of the README.")
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    folder = parser.parse_args().output
    jax.config.update("jax_enable_x64", True)
    model = gbt.Model(laws.Uniform(), prior_std=2.0)
    keys = jax.random.split(jax.random.key(4), 3)
    truth = simulate.scores(model, len(TEAS), key=keys[0])
    pairs = simulate.random_pairs(len(TEAS), 60, key=keys[1])
    fit = gbt.fit(model, simulate.comparisons(model.law, truth, pairs, key=keys[2]))
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    graph, ranking = figure.subplots(1, 2)
    plots.comparison_graph(fit, labels=TEAS, ax=graph)
    plots.ranking(fit, labels=TEAS, ax=ranking)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "ranking.png", dpi=90)
    print(f"wrote {folder / 'ranking.png'}")


if __name__ == "__main__":
    main()
