"""Reads of structure inside data-dependent control flow: fields, elements, what is tested before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same


@dataclass
class Node:
    value: float
    kids: list[Node]
    left: Node | None = None
    word: int = 0


def leaf(value: float) -> Node:
    return Node(value, [])


TREES = [
    Node(0.5, [leaf(1.0), leaf(2.0)]),
    Node(2.0, [leaf(3.0), leaf(0.25)], leaf(7.0), 1),
    Node(3.0, [leaf(1.0), Node(4.0, [leaf(1.0)])], None, 2),
    Node(1.5, [leaf(2.0), leaf(0.5)], Node(2.0, [leaf(9.0)], leaf(4.0)), 4),
]


def guarded(p: Any, t: Node) -> Any:
    """It was read for every example, and failed those without a left node."""
    if t.value * p > 1:
        if t.left is not None:
            return t.left.value * p
    return p


def measured(p: Any, t: Node) -> Any:
    if t.value * p > 1:
        return t.kids[0].kids[0].value * p if len(t.kids[0].kids) > 0 else t.kids[-1].value * p
    return p


def first(q: float, t: Node) -> float:
    return q * t.value if t.left is None else q * t.left.value


def by_helper(p: Any, t: Node) -> Any:
    """A helper that reads, in an arm and in the turns of a loop."""
    y = p
    while y < 9.0:
        y = y + (first(p, t.kids[0]) if y > 2.0 else 2.0) + p * t.word
    if y > 10.0:
        y = y - first(p, t)
    return y


FUNCTIONS = [guarded, measured, by_helper]


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values(function: Any, backend: str) -> None:
    f, p = ab.batched(function, in_axes=(None, 0), backend=backend), jnp.asarray(1.25)
    assert_same(ab.unbatch(f(p, TREES)), f.loop(p, TREES))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients(function: Any) -> None:
    f, p = ab.batched(function, in_axes=(None, 0)), jnp.asarray(1.25)
    found = jax.grad(lambda p: jnp.sum(f(p, TREES)))(p)
    np.testing.assert_allclose(found, jax.grad(lambda p: sum(f.loop(p, TREES)))(p), rtol=1e-9)


def unguarded(p: Any, t: Node) -> Any:
    if t.value * p > 1:
        return t.kids[1].left.value * p  # type: ignore[union-attr]
    return p


def test_reads_fail_the_examples_that_come_there() -> None:
    """A list that is too short, a node that is None: in the arm alone, with Python's words."""
    full = Node(2.0, [leaf(1.0), Node(1.0, [], leaf(3.0))])
    batch = [leaf(0.5), full, leaf(2.0), Node(0.5, [leaf(1.0), leaf(2.0)]), Node(3.0, [leaf(1.0), leaf(2.0)])]
    p = jnp.asarray(1.0)
    expected = {}
    for k, t in enumerate(batch):
        try:
            unguarded(p, t)
        except Exception as error:  # noqa: BLE001
            expected[k] = (type(error).__name__, str(error))
    assert sorted(expected) == [2, 4]
    f = ab.batched(unguarded, in_axes=(None, 0), on_error="mask")
    found, failures = f(p, batch)
    assert {x.index: (x.kind, x.message) for x in failures.details} == expected
    np.testing.assert_allclose(found, [1.0, 3.0, 0.0, 1.0, 0.0])
    assert jax.grad(lambda p: jnp.sum(f(p, batch)[0]))(p) == 5.0
