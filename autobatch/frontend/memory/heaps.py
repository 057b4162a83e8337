"""Objects in memory (`heap.py`): made, read, changed, told apart.

    Node(y, node)        %b = dynamic_update_slice(%value, %y, %count);  %count + 1      the row is %count
    node.value           dynamic_slice(%value, %node)
    node.value = y       %c = dynamic_update_slice(%value, %y, %node)
    node is None         lt(%node, 0)
    a is b               eq(%a, %b)

The memory of a class is a variable with a name of its own, a tuple (count, columns...): joins, loops and calls hand it
on as they do any other. A function is given those that it reads, and returns those that it changes; a loop carries what
its turns change. Which these are shows when they are lowered, and then all is lowered again.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.joins import captured, conditional, convert, stored
from autobatch.frontend.lowering.numbers import combine, negate, operand_of, traced
from autobatch.frontend.lowering.selection import telling, with_index
from autobatch.frontend.lowering.state import (
    ChangesObjects,
    ClassTest,
    Context,
    LoweringMemory,
    LoweringState,
    MemoryChanged,
    UnknownResult,
    expand,
)
from autobatch.frontend.memory.heap import (
    DICTS,
    Form,
    Heap,
    NeedsMemory,
    add_heap,
    is_state,
    record_base,
    refused_field,
    refused_without_memory,
)
from autobatch.frontend.memory.rebinding import list_change
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.sources import is_user_function
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import is_namedtuple
from autobatch.frontend.types.unify import (
    LayoutConflict,
    deepest,
    holds_any,
    is_tuple,
    sort_of,
    type_conflict,
    unify,
)
from autobatch.frontend.types.values import (
    ChoiceLayout,
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    SharedLayout,
    holds_containers,
    layout_of,
    leaf_type,
    leaf_types,
    rebuild,
    static_type,
)
from autobatch.ir import buffers, core, jax_compat
from autobatch.ir.buffers import NO_ROOM, out_of_room
from autobatch.ir.core import INT, MADE, STR, Array, List, Literal, Operand, OwnField, Ref, Tag, Type, Value
from autobatch.ir.ops import own

# ---- columns
#
# What stands in a column of memory (`heap.py`): numbers, arrays, and numbers that stand for something.
#
# token.text = word     text[row] = word(%word)      a string or enum member by its number
# word = token.text     %word = word_of(text[row])
# token.text = a + b    text[row] = %string           where some are put together, the row of its code points in memory
# item.node = node      node[row] = row(%node)       an object or list of the examples by that of its row
# node = item.node      %node = row_of(node[row])


def column_type(type: Type) -> Array | None:
    """The type of one row of the column for values of a type; None where there is no such column."""
    match type:
        case Array():
            return None if type.dtype.startswith("key") else type
        case Tag() | Ref() | List(store=str()):
            return INT
        case _:
            return None


def as_stored(s: LoweringState, x: Operand) -> Operand:
    """What stands in a column for a value."""
    match x.type:
        case Tag():
            return s.apply(own("word"), (x,), INT)
        case Ref() | List(store=str()):
            return s.apply(own("row"), (x,), INT)
        case _:
            return x


def as_read(s: LoweringState, x: Operand, type: Type) -> Operand:
    """The value of a type that what stands in a column stands for."""
    match type:
        case Tag():
            return s.apply(own("word_of"), (x,), type)
        case Ref() | List(store=str()):
            return s.apply(own("row_of"), (x,), type)
        case _:
            return x


def _as_column(s: LoweringState, layout: Layout) -> Layout:
    """The layout of a value as that of a column, of which other rows hold other numbers."""
    match layout:
        case RecordLayout(items=items):
            return replace(layout, items=tuple(_as_column(s, x) for x in items))
        case OptionalLayout(value=inner):
            return replace(layout, value=_as_column(s, inner))
        case SharedLayout(operand=operand) if isinstance(operand.type, Array) and operand.type.is_scalar:
            return LeafLayout(operand.type)
        case HeldLayout(value=held) if isinstance(found := static_type(held.value), Array) and found.is_scalar:
            return LeafLayout(found)
        case LeafLayout(type=type):
            return RowLayout(_strings(s)) if type == STR and s.context.memory.letters else LeafLayout(type)
        case RowLayout():
            return replace(layout, own=False, bound=None)
        case ListingLayout(elem=elem, is_tuple=True):
            return RowLayout(_tuples(s, elem))
        case _:
            return layout


def _strings(s: LoweringState) -> Heap:
    """The memory of strings."""
    heaps = s.context.memory.heaps
    made = heaps[str] if str in heaps else add_heap(heaps, str, str)
    grow(s, made, ("item",), [LeafLayout(INT)])
    return made


def _tuples(s: LoweringState, elem: Layout) -> Heap:
    """The memory of tuples of several lengths that fields hold, whose elements are of one sort."""
    elem, sort, type = _as_column(s, elem), sort_of_element(elem), leaf_type(elem)
    key = "tuples", ("number" if sort in _NUMBERS else sort, type.shape if isinstance(type, Array) else ())
    heaps = s.context.memory.heaps
    made = heaps[key] if key in heaps else add_heap(heaps, key, tuple)
    grow(s, made.whole, ("item",), [elem])
    return made.whole


def in_memory(s: LoweringState, value: v.Abstract, layout: Layout) -> v.Abstract:
    """A value to be stored as one of a layout that `grow` has found."""
    match layout, value:
        case RowLayout(heap=heap), v.Leaf(type=List() | Tag()) | v.Static(value=str()):
            return s.context.rules.adopted(s, heap, value)
        case RowLayout(heap=heap), v.Static() | v.Record() | v.Listing() if is_tuple(layout_of(value)):
            return s.context.rules.adopted(s, heap, value)
        case RowLayout(heap=heap), v.Optional(value=v.Leaf(type=Tag()) as text, missing=missing):
            return conditional(s, missing, lambda t: v.Static(None), lambda t: t.context.rules.adopted(t, heap, text))
        case RecordLayout(), v.Leaf(type=Ref()) if (parts := s.context.rules.parts(s, value)) is not None:
            return in_memory(s, parts, layout)
        case OptionalLayout(value=inner), v.Optional(value=held):
            return replace(value, value=in_memory(s, held, inner))
        case RecordLayout(items=layouts), v.Record(items=items) if len(layouts) == len(items):
            return replace(value, items=tuple(in_memory(s, x, k) for x, k in zip(items, layouts, strict=True)))
        case _:
            return value


def out_of_memory(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value that was read of columns, with strings in the place of their rows."""
    match value:
        case v.MemoryRow(heap=heap) if heap.is_strings:
            read = s.context.rules.string_of
            if not value.null:
                return read(s, value)
            return conditional(s, missing(s, value), lambda t: v.Static(None), lambda t: read(t, value))
        case v.Optional(value=inner):
            return replace(value, value=out_of_memory(s, inner))
        case v.Record(items=items):
            return replace(value, items=tuple(out_of_memory(s, x) for x in items))
        case _:
            return value


