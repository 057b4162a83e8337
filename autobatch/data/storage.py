"""Packed data on disk: arrays as they are, and a JSON text for the schema. No pickle.

Classes and enums are stored as `module:qualified.name`, and found by that name where their module is imported already
or the caller names them: a file imports nothing, and no code of it is run. What is read is checked against its schema
before it is used.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import io
import json
import math
import os
import sys
import zipfile
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, assert_never

import jax.numpy as jnp
import networkx as nx
import numpy as np

from autobatch.data import together
from autobatch.data.columns import (
    VALUE,
    Class,
    Column,
    Columns,
    Field,
    Ints,
    ListStore,
    Schema,
    Store,
    columns_of,
    host_dtype,
    host_shape,
)
from autobatch.data.leaves import INTEGER_LISTS, describe_library_object, is_graph_class, is_sparse_class
from autobatch.data.unpack import Unpacker, bare
from autobatch.errors import BatchError, FileError
from autobatch.ir import jax_compat
from autobatch.ir.core import Array, BuiltObject, List, Ref, Tag, Type

# ---- archive
#
# Arrays and a text in one file: a `.npz` of arrays as they are, the text as JSON, and a hash over all. No pickle.
#
#     text      what the arrays are, as JSON
#     sha256    of the names, types and bytes of all other entries: checked before anything is used
#     ...       arrays
#
# What a file says of itself is not believed. No entry is compressed, so none is larger than the file; the type and
# shape of an array fit its bytes; and whoever reads the text checks each part of it, by `part`.


AnyArray = np.ndarray[Any, Any]
TEXT, HASH = "text", "sha256"
BLOCK = 1 << 20


class Damaged(Exception):
    """What is wrong with a file, and in which part; what to do where that is not to write it again."""

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.cure = cure


def refused(path: str | os.PathLike[str], error: Exception, again: str) -> FileError:
    """The error of a file some part of which cannot be used."""
    return FileError(f"{path}: {error}; {error.cure if isinstance(error, Damaged) and error.cure else again}")


def write(path: str | os.PathLike[str], text: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> None:
    """Write the file, replacing it as a whole."""
    entries = {TEXT: np.frombuffer(json.dumps(text).encode("utf-8", "surrogatepass"), np.uint8), **arrays}
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            np.savez(file, allow_pickle=False, **entries, **{HASH: _hash(entries)})
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], what: str, format: str, again: str) -> tuple[Any, dict[str, AnyArray]]:
    """The text and the arrays. Raises FileError for what `write` did not write, or not as `format`; `what` says what
    the file should be, `again` what to do where it is not."""
    with Path(path).open("rb") as file:
        try:
            entries = _entries(file, os.fstat(file.fileno()).st_size)
            if not {TEXT, HASH} <= entries.keys():
                raise Damaged("it has no text, or no hash")
            if entries.pop(HASH).tobytes() != _hash(entries).tobytes():
                raise Damaged("its hash is another: some of its bytes have changed")
            text = json.loads(entries.pop(TEXT).tobytes().decode("utf-8", "surrogatepass"))
            if (found := part(text, "format", str)) != format:
                raise FileError(f"{path}: the format is {found!r}, and this version reads {format!r}; {again}")
        except FileError:
            raise
        except Exception as error:  # whatever zipfile, NumPy and json raise for bytes that nobody wrote
            raise FileError(f"{path} is not {what}, or it is damaged: {_reason(error)}; {again}") from None
    return text, entries


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"


def _entries(file: Any, size: int) -> dict[str, AnyArray]:
    made: dict[str, AnyArray] = {}
    total = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            total += info.file_size
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or total > size:
                raise Damaged(f"the entry {info.filename!r} has a size that cannot be")
            buffer = bytearray(info.file_size)
            view, at = memoryview(buffer), 0
            with archive.open(info) as entry:
                while piece := entry.read(BLOCK):
                    view[at : at + len(piece)] = piece
                    at += len(piece)
            made[info.filename.removesuffix(".npy")] = _array(info.filename, buffer)
    return made


def _array(name: str, content: bytearray) -> AnyArray:
    head = io.BytesIO(memoryview(content)[: 1 << 16])
    version = np.lib.format.read_magic(head)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise Damaged(f"the array {name!r} is written in another way")
    shape, by_columns, dtype = readers[version](head)
    count = math.prod(shape)
    if dtype.kind not in "biufc" or count * dtype.itemsize != len(content) - head.tell() or min(shape, default=0) < 0:
        raise Damaged(f"the array {name!r} has a type or shape that does not fit its bytes")
    flat: AnyArray = np.frombuffer(content, dtype, count, head.tell()) if count else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _hash(entries: Mapping[str, AnyArray]) -> AnyArray:
    digest = hashlib.sha256()
    for name in sorted(entries):
        array = np.ascontiguousarray(entries[name])
        digest.update(repr((name, array.dtype.str, entries[name].shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)


def part(text: Any, name: str, *kinds: type) -> Any:
    """A part of a text, which is of one of these types. Raises Damaged."""
    if not isinstance(text, dict) or name not in text:
        raise Damaged(f"{name!r} is missing")
    if type(text[name]) not in kinds:
        raise Damaged(f"{name!r} is {text[name]!r:.80}, not {' or '.join(k.__name__ for k in kinds)}")
    return text[name]


def array_of(arrays: Mapping[str, AnyArray], entry: Any) -> AnyArray:
    """The array that a text names by its number and its dtype, as JAX names that. Raises Damaged."""
    match entry:
        case [int(number), str(dtype)] if f"a{number}" in arrays:
            found = arrays[f"a{number}"]
            wanted = np.dtype(jax_compat.dtype_of(dtype))
            if wanted.itemsize == found.dtype.itemsize:
                return found.view(wanted)
    raise Damaged(f"there is no array {entry!r:.80}")


# ---- stand ins
#
# Classes that a file names and this process does not have: ones that look the same take their place.
#
#     module:Node with the fields value, children   ->   Node(value=1.0, children=[]), an ordinary object
#
# One name has one stand-in in a process, so that batches and programs from different files go together.


class StandIn:
    """An object of a class that is not here: it has the fields that it is given."""

    __autobatch_fields__: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        known = self.__autobatch_fields__
        if unknown := [n for n in fields if n not in known]:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}; its fields are {', '.join(known)}")
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={x!r}' for n, x in self.__dict__.items())})"


@dataclass(frozen=True)
class Look:
    """What is known of a class that has no source here: "namedtuple" or "object", and its fields."""

    kind: str
    fields: tuple[str, ...]


_made: dict[str, type] = {}


def name_of(cls: type) -> str:
    """`module:qualified.name`. Raises BatchError for a class that no name leads to."""
    if "<locals>" in cls.__qualname__:
        raise BatchError(f"{cls.__qualname__} is defined in a function, so no file can name it; move it to a module")
    return f"{cls.__module__}:{cls.__qualname__}"


class AllowedClasses:
    """The classes that a file may name: those that the caller gives, and those of modules that are imported already. A
    file imports nothing. `looks`: how stand-ins are made of those that are not here; None: they are an error."""

    def __init__(self, given: Sequence[type] = (), looks: Mapping[str, Look] | None = None) -> None:
        for cls in given:
            if not isinstance(cls, type):
                raise TypeError(f"classes= takes classes, and {cls!r} is none")
        self._given = {name_of(cls): cls for cls in given}
        self._looks = looks

    def find(self, name: Any) -> type:
        """The class with the name that `name_of` gave it. Raises Damaged where there is none."""
        if name in self._given:
            return self._given[name]
        module, _, qualname = name.partition(":") if isinstance(name, str) else ("", "", "")
        held: Any = sys.modules.get(module)
        for part in qualname.split(".") if held is not None else ():
            # a module may import others when it is asked for what it has not, as lazy ones do: ours makes classes
            asked = getattr if held is together else _own
            held = asked(held, part, None) if isinstance(held, (type, ModuleType)) else None
        if isinstance(held, type):
            return held
        if name in _made:
            return _made[name]
        if self._looks is None:
            here = "has no class of that name any more" if module in sys.modules else "is not imported"
            raise Damaged(
                f"it holds objects of {name!r:.80}: {module} {here}", "import its module, or name it in classes="
            )
        if name not in self._looks:
            raise Damaged(f"there is no class {name!r:.80}")
        return _made.setdefault(name, _stand_in(module, qualname, self._looks[name]))


def _own(held: type | ModuleType, name: str, default: Any) -> Any:
    """What a module or class has itself."""
    return vars(held).get(name, default)


def _stand_in(module: str, qualname: str, look: Look) -> type:
    simple = qualname.rpartition(".")[2]
    records: Any = namedtuple  # to mypy, fields that are known at run time only are no fields
    if look.kind == "namedtuple":
        made: type = records(simple, look.fields)
    else:
        made = type(simple, (StandIn,), {"__autobatch_fields__": look.fields})
    made.__module__, made.__qualname__ = module, qualname
    return made


# ---- validation
#
# Are columns what their schema says? Those of a file are checked before machine code reads them, which trusts every
# reference, offset and tag (`columns.py` says what holds of them).


def check(columns: Columns) -> None:
    """Raises Damaged, which names the column, where columns are not what their schema says."""
    schema = columns.schema
    _check_schema(schema)
    rows = _check_starts(columns)
    _check_arrays(columns, rows)
    for store in schema.stores:
        _check_range(f"{store.name}.#tag", columns.arrays[f"{store.name}.#tag"], len(store.classes))
    for items in schema.lists:
        _check_offsets(columns, items.name)
    for column, null in _columns(columns):
        _check_column(columns, column, null)
    if (other := columns.mistagged_row()) is not None:
        raise Damaged(f"row {other[1]} of {other[0]} holds a constant that none of its class has")
    _check_tables(columns)
    _check_tuples(columns)
    _check_libraries(columns)


def check_order(order: AnyArray | None, counts: Sequence[int]) -> None:
    """Does an order name each example of all groups once? Raises Damaged."""
    total = sum(counts)
    if order is None:
        if len(counts) != 1:
            raise Damaged(f"{len(counts)} groups are in no order")
    elif order.dtype != np.int64 or order.shape != (total,) or not np.array_equal(np.sort(order), np.arange(total)):
        raise Damaged("it does not name each example once")


# ---- the schema by itself


def _check_schema(schema: Schema) -> None:
    stores, lists = {s.name for s in schema.stores}, {s.name: s.elem for s in schema.lists}
    names = [c.name for c in columns_of(schema)] + [f"{name}.#offsets" for name in lists]
    if len(stores) != len(schema.stores) or len(lists) != len(schema.lists) or len(set(names)) != len(names):
        raise Damaged("two stores or columns have one name")
    for column in columns_of(schema):
        if column.type is not None:
            _check_type(column, stores, lists)
    for store in schema.stores:
        for k, cls in enumerate(store.classes):
            _check_class(store, cls, [f.name for f in store.fields if k in f.classes])


def _check_type(column: Column, stores: set[str], lists: dict[str, Type]) -> None:
    match column.type:
        case Ref(store=store) if store not in stores:
            raise Damaged(f"column {column.name!r} refers to the store {store!r}, which is not there")
        case List(elem=elem, store=str(store)) if lists.get(store) != elem:
            raise Damaged(f"column {column.name!r} refers to the lists {store!r}, which are not there")
        case Array(dtype=name):
            try:
                dtype = jax_compat.dtype_of(name)
                is_fit = name.startswith("key<") or jnp.issubdtype(dtype, np.number) or dtype == np.bool_
            except (TypeError, ValueError, KeyError):
                is_fit = False
            if not is_fit:
                raise Damaged(f"column {column.name!r} has the dtype {name!r}, which is none")


def _check_class(store: Store, cls: Class, names: Sequence[str]) -> None:
    where, of = f"the class {cls.name!r} of the store {store.name!r}", cls.cls
    numbers = sorted(map(str, range(len(names))))
    is_fit = {
        "object": of is not None and not issubclass(of, (tuple, list, dict, set, type)),
        "namedtuple": of is not None and issubclass(of, tuple) and sorted(getattr(of, "_fields", ())) == sorted(names),
        "tuple": of is None and sorted(names) == numbers,
        "list": of is None and sorted(names) == numbers,
        "dict": of is None,
        "table": of is not None and hasattr(of, "__len__") and len(names) in (1, 2),
        "value": names == [VALUE] and of in (None, bool, int, float, complex, str, list, np.ndarray),
    }[cls.kind]
    if not is_fit or len(set(names)) != len(names):
        raise Damaged(f"{where} is no {cls.kind} with the fields {', '.join(names)}")
    if cls.kind == "object" and (wrong := [n for n in names if n.startswith("__") and n.endswith("__")]):
        raise Damaged(f"{where} has a field {wrong[0]!r}")
    if cls.kind == "object" and of is not None and not is_graph_class(of) and not is_sparse_class(of):
        if inspect.isabstract(of):
            raise Damaged(f"{where} is abstract")
        try:
            bare(of)
        except Exception as error:  # whatever its __new__ and __del__ do
            raise Damaged(f"{where}: {error}") from None


# ---- arrays


def _check_starts(columns: Columns) -> dict[str | None, int]:
    """The rows of each space."""
    schema = columns.schema
    lists = [n for s in schema.lists for n in (s.name, f"{s.name}.#values")]
    if columns.starts.keys() != {*(s.name for s in schema.stores), *lists}:
        raise Damaged("'starts' are those of other stores")
    rows: dict[str | None, int] = {None: columns.count}
    for name, starts in columns.starts.items():
        rows[name] = _check_steps(f"the starts of {name!r}", starts, np.int64, columns.count)
    return rows


def _check_steps(what: str, steps: AnyArray, dtype: Any, count: int) -> int:
    """The last of some offsets, which are those of so many ranges."""
    if steps.dtype != dtype or steps.shape != (count + 1,):
        raise Damaged(f"{what} are {steps.dtype}{list(steps.shape)}, not {np.dtype(dtype)}[{count + 1}]")
    if steps[0] != 0 or (steps[1:] < steps[:-1]).any():
        raise Damaged(f"{what} do not begin with 0, or fall")
    return int(steps[-1])


def _check_arrays(columns: Columns, rows: dict[str | None, int]) -> None:
    schema, arrays = columns.schema, columns.arrays
    expected = columns_of(schema)
    if arrays.keys() != {*(c.name for c in expected), *(f"{s.name}.#offsets" for s in schema.lists)}:
        raise Damaged("'arrays' are those of another schema")
    for column in expected:
        found = arrays[column.name]
        other: Any = np.int32 if column.name.endswith("#tag") else np.bool_
        dtype = np.dtype(other) if column.type is None else host_dtype(column.type)
        shape = (rows[column.space], *(() if column.type is None else host_shape(column.type)))
        if found.dtype != dtype or found.shape != shape:
            raise Damaged(
                f"column {column.name!r} is {found.dtype}{list(found.shape)}, and its schema says {dtype}{list(shape)}"
            )
        if found.dtype == np.bool_ and (found.view(np.uint8) > 1).any():
            raise Damaged(f"column {column.name!r} holds bools that are neither True nor False")


def _check_offsets(columns: Columns, name: str) -> None:
    """The offsets of lists; those of an example are within its values."""
    offsets, starts = columns.arrays[f"{name}.#offsets"], columns.starts[name]
    _check_steps(f"the offsets of {name!r}", offsets, np.int32, int(starts[-1]))
    if not np.array_equal(offsets[starts], columns.starts[f"{name}.#values"]):
        raise Damaged(f"the offsets of {name!r} do not fit to the examples that the lists are of")


def _columns(columns: Columns) -> Iterator[tuple[Column, AnyArray]]:
    """The columns with values, and where each of them may be null: where its class has no such field too."""
    schema, arrays = columns.schema, columns.arrays
    places = {f.column: (s, f) for s in schema.stores for f in s.fields}
    lists = {f"{s.name}.#values": s for s in schema.lists}
    for column in columns_of(schema):
        if column.type is None:
            continue
        null = arrays.get(f"{column.name}?", np.zeros(len(arrays[column.name]), np.bool_))
        if column.name in places:
            store, field = places[column.name]
            null = null | field.nullable | ~np.isin(arrays[f"{store.name}.#tag"], field.classes)
        elif column.name in lists:
            null = null | lists[column.name].nullable
        else:
            null = null | schema.root_nullable | (not isinstance(schema.root, Ref | List))
        yield column, null


def _check_column(columns: Columns, column: Column, null: AnyArray) -> None:
    found = columns.arrays[column.name]
    if isinstance(column.type, Tag):
        words = columns.vocabularies.get(column.type.vocabulary, ())
        _check_range(column.name, found[~null], len(words))
        _check_range(column.name, found[null], max(len(words), 1), -1)
    if column.target is None:
        return
    first, last = columns.starts[column.target][:-1], columns.starts[column.target][1:]
    for begin in range(0, len(found), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(found)))
        of = rows if column.space is None else np.searchsorted(columns.starts[column.space], rows, "right") - 1
        held, may = found[rows], null[rows]
        wrong = ((held < first[of]) | (held >= last[of])) & ~(may & (held == -1))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise Damaged(f"column {column.name!r}, row {begin + at}: the reference {held[at]} leaves its example")


def _check_range(name: str, found: AnyArray, end: int, begin: int = 0) -> None:
    wrong = (found < begin) | (found >= end)
    if wrong.any():
        raise Damaged(f"column {name!r} holds {found[wrong][0]}, and there are {end}")


# ---- what must hold for objects to be made


def _check_tables(columns: Columns) -> None:
    """Keys and values of dicts are as many."""
    for store in columns.schema.stores:
        tags = columns.arrays[f"{store.name}.#tag"]
        for k, cls in enumerate(store.classes):
            if cls.kind != "table":
                continue
            rows, lengths = np.flatnonzero(tags == k), []
            for field in (f for f in store.fields if k in f.classes):
                if not isinstance(field.type, List):
                    raise Damaged(f"column {field.column!r} holds no lists, and a {cls.name} is made of them")
                at = columns.arrays[field.column][rows]
                offsets = columns.arrays[f"{field.type.store}.#offsets"]
                if (at < 0).any():
                    raise Damaged(f"column {field.column!r} has no list for a {cls.name}")
                lengths.append(offsets[at + 1] - offsets[at])
            if any(not np.array_equal(a, b) for a, b in pairwise(lengths)):
                raise Damaged(f"a {cls.name} of the store {store.name!r} has more keys than values, or fewer")


def _check_tuples(columns: Columns) -> None:
    """Nothing that is made whole, as tuples are, holds itself: rows without parts come first, then what holds them."""
    schema, arrays = columns.schema, columns.arrays
    rows: dict[str, Ints] = {}
    for store in schema.stores:
        kinds = [k for k, c in enumerate(store.classes) if c.kind in ("tuple", "namedtuple")]
        rows[store.name] = np.flatnonzero(np.isin(arrays[f"{store.name}.#tag"], kinds))
    for items in schema.lists:
        rows[items.name] = np.arange((len(arrays[f"{items.name}.#offsets"]) - 1) * items.is_tuple)
    places: list[tuple[str, str, Type]] = [(s.name, f.column, f.type) for s in schema.stores for f in s.fields]
    places += [(s.name, f"{s.name}.#values", s.elem) for s in schema.lists]
    held = [(a, column, t.store) for a, column, t in places if isinstance(t, (Ref, List)) and t.store is not None]
    held = [(a, column, b) for a, column, b in held if len(rows[a]) and len(rows[b])]
    graph = nx.DiGraph([(a, b) for a, _, b in held])
    if nx.is_directed_acyclic_graph(graph):
        return
    parts = nx.DiGraph()
    for a, column, b in held:
        of = np.repeat(rows[a], np.diff(arrays[f"{a}.#offsets"])) if column.endswith(".#values") else rows[a]
        found = arrays[column] if column.endswith(".#values") else arrays[column][rows[a]]
        whole = np.isin(found, rows[b])
        pairs = zip(of[whole].tolist(), found[whole].tolist(), strict=True)
        parts.add_edges_from(((a, x), (b, y)) for x, y in pairs)
    if not nx.is_directed_acyclic_graph(parts):
        raise Damaged("a tuple holds itself")


def _check_libraries(columns: Columns) -> None:
    """Graphs and sparse matrices are made, and what is found of them is what their columns say; a graph has as many
    nodes as degrees, before they are made."""
    for store in columns.schema.stores:
        for k, cls in enumerate(store.classes):
            if cls.cls is not None and is_graph_class(cls.cls):
                fields = {f.name: f for f in store.fields if k in f.classes}
                if not {"size", "degrees"} <= fields.keys() or not isinstance(fields["degrees"].type, List):
                    raise Damaged(f"the store {store.name!r} has no size or no degrees of its graphs")
                rows = np.flatnonzero(columns.arrays[f"{store.name}.#tag"] == k)
                lists = columns.arrays[fields["degrees"].column][rows]
                lengths = np.diff(columns.arrays[f"{fields['degrees'].type.store}.#offsets"])[lists]
                if (lists < 0).any() or not np.array_equal(columns.arrays[fields["size"].column][rows], lengths):
                    raise Damaged(f"the graphs of the store {store.name!r} have other sizes than they have nodes")
    if not any(_is_of_library(c) for s in columns.schema.stores for c in s.classes):
        return
    try:
        unpacker = Unpacker(columns)
        unpacker.run()
        for store in columns.schema.stores:
            for form in unpacker.forms(store):
                for k, row in enumerate(form.rows if _is_of_library(form.cls) else ()):
                    _check_graph(unpacker.objects[store.name][row], unpacker.values_of(form, k))
    except Exception as error:  # whatever networkx and SciPy have against it
        raise Damaged(f"a graph or sparse matrix cannot be made: {type(error).__name__}: {error}") from None


def _is_of_library(cls: Class) -> bool:
    return cls.cls is not None and (is_graph_class(cls.cls) or is_sparse_class(cls.cls))


def _check_graph(made: Any, fields: dict[str, Any]) -> None:
    if is_graph_class(type(made)):
        described = describe_library_object(made)
        for name in ("size", *INTEGER_LISTS):
            if described.get(name) != fields.get(name):
                raise Damaged(f"its field {name!r} is not that of the graph")


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
    write(path, text, arrays)


def load(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> Columns:
    """Read what `save` wrote. Raises FileError for a file of another kind, and for classes that are not here."""
    groups, order = load_groups(path, classes)
    if order is not None:
        raise FileError(f"{path} holds {len(groups)} groups of examples; read them with `ab.load`")
    return groups[0]


def load_groups(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> tuple[list[Columns], AnyArray | None]:
    """Read what `save_groups` wrote."""
    text, arrays = read(path, "a file that `Batch.save` wrote", _FORMAT, _AGAIN)
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
        raise refused(f"{path}: {at}".rstrip(": "), error, _AGAIN) from None
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
        "root_nullable": schema.root_nullable,
    }


def _given_to_json(cls: Class) -> list[Any]:
    """What an empty dict or deque is made with: a class, or a length behind no elements. Or the tag."""
    if cls.tag is not None:
        name, constants = cls.tag
        return [{"tag": name, **_words_to_json(tuple(sorted(constants, key=lambda x: getattr(x, "name", x))))}]
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


_KINDS = ("object", "namedtuple", "tuple", "list", "dict", "table", "value")


def _schema_from_json(text: Any, known: AllowedClasses) -> Schema:
    root = _type_from_json(part(text, "root", list))
    return Schema(
        root,
        tuple(_store_from_json(s, known) for s in part(text, "stores", list)),
        tuple(_list_from_json(s) for s in part(text, "lists", list)),
        part(text, "root_optional", bool),
        part(text, "root_numpy", bool),
        part({"root_nullable": isinstance(root, Ref | List), **text}, "root_nullable", bool),
    )


def _store_from_json(text: Any, known: AllowedClasses) -> Store:
    name = part(text, "name", str)
    classes = tuple(_class_from_json(c, known) for c in part(text, "classes", list))
    return Store(name, classes, tuple(_field_from_json(f, len(classes)) for f in part(text, "fields", list)))


def _class_from_json(text: Any, known: AllowedClasses) -> Class:
    match text:
        case [str(name), str(kind), cls, [*keys], *given] if kind in _KINDS and all(type(k) is str for k in keys):
            found, tag = None if cls is None else known.find(cls), None
            if given and isinstance(given[0], dict):
                words = {k: x for k, x in given[0].items() if k != "tag"}
                given, tag = [], (part(given[0], "tag", str), frozenset(_words_from_json(words, known)))
            return Class(name, kind, found, tuple(keys), _given_from_json(given, known), tag)  # type: ignore[arg-type]
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
    if words and isinstance(words[0], int):
        return {"numbers": words}
    return {"strings": words}


def _words_from_json(text: Any, known: AllowedClasses) -> tuple[Any, ...]:
    match text:
        case {"strings": [*words]} if all(type(w) is str for w in words) and len(set(words)) == len(words):
            return tuple(words)
        case {"numbers": [*numbers]} if all(type(n) is int for n in numbers):
            return tuple(numbers)
        case {"enum": str(name), "members": [*members]} if len(set(map(str, members))) == len(members):
            cls = known.find(name)
            if not issubclass(cls, enum.Enum):
                raise Damaged(f"{name} is no enum")
            if missing := [m for m in members if m not in cls.__members__]:
                raise Damaged(f"the enum {name} has no member {missing[0]!r} any more")
            return tuple(cls[m] for m in members)
    raise Damaged(f"words are written {text!r:.80}")
