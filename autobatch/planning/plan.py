"""Plans: the tables of a data set, made once, and those of a minibatch, cut from them (FRAMES.md, section 4).

In a `DataPlan` the rows of each example are contiguous in every space, and a pointer is (source, row within the
example). So a minibatch is ranges put one behind the other; `bind` then sorts rows by level, turns pointers into
positions in the arrays of the executable, and rounds every capacity up to a size class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of, ranges
from autobatch.data.tables import TableRequest
from autobatch.errors import Failure

Values = NDArray[Any]
K = TypeVar("K")
V = TypeVar("V")
Share = Literal["batch", "example"]
"""Which equal rows are one: all of them, or only those within one example."""


class OnDemand(Mapping[K, V]):
    """Entries with the keys of another mapping, each made when it is read first."""

    def __init__(self, keys: Mapping[K, Any], make: Callable[[K], V]) -> None:
        self._keys, self._make = keys, make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@dataclass(frozen=True)
class DataPlan:
    """The tables of some examples, for any of their minibatches.

    `starts[space]`: rows of example i are starts[i]:starts[i+1]. `columns[table]`: numbers. `pointers[table]`: (source,
    row within the example). `owners[table]`: of a fold's elements, the row that reads them. `levels[order]`: the level
    of each row. `data[column]`: what the device reads of the examples. `structure[k]`: the host's values of an output
    that is no number, one for each row of `structure_space[k]`; one that refers to rows of `targets[k]` counts from its
    example's first row, whose places are `stores`. `lengths[k]`: of an output that is a list, the lengths for each row
    of `lengths_space[k]`, and of the lists in it, whose rows are those of the spaces `lists[k]`. `numbers[space]`: for
    a space of distinct rows, which one each row of its base is. `equal[space]`: value numbers, for spaces whose equal
    rows are one. `made`: the space of the objects that the program makes. `origin`: the plan that this one was cut
    from, and its examples in that. `kept`: what binding has found out about this plan.
    """

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
    structure_space: Mapping[int, int]
    lengths: Mapping[int, tuple[Ints, ...]]
    lengths_space: Mapping[int, int]
    lists: Mapping[int, tuple[int, ...]]
    stores: Mapping[str, Ints]
    numbers: Mapping[int, Ints]
    equal: Mapping[int, Ints]
    targets: Mapping[int, str]
    made: int | None = None
    failures: tuple[Failure, ...] = ()
    share: Share = "batch"
    origin: tuple[DataPlan, Ints] | None = None
    kept: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        held = [*self.columns.values(), *self.owners.values(), *self.levels.values(), *self.data.values()]
        held += [a for pair in self.pointers.values() for a in pair]
        return sum(a.nbytes for a in held) + sum(int(k.nbytes) for k in self.kept.values())

    def take(self, chosen: Ints) -> DataPlan:
        """The plan of some of the examples; repeats are copies. Tables are cut when somebody reads them."""
        lengths = OnDemand(self.starts, lambda s: self.starts[s][chosen + 1] - self.starts[s][chosen])
        rows = OnDemand(self.starts, lambda s: ranges(self.starts[s][chosen], lengths[s]))
        starts = OnDemand(self.starts, lambda s: offsets_of(lengths[s]))
        where = self.space_of_table
        data_space = dict(self.request.data)
        pairs: dict[tuple[int, int], tuple[Ints, Ints]] = {}

        def pointers(table: str) -> tuple[Ints, Ints]:
            """Tables that are one stay one."""
            member, row = self.pointers[table]
            if (id(member), id(row)) not in pairs:
                mine = rows[where[table]]
                pairs[id(member), id(row)] = member[mine], row[mine]
            return pairs[id(member), id(row)]

        failed = {f.index: f for f in self.failures}
        numbered = enumerate(chosen.tolist()) if failed else ()
        failures = tuple(replace(failed[e], index=k) for k, e in numbered if e in failed)  # a repeat fails again
        root, inside = (self, chosen) if self.origin is None else (self.origin[0], self.origin[1][chosen])
        base = {d.space: d.base for d in self.request.distinct}
        return replace(
            self,
            count=len(chosen),
            starts=starts,
            columns=OnDemand(self.columns, lambda t: self.columns[t][rows[where[t]]]),
            pointers=OnDemand(self.pointers, pointers),
            owners=OnDemand(self.owners, lambda t: self.owners[t][rows[where[t]]]),
            levels=OnDemand(self.levels, lambda o: self.levels[o][rows[self.request.orders[o].space]]),
            data=OnDemand(self.data, lambda c: self.data[c][rows[data_space[c]]]),
            structure=OnDemand(self.structure, lambda k: self.structure[k][rows[self.structure_space[k]]]),
            lengths=OnDemand(self.lengths, lambda k: _cut_lengths(self.lengths[k], rows[self.lengths_space[k]])),
            equal=OnDemand(self.equal, lambda s: self.equal[s][rows[s]]),
            numbers=OnDemand(self.numbers, lambda s: self.numbers[s][rows[base[s]]]),
            stores=OnDemand(self.stores, lambda s: offsets_of(np.diff(self.stores[s])[chosen])),
            failures=failures,
            origin=(root, inside),
        )

    def sharing(self, share: Share) -> DataPlan:
        """The same plan, which shares equal rows in this way when it is bound."""
        if share == self.share:
            return self
        made = replace(self, share=share)
        object.__setattr__(made, "kept", self.kept)  # what has been found out holds for both, and is found out once
        return made

    def rows(self, space: int) -> int:
        return int(self.starts[space][-1])


def _cut_lengths(lengths: tuple[Ints, ...], rows: Ints) -> tuple[Ints, ...]:
    """The lengths of the lists of some rows, at every depth."""
    kept = []
    for held in lengths:
        kept.append(held[rows])
        rows = ranges(offsets_of(held)[rows], kept[-1])
    return tuple(kept)


def counts_of_lists(plan: DataPlan) -> dict[int, int]:
    """How many lists of results there are within others, by the space that they are rows of."""
    counts: dict[int, int] = {}
    for k, spaces in plan.lists.items():
        counts.update((space, len(n)) for space, n in zip(spaces, plan.lengths[k][1:], strict=True))
    return counts
