"""Lists put behind one another: `a + b`, `[*a, x]`, several `for` in one comprehension.

xs + [f(c) for c in t.kids]        %4: list<..> = flatten(pack_list(%xs, %3))

No element is copied: the host makes the joined list when something reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from autobatch.errors import TypeConflictError
from autobatch.frontend.lowering.joins import convert
from autobatch.frontend.lowering.sequences import is_tuple, sequence
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, LeafLayout, ListingLayout, RecordLayout, layout_of
from autobatch.frontend.types.unify import LayoutConflict, unify
from autobatch.ir.core import Operand
from autobatch.ir.ops import own
from autobatch.ir.types import List

EMPTY = v.Record("list", (), ())


def concatenate(s: LoweringState, *parts: v.Abstract) -> v.Abstract:
    """The elements of several lists (or tuples) in one list."""
    found = [_stored(s, p) for p in parts]
    if all(isinstance(x, v.Record) for x in found):
        items = tuple(x for p in found if isinstance(p, v.Record) for x in p.items)
        return v.Record("tuple" if is_tuple(parts[0]) else "list", tuple(range(len(items))), items)
    found = [x for x in found if not isinstance(x, v.Record) or x.items]
    if len(found) == 1 and isinstance(found[0], v.Listing):
        own_list = replace(found[0], is_tuple=is_tuple(parts[0]))
        s.context.identities.joined(own_list, found[0])
        return own_list
    if len(found) == 1 and not is_tuple(parts[0]):
        return found[0] if isinstance(found[0], v.Leaf) else replace(found[0])
    elements = [k for x in found for k in _elements(x)]
    layout = _common(s, elements)
    columns = zip(*(convert(s, x, ListingLayout(layout)) for x in found), strict=True)
    made = v.Listing(tuple(_joined(s, column) for column in columns), layout, is_tuple=is_tuple(parts[0]))
    s.context.identities.joined(made, *found)
    return made


def _stored(s: LoweringState, part: v.Abstract) -> v.Record | v.Listing | v.Leaf:
    """A list whose elements stand somewhere: ranges, slices and the like are made lists of."""
    if isinstance(part, v.Listing):
        return part
    found = sequence(s, part)
    if isinstance(found, v.Record) or isinstance(part, v.Leaf):
        return found if isinstance(found, v.Record) else part  # type: ignore[return-value]
    made = s.context.rules.materialise(s, found)
    assert isinstance(made, v.Record | v.Listing)
    return made


def _elements(part: v.Record | v.Listing | v.Leaf) -> list[Layout]:
    """The layouts of the elements of a list."""
    match part:
        case v.Listing(elem=elem):
            return [elem]
        case v.Record(items=items):
            return [layout_of(x) for x in items]
        case v.Leaf(operand=operand):
            assert isinstance(operand.type, List)
            return [LeafLayout(operand.type.elem)]


def _common(s: LoweringState, elements: Sequence[Layout]) -> Layout:
    try:
        return reduce(unify, elements)
    except LayoutConflict as conflict:
        message = f"the elements of a list have different types: {conflict}"
        raise TypeConflictError(message, s.span, "make all elements of one type, dtype and shape") from None


def _joined(s: LoweringState, lists: tuple[Operand, ...]) -> Operand:
    type = lists[0].type
    assert isinstance(type, List)
    outer = s.apply(own("pack_list"), lists, List(type))
    result = s.apply(own("flatten"), (outer,), type)
    s.block.memo["joined", result] = v.Record("tuple", tuple(range(len(lists))), tuple(map(v.Leaf, lists)))
    return result


def flatten(s: LoweringState, value: v.Record | v.Listing) -> v.Abstract:
    """The elements of the lists in a list."""
    if isinstance(value, v.Record):
        return concatenate(s, EMPTY, *value.items)
    if isinstance(value.elem, RecordLayout) and value.elem.kind == "list":
        if not value.elem.items:
            return EMPTY
        value = _rows_as_lists(s, value, value.elem)
    if isinstance(value.elem, ListingLayout) and not value.elem.array:
        return v.Listing(tuple(_flattened(s, x) for x in value.lists), value.elem.elem)
    if isinstance(value.elem, LeafLayout) and isinstance(value.elem.type, List):
        layout = ListingLayout(LeafLayout(value.elem.type.elem))
        return flatten(s, v.Listing(tuple(convert(s, value, ListingLayout(layout))), layout))
    s.refuse("these are no lists", "flatten lists of lists")


def _rows_as_lists(s: LoweringState, value: v.Listing, row: RecordLayout) -> v.Listing:
    """A list of lists of one fixed length, as a list of lists of any length."""
    layout = ListingLayout(_common(s, row.items))
    return v.Listing(tuple(convert(s, value, ListingLayout(layout))), layout)


def _flattened(s: LoweringState, lists: Operand) -> Operand:
    outer = lists.type
    assert isinstance(outer, List) and isinstance(outer.elem, List)
    return s.apply(own("flatten"), (lists,), List(outer.elem.elem))
