"""What type a value has: `isinstance`, `type`, and patterns, of values of every form, as Python says."""

from __future__ import annotations

import collections
import collections.abc
import enum
from typing import Any, NamedTuple

import pytest

import autobatch as ab
from autobatch.testing import assert_same


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: int
    b: int


def of_text(s: str) -> Any:
    return isinstance(s, list), isinstance(s, str), isinstance(s, (int, list)), isinstance(s, collections.abc.Sequence)


def of_list(xs: list[int]) -> Any:
    part = xs[1:]
    given = isinstance(xs, collections.abc.Sequence), isinstance(xs, str), isinstance(xs, (tuple, list))
    return *given, isinstance(part, list), isinstance(part, str), isinstance(part, collections.abc.Sized)


def of_enum(e: Color) -> Any:
    return isinstance(e, Color), isinstance(e, str), isinstance(e, enum.Enum)


def of_mixed(x: int) -> Any:
    v = [1, [1], (1,), "a"][x]
    return type(v) is list, type(v) is tuple, type(v) is not int, isinstance(v, (list, tuple)), isinstance(v, str)


def chosen_function(x: int) -> Any:
    f = min if x > 2 else max
    return f is min, max is f, f is not min


def part(xs: list[int]) -> Any:
    match xs[1:]:
        case []:
            return 0
        case [a]:
            return a
        case [a, *rest]:
            return a + 10 * len(rest)
        case _:
            return -1


def words(s: str) -> Any:
    w = s.split()
    match w:
        case ["go", d]:
            return len(d)
        case ["stop"]:
            return -2
        case [_, *middle, _]:
            return 100 + len(middle)
        case _:
            return -3


def text(s: str) -> Any:
    match s:
        case [_]:
            return 1
        case "x":
            return 2
        case _:
            return 3


def mixed(x: int) -> Any:
    v = [1, [1], (1,), "a", [2, 3]][x]
    n = 0
    match v:
        case [_, b]:
            n = 10 + b
        case [a]:
            n = a + 1
        case str():
            n = 50
        case int(k) if k > 0:
            return k * 1000
    return n + 1


def pairs(xs: list[int]) -> Any:
    n = 0
    for q in zip(xs, xs[1:]):
        match q:
            case (a, b) if a < b:
                n += 1
            case (_, _):
                n += 10
    return n


def others(xs: list[int]) -> Any:
    found = []
    for v in (collections.deque(xs), range(len(xs)), sorted(xs)[::-1], tuple(xs)):
        match v:
            case []:
                found.append(-1)
            case [a, *rest]:
                found.append(a + 100 * len(rest))
    return found


def named(p: Pair) -> Any:
    match p:
        case (1, b):
            return b
        case [a, _]:
            return a * 10


LISTS = [[4], [1, 5], [1, 2, 3], []]
TEXTS = ["go ab", "stop", "", "x", "a b c d"]
PROGRAMS: dict[Any, Any] = {
    **dict.fromkeys((of_text, words, text), TEXTS),
    **dict.fromkeys((of_list, part, pairs, others), LISTS),
    **dict.fromkeys((of_mixed,), [0, 1, 2, 3]),
    mixed: [0, 1, 2, 3, 4],
    of_enum: list(Color),
    chosen_function: [1, 5],
    named: [Pair(1, 2), Pair(3, 4)],
}


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_says(program: Any, backend: str) -> None:
    f = ab.batched(program, backend=backend)
    assert_same(ab.unbatch(f(PROGRAMS[program])), list(map(program, PROGRAMS[program])))
