"""Options for programs that work on few numbers: compiled quickly rather than run quickly."""

import functools

import jax

# XLA's former emitters take about 60 % of the time to compile; their programs run up to 1.8 times
# as long, which is nothing where a run takes a fraction of a millisecond.
_QUICK = {"xla_cpu_use_fusion_emitters": False}


@functools.cache
def quick_options() -> dict[str, bool]:
    """`compiler_options` of `jax.jit`, which takes them outside of any tracing only."""
    try:
        jax.jit(lambda x: x, compiler_options=_QUICK)(0)
    except jax.errors.JaxRuntimeError:  # another JAX, which does not know them
        return {}
    return _QUICK
