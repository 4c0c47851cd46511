"""Time of sensitivities and influences, and accuracy of predicted influences.

    python benchmarks/sensitivities.py

A = 500, p = 0.2, Uniform, σ = 1: 500 × 25,000 derivatives of every score in every value. NumPy
inverts a given Hessian and takes differences of its columns; `sensitivity` starts from the fit.
Times are after compilation, best of ten interleaved runs.

Influences of all comparisons of the largest Tournesol problem, Uniform, σ = 7, are compared with
refits of the hundred that move scores most, in l2. Then the votes of each judge of LLMFAO are left
out, with a prior and without, by `influence.leave_out` and by a loop of fits.
"""

import csv
import time

import jax
import numpy as np
from peer_problems import LLMFAO
from single import best_times, erdos_renyi, tournesol

import gbt_jax as gbt
from gbt_jax import laws


def show_influences(comparisons: gbt.Comparisons) -> None:
    fit = gbt.fit(gbt.Model(laws.Uniform(), 7.0), comparisons)
    best = best_times({"all": lambda: gbt.influence.leave_out(fit)}, 3)["all"]
    found = np.asarray(gbt.influence.leave_out(fit))
    top = np.argsort(-np.linalg.norm(found, axis=0))[:100]
    gbt.influence.leave_out(fit, comparisons=top[:1], exact=True)
    start = time.perf_counter()
    exact = np.asarray(gbt.influence.leave_out(fit, comparisons=top, exact=True))
    refits = (time.perf_counter() - start) / top.size * len(comparisons)
    error = np.linalg.norm(found[:, top] - exact, axis=0) / np.linalg.norm(exact, axis=0)
    print(
        f"influences of {len(comparisons)} comparisons of {comparisons.num_items} items: ", end=""
    )
    print(f"1/{refits / best:.0f} of the time of refits; error of the hundred largest: ", end="")
    print(f"median {np.median(error):.2%}, worst {error.max():.2%}")


def show_judges() -> None:
    with open(LLMFAO, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    a, b, judge = ([row[name] for row in rows] for name in ("left", "right", "worker"))
    value = [{"left": 1.0, "right": -1.0, "tie": 0.0}[row["winner"]] for row in rows]
    comparisons, judge = gbt.Comparisons.from_labels(a, b, value), np.array(judge)

    for std in (1.0, np.inf):
        model = gbt.Model(laws.Davidson(1.0), std)
        fit = gbt.fit(model, comparisons)

        def by_fits(model=model, fit=fit) -> np.ndarray:
            without = (comparisons.with_weights(judge != name) for name in np.unique(judge))
            changes = [gbt.fit(model, rows).scores - fit.scores for rows in without]
            return np.stack([np.asarray(change) for change in changes], axis=1)

        def left_out(fit=fit) -> np.ndarray:
            return np.asarray(gbt.influence.leave_out(fit, groups=judge))

        times = best_times({"leave_out": left_out, "fits": by_fits}, 5)
        apart = np.abs(left_out() - by_fits()).max()
        print(f"votes of {np.unique(judge).size} judges left out, prior std {std:g}: ", end="")
        print(
            f"{times['leave_out'] / times['fits']:.2f} of the time of fits; difference {apart:.0e}"
        )


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    show_sensitivities()
    problems = tournesol()
    if problems:
        show_influences(max(problems, key=len))
    if LLMFAO.exists():
        show_judges()


def show_sensitivities() -> None:
    comparisons = erdos_renyi(500, 0.2, laws.Uniform())
    model = gbt.Model(laws.Uniform(), 1.0)
    fit = gbt.fit(model, comparisons)
    hessian = np.asarray(
        jax.hessian(lambda x: gbt.negative_log_posterior(model, comparisons, x))(fit.scores)
    )
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)

    def by_numpy() -> np.ndarray:
        inverse = np.linalg.inv(hessian)
        return inverse[:, a] - inverse[:, b]

    times = best_times({"NumPy": by_numpy, "sensitivity": lambda: gbt.sensitivity(fit)}, 10)
    apart = np.abs(by_numpy() - np.asarray(gbt.sensitivity(fit))).max()
    print(f"{hessian.shape[0]} × {a.size} sensitivities: ", end="")
    print(f"{times['sensitivity'] / times['NumPy']:.2f} of NumPy's time; difference {apart:.0e}")
    batched = jax.jit(jax.jacrev(lambda v: gbt.map_scores(model, comparisons.with_values(v))))
    some = np.asarray(batched(comparisons.value))
    print(f"largest difference to jax.jacrev(map_scores): {np.abs(some - by_numpy()).max():.0e}")


if __name__ == "__main__":
    main()
