"""Plans: the tables of a data set, made once, and those of a minibatch, cut from them.

In a `DataPlan` the rows of each example are contiguous in every space, and a pointer is (source, row within the
example). So a minibatch is ranges put one behind the other; `bind` then sorts rows by level, turns pointers into
positions in the arrays of the executable, and rounds every capacity up to a size class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from statistics import NormalDist, fmean
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of, ranges
from autobatch.data.spec import TableRequest
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


# ---- size classes
#
# Size classes: the capacities of the arrays of one executable.


SPREAD = 4.0
"""Standard deviations beyond which a minibatch is not one of random examples."""
MISSED = 0.005
"""How likely an epoch may have no minibatch of a class that later ones have."""
STEP = 16
"""Capacities are multiples of this, so that vectors and tiles are whole. There is always room for so many rows: spaces
that have no more do not decide which class a batch is in."""
MOST = 1.1
"""Standard deviations at which two classes waste least on average, if there is one at `SPREAD`."""


@dataclass(frozen=True)
class Usual:
    """Minibatches of so many random examples of a data set. `rows`: those of each space on average. `levels`: for what
    multiples of these there is `room`, in the order of the spaces; fewer than `least` times as many are no random
    examples."""

    rows: Mapping[int, float]
    levels: tuple[float, ...]
    room: tuple[tuple[int, ...], ...]
    least: float

    @classmethod
    def of(cls, samples: Sequence[Mapping[int, int]], spread: float, batches: int) -> Usual:
        """`samples` are the rows of some minibatches, of which an epoch has `batches`; `spread` is their deviation as a
        part of the mean. The last level holds practically all; a lower one, for what is small enough, is made where an
        epoch is long enough to meet both: so that nothing is compiled later."""
        rows = {s: max(1.0, fmean(c[s] for c in samples)) for s in samples[0]}
        mean = fmean(_load(rows, c) for c in samples)
        often = 1 - MISSED ** (1 / batches)  # how often the higher level has to be met
        low = min(MOST, NormalDist().inv_cdf(1 - often))
        levels = (low, SPREAD) if low > 0 else (SPREAD,)
        found = tuple(mean + k * spread for k in levels)
        room = tuple(tuple(max(STEP, multiple(rows[s] * level)) for s in sorted(rows)) for level in found)
        return cls(rows, found, room, mean - SPREAD * spread)


SizeClass = Callable[[Mapping[int, int], Usual | None], tuple[int, ...]]
"""The capacities for the rows of a batch, given what is usual."""


def multiple(rows: float) -> int:
    """The least capacity of so many rows."""
    return -(-ceil(rows) // STEP) * STEP


def eighths(rows: int) -> int:
    """A capacity for so many rows that is larger by an eighth at most."""
    step = 1 << max(rows.bit_length() - 4, 0)
    return max(-(-rows // step) * step, 1)


def _load(rows: Mapping[int, float], counts: Mapping[int, int]) -> float:
    """How many times the `rows` a batch has: in the space that has most of them."""
    return max((n / rows[s] for s, n in counts.items() if n > STEP), default=0.0)


class SizeClasses:
    """Capacities of the spaces of one program, rounded up together.

    Minibatches of random examples of a data set, which are the most, have classes of their own (`Usual`). For others, a
    profile is the rows that each space has per unit; a batch of any data set takes the least number of units, from a
    geometric series, that holds it. A batch that no profile fits well makes a new one. Spaces of `least` rows or fewer,
    of which there is always room, count for nothing: single examples differ in how many more rows others have.
    `regular`: all examples have equally many rows, so that the number of examples says it all."""

    FIRST, DOUBLED, RATIO = 128, 1024, 1.25
    """The least units, up to which units they double, and the ratio beyond: of few rows, executables are saved."""
    WASTE = 1.5

    def __init__(self, least: int, regular: bool = False) -> None:
        self.regular, self.least = regular, least if regular else multiple(least)
        self.profiles: list[dict[int, float]] = []

    def capacities(self, counts: Mapping[int, int], usual: Usual | None = None) -> tuple[int, ...]:
        """`usual`: what minibatches of as many examples of the data set have, where this is known."""
        if self.regular:
            return tuple(max(self.least, eighths(counts[s])) for s in sorted(counts))
        if usual is not None:
            load = _load(usual.rows, counts)
            for level, room in zip(usual.levels, usual.room, strict=True):
                if usual.least <= load <= level:
                    return room if self.least <= STEP else tuple(max(self.least, n) for n in room)
        rows = max(1, sum(counts.values()))
        options = [self.fit(p, counts) for p in self.profiles]
        best = min(options, key=sum, default=None)
        if best is None or sum(best) > self.WASTE * rows + len(counts) * self.least * 2:
            self.profiles.append({s: max(n, 1) / rows for s, n in counts.items()})
            best = self.fit(self.profiles[-1], counts)
        return best

    def fit(self, profile: Mapping[int, float], counts: Mapping[int, int]) -> tuple[int, ...]:
        units = max((n / profile[s] for s, n in counts.items() if n > self.least), default=0.0)
        size = float(self.FIRST)
        while size < units:
            size *= 2 if size < self.DOUBLED else self.RATIO
        return tuple(max(self.least, multiple(profile[s] * size)) for s in sorted(counts))


# ---- windows
#
# Windows: how a level of n rows is cut into pieces of fixed widths.
#
# The last window of a level is shifted back over rows that are finished, so nothing past the level is written where the
# space has enough rows before it.


@lru_cache(maxsize=65536)
def cover(rows: int, widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[int, ...]:
    """The cheapest windows that hold `rows` rows, widest first; `widths` descend, `costs` are those of one window."""
    widest = widths[0]
    if rows <= 0:
        return ()
    if rows > 2 * widest:
        full = rows // widest - 1
        return (widest,) * full + cover(rows - full * widest, widths, costs)
    return _covers(2 * widest, widths, costs)[rows]


@lru_cache(maxsize=1024)
def _covers(most: int, widths: tuple[int, ...], costs: tuple[float, ...]) -> list[tuple[int, ...]]:
    """The cheapest windows for each number of rows up to `most`, by dynamic programming."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for n in range(1, most + 1):
        rests = [(best[max(0, n - w)], w, c) for w, c in zip(widths, costs, strict=True)]
        best.append(min((rest[0] + c, (*rest[1], w)) for rest, w, c in rests))
    return [tuple(sorted(windows, reverse=True)) for _, windows in best]


