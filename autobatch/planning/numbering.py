"""Value numbers: rows that must compute the same get the same number, over a whole data set (FRAMES.md, 4.3).

    def h(t): return cell(emb[t.kind], sum(h(c) for c in t.kids))       number(row) = (kind, numbers of the kids' rows)

Integers, bools and tags enter by value, rows of other spaces by their number, floats by the identity of the row they
are read from: x = 3.0 in two examples stays two rows. A minibatch then shares rows by one integer unique. Rows of a
cycle of spaces are numbered level by level, so each comes behind those it reads. (Hash-consing; Ershov 1958.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.data.spec import OUTPUT
from autobatch.data.tables import UNIFORM, FoldRequest, GatherRequest, TableRequest
from autobatch.planning.equal_rows import Cycle

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
