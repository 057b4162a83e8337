"""Value numbers: rows that must compute the same get the same number, over a whole data set.

    def h(t): return cell(emb[t.kind], sum(h(c) for c in t.kids))       number(row) = (kind, numbers of the kids' rows)

Integers, bools and tags enter by value, rows of other spaces by their number, floats by the identity of the row they
are read from: x = 3.0 in two examples stays two rows. A minibatch then shares rows by one integer unique. Rows of a
cycle of spaces are numbered level by level, so each comes behind those it reads. (Hash-consing; Ershov 1958.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of
from autobatch.data.spec import OUTPUT, UNIFORM, FoldRequest, GatherRequest, PathRequest, TableRequest
from autobatch.ir.system import Link
from autobatch.planning.plan import DataPlan

# ---- equal rows
#
# Rows of a cycle of spaces that must compute the same, found by hashes: level by level, for all spaces together.
#
#     h(row) = mix(salt + sum over its entries of (salt + what is known + h(row read)) * a factor of the entry's place)
#
# Rows are equal where their hashes are. That is checked, entry by entry, against the first row of each hash: where two
# rows of one hash differ, everything is hashed again.
# (Hash-consing, Ershov 1958; sums of products as universal hashes, Carter and Wegman 1979.)


# ---- ordering
#
# Orders of rows: sorted by small integers, and the distinct ones among equal rows.


def stable_order(keys: Ints) -> Ints:
    """A stable argsort of non-negative integers: by radix, of 16 bits at a time, where they are small, as levels and
    numbers of rows are."""
    most = int(keys.max(initial=0))
    if most >= 2**32:
        return np.argsort(keys, kind="stable")
    order = np.argsort(keys.astype(np.uint16), kind="stable")  # by the lower bits
    if most < 2**16:
        return order
    return order[np.argsort((keys >> 16).astype(np.uint16)[order], kind="stable")]


def inverse(order: Ints) -> Ints:
    """Where each entry of a permutation stands."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def distinct_rows(numbers: Ints, size: int, room: int = 65536) -> tuple[Ints, Ints]:
    """The rows whose number stands in no row before them, ascending; and which of these every row equals. Numbers are
    less than `size`; they are found by marks where these take little room, as value numbers of a data set do."""
    if size > 16 * len(numbers) + room:
        _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return first[order], inverse(order)[which]
    at = np.arange(len(numbers))
    mark = np.empty(size, np.int64)  # only what is written here is read
    mark[numbers[::-1]] = at[::-1]  # of equal numbers, the first is written last
    first_equal = mark.take(numbers)
    new = first_equal == at
    return new.nonzero()[0], (new.cumsum() - 1).take(first_equal)


# ---- levels
#
# Levels: when each row of a recurrence can be computed, by longest path over the rows it reads.
#
# All spaces of one recurrence are numbered together. An edge goes from a row to a row that reads it; its weight is 0
# when the reader's space comes later in the static order of one level, else 1. (Kahn 1962, one NumPy step for each
# front.)


def longest_paths(rows: int, source: Ints, target: Ints, weight: Ints) -> tuple[Ints, Ints]:
    """The level of each row, and the rows that lie on or behind a cycle (their level is -1)."""
    order = stable_order(source)
    target, weight = target[order], weight[order]
    count = np.bincount(source, minlength=rows)
    first = np.cumsum(count) - count
    waiting = np.bincount(target, minlength=rows)
    level = np.zeros(rows, np.int64)
    once = np.zeros(rows, np.int64)
    alike = bool(np.all(weight == 1))  # the level of a row is then the front that it is in
    fronts = 0
    front = np.flatnonzero(waiting == 0)
    while len(front):
        if alike:
            level[front] = fronts
            fronts += 1
        front = front[count[front] > 0]
        lengths = count[front]
        ends = lengths.cumsum()
        if not len(ends):
            break
        edge = (first[front] - ends + lengths).repeat(lengths)
        edge += np.arange(ends[-1])
        reached = target[edge]
        if not alike:
            np.maximum.at(level, reached, level[front].repeat(lengths) + weight[edge])
        np.subtract.at(waiting, reached, 1)
        front = reached[waiting[reached] == 0]
        if len(front) > 1:  # each once: the last of equal ones
            once[front] = numbers = np.arange(len(front))
            front = front[once[front] == numbers]
    stuck = np.flatnonzero(waiting > 0)
    level[stuck] = -1
    return level, stuck


