"""The level loops of one call, read from the very tables that its executable gets: rows, levels, windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.ir import jax_compat
from autobatch.ir.system import Equation, Variable, reads, results
from autobatch.optimize import fission
from autobatch.optimize.fission import Schedule
from autobatch.runtime.tables import Signature, TableRequest, layout, window_widths
from autobatch.tools.explain.facts import Level, Recurrence, Task, Windows

Ints = NDArray[np.int64]


class Bound:
    """The integers of a call, by name."""

    def __init__(self, request: TableRequest, signature: Signature, integers: Any) -> None:
        self.request, self.signature = request, signature
        self.places, _ = layout(request, signature)
        self.integers: Ints = np.asarray(integers).astype(np.int64)

    def table(self, name: str) -> Ints:
        start, length = self.places[name]
        return self.integers[start : start + length]

    def counts(self) -> dict[int, int]:
        """The rows of each space that are computed."""
        return dict(enumerate(self.table("counts").tolist()))


def recurrences(schedule: Schedule, bound: Bound) -> tuple[Recurrence, ...]:
    """What each level loop does."""
    return tuple(_recurrence(schedule, r, bound) for r in schedule.recurrences())


def _recurrence(schedule: Schedule, recurrence: fission.Recurrence, bound: Bound) -> Recurrence:
    n = recurrence.index
    deepest = int(bound.table("levels")[n])
    rows, computed = np.zeros(deepest, np.int64), np.zeros(deepest, np.int64)
    tasks: list[Task] = []
    for task in recurrence.tasks:
        name = f"loop{n}.{task.order.index}"
        widths = window_widths(bound.request, bound.signature, task.order.index)
        mine = np.diff(bound.table(f"{name}.end")[:deepest], prepend=0)
        windows = {w: np.diff(bound.table(f"{name}.{w}.first")[: deepest + 1]) for w in widths}
        done = sum((w * count for w, count in windows.items()), np.zeros(deepest, np.int64))
        rows, computed = rows + mine, computed + done
        used = tuple(Windows(w, int(count.sum())) for w, count in windows.items() if count.any())
        tasks.append(Task(str(task.order), int(mine.sum()), int(done.sum()), len(task.equations), used))
    total, all_ = int(rows.sum()), int(computed.sum())
    levels = tuple(Level(r, c) for r, c in zip(rows.tolist(), computed.tolist(), strict=True))
    size = buffer_bytes(schedule, recurrence, bound.signature.capacity)
    return Recurrence(n, total, all_, total / all_ if all_ else None, tuple(tasks), levels, size)


def buffer_bytes(schedule: Schedule, recurrence: fission.Recurrence, capacity: tuple[int, ...]) -> int:
    """The arrays that a loop carries: what its gathers read, and what is read outside the task that makes it."""
    task_of: dict[Variable, int] = {}
    inside: dict[int, int] = {}
    for k, task in enumerate(recurrence.tasks):
        for equation in task.equations:
            inside[id(equation)] = k
            task_of.update(dict.fromkeys(results(equation), k))
    grouped = [v for group in recurrence.buffers for v in group]
    kept = set[Variable]()
    kept.update(v for v in schedule.system.outputs if v in task_of)
    for equation in schedule.system.equations:
        kept.update(v for v in reads(equation) if v in task_of and _leaves_task(equation, inside, task_of[v]))
    return sum(_size(v, capacity) for v in [*grouped, *(kept.difference(grouped))])


def _leaves_task(reader: Equation, inside: Mapping[int, int], task: int) -> bool:
    return inside.get(id(reader)) != task


def _size(variable: Variable, capacity: tuple[int, ...]) -> int:
    rows = 1 if variable.space is None else capacity[variable.space.index]
    return rows * math.prod(variable.type.shape) * int(jax_compat.device_dtype(variable.type).itemsize)