# ---- the memory of a class as a variable


def heaps_of(s: LoweringState) -> list[Heap]:
    """All memory that there is; none of what is yet to be found: nothing is in it, and where something is made, all is
    lowered again."""
    found = dict.fromkeys(h.whole for h in s.context.memory.heaps.values())
    return [heap for heap in found if heap.layout is not None]


def enter(s: LoweringState) -> None:
    """Begin with memory without objects, for every class that has some and was handed none: this is the entry."""
    for heap in heaps_of(s):
        if heap.variable not in s.env:
            _blank(s, heap)


def _blank(s: LoweringState, heap: Heap) -> None:
    """Memory without objects."""
    columns = [traced(s, blank(t, count)) for t, count in _sizes(s, heap)]
    bind_memory(s, heap, [v.Leaf(s.scalar(0)) for _ in range(1 + heap.in_segments)] + columns)


def _sizes(s: LoweringState, heap: Heap) -> list[tuple[Array, int]]:
    """The types of the columns, those of one row, and how many rows they have."""
    room, found = s.context.memory.capacity, _columns(s, heap)
    if not heap.in_segments:
        return [(t, room) for t in found]
    of_lists = [(INT, room), (INT, room * buffers.segments(room))]
    return [*of_lists, *((t, buffers.elements(room)) for t in found)]


def _columns(s: LoweringState, heap: Heap) -> list[Array]:
    """The types of the columns, those of one row."""
    assert heap.layout is not None
    found: list[Array] = []
    for key, field in zip(heap.layout.keys, heap.layout.items, strict=True):
        for type in leaf_types(field):
            column = column_type(type)
            if column is None:
                if holds_any(field, [deque]):
                    s.context.memory.let_deques_be_objects()
                s.refuse(*refused_field(heap, _name(key), field))
            found.append(column)
    return found


def bind_memory(s: LoweringState, heap: Heap, parts: Iterable[v.Abstract]) -> None:
    parts = tuple(parts)
    s.bind(heap.variable, v.Record("tuple", tuple(range(len(parts))), parts))


def memory_of(s: LoweringState, heap: Heap, write: bool = False) -> tuple[v.Abstract, ...]:
    """The parts of the memory: the count, and the columns. Notes that every function on the way here needs it."""
    memory, functions = s.context.memory, _handed(s)
    for noted in (memory.read, memory.written) if write else (memory.read,):
        s.context.note(noted, {(node, heap.variable) for node in functions})
    if memory.caches.run_with_effect(functions):
        raise MemoryChanged
    if s.context.again and not isinstance(_current(s, heap), v.Record):
        _blank(s, heap)
    held = _current(s, heap)
    assert isinstance(held, v.Record)
    return held.items


def _handed(s: LoweringState) -> list[ast.AST]:
    """The functions that are on the way here, and are handed memory: the entry is where it does not begin without."""
    return [source.node for source, _ in s.context.active[0 if s.context.adopts else 1 :]]


def first_of(s: LoweringState, heap: Heap) -> v.Abstract:
    """The number of the first object of the example in its columns."""
    s.context.note(s.context.memory.read, {(node, heap.first) for node in _handed(s)})
    return s.env[heap.first].value if heap.first in s.env else v.Static(0)


def _current(s: LoweringState, heap: Heap) -> v.Abstract | None:
    return s.env[heap.variable].value if heap.variable in s.env else None


