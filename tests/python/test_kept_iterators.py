"""Iterators and generators that are kept in variables, fields, lists and dicts, handed on, returned, sent values, and
stepped in several places: objects, whose `__next__` is a state machine."""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.python import drawn_iterators

X = [0.5, 1.5, 2.5, -1.0]
N = [3, 4, 2, 5]
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def count_up(x):
    n = 0
    while True:
        yield x + n
        n += 1


def halves(x, n):
    for i in range(n):
        yield x / (i + 1)


class Stream:
    def __init__(self, x):
        self.items = count_up(x)

    def read(self):
        return next(self.items)


@program
def in_a_field(x, n):
    stream, t = Stream(x), 0.0
    for k in range(n):
        t += stream.read() * k if x > 0.7 else stream.read()
    return t


@program
def merged(x, n):
    a, b = halves(x, n), halves(2 * x, n + 1)
    p, q, out = next(a, None), next(b, None), []
    while p is not None or q is not None:
        if q is None or (p is not None and p <= q):
            out.append(p)
            p = next(a, None)
        else:
            out.append(q)
            q = next(b, None)
    return out


def take(items, k):
    t = 0.0
    for _ in range(k):
        t += next(items)
    return t


@program
def handed_on(x, n):
    if x > 1.2:
        n = n + 1
    g = count_up(x)
    return take(g, n), take(g, 2)


@program
def in_a_list(x, n):
    if x > 1.2:
        n = n + 1
    made, t = [count_up(x * k) for k in range(n)], 0.0
    for r in range(3):
        for g in made:
            t += next(g) * r
    return t


def averages():
    total, n, y = 0.0, 0, 0.0
    while True:
        v = yield y
        total += v
        n += 1
        y = total / n


@program
def sent(x, n):
    if x > 1.2:
        n = n + 1
    a, s = averages(), 0.0
    next(a)
    for k in range(n):
        s = a.send(x * k)
    return s


def until_none(x):
    t = x
    while True:
        v = yield t
        if v is None:
            return
        t += v


@program
def sent_none(x, n):
    if x > 1.2:
        n = n + 1
    a, s = until_none(x), 0.0
    next(a)
    for i in range(n):
        s = a.send(x * i)
    try:
        next(a)
    except StopIteration:
        s += 100.0
    return s


@program
def in_turns(x, n):
    if x > 1.2:
        n = n + 1
    queue, out = deque([halves(x, n), halves(x + 1, n + 2)]), []
    while queue:
        g = queue.popleft()
        try:
            out.append(next(g))
            queue.append(g)
        except StopIteration:
            pass
    return out


@program
def the_rest(x, n):
    if x > 1.2:
        n = n + 1
    g = halves(x, n)
    first = next(g)
    return first - sum(g), list(g)


@program
def two_of_one(x, n):
    if x > 1.2:
        n = n + 1
    a, b = itertools.tee(halves(x, n))
    t = next(b)
    for p, q in zip(a, b, strict=False):
        t += p * q
    return t


@program
def around_and_around(x, n):
    if x > 1.2:
        n = n + 1
    c = itertools.cycle([x, 2 * x, 3.0])
    return [next(c) for _ in range(n + 2)]


@program
def zipped(x, n):
    if x > 1.2:
        n = n + 1
    it, t = zip(range(n), halves(x, n), count_up(1.0), strict=False), 0.0
    i, v, w = next(it)
    for j, u, _ in it:
        t += j * u
    return t + i + v + w


class Node:
    def __init__(self, v, left=None, right=None):
        self.v = v
        self.left = left
        self.right = right

    def __iter__(self):
        if self.left is not None:
            yield from self.left
        yield self.v
        if self.right is not None:
            yield from self.right


def build(low, high, x):
    if low >= high:
        return None
    middle = (low + high) // 2
    return Node(middle * x, build(low, middle, x), build(middle + 1, high, x))


@program
def same_fringe(x, n):
    if x > 1.2:
        n = n + 1
    a, b, same = iter(build(0, n, x)), iter(build(0, n + 1, x)), 0
    while True:
        p, q = next(a, None), next(b, None)
        if p is None or q is None:
            return same
        if p == q:
            same += 1


def tokens(xs):
    i = 0
    while i < len(xs):
        if xs[i] > 1.0:
            yield 1, xs[i]
        else:
            yield 0, xs[i]
        i += 1


class Peeking:
    def __init__(self, items):
        self.items = iter(items)
        self.head = next(self.items, None)

    def pop(self):
        head = self.head
        self.head = next(self.items, None)
        return head


@program
def peeking(x, n):
    if x > 1.2:
        n = n + 1
    p, t = Peeking(tokens([x * k for k in range(n)])), 0.0
    while p.head is not None:
        k, v = p.pop()
        t += v * (2 if k else 1)
    return t


@program
def one_of_two(x, n):
    g, t = count_up(x) if x > 1 else halves(x, 10), 0.0
    for _ in range(3):
        t += next(g)
    return t


def picked(x, n):
    if x > 0:
        return halves(x, n)
    return count_up(x)


@program
def returned(x, n):
    return sum(itertools.islice(picked(x, n), 3))


