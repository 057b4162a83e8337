"""Plans: the tables of a data set, made once, and those of a minibatch, cut from them (FRAMES.md, section 4).

In a `DataPlan` the rows of each example are contiguous in every space, and a pointer is (source, row within the
example). So a minibatch is ranges put one behind the other; `bind` then sorts rows by level, turns pointers into
positions in the arrays of the executable, and rounds every capacity up to a size class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.errors import Failure
from autobatch.runtime.activations import ROW, SHIFT, Activations
from autobatch.ir.types import List, Ref
from autobatch.runtime.columns import Columns, offsets_of, ranges
from autobatch.runtime.levels import longest_paths
from autobatch.runtime.numbering import Rows, number_rows
from autobatch.runtime.spec import PlanSpec, RegionSpec, TableSpec
from autobatch.runtime.tables import UNIFORM, FoldRequest, GatherRequest, LoopRequest, Signature, TableRequest, layout
from autobatch.runtime.windows import cut

Ints = NDArray[np.int64]
Values = NDArray[Any]


@dataclass(frozen=True)
class DataPlan:
    """The tables of some examples. `starts[space]`: rows of example i are starts[i]:starts[i+1]. `columns[table]`: numbers.
    `pointers[table]`: (source, row within the example). `owners[table]`: for a fold's elements, the row that reads them.
    `levels[order]`: the level of each row. `data[column]`: what the device reads of the examples. `structure[k]`: the
    host's values of a result that is no number; one that refers to rows of `targets[k]` counts from its example's first
    row, whose places are `stores`. `numbers[space]`: for a space of distinct rows, which one each row of its
    base is. `equal[space]`: value numbers, for spaces whose equal rows are one. `lengths[k]`: the lengths of a list."""

    request: TableRequest
    count: int
    starts: Mapping[int, Ints]
    columns: Mapping[str, Values]
    pointers: Mapping[str, tuple[Ints, Ints]]
    owners: Mapping[str, Ints]
    space_of_table: Mapping[str, int]
    levels: Mapping[int, Ints]
    data: Mapping[str, Values]
    structure: Mapping[int, Values]
    lengths: Mapping[int, Ints]
    stores: Mapping[str, Ints]
    numbers: Mapping[int, Ints]
    equal: Mapping[int, Ints]
    targets: Mapping[int, str]
    failures: tuple[Failure, ...] = ()

    @property
    def nbytes(self) -> int:
        held = [*self.columns.values(), *self.owners.values(), *self.levels.values(), *self.data.values()]
        held += [a for pair in self.pointers.values() for a in pair]
        return sum(a.nbytes for a in held)

    def take(self, chosen: Ints) -> DataPlan:
        """The plan of some of the examples; repeats are copies."""
        rows: dict[int, Ints] = {}
        starts: dict[int, Ints] = {}
        for space, old in self.starts.items():
            lengths = old[chosen + 1] - old[chosen]
            starts[space] = offsets_of(lengths)
            rows[space] = ranges(old[chosen], lengths)
        where = self.space_of_table
        data_space = dict(self.request.data)
        number = {int(e): k for k, e in reversed(list(enumerate(chosen.tolist())))}
        failures = tuple(replace(f, index=number[f.index]) for f in self.failures if f.index in number)
        return replace(
            self,
            count=len(chosen),
            starts=starts,
            columns={t: v[rows[where[t]]] for t, v in self.columns.items()},
            pointers={t: (m[rows[where[t]]], r[rows[where[t]]]) for t, (m, r) in self.pointers.items()},
            owners={t: v[rows[where[t]]] for t, v in self.owners.items()},
            levels={o: v[rows[self.request.orders[o].space]] for o, v in self.levels.items()},
            data={c: v[rows[data_space[c]]] for c, v in self.data.items()},
            structure={k: v[chosen] for k, v in self.structure.items()},
            lengths={k: v[chosen] for k, v in self.lengths.items()},
            equal={s: self.equal[s][rows[s]] for s in self.equal},
            numbers={d.space: self.numbers[d.space][rows[d.base]] for d in self.request.distinct},
            stores={s: offsets_of(old[chosen + 1] - old[chosen]) for s, old in self.stores.items()},
            failures=failures,
        )

    def rows(self, space: int) -> int:
        return int(self.starts[space][-1])

    def bind(self, size_class: Callable[[Mapping[int, int]], tuple[int, ...]]) -> tuple[dict[str, Values], Signature]:
        """The arrays of one call: all integers in one array, and the data columns; and their shapes' signature."""
        counts = {space: self.rows(space) for space in self.starts}
        numbers = {**self.numbers, **self.equal}
        distinct = {space: np.unique(n, return_index=True, return_inverse=True) for space, n in numbers.items()}
        counts.update((space, len(found[0])) for space, found in distinct.items())
        signature = Signature(self.count, size_class(counts))
        return _Binder(self, signature, counts, distinct).bind(), signature


