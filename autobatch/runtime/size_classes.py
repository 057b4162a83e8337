"""Size classes: the capacities of the arrays of one executable (FRAMES.md, 4.5)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class SizeClasses:
    """Capacities of the spaces of one program, rounded up together (FRAMES.md, 4.5).

    A profile is the rows that each space has per unit; a batch of any data set takes the least number of units, from a
    geometric series, that holds it. A batch that no profile fits well makes a new one."""

    RATIO = 1.25
    WASTE = 1.5

    def __init__(self, least: int) -> None:
        self.least = least
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
        units = max(n / profile[s] for s, n in counts.items())
        size = 16.0
        while size < units:
            size *= self.RATIO
        return tuple(self.round(profile[s] * size) for s in sorted(counts))

    def round(self, rows: float) -> int:
        return max(self.least, -(-int(np.ceil(rows)) // 16) * 16)
