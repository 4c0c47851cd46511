"""Settings of every test, and nothing else. They stand before the first import of JAX."""

import gc
import itertools
import os
from importlib import metadata
from pathlib import Path

# Compiling is most of the work of these tests, so programs are compiled quickly rather than run
# quickly, and kept for the other worker, for commands that tests run, and for the next run. With
# GBT_JAX_FULL_OPTIMISATION set, programs are those that a user gets.
# Eight simulated devices, so that sharded code is tested on any machine.
_flags = ["--xla_force_host_platform_device_count=8"]
if not os.environ.get("GBT_JAX_FULL_OPTIMISATION"):
    _flags += ["--xla_backend_optimization_level=0"]
    if metadata.version("jaxlib").startswith("0.10."):  # XLA aborts on flags of another version
        _flags += ["--xla_cpu_use_fusion_emitters=false"]
_given = os.environ.get("XLA_FLAGS", "")
_missing = [flag for flag in _flags if flag.split("=")[0] not in _given]
os.environ["XLA_FLAGS"] = " ".join([_given, *_missing]).strip()
_kept = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_kept))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Caches of XLA itself: their folder would be a part of every program's key.
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# jax_numpy_rank_promotion stays at "allow": `shape + t.shape` draws and sums over a law's values
# broadcast trailing dimensions on purpose, everywhere.

# Each compiled program holds about 190 memory maps, of which Linux allows a process 65,530: beyond,
# it dies. So a worker that has many forgets its programs; they are read from the folder above when
# they are needed again.
_MOST_MAPS, _TESTS_BETWEEN = 30_000, 10
_maps = Path("/proc/self/maps")
_finished = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Look at the number of memory maps after every few tests."""
    if next(_finished) % _TESTS_BETWEEN or not _maps.exists():
        return
    with _maps.open("rb") as lines:
        if sum(1 for _ in lines) > _MOST_MAPS:
            jax.clear_caches()


# Tracing makes many short-lived objects, and JAX tidies up at every collection: too often.
gc.set_threshold(200_000, 50, 50)
