"""Examples whose schema is known, read into its columns by machine code.

Where the values of each field of each class go, and which values a field may hold, a schema says once: a `SchemaLayout`
of it, as inference makes one, gives each field a column. What was inferred from some examples holds for all of them if
the others have nothing that would change it; the machine looks at each value for that (`reading.py`), and names the
first example that has. Arrays, strings and members of enums it hands over as objects, for `leaves.py` to make columns
of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autobatch.data.addresses import address
from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    Column,
    Columns,
    Ints,
    columns_of,
    empty,
    host_dtype,
    offsets_of,
    unfilled,
)
from autobatch.data.infer import (
    Inference,
    InferenceConflict,
    InferredPlace,
    InferredRecord,
    nested_places,
    sort_of_array,
)
from autobatch.data.layout import SchemaLayout, lay_out
from autobatch.data.leaves import LeafColumn, Mixed, RaggedLeaf, Vocabularies, as_ragged, join, leaf_column
from autobatch.data.reading import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    OBJECT,
    OTHER,
    ColumnSlot,
    ColumnWrite,
    Home,
    Lacking,
    Learn,
    ListHome,
    ObjectReader,
    ObjectShape,
    Places,
    Reading,
    TypeRegistry,
    read,
)
from autobatch.data.schema import UNKNOWN, Schema
from autobatch.errors import BatchError
from autobatch.ir.types import BOOL as BOOL_TYPE
from autobatch.ir.types import FLOAT as FLOAT_TYPE
from autobatch.ir.types import INT as INT_TYPE
from autobatch.ir.types import Array

_NUMBERS = {BOOL: BOOL_TYPE, INT: INT_TYPE, FLOAT: FLOAT_TYPE}
_WRITTEN = {BOOL_TYPE: ColumnWrite.BOOL, INT_TYPE: ColumnWrite.INT, FLOAT_TYPE: ColumnWrite.FLOAT}
_NOWHERE, _NO_STORE = -1, -2


def read_like(
    examples: list[Any], schema: Schema, reader: ObjectReader, learn: Learn, inferred: bool
) -> Columns | Lacking | None:
    """The columns of examples that have nothing that the schema lacks. `inferred`: from some of them; then they have
    nothing that would change it either. None where the machine cannot tell."""
    held = _held_by(schema, inferred)
    if held is None:
        return None
    run = read(examples, reader, learn, held.places)
    return held.columns(run, reader) if isinstance(run, Reading) else run


_known: dict[tuple[int, bool], tuple[Schema, _SchemaContents | None]] = {}
"""By the identity of the schema."""
MOST_KNOWN = 256


def _held_by(schema: Schema, inferred: bool) -> _SchemaContents | None:
    found = _known.get((id(schema), inferred))
    if found is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        found = _known[id(schema), inferred] = schema, _held(schema, inferred)
    return found[1]


def _held(schema: Schema, inferred: bool) -> _SchemaContents | None:
    inference = Inference()
    try:
        inference.see_schema(schema)
        layout = lay_out(inference)
    except (BatchError, InferenceConflict):
        return None
    return _SchemaContents(schema, inference, layout, inferred) if layout.schema == schema else None


@dataclass(frozen=True)
class _Others:
    """Leaves that Python makes a column of."""

    column: Column
    place: InferredPlace


class _SchemaContents:
    """What a schema holds, and where."""

    def __init__(self, schema: Schema, inference: Inference, layout: SchemaLayout, inferred: bool) -> None:
        self.schema, self.inference, self.layout = schema, inference, layout
        self.strict = _in_several_places(inference) if inferred else frozenset[int]()
        lists = [s.name for s in schema.lists if not s.from_array]
        spaces = [s.name for s in schema.stores] + [n for name in lists for n in (name, f"{name}.#values")]
        self.counters = {name: k for k, name in enumerate(spaces)}
        self.written = [c for c in columns_of(schema) if c.space is None or c.space in self.counters]
        self.numbers = {c.name: k for k, c in enumerate(self.written)}
        self.numbers |= {f"{name}.#offsets": len(self.numbers) + k for k, name in enumerate(lists)}
        self.ends = {name: self.counters[name] for name in lists}
        found = [p for first in _places(inference) for p in nested_places(first) if p.kind == "list"]
        self.lists = list({id(p): p for p in found}.values())
        self.sorts: dict[int, set[str | None]] = {}
        self._places: Places | None = None

    # ---- what the machine is told

    def places(self, known: TypeRegistry) -> Places:
        """The places of the tables that are known."""
        found = self._places  # another thread may know other tables
        if found is None or found.known is not known:
            found = self._places = self._of_tables(known)
        return found

    def _of_tables(self, known: TypeRegistry) -> Places:
        slots, homes, lists = list[list[int]](), list[list[int]](), list[list[int]]()
        for shape in known.tables:
            record = self.record(shape)
            if record is None:
                slots += [[0, _NO_STORE, _NOWHERE, ColumnWrite.NOT, 0, _NOWHERE]] * len(shape.names)
                homes.append([_NOWHERE, 0, 0])
                continue
            store, position = self.layout.position(record)
            homes.append([self.counters[store], position, self.numbers[f"{store}.#tag"]])
            for k, name in enumerate(shape.names):
                place = record.places[name].find()
                slots.append(self.slot(place, self.layout.field(record, name).column))
                if k in shape.arrays:
                    self.sorts.setdefault(id(place), set()).add(record.signature[k])
        for place in self.lists:
            name, items = self.layout.list_name(place), place.items
            assert items is not None
            counters = self.counters[name], self.counters[f"{name}.#values"]
            lists.append([*counters, len(slots), self.numbers[f"{name}.#offsets"]])
            slots.append(self.slot(items, f"{name}.#values"))
        slots.append(self.slot(self.inference.root, ROOT))
        rows = _rows(slots, len(ColumnSlot)), _rows(homes, len(Home)), _rows(lists, len(ListHome))
        return Places(known, *rows, len(slots) - 1, len(self.counters))

    def slot(self, place: InferredPlace, column: str) -> list[int]:
        """The words of a slot."""
        place = place.find()
        mask = self.numbers.get(ROOT_MISSING if column == ROOT else f"{column}?", _NOWHERE)
        store, items, written, codes = _NO_STORE, _NOWHERE, ColumnWrite.NOT, set[int]()
        if place.kind == "record":
            assert place.record is not None
            store, written, codes = self.counters[self.layout.position(place.record)[0]], ColumnWrite.ROW, {OBJECT}
        elif place.kind == "list":
            items, written, codes = self.lists.index(place), ColumnWrite.ROW, {OBJECT}
        elif place.kind == "leaf" and place.leaf in _WRITTEN:
            written = _WRITTEN[place.leaf]
            codes = {c for c, t in _NUMBERS.items() if join(place.leaf, t) == place.leaf}
            if id(place) in self.strict:
                codes = {c for c in codes if _NUMBERS[c] == place.leaf}
        elif place.kind != "unknown":
            written, codes = ColumnWrite.OBJECT, {OTHER}
        codes |= {NONE} if place.none else set()
        return [sum(1 << c for c in codes), store, items, written, self.numbers[column], mask]

    def record(self, shape: ObjectShape) -> InferredRecord | None:
        """The record of the objects of a table, where the schema has one that they do not change."""
        names, signature = set(shape.names), shape.signature
        found = [r for r in self.inference.records if r.kind == shape.kind and r.cls is shape.cls]
        found = [r for r in found if r.places.keys() == names]
        if shape.cls is None:
            found = [
                r
                for r in found
                if all(a in (b, None) or b is None for a, b in zip(signature, r.signature, strict=True))
            ]
        if len(found) != 1 or (shape.order is not None and found[0].keys not in ((), shape.order)):
            return None
        says = zip(signature, found[0].signature, strict=True) if shape.cls is None else ()
        changes = any(b is None and (a is not None or k in shape.arrays) for k, (a, b) in enumerate(says))
        return None if changes else found[0]

    # ---- what the machine has read

    @cached_property
    def unwritten(self) -> list[Column]:
        """Columns of which some rows have no value: of fields that not all classes of a store have, and of None."""
        of = [(s, f) for s in self.schema.stores for f in s.fields]
        found = {f.column for s, f in of if len(f.classes) < len(s.classes)}
        found |= {f"{name}?" for name in found} | {c.name for c in self.written if c.type == UNKNOWN}
        return [c for c in self.written if c.name in found and c.name not in {x.column.name for x in self.others}]

    @cached_property
    def others(self) -> list[_Others]:
        """The columns of leaves that are no numbers of Python."""
        of = {ROOT: self.inference.root.find()}
        for record in self.inference.records:
            of |= {self.layout.field(record, name).column: p.find() for name, p in record.places.items()}
        of |= {f"{self.layout.list_name(p)}.#values": p.items.find() for p in self.lists if p.items is not None}
        found = [(c, of[c.name]) for c in self.written if c.name in of]
        return [_Others(c, p) for c, p in found if p.kind == "ragged" or (p.kind == "leaf" and p.leaf not in _WRITTEN)]

    @cached_property
    def memory(self) -> list[tuple[str, np.dtype[Any], int | None]]:
        """The columns that are written: the dtype of each, and the counter of its rows; None: one for each example."""
        objects = {x.column.name: np.dtype(object) for x in self.others}
        return [
            (c.name, objects.get(c.name) or unfilled(c, 0).dtype, None if c.space is None else self.counters[c.space])
            for c in self.written
        ]

    def columns(self, run: Reading, reader: ObjectReader) -> Columns | None:
        """The columns. None: some leaves are of another type than the schema says."""
        counts, count = run.counts.tolist(), len(run.examples)
        starts: dict[str, Ints] = dict(zip(self.counters, run.starts, strict=True))
        arrays = {name: np.empty(count if k is None else counts[k], dtype) for name, dtype, k in self.memory}
        ends: dict[str, np.ndarray[Any, Any]] = {
            name: np.empty(counts[k] + 1, np.int32) for name, k in self.ends.items()
        }
        for c in self.unwritten:
            arrays[c.name] = unfilled(c, len(arrays[c.name]))
        run.fill(reader, [address(x) for x in (*arrays.values(), *ends.values())])
        for name, offsets in ends.items():
            offsets[-1] = starts[f"{name}.#values"][-1]
        vocabularies = Vocabularies()
        for x in self.others:
            values = arrays[x.column.name].tolist()
            kinds = set(map(type, values))
            numpy = any(issubclass(k, (np.ndarray, np.generic)) for k in kinds)
            try:
                made = leaf_column(values, kinds, vocabularies)
            except Mixed:
                return None
            if (numpy and not x.place.numpy) or not self.holds(x.place, made):
                return None
            if x.place.kind == "leaf":
                arrays[x.column.name] = _column(x.column, made, len(values))
                continue
            assert isinstance(x.place.leaf, Array)
            rows = as_ragged(made, x.place.leaf, len(values))
            there = rows.lengths >= 0
            name, before, offsets = self.layout.list_name(x.place), offsets_of(there), offsets_of(rows.lengths[there])
            arrays[x.column.name] = np.where(there, before[:-1], -1).astype(np.int32)
            arrays[f"{name}.#values"], ends[name] = rows.flat, offsets.astype(np.int32)
            begins = np.arange(count + 1) if x.column.space is None else starts[x.column.space]
            starts[name] = before[begins]
            starts[f"{name}.#values"] = offsets[starts[name]]
        arrays |= {f"{name}.#offsets": offsets for name, offsets in ends.items()}
        return Columns(self.schema, count, arrays, starts, vocabularies.frozen())

    def holds(self, place: InferredPlace, made: LeafColumn | RaggedLeaf) -> bool:
        """Has the schema the leaves of a column where they are, and tuples and dicts their sorts?"""
        if isinstance(made, LeafColumn) and made.type == UNKNOWN:
            return True
        sorts = self.sorts.get(id(place))
        if isinstance(made, RaggedLeaf):
            return place.kind == "ragged" and made.elem == place.leaf and sorts in (None, {f"{made.elem.dtype}/array"})
        if sorts is not None and not (isinstance(made.type, Array) and sorts == {sort_of_array(made.type)}):
            return False
        if place.kind == "leaf":
            return join(place.leaf, made.type) == place.leaf
        if not (isinstance(made.type, Array) and isinstance(place.leaf, Array)):
            return False
        one = Array(made.type.dtype, made.type.shape[1:])
        return made.type.shape != () and one == place.leaf


def _places(inference: Inference) -> Iterator[InferredPlace]:
    """The places of the examples and of all fields."""
    yield inference.root
    for record in inference.records:
        yield from record.places.values()


def _in_several_places(inference: Inference) -> frozenset[int]:
    """The places that stand for several. Those might not be one if all that they hold had been seen."""
    several = Counter(id(p) for first in _places(inference) for p in nested_places(first))
    return frozenset(k for k, n in several.items() if n > 1)


def _column(column: Column, made: LeafColumn | RaggedLeaf, rows: int) -> np.ndarray[Any, Any]:
    assert isinstance(made, LeafColumn) and column.type is not None
    if made.type == UNKNOWN:
        return empty(column.type, rows)
    return made.array.astype(host_dtype(column.type), copy=False)


def _rows(rows: list[list[int]], width: int) -> Ints:
    return np.array(rows, np.int64).reshape(len(rows), width)
