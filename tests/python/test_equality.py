"""`==`, `in` and keys: tuples, lists and dicts of the examples beside those that a function makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

BACKENDS = ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"]
N = [0, 4, 1, 0]
PAIRS = [(0, 0.5), (4, 0.25), (1, 1.0), (0, 1.0)]
LISTS = [[(0, 0), (2, 2), (0, 0)], [(4, 4), (1, 2), (4, 4)], [(2, 1)], [(0, 1), (0, 0)]]
MIXED = [[1, "a", 1], ["a", "a", "b"], [2, 3, "2"], ["c"]]
FLOATS = [[0.5, 2.0, 2.0], [0.1], [3.0, 2.0], [1.0, 1.0]]


def made_beside_given(n, p):
    return (n, 0.5) == p, p != (n, 0.25), [n, 0.5] == p


def found(n, ps):
    return (n, n) in ps, ps.count((n, n)), sum(1 for t in ps if t == (n, n)), max(ps) == (n, n)


def keys_of_constants(n, p):
    return {p: 3.0}.get((n, 1.0), 0.0), p in {(1, 1.0), (4, 0.25)}


def seen_before(n, ps):
    seen, again = set(), 0
    for p in ps:
        if p in seen:
            again += 1
        seen.add(p)
    return again, len(seen), (n, n) in seen


def counted(n, xs):
    counts = {}
    for x in xs:
        counts[x] = counts.get(x, 0) + 1
    return max(counts.values()), len(counts)


def keys_of_several_types(n, xs):
    sums = {}
    for x in xs:
        key = ("big", 2) if x > 1.0 else "small"
        sums[key] = sums.get(key, 0.0) + x
    return sum(v if k == "small" else 100 * v for k, v in sums.items())


CASES = [
    (made_beside_given, PAIRS), (found, LISTS), (keys_of_constants, PAIRS), (seen_before, LISTS), (counted, LISTS),
    (seen_before, MIXED), (counted, MIXED), (keys_of_several_types, FLOATS),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "data"), CASES)
def test_equality(function, data, backend):
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(N, data)), list(map(function, N, data)))


@dataclass
class Room:
    name: str
    exits: dict[str, str]


@pytest.mark.parametrize("backend", BACKENDS)
def test_objects_that_hold_dicts(backend):
    def same(a, b):
        return a == b, a.exits == b.exits, a != Room("hall", {"n": "cave"})

    rooms = [Room("hall", {"n": "cave"}), Room("hall", {"n": "attic"})], [Room("hall", {"n": "cave"})] * 2
    assert_same(ab.unbatch(ab.batched(same, backend=backend)(*rooms)), list(map(same, *rooms)))


class Cell:
    def __init__(self, value, inner):
        self.value, self.inner = value, inner


def test_floats_that_memory_has_held():
    """By machine code they are those of the examples."""

    def in_a_chain(xs, t):
        head = None
        for x in xs:
            head = Cell(x, head)
        while head is not None and head.value != t:
            head = head.inner
        return head is not None

    def insert(keys, key):
        for k in keys:
            if k == key:
                return
        keys.append(key)

    def different(xs, t):
        keys = []
        for x in xs:
            insert(keys, x)
        return len(keys)

    def sorted_in(xs, t):
        ys = []
        for x in xs:
            i = 0
            while i < len(ys) and ys[i] < x:
                i += 1
            if i == len(ys) or ys[i] != x:
                ys.insert(i, x)
        return len(ys)

    data = [[0.3, 0.7, 0.3], [0.1, 0.1, 0.1]], [0.7, 0.1]
    for function in (in_a_chain, different, sorted_in):
        wanted = list(map(function, *data))
        for backend in ("llvm", "auto"):
            assert np.asarray(ab.batched(function, backend=backend)(*data)).tolist() == wanted


@pytest.mark.parametrize("backend", BACKENDS)
def test_none_beside_tuples(backend):
    def same(a, b):
        return a == b, a != b

    data = [(1, 2), None, (1, 2), None], [(1, 2), None, None, (3, 4)]
    assert_same(ab.unbatch(ab.batched(same, backend=backend)(*data)), list(map(same, *data)))
