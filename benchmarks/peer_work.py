"""The works that `peers.py` runs, and the methods that compete in each.

A `Work` is one problem file and the methods that solve it. The last method of a library has its
tightest tolerance. The first method of a work is ours; times are relative to it.
"""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from contestants.protocol import Problem
from peer_problems import (
    TOURNESOL,
    binary,
    disconnected,
    erdos_renyi,
    huge,
    largest,
    many_users,
    single_precision,
    tournesol,
    tournesol_like,
    undefeated,
)


class Entry(NamedTuple):
    """A method of a contestant, and the speed-up over it that we aim for."""

    contestant: str  # benchmarks/contestants/with_<contestant>.py
    method: str
    target: float | None = None
    sample: bool = False  # runs on the work's sample; its time is extrapolated


class Work(NamedTuple):
    """One problem and the methods that solve it."""

    name: str
    title: str
    make: Callable[[], Problem]
    entries: tuple[Entry, ...]
    judged: str = "gradient"  # how answers are judged; or "jacobian", "std", "scores"
    sample: int | None = None  # number of users in the sample, for methods that loop over users
    needs: pathlib.Path | None = None  # a file that may be missing


OURS = "gbt_jax"


def entries(contestant: str, *methods: str, target: float | None = None) -> tuple[Entry, ...]:
    """The methods of one contestant; the target applies to the last, its tightest."""
    *rest, last = methods
    return *(Entry(contestant, method) for method in rest), Entry(contestant, last, target)


def slow(*given: Entry) -> tuple[Entry, ...]:
    return tuple(entry._replace(sample=True) for entry in given)


# Methods. Targets apply to the tightest setting, at equal or better accuracy.

_SCIPY = ("L-BFGS-B", "L-BFGS-B, tightest"), ("sparse Newton", "sparse Newton, tightest")
_YARDSTICKS = (Entry(OURS, "one gradient"), Entry(OURS, "one copy"))


def _ours(*methods: str) -> tuple[Entry, ...]:
    return tuple(Entry(OURS, method) for method in methods)


def _jax(names: tuple[str, ...], target: float | None = None) -> tuple[Entry, ...]:
    return tuple(
        entry
        for name in names
        for entry in entries("jax_optimisers", name, f"{name}, tightest", target=target)
    )


def _uniform_peers(solidago: float | None, lbfgs: float, newton: float) -> tuple[Entry, ...]:
    return (
        Entry("solidago", "UniformGBT", solidago),
        Entry("solidago", "UniformGBT, tightest", solidago),
        *entries("solidago", "LBFGSUniformGBT", "LBFGSUniformGBT, tightest"),
        *entries("torch", "torch L-BFGS", "torch L-BFGS, tightest"),
        *entries("scipy", *_SCIPY[0], target=lbfgs),
        *entries("scipy", *_SCIPY[1], target=newton),
    )


_FITS = _ours("fit", "fit, rtol 1e-3", "fit, float32")
_TOURNESOL = (*_FITS, *_YARDSTICKS, *_uniform_peers(500, 8, 4))
_SKLEARN = ("newton-cg", "newton-cg, tol 1e-10")
_BINARY_JAX = ("jaxopt L-BFGS", "optax L-BFGS", "optimistix L-BFGS", "optimistix Newton + CG")


def _binary_peers(**targets: float) -> tuple[Entry, ...]:
    """Methods for binary comparisons with a prior."""
    return (
        *_FITS,
        *_YARDSTICKS,
        *entries("scikit_learn", *_SKLEARN, target=targets.get("newton_cg")),
        *entries("scikit_learn", "lbfgs", "lbfgs, tightest"),
        *entries("scipy", *_SCIPY[0], target=targets.get("lbfgs")),
        *entries("scipy", *_SCIPY[1]),
        *entries("torch", "torch L-BFGS", "torch L-BFGS, tightest"),
        *_jax(_BINARY_JAX),
    )


def _unregularised_peers(**targets: float) -> tuple[Entry, ...]:
    """Methods of libraries that have no prior."""
    return (
        *_FITS,
        *entries(
            "evalica", "bradley_terry", "bradley_terry, tightest", target=targets.get("evalica")
        ),
        *entries("evalica", "newman", "newman, tightest"),
        *entries(
            "arena_rank", "BradleyTerry", "BradleyTerry, tightest", target=targets.get("arena")
        ),
    )


