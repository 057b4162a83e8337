"""`copy.copy` and `copy.deepcopy`: of lists, dicts and objects, one of its own with the same in it, or copies of it.

A deep copy follows what stands in another by its type; what has memory, and so may stand in several places, or lead
back to itself, is copied there (`graph_copies.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.graph_copies import (
    MARKS,
    Copies,
    leads_to_memory,
    led_to,
    refuse_of_examples,
    refuse_parts,
)
from autobatch.frontend.library.methods import METHODS
from autobatch.frontend.lowering.access import expand
from autobatch.frontend.lowering.attributes import attribute, class_list, classes_of, written
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.heap import ListsNeedMemory, NeedsMemory
from autobatch.frontend.memory.list_heap import copied, hold
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind
from autobatch.ir.types import Array, List, Ref

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def _each(items: Any) -> Any:
    """Lowered like a function of the user."""
    return [copy.deepcopy(x) for x in items]


def shallow(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`copy.copy(x)`"""
    (value,) = args
    if written(s, value, "__copy__"):
        return s.call(attribute(s, value, "__copy__"), [])
    value = _opened(s, value)
    if (fields := _fields(s, value, "copy")) is not None:
        return _made(s, fields, lambda _, x: x)
    return _of_container(s, value)


def deep(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`copy.deepcopy(x)`"""
    if len(args) != 1 or kwargs:
        s.refuse("deepcopy() takes what is copied alone here", "leave its memo out")
    value = stored(s, args[0])
    found = led_to(s, value)
    if not found:
        return _deep(s, value, (), None)
    for heap in found:
        refuse_parts(s, heap)
    copies = Copies(found)
    memo = _Memo(copies, *copies.begun(s))
    made = _deep(s, value, (), memo)
    copies.finished(s, memo.held, memo.first)
    return made


@dataclass
class _Memo:
    """A deep copy of what leads to memory: what there are copies of so far, and how many rows there were before it."""

    copies: Copies
    held: v.Abstract
    first: v.Abstract

    def renewed(self, s: LoweringState, value: v.Abstract) -> v.Abstract:
        self.held, made = self.copies.renewed(s, value, self.held)
        return made


def _deep(s: LoweringState, value: v.Abstract, path: tuple[Any, ...], memo: _Memo | None) -> v.Abstract:
    """`path`: the way there from what is copied; `memo`: where that leads to memory."""
    if written(s, value, "__deepcopy__"):
        s.refuse("deepcopy() of a class that has a __deepcopy__ cannot be compiled", "call a method of your own")
    if isinstance(value, v.MemoryRow) and memo is not None:
        return memo.renewed(s, value)
    value = _opened(s, value)
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        refuse_of_examples(s)

    def part(key: Any, x: v.Abstract) -> v.Abstract:
        made = _deep(s, x, (*path, key), memo)
        return s.context.rules.made_by(s, made, ("deepcopy", s.frame.source, s.span, *path, key))

    if (fields := _fields(s, value, "deepcopy")) is not None:
        _refuse_twice(s, fields)
        return _made(s, fields, part)
    if isinstance(value, v.Record):
        _refuse_twice(s, value)
    match value:
        case v.Record(kind="list", items=items):
            made = replace(value, items=tuple(part("item", x) for x in items))
        case v.Record(kind="tuple" | "namedtuple" | "dict", items=items):
            made = replace(value, items=tuple(part(k, x) for k, x in zip(value.keys, items, strict=True)))
        case v.Record(kind="table", items=items):
            made = replace(value, items=tuple(copied(s, _deep(s, x, path, memo)) for x in items))
        case v.Listing(is_tuple=False) if memo is not None and leads_to_memory(value):
            return hold(s, memo.renewed(s, value))
        case v.Listing(is_tuple=False):
            return s.call(v.Static(_each), [value])
        case _:
            return _of_container(s, value)
    hold(s, made)
    return made


def _refuse_twice(s: LoweringState, value: v.Record) -> None:
    """Refuse a container that holds one list, dict or object, which is a value, at two places; of memory there are
    copies."""
    held = [x for x in value.items if isinstance(x, v.Listing | v.Record)]
    twice = [x for k, x in enumerate(held) if any(x is y for y in held[:k])]
    if not twice:
        return
    words = "deepcopy() of what holds one object at two places cannot be compiled"
    error = UnsupportedError(words, s.span, "build a new one of its parts")
    classes = {x.cls for x in twice if isinstance(x, v.Record) and x.kind == "object" and x.cls is not None}
    if classes:
        raise NeedsMemory(classes, error)
    sites = s.context.sites.of(twice, s.context.memory.sites, True)
    raise ListsNeedMemory(sites, error) if sites else error


def _opened(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value that is there, with what a constant container holds."""
    if isinstance(value, v.Optional):
        s.refuse("what is copied here may be None", "test for None in front of it")
    if isinstance(value, v.MemoryRow):
        return value if not value.null else replace(heaps.there(s, value, "None is copied here"))
    return expand(s, value) if isinstance(value, v.Static) and container_kind(value.value) is not None else value


def _fields(s: LoweringState, value: v.Abstract, name: str) -> v.Record | None:
    """An object as the record of its fields; None for anything else."""
    match value:
        case v.Record(kind="object"):
            return value
        case v.MemoryRow() if not list_heap.is_row(value):
            cls = heaps.class_of(s, value)
            if cls is None:
                s.refuse(f"{name}() of an object of several classes", "test with isinstance() which it is")
            return heaps.fields(s, value, cls)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            classes = classes_of(s, value)
            found = class_list(s, operand.type)[min(classes)]
            if len(classes) != 1 or found.kind != "object" or found.cls is None:
                s.refuse(f"{name}() of this value cannot be compiled", "build a new one of its parts")
            store = s.context.schema.store(operand.type.store)
            names = tuple(f.name for f in store.fields if min(classes) in f.classes)
            return v.Record("object", names, tuple(attribute(s, value, n) for n in names), found.cls)
        case _:
            return None


def _made(s: LoweringState, fields: v.Record, part: Callable[[Any, v.Abstract], v.Abstract]) -> v.Abstract:
    """A new object with these fields, or copies of them."""
    if fields.kind != "object" or fields.cls is None:
        return fields
    pairs = zip(fields.keys, fields.items, strict=True)
    made = replace(fields, items=tuple(x if isinstance(x, v.Unset) else part(k, x) for k, x in pairs))
    s.context.built.add(fields.cls)
    hold(s, made)
    heap = heaps.heap_of(s, fields.cls)
    return heaps.allocate(s, heap, made) if heap is not None else made


def _of_container(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list, dict or set of its own; what nobody changes as it is."""
    match value:
        case v.Record(kind="list") | v.Listing(is_tuple=False):
            return METHODS[list.copy](s, value, [], {})
        case v.Record(kind="dict" | "table"):
            return METHODS[dict.copy](s, value, [], {})
        case v.MemoryRow():
            return METHODS[dict.copy if value.heap.is_dict else list.copy](s, value, [], {})
        case v.Leaf(operand=operand) if isinstance(operand.type, List):
            return METHODS[list.copy](s, value, [], {})
        case v.Static() | v.Record(kind="tuple" | "namedtuple") | v.Listing() | v.LocalFunction():
            return value
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return value
        case _:
            s.refuse("this value cannot be copied here", "build a new one of its parts")


COPIES: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    copy.copy: shallow,
    copy.deepcopy: deep,
    **MARKS,
}
