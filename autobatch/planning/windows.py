"""Windows: how a level of n rows is cut into pieces of fixed widths (FRAMES.md, 4.4).

The last window of a level is shifted back over rows that are finished, so nothing past the level is written where the
space has enough rows before it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

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
def numbers_of_windows(widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[Ints, Ints]:
    """All widths, and how many windows of each cover each number of rows up to twice the widest: [rows, width]."""
    covers = [cover(n, widths, costs) for n in range(2 * widths[0] + 1)]
    return np.array(widths, np.int64), np.array([[windows.count(w) for w in widths] for windows in covers], np.int64)


class Windows(NamedTuple):
    """The windows of the levels of one task, level by level, the widest of a level first. `words`: the first row of
    each, and which width it has (`of_word`). `firsts`: where those of each level begin, and how many there are."""

    words: Ints
    firsts: Ints


def bits(widths: int) -> int:
    """How many bits say which of so many widths a window has."""
    return (widths - 1).bit_length()


def of_word(words: Any, widths: int) -> tuple[Any, Any]:
    """The first row and the width, as a position, that words say, of NumPy or of JAX."""
    shift = bits(widths)
    return words >> shift, words & ((1 << shift) - 1)


def windows(rows: Ints, widths: tuple[int, ...], costs: tuple[float, ...]) -> Windows:
    """The windows of levels of so many rows, which lie one behind the other. `costs` are those of a window of each
    width."""
    width, table = numbers_of_windows(widths, costs)
    few, widest = rows, widths[0]
    if np.maximum.reduce(rows, initial=0) > 2 * widest:
        few = np.where(rows > 2 * widest, rows % widest + widest, rows)
    number = table.take(few, 0)  # [level, width]
    if few is not rows:
        number[:, 0] += (rows - few) // widest
    end, covered, flat = rows.cumsum()[:, None], number * width, number.ravel()
    before = flat.cumsum()
    firsts = np.zeros(len(rows) + 1, np.int64)
    firsts[1:] = before[len(widths) - 1 :: len(widths)]
    before -= flat
    begin = covered.cumsum(1)
    begin += (end - rows[:, None]) - covered  # behind the wider windows of the level
    begin -= width * before.reshape(number.shape)  # so that windows count from the first of all
    of = np.arange(flat.size).repeat(flat)
    kind = of % len(widths)
    starts = np.arange(len(of)) * width.take(kind) + begin.ravel().take(of)
    np.minimum(starts, (end - width).ravel().take(of), out=starts)
    np.maximum(starts, 0, out=starts)
    return Windows((starts << bits(len(widths))) | kind, firsts)
