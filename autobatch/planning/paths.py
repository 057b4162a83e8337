"""What paths of a linear recurrence lead to, and how many paths: the elements of a sum over them.

    loss(t) = xent(t) + (loss(t.left) + loss(t.right), or 0)      loss(root) = 1 xent(root) + 1 xent(root.left) + ...

Rows are visited from the examples down, each behind all rows that read it, so one pass counts. A node of a DAG is
reached as often as there are ways to it; in a tree each count is 1. Terms that are subtracted count below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of
from autobatch.data.tables import UNIFORM, PathRequest
from autobatch.ir.system import Link
from autobatch.planning.equal_rows import longest_paths, stable_order
from autobatch.planning.plan import DataPlan

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
