"""Packed examples: one NumPy array a column, and where the rows of each example lie.

A batch of two binary trees of the class `Node` (fields `left`, `right`, `word`) is

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
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from autobatch.data.schema import MOST_CONSTANTS, Class, Field, ListStore, Schema, Store, column_of_words
from autobatch.errors import BatchError
from autobatch.ir import jax_compat, strings
from autobatch.ir.core import BOOL, FLOAT, INT, Array, BuiltObject, List, Ref, Tag, Type

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
        for field in store.fields:
            yield Column(field.column, store.name, field.type)
            if has_mask(field):
                yield Column(f"{field.column}?", store.name)
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
# For programs that have no host while they run (`passes/memory/rows.py`). The name of a column says what it holds.


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
