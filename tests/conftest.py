"""Settings of every test, and nothing else. They stand before the first import of JAX."""

import gc
import os
from pathlib import Path

# Eight simulated devices, so that sharded code is tested on any machine.
_flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} --xla_force_host_platform_device_count=8".strip()

# Compiling is most of the work of these tests: programs are kept for the next run, and for the
# programs that a test starts, which find these settings in their environment. A folder for each
# worker, because JAX does not write them atomically.
_kept = Path(__file__).parents[1] / ".pytest_cache" / "jax"
_worker = os.environ.get("PYTEST_XDIST_WORKER")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_kept / (_worker or "alone"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Without XLA's own caches, whose folder would be part of every key: workers can share programs.
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"


def _share_programs() -> None:
    """Give every worker's folder the programs of the others, as links."""
    folders = [folder for folder in _kept.glob("*") if folder.is_dir()]
    kept = {path.name: path for folder in folders for path in folder.glob("*-cache")}
    for folder in folders:
        for name in kept.keys() - {path.name for path in folder.iterdir()}:
            os.link(kept[name], folder / name)


if _worker is None:  # before the workers start, so that every program is complete
    _share_programs()

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# jax_numpy_rank_promotion stays at "allow": `shape + t.shape` draws and sums over a law's values
# broadcast trailing dimensions on purpose, everywhere.


# Tracing makes many short-lived objects, and JAX tidies up at every collection: too often.
gc.set_threshold(200_000, 50, 50)
