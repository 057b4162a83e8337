"""Sequences: lists of the examples, lists made by comprehensions, containers, ranges; their length, items and slices.

A sequence that is not stored is a `Lazy`: a length and a function from index to item. Loops and comprehensions need
nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autobatch.data.columns import UNKNOWN
from autobatch.frontend.library.graphs import nodes_of, viewed
from autobatch.frontend.library.numpy_arrays import dynamic_class
from autobatch.frontend.library.strings import characters, is_text, part, text
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import (
    attribute,
    class_list,
    field,
    fields_of,
    forms_of,
    is_unseen,
    refuse_unordered,
    written,
)
from autobatch.frontend.lowering.joins import as_listing
from autobatch.frontend.lowering.numbers import as_number, binary, operand_of, own_number, present, traced
from autobatch.frontend.lowering.selection import apply_choice, failure_of, select
from autobatch.frontend.lowering.state import Fact, LoweringState, expand, hand_out, note, wrap
from autobatch.frontend.lowering.unions import is_list, is_word, taken_as
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.syntax.iterator_variables import stepped_through
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import KEYS, container_kind
from autobatch.frontend.types.values import RowLayout, layout_of, leaf_type, rebuild
from autobatch.ir import jax_compat
from autobatch.ir.core import INT, Array, List, Operand, Ref
from autobatch.ir.ops import own


def length(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """`len(value)`"""
    value = heaps.opened(s, present(s, value))
    if list_heap.is_record_row(value):
        return list_heap.count(s, list_heap.there(s, value))
    if list_heap.is_row(value):
        return list_heap.length(s, list_heap.there(s, value))
    match value:
        case v.Static(value=held, origin=origin):
            if not hasattr(held, "__len__"):
                s.refuse(
                    f"{type(held).__name__!r} object has no len()",
                    "len() takes a list, a tuple, a dict, a string or an array",
                )
            if origin is not None and container_kind(held) is not None:
                note(s.context, origin.child(KEYS), tuple(range(len(held))) if isinstance(held, list) else tuple(held))
            if container_kind(held) is None:
                hand_out(s.context, held)
            return v.Static(len(held))
        case v.Record(items=items, kind="tuple" | "list" | "dict" | "namedtuple"):
            return v.Static(len(items))
        case v.Record(kind="table", items=items):
            return length(s, items[0])
        case v.Listing(lists=lists):
            return _length(s, lists[0])
        case v.Lazy(length=count):
            return count
        case v.Leaf(operand=operand):
            if isinstance(operand.type, List):
                return v.Static(0) if is_unseen(s, operand.type) else _length(s, operand)
            if is_text(value):
                return text(s, "__len__", value)
            if isinstance(operand.type, Array) and operand.type.shape:
                return v.Static(operand.type.shape[0])
            if (found := forms_of(s, value)) is not None:
                return unions.count(s, value, found)
            if isinstance(operand.type, Ref) and (parts := fields_of(s, value)) is not None:
                return v.Static(len(parts.items))
    s.refuse("this value has no len()", "len() takes a list, a tuple, a dict, a string or an array")


def _length(s: LoweringState, operand: Operand) -> v.Abstract:
    known = known_length(s, operand)
    if known is None:
        known = v.Leaf(s.apply(own("length"), (operand,), INT))
        s.block.memo["length", operand] = known
    return known


def known_length(s: LoweringState, operand: Operand) -> v.Abstract | None:
    """The length of a list where the program has it already: of a comprehension, of lists joined from such lists."""
    known, parts = s.block.recall(("length", operand)), s.block.recall(("joined", operand))
    if known is not None or not isinstance(parts, v.Record):
        return known
    counts = [known_length(s, x.operand) for x in parts.items if isinstance(x, v.Leaf)]
    if None in counts:
        return None
    known = reduce(lambda a, b: arithmetic(s, operator.add, a, b), (c for c in counts if c is not None))
    s.block.memo["length", operand] = known
    return known


def _in_some_order(s: LoweringState, keys: v.Abstract) -> v.Record | v.Lazy:
    """The elements of a set. Of objects that are equal to themselves alone Python has no order either: it is that of
    their addresses."""
    assert isinstance(keys, v.Record | v.Listing)
    for layout in map(layout_of, keys.items) if isinstance(keys, v.Record) else [keys.elem]:
        in_memory = isinstance(layout, RowLayout) and not layout.heap.whole.is_record
        given = leaf_type(layout)
        if not in_memory and not (isinstance(given, Ref) and all(c.kind == "object" for c in class_list(s, given))):
            s.refuse("the order of a set is not kept here", "run over sorted(...) of it, or over the keys of a dict")
    return sequence(s, keys)


def sequence(s: LoweringState, value: v.Abstract) -> v.Record | v.Lazy:
    """What a loop runs over: a container whose items are named one by one, or a length with a function."""
    if isinstance(value, v.Generator):
        return sequence(s, s.context.rules.materialise(s, value))
    value = heaps.opened(s, viewed(s, taken_as(s, present(s, value), is_list, is_word)))
    if list_heap.is_row(value):
        row = list_heap.there(s, value)
        if row.heap.is_set:
            return _in_some_order(s, list_heap.column(s, row, 0))
        value = list_heap.parts(s, row, 0) if row.heap.is_dict else list_heap.elements(s, row)
    if list_heap.is_view(value):
        return list_heap.as_it_is(s, value)
    refuse_unordered(s, value)
    if (nodes := _numbered_nodes(s, value)) is not None:
        return nodes
    if (array := dynamic_class(value)) is not None and array.rank == 0:
        return sequence(s, s.context.rules.stacked(s, operator.pos, (value,)))
    if array is not None:
        return v.Lazy(
            s.call(attribute(s, value, "__len__"), []),
            lambda t, i: t.context.rules.stacked(t, operator.getitem, (value, i)),
        )
    if written(s, value, "__next__"):
        return sequence(s, s.call(v.Static(stepped_through), [value]))
    if written(s, value, "__iter__"):
        return sequence(s, s.call(attribute(s, value, "__iter__"), []))
    if written(s, value, "__getitem__") and written(s, value, "__len__"):
        count = s.call(attribute(s, value, "__len__"), [])
        return v.Lazy(count, lambda t, i: t.call(attribute(t, value, "__getitem__"), [i]))
    value = expand(s, value)
    match value:
        case v.Record(kind="dict", keys=keys):
            return v.Record("tuple", tuple(range(len(keys))), tuple(v.Static(k) for k in keys))
        case v.Record(kind="table", items=items, cls=cls) if cls in (set, frozenset):
            return _in_some_order(s, items[0])
        case v.Record(kind="table", items=items):
            return sequence(s, items[0])
        case v.Record(kind="tuple" | "list" | "namedtuple") | v.Lazy():
            return value
        case v.Listing():
            return v.Lazy(length(s, value), lambda t, i: listing_item(t, value, i))
        case v.Leaf() if is_text(value):
            return characters(s, value)
        case v.Leaf(operand=operand):
            if is_unseen(s, operand.type):
                return v.Record("list", (), ())
            if isinstance(operand.type, List):
                return v.Lazy(length(s, value), lambda t, i: list_item(t, operand, i))
            if isinstance(operand.type, Array) and operand.type.shape and not operand.type.shape[0]:
                return v.Record("list", (), ())
            if isinstance(operand.type, Array) and operand.type.shape:
                return v.Lazy(length(s, value), lambda t, i: traced(t, operator.getitem, value, i))
            if (found := forms_of(s, value)) is not None:
                return unions.elements(s, value, found, part="key" if unions.is_dict(s, value) else "value")
            if isinstance(operand.type, Ref) and (parts := fields_of(s, value)) is not None:
                return sequence(s, parts)
        case v.Static(value=held) if isinstance(held, (str, range, set, frozenset, bytes)) or _is_iterable(held):
            items = tuple(wrap(s.context, x) for x in held)
            return v.Record("tuple", tuple(range(len(items))), items)
        case v.Choice():
            count = apply_choice(s, value, lambda t, x: length(t, sequence(t, x)), failure_of(s, iter))
            return v.Lazy(
                count, lambda t, i: apply_choice(t, value, lambda u, x: _item_there(u, x, i), failure_of(s, iter))
            )
    s.refuse(
        "this value cannot be iterated over", "loops run over lists, tuples, ranges, arrays, enumerate, zip, reversed"
    )


def _item_there(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """An item of what may be one of several containers, which is not reached of one that is empty."""
    found = sequence(s, value)
    if isinstance(found, v.Record) and not found.items:
        s.dead = True
        return v.Static(None)
    return item(s, found, index)


def begin(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """What `iter(value)` is, where a class of the user says so; else the value."""
    if isinstance(value, v.Generator):
        return value
    value = present(s, value)
    opened = heaps.opened(s, viewed(s, value))
    if not list_heap.is_row(opened) and nodes_of(s, opened) is None and written(s, opened, "__iter__"):
        return s.call(attribute(s, opened, "__iter__"), [])
    return value


def _numbered_nodes(s: LoweringState, value: v.Abstract) -> v.Lazy | v.Record | None:
    """The nodes of a graph whose labels are 0, 1, ...; None for anything else."""
    raw = nodes_of(s, value)
    return sequence(s, make_range(s, v.Static(0), field(s, raw, "size"), v.Static(1))) if raw is not None else None


def _is_iterable(value: Any) -> bool:
    return (isinstance(value, type) and hasattr(value, "__members__")) or isinstance(value, type({}.items()))


def list_item(s: LoweringState, operand: Operand, index: v.Abstract) -> v.Abstract:
    """An item of a list of the examples."""
    assert isinstance(operand.type, List)
    store = operand.type.store
    position = operand_of(s, index)
    key = ("item", operand, position)
    known = s.block.recall(key)
    if known is not None:
        return known
    if operand.type.elem == UNKNOWN:
        return v.Static(None)
    result = s.apply(own("item"), (operand, position), operand.type.elem)
    described = s.context.schema.list(store) if store is not None else None
    if isinstance(operand.type.elem, Ref) and described is not None and not described.nullable:
        s.block.facts[result] = Fact(None, False)
    found = v.Leaf(result, numpy=(described is not None and described.numpy) or None)
    s.block.memo[key] = s.context.rules.brought_in(s, found)
    return s.block.memo[key]


def listing_item(s: LoweringState, value: v.Listing, index: v.Abstract) -> v.Abstract:
    """An item of a list that a comprehension made."""
    position = operand_of(s, index)
    items = [s.apply(own("item"), (x, position), x.type.elem) for x in value.lists if isinstance(x.type, List)]
    found = rebuild(value.elem, iter(items))
    s.context.identities.item(value, found)
    return found


def item(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`value[index]` of a sequence, with Python's negative indices and IndexError."""
    index = as_index(s, index)
    _check_whole(s, index, "an index of a sequence", "use an int, or int(...) of it")
    if isinstance(value, v.Leaf) and isinstance(value.type, List) and not is_unseen(s, value.type):
        return list_item(s, value.operand, index)
    if isinstance(value, v.Listing):
        return listing_item(s, value, index)
    if is_text(value) or (isinstance(value, v.Static) and isinstance(value.value, str)):
        return text(s, "__getitem__", value, index)
    found = sequence(s, value)
    count = length(s, found)
    if isinstance(index, v.Static) and isinstance(count, v.Static):
        return _static_item(s, found, index.value, count.value)
    checked = in_range(s, index, count)
    if isinstance(found, v.Lazy):
        return found.item(s, checked)
    if not found.items:
        s.dead = True
        return v.Static(None)
    return select(s, operand_of(s, checked), found.items)


