"""Objects that programs tell apart, by `id()` and in sets and frozensets, and fields that hold tuples of several
lengths, sets and frozensets of objects: of the function and of the examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

A = np.array([1.0, -2.0, 0.5])
B = np.array([0.3, 0.7, -1.1])


class Node:
    def __init__(self, v, kids=()):
        self.v = v
        self.kids = kids
        self.g = 0.0


def topo(v, out, seen):
    if id(v) in seen:
        return
    seen.add(id(v))
    for c in v.kids:
        topo(c, out, seen)
    out.append(v)


def numbered(a, b):
    x = Node(a)
    y = Node(b)
    z = Node(a + b)
    memo = {}
    for k, n in enumerate([x, y, z, x, y]):
        if id(n) in memo:
            memo[id(n)] += n.v
        else:
            memo[id(n)] = k * 1.0
    return sum(memo.values()), len(memo)


def sorted_topologically(a, b):
    x = Node(a, [])
    y = Node(b, [])
    z = Node(a * b, [x, y])
    w = Node(a + b, [z, x])
    out = []
    topo(w, out, set())
    return sum(k * n.v for k, n in enumerate(out))


@dataclass
class Vertex:
    val: float
    next: list


def walk(n, seen):
    if id(n) in seen:
        return 0.0
    seen.add(id(n))
    t = n.val
    for c in n.next:
        t += walk(c, seen)
    return t


def walked(g):
    return walk(g, set())


def remembered(g):
    memo = {}

    def f(n):
        if id(n) not in memo:
            memo[id(n)] = n.val + sum(f(c) for c in n.next)
        return memo[id(n)]

    return f(g)


def lists_by_identity(a, b):
    x = [a, b]
    y = [a, b]
    z = x
    return float(id(x) == id(y)) + 2 * float(id(x) == id(z)) + a


def chosen(a, b):
    x = Node(a, [])
    y = Node(b, [])
    best = x
    if a < b:
        best = y
    return 1.0 * (id(best) == id(x)) + a


def searched(g):
    order = []
    stack = [g]
    seen = {id(g)}
    while stack:
        n = stack.pop()
        order.append(n.val)
        for c in n.next:
            if id(c) not in seen:
                seen.add(id(c))
                stack.append(c)
    return sum(k * x for k, x in enumerate(order))


def graph(r):
    ns = [Vertex(float(r.normal()), []) for _ in range(6)]
    for k in range(1, 6):
        for j in r.choice(k, size=min(k, 2), replace=False):
            ns[j].next.append(ns[k])
    return ns[0]


class State:
    def __init__(self, n, acc):
        self.n = n
        self.acc = frozenset(acc)
        self.w = 0.0


def frozensets_in_fields(a, b):
    xs = [State(k, [k, k + 1]) for k in range(3)]
    z = xs[0] if a > b else xs[2]
    z.w += 1.0
    if 1 in z.acc:
        z.w += a
    return sum(x.w * len(x.acc) for x in xs)


def picked_frozenset(a, b):
    groups = [frozenset((1, 2)), frozenset((2, 3)), frozenset()]
    k = 0
    if a > b:
        k = 1
    g = groups[k]
    return len(g | {7}) + (3 in g) * 10 + a


def frozensets_as_keys(a, b):
    d = {}
    for k in range(3):
        key = frozenset((k, 2))
        d[key] = d.get(key, 0.0) + a * k
    return d[frozenset((0, 2))] + d[frozenset((2,))] * b


class Tagged:
    def __init__(self, v, k):
        self.v = v
        self.s = set(k)


def sets_in_fields(a, b):
    x = Tagged(a, (1, 2))
    y = Tagged(b, ())
    z = x if a > b else y
    z.s.add(1)
    x.s.add(3)
    return len(x.s) + 10 * len(y.s) + a


def objects_in_sets(a, b):
    o = Tagged(a, ())
    x = Tagged(a, (o,))
    y = Tagged(b, ())
    z = x if a > b else y
    z.s.add(o)
    x.s.add(o)
    return len(x.s) + 10 * len(y.s) + a


KINDS = {
    "list": list,
    "set": set,
    "tuple": tuple,
    "frozenset": frozenset,
    "as given": lambda kids: kids,
    "none": lambda kids: kids or (),
}


def derivative(keep):
    class Value:
        def __init__(self, v, kids=()):
            self.v, self.g, self.kids = v, 0.0, keep(kids)

    def f(a, b):
        x, y = Value(a), Value(b)
        z = Value(a * b, (x, y))
        if a < b:
            z = Value(a + b, (x,))
        w = Value(z.v + a, (z,))
        w.g = 1.0
        order = []

        def topological(n):
            if n not in order:
                for k in n.kids:
                    topological(k)
                order.append(n)

        topological(w)
        for n in reversed(order):
            for k in n.kids:
                k.g += n.g * 0.5 + n.v
        return w.v, x.g, y.g, len(order)

    return f


OF_NUMBERS = [numbered, sorted_topologically, lists_by_identity, chosen]
OF_NUMBERS += [frozensets_in_fields, picked_frozenset, frozensets_as_keys, sets_in_fields, objects_in_sets]


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla"])
@pytest.mark.parametrize("function", OF_NUMBERS, ids=lambda f: f.__name__)
def test_objects_are_told_apart(function, backend):
    found = ab.unbatch(ab.batched(function, backend=backend)(A, B))
    assert_same(found, [function(a, b) for a, b in zip(A, B, strict=True)])


@pytest.mark.parametrize("backend", ["auto", "llvm"])
@pytest.mark.parametrize("function", [walked, remembered, searched], ids=lambda f: f.__name__)
def test_objects_of_examples_are_told_apart(function, backend):
    random = np.random.default_rng(0)
    graphs = [graph(random) for _ in range(4)]
    assert_same(ab.unbatch(ab.batched(function, backend=backend)(graphs)), [function(g) for g in graphs])


@pytest.mark.parametrize("kind", KINDS)
def test_fields_that_hold_several_objects(kind):
    function = derivative(KINDS[kind])
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend="llvm")(A, B))
    assert_same(found, [function(a, b) for a, b in zip(A, B, strict=True)])
