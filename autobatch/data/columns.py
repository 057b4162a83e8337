"""Packed examples: the schema, which says what they look like, and their columns. Plain data.

A schema is hashable, and shared by packer and compiler. An object is a row of a *store*. Classes that are ever seen in
the same place (a field `left: Leaf | Node`) share one store and are told apart by its tag column. Tuples, NamedTuples
and dicts found INSIDE examples are records too: a tuple of length 3 is the class `tuple3` with the fields `0 1 2`, a
dict a class with its keys as fields. A list is a row of a *list store*: `offsets` into `values`.

Columns are one NumPy array for each field, and where the rows of each example lie. A batch of two binary trees of the
class `Node` (fields `left`, `right`, `word`) is

    Node.left    1 -1 -1  4 -1 -1       rows of Node, -1 is None
    Node.right   2 -1 -1  5 -1 -1
    Node.word    0  7  3  0  2  2       0 where the field is None, then also a mask `Node.word?`
    #root        0  3                   the row of each example
    starts['Node']  0  3  6             example i has the rows starts[i]:starts[i+1]

The rows of one example are contiguous in every store, in the order of first visit (pre-order, fields in order), and no
reference leaves its example: a minibatch is cut by copying ranges and shifting references, example by example.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, assert_never

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from autobatch.errors import BatchError
from autobatch.ir import jax_compat, strings
from autobatch.ir.core import BOOL, FLOAT, INT, Apply, Array, BuiltObject, List, Ref, Tag, Type

# ---- schema


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


# ---- columns


Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
ROOT, ROOT_MISSING = "#root", "#root?"


@dataclass(frozen=True, eq=False)
class Columns:
    """Packed examples on the host.

    `arrays` holds, for each store, `Field.column` (and `Field.column + "?"`, true where an optional field is None) and
    `<Store>.#tag` (int32, the position of the row's class); for each list store `<list>.#offsets` and `<list>.#values`
    (and `<list>.#values?`); `#root`, one entry an example (and `#root?`). References, lists and tags are int32; Python
    ints have 64 bits, Python floats are float64, everything else has the dtype that JAX gives it; typed random keys
    are their raw key data.
    `starts` maps a store, a list store, or `<list>.#values` to int64[count + 1].
    `vocabularies` maps "str" to the strings and the name of an enum to its members: tags are positions in them.
    """

    schema: Schema
    count: int
    arrays: Mapping[str, np.ndarray[Any, Any]]
    starts: Mapping[str, Ints]
    vocabularies: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and starts."""
        return sum(a.nbytes for a in self.arrays.values()) + sum(a.nbytes for a in self.starts.values())

    def mistagged_row(self) -> tuple[str, int] | None:
        """A store, and the first row there that holds a constant of which its class has none (`Class.tag`); None where
        there is no such row."""
        for store, f, constants in tagged_fields(self.schema):
            words = self.vocabularies.get(f.type.vocabulary, ()) if isinstance(f.type, Tag) else range(MOST_CONSTANTS)
            fits = np.ones((len(store.classes), len(words) + 1), np.bool_)
            for k, held in constants.items():
                fits[k] = [*(x in held for x in words), False]
            codes, tags = self.arrays[f.column], self.arrays[f"{store.name}.#tag"]
            if not isinstance(f.type, Tag):
                codes = np.where((codes >= 0) & (codes < MOST_CONSTANTS), codes, MOST_CONSTANTS).astype(np.int64)
            wrong = ~fits[tags, codes]
            if wrong.any():
                return store.name, int(np.argmax(wrong))
        return None

    @functools.cached_property
    def _like(self) -> dict[str, str]:
        """Of the spaces whose rows lie alike in all examples, as those of fields that hold one list each, the first."""
        first: dict[bytes, str] = {}
        return {name: first.setdefault(starts.tobytes(), name) for name, starts in self.starts.items()}

    def take(self, indices: Any) -> Columns:
        """The examples at `indices`: integers (negative ones count from the end, repeats are copies), a bool mask of
        `count` entries, or a slice. Takes time in proportion to the rows taken."""
        chosen = positions(indices, self.count)
        cuts: dict[str, tuple[Ints, Ints, Ints]] = {}
        starts: dict[str, Ints] = {}
        rows: dict[str | None, Ints] = {None: chosen}
        begins: dict[str, Ints] = {}
        like = self._like
        for name, old in self.starts.items():
            first = like[name]
            if first not in cuts:
                begin = old.take(chosen)
                offsets = offsets_of(old.take(chosen + 1) - begin)
                shift = offsets[:-1] - begin
                cuts[first] = offsets, np.arange(offsets[-1]) - shift.repeat(np.diff(offsets)), shift
            starts[name], rows[name], begins[name] = cuts[first]
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        shifts: dict[tuple[str, str | None], Values] = {}
        for column in columns_of(self.schema):
            array, space = self.arrays[column.name], column.space
            held = array.take(rows[space], 0)
            if column.target is not None:
                key = like[column.target], None if space is None else like[space]
                if key not in shifts:
                    shift = begins[column.target].astype(array.dtype)
                    shifts[key] = shift if space is None else shift.repeat(np.diff(starts[space]))
                held = np.where(held >= 0, held + shifts[key], held)
            arrays[column.name] = held
        for store in self.schema.lists:
            offsets = self.arrays[f"{store.name}.#offsets"]
            lengths = offsets.take(rows[store.name] + 1) - offsets.take(rows[store.name])
            arrays[f"{store.name}.#offsets"] = offsets_of(lengths).astype(offsets.dtype)
        return Columns(self.schema, len(chosen), arrays, starts, self.vocabularies)


@dataclass(frozen=True, slots=True)
class Column:
    """One array of `Columns`: its rows are those of `space` (a key of `starts`; None: the examples); `target` is the
    store or list store that its entries are rows of. `type` is None for tags of classes and masks."""

    name: str
    space: str | None
    type: Type | None = None

    @property
    def target(self) -> str | None:
        match self.type:
            case Ref(store=store):
                return store
            case List(store=store):
                return store
            case _:
                return None


TaggedField = tuple[Store, Field, Mapping[int, frozenset[Any]]]
_known: dict[int, tuple[Schema, tuple[Column, ...], tuple[TaggedField, ...]]] = {}
"""By identity: to hash a schema takes as long as to list its columns."""
MOST_KNOWN = 256


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Every array that columns of this schema hold, except the `#offsets` of lists."""
    return _known_of(schema)[1]


def tagged_fields(schema: Schema) -> tuple[TaggedField, ...]:
    """The fields that are the tag of some classes: their store, and the constants that each of these classes has."""
    return _known_of(schema)[2]


def _known_of(schema: Schema) -> tuple[Schema, tuple[Column, ...], tuple[TaggedField, ...]]:
    held = _known.get(id(schema))
    if held is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        held = _known[id(schema)] = schema, tuple(_columns_of(schema)), tuple(_tagged_fields(schema))
    return held


def _columns_of(schema: Schema) -> Iterator[Column]:
    yield Column(ROOT, None, schema.root)
    if schema.root_optional:
        yield Column(ROOT_MISSING, None)
    for store in schema.stores:
        yield Column(f"{store.name}.#tag", store.name)
        for held in store.fields:
            yield Column(held.column, store.name, held.type)
            if has_mask(held):
                yield Column(f"{held.column}?", store.name)
    for items in schema.lists:
        space = f"{items.name}.#values"
        yield Column(space, space, items.elem)
        if has_mask(items):
            yield Column(f"{space}?", space)


def _tagged_fields(schema: Schema) -> Iterator[TaggedField]:
    for store in schema.stores:
        tags = {k: c.tag for k, c in enumerate(store.classes) if c.tag is not None}
        for f in store.fields if tags else ():
            if of := {k: tags[k][1] for k in f.classes if k in tags and tags[k][0] == f.name}:
                yield store, f, of


def has_mask(place: Field | ListStore) -> bool:
    """Does a `?` column say where this place is None? References and lists have their own null."""
    kind = place.type if isinstance(place, Field) else place.elem
    return place.optional and not isinstance(kind, (Ref, List))


def positions(indices: Any, count: int) -> Ints:
    """Indices of any accepted kind as an int64 vector of positions in `range(count)`."""
    if isinstance(indices, slice):
        return np.arange(*indices.indices(count), dtype=np.int64)
    chosen = np.asarray(indices)
    if chosen.size == 0 and chosen.ndim == 1 and chosen.dtype == np.float64:
        chosen = chosen.astype(np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
        raise BatchError(
            f"a batch is indexed by a vector of integers, a bool mask or a slice, not by {chosen.dtype}{chosen.shape}"
        )
    if chosen.dtype == np.bool_:
        if len(chosen) != count:
            raise BatchError(f"the bool mask has {len(chosen)} entries for {count} examples")
        return np.flatnonzero(chosen)
    chosen = chosen.astype(np.int64)
    if chosen.size and np.minimum.reduce(chosen) >= 0 and np.maximum.reduce(chosen) < count:
        return chosen
    wrong = (chosen < -count) | (chosen >= count)
    if wrong.any():
        raise BatchError(f"index {int(chosen[wrong][0])} is out of range for {count} examples")
    return np.where(chosen < 0, chosen + count, chosen)


def offsets_of(lengths: npt.NDArray[Any]) -> Ints:
    """[0, l0, l0+l1, ...]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    return offsets


def ranges(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Ints:
    """The concatenation of `range(start, start + length)`."""
    offsets = offsets_of(lengths)
    return np.repeat(starts.astype(np.int64) - offsets[:-1], lengths) + np.arange(offsets[-1])


def host_dtype(type: Type) -> np.dtype[Any]:
    """The dtype of the column that holds values of `type`."""
    match type:
        case Array(dtype=name, weak=weak):
            if type.dtype.startswith("key<"):
                return np.dtype(np.uint32)
            if weak and type == INT:
                return np.dtype(np.int64)
            if weak and type == FLOAT:
                return np.dtype(np.float64)
            if weak and name == "complex64":
                return np.dtype(np.complex128)
            dtype: np.dtype[Any] = np.dtype(jax_compat.dtype_of(name))
            return dtype
        case Tag() | Ref() | List() | BuiltObject():
            return np.dtype(np.int32)


def host_shape(type: Type) -> tuple[int, ...]:
    """The shape of one entry of the column that holds values of `type`."""
    if not isinstance(type, Array):
        return ()
    return (*type.shape, *key_shape(type.dtype)) if type.dtype.startswith("key<") else type.shape


def key_shape(dtype: str) -> tuple[int, ...]:
    """The shape of the raw data of one typed random key."""
    return {"key<fry>": (2,), "key<rbg>": (4,), "key<urbg>": (4,)}[dtype]


def empty(type: Type, rows: int) -> np.ndarray[Any, Any]:
    """A column of `rows` entries without value: null references, zeros."""
    fill = -1 if isinstance(type, (Ref, List)) else 0
    return np.full((rows, *host_shape(type)), fill, host_dtype(type))


def empty_columns(schema: Schema) -> Columns:
    """No examples."""
    arrays = {c.name: unfilled(c, 0) for c in columns_of(schema)}
    arrays |= {f"{s.name}.#offsets": np.zeros(1, np.int32) for s in schema.lists}
    names: Sequence[str] = [s.name for s in schema.stores]
    names = [*names, *(n for s in schema.lists for n in (s.name, f"{s.name}.#values"))]
    return Columns(schema, 0, arrays, {n: np.zeros(1, np.int64) for n in names}, {})


def unfilled(column: Column, rows: int) -> np.ndarray[Any, Any]:
    """A column before anything is written to it: null, zero, and None where it has a mask."""
    if column.type is not None:
        return empty(column.type, rows)
    return np.zeros(rows, np.int32) if column.name.endswith("#tag") else np.ones(rows, np.bool_)


# ---- memory
#
# Packed examples, read one cell at a time: `ir.memory.Memory` over `Columns`, for programs that run on the host.


_KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


class ColumnMemory:
    """Implements `ir.memory.Memory`. References, lists and tags are Python ints; numbers are NumPy scalars."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        schema = columns.schema
        self._stores: dict[str, Store] = {s.name: s for s in schema.stores}
        self._lists: dict[str, ListStore] = {s.name: s for s in schema.lists}
        self._fields: dict[tuple[str, int, str], Field] = {
            (s.name, k, f.name): f for s in schema.stores for f in s.fields for k in f.classes
        }
        self._tags = {name: {v: i for i, v in enumerate(vs)} for name, vs in columns.vocabularies.items()}

    def load(self, type: Ref, row: int, field: str) -> Any:
        """A field of an object. Raises AttributeError when its class has no such field."""
        found = self._field(type, row, field)
        return self._value(found.type, found.column, row)

    def is_missing(self, type: Ref, row: int, field: str) -> bool:
        """Is this array or tag field None?"""
        found = self._field(type, row, field)
        return has_mask(found) and bool(self.columns.arrays[f"{found.column}?"][row])

    def class_name(self, type: Ref, row: int) -> str:
        """The name of the class of an object."""
        return self._class(type, row)[1].name

    def length(self, type: List, row: int) -> int:
        """The number of elements of a list."""
        begin, end = self._bounds(type, row)
        return end - begin

    def item(self, type: List, row: int, index: int) -> Any:
        """An element of a list, `index` counted from 0."""
        assert type.store is not None
        begin, _ = self._bounds(type, row)
        return self._value(self._lists[type.store].elem, f"{type.store}.#values", begin + index)

    def item_is_missing(self, type: List, row: int, index: int) -> bool:
        """Is this array or tag element None?"""
        assert type.store is not None
        begin, _ = self._bounds(type, row)
        mask = has_mask(self._lists[type.store])
        return mask and bool(self.columns.arrays[f"{type.store}.#values?"][begin + index])

    def place(self, space: str, holder: Ref | List, row: int) -> tuple[int, int]:
        """The rows of a space that the example has whose object or list `row` is: where they begin and end."""
        return place(self.columns, space, holder, row)

    def list_of(self, store: str, element: int) -> int:
        """The list that holds an element, by its place among those of all lists."""
        return int(list_of(self.columns, store, np.array([element]))[0])

    def tag_value(self, vocabulary: str, tag: int) -> Any:
        """The string or enum member that a tag stands for."""
        return self.columns.vocabularies[vocabulary][tag]

    def tag_of(self, vocabulary: str, value: Any) -> int:
        """The tag of a string or enum member; -1 when no example holds it."""
        return self._tags.get(vocabulary, {}).get(value, -1)

    def root(self, example: int) -> Any:
        """What an example itself is: a row, a tag or a value."""
        return self._value(self.columns.schema.root, "#root", example)

    def _class(self, type: Ref, row: int) -> tuple[int, Class]:
        position = int(self.columns.arrays[f"{type.store}.#tag"][row])
        return position, self._stores[type.store].classes[position]

    def _field(self, type: Ref, row: int, field: str) -> Field:
        position, cls = self._class(type, row)
        found = self._fields.get((type.store, position, field))
        if found is None:
            raise AttributeError(f"{cls.name!r} object has no attribute {field!r}")
        return found

    def _bounds(self, type: List, row: int) -> tuple[int, int]:
        offsets = self.columns.arrays[f"{type.store}.#offsets"]
        return int(offsets[row]), int(offsets[row + 1])

    def _value(self, type: Type, column: str, row: int) -> Any:
        held = self.columns.arrays[column][row]
        match type:
            case Array(dtype=dtype):
                return wrap_keys(held, dtype) if dtype in _KEYS else held
            case Tag() | Ref() | List():
                return int(held)


def place(columns: Columns, space: str, holder: Ref | List, row: int) -> tuple[int, int]:
    """As `ColumnMemory.place`. No reference leaves its example, and its rows stand together."""
    assert holder.store is not None
    example = int(np.searchsorted(columns.starts[holder.store], row, side="right")) - 1
    begin, end = columns.starts[space][example : example + 2]
    return int(begin), int(end)


def list_of(columns: Columns, store: str, elements: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The list that holds each of some elements, by their places among those of all lists."""
    offsets = columns.arrays[f"{store}.#offsets"]
    return np.searchsorted(offsets, elements, side="right") - 1


def wrap_keys(data: np.ndarray[Any, Any], dtype: str) -> jax.Array:
    """Typed random keys from their raw data."""
    keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(data), impl=_KEYS[dtype])
    return keys


# ---- word tables
#
# Functions of one string of the examples as columns over the vocabulary: each word is asked once, by the host.
#
#     s.isdigit()                a bool for each word
#     len(s.strip().upper())     each word of which is another one: a table of words, in the same rows
#     s.split(",")               a table of all parts, and where those of each word begin
#
# For programs that have no host while they run (`passes/object_rows.py`). The name of a column says what it holds.


Step = tuple[str, tuple[Any, ...]]
"""A function of strings with its operands; `...` is the word, and of a part of it which one (`ir/strings.py`)."""

LETTERS, OFFSETS, BEGINS, VALUES = ".#letters", ".#offsets", ".#begins", ".#values"
"""The code points of words behind one another; where those of each begin; where the parts of each begin; numbers."""


def name_of(steps: Sequence[Step], part: str) -> str:
    """The name of a column of what functions, one after another, make of the words."""
    return column_of_words((_written(tuple(steps)) if steps else "") + part)


def _written(x: Any) -> str:
    if isinstance(x, tuple):
        return f"({''.join(f'{_written(y)}, ' for y in x)})"
    return "..." if x is ... else repr(x)


def column(words: tuple[str, ...], name: str) -> Any:
    """A column of the vocabulary by its name."""
    return _column(words, name, jax.dtypes.canonicalize_dtype(int))


@functools.lru_cache(maxsize=64)
def _column(words: tuple[str, ...], name: str, whole: Any) -> Any:
    path, _, part = name.removeprefix(column_of_words("")).rpartition(".#")
    steps: list[Step] = list(ast.literal_eval(path or "()"))
    match f".#{part}":
        case ".#values":
            return _numbers(_table(words, steps[:-1]), *steps[-1], whole)
        case ".#begins":
            return _offsets([len(_parts(word, *steps[-1])) for word in _table(words, steps[:-1])])
        case kind:
            table = _table(words, steps)
            return _offsets([*map(len, table)]) if kind == OFFSETS else _letters(table)


def _table(words: Sequence[str], steps: Sequence[Step]) -> Sequence[str]:
    for name, args in steps:
        if name.endswith("_item"):
            words = [part for word in words for part in _parts(word, name, args)]
        else:
            words = [_called(word, name, args, "") for word in words]
    return words


def _parts(word: str, name: str, args: tuple[Any, ...]) -> list[str]:
    """All parts of a word; `args`: the word, which part, and how it is split."""
    how = args[2:]
    try:
        count = (
            3 if name.endswith("partition_item") else strings.call(name.replace("_item", "_count"), (..., *how), [word])
        )
        return [strings.call(name, (..., k, *how), [word]) for k in range(count)]
    except strings.FAILURES:
        return []


def _called(word: str, name: str, args: tuple[Any, ...], otherwise: Any) -> Any:
    try:
        return strings.call(name, args, [word])
    except strings.FAILURES:
        return otherwise


def _numbers(words: Sequence[str], name: str, args: tuple[Any, ...], whole: Any) -> Any:
    """0 where there is none, or where it is too wide for the device."""
    kind, width = bool if strings.FUNCTIONS[name][1] == BOOL else whole, np.iinfo(whole)
    found = [_called(word, name, args, 0) for word in words or ("",)]
    return np.array([int(x) if width.min <= x <= width.max else 0 for x in found], kind)


def _offsets(lengths: Sequence[int]) -> Any:
    return np.concatenate([[0], np.cumsum(lengths or [0])]).astype(np.int32)


def _letters(words: Sequence[str]) -> Any:
    return np.array([*map(ord, "".join(words)), 0], np.int32)