def _scaling(power: int) -> Work:
    size = 10**power
    return Work(
        f"scaling-1e{power}",
        f"{size // 100:,} items, {size:,} binary comparisons, σ = 1",
        binary(size // 100, size, 1.0),
        (
            *_ours("fit"),
            *entries("scipy", "L-BFGS-B, tightest"),
            *entries("scipy", "sparse Newton, tightest"),
            *entries("scikit_learn", "newton-cg, tol 1e-10"),
        ),
    )


_REAL = (
    Work(
        "tournesol",
        "Tournesol, six real problems, Uniform, σ = 7",
        tournesol,
        _TOURNESOL,
        needs=TOURNESOL,
    ),
    Work(
        "uncertainties",
        "the largest Tournesol problem with uncertainties",
        lambda: largest(tournesol()),
        (
            *_ours("fit with likelihood intervals", "fit with std"),
            *entries("solidago", "LBFGSUniformGBT with uncertainties"),
            *entries("solidago", "UniformGBT with uncertainties", target=500),
        ),
        judged="scores",
        needs=TOURNESOL,
    ),
)

WORK = (
    *_REAL,
    Work(
        "tournesol-like",
        "six simulated problems of those sizes, Uniform, σ = 7",
        tournesol_like,
        _TOURNESOL,
    ),
    Work(
        "dense",
        "A = 500, p = 0.2, Uniform, σ = 1",
        erdos_renyi,
        (
            *_FITS,
            *_YARDSTICKS,
            *_jax(("jaxopt L-BFGS",), target=2.5),
            *_jax(
                ("optax L-BFGS", "optimistix L-BFGS", "optimistix BFGS", "optimistix Newton + CG"),
                target=5,
            ),
            *_uniform_peers(None, 2.5, 3),
            *entries("scipy", "Newton-CG", "Newton-CG, tightest"),
        ),
    ),
    Work(
        "users",
        "10,000 users with 5 to 60 items, Uniform, σ = 7",
        many_users,
        (
            *_FITS,
            *_YARDSTICKS,
            *entries("scipy", *_SCIPY[1], target=4),
            *_jax(("jaxopt L-BFGS",)),
            *slow(
                Entry("solidago", "UniformGBT", 250),
                Entry("solidago", "UniformGBT, tightest", 250),
                *entries("solidago", "LBFGSUniformGBT", "LBFGSUniformGBT, tightest"),
                *entries("scipy", *_SCIPY[0], target=60),
                *entries("scipy", "dense Newton", target=30),
            ),
        ),
        sample=200,
    ),
    Work(
        "binary-1e5",
        "1,000 items, 100,000 binary comparisons, σ = 1",
        binary(1000, 100_000, 1.0),
        (
            *_binary_peers(newton_cg=2.5),
            *entries("scikit_learn", "newton-cholesky", "newton-cholesky, tightest"),
            *entries("choix", "opt_pairwise", "opt_pairwise, tightest", target=50),
            *entries("kickscore", "BinaryModel, EP", "BinaryModel, KL"),
        ),
    ),
    Work(
        "binary-1e5-no-prior",
        "1,000 items, 100,000 binary comparisons, no prior",
        binary(1000, 100_000, np.inf),
        (
            *_unregularised_peers(evalica=4),
            *entries("choix", "mm_pairwise", "mm_pairwise, tightest", target=50),
            *entries("choix", "ilsr_pairwise", "ilsr_pairwise, tightest", target=50),
        ),
    ),
    Work(
        "binary-1e6",
        "10,000 items, 1,000,000 binary comparisons, σ = 1",
        binary(10_000, 1_000_000, 1.0),
        _binary_peers(newton_cg=3.5, lbfgs=4),
    ),
    Work(
        "binary-1e6-no-prior",
        "10,000 items, 1,000,000 binary comparisons, no prior",
        binary(10_000, 1_000_000, np.inf),
        _unregularised_peers(evalica=10, arena=15),
    ),
    Work(
        "jacobian",
        "every score in every value, A = 500, p = 0.2",
        erdos_renyi,
        (
            *_ours("jacobian"),
            *entries("scipy", "jacobian"),
            *entries("jax_optimisers", "jacobian"),
        ),
        judged="jacobian",
    ),
    Work(
        "std",
        "standard deviations, A = 500, p = 0.2",
        erdos_renyi,
        (*_ours("std"), *entries("scipy", "std")),
        judged="std",
    ),
    Work(
        "intervals",
        "1,000 items, 100,000 binary comparisons, no prior, with intervals",
        binary(1000, 100_000, np.inf),
        (*_ours("fit with std"), *entries("arena_rank", "BradleyTerry with intervals")),
        judged="scores",
    ),
    *(_scaling(power) for power in (4, 5, 6, 7)),
)

_ALL_BINARY = (
    Entry("scikit_learn", "newton-cg, tol 1e-10"),
    Entry("scipy", "L-BFGS-B, tightest"),
    Entry("scipy", "sparse Newton, tightest"),
    Entry("torch", "torch L-BFGS, tightest"),
    Entry("jax_optimisers", "jaxopt L-BFGS, tightest"),
    Entry("jax_optimisers", "optax L-BFGS, tightest"),
    Entry("jax_optimisers", "optimistix Newton + CG, tightest"),
)
_NO_PRIOR = (
    Entry(OURS, "fit"),
    Entry("evalica", "bradley_terry, tightest"),
    Entry("arena_rank", "BradleyTerry, tightest"),
    Entry("choix", "ilsr_pairwise, tightest"),
    Entry("choix", "mm_pairwise, tightest"),
    *_ALL_BINARY,
)

# Inputs without a finite optimum, or with an extreme one: what does each method return?
EXTREME = (
    Work("undefeated", "an undefeated item, no prior", undefeated, _NO_PRIOR),
    Work("disconnected", "a graph in two parts, no prior", disconnected, _NO_PRIOR),
    Work(
        "huge",
        "a chain of certain wins, σ = 1000",
        huge,
        (Entry(OURS, "fit"), Entry("choix", "opt_pairwise, tightest"), *_ALL_BINARY),
    ),
)

# An ordinary problem in float32, as far as each library supports it; distances are to our fit in
# float64. Both settings run, because the tightest tolerance may be unreachable in float32.
# Libraries whose input is winners and losers have no float32 input.
FLOAT32 = Work(
    "float32",
    "1,000 items, 100,000 binary comparisons, σ = 1, in float32",
    single_precision,
    (
        *_ours("fit", "fit, float32"),
        *entries("scikit_learn", "newton-cg, float32", "newton-cg, tol 1e-10, float32"),
        *entries("scikit_learn", "lbfgs, float32", "lbfgs, tightest, float32"),
        *entries("scipy", "L-BFGS-B, float32", "L-BFGS-B, tightest, float32"),
        *entries("torch", "torch L-BFGS, float32", "torch L-BFGS, tightest, float32"),
        *(
            Entry("jax_optimisers", f"{name}, {setting}")
            for name in _BINARY_JAX
            for setting in ("float32", "tightest, float32")
        ),
    ),
)

TRIALS = (*EXTREME, FLOAT32)

# From the start of a process to its first answer, and its peak memory.
COLD = Work(
    "cold",
    "100 items, 1,000 binary comparisons, no prior: a process from start to end",
    binary(100, 1000, np.inf),
    (
        Entry(OURS, "fit"),
        Entry("evalica", "bradley_terry"),
        Entry("arena_rank", "BradleyTerry"),
        Entry("choix", "ilsr_pairwise"),
        Entry("scikit_learn", "newton-cg, tol 1e-10"),
        Entry("scipy", "sparse Newton, tightest"),
        Entry("torch", "torch L-BFGS, tightest"),
        Entry("jax_optimisers", "jaxopt L-BFGS, tightest"),
    ),
)

# Peak memory is measured in a separate process per method.
MEMORY = ("tournesol", "tournesol-like", "users", "binary-1e6", "scaling-1e7")

# Small and fast works whose ratios are watched.
QUICK = ("tournesol-like", "dense", "binary-1e5")
