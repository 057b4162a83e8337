"""The level loops of one call, read from the very tables that its executable gets: rows, levels, windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.tables import Signature, TableRequest, layout, window_widths
from autobatch.passes.schedule import fission, footprint
from autobatch.passes.schedule.fission import Schedule
from autobatch.planning.windows import of_word
from autobatch.tools.explain.facts import LevelFacts, RecurrenceFacts, TaskFacts, WindowFacts

Ints = NDArray[np.int64]


class BoundTables:
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


def recurrences(schedule: Schedule, bound: BoundTables, native: bool) -> tuple[RecurrenceFacts, ...]:
    """What each level loop does. `native`: machine code runs them all."""
    return tuple(_recurrence(schedule, r, bound, native) for r in schedule.recurrences())


def _recurrence(
    schedule: Schedule, recurrence: fission.Recurrence, bound: BoundTables, native: bool
) -> RecurrenceFacts:
    n = recurrence.index
    deepest = int(bound.table("levels")[n])
    rows, computed = np.zeros(deepest, np.int64), np.zeros(deepest, np.int64)
    tasks: list[TaskFacts] = []
    for task in recurrence.tasks:
        name = f"loop{n}.{task.order.index}"
        widths = window_widths(bound.request, bound.signature, task.order.index)
        mine = np.diff(bound.table(f"{name}.end")[:deepest], prepend=0)
        windows = {} if native else _windows(bound, name, widths, deepest)
        done = mine if native else sum((w * count for w, count in windows.items()), np.zeros(deepest, np.int64))
        rows, computed = rows + mine, computed + done
        used = tuple(WindowFacts(w, int(count.sum())) for w, count in windows.items() if count.any())
        tasks.append(TaskFacts(str(task.order), int(mine.sum()), int(done.sum()), len(task.equations), used))
    total, all_ = int(rows.sum()), int(computed.sum())
    levels = tuple(LevelFacts(r, c) for r, c in zip(rows.tolist(), computed.tolist(), strict=True))
    size = sum(footprint.size(v, bound.signature.capacity) for v in footprint.carried(schedule, recurrence))
    return RecurrenceFacts(n, total, all_, total / all_ if all_ else None, tuple(tasks), levels, size, native)


def _windows(bound: BoundTables, loop: str, widths: tuple[int, ...], levels: int) -> dict[int, Ints]:
    """By width, how many windows each level has."""
    firsts = bound.table(f"{loop}.firsts")[: levels + 1]
    _, kind = of_word(bound.table(f"{loop}.windows")[: firsts[-1]], len(widths))
    level = np.arange(levels).repeat(np.diff(firsts))
    return {w: np.bincount(level[kind == k], minlength=levels) for k, w in enumerate(widths)}
