"""The arrays of one call: a plan's rows sorted by level, pointers as positions, everything padded to a size class.

What depends on the data set alone is in its `Binding`; this is done for each minibatch:

    cut          all integers of its examples, by one gather; pointers are rows of the minibatch then
    distinct     which rows are kept of equal ones
    orders       rows by level, and where each row lies then
    tables       columns and pointers in these orders, pointers as positions; the windows of each level

It is done by NumPy, or by steps that a machine takes (`backends/llvm/binding.py`). Steps are written once for a data
set, the rest once for each signature:

    opening     LENGTHS  CUT ...  DISTINCT ...  READ ...       how many rows each space has, which choose the size class
    rest        SORT  PLACE ...  GATHER ...  WINDOWS ...       all tables, for one signature
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints, offsets_of
from autobatch.data.spec import UNIFORM, LoopRequest, Signature, window_widths
from autobatch.planning.numbering import distinct_rows, inverse, stable_order
from autobatch.planning.plan import (
    STEP,
    Binding,
    DataPlan,
    Folded,
    Gathered,
    Pointers,
    Share,
    SizeClass,
    Usual,
    Values,
    bits,
    counts_of_lists,
    numbers_of_windows,
    own_arrays,
    windows,
)

Order = tuple[Ints | None, Ints | None]
"""The rows of an order, and where each row of its space lies among them; None: all rows as they are."""


FEW, SAMPLES = 8, 16
"""Minibatches of fewer examples differ too much to be foreseen; of more, so many random ones show what is usual."""


def bind_plan(
    plan: DataPlan, size_class: SizeClass, machine: StepMachine | None = None
) -> tuple[dict[str, Values], Signature]:
    """All integers in one array, and the data columns; and the signature of their shapes.

    `machine`: what binds minibatches, whose steps are written once for a data set; NumPy binds everything else."""
    root, chosen = plan.origin if plan.origin is not None else (plan, np.arange(plan.count))
    binding = root.kept.get("binding")
    if binding is None:
        binding = root.kept["binding"] = Binding(root)
    usual = _usual(binding, plan, root, machine)
    with closing(_binder(binding, plan, chosen, machine)) as binder:
        return binder.bind(size_class, usual)


def _binder(
    binding: Binding, plan: DataPlan, chosen: Ints, machine: StepMachine | None
) -> _TableBinder | SteppedBinder:
    if machine is None or plan.origin is None:
        return _TableBinder(binding, plan, chosen)
    return SteppedBinder(binding, plan, chosen, machine)


def _usual(binding: Binding, plan: DataPlan, root: DataPlan, machine: StepMachine | None) -> Usual | None:
    """What minibatches like this one have, where the data set holds several of them."""
    if plan.count < FEW or root.count < 2 * plan.count:
        return None
    key = plan.count, plan.share
    if key not in binding.usual:
        rng, samples, batches = np.random.default_rng(0), list[Mapping[int, int]](), root.count // plan.count
        while len(samples) < SAMPLES:  # whole epochs where these are short: their mean is that of the data set
            order = rng.permutation(root.count)[: batches * plan.count].reshape(batches, plan.count)
            for chosen in order[:SAMPLES]:
                sample = root.take(chosen).sharing(plan.share)
                with closing(_binder(binding, sample, chosen, machine)) as binder:
                    samples.append(binder.counts)
        spread = max((part for mean, part in binding.deviations if mean * plan.count > STEP), default=0.0)
        rest = (1 - plan.count / root.count) / plan.count  # of all examples, nothing is left to chance
        binding.usual[key] = Usual.of(samples, float(spread * np.sqrt(rest)), batches)
    return binding.usual[key]


def exact_outputs(plan: DataPlan, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of the outputs without capacity: as many rows as there are."""
    sizes = {f"result{k}": plan.rows(space) for k, space in plan.structure_space.items()}
    for k, (_, *inner) in plan.lengths.items():
        sizes[f"offsets{k}"] = plan.rows(plan.lengths_space[k]) + 1
        sizes.update((f"offsets{k}.{depth}", len(held) + 1) for depth, held in enumerate(inner, 1))
    return {name: tables[name][:rows] for name, rows in sizes.items()}


def _rows(values: Ints, rows: Ints | None) -> Ints:
    return values if rows is None else values.take(rows)


