"""Time of Φ, Φ' and Φ'' of every law, relative to tanh and softplus, and to BradleyTerry.

    python benchmarks/law_speed.py [--points N] [--repeats N]

Prints, for each law, the time to evaluate `cgf`, `mean` and `variance` together under jit on a
million float64 points, divided by the time of `jnp.tanh` plus `jnp.log1p(jnp.exp(·))` on the same
points, and the time to compile. Then the time of `mean` and `variance`, which is what fits need,
divided by that of BradleyTerry, the memory that they need per point, and the time of a million
draws. Calls of the law and of the baseline are interleaved, and the best of each counts, which
reduces noise from other processes.
Limits: a ratio of at most 4 for Binary, KNary and Uniform; compilation below 2 s for every law;
mean and variance of Davidson at most 3 times, of Finite 10 times and of Beta 8 times
BradleyTerry's, of Density 20 times Uniform's with 100 bytes per point; draws of Beta within 2 s.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gbt_jax import laws

RATIO_BAR, COMPILE_BAR, MEMORY_BAR = 4.0, 2.0, 100.0
BARRED = ("Binary", "KNary(21)", "Uniform")
# The law that mean and variance are compared with, and how many times its time they may take.
MOMENT_BARS = {
    "Davidson(1)": ("BradleyTerry", 3.0),
    "Finite(5 values)": ("BradleyTerry", 10.0),
    "Beta(2)": ("BradleyTerry", 8.0),
    "Density(bell)": ("Uniform", 20.0),
}
DRAW_BARS = {"Beta(2)": 2.0}


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


def moments(law: laws.AbstractRootLaw) -> Callable[[Array], tuple[Array, ...]]:
    return lambda t: (law.mean(t), law.variance(t))


def compiled(function: Callable, t: Array) -> tuple[Any, float]:
    """The compiled function, and the seconds that tracing and compiling it took."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(t).compile()
    return executable, time.perf_counter() - start


def seconds(function: Callable, t: Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(t))
    return time.perf_counter() - start


def show_all_three(t: Array, repeats: int) -> None:
    """Φ, Φ' and Φ'' beside tanh and softplus."""
    # Φ of a Density sums over hundreds of nodes per point, so it gets a thousandth of the points.
    few = t[: max(1, t.size // 1000)]
    reference, _ = compiled(yardstick, t)
    reference_few, _ = compiled(yardstick, few)
    print(f"{'law':24s} {'× tanh + softplus':>18s} {'ns/point':>9s} {'compile s':>10s}")
    for name, law in every_law().items():
        points, ruler = (few, reference_few) if name.startswith("Density") else (t, reference)
        function, compile_time = compiled(all_three(law), points)
        times, ruler_times = [], []
        for _ in range(repeats):
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


def show_moments(t: Array, repeats: int) -> None:
    """Φ' and Φ'' beside those of BradleyTerry, and draws."""
    every = every_law()
    programs = {name: compiled(moments(law), t)[0] for name, law in every.items()}
    times = {name: float("inf") for name in every}
    for _ in range(repeats):
        for name, program in programs.items():
            times[name] = min(times[name], seconds(program, t))
    head = f"{'law':24s} {'mean, variance':>15s} {'× BradleyTerry':>15s}"
    print(f"\n{head} {'bytes/point':>12s} {'draws s':>8s}")
    for name, law in every.items():
        memory = programs[name].memory_analysis().temp_size_in_bytes / t.size
        # Draws of a Density invert its distribution function: a hundredth of them is enough.
        some = t[: max(1, t.size // 100)] if name.startswith("Density") else t
        law.sample(some, key=jax.random.key(0))  # compiles
        draws = seconds(lambda t, law=law: law.sample(t, key=jax.random.key(1)), some)
        draws *= t.size / some.size
        other, bar = MOMENT_BARS.get(name, ("BradleyTerry", float("inf")))
        missed = [f"above {bar:g} × {other}"] if times[name] > bar * times[other] else []
        missed += ["too much memory"] if memory > MEMORY_BAR else []
        missed += ["draws too slow"] if draws > DRAW_BARS.get(name, float("inf")) else []
        ratio = times[name] / times["BradleyTerry"]
        print(
            f"{name:24s} {1e3 * times[name]:12.2f} ms {ratio:15.1f} {memory:12.0f} {draws:8.2f}",
            *missed,
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    t = jnp.asarray(np.random.default_rng(0).normal(scale=3.0, size=arguments.points))
    show_all_three(t, arguments.repeats)
    show_moments(t, arguments.repeats)


if __name__ == "__main__":
    main()
