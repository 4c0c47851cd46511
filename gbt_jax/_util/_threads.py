"""Threads, one per core, that inherit the JAX configuration of the calling thread."""

import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import jax

_MAX_WORKERS = 8
_Work = TypeVar("_Work")
_Done = TypeVar("_Done")


def num_workers() -> int:
    """The number of cores that this process may use, at most 8."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def in_threads(
    function: Callable[[_Work], _Done], work: Iterable[_Work], workers: int
) -> Iterator[_Done]:
    """Apply the function to each piece of work in threads, and yield the results in order."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        yield from pool.map(_with_jax_contexts(function), work)


def _with_jax_contexts(function: Callable) -> Callable:
    """The function for another thread, under the JAX contexts of this thread."""
    x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device  # pyright: ignore

    def call(*arguments):
        with jax.enable_x64(x64), jax.default_device(device):
            return function(*arguments)

    return call
