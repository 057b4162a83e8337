"""The arrays of one call: a plan's rows sorted by level, pointers as positions, everything padded to a size class.

(FRAMES.md, 4.2, 4.4 and 4.5.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.runtime.columns import offsets_of
from autobatch.runtime.plan import DataPlan
from autobatch.runtime.returned import relative
from autobatch.runtime.tables import UNIFORM, FoldRequest, GatherRequest, LoopRequest, Signature, layout
from autobatch.runtime.windows import cut

Ints = NDArray[np.int64]
Values = NDArray[Any]


def bind_plan(
    plan: DataPlan, size_class: Callable[[Mapping[int, int]], tuple[int, ...]]
) -> tuple[dict[str, Values], Signature]:
    """All integers in one array, and the data columns; and the signature of their shapes."""
    counts = {space: plan.rows(space) for space in plan.starts}
    distinct = {space: distinct_rows(n) for space, n in plan.shared_rows().items()}
    counts.update((space, len(found[0])) for space, found in distinct.items())
    for k, spaces in plan.lists.items():
        counts.update((space, len(n)) for space, n in zip(spaces, plan.lengths[k][1:], strict=True))
    signature = Signature(plan.count, size_class(counts))
    return _Binder(plan, signature, counts, distinct).bind(), signature


def exact_outputs(plan: DataPlan, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of the outputs without capacity: as many rows as there are."""
    sizes = {f"result{k}": plan.rows(space) for k, space in plan.structure_space.items()}
    for k, (_, *inner) in plan.lengths.items():
        sizes[f"offsets{k}"] = plan.rows(plan.lengths_space[k]) + 1
        sizes.update((f"offsets{k}.{depth}", len(held) + 1) for depth, held in enumerate(inner, 1))
    return {name: tables[name][:rows] for name, rows in sizes.items()}


def stable_order(keys: Ints) -> Ints:
    """A stable argsort of non-negative integers: by radix where they are small, as levels are."""
    small = len(keys) > 0 and int(keys.max()) <= np.iinfo(np.uint16).max
    return np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")


