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

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autobatch.data.schema import Field, ListStore, Schema
from autobatch.errors import BatchError
from autobatch.ir import jax_compat
from autobatch.ir.types import FLOAT, INT, Array, BuiltObject, List, Ref, Tag, Type

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


_known: dict[int, tuple[Schema, tuple[Column, ...]]] = {}
"""By identity: to hash a schema takes as long as to list its columns."""
MOST_KNOWN = 256


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Every array that columns of this schema hold, except the `#offsets` of lists."""
    held = _known.get(id(schema))
    if held is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        held = _known[id(schema)] = schema, tuple(_columns_of(schema))
    return held[1]


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
