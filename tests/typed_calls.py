"""Calls as people write them, with lists, NumPy arrays and data frames.

Pyright checks this file (`include` in pyproject.toml), and tests/test_types.py runs it with every
annotation of `gbt_jax` checked at run time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import gbt_jax as gbt

KEY = jax.random.key(0)


def fit_lists() -> gbt.Fit:
    rows = gbt.Comparisons([0, 1, 2, 0], [1, 2, 0, 2], [0.5, 0.2, -0.3, 0.9], num_items=3)
    model = gbt.Model(gbt.laws.Uniform(), prior_std=[7.0, 7.0, 1.0])
    for solver in (gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky(), gbt.solvers.LBFGS()):
        gbt.fit(model, rows, solver=solver, initial=[0.0, 0.0, 0.0], rtol=1e-6)
    return gbt.fit(model, rows)


def fit_arrays() -> gbt.Fit:
    a, b = np.array([0, 1, 2, 0]), np.array([1, 2, 0, 2])
    size = np.int64(3)
    law = gbt.laws.Davidson(np.array([1.0, 2.0, 1.0, 2.0]))
    return gbt.fit(gbt.Model(law, np.inf), gbt.Comparisons(a, b, [1, 1, 1, 0], num_items=size))


def fit_groups() -> gbt.Fit:
    model = gbt.Model(gbt.laws.KNary(5), prior_std=2)
    a, b, value = ["x", "y", "z", "x"], ["y", "z", "x", "z"], (0.5, 1, -0.5, 0)
    return gbt.fit(model, gbt.Comparisons.from_labels(a, b, value, group=["u", "u", "v", "v"]))


def fit_frame() -> gbt.Fit:
    frame = pd.DataFrame({"a": ["x", "y"], "b": ["y", "z"], "value": [1.0, -2.0], "n": [1, 3]})
    rows = gbt.Comparisons.from_labels(frame["a"], frame["b"], frame["value"], frame["n"])
    return gbt.fit(gbt.Model(gbt.laws.Gaussian()), rows)


def read_scores(fit: gbt.Fit) -> None:
    """What every fit answers, with groups or without."""
    gbt.std(fit)
    gbt.sensitivity(fit, items=[0], comparisons=range(1))
    gbt.predict(fit, [0], [1], law=gbt.laws.Binary()).log_prob([1.0])
    gbt.prob_better(fit, 0, 1)
    gbt.calibration(fit, fit.comparisons, law=fit.model.law)
    gbt.check_monotone(fit, rows=[0])
    gbt.rank_intervals(fit, num=10, key=KEY).estimate.sum()
    gbt.intervals(fit, level=0.9).lower.min()
    gbt.uncertainty.difference_std(fit, [0], np.array([1]))
    assert np.all(fit.result == gbt.RESULTS.successful)


def read_one(fit: gbt.Fit) -> None:
    """What a fit without groups answers."""
    first, second = np.argsort(-np.asarray(fit.scores))[:2]
    gbt.check_new_comparison(fit, first, second)
    gbt.check_resilience(fit)
    gbt.what_if(fit, removed=[0])
    gbt.influence.leave_out(fit, comparisons=[0, 1])
    gbt.influence.flip_set(fit, first, second)
    gbt.influence.required_change(fit, int(second), 0.001)
    gbt.uncertainty.covariance(fit)
    gbt.uncertainty.profile_intervals(fit, items=[0])


def transform() -> None:
    rows = gbt.Comparisons([0, 1], [1, 2], [0.5, 0.2], num_items=3)

    def scores(value: jax.Array) -> jax.Array:
        return gbt.map_scores(gbt.Model(gbt.laws.Uniform()), rows.with_values(value))

    jax.jit(scores)(rows.value)
    jax.jacrev(scores)(rows.value)
    jax.vmap(scores)(jnp.stack([rows.value, rows.value]))


def main() -> None:
    single, arrays, groups = fit_lists(), fit_arrays(), fit_groups()
    for fit in (single, arrays, groups, groups["u"], fit_frame()):
        read_scores(fit)
    read_one(single)
    transform()


if __name__ == "__main__":
    main()
