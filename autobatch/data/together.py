"""Several batched arguments packed together: examples that are tuples of them, in a store of their own.

left    #root 0 3      Node.x ...        Arguments2.argument0   0 5       rows of Node, those of left
right   #root 0 2      Node.x ...   ->   Arguments2.argument1   3 8       rows of Node, those of right
                                         #root                  0 1
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    UNKNOWN,
    VALUE,
    Class,
    Columns,
    Field,
    Ints,
    Schema,
    Store,
    columns_of,
    has_mask,
    host_dtype,
    host_shape,
    offsets_of,
    ranges,
    unfilled,
)
from autobatch.data.infer import (
    Inference,
    InferenceConflict,
    InferredPlace,
    InferredRecord,
    SchemaLayout,
    lay_out,
    merge,
    name_of_value,
    sort_of_place,
)
from autobatch.errors import BatchError
from autobatch.ir.core import Array, List, Ref, Tag, Type

# ---- conform
#
# Columns expressed in a wider schema: the same examples, as if they had been packed `like` it.
#
# Classes may share a store that had one each, fields may be wider numbers, and arrays of one shape may become ragged.
# Every row of the old columns has one place in the new ones, so this is a copy of columns under index vectors, no walk.
# Rows of stores that became one lie store after store within each example.


AnyArray = np.ndarray[Any, Any]


def conform(columns: Columns, schema: Schema) -> Columns:
    """The same examples under `schema`, which must hold all that `columns.schema` holds (`merge` makes such a one).

    Raises BatchError when it does not."""
    if columns.schema == schema:
        return columns
    inference = Inference()
    try:
        inference.see_schema(schema)
        records = inference.see_schema(columns.schema)
        layout = lay_out(inference)
    except InferenceConflict as error:
        raise BatchError(f"the schema contradicts itself: {error}") from None
    if layout.schema != schema:
        raise BatchError("the schema does not hold these columns; merge it with `columns.schema` first")
    made = _Conform(columns, layout, records).run()
    if (other := made.mistagged_row()) is not None:
        raise BatchError(
            f"row {other[1]} of {other[0]} has a constant that the schema does not have there; merge them anew"
        )
    return made


@dataclass(eq=False)
class _Piece:
    """Some entries of the old columns: `example` is the example of each, `missing` where they are None. They go to the
    entries `rows` of the new column, known when its rows are numbered. `placed`: they are rows of the new stores
    already."""

    values: AnyArray
    missing: AnyArray | None
    old: Type
    example: Ints
    new: Type
    column: str
    mask: str | None
    rows: Callable[[], Ints]
    placed: bool = False

    @property
    def held(self) -> NDArray[np.bool_]:
        """Where the entries are not None."""
        if isinstance(self.old, (Ref, List)):
            return self.values >= 0
        return np.ones(len(self.values), np.bool_) if self.missing is None else ~self.missing


class _Conform:
    def __init__(self, columns: Columns, layout: SchemaLayout, records: Mapping[str, list[InferredRecord]]) -> None:
        self.columns, self.layout, self.records = columns, layout, records
        self.old, self.new = columns.schema, layout.schema
        self.targets: dict[str, str] = {}
        """Old list store -> new one; a new one that is `from_array` may have fixed arrays as sources too."""
        self.rows: dict[str, Ints] = {}
        """Old store or list store -> the new row of each of its rows."""
        self.starts: dict[str, Ints] = {}
        self.arrays: dict[str, AnyArray] = {}

    def run(self) -> Columns:
        self.match_lists(self.old.root, self.new.root)
        for store in self.old.stores:
            for k, record in enumerate(self.records[store.name]):
                for field in store.fields:
                    if k in field.classes:
                        self.match_lists(field.type, self.layout.field(record, field.name).type)
        pieces = [*self.root_pieces(), *self.field_pieces(), *self.item_pieces()]
        values = {f"{VALUE} {k}": p for k, p in enumerate(pieces) if self.becomes_value(p)}
        homes: dict[str, dict[str, Ints]] = {s.name: {} for s in self.new.stores}
        for old in self.old.stores:
            homes[self.layout.position(self.records[old.name][0])[0]][old.name] = self.counts(old.name)
        for source, piece in values.items():
            assert isinstance(piece.new, Ref)
            homes[piece.new.store][source] = np.bincount(piece.example[piece.held], minlength=self.columns.count)
        for name, counts in homes.items():
            self.number(name, counts)
        for items in self.new.lists:
            if not items.from_array:
                sources = [old for old, new in self.targets.items() if new == items.name]
                self.number(items.name, {s: self.counts(s) for s in sources})
                self.offsets(items.name, sources)
        pieces += [self.value_piece(source, piece) for source, piece in values.items()]
        for items in self.new.lists:
            if items.from_array:
                assert isinstance(items.elem, Array)
                mine = [p for p in pieces if isinstance(p.new, List) and p.new.store == items.name]
                self.ragged(items.name, items.elem, mine)
        self.allocate()
        for piece in pieces:
            self.write(piece)
        for store in self.old.stores:
            self.tags(store)
        for source, piece in values.items():
            assert isinstance(piece.new, Ref)
            self.arrays[f"{piece.new.store}.#tag"][self.rows[source]] = self.value_field(piece.new, piece.old)[0]
        vocabularies = self.columns.vocabularies
        return Columns(self.new, self.columns.count, self.arrays, self.starts, vocabularies)

    # Rows

    def match_lists(self, old: Type, new: Type) -> None:
        """Where do the lists of an old place go?"""
        while isinstance(old, List) and isinstance(new, List | Ref):
            if isinstance(new, Ref):
                new = self.value_field(new, old)[1].type
            assert isinstance(new, List)
            assert old.store is not None and new.store is not None
            self.targets[old.store] = new.store
            if self.new.list(new.store).from_array:
                return
            old, new = old.elem, new.elem

    def value_field(self, new: Ref, old: Type) -> tuple[int, Field]:
        """The class of a record "value" that holds values of an old type in a store, and its field."""
        place = InferredPlace("", "list" if isinstance(old, List) else "leaf")
        if isinstance(old, List):
            assert old.store is not None
            place.kind = "ragged" if self.old.list(old.store).from_array else "list"
        else:
            assert isinstance(old, Array | Tag)
            place.leaf = old
        store, wanted = self.new.store(new.store), sort_of_place(place)[0]
        fields = {f.classes[0]: f for f in store.fields if f.name == VALUE}
        return next((k, f) for k, f in fields.items() if name_of_value(store.classes[k], f.type) == wanted)

    def becomes_value(self, piece: _Piece) -> bool:
        """Do entries that are no records stand beside records in the new column?"""
        return isinstance(piece.new, Ref) and not isinstance(piece.old, Ref) and piece.old != UNKNOWN

    def value_piece(self, source: str, piece: _Piece) -> _Piece:
        """The entries as values of records, whose rows they are from now on."""
        assert isinstance(piece.new, Ref)
        held, field = piece.held, self.value_field(piece.new, piece.old)[1]
        values, rows = piece.values[held], self.rows[source]
        piece.values, piece.placed = np.full(len(held), -1, np.int64), True
        piece.values[held] = rows
        return _Piece(values, None, piece.old, piece.example[held], field.type, field.column, None, lambda: rows)

    def counts(self, source: str) -> Ints:
        """How many rows of an old store each example has."""
        return np.diff(self.columns.starts[source])

    def number(self, name: str, sources: Mapping[str, Ints]) -> None:
        """New rows: example after example, and in each the rows of the sources in turn."""
        self.starts[name] = offsets_of(sum(sources.values(), np.zeros(self.columns.count, np.int64)))
        begin = self.starts[name][:-1]
        for source, lengths in sources.items():
            self.rows[source] = ranges(begin, lengths)
            begin = begin + lengths

    def offsets(self, name: str, sources: list[str]) -> None:
        lengths = np.zeros(self.starts[name][-1], np.int64)
        for source in sources:
            lengths[self.rows[source]] = np.diff(self.columns.arrays[f"{source}.#offsets"])
        offsets = offsets_of(lengths)
        self.arrays[f"{name}.#offsets"] = offsets.astype(np.int32)
        self.starts[f"{name}.#values"] = offsets[self.starts[name]]

    def examples_of(self, space: str) -> Ints:
        starts = self.columns.starts[space]
        return np.repeat(np.arange(self.columns.count), np.diff(starts))

    # Old entries and their new place

    def entries(self, column: str, mask: bool, chosen: AnyArray) -> tuple[AnyArray, AnyArray | None]:
        """Entries of an old column, and where they are None."""
        return self.columns.arrays[column][chosen], self.columns.arrays[f"{column}?"][chosen] if mask else None

    def root_pieces(self) -> list[_Piece]:
        everything = np.arange(self.columns.count)
        held = self.entries(ROOT, self.old.root_optional, everything)
        mask = ROOT_MISSING if self.new.root_optional else None
        return [_Piece(*held, self.old.root, everything, self.new.root, ROOT, mask, lambda: everything)]

    def field_pieces(self) -> list[_Piece]:
        pieces = []
        for store in self.old.stores:
            tags, example = self.columns.arrays[f"{store.name}.#tag"], self.examples_of(store.name)
            for k, record in enumerate(self.records[store.name]):
                chosen = np.flatnonzero(tags == k)
                for field in store.fields:
                    if k not in field.classes:
                        continue
                    new = self.layout.field(record, field.name)
                    held = self.entries(field.column, has_mask(field), chosen)
                    mask = f"{new.column}?" if has_mask(new) else None
                    rows = partial(self.rows_of, store.name, chosen)
                    pieces.append(_Piece(*held, field.type, example[chosen], new.type, new.column, mask, rows))
        return pieces

    def item_pieces(self) -> list[_Piece]:
        pieces = []
        for old, name in self.targets.items():
            new = self.new.list(name)
            if new.from_array:
                continue
            column, target = f"{old}.#values", f"{name}.#values"
            items, example = self.old.list(old), self.examples_of(column)
            held = self.entries(column, has_mask(items), np.arange(len(example)))
            mask = f"{target}?" if has_mask(new) else None
            rows = partial(self.rows_of_items, old, name)
            pieces.append(_Piece(*held, items.elem, example, new.elem, target, mask, rows))
        return pieces

    def rows_of(self, store: str, chosen: Ints) -> Ints:
        return self.rows[store][chosen]

    def rows_of_items(self, old: str, new: str) -> Ints:
        offsets = self.arrays[f"{new}.#offsets"][self.rows[old]]
        return ranges(offsets, np.diff(self.columns.arrays[f"{old}.#offsets"]))

    # New columns

    def ragged(self, name: str, elem: Array, pieces: list[_Piece]) -> None:
        """A store of ragged arrays: from ragged ones, and from arrays of one shape. Sets the pieces' values to rows."""
        parts = [self.arrays_of(p, elem) for p in pieces]
        lengths = np.concatenate([np.zeros(0, np.int64), *(lengths for lengths, _ in parts)])
        example = np.concatenate([np.zeros(0, np.int64), *(p.example for p in pieces)])
        order = np.argsort(example, kind="stable")
        order = order[lengths[order] >= 0]
        rows = np.full(len(lengths), -1, np.int64)
        rows[order] = np.arange(len(order))
        begins = offsets_of(np.maximum(lengths, 0))[:-1]
        offsets = offsets_of(lengths[order])
        self.starts[name] = np.searchsorted(example[order], np.arange(self.columns.count + 1)).astype(np.int64)
        self.starts[f"{name}.#values"] = offsets[self.starts[name]]
        flat = np.concatenate([np.zeros((0, *host_shape(elem)), host_dtype(elem)), *(flat for _, flat in parts)])
        self.arrays[f"{name}.#offsets"] = offsets.astype(np.int32)
        self.arrays[f"{name}.#values"] = flat[ranges(begins[order], lengths[order])]
        begin = 0
        for piece in pieces:
            piece.values = rows[begin : begin + len(piece.example)]
            piece.placed = True
            begin += len(piece.example)

    def arrays_of(self, piece: _Piece, elem: Array) -> tuple[Ints, AnyArray]:
        """The arrays of a piece: their lengths (-1: None), and their rows one after another."""
        nothing = np.zeros((0, *host_shape(elem)), host_dtype(elem))
        if isinstance(piece.old, List):
            offsets = self.columns.arrays[f"{piece.old.store}.#offsets"].astype(np.int64)
            values = self.columns.arrays[f"{piece.old.store}.#values"]
            held = piece.values >= 0
            sizes = np.diff(offsets)[piece.values[held]]
            lengths = np.full(len(held), -1, np.int64)
            lengths[held] = sizes
            return lengths, values[ranges(offsets[piece.values[held]], sizes)]
        if piece.old == UNKNOWN or not isinstance(piece.old, Array):
            return np.full(len(piece.values), -1, np.int64), nothing
        missing = np.zeros(len(piece.values), np.bool_) if piece.missing is None else piece.missing
        flat = piece.values[~missing].reshape(-1, *host_shape(elem)).astype(host_dtype(elem))
        return np.where(missing, -1, piece.old.shape[0]), flat

    def allocate(self) -> None:
        for column in columns_of(self.new):
            rows = self.columns.count if column.space is None else int(self.starts[column.space][-1])
            self.arrays.setdefault(column.name, unfilled(column, rows))

    def write(self, piece: _Piece) -> None:
        if piece.old == UNKNOWN and not piece.placed:
            return
        values = piece.values
        if isinstance(piece.old, (Ref, List)) and not piece.placed:
            assert piece.old.store is not None
            moved = self.rows[piece.old.store]
            values = np.where(values >= 0, moved[values] if len(moved) else -1, -1)
        rows = piece.rows()
        self.arrays[piece.column][rows] = values
        if piece.mask is not None:
            self.arrays[piece.mask][rows] = False if piece.missing is None else piece.missing

    def tags(self, store: Store) -> None:
        tags, rows = self.columns.arrays[f"{store.name}.#tag"], self.rows[store.name]
        for k, record in enumerate(self.records[store.name]):
            name, position = self.layout.position(record)
            self.arrays[f"{name}.#tag"][rows[tags == k]] = position


