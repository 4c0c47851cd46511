"""Time of Φ, Φ' and Φ'' of every law, relative to tanh and softplus.

    python benchmarks/law_speed.py [--points N] [--repeats N]

Prints, for each law, the time to evaluate `cgf`, `mean` and `variance` together under jit on a
million float64 points, divided by the time of `jnp.tanh` plus `jnp.log1p(jnp.exp(·))` on the same
points, and the time to compile. Calls of the law and of the baseline are interleaved,
and the best of each counts, which reduces noise from other processes.
Limits: a ratio of at most 4 for Binary, KNary and Uniform; compilation below 2 s for every law.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gbt_jax import laws

RATIO_BAR, COMPILE_BAR = 4.0, 2.0
BARRED = ("Binary", "KNary(21)", "Uniform")


def every_law() -> dict[str, laws.AbstractRootLaw]:
    return {
        "Binary": laws.Binary(),
        "BradleyTerry": laws.BradleyTerry(),
        "KNary(21)": laws.KNary(21),
        "Davidson(1)": laws.Davidson(1.0),
        "Binomial(7)": laws.Binomial(7),
        "Finite(5 values)": laws.Finite(jnp.linspace(-1, 1, 5), jnp.ones(5)),
        "Uniform": laws.Uniform(),
        "Beta(2)": laws.Beta(2.0),
        "Gaussian(1)": laws.Gaussian(1.0),
        "Skellam(1)": laws.Skellam(1.0),
        "SymmetrizedPoisson(1)": laws.SymmetrizedPoisson(1.0),
        "Scaled(Binary, 0.3)": laws.Scaled(laws.Binary(), 0.3),
        "Sum(Binary, Uniform)": laws.Sum(laws.Binary(), laws.Uniform()),
        "Density(bell)": laws.Density(lambda r: -3 * r * r),
    }


def yardstick(t: Array) -> tuple[Array, Array]:
    return jnp.tanh(t), jnp.log1p(jnp.exp(t))


def all_three(law: laws.AbstractRootLaw) -> Callable[[Array], tuple[Array, ...]]:
    return lambda t: (law.cgf(t), law.mean(t), law.variance(t))


def compiled(function: Callable, t: Array) -> tuple[Callable, float]:
    """The compiled function, and the seconds that tracing and compiling it took."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(t).compile()
    return executable, time.perf_counter() - start


def seconds(function: Callable, t: Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(t))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    t = jnp.asarray(np.random.default_rng(0).normal(scale=3.0, size=arguments.points))
    # Density sums over 900 nodes per point, so it gets a thousandth of the points.
    few = t[: max(1, arguments.points // 1000)]
    reference, _ = compiled(yardstick, t)
    reference_few, _ = compiled(yardstick, few)
    print(f"{'law':24s} {'× tanh + softplus':>18s} {'ns/point':>9s} {'compile s':>10s}")
    for name, law in every_law().items():
        points, ruler = (few, reference_few) if name.startswith("Density") else (t, reference)
        function, compile_time = compiled(all_three(law), points)
        times, ruler_times = [], []
        for _ in range(arguments.repeats):
            ruler_times.append(seconds(ruler, points))
            times.append(seconds(function, points))
        ratio = min(times) / min(ruler_times)
        missed = [f"ratio above {RATIO_BAR}"] if name in BARRED and ratio > RATIO_BAR else []
        missed += [f"compile above {COMPILE_BAR} s"] if compile_time > COMPILE_BAR else []
        print(
            f"{name:24s} {ratio:18.2f} {1e9 * min(times) / points.size:9.1f} {compile_time:10.2f}",
            *missed,
            flush=True,
        )


if __name__ == "__main__":
    main()
