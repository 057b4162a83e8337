"""Examples that fail: what plain Python raises first, with its place; also where only the device reads the number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab


@dataclass
class Node:
    x: float
    left: Node | None = None
    kids: list[Node] = field(default_factory=list)


LEAF = Node(1.0)
INNER = Node(2.0, LEAF, [LEAF])


def field_of_none(t):
    return t.left.x * 2


def two_reads(t):
    return t.left.x + t.kids[0].x


def two_reads_the_other_way(t):
    return t.kids[0].x + t.left.x


def item_of_a_list_made(t):
    states = [jnp.tanh(k.x) for k in t.kids]
    return states[0]


def last_of_a_list_made(t):
    states = [k.x for k in t.kids]
    return states[-1] * 2


def item_of_a_list_handed_down(t):
    def pick(states, k):
        return states[k]

    return pick([k.x for k in t.kids], 0) + pick([0.5, t.x], len(t.kids))


def item_of_a_list_of_lists(t):
    rows = [[g.x for g in k.kids] for k in [t] + t.kids]
    return rows[0][0]


def item_of_a_list_that_is_not_there(t):
    rows = [[k.x] for k in t.kids]
    return rows[0][0]


def values_of(t):
    return [t.x] if t.left is None else values_of(t.left) + [t.x]


def item_of_a_list_that_a_call_returns(t):
    return values_of(t)[1]


def most_of_nothing(t):
    return max(k.x for k in t.kids)


def least_of_nothing(t):
    return min([k.x * 2 for k in t.kids])


def best_of_nothing(t):
    return max(t.kids, key=lambda k: k.x).x


def most_of_none_kept(t):
    return max(k.x for k in t.kids if len(k.kids) == len(t.kids) - 1)


def the_read_before_the_assertion(t):
    y = t.left.x
    assert len(t.kids) > 0
    return y


def the_assertion_before_the_read(t):
    assert len(t.kids) > 0, "no kids"
    return t.left.x


def in_a_loop(t):
    s = 0.0
    for k in range(2):
        s = s + [c.x for c in t.kids][k - 1]
    return s


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize(
    "function",
    [
        field_of_none,
        two_reads,
        two_reads_the_other_way,
        item_of_a_list_made,
        last_of_a_list_made,
        item_of_a_list_handed_down,
        item_of_a_list_of_lists,
        item_of_a_list_that_is_not_there,
        item_of_a_list_that_a_call_returns,
        most_of_nothing,
        least_of_nothing,
        best_of_nothing,
        most_of_none_kept,
        the_read_before_the_assertion,
        the_assertion_before_the_read,
        in_a_loop,
    ],
)
def test_the_failure_is_the_one_that_python_raises_first(function: Callable[[Node], Any], backend: str) -> None:
    f = ab.batched(function, backend=backend)
    with pytest.raises(ab.ExampleError) as caught:
        f([INNER, LEAF, INNER])
    (failure,) = caught.value.failures
    with pytest.raises(Exception) as python:
        function(LEAF)
    frame = python.traceback[-1]
    assert (failure.index, failure.kind) == (1, python.type.__name__)
    assert failure.span.file.endswith("test_failures.py") and failure.line == frame.lineno + 1
    if not isinstance(python.value, ValueError):  # Python words those of max and min anew from version to version
        assert failure.message == str(python.value).split("\n")[0]  # pytest adds to assertions
    result, failures = ab.batched(function, backend=backend, on_error="mask")([INNER, LEAF])
    assert failures.failed.tolist() == [False, True]
    assert result.tolist() == pytest.approx([float(function(INNER)), 0.0])


@ab.batched
def total(t):
    s = t.x
    for k in t.kids:
        s = s + total(k)
    return s


@ab.batched
def height(t):
    return 1 + max([height(k) for k in t.kids], default=0)


@pytest.mark.parametrize("function", [total, height])
def test_a_cycle_is_named_with_the_example_and_the_call(function: Any) -> None:
    ring = Node(1.0)
    ring.kids.append(Node(2.0, None, [ring]))
    with pytest.raises(ab.ExampleError, match="example 1 at .*test_failures.py") as caught:
        function([INNER, ring])
    (failure,) = caught.value.failures
    assert failure.kind == "RecursionError" and "follows a cycle in the data" in failure.message
    assert f"{function.__name__}(k)" in str(caught.value), "the line of the call"


@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize(
    "function", [lambda n: n * n, lambda n: n + 0.5, lambda n: jnp.ones(2) * n, lambda n: [n] * 2, lambda n: {"a": n}]
)
def test_an_int_that_the_device_cannot_hold_fails_its_example(function: Callable[[int], Any], backend: str) -> None:
    f = ab.batched(function, backend=backend, on_error="mask")
    _, failures = f([3, 2**31 + 1])
    assert failures.failed.tolist() == [False, True]
    (failure,) = failures
    assert failure.kind == "OverflowError" and "int32" in failure.message
    with jax.enable_x64(True):
        result, failures = f([3, 2**31 + 1, 2**20 + 1])
        assert not failures.failed.any()
        found_and_expected = list(zip(ab.unbatch(result), f.loop([3, 2**31 + 1, 2**20 + 1]), strict=True))
    for found, expected in found_and_expected:
        assert jax.tree.all(jax.tree.map(lambda a, b: np.all(a == b), found, expected))


def test_an_int_of_the_host_that_overflows_fails_its_example() -> None:
    f = ab.batched(lambda n: sum(range(n * n * n * n % 3)))
    with pytest.raises(ab.ExampleError, match="OverflowError: an int needs more than 64 bits") as caught:
        f([2, 2**40])
    assert caught.value.failures[0].index == 1


def test_ints_that_only_the_host_computes_with_may_be_wide() -> None:
    f = ab.batched(lambda n: 1.0 if n * n % 7 == 4 else 0.0)
    assert f([2**30, 5]).tolist() == f.loop([2**30, 5])


def test_a_failure_while_other_activations_wait():
    """The first loop fails all examples before the second one, which waits beside it, has run."""

    def f(words, others):
        total = 0.0
        for i in range(3):
            total += words[i]
        for w in others:
            total += w
        return total

    f = ab.batched(f, on_error="mask")
    _, failures = f([[1.0], [1.0, 2.0]], [[1.0], [2.0]])
    assert [(x.index, x.kind) for x in failures] == [(0, "IndexError"), (1, "IndexError")]
