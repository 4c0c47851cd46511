"""Coverage of intervals: scores drawn from the prior, comparisons from the law.

    python benchmarks/coverage.py [--replicates 200] [--costly 40] [--laws Binary Uniform] [--csv F]

Scores θ† are normal with the model's σ, and pairs are random. An interval covers if it contains
θ†_a, θ†_a − θ†_b or the rank of θ†_a. The script prints coverage and its standard error over
replicates at nominal 50, 90 and 95%. With σ = 5 most comparisons of bounded laws are close to the
ends of the support.

- Laplace: `intervals`, `difference_std`, `rank_intervals`
- NUTS: quantiles of `sample_posterior`
- profile: `profile_intervals`
- likelihood: `likelihood_intervals` with the drop z²/2; without the prior, around the MAP
- bootstrap, sandwich: quantiles of `bootstrap`, and `robust_covariance`

The prior is well specified, so NUTS should have nominal coverage, and so should Laplace where the
posterior is close to normal. The other methods ignore shrinkage towards the prior mean and do not
promise nominal coverage; the table shows by how much they miss it.
"""

import argparse
import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import gbt_jax as gbt
from gbt_jax import laws

LAWS = {
    "Binary": laws.Binary(),
    "KNary(5)": laws.KNary(5),
    "Uniform": laws.Uniform(),
    "Gaussian": laws.Gaussian(1.0),
    "Skellam(1)": laws.Skellam(1.0),
}


class Size(NamedTuple):
    """Size of a problem: items, comparisons per item, and σ."""

    num_items: int
    per_item: int
    prior_std: float


SIZES = (Size(10, 1, 1.0), Size(10, 4, 1.0), Size(30, 16, 1.0), Size(10, 2, 5.0))
LEVELS = (0.5, 0.9, 0.95)
RESAMPLES = 200


class Ends(NamedTuple):
    """Intervals at one level: scores, differences of neighbours, ranks; None if unavailable."""

    scores: tuple | None
    differences: tuple | None
    ranks: tuple | None


Method = Callable[[gbt.Fit, jax.Array], list[Ends]]


def problem(law: laws.AbstractRootLaw, size: Size, seed: int) -> tuple[np.ndarray, gbt.Comparisons]:
    rng = np.random.default_rng(seed)
    num_items, num_rows = size.num_items, size.num_items * size.per_item
    truth = size.prior_std * rng.normal(size=num_items)
    a = rng.integers(0, num_items, num_rows)
    b = (a + 1 + rng.integers(0, num_items - 1, num_rows)) % num_items
    value = law.sample(jnp.asarray(truth[a] - truth[b]), key=jax.random.key(seed))
    return truth, gbt.Comparisons(a, b, value, num_items=num_items)


def neighbours(size: int) -> tuple[np.ndarray, np.ndarray]:
    items = np.arange(size)
    return items, np.roll(items, 1)


def ends_of(found: gbt.uncertainty.Intervals) -> tuple:
    return found.lower, found.upper


def around(centre: np.ndarray, width: np.ndarray, level: float) -> tuple:
    half = scipy.stats.norm.ppf(0.5 + level / 2) * np.asarray(width)
    return centre - half, centre + half


