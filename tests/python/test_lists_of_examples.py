"""Lists of the examples beside lists that the function makes and that have memory: they are copied into it."""

import copy
from dataclasses import dataclass

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import SourceError

LISTS = [
    [[0.5, -1.0], [2.0]],
    [[1.25], [-0.5, 0.75, 1.5], [3.0, 0.25]],
    [[-2.0, 0.25, 1.0]],
    [[0.1, 0.2], [0.3], [0.4, 4.0], [-0.6, 0.7]],
]
Y = np.array([0.7, -0.4, 1.3, -0.9], np.float32)


@dataclass
class Box:
    items: list
    n: float


def clusters(points, y):
    centers = [points[0], points[-1]]
    for _ in range(2):
        sums, counts = [[0.0] for _ in centers], [0.0] * len(centers)
        for p in points:
            best = 0
            for k in range(1, len(centers)):
                if (p[0] - centers[k][0]) ** 2 < (p[0] - centers[best][0]) ** 2:
                    best = k
            sums[best][0] += p[0] * y
            counts[best] += 1.0
        centers = [[s[0] / c] if c > 0.0 else m for s, c, m in zip(sums, counts, centers, strict=True)]
    return sum(c[0] for c in centers)


def kept_or_made(points, y):
    log = [[0.0]]
    log[0].append(y)
    out = []
    for p in points:
        if p[0] > y:
            out.append(p)
        else:
            out.append([y, 2.0])
    return sum(sum(q) * len(q) for q in out) + sum(log[0])


def values_of_a_dict(points, y):
    seen = {0: [y]}
    seen[0].append(1.0)
    found = {}
    for i, p in enumerate(points):
        found[i % 2] = p if p[0] > y else [y, y]
    return sum(sum(q) for q in found.values()) + sum(seen[0])


def fields(points, y):
    boxes = [Box(points[0], 0.0), Box([y, 1.0], 1.0)]
    for b in boxes:
        b.n += sum(b.items)
    if y > 0.0:
        boxes[0].items = [y]
    return boxes[0].n * len(boxes[0].items) + sum(boxes[1].items)


def carried(points, y):
    current, totals = points[0], [[0.0], [0.0]]
    for k in range(3):
        totals[k % 2][0] += sum(current)
        current = [x * y for x in current] if sum(current) < 1.0 else points[k % len(points)]
    return totals[0][0] + 2.0 * totals[1][0]


def queue(points, y):
    paths = [[0.0]]
    paths[0].append(y)
    frontier, total = [points[0]], 0.0
    while frontier:
        p = frontier.pop()
        total += sum(p)
        if len(p) < 4 and total < 20.0:
            frontier.append([*p, y])
    return total + paths[0][1]


def pairs(points, y):
    best = (points[0], 0.0)
    grid = [[0.0] * 2 for _ in range(2)]
    for p in points:
        if p[0] * y > best[1]:
            best = (p, p[0] * y)
    grid[0][1] = best[1]
    return max(sum(c) for c in [best[0], grid[0], [y]])


def maybe_none(points, y):
    marks, found = [[0.0]], None
    for p in points:
        if sum(p) > y:
            found = p
        if len(p) > 2:
            found = [y]
        marks[0][0] += 1.0
    return marks[0][0] if found is None else sum(found)