Words = NDArray[np.uint64]

DEEPEST = 512
"""Levels beyond which rows are not numbered: chains repeat little, and each level costs a few NumPy calls."""


@dataclass
class Cycle:
    """Spaces that read each other: rows of all of them behind one another, from `offset` on. `parts`: entries, each
    with the row that has it, its place among those of the row, what is known of it, and the row it reads, or -1."""

    offset: Mapping[int, int]
    count: Mapping[int, int]
    parts: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)

    @classmethod
    def of(cls, spaces: Sequence[int], counts: Sequence[int]) -> Cycle:
        """The cycle of some spaces with so many rows."""
        offsets = np.cumsum([0, *counts])[:-1].tolist()
        made = cls(dict(zip(spaces, offsets, strict=True)), dict(zip(spaces, counts, strict=True)))
        for number, space in enumerate(spaces):
            rows = np.arange(made.count[space])
            made.add(space, rows, np.zeros_like(rows), np.full_like(rows, number), None)
        return made

    @property
    def rows(self) -> int:
        return sum(self.count.values())

    def add(self, space: int, row: Ints, place: Ints, known: Ints, read: Ints | None) -> None:
        """Entries of rows of a space; their places count from the first entry that is added here."""
        place = place + (len(self.parts) << 32)
        self.parts.append((row + self.offset[space], place, known, np.full(len(row), -1) if read is None else read))

    def numbered(self) -> dict[int, Ints]:
        """A number for each row of each space, equal for equal rows; none where the rows are too deep."""
        row, place, known, read = (np.concatenate(x) for x in zip(*self.parts, strict=True))
        reads = np.flatnonzero(read >= 0)
        level, stuck = longest_paths(self.rows, read[reads], row[reads], np.ones(len(reads), np.int64))
        if len(stuck) or level.max(initial=0) > DEEPEST:
            return {}
        order = stable_order(row)
        entries = _RowEntries(row[order], place[order], known[order], read[order])
        seed = 0
        while True:
            hashes = _hashes(entries, level, seed)
            if are_distinct(hashes):
                numbers = np.arange(len(hashes))
                return {s: numbers[begin : begin + self.count[s]] for s, begin in self.offset.items()}
            numbers, first = _numbers(hashes)
            if entries.are_equal(numbers, first):
                return {s: numbers[begin : begin + self.count[s]] for s, begin in self.offset.items()}
            seed += 1


@dataclass(frozen=True)
class _RowEntries:
    """Entries of rows, those of a row behind one another in the order of their places."""

    row: Ints
    place: Ints
    known: Ints
    read: Ints

    def are_equal(self, numbers: Ints, first: Ints) -> bool:
        """Has each row the entries that the first one with its number has?"""
        count = np.bincount(self.row, minlength=len(numbers))
        begin = np.cumsum(count) - count
        like = first[numbers]
        if np.any(count != count[like]):
            return False
        same = np.arange(len(self.row)) + (begin[like] - begin).repeat(count)
        if np.any(self.place != self.place[same]) or np.any(self.known != self.known[same]):
            return False
        read = np.where(self.read >= 0, numbers[self.read], -1)
        return not np.any(read != read[same])


def _hashes(entries: _RowEntries, level: Ints, seed: int) -> Words:
    factor = _mixed(_mixed(entries.place.astype(np.uint64) + np.uint64(seed << 48)) + np.uint64(seed)) | np.uint64(1)
    salt = _mixed(
        np.array([seed + 1], np.uint64)
    )  # what is known to be 0 is something, too, and so is a row of nothing
    found = np.full(len(level), salt)
    np.add.at(found, entries.row, (entries.known.astype(np.uint64) + salt) * factor)
    reads = np.flatnonzero(entries.read >= 0)
    reads = reads[stable_order(level[entries.row[reads]])]
    row, read, factor = entries.row[reads], entries.read[reads], factor[reads]
    bounds = np.searchsorted(level[row], np.arange(1, level.max(initial=0) + 2)).tolist()
    order = stable_order(level)
    ends = np.cumsum(np.bincount(level)).tolist()
    begin = 0
    for number, end in enumerate(ends):
        if number:
            at = slice(bounds[number - 1], bounds[number])
            np.add.at(found, row[at], found[read[at]] * factor[at])
        mine = order[begin:end]
        found[mine] = _mixed(found[mine])
        begin = end
    return found