def given(s: LoweringState, function: ast.AST) -> dict[str, v.Abstract]:
    """The memory that a function is handed, by the name of its variable. The entry begins without any."""
    memory = s.context.memory
    if not s.context.active and any(node is function for node, _ in memory.read):
        enter(s)
    found = [h for h in heaps_of(s) if (function, h.variable) in memory.read]
    for heap in found:
        memory_of(s, heap, write=(function, heap.variable) in memory.written)
    firsts = [h.first for h in heaps_of(s) if (function, h.first) in memory.read]
    return {n: s.env[n].value for n in (*(h.variable for h in found), *firsts)}


def with_written(s: LoweringState, function: ast.AST, result: v.Abstract) -> v.Abstract:
    """What a function returns: its result, and behind it the memory that it changes."""
    names = _written(s, function)
    items = (result, *(s.env[n].value for n in names))
    return v.Record("tuple", tuple(range(len(items))), items) if names else result


def take_written(s: LoweringState, function: ast.AST, returned: v.Abstract) -> v.Abstract:
    """The result of a call, whose changes of memory hold from here on."""
    names = _written(s, function)
    if not names:
        return returned
    assert isinstance(returned, v.Record)
    result, *changed = returned.items
    for name, value in zip(names, changed, strict=True):
        s.bind(name, value)
    return result


def _written(s: LoweringState, function: ast.AST) -> list[str]:
    memory = s.context.memory
    return [h.variable for h in heaps_of(s) if (function, h.variable) in memory.written]


def left_by_entry(s: LoweringState, heap: Heap) -> v.Record:
    """The memory of a class as the entry leaves it. Notes that the entry returns it."""
    memory = s.context.memory
    assert s.context.entry is not None
    changed = {(s.context.entry.node, heap.variable)}
    if not changed <= memory.written:
        memory.read |= changed
        memory.written |= changed
        raise MemoryChanged
    held = s.env[heap.variable].value
    assert isinstance(held, v.Record)
    return held


def variables(s: LoweringState) -> list[str]:
    """The variables that hold memory, and those that inner functions change."""
    return [n for n in s.env if is_state(n)]


def carried(s: LoweringState, loop: ast.AST) -> list[str]:
    """Those that a loop carries."""
    return [n for n in variables(s) if (loop, n) in s.context.memory.written]


def note_carried(s: LoweringState, ends: Iterable[LoweringState], loop: ast.AST) -> None:
    """Note what the turns of a loop have changed. Where the loop does not carry it, all is lowered again."""
    s.context.note(s.context.memory.written, {(loop, n) for t in ends if not t.dead for n in _changed(s, t)})


def is_changed(s: LoweringState, t: LoweringState) -> bool:
    """Has the code between two points changed memory?"""
    return bool(_changed(s, t))


def _changed(s: LoweringState, t: LoweringState) -> list[str]:
    before, after = s.env, t.env
    return [n for n in variables(t) if n not in before or after[n].value is not before[n].value]


# ---- objects


def asked_for(context: Context, error: NeedsMemory) -> tuple[list[type], dict[object, type]]:
    """The classes and expressions that an error names whose objects have no memory yet."""
    new = [cls for cls in error.classes if cls not in context.memory.heaps]
    asked = error.sites | context.sites.of_forms(error.forms, context.memory.sites)
    return new, {site: cls for site, cls in asked.items() if site not in context.memory.sites}


def give_memory(context: Context, error: NeedsMemory) -> None:
    """Let objects of the classes that an error names have memory; raises it where they have."""
    memory = context.memory
    new, sites = asked_for(context, error)
    if not new and not sites:
        raise error.error
    for heap in memory.heaps.values():
        if heap.layout is not None and holds_any(heap.layout, new):
            heap.forget()
    for cls in new:
        add_heap(memory.heaps, cls, cls).may_adopt = _like(context, cls)
    for site, cls in sites.items():
        memory.sites[site] = add_heap(memory.heaps, site, cls)
        memory.sites[site].may_adopt = _like(context, cls)
        for heap in memory.heaps.values():
            heap.copies -= {site[1]} if isinstance(site, tuple) and site[0] == "given" else set()
    memory.refused = memory.refused or error
    memory.unread.clear()
    memory.forget_results()


def _like(context: Context, cls: type) -> frozenset[str]:
    """The stores of the examples whose objects can be rows of the memory of a class: there they are objects of classes
    too, or all tuples or dicts of constant keys as these are."""
    if context.memory.rows or (base := record_base(cls) or object) is list or cls in (*DICTS, list, tuple, str):
        return frozenset()
    return _stores_of(context, ("object", "namedtuple") if base is object else (base.__name__,))


def _stores_of(context: Context, kinds: Collection[str]) -> frozenset[str]:
    return frozenset(s.name for s in context.schema.stores if all(c.kind in kinds for c in s.classes))


def beside_given(s: LoweringState, layout: Layout) -> list[Form]:
    """The kinds of tuples and dicts made by the function that a value may be, where it may be one of the examples as
    well, and both can have memory."""
    parts = layout.alternatives if isinstance(layout, ChoiceLayout) else ()
    given = {x.type.store for x in parts if isinstance(x, LeafLayout) and isinstance(x.type, Ref)}
    made = [x for x in parts if isinstance(x, RecordLayout) and x.kind in ("tuple", "dict")]
    if s.context.memory.rows:
        return []
    return [(x.kind, x.cls, x.keys) for x in made if given & _stores_of(s.context, (x.kind,))]