class _TableBinder:
    def __init__(self, binding: Binding, plan: DataPlan, chosen: Ints) -> None:
        self.b, self.plan, self.request = binding, plan, plan.request
        apart = plan.share == "example"
        self.cut = binding.stock.cut(chosen, apart)
        self.tables = self.cut.tables
        self.room = max(1, len(chosen)) if apart else 1
        self.distinct = {space: self.distinct_of(table) for space, table in binding.distinct.items()}
        self.equal = {space: self.distinct_of(table) for space, table in binding.equal.items()}
        self.read = {f.request.elements: self.elements_read(f) for f in binding.folds if self.space_of(f) in self.equal}
        self.counts = self.counted()
        self.orders = {n: self.order(n) for n in binding.orders}
        self.joined: dict[int, Ints] = {}

    def distinct_of(self, table: int) -> tuple[Ints, Ints]:
        return distinct_rows(self.tables[table], self.b.stock.size[table] * self.room)

    def space_of(self, fold: Folded) -> int:
        """The space whose rows read the runs of a fold."""
        return self.request.orders[fold.request.order].space

    def elements_read(self, fold: Folded) -> Ints:
        """The elements of the rows that are kept of equal ones."""
        space = self.space_of(fold)
        kept = np.zeros(self.cut.counts[self.b.space[space]], bool)
        kept[self.equal[space][0]] = True
        return kept.take(self.tables[fold.owner]).nonzero()[0]

    def counted(self) -> dict[int, int]:
        """The rows of each space that are computed."""
        counts = {space: self.cut.counts[number] for space, number in self.b.space.items()}
        for found in (self.equal, self.distinct):
            counts.update((space, len(first)) for space, (first, _) in found.items())
        counts.update((space, len(elements)) for space, elements in self.read.items())
        return counts | counts_of_lists(self.plan)

    def close(self) -> None:
        """Nothing is kept."""

    # ---- orders

    def order(self, n: int) -> Order:
        """Rows by level, of equal ones the first; an equal row lies where that lies."""
        first, which = self.equal.get(self.request.orders[n].space, (None, None))
        if n not in self.b.level:
            return first, which
        by_level = self.by_level(n, first)
        place = inverse(by_level)
        return (by_level, place) if first is None or which is None else (first.take(by_level), place.take(which))

    def by_level(self, n: int, rows: Ints | None) -> Ints:
        """How to sort rows by level; within one by the lengths of their runs, so that windows of folds waste little."""
        level = _rows(self.tables[self.b.level[n]], rows)
        folds = [f for f in self.b.folds if f.request.order == n]
        if not folds:
            return stable_order(level)
        count = self.cut.counts[self.b.space[self.request.orders[n].space]]
        lengths = np.sum([np.bincount(self.tables[f.owner], minlength=count) for f in folds], 0)
        return stable_order(level * (1 + lengths.max(initial=0)) + _rows(lengths, rows))

    # ---- tables

    def put(self, name: str, values: Any) -> None:
        start, length = self.places[name]
        assert len(values) <= length, (name, len(values), length)
        self.out[start : start + len(values)] = values

    def bind(self, size_class: SizeClass, usual: Usual | None) -> tuple[dict[str, Values], Signature]:
        self.signature = signature = Signature.of(self.request, self.plan.count, size_class(self.counts, usual))
        self.places, size = self.b.layout(signature)
        self.out = np.zeros(size, np.int32)
        for name, table, order in self.b.columns:
            self.put(name, self.column(self.tables[table], order))
        for d in self.request.distinct:
            for reader in d.readers:
                self.put(f"spread{d.space}@{reader}", _rows(self.distinct[d.space][1], self.orders[reader][0]))
        for g in self.b.gathers:
            index = self.index(g)
            for name in g.names:
                self.put(name, index)
        for f in self.b.folds:
            self.fold(f)
        for to, origin in self.request.permutations:
            self.put(f"perm{to}<{origin}", self.permutation(to, origin))
        self.put("levels", [self.loop(n, loop) for n, loop in enumerate(self.request.loops)])
        self.put("counts", [self.counts[s] for s in range(self.request.spaces)])
        return {"integers": self.out, **own_arrays(self.plan, signature, self.column)}, signature

    def column(self, values: Values, order: int) -> Values:
        """A column in the order of some rows; of distinct ones, where each stands first."""
        space = self.request.orders[order].space
        return _rows(values, self.distinct[space][0] if space in self.distinct else self.orders[order][0])

    def permutation(self, to: int, origin: int) -> Ints:
        rows, (_, position) = self.orders[to][0], self.orders[origin]
        if position is None:
            return np.arange(self.counts[self.request.orders[to].space]) if rows is None else rows
        return _rows(position, rows)

    # ---- pointers

    def index(self, g: Gathered) -> Ints:
        """For each row of an order: the position in the array that is gathered from."""
        return self.positions(g.pointers, _rows(self.tables[g.pointers.table], self.orders[g.order][0]))

    def positions(self, pointers: Pointers, rows: Ints) -> Ints:
        """Rows that pointers name, as positions in the array that is gathered from."""
        if pointers.joined is not None:
            found = self.joined.get(pointers.array)
            if found is None:
                found = self.joined[pointers.array] = self.positions_of_joined(pointers, pointers.joined)
            return found.take(rows, mode="clip")
        ((member, offset),) = self.members(pointers)
        if member == UNIFORM:
            return np.full(len(rows), offset)
        place = self.place(member)
        return (rows if place is None else place.take(rows)) + offset

    def members(self, pointers: Pointers) -> list[tuple[int, int]]:
        return pointers.members_in(self.request, self.signature.capacity)

    def place(self, order: int) -> Ints | None:
        """Where each row lies that pointers to an order count."""
        space = self.request.orders[order].space
        return self.distinct[space][1] if space in self.distinct else self.orders[order][1]

    def positions_of_joined(self, pointers: Pointers, joined: int) -> Ints:
        """The position of each row of several sources, those of one example behind one another; a last entry stands for
        pointers that mean nothing."""
        length, first = self.cut.length, self.cut.first
        found = np.zeros(self.cut.counts[joined] + 1, np.int64)
        begin = first[joined, :-1]
        for (member, offset), space in zip(self.members(pointers), pointers.spaces, strict=True):
            rows = np.arange(self.cut.counts[space])
            place = None if member == UNIFORM else self.place(member)
            values = offset if member == UNIFORM else (rows if place is None else place) + offset
            found[rows + (begin - first[space, :-1]).repeat(length[space])] = values
            begin = begin + length[space]
        return found

    def fold(self, fold: Folded) -> None:
        f = fold.request
        name, space = f"{f.name}@{f.order}", self.space_of(fold)
        position = self.orders[f.order][1]
        owner = self.tables[fold.owner]
        chosen = self.read.get(f.elements)  # the elements, in the order of the rows that read them; None: all
        at = _rows(owner, chosen) if position is None else position.take(_rows(owner, chosen))
        if position is not None or not fold.in_order:
            by_row = stable_order(at)
            at, chosen = at.take(by_row), by_row if chosen is None else chosen.take(by_row)
        self.put(f"{name}.start", offsets_of(np.bincount(at, minlength=self.signature.capacity[space])))
        self.put(f"{name}.index", self.positions(fold.pointers, _rows(self.tables[fold.pointers.table], chosen)))
        self.put(f"{name}.owner", at)
        if fold.weights:
            words = [_rows(self.tables[w], chosen) for w in fold.weights]
            self.put(f"{name}.weight", words[0] if len(words) == 1 else np.stack(words, 1).ravel())

    # ---- loops

    def loop(self, n: int, loop: LoopRequest) -> int:
        """The windows of one level loop; returns the number of levels."""
        levels = [_rows(self.tables[self.b.level[task]], self.orders[task][0]) for task in loop.tasks]
        deepest = max((int(level[-1]) + 1 for level in levels if len(level)), default=0)
        for task, costs, level in zip(loop.tasks, loop.costs, levels, strict=True):
            rows = np.bincount(level, minlength=deepest)
            self.put(f"loop{n}.{task}.end", rows.cumsum())
            self.windows(f"loop{n}.{task}", task, costs, rows)
        return deepest

    def windows(self, name: str, task: int, costs: tuple[float, ...], rows: Ints) -> None:
        """The windows of a task, for levels of so many rows."""
        widths = window_widths(self.request, self.signature, task)
        of = dict(zip(self.request.widths, costs, strict=True))
        words, firsts = windows(rows, widths, tuple(of[w] for w in widths))
        self.put(f"{name}.windows", words)
        self.put(f"{name}.firsts", firsts)


