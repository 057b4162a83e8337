"""Levels: when each row of a recurrence can be computed, by longest path over the rows it reads.

All spaces of one recurrence are numbered together. An edge goes from a row to a row that reads it; its weight is 0 when
the reader's space comes later in the static order of one level, else 1. (Kahn 1962, one NumPy step for each front.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autobatch.planning.ordering import stable_order

Ints = NDArray[np.int64]


def longest_paths(rows: int, source: Ints, target: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """The level of each row, and the rows that lie on or behind a cycle (their level is -1)."""
    order = stable_order(source)
    target, weight = target[order], weight[order]
    count = np.bincount(source, minlength=rows)
    first = np.cumsum(count) - count
    waiting = np.bincount(target, minlength=rows)
    level = np.zeros(rows, np.int64)
    once = np.zeros(rows, np.int64)
    alike = bool(np.all(weight == 1))  # the level of a row is then the front that it is in
    fronts = 0
    front = np.flatnonzero(waiting == 0)
    while len(front):
        if alike:
            level[front] = fronts
            fronts += 1
        front = front[count[front] > 0]
        lengths = count[front]
        ends = lengths.cumsum()
        if not len(ends):
            break
        edge = (first[front] - ends + lengths).repeat(lengths)
        edge += np.arange(ends[-1])
        reached = target[edge]
        if not alike:
            np.maximum.at(level, reached, level[front].repeat(lengths) + weight[edge])
        np.subtract.at(waiting, reached, 1)
        front = reached[waiting[reached] == 0]
        if len(front) > 1:  # each once: the last of equal ones
            once[front] = numbers = np.arange(len(front))
            front = front[once[front] == numbers]
    stuck = np.flatnonzero(waiting > 0)
    level[stuck] = -1
    return level, stuck
