"""Columns expressed in a wider schema: the same examples, as if they had been packed `like` it.

Classes may share a store that had one each, fields may be wider numbers, and arrays of one shape may become ragged.
Every row of the old columns has one place in the new ones, so this is a copy of columns under index vectors, no walk.
Rows of stores that became one lie store after store within each example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autobatch.data.columns import (
    ROOT,
    ROOT_MISSING,
    Columns,
    Ints,
    columns_of,
    has_mask,
    host_dtype,
    host_shape,
    offsets_of,
    ranges,
    unfilled,
)
from autobatch.data.infer import Inference, InferenceConflict, InferredRecord
from autobatch.data.layout import SchemaLayout, lay_out
from autobatch.data.schema import UNKNOWN, Schema, Store
from autobatch.errors import BatchError
from autobatch.ir.types import Array, List, Ref, Type

AnyArray = np.ndarray[Any, Any]


def conform(columns: Columns, schema: Schema) -> Columns:
    """The same examples under `schema`, which must hold all that `columns.schema` holds (`merge` makes such a one).

    Raises BatchError when it does not."""
    if columns.schema == schema:
        return columns
    inference = Inference()
    try:
        inference.see_schema(schema)
        records = {s.name: inference.records_of(columns.schema, s.name) for s in columns.schema.stores}
        layout = lay_out(inference)
    except InferenceConflict as error:
        raise BatchError(f"the schema contradicts itself: {error}") from None
    if layout.schema != schema:
        raise BatchError("the schema does not hold these columns; merge it with `columns.schema` first")
    return _Conform(columns, layout, records).run()


@dataclass(eq=False)
class _Piece:
    """Some entries of the old columns: `example` is the example of each, `missing` where they are None. They go to the
    entries `rows` of the new column. `placed`: they are rows of the new stores already."""

    values: AnyArray
    missing: AnyArray | None
    old: Type
    example: Ints
    new: Type
    column: str
    mask: str | None
    rows: Ints
    placed: bool = False


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
        homes: dict[str, list[str]] = {s.name: [] for s in self.new.stores}
        for old in self.old.stores:
            homes[self.layout.position(self.records[old.name][0])[0]].append(old.name)
        for name, sources in homes.items():
            self.number(name, sources)
        for items in self.new.lists:
            if not items.from_array:
                sources = [old for old, new in self.targets.items() if new == items.name]
                self.number(items.name, sources)
                self.offsets(items.name, sources)
        pieces = [*self.root_pieces(), *self.field_pieces(), *self.item_pieces()]
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
        vocabularies = self.columns.vocabularies
        return Columns(self.new, self.columns.count, self.arrays, self.starts, vocabularies)

    # Rows

    def match_lists(self, old: Type, new: Type) -> None:
        """Where do the lists of an old place go?"""
        while isinstance(old, List) and isinstance(new, List):
            assert old.store is not None and new.store is not None
            self.targets[old.store] = new.store
            if self.new.list(new.store).from_array:
                return
            old, new = old.elem, new.elem

    def number(self, name: str, sources: list[str]) -> None:
        """New rows: example after example, and in each the rows of the sources in turn."""
        count = self.columns.count
        counts = [np.diff(self.columns.starts[s]) for s in sources]
        self.starts[name] = offsets_of(sum(counts, np.zeros(count, np.int64)))
        begin = self.starts[name][:-1]
        for source, lengths in zip(sources, counts, strict=True):
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
        return [_Piece(*held, self.old.root, everything, self.new.root, ROOT, mask, everything)]

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
                    rows = self.rows[store.name][chosen]
                    pieces.append(_Piece(*held, field.type, example[chosen], new.type, new.column, mask, rows))
        return pieces

    def item_pieces(self) -> list[_Piece]:
        pieces = []
        for old, name in self.targets.items():
            new = self.new.list(name)
            if new.from_array:
                continue
            column, target = f"{old}.#values", f"{name}.#values"
            offsets = self.arrays[f"{name}.#offsets"][self.rows[old]]
            rows = ranges(offsets, np.diff(self.columns.arrays[f"{old}.#offsets"]))
            items = self.old.list(old)
            held = self.entries(column, has_mask(items), np.arange(len(rows)))
            mask = f"{target}?" if has_mask(new) else None
            pieces.append(_Piece(*held, items.elem, self.examples_of(column), new.elem, target, mask, rows))
        return pieces

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
        self.arrays[piece.column][piece.rows] = values
        if piece.mask is not None:
            self.arrays[piece.mask][piece.rows] = False if piece.missing is None else piece.missing

    def tags(self, store: Store) -> None:
        tags, rows = self.columns.arrays[f"{store.name}.#tag"], self.rows[store.name]
        for k, record in enumerate(self.records[store.name]):
            name, position = self.layout.position(record)
            self.arrays[f"{name}.#tag"][rows[tags == k]] = position
