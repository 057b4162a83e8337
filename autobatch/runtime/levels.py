"""Levels: when each row of a recurrence can be computed, by longest path over the rows it reads.

All spaces of one recurrence are numbered together. An edge goes from a row to a row that reads it; its weight is 0 when
the reader's space comes later in the static order of one level, else 1. (Kahn 1962, one NumPy step for each front.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def longest_paths(rows: int, source: Ints, target: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """The level of each row, and the rows that lie on or behind a cycle (their level is -1)."""
    order = np.argsort(source, kind="stable")
    source, target, weight = source[order], target[order], weight[order]
    first = np.searchsorted(source, np.arange(rows + 1))
    waiting = np.bincount(target, minlength=rows)
    level = np.zeros(rows, np.int64)
    done = np.zeros(rows, bool)
    front = np.flatnonzero(waiting == 0)
    while len(front):
        done[front] = True
        count = first[front + 1] - first[front]
        if not count.any():
            break
        total = int(count.sum())
        edge = np.repeat(first[front] - (np.cumsum(count) - count), count) + np.arange(total)
        reached = target[edge]
        np.maximum.at(level, reached, np.repeat(level[front], count) + weight[edge])
        np.subtract.at(waiting, reached, 1)
        if total > 1:
            reached = np.unique(reached)
        front = reached[waiting[reached] == 0]
    stuck = np.flatnonzero(~done & (waiting > 0))
    level[stuck] = -1
    return level, stuck
