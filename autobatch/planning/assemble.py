"""From what inspection found to a plan: the rows of each example side by side, pointers relative to their example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns, Ints, offsets_of
from autobatch.data.spec import (
    MADE_STORE,
    Edge,
    LoopRequest,
    PlanSpec,
    TableRequest,
    TableSpec,
    owners,
    relative,
    store_of,
)
from autobatch.planning.numbering import NumberingTables, add_paths, longest_paths, number_rows, stable_order
from autobatch.planning.plan import DataPlan
from autobatch.planning.scopes import ROW, SHIFT, Activations

Values = NDArray[Any]


def make_plan(
    spec: PlanSpec,
    request: TableRequest,
    found: Activations,
    columns: Columns,
    data: Mapping[str, tuple[int, Values]],
) -> tuple[DataPlan, Ints]:
    """The plan of a data set, and the examples whose rows wait for each other in a cycle."""
    return _Assembler(spec, request, found, columns, data).assemble()


class _Assembler:
    """Puts the rows of each example side by side, and makes pointers relative to their example."""

    def __init__(
        self,
        spec: PlanSpec,
        request: TableRequest,
        found: Activations,
        columns: Columns,
        data: Mapping[str, tuple[int, Values]],
    ) -> None:
        self.spec, self.request, self.found, self.source, self.data = spec, request, found, columns, data
        self.count = columns.count
        self.starts: dict[int, Ints] = {}
        self.place: dict[int, Ints] = {}
        self.order: dict[int, Ints] = {}
        self.home = np.array([-1 if d.space is None else d.space.index for d in spec.definitions] or [-1])
        for column, (space, _) in data.items():
            root = column.startswith("#argument")
            self.starts[space] = np.arange(self.count + 1) if root else columns.starts[spec.spaces[space].name]
        for region in spec.spaces:
            if region.kind == "region":
                self.lay(region.index, found.example.get(region.index, np.zeros(0, np.int64)))
        self.starts[request.example] = np.arange(self.count + 1)
        self.pointers: dict[str, tuple[Ints, Ints]] = {}
        self.columns: dict[str, Values] = {}
        self.owners: dict[str, Ints] = {}
        self.table_space: dict[str, int] = {}

    def lay(self, space: int, example: Ints) -> None:
        self.order[space] = stable_order(example)
        self.place[space] = np.empty(len(example), np.int64)
        self.place[space][self.order[space]] = np.arange(len(example))
        self.starts[space] = offsets_of(np.bincount(example, minlength=self.count))

    def example_of(self, space: int, rows: Ints) -> Ints:
        return np.searchsorted(self.starts[space], rows, side="right") - 1

    def local(self, pointers: Ints, sources: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Pointers as (position among `sources`, row within its example)."""
        member_of = np.full(len(self.home) + 1, -1)
        member_of[list(sources)] = np.arange(len(sources))
        member = member_of[pointers >> SHIFT]
        within, begin = self.within
        at = np.array([0, *(begin.get(int(self.home[d]), 0) for d in sources)])[member + 1]
        counted = np.array([False, *(self.home[d] >= 0 for d in sources)])[member + 1]
        return member, np.where(counted, within[np.where(counted, at + (pointers & ROW), 0)], 0)

    @cached_property
    def within(self) -> tuple[Ints, dict[int, int]]:
        """Of all spaces that numbers come from behind one another: the row within its example that each row is; and
        where each space begins."""
        parts, begin, size = [np.zeros(1, np.int64)], dict[int, int](), 1
        for home in np.unique(self.home[self.home >= 0]).tolist():
            starts = self.starts[home]
            rows = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
            parts.append(rows[self.place[home]] if home in self.place else rows)
            begin[home] = size
            size = size + len(parts[-1])
        return np.concatenate(parts), begin

    def assemble(self) -> tuple[DataPlan, Ints]:
        if self.spec.made is not None:
            assert self.found.made is not None
            self.starts[self.spec.made.space.index] = self.found.made
        for space, table in self.spec.region_tables():
            if table.kind == "fold":
                self.fold(space, table)
            elif table.kind in ("column", "pointer"):
                self.rows(space, table, self.found.tables.get(table.name, np.zeros(0, np.int64)))
        for k, table in enumerate(self.spec.outputs):
            if table.kind == "fold":
                self.fold(self.owner(table), table)
            elif table.kind == "pointer":
                self.rows(self.owner(table), table, self.found.outputs[k])
        structure, targets = self.results()
        for index in range(self.request.spaces):
            self.starts.setdefault(index, np.zeros(self.count + 1, np.int64))
        plan = DataPlan(
            self.request,
            self.count,
            self.starts,
            self.columns,
            self.pointers,
            self.owners,
            self.table_space,
            {},
            {c: values for c, (_, values) in self.data.items()},
            structure,
            {k: self.space_of_rows(t) for k, t in enumerate(self.spec.outputs) if t.kind == "structure"},
            self.found.lengths,
            {k: self.owner(self.spec.outputs[k]) for k in self.found.lengths},
            {k: tuple(s.index for s in t.lists) for k, t in enumerate(self.spec.outputs) if t.lists},
            {s: self.starts_of(s) for s in targets.values()},
            self.value_numbers(),
            number_rows(
                self.request, NumberingTables(self.starts, self.columns, self.pointers, self.owners, self.table_space)
            ),
            targets,
            None if self.spec.made is None else self.spec.made.space.index,
        )
        plan, looping = add_paths(plan)
        plan, waiting = _with_levels(plan)
        return plan, np.union1d(looping, waiting)

    def value_numbers(self) -> dict[int, Ints]:
        """For spaces whose rows are shared: the same number for rows that are equal in all keys (hash-consing)."""
        numbers: dict[int, Ints] = {}
        for d in self.request.distinct:
            columns = [np.unique(self.columns[key], return_inverse=True)[1] for key in d.keys]
            joined = columns[0]
            for column in columns[1:]:
                joined = np.unique(joined * (1 + column.max(initial=0)) + column, return_inverse=True)[1]
            numbers[d.space] = joined
        return numbers

    def rows(self, space: int, table: TableSpec, raw: Values) -> None:
        self.table_space[table.name] = space
        by_example = self.order.get(space, np.arange(len(raw)))
        if table.kind == "column":
            self.columns[table.name] = raw[by_example]
            return
        member, row = self.local(raw, table.sources)
        self.point(table.name, space, member[by_example], row[by_example])

    def point(self, name: str, space: int, member: Ints, row: Ints) -> None:
        """Keep a table of pointers of the rows of a space. One that is equal to another, as those to several results of
        one call are, is the other: it is cut and bound once."""
        for other, held in self.pointers.items():
            if self.table_space[other] == space and all(map(np.array_equal, held, (member, row))):
                member, row = held
                break
        self.pointers[name] = (member, row)
        self.table_space[name] = space

    def fold(self, space: int, table: TableSpec) -> None:
        assert table.elements is not None
        owner, pointers = self.found.elements.get(table.name, (np.zeros(0, np.int64),) * 2)
        at = self.place[space][owner] if space in self.place else owner
        example = self.example_of(space, at)
        by_owner = stable_order(at)
        self.starts[table.elements.index] = offsets_of(np.bincount(example, minlength=self.count))
        member, row = self.local(pointers, table.sources)
        self.point(table.name, table.elements.index, member[by_owner], row[by_owner])
        self.owners[table.name] = (at - self.starts[space][example])[by_owner]

    def owner(self, table: TableSpec) -> int:
        """The space whose rows have an output: the examples, or the objects that were made."""
        return self.request.example if table.owner is None else table.owner.index

    def space_of_rows(self, table: TableSpec) -> int:
        """The space of the rows of an output: those of its owner, or the elements of its lists."""
        return self.owner(table) if table.elements is None else table.elements.index

    def starts_of(self, store: str) -> Ints:
        if store == MADE_STORE:
            assert self.found.made is not None
            return self.found.made
        return self.source.starts[store]

    def results(self) -> tuple[dict[int, Values], dict[int, str]]:
        """The outputs that are structure, and the stores that they refer to."""
        structure: dict[int, Values] = {}
        targets: dict[int, str] = {}
        for k, table in enumerate(self.spec.outputs):
            if table.kind != "structure":
                continue
            example = np.repeat(np.arange(self.count), np.diff(self.starts[self.owner(table)]))
            if table.elements is not None:
                example = example[owners(self.found.lengths[k])]
                self.starts[table.elements.index] = offsets_of(np.bincount(example, minlength=self.count))
            structure[k], store = self.found.outputs[k], store_of(table.value.type)
            if store is not None:
                targets[k] = store
                structure[k] = relative(structure[k], example, self.starts_of(store))
        return structure, targets


