"""What a call costs besides what it computes: 16 examples of two numbers, a product and a sum.

The ways take turns, and each figure is the median over rounds of the mean over some thousand calls. Part of
`benchmarks.overhead`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab

EXAMPLES = 16


def scaled(x: Any, y: Any) -> Any:
    return x * y + 1.0


def ways() -> dict[str, Callable[[], Any]]:
    """The same call by each way of making it. What JAX computes behind our back is waited for."""
    x, y = np.linspace(-1, 1, 2 * EXAMPLES, dtype=np.float32).reshape(2, -1)
    jx, jy = jnp.asarray(x), jnp.asarray(y)
    native, xla = ab.batched(scaled, backend="llvm"), ab.batched(scaled, backend="xla")
    handle, jitted = native.lower(x, y).compile(), jax.jit(jax.vmap(scaled))
    return {
        "llvm, handle, NumPy": lambda: handle(x, y),
        "llvm, handle, JAX": lambda: handle(jx, jy),
        "llvm, function, NumPy": lambda: native(x, y),
        "llvm, function, JAX": lambda: native(jx, jy),
        "xla, function, JAX": lambda: xla(jx, jy).block_until_ready(),
        "jax.jit(jax.vmap(...)), JAX": lambda: jitted(jx, jy).block_until_ready(),
        "jax.jit(jax.vmap(...)), NumPy": lambda: np.asarray(jitted(x, y)),
        "NumPy itself": lambda: x * y + np.float32(1.0),
    }


def measure(rounds: int, seconds: float) -> dict[str, float]:
    """Seconds of a call, by the way of making it."""
    calls = ways()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(_mean(call, seconds))
    return {name: statistics.median(times) for name, times in taken.items()}


def _mean(call: Callable[[], Any], seconds: float) -> float:
    count, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        for _ in range(100):
            call()
        count += 100
    return spent / count


def lines(found: dict[str, float]) -> Sequence[str]:
    """The figures as text."""
    return [f"{name:<30} {1e6 * spent:>8.2f} microseconds" for name, spent in found.items()]
