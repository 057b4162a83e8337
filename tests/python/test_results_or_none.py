"""Lists, sets and dicts of the function's own that are results, or None: of other containers, which change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import autobatch as ab
from autobatch.testing import assert_same


def of_a_dict(xs: list[float]) -> Any:
    d = {0: [1.0]}
    for x in xs:
        d[0].append(x)
    return d[0] if xs[0] > 3 else None


def of_a_list(xs: list[float]) -> Any:
    rows = [[x] for x in xs]
    rows[0].append(1.0)
    return len(rows), (rows[0] if xs[0] > 3 else None)


def changed_after(xs: list[float]) -> Any:
    rows = [[x] for x in xs]
    found = rows[0] if xs[0] > 3 else None
    if found:
        found.append(2.0)
    return found


def got(xs: list[float]) -> Any:
    d = {x: [x] for x in xs}
    for x in xs:
        d[x].append(x)
    return d.get(5.0)


def got_set(xs: list[float]) -> Any:
    d = {x: {x} for x in xs}
    for x in xs:
        d[x].add(x + 1)
    return d.get(5.0)


def of_inner_function(xs: list[float]) -> Any:
    found: list[list[float]] = []

    def place(row: list[float]) -> None:
        row.append(xs[0])
        found.append(list(row))

    if xs[0] > 2:
        place([])
    return found[0] if found else None


def popped(xs: list[float]) -> Any:
    d = {x: [x] for x in xs}
    for x in xs:
        d[x].append(x)
    return d.pop(5.0, None), len(d)


def nested(xs: list[float]) -> Any:
    rows = [[[x]] for x in xs]
    rows[0][0].append(9.0)
    return rows[0] if xs[0] > 3 else None


def some_of_them(xs: list[float]) -> Any:
    rows = [[x] for x in xs]
    rows[0].append(9.0)
    return [r if r[0] > 2 else None for r in rows]


LISTS = [[3.0, 1.0], [5.0], [2.0, 2.0, 2.0]]
PROGRAMS = (of_a_dict, of_a_list, changed_after, got, got_set, of_inner_function, popped, nested, some_of_them)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    assert ab.unbatch(ab.batched(program, backend=backend)(LISTS)) == [program(x) for x in LISTS]


@dataclass
class Paid:
    amount: float


@dataclass
class Rate:
    percent: float | None


def with_guards(events):
    balance = 100.0
    for e in events:
        match e:
            case Paid(amount=a) if a <= balance:
                balance -= a
            case Rate(percent=None):
                pass
            case Rate(percent=p):
                balance *= 1 + p / 100
    return balance


def read_later(events):
    last = 0.0
    for e in events:
        if isinstance(e, Rate):
            p = e.percent
            if p is not None:
                last = p
        elif e.amount > 5:
            p = None
    return last


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("function", [with_guards, read_later])
def test_variables_of_a_turn_that_may_be_none(function, backend):
    """A variable that is not set on some path, and None or a number on others, keeps its type from turn to turn."""
    examples = [[Paid(1.0), Rate(None)], [Rate(2.0), Paid(200.0), Rate(3.0)], [Paid(7.0)]]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(examples))
    assert_same(found, list(map(function, examples)), tolerance=1e-5)