def laplace(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    made, (a, b) = gbt.curvature(fit), neighbours(fit.scores.size)
    scores = np.asarray(fit.scores)
    width = np.asarray(gbt.uncertainty.difference_std(fit, a, b, using=made))
    found = []
    for level in LEVELS:
        ranks = gbt.rank_intervals(fit, level=level, key=key, using=made)
        own = gbt.intervals(fit, level=level, using=made)
        differences = around(scores[a] - scores[b], width, level)
        found.append(Ends(ends_of(own), differences, ends_of(ranks)))
    return found


def of_draws(draws: np.ndarray) -> list[Ends]:
    """Quantiles of draws along the first axis."""
    a, b = neighbours(draws.shape[1])
    ranks = scipy.stats.rankdata(-draws, axis=1)

    def quantiles(x: np.ndarray, level: float) -> tuple:
        tails = [0.5 - level / 2, 0.5 + level / 2]
        return tuple(np.quantile(x, tails, axis=0, method="inverted_cdf"))

    return [
        Ends(
            quantiles(draws, level),
            quantiles(draws[:, a] - draws[:, b], level),
            quantiles(ranks, level),
        )
        for level in LEVELS
    ]


def nuts(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # 1% of R-hats exceed their limit by chance
        found = gbt.uncertainty.sample_posterior(fit, 500, key=key, warmup=300)
    return of_draws(np.asarray(found.flat))


def profile(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    del key
    return [
        Ends(ends_of(gbt.uncertainty.profile_intervals(fit, level=level)), None, None)
        for level in LEVELS
    ]


def likelihood(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    del key
    found = []
    for level in LEVELS:
        drop = scipy.stats.norm.ppf(0.5 + level / 2) ** 2 / 2
        sides = gbt.uncertainty.likelihood_intervals(fit, drop=drop)
        found.append(Ends(ends_of(sides), None, None))
    return found


def bootstrap(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    return of_draws(np.asarray(gbt.uncertainty.bootstrap(fit, RESAMPLES, key=key)))


def sandwich(fit: gbt.Fit, key: jax.Array) -> list[Ends]:
    del key
    matrix, scores = np.asarray(gbt.uncertainty.robust_covariance(fit)), np.asarray(fit.scores)
    a, b = neighbours(scores.size)
    own = np.sqrt(np.diagonal(matrix))
    apart = np.sqrt(np.maximum(matrix[a, a] + matrix[b, b] - 2 * matrix[a, b], 0))
    return [
        Ends(around(scores, own, level), around(scores[a] - scores[b], apart, level), None)
        for level in LEVELS
    ]


CHEAP: dict[str, Method] = {"Laplace": laplace, "likelihood": likelihood, "sandwich": sandwich}
COSTLY: dict[str, Method] = {"NUTS": nuts, "profile": profile, "bootstrap": bootstrap}


def coverages(
    method: Method, law: laws.AbstractRootLaw, size: Size, replicates: int
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """For each quantity, the coverage at each level and its standard error."""
    covered: dict[str, list[np.ndarray]] = {}
    for seed in range(replicates):
        truth, rows = problem(law, size, seed)
        fit = gbt.fit(gbt.Model(law, size.prior_std), rows)
        a, b = neighbours(truth.size)
        targets = (truth, truth[a] - truth[b], scipy.stats.rankdata(-truth))
        found = method(fit, jax.random.key(seed))
        for name, target, ends in zip(Ends._fields, targets, zip(*found, strict=True), strict=True):
            if ends[0] is not None:
                shares = [np.mean((lo <= target) & (target <= hi)) for lo, hi in ends]
                covered.setdefault(name, []).append(np.asarray(shares))
    for name, shares in covered.items():
        error = np.std(shares, axis=0, ddof=1) / np.sqrt(replicates)
        yield name, list(zip(np.mean(shares, axis=0), error, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--costly", type=int, default=40, help="replicates for slow methods")
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=list(LAWS))
    parser.add_argument("--csv", help="also write the table to this file")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("coverage in %, standard error in brackets")
    print(f"{'law':<11}{'items':>5}{'each':>5}{'σ':>3} {'method':<11}{'of':<12}", end="")
    print("".join(f"{f'nominal {100 * level:g}':>12}" for level in LEVELS))
    table = []
    for law in options.laws:
        is_bounded = np.isfinite(float(LAWS[law].max_value))
        for size in SIZES if is_bounded else SIZES[:-1]:
            for name, method in {**CHEAP, **COSTLY}.items():
                count = options.costly if name in COSTLY else options.replicates
                for quantity, shares in coverages(method, LAWS[law], size, count):
                    cells = "".join(f"{100 * p:>6.1f} ({100 * e:>3.1f})" for p, e in shares)
                    where = f"{law:<11}{size[0]:>5}{size[1]:>5}{size[2]:>3g}"
                    print(f"{where} {name:<11}{quantity:<12}{cells}")
                    sys.stdout.flush()
                    numbers = [number for pair in shares for number in pair]
                    table.append([law, *size, name, quantity, count, *numbers])
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            heads = [f"{kind}_{level}" for level in LEVELS for kind in ("coverage", "error")]
            first = ["law", *Size._fields, "method", "quantity", "replicates"]
            csv.writer(file).writerows([[*first, *heads], *table])


if __name__ == "__main__":
    main()
