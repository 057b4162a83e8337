"""What follows from the rates of training: arithmetic in a second, backward over forward, memory, executables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.compare import OURS, Competitor, Lines

BY_HAND = "jax level"
"""Batched by hand in the same library: what its step needs of memory is what ours is compared with."""


class _Measured:
    """One competitor by batch size; a value that was not measured is NaN."""

    def __init__(self, competitor: Competitor | None) -> None:
        self.rates = {} if competitor is None else {"step": competitor.rates, **competitor.beside}
        self.details = {} if competitor is None else competitor.details

    def over_rounds(self, batch: int, of: Callable[..., float], *names: str) -> float:
        """The median over rounds of what is computed of the rates of a round."""
        series = [self.rates.get(name, {}).get(batch, []) for name in names]
        return statistics.median([of(*rates) for rates in zip(*series, strict=True)] or [float("nan")])

    def detail(self, batch: int, *path: str) -> float:
        found = self.details.get(batch, {})
        for name in path:
            found = found.get(name, {})
        return float(found or 0) if not isinstance(found, dict) else float("nan")


def figures(found: Sequence[Competitor], batches: Sequence[int]) -> Lines:
    """Those of autobatch, and its memory beside that of the program that was batched by hand."""
    ours, by_hand = (_Measured(next((c for c in found if c.entry.name == n), None)) for n in (OURS, BY_HAND))

    def gflop(batch: int) -> float:
        return ours.detail(batch, "flop_of_an_example") / 1e9

    def peak(of: _Measured) -> Callable[[int], float]:
        return lambda b: of.detail(b, "memory", "peak") / 1e6

    lines: dict[str, Callable[[int], float]] = {
        "MFLOP of an example, equal words once": lambda b: 1e3 * gflop(b),
        "GFLOP/s": lambda b: ours.over_rounds(b, lambda step: step * gflop(b), "step"),
        "GFLOP/s of XLA's products of 64 rows": lambda b: ours.over_rounds(b, lambda x: x, "products"),
        "share of these": lambda b: ours.over_rounds(b, lambda step, x: step * gflop(b) / x, "step", "products"),
        "backward over forward": lambda b: ours.over_rounds(b, lambda f, g: f / g - 1, "forward", "gradient"),
        "MB at the peak of a step": peak(ours),
        f"MB at the peak, {BY_HAND}": peak(by_hand),
        "memory over that": lambda b: peak(ours)(b) / (peak(by_hand)(b) or float("nan")),
        "executables of updates, first epoch": lambda b: ours.detail(b, "executables", "first epoch"),
        "executables of updates, later": lambda b: ours.detail(b, "executables", "later"),
    }
    values = {name: {b: value(b) for b in batches} for name, value in lines.items()}
    kept = {name: {b: x for b, x in line.items() if x == x} for name, line in values.items()}
    return {name: line for name, line in kept.items() if line}
