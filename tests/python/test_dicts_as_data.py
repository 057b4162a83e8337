"""Dicts and sets whose keys are data: other keys in each example, looked up, walked, changed and differentiated."""

from __future__ import annotations

import copy
import enum
import heapq
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.errors import BatchError, ExampleError
from autobatch.testing import assert_same


class Color(enum.Enum):
    RED = 0
    BLUE = 1
    GREEN = 2


class Item:
    def __init__(self, weight, value):
        self.weight, self.value = weight, value


X = [0.5, 1.5, 2.5]
NUMBERED = [{1: 2.0, 5: 0.5}, {5: 1.0}, {7: 1.0, 2: 2.0, 1: 3.0}]
GRAPHS = [{0: [1, 2], 1: [], 2: [0, 1]}, {0: [0]}, {0: [2], 2: [1], 1: []}]
WEIGHTED = [{0: {1: 1.0, 2: 4.0}, 1: {2: 1.5}, 2: {}}, {0: {}}, {0: {1: 2.0}, 1: {0: 1.0}}]
PAIRS = [{(0, 1): 1.0, (1, 2): 2.0}, {(2, 2): 1.5}, {(1, 0): 0.5, (0, 1): 3.0}]
COLORS = [{Color.RED: 1.0}, {Color.GREEN: 2.0, Color.BLUE: 0.5}, {Color.BLUE: 1.0}]
FLAGS = [{True: 1.0, False: 2.0}, {False: 3.0, True: 0.0}, {True: 5.0, False: 1.0}]
SETS = [{1, 2, 3}, {5}, {2, 4}]
ITEMS = [{3: Item(1.0, 2.0), 1: Item(2.0, 1.0)}, {4: Item(0.5, 3.0)}, {2: Item(3.0, 3.0), 9: Item(1.0, 5.0)}]
WORDS = [{"a": 1.0, "b": 2.0}, {"c": 4.0}, {"b": 0.5, "a": 3.0, "d": 1.0}]
LINKS = [{"a": ["b", "c"], "b": ["a"], "c": []}, {"x": []}, {"b": ["b", "q"], "q": ["b"]}]


def looked_up(d, x):
    return d[1] * x + d.get(7, 0.5) if 1 in d else x


def at_a_computed_key(d, x):
    found = d.get(int(x * 2), -1.0)
    return found if found > x else x * len(d)


def folded(d, x):
    total = 0.0
    for k, v in d.items():
        total += k * v if v > x else v
    return total, len(d), max(d), sum(d.values()), sorted(d)


def reached(graph, x):
    seen, stack = set(), [0]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for other in graph[node]:
            if other not in seen and x > other * 0.5:
                stack.append(other)
    return len(seen)


def distances(graph, x):
    best, heap = {0: 0.0}, [(0.0, 0)]
    while heap:
        far, node = heapq.heappop(heap)
        if far > best[node]:
            continue
        for other, cost in graph[node].items():
            through = far + cost * x
            if through < best.get(other, 1e9):
                best[other] = through
                heapq.heappush(heap, (through, other))
    return sum(best.values()), best


def over_pairs(d, x):
    total = x
    for (i, j), w in d.items():
        total += (i - j) * w
    return total + d.get((0, 1), 0.0) + (d[1, 2] if (1, 2) in d else -1.0)


def over_members(d, x):
    total = 0.0
    for color in Color:
        if color in d:
            total += d[color] * x
    return total


def by_a_test(d, x):
    return d[x > 1]


def a_copy_changed(d, x):
    made = dict(d)
    made[1] = made.get(1, 0.0) + x
    if x > 1:
        made[99] = x
    return sum(made.values()), len(made), made


def of_sets(s, x):
    return len(s), (x if 2 in s else -x), len(s | {1, 2}), len(s & {1, 2}), sorted(s), max(s)


def of_objects(d, x):
    best = None
    for item in d.values():
        if best is None or item.value / item.weight > best.value / best.weight:
            best = item
    return best.value * x + d[min(d)].weight


def turned(d, x):
    return {v: k for k, v in d.items() if v > x or k > 1}, {k: v * x for k, v in d.items()}


def equal(d, x):
    return d == {5: 1.0}, d != {}


def the_greatest(d, x):
    best = ""
    for k, v in d.items():
        if best == "" or v > d[best]:
            best = k
    return best, d[best] * x


def merged(d, x):
    both = {**d, "z": x}
    both["a"] = both.get("a", 0.0) + 1.0
    return sum(both[k] if both[k] > 1 else 0.5 for k in both), both["a"]