@lru_cache(maxsize=1024)
def numbers_of_windows(widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[Ints, Ints]:
    """All widths, and how many windows of each cover each number of rows up to twice the widest: [rows, width]."""
    covers = [cover(n, widths, costs) for n in range(2 * widths[0] + 1)]
    return np.array(widths, np.int64), np.array([[windows.count(w) for w in widths] for windows in covers], np.int64)


class Windows(NamedTuple):
    """The windows of the levels of one task, level by level, the widest of a level first. `words`: the first row of
    each, and which width it has (`of_word`). `firsts`: where those of each level begin, and how many there are."""

    words: Ints
    firsts: Ints


def bits(widths: int) -> int:
    """How many bits say which of so many widths a window has."""
    return (widths - 1).bit_length()


def of_word(words: Any, widths: int) -> tuple[Any, Any]:
    """The first row and the width, as a position, that words say, of NumPy or of JAX."""
    shift = bits(widths)
    return words >> shift, words & ((1 << shift) - 1)


def windows(rows: Ints, widths: tuple[int, ...], costs: tuple[float, ...]) -> Windows:
    """The windows of levels of so many rows, which lie one behind the other. `costs` are those of a window of each
    width."""
    width, table = numbers_of_windows(widths, costs)
    few, widest = rows, widths[0]
    if np.maximum.reduce(rows, initial=0) > 2 * widest:
        few = np.where(rows > 2 * widest, rows % widest + widest, rows)
    number = table.take(few, 0)  # [level, width]
    if few is not rows:
        number[:, 0] += (rows - few) // widest
    end, covered, flat = rows.cumsum()[:, None], number * width, number.ravel()
    before = flat.cumsum()
    firsts = np.zeros(len(rows) + 1, np.int64)
    firsts[1:] = before[len(widths) - 1 :: len(widths)]
    before -= flat
    begin = covered.cumsum(1)
    begin += (end - rows[:, None]) - covered  # behind the wider windows of the level
    begin -= width * before.reshape(number.shape)  # so that windows count from the first of all
    of = np.arange(flat.size).repeat(flat)
    kind = of % len(widths)
    starts = np.arange(len(of)) * width.take(kind) + begin.ravel().take(of)
    np.minimum(starts, (end - width).ravel().take(of), out=starts)
    np.maximum(starts, 0, out=starts)
    return Windows((starts << bits(len(widths))) | kind, firsts)
