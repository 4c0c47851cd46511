"""Reproduce the paper's three experiments at full size, and test its conjecture on the prior.

    python benchmarks/paper_figures.py [--output DIR] [--seeds 10] [--quick] [--conjecture]

500 items with scores θ† from N(0, 1), comparisons from Uniform-GBT on an Erdős–Rényi graph, and the
error ‖θ* − θ†‖²/‖θ†‖², not centred, over seeds 1 to 10:

1. against the density p_c of the graph, with σ = 1;
2. against the number K of values to which comparisons are rounded, for the K-nary MAP, and for the
   Uniform MAP of the same comparisons before rounding;
3. against the prior precision 1/σ².

Writes the three plots as one PNG and the errors as CSV. `--conjecture` repeats the third experiment
for other standard deviations of the true scores and other densities, and compares the best σ with
the true one.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws, simulate

NUM_ITEMS = 500
DENSITIES = np.arange(0, 1.0001, 0.03)
LEVELS = range(2, 101, 2)
PRECISIONS = np.arange(0, 3.0001, 0.1)
DENSITY = 0.2


class Curve(NamedTuple):
    """Errors of an experiment: one row per setting (`places`), one column per seed."""

    places: np.ndarray
    errors: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """The mean over seeds."""
        return self.errors.mean(axis=1)


class Data(NamedTuple):
    """Comparisons of several seeds, concatenated, and the true scores."""

    owner: np.ndarray  # position of the seed
    a: np.ndarray
    b: np.ndarray
    value: np.ndarray
    truth: np.ndarray  # seeds × items


def drawn(seeds: Sequence[int], density: float, *, spread: float = 1.0, stream: int = 0) -> Data:
    """Uniform-GBT comparisons for every seed, on graphs of one density."""
    law, model = laws.Uniform(), gbt.Model(laws.Uniform(), spread)
    parts, truth = [], []
    for number, seed in enumerate(seeds):
        own = jax.random.key(seed)
        score_key, rest = jax.random.split(own)
        graph_key, value_key = jax.random.split(jax.random.fold_in(rest, stream))
        scores = simulate.scores(model, NUM_ITEMS, key=score_key)
        pairs = simulate.erdos_renyi(NUM_ITEMS, density, key=graph_key)
        value = np.asarray(simulate.comparisons(law, scores, pairs, key=value_key).value)
        parts.append((np.full(value.size, number), pairs.a, pairs.b, value))
        truth.append(np.asarray(scores))
    owner, a, b, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Data(owner, a, b, value, np.stack(truth))


def errors(model: gbt.Model, data: Data) -> np.ndarray:
    """‖θ* − θ†‖²/‖θ†‖² of each seed; items without comparisons get the prior mean, 0."""
    rows = gbt.Comparisons(data.a, data.b, data.value, num_items=NUM_ITEMS, group=data.owner)
    fit = gbt.fit(model, rows, throw=True)
    truth, found = data.truth, np.zeros_like(data.truth)
    found[fit.group, fit.item] = fit.scores
    return np.sum((found - truth) ** 2, axis=1) / np.sum(truth**2, axis=1)


def against_density(seeds: Sequence[int], densities: np.ndarray) -> Curve:
    model, found = gbt.Model(laws.Uniform(), 1.0), []
    for stream, density in enumerate(densities):
        data = drawn(seeds, density, stream=stream)
        found.append(errors(model, data))
    return Curve(densities, np.stack(found))


def against_levels(data: Data, levels: Sequence[int]) -> Curve:
    found = []
    for count in levels:
        steps = count - 1
        rounded = np.round((data.value + 1) / 2 * steps) / steps * 2 - 1
        found.append(errors(gbt.Model(laws.KNary(count), 1.0), data._replace(value=rounded)))
    return Curve(np.array(levels), np.stack(found))


def against_precision(data: Data, precisions: np.ndarray) -> Curve:
    """Errors for each precision; all precisions and seeds are groups of one fit."""
    seeds, count = data.truth.shape[0], precisions.size
    shift = np.repeat(np.arange(count) * seeds, data.owner.size)
    owner = np.tile(data.owner, count) + shift
    a, b, value = (np.tile(x, count) for x in (data.a, data.b, data.value))
    tiled = Data(owner, a, b, value, np.tile(data.truth, (count, 1)))
    with np.errstate(divide="ignore"):
        std = np.repeat(1 / np.sqrt(precisions), seeds)
    found = errors(gbt.Model(laws.Uniform(), std), tiled)
    return Curve(precisions, found.reshape(count, seeds))


def best_place(curve: Curve) -> np.ndarray:
    """The minimiser of each seed's error: the vertex of a parabola through the three lowest points.

    The parabola is fitted in the logarithm, where the curves are closer to quadratic.
    """
    x = np.log(curve.places)
    lowest = np.clip(np.argmin(curve.errors, axis=0), 1, x.size - 2)
    at = [curve.errors[lowest + i, np.arange(lowest.size)] for i in (-1, 0, 1)]
    spots = [x[lowest + i] for i in (-1, 0, 1)]
    left, right = spots[1] - spots[0], spots[1] - spots[2]
    down, up = at[1] - at[2], at[1] - at[0]
    vertex = spots[1] - 0.5 * (left**2 * down - right**2 * up) / (left * down - right * up)
    return np.exp(vertex)


def show_conjecture(seeds: Sequence[int]) -> list[dict[str, float]]:
    """Print the best σ over seeds relative to the true one."""
    rows = []
    print("\nIs the best σ the true one? Geometric mean of the best σ over seeds, 95% interval")
    print("true σ   density   best σ/true σ   95% interval    excess error at the true σ")
    for spread in (0.5, 1.0, 2.0):
        ratios = np.geomspace(0.4, 2.5, 17)
        for density in (0.02, 0.05, 0.2):
            data = drawn(seeds, density, spread=spread)
            curve = against_precision(data, (ratios * spread) ** -2.0)
            ratio = best_place(Curve(ratios, curve.errors))
            logs = np.log(ratio)
            middle, half = logs.mean(), 1.96 * logs.std(ddof=1) / np.sqrt(logs.size)
            low, high = np.exp(middle - half), np.exp(middle + half)
            at_truth = np.exp(np.mean(np.log(curve.errors[np.argmin(np.abs(np.log(ratios)))])))
            excess = at_truth / np.exp(np.mean(np.log(curve.errors.min(axis=0)))) - 1
            print(
                f"{spread:6.1f}   {density:7.2f}   {np.exp(middle):13.3f}   "
                f"{low:.3f} to {high:.3f}   {excess:10.2%}",
                flush=True,
            )
            rows.append(
                {
                    "true_std": spread,
                    "density": density,
                    "best_ratio": float(np.exp(middle)),
                    "lower": float(low),
                    "upper": float(high),
                    "excess": float(excess),
                }
            )
    return rows


def say(density: Curve, levels: Curve, uniform: np.ndarray, precision: Curve) -> None:
    """Print the paper's claims and the reproduced results."""
    falls = np.diff(density.mean)
    print("\n1. The paper: the error falls with density.")
    print(
        f"   From {density.mean[1]:.3f} at p_c = {density.places[1]:.2f} to "
        f"{density.mean[-1]:.4f} at {density.places[-1]:.2f}; it falls in "
        f"{np.count_nonzero(falls < 0)} of {falls.size} steps."
    )
    last, level = levels.errors[-1], uniform.mean()
    apart = last - uniform
    print("2. The paper: the error falls with K, to that of Uniform.")
    print(
        f"   {levels.mean[0]:.4f} at K = {levels.places[0]}, {last.mean():.5f} at K = "
        f"{levels.places[-1]}, Uniform {level:.5f}; difference {apart.mean():.1e} ± "
        f"{apart.std(ddof=1) / np.sqrt(apart.size):.0e}."
    )
    within = levels.places[np.flatnonzero(levels.mean <= 1.01 * level)]
    if within.size:
        print(f"   Within 1% of Uniform from K = {within[0]} on.")
    best = int(np.argmin(precision.mean))
    gain = precision.errors[0] - precision.errors[best]
    print("3. The paper: a small positive 1/σ² beats 0.")
    print(
        f"   {precision.mean[0]:.5f} without a prior, minimum {precision.mean[best]:.5f} at 1/σ² = "
        f"{precision.places[best]:.1f}; the gain is {gain.mean():.1e} ± "
        f"{gain.std(ddof=1) / np.sqrt(gain.size):.0e}, in {np.count_nonzero(gain > 0)} of "
        f"{gain.size} seeds."
    )


