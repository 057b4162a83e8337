"""`collections.deque` in fields, lists and dicts, and under several names: objects of a class in Python."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from autobatch.frontend.library.tables import Deque
from autobatch.testing import assert_same

X = [0.5, 1.5, 2.5, -1.0]
N = [3, 4, 2, 5]
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


class Task:
    def __init__(self, v):
        self.v = v
        self.n = 0

    def step(self):
        self.n += 1
        return self.v * self.n


class Scheduler:
    def __init__(self):
        self.tasks = deque()
        self.log = []

    def add(self, task):
        self.tasks.append(task)

    def run(self):
        while self.tasks:
            task = self.tasks.popleft()
            v = task.step()
            if task.n < 3:
                self.log.append(v)
                self.tasks.append(task)
        return self.log


@program
def of_objects(x, n):
    if x > 1.2:
        n = n + 1
    s = Scheduler()
    for i in range(n):
        s.add(Task(i + x))
    return s.run()


def push(queue, v):
    queue.append(v)


@program
def changed_by_a_function(x, n):
    if x > 1.2:
        n = n + 1
    queue = deque()
    for i in range(n):
        push(queue, i * x)
    return queue.popleft() + len(queue), list(queue)


@program
def in_a_list(x, n):
    if x > 1.2:
        n = n + 1
    made = [deque() for _ in range(3)]
    for i in range(n + 2):
        made[i % 3].append(i * x)
    return [sum(q) for q in made], made[0][0], made[1][-1]


class Window:
    def __init__(self, k):
        self.items = deque(maxlen=k)

    def add(self, v):
        self.items.append(v)
        return sum(self.items) / len(self.items)


@program
def no_longer_than(x, n):
    if x > 1.2:
        n = n + 1
    w = Window(3)
    return [w.add(x * i) for i in range(n + 2)]


@program
def under_two_names(x, n):
    if x > 1.2:
        n = n + 1
    q = deque([x, 2 * x])
    r = q
    r.appendleft(3.0)
    q.rotate(1)
    q.extend([1.0] * n)
    q.extendleft([7.0, 8.0])
    return list(r), q[1], len(r), isinstance(q, deque), isinstance(q, list)


@program
def in_a_dict(x, n):
    if x > 1.2:
        n = n + 1
    d = {"a": deque([x]), "b": deque()}
    for i in range(n):
        d["a" if i % 2 else "b"].append(i * x)
    return list(d["a"]), list(d["b"]), sum(d["a"])


class Graph:
    def __init__(self, n):
        self.next = [[(i + 1) % n, (2 * i) % n] for i in range(n)]
        self.queue = deque()
        self.far = [-1] * n

    def search(self, start):
        self.far[start] = 0
        self.queue.append(start)
        while self.queue:
            u = self.queue.popleft()
            for w in self.next[u]:
                if self.far[w] < 0:
                    self.far[w] = self.far[u] + 1
                    self.queue.append(w)
        return self.far


@program
def breadth_first(x, n):
    if x > 1.2:
        n = n + 1
    return [d * x for d in Graph(n + 2).search(0)]


@pytest.mark.parametrize("backend", ["llvm", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, backend):
    function = PROGRAMS[name]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(X, N))
    assert_same(found, [function(x, n) for x, n in zip(X, N, strict=True)])


@pytest.mark.parametrize("name", ["of_objects", "changed_by_a_function"])
def test_derivatives(name):
    function = PROGRAMS[name]

    def f(x, n):
        found = function(x, n)
        return sum(found) if isinstance(found, list) else found[0]

    x, h = np.array(X), 1e-6
    wanted = [(f(a + h, n) - f(a - h, n)) / (2 * h) for a, n in zip(X, N, strict=True)]
    np.testing.assert_allclose(ab.grad(ab.batched(f), 0)(x, N), wanted, rtol=1e-3, atol=1e-6)


def test_in_a_result_it_is_refused():
    def f(x):
        made = [deque([x]), deque()]
        made[0 if x > 0 else 1].append(x)
        return made[0]

    with ab.options(trace=False), pytest.raises(ab.UnsupportedError, match="a deque that has memory"):
        ab.batched(f)(X)


CALLS = st.one_of(
    st.tuples(st.sampled_from(["append", "appendleft", "remove", "index", "count"]), st.tuples(st.integers(0, 3))),
    st.tuples(st.sampled_from(["extend", "extendleft"]), st.tuples(st.lists(st.integers(0, 3), max_size=3))),
    st.tuples(st.sampled_from(["pop", "popleft", "clear", "reverse", "rotate"]), st.just(())),
    st.tuples(st.sampled_from(["rotate", "__getitem__", "__delitem__"]), st.tuples(st.integers(-4, 4))),
    st.tuples(st.sampled_from(["insert", "__setitem__"]), st.tuples(st.integers(-4, 4), st.integers(0, 3))),
)


@given(st.lists(st.integers(0, 3), max_size=4), st.sampled_from([None, 0, 2, 5]), st.lists(CALLS, max_size=12))
def test_as_python(items, maxlen, calls):
    """The class, run by Python, beside Python's own."""
    ours, theirs = Deque(items, maxlen), deque(items, maxlen)
    for name, args in calls:
        results = []
        for q in (ours, theirs):
            try:
                results.append(getattr(q, name)(*args))
            except (IndexError, ValueError) as error:
                results.append(type(error))
        assert results[0] == results[1], (name, args)
        assert (list(ours), len(ours), list(reversed(ours))) == (list(theirs), len(theirs), list(reversed(theirs)))
    assert list(ours.copy()) == list(theirs.copy())
    assert (2 in ours) == (2 in theirs)
