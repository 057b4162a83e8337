"""Properties with setters, of objects that branches, loops, other names and methods change."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch as ab


class Cell:
    def __init__(self) -> None:
        self._v = 0.0
        self.n = 0

    @property
    def v(self) -> float:
        return self._v

    @v.setter
    def v(self, new: float) -> None:
        self._v = new
        self.n += 1


class Temperature:
    def __init__(self, celsius: float) -> None:
        self.celsius = celsius

    @property
    def fahrenheit(self) -> float:
        return self.celsius * 1.8 + 32

    @fahrenheit.setter
    def fahrenheit(self, value: float) -> None:
        self.celsius = (value - 32) / 1.8


class Warm(Temperature):
    def raise_by(self, d: float) -> None:
        self.fahrenheit = self.fahrenheit + d


def on_a_branch(xs: list[float]) -> Any:
    c = Cell()
    for x in xs:
        if x > 2:
            c.v = x
    return c.v + c.n


def in_a_list(xs: list[float]) -> Any:
    cells = [Cell() for _ in xs]
    for k, x in enumerate(xs):
        if x > 2:
            cells[k].v = x
    return sum(c.v for c in cells)


def inherited(xs: list[float]) -> Any:
    t = Warm(20.0)
    for x in xs:
        if x > 1:
            t.raise_by(x)
        else:
            t.fahrenheit += 1
    return t.celsius


def by_another_name(xs: list[float]) -> Any:
    t = Temperature(xs[0])
    u = t
    if xs[0] > 2:
        u.fahrenheit = 100.0
    return t.fahrenheit


def until_it_is_warm(xs: list[float]) -> Any:
    t, n = Temperature(0.0), 0
    while t.fahrenheit < 40:
        t.fahrenheit += xs[0]
        n += 1
    return n


LISTS = [[3.0, 1.0], [5.0], [2.0, 2.0, 2.0]]
PROGRAMS = (on_a_branch, in_a_list, inherited, by_another_name, until_it_is_warm)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    found = ab.unbatch(ab.batched(program, backend=backend)(LISTS))
    assert found == pytest.approx([program(x) for x in LISTS], rel=1e-5)
