"""Compiler options for programs on small arrays: they reduce compile time, not run time."""

import functools

import jax

# XLA's former emitters take about 60 % of the time to compile. Their programs run up to 1.8 times
# as long, which is negligible if a run takes a fraction of a millisecond.
_QUICK = {"xla_cpu_use_fusion_emitters": False}


@functools.cache
def quick_options() -> dict[str, bool]:
    """`compiler_options` for `jax.jit`, which accepts them outside of a trace only."""
    try:
        jax.jit(lambda x: x, compiler_options=_QUICK)(0)
    except jax.errors.JaxRuntimeError:  # this version of JAX does not have them
        return {}
    return _QUICK