PROGRAMS = [clusters, kept_or_made, values_of_a_dict, fields, carried, queue, pairs, maybe_none]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["interpret", pytest.param("xla", marks=pytest.mark.long), "llvm"])
def test_they_are_copied(program, backend):
    f = ab.batched(program, backend=backend, options={"trace": False})
    wanted = [program(copy.deepcopy(p), float(y)) for p, y in zip(LISTS, Y, strict=True)]
    np.testing.assert_allclose(f(LISTS, Y), wanted, rtol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", [pytest.param("xla", marks=pytest.mark.long), "llvm"])
def test_gradients(program, backend):
    f, step = ab.batched(program, backend=backend), 1e-3
    at = [[program(copy.deepcopy(p), float(y) + h) for p, y in zip(LISTS, Y, strict=True)] for h in (step, -step)]
    np.testing.assert_allclose(ab.grad(f, argnums=1)(LISTS, Y), np.subtract(*at) / (2 * step), rtol=1e-2, atol=1e-3)


def changed(points, y):
    rows = [points[0], [1.0, y]]
    best = rows[0] if y > 0.0 else rows[1]
    best.append(y)
    return sum(rows[0]) + sum(rows[1])


def test_one_that_may_be_changed_is_refused():
    """The list of the caller would have to change, too."""
    with pytest.raises(SourceError):
        ab.batched(changed, options={"trace": False})(LISTS, Y)


def before(points, y):
    a = points[0] if y > 0.0 else [1.0, y]
    return 1.0 if a is points[0] else 0.0


def behind(points, y):
    a = [1.0, y]
    for p in points:
        if y > 0.0:
            a = p
    return 1.0 if points[0] is a else 0.0


def either(points, y):
    return points[0] if y > 0.0 else [1.0, y]


def called(points, y):
    return 1.0 if either(points, y) is points[0] else 0.0


def held(points, y):
    rows = [points[0] if y > 0.0 else [1.0, y], [y]]
    return 1.0 if rows[0] is points[0] else 0.0


@pytest.mark.parametrize("program", [before, behind, called, held], ids=lambda f: f.__name__)
def test_is_is_refused_where_a_list_may_be_one_of_the_examples(program):
    with pytest.raises(SourceError, match="compared by `is`"):
        ab.batched(program)(LISTS, Y)


def test_is_knows_what_the_function_makes():
    def f(points, y):
        a = [1.0, y]
        b = points[0] if y > 0.0 else points[-1]
        return (1.0 if a is points[0] else 0.0), (1.0 if b is points[0] else 0.0)

    made, given = ab.batched(f)(LISTS, Y)
    np.testing.assert_array_equal(made, np.zeros(4))
    np.testing.assert_array_equal(given, [1.0, 0.0, 1.0, 0.0])


def test_64_bits_after_32():
    """Memory of floats has the dtype that they have now, not that of the program before it."""
    f = ab.batched(kept_or_made, backend="interpret")
    for x64 in (False, True):
        with jax.enable_x64(x64):
            found = np.asarray(f(LISTS, Y.tolist()))
            wanted = [kept_or_made(copy.deepcopy(p), float(y)) for p, y in zip(LISTS, Y, strict=True)]
            np.testing.assert_allclose(found, wanted, rtol=1e-12 if x64 else 1e-5)


@dataclass
class Small:
    x: int


@dataclass
class Large:
    y: float


def kept_by_class(xs):
    small, large = [], []
    for x in xs:
        (small if isinstance(x, Small) else large).append(x)
    return small, large, len(small)


def kept_by_number(xs):
    kept, rest = [], []
    for x in xs:
        (kept if isinstance(x, Large) and x.y > 1.0 else rest).append((x, 1))
    return [x for x, _ in kept], rest[0][0] if rest else xs[0]


OBJECTS = [[Small(1), Large(2.0), Small(3)], [Large(4.0), Large(0.5)], [Small(7)]]


@pytest.mark.parametrize("backend", ["llvm", "auto", pytest.param("xla", marks=pytest.mark.xla), "interpret"])
@pytest.mark.parametrize("function", [kept_by_class, kept_by_number])
def test_objects_of_the_examples_come_back_from_lists(function, backend):
    """They are kept as the numbers of their rows in their example."""
    f = ab.batched(function, backend=backend)
    for examples in (OBJECTS, OBJECTS[1:], OBJECTS):
        assert ab.unbatch(f(examples)) == list(map(function, examples))


@dataclass
class Maybe:
    items: list | None


def lists_or_none(box):
    return (1 if isinstance(box.items, list) else 2), hasattr(box, "items"), type(box.items) is list


@pytest.mark.parametrize(
    "examples", [[Maybe([1.0]), Maybe(None)], [Maybe([]), Maybe(None)], [Maybe([None]), Maybe([])]]
)
def test_lists_that_may_be_none(examples):
    found = ab.unbatch(ab.batched(lists_or_none, backend="llvm")(examples))
    assert found == list(map(lists_or_none, examples))


def test_objects_that_may_be_none_have_no_attributes():
    f = ab.batched(lambda xs: [1 if hasattr(x, "x") else 0 for x in xs], backend="llvm")
    assert ab.unbatch(f([[Small(1), None], [None]])) == [[1, 0], [0]]


def test_lists_of_none_alone():
    def counted(xs):
        return len(xs), sum(1 for x in xs if x is None)

    f = ab.batched(counted, backend="llvm")
    assert ab.unbatch(f([[None, None], [None], []])) == [(2, 2), (1, 1), (0, 0)]
