"""The integer tables of a data set's plan, from which a minibatch cuts its own.

    starts (rows)      space A: 0 2 5     space B: 0 1 3          example 1 has the rows 2:5 of A and 1:3 of B
    table over A       5 6 | 7 8 9        integers
    table over B       0 | 1 0            rows of A within the example

    cut([1, 0])        7 8 9 | 5 6        and      1 0 | 0+3      rows of A in the minibatch

Tables over the same rows are cut by one gather; rows within an example become rows of the minibatch by adding where the
example begins there. Spaces whose examples have as many rows each are one, and so are tables that hold the same (the
rounds of a message passing have the same edges).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints

NOTHING = 0
"""The space without rows."""
NOWHERE = 2**30
"""The row of a pointer that means nothing: one past all rows, wherever its example begins."""


@dataclass(frozen=True)
class MinibatchTables:
    """The tables of a minibatch. `length[space]`: the rows of each example; `first[space]`: where they begin, and how
    many there are: `counts[space]`."""

    length: Ints
    first: Ints
    counts: list[int]
    tables: list[Ints]


class Stock:
    """Tables over spaces of rows, where the rows of each example are contiguous. Spaces and tables are numbered as they
    are added, equal ones once; then it is `closed`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._starts: list[Ints] = []
        self._spaces: dict[bytes, int] = {}
        self._values: list[Any] = []
        self._space: list[int] = []
        self._target: list[int] = []
        self._known: dict[tuple[int, int, bool, bytes], int] = {}
        self._numbers: list[int] = []
        self.size: list[int] = []
        self.add_space(np.zeros(count + 1, np.int64))

    def add_space(self, starts: Ints) -> int:
        """A space whose rows of example i are starts[i]:starts[i+1]."""
        number = self._spaces.setdefault(_digest(starts), len(self._starts))
        if number == len(self._starts):
            self._starts.append(starts)
        return number

    def starts_of(self, space: int) -> Ints:
        return self._starts[space]

    def add(self, values: NDArray[Any], space: int, target: int = NOTHING) -> int:
        """An integer for each row of `space`; with a `target` it is a row of that, counted within the example."""
        return self._table(values, space, target, False)

    def add_numbers(self, values: Ints, space: int) -> int:
        """Value numbers of the rows of `space`."""
        return self._table(values, space, NOTHING, True)

    def _table(self, values: NDArray[Any], space: int, target: int, numbers: bool) -> int:
        held = values.astype(np.int32)
        made = len(self._values)
        table = self._known.setdefault((space, target, numbers, _digest(held)), made)
        if table == made:
            self._values.append(held)
            self._space.append(space)
            self._target.append(target)
            self.size.append(1 + int(held.max(initial=-1)))
            if numbers:
                self._numbers.append(table)
        return table

    def closed(self) -> Stock:
        """Ready to cut: the tables over a space become the rows of one array."""
        self.starts = np.stack(self._starts)
        over: dict[int, list[int]] = {}
        for table, space in enumerate(self._space):
            over.setdefault(space, []).append(table)
        self._over = {space: (tables, np.stack([self._values[t] for t in tables])) for space, tables in over.items()}
        self._apart = frozenset(self._numbers)
        self._values.clear()
        return self

    def space_of(self, table: int) -> int:
        return self._space[table]

    def target_of(self, table: int) -> int:
        """The space that rows are counted in; NOTHING where the table holds other numbers."""
        return self._target[table]

    def held(self, table: int) -> tuple[NDArray[np.int32], int]:
        """The array whose row a table is, once the stock is closed; and which row."""
        members, held = self._over[self._space[table]]
        return held, members.index(table)

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + sum(held.nbytes for _, held in self._over.values())

    def cut(self, chosen: Ints, apart: bool = False) -> MinibatchTables:
        """The tables of some examples. `apart`: value numbers of different examples differ."""
        old = self.starts.take(chosen, 1)
        length = self.starts.take(chosen + 1, 1) - old
        first = np.zeros((len(length), len(chosen) + 1), np.int64)
        length.cumsum(1, out=first[:, 1:])
        begin, counts = first[:, :-1], first[:, -1].tolist()
        tables: list[Ints] = [first[0]] * len(self._space)  # each is replaced below
        for space, (members, held) in self._over.items():
            at = np.arange(counts[space])
            at += (old[space] - begin[space]).repeat(length[space])
            found = held.take(at, 1).astype(np.int64)
            shifts: dict[int, Ints] = {}
            for table, values in zip(members, found, strict=True):
                target = self._target[table]
                if apart and table in self._apart:
                    values += (np.arange(len(chosen)) * self.size[table]).repeat(length[space])
                elif target != NOTHING:
                    if target not in shifts:
                        shifts[target] = begin[target].repeat(length[space])
                    values += shifts[target]
                tables[table] = values
        return MinibatchTables(length, first, counts, tables)


def _digest(values: NDArray[Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()


def joined(starts: Sequence[Ints]) -> Ints:
    """The starts of the rows of several spaces, those of one example behind one another."""
    together: Ints = np.sum(np.stack(list(starts)), 0)
    return together


def before(starts: Sequence[Ints]) -> Ints:
    """[space, example]: how many rows of the spaces in front an example has."""
    lengths = np.stack([np.diff(s) for s in starts])
    found: Ints = np.cumsum(lengths, 0) - lengths
    return found


def joined_rows(member: Ints, row: Ints, before: Ints, example: Ints) -> Ints:
    """Rows of several spaces, which `member` chooses from, as rows of the joined space; both within their example."""
    found = row + before[np.maximum(member, 0), example]
    return np.where(member < 0, NOWHERE, found)
