"""Order by keys that the host knows: `sorted`, `list.sort`, and the elements that `min` and `max` choose.

sorted(t.kids, key=lambda c: (c.rank, c.name))        %9: list<int> = sort_order(%ranks, %names)

The elements stay where they are; what the host makes is the list of their positions.
"""

from __future__ import annotations

from collections.abc import Callable

from autobatch.frontend import equality
from autobatch.frontend import values as v
from autobatch.frontend.attributes import fields_of
from autobatch.frontend.comprehensions import collect
from autobatch.frontend.joins import as_listing, stored
from autobatch.frontend.layouts import HeldLayout, Layout, LeafLayout, RecordLayout
from autobatch.frontend.numbers import integer, is_number, operand_of, present
from autobatch.frontend.sequences import item, length, sequence
from autobatch.frontend.state import State
from autobatch.frontend.tags import is_ordered
from autobatch.ir.ops import own
from autobatch.ir.types import INT, Array, List, Ref, Tag


def ordered(s: State, value: v.Abstract, options: dict[str, v.Abstract]) -> v.Abstract:
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


def keys_of(s: State, found: v.Lazy, key: v.Abstract | None) -> v.Listing | None:
    """The keys of the elements of a sequence; None where nothing is known of its elements."""

    def body(t: State, x: v.Abstract) -> tuple[bool, Callable[[State], v.Abstract]]:
        return True, lambda u: _key(u, x if key is None else u.call(key, [x]))

    keys = collect(s, found, body)
    return None if isinstance(keys, v.Record) else keys


def order_of(s: State, keys: v.Listing, *, reverse: bool) -> v.Listing:
    """The positions of keys in ascending order; equal ones keep theirs."""
    _refuse_unordered(s, keys.elem)
    positions = s.apply(own("sort_order", reverse=reverse), keys.lists, List(INT))
    s.block.memo["length", positions] = length(s, keys)
    return v.Listing((positions,), LeafLayout(INT))


def _key(s: State, value: v.Abstract) -> v.Abstract:
    value = present(s, value)
    if (found := equality.key(s, value)) is not None:
        value = found
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        value = fields_of(s, value) or value
    if isinstance(value, v.Record):
        return v.Record(value.kind, value.keys, tuple(_key(s, x) for x in value.items), value.cls)
    return v.Leaf(integer(s, operand_of(s, value))) if is_number(value) else stored(s, value)


def _refuse_unordered(s: State, layout: Layout) -> None:
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
