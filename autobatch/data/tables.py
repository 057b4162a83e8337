"""Which integer tables a schedule needs, as plain data: the compiler's request to the planner.

Orders are named by position in `TableRequest.orders`. A *member* of a gather is a source with the order its rows lie in
(-1: a uniform value, one row); `layout` lists the members of the array that is gathered from, one behind the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.ir.system import Link

UNIFORM = -1


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """Rows of `space`, sorted by their level in `recurrence` (None: in the order of the examples)."""

    space: int
    recurrence: int | None


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """Rows of `order` read the table `name`: source k of its spec begins at member `place[k]` of `layout`.

    `keys[k]` are the columns that alone decide the values of source k, empty where other things do."""

    name: str
    order: int
    place: tuple[int, ...]
    layout: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """As `GatherRequest`, for the runs of elements that rows of `order` read; `elements` is the space of elements.

    `weight` is the dtype of the factors of the elements, "" where they have none."""

    name: str
    order: int
    elements: int
    place: tuple[int, ...]
    layout: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]
    weight: str = ""

    @property
    def words(self) -> int:
        """The 32-bit words of a weight."""
        return np.dtype(self.weight).itemsize // 4 if self.weight else 0


@dataclass(frozen=True, slots=True)
class PathRequest:
    """The elements of fold `name`: what paths lead to, over rows of the `spaces` of a recurrence's variables, from the
    examples on. The rows of term k lie in `terms[k]`, or are one (`UNIFORM`)."""

    name: str
    elements: int
    spaces: tuple[int, ...]
    terms: tuple[int, ...]
    links: tuple[Link, ...]
    weight: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of the task `reader` read rows of the task `source` (positions in `LoopRequest.tasks`) through a table, or
    (`table` None) in the same row. `source_member` is the position among the table's sources."""

    reader: int
    source: int
    table: str | None
    source_member: int = 0
    fold: bool = False


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """A level loop: the order of each task, in static order, and what its rows wait for. `costs[task]`: the cost of one
    window of each width (`passes/schedule/costs.py`)."""

    tasks: tuple[int, ...]
    edges: tuple[Edge, ...]
    costs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class DistinctRequest:
    """The distinct rows of `base`, by its tables `keys`, are the rows of `space`; rows of `readers` (orders of `base`)
    read the one that they equal."""

    space: int
    base: int
    keys: tuple[str, ...]
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Everything that `bind_plan` makes.

    `few`: (order, how many widths) of tasks that are not compiled for all `widths`. `columns`: (table, order); those of
    `wide` columns hold 64 bits, under x64, and are arrays of their own. `permutations`: (to, from). `data`: columns of
    the examples that the device reads, with their space. `spaces` counts the spaces; `example` is the one of
    examples."""

    orders: tuple[OrderRequest, ...]
    columns: tuple[tuple[str, int], ...]
    wide: frozenset[str]
    gathers: tuple[GatherRequest, ...]
    folds: tuple[FoldRequest, ...]
    permutations: tuple[tuple[int, int], ...]
    loops: tuple[LoopRequest, ...]
    distinct: tuple[DistinctRequest, ...]
    paths: tuple[PathRequest, ...]
    data: tuple[tuple[str, int], ...]
    widths: tuple[int, ...]
    few: tuple[tuple[int, int], ...]
    spaces: int
    example: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The shapes of one executable: capacity for examples, and the capacity of each space. Equal signatures share an
    executable. `full`: every batch of this class has exactly so many rows. `in_place`: the tables of gathers that read
    row k in row k then."""

    batch: int
    capacity: tuple[int, ...]
    full: bool = False
    in_place: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: TableRequest, count: int, capacity: tuple[int, ...]) -> Signature:
        """That of `count` examples: none are of a class of their own."""
        return cls(capacity[request.example] if count else 0, capacity)

    def filled(self, request: TableRequest, integers: NDArray[Any]) -> Signature:
        """The same where all batches of this class that have as many examples have these tables; where there is room
        for more examples, they are not all."""
        places, _ = layout(request, self)
        start, length = places["counts"]
        if tuple(integers[start : start + length].tolist()) != self.capacity[:length]:
            return self

        def is_in_place(gather: GatherRequest) -> bool:
            start, length = places[f"{gather.name}@{gather.order}"]
            rows = self.capacity[request.orders[gather.order].space]
            sources = {UNIFORM if m == UNIFORM else request.orders[m].space for m in gather.layout}
            one = len(gather.layout) == 1 and UNIFORM not in sources and self.capacity[sources.pop()] == rows == length
            return one and bool((integers[start : start + length] == np.arange(length)).all())

        names = frozenset(f"{g.name}@{g.order}" for g in request.gathers if is_in_place(g))
        return Signature(self.batch, self.capacity, True, names)


def window_widths(request: TableRequest, signature: Signature, task: int) -> tuple[int, ...]:
    """The widths of the windows of a task: those that its space has room for, evenly thinned where it has few."""
    room = signature.capacity[request.orders[task].space]
    fitting = tuple(w for w in request.widths if w <= room)
    few = dict(request.few).get(task)
    return fitting if few is None else fitting[:: -(-len(fitting) // few)]


def layout(request: TableRequest, signature: Signature) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each table lies in the one integer array that holds them all: name -> (start, length); and its length."""
    places: dict[str, tuple[int, int]] = {}
    at = 0

    def put(name: str, length: int) -> None:
        nonlocal at
        places[name] = (at, length)
        at += length

    capacity = signature.capacity

    def rows(order: int) -> int:
        return capacity[request.orders[order].space]

    put("counts", request.spaces)
    put("levels", len(request.loops))
    for name, order in request.columns:
        if name not in request.wide:
            put(f"{name}@{order}", rows(order))
    for g in request.gathers:
        put(f"{g.name}@{g.order}", rows(g.order))
    for f in request.folds:
        put(f"{f.name}@{f.order}.start", rows(f.order) + 1)
        put(f"{f.name}@{f.order}.index", capacity[f.elements])
        put(f"{f.name}@{f.order}.owner", capacity[f.elements])
        if f.weight:
            put(f"{f.name}@{f.order}.weight", capacity[f.elements] * f.words)
    for to, origin in request.permutations:
        put(f"perm{to}<{origin}", rows(to))
    for d in request.distinct:
        for reader in d.readers:
            put(f"spread{d.space}@{reader}", rows(reader))
    for n, loop in enumerate(request.loops):
        deepest = sum(rows(task) for task in loop.tasks)
        for task in loop.tasks:
            put(f"loop{n}.{task}.end", deepest)
            put(f"loop{n}.{task}.windows", rows(task))  # each holds a row at least that no other one does
            put(f"loop{n}.{task}.firsts", deepest + 1)
    return places, at
