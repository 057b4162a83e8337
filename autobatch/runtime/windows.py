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


def cut(level: Ints, widths: tuple[int, ...], levels: int, costs: tuple[float, ...]) -> dict[int, tuple[Ints, Ints]]:
    """For each width: the first row of each of its windows, and where the windows of each level begin.

    `level` is sorted: the level of each row of one space. `levels` counts the levels of the recurrence. `costs` are
    those of a window of each width."""
    count = np.bincount(level, minlength=levels) if len(level) else np.zeros(levels, np.int64)
    end = np.cumsum(count)
    starts: dict[int, list[int]] = {w: [] for w in widths}
    firsts: dict[int, list[int]] = {w: [0] for w in widths}
    for last, rows in zip(end.tolist(), count.tolist(), strict=True):
        at = last - rows
        for width in cover(rows, widths, costs):
            starts[width].append(max(0, min(at, last - width)))
            at += width
        for width in widths:
            firsts[width].append(len(starts[width]))
    return {w: (np.array(starts[w], np.int32), np.array(firsts[w], np.int32)) for w in widths}
