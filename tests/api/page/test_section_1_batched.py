"""The forms of a batched argument: Batch, list, array, container; and what is no batch."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, close, params, total, trees
from tests.api.page.oracle import agrees
from tests.api.page.test_section_1 import Box

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
Pair = namedtuple("Pair", "a b")


@dataclass
class Leaf:
    x: float


# ---- a Batch


def test_a_batch_is_as_packed():
    """A snapshot: what changes in the objects afterwards is not seen."""
    examples = trees()
    data = ab.pack(examples)
    close(total(params(), data), [2, 18, 70])
    examples[0].x = 100.0
    close(total(params(), data), [2, 18, 70])


@pytest.mark.parametrize("value", [lambda: ab.pack([Node(1.0)]), lambda: [Node(1.0)]], ids=["Batch", "list"])
@pytest.mark.parametrize("axes", [1, -1, ({"t": 1},)], ids=str)
def test_the_entry_of_a_batch_or_list_is_zero(value, axes):
    """There is no other axis of examples; the error names the argument."""
    wrapped = {"t": value()} if isinstance(axes, tuple) else value()
    with pytest.raises(ab.BatchError, match="gives t.* the axis -?1.*axis 0 only"):
        ab.batched(lambda t: 0.0, in_axes=axes)(wrapped)


# ---- a list


@pytest.mark.parametrize(
    "examples",
    [
        [1, 2, 3],
        [1.5, -2.5],
        [True, False],
        [np.ones(3), np.zeros(3)],
        [jnp.ones(3), jnp.zeros(3)],
        [np.float32(1), np.float32(2)],
        [(1, 2.0), (3, 4.0)],
        [{"a": 1}, {"a": 2}],
        [Pair(1, 2.0), Pair(3, 4.0)],
        [[1, 2], [], [3]],
        [[[1], []], []],
        [Node(1.0), Node(2.0, Node(3.0), Node(4.0))],
        [None, Node(1.0)],
        ["a", "b", "a"],
    ],
    ids=str,
)
def test_a_list_is_always_a_list_of_examples(examples):
    """Whatever its elements are: each one of them is an example, also where it is an array or a list itself."""

    def f(example):
        return 1 if example is None else 2

    assert len(ab.unbatch(ab.batched(f)(examples))) == len(examples)
    agrees(ab.batched(f), examples)


def test_a_list_of_arrays_is_stacked_examples():
    """A list of two arrays is a batch of two; vmap would call it a pytree of two arrays."""
    agrees(ab.batched(lambda p, x: p * x.sum(), in_axes=(None, 0)), 2.0, [X[0], X[1]])
    f = ab.batched(lambda p, x: p * x, in_axes=(None, 0))
    assert f(2.0, [X[0], X[1]]).shape == (2, 4)


def test_a_tuple_or_stacked_list_of_arrays_is_a_container():
    """What vmap calls `[X, Y]` is written `(X, Y)` or `ab.stacked([X, Y])`: each example is a pair of rows."""
    f = ab.batched(lambda p, q: p * q[0] + q[1], in_axes=(None, 0))
    expected = jax.vmap(lambda q: 2.0 * q[0] + q[1])([X, -X])
    close(f(2.0, (X, -X)), expected)
    close(f(2.0, ab.stacked([X, -X])), expected)


def test_stacked_reaches_the_lists_inside():
    """Every list below the mark is a container; the leaves are arrays."""
    f = ab.batched(lambda q: q[0] + q[1][0])
    close(f(ab.stacked([X, [2 * X]])), 3 * X)


@pytest.mark.parametrize(
    "wrap, read",
    [
        (lambda ts: {"t": ts, "k": X[:, 0]}, lambda q: q["t"].x * q["k"]),
        (lambda ts: (ts, X[:, 0]), lambda q: q[0].x * q[1]),
        (lambda ts: Pair(ts, X[:, 0]), lambda q: q.a.x * q.b),
        (lambda ts: {"deep": ({"t": ts}, X[:, 0])}, lambda q: q["deep"][0]["t"].x * q["deep"][1]),
        (lambda ts: {"t": ab.pack(ts), "k": X[:, 0]}, lambda q: q["t"].x * q["k"]),
    ],
    ids=["dict", "tuple", "NamedTuple", "nested", "Batch"],
)
def test_a_list_inside_a_container_is_a_list_of_examples(wrap, read):
    """At any depth, beside arrays of as many rows."""
    f = ab.batched(read)
    close(f(wrap(trees())), [0, 8, 40])
    agrees(f, wrap(trees()))


def test_a_list_is_packed_anew_at_each_call():
    """Changed objects are seen, also where the list is the same one: it is never remembered by identity."""
    examples = trees()
    close(total(params(), examples), [2, 18, 70])
    examples[0].x = 10.0
    examples[1].left = None
    close(total(params(), examples), [20, 4, 70])
    examples.pop()
    close(total(params(), examples), [20, 4])


def test_under_jit_a_list_is_a_constant_of_the_trace():
    """It is packed while tracing; later changes do not reach the executable."""
    examples = trees()
    step = jax.jit(lambda w: total({"w": w}, examples))
    close(step(2.0), [2, 18, 70])
    examples[0].x = 10.0
    close(step(3.0), [3, 27, 105])


# ---- the empty list


def test_no_examples_where_the_parameter_is_annotated():
    """The annotation says what the function would see."""

    @ab.batched
    def count(words: list[int]):
        return [w * 2 for w in words], len(words)

    doubled, lengths = count([])
    assert len(doubled) == 0 and lengths.shape == (0,)


def test_no_examples_where_a_call_came_before():
    """The types that the function has seen are its types."""
    f = ab.batched(lambda t: t.x * 2)
    f(trees())
    assert f([]).shape == (0,)


def test_no_examples_of_a_data_set():
    """A Batch knows its types without any example."""
    data = ab.pack(trees())
    assert total(params(), data[[]]).shape == (0,)
    f = ab.batched(lambda t: t.x)
    assert f(data[[]]).shape == (0,)


def test_no_examples_with_like():
    """A Batch or an annotation says what a list of nothing would hold."""
    f = ab.batched(lambda words: sum(words))
    assert f(f.pack([], like=list[int])).shape == (0,)
    assert f(ab.pack([], like=ab.pack([[1, 2]]))).shape == (0,)


@pytest.mark.parametrize("call", [lambda f: f([]), lambda f: f.pack([]), lambda f: ab.pack([])])
def test_no_examples_of_unknown_types_are_refused(call):
    """Nothing says what they would be: the error asks for `like=`."""
    with pytest.raises(ab.BatchError, match="like="):
        call(ab.batched(lambda t: t.x))


def test_no_rows_are_no_riddle():
    """An array of no rows has a type."""
    assert ab.batched(lambda x: x * 2)(np.zeros((0, 4), np.float32)).shape == (0, 4)


# ---- arrays and containers


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_array_is_stacked_on_the_axis_of_its_entry(make, axis):
    """Row k along the axis is example k."""
    f = ab.batched(lambda x: x.sum() * 2, in_axes=axis)
    close(f(make(X)), 2 * X.sum(1 - axis % 2))
    agrees(f, make(X))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int32, np.float16, np.float32, np.complex64])
def test_an_array_keeps_its_dtype(dtype):
    """NumPy's narrow types too."""
    x = np.array([0, 1, 1]).astype(dtype)
    assert ab.batched(lambda x: x)(x).dtype == dtype


