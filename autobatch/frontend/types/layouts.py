"""The type of an abstract value: which leaves it has, and how to put it together again.

Values cross a join, a loop, or a call as operands, one for each leaf. `layout_of` says which, `leaves` lists them,
`rebuild` is the inverse, `unify` finds the layout that two values have in common.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind, inputs, static_key
from autobatch.ir import jax_compat
from autobatch.ir.core import BOOL, INT, Array, List, Literal, Operand, Ref, Tag, Type, Value

if TYPE_CHECKING:
    from autobatch.frontend.memory.heap import Heap


@dataclass(frozen=True, slots=True)
class LeafLayout:
    """`numpy`: an array of NumPy, on some path; of numbers that is not said."""

    type: Type
    classes: frozenset[int] | None = None
    numpy: bool = False


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A leaf that is a shared value or constant of the module: it crosses calls without being passed."""

    operand: Operand
    numpy: bool | None = None


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
    is_tuple: bool = False


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
class RowLayout:
    heap: Heap
    null: bool = False
    own: bool = False
    bound: frozenset[type] | None = None


@dataclass(frozen=True, slots=True)
class UnsetLayout:
    name: str


@dataclass(frozen=True, slots=True)
class AliasLayout:
    """The very object that stands before in the same value: objects are counted where they end."""

    position: int


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
    | RowLayout
    | UnsetLayout
    | AliasLayout
)


@dataclass
class MadeClass:
    """A class of objects that exist when the program runs (`boxes.py`). `layout`: what all of them have in common, None
    while the first one is looked at."""

    name: str
    layout: Layout | None = None


def layout_of(value: v.Abstract, shared: frozenset[Value] | None = None) -> Layout:
    """The layout of a value. With `shared`, leaves that are among these values are not passed."""
    return _layout_of(value, shared, {})


def _layout_of(value: v.Abstract, shared: frozenset[Value] | None, seen: dict[int, int]) -> Layout:
    """`seen`: the objects so far, by identity, with their positions."""

    def many(xs: tuple[v.Abstract, ...]) -> tuple[Layout, ...]:
        return tuple(_layout_of(x, shared, seen) for x in xs)

    match value:
        case v.Record(kind="object") if id(value) in seen:
            return AliasLayout(seen[id(value)])
        case v.Static():
            return HeldLayout(static_key(value.value), value)
        case v.Leaf(operand=operand, classes=classes, numpy=numpy):
            if shared is not None and (operand in shared if isinstance(operand, Value) else operand.constant >= 0):
                return SharedLayout(operand, numpy)
            number = isinstance(operand.type, Array) and operand.type.is_scalar
            return LeafLayout(operand.type, classes, numpy is True and not number)
        case v.Optional(value=inner, unset=unset):
            return OptionalLayout(_layout_of(inner, shared, seen), unset)
        case v.Record(kind, keys, items, cls, treedef):
            found = RecordLayout(kind, keys, many(items), cls, treedef)
            if kind == "object":
                seen[id(value)] = len(seen)
            return found
        case v.Listing(elem=elem, array=array, is_tuple=is_tuple):
            return ListingLayout(elem, array, is_tuple)
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
            method, bound = many((function, receiver))
            return MethodLayout(method, bound, name)
        case v.Choice(alternatives=alternatives):
            return ChoiceLayout(many(alternatives))
        case v.MemoryRow(heap=heap, null=null, own=own, bound=bound):
            return RowLayout(heap, null, own, bound)
        case v.Unset(name):
            return UnsetLayout(name)
        case v.Lazy() | v.Generator():
            raise NotStored(value)


def holds_containers(layout: Layout) -> bool:
    """Is it, or has it a part that is, a list, dict, set or tuple as a value?"""
    match layout:
        case ListingLayout() | RecordLayout(kind="list" | "dict" | "table" | "tuple"):
            return True
        case RecordLayout(items=items):
            return any(map(holds_containers, items))
        case OptionalLayout(value=inner):
            return holds_containers(inner)
        case HeldLayout(value=held):
            return isinstance(held.value, set) or container_kind(held.value) is not None
        case _:
            return False


