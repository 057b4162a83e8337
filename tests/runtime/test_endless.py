"""Loops that the host lays out, and that never end: they fail their example alone, with their line."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab


def grows(p: Any, n: int) -> Any:
    while n > 0:
        n = n + 1
    return n * p


def halves(p: Any, x: float) -> Any:
    while x < 1.0:
        x = x * 0.5
    return x * p


def decides(p: Any, n: int) -> Any:
    """The host waits for what the loop gives."""
    k = 0
    while k < n or k < 0:
        k = k - 1
    s = p
    for _ in range(k):
        s = s + p
    return s


def changes_nothing(p: Any, n: int) -> Any:
    s = p
    while n == 3:
        s = s + 1
    return s


def often(p: Any, n: int) -> Any:
    """Many turns together, few of each run of a loop."""
    turns = 0
    while n > 0:
        k = n
        while k > 0:
            k, turns = k - 1, turns + 1
        n = n - 1
    return turns * p


LIMIT = 50
CASES = [
    (grows, [0, 1, -4], {1}),
    (halves, [1.5, 0.5, 2.0], {1}),
    (decides, [0, 2, -1], {1}),
    (changes_nothing, [1, 3], {1}),
    (often, [5, 49, 51], {2}),
]


@pytest.mark.parametrize(("function", "batch", "failing"), CASES, ids=lambda x: getattr(x, "__name__", None))
def test_a_loop_that_never_ends_fails_its_example(function: Any, batch: list[Any], failing: set[int]) -> None:
    p = jnp.asarray(2.0)
    f = ab.batched(
        function, in_axes=(None, 0), on_error="mask", backend="interpret", options=ab.options(max_iterations=LIMIT)
    )
    found, failures = f(p, batch)
    assert {x.index for x in failures} == failing
    for x in failures:
        assert "never ends" in x.message or f"max_iterations={LIMIT} turns of this loop were not enough" in x.message
        assert x.span.excerpt().strip().startswith("while")
    for k, x in enumerate(batch):
        np.testing.assert_allclose(found[k], 0 if k in failing else function(p, x), rtol=1e-6)
