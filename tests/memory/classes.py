"""Classes that the small programs about memory use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class Cell:
    value: float
    next: Cell | None = None


class Pair(NamedTuple):
    a: float
    b: float


class Window:
    def __init__(self, xs: Sequence[Any]) -> None:
        self.xs = xs

    def __getitem__(self, k: int) -> Any:
        return self.xs[k] * 2.0

    def __len__(self) -> int:
        return len(self.xs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.xs)

    @property
    def first(self) -> Any:
        return self.xs[0]


def walk(cell: Cell | None) -> Any:
    total = 0.0
    while cell is not None:
        total = total * 0.5 + cell.value
        cell = cell.next
    return total
