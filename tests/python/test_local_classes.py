"""Classes that are defined in the function that uses them."""

import heapq
from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

A = np.array([1.0, -2.0, 0.5])
B = np.array([0.3, 0.7, -1.1])


def accumulator(a, b):
    class Acc:
        def __init__(self):
            self.t = 0.0

        def add(self, v):
            self.t += v
            return self

    acc = Acc()
    acc.add(a).add(b)
    if a > 0:
        acc.add(1.0)
    return acc.t


def heap_and_list(a, b):
    @dataclass(order=True)
    class Item:
        cost: float
        name: int = 0

    class Node:
        def __init__(self, v, nxt=None):
            self.v = v
            self.nxt = nxt

        def total(self):
            return self.v + (self.nxt.total() if self.nxt is not None else 0.0)

    q = []
    for k, x in enumerate([a, b, a + b]):
        heapq.heappush(q, Item(x, k))
    head = None
    while q:
        it = heapq.heappop(q)
        head = Node(it.cost * (it.name + 1), head)
    return head.total()


def union_find(xs):
    class UF:
        def __init__(self, n):
            self.p = list(range(n))

        def find(self, x):
            while self.p[x] != x:
                x = self.p[x]
            return x

        def union(self, x, y):
            self.p[self.find(x)] = self.find(y)

    u = UF(6)
    for k in range(len(xs) - 1):
        u.union(xs[k], xs[k + 1])
    return len({u.find(k) for k in range(6)})


def derived(a, b):
    class Base:
        def f(self, x):
            return x + 1

    class Sub(Base):
        def f(self, x):
            return super().f(x) * 2

    obj = Sub() if a > b else Base()
    return obj.f(a)


def reads_a_number(a, b):
    class Bad:
        def f(self, x):
            return x + a if x > 0 else x

    return Bad().f(b)


def members(a, b):
    class P:
        count = 3

        def __init__(self, x):
            self.x = x

        def __lt__(self, o):
            return self.x < o.x

        @staticmethod
        def make(x):
            return P(x * 2)

        @property
        def half(self):
            return self.x / 2

    ps = sorted([P.make(a), P.make(b), P(1.0)])
    return [p.half for p in ps], P.count


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla"])
@pytest.mark.parametrize("function", [accumulator, heap_and_list, derived, members], ids=lambda f: f.__name__)
def test_classes_in_functions(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(A, B))
    assert_same(found, [function(a, b) for a, b in zip(A, B, strict=True)])


def test_lists_of_objects_of_such_a_class():
    examples = [[0, 1, 2], [3, 4], [5, 0, 1, 2]]
    with ab.options(trace=False):
        assert ab.unbatch(ab.batched(union_find, backend="llvm")(examples)) == [union_find(x) for x in examples]


def test_a_class_that_reads_a_variable_of_the_function_is_refused():
    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="reads the variable 'a' of the function"):
        ab.batched(reads_a_number)(A, B)


def with_function(f):
    class Caller:
        def call(self, x):
            return f(x)

    return Caller()


def double(x):
    return x * 2


def negative(x):
    return -x


def test_classes_that_read_other_functions_are_other_classes():
    def f(a, b):
        return with_function(double).call(a) + with_function(negative).call(b) if a > b else a

    with ab.options(trace=False):
        found = ab.batched(f)(A, B)
    assert_same(found, np.array([f(a, b) for a, b in zip(A, B, strict=True)]))


def test_a_class_that_python_cannot_make_is_refused():
    def f(a):
        count = 0

        class Counter:
            def add(self, x):
                nonlocal count
                count += x

        Counter().add(a)
        return count if a > 0 else a

    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="Python cannot make this class|variable"):
        ab.batched(f)(A)


SCALE = np.float32(2.0)


def scaled(a, b):
    class Scaled:
        def of(self, x):
            return x * SCALE if x > 0 else Scaled.other(x)

        @staticmethod
        def other(x):
            return x - SCALE

    return Scaled().of(a) + b


def test_methods_read_what_the_module_has_now(monkeypatch):
    with ab.options(trace=False):
        f = ab.batched(scaled, backend="llvm")
        for scale in (2.0, 3.0):
            monkeypatch.setitem(globals(), "SCALE", np.float32(scale))
            assert_same(f(A, B), np.array([scaled(a, b) for a, b in zip(A, B, strict=True)]))