@program
def pipeline(x, n):
    if x > 1.2:
        n = n + 1

    def squares(items):
        for v in items:
            yield v * v * x

    def below(items, most):
        for v in items:
            if v > most:
                return
            yield v

    p = below(squares(k for k in range(n) if k % 2 == 0), 5.0)
    return next(p, -1.0), list(p)


@program
def late_variables(x, n):
    if x > 1.2:
        n = n + 1
    k = 1.0

    def multiples():
        for i in range(n):
            yield i * k

    g, kept = multiples(), []
    a = next(g)
    k = x
    for j in range(3):
        kept.append(j * i + x for i in range(n))
    return a + sum(g), [sum(items) for items in kept]


@program
def in_a_dict(x, n):
    made, t = {"a": count_up(x), "b": count_up(2 * x)}, 0.0
    for k in ["a", "b", "a", "a"]:
        t += next(made[k]) if x > 0.7 else 0.5
    return t


def inner(x, n):
    for i in range(n):
        yield x * i
    return n * 1.0


def outer(x, n):
    r = yield from inner(x, n)
    yield r
    q = yield from inner(r, 2)
    yield q + 0.5


@program
def what_others_return(x, n):
    if x > 1.2:
        n = n + 1
    o = outer(x, n)
    return next(o), list(o)


def permutations(xs):
    if len(xs) <= 1:
        yield list(xs)
        return
    for i in range(len(xs)):
        for rest in permutations(xs[:i] + xs[i + 1 :]):
            yield [xs[i], *rest]


@program
def recursive(x, n):
    if x > 1.2:
        n = n + 1
    p = permutations([x * i for i in range(min(n, 3))])
    next(p)
    return next(p, [])


@program
def list_grows(x, n):
    if x > 1.2:
        n = n + 1
    xs = [x]
    it, t = iter(xs), 0.0
    for v in it:
        t += v
        if len(xs) < n:
            xs.append(v * 0.5)
    return t


def twice(items):
    return sum(items), sum(items)


@program
def read_twice_by_a_function(x, n):
    if x > 1.2:
        n = n + 1
    return twice(x * i for i in range(n))


@program
def around_a_try(x, n):
    def quotients():
        try:
            for i in range(n):
                yield x / (i - 1)
        except ZeroDivisionError:
            yield 100.0
        else:
            yield 50.0

    out = []
    for v in quotients():
        out.append(v)
        if v > 60.0 and x > 0.7:
            break
    return out


@program
def functions_inside(x, n):
    if x > 1.2:
        n = n + 1

    def values(m):
        f = lambda v: v * x + m
        for i in range(n):
            m += 1
            yield f(i)

    t = 0.0
    for v in values(0.5):
        t += v
    return t


BACKENDS = ["llvm", "auto"]
ON_XLA = ("in_a_field", "handed_on", "late_variables", "around_a_try", "list_grows")


@pytest.mark.parametrize(
    ("name", "backend"), [*((n, b) for n in PROGRAMS for b in BACKENDS), *((n, "xla") for n in ON_XLA)]
)
def test_programs(name, backend):
    function = PROGRAMS[name]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(X, N))
    assert_same(found, [function(x, n) for x, n in zip(X, N, strict=True)])


def _total(found):
    return sum(map(_total, found), 0.0) if isinstance(found, tuple | list) else found


@pytest.mark.parametrize(
    "name", ["handed_on", "merged", "sent", "zipped", "pipeline", "what_others_return", "recursive"]
)
def test_derivatives(name):
    function = PROGRAMS[name]

    def f(x, n):
        return _total(function(x, n))

    h = 1e-6
    wanted = [(f(x + h, n) - f(x - h, n)) / (2 * h) for x, n in zip(X, N, strict=True)]
    np.testing.assert_allclose(ab.grad(ab.batched(f), 0)(np.array(X), N), wanted, rtol=1e-3)


def test_methods_of_such_names_run_once():
    def f(x):
        lists, out = [[1, 1], [1], [2, 1, 1, 1]], []
        while len(lists) > (1 if x > 0 else 0):
            out.append(lists.pop().count(1))
        return out, take(iter([lists.count([]), x]), 2)

    found = ab.unbatch(ab.batched(f)(X))
    assert_same(found, [f(x) for x in X])


def test_the_result_is_no_generator():
    def f(x):
        g = count_up(x)
        next(g)
        return g

    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="the result of .* is a generator"):
        ab.batched(f)(X)


def test_what_cannot_be_resumed_is_refused_where_it_stands():
    def closing(x, log):
        try:
            yield x
            yield x + 1
        finally:
            log.append(x)

    def f(x):
        log = []
        g = closing(x, log)
        return next(g) + next(g) if x > 0 else 0.0

    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="is kept.*finally"):
        ab.batched(f)(X)


@settings(max_examples=25, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_iterators.programs())
def test_random_programs(drawn):
    made, data = drawn
    wanted = []
    for numbers in data:
        try:
            wanted.append((numbers, made.function(list(numbers))))
        except Exception:
            pass
    assume(wanted)
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(made.function, backend="llvm")([numbers for numbers, _ in wanted]))
    assert_same(found, [result for _, result in wanted])
