"""Compare a batch with the plain Python function, one example at a time. Every example here ends with this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import autobatch as ab


def largest_difference(batched: Any, plain: Any) -> float:
    """The largest |a - b| / (1 + |b|) over all numbers of two results; infinite where only one of them is finite."""

    def difference(a: Any, b: Any) -> float:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape:
            return float("inf")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            relative = np.where(same, 0.0, np.abs(a - b) / (1.0 + np.abs(b)))
        return float(np.max(np.nan_to_num(relative, nan=np.inf), initial=0.0))

    return max(jax.tree.leaves(jax.tree.map(difference, batched, plain)), default=0.0)


def check(title: str, function: Any, shared: Any, examples: Sequence[Any], tolerance: float = 1e-5) -> int:
    """Run `function(shared, ·)` over all examples as one batch and one by one; print both times and the difference.

    Returns what the process should exit with: 0 if no number differs by more than `tolerance`.
    """
    batch = function.pack(examples)
    jax.block_until_ready(function(shared, batch))  # compiles
    start = time.perf_counter()
    batched = jax.block_until_ready(function(shared, batch))
    middle = time.perf_counter()
    plain = jax.block_until_ready(function.loop(shared, examples))
    end = time.perf_counter()
    worst = largest_difference(ab.unbatch(batched), plain)
    print(f"{title}: {len(examples)} examples")
    print(f"  one by one   {end - middle:9.4f} s")
    print(f"  as a batch   {middle - start:9.4f} s   {(end - middle) / (middle - start):,.0f} times faster")
    print(f"  largest difference {worst:.1e} (at most {tolerance:.0e} is fine)")
    return 0 if worst <= tolerance else 1
