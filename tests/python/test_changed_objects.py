"""Objects, dicts and sets of the examples are changed: the caller's are as plain Python leaves them."""

from __future__ import annotations

import copy
import random
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.errors import BatchError, ExampleError
from autobatch.testing import assert_same
from tests.python import drawn_changes
from tests.python.changed_objects import (
    PROGRAMS,
    Account,
    Box,
    Cell,
    Circle,
    Square,
    Tree,
    accounts,
    charge,
    halve,
    insert,
    one_object_twice,
    tree,
)

XLA = pytest.param("xla", marks=pytest.mark.xla)
BACKENDS = ["llvm", "auto", XLA, pytest.param("interpret", marks=pytest.mark.long)]


def made(makers, count=4, seed=1):
    rng = random.Random(seed)
    return [[make(rng) for _ in range(count)] for make in makers]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "makers"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_programs(function, makers, backend):
    f = ab.batched(function, backend=backend)
    for seed in (1, 2):  # a call that is like one before, too
        data = made(makers, seed=seed)
        ours, plain = copy.deepcopy(data), copy.deepcopy(data)
        wanted = [function(*x) for x in zip(*plain, strict=True)]
        assert_same(ab.unbatch(f(*ours)), wanted, tolerance=1e-4)
        assert_same(ours, plain, tolerance=1e-4)


@settings(max_examples=25, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_changes.programs())
def test_random_programs(drawn):
    program, data = drawn
    ours, plain = copy.deepcopy(data), copy.deepcopy(data)
    wanted = [program.function(*x) for x in plain]
    with np.errstate(all="ignore"):
        small = all(abs(x) < 1e4 for row in wanted for x in row)
    if small:
        f = ab.batched(program.function, backend="llvm", options=ab.options(trace=False))
        assert_same(ab.unbatch(f(*map(list, zip(*ours, strict=True)))), wanted, tolerance=1e-3)
        assert_same([drawn_changes.graph(x) for x in ours], [drawn_changes.graph(x) for x in plain], tolerance=1e-3)


def test_objects_stay_the_same():
    first = Account(1.0)
    rows = [[first, Account(2.0), first], [Account(0.3)]]
    kept = [list(row) for row in rows]
    ab.batched(one_object_twice)(rows, [0.5, 0.25])
    assert all(x is y for a, b in zip(rows, kept, strict=True) for x, y in zip(a, b, strict=True))
    assert first.balance == 2.0


def test_what_is_linked_is_the_callers():
    def linked(a, b, x):
        if x > 0:
            a.next = b
        b.next = Cell(x, a)

    a, b = [Cell(1.0), Cell(2.0)], [Cell(3.0), Cell(4.0)]
    ab.batched(linked)(a, b, [1.0, -1.0])
    assert a[0].next is b[0] and a[1].next is None
    assert b[0].next.next is a[0] and b[1].next.next is a[1]


def test_what_does_not_change_has_all_its_digits():
    rows = [[Account(0.1), Account(0.7)], [Account(0.2)]]
    ab.batched(charge)(rows, [0.5, 0.5])
    assert rows[0][0].balance == 0.1 and rows[1][0].balance == 0.2 and rows[0][1].balance != 0.7


def test_an_attribute_that_is_new():
    def marked(t):
        for side in (t.left, t.right):
            if side is not None:
                marked(side)
        t.size = 1.0 + sum([side.size for side in (t.left, t.right) if side is not None])
        return t.size

    ours, plain = [Tree(1.0, Tree(2.0), Tree(3.0, Tree(4.0))), Tree(1.0)], [Tree(1.0, Tree(2.0), Tree(3.0, Tree(4.0)))]
    assert_same(ab.unbatch(ab.batched(marked)(ours)), [marked(plain[0]), 1.0])
    assert ours[0].right.size == plain[0].right.size == 2.0


def test_arrays_that_a_recursion_leaves_in_the_nodes():
    class Node:
        def __init__(self, x, children):
            self.x, self.children, self.h = x, children, None

    def encode(w, node):
        for child in node.children:
            encode(w, child)
        total = np.zeros(3)
        for child in node.children:
            total = total + child.h
        node.h = np.tanh(w @ node.x + total)
        return node.h

    rng = np.random.default_rng(0)
    w, leaf = rng.normal(size=(3, 3)).astype(np.float32), lambda: Node(rng.normal(size=3).astype(np.float32), [])
    ours = [Node(rng.normal(size=3).astype(np.float32), [leaf(), leaf()]), leaf()]
    plain = copy.deepcopy(ours)
    wanted = np.stack([encode(w, x) for x in plain])
    found = ab.batched(encode, in_axes=(None, 0))(w, ours)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(ours[0].children[1].h, plain[0].children[1].h, atol=1e-5)


