"""Rows of cycles that read the same have one number, and others never have, also where hashes say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobatch.planning import numbering
from autobatch.planning.numbering import Cycle

Entry = tuple[int, int]
"""What is known, and the row that is read, counted from the first of all spaces; -1: none."""


@st.composite
def cycles(draw: Any) -> tuple[list[int], list[list[list[Entry]]]]:
    """The space of each row, and its entries in each of two tables; rows read those in front of them."""
    count = draw(st.integers(1, 14))
    spaces = sorted(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    tables = []
    for row in range(count):
        entry = st.tuples(st.integers(0, 1), st.integers(-1, row - 1))
        tables.append([draw(st.lists(entry, max_size=2)), draw(st.lists(entry, max_size=1))])
    return spaces, tables


def expected(spaces: list[int], tables: list[list[list[Entry]]]) -> list[int]:
    """Numbers by dict, row by row."""
    known: dict[Any, int] = {}
    numbers: list[int] = []
    for space, row in zip(spaces, tables, strict=True):
        key = space, tuple(tuple((k, numbers[r] if r >= 0 else -1) for k, r in table) for table in row)
        numbers.append(known.setdefault(key, len(known)))
    return numbers


def found(spaces: list[int], tables: list[list[list[Entry]]]) -> list[int]:
    counts = [spaces.count(0), spaces.count(1)]
    cycle = Cycle.of([0, 1], counts)
    for table in (0, 1):
        for space, begin in ((0, 0), (1, counts[0])):
            entries = [(row, place, *tables[begin + row][table][place]) for row in range(counts[space])
                       for place in range(len(tables[begin + row][table]))]  # fmt: skip
            columns = np.array(entries, np.int64).reshape(-1, 4).T
            # the same table of the other space stands at other places, which spaces tell apart anyhow
            cycle.add(space, *columns)
    numbered = cycle.numbered()
    return [*numbered[0].tolist(), *numbered[1].tolist()]


def same(a: list[int], b: list[int]) -> bool:
    return len(set(a)) == len(set(b)) == len(set(zip(a, b, strict=True)))


@given(cycles())
def test_rows_are_numbered_as_by_a_dict(drawn: tuple[list[int], list[list[list[Entry]]]]) -> None:
    assert same(found(*drawn), expected(*drawn))


def test_hashes_that_collide_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes, seeds = numbering._hashes, []

    def poor(entries: Any, level: Any, seed: int) -> Any:
        seeds.append(seed)
        made = hashes(entries, level, seed)
        return made if seed > 1 else made & np.uint64(1)

    monkeypatch.setattr(numbering, "_hashes", poor)
    spaces = [0, 0, 0, 1, 1]
    tables: list[list[list[Entry]]] = [[[(k, -1)], []] for k in (0, 1, 0)] + [[[(0, 0)], []], [[(0, 2)], []]]
    assert same(found(spaces, tables), expected(spaces, tables))
    assert seeds == [0, 1, 2]


def test_rows_that_lie_too_deep_are_not_numbered() -> None:
    count = numbering.DEEPEST + 2
    cycle = Cycle.of([0], [count])
    rows = np.arange(count)
    cycle.add(0, rows, np.zeros_like(rows), np.zeros_like(rows), rows - 1)
    assert cycle.numbered() == {}