NO_ORIGIN = v.Static(-1)
_NONE = layout_of(v.Static(None))


def note_adopting(memory: LoweringMemory) -> None:
    """Note which memories adopt objects of the examples; where these are more, whatever held such holds rows now."""
    for store in frozenset().union(*(h.adopts for h in memory.heaps.values())):
        first, *others = dict.fromkeys(h.whole for h in memory.heaps.values() if store in h.adopts)
        for heap in others:
            first.join(heap)
    adopting = sum(len(h.adopts) for h in memory.heaps.values())
    if adopting > memory.adopting:
        memory.adopting = adopting
        memory.forget_results()
        for heap in memory.heaps.values():
            heap.forget()


def heap_of(s: LoweringState, cls: type | None) -> Heap | None:
    """The memory that objects of a class have, where they have some."""
    found = s.context.memory.heaps.get(cls) if cls is not None else None
    return found.whole if found is not None else None


def adopting_heap(s: LoweringState, type: Ref) -> Heap | None:
    """The memory in which objects of a store have rows from where they are read, where they have."""
    return next((h.whole for h in s.context.memory.heaps.values() if type.store in h.adopts), None)


def given_heap(s: LoweringState, type: Ref) -> Heap | None:
    """The memory that has all objects of a store from the start, where they have some."""
    found = s.context.memory.heaps.get(("given", type.store))
    return found.whole if found is not None else None


def allocate(s: LoweringState, heap: Heap, record: v.Record, origin: v.Abstract = NO_ORIGIN) -> v.MemoryRow:
    """A new object. `origin`: the number of the object of the examples that it stands for."""
    assert record.cls is not None
    cls = record.cls
    member = heap.members.index(cls)
    own = record.keys
    if len(heap.members) > 1:
        record = replace(record, keys=(*record.keys, core.CLASS), items=(*record.items, v.Static(member)))
    if heap.adopts:
        record = replace(record, keys=(*record.keys, core.ORIGIN), items=(*record.items, origin))
    values = {k: as_field(s, x) for k, x in zip(record.keys, record.items, strict=True)}
    values |= {k: v.Unset(k) for k in heap.forms.get(cls, ()) if k not in values}
    grow(s, heap, tuple(values), [layout_of(x) for x in values.values()], cls)
    _note_form(s, heap, cls, own)
    layout = heap.layout
    assert layout is not None
    held = dict(zip(layout.keys, layout.items, strict=True))
    values = {(c := heap.column(cls, k)): in_memory(s, x, held[c]) for k, x in values.items()}  # which may make others
    count, *columns = memory_of(s, heap, write=True)
    check_room(s, heap, count)
    at, after = 0, list(columns)
    for key, type in held.items():
        width = len(leaf_types(type))
        if key in values:  # else it is a field of other classes
            pairs = zip(columns[at : at + width], convert(s, values[key], type), strict=True)
            after[at : at + width] = [_written_to(s, c, x, operand_of(s, count)) for c, x in pairs]
        at += width
    bind_memory(s, heap, [traced(s, operator.add, count, v.Static(1)), *after])
    return v.MemoryRow(operand_of(s, count), heap, classes=frozenset({member}))


def check_room(s: LoweringState, heap: Heap, count: v.Abstract) -> None:
    """Check that there is room for one more, behind so many."""
    capacity = s.context.memory.capacity
    room = traced(s, operator.lt, count, v.Static(capacity))
    s.check(room.operand, NO_ROOM, out_of_room(capacity, heap.name))


def _note_form(s: LoweringState, heap: Heap, cls: type, keys: Iterable[str]) -> None:
    """Note the fields of a class. Where they are more than were known, all is lowered again."""
    in_forms, known = cls in heap.forms, heap.forms.get(cls, ())
    heap.forms[cls] = (*known, *(k for k in keys if k not in known))
    if heap.forms[cls] != known or not in_forms:
        s.context.again = True


