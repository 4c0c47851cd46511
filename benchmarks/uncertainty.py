"""Time of uncertainty estimates, relative to their fits.

    python benchmarks/uncertainty.py

Ratios within one run, after compilation, best of several interleaved runs:

- standard deviations of 3,492 items (the largest Tournesol problem, Uniform, σ = 7) and of 3,500
  items with 100,000 random comparisons, relative to one dense Cholesky factorisation;
- likelihood intervals of the six Tournesol problems, relative to their fits;
- one bootstrap resample of A = 500, p = 0.2, Uniform, σ = 1, relative to one fit;
- standard deviations of 10,000 groups, relative to their fit.
"""

import jax
import numpy as np
from groups import simulated as simulated_groups
from single import best_times, erdos_renyi, simulated, tournesol

import gbt_jax as gbt
from gbt_jax import laws


def show_std(name: str, fit: gbt.Fit) -> None:
    hessian = np.asarray(
        jax.hessian(lambda x: gbt.negative_log_posterior(fit.model, fit.comparisons, x))(fit.scores)
    )
    times = best_times(
        {"std": lambda: gbt.std(fit), "factorisation": lambda: np.linalg.cholesky(hessian)}, 5
    )
    ratio = times["std"] / times["factorisation"]
    print(f"std of {name}: {ratio:.2f} dense Cholesky factorisations")


def show_likelihood(problems: list[gbt.Comparisons]) -> None:
    model = gbt.Model(laws.Uniform(), 7.0)
    fits = [gbt.fit(model, rows) for rows in problems]
    times = best_times(
        {
            "fits": lambda: [gbt.fit(model, rows).scores for rows in problems],
            "intervals": lambda: [gbt.uncertainty.likelihood_intervals(fit) for fit in fits],
        },
        5,
    )
    ratio = times["intervals"] / times["fits"]
    print(f"likelihood intervals of {len(problems)} Tournesol problems: {ratio:.2f} of their fits")


def show_bootstrap(num: int = 200) -> None:
    model, rows = gbt.Model(laws.Uniform(), 1.0), erdos_renyi(500, 0.2, laws.Uniform())
    fit = gbt.fit(model, rows)
    times = best_times(
        {
            "fits": lambda: [gbt.fit(model, rows).scores for _ in range(20)],
            "resamples": lambda: gbt.uncertainty.bootstrap(fit, num, key=jax.random.key(0)),
        },
        5,
    )
    ratio = (times["resamples"] / num) / (times["fits"] / 20)
    print(f"a bootstrap resample of {len(rows)} comparisons: {ratio:.2f} of a fit")


def show_groups(num: int = 10_000) -> None:
    model, data = gbt.Model(laws.Uniform(), 1.0), simulated_groups(num)
    fit = gbt.fit(model, data)
    times = best_times({"fit": lambda: gbt.fit(model, data).scores, "std": lambda: gbt.std(fit)}, 5)
    print(f"std of {num:,} groups: {times['std'] / times['fit']:.2f} of their fit")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    problems = tournesol()
    if problems:
        largest = max(problems, key=len)
        show_std(
            f"{largest.num_items} items (Tournesol)",
            gbt.fit(gbt.Model(laws.Uniform(), 7.0), largest),
        )
        show_likelihood(problems)
    dense = simulated(3500, 100_000, laws.Uniform())
    show_std("3500 items, 100000 comparisons", gbt.fit(gbt.Model(laws.Uniform(), 1.0), dense))
    show_bootstrap()
    show_groups()


if __name__ == "__main__":
    main()