# ---- steps
#
# Steps: what binds a minibatch, written down once for a machine that takes all steps in one go.
#
# A step is twelve integers, `OP a b c ...`. Its operands are numbers, addresses, and registers: vectors of int32 that
# earlier steps have made. Register `NONE` is the vector that is not there, and means "all rows as they are".
#
#     LENGTHS  starts, spaces, examples             how many rows the chosen examples have, and where these begin
#     CUT      to, table, starts, space, target     a table of the chosen examples
#     ...
#     GATHER   start, room, stride, table, rows, place, offset       positions into the integers of the executable
#
# `backends/llvm/binding.py` is such a machine: one call of machine code where NumPy is called two thousand times.
# NumPy does the same for what is bound once, and where there is no machine; the tests compare both.


Steps = NDArray[np.int64]
"""[step, word]"""

NONE, LENGTH, FIRST = 0, 1, 2
"""Registers that no step makes but `LENGTHS`: LENGTH[space, example], and FIRST[space, example + 1]."""
WORDS = 12
"""Integers of a step."""


class StepOperation(enum.IntEnum):
    """What a step does. Operands are named in the order that they stand in; `to` is the register that is made."""

    LENGTHS = 0
    """starts, spaces, examples: LENGTH and FIRST of the chosen examples. starts: int64[spaces, examples + 1]."""
    CUT = 1
    """to, table, starts, space, target: the entries of `table` at the rows that the chosen examples have in `space`,
    and to each is added where its example begins in `target`."""
    DISTINCT = 2
    """to, numbers, size, space: the rows whose number stands in no row before them. `to + 1`: which of these each row
    equals. Rows of different examples differ where a `space` is given, not -1."""
    READ = 3
    """to, owner, first, which: the elements whose owner is one of its distinct rows."""
    ALL = 4
    """to, space: all rows of a space."""
    SORT = 5
    """to, keys, rows: the rows, stably, by their keys."""
    COUNT = 6
    """to, owner, space, more: how many elements each row of a space owns; `more`: `to` is there, and it is added."""
    PLACE = 7
    """to, order, first, which, space: where each row of a space lies in an order; an equal row, where that lies."""
    GATHER = 8
    """start, room, stride, table, rows, place, offset: out[start + i * stride] = place[table[rows[i]]] + offset."""
    FILL = 9
    """start, room, like, value: as many equal numbers as a register has."""
    JOIN = 10
    """to, space: positions of the rows of a joined space, which nobody has filled in. `to + 1`: where each example's
    next one lies."""
    MEMBER = 11
    """to, space, place, offset, one: the rows of one member of a joined space. `one`: all of them lie at `offset`."""
    MAP = 12
    """to, table, rows: table[rows[i]]."""
    STARTS = 13
    """start, room, owner, rows: where the elements of each owner begin among the rows, which lie in its order."""
    DEEPEST = 14
    """to, level, rows, more: one past the level of the last row, as the length of a register; `more`: or what that was,
    if it is more."""
    LEVELS = 15
    """to, start, room, level, rows, deepest: how many rows each level has, and where it ends among all."""
    WINDOWS = 16
    """levels, table, widths, count, bits, words, room, firsts: the windows of levels (`ops.py`)."""
    NUMBER = 17
    """start, register: the length of a register."""


