"""How code that runs on the host reads packed examples: the interface between programs and column stores.

References and lists are plain ints (rows of their store, -1 is null); tags are ints of one vocabulary per batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from autobatch.ir.types import List, Ref


class ExampleMemory(Protocol):
    """Packed examples, one cell at a time. The caller has checked for null references and ranges."""

    def load(self, type: Ref, row: int, field: str) -> Any:
        """A field of an object: an int for a reference, list or tag, a NumPy scalar or array for an array. Raises
        AttributeError when the object's class has no such field."""
        ...

    def is_missing(self, type: Ref, row: int, field: str) -> bool:
        """Is this array or tag field None?"""
        ...

    def class_name(self, type: Ref, row: int) -> str:
        """The name of the class of an object (`Class.name` of the schema)."""
        ...

    def length(self, type: List, row: int) -> int: ...

    def item(self, type: List, row: int, index: int) -> Any: ...

    def place(self, space: str, holder: Ref | List, row: int) -> tuple[int, int]:
        """The rows of a store, a list store or the elements of its lists (`#values`) that the example has whose object
        or list `row` is: where they begin and end."""
        ...

    def list_of(self, store: str, element: int) -> int:
        """The list that holds an element, by its place among those of all lists."""
        ...

    def tag_value(self, vocabulary: str, tag: int) -> Any:
        """The string or enum member that a tag stands for."""
        ...

    def tag_of(self, vocabulary: str, value: Any) -> int:
        """The tag of a string or enum member; -1 when no example holds it."""
        ...


class MadeObject(NamedTuple):
    """An object that a program has made: its class and what its columns hold."""

    name: str
    values: tuple[Any, ...]
