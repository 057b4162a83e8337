"""What binding a minibatch needs to know of a data set's plan, found once: all integers of the plan as one `Stock`, and
for every table of the executable which of them it is made of.

    gather t@2 of members (A, B)     ->     table 3 of the stock: rows of A and B as rows of one joined space
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autobatch.data.columns import Ints
from autobatch.data.tables import UNIFORM, FoldRequest, GatherRequest, Signature, TableRequest, layout
from autobatch.planning.plan import DataPlan, Share
from autobatch.planning.size_classes import Usual
from autobatch.planning.stock import Stock, before, joined, joined_rows


@dataclass(frozen=True)
class Pointers:
    """A table of pointers: source k is member `members[k]` of the array that is gathered from, and its rows lie in the
    space `spaces[k]` of the stock. `joined` is the space of all of them; None where there is one source only, and the
    table counts in that. `array` numbers the pairs of that array and of that space."""

    table: int
    members: tuple[tuple[int, int], ...]
    spaces: tuple[int, ...]
    layout: tuple[int, ...]
    joined: int | None
    array: int

    def members_in(self, request: TableRequest, capacity: Sequence[int]) -> list[tuple[int, int]]:
        """The sources: their orders, and where they begin in the array."""
        begin = [0]
        for m in self.layout:
            begin.append(begin[-1] + (1 if m == UNIFORM else capacity[request.orders[m].space]))
        return [(m, begin[place]) for m, place in self.members]


@dataclass
class Gathered:
    """The tables `names` of an executable, which hold the same: pointers of the rows of an order."""

    names: list[str]
    pointers: Pointers
    order: int


@dataclass(frozen=True)
class Folded:
    """A fold. `weights`: the words of the factors. `in_order`: its elements lie in the order of the rows."""

    request: FoldRequest
    pointers: Pointers
    owner: int
    weights: tuple[int, ...]
    in_order: bool


class Binding:
    """The integers of a plan, and where they go. Numbers of tables and spaces are those of `stock`."""

    def __init__(self, plan: DataPlan) -> None:
        self.plan, self.request = plan, plan.request
        self.stock = Stock(plan.count)
        self.space = {space: self.stock.add_space(starts) for space, starts in plan.starts.items()}
        self.one = self.stock.add_space(np.arange(plan.count + 1))
        self.base = {d.space: d.base for d in self.request.distinct}
        self.orders = _orders(self.request)
        self._joined: dict[tuple[int, ...], tuple[int, Ints]] = {}
        self._example: dict[int, Ints] = {}
        self._pointers: dict[tuple[int, int, tuple[int, ...]], tuple[int, int | None]] = {}
        self._arrays: dict[Any, int] = {}
        self._owners: dict[str, int] = {}
        self.usual: dict[tuple[int, str], Usual] = {}
        """What minibatches have, by their number of examples and how they share rows."""
        self.openings: dict[Share, Any] = {}
        """The steps that bind minibatches, by how these share rows (`stepped.py`)."""
        self._layouts: dict[Signature, tuple[dict[str, tuple[int, int]], int]] = {}
        spaces = {self.request.orders[n].space for n in self.orders}
        self.level = {
            n: self.stock.add(plan.levels[n], self.space[self.request.orders[n].space])
            for n in self.orders
            if n in plan.levels
        }
        self.equal = {s: self.stock.add_numbers(n, self.space[s]) for s, n in sorted(plan.equal.items()) if s in spaces}
        self.distinct = {
            d.space: self.stock.add_numbers(plan.numbers[d.space], self.space[d.base]) for d in self.request.distinct
        }
        self.columns = self._columns()
        self.gathers = self._gathers()
        self.folds = [self._fold(f) for f in self.request.folds]
        self.stock.closed()

    @property
    def nbytes(self) -> int:
        return self.stock.nbytes

    @functools.cached_property
    def deviations(self) -> list[tuple[float, float]]:
        """Of each space, how many rows an example has on average, and by what part of these examples deviate."""
        lengths = (np.diff(starts) for starts in self.plan.starts.values())
        found = [(float(n.mean()), float(n.std())) for n in lengths]
        return [(mean, deviation / mean) for mean, deviation in found if mean]

    def layout(self, signature: Signature) -> tuple[dict[str, tuple[int, int]], int]:
        """Where each table lies in the array that an executable reads, and the length of that."""
        if signature not in self._layouts:
            self._layouts[signature] = layout(self.request, signature)
        return self._layouts[signature]

    def _columns(self) -> list[tuple[str, int, int]]:
        """Name, table and order of each column that travels among the integers."""
        held: dict[str, int] = {}
        for name, _ in self.request.columns:
            if name not in self.request.wide and name not in held:
                space = self.space[self.plan.space_of_table[name]]
                held[name] = self.stock.add(self.plan.columns[name], space)
        return [(f"{name}@{n}", held[name], n) for name, n in self.request.columns if name in held]

    def _gathers(self) -> list[Gathered]:
        made: dict[tuple[Pointers, int], Gathered] = {}
        for g in self.request.gathers:
            pointers = self._points(g, self.plan.space_of_table[g.name])
            made.setdefault((pointers, g.order), Gathered([], pointers, g.order)).names.append(f"{g.name}@{g.order}")
        return list(made.values())

    def _points(self, request: GatherRequest | FoldRequest, space: int) -> Pointers:
        member, row = self.plan.pointers[request.name]
        members = tuple((request.layout[place], place) for place in request.place)
        spaces = tuple(self.one if m == UNIFORM else self.space[self._counted(m)] for m, _ in members)
        key = (id(member), id(row), spaces)
        if key not in self._pointers:
            self._pointers[key] = self._table(member, row, space, spaces)
        table, together = self._pointers[key]
        array = self._arrays.setdefault((members, spaces, request.layout), len(self._arrays))
        return Pointers(table, members, spaces, request.layout, together, array)

    def _counted(self, order: int) -> int:
        """The space that pointers to rows of an order count in."""
        space = self.request.orders[order].space
        return self.base.get(space, space)

    def _table(self, member: Ints, row: Ints, space: int, spaces: tuple[int, ...]) -> tuple[int, int | None]:
        if self.one in spaces:
            row = np.where(np.array([s == self.one for s in spaces])[member], 0, row)
        if len(spaces) == 1 and not member.any():
            return self.stock.add(row, self.space[space], spaces[0]), None
        if spaces not in self._joined:
            parts = [self.stock.starts_of(s) for s in spaces]
            self._joined[spaces] = self.stock.add_space(joined(parts)), before(parts)
        if space not in self._example:
            self._example[space] = np.repeat(np.arange(self.plan.count), np.diff(self.plan.starts[space]))
        together, in_front = self._joined[spaces]
        rows = joined_rows(member, row, in_front, self._example[space])
        return self.stock.add(rows, self.space[space], together), together

    def _fold(self, f: FoldRequest) -> Folded:
        elements, space = self.space[f.elements], self.request.orders[f.order].space
        pointers = self._points(f, f.elements)
        if f.name not in self._owners:
            self._owners[f.name] = self.stock.add(self.plan.owners[f.name], elements, self.space[space])
        example = np.repeat(np.arange(self.plan.count), np.diff(self.plan.starts[f.elements]))
        owner = self.plan.owners[f.name] + self.plan.starts[space][example]
        words: Sequence[Ints] = []
        if f.weight:
            weights = self.plan.columns[f"{f.name}.weight"].astype(f.weight)
            words = list(weights.view(np.int32).reshape(-1, f.words).T)
        stocked = tuple(self.stock.add(w, elements) for w in words)
        return Folded(f, pointers, self._owners[f.name], stocked, bool((np.diff(owner) >= 0).all()))


def _orders(request: TableRequest) -> list[int]:
    """The orders that some table of the executable is in, or points to."""
    found = {order for _, order in request.columns} | {task for loop in request.loops for task in loop.tasks}
    found |= {n for pair in request.permutations for n in pair} | {n for d in request.distinct for n in d.readers}
    tables: list[GatherRequest | FoldRequest] = [*request.gathers, *request.folds]
    for table in tables:
        found |= {table.order, *table.layout}
    return sorted(found - {UNIFORM})