def linked(links, x):
    seen, stack = [], [min(links)]
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.append(name)
        for other in links[name]:
            if other in links and (x > 1.0 or other != "a"):
                stack.append(other)
    return len(seen), seen[-1]


PROGRAMS = [
    (looked_up, NUMBERED),
    (at_a_computed_key, NUMBERED),
    (folded, NUMBERED),
    (reached, GRAPHS),
    (distances, WEIGHTED),
    (over_pairs, PAIRS),
    (over_members, COLORS),
    (by_a_test, FLAGS),
    (a_copy_changed, NUMBERED),
    (of_sets, SETS),
    (of_objects, ITEMS),
    (turned, NUMBERED),
    (equal, NUMBERED),
    (the_greatest, WORDS),
    (merged, WORDS),
    (linked, LINKS),
]


def check(function, data, backend):
    f = ab.batched(function, backend=backend)
    assert_same(ab.unbatch(f(data, X)), [function(d, x) for d, x in zip(data, X, strict=True)], tolerance=1e-5)


@pytest.mark.parametrize("backend", ["llvm", "auto"])
@pytest.mark.parametrize(("function", "data"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_programs(function, data, backend):
    check(function, data, backend)


@pytest.mark.xla
@pytest.mark.parametrize("backend", ["xla", "interpret"])
@pytest.mark.parametrize(
    ("function", "data"),
    [(looked_up, NUMBERED), (folded, NUMBERED), (over_pairs, PAIRS), (by_a_test, FLAGS), (the_greatest, WORDS)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_other_back_ends(function, data, backend):
    check(function, data, backend)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.lists(
        st.dictionaries(st.integers(-3, 9), st.floats(-4, 4, width=32), max_size=5), min_size=3, max_size=3
    ).filter(any)
)
def test_random_dicts(data):
    def f(d, x):
        total = d.get(int(x * 2), x)
        for k, v in d.items():
            total = total * 0.5 + (v if k in d and v > x else k * x)
        return total, len(d), {k: v * 2 for k, v in d.items()}

    check(f, data, "llvm")


@pytest.mark.parametrize("function", [folded, a_copy_changed])
def test_derivatives(function):
    f = ab.batched(lambda d, x: function(d, x)[0], backend="llvm")
    numbers = [x + 0.1 for x in X]
    found = ab.unbatch(ab.grad(f)(NUMBERED, numbers))
    for got, d, x in zip(found, NUMBERED, numbers, strict=True):
        assert list(got) == list(d)
        for k in d:
            up, down = ({**d, k: d[k] + s} for s in (1e-4, -1e-4))
            assert got[k] == pytest.approx((function(up, x)[0] - function(down, x)[0]) / 2e-4, abs=1e-2)


@pytest.mark.parametrize("data", [NUMBERED, GRAPHS, WEIGHTED, PAIRS, SETS, COLORS], ids=range(6))
def test_packed_and_back(data, tmp_path):
    batch = ab.pack(data)
    batch.save(tmp_path / "dicts")
    for held in (batch, ab.load(tmp_path / "dicts"), pickle.loads(pickle.dumps(batch))):
        made = held.to_list()
        assert made == data
        assert all(list(m) == list(d) for m, d in zip(made, data, strict=True) if isinstance(d, dict))


def test_packed_dicts_are_arguments():
    found = ab.unbatch(ab.batched(folded)(ab.pack(NUMBERED), X))
    assert_same(found, [folded(d, x) for d, x in zip(NUMBERED, X, strict=True)])


def test_one_program_for_all_keys():
    f = ab.batched(the_greatest, backend="llvm")
    for shift in range(6):
        data = [{chr(ord(k) + shift): v for k, v in d.items()} for d in WORDS]
        assert_same(ab.unbatch(f(data, X)), [the_greatest(d, x) for d, x in zip(data, X, strict=True)])
    assert f.cache_info().executables <= 2


def test_a_key_that_is_not_there():
    with pytest.raises(ExampleError, match="example 1 .*KeyError"):
        ab.batched(lambda d: d[1] * 2, backend="llvm")(NUMBERED)


def test_changed_and_refused():
    def changed(d, x):
        d[1] = x
        return d[1]

    data = copy.deepcopy(NUMBERED)
    ab.batched(changed)(data, X)
    assert data == [{**d, 1: x} for d, x in zip(NUMBERED, X, strict=True)]
    with pytest.raises(BatchError, match="types that do not fit into one column"):
        ab.batched(looked_up)([{1: np.float32(2.0), 2: np.int32(1)}], [1.0])


def test_keys_of_numpy():
    data = [{np.int64(k): v for k, v in d.items()} for d in NUMBERED]
    check(looked_up, data, "llvm")
