"""From an inference to a schema: names of stores, classes, columns and lists, and where each place went.

Names depend on the classes and types alone, never on the order in which examples showed them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autobatch.data.infer import Inference, InferenceConflict, InferredPlace, InferredRecord, nested_places
from autobatch.data.schema import UNKNOWN, Class, Field, ListStore, Schema, Store
from autobatch.errors import BatchError
from autobatch.ir.types import Array, List, Ref, Type


@dataclass(eq=False)
class SchemaLayout:
    """A schema, and the way back to it from the records and places of the inference that made it."""

    schema: Schema
    positions: dict[int, tuple[str, int]]
    """id of a record -> its store and its position among the classes."""
    columns: dict[tuple[int, str], Field]
    """(id of a record, field name) -> the field."""
    lists: dict[int, str]
    """id of the root of a list or ragged place -> its list store."""

    def position(self, record: InferredRecord) -> tuple[str, int]:
        return self.positions[id(record)]

    def field(self, record: InferredRecord, name: str) -> Field:
        return self.columns[id(record), name]

    def list_name(self, place: InferredPlace) -> str:
        return self.lists[id(place.find())]


def lay_out(inference: Inference) -> SchemaLayout:
    """The schema of all that an inference has seen."""
    inference.close()
    return _SchemaBuilder(inference).build()


def merge(a: Schema, b: Schema) -> Schema:
    """The join of two schemas: it holds every batch that either of them holds. Raises BatchError when a place has
    types that do not join."""
    inference = Inference()
    try:
        inference.see_schema(a)
        inference.see_schema(b)
        return lay_out(inference).schema
    except InferenceConflict as error:
        raise TypesDisagree(f"two batches disagree on a type: {error}; pack them with one `like=`") from None


class TypesDisagree(BatchError):
    """Two schemas have types in one place that do not join."""


@dataclass(eq=False)
class _SchemaBuilder:
    inference: Inference
    store_names: dict[int, str] = field(default_factory=dict)
    lists: dict[int, str] = field(default_factory=dict)
    list_stores: list[ListStore] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    taken_lists: set[str] = field(default_factory=set)

    def build(self) -> SchemaLayout:
        groups: dict[int, list[InferredRecord]] = {}
        for record in sorted(self.inference.records, key=lambda r: r.order):
            groups.setdefault(id(record.find()), []).append(record)
        for group, members in groups.items():
            self.store_names[group] = _unique(_store_name([m.name for m in members]), self.taken)
        class_names = _class_names(record for members in groups.values() for record in members)
        positions: dict[int, tuple[str, int]] = {}
        columns: dict[tuple[int, str], Field] = {}
        stores: list[Store] = []
        place = self.inference.root.find()
        root = self.type_of(place, "#root")
        for name, members in zip(self.store_names.values(), groups.values(), strict=True):
            positions |= {id(m): (name, k) for k, m in enumerate(members)}
            fields = self.fields(name, members)
            columns |= {(id(members[k]), f.name): f for f in fields for k in f.classes}
            classes = tuple(Class(class_names[id(m)], m.kind, m.cls, m.keys or ()) for m in members)
            stores.append(Store(name, classes, tuple(fields)))
        optional = place.none and place.kind in ("leaf", "unknown")
        schema = Schema(root, tuple(stores), tuple(self.list_stores), optional, place.numpy)
        return SchemaLayout(schema, positions, columns, self.lists)

    def fields(self, store: str, members: list[InferredRecord]) -> list[Field]:
        """The fields of a store: places that were unified are one, in the order of the first class that has them."""
        found: dict[str, dict[int, list[int]]] = {}
        for k, record in enumerate(members):
            for name, place in record.places.items():
                found.setdefault(name, {}).setdefault(id(place.find()), []).append(k)
        made = []
        for name, places in found.items():
            for classes in places.values():
                place = members[classes[0]].places[name].find()
                column = f"{store}.{name}" if len(places) == 1 else f"{store}.{members[classes[0]].name}.{name}"
                column = _unique(column, self.taken)
                unknown, leaf = place.kind == "unknown", place.kind in ("leaf", "unknown")
                null = place.none or unknown
                type = self.type_of(place, column)
                made.append(Field(name, type, column, tuple(classes), leaf and null, unknown, null, place.numpy))
        return made

    def type_of(self, place: InferredPlace, column: str) -> Type:
        """The type of a place; makes the list stores below it. `column` names what holds it."""
        place = place.find()
        list(nested_places(place))
        match place.kind:
            case "unknown":
                return UNKNOWN
            case "leaf":
                return place.leaf
            case "record":
                assert place.record is not None
                return Ref(self.store_names[id(place.record.find())])
            case "ragged":
                assert isinstance(place.leaf, Array)
                return List(place.leaf, self.list_store(place, column, place.leaf, from_array=True))
            case "list":
                assert place.items is not None
                inner = place.items.find()
                elem = self.type_of(inner, f"{column}[]")
                return List(elem, self.list_store(place, column, elem, from_array=False))

    def list_store(self, place: InferredPlace, column: str, elem: Type, from_array: bool) -> str:
        """The name of the list store of a place; made at its first visit."""
        if id(place) not in self.lists:
            name = _unique(column, self.taken_lists)
            self.lists[id(place)] = name
            inner = place.items.find() if place.items is not None else None
            none = inner is not None and inner.none
            leaf = inner is not None and inner.kind in ("leaf", "unknown")
            numpy = inner is not None and inner.numpy
            self.list_stores.append(ListStore(name, elem, from_array, none and leaf, none, numpy))
        return self.lists[id(place)]


def _unique(name: str, taken: set[str]) -> str:
    count, made = 1, name
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made)
    return made


def _store_name(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return "|".join(distinct if len(distinct) <= 4 else [*distinct[:3], f"+{len(distinct) - 3}"])


def _class_names(records: Iterable[InferredRecord]) -> dict[int, str]:
    """A name for each class: `is_class` tests for names. Forms of one class are classes of their own."""
    taken: set[str] = set()
    return {id(record): _unique(record.name, taken) for record in records}
