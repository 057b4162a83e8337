"""Arguments that are lists and are changed: the caller's lists are as plain Python leaves them."""

from __future__ import annotations

import copy
import heapq

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.errors import BatchError, ExampleError, UnsupportedError
from autobatch.testing import assert_same
from autobatch.testing.programs import Program

LISTS = [[3.0, 0.1, 2.0], [5.0], [0.3, 1.7, 0.7, 2.2]]
TABLES = [[[1.5, 0.2], [3.0]], [[0.1]], [[2.0, 2.0], []]]
WORDS = [["a", "c"], ["b"], ["z", "q", "a"]]
PAIRS = [[(1.0, 2)], [], [(0.5, 1), (2.0, 3)]]


def consumed(xs):
    total = 0.0
    while xs and total < 4.0:
        total = total * 0.5 + xs.pop()
    return total + len(xs)


def bubble_sort(xs):
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs[0]


def quick_sort(xs):
    def between(low, high):
        if low < high:
            pivot, i = xs[high], low
            for j in range(low, high):
                if xs[j] < pivot:
                    xs[i], xs[j] = xs[j], xs[i]
                    i += 1
            xs[i], xs[high] = xs[high], xs[i]
            between(low, i - 1)
            between(i + 1, high)

    between(0, len(xs) - 1)
    return xs


def _marked(board, i, j):
    old, board[i][j] = board[i][j], -1.0
    return old > 2.0


def marked_until(board):
    """`any` over two loops whose elements change the argument: the one that decides is the last one looked at."""
    found = any(_marked(board, i, j) for i in range(len(board)) for j in range(len(board[i])))
    return found, all(_marked(board, i, j) for i in range(len(board)) for j in range(len(board[i])) if i > 0)


def by_a_helper(xs):
    def put(ys, y):
        ys.append(y)

    if xs[0] > 1:
        put(xs, 0.5)
    xs.sort()
    return sum(xs), xs


def as_a_heap(xs):
    heapq.heapify(xs)
    least = heapq.heappop(xs)
    heapq.heappush(xs, least + 0.5)
    return least


def cells(table):
    count = 0
    for i in range(len(table)):
        for j in range(len(table[i])):
            if table[i][j] > 1.0:
                table[i][j] = 0.0
                count += 1
    return count


def words(ws):
    last = ""
    while ws:
        w = ws.pop()
        if w > "b":
            last = w
    return last


def pairs(ps):
    ps.append((0.25, len(ps)))
    return sum(a * b for a, b in ps)


def bound_to_another(xs):
    xs.append(1.0)
    xs = xs[1:]
    return sum(xs)


def left_early(xs):
    for i in range(len(xs)):
        if xs[i] > 2.0:
            return i
        xs[i] = -xs[i]
    return -1


def by_two_names(xs):
    ys = xs
    if xs[0] > 0:
        ys.append(7.0)
    ys[0] = 9.0
    return len(xs), xs[0]


def by_structure_alone(xs):
    xs.append(2.0)
    del xs[0]
    xs.reverse()
    return xs[0]


PROGRAMS = [
    (consumed, LISTS),
    (bubble_sort, LISTS),
    (quick_sort, LISTS),
    (by_a_helper, LISTS),
    (as_a_heap, LISTS),
    (cells, TABLES),
    (marked_until, TABLES),
    (pairs, PAIRS),
    (bound_to_another, LISTS),
    (left_early, LISTS),
    (by_two_names, LISTS),
    (by_structure_alone, LISTS),
]


