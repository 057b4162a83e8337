"""Recurrences that only add up are one sum over paths: as often as there are paths, in trees, DAGs and lists."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.ir.system import PathSum
from autobatch.passes.fission import Recurrence
from tests.passes.frames.programs import schedule_of


@dataclass(eq=False)
class Node:
    x: float
    left: "Node | None" = None
    right: "Node | None" = None


@dataclass(eq=False)
class Many:
    x: float
    n: int = 1
    kids: list["Many"] = field(default_factory=list)


def tree(rng, size):
    if size <= 1:
        return Node(float(rng.normal()))
    left = int(rng.integers(1, size))
    return Node(float(rng.normal()), tree(rng, left), tree(rng, size - left))


def many(rng, depth):
    return Many(
        float(rng.normal()),
        int(rng.integers(9)),
        [many(rng, depth - 1) for _ in range(rng.integers(4))] if depth else [],
    )


def ladder(depth):
    node = Node(0.5)
    for k in range(depth):
        node = Node(0.25 * (k % 3), node, node)
    return node


def rewritten(function, *args):
    """The number of sums over paths, and of recurrences left."""
    schedule = schedule_of(function, *args)
    sums = sum(isinstance(e, PathSum) for e in schedule.system.equations)
    return sums, sum(isinstance(s, Recurrence) for s in schedule.steps)


def agrees(function, *args, rtol=1e-5):
    for got, expected in zip(ab.unbatch(function(*args)), function.loop(*args), strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-6)


@ab.batched(in_axes=(None, 0))
def total(w, t):
    own = jnp.tanh(w * t.x)
    if t.left is None:
        return own
    return total(w, t.left) + total(w, t.right) + own


@ab.batched(in_axes=(None, 0))
def over_children(w, t):
    return jnp.sin(w * t.x) + sum(over_children(w, c) for c in t.kids)


@ab.batched(in_axes=(None, 0))
def by_loop(w, t):
    found = 0.0
    for c in t.kids:
        found = found + by_loop(w, c)
    return found + w * t.x


@ab.batched(in_axes=(None, 0))
def squares(w, t):
    return (w * t.n) ** 2 + sum([squares(w, c) for c in t.kids])


@ab.batched(in_axes=(None, 0))
def with_constant(w, t):
    """A uniform term in the leaves, and the left child twice."""
    if t.left is None:
        return w
    return with_constant(w, t.left) + with_constant(w, t.left) + (t.x + with_constant(w, t.right))


@ab.batched(in_axes=(None, 0))
def differences(w, t):
    """Signs along a path multiply; what cancels is infinite nevertheless."""
    if t.left is None:
        return w / t.x
    return -(differences(w, t.left) - differences(w, t.right)) - w * t.x


W = jnp.float32(0.7)


@pytest.mark.parametrize(
    ("function", "make"),
    [(total, tree), (with_constant, tree), (differences, tree), (over_children, many), (by_loop, many)],
    ids=lambda f: f.__name__,
)
def test_floats(function, make):
    rng = np.random.default_rng(1)
    batch = [make(rng, n) for n in (1, 2, 5, 3, 4)]
    assert rewritten(function, W, batch) == (1, 0)
    agrees(function, W, batch)


def test_integers_are_exact():
    rng = np.random.default_rng(2)
    batch = [many(rng, 3) for _ in range(6)]
    w = jnp.int32(54321)
    assert rewritten(squares, w, batch) == (1, 0)
    np.testing.assert_array_equal(squares(w, batch), np.stack(squares.loop(w, batch)))


@pytest.mark.parametrize("depth", [0, 1, 12, 60])
def test_a_node_counts_as_often_as_there_are_ways_to_it(depth):
    batch = [ladder(depth), Node(1.0), ladder(depth // 2)]
    found = total(W, batch)
    for example, got in zip(batch, found, strict=True):
        expected, node = 0.0, example
        ways = 1.0
        while node is not None:
            expected += ways * float(np.tanh(np.float32(0.7 * node.x)))
            ways, node = ways * 2, node.left
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_more_ways_than_an_integer_can_count():
    with jax.enable_x64(True):
        found = total(jnp.float64(0.7), [ladder(200)])
        assert found.dtype == jnp.float64
        expected, node, ways = 0.0, ladder(200), 1.0
        while node is not None:
            expected += ways * np.tanh(0.7 * node.x)
            ways, node = ways * 2, node.left
        np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_what_cancels_counts_where_it_is_no_number():
    zero, one = Node(0.0), Node(1.0)
    batch = [Node(0.0, zero, zero), Node(0.0, one, one), zero]
    expected = np.stack(differences.loop(W, batch))
    assert np.isnan(expected[0]) and expected[1] == 0 and np.isinf(expected[2])
    np.testing.assert_array_equal(differences(W, batch), expected)


def test_minibatches_repeats_and_jit():
    rng = np.random.default_rng(3)
    examples = [tree(rng, int(n)) for n in rng.integers(1, 9, 12)]
    expected = np.stack(total.loop(W, examples))
    data = total.pack(examples)
    for chosen in ([3], [5, 5, 0], [11, 2, 7, 2], []):
        np.testing.assert_allclose(total(W, data[chosen]), expected[chosen], rtol=1e-5)
        np.testing.assert_allclose(jax.jit(total)(W, data[chosen]), expected[chosen], rtol=1e-5)


def test_failing_examples_do_not_count():
    @ab.batched(in_axes=(None, 0), on_error="mask")
    def checked(w, t):
        assert t.n < 9, "too large"
        return w * t.x + sum(checked(w, c) for c in t.kids)

    good = Many(1.0, 1, [Many(2.0), Many(3.0)])
    found, failures = checked(W, [Many(1.0, 9), good, Many(5.0, 1, [Many(1.0, 9)]), good])
    assert failures.failed.tolist() == [True, False, True, False]
    np.testing.assert_allclose(found, [0.0, 4.2, 0.0, 4.2], rtol=1e-6)


def test_a_cycle_is_found():
    loop = Many(1.0)
    loop.kids = [Many(2.0, 1, [loop])]
    with pytest.raises(ab.ExampleError, match="cycle|recursion"):
        over_children(W, [Many(1.0), loop])


def test_sums_that_every_node_reads_keep_their_levels():
    @ab.batched(in_axes=(None, 0))
    def with_largest(w, t):
        """The sum below a node is an operand of its own result."""
        total, largest = w * t.x, w * 0.0
        for c in t.kids:
            below, most = with_largest(w, c)
            total, largest = total + below, jnp.maximum(largest, most)
        return total, jnp.maximum(largest, jnp.tanh(total))

    rng = np.random.default_rng(7)
    batch = [many(rng, n) for n in (1, 3, 4)]
    assert rewritten(with_largest, W, batch)[0] == 0
    agrees(with_largest, W, batch)


def test_what_is_no_plain_sum_keeps_its_levels():
    @ab.batched(in_axes=(None, 0))
    def scaled(w, t):
        below = sum(scaled(w, c) for c in t.kids)
        return w * t.x + below * 0.5

    rng = np.random.default_rng(4)
    batch = [many(rng, n) for n in (1, 3, 4)]
    assert rewritten(scaled, W, batch) == (0, 1)
    agrees(scaled, W, batch)


def test_leaves_that_add_a_number_without_rows():
    @ab.batched(in_axes=(None, 0))
    def from_one(w, t):
        if t.left is None:
            return 1.0
        return from_one(w, t.left) + from_one(w, t.right) + jnp.cos(t.x)

    rng = np.random.default_rng(4)
    agrees(from_one, W, [tree(rng, n) for n in (1, 3, 4)])


def test_long_rows_keep_their_levels():
    @ab.batched(in_axes=(None, 0))
    def rows(w, t):
        return w * t.x + sum(rows(w, c) for c in t.kids)

    rng = np.random.default_rng(5)
    batch = [many(rng, 3) for _ in range(4)]
    assert rewritten(rows, jnp.arange(4.0), batch) == (1, 0)
    assert rewritten(rows, jnp.arange(64.0), batch)[0] == 0
    for w in (jnp.arange(4.0), jnp.arange(64.0), jnp.ones((2, 2))):
        agrees(rows, w, batch)


def test_half_precision():
    rng = np.random.default_rng(6)
    agrees(over_children, jnp.bfloat16(0.5), [many(rng, 2) for _ in range(3)], rtol=3e-2)
