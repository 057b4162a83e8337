"""Packed data on disk: arrays as they are, and a JSON text for the schema (`archive.py`). No pickle.

Classes and enums are stored as `module:qualified.name`, and found by that name where their module is imported already
or the caller names them: a file imports nothing, and no code of it is run. What is read is checked against its schema
before it is used (`validation.py`).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import Any, assert_never

from autobatch.data import archive
from autobatch.data.archive import AnyArray, Damaged, array_of, part
from autobatch.data.columns import Columns
from autobatch.data.schema import Class, Field, ListStore, Schema, Store
from autobatch.data.stand_ins import AllowedClasses, name_of
from autobatch.data.validation import check, check_order
from autobatch.errors import BatchError, FileError
from autobatch.ir.types import Array, BuiltObject, List, Ref, Tag, Type

_FORMAT = "autobatch columns 3"
_AGAIN = "save the batch again, or take another copy of the file"


def save(columns: Columns, path: str | os.PathLike[str]) -> None:
    """Write columns to the file `path`, replacing it as a whole. Raises BatchError for classes that cannot be found
    again by name, as those defined inside functions."""
    save_groups([columns], None, path)


def save_groups(groups: Sequence[Columns], order: AnyArray | None, path: str | os.PathLike[str]) -> None:
    """Write examples that are in several sets of columns; `order` says where each example is among all of them."""
    arrays: dict[str, AnyArray] = {}

    def keep(array: AnyArray) -> list[Any]:
        arrays[f"a{len(arrays)}"] = array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")
        return [len(arrays) - 1, str(array.dtype)]

    def described(columns: Columns) -> dict[str, Any]:
        return {
            "count": columns.count,
            "schema": _schema_to_json(columns.schema),
            "arrays": {name: keep(a) for name, a in columns.arrays.items()},
            "starts": {name: keep(a) for name, a in columns.starts.items()},
            "vocabularies": {name: _words_to_json(words) for name, words in columns.vocabularies.items()},
        }

    text = {
        "format": _FORMAT,
        "groups": [described(columns) for columns in groups],
        "order": None if order is None else keep(order),
    }
    archive.write(path, text, arrays)


def load(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> Columns:
    """Read what `save` wrote. Raises FileError for a file of another kind, and for classes that are not here."""
    groups, order = load_groups(path, classes)
    if order is not None:
        raise FileError(f"{path} holds {len(groups)} groups of examples; read them with `ab.load`")
    return groups[0]


def load_groups(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> tuple[list[Columns], AnyArray | None]:
    """Read what `save_groups` wrote."""
    text, arrays = archive.read(path, "a file that `Batch.save` wrote", _FORMAT, _AGAIN)
    known, at = AllowedClasses(classes), ""

    def columns(text: Any) -> Columns:
        made = Columns(
            _schema_from_json(part(text, "schema", dict), known),
            part(text, "count", int),
            {name: array_of(arrays, entry) for name, entry in part(text, "arrays", dict).items()},
            {name: array_of(arrays, entry) for name, entry in part(text, "starts", dict).items()},
            {name: _words_from_json(words, known) for name, words in part(text, "vocabularies", dict).items()},
        )
        check(made)
        return made

    try:
        groups = []
        for k, group in enumerate(part(text, "groups", list)):
            at = f"group {k}: "
            groups.append(columns(group))
        at, entry = "order: ", part(text, "order", list, type(None))
        order = None if entry is None else array_of(arrays, entry)
        check_order(order, [g.count for g in groups])
    except (Damaged, TypeError, ValueError, KeyError, RecursionError) as error:
        raise archive.refused(f"{path}: {at}".rstrip(": "), error, _AGAIN) from None
    return groups, order


def _schema_to_json(schema: Schema) -> dict[str, Any]:
    return {
        "root": _type_to_json(schema.root),
        "root_optional": schema.root_optional,
        "stores": [
            {
                "name": s.name,
                "classes": [
                    [c.name, c.kind, None if c.cls is None else name_of(c.cls), c.keys, *_given_to_json(c)]
                    for c in s.classes
                ],
                "fields": [
                    [f.name, _type_to_json(f.type), f.column, f.classes, f.optional, f.always_none, f.nullable, f.numpy]
                    for f in s.fields
                ],
            }
            for s in schema.stores
        ],
        "lists": [
            [s.name, _type_to_json(s.elem), s.from_array, s.optional, s.nullable, s.numpy, s.is_tuple]
            for s in schema.lists
        ],
        "root_numpy": schema.root_numpy,
    }


def _given_to_json(cls: Class) -> list[Any]:
    """What an empty dict or deque is made with: a class, or a length behind no elements."""
    match cls.given:
        case (type() as made,):
            return [name_of(made)]
        case ((), int(most)):
            return [most]
        case ():
            return []
        case _:
            raise BatchError(f"a {cls.name} cannot be saved whose default is a function: return dict(d)")


def _given_from_json(given: Any, known: AllowedClasses) -> tuple[Any, ...]:
    match given:
        case []:
            return ()
        case [str(name)]:
            return (known.find(name),)
        case [int(most)]:
            return ((), most)
    raise Damaged(f"an empty container is made of {given!r:.80}")


_KINDS = ("object", "namedtuple", "tuple", "list", "dict", "table")


def _schema_from_json(text: Any, known: AllowedClasses) -> Schema:
    return Schema(
        _type_from_json(part(text, "root", list)),
        tuple(_store_from_json(s, known) for s in part(text, "stores", list)),
        tuple(_list_from_json(s) for s in part(text, "lists", list)),
        part(text, "root_optional", bool),
        part(text, "root_numpy", bool),
    )


def _store_from_json(text: Any, known: AllowedClasses) -> Store:
    name = part(text, "name", str)
    classes = tuple(_class_from_json(c, known) for c in part(text, "classes", list))
    return Store(name, classes, tuple(_field_from_json(f, len(classes)) for f in part(text, "fields", list)))


def _class_from_json(text: Any, known: AllowedClasses) -> Class:
    match text:
        case [str(name), str(kind), cls, [*keys], *given] if kind in _KINDS and all(type(k) is str for k in keys):
            found = None if cls is None else known.find(cls)
            return Class(name, kind, found, tuple(keys), _given_from_json(given, known))  # type: ignore[arg-type]
    raise Damaged(f"a class is written {text!r:.80}")


def _field_from_json(text: Any, classes: int) -> Field:
    match text:
        case [str(name), [*type], str(column), [*of], bool(a), bool(b), bool(c), bool(d)] if all(
            k in range(classes) and isinstance(k, int) for k in of
        ):
            return Field(name, _type_from_json(type), column, tuple(of), a, b, c, d)
    raise Damaged(f"a field is written {text!r:.80}")


def _list_from_json(text: Any) -> ListStore:
    match text:
        case [str(name), [*elem], bool(a), bool(b), bool(c), bool(d), bool(e)]:
            return ListStore(name, _type_from_json(elem), a, b, c, d, e)
    raise Damaged(f"a list is written {text!r:.80}")


def _type_to_json(type: Type) -> list[Any]:
    match type:
        case Array(dtype=dtype, shape=shape, weak=weak):
            return ["array", dtype, shape, weak]
        case Tag(vocabulary=vocabulary):
            return ["tag", vocabulary]
        case Ref(store=store):
            return ["ref", store]
        case List(elem=elem, store=store):
            return ["list", _type_to_json(elem), store]
        case BuiltObject():
            raise TypeError("objects that a program makes are rows of a store when they are packed")
        case _:
            assert_never(type)


def _type_from_json(text: Any) -> Type:
    match text:
        case ["array", str(dtype), [*shape], bool(weak)] if all(type(n) is int and n >= 0 for n in shape):
            return Array(dtype, tuple(shape), weak)
        case ["tag", str(vocabulary)]:
            return Tag(vocabulary)
        case ["ref", str(store)]:
            return Ref(store)
        case ["list", [*elem], str(store)]:
            return List(_type_from_json(elem), store)
    raise Damaged(f"a type is written {text!r:.80}, which this version does not know")


def _words_to_json(words: tuple[Any, ...]) -> dict[str, Any]:
    if words and isinstance(words[0], enum.Enum):
        return {"enum": name_of(type(words[0])), "members": [w.name for w in words]}
    return {"strings": words}


def _words_from_json(text: Any, known: AllowedClasses) -> tuple[Any, ...]:
    match text:
        case {"strings": [*words]} if all(type(w) is str for w in words) and len(set(words)) == len(words):
            return tuple(words)
        case {"enum": str(name), "members": [*members]} if len(set(map(str, members))) == len(members):
            cls = known.find(name)
            if not issubclass(cls, enum.Enum):
                raise Damaged(f"{name} is no enum")
            if missing := [m for m in members if m not in cls.__members__]:
                raise Damaged(f"the enum {name} has no member {missing[0]!r} any more")
            return tuple(cls[m] for m in members)
    raise Damaged(f"words are written {text!r:.80}")
