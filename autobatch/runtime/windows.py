"""Windows: how a level of n rows is cut into pieces of fixed widths (FRAMES.md, 4.4).

The last window of a level is shifted back over rows that are finished, so nothing past the level is written where the
space has enough rows before it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

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


class Pieces(NamedTuple):
    """The windows of the levels of one task, those of one width behind those of the wider ones. `starts`: the first row
    of each. `bounds[k]`: where those of width k begin among them, and how many there are. `firsts[k]`: where, among
    those of width k, the windows of each level begin: [width, level + 1]."""

    starts: Ints
    bounds: list[int]
    firsts: Ints


def pieces(rows: Ints, widths: tuple[int, ...], costs: tuple[float, ...]) -> Pieces:
    """The windows of levels of so many rows, which lie one behind the other. `costs` are those of a window of each
    width."""
    widest, width, table = _numbers(widths, costs)
    few = rows
    if np.maximum.reduce(rows, initial=0) > 2 * widest:
        few = np.where(rows > 2 * widest, rows % widest + widest, rows)
    number = table.take(few, 1)  # [width, level]
    if few is not rows:
        number[0] += (rows - few) // widest
    end, covered = rows.cumsum(), number * width
    begin = covered.cumsum(0)
    begin += end - rows - covered  # behind the wider windows of the level
    firsts = np.zeros((len(widths), len(rows) + 1), np.int64)
    number.cumsum(1, out=firsts[:, 1:])
    flat, each = number.ravel(), firsts[:, -1]
    bounds = [0, *each.cumsum().tolist()]
    begin -= width * (flat.cumsum() - flat).reshape(number.shape)  # so that windows count from the first of all
    of = np.arange(flat.size).repeat(flat)
    starts = np.arange(bounds[-1]) * width.ravel().repeat(each) + begin.ravel().take(of)
    np.minimum(starts, (end - width).ravel().take(of), out=starts)
    return Pieces(np.maximum(starts, 0, out=starts), bounds, firsts)


def cut(rows: Ints, widths: tuple[int, ...], costs: tuple[float, ...]) -> dict[int, tuple[Ints, Ints]]:
    """`pieces` by width: the first row of each window, and where the windows of each level begin."""
    starts, bounds, firsts = pieces(rows, widths, costs)
    return {w: (starts[bounds[k] : bounds[k + 1]], firsts[k]) for k, w in enumerate(widths)}
