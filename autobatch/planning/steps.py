"""Steps: what binds a minibatch, written down once for a machine that takes all steps in one go.

A step is twelve integers, `OP a b c ...`. Its operands are numbers, addresses, and registers: vectors of int32 that
earlier steps have made. Register `NONE` is the vector that is not there, and means "all rows as they are".

    LENGTHS  starts, spaces, examples             how many rows the chosen examples have, and where these begin
    CUT      to, table, starts, space, target     a table of the chosen examples
    ...
    GATHER   start, room, stride, table, rows, place, offset       positions into the integers of the executable

`backends/llvm/binding/` is such a machine: one call of machine code where NumPy is called two thousand times.
`bind.py` does the same by NumPy, for what is bound once, and where there is no machine; the tests compare both.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.int64]
"""[step, word]"""

NONE, LENGTH, FIRST = 0, 1, 2
"""Registers that no step makes but `LENGTHS`: LENGTH[space, example], and FIRST[space, example + 1]."""
WORDS = 12
"""Integers of a step."""


class StepOperation(enum.IntEnum):
    """What a step does. Operands are named in the order that they stand in; `to` is the register that is made."""

    LENGTHS = 0
    """starts, spaces, examples: LENGTH and FIRST of the chosen examples. starts: int64[spaces, examples + 1]."""
    CUT = 1
    """to, table, starts, space, target: the entries of `table` at the rows that the chosen examples have in `space`,
    and to each is added where its example begins in `target`."""
    DISTINCT = 2
    """to, numbers, size, space: the rows whose number stands in no row before them. `to + 1`: which of these each row
    equals. Rows of different examples differ where a `space` is given, not -1."""
    READ = 3
    """to, owner, first, which: the elements whose owner is one of its distinct rows."""
    ALL = 4
    """to, space: all rows of a space."""
    SORT = 5
    """to, keys, rows: the rows, stably, by their keys."""
    COUNT = 6
    """to, owner, space, more: how many elements each row of a space owns; `more`: `to` is there, and it is added."""
    PLACE = 7
    """to, order, first, which, space: where each row of a space lies in an order; an equal row, where that lies."""
    GATHER = 8
    """start, room, stride, table, rows, place, offset: out[start + i * stride] = place[table[rows[i]]] + offset."""
    FILL = 9
    """start, room, like, value: as many equal numbers as a register has."""
    JOIN = 10
    """to, space: positions of the rows of a joined space, which nobody has filled in. `to + 1`: where each example's
    next one lies."""
    MEMBER = 11
    """to, space, place, offset, one: the rows of one member of a joined space. `one`: all of them lie at `offset`."""
    MAP = 12
    """to, table, rows: table[rows[i]]."""
    STARTS = 13
    """start, room, owner, rows: where the elements of each owner begin among the rows, which lie in its order."""
    DEEPEST = 14
    """to, level, rows, more: one past the level of the last row, as the length of a register; `more`: or what that was,
    if it is more."""
    LEVELS = 15
    """to, start, room, level, rows, deepest: how many rows each level has, and where it ends among all."""
    WINDOWS = 16
    """levels, table, widths, count, bits, words, room, firsts: the windows of levels (`windows.py`)."""
    NUMBER = 17
    """start, register: the length of a register."""


class StepMachine(Protocol):
    """What takes steps. Returns 0, or why it stopped."""

    def __call__(self, steps: Steps, state: StepState, chosen: NDArray[np.int64], out: NDArray[np.int32]) -> int: ...


FULL, TOO_LONG = 1, 2
"""Why a machine stops: the arena is full; a table is longer than its room."""

_arenas: list[NDArray[np.int32]] = []
"""Those that nobody uses."""
FIRST_ROOM = 1 << 18


@dataclass
class StepState:
    """What a machine works on: registers, int64[register, 2] of address and length, and the arena that they are in."""

    registers: NDArray[np.int64]
    arena: NDArray[np.int32]
    used: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def of(cls, registers: int) -> StepState:
        """With an arena that others have used before, where there is one."""
        arena = _arenas.pop() if _arenas else np.empty(FIRST_ROOM, np.int32)
        return cls(np.zeros((registers, 2), np.int64), arena)

    def give_back(self) -> None:
        _arenas.append(self.arena)

    def more(self, registers: int) -> None:
        """Room for so many registers; those that are there stay."""
        if registers > len(self.registers):
            held = np.zeros((registers, 2), np.int64)
            held[: len(self.registers)] = self.registers
            self.registers = held

    def grow(self) -> None:
        """Twice the arena, of which nothing is used."""
        self.arena = np.empty(2 * len(self.arena), np.int32)
        self.used[0] = 0

    def totals(self, examples: int) -> list[int]:
        """The rows of each space of the stock, once LENGTHS has been taken."""
        found: list[int] = self.vector(FIRST).reshape(-1, examples + 1)[:, -1].tolist()
        return found

    def length(self, register: int) -> int:
        return int(self.registers[register, 1])

    def vector(self, register: int) -> NDArray[np.int64]:
        """A copy of a register."""
        address, length = self.registers[register].tolist()
        begin = (address - self.arena.ctypes.data) // 4
        return self.arena[begin : begin + length].astype(np.int64)


class StepWriter:
    """Writes steps."""

    def __init__(self, registers: int = FIRST + 1) -> None:
        self.steps: list[Sequence[int]] = []
        self.registers = registers

    def put(self, op: StepOperation, *operands: int) -> None:
        assert len(operands) < WORDS
        self.steps.append((op, *operands))

    def make(self, op: StepOperation, *operands: int, registers: int = 1) -> int:
        """A step that makes a register, or several; returns the first."""
        to = self.registers
        self.registers += registers
        self.put(op, to, *operands)
        return to

    def written(self) -> Steps:
        found = np.zeros((len(self.steps), WORDS), np.int64)
        for row, step in zip(found, self.steps, strict=True):
            row[: len(step)] = step
        return found


def address_of(array: NDArray[Any], row: int = 0) -> int:
    """Of a row of an array that somebody keeps."""
    assert array.flags.c_contiguous or (array.ndim == 2 and array.strides[1] == array.itemsize)
    return int(array.ctypes.data) + row * array.strides[0]