def check(function, data, backend):
    f = ab.batched(function, backend=backend)
    for _ in range(2):  # a call that is like one before, too
        ours, plain = copy.deepcopy(data), copy.deepcopy(data)
        kept = list(ours)
        wanted = copy.deepcopy([function(x) for x in plain])
        assert_same(ab.unbatch(f(ours)), wanted, tolerance=1e-5)
        assert_same(ours, plain, tolerance=1e-6)
        assert all(x is y for x, y in zip(ours, kept, strict=True))


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize(("function", "data"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_programs(function, data, backend):
    check(function, data, backend)


@pytest.mark.parametrize("backend", ["llvm", "auto"])
def test_strings(backend):
    check(words, WORDS, backend)


def test_numbers_keep_their_digits():
    data = copy.deepcopy(LISTS)
    ab.batched(bubble_sort)(data)
    assert data == [sorted(x) for x in LISTS]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.lists(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=5), min_size=2, max_size=4),
    steps=st.lists(
        st.sampled_from(["xs.append(y)", "xs.pop()", "xs[0] = y", "xs[-1] += 1.0", "xs.insert(0, y)", "xs.reverse()"]),
        min_size=1,
        max_size=4,
    ),
)
def test_random_changes(data, steps):
    lines = [f"    if len(xs) < {k + 4} and len(xs) > 1 or xs[0] > y:\n        {step}" for k, step in enumerate(steps)]
    source = "def main(xs):\n    y = xs[0] * 0.5\n" + "\n".join(lines) + "\n    return len(xs), y\n"
    check(Program(source).function, [[*x, 0.5, 1.5] for x in data], "llvm")


def test_two_arguments():
    def moved(xs, ys):
        while xs and len(ys) < 6:
            y = xs.pop()
            if y > 1.0:
                ys.append(y)
        return len(ys)

    others = [[x + 0.5 for x in xs] for xs in LISTS[::-1]]
    ours, plain = copy.deepcopy((LISTS, others)), copy.deepcopy((LISTS, others))
    wanted = [moved(x, y) for x, y in zip(*plain, strict=True)]
    assert ab.unbatch(ab.batched(moved)(*ours)) == wanted
    assert ours == plain


class Node:
    def __init__(self, x):
        self.x = x


def test_refused():
    f, data = ab.batched(consumed), copy.deepcopy(LISTS)
    with pytest.raises(BatchError, match="changes its argument xs.*change a copy: xs = list"):
        jax.jit(lambda batch: f(batch))(ab.pack(data).plan(f))
    assert data == LISTS
    twice = [1.0, 2.0]
    with pytest.raises(BatchError, match="changes a list that is given twice"):
        f([twice, twice])
    assert twice == [1.0, 2.0]


def test_derivatives_and_packed_examples_leave_lists_as_they_are():
    f, data = ab.batched(consumed), copy.deepcopy(LISTS)
    wanted = [consumed(list(x)) for x in LISTS]
    np.testing.assert_allclose(f(ab.pack(data)), wanted, rtol=1e-6)
    assert_same(ab.unbatch(ab.grad(f)(data)), [[1.0, 0.5, 0.25], [1.0], [1.0, 0.5, 0.25, 0.125]])
    assert data == LISTS
    np.testing.assert_allclose(f.lower(data).compile()(data), wanted, rtol=1e-6)
    assert data != LISTS


def test_a_list_of_objects():
    f = ab.batched(lambda nodes: nodes.pop().x if nodes[0].x > 1 else 0.0)
    rows = [[Node(1.0), Node(2.0)], [Node(3.0)]]
    kept = rows[0][:]
    np.testing.assert_array_equal(f(rows), [0.0, 3.0])
    assert rows == [kept, []]


def test_nothing_is_changed_where_an_example_fails():
    def fails(xs):
        xs.append(1.0)
        return xs[int(xs[0])]

    data = [[0.0], [7.0]]
    with pytest.raises(ExampleError, match="example 1 .*IndexError"):
        ab.batched(fails)(data)
    assert data == [[0.0], [7.0]]


def test_a_shared_list_is_not_changed():
    with pytest.raises((BatchError, UnsupportedError)):
        ab.batched(lambda xs, y: xs.pop() + y, in_axes=(None, 0))([1.0, 2.0], np.ones(2))
