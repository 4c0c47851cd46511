"""Threads that work side by side, one per core, as if they were the calling one."""

import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import jax

_MAX_WORKERS = 8
_Work = TypeVar("_Work")
_Done = TypeVar("_Done")


def num_workers() -> int:
    """One per core that this process may use, within reason."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def in_threads(
    function: Callable[[_Work], _Done], work: Iterable[_Work], workers: int
) -> Iterator[_Done]:
    """The function of each piece of work, in order."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        yield from pool.map(_as_here(function), work)


def _as_here(function: Callable) -> Callable:
    """The function for another thread, where contexts of JAX that hold here would not."""
    x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device  # pyright: ignore

    def there(*arguments):
        with jax.enable_x64(x64), jax.default_device(device):
            return function(*arguments)

    return there
