"""Lists that have memory (`segments.py`), because other containers hold them and they are changed in place.

    grid[i][j] = y          %row: a number, as objects in memory are (`heaps.py`)
                            columns = dynamic_update_slice(columns, y, place(table, row, j))
    grid[i].append(y)       the same at its length, which is one more; a new segment where it is full

Such a list is a `Row` of the memory of all lists that may stand where it does, so two names of a list are two equal
numbers. What only reads it as a whole (`sum`, a slice, `sorted`) reads a copy, a list as values are.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

from autobatch.frontend.lowering.joins import convert
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps, record_heap
from autobatch.frontend.memory.columns import as_read, as_stored, column_type
from autobatch.frontend.memory.heap import Heap
from autobatch.frontend.memory.list_sites import dicts_have_memory
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, layout_of, leaf_types, rebuild
from autobatch.ir import segments
from autobatch.ir.capacity import NO_ROOM, out_of_room
from autobatch.ir.core import Operand
from autobatch.ir.types import Type

NONE = v.Static(None)


@dataclass(frozen=True)
class _Memory:
    """The memory of lists: how many there are, how many elements have a place; the rest is in columns."""

    count: v.Abstract
    used: v.Abstract
    lengths: v.Abstract
    table: v.Abstract
    columns: tuple[v.Abstract, ...]


def _memory(s: LoweringState, heap: Heap, write: bool = False) -> _Memory:
    count, used, lengths, table, *columns = heaps.memory_of(s, heap, write)
    return _Memory(count, used, lengths, table, tuple(columns))


def _bind(s: LoweringState, heap: Heap, m: _Memory) -> None:
    heaps.bind_memory(s, heap, (m.count, m.used, m.lengths, m.table, *m.columns))


def _width(s: LoweringState) -> int:
    return segments.segments(s.context.memory.capacity)


def _element(heap: Heap) -> Layout | None:
    """The layout of the elements; None where none is known."""
    return heap.layout.items[0] if heap.layout is not None and heap.layout.items else None


def is_row(value: v.Abstract) -> bool:
    """Is it a list or dict that has memory?"""
    return isinstance(value, v.MemoryRow) and (value.heap.in_segments or value.heap.is_record)


def is_dict_row(value: v.Abstract) -> bool:
    """Is it a dict that has memory?"""
    return isinstance(value, v.MemoryRow) and value.heap.is_dict


def there(s: LoweringState, row: v.Abstract) -> v.MemoryRow:
    """The list, which is not None."""
    assert isinstance(row, v.MemoryRow)
    return heaps.there(s, row, f"None where a {row.heap.kind} is needed")


# ---- making


def hold(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """Note that a container holds a value from here on; the value. Where such lists have memory, all have."""
    held = s.context.sites.hold(value)
    known = s.context.memory.sites
    if held and known:
        s.context.memory.add_sites(s.context.sites.of(held, known, dicts_have_memory(known)))
    return value


def refuse_view(s: LoweringState, value: v.Abstract) -> None:
    """Refuse to keep a view of a dict in memory, which would have to show what becomes of the dict."""
    if isinstance(value, v.Lazy) and value.dicts:
        s.refuse(
            "a view of a dict that is changed is kept: keys(), values() or items()", "keep a list: list(d.values())"
        )


def new_list(s: LoweringState, heap: Heap) -> v.MemoryRow:
    """A new list without elements."""
    heaps.grow(s, heap, (), [])
    m = _memory(s, heap, write=True)
    capacity = s.context.memory.capacity
    room = traced(s, operator.lt, m.count, v.Static(capacity))
    s.check(room.operand, NO_ROOM, out_of_room(capacity, heap.kind))
    _bind(s, heap, replace(m, count=traced(s, operator.add, m.count, v.Static(1))))
    return v.MemoryRow(operand_of(s, m.count), heap)


def lay_out(s: LoweringState, row: v.MemoryRow, length: v.Abstract) -> v.Abstract:
    """Give a new list a length; where its elements begin, which are to be set then."""
    m, at = _memory(s, row.heap, write=True), v.Leaf(row.operand)
    size = traced(s, segments.room_for, length)
    used = traced(s, operator.add, m.used, size)
    _check_used(s, used)
    laid_out = replace(
        m,
        used=used,
        lengths=traced(s, segments.write, m.lengths, length, at),
        table=traced(s, segments.laid_out(_width(s)), m.table, at, length, m.used),
    )
    _bind(s, row.heap, laid_out)
    return m.used


def _check_used(s: LoweringState, used: v.Abstract) -> None:
    capacity = s.context.memory.capacity
    enough = traced(s, operator.le, used, v.Static(segments.elements(capacity)))
    s.check(enough.operand, NO_ROOM, out_of_room(capacity, "element in lists"))


def as_element(s: LoweringState, heap: Heap, value: v.Abstract) -> v.Abstract:
    """A value as an element; where none like it was known, all is lowered again."""
    hold(s, value)
    s.context.identities.stored(value)
    value = heaps.as_field(s, value)
    heaps.grow(s, heap, ("item",), [layout_of(value)])
    return value


def put(s: LoweringState, heap: Heap, value: v.Abstract, place: v.Abstract) -> None:
    """Set an element that has a place."""
    value = as_element(s, heap, value)
    layout = _element(heap)
    assert layout is not None
    parts = [as_stored(s, x) for x in convert(s, heaps.in_memory(s, value, layout), layout)]
    m = _memory(s, heap, write=True)
    columns = [traced(s, segments.write, c, v.Leaf(x), place) for c, x in zip(m.columns, parts, strict=True)]
    _bind(s, heap, replace(m, columns=tuple(columns)))


def tell_apart(s: LoweringState, heap: Heap) -> None:
    """Note that it matters which list in memory is which: one is changed, or compared by `is`."""
    heap.whole.told_apart = True
    refuse_copies(s, heap)


def refuse_copies(s: LoweringState, heap: Heap) -> None:
    """Refuse copies of lists of the examples where they would not do for these."""
    if heap.whole.copies and heap.whole.told_apart:
        s.refuse(
            "a list of the examples may stand where lists are changed in place, or compared by `is`",
            "put a copy there: [y for y in x]",
        )


# ---- reading


def length(s: LoweringState, row: v.MemoryRow) -> v.Leaf:
    """`len(row)`"""
    return traced(s, segments.read_weak, _memory(s, row.heap).lengths, v.Leaf(row.operand))


def element(s: LoweringState, row: v.MemoryRow, index: v.Abstract) -> v.Abstract:
    """The element at an index that is in range."""
    layout = _element(row.heap)
    if layout is None:
        s.check(s.scalar(False), "IndexError", "list index out of range")
        s.dead = True
        return NONE
    at, columns = place(s, row, index), _memory(s, row.heap).columns
    read = [_read(s, c, at, t) for c, t in zip(columns, leaf_types(layout), strict=True)]
    found = rebuild(layout, iter(read))
    s.context.identities.stored(found)
    return found


def _read(s: LoweringState, column: v.Abstract, at: v.Abstract, type: Type) -> Operand:
    kind = column_type(type)
    weak = kind is not None and kind.weak
    return as_read(s, traced(s, segments.read_weak if weak else segments.read, column, at).operand, type)


def place(s: LoweringState, row: v.MemoryRow, index: v.Abstract) -> v.Leaf:
    """Where an element stands in the columns."""
    slot = traced(s, segments.slot(_width(s)), v.Leaf(row.operand), index)
    return traced(s, segments.place, traced(s, segments.read_weak, _memory(s, row.heap).table, slot), index)


def tuple_of(made: v.Abstract) -> v.Abstract:
    """A list that nobody else holds as a tuple."""
    if isinstance(made, v.Listing):
        return replace(made, is_tuple=True)
    assert isinstance(made, v.Record)
    return replace(made, kind="tuple")


def elements(s: LoweringState, row: v.MemoryRow) -> v.Record | v.Lazy:
    """The elements, of a dict its pairs, one after the other, as they are when each is read."""
    if row.heap.is_record:
        return record_heap.view(s, row, record_heap.pair)
    if _element(row.heap) is None:
        return v.Record("list", (), ())
    dicts = (row,) if row.heap.is_dict else ()
    return v.Lazy(length(s, row), lambda t, i: element(t, row, i), lambda t: length(t, row), dicts)


def column(s: LoweringState, row: v.MemoryRow, part: int) -> v.Abstract:
    """The keys of a dict (`part` 0) or its values (1) as a list, which is a value."""
    return s.context.rules.materialise(s, parts(s, row, part))


def parts(s: LoweringState, row: v.MemoryRow, part: int) -> v.Record | v.Lazy:
    """The keys of a dict (`part` 0) or its values (1), as they are when each is read."""
    if row.heap.is_record:
        return record_heap.view(s, row, record_heap.value if part else record_heap.key)
    found = elements(s, row)
    if isinstance(found, v.Record):
        return found

    def item(t: LoweringState, i: v.Abstract) -> v.Abstract:
        pair = found.item(t, i)
        assert isinstance(pair, v.Record)
        return pair.items[part]

    return replace(found, item=item)


def copied(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list or dict in memory as one of its own, which is a value; other values as they are."""
    if not is_row(value):
        return value
    row = there(s, value)
    if row.heap.is_record:
        return record_heap.opened(s, row)
    if not row.heap.is_dict:
        made = s.context.rules.materialise(s, elements(s, row))
        if row.heap.cls is tuple:
            return tuple_of(made)
        return made
    if row.heap.is_set:
        return v.Record("table", ("keys",), (column(s, row, 0),), set)
    items = {"keys": column(s, row, 0), "values": column(s, row, 1)}
    if row.heap.factory is not None:
        items["factory"] = row.heap.factory
    return v.Record("table", tuple(items), tuple(items.values()), row.heap.cls)