@pytest.mark.parametrize("value", [{"a": X, "b": -X}, (X, -X), Pair(X, -X), Box(X, -X), {"a": (X, Pair(-X, X))}])
def test_a_container_has_leaves_of_b_rows(value):
    """An example is the same container of rows."""

    def f(q):
        return sum(leaf.sum() for leaf in jax.tree.leaves(q))

    close(ab.batched(f)(value), jax.vmap(f)(value))


def test_forms_stand_beside_each_other():
    """Batch, list and array in one call."""
    f = ab.batched(lambda a, b, k: a.x + b.x * k)
    k = X[:, 1]
    for left in (trees(), ab.pack(trees())):
        for right in (trees()[::-1], ab.pack(trees())[::-1]):
            close(f(left, right, k), [6, 12, 14])


# ---- anything else


@pytest.mark.parametrize(
    "value",
    [Node(1.0), (n for n in trees()), "abc", 3, 2.5, np.float32(1), None, Leaf(1.0), {1, 2}, object(), len, b"ab"],
    ids=lambda v: type(v).__name__,
)
def test_anything_else_is_one_example(value):
    """The error says how to make a batch of it, and how to call the function for one example."""
    with pytest.raises(ab.BatchError, match=r"one example was given.*pass `\[.*\]`, or call `f\.example"):
        ab.batched(lambda t: 0.0)(value)


def test_one_example_inside_a_container_is_named():
    """The place in the argument is in the error."""
    with pytest.raises(ab.BatchError, match=r"q\['t'\].*one example was given"):
        ab.batched(lambda q: 0.0)({"t": Node(1.0), "k": X})


def test_an_iterator_is_not_consumed():
    """It is refused before anything is taken from it."""
    examples = iter(trees())
    with pytest.raises(ab.BatchError):
        ab.batched(lambda t: t.x)(examples)
    assert len(list(examples)) == 3