class StepMachine(Protocol):
    """What takes steps. Returns 0, or why it stopped."""

    def __call__(self, steps: Steps, state: StepState, chosen: NDArray[np.int64], out: NDArray[np.int32]) -> int: ...


FULL, TOO_LONG = 1, 2
"""Why a machine stops: the arena is full; a table is longer than its room."""

_arenas: list[NDArray[np.int32]] = []
"""Those that nobody uses."""
FIRST_ROOM = 1 << 18


@dataclass
class StepState:
    """What a machine works on: registers, int64[register, 2] of address and length, and the arena that they are in."""

    registers: NDArray[np.int64]
    arena: NDArray[np.int32]
    used: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def of(cls, registers: int) -> StepState:
        """With an arena that others have used before, where there is one."""
        arena = _arenas.pop() if _arenas else np.empty(FIRST_ROOM, np.int32)
        return cls(np.zeros((registers, 2), np.int64), arena)

    def give_back(self) -> None:
        _arenas.append(self.arena)

    def more(self, registers: int) -> None:
        """Room for so many registers; those that are there stay."""
        if registers > len(self.registers):
            held = np.zeros((registers, 2), np.int64)
            held[: len(self.registers)] = self.registers
            self.registers = held

    def grow(self) -> None:
        """Twice the arena, of which nothing is used."""
        self.arena = np.empty(2 * len(self.arena), np.int32)
        self.used[0] = 0

    def totals(self, examples: int) -> list[int]:
        """The rows of each space of the stock, once LENGTHS has been taken."""
        found: list[int] = self.vector(FIRST).reshape(-1, examples + 1)[:, -1].tolist()
        return found

    def length(self, register: int) -> int:
        return int(self.registers[register, 1])

    def vector(self, register: int) -> NDArray[np.int64]:
        """A copy of a register."""
        address, length = self.registers[register].tolist()
        begin = (address - self.arena.ctypes.data) // 4
        return self.arena[begin : begin + length].astype(np.int64)


