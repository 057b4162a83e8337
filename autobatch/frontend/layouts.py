"""The type of an abstract value: which leaves it has, and how to put it together again.

Values cross a join, a loop, or a call as operands, one for each leaf. `layout_of` says which, `leaves` lists them,
`rebuild` is the inverse, `unify` finds the layout that two values have in common (API.md, section 2).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from autobatch.frontend import values as v
from autobatch.frontend.statics import same_static, static_key
from autobatch.ir import jax_compat
from autobatch.ir.core import Operand, Value
from autobatch.ir.types import BOOL, INT, MADE, Array, List, Made, Ref, Tag, Type


@dataclass(frozen=True, slots=True)
class LeafLayout:
    type: Type
    classes: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A leaf that is a shared value or constant of the module: it crosses calls without being passed."""

    operand: Operand


@dataclass(frozen=True)
class HeldLayout:
    """A static value; two are equal when their keys are."""

    key: Any
    value: v.Static

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldLayout) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True)
class OptionalLayout:
    value: Layout
    unset: str = ""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    kind: str
    keys: tuple[Any, ...]
    items: tuple[Layout, ...]
    cls: type | None = None
    treedef: Any = None


@dataclass(frozen=True, slots=True)
class ListingLayout:
    elem: Layout
    array: bool = False


@dataclass(frozen=True, slots=True)
class FunctionLayout:
    source: Any
    default_names: tuple[str, ...]
    defaults: tuple[Layout, ...]
    names: tuple[str, ...] | None
    captured: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class MethodLayout:
    function: Layout
    receiver: Layout
    name: str


@dataclass(frozen=True, slots=True)
class ChoiceLayout:
    alternatives: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class UnsetLayout:
    name: str


Layout = (
    LeafLayout
    | SharedLayout
    | HeldLayout
    | OptionalLayout
    | RecordLayout
    | ListingLayout
    | FunctionLayout
    | MethodLayout
    | ChoiceLayout
    | UnsetLayout
)


def layout_of(value: v.Abstract, shared: frozenset[Value] | None = None) -> Layout:
    """The layout of a value. With `shared`, leaves that are among these values are not passed."""

    def many(xs: tuple[v.Abstract, ...]) -> tuple[Layout, ...]:
        return tuple(layout_of(x, shared) for x in xs)

    match value:
        case v.Static():
            return HeldLayout(static_key(value.value), value)
        case v.Leaf(operand=operand, classes=classes):
            if shared is not None and (operand in shared if isinstance(operand, Value) else operand.constant >= 0):
                return SharedLayout(operand)
            return LeafLayout(operand.type, classes)
        case v.Optional(value=inner, unset=unset):
            return OptionalLayout(layout_of(inner, shared), unset)
        case v.Record(kind, keys, items, cls, treedef):
            return RecordLayout(kind, keys, many(items), cls, treedef)
        case v.Listing(elem=elem, array=array):
            return ListingLayout(elem, array)
        case v.LocalFunction(source, defaults, captured):
            names = None if captured is None else tuple(n for n, _ in captured)
            return FunctionLayout(
                source,
                tuple(n for n, _ in defaults),
                many(tuple(x for _, x in defaults)),
                names,
                many(tuple(x for _, x in captured or ())),
            )
        case v.Method(function, receiver, name):
            return MethodLayout(layout_of(function, shared), layout_of(receiver, shared), name)
        case v.Choice(alternatives=alternatives):
            return ChoiceLayout(many(alternatives))
        case v.Unset(name):
            return UnsetLayout(name)
        case v.Lazy():
            raise NotStored(value)


class NotStored(Exception):
    """A lazy sequence has no layout: the caller makes a list of it first."""


def leaves(value: v.Abstract, shared: frozenset[Value] | None = None) -> list[Operand]:
    """The operands of a value, in the order of its layout."""
    return list(_leaves(value, shared))


