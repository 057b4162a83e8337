"""Lists and dicts in memory (`list_heap.py`), as other containers hold them: new ones, and what changes them in place.

    row.append(y), row.pop(), row[k] = y, row.extend(more)     single elements
    row.sort(), row.insert(0, y), row[1:3] = more, ...         what a list as a value becomes, element by element

    d[a][b] = y             %row: a number; its elements are pairs, as those of a list in memory are
                            %k = find(the keys of %row, %b); the pair at %k, or behind the last one, is (b, y)
    row = d[a]; row[b]      two names of a dict are two equal numbers
    d[a] == e, d[a] | e     what reads it as a whole reads a copy, a dict as values are (`tables.py`)

Such a dict is a `Row` of the memory of all dicts that may stand where it does; they are of one class.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from autobatch.frontend.library import tables
from autobatch.frontend.library.strings import text
from autobatch.frontend.library.tables import or_behind
from autobatch.frontend.lowering.attributes import is_none
from autobatch.frontend.lowering.carrying import Layouts, Turn, enter_turn, leave, region_of, settle, yields_of
from autobatch.frontend.lowering.joins import attempt, conditional
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.sequences import in_range, sequence
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.heap import Heap, is_dict_value
from autobatch.frontend.memory.list_heap import is_dict_row
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table
from autobatch.frontend.types.values import LeafLayout
from autobatch.ir.core import INT, STR, For, List, Operand
from autobatch.ir.ops import own

# ---- lists


NONE = v.Static(None)


def allocate(s: LoweringState, heap: Heap, value: v.Abstract) -> v.MemoryRow:
    """A new list with the elements of another one."""
    list_heap.become_record(s, heap, value)
    if heap.is_record:
        return list_heap.allocate(s, heap, value)
    if isinstance(value, v.Listing):
        heaps.grow(s, heap, ("item",), [value.elem])
    found = sequence(s, value)
    row = list_heap.new_list(s, heap)
    if isinstance(found, v.Record) and not found.items:
        return row
    count = v.Static(len(found.items)) if isinstance(found, v.Record) else found.length
    begin = list_heap.lay_out(s, row, count)
    if isinstance(found, v.Record):
        for k, x in enumerate(found.items):
            list_heap.put(s, heap, x, traced(s, operator.add, begin, v.Static(k)))
    else:
        each(s, found, lambda t, i, x: list_heap.put(t, heap, x, traced(t, operator.add, begin, i)))
    return row


def adopted(s: LoweringState, heap: Heap, value: v.Abstract) -> v.Abstract:
    """A list of the examples, or None, as a copy in memory, which does for it where none is changed there; a string
    as its code points; a tuple."""
    if heap.whole.is_strings:
        letters = v.Lazy(text(s, "__len__", value), lambda t, i: text(t, "ord", text(t, "__getitem__", value, i)))
        return allocate(s, heap.whole, letters)
    if not isinstance(value, v.Leaf):
        return allocate(s, heap.whole, expand(s, value))
    assert isinstance(value.type, List) and value.type.store is not None
    heap.whole.copies |= {value.type.store}
    list_heap.refuse_copies(s, heap)
    return conditional(s, is_none(s, value.operand), lambda t: NONE, lambda t: _copied(t, heap.whole, value))


def _copied(s: LoweringState, heap: Heap, value: v.Leaf) -> v.MemoryRow:
    return replace(allocate(s, heap, value), own=False)


def string_of(s: LoweringState, row: v.MemoryRow) -> v.Leaf:
    """A string in memory."""
    heaps.grow(s, row.heap, ("item",), [LeafLayout(INT)])
    letters = s.context.rules.materialise(s, list_heap.elements(s, replace(row, null=False)))
    assert isinstance(letters, v.Listing)
    return v.Leaf(s.apply(own("text", function="of_letters", args=(...,)), letters.lists, STR))


def store_element(s: LoweringState, row: v.MemoryRow, index: v.Abstract, value: v.Abstract) -> None:
    """`row[index] = value`"""
    if row.heap.is_record:
        list_heap.store(s, row, present(s, index), value)
        return
    list_heap.change(s, row)
    list_heap.as_element(s, row.heap, value)
    position = in_range(s, present(s, index), list_heap.length(s, row))
    list_heap.put(s, row.heap, value, list_heap.place(s, row, position))


def extend(s: LoweringState, row: v.MemoryRow, more: v.Abstract) -> None:
    """`row.extend(more)`"""
    found = sequence(s, more)
    if isinstance(found, v.Lazy):
        each(s, found, lambda t, i, x: list_heap.append(t, row, x))
        return
    for x in found.items:
        list_heap.append(s, row, x)


def assign_list(s: LoweringState, row: v.MemoryRow, items: v.Abstract) -> None:
    """`row[:] = items`, which is a value."""
    list_heap.shorten(s, row, v.Static(0))
    extend(s, row, items)


# ---- loops


def each(s: LoweringState, found: v.Lazy, body: Callable[[LoweringState, v.Abstract, v.Abstract], None]) -> None:
    """Do something that changes memory for every item of a sequence, with its index."""

    def turn(layouts: Layouts) -> Turn:
        t, args = enter_turn(s, layouts, ())
        index = s.context.value(INT, "turn")

        def run(u: LoweringState) -> v.Abstract:
            body(u, v.Leaf(index), found.item(u, v.Leaf(index)))
            return NONE

        attempt(t, run)
        return Turn(t, args, index)

    layouts, made, initial = settle(s, heaps.variables(s), turn)
    assert made.index is not None
    yields: Sequence[Operand] = made.args if made.end.dead else yields_of(made.end, layouts)
    results = tuple(s.context.value(a.type) for a in made.args)
    region = region_of((made.index, *made.args), made.end, yields)
    s.emit(For(results, operand_of(s, found.length), tuple(initial), region, s.span))
    leave(s, layouts, results)


# ---- reading


# ---- dicts


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


def store_value(s: LoweringState, row: v.MemoryRow, key: v.Abstract, value: v.Abstract) -> None:
    """`row[key] = value`"""
    if row.heap.is_record:
        list_heap.store(s, row, key, value)
        return
    _put(s, row, key, value, _position(s, row, key))


def _put(s: LoweringState, row: v.MemoryRow, key: v.Abstract, value: v.Abstract, found: v.Leaf | None) -> None:
    pair = v.Record("tuple", (0, 1), (tables.hashable(s, key), value))
    count = list_heap.length(s, row)
    list_heap.put_at(s, row, pair, count if found is None else traced(s, or_behind, found, count))


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


def assign_dict(s: LoweringState, row: v.MemoryRow, table: v.Abstract) -> None:
    """Let it hold what another dict holds, and nothing else."""
    if row.heap.is_set:
        assign_list(s, row, tables.pairs_of(s, as_table(table)))
        return
    assert is_dict_value(table) and isinstance(table, v.Record)
    if row.heap.is_record:
        list_heap.assign(s, row, table)
        return
    assign_list(s, row, tables.pairs_of(s, table))


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
        assign_dict(s, row, left)
