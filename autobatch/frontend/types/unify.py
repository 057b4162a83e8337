"""What two values have in common: the layout that both convert to.

float32*[]  and  int32*[]           ->  float32*[]
None        and  (x, y)             ->  (x, y) or None
Node(x)     and  a node of a tree   ->  made<>
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

from autobatch.errors import SourceError, Span, TypeConflictError, UnsupportedError
from autobatch.frontend.lowering.state import ChangesObjects, MemoryChanged
from autobatch.frontend.memory.heap import Form, Heap, NeedsMemory
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import children, container_kind, inputs, keys_of, same_static
from autobatch.frontend.types.values import (
    AliasLayout,
    ChoiceLayout,
    FunctionLayout,
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    MethodLayout,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    SharedLayout,
    UnsetLayout,
    describe,
    is_none,
    is_numpy,
    layout_of,
    leaf_type,
    static_type,
)
from autobatch.ir.core import MADE, Array, BuiltObject, List, Ref, Tag, Type

if TYPE_CHECKING:
    from autobatch.frontend.lowering.state import LoweringMemory, LoweringState


class LayoutConflict(Exception):
    """Two layouts have nothing in common; the message says what differs. `forms`: they would have if containers of
    these kinds had memory; `store`: if the objects of the examples that lie there had; `classes`: if objects of these
    classes had, whose fields differ."""

    def __init__(self, message: str, forms: Collection[Form] = (), store: str = "") -> None:
        super().__init__(message)
        self.forms, self.store = forms, store
        self.classes: tuple[type, ...] = ()


def type_conflict(
    conflict: LayoutConflict, words: str, span: Span, cure: str = "", also: Sequence[tuple[str, Span]] = ()
) -> SourceError:
    """What to raise where layouts have nothing in common: what gives a class memory, where they would have then."""
    error = TypeConflictError(words, span, cure, also)
    if conflict.forms or conflict.classes:
        return NeedsMemory(conflict.classes, error, forms=conflict.forms)
    return ChangesObjects((), error, conflict.store) if conflict.store else error


def refuse_alternatives(s: LoweringState, value: v.Choice) -> NoReturn:
    """Something picked from values of different types stands where one type is needed."""
    try:
        reduce(unify, map(layout_of, value.alternatives))
        differ = "they are functions"
    except LayoutConflict as conflict:
        differ = str(conflict)
    s.refuse(
        f"what is picked here may have different types: {differ}",
        "pick from a dict or list whose values have one type, dtype and shape, and keep the others apart",
    )


class _Displaced(Exception):
    """A list that is written out holds an object that stands elsewhere too, and becomes one of any length: its elements
    are values of their own there, which do not say which objects they share."""


def unify(a: Layout, b: Layout) -> Layout:
    """The layout that values of both layouts convert to; raises Conflict. Where the two do not agree on which objects
    are one, they are several."""
    objects = tuple(_objects(a))
    if not any(isinstance(x, AliasLayout) for x in (*objects, *_objects(b))):
        return _unify(a, b)
    if objects == tuple(_objects(b)):
        try:
            joined = _unify(a, b)
        except _Displaced:
            joined = None
        if joined is not None and objects == tuple(_objects(joined)):
            return joined
    return _unify(unaliased(a), unaliased(b))


def _objects(layout: Layout) -> Iterator[Any]:
    """The objects of a layout in the order in which they end, and the aliases among them."""
    for inner in _inner(layout):
        yield from _objects(inner)
    if isinstance(layout, AliasLayout):
        yield layout
    elif isinstance(layout, RecordLayout) and layout.kind == "object":
        yield (layout.cls, layout.keys)


def is_open(layout: Layout) -> bool:
    """Is it, or has it, a local function that reads variables of the functions around it as they are?"""
    if isinstance(layout, FunctionLayout) and layout.names is None:
        return True
    return any(map(is_open, [layout.elem] if isinstance(layout, ListingLayout) else _inner(layout)))


def _inner(layout: Layout) -> tuple[Layout, ...]:
    """The layouts of the parts of a value; elements of lists are values of their own."""
    match layout:
        case OptionalLayout(value=inner):
            return (inner,)
        case RecordLayout(items=items):
            return items
        case FunctionLayout(defaults=defaults, captured=captured):
            return (*defaults, *captured)
        case MethodLayout(function=function, receiver=receiver):
            return (function, receiver)
        case ChoiceLayout(alternatives=alternatives):
            return alternatives
        case _:
            return ()


def holds_any(layout: Layout, classes: Collection[type]) -> bool:
    """Is it, or has it a part that is, the layout of an object of one of these classes as a value?"""
    if isinstance(layout, RecordLayout) and layout.cls in classes:
        return True
    parts = (layout.elem,) if isinstance(layout, ListingLayout) else _inner(layout)
    return any(holds_any(x, classes) for x in parts)


def unaliased(layout: Layout) -> Layout:
    """The layout of the same value with an object of its own at each place."""
    return _unaliased(layout, [])


def _unaliased(layout: Layout, made: list[Layout]) -> Layout:
    def many(xs: tuple[Layout, ...]) -> tuple[Layout, ...]:
        return tuple(_unaliased(x, made) for x in xs)

    match layout:
        case AliasLayout(position=position):
            return made[position]
        case RecordLayout(items=items):
            record = replace(layout, items=many(items))
            if layout.kind == "object":
                made.append(record)
            return record
        case OptionalLayout(value=inner):
            return replace(layout, value=_unaliased(inner, made))
        case FunctionLayout(defaults=defaults, captured=captured):
            return replace(layout, defaults=many(defaults), captured=many(captured))
        case MethodLayout(function=function, receiver=receiver):
            method, bound = many((function, receiver))
            return MethodLayout(method, bound, layout.name)
        case ChoiceLayout(alternatives=alternatives):
            return ChoiceLayout(many(alternatives))
        case _:
            return layout


def _unify(a: Layout, b: Layout) -> Layout:
    if a == b:
        return a
    try:
        return _unify_sorts(a, b)
    except LayoutConflict:
        x, y = sort_of(a), sort_of(b)
        if x is None or y is None or x == y:
            raise
    return _choice_of(a, b)


def _unify_sorts(a: Layout, b: Layout) -> Layout:
    """What values of one sort have in common."""
    if _is_container_layout(a) and _is_container_layout(b):
        a, b = _taken_apart(a), _taken_apart(b)
    match a, b:
        case (UnsetLayout(name=name), other) | (other, UnsetLayout(name=name)):
            if name.startswith("<") or (isinstance(other, OptionalLayout) and other.unset):
                return other
            return OptionalLayout(other, name)
        case (OptionalLayout(value=x, unset=m), OptionalLayout(value=y, unset=n)) if m == n:
            return OptionalLayout(_unify(x, y), m) if m else optional(_unify(x, y))
        case (OptionalLayout(value=x, unset=str(n)), other) if n:  # (the guard of an or-pattern sees its first match)
            return OptionalLayout(_unify(x, other), n)
        case (other, OptionalLayout(value=x, unset=str(n))) if n:
            return OptionalLayout(_unify(other, x), n)
        case (OptionalLayout(value=x), other) | (other, OptionalLayout(value=x)):
            return optional(x if is_none(other) else _unify(x, other))
        case (HeldLayout(), other) | (other, HeldLayout()) if is_none(a) or is_none(b):
            other = b if is_none(a) else a
            return optional(_dynamic(other) if isinstance(other, HeldLayout) else other)
        case (HeldLayout(value=x), HeldLayout(value=y)) if same_static(x.value, y.value):
            return a
        case _ if ChoiceLayout in (type(a), type(b)):
            return _choice_of(a, b)
        case _ if _is_table_layout(a) and _is_table_layout(b):
            return _unify_tables(a, b)
        case (RowLayout(heap=x), RowLayout(heap=y)) if x.whole.fits(y.whole):
            _one_memory(x.whole, y.whole)
            bound = a.bound | b.bound if a.bound is not None and b.bound is not None else None
            return RowLayout(x.whole, a.null or b.null, a.own and b.own, bound)
        case (RowLayout(heap=x), RowLayout(heap=y)) if x.whole.differ_in_copies(y.whole):
            raise LayoutConflict(
                "a list of the examples and one that is changed here, or compared by `is`: copy the first one"
            )
        case (RowLayout(heap=heap), LeafLayout(type=Ref(of))) | (LeafLayout(type=Ref(of)), RowLayout(heap=heap)):
            if of in heap.whole.may_adopt - heap.whole.adopts:
                heap.whole.adopts |= {of}
                raise MemoryChanged
            words = "an object of the examples and one that is made here: make a new one of its fields"
            raise LayoutConflict(words, store=of)
        case (RowLayout(heap=heap), other) | (other, RowLayout(heap=heap)):
            raise LayoutConflict(f"{describe(a)} and {describe(b)}", _forms_beside(heap.whole, other))
        case _ if (is_object(a) and is_object(b)) or MADE in (leaf_type(a), leaf_type(b)):
            return _unify_objects(a, b)
        case (RecordLayout(), RecordLayout()):
            return _unify_records(a, b)
        case (HeldLayout(), RecordLayout()) | (RecordLayout(), HeldLayout()):
            raise LayoutConflict(f"{describe(a)} and {describe(b)}")
        case (ListingLayout(elem=x, array=m), ListingLayout(elem=y, array=n)) if m == n:
            return ListingLayout(unify(x, y), m, a.is_tuple and b.is_tuple)
        case (RecordLayout(kind="list", items=items), ListingLayout(elem=x)):
            return ListingLayout(_unify_all(items, x))
        case (ListingLayout(elem=x), RecordLayout(kind="list", items=items)):
            return ListingLayout(_unify_all(items, x))
        case (RecordLayout(kind="tuple", items=items), ListingLayout(elem=x, is_tuple=True)):
            return ListingLayout(_unify_all(items, x), is_tuple=True)
        case (ListingLayout(elem=x, is_tuple=True), RecordLayout(kind="tuple", items=items)):
            return ListingLayout(_unify_all(items, x), is_tuple=True)
        case (FunctionLayout(), FunctionLayout()) if (a.source, a.names) == (b.source, b.names):
            pairs = zip(a.captured, b.captured, strict=True)
            defaults = zip(a.defaults, b.defaults, strict=True)
            return replace(
                a, defaults=tuple(_unify(x, y) for x, y in defaults), captured=tuple(_unify(x, y) for x, y in pairs)
            )
        case (MethodLayout(), MethodLayout()) if a.name == b.name:
            return MethodLayout(_unify(a.function, b.function), _unify(a.receiver, b.receiver), a.name)
        case _ if is_function(a) and is_function(b):
            return _choice_of(a, b)
    x, y = _dynamic(a), _dynamic(b)
    if isinstance(x, LeafLayout) and isinstance(y, LeafLayout):
        if isinstance(x.type, List) and isinstance(y.type, List) and x.type.elem == y.type.elem:
            return ListingLayout(LeafLayout(x.type.elem))
        if (row := _common_row(x, y)) is not None:
            return ListingLayout(row, array=True)
        return LeafLayout(_unify_types(x.type, y.type), numpy=x.numpy or y.numpy)
    if (row := _common_row(x, y)) is not None:
        return ListingLayout(row, array=True)
    for one, other in ((x, y), (y, x)):
        if isinstance(one, LeafLayout) and isinstance(one.type, List) and _is_list_layout(other):
            return _unify(ListingLayout(LeafLayout(one.type.elem)), other)
    raise LayoutConflict(f"{describe(a)} and {describe(b)}")


def _one_memory(a: Heap, b: Heap) -> None:
    """Lists that may stand in one place have one memory; so have objects of several classes."""
    if a is not b:
        a.join(b)
        raise MemoryChanged


def _forms_beside(heap: Heap, layout: Layout) -> list[Form]:
    """The kind of a container that is a value of the program, where it stands beside those of a memory."""
    if not isinstance(layout, RecordLayout):
        return []
    is_object = layout.kind in ("object", "namedtuple") and not heap.in_segments
    return [_form(layout)] if is_object or layout.kind == heap.python_class.__name__ else []


def is_function(layout: Layout) -> bool:
    """Is it a function, or a class?"""
    if isinstance(layout, HeldLayout):
        return callable(layout.value.value)
    return isinstance(layout, FunctionLayout | MethodLayout)


def sort_of(layout: Layout) -> str | None:
    """The sort of a value: what Python tells apart by its type, so that two sorts in one place are a choice. None for
    functions, and what is no value: None, a class."""
    match layout:
        case HeldLayout(value=held) if is_static_set(held):
            return "set"
        case HeldLayout() if _dynamic(layout) is layout:
            return None
        case SharedLayout() | HeldLayout():
            return sort_of(_dynamic(layout))
        case LeafLayout(type=Array()) | ListingLayout(array=True):
            return "number"
        case LeafLayout(type=Tag(vocabulary=vocabulary)):
            return vocabulary
        case LeafLayout(type=List()) | RecordLayout(kind="list"):
            return "list"
        case ListingLayout(is_tuple=is_tuple):
            return "tuple" if is_tuple else "list"
        case RecordLayout(kind="dict"):
            return "dict"
        case RecordLayout(kind="tuple"):
            return "tuple"
        case RecordLayout(kind="table", cls=cls) if cls is not None:
            return cls.__name__
        case RowLayout(heap=heap) if heap.whole.in_segments or heap.whole.is_record:
            return heap.whole.python_class.__name__
        case RowLayout() | RecordLayout(kind="object" | "namedtuple") | LeafLayout(type=BuiltObject() | Ref()):
            return "object"
        case _:
            return None


def is_tuple(layout: Layout) -> bool:
    """Is it a tuple that is a value?"""
    if isinstance(layout, HeldLayout):
        return container_kind(layout.value.value) == "tuple"
    return not isinstance(layout, RowLayout) and sort_of(layout) == "tuple"


def _choice_of(a: Layout, b: Layout) -> Layout:
    """One of several functions, or a value of one of several sorts."""
    found = list(a.alternatives if isinstance(a, ChoiceLayout) else (a,))
    for layout in b.alternatives if isinstance(b, ChoiceLayout) else (b,):
        known = position_among(found, layout)
        if known is None:
            found.append(layout)
        else:
            found[known] = _unify(found[known], layout)
    if len({is_function(x) for x in found}) > 1:
        raise LayoutConflict(f"{describe(a)} and {describe(b)}")
    return ChoiceLayout(tuple(found)) if len(found) > 1 else found[0]


def position_among(alternatives: Sequence[Layout], layout: Layout) -> int | None:
    """Which of several functions, or sorts of values, it is."""
    return next((k for k, known in enumerate(alternatives) if known == layout or _is_one(known, layout)), None)


def _is_one(a: Layout, b: Layout) -> bool:
    """Are they one function, whose captured values may differ, or values of one sort?"""
    match a, b:
        case FunctionLayout(), FunctionLayout():
            return (a.source, a.names, a.default_names) == (b.source, b.names, b.default_names)
        case MethodLayout(), MethodLayout():
            return a.name == b.name and _is_one(a.function, b.function)
        case (RowLayout(heap=heap), LeafLayout(type=Ref(of))) | (LeafLayout(type=Ref(of)), RowLayout(heap=heap)):
            return of in heap.whole.may_adopt
        case _:
            return sort_of(a) == sort_of(b) is not None


def optional(layout: Layout) -> Layout:
    """A value of that layout, or None."""
    type = leaf_type(layout)
    if isinstance(layout, RowLayout):
        return replace(layout, null=True)
    if isinstance(layout, ChoiceLayout) and not any(map(is_function, layout.alternatives)):
        return _choice_of(layout, layout_of(v.Static(None)))
    if isinstance(type, Ref | List | BuiltObject):
        return LeafLayout(type, numpy=is_numpy(layout))
    return layout if isinstance(layout, OptionalLayout) and not layout.unset else OptionalLayout(layout)


def is_object(layout: Layout) -> bool:
    """An object of a class: of the examples, or made in the function."""
    if isinstance(layout, RecordLayout):
        return layout.kind in ("object", "namedtuple")
    return isinstance(leaf_type(layout), Ref | BuiltObject)


def _unify_objects(a: Layout, b: Layout) -> Layout:
    """Objects of one class stay what they are, field by field; of several classes, they are only handed on."""
    if isinstance(a, RecordLayout) and isinstance(b, RecordLayout):
        same = (a.kind, a.cls, set(a.keys)) == (b.kind, b.cls, set(b.keys))
        try:
            return _unify_records(a, b) if same else LeafLayout(MADE)
        except LayoutConflict as conflict:
            conflict.classes = (*conflict.classes, *([a.cls] if a.kind == "object" and a.cls is not None else []))
            raise
    x, y = leaf_type(a), leaf_type(b)
    if x == y and x is not None:
        return LeafLayout(x)
    if all(is_object(k) or isinstance(k, RecordLayout) for k in (a, b)):
        return LeafLayout(MADE)
    raise LayoutConflict(f"{describe(a)} and {describe(b)}")


def constant(key: v.Abstract) -> v.Abstract:
    """A key of a dict as a constant, where it is one: a tuple of constants is, too."""
    if not isinstance(key, v.Record) or key.kind != "tuple":
        return key
    parts = [constant(x) for x in key.items]
    held = tuple(x.value for x in parts if isinstance(x, v.Static))
    return v.Static(held) if len(held) == len(parts) else key


def _opened(key: Any) -> v.Abstract:
    """A constant key as other keys are: a tuple by its elements."""
    if type(key) is not tuple:
        return v.Static(key)
    return v.Record("tuple", tuple(range(len(key))), tuple(map(_opened, key)))


def is_static_set(value: v.Abstract) -> bool:
    """Is it a set of constants?"""
    return isinstance(value, v.Static) and type(value.value) in (set, frozenset)


def as_table(whole: v.Abstract) -> v.Record:
    """A dict or set of constant keys as one of any keys."""
    if isinstance(whole, v.Static):
        keys = tuple(map(_opened, whole.value))
        return v.Record("table", ("keys",), (v.Record("list", tuple(range(len(keys))), keys),), type(whole.value))
    assert isinstance(whole, v.Record)
    if whole.kind == "table":
        return whole
    places = tuple(range(len(whole.keys)))
    lists = (v.Record("list", places, tuple(map(_opened, whole.keys))), v.Record("list", places, whole.items))
    return v.Record("table", ("keys", "values"), lists, dict)


def _is_table_layout(layout: Layout) -> bool:
    """Is it a set, or a dict of any keys?"""
    if isinstance(layout, HeldLayout):
        return is_static_set(layout.value)
    return isinstance(layout, RecordLayout) and layout.kind == "table"


def _as_table_layout(layout: Layout) -> RecordLayout:
    """The layout of a dict or set of constant keys as one of any keys."""
    if isinstance(layout, HeldLayout):
        found = layout_of(as_table(layout.value))
        assert isinstance(found, RecordLayout)
        return found
    assert isinstance(layout, RecordLayout)
    if layout.kind == "table":
        return layout
    places = tuple(range(len(layout.keys)))
    keys = tuple(layout_of(_opened(k)) for k in layout.keys)
    lists = (RecordLayout("list", places, keys), RecordLayout("list", places, layout.items))
    return RecordLayout("table", ("keys", "values"), lists, dict)


def _unify_tables(a: Layout, b: Layout) -> Layout:
    """Dicts of different keys, which are lists of any length then."""
    x, y = _as_table_layout(a), _as_table_layout(b)
    if (x.cls, x.keys) != (y.cls, y.keys):
        raise LayoutConflict(f"{describe(a)} and {describe(b)}")
    items = []
    for one, other in zip(x.items, y.items, strict=True):
        both = [k for k in (one, other) if not (isinstance(k, RecordLayout) and not k.items)]
        written = [k for k in both if isinstance(k, RecordLayout)]
        listed = [k.elem for k in both if isinstance(k, ListingLayout)]
        is_list = _is_list_layout(one) and _is_list_layout(other)
        if not is_list:
            items.append(_unify(one, other))
        elif not both:
            items.append(one)
        else:
            items.append(ListingLayout(_unify_all(tuple(i for k in written for i in k.items), *listed)))
    return replace(x, items=tuple(items))


def _are_other_records(a: RecordLayout, b: RecordLayout) -> bool:
    """Do two dicts have names for keys, each some that the other has not? They are no tables that a branch fills."""
    named = all(k.kind == "dict" and all(isinstance(n, str) for n in k.keys) for k in (a, b))
    if all(isinstance(x, HeldLayout | SharedLayout) and not _is_container_layout(x) for x in (*a.items, *b.items)):
        return False  # no expression has made them, so they cannot have memory
    return named and bool(set(a.keys) - set(b.keys)) and bool(set(b.keys) - set(a.keys))


def _is_container_layout(layout: Layout) -> bool:
    """Is it a list, tuple or dict, that is constant or a value?"""
    if isinstance(layout, HeldLayout):
        return container_kind(layout.value.value) is not None and not inputs(layout.value.value)
    return isinstance(layout, RecordLayout | ListingLayout)


def _taken_apart(layout: Layout) -> Layout:
    """A constant list, tuple or dict as one of constants."""
    if not isinstance(layout, HeldLayout) or (kind := container_kind(layout.value.value)) is None:
        return layout
    held = layout.value.value
    items = tuple(layout_of(v.Static(x)) for _, x in children(held))
    return RecordLayout(kind, keys_of(held), items, type(held) if kind == "namedtuple" else None)


def _unify_records(a: RecordLayout, b: RecordLayout) -> Layout:
    kinds = {a.kind, b.kind}
    if kinds <= {"dict", "table"} and ("table" in kinds or set(a.keys) != set(b.keys)):
        if _are_other_records(a, b):
            raise LayoutConflict(f"{describe(a)} and {describe(b)}", [_form(a), _form(b)])
        return _apart(_unify_tables(a, b), a, b)
    if a.kind == b.kind and a.kind in ("dict", "object") and a.keys != b.keys and set(a.keys) == set(b.keys):
        position = dict(zip(b.keys, b.items, strict=True))
        b = replace(b, keys=a.keys, items=tuple(position[k] for k in a.keys))
    if a.kind == b.kind == "list" and len(a.items) != len(b.items):
        try:
            return _apart(ListingLayout(_unify_all((*a.items, *b.items))), a, b)
        except LayoutConflict as conflict:
            raise LayoutConflict(str(conflict), conflict.forms or [_form(a), _form(b)]) from None
    if a.kind == b.kind == "tuple" and bool(a.items) != bool(b.items):  # it grows: other lengths are a conflict
        return ListingLayout(_unify_all((*a.items, *b.items)), is_tuple=True)
    if (a.kind, a.keys, a.cls, a.treedef) != (b.kind, b.keys, b.cls, b.treedef):
        forms = [_form(a), _form(b)] if a.kind == b.kind == "tuple" else []
        raise LayoutConflict(f"{describe(a)} and {describe(b)}", forms)
    return replace(a, items=tuple(_unify(x, y) for x, y in zip(a.items, b.items, strict=True)))


def _apart(layout: Layout, a: RecordLayout, b: RecordLayout) -> Layout:
    """The layout of two lists of different lengths, or dicts of different keys. Where containers stand among other
    values in it, they are nodes of a tree, whose places are better kept apart, in memory."""
    for held in (layout, *(layout.items if isinstance(layout, RecordLayout) else ())):
        elem = held.elem if isinstance(held, ListingLayout) else None
        if isinstance(elem, ChoiceLayout) and not {sort_of(x) for x in elem.alternatives}.isdisjoint(_CONTAINERS):
            raise LayoutConflict(f"{describe(a)} and {describe(b)}", [_form(a), _form(b)])
    return layout


_CONTAINERS = ("list", "tuple", "dict", "set", "object")


def _form(layout: RecordLayout) -> Form:
    return layout.kind, layout.cls, layout.keys


def _is_list_layout(layout: Layout) -> bool:
    return isinstance(layout, ListingLayout) or (isinstance(layout, RecordLayout) and layout.kind == "list")


def _unify_all(written: tuple[Layout, ...], *others: Layout) -> Layout:
    """What the elements of lists have in common: those written out, parts of one value, and `others`."""
    if any(isinstance(x, AliasLayout) for layout in written for x in _objects(layout)):
        raise _Displaced
    return reduce(unify, (*others, *written))


def _dynamic(layout: Layout) -> Layout:
    """The layout of a static number or string as a run-time value; of a shared leaf as an ordinary one."""
    match layout:
        case SharedLayout(operand=operand):
            return LeafLayout(operand.type, numpy=is_numpy(layout))
        case LeafLayout(type=type):
            return LeafLayout(type, numpy=layout.numpy)
        case HeldLayout(value=v.Static(value=value)):
            return LeafLayout(static) if (static := static_type(value)) is not None else layout
        case _:
            return layout


def _common_row(a: Layout, b: Layout) -> LeafLayout | None:
    """The layout of the rows of two arrays which differ in their first extent, so that it is data; None for others."""
    rows = [_row_of(x) for x in (a, b)]
    if leaf_type(a) == leaf_type(b) is not None or rows[0] is None or rows[1] is None or rows[0].type != rows[1].type:
        return None
    return LeafLayout(rows[0].type, numpy=rows[0].numpy or rows[1].numpy)


def _row_of(layout: Layout) -> LeafLayout | None:
    match layout:
        case LeafLayout(type=Array(dtype=dtype, shape=(_, *inner))):
            return LeafLayout(Array(dtype, tuple(inner)), numpy=layout.numpy)
        case ListingLayout(elem=LeafLayout(type=Array()) as row, array=True):
            return row
        case _:
            return None


def _unify_types(a: Type, b: Type) -> Type:
    if a == b:
        return a
    if isinstance(a, Array) and isinstance(b, Array):
        return join_arrays(a, b)
    if isinstance(a, List) and isinstance(b, List):
        return List(_unify_types(a.elem, b.elem))
    raise LayoutConflict(f"{a} and {b}")


def join_arrays(a: Array, b: Array) -> Array:
    """Python int with float is float, and bool with either is that; a Python scalar takes the dtype and shape of an
    array."""
    for flag, number in ((a, b), (b, a)):
        if flag.is_bool and flag.is_scalar and is_python_number(number):
            return number
    if is_python_number(a) and is_python_number(b):
        return max((a, b), key=lambda t: (_kind(t), t.dtype.endswith("64")))
    for scalar, array in ((a, b), (b, a)):
        if is_python_number(scalar) and _kind(scalar) <= _kind(array) < _NO_NUMBER:
            return array
    if a.dtype == b.dtype and a.shape == b.shape:
        return Array(a.dtype, a.shape)
    raise LayoutConflict(f"{a} and {b}")


def is_python_number(type: Array) -> bool:
    """A Python int, float or complex; a Python bool has the type of any bool."""
    return type.weak and type.is_scalar and not type.is_bool


_NO_NUMBER = 9


def _kind(type: Array) -> int:
    if type.is_bool or type.dtype.startswith("key"):
        return _NO_NUMBER
    return 1 if type.is_integer else 3 if type.dtype.startswith("complex") else 2


# ---- growth
#
# Recursion that builds: results that nest deeper from round to round of the lowering.
#
#     double: Node(x, None)  ->  Node(x, Node(x, None) or None)  ->  ...  ->  made<>
#
# The type of such a result would never be the same in two rounds. The containers that hold themselves become made
# objects (`results.py`), which are of one type however deep they nest.


GROWTH = 2
"""How often the result of a recursion may nest deeper from round to round, before its objects are made."""

MANY = 50
"""Containers in a variable from which on a loop in which it nests deeper is not tried again."""


def settled(memory: LoweringMemory, function: Hashable, before: Layout, now: Layout) -> Layout:
    """The layout of what a recursive function returns. Where it nests deeper from round to round it would never be
    the same twice: the containers that hold themselves are made objects. LayoutConflict in machine code, which has no
    such: they have memory there."""
    deeper = _depths(now) - _depths(before)
    if not deeper:
        return now
    memory.grown[function] = memory.grown.get(function, 0) + 1
    if memory.grown[function] <= GROWTH:
        return now
    if not memory.rows:
        raise LayoutConflict("its results hold results of its own, one deeper each time", list(deeper))
    return _boxed_layout(unaliased(now), set(deeper))


def linked(layouts: Iterable[Layout], error: UnsupportedError) -> NeedsMemory:
    """What to raise where containers of some layouts hold some of their own kind."""
    deep = (key for layout in layouts for key, depth in _depths(layout).items() if depth > 1)
    return NeedsMemory((), error, forms=tuple(dict.fromkeys(deep)))


def deepest(before: Layout, now: Layout) -> tuple[list[type], int]:
    """The classes of the user whose objects hold objects of the same class, deeper than they did; and how deep any
    containers lie in those of their kind that did not."""
    depths = _depths(now)
    grown = {key: depths[key] for key in depths - _depths(before) if depths[key] > 1}
    return [cls for _, cls, _ in grown if cls is not None], max(grown.values(), default=0)


def nests_without_end(before: Layout, now: Layout) -> bool:
    """Do containers lie deeper in one another than a turn of a loop before, and so many that it is no chain of
    variables? What holds two of its kind has twice as many in each turn."""
    return bool(_depths(now) - _depths(before)) and _count(now) > MANY


def _count(layout: Layout) -> int:
    """How many containers a value is made of."""
    return isinstance(layout, RecordLayout) + sum(map(_count, _parts(layout)))


def _depths(layout: Layout) -> Counter[Form]:
    """For each class of containers, how many of it lie in one another."""
    found: Counter[Form] = Counter()
    for inner in _parts(layout):
        found |= _depths(inner)
    match layout:
        case RecordLayout(kind, keys, items, cls, _) if items:
            found[kind, cls, keys] += 1
        case ListingLayout(array=False, is_tuple=is_tuple):
            found["tuple" if is_tuple else "list", None, None] += 1
    return found


def _parts(layout: Layout) -> Iterator[Layout]:
    match layout:
        case RecordLayout(items=items):
            yield from items
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            yield inner
        case ChoiceLayout(alternatives=alternatives):
            yield from alternatives
        case _:
            return


def _boxed_layout(layout: Layout, classes: set[Any]) -> Layout:
    match layout:
        case RecordLayout(kind, keys, items, cls, _):
            if (kind, cls, keys) in classes:
                return LeafLayout(MADE)
            return replace(layout, items=tuple(_boxed_layout(x, classes) for x in items))
        case OptionalLayout(value=inner, unset=unset):
            boxed = _boxed_layout(inner, classes)
            return OptionalLayout(boxed, unset) if unset else optional(boxed)
        case ListingLayout(elem=elem):
            return replace(layout, elem=_boxed_layout(unaliased(elem), classes))
        case ChoiceLayout(alternatives=alternatives):
            return reduce(_unify, (_boxed_layout(x, classes) for x in alternatives))
        case _:
            return layout