# ---- combine
#
# Several batched arguments as one data set: their columns woven together, example by example.
#
# left.starts   0 3 5         rows 0..2 of left are example 0        Node 0..2 left, 3..4 right, then example 1
# right.starts  0 2 3   ->    merged starts 0 5 8


Values = NDArray[Any]


def combine(parts: Sequence[Columns]) -> tuple[Columns, list[Values]]:
    """One `Columns` that holds the stores of all parts (which have the stores of one schema), and the roots: one array
    for each part, and behind an optional one its mask. Parts that share their stores, as those packed together do,
    share them here too."""
    counts = {p.count for p in parts}
    if len(counts) != 1:
        raise BatchError(f"the batched arguments have different numbers of examples: {[p.count for p in parts]}")
    if all(p.starts is parts[0].starts for p in parts):
        return parts[0], [root for p in parts for root in _roots(p, {})]
    everything = same_vocabularies(parts)
    parts = list({id(p.starts): p for p in everything}.values())
    schema = parts[0].schema
    starts: dict[str, NDArray[np.int64]] = {}
    moved: list[dict[str, Values]] = [{} for _ in parts]
    for name in parts[0].starts:
        lengths = np.stack([np.diff(p.starts[name]) for p in parts])
        starts[name] = offsets_of(lengths.sum(0))
        before = np.cumsum(lengths, 0) - lengths
        for k, part in enumerate(parts):
            shift = starts[name][:-1] + before[k] - part.starts[name][:-1]
            moved[k][name] = np.arange(part.starts[name][-1]) + np.repeat(shift, lengths[k])
    arrays: dict[str, Values] = {}
    for column in columns_of(schema):
        if column.space is None:
            continue
        pieces = [_follow(p.arrays[column.name], column.type, moved[k]) for k, p in enumerate(parts)]
        out = np.empty((int(starts[column.space][-1]), *pieces[0].shape[1:]), np.result_type(*pieces))
        for k, piece in enumerate(pieces):
            out[moved[k][column.space]] = piece
        arrays[column.name] = out
    for store in schema.lists:
        name = f"{store.name}.#offsets"
        lengths = np.empty(int(starts[store.name][-1]), np.int64)
        for k, part in enumerate(parts):
            lengths[moved[k][store.name]] = np.diff(part.arrays[name])
        arrays[name] = offsets_of(lengths).astype(parts[0].arrays[name].dtype)
    whole = Columns(schema, parts[0].count, arrays, starts, parts[0].vocabularies)
    moves = {id(p.starts): m for p, m in zip(parts, moved, strict=True)}
    return whole, [root for p in everything for root in _roots(p, moves[id(p.starts)])]


