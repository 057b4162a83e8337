"""Size classes: the capacities of the arrays of one executable (FRAMES.md, 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

import numpy as np

from autobatch.data.columns import Ints

SPREAD = 4.0
"""Standard deviations beyond which a minibatch is not one of random examples."""
MISSED = 0.005
"""How likely an epoch may have no minibatch of a class that later ones have."""
STEP = 16
"""Capacities are multiples of this, so that vectors and tiles are whole. There is always room for so many rows: spaces
that have no more do not decide which class a batch is in."""
MOST = 1.1
"""Standard deviations at which two classes waste least on average, if there is one at `SPREAD`."""


@dataclass(frozen=True)
class Usual:
    """Minibatches of so many random examples of a data set. `rows`: those of each space on average. `levels`: for what
    multiples of these there is `room`, in the order of the spaces; fewer than `least` times as many are no random
    examples."""

    rows: Mapping[int, float]
    levels: tuple[float, ...]
    room: tuple[tuple[int, ...], ...]
    least: float

    @classmethod
    def of(cls, samples: Sequence[Mapping[int, int]], spread: float, batches: int) -> Usual:
        """`samples` are the rows of some minibatches, of which an epoch has `batches`; `spread` is their deviation as a
        part of the mean. The last level holds practically all; a lower one, for what is small enough, is made where an
        epoch is long enough to meet both: so that nothing is compiled later."""
        rows = {s: max(1.0, fmean(c[s] for c in samples)) for s in samples[0]}
        mean = fmean(_load(rows, c) for c in samples)
        often = 1 - MISSED ** (1 / batches)  # how often the higher level has to be met
        low = min(MOST, NormalDist().inv_cdf(1 - often))
        levels = (low, SPREAD) if low > 0 else (SPREAD,)
        found = tuple(mean + k * spread for k in levels)
        room = tuple(tuple(max(STEP, multiple(rows[s] * level)) for s in sorted(rows)) for level in found)
        return cls(rows, found, room, mean - SPREAD * spread)


SizeClass = Callable[[Mapping[int, int], Usual | None], tuple[int, ...]]
"""The capacities for the rows of a batch, given what is usual."""


def multiple(rows: float) -> int:
    """The least capacity of so many rows."""
    return -(-ceil(rows) // STEP) * STEP


def eighths(rows: int) -> int:
    """A capacity for so many rows that is larger by an eighth at most."""
    step = 1 << max(rows.bit_length() - 4, 0)
    return max(-(-rows // step) * step, 1)


def _load(rows: Mapping[int, float], counts: Mapping[int, int]) -> float:
    """How many times the `rows` a batch has: in the space that has most of them."""
    return max((n / rows[s] for s, n in counts.items() if n > STEP), default=0.0)


class SizeClasses:
    """Capacities of the spaces of one program, rounded up together.

    Minibatches of random examples of a data set, which are the most, have classes of their own (`Usual`). For others, a
    profile is the rows that each space has per unit; a batch of any data set takes the least number of units, from a
    geometric series, that holds it. A batch that no profile fits well makes a new one. Spaces of `least` rows or fewer,
    of which there is always room, count for nothing: single examples differ in how many more rows others have.
    `regular`: all examples have equally many rows, so that the number of examples says it all."""

    FIRST, DOUBLED, RATIO = 128, 1024, 1.25
    """The least units, up to which units they double, and the ratio beyond: of few rows, executables are saved."""
    WASTE = 1.5

    def __init__(self, least: int, regular: bool = False) -> None:
        self.regular, self.least = regular, least if regular else multiple(least)
        self.profiles: list[dict[int, float]] = []

    def capacities(self, counts: Mapping[int, int], usual: Usual | None = None) -> tuple[int, ...]:
        """`usual`: what minibatches of as many examples of the data set have, where this is known."""
        if self.regular:
            return tuple(max(self.least, eighths(counts[s])) for s in sorted(counts))
        if usual is not None:
            load = _load(usual.rows, counts)
            for level, room in zip(usual.levels, usual.room, strict=True):
                if usual.least <= load <= level:
                    return room if self.least <= STEP else tuple(max(self.least, n) for n in room)
        rows = max(1, sum(counts.values()))
        options = [self.fit(p, counts) for p in self.profiles]
        best = min(options, key=sum, default=None)
        if best is None or sum(best) > self.WASTE * rows + len(counts) * self.least * 2:
            self.profiles.append({s: max(n, 1) / rows for s, n in counts.items()})
            best = self.fit(self.profiles[-1], counts)
        return best

    def fit(self, profile: Mapping[int, float], counts: Mapping[int, int]) -> tuple[int, ...]:
        units = max((n / profile[s] for s, n in counts.items() if n > self.least), default=0.0)
        size = float(self.FIRST)
        while size < units:
            size *= 2 if size < self.DOUBLED else self.RATIO
        return tuple(max(self.least, multiple(profile[s] * size)) for s in sorted(counts))


# ---- windows
#
# Windows: how a level of n rows is cut into pieces of fixed widths (FRAMES.md, 4.4).
#
# The last window of a level is shifted back over rows that are finished, so nothing past the level is written where the
# space has enough rows before it.


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
