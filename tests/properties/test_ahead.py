"""What structure does behind a test of computed numbers: values, failures and gradients are those of plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import assert_same
from tests.properties import ahead
from tests.properties.ahead import Node

FEW = settings(max_examples=4, phases=(Phase.explicit, Phase.generate), deadline=None)
FLOATS = st.sampled_from([-2.0, -0.75, 0.25, 0.5, 1.5, 2.75])
P = 0.9


@st.composite
def nodes(draw: Any, depth: int = 3) -> Node:
    below = draw(st.lists(nodes(depth - 1), max_size=2)) if depth else []
    after = draw(st.none() | nodes(depth - 2)) if depth > 1 else None
    return Node(draw(FLOATS), below, after, draw(st.lists(FLOATS, max_size=3)))


FIXED = [
    Node(1.5, [Node(0.25), Node(2.75, [Node(1.5, kids=[0.5])], Node(0.5, [Node(2.75)]), [1.5])], Node(-0.75), [2.75]),
    Node(2.75, [Node(-2.0, [Node(1.5)])], Node(1.5), [1.5, 0.25, 2.75]),
    Node(0.25, [Node(1.5, kids=[0.25])], None, [0.5, -2.0]),
    Node(-2.0, [Node(2.75, [], Node(0.5), [1.5])], Node(2.75, [], Node(0.25), [2.75, 2.75]), [1.5, 2.75, 0.25]),
    Node(2.75, [Node(0.5), Node(-0.75)], Node(-0.75, kids=[0.5]), []),
]


def check(function: Any, data: list[Node], backend: str) -> None:
    expected: list[float] = []
    failures: list[tuple[int, str, str]] = []
    fine: list[Node] = []
    for k, node in enumerate(data):
        try:
            expected.append(float(function(P, node)))
            fine.append(node)
        except (AssertionError, AttributeError, IndexError, ZeroDivisionError) as error:
            expected.append(0.0)
            failures.append((k, type(error).__name__, str(error)))
    f = ab.batched(function, in_axes=(None, 0), backend=backend, on_error="mask")
    found, failed = f(P, data)
    assert_same(found, np.asarray(expected), function.__name__)
    assert [(d.index, d.kind, d.message) for d in failed.details] == failures
    gradient = jax.grad(lambda p: jnp.sum(f(p, data)[0]))(P)
    oracle = jax.grad(lambda p: sum((function(p, node) for node in fine), 0.0 * p))(P)
    assert np.isfinite(oracle)
    assert_same(gradient, oracle, f"gradient of {function.__name__}")


@pytest.mark.parametrize("function", ahead.FUNCTIONS, ids=lambda f: f.__name__)
def test_examples(function: Any) -> None:
    check(function, FIXED, "interpret")


@pytest.mark.parametrize("function", [ahead.asserts, ahead.breaks], ids=lambda f: f.__name__)
def test_examples_on_xla(function: Any) -> None:
    check(function, FIXED, "xla")


@pytest.mark.parametrize("function", ahead.FUNCTIONS, ids=lambda f: f.__name__)
@FEW
@given(data=st.data())
def test_drawn_trees(function: Any, data: Any) -> None:
    check(function, [data.draw(nodes()) for _ in range(data.draw(st.integers(1, 3)))], "interpret")


def test_failures_in_arms_that_are_not_taken_are_none() -> None:
    """Neither while planning nor on the device: no next node, an empty list, a division by its length."""
    f = ab.batched(ahead.asserts, in_axes=(None, 0))
    assert_same(f(P, [Node(-1.0), Node(-2.0, next=Node(1.0))]), np.asarray([-0.9, -1.8]))


def test_a_circle_that_numbers_would_leave_fails_by_name() -> None:
    """Which activations there are must be known ahead; here there is no end of them."""

    @ab.batched(in_axes=(None, 0), backend="interpret")
    def walk(p: Any, node: Node) -> Any:
        if p > 1.0:
            assert node.next is not None
            return walk(p * 0.5, node.next) + node.value
        return p

    first, second = Node(1.0), Node(2.0)
    first.next, second.next = second, first
    with pytest.raises(ab.ExampleError, match="RecursionError"):
        walk(8.0, [first])


def test_a_recursion_on_one_object_that_numbers_alone_end() -> None:
    @ab.batched(in_axes=(None, 0), backend="interpret")
    def deeper(p: Any, node: Node, n: int = 0) -> Any:
        if p * node.value > 1.0:
            return deeper(p * 0.5, node, n + 1) + n
        return p

    nodes = [Node(1.0), Node(0.1), Node(0.4)]
    np.testing.assert_allclose(deeper(8.0, nodes), deeper.loop(8.0, nodes), rtol=1e-6)


def test_a_loop_that_numbers_end_inside_an_arm_of_structure() -> None:
    @ab.batched(in_axes=(None, 0), backend="interpret")
    def settles(p: Any, node: Node) -> Any:
        total = p
        if total > 0.5:
            for k in node.kids:
                while total * k > 0.1:
                    total = total * 0.5
        return total

    np.testing.assert_allclose(settles(1.0, FIXED), settles.loop(1.0, FIXED), rtol=1e-6)


def test_objects_that_numbers_choose() -> None:
    @ab.batched(in_axes=(None, 0), backend="interpret")
    def collects(p: Any, x: Any) -> Any:
        found, y = [], x * p
        while y < 5.0:
            found.append(y)
            y = y * 1.5
        return sum(found)

    numbers = jnp.arange(1.0, 4.0)
    np.testing.assert_allclose(collects(1.0, numbers), collects.loop(1.0, numbers), rtol=1e-6)

    @ab.batched(in_axes=(None, 0), backend="interpret")
    def highest(p: Any, node: Node) -> Any:
        best = node
        for child in node.children:
            if child.value * p > best.value * p:
                best = child
        return best.value

    assert_same(highest(1.0, FIXED).tolist(), highest.loop(1.0, FIXED), "the highest")

    @ab.batched(in_axes=(None, 0), backend="interpret")
    def best(p: Any, node: Node) -> Any:
        return max(node.children, key=lambda child: child.value * p, default=node)

    assert_same(ab.unbatch(best(1.0, FIXED)), best.loop(1.0, FIXED), "the best")


@dataclass
class Knot:
    x: float
    left: Knot | None = None
    right: Knot | None = None


@pytest.mark.parametrize("backend", ["interpret", "xla"])
def test_a_test_of_none_beside_one_of_numbers(backend):
    """What stands in front of both reads what may be None, and goes on where it is not."""

    @ab.batched(in_axes=(None, 0, None), backend=backend)
    def above(p, t, budget):
        if t is None or budget < 0:
            return 0.0
        return p * t.x * budget + above(p, t.left, budget - p) + above(p, t.right, budget - p)

    knots = [Knot(1.0, Knot(2.0)), Knot(3.0), Knot(4.0, Knot(1.0, Knot(5.0)), Knot(2.0))]
    np.testing.assert_allclose(above(1.0, knots, 1.5), above.loop(1.0, knots, 1.5), rtol=1e-6)
