"""Size classes: the capacities of the arrays of one executable (FRAMES.md, 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist, fmean

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