def distinct_rows(numbers: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct numbers in order, where each stands first, and which of them every entry is; as `np.unique`, but by
    counting where the numbers are dense, as value numbers of a data set are."""
    size = 1 + int(numbers.max(initial=-1))
    if size > 16 * len(numbers) + 65536:
        values, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        return values, first, which
    place = np.full(size, -1, np.int64)
    place[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of equal numbers, the first is written last
    values = np.flatnonzero(place >= 0)
    first = place[values]
    place[values] = np.arange(len(values))
    return values, first, place[numbers]


class _Binder:
    def __init__(
        self, plan: DataPlan, signature: Signature, counts: Mapping[int, int], distinct: Mapping[int, Any]
    ) -> None:
        self.plan, self.request, self.signature = plan, plan.request, signature
        self.counts, self.distinct = counts, distinct
        self.places, size = layout(plan.request, signature)
        self.out = np.zeros(size, np.int32)
        self.wide: dict[str, Values] = {}
        self.sorted: list[Ints] = []
        self.position: list[Ints] = []
        self.example: dict[int, Ints] = {}
        self.indices: dict[Any, Ints] = {}
        self.base = {d.space: d.base for d in self.request.distinct}
        for n, order in enumerate(self.request.orders):
            rows = np.arange(counts[order.space])
            if order.space in plan.equal:
                rows = distinct[order.space][1]
            if n in plan.levels:
                rows = rows[self.by_level(n, rows)]
            self.sorted.append(rows)
            self.position.append(self.positions(order.space, rows))

    def positions(self, space: int, rows: Ints) -> Ints:
        """Where each row lies when those of `rows` are kept, in this order; an equal row lies where its equal does."""
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
        """How to sort rows by level; within one by the lengths of their runs, so that windows of folds waste little."""
        level = self.plan.levels[order][rows]
        folds = [f for f in self.request.folds if f.order == order]
        if not folds:
            return stable_order(level)
        lengths = np.zeros(self.plan.rows(self.request.orders[order].space), np.int64)
        for f in folds:
            lengths += np.bincount(self.owners(f), minlength=len(lengths))
        return stable_order(level * (1 + lengths.max(initial=0)) + lengths[rows])

    def owners(self, f: FoldRequest) -> Ints:
        """The row that reads each element of a fold."""
        start = self.plan.starts[self.request.orders[f.order].space]
        owner: Ints = self.plan.owners[f.name] + start[self.row_example(f.elements)]
        return owner

    def put(self, name: str, values: Values) -> None:
        start, length = self.places[name]
        assert len(values) <= length, (name, len(values), length)
        self.out[start : start + len(values)] = values

    def column(self, name: str, values: Values, space: int, *, wide: bool) -> None:
        if not wide:
            self.put(name, values)
            return
        self.wide[name] = np.zeros(self.signature.capacity[space], np.int64)
        self.wide[name][: len(values)] = values

    def bind(self) -> dict[str, Values]:
        plan, request = self.plan, self.request
        self.put("counts", np.array([self.counts[s] for s in range(request.spaces)]))
        for name, order in request.columns:
            space = request.orders[order].space
            rows = self.distinct[space][1] if space in plan.numbers else self.sorted[order]
            self.column(f"{name}@{order}", plan.columns[name][rows], space, wide=name in request.wide)
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
        tables: dict[str, Values] = {"integers": self.out, **self.wide}
        for column, space in request.data:
            values = plan.data[column]
            padded = np.zeros((self.signature.capacity[space], *values.shape[1:]), values.dtype)
            padded[: len(values)] = values
            tables[column] = padded
        for k, found in plan.structure.items():
            space = plan.structure_space[k]
            if k in plan.targets:
                found = relative(found, self.row_example(space), -plan.stores[plan.targets[k]])
            rows = plan.count if space == request.example else self.signature.capacity[space]
            tables[f"result{k}"] = np.full((rows, *found.shape[1:]), -1, np.int32)
            tables[f"result{k}"][: len(found)] = found
        for k, lengths in plan.lengths.items():
            tables[f"offsets{k}"] = self.offsets(lengths[0], plan.lengths_space[k])
            for depth, (space, inner) in enumerate(zip(plan.lists.get(k, ()), lengths[1:], strict=True), 1):
                tables[f"offsets{k}.{depth}"] = self.offsets(inner, space)
        if plan.made is not None:
            tables["made"] = plan.starts[plan.made].astype(np.int32)
        return tables

    def offsets(self, lengths: Ints, space: int) -> Values:
        """Where the lists of the rows of a space begin; those past the last row are empty."""
        rows = self.plan.count if space == self.request.example else self.signature.capacity[space]
        offsets = np.full(rows + 1, lengths.sum(), np.int32)
        offsets[: len(lengths) + 1] = offsets_of(lengths)
        return offsets

    def row_example(self, space: int) -> Ints:
        if space not in self.example:
            self.example[space] = np.repeat(np.arange(self.plan.count), np.diff(self.plan.starts[space]))
        return self.example[space]

    def index(self, request: GatherRequest | FoldRequest, space: int) -> Ints:
        """For each row of a table: the position in the array that is gathered from."""
        source, row = self.plan.pointers[request.name]
        capacity, orders = self.signature.capacity, self.request.orders
        sizes = [1 if m == UNIFORM else capacity[orders[m].space] for m in request.layout]
        offsets = offsets_of(np.array(sizes, np.int64)).tolist()
        members = tuple((request.layout[place], offsets[place]) for place in request.place)
        if len(members) == 1 and not source.any():
            return self.positions_of(*members[0], row, slice(None), space)
        if (id(source), id(row), members) not in self.indices:
            out = np.zeros(len(row), np.int64)
            for k, (member, offset) in enumerate(members):
                mine = np.flatnonzero(source == k)
                out[mine] = self.positions_of(member, offset, row, mine, space)
            self.indices[id(source), id(row), members] = out
        return self.indices[id(source), id(row), members]

    def positions_of(self, member: int, offset: int, row: Ints, mine: Any, space: int) -> Ints:
        """Positions of the rows of one member, which begins at `offset`, that the entries `mine` of a table read."""
        if member == UNIFORM:
            return np.full(len(row[mine]), offset)
        target = self.request.orders[member].space
        where = row[mine] + self.plan.starts[self.base.get(target, target)][self.row_example(space)[mine]]
        position: Ints = self.distinct[target][2] if target in self.base else self.position[member]
        found: Ints = offset + position[where]
        return found

    def fold(self, f: FoldRequest) -> None:
        index, owner = self.index(f, f.elements), self.owners(f)
        space = self.request.orders[f.order].space
        if space in self.plan.equal:
            kept = np.zeros(self.plan.rows(space), bool)
            kept[self.sorted[f.order]] = True
            index, owner = index[kept[owner]], owner[kept[owner]]
            self.out[self.places["counts"][0] + f.elements] = len(owner)
        at = self.position[f.order][owner]
        order = stable_order(at)
        name = f"{f.name}@{f.order}"
        lengths = np.bincount(at, minlength=self.signature.capacity[space])
        self.put(f"{name}.start", offsets_of(lengths))
        self.put(f"{name}.index", index[order])
        if f.weight:
            weights = self.plan.columns[f"{f.name}.weight"][order].astype(f.weight)
            self.put(f"{name}.weight", weights.view(np.int32))
        self.put(f"{name}.owner", at[order])

    def loop(self, n: int, loop: LoopRequest) -> int:
        """The windows of one level loop; returns the number of levels."""
        plan = self.plan
        deepest = max((int(plan.levels[t].max()) + 1 for t in loop.tasks if len(plan.levels[t])), default=0)
        for task, costs in zip(loop.tasks, loop.costs, strict=True):
            level = plan.levels[task][self.sorted[task]]
            self.put(f"loop{n}.{task}.end", np.searchsorted(level, np.arange(deepest), side="right"))
            for width, (starts, firsts) in cut(level, self.request.widths, deepest, costs).items():
                self.put(f"loop{n}.{task}.{width}.start", starts)
                self.put(f"loop{n}.{task}.{width}.first", firsts)
        return deepest


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
