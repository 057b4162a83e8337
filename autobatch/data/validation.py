"""Are columns what their schema says? Those of a file are checked before machine code reads them, which trusts every
reference, offset and tag (`columns.py` says what holds of them)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import networkx as nx
import numpy as np

from autobatch.data.archive import AnyArray, Damaged
from autobatch.data.columns import Column, Columns, Ints, columns_of, host_dtype, host_shape
from autobatch.data.leaves import INTEGER_LISTS, describe_library_object, is_graph_class, is_sparse_class
from autobatch.data.schema import Class, Schema, Store
from autobatch.data.unpack import Unpacker, bare
from autobatch.ir import jax_compat
from autobatch.ir.types import Array, List, Ref, Tag, Type

BLOCK = 1 << 20
"""Rows that are looked at at a time: what is computed of them is no larger than a file may be."""


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
            null = np.ones_like(null)  # an example may be None
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
