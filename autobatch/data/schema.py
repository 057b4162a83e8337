"""What a packed batch looks like: classes as stores of columns. Plain data, hashable, shared by packer and compiler.

An object is a row of a *store*. Classes that are ever seen in the same place (a field `left: Leaf | Node`) share one
store and are told apart by its tag column. Tuples, NamedTuples and dicts found INSIDE examples are records too: a
tuple of length 3 is the class `tuple3` with the fields `0 1 2`, a dict a class with its keys as fields.
A list is a row of a *list store*: `offsets` into `values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, assert_never

from autobatch.ir.core import Apply, Array, BuiltObject, List, Ref, Tag, Type

UNKNOWN = Array("bool", weak=True)
"""The type of a place where no example has held a value yet: a field that is always None, the elements of lists that
are all empty. No value of JAX or Python has it (a weak bool does not exist)."""


NOT_KEPT = {"kept": False}
"""Of a field that programs on disk need not have."""
MOST_CONSTANTS = 32
"""Constants of one class (`Class.tag`), at most, and what those that are numbers are smaller than: more are data."""
VALUE = "#value"
"""The one field of a record "value"."""


@dataclass(frozen=True, slots=True)
class Class:
    """A class of records. `cls` is the Python class (None for tuples and dicts); `kind` says how to rebuild one.
    A "list" is one of fixed length whose elements differ in type: a result `[1, "a"]`. `keys`: those of a dict in their
    order, where all dicts agree on it. A "table" is a dict, set or deque among results whose keys or elements are in
    lists, its first two fields; `cls` makes an empty one of the arguments `given`. A "value" is a number, string, array
    or list that stands where values of other sorts stand too, in the field `VALUE`. `tag`: the field whose constants
    (strings, members of an enum, small integers) tell a class of tuples or dicts from the others of its store, and
    those that it may hold: of `("num", 2.0)` and `("neg", tree)` the classes are two. `seen`: the same where there are
    no others yet; batches may hold more."""

    name: str
    kind: Literal["object", "namedtuple", "tuple", "list", "dict", "table", "value"]
    cls: type | None = None
    keys: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()
    tag: tuple[str, frozenset[Any]] | None = None
    seen: tuple[str, frozenset[Any]] | None = field(default=None, compare=False, repr=False, metadata=NOT_KEPT)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the classes with the positions `classes` in its store. `optional`: an array or tag field that is
    None in some row. `nullable`: a reference or list that is null (-1) in some row. `always_none`: no row has a value;
    `type` is then `UNKNOWN`. `numpy`: some array in it was one of NumPy, whose indices fail
    where they are out of range. Two fields of one store may have one name when their classes disagree on the type."""

    name: str
    type: Type
    column: str
    classes: tuple[int, ...]
    optional: bool = False
    always_none: bool = False
    nullable: bool = True
    numpy: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    name: str
    classes: tuple[Class, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ListStore:
    """Lists of `elem`; `from_array`: they were arrays whose first axis differs between objects; iterating gives rows.
    `optional`: an array or tag that is None in some list. `nullable`: some element is a null reference or list.
    `numpy`: some element was an array of NumPy. `is_tuple`: they are tuples, of any length."""

    name: str
    elem: Type
    from_array: bool = False
    optional: bool = False
    nullable: bool = True
    numpy: bool = False
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """`root` is the type of one example; `root_optional`: some examples are None where `root` is an array or tag;
    `root_numpy`: some are arrays of NumPy; `root_nullable`: some are None where `root` is a reference or list."""

    root: Type
    stores: tuple[Store, ...] = ()
    lists: tuple[ListStore, ...] = ()
    root_optional: bool = False
    root_numpy: bool = False
    root_nullable: bool = False

    def store(self, name: str) -> Store:
        return next(s for s in self.stores if s.name == name)

    def list(self, name: str) -> ListStore:
        return next(s for s in self.lists if s.name == name)

    @property
    def has_values(self) -> bool:
        """Do values of several sorts stand in one place somewhere, which no constant beside them tells apart?"""
        return any(c.kind == "value" for s in self.stores for c in s.classes)

    @property
    def has_tags(self) -> bool:
        """Do constants tell tuples or dicts of other sorts apart?"""
        return any(c.tag is not None for s in self.stores for c in s.classes)

    @property
    def mixes(self) -> bool:
        """Either of these?"""
        return self.has_values or self.has_tags

    def words(self, type: Type) -> str:
        """A type as an annotation would say it."""
        return _words(self, type)

    def __str__(self) -> str:
        """The type of one example, as an annotation would say it: `Node`, `list[int]`, `tuple[Tree, float]`."""
        return _words(self, self.root) + (" | None" if self.root_optional else "")


@lru_cache(maxsize=256)
def nullable_types(schema: Schema) -> frozenset[Type]:
    """The types of places where some example holds None."""
    places = [(f.type, f.nullable) for store in schema.stores for f in store.fields]
    places += [(x.elem, x.nullable) for x in schema.lists]
    places.append((schema.root, schema.root_nullable))
    return frozenset(type for type, nullable in places if nullable)


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """A shared input of a program that is a column of the examples."""

    name: str


@dataclass(frozen=True, slots=True)
class WordInput:
    """A shared input that is the position of a string or of a member of an enum in its vocabulary, -1 for none."""

    vocabulary: str
    value: Any


WORDS = "#words:"


def column_of_words(part: str) -> str:
    """The name of a column of the strings of the examples: their letters, as code points behind one another
    (".#letters"), and where those of each begin (".#offsets")."""
    return f"{WORDS}str{part}"


_SHARED = "shared arguments: "
"""What the names of stores begin with that all examples share."""


@dataclass(frozen=True, slots=True)
class SharedColumns:
    """Objects that all examples share as columns: the argument number `number` of those; its columns are shared inputs,
    from number `first` on."""

    number: int
    schema: Schema
    first: int
    names: tuple[str, ...]

    @property
    def begin(self) -> str:
        """What the names of its stores and columns begin with."""
        return f"{_SHARED}{self.number}: "

    @property
    def root(self) -> Type:
        return moved(self.schema.root, self.begin)


def is_shared_store(name: str) -> bool:
    """Do all examples share the objects of a store?"""
    return name.startswith(_SHARED)


def with_shared(schema: Schema, shared: Sequence[SharedColumns]) -> Schema:
    """A schema with the stores of objects that all examples share, under names of their own."""
    stores, lists = list(schema.stores), list(schema.lists)
    for other in shared:
        begin = other.begin
        for s in other.schema.stores:
            fields = (replace(f, type=moved(f.type, begin), column=begin + f.column) for f in s.fields)
            stores.append(Store(begin + s.name, s.classes, tuple(fields)))
        lists += [replace(s, name=begin + s.name, elem=moved(s.elem, begin)) for s in other.schema.lists]
    return replace(schema, stores=tuple(stores), lists=tuple(lists))


def moved(type: Type, begin: str) -> Type:
    """A type whose stores have other names."""
    match type:
        case Ref(store=store):
            return Ref(begin + store)
        case List(elem=elem, store=store):
            return List(moved(elem, begin), None if store is None else begin + store)
        case _:
            return type


def without_numpy(schema: Schema) -> Schema:
    """The schema as if none of the arrays were NumPy's."""
    stores = tuple(
        replace(s, fields=tuple(replace(f, numpy=False) if f.numpy else f for f in s.fields)) for s in schema.stores
    )
    lists = tuple(replace(s, numpy=False) if s.numpy else s for s in schema.lists)
    return replace(schema, stores=stores, lists=lists, root_numpy=False)


_NUMBERS = {"int32": "int", "float32": "float", "bool": "bool", "complex64": "complex"}


def _words(schema: Schema, type: Type, within: frozenset[str] = frozenset()) -> str:
    """`within`: the stores of tuples and dicts around it, which may hold themselves."""
    match type:
        case Array(dtype=dtype, shape=(), weak=True) if type != UNKNOWN:
            return _NUMBERS.get(dtype, dtype)
        case Array(dtype=dtype, shape=shape):
            return f"{dtype}[{', '.join(map(str, shape))}]" if type != UNKNOWN else "?"
        case Tag(vocabulary=name):
            return name.rpartition(".")[2]
        case List(elem=elem, store=store):
            is_array = store is not None and schema.list(store).from_array
            words = _words(schema, elem, within)
            return f"array[{words}, ...]" if is_array else f"list[{words}]"
        case Ref(store=name) if name in within:
            return "..."
        case Ref(store=name):
            held = schema.store(name)
            return " | ".join(_class_words(schema, held, k, within | {name}) for k in range(len(held.classes)))
        case BuiltObject():
            return "object"
        case _:
            assert_never(type)


def _class_words(schema: Schema, store: Store, position: int, within: frozenset[str]) -> str:
    cls = store.classes[position]
    fields = [f for f in store.fields if position in f.classes]
    if cls.cls is not None and cls.cls.__module__.startswith("autobatch."):  # arguments packed together
        return f"({', '.join(_words(schema, f.type, within) for f in sorted(fields, key=lambda f: f.name))})"
    if cls.kind in ("object", "namedtuple"):
        return cls.name
    if cls.kind == "value":
        return _words(schema, fields[0].type, within)
    if cls.kind == "dict" or not all(f.name.isdigit() for f in fields):  # of any keys: a list of them, one of values
        return f"{cls.kind}[{', '.join(f.name for f in fields)}]"
    items = ", ".join(_words(schema, f.type, within) for f in sorted(fields, key=lambda f: int(f.name)))
    return f"{cls.kind}[{items}]"


def field_column(schema: Schema, store: str, name: str, type: Type) -> str:
    """The column that a load of this type reads: classes that disagree on a field's type have one column each."""
    fields = [f for f in schema.store(store).fields if f.name == name]
    return next((f.column for f in fields if f.type == type), fields[0].column)


def columns_read(instruction: Apply, schema: Schema) -> tuple[str, ...]:
    """The columns that a structural operation reads."""
    op = instruction.op
    type = instruction.operands[0].type if instruction.operands else None
    match op.name, type:
        case "load", Ref(store=store):
            return (field_column(schema, store, op["field"], instruction.results[0].type),)
        case "load_is_none", Ref(store=store):
            return (field_column(schema, store, op["field"], op["type"]) + "?",)
        case "is_class", Ref(store=store):
            return (f"{store}.#tag",)
        case "length", List(store=str(name)):
            return (f"{name}.#offsets",)
        case "item", List(store=str(name)):
            return (f"{name}.#offsets", f"{name}.#values")
        case _:
            return ()
