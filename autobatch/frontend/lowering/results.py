"""The results of the entry and of functions: which operands stand where in a Python value, and objects that are made.

An object built in the function is flattened away: what crosses joins and calls are its fields. That has an end where a
recursion builds a tree, or where an object of one class meets one of another, or a node of the examples. Such objects
are *made* (`boxed`): `make[Node](x, left, right)` is an object of its own, and its fields are made objects in turn.
Machine code has no such: there their class has memory (`heaps.py`).

    def double(t): return Node(2 * t.x, double(t.left) if t.left else None)

    func @double(%t: ref<Node>) -> (made<>):
      ...
      %left: made<> = if %has then: call @double(..) else: none()
      %node: made<> = make[of='Node'](%twice, %left)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from autobatch.errors import TypeConflictError, UnsupportedError
from autobatch.frontend.library.dynamic_arrays import as_result
from autobatch.frontend.library.graphs import refuse_view
from autobatch.frontend.lowering.attributes import may_be_none
from autobatch.frontend.lowering.comprehensions import make_map
from autobatch.frontend.lowering.joins import as_listing, conditional, convert, stored
from autobatch.frontend.lowering.numbers import operand_of, present
from autobatch.frontend.lowering.selection import apply_choice
from autobatch.frontend.lowering.sequences import sequence
from autobatch.frontend.lowering.state import LoweringMemory, LoweringState, expand, take_apart
from autobatch.frontend.memory.heap import Heap, NeedsMemory, record_base, refused_without_memory
from autobatch.frontend.memory.heaps import left_by_entry, missing
from autobatch.frontend.memory.list_heap import copied, tuple_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import inputs, is_namedtuple
from autobatch.frontend.types.unify import LayoutConflict, is_function, optional, unify
from autobatch.frontend.types.values import (
    AliasLayout,
    ChoiceLayout,
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    MadeClass,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    SharedLayout,
    describe,
    is_python,
    layout_of,
    leaf_types,
    static_type,
)
from autobatch.frontend.types.values import rebuild as rebuild_value
from autobatch.ir.core import (
    MADE,
    ORIGIN,
    Array,
    BuiltObject,
    ChoiceTemplate,
    Container,
    Fixed,
    HeapTemplate,
    List,
    ListTemplate,
    Literal,
    MadeTemplate,
    Operand,
    OptionalTemplate,
    Output,
    Pointer,
    Ref,
    Template,
    Type,
)
from autobatch.ir.ops import own

# ---- objects that are made


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


# ---- the result of the entry


class EntryOutputs:
    """Collects the operands that the entry returns."""

    def __init__(self, state: LoweringState) -> None:
        self.state = state
        self.operands: list[Operand] = []
        self.objects: dict[int, tuple[v.Record, Container]] = {}
        self.heaps: dict[str, Heap] = {}

    def template(self, value: v.Abstract) -> Template:
        """The template of a result."""
        value = prepared(self.state, value, inside=False)
        self.state.context.keep(value)
        return self._template(value)

    def _template(self, value: v.Abstract) -> Template:
        match value:
            case v.Static(value=held):
                return self._static(held)
            case v.Leaf(operand=operand):
                python = isinstance(operand.type, Array) and is_python(operand.type)
                return Output(self._output(operand), operand.type, python)
            case v.Optional(value=inner, missing=missing):
                return OptionalTemplate(self._template(inner), self._output(missing))
            case v.Choice(index=index, alternatives=options) if not any(is_function(layout_of(x)) for x in options):
                return ChoiceTemplate(tuple(map(self._template, options)), self._output(index))
            case v.Record(kind="table", items=items):
                return self._table(value, [x for x in items if not isinstance(x, v.Static | v.LocalFunction)])
            case v.Record(kind, keys, items, cls, treedef):
                refuse_view(self.state, value)
                if id(value) not in self.objects:  # what stands twice is one object
                    made = Container(kind, tuple(map(self._template, items)), keys, cls, treedef)
                    self.objects[id(value)] = value, made  # held, or another object could get its identity
                return self.objects[id(value)][1]
            case v.Listing(lists=lists, elem=elem, is_tuple=is_tuple, array=is_array):
                element = self._template(rebuild_value(elem, iter(lists)))
                known = lists[0] in self.operands
                length = self.operands.index(lists[0]) if known else self._output(lists[0])
                return ListTemplate(element, length, is_tuple, is_array)
            case v.MemoryRow(heap=heap, operand=operand):
                self.heaps.setdefault(heap.whole.name, heap.whole)
                return Pointer(self._output(operand), heap.whole.name)
            case v.Unset(name=name):
                self.state.refuse(f"the result holds an object whose attribute {name!r} is not set", "set it before")
            case _:
                self.state.refuse(f"the result is {describe(layout_of(value))}", "return numbers, lists and objects")

    def _table(self, value: v.Record, lists: Sequence[v.Abstract]) -> Template:
        """A dict, set or deque."""
        if value.cls is frozenset:
            self.state.refuse("the result is a frozenset that the function makes", "return set(s)")
        if id(value) not in self.objects:
            cls = value.cls or dict
            made = Container("table", tuple(map(self._template, lists)), value.keys[: len(lists)], cls)
            self.objects[id(value)] = value, replace(made, given=self._given(value))
        return self.objects[id(value)][1]

    def _given(self, value: v.Record) -> tuple[Any, ...]:
        """What an empty table of this kind is made with."""
        given = self._made_with(value.get("maxlen") or value.get("factory"))
        return ((), *given) if given and value.get("maxlen") is not None else given

    def _made_with(self, given: v.Abstract | None) -> tuple[Any, ...]:
        """What an empty table is made with that has a factory, or a greatest length."""
        if isinstance(given, v.LocalFunction):
            self.state.refuse(
                "the result is a defaultdict whose default is a function of your own, which no result can hold",
                "return dict(d), or give it a type: defaultdict(float)",
            )
        assert given is None or isinstance(given, v.Static)
        return () if given is None or given.value is None else (given.value,)

    def memory(self) -> tuple[HeapTemplate, ...]:
        """The memory of the classes of which objects are results, with what these lead to."""
        done: dict[str, HeapTemplate] = {}
        while rest := [h for name, h in self.heaps.items() if name not in done]:
            done |= {h.name: self._heap(h) for h in rest}
        return tuple(done.values())

    def _heap(self, heap: Heap) -> HeapTemplate:
        held = left_by_entry(self.state, heap)
        assert heap.layout is not None
        count, *columns = (self._output(operand_of(self.state, x)) for x in held.items)
        of_lists: tuple[int, ...] = ()
        if heap.in_segments:
            _, lengths, table, *columns = columns
            of_lists = (lengths, table)
        values = [self.state.context.value(t) for t in leaf_types(heap.layout)]
        within = _Fields(self.state, values)
        within.heaps = self.heaps
        form = within._template(rebuild_value(heap.layout, iter(values)))
        assert isinstance(form, Container)
        form = replace(_without_origin(form), kind=_kind(heap.cls), cls=None if heap.is_record else form.cls)
        if form.kind == "table":
            form = replace(form, cls=heap.cls, given=self._made_with(heap.factory))
        room = self.state.context.memory.capacity
        members: tuple[Container, ...] = ()
        if len(heap.members) > 1:
            members, form = tuple(_member(heap, form, cls) for cls in heap.members), replace(form, cls=None)
        return HeapTemplate(heap.name, count, tuple(columns), form, room, of_lists, members)

    def _static(self, held: object) -> Template:
        if isinstance(kind := static_type(held), Array):
            return Output(self._output(Literal(held, kind)), kind, is_python(kind))  # type: ignore[arg-type]
        return Fixed(held)

    def _output(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1


def _without_origin(form: Container) -> Container:
    """Objects without the number of that of the examples which they stand for."""
    kept = [k for k, key in enumerate(form.keys) if key != ORIGIN]
    return replace(form, keys=tuple(form.keys[k] for k in kept), children=tuple(form.children[k] for k in kept))


def _member(heap: Heap, form: Container, cls: type) -> Container:
    """What the objects of one class are, of several that have one memory."""
    held = dict(zip(form.keys, form.children, strict=True))
    keys = heap.forms.get(cls, ())
    children = tuple(held[heap.column(cls, k)] for k in keys)
    return Container(_kind(cls), children, keys, None if heap.is_record else cls)


def _kind(cls: type) -> str:
    """What kind of container the objects of a class in memory are."""
    if (base := record_base(cls)) is not None:
        return base.__name__
    if issubclass(cls, (dict, set)):
        return "table"
    return "namedtuple" if is_namedtuple(cls) else "object"


class _Fields(EntryOutputs):
    """The operands that objects of a class are made of, by position."""

    def __init__(self, state: LoweringState, operands: Sequence[Operand]) -> None:
        super().__init__(state)
        self.operands = list(operands)

    def _output(self, operand: Operand) -> int:
        return self.operands.index(operand)


def made_classes(state: LoweringState) -> tuple[MadeTemplate, ...]:
    """What the classes of objects are that the module makes."""
    found = []
    for held in state.context.memory.made.values():
        assert held.layout is not None
        values = [state.context.value(t) for t in leaf_types(held.layout)]
        fields = _Fields(state, values)._template(rebuild_value(held.layout, iter(values)))
        assert isinstance(fields, Container)
        found.append(MadeTemplate(held.name, fields))
    return tuple(found)


Objects = dict[int, tuple[v.Abstract, v.Abstract]]
"""By the identity of an object: itself, and what it became."""


def prepared(s: LoweringState, value: v.Abstract, inside: bool, objects: Objects | None = None) -> v.Abstract:
    """The same value as it leaves the program: lists that are written out have elements of one type, or are mixtures.

    `inside`: it is part of something that becomes columns. There strings and numbers are values of the program, and a
    list of the examples stays the very object that it is. `objects`: those that are prepared, by identity."""
    objects = {} if objects is None else objects
    if id(value) in objects:
        return objects[id(value)][1]
    original, value = value, as_result(s, expand(s, stored(s, value)))
    match value:
        case v.MemoryRow(heap=heap) if heap.in_segments and (heap.is_dict or not inside):
            if heap.is_dict and heap.whole in _held_by(heap.whole):
                s.refuse("the result holds a dict that may hold itself", "return what you need of it")
            for read in (heap.whole, *(h for h in _held_by(heap.whole) if h.is_strings)):
                left_by_entry(s, read)
            none, there = missing(s, value), replace(value, null=False)
            if s.block.truth(none) is not False:
                made = conditional(s, none, lambda t: v.Static(None), lambda t: copied(t, there))
            else:
                made = copied(s, there)
            return prepared(s, made, inside, objects)
        case v.Static(value=held) if inside and static_type(held) is not None:
            return v.Leaf(operand_of(s, value))
        case v.Static(value=held) if inputs(held):
            return prepared(s, take_apart(s.context, held), inside, objects)
        case v.Leaf(operand=operand) if not inside and _is_whole_list(s, operand):
            return prepared(s, sequence(s, value), inside)
        case v.Optional(unset=unset) if unset:
            return prepared(s, present(s, value), inside, objects)
        case v.Optional(value=inner):
            return replace(value, value=prepared(s, inner, True, objects))
        case v.Choice(alternatives=alternatives):
            return replace(value, alternatives=tuple(prepared(s, x, True, objects) for x in alternatives))
        case v.Record(kind="list", items=items):
            return _written_out(s, [stored(s, i) for i in items], inside)
        case v.Record(kind=kind, items=items):
            inside = inside or kind in ("object", "table")
            kept = ("maxlen", "factory") if kind == "table" else ()
            made = replace(
                value,
                items=tuple(
                    x if key in kept else prepared(s, x, inside, objects)
                    for key, x in zip(value.keys, items, strict=True)
                ),
            )
            if kind in ("object", "table"):
                objects[id(original)] = (original, made)
            return made
        case v.Listing(elem=elem) if not _is_prepared(elem):
            found = sequence(s, value)
            assert isinstance(found, v.Lazy)
            nested = _is_list_of_numbers(elem)  # Ragged in Ragged
            mapped = make_map(s, found, lambda t, x: (True, lambda u: prepared(u, x, inside=not nested)))
            return tuple_of(mapped) if value.is_tuple else mapped
        case _:
            return value


def _held_by(heap: Heap) -> set[Heap]:
    """The memory of what the lists or dicts of a memory hold, directly or not."""
    found: set[Heap] = set()
    todo: list[Layout] = list(heap.layout.items if heap.layout is not None else ())
    while todo:
        match todo.pop():
            case RowLayout(heap=inner) if inner.whole not in found:
                found.add(inner.whole)
                todo += inner.whole.layout.items if inner.whole.layout is not None else ()
            case RecordLayout(items=items):
                todo += items
            case OptionalLayout(value=value):
                todo.append(value)
            case ChoiceLayout(alternatives=alternatives):
                todo += alternatives
            case ListingLayout(elem=elem):
                todo.append(elem)
    return found


def _is_whole_list(s: LoweringState, operand: Operand) -> bool:
    """A list of the examples that is never None: it is returned as any other list."""
    return isinstance(operand.type, List) and not may_be_none(s, operand.type)


def _is_prepared(elem: Layout) -> bool:
    """Do the elements of a list leave the program as they are?"""
    match elem:
        case HeldLayout(value=value):
            return static_type(value.value) is None and not isinstance(value.value, tuple | list | dict)
        case RecordLayout(kind=kind, items=items):
            return kind != "list" and all(map(_is_prepared, items))
        case OptionalLayout(value=inner, unset=unset):
            return not unset and _is_prepared(inner)
        case ChoiceLayout(alternatives=alternatives):
            return all(map(_is_prepared, alternatives))
        case ListingLayout(elem=inner):
            return _is_prepared(inner)
        case RowLayout(heap=heap):
            return heap.is_record or (not heap.is_dict and not _is_list_of_numbers(elem))
        case _:
            return True


def _is_list_of_numbers(elem: Layout) -> bool:
    """Is it a list in memory that holds numbers, or such lists?"""
    if not isinstance(elem, RowLayout) or not elem.heap.is_list or elem.heap.is_record or elem.null:
        return False
    layout = elem.heap.whole.layout
    return layout is None or all(_is_numeric(x) or _is_list_of_numbers(x) for x in layout.items)


# ---- lists written out


def _written_out(s: LoweringState, items: Sequence[v.Abstract], inside: bool) -> v.Abstract:
    """`[x, y]`: its elements are of one type, or they stand side by side as those of a tuple do."""
    keys = tuple(range(len(items)))
    layout = _common(items)
    if layout is None and items:
        return v.Record("mixture", keys, tuple(prepared(s, i, inside=True) for i in items))
    if layout is None:
        return v.Record("list", (), ())
    if _is_numeric(layout) and not (inside and isinstance(layout, RecordLayout)):
        alike = (rebuild_value(layout, iter(convert(s, i, layout))) for i in items)
        return v.Record("list", keys, tuple(prepared(s, x, inside) for x in alike))
    return prepared(s, as_listing(s, v.Record("list", keys, tuple(items))), inside)


def _common(items: Sequence[v.Abstract]) -> Layout | None:
    """The one type that the elements have, as they are: a number is not made an array of the shape of another."""
    if not items:
        return None
    layouts = [layout_of(i) for i in items]
    try:
        joined = reduce(unify, layouts)
    except LayoutConflict:
        return None
    return joined if all(_same_shapes(x, joined) for x in layouts) else None


def _same_shapes(layout: Layout, joined: Layout) -> bool:
    """Does a value of one layout keep its shape as a value of the other?"""
    match layout, joined:
        case _, ChoiceLayout():
            return isinstance(layout, ChoiceLayout)
        case OptionalLayout(value=x), OptionalLayout(value=y):
            return _same_shapes(x, y)
        case _, OptionalLayout(value=y):
            return (isinstance(layout, HeldLayout) and layout.value.value is None) or _same_shapes(layout, y)
        case RecordLayout(items=xs), RecordLayout(items=ys):
            return all(_same_shapes(x, y) for x, y in zip(xs, ys, strict=True))
        case RecordLayout(items=xs), ListingLayout(elem=y):
            return all(_same_shapes(x, y) for x in xs)
        case ListingLayout(elem=x), ListingLayout(elem=y):
            return _same_shapes(x, y)
        case _, LeafLayout(type=Array(shape=shape)):
            found = _leaf_type(layout)
            return not isinstance(found, Array) or found.shape == shape
        case _:
            return True


def _leaf_type(layout: Layout) -> Type | None:
    match layout:
        case LeafLayout(type=type):
            return type
        case SharedLayout(operand=operand):
            return operand.type
        case HeldLayout(value=value):
            return static_type(value.value)
        case _:
            return None


def _is_numeric(layout: Layout) -> bool:
    """A number, or a container of numbers that JAX knows: elements that are woven into one array each."""
    match layout:
        case RecordLayout(kind="tuple" | "namedtuple" | "dict" | "pytree", items=items):
            return all(map(_is_numeric, items))
        case _:
            return isinstance(_leaf_type(layout), Array)
