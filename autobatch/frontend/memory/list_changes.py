"""Lists in memory (`list_heap.py`): new ones, and the methods and statements that change them.

row.append(y), row.pop(), row[k] = y, row.extend(more)     single elements
row.sort(), row.insert(0, y), row[1:3] = more, ...         what a list as a value becomes, element by element
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

from autobatch.frontend.library.strings import text
from autobatch.frontend.lowering.attributes import is_none
from autobatch.frontend.lowering.carrying import Layouts, Turn, enter_turn, leave, region_of, settle, yields_of
from autobatch.frontend.lowering.joins import attempt, conditional
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.sequences import in_range, sequence
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.heap import Heap
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import LeafLayout
from autobatch.ir.core import INT, STR, For, List, Operand
from autobatch.ir.ops import own

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


def store(s: LoweringState, row: v.MemoryRow, index: v.Abstract, value: v.Abstract) -> None:
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


def assign(s: LoweringState, row: v.MemoryRow, items: v.Abstract) -> None:
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
