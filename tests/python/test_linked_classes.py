"""Classes that hold what they held before, one deeper: linked stacks, queues, trees, histories, changed by methods."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch as ab


class Link:
    def __init__(self, v: float, n: Any = None, p: Any = None) -> None:
        self.v, self.n, self.p = v, n, p


class Stack:
    def __init__(self) -> None:
        self.head: Any = None

    def push(self, v: float) -> None:
        self.head = Link(v, self.head)

    def pop(self) -> float:
        v = self.head.v
        self.head = self.head.n
        return v  # type: ignore[no-any-return]

    def reverse(self) -> None:
        before, at = None, self.head
        while at is not None:
            behind = at.n
            at.n = before
            before, at = at, behind
        self.head = before


class Queue:
    def __init__(self) -> None:
        self.head: Any = None
        self.tail: Any = None
        self.size = 0

    def push(self, v: float) -> None:
        n = Link(v)
        if self.tail is None:
            self.head = n
        else:
            self.tail.n = n
            n.p = self.tail
        self.tail = n
        self.size += 1

    def pop(self) -> float:
        v = self.head.v
        self.head = self.head.n
        if self.head is None:
            self.tail = None
        self.size -= 1
        return v  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.size


class Tree:
    def __init__(self) -> None:
        self.root: Any = None
        self.count = 0

    def insert(self, v: float) -> None:
        self.root = self._insert(self.root, v)
        self.count += 1

    def _insert(self, n: Any, v: float) -> Any:
        if n is None:
            return Link(v)
        if v < n.v:
            n.n = self._insert(n.n, v)
        else:
            n.p = self._insert(n.p, v)
        return n

    def depth(self, n: Any) -> int:
        return 0 if n is None else 1 + max(self.depth(n.n), self.depth(n.p))


class Held:
    def __init__(self) -> None:
        self.held: Any = None

    def add(self, v: float) -> None:
        self.held = {"v": v, "next": self.held}

    def push(self, v: float) -> None:
        self.held = (v, self.held)

    def append(self, v: float) -> None:
        self.held = [v, self.held]


class History:
    def __init__(self) -> None:
        self.state = 0.0
        self.before: Any = None

    def set(self, v: float) -> None:
        old = History()
        old.state, old.before = self.state, self.before
        self.before, self.state = old, v

    def undo(self) -> None:
        if self.before is not None:
            self.state = self.before.state
            self.before = self.before.before


def stacked(xs: list[float]) -> Any:
    s = Stack()
    s.push(0.5)
    for x in xs:
        s.push(x)
    s.reverse()
    return s.pop() - 2 * s.pop()


def pushed_once(xs: list[float]) -> Any:
    s = Stack()
    s.push(xs[0])
    return xs[0]


def queued(xs: list[float]) -> Any:
    q, total, k = Queue(), 0.0, 1
    for x in xs:
        q.push(x)
    while len(q):
        total += q.pop() * k
        k += 1
    return total


def inserted(xs: list[float]) -> Any:
    t = Tree()
    for x in xs:
        t.insert(x)
    return t.depth(t.root) * 10 + t.count


def of_dicts(xs: list[float]) -> Any:
    h = Held()
    for x in xs:
        h.add(x)
    return h.held["v"]


def of_tuples(xs: list[float]) -> Any:
    h = Held()
    for x in xs:
        h.push(x)
    return h.held[0]


def of_lists(xs: list[float]) -> Any:
    h = Held()
    h.append(xs[0])
    return h.held[0]


def undone(xs: list[float]) -> Any:
    h = History()
    for x in xs:
        if x > 0:
            h.set(x)
        else:
            h.undo()
    return h.state


class Counter:
    def __init__(self) -> None:
        self.n, self.most = 0, 0.0

    def push(self, x: float) -> None:
        self.n += 1
        self.most = max(self.most, x)

    def __len__(self) -> int:
        return self.n


def measured(xs: list[float]) -> Any:
    counters = [Counter() for _ in xs]
    for k, x in enumerate(xs):
        counters[k // 2].push(x)
    return len(max(counters, key=lambda c: c.most)) + 10 * sum(len(c) for c in counters)


LISTS = [[1.5, 2.0, -1.0], [0.5], [3.0, 1.0, 2.0, -5.0, -6.0, 7.0]]
PROGRAMS = (stacked, pushed_once, queued, inserted, undone, measured, of_lists)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    found = ab.unbatch(ab.batched(program, backend=backend)(LISTS))
    assert found == pytest.approx([program(x) for x in LISTS])


@pytest.mark.parametrize("program", [of_dicts, of_tuples], ids=lambda f: f.__name__)
def test_dicts_and_tuples_are_traced(program: Any) -> None:
    """Of those that hold their own kind there is no type, which once was looked for without end."""
    with ab.options(trace=True), pytest.warns(ab.StructureWarning):
        found = ab.unbatch(ab.batched(program)(LISTS))
    assert found == pytest.approx([program(x) for x in LISTS])
    with pytest.raises(ab.Error, match="deeper each time|different types"):
        ab.batched(program)(LISTS)