class StepWriter:
    """Writes steps."""

    def __init__(self, registers: int = FIRST + 1) -> None:
        self.steps: list[Sequence[int]] = []
        self.registers = registers

    def put(self, op: StepOperation, *operands: int) -> None:
        assert len(operands) < WORDS
        self.steps.append((op, *operands))

    def make(self, op: StepOperation, *operands: int, registers: int = 1) -> int:
        """A step that makes a register, or several; returns the first."""
        to = self.registers
        self.registers += registers
        self.put(op, to, *operands)
        return to

    def written(self) -> Steps:
        found = np.zeros((len(self.steps), WORDS), np.int64)
        for row, step in zip(found, self.steps, strict=True):
            row[: len(step)] = step
        return found


def address_of(array: NDArray[Any], row: int = 0) -> int:
    """Of a row of an array that somebody keeps."""
    assert array.flags.c_contiguous or (array.ndim == 2 and array.strides[1] == array.itemsize)
    return int(array.ctypes.data) + row * array.strides[0]


@dataclass(frozen=True)
class OrderRegisters:
    """Registers: the rows of an order, and where each row of its space lies among them. NONE: all rows as they are."""

    rows: int
    place: int


class Opening:
    """The steps up to the counts of rows. `counted`: the register of each space that is as long; `spaces`: the spaces
    of the stock that tell for others."""

    def __init__(self, binding: Binding, share: Share) -> None:
        self.b, self.request = binding, binding.request
        w = self.writer = StepWriter()
        stock = binding.stock
        w.put(StepOperation.LENGTHS, address_of(stock.starts), len(stock.starts), stock.count)
        self.tables = [self.cut(table) for table in range(len(stock.size))]
        self.distinct = {space: self.distinct_of(table, share) for space, table in binding.distinct.items()}
        self.equal = {space: self.distinct_of(table, share) for space, table in binding.equal.items()}
        self.read = {f.request.elements: self.elements_read(f) for f in binding.folds if self.space_of(f) in self.equal}
        firsts = {space: first for found in (self.equal, self.distinct) for space, first in found.items()}
        self.counted = {**firsts, **self.read}
        self.steps = w.written()
        self.rests: dict[Signature, Rest] = {}

    def cut(self, table: int) -> int:
        stock = self.b.stock
        space, target = stock.space_of(table), stock.target_of(table)
        held, row = stock.held(table)
        return self.writer.make(
            StepOperation.CUT, address_of(held, row), address_of(stock.starts, space), space, target
        )

    def distinct_of(self, table: int, share: Share) -> int:
        """The register of the distinct rows; the next one says which of them each row equals."""
        stock = self.b.stock
        space = stock.space_of(table) if share == "example" else -1
        return self.writer.make(StepOperation.DISTINCT, self.tables[table], stock.size[table], space, registers=2)

    def space_of(self, fold: Folded) -> int:
        """The space whose rows read the runs of a fold."""
        return self.request.orders[fold.request.order].space

    def elements_read(self, fold: Folded) -> int:
        first = self.equal[self.space_of(fold)]
        return self.writer.make(StepOperation.READ, self.tables[fold.owner], first, first + 1)

    def counts(self, state: StepState, plan: DataPlan) -> dict[int, int]:
        """The rows of each space that are computed."""
        totals = state.totals(plan.count)
        counts = {space: totals[number] for space, number in self.b.space.items()}
        counts.update((space, state.length(register)) for space, register in self.counted.items())
        return counts | counts_of_lists(plan)

    def rest(self, signature: Signature) -> Rest:
        if signature not in self.rests:
            self.rests[signature] = Rest(self, signature)
        return self.rests[signature]


