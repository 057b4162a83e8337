"""Dicts that have memory, because other containers hold them and they are changed in place.

    d[a][b] = y             %row: a number; its elements are pairs, as those of a list in memory are (`list_heap.py`)
                            %k = find(the keys of %row, %b); the pair at %k, or behind the last one, is (b, y)
    row = d[a]; row[b]      two names of a dict are two equal numbers
    d[a] == e, d[a] | e     what reads it as a whole reads a copy, a dict as values are (`tables.py`)

Such a dict is a `Row` of the memory of all dicts that may stand where it does; they are of one class.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from autobatch.frontend.library import tables
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import present, traced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import list_changes, list_heap
from autobatch.frontend.memory.identity import is_dict_value
from autobatch.frontend.memory.list_heap import is_dict_row
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table

# ---- reading


def opened(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A dict in memory as a dict that is a value, a copy; other values as they are."""
    return list_heap.copied(s, value) if is_dict_row(value) else value


def _position(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Leaf | None:
    """Where a key is, -1 where it is not there; None where it cannot be there."""
    return tables.position(s, _keys(s, row), key)


def _keys(s: LoweringState, row: v.MemoryRow) -> v.Record:
    return v.Record("table", ("keys",), (list_heap.column(s, row, 0),), row.heap.cls)


def holds(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`key in row`"""
    if row.heap.is_record:
        return list_heap.holds(s, row, key)
    return tables.holds(s, _keys(s, row), key)


def load(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`row[key]`; KeyError where it is not there, and no default is made."""
    if row.heap.is_record:
        return list_heap.load(s, row, key)
    if row.heap.cls is Counter:
        return get(s, row, key, v.Static(0))
    found = _position(s, row, key)
    if has_default(row):
        value = _get_or_make(s, row, key, found)
        _put(s, row, key, value, found)
        return value
    if not tables.check_found(s, found, key):
        return v.Static(None)
    assert found is not None
    return _value(s, row, found)


def load_old(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> v.Abstract:
    """`row[key]`, which is set afterwards, so that nothing is put into a `defaultdict` before."""
    return _get_or_make(s, row, key, _position(s, row, key)) if has_default(row) else load(s, row, key)


def get(s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: v.Abstract) -> v.Abstract:
    """`row.get(key, default)`"""
    if row.heap.is_record:
        return list_heap.get(s, row, key, default)
    found = _position(s, row, key)
    return default if found is None else _either(s, row, found, lambda t: default)


def has_default(row: v.MemoryRow) -> bool:
    """Is it a `defaultdict` with a factory?"""
    return row.heap.cls is defaultdict and row.heap.factory != v.Static(None)


def _get_or_make(s: LoweringState, row: v.MemoryRow, key: v.Abstract, found: v.Leaf | None) -> v.Abstract:
    factory = row.heap.factory
    assert factory is not None
    if found is None:
        return tables.made(s, factory)
    return _either(s, row, found, lambda t: tables.made(t, factory))


def _either(
    s: LoweringState, row: v.MemoryRow, found: v.Leaf, default: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    here = traced(s, operator.ge, found, v.Static(0)).operand
    return conditional(s, here, lambda t: _value(t, row, found), default)


def _value(s: LoweringState, row: v.MemoryRow, place: v.Abstract) -> v.Abstract:
    pair = list_heap.element(s, row, place)
    assert isinstance(pair, v.Record)
    return pair.items[1]


# ---- changing


def store(s: LoweringState, row: v.MemoryRow, key: v.Abstract, value: v.Abstract) -> None:
    """`row[key] = value`"""
    if row.heap.is_record:
        list_heap.store(s, row, key, value)
        return
    _put(s, row, key, value, _position(s, row, key))


def _put(s: LoweringState, row: v.MemoryRow, key: v.Abstract, value: v.Abstract, found: v.Leaf | None) -> None:
    pair = v.Record("tuple", (0, 1), (tables.hashable(s, key), value))
    count = list_heap.length(s, row)
    list_heap.put_at(s, row, pair, count if found is None else traced(s, _or_behind, found, count))


def _or_behind(found: Any, count: Any) -> Any:
    return jnp.where(found < 0, count, found)


def set_default(
    s: LoweringState, row: v.MemoryRow, key: v.Abstract, default: Callable[[LoweringState], v.Abstract]
) -> v.Abstract:
    """`row.setdefault(key, default(s))`"""
    if row.heap.is_record:
        return list_heap.set_default(s, row, key, default)
    found = _position(s, row, key)
    value = default(s) if found is None else _either(s, row, found, default)
    _put(s, row, key, value, found)
    return value


def assign(s: LoweringState, row: v.MemoryRow, table: v.Abstract) -> None:
    """Let it hold what another dict holds, and nothing else."""
    if row.heap.is_set:
        list_changes.assign(s, row, tables.pairs_of(s, as_table(table)))
        return
    assert is_dict_value(table) and isinstance(table, v.Record)
    if row.heap.is_record:
        list_heap.assign(s, row, table)
        return
    list_changes.assign(s, row, tables.pairs_of(s, table))


def delete(s: LoweringState, row: v.MemoryRow, key: v.Abstract) -> None:
    """`del row[key]`; KeyError where it is not there."""
    if row.heap.is_record:
        list_heap.give_up(s, row, "a key is deleted")
    table = list_heap.copied(s, row)
    assert isinstance(table, v.Record)
    left = tables.delete(s, table, present(s, key))
    if left is None:
        s.dead = True
    else:
        assign(s, row, left)