@pytest.mark.parametrize("backend", ["llvm", "auto", XLA])
def test_derivatives_leave_objects_as_they_are(backend):
    trees = [tree(random.Random(k)) for k in range(3)]
    before = copy.deepcopy(trees)
    values, (by_tree, by_x) = ab.value_and_grad(ab.batched(halve, backend=backend), argnums=(0, 1))(
        trees, [0.5, 1.0, 0.7]
    )
    assert_same(ab.unbatch(values), [halve(copy.deepcopy(t), x) for t, x in zip(trees, [0.5, 1.0, 0.7], strict=True)])
    assert trees == before
    for t, slope, x in zip(trees, ab.unbatch(by_tree), [0.5, 1.0, 0.7], strict=True):
        assert slope.value == (0.5 if t.value > x else 1.0)
    assert not np.any(by_x)


def test_packed_examples_are_copies():
    rows = made((accounts, lambda rng: 0.5))
    wanted = [charge(*x) for x in zip(*copy.deepcopy(rows), strict=True)]
    packed = ab.pack(rows[0])
    for _ in range(2):
        np.testing.assert_allclose(ab.batched(charge)(packed, rows[1]), wanted, rtol=1e-5)
    assert_same(packed.to_list(), rows[0], tolerance=1e-6)


def test_refused():
    f = ab.batched(lambda p, box: change(p, box), in_axes=(None, 0))
    boxes = [Box(1.0), Box(2.0)]

    def change(p, box):
        if box.held * p > 1.0:
            box.held = p
        return box.held

    with pytest.raises(BatchError, match="changes objects of its arguments: call it outside of JAX's transformations"):
        jax.jit(lambda p: f(p, boxes))(1.5)
    twice = [boxes[0], boxes[0]]
    with pytest.raises(BatchError, match="changes an object of class Box that is given twice"):
        f(3.0, twice)
    assert boxes == [Box(1.0), Box(2.0)]


def test_one_object_in_two_examples_that_does_not_change():
    shared = Box(5.0)
    ab.batched(lambda box, x: _raise(box, x))([shared, shared], [1.0, 2.0])
    assert shared == Box(5.0)


def _raise(box, x):
    if box.held < x:
        box.held = x
    return box.held


def test_nothing_is_changed_where_an_example_fails():
    def fails(box, x):
        box.held += x
        return [1.0, 2.0][int(box.held)]

    boxes = [Box(0.0), Box(5.0)]
    with pytest.raises(ExampleError, match="example 1 .*IndexError"):
        ab.batched(fails)(boxes, [0.5, 0.5])
    assert boxes == [Box(0.0), Box(5.0)]


def test_failed_examples_change_nothing():
    def fails(box, x):
        box.held += x
        return [1.0, 2.0][int(box.held)]

    boxes = [Box(0.0), Box(5.0), Box(0.5)]
    for backend in ("llvm", "xla"):
        given = copy.deepcopy(boxes)
        _, failures = ab.batched(fails, backend=backend, on_error="mask")(given, [0.5, 0.5, 1.0])
        assert given == [Box(0.5), Box(5.0), Box(1.5)]
        assert failures.failed.tolist() == [False, True, False]


def test_objects_of_other_classes_among_those_that_are_changed():
    """The first call has seen the one class alone, and later ones have others in the same places."""

    def grown(shapes, others, x):
        for shape in shapes:
            if shape.side < x:
                shape.side = x
        return sum([shape.side for shape in shapes]) + len(others)

    f = ab.batched(grown)
    for rows, others in (
        ([[Square(1.0)], [Square(0.2), Square(2.0)]], [[Square(0.5)], [Square(3.0)]]),
        ([[Square(1.0), Circle(0.1)], [Circle(0.2), Square(2.0)]], [[Square(0.5)], [Circle(3.0)]]),
        ([[Square(1.0)], [Square(0.2)]], [[Circle(0.5), Square(0.1)], [Circle(3.0)]]),
    ):
        plain = copy.deepcopy(rows)
        wanted = [grown(a, b, 0.7) for a, b in zip(plain, others, strict=True)]
        assert_same(ab.unbatch(f(rows, others, [0.7, 0.7])), wanted, tolerance=1e-6)
        assert_same(rows, plain, tolerance=1e-6)


def test_what_does_not_compile_is_changed_by_plain_python():
    def counted(words, more):  # a Counter is not packed
        for w in more:
            words[w] += 1
        return sum(words.values())

    ours, plain, more = [Counter("ab"), Counter()], [Counter("ab"), Counter()], [["a", "c"], ["b"]]
    with ab.options(trace=True):
        found = ab.unbatch(ab.batched(counted)(ours, more))
    assert found == [counted(c, ws) for c, ws in zip(plain, more, strict=True)]
    assert ours == plain


def test_more_objects_than_there_is_room_for():
    trees = [tree(random.Random(k), depth=6) for k in range(2)]
    ours, plain = copy.deepcopy(trees), copy.deepcopy(trees)
    xs = [[0.01 * k for k in range(40)]] * 2
    assert_same(ab.unbatch(ab.batched(insert)(ours, xs)), [insert(t, x) for t, x in zip(plain, xs, strict=True)])
    assert_same(ours, plain, tolerance=1e-6)