def without_functions(layout: Layout, nodes: Collection[ast.AST]) -> Layout | None:
    """The layout without the functions of these texts, where it is a choice; None where it has such a one else."""
    match layout:
        case FunctionLayout(source=source, defaults=defaults, captured=captured):
            fresh = source.node not in nodes and all(without_functions(x, nodes) == x for x in (*defaults, *captured))
            return layout if fresh else None
        case ChoiceLayout(alternatives=alternatives):
            left = tuple(x for x in (without_functions(x, nodes) for x in alternatives) if x is not None)
            return replace(layout, alternatives=left) if len(left) > 1 else next(iter(left), None)
        case RecordLayout(items=items):
            parts = [without_functions(x, nodes) for x in items]
            held = tuple(x for x in parts if x is not None)
            return replace(layout, items=held) if len(held) == len(parts) else None
        case OptionalLayout(value=part) | MethodLayout(function=part):
            return layout if without_functions(part, nodes) == part else None
        case _:
            return layout


class NotStored(Exception):
    """A lazy sequence has no layout: the caller makes a list of it first."""


def leaves(value: v.Abstract, shared: frozenset[Value] | None = None) -> list[Operand]:
    """The operands of a value, in the order of its layout."""
    return list(_leaves(value, shared, set()))


def _leaves(value: v.Abstract, shared: frozenset[Value] | None, seen: set[int]) -> Iterator[Operand]:
    if id(value) in seen:
        return
    for part in _parts_of(value):
        if isinstance(part, Value | Literal):
            if not (isinstance(value, v.Leaf) and isinstance(layout_of(value, shared), SharedLayout)):
                yield part
        else:
            yield from _leaves(part, shared, seen)
    if isinstance(value, v.Record) and value.kind == "object":
        seen.add(id(value))


def _parts_of(value: v.Abstract) -> tuple[Operand | v.Abstract, ...]:
    """The operands and values that a value is put together from."""
    match value:
        case v.Leaf(operand=operand) | v.MemoryRow(operand=operand):
            return (operand,)
        case v.Optional(value=inner, missing=missing):
            return (inner, missing)
        case v.Record(items=items):
            return items
        case v.Listing(lists=lists):
            return lists
        case v.LocalFunction(defaults=defaults, captured=captured):
            return tuple(item for _, item in (*defaults, *(captured or ())))
        case v.Method(function=function, receiver=receiver):
            return (function, receiver)
        case v.Choice(index=index, alternatives=alternatives):
            return (index, *alternatives)
        case _:
            return ()


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
        case RowLayout():
            yield INT
        case SharedLayout() | HeldLayout() | UnsetLayout() | AliasLayout():
            return


def list_types(elem: Layout) -> tuple[Type, ...]:
    """The element types of the lists that hold elements of a layout; static elements leave a list of their length."""
    return leaf_types(elem) or (jax_compat.type_of(0),)


def rebuild(layout: Layout, operands: Iterator[Operand]) -> v.Abstract:
    """The value with that layout whose leaves are the next operands."""
    return _rebuild(layout, operands, [])


def _rebuild(layout: Layout, operands: Iterator[Operand], made: list[v.Abstract]) -> v.Abstract:
    """`made`: the objects so far."""

    def many(xs: tuple[Layout, ...]) -> tuple[v.Abstract, ...]:
        return tuple(_rebuild(x, operands, made) for x in xs)

    match layout:
        case LeafLayout(classes=classes, numpy=numpy):
            return v.Leaf(next(operands), classes, numpy)
        case SharedLayout(operand=operand, numpy=numpy):
            return v.Leaf(operand, numpy=numpy)
        case HeldLayout(value=value):
            return value
        case OptionalLayout(value=inner, unset=unset):
            present = _rebuild(inner, operands, made)
            return v.Optional(present, next(operands), unset)
        case RecordLayout(kind, keys, items, cls, treedef):
            record = v.Record(kind, keys, many(items), cls, treedef)  # type: ignore[arg-type]
            if kind == "object":
                made.append(record)
            return record
        case ListingLayout(elem=elem, array=array, is_tuple=is_tuple):
            return v.Listing(tuple(next(operands) for _ in list_types(elem)), elem, array, is_tuple)
        case FunctionLayout(source, default_names, defaults, names, captured):
            given = tuple(zip(default_names, many(defaults), strict=True))
            caught = many(captured)
            return v.LocalFunction(source, given, None if names is None else tuple(zip(names, caught, strict=True)))
        case MethodLayout(function, receiver, name):
            method, bound = many((function, receiver))
            return v.Method(method, bound, name)
        case ChoiceLayout(alternatives=alternatives):
            index = next(operands)
            return v.Choice(index, many(alternatives))
        case RowLayout(heap=heap, null=null, own=own, bound=bound):
            classes = None if bound is None else frozenset(map(heap.whole.members.index, bound))
            return v.MemoryRow(next(operands), heap, null, classes, own, bound)
        case UnsetLayout(name=name):
            return v.Unset(name)
        case AliasLayout(position=position):
            return made[position]


