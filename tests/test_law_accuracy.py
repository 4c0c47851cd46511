"""Every law against 40-digit arithmetic, to the last digits: the bars of the accuracy tables."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import law_accuracy
import numpy as np
import pytest
from mp_reference import cumulants, mp

from gbt_jax import laws

ULP_BAR = 32
THIRD_ORDER_BAR = 1e-11
DENSITY_BAR = 1e-12

every_case = pytest.mark.parametrize("case", law_accuracy.CASES, ids=lambda case: case.label)


@every_case
def test_float64(case):
    *orders, third = law_accuracy.law_errors(case, np.float64)
    for order, (error, where) in enumerate(orders):
        assert error <= ULP_BAR * np.finfo(np.float64).eps, (order, where)
    assert third[0] <= THIRD_ORDER_BAR, third


@every_case
def test_float32(case):
    for order, (error, where) in enumerate(law_accuracy.law_errors(case, np.float32)[:3]):
        assert error <= ULP_BAR * np.finfo(np.float32).eps, (order, where)


class DensityCase(NamedTuple):
    """log f on [−R, R] for the library, and for mpmath."""

    label: str
    in_jax: Callable[[Any, float], Any]
    in_mpmath: Callable[[Any, Any], Any]


DENSITIES = (
    DensityCase("constant", lambda r, _: jnp.zeros_like(r), lambda _r, _: mp.mpf(0)),
    DensityCase("bell", lambda r, _: -3 * r * r, lambda r, _: -3 * r * r),
    DensityCase(
        "parabola",
        lambda r, edge: jnp.log((edge - r) * (edge + r)),
        lambda r, edge: mp.log((edge - r) * (edge + r)),
    ),
    DensityCase("wave", lambda r, _: jnp.cos(2 * r), lambda r, _: mp.cos(2 * r)),
)
DENSITY_POINTS = (0.0, 1e-300, -1e-8, 1e-4, 0.01, 0.3, 1.0, -3.0, 10.0, 30.0, 100.0, -300.0)
DENSITY_POINTS += (1e3, 1e4, 1e5)


@pytest.mark.parametrize("edge", [1.0, 2.5])
@pytest.mark.parametrize("case", DENSITIES, ids=lambda case: case.label)
def test_density(case, edge):
    law = laws.Density(lambda r: case.in_jax(r, edge), edge)
    values = law_accuracy.derivatives(law)(jnp.asarray(DENSITY_POINTS))
    reference = (lambda r: case.in_mpmath(r, mp.mpf(edge)), edge)
    truths = [cumulants("Density", reference, t) for t in DENSITY_POINTS]
    for order in range(3):
        truth = [row[order] for row in truths]
        errors = law_accuracy.relative_errors(np.asarray(values[order]), truth, np.float64)
        assert errors.max() <= DENSITY_BAR, (order, DENSITY_POINTS[int(errors.argmax())])
