"""Packed data on disk: one `.npz` file, arrays as they are and a JSON text for the schema. No pickle.

Classes and enums are stored as `module:qualified.name` and imported by that name when the file is loaded, as pickle
would; no code of the file itself is run. A class that is not here may have a stand-in (`stand_ins.py`).
"""

from __future__ import annotations

import enum
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from autobatch.errors import BatchError
from autobatch.ir import jax_compat
from autobatch.ir.types import Array, List, Made, Ref, Tag, Type
from autobatch.runtime.columns import Columns
from autobatch.runtime.schema import Class, Field, ListStore, Schema, Store
from autobatch.runtime.stand_ins import class_of, name_of

_FORMAT = "autobatch columns 2"
AnyArray = np.ndarray[Any, Any]


def save(columns: Columns, path: str | os.PathLike[str]) -> None:
    """Write columns to the file `path`, replacing it as a whole. Raises BatchError for classes that cannot be found
    again by name, as those defined inside functions."""
    save_groups([columns], None, path)


def save_groups(groups: Sequence[Columns], order: AnyArray | None, path: str | os.PathLike[str]) -> None:
    """Write examples that are in several sets of columns; `order` says where each example is among all of them."""
    arrays: list[AnyArray] = []

    def keep(array: AnyArray) -> list[Any]:
        arrays.append(array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}"))
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
    data = np.frombuffer(json.dumps(text).encode("utf-8", "surrogatepass"), np.uint8)
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            np.savez(file, allow_pickle=False, schema=data, **{f"a{i}": a for i, a in enumerate(arrays)})
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Columns:
    """Read what `save` wrote. Raises BatchError for a file of another kind, and for classes that are gone."""
    groups, order = load_groups(path)
    if order is not None:
        raise BatchError(f"{path} holds {len(groups)} groups of examples; read them with `ab.load`")
    return groups[0]


def load_groups(path: str | os.PathLike[str]) -> tuple[list[Columns], AnyArray | None]:
    """Read what `save_groups` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            text = json.loads(bytes(file["schema"]).decode("utf-8", "surrogatepass"))
            held = {name: file[name] for name in file.files if name != "schema"}
        if text["format"] != _FORMAT:
            raise BatchError(f"{path}: the format is {text['format']!r}, and this version reads {_FORMAT!r}")
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BatchError(f"{path} is not a file that `Batch.save` wrote: {error}") from None

    def kept(entry: list[Any]) -> AnyArray:
        array: AnyArray = held[f"a{entry[0]}"].view(jax_compat.dtype_of(entry[1]))
        return array

    def columns(text: dict[str, Any]) -> Columns:
        return Columns(
            _schema_from_json(text["schema"], str(path)),
            text["count"],
            {name: kept(entry) for name, entry in text["arrays"].items()},
            {name: kept(entry) for name, entry in text["starts"].items()},
            {name: _words_from_json(words, str(path)) for name, words in text["vocabularies"].items()},
        )

    return [columns(group) for group in text["groups"]], None if text["order"] is None else kept(text["order"])


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


def _given_from_json(given: Sequence[Any], path: str) -> tuple[Any, ...]:
    if not given:
        return ()
    return (class_of(given[0], path),) if isinstance(given[0], str) else ((), given[0])


def _schema_from_json(text: dict[str, Any], path: str) -> Schema:
    stores = []
    for s in text["stores"]:
        classes = [
            Class(n, kind, None if c is None else class_of(c, path), tuple(keys), _given_from_json(given, path))
            for n, kind, c, keys, *given in s["classes"]
        ]
        fields = [Field(n, _type_from_json(t), column, tuple(ks), *flags) for n, t, column, ks, *flags in s["fields"]]
        stores.append(Store(s["name"], tuple(classes), tuple(fields)))
    lists = [ListStore(name, _type_from_json(elem), *flags) for name, elem, *flags in text["lists"]]
    root = _type_from_json(text["root"])
    return Schema(root, tuple(stores), tuple(lists), text["root_optional"], text.get("root_numpy", False))


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
        case Made():
            raise TypeError("objects that a program makes are rows of a store when they are packed")
        case _:
            assert_never(type)


def _type_from_json(text: list[Any]) -> Type:
    match text:
        case ["array", dtype, shape, weak]:
            return Array(dtype, tuple(shape), weak)
        case ["tag", vocabulary]:
            return Tag(vocabulary)
        case ["ref", store]:
            return Ref(store)
        case ["list", elem, store]:
            return List(_type_from_json(elem), store)
    raise BatchError(f"a type is written {text!r}, which this version does not know")


def _words_to_json(words: tuple[Any, ...]) -> dict[str, Any]:
    if words and isinstance(words[0], enum.Enum):
        return {"enum": name_of(type(words[0])), "members": [w.name for w in words]}
    return {"strings": words}


def _words_from_json(text: dict[str, Any], path: str) -> tuple[Any, ...]:
    if "strings" in text:
        return tuple(text["strings"])
    cls = class_of(text["enum"], path)
    try:
        return tuple(cls[name] for name in text["members"])  # type: ignore[index]
    except KeyError as error:
        raise BatchError(f"{path}: the enum {text['enum']} has no member {error} any more") from None
