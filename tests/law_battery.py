"""The laws that every test of the battery runs on. A new law is one more line of `LAWS`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from gbt_jax import laws


class Bell(eqx.Module):
    """A log-density with a parameter: −c r²."""

    sharpness: Array

    def __call__(self, r: Array) -> Array:
        return -self.sharpness.astype(r.dtype) * r * r


def _finite(top: Array, inner: Array, mass: Array) -> laws.Finite:
    values = jnp.stack([-top, -inner, jnp.zeros_like(top), inner, top])
    one = jnp.ones_like(mass)
    return laws.Finite(values, jnp.stack([mass, one, 2 * one, one, mass]))


class LawCase(NamedTuple):
    """A law made from its scalar parameters, and what the tests must know beyond its methods."""

    label: str
    make: Callable[..., laws.AbstractRootLaw]
    parameters: tuple[float, ...] = ()
    edge_power: float = 0.0  # the density behaves like (1 − |r|/max)^edge_power at its ends

    @property
    def law(self) -> laws.AbstractRootLaw:
        return _build(self)

    @property
    def is_integer(self) -> bool:
        """Whether the support is all integers: tilts beyond 5 give counts beyond counting."""
        return self.law.is_discrete and self.law.atoms() is None

    def tilts(self, *candidates: float) -> tuple[float, ...]:
        """Those of the candidates at which the law can be summed and drawn."""
        return tuple(t for t in candidates if abs(t) <= 5 or not self.is_integer)

    def support(self) -> np.ndarray:
        """All values of a discrete law, but for those that never occur at the tilts above."""
        atoms = self.law.atoms()
        return np.arange(-600.0, 601.0) if atoms is None else np.unique(np.asarray(atoms[0]))


@functools.cache
def _build(case: LawCase) -> laws.AbstractRootLaw:
    with jax.ensure_compile_time_eval():  # also when a traced test asks first
        return case.make(*(jnp.asarray(p) for p in case.parameters))


@functools.cache
def evaluator(case: LawCase) -> Callable[[Any], tuple[Array, Array, Array]]:
    """t ↦ (Φ, Φ', Φ''), compiled once for all tests."""
    law = case.law
    return jax.jit(lambda t: (law.cgf(t), law.mean(t), law.variance(t)))


@functools.cache
def log_prob(case: LawCase) -> Callable[[Any, Any], Array]:
    """value, t ↦ log p(value | t), compiled once for all tests."""
    return jax.jit(lambda value, t: case.law.log_prob(value, t))


LAWS = (
    LawCase("Binary", laws.Binary),
    LawCase("BradleyTerry", laws.BradleyTerry),
    LawCase("KNary(5)", lambda: laws.KNary(5)),
    LawCase("Davidson(0.7)", laws.Davidson, (0.7,)),
    LawCase("Binomial(7)", lambda: laws.Binomial(7)),
    LawCase("Finite", _finite, (1.5, 0.4, 0.3)),
    LawCase("Uniform", laws.Uniform),
    LawCase("Beta(0.3)", laws.Beta, (0.3,), edge_power=-0.7),
    LawCase("Beta(4)", laws.Beta, (4.0,), edge_power=3.0),
    LawCase(
        "Density(bell)",
        lambda sharpness, edge: laws.Density(Bell(sharpness), edge, num_nodes_log2=7),
        (1.5, 2.0),
    ),
    LawCase("Gaussian(0.8)", laws.Gaussian, (0.8,)),
    LawCase("Skellam(1.3)", laws.Skellam, (1.3,)),
    LawCase("SymmetrizedPoisson(1.3)", laws.SymmetrizedPoisson, (1.3,)),
    LawCase("Scaled(KNary(5))", lambda scale: laws.Scaled(laws.KNary(5), scale), (0.37,)),
    LawCase("Scaled(Uniform)", lambda scale: laws.Scaled(laws.Uniform(), scale), (3.0,)),
    LawCase(
        "Sum(Uniform, Davidson)", lambda nu: laws.Sum(laws.Uniform(), laws.Davidson(nu)), (1.0,)
    ),
    LawCase(
        "Sum(Davidson, Skellam)",
        lambda nu, rate: laws.Sum(laws.Davidson(nu), laws.Skellam(rate)),
        (0.5, 0.9),
    ),
)


def over_laws(cases: tuple[LawCase, ...]) -> Any:
    """Run a test on each law."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.label)


every_law = over_laws(LAWS)
