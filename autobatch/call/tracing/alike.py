"""Examples that differ in their numbers alone have one trace.

[1.5, 2.0], [0.5], [3.0, 4.0]     ->     first [0, 1], of [0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autobatch.data.columns import Column, Columns, Ints, columns_of
from autobatch.errors import Failure


@dataclass(frozen=True)
class Alike:
    """`first`: one example of each structure; `of`: which of these each example is like."""

    first: Ints
    of: Ints

    def failures(self, found: Sequence[Failure]) -> tuple[Failure, ...]:
        """What all examples fail with, of what those in `first` do."""
        known = {f.index: f for f in found}
        return tuple(replace(known[k], index=n) for n, k in enumerate(self.of.tolist()) if k in known)


def alike(columns: Columns | None, numbers: frozenset[str], arrays: Mapping[int, Any], count: int) -> Alike:
    """Which examples are alike. `numbers`: the columns that decide nothing; `arrays`: the other arguments whose values
    Python sees."""
    parts = [] if columns is None else list(_parts(columns, numbers))
    parts += [(np.arange(count + 1), np.ascontiguousarray(x)) for x in arrays.values()]
    known: dict[tuple[bytes, ...], int] = {}
    first: list[int] = []
    of = np.zeros(count, np.int64)
    bounds = [(starts.tolist(), array) for starts, array in parts]
    for k in range(count):
        key = tuple([array[starts[k] : starts[k + 1]].tobytes() for starts, array in bounds])
        number = known.setdefault(key, len(first))
        if number == len(first):
            first.append(k)
        of[k] = number
    return Alike(np.array(first, np.int64), of)


def _parts(columns: Columns, numbers: frozenset[str]) -> Sequence[tuple[Ints, Any]]:
    """Where the rows of each example begin, and what they hold: rows of their own example counted from its first."""
    found: list[tuple[Ints, Any]] = []
    for column in columns_of(columns.schema):
        starts = np.arange(columns.count + 1) if column.space is None else columns.starts[column.space]
        held = _relative(columns, column, starts)
        if column.name in numbers:  # how many there are is structure
            held = np.zeros((len(held), 1), np.uint8)
        found.append((starts, np.ascontiguousarray(held)))
    for store in columns.schema.lists:
        offsets = columns.arrays[f"{store.name}.#offsets"]
        found.append((columns.starts[store.name], np.ascontiguousarray(np.diff(offsets))))
    return found


def _relative(columns: Columns, column: Column, starts: Ints) -> Any:
    held = columns.arrays[column.name]
    if column.target is None:
        return held
    shift = np.repeat(columns.starts[column.target][:-1], np.diff(starts))
    return np.where(held >= 0, held - shift, held)