def leaf_type(layout: Layout) -> Type | None:
    """The type of a leaf; None for what is not one."""
    return _type(layout) if isinstance(layout, LeafLayout | SharedLayout) else None


def is_numpy(layout: Layout) -> bool:
    """May it be an array of NumPy?"""
    return isinstance(layout, LeafLayout | SharedLayout) and layout.numpy is True


def is_none(layout: Layout) -> bool:
    return isinstance(layout, HeldLayout) and layout.value.value is None


def _type(layout: LeafLayout | SharedLayout) -> Type:
    return layout.type if isinstance(layout, LeafLayout) else layout.operand.type


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


def enum_class(type: Tag) -> Any:
    """The enum whose members a tag stands for; None for strings."""
    if type.vocabulary == "str":
        return None
    return next((c for c in _enums(enum.Enum) if f"{c.__module__}.{c.__qualname__}" == type.vocabulary), None)


def _enums(root: type[enum.Enum]) -> Iterator[type[enum.Enum]]:
    for cls in reversed(root.__subclasses__()):
        yield cls
        yield from _enums(cls)


def is_object(value: Any) -> bool:
    """Is a static value an object of a class of the user's, with attributes of its own?"""
    return not isinstance(value, type) and not callable(value) and bool(getattr(value, "__dict__", None))


def type_name(value: v.Abstract) -> str:
    """What Python calls the type of a value, for messages: 'float', 'list', 'Node', 'float32[3]'."""
    match value:
        case v.Static(value=held):
            return type(held).__name__
        case v.Leaf(operand=operand):
            return name_of_type(operand.type)
        case v.Optional(value=inner):
            return f"{type_name(inner)} or None"
        case v.Record(kind=kind, cls=cls):
            return kind if cls is None else cls.__name__
        case v.Listing(array=array, is_tuple=is_tuple):
            return "array" if array else "tuple" if is_tuple else "list"
        case v.Lazy(is_tuple=is_tuple):
            return "tuple" if is_tuple else "list"
        case v.MemoryRow(heap=heap):
            return heap.name
        case v.Choice(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(type_name, alternatives)))
        case v.LocalFunction() | v.Method():
            return "function"
        case _:
            return type(value).__name__.lower()


def is_python(type: Type) -> bool:
    """The type of a Python number or bool, in contrast to that of an array."""
    return isinstance(type, Array) and type.is_scalar and (type.weak or type.is_bool)


def name_of_type(type: Type) -> str:
    """The same for a type."""
    match type:
        case Array(dtype=dtype, shape=()) if is_python(type):
            return dtype.rstrip("0123456789")
        case Array(dtype=dtype, shape=shape):
            return f"{dtype}{list(shape) if shape else ''}"
        case Tag(vocabulary=name):
            return name.rpartition(".")[2]
        case List():
            return "list"
        case Ref(store=store):
            return store
        case _:
            return str(type)


SHOWN = 4
"""Parts of a layout that its description shows."""


def describe(layout: Layout) -> str:
    """A layout in words, for messages."""
    match layout:
        case LeafLayout(type=type):
            return str(type)
        case SharedLayout(operand=operand):
            return str(operand.type)
        case HeldLayout(value=value):
            if is_object(value.value):
                return f"an object of {value.value.__class__.__name__} that all examples share"
            if inputs(value.value):
                return f"the {value.value.__class__.__name__} that is an argument"
            return f"the constant {value.value!r:.60}"
        case OptionalLayout(value=inner):
            return f"{describe(inner)} or None"
        case RecordLayout(kind, keys, items, cls, _):
            name = cls.__name__ if cls is not None else kind
            shown = [f"{k}: {describe(i)}" for k, i in zip(keys, items[:SHOWN], strict=False)]
            rest = [f"and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
            return f"{name}({', '.join([*shown, *rest])})"
        case ListingLayout(elem=elem, is_tuple=is_tuple):
            return f"{'tuple' if is_tuple else 'list'} of {describe(elem)}"
        case FunctionLayout(source=source):
            return f"the function {source.name}"
        case MethodLayout(name=name):
            return f"the method {name}"
        case ChoiceLayout(alternatives=alternatives):
            return " or ".join(describe(x) for x in alternatives)
        case RowLayout(heap=heap, null=null):
            return f"{heap.name} or None" if null else heap.name
        case UnsetLayout(name=name):
            return f"{name}, which is not set"
        case AliasLayout():
            return "the same object"
