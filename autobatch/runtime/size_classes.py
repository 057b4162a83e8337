"""Size classes: the capacities of the arrays of one executable (FRAMES.md, 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil


class SizeClasses:
    """Capacities of the spaces of one program, rounded up together.

    A profile is the rows that each space has per unit; a batch of any data set takes the least number of units, from a
    geometric series, that holds it. A batch that no profile fits well makes a new one. Spaces of `least` rows or fewer,
    of which there is always room, count for nothing: single examples differ in how many more rows others have."""

    STEP = 16
    """Capacities are multiples of this, so that vectors and tiles are whole."""
    FIRST, DOUBLED, RATIO = 128, 1024, 1.25
    """The least units, up to which units they double, and the ratio beyond: of few rows, executables are saved."""
    WASTE = 1.5

    def __init__(self, least: int) -> None:
        self.least = self.multiple(least)
        self.profiles: list[dict[int, float]] = []

    def capacities(self, counts: Mapping[int, int]) -> tuple[int, ...]:
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
        return tuple(max(self.least, self.multiple(profile[s] * size)) for s in sorted(counts))

    def multiple(self, rows: float) -> int:
        return -(-ceil(rows) // self.STEP) * self.STEP