def are_distinct(hashes: Words) -> bool:
    """Is no hash there twice? Then no rows are equal. (Sorting takes half of the time of an order.)"""
    ordered = np.sort(hashes)
    return not np.any(ordered[1:] == ordered[:-1])


def _mixed(x: Words) -> Words:
    """Words whose bits depend on all bits (the finaliser of SplitMix64: Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _numbers(hashes: Words) -> tuple[Ints, Ints]:
    """A number for each hash, and where each number stands first."""
    order = np.argsort(hashes, kind="stable")
    new = np.ones(len(order), np.bool_)
    new[1:] = hashes[order[1:]] != hashes[order[:-1]]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]


PAYS = 0.85
"""Rows are shared where a batch keeps at most this part of them."""
SAMPLE = 64
FEW = 10_000
"""Rows that are numbered in less time than it takes to ask which of them have to be."""


@dataclass(frozen=True)
class ReadKeys:
    """What the rows of one space read, as keys: columns, and tables of pointers to rows of other spaces."""

    columns: tuple[str, ...]
    gathers: tuple[GatherRequest, ...]
    folds: tuple[FoldRequest, ...]

    @property
    def tables(self) -> tuple[GatherRequest | FoldRequest, ...]:
        return (*self.gathers, *self.folds)


@dataclass(frozen=True)
class NumberingTables:
    """The tables of a data set that numbering reads; see `DataPlan`. `spaces`: whose rows each table is of."""

    starts: Mapping[int, Ints]
    columns: Mapping[str, NDArray[np.generic]]
    pointers: Mapping[str, tuple[Ints, Ints]]
    owners: Mapping[str, Ints]
    spaces: Mapping[str, int]

    @property
    def count(self) -> int:
        """Of the rows of all spaces."""
        return sum(int(s[-1]) for s in self.starts.values())

    def first(self, examples: int) -> NumberingTables:
        """Those of the first examples."""
        starts = {space: s[: examples + 1] for space, s in self.starts.items()}
        end = {name: int(starts[space][-1]) for name, space in self.spaces.items()}
        return NumberingTables(
            starts,
            {n: x[: end[n]] for n, x in self.columns.items()},
            {n: (source[: end[n]], row[: end[n]]) for n, (source, row) in self.pointers.items()},
            {n: x[: end[n]] for n, x in self.owners.items()},
            self.spaces,
        )


def number_rows(request: TableRequest, rows: NumberingTables) -> dict[int, Ints]:
    """The value number of each row, for the spaces where sharing pays. A sample says which spaces these are, so that
    the rows of all examples are numbered for them alone."""
    few, wanted = rows.first(SAMPLE), None
    if rows.count - few.count > FEW:
        wanted = _paying(_Numbering(request, few).run(), few).keys()
    return _paying(_Numbering(request, rows).run(wanted), few)


def _paying(numbers: Mapping[int, Ints], sample: NumberingTables) -> dict[int, Ints]:
    return {space: n for space, n in numbers.items() if _pays(n[: sample.starts[space][-1]])}


def _pays(sample: Ints) -> bool:
    """Numbers are dense over the spaces of a cycle, so they are counted."""
    return len(sample) > 0 and int(np.count_nonzero(np.bincount(sample))) <= PAYS * len(sample)


class _Numbering:
    def __init__(self, request: TableRequest, rows: NumberingTables) -> None:
        self.request, self.rows = request, rows
        self.reads = self.reads_of_spaces()
        self.numbers: dict[int, Ints] = {}
        self.runs: dict[tuple[str, int], Ints] = {}
        self.by_columns: dict[tuple[int, tuple[str, ...]], Ints] = {}

    def reads_of_spaces(self) -> dict[int, ReadKeys]:
        """By space (those of elements, of results and of distinct rows are not numbered)."""
        orders = self.request.orders
        passive = {f.elements for f in self.request.folds} | {self.request.example}
        passive |= {d.space for d in self.request.distinct}
        passive |= {orders[g.order].space for g in self.request.gathers if g.name.startswith(OUTPUT)}
        gathers: dict[int, dict[str, GatherRequest]] = {}
        folds: dict[int, dict[str, FoldRequest]] = {}
        columns: dict[int, dict[str, None]] = {}
        for name, order in self.request.columns:
            columns.setdefault(orders[order].space, {}).setdefault(name)
        for d in self.request.distinct:
            for key in d.keys:
                columns.setdefault(d.base, {}).setdefault(key)
        for g in self.request.gathers:
            gathers.setdefault(orders[g.order].space, {}).setdefault(g.name, g)
        for f in self.request.folds:
            folds.setdefault(orders[f.order].space, {}).setdefault(f.name, f)
        spaces = {*columns, *gathers, *folds} - passive
        return {
            s: ReadKeys(tuple(columns.get(s, ())), tuple(gathers.get(s, {}).values()), tuple(folds.get(s, {}).values()))
            for s in sorted(spaces)
        }

    def targets(self, request: GatherRequest | FoldRequest) -> list[int]:
        """The space of each source of a table, the base of distinct rows in their place; -1 where it is uniform."""
        orders = self.request.orders
        base = {d.space: d.base for d in self.request.distinct}
        spaces = [UNIFORM if m == UNIFORM else orders[m].space for m in (request.layout[p] for p in request.place)]
        return [base.get(s, s) for s in spaces]

    def run(self, wanted: Iterable[int] | None = None) -> dict[int, Ints]:
        """Number the rows of the spaces that are wanted, and of those that these read; of all, where none are named."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self.reads)
        for space, reads in self.reads.items():
            for table in reads.tables:
                for target, keys in zip(self.targets(table), table.keys, strict=True):
                    if target in self.reads and not keys:
                        graph.add_edge(target, space)
        if wanted is not None:
            graph = graph.subgraph(set().union(*({s} | nx.ancestors(graph, s) for s in wanted)))
        condensed = nx.condensation(graph)
        for component in nx.topological_sort(condensed):
            members = sorted(condensed.nodes[component]["members"])
            if len(members) == 1 and not graph.has_edge(members[0], members[0]):
                self.number(members[0], np.arange(self.count(members[0])), 0)
            else:
                self.number_cycle(members)
        return self.numbers

    def count(self, space: int) -> int:
        return int(self.rows.starts[space][-1])

    def absolute(self, space: int, example: Ints, row: Ints) -> Ints:
        return row + self.rows.starts[space][example]

    def keys(self, request: GatherRequest | FoldRequest, at: Ints, space: int) -> Ints:
        """What entries `at` of a table point to, as integers: equal where the pointed rows are equal."""
        source, row = self.rows.pointers[request.name]
        source, row = source[at], row[at]
        example = np.searchsorted(self.rows.starts[space], at, side="right") - 1
        found = np.zeros(len(at), np.int64)
        for k, target in enumerate(self.targets(request)):
            mine = np.flatnonzero(source == k)
            if not len(mine):
                continue
            value = np.zeros(len(mine), np.int64)
            if target != UNIFORM:
                where = self.absolute(target, example[mine], row[mine])
                if request.keys[k]:
                    value = self.decided(target, request.keys[k])[where]
                else:
                    value = self.numbers[target][where] if target in self.numbers else where
            found[mine] = (np.int64(k) << 40) | value
        return found

    def decided(self, space: int, columns: tuple[str, ...]) -> Ints:
        """A number for each row of a space by some of its columns alone."""
        if (space, columns) not in self.by_columns:
            parts = [np.unique(self.rows.columns[c], return_inverse=True)[1] for c in columns]
            self.by_columns[space, columns] = _join(parts, self.count(space))
        return self.by_columns[space, columns]

    def number(self, space: int, at: Ints, first: int) -> int:
        """Number the rows `at` of a space from `first` on; returns the next free number."""
        numbers = self.numbers.setdefault(space, np.zeros(self.count(space), np.int64))
        reads = self.reads[space]
        parts = [np.unique(self.rows.columns[c][at], return_inverse=True)[1] for c in reads.columns]
        parts += [self.keys(g, at, space) for g in reads.gathers]
        parts += [self.sequence(f, at, space) for f in reads.folds]
        joined = _join(parts, len(at))
        numbers[at] = joined + first
        return first + 1 + int(joined.max(initial=-1))

    def sequence(self, fold: FoldRequest, at: Ints, space: int) -> Ints:
        """A number for the list that each row folds: equal where the elements are equal, one by one."""
        bounds = self.bounds(fold, space)
        start, length = bounds[at], bounds[at + 1] - bounds[at]
        numbers: Ints = length.astype(np.int64)
        position = 0
        longer = np.flatnonzero(length > 0)
        while len(longer):
            keys = self.keys(fold, start[longer] + position, fold.elements)
            numbers[longer] = _join([numbers[longer], keys], len(longer)) + int(numbers.max()) + 1
            position += 1
            longer = longer[length[longer] > position]
        return numbers

    def bounds(self, fold: FoldRequest, space: int) -> Ints:
        """Where the elements of each row begin: they lie in the order of the rows."""
        if (fold.name, space) in self.runs:
            return self.runs[fold.name, space]
        elements = np.arange(self.count(fold.elements))
        example = np.searchsorted(self.rows.starts[fold.elements], elements, side="right") - 1
        owner = self.absolute(space, example, self.rows.owners[fold.name])
        lengths = np.bincount(owner, minlength=self.count(space))
        self.runs[fold.name, space] = np.concatenate([[0], np.cumsum(lengths)])
        return self.runs[fold.name, space]

    def number_cycle(self, spaces: Sequence[int]) -> None:
        """Number spaces that read each other: rows of low level first."""
        cycle = Cycle.of(spaces, [self.count(s) for s in spaces])
        for space in spaces:
            reads = self.reads[space]
            rows = np.arange(self.count(space))
            for column in reads.columns:
                known = np.unique(self.rows.columns[column], return_inverse=True)[1]
                cycle.add(space, rows, np.zeros_like(rows), known, None)
            for gather in reads.gathers:
                cycle.add(space, rows, np.zeros_like(rows), *self.entries(gather, space, cycle))
            for fold in reads.folds:
                bounds = self.bounds(fold, space)
                lengths = np.diff(bounds)
                reader = rows.repeat(lengths)
                cycle.add(space, rows, np.zeros_like(rows), lengths, None)
                within = np.arange(len(reader)) - bounds[:-1].repeat(lengths)
                cycle.add(space, reader, within, *self.entries(fold, fold.elements, cycle))
        self.numbers.update(cycle.numbered())

    def entries(self, request: GatherRequest | FoldRequest, space: int, cycle: Cycle) -> tuple[Ints, Ints]:
        """What a table points to, as known integers, and as rows of the cycle, -1 where it is none."""
        source, row = self.rows.pointers[request.name]
        example = np.repeat(np.arange(len(self.rows.starts[space]) - 1), np.diff(self.rows.starts[space]))
        targets = self.targets(request)
        begin = [np.zeros_like(example[:0]) if t == UNIFORM else self.rows.starts[t][:-1] for t in targets]
        none = np.zeros(len(self.rows.starts[space]) - 1, np.int64)
        known, read = np.maximum(source, 0) << 40, np.full(len(source), -1)
        where = row + np.stack([none, *(b if len(b) else none for b in begin)])[source + 1, example]
        inside = np.array([False, *(t in cycle.offset and not k for t, k in zip(targets, request.keys, strict=True))])
        offset = np.array([0, *(cycle.offset.get(t, 0) for t in targets)])[source + 1]
        read = np.where(inside[source + 1], where + offset, -1)
        for k, target in enumerate(targets):
            if target == UNIFORM or inside[k + 1]:
                continue
            mine = np.flatnonzero(source == k)
            if request.keys[k]:
                known[mine] |= self.decided(target, request.keys[k])[where[mine]]
            else:
                known[mine] |= self.numbers[target][where[mine]] if target in self.numbers else where[mine]
        return known, read


