"""The rows of a batch of traces: as columns of the examples of the program over them, and as gathers on the device.

    class 2 (mul): instances 0, 2 of example 0      Compound0.#tag    0  0
    slot 0 of it: number 0.5, result 0 of 0    ->   Compound0.a2_0    Number 0, Compound0 0       rows of their stores

What is known of a structure says which columns there are; so they are filled for all examples at once. Objects are made
of those runs alone that showed something new, for their types.

`Over` is the program over traces as a program of the examples: its tables are columns of the examples, which the
numbers of traces are read from on the device.

    Over        #given:Node.value  float32[n]     a column of the examples, which moves, or is a leaf of a batch
                #source:Row.k0, #row:Row.k0       where the numbers of a column of traces lie in them
    program     Row.k0  float32[m]                gathered from these; and its own tables

So everything that holds for programs of examples holds here: plans of data sets and minibatches, batches as leaves
under `jax.jit`, derivatives by batched arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import packed
from autobatch.call.examples import Component, Examples, Ready
from autobatch.call.packed import Group, Planner, Tables, data_tables
from autobatch.call.specialise import SpecialisedProgram
from autobatch.call.tracing.classes import Instances, OpClass, OperandSlot, OperationClasses, is_given, is_list
from autobatch.call.tracing.log import GIVEN, NUMBERS, ROWS, ExampleNumber
from autobatch.call.tracing.source import Compounds, TracedRow, TraceSource, number_name
from autobatch.common.cache import Bounded
from autobatch.common.runtime import collecting_later
from autobatch.compiler import pipeline
from autobatch.compiler.executables import Differentials
from autobatch.data.columns import (
    ROOT,
    Columns,
    Field,
    Ints,
    Schema,
    Store,
    columns_of,
    has_mask,
    host_dtype,
    offsets_of,
    ranges,
    unfilled,
)
from autobatch.data.leaves import is_sparse_class
from autobatch.data.unpack import NumberUnpacker, unpack
from autobatch.errors import Failure, UnsupportedError
from autobatch.ir.core import Array, List, Ref
from autobatch.planning.numbering import stable_order
from autobatch.planning.plan import Share

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


# ---- links
#
# Where the numbers of traces lie in the examples: rows of traces hold what the columns of the examples hold.
#
#     Node.value   0.5  2.0  4.0          the column of the examples, source 0
#     Row.row_k0   2    0    0            where number k0 of each row of traces lies in it, counted from its example on
#     Row.k0       4.0  0.5  7.0          what it is; of the last, whose source is -1, a number of the function's own
#
# So floats of the examples may move, and may be known under `jax.jit` alone: what decides structure is all that a trace
# depends on.


@dataclass(frozen=True)
class NumberOrigin:
    """A column of numbers of the examples. `space`: its rows are those of this space, None: the examples."""

    name: str
    space: str | None
    type: Array

    def starts(self, columns: Columns | None, count: int) -> np.ndarray[Any, Any]:
        """int64[count]: the first row of each example."""
        if self.space is None or columns is None:
            return np.arange(count)
        return columns.starts[self.space][:-1]

    @property
    def dtype(self) -> Any:
        """That of its numbers on a device."""
        return jax.dtypes.canonicalize_dtype(host_dtype(self.type))


@dataclass(frozen=True)
class NumberOrigins:
    """Where the numbers of some examples may lie: in columns, then in arrays that are batched arguments, by slot."""

    columns: tuple[NumberOrigin, ...]
    arrays: Mapping[int, NumberOrigin]

    @classmethod
    def of(cls, schema: Schema | None, arrays: Mapping[int, Array]) -> NumberOrigins:
        """The origins of packed examples, and of arrays beside them by the types of their rows."""
        every = () if schema is None else columns_of(schema)
        typed = [(c.name, c.space, c.type) for c in every if isinstance(c.type, Array)]
        held = [NumberOrigin(name, space, type) for name, space, type in typed if is_float(type)]
        return cls(tuple(held), {k: NumberOrigin(f"array {k}", None, t) for k, t in arrays.items() if is_float(t)})

    @property
    def all(self) -> list[NumberOrigin]:
        return [*self.columns, *self.arrays.values()]

    @collecting_later
    def unpacked(self, columns: Columns) -> list[Any]:
        """The examples, with `ExampleNumber` in the place of their numbers."""
        return unpack(columns, _References({c.name: k for k, c in enumerate(self.columns)}))

    def rows_of(self, slot: int, count: int) -> list[ExampleNumber]:
        """The numbers that an array gives to the examples."""
        number = len(self.columns) + list(self.arrays).index(slot)
        return _References({}).rows(self.arrays[slot].type, number, range(count))


def is_float(type: Array) -> bool:
    """Is it a number that has a derivative?"""
    return not type.dtype.startswith("key<") and bool(jnp.issubdtype(host_dtype(type), jnp.inexact))


def refuses_references(schema: Schema) -> str:
    """The class of a library that wants the numbers themselves; an empty string where there is none."""
    sparse = [c.name for s in schema.stores for c in s.classes if c.cls is not None and is_sparse_class(c.cls)]
    return sparse[0] if sparse else ""


class _References(NumberUnpacker):
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers

    def each(self, type: Array, column: str, array: Any, rows: Any) -> list[Any]:
        if column not in self.numbers:
            return super().each(type, column, array, rows)
        return self.rows(type, self.numbers[column], range(len(array)) if rows is None else rows.tolist())

    def rows(self, type: Array, number: int, rows: Sequence[int]) -> list[ExampleNumber]:
        dtype = jax.dtypes.canonicalize_dtype(host_dtype(type))
        return [ExampleNumber(type.shape, dtype, type.weak, number, row) for row in rows]

    def slices(self, type: Array, column: str, array: Any, offsets: Sequence[int]) -> list[Any]:
        if column not in self.numbers:
            return super().slices(type, column, array, offsets)
        number = self.numbers[column]
        return [ExampleNumber((b - a, *type.shape), array.dtype, False, number, a) for a, b in pairwise(offsets)]


# ---- columns of traces


@dataclass(frozen=True)
class Links:
    """The columns of traces whose numbers lie in the examples: of each, the columns of its sources and rows, and the
    space."""

    of: Mapping[str, tuple[str, str, str]]

    @classmethod
    def find(cls, schema: Schema) -> Links:
        """The links of the columns of traces of this schema."""
        made: dict[str, tuple[str, str, str]] = {}
        for store in schema.stores:
            for held in store.fields:
                if isinstance(held.type, Array) and is_float(held.type):
                    beside = {f.name: f.column for f in store.fields if f.classes == held.classes}
                    if SOURCE + held.name in beside:
                        place = beside[SOURCE + held.name], beside[ROW + held.name]
                        made[held.column] = (*place, store.name)
        return cls(made)

    def relative(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """Traces whose rows count from the first row of their example on, which those of minibatches do too."""
        starts = [o.starts(columns, traces.count) for o in origins.all]
        return self._shifted(traces, starts, -1)

    def absolute(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """The same, counted from the first row of all."""
        return self._shifted(traces, [o.starts(columns, traces.count) for o in origins.all], 1)

    def _shifted(self, traces: Columns, starts: Sequence[Any], sign: int) -> Columns:
        arrays = dict(traces.arrays)
        for source, row, space in set(self.of.values()):
            example = np.repeat(np.arange(traces.count), np.diff(traces.starts[space]))
            held, number = arrays[row].copy(), arrays[source]
            for k, first in enumerate(starts):
                mine = number == k
                held[mine] += sign * first[example[mine]]
            arrays[row] = held
        return replace(traces, arrays=arrays)

    def with_values(self, traces: Columns, given: Sequence[Any]) -> Columns:
        """Traces, whose rows count from the first of all, with the numbers that the examples have. `given`: arrays of
        all origins."""
        made = {
            c: gathered(traces.arrays[c], traces.arrays[source], traces.arrays[row], given, np)
            for c, (source, row, _) in self.of.items()
        }
        return replace(traces, arrays={**traces.arrays, **made})


def gathered(own: Any, source: Any, row: Any, given: Sequence[Any], xp: Any) -> Any:
    """A column of traces: what lies in the examples is read there, from `given`; the rest is its own."""
    shape, made = own.shape[1:], own
    for of_lists in (False, True):
        fits = [
            k for k, x in enumerate(given)
            if x.shape[0] and jax.dtypes.canonicalize_dtype(x.dtype) == own.dtype
            and (x.shape[1:] == shape[1:] and shape if of_lists else x.shape[1:] == shape)
        ]  # fmt: skip
        if not fits:
            continue
        first = np.full(len(given), -1, np.int64)
        first[fits] = np.cumsum([0, *(given[k].shape[0] for k in fits[:-1])])
        flat = xp.concatenate([given[k] for k in fits]) if len(fits) > 1 else given[fits[0]]
        begin = xp.asarray(first)[xp.maximum(source, 0)]
        mine = (source >= 0) & (begin >= 0)
        if of_lists:
            mine = mine & (row >= 0)
        places = xp.where(mine, begin + row, 0)
        if of_lists:
            places = xp.minimum(places[:, None] + xp.arange(shape[0]), flat.shape[0] - 1)
        found = flat[places].astype(own.dtype)
        made = xp.where(mine.reshape(-1, *(1,) * len(shape)), found, made)
    return made


GIVEN_TABLE, ROW_TABLE, SOURCES = "#given:", "#row:", "#source:"
"""The prefixes of tables: of columns of the examples; of where the numbers of a table of the program lie in them."""


@dataclass(frozen=True)
class TracedPlan:
    """The traces of some examples, planned for the program over them. `columns`: of the examples that were traced,
    `chosen`: which of them are meant; None: all."""

    program: SpecialisedProgram
    rows: Group
    columns: Columns | None
    profile: Mapping[str, packed.Profile] | None
    traced: tuple[Failure, ...]
    chosen: Any = None
    share: Share = "batch"

    @cached_property
    def inner(self) -> Any:
        """The plan of the traces."""
        return self.rows.plan(self.program).sharing(self.share)

    @cached_property
    def own(self) -> Columns | None:
        """The columns of these examples."""
        return self.columns if self.chosen is None or self.columns is None else self.columns.take(self.chosen)

    @property
    def failures(self) -> tuple[Failure, ...]:
        found: tuple[Failure, ...] = self.inner.failures
        traced = {f.index: f for f in self.traced}
        which = np.arange(self.rows.count) if self.chosen is None else self.chosen
        known = {n: replace(traced[k], index=n) for n, k in enumerate(which.tolist()) if k in traced}
        return tuple(known.get(f.index, f) for f in found)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def count(self) -> int:
        return self.rows.count

    def take(self, indices: Any) -> TracedPlan:
        chosen = indices if self.chosen is None else self.chosen[indices]
        return replace(self, rows=self.rows.take(indices), chosen=chosen)

    def sharing(self, share: Share) -> TracedPlan:
        return self if share == self.share else replace(self, share=share)


class Over(SpecialisedProgram):
    """The program over traces as one of the examples. `components`: the batched leaves of the function."""

    def __init__(
        self,
        inner: SpecialisedProgram,
        planner: Planner,
        components: tuple[Component, ...],
        origins: NumberOrigins,
        schema: Schema,
        trace: Callable[[Over, tuple[Columns, ...]], TracedPlan],
    ) -> None:
        self.__dict__.update(inner.__dict__)
        self.inner, self.planner, self.components, self.origins, self.schema = (
            inner, planner, components, origins, schema
        )  # fmt: skip
        self.fingerprint = f"{inner.fingerprint} over traces"
        self.on_host = frozenset(k for k, c in enumerate(components) if c.array and k not in origins.arrays)
        self._trace = trace
        self.compiled = self.gathering = _Gathering(
            inner.compiled, tuple(self._table(k) for k in range(len(origins.all)))
        )
        self.kept = Bounded(inner.kept.size)
        self.derivatives = Differentials(self.compiled, inner.derivatives.most, self.compiling)

    def _table(self, number: int) -> str:
        return GIVEN_TABLE + self.origins.all[number].name

    @property
    def structure_columns(self) -> frozenset[str]:
        """All that is no number: a trace depends on it."""
        held = {o.name for o in self.origins.columns}
        return frozenset(c.name for c in columns_of(self.schema) if c.name not in held)

    def argument_columns(self, schema: Schema) -> dict[str, str]:
        return {GIVEN_TABLE + o.name: o.name for o in self.origins.columns}

    def array_table(self, index: int) -> str:
        held = self.origins.arrays.get(index)
        return f"#array:{index}" if held is None else GIVEN_TABLE + held.name

    def words(self, vocabularies: Mapping[str, tuple[Any, ...]]) -> Tables:
        """They are those of the traces, which `bind` knows."""
        return {}

    def at(self, leaves: Sequence[Any]) -> SpecialisedProgram:
        return self

    @property
    def by_xla(self) -> SpecialisedProgram:
        return self

    def bind(self, plan: Any, at_least: Sequence[Any] = (), arrays: bool = False) -> tuple[Tables, Hashable]:
        assert isinstance(plan, TracedPlan)
        tables, signature = self.inner.bind(plan.inner, at_least)
        rows = plan.rows.columns
        links = Links.find(rows.schema)
        absolute = links.absolute(rows, self.origins, plan.own)
        made = dict(tables)
        for table, column, count in data_tables(self.inner, tables, rows.arrays, rows.schema):
            if column in links.of:
                source, row, _ = links.of[column]
                made[SOURCES + table] = packed.padded(absolute.arrays[source].astype(np.int32), count, -1)
                made[ROW_TABLE + table] = packed.padded(absolute.arrays[row].astype(np.int32), count, 0)
        made |= self.inner.words(plan.rows.vocabularies)
        if plan.own is not None:
            room = packed.capacities(plan.own, plan.profile)
            for origin in self.origins.columns:
                size = plan.count if origin.space is None else room[origin.space]
                made[GIVEN_TABLE + origin.name] = packed.padded(packed.canonical(plan.own.arrays[origin.name]), size, 0)
        for origin in self.origins.arrays.values():
            made[GIVEN_TABLE + origin.name] = np.zeros((plan.count, *origin.type.shape), origin.dtype)
        return made, signature

    def plan(self, components: tuple[Columns, ...]) -> Any:
        return self._trace(self, components)

    def plan_with(self, columns: tuple[Columns, ...], arrays: Mapping[int, Any], count: int) -> Any:
        raise NotImplementedError("arrays beside examples are traced with them, at every call")

    def ready(self, examples: Examples, plan: TracedPlan) -> Ready:
        """What the executable reads of examples that are known, with their plan."""
        if examples.width:
            found = examples.ready(self)
        else:
            found = examples.with_arrays(Ready(*self.bind(plan), plan.failures, plan), self)
        return without_words(found)

    def interpret(self, shared: Sequence[Any], ready: Ready, examples: Examples) -> Sequence[Any]:
        if not isinstance(ready.plan, TracedPlan):
            raise UnsupportedError(
                f"{self.name}: its structure is traced, and the reference back end takes no batch that is known under "
                "jax.jit alone",
                cure="call it outside of jax.jit, or on another back end",
            )
        tables = self.gathering.tables(ready.tables)
        return self.compiled.interpret(shared, ready.plan.inner, tables)


def without_words(ready: Ready) -> Ready:
    """Vocabularies are no tables of a program."""
    words = {n: t for n, t in ready.tables.items() if n.startswith(packed.VOCABULARY)}
    if not words:
        return ready
    return replace(ready, tables={n: t for n, t in ready.tables.items() if n not in words}, words=words)


class _Gathering(pipeline.CompiledProgram):
    """A compiled program whose numbers are read from columns of the examples. `given`: the tables that these are."""

    def __init__(self, program: pipeline.CompiledProgram, given: tuple[str, ...]) -> None:
        self.__dict__.update(program.__dict__)
        self.program, self.given = program, given

    def tables(self, tables: Mapping[str, Any]) -> Tables:
        """The tables of the program over traces."""
        given = [jnp.asarray(tables[n]) if n in tables else jnp.zeros((0,)) for n in self.given]
        made = {n: t for n, t in tables.items() if not n.startswith((GIVEN_TABLE, ROW_TABLE, SOURCES))}
        for name, own in made.items():
            if SOURCES + name in tables:
                source, row = tables[SOURCES + name], tables[ROW_TABLE + name]
                made[name] = gathered(jnp.asarray(own), jnp.asarray(source), jnp.asarray(row), given, jnp)
        return made

    def run(self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Any = "reverse") -> Any:
        return self.program.run(shared, self.tables(tables), signature, mode)

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Any = "reverse"
    ) -> tuple[list[Any], Any]:
        moving = {n: jnp.asarray(tables[n]) for n in self.given if n in tables}
        whole = self.tables(tables)
        linked = [n for n in whole if SOURCES + n in tables]

        def linked_tables(moving: Mapping[str, Any]) -> dict[str, Any]:
            made = self.tables({**tables, **moving})
            return {n: made[n] for n in linked}

        _, back = jax.vjp(linked_tables, moving)
        arrays, pull = self.program.linearised(shared, whole, signature, mode)
        return arrays, jax.tree_util.Partial(_pulled, pull, back, {n: whole[n] for n in linked})

    def results(self, arrays: Sequence[Any], tables: Mapping[str, Any], signature: Any) -> Any:
        return self.program.results(arrays, tables, signature)


def _pulled(pull: Any, back: Any, linked: Mapping[str, Any], cotangents: Any) -> tuple[list[Any], dict[str, Any]]:
    """Cotangents of shared inputs, and of tables: those of the traces lead to those of the examples."""
    of_shared, of_tables = pull(cotangents)
    (found,) = back({n: of_tables.get(n, jnp.zeros_like(x)) for n, x in linked.items()})
    return of_shared, {**of_tables, **found}
