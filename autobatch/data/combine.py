"""Several batched arguments as one data set: their columns woven together, example by example.

left.starts   0 3 5         rows 0..2 of left are example 0        Node 0..2 left, 3..4 right, then example 1
right.starts  0 2 3   ->    merged starts 0 5 8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import ROOT, ROOT_MISSING, Columns, columns_of, offsets_of
from autobatch.errors import BatchError
from autobatch.ir.types import List, Ref, Tag, Type

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
