"""Indexing: `value[index]` of sequences, dicts, arrays and objects."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.frontend.library import deques, tables
from autobatch.frontend.library.views import viewed
from autobatch.frontend.lowering.access import expand
from autobatch.frontend.lowering.attributes import At, attribute, fields_of, is_stack, written
from autobatch.frontend.lowering.bounds import check_index
from autobatch.frontend.lowering.folding import fold
from autobatch.frontend.lowering.numbers import combine, operand_of, present, traced
from autobatch.frontend.lowering.selection import apply_choice, of_each, select
from autobatch.frontend.lowering.sequences import item, sliced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import dict_heap, heaps, list_heap, record_heap
from autobatch.frontend.tracing.tracing import Untraceable, trace
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table, constant
from autobatch.ir.core import Operand
from autobatch.ir.ops import own
from autobatch.ir.types import INT, Array, Ref, Tag


def subscript(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`value[index]`"""
    value, index = heaps.opened(s, viewed(s, present(s, value))), present(s, index)
    if (made := of_each(s, (index,), lambda t, i: subscript(t, value, i))) is not None:
        return made
    value = record_heap.for_key(s, value, index)
    if list_heap.is_dict_row(value):
        return dict_heap.load(s, list_heap.there(s, value), index)
    if list_heap.is_row(value) and not _is_slice(index):
        return item(s, value, index)
    value = list_heap.copied(s, value)
    if is_stack(s, value):
        return s.context.rules.stacked(s, operator.getitem, (value, index))
    if isinstance(index, v.Static) and isinstance(index.value, slice) and not _is_array(value):
        held = index.value
        if not (isinstance(value, v.Static) and isinstance(value.value, (str, bytes))):
            return sliced(s, value, [v.Static(held.start), v.Static(held.stop), v.Static(held.step)])
    if isinstance(index, v.Record) and index.cls is slice and not _is_array(value):
        return sliced(s, value, index.items)
    match value:
        case v.Static(value=held, origin=origin) if isinstance(index, v.Static) and not isinstance(held, type):
            origin = origin.child(("item", index.value)) if origin is not None else None
            return fold(s, operator.getitem, held, index.value, origin=origin)
        case v.Choice():
            return apply_choice(s, value, lambda t, chosen: subscript(t, chosen, index))
        case v.Record(cls=cls) if cls is At:
            return v.Record("object", ("array", "index"), (value.items[0], indices(s, index)), At)
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return index_array(s, value, index)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return _of_object(s, value, index)
    found_ = expand(s, value, ordered=False)
    if isinstance(found_, v.Record) and found_.kind == "dict":
        return lookup(s, found_, index)
    if deques.is_deque(found_):
        return item(s, deques.items_of(found_), index)
    if isinstance(found_, v.Record) and found_.kind == "table":
        return tables.load(s, found_, index)
    if written(s, value, "__getitem__"):
        return s.call(attribute(s, value, "__getitem__"), [index])
    return item(s, found_, index)


def _is_slice(index: v.Abstract) -> bool:
    if isinstance(index, v.Static):
        return isinstance(index.value, slice)
    return isinstance(index, v.Record) and index.cls is slice


def _is_array(value: v.Abstract) -> bool:
    return (isinstance(value, v.Leaf) and isinstance(value.type, Array)) or (
        isinstance(value, v.Record) and value.cls is At
    )


def _of_object(s: LoweringState, value: v.Leaf, index: v.Abstract) -> v.Abstract:
    parts = fields_of(s, value)
    if parts is not None:
        return lookup(s, parts, index) if parts.kind == "dict" else item(s, parts, index)
    return s.call(attribute(s, value, "__getitem__"), [index])


def index_array(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`array[index]`: out of range it fails where the array is one of NumPy, and is clamped where it is one of JAX."""
    if isinstance(value, v.Leaf):
        index = indices(s, index)
        check_index(s, value, index)
    try:
        return trace(s, operator.getitem, [value, index], {})
    except Untraceable as error:
        if "Slice entries must be static" in str(error):
            s.refuse(
                "how long this slice of an array is is not known while compiling, as a bound is no constant",
                "take the whole array and mask what is outside: np.where(np.arange(n) >= i, row, 0.0)",
            )
        s.refuse(f"this index of an array cannot be compiled: {str(error).splitlines()[0]}", "check index and shape")


def indices(s: LoweringState, index: v.Abstract) -> v.Abstract:
    """An index in which lists of integers, `[[i, j]]`, are the arrays that NumPy makes of them."""
    match index:
        case v.Record(kind="list"):
            return trace(s, jnp.array, [index], {})
        case v.Static(value=list() as held):
            return v.Static(np.array(held))
        case v.Record(kind="tuple", items=items):
            return replace(index, items=tuple(indices(s, i) for i in items))
        case v.Static(value=tuple() as held) if any(isinstance(x, list) for x in held):
            return v.Static(tuple(np.array(x) if isinstance(x, list) else x for x in held))
        case _:
            return index


def lookup(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Abstract:
    """`table[key]` of a dict: a constant key, or a string, enum member or number of the examples."""
    key = constant(key)
    if isinstance(key, v.Static):
        found = table.get(key.value)
        if found is None:
            s.check(s.scalar(False), "KeyError", repr(key.value).replace("{", "{{").replace("}", "}}"))
            s.dead = True
            return v.Static(None)
        return found
    if not table.keys or not isinstance(key, v.Leaf):
        return tables.load(s, as_table(table), key)
    return select(s, position_of(s, table, key), table.items)


def position_of(s: LoweringState, table: v.Record, key: v.Abstract) -> Operand:
    """The position of a key of the program among the keys of a dict; KeyError when it is none of them."""
    operand = operand_of(s, key)
    if isinstance(operand.type, Tag):
        return s.apply(own("tag_index", keys=table.keys), (operand,), INT)
    if not all(isinstance(k, int) for k in table.keys):
        s.refuse("a dict is indexed by a number, but its keys are no integers", "use integer keys")
    hit: Operand = s.scalar(False)
    index: v.Abstract = v.Static(0)
    for k, name in enumerate(table.keys):
        same = traced(s, operator.eq, key, v.Static(name)).operand
        index = traced(s, _choose, v.Leaf(same), v.Static(k), index)
        hit = same if k == 0 else combine(s, "or", hit, same)
    s.check(hit, "KeyError", "{}", (operand,))
    return operand_of(s, index)


def _choose(hit: Any, k: Any, other: Any) -> Any:
    return other + hit * (k - other)