def _with_levels(plan: DataPlan) -> tuple[DataPlan, Ints]:
    levels: dict[int, Ints] = {}
    cyclic: list[Ints] = []
    reads = _Reads(plan)
    for loop in plan.request.loops:
        spaces = [plan.request.orders[t].space for t in loop.tasks]
        first = offsets_of(np.array([plan.rows(s) for s in spaces]))
        edges = [reads.edge(loop, spaces, first, e) for e in loop.edges]
        source, target, weight = (np.concatenate([e[k] for e in edges]) for k in range(3))
        level, stuck = longest_paths(int(first[-1]), source, target, weight)
        for k, task in enumerate(loop.tasks):
            levels[task] = level[first[k] : first[k + 1]]
            mine = stuck[(stuck >= first[k]) & (stuck < first[k + 1])] - first[k]
            cyclic.append(np.searchsorted(plan.starts[spaces[k]], mine, side="right") - 1)
    bad = np.unique(np.concatenate(cyclic)) if cyclic else np.zeros(0, np.int64)
    return replace(plan, levels=levels), bad


class _Reads:
    """Who reads whom in a plan: the entries of each table of pointers by their sources."""

    def __init__(self, plan: DataPlan) -> None:
        self.plan = plan
        self._example: dict[int, Ints] = {}
        self._members: dict[str, tuple[Ints, Ints]] = {}

    def example(self, space: int) -> Ints:
        """The example of each row of a space."""
        if space not in self._example:
            starts = self.plan.starts[space]
            self._example[space] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return self._example[space]

    def of(self, table: str, member: int) -> Ints:
        """The entries of a table that point to its source `member`."""
        if table not in self._members:
            held = self.plan.pointers[table][0] + 1
            order = stable_order(held)
            self._members[table] = order, np.cumsum(np.bincount(held, minlength=1))
        order, ends = self._members[table]
        if member + 1 >= len(ends):
            return order[:0]
        return order[ends[member] : ends[member + 1]]

    def edge(self, loop: LoopRequest, spaces: Sequence[int], first: Ints, edge: Edge) -> tuple[Ints, Ints, Ints]:
        plan = self.plan
        weight = 0 if edge.source < edge.reader else 1
        if edge.table is None:
            rows = np.arange(plan.rows(spaces[edge.reader]))
            source, target = first[edge.source] + rows, first[edge.reader] + rows
        else:
            mine = self.of(edge.table, edge.source_member)
            if not len(mine):
                return mine, mine, mine
            example = self.example(plan.space_of_table[edge.table])[mine]
            source = first[edge.source] + plan.pointers[edge.table][1][mine]
            source += plan.starts[spaces[edge.source]][example]
            target = mine
            if edge.fold:
                target = plan.owners[edge.table][mine] + plan.starts[spaces[edge.reader]][example]
            target = first[edge.reader] + target
        return source, target, np.full(len(source), weight)
