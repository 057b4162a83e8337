"""Order by keys: `sorted`, `list.sort`, and the elements that `min` and `max` choose.

sorted(t.kids, key=lambda c: (c.rank, c.name))        %9: list<int> = sort_order(%ranks, %names)

The elements stay where they are; what is made is the list of their positions. Keys that are compared by what their
class defines, or element by element, are put into order by such comparisons, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autobatch.frontend.library import equality
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import fields_of
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import as_listing, stored
from autobatch.frontend.lowering.numbers import integer, is_number, operand_of, present
from autobatch.frontend.lowering.sequences import item, length, sequence
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.lowering.unions import taken_as
from autobatch.frontend.memory import list_heap
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import HeldLayout, Layout, LeafLayout, ListingLayout, RecordLayout, RowLayout
from autobatch.frontend.types.tags import is_ordered
from autobatch.ir.core import INT, Array, List, Ref, Tag
from autobatch.ir.ops import own


def ordered(s: LoweringState, value: v.Abstract, options: dict[str, v.Abstract]) -> v.Abstract:
    """`sorted(value, key=..., reverse=...)`"""
    key, reverse = options.get("key"), options.get("reverse", v.Static(False))
    key = None if key == v.Static(None) else key
    if not isinstance(reverse, v.Static):
        s.refuse("`reverse` must be a constant here", "sort by a key that is negated where the order is reversed")
    found = sequence(s, value)
    if isinstance(found, v.Record):
        take_back = s.mark()
        keys = [x if key is None else s.call(key, [x]) for x in found.items]
        if all(isinstance(k, v.Static) for k in keys):
            ranks = [k.value for k in keys if isinstance(k, v.Static)]
            order = sorted(range(len(ranks)), key=lambda k: ranks[k], reverse=bool(reverse.value))
            return v.Record("list", tuple(range(len(order))), tuple(found.items[k] for k in order))
        if len(keys) < 2:
            return v.Record("list", tuple(range(len(keys))), found.items)
        take_back()
        found = sequence(s, as_listing(s, found))
        assert isinstance(found, v.Lazy)
    ranked = keys_of(s, found, key)
    if ranked is None:
        return v.Record("list", (), ())
    whole, positions = found, order_of(s, ranked, reverse=bool(reverse.value))
    return v.Lazy(found.length, lambda t, i: whole.item(t, item(t, positions, i)))


def keys_of(s: LoweringState, found: v.Lazy, key: v.Abstract | None) -> v.Listing | None:
    """The keys of the elements of a sequence; None where nothing is known of its elements."""

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        return True, lambda u: _key(u, x if key is None else u.call(key, [x]))

    keys = collect(s, found, body)
    return None if isinstance(keys, v.Record) else keys


def order_of(s: LoweringState, keys: v.Listing, *, reverse: bool) -> v.Listing:
    """The positions of keys in ascending order; equal ones keep theirs."""
    if _has_comparison(s, keys.elem):
        found = list_heap.copied(s, s.call(v.Static(_falling if reverse else _rising), [keys]))
        assert isinstance(found, v.Listing | v.Record)
        return found if isinstance(found, v.Listing) else as_listing(s, found)
    _refuse_unordered(s, keys.elem)
    positions = s.apply(own("sort_order", reverse=reverse), keys.lists, List(INT))
    s.block.memo["length", positions] = length(s, keys)
    return v.Listing((positions,), LeafLayout(INT))


def _key(s: LoweringState, value: v.Abstract) -> v.Abstract:
    value = taken_as(s, present(s, value), unions.is_number, unions.is_word)
    if (found := equality.key(s, value)) is not None:
        value = found
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        value = fields_of(s, value) or value
    if isinstance(value, v.Record):
        return v.Record(value.kind, value.keys, tuple(_key(s, x) for x in value.items), value.cls)
    return v.Leaf(integer(s, operand_of(s, value))) if is_number(value) else stored(s, value)


def first_of(s: LoweringState, keys: v.Listing, *, greatest: bool) -> v.Abstract:
    """The position of the first of the least or the greatest keys, of which there is one."""
    if _has_comparison(s, keys.elem):
        return s.call(v.Static(_greatest if greatest else _least), [keys])
    return item(s, order_of(s, keys, reverse=greatest), v.Static(0))


def _has_comparison(s: LoweringState, layout: Layout) -> bool:
    """Are keys compared by what their class defines, or element by element, and not by numbers?"""
    match layout:
        case ListingLayout():
            return True
        case RecordLayout(kind="object", cls=cls):
            return cls is not None and _is_ordered(cls)
        case RecordLayout(kind="tuple" | "list" | "namedtuple", items=items):
            return any(_has_comparison(s, x) for x in items)
        case RowLayout(heap=heap):
            return heap.is_list or all(map(_is_ordered, heap.members))
        case _:
            return False


def _is_ordered(cls: type) -> bool:
    return any(getattr(cls, m) is not getattr(object, m) for m in ("__lt__", "__gt__"))


# ---- order by comparison: lowered like functions of the user


def _rising(keys: Any) -> Any:
    order = list(range(len(keys)))
    for k in range(1, len(keys)):
        place = k
        while place > 0 and keys[k] < keys[order[place - 1]]:
            order[place] = order[place - 1]
            place = place - 1
        order[place] = k
    return order


def _falling(keys: Any) -> Any:
    order = list(range(len(keys)))
    for k in range(1, len(keys)):
        place = k
        while place > 0 and keys[order[place - 1]] < keys[k]:
            order[place] = order[place - 1]
            place = place - 1
        order[place] = k
    return order


def _least(keys: Any) -> Any:
    best = 0
    for k in range(1, len(keys)):
        if keys[k] < keys[best]:
            best = k
    return best


def _greatest(keys: Any) -> Any:
    best = 0
    for k in range(1, len(keys)):
        if keys[k] > keys[best]:
            best = k
    return best


def _refuse_unordered(s: LoweringState, layout: Layout) -> None:
    match layout:
        case LeafLayout(type=Array() as type) if type.is_scalar and not type.dtype.startswith(("key", "complex")):
            return
        case LeafLayout(type=Tag() as type) if is_ordered(type):
            return
        case RecordLayout(kind="tuple" | "list" | "namedtuple", items=items):
            for part in items:
                _refuse_unordered(s, part)
        case HeldLayout():
            return
        case _:
            s.refuse("these values have no order", "give a key: a number, a string, or a tuple of those")
