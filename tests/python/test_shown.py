"""`str`, `repr` and f-strings of containers, objects and None; by machine code, as plain Python shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

import autobatch as ab
from autobatch.testing import assert_same

NUMBERS = [1, 2, 3]


class Shown:
    def __init__(self, x):
        self.x = x

    def __repr__(self):
        return f"Shown({self.x})"


class Named(Shown):
    def __str__(self):
        return f"<{self.x}>"


@dataclass
class Data:
    a: int
    b: str
    hidden: int = field(default=0, repr=False)


class Pair(NamedTuple):
    x: int
    name: str


class Node:
    def __init__(self, value, below=None):
        self.value, self.below = value, below

    def __repr__(self):
        return f"{self.value} -> {self.below!r}"


def objects(n):
    return str(Shown(n)) + repr(Named(n)) + str(Named(n)) + f"{Shown(n)} {Named(n)!r} {Named(n)}"


def data(n):
    return f"{Data(n, 'x')} {Pair(n, 'q')!r} {[Data(n + 1, 'it')]}"


def linked(n):
    node = None
    for i in range(n):
        node = Node(i, node)
    return str(node)


def lists(n):
    return f"{[n, 2]}{[[i] * i for i in range(n)]}" + str((n,)) + str(()) + str([]) + str((n, "a"))


def dicts(n):
    return str({i: i * i for i in range(n)}) + str({"a": n, "b": [n]})


def nothing(n):
    x = n if n > 1 else None
    return f"{x} {x!r}" + str([x]) + str(x)


def sorts(n):
    x = n if n > 1 else "s"
    return f"{x} {x!r}" + str([x, n])


def quoted(n):
    return repr("it's" * n) + repr('say "it\'s"' if n > 1 else "\n\x01\u200b\\") + f"{'ab' * n!r:>12}|{n > 1!s:<7}|"


@pytest.mark.parametrize("function", [objects, data, linked, lists, dicts, nothing, sorts, quoted])
def test_shown_as_in_python(function):
    with ab.options(trace=False):
        got = list(ab.batched(function, backend="llvm")(NUMBERS))
    assert_same(got, list(map(function, NUMBERS)))
