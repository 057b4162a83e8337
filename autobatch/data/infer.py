"""The schema of a data set: which classes share a store, and the type of every field, joined over all that was seen.

Everything is union-find (Tarjan 1975) over two kinds of nodes. A *place* is where values are held: a field of a class,
the elements of a list, the root. A *record* is a class: its places by field name. Two records met at one place share a
store; the places of one field name in a store are one place where their types allow it. Facts only ever join, so
schemas grow monotonically: `merge(a, b)` replays both into one inference.

    examples                                 Node.left: record Node | Leaf, None seen
    Node(Leaf(1), None), Leaf(2.5)   ->      Node.right: unknown, None seen
                                             Leaf.value: leaf float*; root: record Node | Leaf
                                             one store `Leaf|Node`, classes (Leaf, Node)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from autobatch.data.leaves import describe_type, join, ragged_elem
from autobatch.data.schema import UNKNOWN, Schema
from autobatch.errors import BatchError
from autobatch.ir.types import BOOL, Array, BuiltObject, List, Ref, Tag, Type

MAX_NESTING = 64
"""Lists in lists, at most: their type names every level. Deeper structure needs a class, which names itself."""

RecordKind = Literal["object", "namedtuple", "tuple", "list", "dict"]
Signature = tuple[str | None, ...]


class InferenceConflict(Exception):
    """Two places that must have one type do not: both in words."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


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

    def find(self) -> InferredRecord:
        """The record that stands for all records of its store."""
        record = self
        while record.parent is not None:
            if record.parent.parent is not None:
                record.parent = record.parent.parent
            record = record.parent
        return record

    def see_keys(self, keys: tuple[str, ...]) -> None:
        """A dict has its keys in this order."""
        self.keys = keys if self.keys in (None, keys) else ()

    @property
    def order(self) -> tuple[str, ...]:
        """Sorts the classes of a schema, whatever the order in which data showed them."""
        home = () if self.cls is None else (self.cls.__module__, self.cls.__qualname__)
        return (self.name, *home, *sorted(self.places), *(s or "" for s in self.signature))


@dataclass(eq=False)
class Inference:
    """All places and records. `root` is the place of the examples themselves."""

    root: InferredPlace = field(default_factory=lambda: InferredPlace("the examples"))
    records: list[InferredRecord] = field(default_factory=list)

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
        else:
            raise InferenceConflict(a.words(), b.words())

    def _same_store(self, a: InferredRecord, b: InferredRecord) -> None:
        a, b = a.find(), b.find()
        if a is not b:
            b.parent = a

    def close(self) -> None:
        """Unify places of one field name in each store where their types agree, until nothing changes."""
        changed = True
        while changed:
            changed = False
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

    def see_schema(self, schema: Schema) -> None:
        """Replay everything that a schema has seen."""
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
        found = [(store, self.records_of(schema, store.name)) for store in schema.stores]
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
        see(self.root, schema.root, schema.root_optional, schema.root_numpy)

    def records_of(self, schema: Schema, store: str) -> list[InferredRecord]:
        """The records of the classes of a store of some schema, by position; made where they are new."""
        held = schema.store(store)
        made: list[InferredRecord] = []
        for k, cls in enumerate(held.classes):
            if cls.kind == "table":
                raise BatchError(
                    f"a {cls.name} among the results of a function cannot be among the examples of another one: return "
                    "list(...) of its items instead"
                )
            fields = [f for f in held.fields if k in f.classes]
            if cls.cls is None:
                fields.sort(key=lambda f: (0, f.name) if cls.kind == "dict" else (len(f.name), f.name))
            names = tuple(f.name for f in fields)
            signature = tuple(sort_of_type(f.type, schema) for f in fields) if cls.cls is None else ()
            made.append(self.record(cls.kind, cls.cls, names, signature))
            if cls.kind == "dict":
                made[-1].see_keys(cls.keys)
        return made


def _in_words(name: str, kind: RecordKind, field: str) -> str:
    if kind in ("tuple", "list"):
        return f"{name}[{field}]"
    return f"{name}[{field!r}]" if kind == "dict" else f"{name}.{field}"


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
        case Ref() | BuiltObject():
            return "record"
        case List(store=store):
            held = schema.list(store) if store is not None else None
            if held is not None and held.from_array and isinstance(held.elem, Array):
                return f"{held.elem.dtype}/array"
            return "list"


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