def _leaves(value: v.Abstract, shared: frozenset[Value] | None) -> Iterator[Operand]:
    match value:
        case v.Leaf(operand=operand):
            if not isinstance(layout_of(value, shared), SharedLayout):
                yield operand
        case v.Optional(value=inner, missing=missing):
            yield from _leaves(inner, shared)
            yield missing
        case v.Record(items=items):
            for item in items:
                yield from _leaves(item, shared)
        case v.Listing(lists=lists):
            yield from lists
        case v.LocalFunction(defaults=defaults, captured=captured):
            for _, item in (*defaults, *(captured or ())):
                yield from _leaves(item, shared)
        case v.Method(function=function, receiver=receiver):
            yield from _leaves(function, shared)
            yield from _leaves(receiver, shared)
        case v.Choice(index=index, alternatives=alternatives):
            yield index
            for item in alternatives:
                yield from _leaves(item, shared)
        case _:
            return


def leaf_types(layout: Layout) -> tuple[Type, ...]:
    """The types of the operands of a layout."""
    return tuple(_leaf_types(layout))


def _leaf_types(layout: Layout) -> Iterator[Type]:
    match layout:
        case LeafLayout(type=type):
            yield type
        case OptionalLayout(value=inner):
            yield from _leaf_types(inner)
            yield BOOL
        case RecordLayout(items=items):
            for item in items:
                yield from _leaf_types(item)
        case ListingLayout(elem=elem):
            yield from (List(t) for t in list_types(elem))
        case FunctionLayout(defaults=defaults, captured=captured):
            for item in (*defaults, *captured):
                yield from _leaf_types(item)
        case MethodLayout(function=function, receiver=receiver):
            yield from _leaf_types(function)
            yield from _leaf_types(receiver)
        case ChoiceLayout(alternatives=alternatives):
            yield jax_compat.type_of(0)
            for item in alternatives:
                yield from _leaf_types(item)
        case SharedLayout() | HeldLayout() | UnsetLayout():
            return


def list_types(elem: Layout) -> tuple[Type, ...]:
    """The element types of the lists that hold elements of a layout; static elements leave a list of their length."""
    return leaf_types(elem) or (jax_compat.type_of(0),)


def rebuild(layout: Layout, operands: Iterator[Operand]) -> v.Abstract:
    """The value with that layout whose leaves are the next operands."""

    def many(xs: tuple[Layout, ...]) -> tuple[v.Abstract, ...]:
        return tuple(rebuild(x, operands) for x in xs)

    match layout:
        case LeafLayout(classes=classes):
            return v.Leaf(next(operands), classes)
        case SharedLayout(operand=operand):
            return v.Leaf(operand)
        case HeldLayout(value=value):
            return value
        case OptionalLayout(value=inner, unset=unset):
            present = rebuild(inner, operands)
            return v.Optional(present, next(operands), unset)
        case RecordLayout(kind, keys, items, cls, treedef):
            return v.Record(kind, keys, many(items), cls, treedef)  # type: ignore[arg-type]
        case ListingLayout(elem=elem, array=array):
            return v.Listing(tuple(next(operands) for _ in list_types(elem)), elem, array)
        case FunctionLayout(source, default_names, defaults, names, captured):
            given = tuple(zip(default_names, many(defaults), strict=True))
            caught = many(captured)
            return v.LocalFunction(source, given, None if names is None else tuple(zip(names, caught, strict=True)))
        case MethodLayout(function, receiver, name):
            return v.Method(rebuild(function, operands), rebuild(receiver, operands), name)
        case ChoiceLayout(alternatives=alternatives):
            index = next(operands)
            return v.Choice(index, many(alternatives))
        case UnsetLayout(name=name):
            return v.Unset(name)


class Conflict(Exception):
    """Two layouts have nothing in common; the message says what differs."""