def draw(path: Path, density: Curve, levels: Curve, uniform: np.ndarray, precision: Curve) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    titles = (
        (density, "density of the graph $p_c$", "1. Density"),
        (levels, "number of answers $K$", "2. Discretisation"),
        (precision, "prior precision $1/\\sigma^2$", "3. Prior"),
    )
    for ax, (curve, label, title) in zip(axes, titles, strict=True):
        low, high = curve.errors.min(axis=1), curve.errors.max(axis=1)
        ax.fill_between(curve.places, low, high, alpha=0.2, label="range over seeds", lw=0)
        ax.plot(curve.places, curve.mean, label="mean", lw=1.8)
        ax.set(xlabel=label, title=title)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set(yscale="log", ylabel="‖θ* − θ†‖² / ‖θ†‖²")
    axes[1].set(yscale="log")
    axes[1].axhline(uniform.mean(), color="black", ls="--", lw=1, label="Uniform MAP")
    for ax in axes:
        ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def write(path: Path, curves: dict[str, Curve]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["experiment", "place", "seed", "error"])
        for name, curve in curves.items():
            for place, row in zip(curve.places.tolist(), curve.errors.tolist(), strict=True):
                writer.writerows([name, f"{place:g}", i + 1, e] for i, e in enumerate(row))


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's figures.")
    parser.add_argument("--output", type=Path, default=Path("paper_figures"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="every fifth point only")
    parser.add_argument("--conjecture", action="store_true", help="also locate the best σ")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options.output.mkdir(parents=True, exist_ok=True)
    seeds, step = range(1, options.seeds + 1), 5 if options.quick else 1
    start = time.perf_counter()

    density = against_density(seeds, DENSITIES[::step])
    print(f"1. density: {time.perf_counter() - start:.0f} s", flush=True)
    data = drawn(seeds, DENSITY)
    uniform = against_precision(data, np.ones(1)).errors[0]
    levels = against_levels(data, LEVELS[::step])
    print(f"2. levels: {time.perf_counter() - start:.0f} s", flush=True)
    precision = against_precision(data, PRECISIONS[::step])
    print(f"3. precision: {time.perf_counter() - start:.0f} s in total", flush=True)

    curves = {"density": density, "levels": levels, "precision": precision}
    curves["uniform"] = Curve(np.ones(1), uniform[None])
    write(options.output / "paper_figures.csv", curves)
    draw(options.output / "paper_figures.png", density, levels, uniform, precision)
    say(density, levels, uniform, precision)
    if options.conjecture:
        rows = show_conjecture(range(1, 2 * options.seeds + 1))
        with (options.output / "conjecture.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