def _roots(part: Columns, moved: dict[str, Values]) -> list[Values]:
    root = _follow(part.arrays[ROOT], part.schema.root, moved)
    return [root, part.arrays[ROOT_MISSING]] if part.schema.root_optional else [root]


def _follow(values: Values, type: Type | None, moved: dict[str, Values]) -> Values:
    """A column of references after their targets have moved."""
    if not isinstance(type, Ref | List) or type.store is None or type.store not in moved:
        return values
    where = moved[type.store]
    return np.where(values >= 0, where[np.maximum(values, 0)], -1) if len(where) else values


def same_vocabularies(parts: Sequence[Columns]) -> list[Columns]:
    """The parts with tags counted in one vocabulary, that of all parts together."""
    joined: dict[str, dict[Any, int]] = {}
    for part in parts:
        for name, words in part.vocabularies.items():
            table = joined.setdefault(name, {})
            for word in words:
                table.setdefault(word, len(table))
    vocabularies = {name: tuple(table) for name, table in joined.items()}
    return [_retagged(part, joined, vocabularies) for part in parts]


def _retagged(part: Columns, joined: dict[str, dict[Any, int]], vocabularies: dict[str, tuple[Any, ...]]) -> Columns:
    arrays = dict(part.arrays)
    for column in columns_of(part.schema):
        if isinstance(column.type, Tag) and (words := part.vocabularies.get(column.type.vocabulary)):
            table = joined[column.type.vocabulary]
            numbers = np.array([table[word] for word in words], np.int32)
            arrays[column.name] = numbers[arrays[column.name]]
    return replace(part, arrays=arrays, vocabularies=vocabularies)