class Rest:
    """The steps for one signature, and how long the integers are."""

    def __init__(self, opening: Opening, signature: Signature) -> None:
        self.o, self.b, self.request, self.signature = opening, opening.b, opening.request, signature
        self.tables, self.read = opening.tables, opening.read
        self.places, self.size = self.b.layout(signature)
        self.w = StepWriter(opening.writer.registers)
        self.kept: list[Ints] = []
        """Arrays that steps have the address of."""
        self.joined: dict[int, int] = {}
        self.orders = {n: self.order(n) for n in self.b.orders}
        for name, table, order in self.b.columns:
            self.gather(name, self.tables[table], self.rows_of_column(order))
        for d in self.request.distinct:
            for reader in d.readers:
                self.gather(f"spread{d.space}@{reader}", opening.distinct[d.space] + 1, self.orders[reader].rows)
        for g in self.b.gathers:
            for name in g.names:
                self.index(name, g.pointers, self.orders[g.order].rows)
        for f in self.b.folds:
            self.fold(f)
        for to, origin in self.request.permutations:
            self.permutation(to, origin)
        for n, loop in enumerate(self.request.loops):
            self.loop(n, loop.tasks, loop.costs)
        self.steps = self.w.written()
        self.registers = self.w.registers

    # ---- orders

    def order(self, n: int) -> OrderRegisters:
        space = self.request.orders[n].space
        first, which = (self.o.equal[space], self.o.equal[space] + 1) if space in self.o.equal else (NONE, NONE)
        if n not in self.b.level:
            return OrderRegisters(first, which)
        number, rows = self.b.space[space], first
        folds = [f for f in self.b.folds if f.request.order == n]
        if folds:
            lengths = self.w.make(StepOperation.COUNT, self.tables[folds[0].owner], number, 0)
            for f in folds[1:]:
                self.w.put(StepOperation.COUNT, lengths, self.tables[f.owner], number, 1)
            rows = self.w.make(StepOperation.SORT, lengths, rows)
        rows = self.w.make(StepOperation.SORT, self.tables[self.b.level[n]], rows)
        return OrderRegisters(rows, self.w.make(StepOperation.PLACE, rows, first, which, number))

    def rows_of_column(self, order: int) -> int:
        space = self.request.orders[order].space
        return self.o.distinct.get(space, self.orders[order].rows)

    def place(self, order: int) -> int:
        """Where each row lies that pointers to an order count."""
        space = self.request.orders[order].space
        return self.o.distinct[space] + 1 if space in self.o.distinct else self.orders[order].place

    # ---- tables

    def gather(self, name: str, table: int, rows: int, place: int = NONE, offset: int = 0) -> None:
        start, room = self.places[name]
        self.w.put(StepOperation.GATHER, start, room, 1, table, rows, place, offset)

    def permutation(self, to: int, origin: int) -> None:
        rows, place = self.orders[to].rows, self.orders[origin].place
        if rows == NONE:
            rows = self.w.make(StepOperation.ALL, self.b.space[self.request.orders[to].space])
        self.gather(f"perm{to}<{origin}", NONE, rows, place)

    def members(self, pointers: Pointers) -> list[tuple[int, int]]:
        return pointers.members_in(self.request, self.signature.capacity)

    def index(self, name: str, pointers: Pointers, rows: int) -> None:
        """For each of the rows: the position in the array that is gathered from."""
        table = self.tables[pointers.table]
        if pointers.joined is not None:
            if pointers.array not in self.joined:
                self.joined[pointers.array] = self.positions_of_joined(pointers, pointers.joined)
            self.gather(name, table, rows, self.joined[pointers.array])
            return
        ((member, offset),) = self.members(pointers)
        if member == UNIFORM:
            self.w.put(StepOperation.FILL, *self.places[name], rows if rows != NONE else table, offset)
        else:
            self.gather(name, table, rows, self.place(member), offset)

    def positions_of_joined(self, pointers: Pointers, joined: int) -> int:
        found = self.w.make(StepOperation.JOIN, joined, registers=2)
        for (member, offset), space in zip(self.members(pointers), pointers.spaces, strict=True):
            place = NONE if member == UNIFORM else self.place(member)
            self.w.put(StepOperation.MEMBER, found, space, place, offset, member == UNIFORM)
        return found

    def fold(self, fold: Folded) -> None:
        f = fold.request
        name, position = f"{f.name}@{f.order}", self.orders[f.order].place
        owner = self.tables[fold.owner]
        rows = self.read.get(f.elements, NONE)  # the elements, in the order of the rows that read them
        at = owner if position == NONE else self.w.make(StepOperation.MAP, position, owner)
        if position != NONE or not fold.in_order:
            rows = self.w.make(StepOperation.SORT, at, rows)
        start, room = self.places[f"{name}.start"]
        self.w.put(StepOperation.STARTS, start, room, at, rows)
        self.index(f"{name}.index", fold.pointers, rows)
        self.gather(f"{name}.owner", at, rows)
        for k, weight in enumerate(fold.weights):
            start, room = self.places[f"{name}.weight"]
            self.w.put(StepOperation.GATHER, start + k, room, len(fold.weights), self.tables[weight], rows, NONE, 0)

    # ---- loops

    def loop(self, n: int, tasks: tuple[int, ...], costs: tuple[tuple[float, ...], ...]) -> None:
        """The windows of one level loop."""
        levels = [(self.tables[self.b.level[task]], self.orders[task].rows) for task in tasks]
        deepest = self.w.make(StepOperation.DEEPEST, *levels[0], 0)
        for level in levels[1:]:
            self.w.put(StepOperation.DEEPEST, deepest, *level, 1)
        self.w.put(StepOperation.NUMBER, self.places["levels"][0] + n, deepest)
        for task, cost, level in zip(tasks, costs, levels, strict=True):
            name = f"loop{n}.{task}"
            rows = self.w.make(StepOperation.LEVELS, *self.places[f"{name}.end"], *level, deepest)
            widths = window_widths(self.request, self.signature, task)
            of = dict(zip(self.request.widths, cost, strict=True))
            width, table = numbers_of_windows(widths, tuple(of[w] for w in widths))
            self.kept += [width, table]
            words, room = self.places[f"{name}.windows"]
            firsts, _ = self.places[f"{name}.firsts"]
            kinds = len(widths)
            addresses = address_of(table), address_of(width)
            self.w.put(StepOperation.WINDOWS, rows, *addresses, kinds, bits(kinds), words, room, firsts)


