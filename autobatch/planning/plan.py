"""Plans: the tables of a data set, made once, and those of a minibatch, cut from them.

In a `DataPlan` the rows of each example are contiguous in every space, and a pointer is (source, row within the
example). So a minibatch is ranges put one behind the other; `bind` then sorts rows by level, turns pointers into
positions in the arrays of the executable, and rounds every capacity up to a size class.

A `Binding` is what that needs to know of the plan of a data set, found once: all integers of the plan as one `Stock`,
and for every table of the executable which of them it is made of.

    gather t@2 of members (A, B)     ->     table 3 of the stock: rows of A and B as rows of one joined space
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from statistics import NormalDist, fmean
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of, ranges
from autobatch.data.spec import UNIFORM, FoldRequest, GatherRequest, Signature, TableRequest, layout, relative
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


# ---- stock
#
# The integer tables of a data set's plan, from which a minibatch cuts its own.
#
#     starts (rows)      space A: 0 2 5     space B: 0 1 3          example 1 has the rows 2:5 of A and 1:3 of B
#     table over A       5 6 | 7 8 9        integers
#     table over B       0 | 1 0            rows of A within the example
#
#     cut([1, 0])        7 8 9 | 5 6        and      1 0 | 0+3      rows of A in the minibatch
#
# Tables over the same rows are cut by one gather; rows within an example become rows of the minibatch by adding where
# the example begins there. Spaces whose examples have as many rows each are one, and so are tables that hold the same
# (the rounds of a message passing have the same edges).


NOTHING = 0
"""The space without rows."""
NOWHERE = 2**30
"""The row of a pointer that means nothing: one past all rows, wherever its example begins."""


@dataclass(frozen=True)
class MinibatchTables:
    """The tables of a minibatch. `length[space]`: the rows of each example; `first[space]`: where they begin, and how
    many there are: `counts[space]`."""

    length: Ints
    first: Ints
    counts: list[int]
    tables: list[Ints]


class Stock:
    """Tables over spaces of rows, where the rows of each example are contiguous. Spaces and tables are numbered as they
    are added, equal ones once; then it is `closed`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._starts: list[Ints] = []
        self._spaces: dict[bytes, int] = {}
        self._values: list[Any] = []
        self._space: list[int] = []
        self._target: list[int] = []
        self._known: dict[tuple[int, int, bool, bytes], int] = {}
        self._numbers: list[int] = []
        self.size: list[int] = []
        self.add_space(np.zeros(count + 1, np.int64))

    def add_space(self, starts: Ints) -> int:
        """A space whose rows of example i are starts[i]:starts[i+1]."""
        number = self._spaces.setdefault(_digest(starts), len(self._starts))
        if number == len(self._starts):
            self._starts.append(starts)
        return number

    def starts_of(self, space: int) -> Ints:
        return self._starts[space]

    def add(self, values: NDArray[Any], space: int, target: int = NOTHING) -> int:
        """An integer for each row of `space`; with a `target` it is a row of that, counted within the example."""
        return self._table(values, space, target, False)

    def add_numbers(self, values: Ints, space: int) -> int:
        """Value numbers of the rows of `space`."""
        return self._table(values, space, NOTHING, True)

    def _table(self, values: NDArray[Any], space: int, target: int, numbers: bool) -> int:
        held = values.astype(np.int32)
        made = len(self._values)
        table = self._known.setdefault((space, target, numbers, _digest(held)), made)
        if table == made:
            self._values.append(held)
            self._space.append(space)
            self._target.append(target)
            self.size.append(1 + int(held.max(initial=-1)))
            if numbers:
                self._numbers.append(table)
        return table

    def closed(self) -> Stock:
        """Ready to cut: the tables over a space become the rows of one array."""
        self.starts = np.stack(self._starts)
        over: dict[int, list[int]] = {}
        for table, space in enumerate(self._space):
            over.setdefault(space, []).append(table)
        self._over = {space: (tables, np.stack([self._values[t] for t in tables])) for space, tables in over.items()}
        self._apart = frozenset(self._numbers)
        self._values.clear()
        return self

    def space_of(self, table: int) -> int:
        return self._space[table]

    def target_of(self, table: int) -> int:
        """The space that rows are counted in; NOTHING where the table holds other numbers."""
        return self._target[table]

    def held(self, table: int) -> tuple[NDArray[np.int32], int]:
        """The array whose row a table is, once the stock is closed; and which row."""
        members, held = self._over[self._space[table]]
        return held, members.index(table)

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + sum(held.nbytes for _, held in self._over.values())

    def cut(self, chosen: Ints, apart: bool = False) -> MinibatchTables:
        """The tables of some examples. `apart`: value numbers of different examples differ."""
        old = self.starts.take(chosen, 1)
        length = self.starts.take(chosen + 1, 1) - old
        first = np.zeros((len(length), len(chosen) + 1), np.int64)
        length.cumsum(1, out=first[:, 1:])
        begin, counts = first[:, :-1], first[:, -1].tolist()
        tables: list[Ints] = [first[0]] * len(self._space)  # each is replaced below
        for space, (members, held) in self._over.items():
            at = np.arange(counts[space])
            at += (old[space] - begin[space]).repeat(length[space])
            found = held.take(at, 1).astype(np.int64)
            shifts: dict[int, Ints] = {}
            for table, values in zip(members, found, strict=True):
                target = self._target[table]
                if apart and table in self._apart:
                    values += (np.arange(len(chosen)) * self.size[table]).repeat(length[space])
                elif target != NOTHING:
                    if target not in shifts:
                        shifts[target] = begin[target].repeat(length[space])
                    values += shifts[target]
                tables[table] = values
        return MinibatchTables(length, first, counts, tables)


