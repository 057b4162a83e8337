"""The rows of a batch of traces: as columns of the examples of the program over them, and some of them as objects.

    class 2 (mul): instances 0, 2 of example 0      Compound0.#tag    0  0
    slot 0 of it: number 0.5, result 0 of 0    ->   Compound0.a2_0    Number 0, Compound0 0       rows of their stores

What is known of a structure says which columns there are; so they are filled for all examples at once. Objects are made
of those runs alone that showed something new, for their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from autobatch.call.tracing.classes import Instances, OpClass, OperandSlot, OperationClasses, is_given, is_list
from autobatch.call.tracing.log import GIVEN, NUMBERS, ROWS
from autobatch.call.tracing.source import Compounds, TracedRow, TraceSource, number_name
from autobatch.data.columns import ROOT, Columns, Ints, columns_of, has_mask, host_dtype, offsets_of, ranges, unfilled
from autobatch.data.schema import Field, Schema, Store
from autobatch.ir.core import Array, List, Ref
from autobatch.planning.numbering import stable_order

SOURCE, ROW = "source_", "row_"
"""What stands before the name of a field that is a number of the example, in those that say where it lies."""


def is_moving(slot: OperandSlot) -> bool:
    """Is it a number that may lie in the examples?"""
    return isinstance(slot.type[1], np.dtype) and slot.type[1].kind in "fcV"


def split(word: int) -> tuple[int, int]:
    """Where a number lies: its column and row; -1 where it lies in none."""
    return divmod(word - GIVEN, 1 << ROWS) if is_given(word) else (-1, 0)


@cache
def _zero(shape: tuple[int, ...], dtype: Any) -> Any:
    made = np.zeros(shape, dtype)
    return made if shape else made[()]


def held(value: Any, slot: OperandSlot) -> Any:
    """A number as a field of a row."""
    if isinstance(value, str):
        return value
    made = np.asarray(value, slot.type[1])
    return made if made.shape else made[()]


class _Reading:
    """What entries of a batch refer to."""

    def __init__(self, classes: OperationClasses, compounds: Compounds, source: TraceSource, found: Instances) -> None:
        self.classes, self.compounds, self.source, self.found = classes, compounds, source, found
        self.group = compounds.rows_of(classes, found)
        self.inner = {(producer, out, classes.first[c] + j) for producer, out, c, j in compounds.inner}

    def is_read(self, slot: OperandSlot) -> bool:
        """Do rows hold anything for a slot?"""
        return slot.fixed is None and not slot.is_constant

    def target(self, c: OpClass, j: int, producer: int, out: int) -> str | None:
        """The class of rows that a result is read as; an empty string for the row of its compound, and None where it
        is read in no row."""
        slot = c.slots[j]
        if self.classes.all[producer].uniform:
            return f"Uniform{producer}_{out}" if len(slot.producers) > 1 or slot.numbers else None
        if (producer, out, self.classes.first[c.number] + j) in self.inner:
            return None
        compound = self.compounds.of_class[producer]
        if self.source.pools.is_ambiguous(self.source.pools(c, j), compound):
            return f"Result{compound.number}_{compound.outs[producer, out]}"
        return ""


# ---- objects


def examples(classes: OperationClasses, compounds: Compounds, source: TraceSource, found: Instances) -> list[TracedRow]:
    """The rows of a batch, as one object for each example, its root."""
    return _Objects(classes, compounds, source, found).make()


class _Objects(_Reading):
    def make(self) -> list[TracedRow]:
        found, made = self.found, dict[int, TracedRow]()

        def row(k: int) -> TracedRow:
            g = int(self.group[k])
            if g not in made:
                compound = self.compounds.of_class[int(found.classes[k])]
                made[g] = self.source.rows[f"Compound{compound.number}"]()
            return made[g]

        for k in np.flatnonzero(self.group >= 0).tolist():
            c = self.classes.all[found.classes[k]]
            for j, slot in enumerate(c.slots):
                if is_list(slot) and slot.producers:
                    row(k).__dict__[f"l{c.number}_{j}"] = []
        for e in range(len(found.owner)):
            k = int(found.owner[e])
            if self.group[k] >= 0:
                c = self.classes.all[found.classes[k]]
                self._put(row(k), c, int(found.slot[e]) - self.classes.first[c.number], e, row)
        return [row(k) for k in found.roots.tolist()]

    def _put(self, at: TracedRow, c: OpClass, j: int, entry: int, row: Callable[[int], TracedRow]) -> None:
        found, slot, k = self.found, c.slots[j], int(self.found.producer[entry])
        if not self.is_read(slot):
            return
        if found.element[entry]:
            at.__dict__[f"l{c.number}_{j}"].append(row(k))
        elif slot.is_data:
            self._number(at, f"k{c.number}_{j}", entry, slot)
        elif k < 0:
            number = at.__dict__[f"a{c.number}_{j}"] = self.source.rows[number_name(slot.type)]()
            self._number(number, "value", entry, slot)
        else:
            target = self.target(c, j, int(found.classes[k]), int(found.out[entry]))
            if target == "":
                at.__dict__[f"a{c.number}_{j}"] = row(k)
            elif target is not None:
                picked = at.__dict__[f"a{c.number}_{j}"] = self.source.rows[target]()
                if target.startswith("Result"):
                    picked.__dict__["of"] = row(k)

    def _number(self, at: TracedRow, name: str, entry: int, slot: OperandSlot) -> None:
        """A number as a field of a row, and where it lies: what lies in a column is zero here."""
        word = int(self.found.word[entry])
        at.__dict__[name] = _zero(*slot.type) if is_given(word) else held(self.found.value(entry), slot)
        if is_moving(slot):
            at.__dict__[SOURCE + name], at.__dict__[ROW + name] = split(word)


# ---- columns


class OtherTypesError(Exception):
    """Columns of the types that are known cannot hold these rows."""


def columns(
    classes: OperationClasses,
    compounds: Compounds,
    source: TraceSource,
    found: Instances,
    schema: Schema,
    failed: Sequence[bool],
) -> Columns:
    """The rows of a batch as columns. `failed`: of all examples, those that `found` does not have.

    Raises OtherTypesError where the schema has no room for them."""
    which = np.flatnonzero(~np.array(failed, np.bool_))
    return _Filling(classes, compounds, source, found, schema, which, len(failed)).make()


@dataclass
class _Block:
    """Rows of one class: the example of each, in order, and the row that each is (`place`)."""

    position: int
    example: Ints
    place: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class _FieldLists:
    """Lists of one field: of each row, how many elements, and the rows that the elements are."""

    owner: _Block
    name: str
    lengths: Ints
    elements: Ints


class _Filling(_Reading):
    """Fills columns. First come blocks of rows, which say how many there are; then their places; then their fields."""

    def __init__(
        self, classes: OperationClasses, compounds: Compounds, source: TraceSource, found: Instances, schema: Schema,
        which: Ints, count: int,
    ) -> None:  # fmt: skip
        super().__init__(classes, compounds, source, found)
        self.schema, self.which, self.count = schema, which, count
        self.example = which[found.run]
        self.stores: dict[str, tuple[Store, int]] = {}
        for store in schema.stores:
            for k, c in enumerate(store.classes):
                self.stores[c.name] = store, k
        self.blocks: dict[str, list[_Block]] = {store.name: [] for store in schema.stores}
        self.lists: dict[str, list[_FieldLists]] = {store.name: [] for store in schema.lists}
        self.fills: list[Callable[[], None]] = []
        self.arrays: dict[str, Any] = {}
        self.starts: dict[str, Ints] = {}

    def make(self) -> Columns:
        found = self.found
        self.row_of = np.full(len(found.classes), -1)  # the place of the row of each instance
        self.of_class = _grouped(found.classes, len(self.classes.all))
        compound_rows = [self._compound(k) for k in range(len(self.compounds.all))]
        of_slot = _grouped(found.slot, len(self.classes.slots))
        for c in self.classes.all:
            if c.uniform or not len(self.of_class[c.number]):
                continue
            block = compound_rows[self.compounds.of_class[c.number].number]
            for j, slot in enumerate(c.slots):
                if self.is_read(slot):
                    self._slot(c, j, slot, of_slot[self.classes.first[c.number] + j], block)
        failed = np.setdiff1d(np.arange(self.count), self.which)
        if len(failed):
            self._field(self._block("Failed", failed), "why", np.zeros(len(failed), np.int64))
        self._lay()
        for fill in self.fills:
            fill()
        self._lay_lists()
        self._roots(failed)
        return Columns(self.schema, self.count, self.arrays, self.starts, {})

    # -- rows

    def _block(self, name: str, example: Ints) -> _Block:
        if name not in self.stores:
            raise OtherTypesError(name)
        store, position = self.stores[name]
        made = _Block(position, example)
        self.blocks[store.name].append(made)
        return made

    def _compound(self, number: int) -> tuple[str, _Block]:
        """The rows of a compound: one for each instance of its first member."""
        compound = self.compounds.all[number]
        first = self.of_class[compound.members[0]]
        name = f"Compound{number}"
        if not len(first):
            return name, _Block(0, first)
        block = self._block(name, self.example[first])

        def place() -> None:
            place_of = np.full(len(self.group), -1)
            place_of[self.group[first]] = block.place
            for member in compound.members:
                mine = self.of_class[member]
                self.row_of[mine] = place_of[self.group[mine]]

        self.fills.append(place)
        return name, block

    def _lay(self) -> None:
        """Where the rows of all blocks are: those of an example behind one another."""
        for store in self.schema.stores:
            blocks = self.blocks[store.name]
            starts = self.starts[store.name] = _places(blocks, self.count)
            for column in columns_of(self.schema):
                if column.space == store.name:
                    self.arrays[column.name] = unfilled(column, int(starts[-1]))
            tag = self.arrays[f"{store.name}.#tag"]
            for block in blocks:
                tag[block.place] = block.position
        for lists in self.schema.lists:
            self.starts[lists.name] = _places([x.owner for x in self.lists[lists.name]], self.count)

    # -- fields

    def _field_of(self, name: str, field: str) -> Field:
        store, position = self.stores[name]
        for f in store.fields:
            if f.name == field and position in f.classes and not has_mask(f):
                return f
        raise OtherTypesError(field)

    def _slot(self, c: OpClass, j: int, slot: OperandSlot, entries: Ints, of: tuple[str, _Block]) -> None:
        """What the rows of a compound hold for an operand of one of its members."""
        name, block = of
        if is_list(slot):
            if slot.producers:
                self._list(c, j, entries, name, block)
        elif slot.is_data:
            self._numbers(name, f"k{c.number}_{j}", slot, entries, self._at(entries))
        else:
            self._references(c, j, slot, entries, name)

    def _at(self, entries: Ints) -> Callable[[], Ints]:
        """The rows that hold entries, once they are laid out."""
        owner = self.found.owner[entries]
        return lambda: self.row_of[owner]

    def _references(self, c: OpClass, j: int, slot: OperandSlot, entries: Ints, name: str) -> None:
        found, producer = self.found, self.found.producer[entries]
        field, parts = None, list[tuple[Ints, Callable[[], Ints]]]()
        numbers = entries[producer < 0]
        if len(numbers):
            block = self._block(number_name(slot.type), self.example[found.owner[numbers]])
            self._numbers(number_name(slot.type), "value", slot, numbers, lambda: block.place)
            parts.append((numbers, lambda: block.place))
        for of, out in slot.producers:
            mine = entries if len(slot.producers) == 1 else entries[
                (producer >= 0) & (found.classes[producer] == of) & (found.out[entries] == out)
            ]  # fmt: skip
            mine = mine[found.producer[mine] >= 0]
            target = self.target(c, j, of, out)
            if target is not None and len(mine):
                parts.append((mine, self._target(target, mine)))
        for mine, place in parts:
            field = field or self._field_of(name, f"a{c.number}_{j}")
            self._put(field, self._at(mine), place)

    def _target(self, target: str, entries: Ints) -> Callable[[], Ints]:
        """The rows that entries refer to."""
        producer = self.found.producer[entries]
        if target == "":
            return lambda: self.row_of[producer]
        block = self._block(target, self.example[self.found.owner[entries]])
        if target.startswith("Result"):
            self._put(self._field_of(target, "of"), lambda: block.place, lambda: self.row_of[producer])
        return lambda: block.place

    def _put(self, field: Field, at: Callable[[], Ints], values: Callable[[], Any]) -> None:
        def fill() -> None:
            self.arrays[field.column][at()] = values()

        self.fills.append(fill)

    def _field(self, block: _Block, name: str, values: Any) -> None:
        self._put(self._field_of("Failed", name), lambda: block.place, lambda: values)

    def _numbers(self, name: str, field: str, slot: OperandSlot, entries: Ints, at: Callable[[], Ints]) -> None:
        """Numbers as fields of rows, and where they lie: what lies in a column is zero here."""
        word = self.found.word[entries]
        of = self._field_of(name, field)
        if not isinstance(of.type, Array) or not isinstance(slot.type[1], np.dtype) or of.type.shape != slot.type[0]:
            raise OtherTypesError(field)
        given = word < GIVEN // 2
        if is_moving(slot):
            places = np.where(given, word - GIVEN, -1 << ROWS)
            self._put(self._field_of(name, SOURCE + field), at, lambda: places >> ROWS)
            self._put(self._field_of(name, ROW + field), at, lambda: places & (1 << ROWS) - 1)
        if not given.all():
            values = self._values(entries[~given], slot, host_dtype(of.type))
            self._put(of, lambda: at()[~given], lambda: values)

    def _values(self, entries: Ints, slot: OperandSlot, dtype: Any) -> Any:
        """The numbers that entries are, which lie in no column."""
        word = self.found.word[entries]
        if word.min() >= -1 - NUMBERS:
            distinct, which = np.unique(word, return_inverse=True)
            known = [held(self.found.numbers[-2 - w], slot) for w in distinct.tolist()]
            return np.array(known, dtype)[which]
        return np.array([held(self.found.value(e), slot) for e in entries.tolist()], dtype)

    # -- lists

    def _list(self, c: OpClass, j: int, entries: Ints, name: str, block: _Block) -> None:
        field = self._field_of(name, f"l{c.number}_{j}")
        if not isinstance(field.type, List) or not isinstance(field.type.elem, Ref) or field.type.store is None:
            raise OtherTypesError(field.name)
        mine = self.of_class[c.number]
        lengths = np.bincount(self.found.owner[entries], minlength=len(self.found.classes))[mine]
        lists = _FieldLists(_Block(0, self.example[mine]), field.column, lengths, entries)
        self.lists[field.type.store].append(lists)
        self._put(field, lambda: self.row_of[mine], lambda: lists.owner.place)

    def _lay_lists(self) -> None:
        for store in self.schema.lists:
            lists, values = self.lists[store.name], f"{store.name}.#values"
            self.arrays[f"{store.name}.#offsets"] = offsets_of(self._lengths(store.name)).astype(np.int32)
            offsets = self.arrays[f"{store.name}.#offsets"]
            self.starts[values] = offsets[self.starts[store.name]].astype(np.int64)
            for column in columns_of(self.schema):
                if column.space == values:
                    self.arrays[column.name] = unfilled(column, int(offsets[-1]))
            for x in lists:
                at = ranges(offsets[x.owner.place], x.lengths)
                self.arrays[values][at] = self.row_of[self.found.producer[x.elements]]

    def _lengths(self, name: str) -> Ints:
        lengths = np.zeros(int(self.starts[name][-1]), np.int64)
        for x in self.lists[name]:
            lengths[x.owner.place] = x.lengths
        return lengths

    def _roots(self, failed: Ints) -> None:
        root = np.full(self.count, -1, np.int32)
        root[self.which] = self.row_of[self.found.roots]
        if len(failed):
            store, position = self.stores["Failed"]
            root[failed] = next(b for b in self.blocks[store.name] if b.position == position).place
        self.arrays[ROOT] = root


def _grouped(numbers: Ints, count: int) -> Sequence[Ints]:
    """Where each number stands, in order."""
    order = stable_order(numbers)
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1]) if count else []


def _places(blocks: Sequence[_Block], count: int) -> Ints:
    """Where the rows of each example begin; every block learns where its rows are."""
    lengths = np.array([np.bincount(b.example, minlength=count) for b in blocks], np.int64).reshape(-1, count)
    starts = offsets_of(lengths.sum(0))
    begin = starts[:-1] + np.cumsum(lengths, 0) - lengths
    for block, first, length in zip(blocks, begin, lengths, strict=True):
        block.place = np.repeat(first - (np.cumsum(length) - length), length) + np.arange(len(block.example))
    return starts
