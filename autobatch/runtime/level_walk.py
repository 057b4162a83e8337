"""The walk over examples whose objects are trees, level by level: each step is a pass in C over a whole level.

    examples             [[1, 2], [3]]   [[4]]          level 0: 2 lists; level 1: 3 lists; level 2: 4 numbers
    sizes, from below    3               2              of each object, with all below it
    visits, from above   0 1 2           4 5            pre-order, as the walk object by object has it

Where an object is met twice, or there are many levels, there is none: the walk object by object (`walk.py`) knows what
is shared. So it is for what cannot be packed, of which that says where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np

from autobatch.errors import BatchError
from autobatch.runtime.columns import Ints, offsets_of, ranges
from autobatch.runtime.leaves import Category, category

if TYPE_CHECKING:
    from autobatch.runtime.walk import Table, Walker

LEVELS = 32
"""Levels from which on a step an object is as quick."""

MANY = 1 << 20
"""Objects of a level that may be one tuple, written out again and again."""

_Objects = Sequence[Any]


@dataclass(eq=False)
class _Column:
    """Values of one field of some objects, and the numbers of these. `held`: where objects stand among the values,
    which have `numbers`; None: nowhere."""

    values: _Objects
    owners: Ints
    held: Ints | None = None
    numbers: Ints | None = None


@dataclass(eq=False)
class _Group:
    """Objects of one level and one table, in order; of lists `lengths`."""

    table: Table
    numbers: Ints
    columns: list[_Column]
    lengths: Ints | None = None


@dataclass(eq=False)
class Levels:
    """What a walk finds level by level. Objects have numbers, level behind level."""

    walker: Walker
    groups: list[_Group] = field(default_factory=list)
    parents: list[Ints] = field(default_factory=list)
    """Of each level the numbers of the objects that hold its objects; of the first one the examples."""
    count: int = 0
    seen: set[int] = field(default_factory=set)

    def found(self) -> bool:
        """Visit all objects. False where there is no such walk."""
        examples = self.walker.examples
        columns = [_Column(examples, np.arange(len(examples)))]
        self.roots = columns[0]
        try:
            while columns:
                objects = self.objects_in(columns)
                if len(self.parents) > LEVELS or len(objects) > MANY:
                    return False
                first = self.count - len(objects)
                columns = []
                for kind, members in self.by_type(objects):
                    chosen = objects if members is None else [objects[k] for k in members.tolist()]
                    numbers = first + (np.arange(len(objects)) if members is None else members)
                    if not (self.are_new(chosen) if kind is not tuple else all(chosen)):  # () is one object
                        return False
                    made = list(self.grouped(kind, chosen, numbers))
                    self.groups += made
                    columns += [c for g in made for c in g.columns]
        except (BatchError, AttributeError):
            return False
        return True

    def objects_in(self, columns: Sequence[_Column]) -> _Objects:
        """The objects among some values, by what holds them: the next level."""
        atoms, found, parents = self.walker.atoms, list[_Objects](), list[Ints]()
        holding = list[_Column]()
        for column in columns:
            kinds = set(map(type, column.values))
            for kind in kinds - atoms:
                if category(kind) is Category.REFUSED:
                    raise BatchError("which the walk object by object tells")
                if category(kind) is not Category.OBJECT:
                    atoms.add(kind)
            if kinds <= atoms:
                continue
            if kinds.isdisjoint(atoms):
                column.held = np.arange(len(column.values))
                found.append(column.values)
            else:
                leaves = np.fromiter(map(atoms.__contains__, map(type, column.values)), np.bool_, len(column.values))
                column.held = (~leaves).nonzero()[0]
                found.append(list(compress(column.values, (~leaves).tolist())))
            parents.append(column.owners[column.held])
            holding.append(column)
        if not found:
            return ()
        whole, holders = found[0], parents[0]
        order = np.arange(len(holders))
        if len(found) > 1:
            holders = np.concatenate(parents)
            order = np.argsort(holders, kind="stable")
            whole, holders = _taken(list(chain.from_iterable(found)), order), holders[order]
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(self.count, self.count + len(order))
        for column, part in zip(holding, np.split(numbers, np.cumsum([len(p) for p in parents])[:-1]), strict=True):
            column.numbers = part
        self.parents.append(holders)
        self.count += len(order)
        return whole

    def by_type(self, objects: _Objects) -> Iterator[tuple[type, Ints | None]]:
        """The types of objects, and which have each; None: all."""
        kinds = list(map(type, objects))
        different = dict.fromkeys(kinds)
        if len(different) == 1:
            yield kinds[0], None
            return
        codes = {kind: k for k, kind in enumerate(different)}
        code = np.fromiter(map(codes.__getitem__, kinds), np.int64, len(kinds))
        for kind, k in codes.items():
            yield kind, (code == k).nonzero()[0]

    def are_new(self, objects: _Objects) -> bool:
        """Was none of these met before in its example? Examples themselves may be one object."""
        before = len(self.seen)
        self.seen.update(map(id, objects))
        return len(self.parents) == 1 or len(self.seen) == before + len(objects)

    # ---- tables

    def grouped(self, kind: type, objects: _Objects, numbers: Ints) -> Iterator[_Group]:
        """Objects of one type by their tables."""
        walker = self.walker
        if kind is list:
            lengths = np.fromiter(map(len, objects), np.int64, len(objects))
            items = _Column(list(chain.from_iterable(objects)), np.repeat(numbers, lengths))
            yield _Group(walker.lists, numbers, [items], lengths)
        elif kind is tuple and (columns := self.of_one_form(objects)) is not None:
            yield self.record(walker.tuple_table(objects[0]), columns, numbers)
        elif (table := walker.fixed.get(kind)) is not None or (table := walker.with_fixed_fields(kind)) is not None:
            rows = objects if issubclass(kind, tuple) else list(map(table.extract, objects))
            yield self.record(table, transposed(rows, len(table.names)), numbers)
        else:
            of: dict[int, tuple[Table, list[int], list[_Objects]]] = {}
            for k, x in enumerate(objects):
                chosen = walker.choose(x)
                assert chosen is not None
                _, places, rows = of.setdefault(chosen[0].index, (chosen[0], [], []))
                places.append(k)
                rows.append(chosen[1])
            for table, places, rows in of.values():
                yield self.record(table, transposed(rows, len(table.names)), numbers[places])

    def of_one_form(self, tuples: _Objects) -> list[_Objects] | None:
        """The columns of tuples; None where they have not all elements of the same types, or arrays."""
        if len(set(map(len, tuples))) > 1:
            return None
        columns = transposed(tuples, len(tuples[0]))
        for column in columns:
            kinds = set(map(type, column))
            if len(kinds) > 1 or category(kinds.pop()) is Category.ARRAY:
                return None
        return columns

    def record(self, table: Table, columns: Sequence[_Objects], numbers: Ints) -> _Group:
        return _Group(table, numbers, [_Column(values, numbers) for values in columns])

    # ---- the walk

    def visits(self) -> tuple[Ints, Ints]:
        """The visit of each object, and of each example."""
        bounds = np.cumsum([0, *map(len, self.parents)])
        size = np.ones(self.count, np.int64)
        for k in range(len(self.parents) - 1, 0, -1):
            above, begin, end = bounds[k - 1], bounds[k], bounds[k + 1]
            inside = np.bincount(self.parents[k] - above, size[begin:end], begin - above)
            size[above:begin] += inside.astype(np.int64)
        of_example = np.ones(len(self.walker.examples), np.int64)
        visit = np.empty(self.count, np.int64)
        for k, parents in enumerate(self.parents):
            mine = slice(bounds[k], bounds[k + 1])
            if k == 0:
                of_example[parents] += size[mine]
                starts = np.cumsum(of_example) - of_example
                visit[mine] = starts[parents] + 1
                continue
            before = np.cumsum(size[mine]) - size[mine]
            visit[mine] = visit[parents] + 1 + before - before[np.searchsorted(parents, parents)]
        return visit, np.cumsum(of_example) - of_example

    def fill(self, visit: Ints) -> None:
        """Put what is held into the tables, in the order of the visits."""
        of: dict[int, list[_Group]] = {}
        for group in self.groups:
            of.setdefault(group.table.index, []).append(group)
        for groups in of.values():
            table, at = groups[0].table, visit[np.concatenate([g.numbers for g in groups])]
            order = np.argsort(at) if len(groups) > 1 else None
            if table.kind is None:
                lengths = np.concatenate([g.lengths for g in groups if g.lengths is not None])
                if order is not None:
                    first, lengths = offsets_of(lengths)[:-1][order], lengths[order]
                    order = ranges(first, lengths)
                table.lengths.extend(lengths.tolist())
            for k in range(len(table.names)):
                values: _Objects = groups[0].columns[k].values
                targets = [targets_of(g.columns[k], visit) for g in groups]
                whole = targets[0]
                if order is not None:
                    values = _taken(list(chain.from_iterable(g.columns[k].values for g in groups)), order)
                    if any(t is not None for t in targets):
                        whole = np.concatenate(
                            [
                                np.full(len(g.columns[k].values), -1) if t is None else t
                                for g, t in zip(groups, targets, strict=True)
                            ]
                        )[order]
                table.put(k, values, whole)


def targets_of(column: _Column, visit: Ints) -> Ints | None:
    """The visits that values are; -1 for leaves."""
    if column.held is None or column.numbers is None:
        return None
    found = np.full(len(column.values), -1, np.int64)
    found[column.held] = visit[column.numbers]
    return found


def transposed(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """The columns of rows that are so wide; `zip` would make an iterator for each row."""
    flat = list(chain.from_iterable(rows))
    return [flat[k::width] for k in range(width)]


def _taken(values: Sequence[Any], order: Ints) -> list[Any]:
    """Values in another order."""
    found: list[Any] = np.fromiter(values, object, len(values))[order].tolist()
    return found
