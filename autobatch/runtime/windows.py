"""Windows: how a level of n rows is cut into pieces of fixed widths (FRAMES.md, 4.4).

The last window of a level is shifted back over rows that are finished, so nothing past the level is written where the
space has enough rows before it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@lru_cache(maxsize=65536)
def cover(rows: int, widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[int, ...]:
    """The cheapest windows that hold `rows` rows, widest first; `widths` descend, `costs` are those of one window."""
    widest = widths[0]
    if rows <= 0:
        return ()
    if rows > 2 * widest:
        full = rows // widest - 1
        return (widest,) * full + cover(rows - full * widest, widths, costs)
    return _covers(2 * widest, widths, costs)[rows]


@lru_cache(maxsize=1024)
def _covers(most: int, widths: tuple[int, ...], costs: tuple[float, ...]) -> list[tuple[int, ...]]:
    """The cheapest windows for each number of rows up to `most`, by dynamic programming."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for n in range(1, most + 1):
        rests = [(best[max(0, n - w)], w, c) for w, c in zip(widths, costs, strict=True)]
        best.append(min((rest[0] + c, (*rest[1], w)) for rest, w, c in rests))
    return [tuple(sorted(windows, reverse=True)) for _, windows in best]


@lru_cache(maxsize=1024)
def _numbers(widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[int, Ints, Ints]:
    """The widest width, all as a column, and how many windows of each cover each number of rows up to twice the widest:
    [width, rows]."""
    covers = [cover(n, widths, costs) for n in range(2 * widths[0] + 1)]
    number = np.array([[windows.count(w) for windows in covers] for w in widths], np.int64)
    return widths[0], np.array(widths, np.int64)[:, None], number


def cut(rows: Ints, widths: tuple[int, ...], costs: tuple[float, ...]) -> dict[int, tuple[Ints, Ints]]:
    """For each width: the first row of each of its windows, and where the windows of each level begin.

    `rows`: those of each level, which lie one level behind the other. `costs` are those of a window of each width."""
    widest, width, table = _numbers(widths, costs)
    few = rows
    if rows.max(initial=0) > 2 * widest:
        few = np.where(rows > 2 * widest, rows % widest + widest, rows)
    number = table.take(few, 1)  # [width, level]
    number[0] += (rows - few) // widest
    end, covered = rows.cumsum(), number * width
    begin = covered.cumsum(0)
    begin += end - rows - covered  # behind the wider windows of the level
    firsts = np.zeros((len(widths), len(rows) + 1), np.int64)
    number.cumsum(1, out=firsts[:, 1:])
    flat, bounds = number.ravel(), [0, *firsts[:, -1].cumsum().tolist()]
    in_level = np.arange(bounds[-1]) - (flat.cumsum() - flat).repeat(flat)
    of = np.arange(flat.size).repeat(flat)
    starts = begin.ravel().take(of) + in_level * width.repeat(firsts[:, -1])
    starts = np.minimum(starts, (end - width).ravel().take(of)).clip(0)
    return {w: (starts[bounds[k] : bounds[k + 1]], firsts[k]) for k, w in enumerate(widths)}