_PREFIX = "Arguments"
Arrays = Mapping[str, np.ndarray[Any, Any]]


@cache
def arguments_class(width: int) -> type[tuple[Any, ...]]:
    """The class of one example's arguments. A class of our own, so that tuples inside the examples, which may be of
    other types, do not share its store."""
    made = namedtuple(f"{_PREFIX}{width}", [f"argument{k}" for k in range(width)])  # type: ignore[misc]
    made.__module__ = __name__
    return made


def together(arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """The examples of several arguments: an object in two of them is one object."""
    make = arguments_class(len(arguments))._make  # type: ignore[attr-defined]
    return [make(row) for row in zip(*arguments, strict=True)]


def __getattr__(name: str) -> Any:
    """`Arguments2` and so on, for files that name them."""
    width = name.removeprefix(_PREFIX)
    if name != width and width.isdecimal():
        return arguments_class(int(width))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def width_of(schema: Schema) -> int:
    """How many arguments an example of this schema is; 1 where they were not packed together."""
    cls = _arguments_store(schema).classes[0].cls if _has_arguments(schema) else None
    return 1 if cls is None else len(cls._fields)  # type: ignore[attr-defined]


def component_field(schema: Schema, index: int) -> Field:
    """The field that argument `index` is."""
    return next(f for f in _arguments_store(schema).fields if f.name == f"argument{index}")


def root_columns(schema: Schema, index: int, width: int) -> tuple[str, str]:
    """The columns that hold argument `index` of `width` itself, and where it is None."""
    if width == 1:
        return ROOT, ROOT_MISSING
    column = component_field(schema, index).column
    return column, f"{column}?"


def component_schema(schema: Schema, index: int) -> Schema:
    """The schema of argument `index` alone; its stores are those of all arguments."""
    held = component_field(schema, index)
    stores = tuple(s for s in schema.stores if s is not _arguments_store(schema))
    nullable = held.nullable and isinstance(held.type, Ref | List)
    return Schema(held.type, stores, schema.lists, has_mask(held), held.numpy, nullable)


def schema_together(schemas: Sequence[Schema | None]) -> Schema:
    """The schema of examples that are tuples, of which some components are not known (None). Raises BatchError where
    the types of a class disagree."""
    width = len(schemas)
    return reduce(merge, [_wrapped({k: s}, frozenset(), width) for k, s in enumerate(schemas) if s is not None])


def columns_together(parts: Sequence[Columns]) -> Columns:
    """Columns of tuples. Parts that share their stores, as components of one data set do, still share them."""
    width = len(parts)
    sharing: dict[int, list[int]] = {}
    for k, part in enumerate(parts):
        sharing.setdefault(id(part.starts), []).append(k)
    held = [_wrapped_columns({k: parts[k] for k in members}, width) for members in sharing.values()]
    schema = reduce(merge, [h.schema for h in held])
    components: dict[int, Columns] = {}
    for columns, members in zip(held, sharing.values(), strict=True):
        whole = split(conform(columns, schema))
        components |= {k: whole[k] for k in members}
    woven, roots = combine([components[k] for k in range(width)])
    return _rooted(schema, woven, roots)


def split(columns: Columns) -> tuple[Columns, ...]:
    """The components of examples that are tuples; they share their stores."""
    schema = columns.schema
    store = _arguments_store(schema)
    rows = columns.arrays[ROOT]
    own = {f"{store.name}.#tag", ROOT, *(n for f in store.fields for n in (f.column, f"{f.column}?"))}
    arrays = {n: a for n, a in columns.arrays.items() if n not in own}
    starts = {n: a for n, a in columns.starts.items() if n != store.name}
    made = []
    for k in range(width_of(schema)):
        held = component_field(schema, k)
        roots = {ROOT: columns.arrays[held.column][rows]}
        if has_mask(held):
            roots[ROOT_MISSING] = columns.arrays[f"{held.column}?"][rows]
        made.append(
            Columns(component_schema(schema, k), columns.count, {**arrays, **roots}, starts, columns.vocabularies)
        )
    return tuple(made)


def as_tuples(columns: Columns) -> Columns:
    """Arguments that were packed together as plain tuples: for a function that takes one argument."""
    store = _arguments_store(columns.schema)
    fields = tuple(replace(f, name=f.name.removeprefix("argument")) for f in store.fields)
    plain = replace(store, classes=(Class(f"tuple{len(fields)}", "tuple"),), fields=fields)
    schema = replace(columns.schema, stores=tuple(plain if s is store else s for s in columns.schema.stores))
    return conform(replace(columns, schema=schema), merge(schema, schema))


def _has_arguments(schema: Schema) -> bool:
    if not isinstance(schema.root, Ref):
        return False
    cls = schema.store(schema.root.store).classes[0].cls
    return cls is not None and cls.__module__ == __name__


def _arguments_store(schema: Schema) -> Store:
    assert isinstance(schema.root, Ref)
    return schema.store(schema.root.store)


def _wrapped(parts: Mapping[int, Schema], nullable: frozenset[int], width: int) -> Schema:
    """The schema of tuples of which only some components are known; those have the same stores."""
    cls = arguments_class(width)
    fields = []
    for k in range(width):
        name, part = f"argument{k}", parts.get(k)
        column = f"{cls.__name__}.{name}"
        if part is None:
            fields.append(Field(name, UNKNOWN, column, (0,), always_none=True, nullable=False))
            continue
        none = part.root_optional or k in nullable
        unknown = part.root == UNKNOWN
        fields.append(Field(name, part.root, column, (0,), part.root_optional, unknown, none, part.root_numpy))
    some = next(iter(parts.values()))
    store = Store(cls.__name__, (Class(cls.__name__, "namedtuple", cls),), tuple(fields))
    return Schema(Ref(store.name), (store, *some.stores), some.lists)


def _wrapped_columns(parts: Mapping[int, Columns], width: int) -> Columns:
    """Columns of tuples of which only some components are known; those share their stores."""
    some = next(iter(parts.values()))
    if any(p.count != some.count for p in parts.values()):
        raise BatchError("arguments that are packed together have different numbers of examples")
    nullable = [k for k, p in parts.items() if isinstance(p.schema.root, Ref | List) and (p.arrays[ROOT] < 0).any()]
    schema = _wrapped({k: p.schema for k, p in parts.items()}, frozenset(nullable), width)
    roots: list[np.ndarray[Any, Any]] = []
    for k in range(width):
        if k not in parts:
            roots.append(np.zeros(some.count, np.bool_))
            continue
        roots.append(parts[k].arrays[ROOT])
        if parts[k].schema.root_optional:
            roots.append(parts[k].arrays[ROOT_MISSING])
    return _rooted(schema, some, roots)


def _rooted(schema: Schema, stores: Columns, roots: Sequence[np.ndarray[Any, Any]]) -> Columns:
    """Columns of tuples from the stores, and the roots of each component, behind an optional one its mask."""
    store, count = _arguments_store(schema), stores.count
    held = iter(roots)
    arrays: dict[str, np.ndarray[Any, Any]] = {f"{store.name}.#tag": np.zeros(count, np.int32)}
    for k in range(width_of(schema)):
        field = component_field(schema, k)
        arrays[field.column] = next(held).astype(host_dtype(field.type), copy=False)
        if has_mask(field):
            arrays[f"{field.column}?"] = next(held)
    kept = {c.name for c in columns_of(schema) if c.space is not None}
    kept |= {f"{s.name}.#offsets" for s in schema.lists}
    arrays |= {n: a for n, a in stores.arrays.items() if n in kept}
    arrays[ROOT] = np.arange(count, dtype=np.int32)
    starts = {**stores.starts, store.name: np.arange(count + 1)}
    return Columns(schema, count, arrays, starts, stores.vocabularies)
