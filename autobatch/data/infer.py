"""The schema of a data set: which classes share a store, and the type of every field, joined over all that was seen.

Everything is union-find (Tarjan 1975) over two kinds of nodes. A *place* is where values are held: a field of a class,
the elements of a list, the root. A *record* is a class: its places by field name. Two records met at one place share a
store; the places of one field name in a store are one place where their types allow it. What is no record and stands
where values of another sort stand too (`Node | float`, `list[int | str]`) is a record there, with the one field
`VALUE`: its class says of which sort it is, as the tag of a tagged union does. Tuples of one length and dicts of the
same keys that hold other sorts are classes of their own where a constant tells them apart (`("num", 2.0)`, `("neg",
tree)`), and one class where none does. Facts only ever join, so schemas grow monotonically: `merge(a, b)` replays both
into one inference.

    examples                                 Node.left: record Node | Leaf, None seen
    Node(Leaf(1), None), Leaf(2.5)   ->      Node.right: unknown, None seen
                                             Leaf.value: leaf float*; root: record Node | Leaf
                                             one store `Leaf|Node`, classes (Leaf, Node)
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from autobatch.data.columns import MOST_CONSTANTS, UNKNOWN, VALUE, Class, Field, ListStore, Schema, Store
from autobatch.data.leaves import COMPLEX, Category, category, describe_type, join, ragged_elem, vocabulary_of
from autobatch.errors import BatchError
from autobatch.ir.core import BOOL, FLOAT, INT, STR, Array, BuiltObject, List, Ref, Tag, Type

MAX_NESTING = 64
"""Lists in lists, at most: their type names every level. Deeper structure needs a class, which names itself."""

RecordKind = Literal["object", "namedtuple", "tuple", "list", "dict", "table", "value"]
Signature = tuple[str | None, ...]
Form = tuple[str, ...]


class InferenceConflict(Exception):
    """Two places that must have one type do not: both in words."""


@dataclass(eq=False)
class InferredPlace:
    """Where values are held, and what has been seen there. `leaf` is the type of a leaf, or of the rows of ragged
    arrays; `record` and `items` are set for references and lists. `none`: None was seen, `numpy`: an
    array of NumPy."""

    where: str
    kind: Literal["unknown", "leaf", "record", "list", "ragged"] = "unknown"
    leaf: Array | Tag = UNKNOWN
    record: InferredRecord | None = None
    items: InferredPlace | None = None
    none: bool = False
    numpy: bool = False
    parent: InferredPlace | None = None

    def find(self) -> InferredPlace:
        """The place that stands for all places unified with this one."""
        place = self
        while place.parent is not None:
            if place.parent.parent is not None:
                place.parent = place.parent.parent
            place = place.parent
        return place

    def words(self) -> str:
        """What is held here, in the words of an error message."""
        match self.kind:
            case "unknown":
                return "None"
            case "leaf":
                return describe_type(self.leaf)
            case "record":
                return f"an object of {self.record.name if self.record else '?'}"
            case "list":
                return "a list"
            case "ragged":
                return f"ragged arrays of {describe_type(self.leaf)}"


@dataclass(eq=False)
class InferredRecord:
    """A class, or one of its forms: instances of a plain class with other attributes, tuples and dicts whose elements
    are of other sorts (`signature`), are other records of the same name. `keys`: the order of the keys of a dict, empty
    where two were seen."""

    kind: RecordKind
    name: str
    cls: type | None
    places: dict[str, InferredPlace]
    signature: Signature = ()
    keys: tuple[str, ...] | None = None
    parent: InferredRecord | None = None
    members: list[InferredRecord] = field(default_factory=list)
    """Of the record that stands for a store: its records without a class of the user."""
    where: str = ""
    same: InferredRecord | None = None
    """Another record of its store that it was found to be."""
    tag: tuple[str, frozenset[Any]] | None = ("", frozenset())
    """The first field of a tuple or dict that holds strings or members of an enum, and which; None: they are too many,
    or nobody has noted them."""

    def find(self) -> InferredRecord:
        """The record that stands for all records of its store."""
        record = self
        while record.parent is not None:
            if record.parent.parent is not None:
                record.parent = record.parent.parent
            record = record.parent
        return record

    @property
    def itself(self) -> InferredRecord:
        """The record that it is: one without a class of the user may have been found to be another of its store."""
        record = self
        while record.same is not None:
            record = record.same
        return record

    @property
    def form(self) -> Form:
        """What records of a store have in common that are one there: values of one sort, tuples of one length, dicts of
        some keys, dicts and sets whose keys are data. Arrays of two dtypes have no type in common, so tuples that hold
        them are not one."""
        if self.kind == "value":
            return "value", self.name
        if self.kind == "table":
            return "table", self.name
        arrays = (s for s in self.signature if s is not None and s.endswith(("/array", "/scalar")))
        return (self.kind, *self.places, *arrays)

    def told_from(self, other: InferredRecord) -> bool:
        """Does a constant tell it from another one of its form, which holds other sorts?"""
        if self.tag is None or other.tag is None or self.tag[0] != other.tag[0] or self.tag[1] & other.tag[1]:
            return False
        tags = [r.signature[k] for r in (self, other) for k, name in enumerate(r.places) if name == self.tag[0]]
        return len(tags) == 2 and tags[0] == tags[1] and self.differs(other)

    def differs(self, other: InferredRecord) -> bool:
        """Does a record of the same form hold values of other sorts?"""
        return any(a != b and None not in (a, b) for a, b in zip(self.signature, other.signature, strict=True))

    def see_constants(self, tag: tuple[str, frozenset[Any]] | None) -> None:
        """Some have these constants at their tag; None: nobody knows which."""
        if tag is None or self.tag is None or (self.tag[0] and tag[0] and self.tag[0] != tag[0]):
            self.tag = None
        elif tag[0]:
            held = self.tag[1] | tag[1]
            self.tag = (tag[0], held) if len(held) <= MOST_CONSTANTS else None

    def see_keys(self, keys: tuple[str, ...]) -> None:
        """A dict has its keys in this order."""
        self.keys = keys if self.keys in (None, keys) else ()

    @property
    def order(self) -> tuple[str, ...]:
        """Sorts the classes of a schema, whatever the order in which data showed them."""
        home = () if self.cls is None else (self.cls.__module__, self.cls.__qualname__)
        return (self.name, *home, *sorted(self.places), *(s or "" for s in self.signature), self.where)


@dataclass(eq=False)
class Inference:
    """All places and records. `root` is the place of the examples themselves."""

    root: InferredPlace = field(default_factory=lambda: InferredPlace("the examples"))
    records: list[InferredRecord] = field(default_factory=list)
    differ: str = ""
    """Of the first place where values of several sorts met, two of them in words; of tuples of one length and of dicts
    of the same keys that is to be expected."""

    def record(
        self, kind: RecordKind, cls: type | None, names: tuple[str, ...], signature: Signature = ()
    ) -> InferredRecord:
        """The record of that form; made when it is new. Where a signature has None, it agrees with any."""
        for known in self.records:
            if known.kind != kind or known.cls is not cls or known.places.keys() != set(names):
                continue
            if cls is None:
                pairs = list(zip(known.signature, signature, strict=True))
                if not all(a == b or a is None or b is None for a, b in pairs):
                    continue
                known.signature = tuple(a if a is not None else b for a, b in pairs)
            return known
        name = cls.__name__ if cls is not None else ("dict" if kind == "dict" else f"{kind}{len(names)}")
        made = InferredRecord(kind, name, cls, {n: InferredPlace(_in_words(name, kind, n)) for n in names}, signature)
        if cls is None:
            made.members.append(made)
        self.records.append(made)
        return made

    def value(self, name: str, cls: type | None, where: str) -> InferredRecord:
        """A new record of values that stand beside others of another sort."""
        return self._at(InferredRecord("value", name, cls, {VALUE: InferredPlace(where)}, where=where))

    def table(self, cls: type, where: str) -> InferredRecord:
        """A new record of dicts or sets whose keys are data, as one place holds them."""
        fields = {name: InferredPlace(f"the {name} of {where}") for name in names_of_table(cls)}
        return self._at(InferredRecord("table", cls.__name__, cls, fields, where=where))

    def _at(self, made: InferredRecord) -> InferredRecord:
        """A record of one place, where it is one with others of its form."""
        made.members.append(made)
        self.records.append(made)
        return made

    def see_leaf(self, place: InferredPlace, type: Array | Tag, none: bool, numpy: bool = False) -> None:
        """Values of a leaf type are held at `place`. Raises Conflict."""
        if type == UNKNOWN:
            place.find().none |= none
        else:
            self.join(place, InferredPlace(place.where, "leaf", leaf=type, none=none, numpy=numpy))

    def see_ragged(self, place: InferredPlace, elem: Array, none: bool, numpy: bool = False) -> None:
        """Arrays that differ in the first axis are held at `place`."""
        self.join(place, InferredPlace(place.where, "ragged", leaf=elem, none=none, numpy=numpy))

    def see_record(self, place: InferredPlace, record: InferredRecord, none: bool) -> None:
        """Objects of a class are held at `place`."""
        self.join(place, InferredPlace(place.where, "record", record=record, none=none))

    def see_list(self, place: InferredPlace, items: InferredPlace, none: bool) -> None:
        """Lists are held at `place`, and `items` in them."""
        self.join(place, InferredPlace(place.where, "list", items=items, none=none))

    def join(self, a: InferredPlace, b: InferredPlace) -> None:
        """Unify two places: what is seen at one is seen at both. Raises Conflict."""
        pending = [(a, b)]
        while pending:
            a, b = (p.find() for p in pending.pop())
            if a is b:
                continue
            self._join_kinds(a, b)
            if a.record is not None and b.record is not None:
                self._same_store(a.record, b.record)
            elif a.items is not None and b.items is not None:
                pending.append((a.items, b.items))
            a.record, a.items = a.record or b.record, a.items or b.items
            a.none |= b.none
            a.numpy |= b.numpy
            b.parent = a

    def _join_kinds(self, a: InferredPlace, b: InferredPlace) -> None:
        """Set `a.kind` and `a.leaf` to hold both."""
        if a.kind == "unknown":
            a.kind, a.leaf = b.kind, b.leaf
        elif b.kind == "unknown" or (a.kind == b.kind and a.kind in ("record", "list")):
            pass
        elif a.kind == b.kind and (joined := join(a.leaf, b.leaf)) is not None:
            assert isinstance(joined, (Array, Tag))
            a.leaf = joined
        elif (elem := _ragged_join(a, b)) is not None:
            a.kind, a.leaf = "ragged", elem
        elif sort_of_place(a) == sort_of_place(b):
            raise InferenceConflict(f"{a.words()} and {b.words()}")
        else:
            self.differ = self.differ or f"{a.words()} and {b.words()}"
            self.as_values(a)
            self.as_values(b)

    def as_values(self, place: InferredPlace) -> None:
        """What is held at a place stands beside values of another sort from now on."""
        if place.kind in ("record", "unknown"):
            return
        record = self.value(*sort_of_place(place), place.where)
        held = record.places[VALUE]
        held.kind, held.leaf, held.items, held.numpy = place.kind, place.leaf, place.items, place.numpy
        place.kind, place.leaf, place.items, place.numpy, place.record = "record", UNKNOWN, None, False, record

    def _same_store(self, a: InferredRecord, b: InferredRecord) -> None:
        """Unify two stores; records of one form are one there, unless a constant tells them apart."""
        a, b = a.find(), b.find()
        if a is b:
            return
        b.parent = a
        alike: list[tuple[InferredPlace, InferredPlace]] = []  # joined when all members of `a` are known
        for other in b.members:
            mine = next((m for m in a.members if m.form == other.form and not m.told_from(other)), None)
            if mine is None:
                a.members.append(other)
            else:
                alike += self._one_record(mine, other)
        self._join_all(alike)

    def _one_record(self, mine: InferredRecord, other: InferredRecord) -> list[tuple[InferredPlace, InferredPlace]]:
        """Two records of a store are one; the places to join."""
        self.records.remove(other)
        other.same = mine
        mine.where = min(mine.where, other.where)
        sorts = zip(mine.signature, other.signature, strict=True)
        mine.signature = tuple(x if x == y else x or y if None in (x, y) else "record" for x, y in sorts)
        if other.keys is not None:
            mine.see_keys(other.keys)
        mine.see_constants(other.tag)
        return [(mine.places[name], place) for name, place in other.places.items()]

    def _join_all(self, alike: Iterable[tuple[InferredPlace, InferredPlace]]) -> None:
        """Join the places of records that are one, which may hold values of several sorts."""
        differ = self.differ
        for first, second in alike:
            self.join(first, second)
        self.differ = differ

    def close(self) -> None:
        """Unify places of one field name in each store where their types agree, and stores that are nested in one
        another, until nothing changes. None among the numbers or strings of a list is another value there."""
        for place in [self.root, *(p for record in self.records for p in record.places.values())]:
            for items in list(nested_places(place))[1:]:
                if items.none and items.kind == "leaf":
                    self.as_values(items)
        changed = True
        while changed:
            changed = self._close_nested() or self._close_told()
            seen: dict[tuple[InferredRecord, str], list[InferredPlace]] = {}
            for record in sorted(self.records, key=lambda r: r.order):
                for name, place in record.places.items():
                    held = seen.setdefault((record.find(), name), [])
                    if any(place.find() is other.find() for other in held):
                        continue
                    match = next((other for other in held if agree(other, place)), None)
                    if match is None:
                        held.append(place)
                    else:
                        self.join(match, place)
                        changed = True

    def _close_nested(self) -> bool:
        """`float | list[float | list[...]]`, `tuple[float | tuple[...]]`: one store, however deep they are nested. Has
        that changed any?"""
        for record in self.records:
            if record.cls is None or record.kind in ("value", "table"):
                for place in record.places.values():
                    inner = list(nested_places(place))[-1].record
                    if inner is not None and self._holds_again(record, inner.find()):
                        self._same_store(record, inner)
                        return True
        return False

    def _close_told(self) -> bool:
        """Records of one form in a store that no constant tells apart are one. Has that changed any?"""
        for store in {id(r.find()): r.find() for r in self.records}.values():
            for a, b in itertools.combinations(store.members, 2):
                if a.form == b.form and not a.told_from(b):
                    store.members.remove(b)
                    self._join_all(self._one_record(a, b))
                    return True
        return False

    def _holds_again(self, record: InferredRecord, inner: InferredRecord) -> bool:
        """May a store hold records of this form, and what is no record?"""
        if inner is record.find() or all(m.form != record.form for m in inner.members):
            return False
        return any(m.kind == "value" for m in inner.members)

    def see_schema(self, schema: Schema) -> dict[str, list[InferredRecord]]:
        """Replay everything that a schema has seen; gives the records of its stores."""
        items: dict[str, InferredPlace] = {}
        lists: dict[str, InferredPlace] = {}
        records: dict[str, InferredRecord] = {}

        def see(place: InferredPlace, type: Type, none: bool, numpy: bool) -> None:
            match type:
                case Array() | Tag():
                    self.see_leaf(place, type, none, numpy)
                case Ref(store=store):
                    self.see_record(place, records[store], none)
                case List(store=store):
                    assert store is not None
                    if schema.list(store).from_array:
                        elem = schema.list(store).elem
                        assert isinstance(elem, Array)
                        self.see_ragged(place, elem, none, numpy)
                    else:
                        self.see_list(place, items[store], none)
                        self.join(lists.setdefault(store, place), place)  # one list may be at both places

        items.update({s.name: InferredPlace(f"the elements of {s.name}") for s in schema.lists if not s.from_array})
        found = [(store, self.records_of(schema, store.name, k)) for k, store in enumerate(schema.stores)]
        for store, members in found:
            records[store.name] = members[0]
            for member in members[1:]:
                self._same_store(members[0], member)
        for store, members in found:
            for f in store.fields:
                for k in f.classes:
                    see(members[k].places[f.name], f.type, f.optional or f.nullable, f.numpy)
        for s in schema.lists:
            if not s.from_array:
                see(items[s.name], s.elem, s.optional or s.nullable, s.numpy)
        held_as_row = isinstance(schema.root, Ref | List)
        see(self.root, schema.root, schema.root_optional or (held_as_row and schema.root_nullable), schema.root_numpy)
        return {store.name: members for store, members in found}

    def records_of(self, schema: Schema, store: str, number: int) -> list[InferredRecord]:
        """The records of the classes of a store of some schema, by position; made where they are new. `number`: which
        store it is; classes of places stay in that order."""
        held = schema.store(store)
        made: list[InferredRecord] = []
        for k, cls in enumerate(held.classes):
            fields = [f for f in held.fields if k in f.classes]
            if cls.kind == "value":
                made.append(self.value(name_of_value(cls, fields[0].type), cls.cls, store))
            elif cls.kind == "table":
                assert cls.cls is not None
                made.append(self.table(cls.cls, store))
            if cls.kind in ("value", "table"):
                made[-1].where = f"{number:06}"
                continue
            if cls.cls is None:
                fields.sort(key=lambda f: (0, f.name) if cls.kind == "dict" else (len(f.name), f.name))
            names = tuple(f.name for f in fields)
            signature = tuple(sort_of_type(f.type, schema) for f in fields) if cls.cls is None else ()
            made.append(self.record(cls.kind, cls.cls, names, signature))
            made[-1].see_constants(cls.tag or cls.seen)
            if cls.kind == "dict":
                made[-1].see_keys(cls.keys)
        return made


def _in_words(name: str, kind: RecordKind, field: str) -> str:
    if kind in ("tuple", "list"):
        return f"{name}[{field}]"
    return f"{name}[{field!r}]" if kind == "dict" else f"{name}.{field}"


def sort_of_place(place: InferredPlace) -> tuple[str, type | None]:
    """The sort of what is held at a place, as a name and, but for members of enums, a class: values of one sort have a
    type in common or none at all."""
    if place.kind in ("record", "list"):
        return OF_RECORDS if place.kind == "record" else OF_LISTS
    if isinstance(place.leaf, Tag) and place.leaf != STR:
        return place.leaf.vocabulary.rpartition(".")[2], None
    return sort_of_leaf(class_of_leaf(place.leaf) if place.kind == "leaf" else np.ndarray)


def name_of_value(cls: Class, type: Type) -> str:
    """The name of the sort of a record "value", whose class has another name where two stores have one."""
    if cls.cls is None:
        assert isinstance(type, Tag)
        return type.vocabulary.rpartition(".")[2]
    return sort_of_leaf(cls.cls)[0] if cls.cls is not list else "list"


def class_of_leaf(type: Type) -> type:
    """The class of numbers, strings and arrays of a type."""
    return next((cls for cls, of in _LEAVES.items() if of == type), np.ndarray)


OF_RECORDS, OF_LISTS = ("record", object), ("list", list)
"""The sorts of what is no leaf."""


def sort_of_leaf(cls: type) -> tuple[str, type | None]:
    """The sort of the leaves of a class."""
    match category(cls):
        case Category.MEMBER:
            return vocabulary_of(cls).rpartition(".")[2], None
        case Category.STRING:
            return "str", str
        case Category.ARRAY:
            return "array", np.ndarray
        case _:
            return cls.__name__, cls


def _ragged_join(a: InferredPlace, b: InferredPlace) -> Array | None:
    """The rows of arrays of both places, when they differ in the first axis only."""
    if not (isinstance(a.leaf, Array) and isinstance(b.leaf, Array)):
        return None
    if a.kind == b.kind == "leaf":
        return ragged_elem(a.leaf, b.leaf)
    ragged, fixed = (a, b) if a.kind == "ragged" else (b, a)
    if ragged.kind == "ragged" and fixed.kind == "leaf":
        assert isinstance(ragged.leaf, Array) and isinstance(fixed.leaf, Array)
        same = fixed.leaf.shape[1:] == ragged.leaf.shape and fixed.leaf.dtype == ragged.leaf.dtype
        return ragged.leaf if fixed.leaf.shape and same else None
    return None


def agree(a: InferredPlace, b: InferredPlace) -> bool:
    """May two fields of one name in one store be one field? Leaves only when their types are the same."""
    for _ in range(MAX_NESTING):
        a, b = a.find(), b.find()
        if a is b or "unknown" in (a.kind, b.kind):
            return True
        if a.kind != b.kind:
            return False
        if a.items is None or b.items is None:
            return a.kind == "record" or a.leaf == b.leaf
        a, b = a.items, b.items
    return False


def sort_of_type(type: Type, schema: Schema) -> str | None:
    """The entry of a tuple's or dict's signature for an element of that type; None when it is unknown."""
    match type:
        case Array():
            return sort_of_array(type) if type != UNKNOWN else None
        case Tag(vocabulary=vocabulary):
            return vocabulary
        case Ref(store=store) if all(c.kind == "table" for c in schema.store(store).classes):
            return "table"
        case Ref() | BuiltObject():
            return "record"
        case List(store=name):
            items = schema.list(name) if name is not None else None
            if items is not None and items.from_array and isinstance(items.elem, Array):
                return f"{items.elem.dtype}/array"
            return "list"


def is_words(sort: str) -> bool:
    """Are values of this sort, an entry of a signature, strings or members of an enum?"""
    return sort not in ("number", "record", "list", "table") and "/" not in sort


def names_of_table(cls: type) -> tuple[str, ...]:
    """The lists of a dict or set whose keys are data."""
    return ("keys", "values") if issubclass(cls, dict) else ("keys",)


def sort_of_array(type: Array) -> str:
    """The entry of a signature for numbers and arrays: arrays may differ in shape between examples."""
    if type.weak or type == BOOL:
        return "number"
    return f"{type.dtype}/{'array' if type.shape else 'scalar'}"


def nested_places(place: InferredPlace) -> Iterator[InferredPlace]:
    """The place and those of the elements of its lists, outermost first. Raises BatchError when they nest too deep."""
    for _ in range(MAX_NESTING):
        place = place.find()
        yield place
        if place.items is None:
            return
        place = place.items
    raise BatchError(
        f"{place.where}: lists are nested more than {MAX_NESTING} deep (or hold themselves); "
        "use a class with a list field for structure that nests without end"
    )


# ---- layout
#
# From an inference to a schema: names of stores, classes, columns and lists, and where each place went.
#
# Names depend on the classes and types alone, never on the order in which examples showed them.


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
        return self.positions[id(record.itself)]

    def field(self, record: InferredRecord, name: str) -> Field:
        return self.columns[id(record.itself), name]

    def list_name(self, place: InferredPlace) -> str:
        return self.lists[id(place.find())]


def lay_out(inference: Inference) -> SchemaLayout:
    """The schema of all that an inference has seen."""
    inference.close()
    return _SchemaBuilder(inference).build()


def merge(a: Schema, b: Schema) -> Schema:
    """The join of two schemas: it holds every batch that either of them holds. Raises BatchError when a place has
    types that do not join, or are of two sorts where neither schema has several in one place."""
    inference = Inference()
    try:
        inference.see_schema(a)
        inference.see_schema(b)
        joined = lay_out(inference).schema
        if inference.differ and not (a.mixes or b.mixes):
            raise TypesDisagree(f"two batches disagree on a type: {inference.differ}; pack them with one `like=`")
        return joined
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
        tags = _tags(groups)
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
            classes = tuple(
                Class(class_names[id(m)], m.kind, m.cls, m.keys or (), (), tags.get(id(m)), m.tag) for m in members
            )
            stores.append(Store(name, classes, tuple(fields)))
        optional = place.none and place.kind in ("leaf", "unknown")
        schema = Schema(
            root, tuple(stores), tuple(self.list_stores), optional, place.numpy, place.none and not optional
        )
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


def _tags(stores: Mapping[int, Sequence[InferredRecord]]) -> dict[int, tuple[str, frozenset[Any]]]:
    """The tags of classes, by the identity of records: where constants tell all classes of a store apart, and in the
    stores from which such a one is reached, or which it reaches."""
    held = {id(m): m.tag for ms in stores.values() for m in ms if m.cls is None and m.tag is not None and m.tag[0]}
    told, beside = list[int](), dict[int, set[int]]()
    for store, members in stores.items():
        tags = [held[id(m)] for m in members if id(m) in held]
        constants = [(name, x) for name, found in tags for x in found]
        if len(tags) > 1 and len(set(constants)) == len(constants):
            told.append(store)
        for place in (p for m in members for p in m.places.values()):
            record = list(nested_places(place))[-1].record
            if record is not None:
                beside.setdefault(store, set()).add(id(record.find()))
                beside.setdefault(id(record.find()), set()).add(store)
    reached = set[int]()
    while told:
        store = told.pop()
        if store not in reached:
            reached.add(store)
            told += beside.get(store, ())
    return {id(m): held[id(m)] for store in reached for m in stores[store] if id(m) in held}


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


# ---- annotations
#
# Type annotations -> schemas, for batches without examples: `def f(words: list[int])` called with `[]`.


_LEAVES: dict[Any, Array | Tag] = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX, str: STR}
_CURE = "pass `like=<a Batch of such examples>`"


def schema_of_annotation(annotation: Any) -> Schema:
    """The schema of examples of an annotated type.

    Understood: bool, int, float, complex, str, enums, None, Optional and unions of classes, Literal, `list[T]`, fixed
    tuples, TypedDict, and dataclasses, NamedTuples, attrs and plain classes whose fields are annotated. A class stands
    for itself and its subclasses. Raises BatchError for anything that does not say its type in full, as arrays.

    >>> schema_of_annotation(list[int]).root
    List(elem=Array(dtype='int32', shape=(), weak=True), store='#root')
    """
    reader = _AnnotationReader()
    try:
        reader.see(reader.inference.root, annotation)
        reader.run()
        return lay_out(reader.inference).schema
    except InferenceConflict as error:
        words = _words(annotation)
        raise BatchError(f"the annotation {words} mixes types that do not join: {error}; {_CURE}") from None


def disagreements(schema: Schema) -> list[str]:
    """Fields of classes that hold something else than they are declared to, as far as declarations of numbers, strings
    and lists of them say."""
    found = []
    for store in schema.stores:
        for k, cls in enumerate(store.classes):
            try:
                declared = annotated_fields(cls.cls) if cls.cls is not None and cls.kind == "object" else {}
            except BatchError:
                continue
            for f in (f for f in store.fields if k in f.classes and not f.always_none):
                wanted = declared.get(f.name)
                if not _may_hold(wanted, f.type):
                    held = schema.words(f.type)
                    found.append(f"{cls.name}.{f.name} is declared {_words(wanted)}, and holds {held}")
    return found


def _may_hold(annotation: Any, type: Type) -> bool:
    if annotation is str:
        return isinstance(type, Tag)
    if annotation in (bool, int, float, complex):
        return isinstance(type, Array) and (type.shape == () or type == UNKNOWN)
    if typing.get_origin(annotation) is list and isinstance(type, List) and type.elem != UNKNOWN:
        return _may_hold(typing.get_args(annotation)[0], type.elem)
    return typing.get_origin(annotation) is not list or not isinstance(type, Tag)


def annotated_fields(cls: type) -> dict[str, Any]:
    """The annotated fields of a class, in their order, forward references resolved. Raises BatchError."""
    try:
        hints = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except (NameError, TypeError) as error:
        raise BatchError(f"the annotations of {cls.__qualname__} cannot be resolved: {error}; {_CURE}") from None
    if dataclasses.is_dataclass(cls):
        names: list[str] = [f.name for f in dataclasses.fields(cls)]
    else:
        names = [n for n, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar]
    return {n: hints[n] for n in names if n in hints}


def concrete_classes(cls: type) -> list[type]:
    """A class and its subclasses, without the abstract ones."""
    found: list[type] = []
    stack = [cls]
    while stack:
        member = stack.pop()
        stack.extend(member.__subclasses__())
        if not inspect.isabstract(member) and member not in found:
            found.append(member)
    return found


class _AnnotationReader:
    """Places whose annotations are still to be read are kept in a list, so recursive classes end."""

    def __init__(self) -> None:
        self.inference = Inference()
        self.classes: dict[type, dict[str, Any]] = {}
        self.done: set[tuple[int, Any]] = set()
        self.pending: list[tuple[InferredPlace, Any]] = []

    def run(self) -> None:
        while self.pending:
            self.see(*self.pending.pop())

    def see(self, place: InferredPlace, annotation: Any) -> None:
        """The annotation of a place."""
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is None or annotation is type(None):
            self.inference.see_leaf(place, UNKNOWN, none=True)
        elif origin in (typing.Union, types.UnionType):
            for argument in arguments:
                self.see(place, argument)
        elif origin is typing.Annotated:
            self.see(place, arguments[0])
        elif origin is typing.Literal:
            for value in arguments:
                self.see(place, type(value))
        elif origin is list and arguments:
            items = InferredPlace(f"the elements of {place.where}")
            self.inference.see_list(place, items, none=False)
            self.pending.append((items, arguments[0]))
        elif origin is tuple and arguments and Ellipsis not in arguments:
            self.see_tuple(place, arguments)
        elif isinstance(annotation, type):
            self.see_class(place, annotation)
        else:
            raise BatchError(f"the annotation {_words(annotation)} of {place.where} does not say a type; {_CURE}")

    def see_tuple(self, place: InferredPlace, arguments: tuple[Any, ...]) -> None:
        names = tuple(map(str, range(len(arguments))))
        self.see_fields(place, "tuple", None, dict(zip(names, arguments, strict=True)), arguments)

    def see_class(self, place: InferredPlace, cls: type) -> None:
        """A leaf type, or a class with fields and its subclasses."""
        if cls in _LEAVES:
            self.inference.see_leaf(place, _LEAVES[cls], none=False)
        elif issubclass(cls, enum.Enum):
            self.inference.see_leaf(place, Tag(vocabulary_of(cls)), none=False)
        elif typing.is_typeddict(cls):
            self.see_fields(place, "dict", None, self.hints(cls), cls)
        elif category(cls) is Category.ARRAY:
            raise BatchError(f"the annotation {_words(cls)} of {place.where} says neither dtype nor shape; {_CURE}")
        else:
            refused = cls.__module__ == "builtins" or category(cls) is Category.REFUSED
            members = {} if refused else {m: hints for m in concrete_classes(cls) if (hints := self.hints(m))}
            if not members:
                raise BatchError(f"the annotation {_words(cls)} of {place.where} does not say its fields; {_CURE}")
            for member, hints in members.items():
                self.see_fields(place, "namedtuple" if issubclass(member, tuple) else "object", member, hints, member)

    def hints(self, cls: type) -> dict[str, Any]:
        """The annotated fields of a class, read once."""
        if cls not in self.classes:
            self.classes[cls] = annotated_fields(cls)
        return self.classes[cls]

    def see_fields(
        self, place: InferredPlace, kind: RecordKind, cls: type | None, hints: dict[str, Any], source: Any
    ) -> None:
        """A record with these annotated fields; `source` is what annotated them, read once for each record."""
        names = tuple(sorted(hints)) if kind == "dict" else tuple(hints)
        signature = tuple(_sort(hints[n]) for n in names) if cls is None else ()
        record = self.inference.record(kind, cls, names, signature)
        if kind == "dict":
            record.see_keys(tuple(hints))
        self.inference.see_record(place, record, none=False)
        if (id(record), source) not in self.done:
            self.done.add((id(record), source))
            self.pending.extend((record.places[n], hints[n]) for n in names)


def _sort(annotation: Any) -> str | None:
    """The entry of a signature for an element with this annotation: the sort of the first alternative."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return next((sort for a in arguments if (sort := _sort(a)) is not None), None)
    if origin is typing.Annotated:
        return _sort(arguments[0])
    if origin is typing.Literal:
        return _sort(type(arguments[0]))
    if annotation is None or annotation is type(None):
        return None
    if annotation in _LEAVES:
        return "str" if annotation is str else "number"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return vocabulary_of(annotation)
    return "list" if origin is list else "record"


def _words(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)