def _join(parts: Sequence[Ints], rows: int) -> Ints:
    """One number for each row of several columns: equal where all columns are equal."""
    joined = np.zeros(rows, np.int64)
    for part in parts:
        dense = np.unique(part, return_inverse=True)[1]
        joined = np.unique(joined * (1 + dense.max(initial=0)) + dense, return_inverse=True)[1]
    return joined


# ---- paths
#
# What paths of a linear recurrence lead to, and how many paths: the elements of a sum over them.
#
#     loss(t) = xent(t) + (loss(t.left) + loss(t.right), or 0)      loss(root) = 1 xent(root) + 1 xent(root.left) + ...
#
# Rows are visited from the examples down, each behind all rows that read it, so one pass counts. A node of a DAG is
# reached as often as there are ways to it; in a tree each count is 1. Terms that are subtracted count below zero.


Values = NDArray[Any]


def add_paths(plan: DataPlan) -> tuple[DataPlan, Ints]:
    """The plan with the elements of its sums over paths; and the examples whose rows wait for each other in a cycle."""
    stuck = [np.zeros(0, np.int64)]
    for request in plan.request.paths:
        plan, found = _Paths(plan, request).add()
        stuck.append(found)
    return plan, np.unique(np.concatenate(stuck))


@dataclass(frozen=True)
class _LinkEntries:
    """Entries of one link: the reading row, the row that is read within its example, and the example."""

    reader: Ints
    row: Ints
    example: Ints


