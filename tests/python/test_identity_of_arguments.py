"""`is`, `in`, `index`, `count` and `remove` of objects and lists that a function is given by another one."""

from __future__ import annotations

import pytest

import autobatch as ab


class Point:
    def __init__(self, x):
        self.x = x


def same(a, b):
    return a is b


def same_within(a, b):
    return same(a, b)


def place(items, wanted):
    for k, x in enumerate(items):
        if x is wanted:
            return k
    return -1


def two_of_a_list(xs):
    points = [Point(x) for x in xs]
    return same(points[0], points[-1]), same_within(points[0], points[-1]), same(Point(1.0), Point(1.0))


def one_behind_a_branch(xs):
    points = [Point(x) for x in xs]
    chosen = points[0] if xs[0] > 0 else points[-1]
    return sum(1 for p in points if same(p, chosen)), chosen in points, Point(1.0) in points, points.count(chosen)


def found_by_index(xs):
    points = [Point(x) for x in xs]
    best = max(points, key=lambda p: p.x)
    return points.index(best), place(points, points[-1]), place(points, Point(0.5)), [p is best for p in points]


def taken_out(xs):
    points = [Point(x) for x in xs]
    points.remove(points[-1])
    return [p.x for p in points]


def lists(xs):
    a, b, rows = [1.0], [1.0], [[x] for x in xs]
    return same(a, b), same(a, a), a == b, place(rows, rows[-1]), place(rows, [xs[-1]])


def held_by_a_dict(xs):
    a = Point(xs[0])
    d = {"a": a, "b": Point(xs[0])}
    return same(d["a"], a), same(d["b"], a), d["a"] is a


def from_a_function(xs):
    points = [Point(x) for x in xs]

    def last(items):
        return items[-1]

    return same(last(points), points[-1]), same(last(points), points[0]), place(points, last(points))


LISTS = [[0.5, 1.0, 2.0], [-1.0, 3.0], [4.0]]
PROGRAMS = [two_of_a_list, one_behind_a_branch, found_by_index, taken_out, lists, held_by_a_dict, from_a_function]


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_equals_python(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(LISTS))
    assert found == list(map(function, LISTS))