def unify(a: Layout, b: Layout) -> Layout:
    """The layout that values of both layouts convert to; raises Conflict."""
    if a == b:
        return a
    match a, b:
        case (UnsetLayout(name=name), other) | (other, UnsetLayout(name=name)):
            if name.startswith("<") or (isinstance(other, OptionalLayout) and other.unset):
                return other
            return OptionalLayout(other, name)
        case (OptionalLayout(value=x, unset=m), OptionalLayout(value=y, unset=n)) if m == n:
            return OptionalLayout(unify(x, y), m) if m else optional(unify(x, y))
        case (OptionalLayout(value=x, unset=n), other) | (other, OptionalLayout(value=x, unset=n)) if n:
            return OptionalLayout(unify(x, other), n)
        case (OptionalLayout(value=x), other) | (other, OptionalLayout(value=x)):
            return optional(x if is_none(other) else unify(x, other))
        case (HeldLayout(), other) | (other, HeldLayout()) if is_none(a) or is_none(b):
            other = b if is_none(a) else a
            return optional(_dynamic(other) if isinstance(other, HeldLayout) else other)
        case (HeldLayout(value=x), HeldLayout(value=y)) if same_static(x.value, y.value):
            return a
        case _ if (is_object(a) and is_object(b)) or MADE in (leaf_type(a), leaf_type(b)):
            return _unify_objects(a, b)
        case (RecordLayout(), RecordLayout()):
            return _unify_records(a, b)
        case (HeldLayout(), RecordLayout()) | (RecordLayout(), HeldLayout()):
            raise Conflict(f"{describe(a)} and {describe(b)}")
        case (ListingLayout(elem=x, array=m), ListingLayout(elem=y, array=n)) if m == n:
            return ListingLayout(unify(x, y), m)
        case (RecordLayout(kind="list", items=items), ListingLayout(elem=x)):
            return ListingLayout(_unify_all((x, *items)))
        case (ListingLayout(elem=x), RecordLayout(kind="list", items=items)):
            return ListingLayout(_unify_all((x, *items)))
        case (FunctionLayout(), FunctionLayout()) if (a.source, a.names) == (b.source, b.names):
            pairs = zip(a.captured, b.captured, strict=True)
            defaults = zip(a.defaults, b.defaults, strict=True)
            return replace(
                a, defaults=tuple(unify(x, y) for x, y in defaults), captured=tuple(unify(x, y) for x, y in pairs)
            )
        case (MethodLayout(), MethodLayout()) if a.name == b.name:
            return MethodLayout(unify(a.function, b.function), unify(a.receiver, b.receiver), a.name)
    x, y = _dynamic(a), _dynamic(b)
    if isinstance(x, LeafLayout) and isinstance(y, LeafLayout):
        if isinstance(x.type, List) and isinstance(y.type, List) and x.type.elem == y.type.elem:
            return ListingLayout(LeafLayout(x.type.elem))
        return LeafLayout(_unify_types(x.type, y.type))
    for one, other in ((x, y), (y, x)):
        if isinstance(one, LeafLayout) and isinstance(one.type, List) and _is_list_layout(other):
            return unify(ListingLayout(LeafLayout(one.type.elem)), other)
    raise Conflict(f"{describe(a)} and {describe(b)}")


def optional(layout: Layout) -> Layout:
    """A value of that layout, or None."""
    if isinstance(layout, LeafLayout | SharedLayout) and isinstance(_type(layout), Ref | List | Made):
        return LeafLayout(_type(layout))
    return layout if isinstance(layout, OptionalLayout) and not layout.unset else OptionalLayout(layout)


def is_object(layout: Layout) -> bool:
    """An object of a class: of the examples, or made in the function."""
    if isinstance(layout, RecordLayout):
        return layout.kind in ("object", "namedtuple")
    return isinstance(leaf_type(layout), Ref | Made)


def leaf_type(layout: Layout) -> Type | None:
    """The type of a leaf; None for what is not one."""
    return _type(layout) if isinstance(layout, LeafLayout | SharedLayout) else None


def _unify_objects(a: Layout, b: Layout) -> Layout:
    """Objects of one class stay what they are, field by field; of several classes, they are only handed on."""
    if isinstance(a, RecordLayout) and isinstance(b, RecordLayout):
        same = (a.kind, a.cls, a.keys) == (b.kind, b.cls, b.keys)
        return _unify_records(a, b) if same else LeafLayout(MADE)
    x, y = leaf_type(a), leaf_type(b)
    if x == y and x is not None:
        return LeafLayout(x)
    if all(is_object(k) or isinstance(k, RecordLayout) for k in (a, b)):
        return LeafLayout(MADE)
    raise Conflict(f"{describe(a)} and {describe(b)}")


