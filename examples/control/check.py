"""Compare a batch, and its gradient, with the plain Python function, one by one. Every example here ends so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

import autobatch as ab
from examples.trees.check import largest_difference


def check(
    title: str, function: Any, args: tuple[Any, ...], tolerance: float = 1e-5, grads: tuple[int, ...] = ()
) -> int:
    """Run `function(*args)` as one batch and one example after another; print both times and the difference. `grads`:
    arguments for which the gradient of the sum over the batch is compared too, with `jax.grad` of the plain loop.

    Returns what the process should exit with: 0 if no number differs by more than `tolerance`.
    """

    def gradient() -> Any:
        return ab.grad(function, argnums=grads)(*args)

    def gradient_of_loop() -> Any:
        return jax.grad(lambda *given: sum(function.loop(*given)), argnums=grads)(*args)

    found = _compare(title, lambda: function(*args), lambda: function.loop(*args), tolerance, unbatch=True)
    if grads:
        found |= _compare(f"{title}, gradient", gradient, gradient_of_loop, tolerance)
    return found


def _compare(
    title: str, batch: Callable[[], Any], loop: Callable[[], Any], tolerance: float, unbatch: bool = False
) -> int:
    jax.block_until_ready(batch())  # compiles
    start = time.perf_counter()
    batched = jax.block_until_ready(batch())
    middle = time.perf_counter()
    plain = jax.block_until_ready(loop())
    end = time.perf_counter()
    worst = largest_difference(ab.unbatch(batched) if unbatch else batched, plain)
    print(f"{title}")
    print(f"  one by one   {end - middle:9.4f} s")
    print(f"  as a batch   {middle - start:9.4f} s   {(end - middle) / (middle - start):,.0f} times faster")
    print(f"  largest difference {worst:.1e} (at most {tolerance:.0e} is fine)")
    return 0 if worst <= tolerance else 1