class _Binder:
    def __init__(
        self, plan: DataPlan, signature: Signature, counts: Mapping[int, int], distinct: Mapping[int, Any]
    ) -> None:
        self.plan, self.request, self.signature = plan, plan.request, signature
        self.counts, self.distinct = counts, distinct
        self.places, size = layout(plan.request, signature)
        self.out = np.zeros(size, np.int32)
        self.sorted: list[Ints] = []
        self.position: list[Ints] = []
        self.example: dict[int, Ints] = {}
        for n, order in enumerate(self.request.orders):
            rows = np.arange(counts[order.space])
            if order.space in plan.equal:
                rows = distinct[order.space][1]
            if n in plan.levels:
                rows = rows[self.by_level(n, rows)]
            self.sorted.append(rows)
            self.position.append(self.positions(order.space, rows))

    def positions(self, space: int, rows: Ints) -> Ints:
        """Where each row of a space lies when those of `rows` are kept, in this order; an equal row lies where it does."""
        if space not in self.plan.equal:
            position = np.empty(len(rows), np.int64)
            position[rows] = np.arange(len(rows))
            return position
        _, _, number = self.distinct[space]
        place = np.empty(len(rows), np.int64)
        place[number[rows]] = np.arange(len(rows))
        where: Ints = place[number]
        return where

    def by_level(self, order: int, rows: Ints) -> Ints:
        """How to sort rows by level; within a level by the lengths of their runs, so that windows of folds waste little."""
        level = self.plan.levels[order][rows]
        folds = [f for f in self.request.folds if f.order == order]
        if not folds:
            return np.argsort(level, kind="stable")
        lengths = np.zeros(self.plan.rows(self.request.orders[order].space), np.int64)
        for f in folds:
            lengths += np.bincount(self.owners(f), minlength=len(lengths))
        return np.lexsort((lengths[rows], level))

    def owners(self, f: FoldRequest) -> Ints:
        """The row that reads each element of a fold."""
        start = self.plan.starts[self.request.orders[f.order].space]
        owner: Ints = self.plan.owners[f.name] + start[self.row_example(f.elements)]
        return owner

    def put(self, name: str, values: Values) -> None:
        start, length = self.places[name]
        assert len(values) <= length, (name, len(values), length)
        self.out[start : start + len(values)] = values

    def bind(self) -> dict[str, Values]:
        plan, request = self.plan, self.request
        self.put("counts", np.array([self.counts[s] for s in range(request.spaces)]))
        for name, order in request.columns:
            space = request.orders[order].space
            rows = self.distinct[space][1] if space in self.distinct else self.sorted[order]
            self.put(f"{name}@{order}", plan.columns[name][rows])
        for d in request.distinct:
            for reader in d.readers:
                self.put(f"spread{d.space}@{reader}", self.distinct[d.space][2][self.sorted[reader]])
        for g in request.gathers:
            index = self.index(g, plan.space_of_table[g.name])
            self.put(f"{g.name}@{g.order}", index[self.sorted[g.order]])
        for f in request.folds:
            self.fold(f)
        for to, origin in request.permutations:
            self.put(f"perm{to}<{origin}", self.position[origin][self.sorted[to]])
        self.put("levels", np.array([self.loop(n, loop) for n, loop in enumerate(request.loops)], np.int64))
        tables: dict[str, Values] = {"integers": self.out}
        for column, space in request.data:
            values = plan.data[column]
            padded = np.zeros((self.signature.capacity[space], *values.shape[1:]), values.dtype)
            padded[: len(values)] = values
            tables[column] = padded
        for k, found in plan.structure.items():
            if k in plan.targets:
                found = np.where(found >= 0, found + plan.stores[plan.targets[k]][:-1], -1)
            tables[f"result{k}"] = found.astype(np.int32)
        tables.update((f"offsets{k}", offsets_of(n).astype(np.int32)) for k, n in plan.lengths.items())
        return tables

    def row_example(self, space: int) -> Ints:
        if space not in self.example:
            self.example[space] = np.repeat(np.arange(self.plan.count), np.diff(self.plan.starts[space]))
        return self.example[space]

    def index(self, request: GatherRequest | FoldRequest, space: int) -> Ints:
        """For each row of a table: the position in the array that is gathered from."""
        source, row = self.plan.pointers[request.name]
        example = self.row_example(space)
        capacity = self.signature.capacity
        orders = self.request.orders
        sizes = [1 if m == UNIFORM else capacity[orders[m].space] for m in request.layout]
        offsets = offsets_of(np.array(sizes, np.int64))
        out = np.zeros(len(row), np.int64)
        for k, place in enumerate(request.place):
            member = request.layout[place]
            mine = source == k
            if member == UNIFORM:
                out[mine] = offsets[place]
                continue
            start = self.plan.starts[orders[member].space]
            where = row[mine] + start[example[mine]]
            out[mine] = offsets[place] + self.position[member][where]
        return out

    def fold(self, f: FoldRequest) -> None:
        index, owner = self.index(f, f.elements), self.owners(f)
        space = self.request.orders[f.order].space
        if space in self.plan.equal:
            kept = np.zeros(self.plan.rows(space), bool)
            kept[self.sorted[f.order]] = True
            index, owner = index[kept[owner]], owner[kept[owner]]
        at = self.position[f.order][owner]
        order = np.argsort(at, kind="stable")
        name = f"{f.name}@{f.order}"
        lengths = np.bincount(at, minlength=self.signature.capacity[space])
        self.put(f"{name}.start", offsets_of(lengths))
        self.put(f"{name}.index", index[order])
        self.put(f"{name}.owner", at[order])

    def loop(self, n: int, loop: LoopRequest) -> int:
        """The windows of one level loop; returns the number of levels."""
        plan = self.plan
        deepest = max((int(plan.levels[t].max()) + 1 for t in loop.tasks if len(plan.levels[t])), default=0)
        for task in loop.tasks:
            level = plan.levels[task][self.sorted[task]]
            for width, (starts, firsts) in cut(level, self.request.widths, deepest).items():
                self.put(f"loop{n}.{task}.{width}.start", starts)
                self.put(f"loop{n}.{task}.{width}.first", firsts)
        return deepest


