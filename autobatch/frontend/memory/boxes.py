"""Objects that exist when the program runs: those that no fixed number of values can stand for.

An object built in the function is flattened away: what crosses joins and calls are its fields. That has an end where a
recursion builds a tree, or where an object of one class meets one of another, or a node of the examples. Such objects
are *made*: `make[Node](x, left, right)` is an object of its own, and its fields are made objects in turn. Machine code
has no such: there their class has memory (`heaps.py`).

    def double(t): return Node(2 * t.x, double(t.left) if t.left else None)

    func @double(%t: ref<Node>) -> (made<>):
      ...
      %left: made<> = if %has then: call @double(..) else: none()
      %node: made<> = make[of='Node'](%twice, %left)
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.errors import TypeConflictError, UnsupportedError
from autobatch.frontend.lowering.joins import conditional, convert
from autobatch.frontend.lowering.results import prepared
from autobatch.frontend.lowering.selection import apply_choice
from autobatch.frontend.lowering.state import LoweringMemory, LoweringState, expand
from autobatch.frontend.memory.heap import NeedsMemory, refused_without_memory
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import (
    AliasLayout,
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    MadeClass,
    OptionalLayout,
    RecordLayout,
    SharedLayout,
    describe,
    layout_of,
    static_type,
)
from autobatch.frontend.types.unify import LayoutConflict, optional, unify
from autobatch.ir.core import MADE, BuiltObject, Operand, Ref
from autobatch.ir.ops import own


def boxed(s: LoweringState, value: v.Abstract) -> Operand:
    """A value as a made object."""
    value = expand(s, value)
    match value:
        case v.Static(value=None):
            return s.apply(own("none"), (), MADE)
        case v.Leaf(operand=operand) if isinstance(operand.type, BuiltObject):
            return operand
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return s.apply(own("adopt"), (operand,), MADE)
        case v.Record():
            return _make(s, value)
        case v.Optional(value=inner, missing=missing, unset=""):
            none = v.Static(None)
            made = conditional(s, missing, lambda t: v.Leaf(boxed(t, none)), lambda t: v.Leaf(boxed(t, inner)))
            assert isinstance(made, v.Leaf)
            return made.operand
        case v.Choice():
            made = apply_choice(s, value, lambda t, x: v.Leaf(boxed(t, x)))
            assert isinstance(made, v.Leaf)
            return made.operand
        case _:
            s.refuse(f"{describe(layout_of(value))} cannot stand beside an object", "return objects on every path")


def _make(s: LoweringState, record: v.Record) -> Operand:
    """A new object. All of its class have one layout; where that has grown, everything is lowered again."""
    known = s.block.recall(("made", id(record)))
    if isinstance(known, v.Leaf):
        return known.operand  # the very object that stands elsewhere
    original, memory = record, s.context.memory
    if not memory.rows:
        _refuse_without_memory(s, record)
    s.context.keep(original)
    record = replace(record, items=tuple(prepared(s, x, inside=True) for x in record.items))
    key = (record.kind, record.cls, record.keys)
    held = memory.made.get(key)
    if held is None:
        held = memory.made[key] = MadeClass(_name(record, memory))
    wanted = _as_fields(layout_of(record), memory, outermost=True)
    try:
        joined = wanted if held.layout is None else unify(held.layout, wanted)
    except LayoutConflict as conflict:
        raise TypeConflictError(
            f"two objects {held.name} that are made here differ in the type of a field: {conflict}",
            s.span,
            "give the field one type",
        ) from None
    if joined != held.layout:
        held.layout = joined
        s.context.changed = True
    made = s.apply(own("make", of=held.name), convert(s, record, joined), MADE)
    s.block.memo["made", id(original)] = v.Leaf(made)
    return made


def _refuse_without_memory(s: LoweringState, record: v.Record) -> None:
    """Refuse an object, or a dict, that may have memory, as machine code has no made objects."""
    kind = record.cls.__name__ if record.cls is not None else record.kind
    words = f"machine code has no memory for the {kind} that is made here"
    if record.cls is not None:
        raise refused_without_memory([record.cls], words, s.span, "use backend='xla'")
    sites = s.context.sites.of([record], s.context.memory.sites, True)
    if sites:
        raise NeedsMemory((), UnsupportedError(words, s.span, "use backend='xla'"), sites)


def _name(record: v.Record, memory: LoweringMemory) -> str:
    """A name for a class, unique in the module."""
    wanted = record.cls.__name__ if record.cls is not None else f"{record.kind}{len(record.keys)}"
    taken = {m.name for m in memory.made.values()}
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def _as_fields(layout: Layout, memory: LoweringMemory, outermost: bool = False) -> Layout:
    """The layout that something has as a field of a made object: objects in it are made too, constants are values."""
    match layout:
        case RecordLayout(kind, keys, items, cls, _):
            if not outermost and (kind == "object" or (kind, cls, keys) in memory.made):
                return LeafLayout(MADE)
            return replace(layout, items=tuple(_as_fields(x, memory) for x in items))
        case AliasLayout():
            return LeafLayout(MADE)
        case OptionalLayout(value=inner):
            return optional(_as_fields(inner, memory))
        case ListingLayout(elem=elem):
            return replace(layout, elem=_as_fields(elem, memory))
        case SharedLayout(operand=operand):
            return LeafLayout(operand.type)
        case HeldLayout(value=value):
            return LeafLayout(found) if (found := static_type(value.value)) is not None else layout
        case LeafLayout(type=type):
            return LeafLayout(type)
        case _:
            return layout