@dataclass(frozen=True)
class _Table:
    """The entries of a table in the order of their members; the example of each; the members that there are."""

    order: Ints
    members: Ints
    examples: Ints
    found: frozenset[int]


class _Paths:
    def __init__(self, plan: DataPlan, request: PathRequest) -> None:
        self.plan, self.request = plan, request
        self.first = offsets_of(np.array([plan.rows(s) for s in request.spaces], np.int64))
        self.tables = dict[str, _Table]()

    def add(self) -> tuple[DataPlan, Ints]:
        links = [link for link in self.request.links if self.is_read(link)]
        entries = [self.entries(link) for link in links]
        counts, reached, stuck = self.count(links, entries)
        terms, rows, examples, weights = (
            np.concatenate(parts) for parts in zip(*self.elements(links, entries, counts, reached), strict=True)
        )
        order = stable_order(examples)
        name, elements = self.request.name, self.request.elements
        starts = {**self.plan.starts, elements: offsets_of(np.bincount(examples, minlength=self.plan.count))}
        return replace(
            self.plan,
            starts=starts,
            pointers={**self.plan.pointers, name: (terms[order], rows[order])},
            owners={**self.plan.owners, name: np.zeros(len(order), np.int64)},
            columns={**self.plan.columns, f"{name}.weight": weights[order]},
            space_of_table={**self.plan.space_of_table, name: elements, f"{name}.weight": elements},
        ), stuck

    def is_read(self, link: Link) -> bool:
        """Has a link any entries? Of a dispatch over many classes, few have."""
        return link.table is None or link.member in self.table(link.table).found

    def example_of(self, space: int, rows: Ints) -> Ints:
        return np.searchsorted(self.plan.starts[space], rows, side="right") - 1

    def entries(self, link: Link) -> _LinkEntries:
        """All entries of a link, in the table that holds them."""
        reader = self.plan.request.example if link.reader < 0 else self.request.spaces[link.reader]
        if link.table is None:
            rows = np.arange(self.plan.rows(reader))
            example = self.example_of(reader, rows)
            local = rows - self.plan.starts[reader][example]
            uniform = link.target < 0 and self.request.terms[~link.target] == UNIFORM
            return _LinkEntries(rows, np.zeros_like(rows) if uniform else local, example)
        row = self.plan.pointers[link.table][1]
        table = self.table(link.table)
        begin, end = np.searchsorted(table.members, (link.member, link.member + 1)).tolist()
        at, example = table.order[begin:end], table.examples[begin:end]
        if link.reader < 0:
            at, example = self.inspected(link, at, row, example)
        rows = self.plan.owners[link.table][at] + self.plan.starts[reader][example] if link.fold else at
        return _LinkEntries(rows, row[at], example)

    def table(self, name: str) -> _Table:
        """A table by its members, which many links read: sorted once."""
        if name not in self.tables:
            member = self.plan.pointers[name][0]
            order = stable_order(member + 1)
            starts = self.plan.starts[self.plan.space_of_table[name]]
            examples = np.arange(len(starts) - 1).repeat(np.diff(starts))
            members = member[order]
            found = frozenset(members[np.flatnonzero(np.diff(members, prepend=-2))].tolist())
            self.tables[name] = _Table(order, members, examples[order], found)
        return self.tables[name]

    def inspected(self, link: Link, at: Ints, row: Ints, example: Ints) -> tuple[Ints, Ints]:
        """Without the examples that have failed: their pointers mean nothing."""
        space = self.request.spaces[link.target] if link.target >= 0 else self.request.terms[~link.target]
        if space == UNIFORM:
            return at, example
        starts = self.plan.starts[space]
        real = row[at] < starts[example + 1] - starts[example]
        return at[real], example[real]

    def nodes(self, variable: int, entries: _LinkEntries) -> Ints:
        """Rows of a variable that are read, in the numbers of all rows of the recurrence."""
        nodes: Ints = (
            self.first[variable] + entries.row + self.plan.starts[self.request.spaces[variable]][entries.example]
        )
        return nodes

    def count(self, links: Sequence[Link], entries: Sequence[_LinkEntries]) -> tuple[Values, NDArray[np.bool_], Ints]:
        """For each row of the recurrence: the number of paths to it, with their signs, and whether there are any. Where
        numbers are integers, so are the counts, modulo their range. And the examples with cycles."""
        inner = [(k, e) for k, e in zip(links, entries, strict=True) if k.target >= 0]
        rows = int(self.first[-1])
        counts = np.zeros(rows, np.int64 if np.dtype(self.request.weight).kind in "iu" else np.float64)
        for link, found in inner:
            if link.reader < 0:
                np.add.at(counts, self.nodes(link.target, found), counts.dtype.type(link.sign))
        reached = counts != 0
        edges = [(self.nodes(k.target, e), self.first[k.reader] + e.reader, k.sign) for k, e in inner if k.reader >= 0]
        empty = np.zeros(0, np.int64)
        read = np.concatenate([empty, *(r for r, _, _ in edges)])
        reader = np.concatenate([empty, *(r for _, r, _ in edges)])
        sign = np.concatenate([empty, *(np.full(len(r), s) for r, _, s in edges)])
        level, stuck = longest_paths(rows, read, reader, np.ones(len(read), np.int64))
        order = stable_order(level.max(initial=0) - level[reader])
        read, reader, sign = read[order], reader[order], sign[order]
        at = 0
        for end in (1 + np.flatnonzero(np.diff(level[reader], append=-2))).tolist():
            np.add.at(counts, read[at:end], counts[reader[at:end]] * sign[at:end])
            np.logical_or.at(reached, read[at:end], reached[reader[at:end]])
            at = end
        return counts, reached, self.examples_of(stuck)

    def examples_of(self, nodes: Ints) -> Ints:
        variable = np.searchsorted(self.first, nodes, side="right") - 1
        found = [
            self.example_of(space, nodes[variable == k] - self.first[k]) for k, space in enumerate(self.request.spaces)
        ]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))

    def elements(
        self, links: Sequence[Link], entries: Sequence[_LinkEntries], counts: Values, reached: NDArray[np.bool_]
    ) -> list[tuple[Values, ...]]:
        """(term, row within its example, example, weight) of all that paths lead to."""
        none = np.zeros(0, np.int64)
        parts: list[tuple[Values, ...]] = [(none, none, none, counts[:0])]
        for link, found in zip(links, entries, strict=True):
            if link.target >= 0:
                continue
            weights, kept = np.ones(len(found.row), counts.dtype), np.ones(len(found.row), bool)
            if link.reader >= 0:
                rows = self.first[link.reader] + found.reader
                weights, kept = counts[rows], reached[rows]
            term = np.full(int(kept.sum()), ~link.target)
            parts.append((term, found.row[kept], found.example[kept], weights[kept] * link.sign))
        return parts
