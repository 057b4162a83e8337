"""Lists, sets and dicts of the function's own that are results, or None: of other containers, which change them."""

from __future__ import annotations

from typing import Any

import pytest

import autobatch as ab


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
