"""What a packed batch looks like: classes as stores of columns. Plain data, hashable, shared by packer and compiler.

An object is a row of a *store*. Classes that are ever seen in the same place (a field `left: Leaf | Node`) share one
store and are told apart by its tag column. Tuples, NamedTuples and dicts found INSIDE examples are records too: a
tuple of length 3 is the class `tuple3` with the fields `0 1 2`, a dict a class with its keys as fields.
A list is a row of a *list store*: `offsets` into `values`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autobatch.ir.types import Type


@dataclass(frozen=True, slots=True)
class Class:
    """A class of records. `cls` is the Python class (None for tuples and dicts); `kind` says how to rebuild one."""

    name: str
    kind: Literal["object", "namedtuple", "tuple", "dict"]
    cls: type | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the classes with the positions `classes` in its store. `optional`: an array or tag field that is
    None in some row (references have their own null). `always_none`: no row has a value: `type` is then a bool array.
    Two fields of one store may have one name when their classes disagree on the type."""

    name: str
    type: Type
    column: str
    classes: tuple[int, ...]
    optional: bool = False
    always_none: bool = False
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Store:
    name: str
    classes: tuple[Class, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ListStore:
    """Lists of `elem`; `from_array`: they were arrays whose first axis differs between objects; iterating gives rows.
    `nullable`: some element is a null reference."""

    name: str
    elem: Type
    from_array: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """`root` is the type of one example; `root_optional`: some examples are None where `root` is an array or tag."""

    root: Type
    stores: tuple[Store, ...] = ()
    lists: tuple[ListStore, ...] = ()
    root_optional: bool = False

    def store(self, name: str) -> Store:
        return next(s for s in self.stores if s.name == name)

    def list(self, name: str) -> ListStore:
        return next(s for s in self.lists if s.name == name)
