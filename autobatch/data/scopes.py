"""The rows at hand during inspection: growing arrays, scopes of values, lists as runs in a pool of pointers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.ir.core import INT, Array, Function, Literal, Operand, Value

SHIFT = 40
ROW = (1 << SHIFT) - 1
LENGTH = 24
TURN = Value(-1, INT, "turn")
"""In a scope of a `while` loop: how many turns have been before."""
DEPTH = Value(-2, INT, "depth")
"""In every scope of an activation: how many calls wait for one another there, turns of loops not counted."""


class GrowingArray:
    """A growing array, appended to in bulk."""

    def __init__(self) -> None:
        self.chunks: list[NDArray[Any]] = []
        self.size = 0

    def append(self, chunk: NDArray[Any]) -> int:
        start = self.size
        self.chunks.append(chunk)
        self.size += len(chunk)
        return start

    def array(self, dtype: Any = np.int64) -> NDArray[Any]:
        if len(self.chunks) != 1:
            self.chunks = [np.concatenate(self.chunks)] if self.chunks else [np.zeros(0, dtype)]
        return self.chunks[0]


@dataclass
class FunctionActivations:
    """The activations of one function so far. `seen` interns the arguments of calls. Of the pending ones, `depths`: the
    calls that wait for each; `turns`: of a `while` loop, how many have been before. `handed`: pointers that turns have
    handed on, for arguments which are slots of their own (`handed_slots`); see `activations.py`."""

    function: Function
    host_args: tuple[int, ...]
    pointer_args: tuple[int, ...]
    slots: dict[int, int]
    seen: dict[bytes, int] = field(default_factory=dict)
    count: int = 0
    pending: list[tuple[Ints, list[NDArray[Any]], list[Ints]]] = field(default_factory=list)
    depths: list[Ints] = field(default_factory=list)
    turns: list[Ints] = field(default_factory=list)
    results: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))
    host_results: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))
    handed_slots: dict[int, int] = field(default_factory=dict)
    handed: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))

    def known(self, key: NDArray[Any]) -> tuple[Ints, list[int]]:
        """The activations with these keys, one in a row, and which rows are new: the next ones, in order."""
        seen, count = self.seen, self.count
        flat, width = key.tobytes(), key.shape[1] * key.itemsize
        ids, new = np.empty(len(key), np.int64), list[int]()
        for row in range(len(key)):
            cell = flat[row * width : (row + 1) * width]
            found = seen.get(cell)
            if found is None:
                found = seen[cell] = count
                count += 1
                new.append(row)
            ids[row] = found
        return ids, new


class RowsOfRegion:
    """The rows of one region at hand: values by need, those of the enclosing region through `select`. `constants`: the
    arrays of the module."""

    def __init__(
        self,
        rows: int,
        example: Ints,
        parent: RowsOfRegion | None = None,
        select: Ints | None = None,
        constants: Sequence[Any] = (),
    ) -> None:
        self.rows, self.example, self.parent, self.select = rows, example, parent, select
        self.constants: Sequence[Any] = constants if parent is None else parent.constants
        self.host: dict[Value, NDArray[Any]] = {}
        self.pointer: dict[Value, Ints] = {}

    def host_value(self, x: Operand) -> NDArray[Any]:
        if isinstance(x, Literal):
            if x.constant >= 0:
                array = np.asarray(self.constants[x.constant])
                return np.broadcast_to(array, (self.rows, *array.shape))
            filled = x.type.shape if isinstance(x.type, Array) else ()
            return np.full((self.rows, *filled), -1 if x.value is None else x.value)
        if x not in self.host:
            assert self.parent is not None, f"{x} has not been computed on the host"
            self.host[x] = self.parent.host_value(x)[self.select]
        return self.host[x]

    def pointer_value(self, x: Value) -> Ints | None:
        if x not in self.pointer:
            outer = self.parent.pointer_value(x) if self.parent is not None else None
            if outer is None:
                return None
            self.pointer[x] = outer[self.select]
        return self.pointer[x]


def list_handle(start: Ints, length: Ints | int) -> Ints:
    """A list of pointers, as one integer; negative, so that no pointer looks like it."""
    return ~((start << LENGTH) | length)


def list_run(handles: Ints) -> tuple[Ints, Ints]:
    """Where the elements of lists begin in the pool, and how many there are."""
    return ~handles >> LENGTH, ~handles & ((1 << LENGTH) - 1)


def join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def merge(rows: int, pieces: list[tuple[Ints, NDArray[Any]]]) -> NDArray[Any]:
    if not pieces:
        return np.zeros(rows, np.int64)
    if len(pieces[0][0]) == rows:
        return pieces[0][1]
    first = pieces[0][1]
    dtype = np.result_type(*(p[1] for p in pieces))
    out = np.zeros((rows, *first.shape[1:]), dtype)
    for chosen, values in pieces:
        out[chosen] = values
    return out