def as_index(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An integer as Python's `__index__` has it: those of arrays may have too few bits for a length, members of an
    `IntEnum` are numbers."""
    value = as_number(s, value)
    type = value.type if isinstance(value, v.Leaf) else None
    if not isinstance(type, Array) or not type.is_scalar or not type.is_integer or type.dtype in ("int32", "int64"):
        return value
    return own_number(s, "int", operand_of(s, value), python=True)


def _check_whole(s: LoweringState, value: v.Abstract, what: str, cure: str) -> None:
    """Refuse what Python does not take for an int."""
    match value:
        case v.Static(value=held):
            whole = hasattr(held, "__index__")
        case v.Leaf(operand=operand):
            type = operand.type
            whole = isinstance(type, Array) and type.is_scalar and (type.is_integer or type.is_bool)
        case _:
            whole = True  # looked at when it is read
    if not whole:
        s.refuse(f"{what} must be an integer", cure)


def _static_item(s: LoweringState, found: v.Record | v.Lazy, index: Any, count: int) -> v.Abstract:
    if not isinstance(index, int) or isinstance(index, bool):
        s.refuse(f"a sequence is indexed by {index!r}", "use an int")
    if not -count <= index < count:
        s.check(s.scalar(False), "IndexError", "index out of range")
        s.dead = True
        return v.Static(None)
    index %= count
    return found.items[index] if isinstance(found, v.Record) else found.item(s, v.Static(index))


def in_range(s: LoweringState, index: v.Abstract, count: v.Abstract) -> v.Abstract:
    """An index from the start, after a check that it lies in the sequence."""
    if isinstance(index, v.Static) and isinstance(count, v.Static) and -count.value <= index.value < count.value:
        return v.Static(index.value % count.value)
    inside = traced(s, is_inside, index, count)
    s.check(inside.operand, "IndexError", "list index out of range")
    return index if isinstance(index, v.Static) and index.value >= 0 else traced(s, _from_start, index, count)


def is_inside(i: Any, n: Any) -> Any:
    """Is an index of a sequence of `n` in range?"""
    return (-n <= i) & (i < n)


def _from_start(i: Any, n: Any) -> Any:
    """The place is an integer of Python, as the turn of a loop over the places is."""
    found = jnp.where(i < 0, i + n, i)
    return found if jax.typeof(found).weak_type else jax_compat.weakened(lax.convert_element_type(found, int))


def minimum(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    if isinstance(a, v.Static) and isinstance(b, v.Static):
        return v.Static(min(a.value, b.value))
    return traced(s, jnp.minimum, a, b)


def maximum(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    if isinstance(a, v.Static) and isinstance(b, v.Static):
        return v.Static(max(a.value, b.value))
    return traced(s, jnp.maximum, a, b)


def arithmetic(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """Integer arithmetic, folded where it can be."""
    if isinstance(a, v.Static) and isinstance(b, v.Static):
        return v.Static(function(a.value, b.value))
    if function in (operator.add, operator.sub) and b == v.Static(0):
        return a
    if function is operator.mul and b == v.Static(1):
        return a
    return binary(s, function, a, b)


def make_range(s: LoweringState, start: v.Abstract, stop: v.Abstract, step: v.Abstract) -> v.Abstract:
    """`range(start, stop, step)`"""
    start, stop, step = (as_index(s, x) for x in (start, stop, step))
    for given in (start, stop, step):
        _check_whole(s, given, "an argument of range()", "use an int, or int(...) of it")
    if isinstance(start, v.Static) and isinstance(stop, v.Static) and isinstance(step, v.Static):
        held = range(start.value, stop.value, step.value)
        return v.Lazy(v.Static(len(held)), lambda t, i: _affine(t, start, step, i), range=(start, stop, step))
    if not isinstance(step, v.Static):
        return _stepped(s, start, stop, step)
    if step.value == 0:
        s.refuse("range() with a step of zero", "give a step that is not zero")
    span = arithmetic(s, operator.sub, stop, start) if step.value > 0 else arithmetic(s, operator.sub, start, stop)
    size = abs(step.value)
    if size != 1:
        padded = arithmetic(s, operator.add, span, v.Static(size - 1))
        span = arithmetic(s, operator.floordiv, padded, v.Static(size))
    count = maximum(s, span, v.Static(0))
    return v.Lazy(count, lambda t, i: _affine(t, start, step, i), range=(start, stop, step))


def _stepped(s: LoweringState, start: v.Abstract, stop: v.Abstract, step: v.Abstract) -> v.Lazy:
    """A range whose step is data."""
    s.check(traced(s, operator.ne, step, v.Static(0)).operand, "ValueError", "range() arg 3 must not be zero")
    span = arithmetic(s, operator.sub, stop, start)
    padded = arithmetic(s, operator.sub, arithmetic(s, operator.add, span, step), traced(s, jnp.sign, step))
    count = maximum(s, arithmetic(s, operator.floordiv, padded, step), v.Static(0))
    return v.Lazy(count, lambda t, i: _affine(t, start, step, i), range=(start, stop, step))


def _affine(s: LoweringState, start: v.Abstract, step: v.Abstract, index: v.Abstract) -> v.Abstract:
    scaled = arithmetic(s, operator.mul, index, step)
    return scaled if start == v.Static(0) else arithmetic(s, operator.add, scaled, start)


def reverse(s: LoweringState, value: v.Abstract) -> v.Abstract:
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return v.Record("tuple", tuple(range(len(found.items))), found.items[::-1])
    last = arithmetic(s, operator.sub, found.length, v.Static(1))
    return v.Lazy(found.length, lambda t, i: found.item(t, arithmetic(t, operator.sub, last, i)))


def enumerated(s: LoweringState, value: v.Abstract, start: v.Abstract) -> v.Abstract:
    found = _live(s, value)
    if isinstance(found, v.Record):
        pairs = [pair(arithmetic(s, operator.add, v.Static(k), start), x) for k, x in enumerate(found.items)]
        return v.Record("tuple", tuple(range(len(pairs))), tuple(pairs))
    return v.Lazy(
        found.length,
        lambda t, i: pair(arithmetic(t, operator.add, i, start), found.item(t, i)),
        found.live,
        found.dicts,
    )


def _live(s: LoweringState, value: v.Abstract) -> v.Record | v.Lazy:
    """What a loop runs over; of a view of a dict in memory what it shows when each item is read."""
    return value if list_heap.is_view(value) else sequence(s, value)


def pair(*items: v.Abstract) -> v.Record:
    return v.Record("tuple", tuple(range(len(items))), items)


def zipped(s: LoweringState, values: Sequence[v.Abstract], strict: bool) -> v.Abstract:
    found = [_live(s, x) for x in values]
    counts = [length(s, x) for x in found]
    if strict:
        check_zipped(s, counts)
    if found and all(isinstance(x, v.Record) for x in found):
        columns = [x.items for x in found if isinstance(x, v.Record)]
        rows = tuple(pair(*row) for row in zip(*columns, strict=False))
        return v.Record("tuple", tuple(range(len(rows))), rows)
    if not found or any(isinstance(x, v.Record) and not x.items for x in found):
        return pair()
    count = counts[0]
    for other in counts[1:]:
        count = count if other == count else minimum(s, count, other)
    if all(isinstance(x, v.Static) for x in counts) and any(map(list_heap.is_view, found)):
        shown = tuple(row for x in found if isinstance(x, v.Lazy) for row in x.dicts)
        return v.Lazy(count, lambda t, i: pair(*(_item_at(t, x, i) for x in found)), None, shown)
    uniform = [x if isinstance(x, v.Lazy) else sequence(s, as_listing(s, x)) for x in found]
    lists = [x for x in uniform if isinstance(x, v.Lazy)]
    live = (lambda t: _shortest(t, lists)) if any(x.live is not None for x in lists) else None
    dicts = tuple(row for x in lists for row in x.dicts)
    return v.Lazy(count, lambda t, i: pair(*(x.item(t, i) for x in lists)), live, dicts)


def _item_at(s: LoweringState, found: v.Record | v.Lazy, index: v.Abstract) -> v.Abstract:
    """An item of a sequence of known length, at a known place."""
    assert isinstance(index, v.Static)
    return found.items[index.value] if isinstance(found, v.Record) else found.item(s, index)


def _shortest(s: LoweringState, lists: Sequence[v.Lazy]) -> v.Abstract:
    """The length of the shortest list, at this point of the program."""
    return reduce(lambda a, b: minimum(s, a, b), (x.length if x.live is None else x.live(s) for x in lists))


def check_zipped(s: LoweringState, counts: Sequence[v.Abstract]) -> None:
    """The arguments of `zip(strict=True)`, of these lengths, have one length."""
    for position, count in enumerate(counts[1:], 2):
        if count != counts[0]:
            _check_equal(s, counts[0], count, position)


def _check_equal(s: LoweringState, first: v.Abstract, count: v.Abstract, position: int) -> None:
    """The argument of `zip` at a position, counted from one, is as long as those in front of it."""
    others = "argument 1" if position == 2 else f"arguments 1-{position - 1}"
    for word, compare in (("shorter", operator.ge), ("longer", operator.le)):
        words = f"zip() argument {position} is {word} than {others}"
        if not (isinstance(first, v.Static) and isinstance(count, v.Static)):
            s.check(traced(s, compare, count, first).operand, "ValueError", words)
        elif not compare(count.value, first.value):
            s.check(s.scalar(False), "ValueError", words)
            s.dead = True
            return


def sliced(s: LoweringState, value: v.Abstract, bounds: Sequence[v.Abstract]) -> v.Abstract:
    """`value[start:stop:step]` of a list, tuple, string or lazy sequence."""
    if is_text(value) or (isinstance(value, v.Static) and isinstance(value.value, str)):
        return part(s, value, bounds)
    value = list_heap.copied(s, value)
    found = sequence(s, value)
    start, stop, step = (as_index(s, b) for b in bounds)
    if isinstance(found, v.Record) and all(isinstance(b, v.Static) for b in bounds):
        items = found.items[slice(*(b.value for b in bounds if isinstance(b, v.Static)))]
        kind = "tuple" if isinstance(value, v.Record) and value.kind != "list" else "list"
        kind = "tuple" if isinstance(value, v.Static) and isinstance(value.value, tuple) else kind
        return v.Record("tuple" if kind == "tuple" else "list", tuple(range(len(items))), items)
    whole = value if isinstance(found, v.Lazy) else as_listing(s, found)
    found = sequence(s, whole)
    assert isinstance(found, v.Lazy)
    if not isinstance(step, v.Static):
        s.refuse("the step of a slice must be a constant", "use a comprehension over range(...)")
    size = 1 if step.value is None else step.value
    count = found.length
    low = _bound(s, start, count, v.Static(0) if size > 0 else arithmetic(s, operator.sub, count, v.Static(1)), size)
    high = _bound(s, stop, count, count if size > 0 else v.Static(-1), size)
    indices = make_range(s, low, high, v.Static(size))
    assert isinstance(indices, v.Lazy)
    made = v.Lazy(
        indices.length,
        lambda t, i: found.item(t, indices.item(t, i)),
        is_tuple=is_tuple(value),
        is_list=_is_list(value),
    )
    s.context.identities.joined(made, whole)
    return made


def _is_list(value: v.Abstract) -> bool:
    """Is it a list, or a part of one? A range and a view are none."""
    match value:
        case v.Listing(is_tuple=is_tuple, array=array):
            return not is_tuple and not array
        case v.Lazy(is_list=found):
            return found
        case v.Static(value=held):
            return isinstance(held, list)
        case v.Record(kind=kind):
            return kind == "list"
        case _:
            return isinstance(value, v.Leaf) and isinstance(value.type, List)


def is_tuple(value: v.Abstract) -> bool:
    """Is it a tuple?"""
    match value:
        case v.Listing(is_tuple=found) | v.Lazy(is_tuple=found):
            return found
        case v.MemoryRow(heap=heap):
            return heap.cls is tuple
        case v.Static(value=held):
            return isinstance(held, tuple)
        case _:
            return isinstance(value, v.Record) and value.kind == "tuple"


def bounds_of(index: v.Abstract) -> list[v.Abstract] | None:
    """Start, stop and step of a slice; None for another index."""
    match index:
        case v.Static(value=slice(start=start, stop=stop, step=step)):
            return [v.Static(start), v.Static(stop), v.Static(step)]
        case v.Record(cls=cls, items=items) if cls is slice:
            return list(items)
        case _:
            return None


def clipped(s: LoweringState, value: v.Abstract, start: v.Abstract, stop: v.Abstract) -> tuple[v.Abstract, v.Abstract]:
    """Where `value[start:stop]` begins and ends; what ends before it begins is empty where it begins."""
    count = length(s, value)
    first = _bound(s, present(s, start), count, v.Static(0), 1)
    return first, maximum(s, first, _bound(s, present(s, stop), count, count, 1))


def _bound(s: LoweringState, bound: v.Abstract, count: v.Abstract, default: v.Abstract, step: int) -> v.Abstract:
    """A bound of a slice as Python clips it."""
    if bound == v.Static(None):
        return default
    if isinstance(bound, v.Static) and isinstance(count, v.Static):
        return v.Static(slice(bound.value, bound.value, step).indices(count.value)[0])
    return traced(s, _clip_up if step > 0 else _clip_down, bound, count)


def _clip_up(i: Any, n: Any) -> Any:
    return jnp.clip(jnp.where(i < 0, i + n, i), 0, n)


def _clip_down(i: Any, n: Any) -> Any:
    return jnp.clip(jnp.where(i < 0, i + n, i), -1, n - 1)