def _digest(values: NDArray[Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()


def joined(starts: Sequence[Ints]) -> Ints:
    """The starts of the rows of several spaces, those of one example behind one another."""
    together: Ints = np.sum(np.stack(list(starts)), 0)
    return together


def before(starts: Sequence[Ints]) -> Ints:
    """[space, example]: how many rows of the spaces in front an example has."""
    lengths = np.stack([np.diff(s) for s in starts])
    found: Ints = np.cumsum(lengths, 0) - lengths
    return found


def joined_rows(member: Ints, row: Ints, before: Ints, example: Ints) -> Ints:
    """Rows of several spaces, which `member` chooses from, as rows of the joined space; both within their example."""
    found = row + before[np.maximum(member, 0), example]
    return np.where(member < 0, NOWHERE, found)


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
        """The steps that bind minibatches, by how these share rows (`bind.py`)."""
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


# ---- own arrays
#
# What an executable reads beside its integers: columns of 64 bits, data of examples, results that are structure.


Column = Callable[[Values, int], Values]
"""A column in the order of some rows."""


def own_arrays(plan: DataPlan, signature: Signature, column: Column) -> dict[str, Values]:
    """By name, as long as the capacity of their space."""
    return {**_wide(plan, signature, column), **_data(plan, signature), **_outputs(plan, signature)}


def _wide(plan: DataPlan, signature: Signature, column: Column) -> dict[str, Values]:
    """Columns of 64 bits."""
    tables = {}
    for name, order in plan.request.columns:
        if name in plan.request.wide:
            values = column(plan.columns[name], order)
            held = np.zeros(signature.capacity[plan.request.orders[order].space], np.int64)
            held[: len(values)] = values
            tables[f"{name}@{order}"] = held
    return tables


def _data(plan: DataPlan, signature: Signature) -> dict[str, Values]:
    """What the device reads of the examples themselves."""
    tables = {}
    for column, space in plan.request.data:
        values = plan.data[column]
        padded = np.zeros((signature.capacity[space], *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        tables[column] = padded
    return tables


def _outputs(plan: DataPlan, signature: Signature) -> dict[str, Values]:
    """Results that are structure: rows, and where lists begin."""
    tables = dict[str, Values]()
    for k, found in plan.structure.items():
        space = plan.structure_space[k]
        if k in plan.targets:
            example = np.repeat(np.arange(plan.count), np.diff(plan.starts[space]))
            found = relative(found, example, -plan.stores[plan.targets[k]])
        rows = _room(plan, signature, space)
        tables[f"result{k}"] = np.full((rows, *found.shape[1:]), -1, np.int32)
        tables[f"result{k}"][: len(found)] = found
    for k, lengths in plan.lengths.items():
        tables[f"offsets{k}"] = _offsets(lengths[0], _room(plan, signature, plan.lengths_space[k]))
        for depth, (inner, space) in enumerate(zip(lengths[1:], plan.lists.get(k, ()), strict=True), 1):
            tables[f"offsets{k}.{depth}"] = _offsets(inner, _room(plan, signature, space))
    if plan.made is not None:
        tables["made"] = plan.starts[plan.made].astype(np.int32)
    return tables


def _room(plan: DataPlan, signature: Signature, space: int) -> int:
    return plan.count if space == plan.request.example else signature.capacity[space]


def _offsets(lengths: Ints, rows: int) -> Values:
    """Where the lists of the rows of a space begin; those past the last row are empty."""
    offsets = np.full(rows + 1, lengths.sum(), np.int32)
    offsets[: len(lengths) + 1] = offsets_of(lengths)
    return offsets
