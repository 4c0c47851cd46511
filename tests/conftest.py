"""Settings of every test, and nothing else. They stand before the first import of JAX."""

import gc
import itertools
import os
from pathlib import Path

# Eight simulated devices, so that sharded code is tested on any machine.
_flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} --xla_force_host_platform_device_count=8".strip()

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# jax_numpy_rank_promotion stays at "allow": `shape + t.shape` draws and sums over a law's values
# broadcast trailing dimensions on purpose, everywhere.

# Compiling is most of the work of these tests: programs are kept for the next run. A folder for
# each worker, because JAX does not write them atomically.
_kept = Path(__file__).parents[1] / ".pytest_cache" / "jax"
_worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
jax.config.update("jax_compilation_cache_dir", str(_kept / _worker))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

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