# ---- from what inspection found to a plan


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
        self.order[space] = np.argsort(example, kind="stable")
        self.place[space] = np.empty(len(example), np.int64)
        self.place[space][self.order[space]] = np.arange(len(example))
        self.starts[space] = offsets_of(np.bincount(example, minlength=self.count))

    def example_of(self, space: int, rows: Ints) -> Ints:
        return np.searchsorted(self.starts[space], rows, side="right") - 1

    def local(self, pointers: Ints, sources: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Pointers as (position among `sources`, row within its example)."""
        member_of = np.full(len(self.home) + 1, -1)
        member_of[list(sources)] = np.arange(len(sources))
        row = pointers & ROW
        member = member_of[pointers >> SHIFT]
        out = np.zeros(len(row), np.int64)
        for k, d in enumerate(sources):
            home = int(self.home[d])
            if home >= 0:
                mine = np.flatnonzero(member == k)
                at = self.place[home][row[mine]] if home in self.place else row[mine]
                out[mine] = at - self.starts[home][self.example_of(home, at)]
        return member, out

    def assemble(self) -> tuple[DataPlan, Ints]:
        for space, table in _tables(self.spec, self.request.example):
            if table.kind == "fold":
                self.fold(space, table)
            else:
                self.rows(space, table)
        for index in range(self.request.spaces):
            self.starts.setdefault(index, np.zeros(self.count + 1, np.int64))
        structure, targets, lengths = self.results()
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
            lengths,
            {s: self.source.starts[s] for s in targets.values()},
            self.value_numbers(),
            number_rows(self.request, Rows(self.starts, self.columns, self.pointers, self.owners)),
            targets,
        )
        return _with_levels(plan)

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

    def rows(self, space: int, table: TableSpec) -> None:
        raw = _recorded(self.found, table, space, self.request.example)
        self.table_space[table.name] = space
        by_example = self.order.get(space, np.arange(len(raw)))
        if table.kind == "column":
            self.columns[table.name] = raw[by_example]
            return
        member, row = self.local(raw, table.sources)
        self.pointers[table.name] = (member[by_example], row[by_example])

    def fold(self, space: int, table: TableSpec) -> None:
        assert table.elements is not None
        owner, pointers = self.found.elements.get(table.name, (np.zeros(0, np.int64),) * 2)
        at = self.place[space][owner] if space in self.place else owner
        example = self.example_of(space, at)
        by_owner = np.argsort(at, kind="stable")
        self.starts[table.elements.index] = offsets_of(np.bincount(example, minlength=self.count))
        member, row = self.local(pointers, table.sources)
        self.pointers[table.name] = (member[by_owner], row[by_owner])
        self.owners[table.name] = (at - self.starts[space][example])[by_owner]
        self.table_space[table.name] = table.elements.index

    def results(self) -> tuple[dict[int, Values], dict[int, str], dict[int, Ints]]:
        """The entry's results that are structure, what they refer to, and the lengths of those that are lists."""
        structure: dict[int, Values] = {}
        targets: dict[int, str] = {}
        lengths: dict[int, Ints] = {}
        for k, table in enumerate(self.spec.outputs):
            rows = self.found.outputs[k]
            if table is not None:
                if table.kind == "fold":
                    lengths[k] = rows
                continue
            type = self.spec.module.functions[0].region.results[k].type
            if isinstance(type, Ref | List) and type.store is not None:
                targets[k] = type.store
                rows = np.where(rows >= 0, rows - self.source.starts[type.store][:-1], -1)
            structure[k] = rows
        return structure, targets, lengths


def _recorded(found: Activations, table: TableSpec, space: int, example: int) -> Values:
    if space == example:
        return found.outputs[int(table.name.removeprefix("example:"))]
    return found.tables.get(table.name, np.zeros(0, np.int64))


def _tables(spec: PlanSpec, example: int) -> list[tuple[int, TableSpec]]:
    found: list[tuple[int, TableSpec]] = []

    def visit(region: RegionSpec) -> None:
        found.extend((region.space.index, t) for t in region.tables)
        for pair in region.arms.values():
            for arm in pair:
                visit(arm)

    for region in spec.regions.values():
        visit(region)
    found.extend((example, t) for t in spec.outputs if t is not None)
    return found


def _with_levels(plan: DataPlan) -> tuple[DataPlan, Ints]:
    levels: dict[int, Ints] = {}
    cyclic: list[Ints] = []
    for loop in plan.request.loops:
        spaces = [plan.request.orders[t].space for t in loop.tasks]
        first = offsets_of(np.array([plan.rows(s) for s in spaces]))
        edges = [_edge(plan, loop, spaces, first, e) for e in loop.edges]
        source, target, weight = (np.concatenate([e[k] for e in edges]) for k in range(3))
        level, stuck = longest_paths(int(first[-1]), source, target, weight)
        for k, task in enumerate(loop.tasks):
            levels[task] = level[first[k] : first[k + 1]]
            mine = stuck[(stuck >= first[k]) & (stuck < first[k + 1])] - first[k]
            cyclic.append(np.searchsorted(plan.starts[spaces[k]], mine, side="right") - 1)
    bad = np.unique(np.concatenate(cyclic)) if cyclic else np.zeros(0, np.int64)
    return replace(plan, levels=levels), bad


def _edge(plan: DataPlan, loop: LoopRequest, spaces: Sequence[int], first: Ints, edge: Any) -> tuple[Ints, Ints, Ints]:
    weight = 0 if edge.source < edge.reader else 1
    if edge.table is None:
        rows = np.arange(plan.rows(spaces[edge.reader]))
        source, target = first[edge.source] + rows, first[edge.reader] + rows
    else:
        member, row = plan.pointers[edge.table]
        space = plan.space_of_table[edge.table]
        mine = np.flatnonzero(member == edge.source_member)
        example = (np.searchsorted(plan.starts[space], mine, side="right") - 1).astype(np.int64)
        source = first[edge.source] + row[mine] + plan.starts[spaces[edge.source]][example]
        target = mine
        if edge.fold:
            target = plan.owners[edge.table][mine] + plan.starts[spaces[edge.reader]][example]
        target = first[edge.reader] + target
    return source, target, np.full(len(source), weight)


class SizeClasses:
    """Capacities of the spaces of one program, rounded up together (FRAMES.md, 4.5).

    A profile is the rows that each space has per unit; a batch of any data set takes the least number of units, from a
    geometric series, that holds it. A batch that no profile fits well makes a new one."""

    RATIO = 1.25
    WASTE = 2.0

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
