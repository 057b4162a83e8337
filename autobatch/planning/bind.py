"""The arrays of one call: a plan's rows sorted by level, pointers as positions, everything padded to a size class.

What depends on the data set alone is in its `Binding`; this is done for each minibatch:

    cut          all integers of its examples, by one gather; pointers are rows of the minibatch then
    distinct     which rows are kept of equal ones
    orders       rows by level, and where each row lies then
    tables       columns and pointers in these orders, pointers as positions; the windows of each level
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np

from autobatch.data.columns import Ints, offsets_of
from autobatch.data.spec import UNIFORM, LoopRequest, Signature, window_widths
from autobatch.planning.binding import Binding, Folded, Gathered, Pointers, Values, own_arrays
from autobatch.planning.numbering import distinct_rows, inverse, stable_order
from autobatch.planning.plan import STEP, DataPlan, SizeClass, Usual, counts_of_lists, windows
from autobatch.planning.stepped import StepMachine, SteppedBinder

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