# ---- changing


def append(s: LoweringState, row: v.MemoryRow, value: v.Abstract) -> None:
    """`row.append(value)`"""
    as_element(s, row.heap, value)
    count = length(s, row)
    put_at(s, row, value, count, traced(s, operator.add, count, v.Static(1)))


def put_at(
    s: LoweringState, row: v.MemoryRow, value: v.Abstract, index: v.Abstract, after: v.Abstract | None = None
) -> None:
    """Set the element at an index, or behind the last one. `after`: how long the list is then, where that is known."""
    tell_apart(s, row.heap)
    as_element(s, row.heap, value)
    m, at = _memory(s, row.heap, write=True), v.Leaf(row.operand)
    after = after or traced(s, segments.length_with, length(s, row), index)
    slot = traced(s, segments.slot(_width(s)), at, index)
    begin = traced(s, segments.read_weak, m.table, slot)
    full = traced(s, operator.eq, begin, v.Static(0))
    behind = traced(s, operator.add, m.used, v.Static(1))
    begin = traced(s, segments.choose, full, behind, begin)
    more = traced(s, segments.choose, full, traced(s, segments.size, index), v.Static(0))
    used = traced(s, operator.add, m.used, more)
    _check_used(s, used)
    grown = replace(
        m,
        used=used,
        lengths=traced(s, segments.write, m.lengths, after, at),
        table=traced(s, segments.write, m.table, begin, slot),
    )
    _bind(s, row.heap, grown)
    put(s, row.heap, value, traced(s, segments.place, begin, index))


def pop(s: LoweringState, row: v.MemoryRow) -> v.Abstract:
    """`row.pop()`"""
    count = length(s, row)
    s.check(traced(s, operator.gt, count, v.Static(0)).operand, "IndexError", "pop from empty list")
    last = traced(s, operator.sub, count, v.Static(1))
    found = element(s, row, last)
    if not s.dead:
        shorten(s, row, last)
    return found


def shorten(s: LoweringState, row: v.MemoryRow, count: v.Abstract) -> None:
    """Keep the first elements."""
    tell_apart(s, row.heap)
    m = _memory(s, row.heap, write=True)
    _bind(s, row.heap, replace(m, lengths=traced(s, segments.write, m.lengths, count, v.Leaf(row.operand))))
