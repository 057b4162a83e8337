"""`collections.deque` as a class in Python, for deques that have memory: those that objects and lists hold, or that
several variables and functions share, and that are changed. Others are values (`tables.py`).

    q.append(x)         items = [.., .., a, b, x]
    q.popleft()                      ^ head: one more; what stands before it is gone

It is lowered as a class of the user is. Each call of `deque` has a class of its own, so that the lists of two of them
may hold elements of different types.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Sequence
from typing import Any

from autobatch.frontend.syntax.sources import WRITTEN, source_of


class Deque:
    """`head`: the place of the first element."""

    def __init__(self, given: Any, maxlen: Any) -> None:
        self.items: list[Any] = []
        self.head = 0
        self.maxlen = maxlen
        self.extend(given)

    def __len__(self) -> Any:
        return len(self.items) - self.head

    def __iter__(self) -> Any:
        return iter(self.items[self.head :])

    def __reversed__(self) -> Any:
        return reversed(self.items[self.head :])

    def __contains__(self, value: Any) -> Any:
        return value in self.items[self.head :]

    def __eq__(self, other: Any) -> Any:
        return self.items[self.head :] == other.items[other.head :]

    def place(self, index: Any) -> Any:
        if index < -len(self) or index >= len(self):
            raise IndexError("deque index out of range")
        return self.head + index if index >= 0 else len(self.items) + index

    def __getitem__(self, index: Any) -> Any:
        return self.items[self.place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.items[self.place(index)] = value

    def __delitem__(self, index: Any) -> None:
        del self.items[self.place(index)]

    def append(self, value: Any) -> None:
        self.items.append(value)
        if self.maxlen is not None and len(self.items) - self.head > self.maxlen:
            self.head += 1

    def appendleft(self, value: Any) -> None:
        if self.head > 0:
            self.head -= 1
            self.items[self.head] = value
        else:
            self.items.insert(0, value)
        if self.maxlen is not None and len(self.items) - self.head > self.maxlen:
            self.items.pop()

    def extend(self, values: Any) -> None:
        for value in list(values):
            self.append(value)

    def extendleft(self, values: Any) -> None:
        for value in list(values):
            self.appendleft(value)

    def pop(self) -> Any:
        if self.head == len(self.items):
            raise IndexError("pop from an empty deque")
        return self.items.pop()

    def popleft(self) -> Any:
        if self.head == len(self.items):
            raise IndexError("pop from an empty deque")
        self.head += 1
        return self.items[self.head - 1]

    def clear(self) -> None:
        self.items.clear()
        self.head = 0

    def rotate(self, steps: Any = 1) -> None:
        if len(self) > 1:
            for _ in range(steps % len(self)):
                self.appendleft(self.pop())

    def insert(self, index: Any, value: Any) -> None:
        if self.maxlen is not None and len(self) == self.maxlen:
            raise IndexError("deque already at its maximum size")
        first = max(index + len(self), 0) if index < 0 else min(index, len(self))
        self.items.insert(self.head + first, value)

    def remove(self, value: Any) -> None:
        del self.items[self.head + self.index(value)]

    def index(self, value: Any) -> Any:
        return self.items[self.head :].index(value)

    def count(self, value: Any) -> Any:
        return self.items[self.head :].count(value)

    def reverse(self) -> None:
        self.items = self.items[self.head :][::-1]
        self.head = 0

    def copy(self) -> Any:
        return type(self)(self, self.maxlen)

    def __add__(self, other: Any) -> Any:
        made = self.copy()
        made.extend(other)
        return made

    def __iadd__(self, other: Any) -> Any:
        self.extend(other)
        return self


def class_of_its_own(cls: type, name: str) -> type:
    """A copy of a class of this package, whose methods have syntax trees of their own: what the expressions in them
    make is told from what those of another copy make."""
    return type(name, (cls,), {k: _own(f) if isinstance(f, types.FunctionType) else f for k, f in _members(cls)})


def _members(cls: type) -> Sequence[tuple[str, Any]]:
    return [(k, f) for k, f in vars(cls).items() if k not in ("__dict__", "__weakref__")]


def _own(function: types.FunctionType) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    setattr(made, WRITTEN, copy.deepcopy(source_of(function).node))
    return made
