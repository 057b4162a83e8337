"""Packed examples, read one cell at a time: `ir.memory.Memory` over `Columns`, for programs that run on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.data.columns import Columns, has_mask
from autobatch.data.schema import Class, Field, ListStore, Store
from autobatch.ir.types import Array, List, Ref, Tag, Type

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
