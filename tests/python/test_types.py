"""What type a value has: `isinstance`, `type`, and patterns, of values of every form, as Python says."""

from __future__ import annotations

import collections
import collections.abc
import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import autobatch as ab
from autobatch.errors import UnsupportedError
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


# ---- the class of an object, where there are several


class Circle:
    def __init__(self, r: float) -> None:
        self.r = r


class Square:
    def __init__(self, r: float) -> None:
        self.r = r


@dataclass
class Sum:
    parts: list[Sum | Num | Neg]


@dataclass
class Num:
    x: float


@dataclass
class Neg:
    of: Sum | Num | Neg


AREAS = {Circle: 3.14159, Square: 4.0}


def area(s: Any) -> Any:
    return AREAS[type(s)] * s.r + {Circle: 1.0}.get(type(s), 0.5)


def made_or_given(s: Any) -> Any:
    other = s if s.r > 0.7 else Circle(1.0)
    return {Circle: 3.14159, Square: 4.0}[type(other)] * other.r**2


def compared(s: Any) -> Any:
    o = Square(s.r) if s.r > 0.6 else Circle(s.r)
    same = type(o) == type(s), type(s) != Circle  # noqa: E721
    return *same, type(s) is Square, type(s) in (Circle, Sum), type(o).__name__


def made_of_it(s: Any) -> Any:
    t = type(s)(s.r * 2.0)
    return t.r * (2.0 if isinstance(t, Circle) else 1.0)


def names_counted(s: Any) -> Any:
    found: dict[str, int] = {}
    for o in [s, Circle(1.0), Square(s.r), None]:
        found[type(o).__name__] = found.get(type(o).__name__, 0) + 1
    return found["Circle"] * 10 + found["Square"]


def by_type(e: Any) -> Any:
    if type(e) is Num:
        return e.x
    if type(e) == Neg:  # noqa: E721
        return -by_type(e.of)
    return sum(by_type(p) for p in e.parts)


def by_table(e: Any) -> Any:
    return RULES[type(e)](e)


RULES = {
    Num: lambda e: e.x,
    Neg: lambda e: -by_table(e.of),
    Sum: lambda e: sum(by_table(p) for p in e.parts),
}
SHAPES = [Circle(1.0), Square(2.0), Circle(0.5)]
SUMS = [Sum([Num(1.0), Neg(Num(3.0)), Neg(Sum([]))]), Num(2.0), Neg(Sum([Num(1.0), Num(2.0)]))]
BY_CLASS = [(f, SHAPES) for f in (area, made_or_given, compared, made_of_it, names_counted)]
BY_CLASS += [(by_type, SUMS), (by_table, SUMS)]


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla"])
@pytest.mark.parametrize(("program", "data"), BY_CLASS, ids=lambda f: f.__name__ if callable(f) else "")
def test_classes_that_the_program_finds_out(program: Any, data: Any, backend: str) -> None:
    f = ab.batched(program, backend=backend)  # type: ignore[call-overload]
    with ab.options(trace=False):
        if program in (made_or_given, compared) and backend == "xla":  # objects of the examples beside made ones
            with pytest.raises(UnsupportedError, match="known only when the program runs"):
                f(data)
            return
        assert_same(ab.unbatch(f(data)), f.loop(data))


def test_the_class_of_an_array_is_refused() -> None:
    """A trace would say that of its symbols."""
    with pytest.raises(UnsupportedError, match="depends on whose arrays"):
        ab.batched(lambda x: type(x).__name__)(np.ones((2, 3)))
