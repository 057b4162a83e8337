"""What the process gives a computation: Ctrl-C, its garbage collector, its memory.

Ctrl-C while XLA computes: Python hears a signal in its main thread alone, and not while that is inside of XLA.

XLA's client for processors runs a program in threads of its own, and gives back arrays that are not there yet, unless
it takes the program for cheap: then it runs in the thread that calls it. A loop counts for one turn there, whatever its
turns are. So programs with data-dependent loops are given something to compute (`not_cheap`), and the main
thread waits for them in Python (`until_ready`). Ctrl-C raises KeyboardInterrupt there; what XLA has begun it ends, in
its own threads, and nobody reads it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

CHEAP = 1024
"""XLA takes a program of fewer operations for cheap."""
SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds between two looks."""


def not_cheap(status: Any) -> Any:
    """int32[B] as it is, where a processor computes behind so many operations that XLA does not know the result of: no
    status is negative. A GPU is never waited for in a call."""
    if jax.default_backend() != "cpu":
        return status
    numbers = jnp.arange(CHEAP, dtype=jnp.float32) * jnp.asarray(status[0], jnp.float32)
    return status + jnp.sum(numbers < 0, dtype=status.dtype)


def until_ready(found: Any) -> Any:
    """What was computed, when it is there."""
    arrays: list[Any] = [x for x in jax.tree.leaves(found) if hasattr(x, "is_ready")]
    traced = any(isinstance(x, jax.core.Tracer) for x in arrays)
    if threading.current_thread() is threading.main_thread() and not traced:
        pause = SHORTEST
        while not all(x.is_ready() for x in arrays):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
    return found


# ---- collecting
#
# Python's garbage collection, put off while a program is compiled, and while examples are traced.
#
# Both make a great many small objects, nearly all of which are in no cycle: Python looks through them again and again,
# and through everything that JAX has in memory, for a fifth of the time that a compilation takes.


P = ParamSpec("P")
R = TypeVar("R")


def collecting_later(run: Callable[P, R]) -> Callable[P, R]:
    """The same function, during which no garbage is collected that is in cycles. Threads may run it side by side: then
    it is collected from the end of the first on."""

    @wraps(run)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return run(*args, **kwargs)
        gc.disable()
        try:
            return run(*args, **kwargs)
        finally:
            gc.enable()

    return quietly


# ---- host memory
#
# Memory of the host that computations free and take again, and the C library between.


ARENAS, MAPPED_BLOCKS, TRIMMED, PADDED = -8, -4, -1, -2
"""Parameters of `mallopt` (malloc.h of glibc)."""


def keep_memory() -> bool:
    """Keep the memory that computations on the CPU free for those that follow, instead of giving it back.

    XLA takes the working memory of a call in one block and frees it behind the call. The C library of Linux returns a
    block of that size to the system, which clears every page of it in the next call: a fifth to a third of the time of
    a gradient of some hundred trees. Call this once in a program, before JAX computes anything: memory of threads that
    run by then is given back as before. From then on the process holds as much as it has needed at once, whoever in it
    asked for memory. The same from outside: `MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647`.

    Returns:
        Whether the C library has such settings: glibc has, others have not, and nothing changes there.

    Example:
        >>> import autobatch as ab
        >>> keeps = ab.keep_memory()
    """
    try:
        set_parameter = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = {ARENAS: 1, MAPPED_BLOCKS: 0, TRIMMED: 2**31 - 1, PADDED: 2**26}
    taken = [set_parameter(number, value) == 1 for number, value in wanted.items()]
    return all(taken)


# ---- memory
#
# How much there is for arrays, where JAX computes by default.


CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux tells a container its limit: cgroups of version 2 and 1."""


def memory_limit() -> int:
    """The bytes that arrays can take at most; a very large number where nobody says."""
    return _limit(jax.devices()[0])


@lru_cache(maxsize=8)
def _limit(device: jax.Device) -> int:
    if device.platform == "cpu":
        return min([_physical(), *filter(None, map(_container, CONTAINER))])
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", sys.maxsize))


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize  # a system that does not say


def _container(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
