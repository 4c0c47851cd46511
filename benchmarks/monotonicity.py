"""Search for violations of monotonicity: random problems of every law, and other scorers.

    python benchmarks/monotonicity.py                # ten thousand problems per law
    python benchmarks/monotonicity.py --problems 500 --laws Binary Uniform

Every problem has 2 to 12 items, 1 to 30 comparisons of random pairs with weights from 0.1 to 10,
its own prior (σ from 0.1 to 100), scores drawn from the prior, and values drawn from the law. A
tenth of the values are replaced by extreme ones. For continuous laws the sign of every derivative
is checked; for discrete laws every comparison is raised by one step and the model refitted.

The same check then runs on other common scorers.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws

LAWS = {
    "Binary": laws.Binary(),
    "BradleyTerry": laws.BradleyTerry(),
    "KNary(5)": laws.KNary(5),
    "Davidson(1)": laws.Davidson(1.0),
    "Binomial(4)": laws.Binomial(4),
    "Finite": laws.Finite(np.array([-2.0, -0.5, 0, 0.5, 2.0]), np.array([1.0, 2, 4, 2, 1])),
    "Uniform": laws.Uniform(),
    "Beta(0.3)": laws.Beta(0.3),
    "Beta(4)": laws.Beta(4.0),
    "Density": laws.Density(lambda r: -4 * r**2, max_value=1.0),
    "Gaussian(0.7)": laws.Gaussian(0.7),
    "Skellam(1.5)": laws.Skellam(1.5),
    "SymmetrizedPoisson(1)": laws.SymmetrizedPoisson(1.0),
    "Scaled(Uniform, 3)": laws.Scaled(laws.Uniform(), 3.0),
}


def random_fits(law: laws.AbstractRootLaw, count: int, seed: int = 0) -> gbt.Fit:
    """Fits of random problems, one group each."""
    rng = np.random.default_rng(seed)
    num_items, num_rows = rng.integers(2, 13, count), rng.integers(1, 31, count)
    group = np.repeat(np.arange(count), num_rows)
    size = num_items[group]
    a = np.floor(rng.random(group.size) * size).astype(int)
    b = (a + 1 + np.floor(rng.random(group.size) * (size - 1)).astype(int)) % size
    std = np.exp(rng.uniform(np.log(0.1), np.log(100), count))
    scores = np.minimum(std, 3)[:, None] * rng.normal(size=(count, 12))
    t = jnp.asarray(scores[group, a] - scores[group, b])
    value = np.asarray(law.sample(t, key=jax.random.key(seed)))
    top = float(law.max_value)
    edge = rng.choice([-1.0, 1.0], group.size) * (top if np.isfinite(top) else 20.0)
    value = np.where(rng.random(group.size) < 0.1, edge, value)
    weight = np.exp(rng.uniform(np.log(0.1), np.log(10), group.size))
    rows = gbt.Comparisons(a, b, value, weight, num_items=12, group=group)
    return gbt.fit(gbt.Model(law, std), rows)


def average(comparisons: gbt.Comparisons) -> np.ndarray:
    """The mean value in favour of each item."""
    a, b, value = (np.asarray(x) for x in (comparisons.a, comparisons.b, comparisons.value))
    weight, size = np.asarray(comparisons.weight), comparisons.num_items
    total = np.bincount(a, weight * value, size) - np.bincount(b, weight * value, size)
    return total / np.maximum(np.bincount(a, weight, size) + np.bincount(b, weight, size), 1e-9)


def average_with_cut(comparisons: gbt.Comparisons) -> np.ndarray:
    """The same without values beyond 0.9, treated as outliers."""
    kept = np.where(np.abs(np.asarray(comparisons.value)) > 0.9, 0.0, comparisons.weight)
    return average(comparisons.with_weights(kept))


def rank_centrality(comparisons: gbt.Comparisons) -> np.ndarray:
    """Log stationary probabilities of a walk that moves from a to b at rate (1 − r)/2."""
    size = comparisons.num_items
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    share = (1 + np.asarray(comparisons.value)) / 2
    rate = np.full((size, size), 1e-3)  # makes the walk irreducible
    np.add.at(rate, (a, b), np.asarray(comparisons.weight) * (1 - share))
    np.add.at(rate, (b, a), np.asarray(comparisons.weight) * share)
    np.fill_diagonal(rate, 0)
    walk = rate - np.diag(rate.sum(axis=1))
    system = np.concatenate([walk.T, np.ones((1, size))])
    stationary = np.linalg.lstsq(system, np.append(np.zeros(size), 1), rcond=None)[0]
    return np.log(stationary)


def elo(gain: float) -> Callable[[gbt.Comparisons], np.ndarray]:
    """Ratings updated row by row, in the given order."""

    def ratings(comparisons: gbt.Comparisons) -> np.ndarray:
        scores = np.zeros(comparisons.num_items)
        fields = comparisons.a, comparisons.b, comparisons.value, comparisons.weight
        for a, b, value, weight in zip(*map(np.asarray, fields), strict=True):
            moved = gain * weight * (value - np.tanh(scores[a] - scores[b]))
            scores[a] += moved
            scores[b] -= moved
        return scores

    return ratings


SCORERS = {
    "average": average,
    "average without values beyond 0.9": average_with_cut,
    "rank centrality": rank_centrality,
    "Elo, gain 0.2": elo(0.2),
    "Elo, gain 1.5": elo(1.5),
}


def sliders(seed: int = 1) -> gbt.Comparisons:
    """Eight items, forty sliders."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 8, 40)
    b = (a + 1 + rng.integers(0, 7, 40)) % 8
    return gbt.Comparisons(a, b, rng.uniform(-0.95, 0.95, 40), num_items=8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=list(LAWS))
    options = parser.parse_args()
    count = options.problems
    jax.config.update("jax_enable_x64", True)
    print(f"{count} random problems per law")
    print(f"{'law':<24}{'comparisons':>12}{'violations':>12}{'least rise':>12}{'seconds':>9}")
    for name in options.laws:
        law, start = LAWS[name], time.perf_counter()
        fit = random_fits(law, count)
        report = gbt.check_monotone(fit)
        failed = f"  ({len(fit.failures())} fits failed)" if fit.failures() else ""
        seconds = time.perf_counter() - start
        print(
            f"{name:<24}{report.checked:>12}{0 if report.holds else 'FOUND':>12}"
            f"{report.margin:>12.2e}{seconds:>9.1f}{failed}"
        )
        if not report.holds:
            print(report)
    print()
    for name, scorer in SCORERS.items():
        report = gbt.check_monotone(scorer, sliders(), step=0.05)
        print(f"{name}\n{report}\n")


if __name__ == "__main__":
    main()