class SteppedBinder:
    """Binds one minibatch. The machine has taken the opening steps when it is made."""

    def __init__(self, binding: Binding, plan: DataPlan, chosen: Ints, machine: StepMachine) -> None:
        self.b, self.plan, self.machine = binding, plan, machine
        self.chosen = np.ascontiguousarray(chosen, np.int64)
        if plan.share not in binding.openings:
            binding.openings[plan.share] = Opening(binding, plan.share)
        self.opening: Opening = binding.openings[plan.share]
        self.state = StepState.of(self.opening.writer.registers)
        self.nothing = np.zeros(0, np.int32)
        while not self.open():
            self.state.grow()
        self.counts = self.opening.counts(self.state, plan)

    def open(self) -> bool:
        """Take the opening steps; False where the arena is full."""
        return self.take(self.opening.steps, self.nothing)

    def take(self, steps: Steps, out: NDArray[np.int32]) -> bool:
        status = self.machine(steps, self.state, self.chosen, out)
        assert status in (0, FULL), "a table is longer than its room"
        return status == 0

    def close(self) -> None:
        self.state.give_back()

    def bind(self, size_class: SizeClass, usual: Usual | None) -> tuple[dict[str, Values], Signature]:
        signature = Signature.of(self.plan.request, self.plan.count, size_class(self.counts, usual))
        rest = self.rest = self.opening.rest(signature)
        self.state.more(rest.registers)
        out = np.zeros(rest.size, np.int32)
        while not self.take(rest.steps, out):
            self.state.grow()
            while not self.open():
                self.state.grow()
        start, _ = rest.places["counts"]
        out[start : start + len(self.counts)] = [self.counts[s] for s in range(self.plan.request.spaces)]
        return {"integers": out, **own_arrays(self.plan, signature, self.column)}, signature

    def column(self, values: Values, order: int) -> Values:
        """A column in the order of some rows; of distinct ones, where each stands first."""
        rows = self.rest.rows_of_column(order)
        return values if rows == NONE else values.take(self.state.vector(rows))