def as_field(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value as it can be in a column, which holds it from here on: a container of constants is taken apart."""
    value = captured(s, stored(s, value))
    s.context.identities.stored(value)
    s.context.sites.hold(value)
    return _taken_apart(s, value)


def _taken_apart(s: LoweringState, value: v.Abstract) -> v.Abstract:
    value = expand(s, value)
    if isinstance(value, v.Record):
        return replace(value, items=tuple(_taken_apart(s, x) for x in value.items))
    if isinstance(value, v.LocalFunction):
        cells.check_kept(s, value)
    return value


def grow(s: LoweringState, heap: Heap, keys: tuple[Any, ...], items: list[Layout], cls: type | None = None) -> None:
    """Note what fields, of a class, hold. Where that is more than was known, all is lowered again."""
    before = heap.layout
    known = dict(zip(before.keys, before.items, strict=True)) if before is not None else {}
    wanted: dict[str | OwnField, Layout] = {}
    for key, x in zip(keys, items, strict=True):
        layout = _as_column(s, x)
        wanted[key if cls is None else _column_for(heap, key, cls, known, layout)] = layout
    joined = dict(known)
    for key, layout in wanted.items():
        try:
            joined[key] = _as_column(s, unify(*_in_one_memory(known[key], layout))) if key in known else layout
        except LayoutConflict as conflict:
            what, cure = _words(heap, key)
            words = f"{what} different types: {conflict}"
            for name in sorted(_copies_in(known[key]) | _copies_in(layout)):
                if (error := list_change(s, name, UnsupportedError(words, s.span, cure))) is not None:
                    raise error from None
            differing = type_conflict(conflict, words, s.span, cure)
            if not isinstance(differing, NeedsMemory) and any(map(holds_containers, (known[key], layout))):
                sites = s.context.sites.needed(s.context.memory.sites, dicts=True)
                differing = NeedsMemory((), differing, sites) if sites else differing
            raise differing from None
        if not s.context.memory.rows and leaf_type(joined[key]) == MADE:
            classes = _classes_of(known.get(key), layout)
            words = f"a field of {heap.name} holds objects of the examples, and others that are made"
            raise refused_without_memory(classes, words, s.span, "make new ones of the fields of the first")
    layout = RecordLayout("object", tuple(joined), tuple(joined.values()), heap.cls)
    if layout != before:
        if before is not None:
            _check_depth(s, heap, before, layout)
        heap.layout = layout
        try:
            _columns(s, heap)
        except UnsupportedError as error:  # lists and dicts that fields hold may have memory of their own
            heap.layout = before
            classes = [cls for cls in s.context.built if any(holds_any(x, [cls]) for x in wanted.values())]
            sites = s.context.sites.needed(s.context.memory.sites, dicts=True)
            raise (NeedsMemory(classes, error, sites) if classes or sites else error) from None
        s.context.again = True
        s.context.memory.unread.clear()
        _blank(s, heap)


def _column_for(
    heap: Heap, name: str, cls: type, columns: Mapping[str | OwnField, Layout], layout: Layout
) -> str | OwnField:
    """The column of a field of a class, among those that are known. It is another one where objects of other classes
    hold something of another sort under that name."""
    known = columns.get(name)
    others = (c for c, names in heap.forms.items() if c is not cls and name in names and (c, name) not in heap.own)
    if (cls, name) not in heap.own and known is not None and any(others):
        none_apart = heap.tagged and (known == _NONE) != (layout == _NONE)
        if none_apart or differ(known, layout):
            own = (x for x in columns if isinstance(x, OwnField) and x.name == name and not differ(columns[x], layout))
            heap.own[cls, name] = next(own, OwnField(name, heap.members.index(cls)))
    return heap.column(cls, name)


def sort_of_element(layout: Layout) -> object:
    """Where two values differ in this, one column cannot hold both as they are; None of None."""
    if isinstance(layout, OptionalLayout):
        return sort_of_element(layout.value)
    found = leaf_type(layout)
    if isinstance(layout, HeldLayout):
        held = layout.value.value
        found = static_type(held)
        if held is None:
            return None
    if isinstance(found, Array):
        return np.dtype(jax_compat.dtype_of(found.dtype)).kind if found.is_scalar else "array"
    return sort_of(layout)


def differ(a: Layout, b: Layout) -> bool:
    """Would a column of both hold a choice between them?"""
    sorts = {"number" if x in _NUMBERS else x for x in map(sort_of_element, (a, b))}
    return None not in sorts and len(sorts) == 2


_NUMBERS = ("b", "i", "u", "f", "c", "array")
"""The sorts of numbers, which a column holds as that of all of them."""


def _copies_in(layout: Layout) -> frozenset[str]:
    """Of what lists of the examples values of a layout are copies."""
    inner = layout.value if isinstance(layout, OptionalLayout) else layout
    return inner.heap.whole.copies if isinstance(inner, RowLayout) else frozenset()


def _classes_of(*layouts: Layout | None) -> list[type]:
    """The classes of objects that are values of the program."""
    inner = [k.value if isinstance(k, OptionalLayout) else k for k in layouts]
    return [k.cls for k in inner if isinstance(k, RecordLayout) and k.cls is not None]


DEEPEST = 4
"""So deep may lists and tuples lie in one another in a field, which hold what it held before."""


def _check_depth(s: LoweringState, heap: Heap, before: RecordLayout, now: RecordLayout) -> None:
    """What a field holds may not nest deeper in each round: objects that hold their own class have memory."""
    classes, depth = deepest(before, now)
    if not classes and depth <= DEEPEST:
        return
    error = UnsupportedError(
        f"a field of {heap.name} holds what it held before, one deeper each time",
        s.span,
        "make what holds it an object of a class, with a field for the rest",
    )
    raise NeedsMemory(classes, error) if classes else s.context.sites.refused(s.context.memory.sites, error)


def _in_one_memory(a: Layout, b: Layout) -> tuple[Layout, Layout]:
    """Two layouts of what is stored in one place: lists of the examples as they are stored beside lists in memory,
    their tuples as others are, and constant strings."""
    if isinstance(b, RowLayout) and not isinstance(a, RowLayout):
        b, a = _in_one_memory(b, a)
        return a, b
    match a, b:
        case RowLayout(heap=heap), LeafLayout(type=List(store=str())) if heap.whole.is_list:
            return a, a
        case RowLayout(heap=heap), _ if heap.whole.python_class is tuple and is_tuple(b):
            return a, a
        case RowLayout(heap=heap), HeldLayout(value=held) if heap.is_strings and isinstance(held.value, str):
            return a, a
        case RecordLayout(kind="tuple" | "namedtuple"), LeafLayout(type=Ref()):
            return a, a
        case LeafLayout(type=Ref()), RecordLayout(kind="tuple" | "namedtuple"):
            return b, b
        case OptionalLayout(value=x), OptionalLayout(value=y):
            x, y = _in_one_memory(x, y)
            return replace(a, value=x), replace(b, value=y)
        case OptionalLayout(value=x), _:
            x, b = _in_one_memory(x, b)
            return replace(a, value=x), b
        case _, OptionalLayout(value=y):
            a, y = _in_one_memory(a, y)
            return a, replace(b, value=y)
        case RecordLayout(items=x), RecordLayout(items=y) if a.keys == b.keys:
            pairs = [_in_one_memory(p, q) for p, q in zip(x, y, strict=True)]
            return replace(a, items=tuple(p for p, _ in pairs)), replace(b, items=tuple(q for _, q in pairs))
        case _:
            return a, b


def _name(key: Any) -> Any:
    """The name of the field that a column is of."""
    return key.name if isinstance(key, OwnField) else key


def _words(heap: Heap, key: str | OwnField) -> tuple[str, str]:
    """What has different types, and what to do."""
    key = _name(key)
    if heap.is_record:
        words = f"the values of the key {key!r} of dicts" if heap.is_dict else f"the elements at {key} of lists"
        return f"{words} in one place have", "give them one type"
    if heap.is_list:
        because = f"{heap.no_record}: " if heap.no_record else ""
        return f"{because}the elements of a {heap.kind} have", "give all elements one type"
    if heap.is_dict:
        because = f"{heap.no_record}: " if heap.no_record else ""
        return f"{because}the keys or the values of dicts in one place have", "give all keys one type, and all values"
    return f"the field {key!r} of {heap.name} has", "give the field one type"


def classes_of(s: LoweringState, row: v.MemoryRow) -> list[type]:
    """The same as classes."""
    return [row.heap.members[k] for k in sorted(s.positions(row))]


def class_of(s: LoweringState, row: v.MemoryRow) -> type | None:
    """The class of an object, where it is known."""
    found = classes_of(s, row)
    return found[0] if len(found) == 1 else None


def is_class(s: LoweringState, row: v.MemoryRow, classes: frozenset[int]) -> Operand:
    """Is the object of one of these classes? Static where it is known. None is of no class."""
    possible, there = s.positions(row), negate(s, missing(s, row))
    if not possible & classes:
        return s.scalar(False)
    if possible <= classes:
        return there
    wanted = possible & classes
    key = ("is_class", row.operand, wanted)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        return known.operand
    tag = field(s, row, core.CLASS)
    assert tag is not None
    tests = [traced(s, operator.eq, tag, v.Static(k)).operand for k in sorted(wanted)]
    result = reduce(lambda a, b: combine(s, "or", a, b), tests)
    if s.block.truth(there) is not True:
        result = combine(s, "and", there, result)
    if isinstance(row.operand, Value) and isinstance(result, Value):
        s.context.meanings[result] = ("is_class", ClassTest(row.operand, wanted, possible - wanted))
    s.block.memo[key] = v.Leaf(result)
    return result


def missing(s: LoweringState, row: v.MemoryRow) -> Operand:
    """Is the object None?"""
    if not row.null or not s.block.fact(row.operand).null:
        return s.scalar(False)
    if isinstance(row.operand, Literal):
        return s.scalar(row.operand.value == -1)
    known = s.block.recall(("is_none", row.operand))
    if isinstance(known, v.Leaf):
        return known.operand
    found = traced(s, operator.lt, v.Leaf(row.operand), v.Static(0))
    assert isinstance(found.operand, Value)
    s.context.meanings[found.operand] = ("is_none", row.operand)
    s.block.memo["is_none", row.operand] = found
    return found.operand


def there(s: LoweringState, row: v.MemoryRow, message: str) -> v.MemoryRow:
    """The object, which is not None; a check fails where it is."""
    if not row.null:
        return row
    s.check(negate(s, missing(s, row)), "AttributeError", message)
    return replace(row, null=False)


def same(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`a is b`, where one of them is an object in memory."""
    for x in (a, b):
        if isinstance(x, v.MemoryRow) and x.heap.whole.is_list:
            s.context.rules.tell_apart(s, x.heap)
    if not isinstance(a, v.MemoryRow) or not isinstance(b, v.MemoryRow) or a.heap is not b.heap:
        return v.Static(False)
    if a.heap.whole.adopts and (first := field(s, a, core.ORIGIN)) and (second := field(s, b, core.ORIGIN)):
        return traced(s, _one_object, v.Leaf(a.operand), v.Leaf(b.operand), first, second)
    return traced(s, operator.eq, v.Leaf(a.operand), v.Leaf(b.operand))


def _one_object(a: Any, b: Any, first: Any, second: Any) -> Any:
    """Are two rows one object? Of one of the examples there may be several."""
    both = (a >= 0) & (b >= 0)
    return (a == b) | (both & (first >= 0) & (first == second))


def field(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract | None:
    """A field of an object that is not None; None where there is no such field."""
    if row.heap.layout is None:
        wait(s, row.heap)
    (column, classes), *others = _by_column(s, row, name)
    if others:
        this, rest = replace(row, classes=classes), replace(row, classes=frozenset().union(*(k for _, k in others)))
        found = conditional(
            s, is_class(s, row, classes), lambda t: present_field(t, this, name), lambda t: present_field(t, rest, name)
        )
        layouts = {k: row.heap.field_layouts(row.heap.members[k]).get(name) for k in s.positions(row)}
        return with_index(s, found, row, layouts, name)
    at = 1
    _, *columns = memory_of(s, row.heap)
    where, value = _known_fields(s, row.heap.whole).get(column, (None, None))
    if where == row.operand:
        return value
    for key, layout in zip(row.heap.layout.keys, row.heap.layout.items, strict=True):
        types = leaf_types(layout)
        if key == column:
            if layout == _NONE and s.context.memory.sets_attribute(name):
                s.guess()
            read = columns[at - 1 : at - 1 + len(types)]
            found = rebuild(layout, iter([_read(s, c, row, t) for c, t in zip(read, types, strict=True)]))
            found = out_of_memory(s, found)
            s.context.identities.stored(found)
            return _with_tag(s, found, row, name) if row.heap.tags else found
        at += len(types)
    return None


def wait(s: LoweringState, heap: Heap) -> NoReturn:
    """What a memory holds is found anew, and was not yet in this round: this path ends here."""
    if heap not in s.context.waited:
        s.context.waited.add(heap)
        s.context.memory.unread[heap] += 1
    if s.context.memory.unread[heap] > MOST_WAITS:
        s.refuse(f"a {heap.kind} is read here before one is made on any path", "make one first, on every path")
    s.context.again = True
    raise UnknownResult


MOST_WAITS = 8
"""In so many rounds, in which nothing else is found, is a memory read before it is known what is in it."""


def _with_tag(s: LoweringState, found: v.Abstract, row: v.MemoryRow, name: str) -> v.Abstract:
    """A field, of which the class of the record may say what it may be."""
    tags = {k: row.heap.tags.get(row.heap.members[k]) for k in s.positions(row)}
    words = {k: tag[1] if tag is not None and tag[0] == name else None for k, tag in tags.items()}
    first, *others = set(words.values()) or {None}
    if first is not None and not others and len(first) == 1:
        return v.Static(next(iter(first)))
    return telling(s, found, row, words, name)


def present_field(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    """A field that is known to be there."""
    found = field(s, row, name)
    assert found is not None
    return found


def _written_to(s: LoweringState, column: v.Abstract, x: Operand, row: Operand) -> v.Leaf:
    """A column with something in a row of it."""
    return traced(s, _put, column, v.Leaf(as_stored(s, x)), v.Leaf(row))


def _read(s: LoweringState, column: v.Abstract, row: v.MemoryRow, type: Type) -> Operand:
    kind = column_type(type)
    weak = kind is not None and kind.weak
    return as_read(s, traced(s, _get_weak if weak else _get, column, v.Leaf(row.operand)).operand, type)


def _put_field(s: LoweringState, row: v.MemoryRow, name: str, value: v.Abstract) -> v.Abstract:
    put_field(s, row, name, value)
    return v.Static(None)


def _by_column(s: LoweringState, row: v.MemoryRow, name: str) -> list[tuple[str | OwnField, frozenset[int]]]:
    """The columns of a field, with the classes, of those that the object may be of, whose field is there."""
    heap, found = row.heap, dict[str | OwnField, frozenset[int]]()
    for k in sorted(s.positions(row)):
        column = heap.column(heap.members[k], name)
        found[column] = found.get(column, frozenset()) | {k}
    if len(found) > 1:
        others = frozenset(k for k in found.get(name, ()) if name not in heap.forms.get(heap.members[k], ()))
        found = {c: fit for c, k in found.items() if (fit := k - others if c == name else k)}
    return list(found.items()) or [(name, frozenset())]


def fields(s: LoweringState, row: v.MemoryRow, cls: type) -> v.Record:
    """All fields of an object that is of this class, as they are now."""
    keys, row = row.heap.forms[cls], replace(row, classes=frozenset({row.heap.members.index(cls)}))
    items = tuple(field(s, row, k) or v.Unset(k) for k in keys)
    if (base := record_base(cls)) is not None:
        return v.Record(base.__name__, keys, items)  # type: ignore[arg-type]
    return v.Record("namedtuple" if is_namedtuple(cls) else "object", keys, items, cls)


def opened(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A NamedTuple or tuple in memory as its fields; other values as they are, and tuples of several lengths."""
    if not isinstance(value, v.MemoryRow) or value.heap.in_segments:
        return value
    if not any(issubclass(c, tuple) for c in value.heap.members):
        return value
    cls = class_of(s, value)
    if cls is None and value.heap.is_record:
        return value
    if cls is None:
        s.refuse(
            f"an object that may be {' or '.join(c.__name__ for c in classes_of(s, value))} is taken apart here",
            "test with isinstance() which it is, or read its fields by name",
        )
    if not issubclass(cls, tuple):
        return value
    kind = "tuple" if value.heap.is_record else "NamedTuple"
    return fields(s, there(s, value, f"None where a {kind} is needed"), cls)


def set_field(s: LoweringState, row: v.MemoryRow, name: str, value: v.Abstract, by_object: bool = False) -> None:
    """`row.name = value`, or `object.__setattr__(row, name, value)`."""
    classes = classes_of(s, row)
    if row.heap.whole.adopts:
        words = f"the attribute {name!r} is set of an object that may be one of the examples: it stands where such do"
        cure = "make a new object of its fields, and set it there"
        raise ChangesObjects(row.heap.whole.members, UnsupportedError(words, s.span, cure))
    for cls in classes:
        if not by_object and not may_be_set(cls, name):
            refuse_setting(s, cls, name)
        if len(classes) > 1 and name not in row.heap.forms[cls]:
            s.refuse(
                f"the attribute {name!r} is set of an object that may be {cls.__name__}, which has none of that name",
                "test with isinstance() which it is",
            )
    if any((tag := row.heap.tags.get(cls)) is not None and tag[0] == name for cls in classes):
        row.heap.whole.tag(False)
        raise MemoryChanged
    value = as_field(s, value)
    if not classes:
        grow(s, row.heap, (name,), [layout_of(value)])
    for cls in classes:
        grow(s, row.heap, (name,), [layout_of(value)], cls)
        _note_form(s, row.heap, cls, (name,))
    put_field(s, row, name, value)


def put_field(s: LoweringState, row: v.MemoryRow, name: str, value: v.Abstract) -> None:
    """Let a field, which objects of the class have, hold a value of its type."""
    s.context.fields_set[row.heap.whole][name] = None
    layout, (first, *others) = row.heap.layout, _by_column(s, row, name)
    assert layout is not None
    if others:
        rest = replace(row, classes=frozenset().union(*(classes for _, classes in others)))
        conditional(
            s,
            is_class(s, row, first[1]),
            lambda t: _put_field(t, replace(row, classes=first[1]), name, value),
            lambda t: _put_field(t, rest, name, value),
        )
        return
    column, _ = first
    value = in_memory(s, value, dict(zip(layout.keys, layout.items, strict=True))[column])
    count, *columns = memory_of(s, row.heap, write=True)
    at, after = 0, list(columns)
    for key, held in zip(layout.keys, layout.items, strict=True):
        types = leaf_types(held)
        if key == column:
            for k, x in enumerate(convert(s, value, held)):
                after[at + k] = _written_to(s, columns[at + k], x, row.operand)
        at += len(types)
    known = {**_known_fields(s, row.heap.whole), column: (row.operand, value)}
    bind_memory(s, row.heap, [count, *after])
    s.block.stores[row.heap.whole] = s.env[row.heap.variable].value, known


def _known_fields(s: LoweringState, heap: Heap) -> Mapping[str | OwnField, tuple[Operand, v.Abstract]]:
    """What is known to be in memory, as it was stored here and nothing has followed that could change it: for a field,
    the row and what that holds."""
    memory, known = next((b.stores[heap] for b in s.block.chain() if heap in b.stores), (None, {}))
    return known if memory is not None and memory is _current(s, heap) else {}


Setter = tuple[Any, tuple[Any, ...], tuple[Any, ...]]
"""A function, what it is given in front of the object, and what behind it, before the value."""


def setter_of(cls: type | None, name: str, by_object: bool = False) -> Setter | None:
    """What a class does where an attribute is set; None where it is just set. `by_object`: not by a `__setattr__` of
    its own."""
    if cls is None:
        return None
    method, found = (inspect.getattr_static(cls, n, None) for n in ("__setattr__", name))
    is_generated = is_user_function(method) and method.__code__.co_filename == "<string>"  # that of frozen dataclasses
    if not by_object and is_user_function(method) and not is_generated:
        return method, (), (name,)
    if isinstance(found, property) and found.fset is not None:
        return found.fset, (), ()
    set_by = getattr(type(found), "__set__", None)
    return (set_by, (found,), ()) if is_user_function(set_by) else None


def may_be_set(cls: type | None, name: str) -> bool:
    """Does setting an attribute of an object set it, and nothing else?"""
    plain = cls is not None and inspect.getattr_static(cls, "__setattr__") == object.__setattr__
    is_property = isinstance(inspect.getattr_static(cls, name, None), property)
    return plain and not is_property and setter_of(cls, name) is None


def refuse_setting(s: LoweringState, cls: type, name: str) -> NoReturn:
    s.refuse(
        f"the attribute {name!r} of {cls.__name__} cannot be set: the class is frozen, or says itself what that does",
        "build a new object, e.g. with dataclasses.replace",
    )


# ---- functions of JAX, for one example


def blank(type: Array, capacity: int) -> Callable[[], Any]:
    """A function that gives an empty column."""
    return _zeros((capacity, *type.shape), str(jax_compat.device_dtype(type)))


@lru_cache(maxsize=1024)
def _zeros(shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
    """It is one for each dtype: that of floats of Python has 64 bits under x64 alone."""
    return lambda: jnp.zeros(shape, jax_compat.dtype_of(dtype))


def _put(column: Any, x: Any, row: Any) -> Any:
    x = jnp.broadcast_to(jnp.asarray(x, column.dtype), column.shape[1:])
    return lax.dynamic_update_index_in_dim(column, x, row, 0, allow_negative_indices=False)


@jax_compat.choosing
def _get(column: Any, row: Any) -> Any:
    return lax.dynamic_index_in_dim(column, row, 0, False, allow_negative_indices=False)


def _get_weak(column: Any, row: Any) -> Any:
    return jax_compat.weakened(_get(column, row))
