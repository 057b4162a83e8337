"""The integer tables of a data set's plan behind one another in one array, from which a minibatch cuts all of its own
at once.

    starts (rows)      space A: 0 2 5     space B: 0 1 3          example 1 has the rows 2:5 of A and 1:3 of B
    table over A       5 6 | 7 8 9        integers
    table over B       0 | 1 0            rows of A within the example

    cut([1, 0])        7 8 9 | 5 6        and      1 0 | 0+3      rows of A in the minibatch

A range of rows is a range of the array, so the cut is one gather; rows within an example become rows of the minibatch
by adding where the example begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NOTHING = 0
"""The space without rows."""
NOWHERE = 2**30
"""The row of a pointer that means nothing: one past all rows, wherever its example begins."""


@dataclass(frozen=True)
class Cut:
    """The tables of a minibatch. `length[space]`: the rows of each example; `first[space]`: where they begin, and how
    many there are: `counts[space]`."""

    length: Ints
    first: Ints
    counts: list[int]
    tables: list[Ints]


class Stock:
    """Tables over spaces of rows, where the rows of each example are contiguous. Spaces and tables are numbered as they
    are added; then it is `closed`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._starts: list[Ints] = [np.zeros(count + 1, np.int64)]
        self._values: list[NDArray[Any]] = []
        self._space: list[int] = []
        self._target: list[int] = []
        self._numbers: list[int] = []

    def add_space(self, starts: Ints) -> int:
        """A space whose rows of example i are starts[i]:starts[i+1]."""
        self._starts.append(starts)
        return len(self._starts) - 1

    def starts_of(self, space: int) -> Ints:
        return self._starts[space]

    def add(self, values: NDArray[Any], space: int, target: int = NOTHING) -> int:
        """An integer for each row of `space`; with a `target` it is a row of that, counted within the example."""
        self._values.append(values.astype(np.int32))
        self._space.append(space)
        self._target.append(target)
        return len(self._values) - 1

    def add_numbers(self, values: Ints, space: int) -> int:
        """Value numbers of the rows of `space`."""
        self._numbers.append(len(self._values))
        return self.add(values, space)

    def closed(self) -> Stock:
        self.starts = np.stack(self._starts)
        self.integers = np.concatenate([np.zeros(0, np.int32), *self._values])
        lengths = [len(v) for v in self._values]
        self.size = [1 + int(v.max(initial=-1)) for v in self._values]
        self._begin = np.cumsum([0, *lengths[:-1]])[: len(lengths), None]
        self._of, self._to = np.array(self._space, np.intp), np.array(self._target, np.intp)
        self._values.clear()
        return self

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.integers.nbytes

    def cut(self, chosen: Ints, apart: bool = False) -> Cut:
        """The tables of some examples. `apart`: value numbers of different examples differ."""
        old = self.starts.take(chosen, 1)
        length = self.starts.take(chosen + 1, 1) - old
        first = np.zeros((len(length), len(chosen) + 1), np.int64)
        length.cumsum(1, out=first[:, 1:])
        begin = first[:, :-1]
        lengths = length.take(self._of, 0).ravel()
        bounds = [0, *first[:, -1].take(self._of).cumsum().tolist()]
        at = np.arange(bounds[-1])
        behind = (old - begin).take(self._of, 0) + (self._begin - np.array(bounds[:-1], np.int64)[:, None])
        at += behind.ravel().repeat(lengths)
        shift = begin.take(self._to, 0)
        if apart:
            for table in self._numbers:
                shift[table] = np.arange(len(chosen)) * self.size[table]
        values = self.integers.take(at) + shift.ravel().repeat(lengths)
        return Cut(length, first, first[:, -1].tolist(), [values[a:b] for a, b in pairwise(bounds)])


def joined(starts: Sequence[Ints]) -> Ints:
    """The starts of the rows of several spaces, those of one example behind one another."""
    together: Ints = np.sum(np.stack(list(starts)), 0)
    return together


def joined_rows(member: Ints, row: Ints, starts: Sequence[Ints], example: Ints) -> Ints:
    """Rows of several spaces, which `member` chooses from, as rows of the joined space; both within their example."""
    lengths = np.stack([np.diff(s) for s in starts])
    before = np.cumsum(lengths, 0) - lengths
    found = row + before[np.maximum(member, 0), example]
    return np.where(member < 0, NOWHERE, found)
