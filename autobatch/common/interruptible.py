"""Ctrl-C while XLA computes: Python hears a signal in its main thread alone, and not while that is inside of XLA.

XLA's client for processors runs a program in threads of its own, and gives back arrays that are not there yet, unless
it takes the program for cheap: then it runs in the thread that calls it. A loop counts for one turn there, whatever its
turns are. So programs with data-dependent loops are given something to compute (`not_cheap`), and the main
thread waits for them in Python (`until_ready`). Ctrl-C raises KeyboardInterrupt there; what XLA has begun it ends, in
its own threads, and nobody reads it.
"""

from __future__ import annotations

import threading
import time
from typing import Any

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