def _unify_records(a: RecordLayout, b: RecordLayout) -> Layout:
    if a.kind == b.kind == "dict" and a.keys != b.keys and set(a.keys) == set(b.keys):
        position = dict(zip(b.keys, b.items, strict=True))
        b = replace(b, keys=a.keys, items=tuple(position[k] for k in a.keys))
    if a.kind == b.kind == "list" and len(a.items) != len(b.items):
        return ListingLayout(_unify_all((*a.items, *b.items)))
    if (a.kind, a.keys, a.cls, a.treedef) != (b.kind, b.keys, b.cls, b.treedef):
        raise Conflict(f"{describe(a)} and {describe(b)}")
    return replace(a, items=tuple(unify(x, y) for x, y in zip(a.items, b.items, strict=True)))


def _is_list_layout(layout: Layout) -> bool:
    return isinstance(layout, ListingLayout) or (isinstance(layout, RecordLayout) and layout.kind == "list")


def _unify_all(layouts: tuple[Layout, ...]) -> Layout:
    return reduce(unify, layouts)


def is_none(layout: Layout) -> bool:
    return isinstance(layout, HeldLayout) and layout.value.value is None


def _type(layout: LeafLayout | SharedLayout) -> Type:
    return layout.type if isinstance(layout, LeafLayout) else layout.operand.type


def _dynamic(layout: Layout) -> Layout:
    """The layout of a static number or string as a run-time value; of a shared leaf as an ordinary one."""
    match layout:
        case SharedLayout(operand=operand):
            return LeafLayout(operand.type)
        case LeafLayout(type=type):
            return LeafLayout(type)
        case HeldLayout(value=v.Static(value=value)):
            return LeafLayout(static) if (static := static_type(value)) is not None else layout
        case _:
            return layout


def static_type(value: Any) -> Type | None:
    """The type that a static scalar, string or enum member has as a run-time value."""
    vocabulary = vocabulary_of(value)
    if vocabulary is not None:
        return Tag(vocabulary)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return INT
    if isinstance(value, (int, float, complex)):
        return jax_compat.type_of(value)
    return None


def vocabulary_of(value: Any) -> str | None:
    """The vocabulary of a string or enum member."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}"
    return "str" if isinstance(value, str) else None


def _unify_types(a: Type, b: Type) -> Type:
    if a == b:
        return a
    if isinstance(a, Array) and isinstance(b, Array):
        return join_arrays(a, b)
    if isinstance(a, List) and isinstance(b, List):
        return List(_unify_types(a.elem, b.elem))
    raise Conflict(f"{a} and {b}")


def join_arrays(a: Array, b: Array) -> Array:
    """Python int with float is float; a Python scalar takes the dtype and shape of an array."""
    if is_python_number(a) and is_python_number(b):
        return max((a, b), key=lambda t: (_kind(t), t.dtype.endswith("64")))
    for scalar, array in ((a, b), (b, a)):
        if is_python_number(scalar) and _kind(scalar) <= _kind(array) < _NO_NUMBER:
            return array
    if a.dtype == b.dtype and a.shape == b.shape:
        return Array(a.dtype, a.shape)
    raise Conflict(f"{a} and {b}")


def is_python_number(type: Array) -> bool:
    """A Python int, float or complex; a Python bool has the type of any bool."""
    return type.weak and type.is_scalar and not type.is_bool


_NO_NUMBER = 9


def _kind(type: Array) -> int:
    if type.is_bool or type.dtype.startswith("key"):
        return _NO_NUMBER
    return 1 if type.is_integer else 3 if type.dtype.startswith("complex") else 2


def describe(layout: Layout) -> str:
    """A layout in words, for messages."""
    match layout:
        case LeafLayout(type=type):
            return str(type)
        case SharedLayout(operand=operand):
            return str(operand.type)
        case HeldLayout(value=value):
            return f"the constant {value.value!r:.60}"
        case OptionalLayout(value=inner):
            return f"{describe(inner)} or None"
        case RecordLayout(kind, keys, items, cls, _):
            name = cls.__name__ if cls is not None else kind
            return f"{name}({', '.join(f'{k}: {describe(i)}' for k, i in zip(keys, items, strict=True))})"
        case ListingLayout(elem=elem):
            return f"list of {describe(elem)}"
        case FunctionLayout(source=source):
            return f"the function {source.name}"
        case MethodLayout(name=name):
            return f"the method {name}"
        case ChoiceLayout(alternatives=alternatives):
            return " or ".join(describe(x) for x in alternatives)
        case UnsetLayout(name=name):
            return f"{name}, which is not set"
