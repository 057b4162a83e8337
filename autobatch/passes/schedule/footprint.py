"""The memory that a batch needs at least: the arrays that level loops carry, and the results.

What stages need beside them is XLA's to decide, so this is a lower bound: a batch that is refused because of it could
never have run, and one that is not may still be too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autobatch.errors import PlanError
from autobatch.ir import jax_compat
from autobatch.ir.system import Equation, Variable, reads, results
from autobatch.passes.schedule.fission import Recurrence, Schedule

SHOWN = 3
"""The message names so many of the largest arrays."""


def carried(schedule: Schedule, recurrence: Recurrence) -> tuple[Variable, ...]:
    """The arrays that a loop carries: what its gathers read, and what is read outside the task that makes it."""
    task_of: dict[Variable, int] = {}
    inside: dict[int, int] = {}
    for k, task in enumerate(recurrence.tasks):
        for equation in task.equations:
            inside[id(equation)] = k
            task_of.update(dict.fromkeys(results(equation), k))
    kept = dict.fromkeys(v for group in recurrence.buffers for v in group)
    kept.update(dict.fromkeys(v for v in schedule.system.outputs if v in task_of))
    for equation in schedule.system.equations:
        kept.update((v, None) for v in reads(equation) if v in task_of and _leaves_task(equation, inside, task_of[v]))
    return tuple(kept)


def _leaves_task(reader: Equation, inside: Mapping[int, int], task: int) -> bool:
    return inside.get(id(reader)) != task


def row_bytes(variable: Variable) -> int:
    """The bytes of one row of a variable."""
    return math.prod(variable.type.shape) * int(jax_compat.device_dtype(variable.type).itemsize)


def size(variable: Variable, capacity: Sequence[int]) -> int:
    """The bytes of the array that holds a variable."""
    return row_bytes(variable) * (1 if variable.space is None else capacity[variable.space.index])


@dataclass(frozen=True)
class Footprint:
    """The arrays of a schedule that have to be in memory at one time."""

    arrays: tuple[Variable, ...]

    @staticmethod
    def of(schedule: Schedule) -> Footprint:
        """The results are there at the end, beside what the largest loop has carried; loops may follow each other."""
        outputs = dict.fromkeys(schedule.system.outputs)
        loops = [dict.fromkeys(carried(schedule, r)) for r in schedule.recurrences()]
        most = max(loops, key=lambda loop: sum(map(row_bytes, loop)), default={})
        return Footprint(tuple(outputs | most))

    def bytes(self, capacity: Sequence[int]) -> int:
        """All of them, for spaces of these capacities."""
        return sum(size(v, capacity) for v in self.arrays)

    def words(self, capacity: Sequence[int]) -> str:
        """How much that is, and the largest arrays by name."""
        largest = sorted(self.arrays, key=lambda v: -size(v, capacity))[:SHOWN]
        named = "; ".join(f"{_array(v, capacity)}: {in_words(size(v, capacity))}" for v in largest)
        return f"{in_words(self.bytes(capacity))} ({named})"

    def check(self, capacity: Sequence[int], examples: int, limit: int) -> None:
        """Refuse a batch whose arrays cannot be in a memory of `limit` bytes. Raises PlanError."""
        if self.bytes(capacity) > limit:
            raise too_large(examples, f"there are {in_words(limit)}", self.words(capacity))


def too_large(examples: int, reason: str, needed: str) -> PlanError:
    """The error for a batch that memory does not hold."""
    return PlanError(
        f"this batch of {examples:,} examples is too large for the memory: {reason}, and its results and what loops "
        f"carry alone are {needed}; call with fewer examples at a time, and set ab.options(max_rows=...) to refuse "
        "what is too large before it is planned"
    )


def _array(variable: Variable, capacity: Sequence[int]) -> str:
    if variable.space is None:
        return f"one {variable.type}"
    name = f" ({variable.hint})" if variable.hint.isidentifier() else ""
    return f"{capacity[variable.space.index]:,} rows of {variable.space.name}{name}, each {variable.type}"


def in_words(count: int) -> str:
    """Bytes in the unit that fits, as in `1.5 GB`."""
    number, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "bytes" else f"{number:.1f} {units[0]}"
