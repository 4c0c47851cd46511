"""Largest errors of every root law, compared with 40-digit arithmetic.

    python benchmarks/law_accuracy.py [--markdown]

Prints, for each law, the largest relative error of Φ, Φ', Φ'' (in units in the last place, ulp) and
Φ''' over a grid of special points, the switch points of the implementation ± one ulp, and 1,000
log-uniform random points, in float64 and float32, and the errors of the textbook formulas.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from mp_reference import cumulants, textbook

from gbt_jax import laws

mp: Any = mpmath.mp

SPECIAL_POINTS = (
    *(sign * t for t in (1e-300, 1e-12, 1e-8, 1e-4, 1e-2) for sign in (1, -1)),
    *(0.0, 0.1, 0.5, 1, 2, 3, 5, 10, 30, 100, 700, 1e4, 1e6),
)
NUM_RANDOM = 1000


class Case(NamedTuple):
    """A law, its name in the reference, and the points where its implementation switches."""

    label: str
    make: Callable[[], laws.AbstractRootLaw]
    reference: tuple[str, tuple]
    switches: tuple[float, ...] = (1.0,)


def _finite(values: tuple[float, ...], weights: tuple[float, ...]) -> Case:
    return Case(
        f"Finite({len(values)} values)",
        lambda: laws.Finite(jnp.asarray(values), jnp.asarray(weights)),
        ("Finite", (values, weights)),
        (1 / max(values), 283.9 / max(values), 35.48 / max(values)),
    )


def _bessel(beta: float) -> Case:
    return Case(f"Beta({beta:g})", lambda: laws.Beta(beta), ("Beta", (beta,)), (20.0, 60.0))


def _knary(k: int) -> Case:
    switches = (k - 1.0, (k - 1) / k)
    return Case(f"KNary({k})", lambda: laws.KNary(k), ("KNary", (k,)), switches)


CASES = (
    Case("Binary", laws.Binary, ("Binary", ())),
    Case("BradleyTerry", laws.BradleyTerry, ("BradleyTerry", ()), (2.0,)),
    *(_knary(k) for k in (2, 3, 5, 21, 101, 1001)),
    *(
        Case(f"Davidson({nu:g})", lambda nu=nu: laws.Davidson(nu), ("Davidson", (nu,)))
        for nu in (0.0, 0.3, 2.0, 1e6)
    ),
    *(
        Case(f"Binomial({n})", lambda n=n: laws.Binomial(n), ("Binomial", (n,)), (float(n),))
        for n in (1, 7, 50)
    ),
    _finite((-1.0, -0.1, 0.1, 1.0), (0.2, 0.3, 0.3, 0.2)),
    _finite((-2.5, -0.7, 0.0, 0.7, 2.5), (1.0, 3.0, 2.0, 3.0, 1.0)),
    Case("Uniform", laws.Uniform, ("Uniform", ())),
    *(_bessel(beta) for beta in (0.05, 0.5, 1.0, 2.0, 3.7, 10.0, 100.0)),
    *(
        Case(f"Gaussian({s:g})", lambda s=s: laws.Gaussian(s), ("Gaussian", (s,)))
        for s in (0.3, 1.0)
    ),
    *(
        Case(f"Skellam({rate:g})", lambda rate=rate: laws.Skellam(rate), ("Skellam", (rate,)))
        for rate in (1e-3, 2.7, 1e3)
    ),
    *(
        Case(
            f"SymmetrizedPoisson({rate:g})",
            lambda rate=rate: laws.SymmetrizedPoisson(rate),
            ("SymmetrizedPoisson", (rate,)),
        )
        for rate in (0.2, 2.7)
    ),
    Case(
        "Scaled(KNary(21), 0.37)",
        lambda: laws.Scaled(laws.KNary(21), 0.37),
        ("Scaled", ("KNary", (21,), 0.37)),
        (20 / 0.37,),
    ),
    Case(
        "Sum(Uniform, Davidson(1))",
        lambda: laws.Sum(laws.Uniform(), laws.Davidson(1.0)),
        ("Sum", ("Uniform", (), "Davidson", (1.0,))),
    ),
)


def points(case: Case, dtype: type) -> np.ndarray:
    """The grid of the accuracy tables, distinct and representable in dtype."""
    rng = np.random.default_rng(0)
    random = np.exp(rng.uniform(math.log(1e-12), math.log(1e6), NUM_RANDOM))
    random *= rng.choice([-1, 1], NUM_RANDOM)
    near = []
    for switch in case.switches:
        at = np.asarray(switch, dtype)
        near += [at, np.nextafter(at, dtype(np.inf)), np.nextafter(at, dtype(0))]
    return np.unique(np.concatenate([SPECIAL_POINTS, near, random]).astype(dtype))


def derivatives(law: laws.AbstractRootLaw) -> Callable[[Any], tuple[Any, ...]]:
    """t ↦ (Φ, Φ', Φ'', Φ''') with Φ''' by automatic differentiation of Φ''."""

    @jax.jit
    def evaluate(t):
        variance, third = jax.jvp(law.variance, (t,), (jnp.ones_like(t),))
        return law.cgf(t), law.mean(t), variance, third

    return evaluate


def relative_errors(values: np.ndarray, truths: list, dtype: type) -> np.ndarray:
    """|value/truth − 1|; 0 where both vanish or overflow together, inf for NaN or a wrong zero."""
    tiny, largest = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    errors = np.zeros(len(truths))
    with mp.workdps(60):
        for i, truth in enumerate(truths):
            value = float(values[i])
            if abs(truth) < tiny:  # subnormal numbers are flushed to zero
                errors[i] = 0.0 if abs(value) <= 2 * tiny else np.inf
            elif abs(truth) > largest:
                errors[i] = np.inf if math.isfinite(value) else 0.0
            else:
                errors[i] = (
                    float(abs(mp.mpf(value) / truth - 1)) if math.isfinite(value) else np.inf
                )
    return errors


def reference_in(dtype: type, reference: tuple[str, tuple]) -> tuple[str, tuple]:
    """The reference law with its parameters rounded to dtype, as in the library."""

    def rounded(value):
        if isinstance(value, tuple):
            return tuple(rounded(v) for v in value)
        return float(dtype(value)) if isinstance(value, float) else value

    name, parameters = reference
    return name, tuple(rounded(value) for value in parameters)


def law_errors(case: Case, dtype: type) -> list[tuple[float, float]]:
    """(largest relative error, its t) of Φ, Φ', Φ'', Φ'''."""
    t = points(case, dtype)
    law = jax.tree.map(lambda x: x.astype(dtype) if eqx_is_float(x) else x, case.make())
    name, parameters = reference_in(dtype, case.reference)
    truths = [cumulants(name, parameters, float(x)) for x in t]
    worst = []
    for order, values in enumerate(derivatives(law)(jnp.asarray(t))):
        errors = relative_errors(np.asarray(values), [truth[order] for truth in truths], dtype)
        at = int(np.argmax(errors))
        worst.append((float(errors[at]), float(t[at])))
    return worst


def eqx_is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def textbook_errors(case: Case) -> list[tuple[float, float]] | None:
    """The same for the textbook formulas in float64; None if there are none."""
    name, parameters = case.reference
    try:
        formulas = textbook(name, parameters)
    except (KeyError, ValueError):
        return None
    t = points(case, np.float64)
    truths = [cumulants(name, parameters, float(x)) for x in t]
    worst = []
    with np.errstate(all="ignore"):
        for order, formula in enumerate(formulas):
            truth = [row[order] for row in truths]
            errors = relative_errors(np.asarray(formula(t)), truth, np.float64)
            at = int(np.argmax(errors))
            worst.append((float(errors[at]), float(t[at])))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    markdown = parser.parse_args().markdown
    jax.config.update("jax_enable_x64", True)
    header = ["law", "Φ", "Φ'", "Φ''", "Φ'''", "Φ", "Φ'", "Φ''", "Φ''"]
    units = ["", "f64 ulp", "f64 ulp", "f64 ulp", "f64 rel.", "f32 ulp", "f32 ulp", "f32 ulp"]
    units += ["textbook ulp"]
    line = "| {} |" if markdown else "{}"
    separator, widths = (" | ", [0] * 9) if markdown else ("  ", [26, *[8] * 7, 12])

    def show(cells):
        padded = (f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        print(line.format(separator.join(padded)), flush=True)

    if markdown:
        header = [
            f"{name} ({unit})" if unit else name for name, unit in zip(header, units, strict=True)
        ]
    show(header)
    show(["---"] * 9 if markdown else units)
    for case in CASES:
        double, single = law_errors(case, np.float64), law_errors(case, np.float32)
        naive = textbook_errors(case)
        row = [case.label, *(f"{e / np.finfo(np.float64).eps:.1f}" for e, _ in double[:3])]
        row += [f"{double[3][0]:.0e}"]
        row += [f"{e / np.finfo(np.float32).eps:.1f}" for e, _ in single[:3]]
        row += ["–" if naive is None else f"{naive[2][0] / np.finfo(np.float64).eps:.1g}"]
        show(row)


if __name__ == "__main__":
    main()
