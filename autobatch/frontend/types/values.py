"""What the front end knows about a Python value while it lowers a function: abstract values, and their types.

A value is *static* (a Python object known while compiling), a *leaf* of the program (number, tag, reference, list), or
built from other values (tuple, dict, dataclass, bound method, local function). Only leaves exist in the IR.

Values cross a join, a loop, or a call as operands, one for each leaf. Their types are layouts: `layout_of` says which
leaves a value has, `leaves` lists them, `rebuild` is the inverse, `unify` finds the layout that two values have in
common.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from autobatch.common.record import record
from autobatch.errors import Span
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.types.statics import Kind, container_kind, inputs, static_key
from autobatch.ir import jax_compat
from autobatch.ir.core import BOOL, INT, Array, List, Literal, Operand, Ref, Tag, Type, Value
from autobatch.ir.ops import same_constant

if TYPE_CHECKING:
    from autobatch.frontend.memory.heap import Heap
    from autobatch.frontend.syntax.sources import FunctionSource


# ---- values


@record
class FreeOrigin:
    """Where a free value was read: `owner` is the function, `name` the variable, `path` the way from there."""

    owner: Any
    name: str
    path: tuple[Any, ...] = ()

    def child(self, key: Any) -> FreeOrigin:
        return FreeOrigin(self.owner, self.name, (*self.path, key))


@record
class Static:
    """A Python object known while compiling. It may hold `Input` leaves (shared parameters)."""

    value: Any
    origin: FreeOrigin | None = field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        return same_constant(self.value, other.value) if isinstance(other, Static) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)


@record
class Leaf:
    """A number, array, tag, reference or list of the program. `classes` narrows a reference that a method was called
    on to the positions of the classes which have that method. `numpy`: is it an array of NumPy, whose indices fail
    where they are out of range? None: no, whatever the arguments of the call are."""

    operand: Operand
    classes: frozenset[int] | None = None
    numpy: bool | None = None

    @property
    def type(self) -> Type:
        return self.operand.type


@record
class Optional:
    """A value that is None (or, for `unset`, not assigned) where `missing` is true; any other use checks that."""

    value: Abstract
    missing: Operand
    unset: str = ""


@record
class Record:
    """A container built in the function, or an argument that holds batched leaves."""

    kind: Kind
    keys: tuple[Any, ...]
    items: tuple[Abstract, ...]
    cls: type | None = None
    treedef: Any = None

    def get(self, key: Any) -> Abstract | None:
        return dict(zip(self.keys, self.items, strict=True)).get(key)


@record
class Listing:
    """A list made by a comprehension: one IR list for each leaf of its elements, all of one length. `array`: it was
    stacked, and behaves as an array whose first axis is as long as the list. `is_tuple`: it is a tuple, which behaves
    as a list that nobody changes."""

    lists: tuple[Operand, ...]
    elem: Layout
    array: bool = False
    is_tuple: bool = False

    @property
    def cls(self) -> type:
        return tuple if self.is_tuple else list


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """A sequence that is not stored: `range`, `enumerate`, `zip`, `reversed`, slices, rows of arrays. `item` takes an
    index already known to be in range. `live`: how long it is at another point of the program; None: always so long.
    `dicts`: those in memory that it runs over, whose keys a loop over it may not change. `is_tuple`: it is a part of a
    tuple, and a tuple where it is stored; `is_list`: of a list, and so a list of its own. `range`: start, stop and
    step, where it is one."""

    length: Abstract
    item: Callable[[Any, Abstract], Abstract]
    live: Callable[[Any], Abstract] | None = None
    dicts: tuple[MemoryRow, ...] = ()
    is_tuple: bool = False
    is_list: bool = False
    range: tuple[Abstract, Abstract, Abstract] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """What a call of a generator function gives: nothing of it has run. A loop over it runs inside its text
    (`generators.py`). `captured`: as in `LocalFunction`; `local`: was it one?"""

    source: FunctionSource
    arguments: tuple[tuple[str, Abstract], ...]
    captured: tuple[tuple[str, Abstract], ...] | None = None
    local: bool = False


@record
class LocalFunction:
    """A `def` or `lambda` inside a lowered function. `captured` are the enclosing variables it reads (None: not
    captured yet, it belongs to the scope at hand)."""

    source: FunctionSource
    defaults: tuple[tuple[str, Abstract], ...]
    captured: tuple[tuple[str, Abstract], ...] | None = None


@record
class Method:
    """A function bound to its first argument."""

    function: Abstract
    receiver: Abstract
    name: str = ""


@record
class Choice:
    """One of several values that do not fit into one type (functions in a table), picked by an integer."""

    index: Operand
    alternatives: tuple[Abstract, ...]


@record
class MemoryRow:
    """An object of the memory that each example has for itself: its row there (`heap.py`), below zero where it is None.
    `null`: may it be? `classes`: those that it may have, as positions in the memory's; None: any of them. `own`: is it
    a list that the function has made, and so no copy of one of the examples? `bound`: the classes that it may have, as
    a method of some was read of it: calls hand that on, which they do not `classes`."""

    operand: Operand
    heap: Heap
    null: bool = False
    classes: frozenset[int] | None = None
    own: bool = False
    bound: frozenset[type] | None = None


@record
class Unset:
    """A variable that no path so far has assigned."""

    name: str = ""


Abstract = (
    Static | Leaf | Optional | Record | Listing | Lazy | Generator | LocalFunction | Method | Choice | MemoryRow | Unset
)


@record
class BoundVariable:
    """A variable: its value and where it was assigned."""

    value: Abstract
    span: Span


SUPER = "<super>"
"""The name of a `Method` that stands for `super()`: `function` is the class whose bases are searched."""

DEFERRED = "<deferred>"
"""The name of a `Method` that stands for `function(*receiver)`, a transform of JAX whose result is called later."""


def not_set(name: str) -> str:
    """What an example fails with that reads a variable which no path before has set."""
    return (
        f"the variable {shown(name)!r} is not set on the path that this example takes; set it before the branch or loop"
    )


# ---- layouts: the types of values


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
    value: Static

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
    """A class of objects that exist when the program runs (`results.py`). `layout`: what all of them have in common,
    None while the first one is looked at."""

    name: str
    layout: Layout | None = None


def layout_of(value: Abstract, shared: frozenset[Value] | None = None) -> Layout:
    """The layout of a value. With `shared`, leaves that are among these values are not passed."""
    return _layout_of(value, shared, {})


def _layout_of(value: Abstract, shared: frozenset[Value] | None, seen: dict[int, int]) -> Layout:
    """`seen`: the objects so far, by identity, with their positions."""

    def many(xs: tuple[Abstract, ...]) -> tuple[Layout, ...]:
        return tuple(_layout_of(x, shared, seen) for x in xs)

    match value:
        case Record(kind="object") if id(value) in seen:
            return AliasLayout(seen[id(value)])
        case Static():
            return HeldLayout(static_key(value.value), value)
        case Leaf(operand=operand, classes=classes, numpy=numpy):
            if shared is not None and (operand in shared if isinstance(operand, Value) else operand.constant >= 0):
                return SharedLayout(operand, numpy)
            number = isinstance(operand.type, Array) and operand.type.is_scalar
            return LeafLayout(operand.type, classes, numpy is True and not number)
        case Optional(value=inner, unset=unset):
            return OptionalLayout(_layout_of(inner, shared, seen), unset)
        case Record(kind, keys, items, cls, treedef):
            found = RecordLayout(kind, keys, many(items), cls, treedef)
            if kind == "object":
                seen[id(value)] = len(seen)
            return found
        case Listing(elem=elem, array=array, is_tuple=is_tuple):
            return ListingLayout(elem, array, is_tuple)
        case LocalFunction(source, defaults, captured):
            names = None if captured is None else tuple(n for n, _ in captured)
            return FunctionLayout(
                source,
                tuple(n for n, _ in defaults),
                many(tuple(x for _, x in defaults)),
                names,
                many(tuple(x for _, x in captured or ())),
            )
        case Method(function, receiver, name):
            method, bound = many((function, receiver))
            return MethodLayout(method, bound, name)
        case Choice(alternatives=alternatives):
            return ChoiceLayout(many(alternatives))
        case MemoryRow(heap=heap, null=null, own=own, bound=bound):
            return RowLayout(heap, null, own, bound)
        case Unset(name):
            return UnsetLayout(name)
        case Lazy() | Generator():
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


def leaves(value: Abstract, shared: frozenset[Value] | None = None) -> list[Operand]:
    """The operands of a value, in the order of its layout."""
    return list(_leaves(value, shared, set()))


def _leaves(value: Abstract, shared: frozenset[Value] | None, seen: set[int]) -> Iterator[Operand]:
    if id(value) in seen:
        return
    for part in _parts_of(value):
        if isinstance(part, Value | Literal):
            if not (isinstance(value, Leaf) and isinstance(layout_of(value, shared), SharedLayout)):
                yield part
        else:
            yield from _leaves(part, shared, seen)
    if isinstance(value, Record) and value.kind == "object":
        seen.add(id(value))


def _parts_of(value: Abstract) -> tuple[Operand | Abstract, ...]:
    """The operands and values that a value is put together from."""
    match value:
        case Leaf(operand=operand) | MemoryRow(operand=operand):
            return (operand,)
        case Optional(value=inner, missing=missing):
            return (inner, missing)
        case Record(items=items):
            return items
        case Listing(lists=lists):
            return lists
        case LocalFunction(defaults=defaults, captured=captured):
            return tuple(item for _, item in (*defaults, *(captured or ())))
        case Method(function=function, receiver=receiver):
            return (function, receiver)
        case Choice(index=index, alternatives=alternatives):
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


def rebuild(layout: Layout, operands: Iterator[Operand]) -> Abstract:
    """The value with that layout whose leaves are the next operands."""
    return _rebuild(layout, operands, [])


def _rebuild(layout: Layout, operands: Iterator[Operand], made: list[Abstract]) -> Abstract:
    """`made`: the objects so far."""

    def many(xs: tuple[Layout, ...]) -> tuple[Abstract, ...]:
        return tuple(_rebuild(x, operands, made) for x in xs)

    match layout:
        case LeafLayout(classes=classes, numpy=numpy):
            return Leaf(next(operands), classes, numpy)
        case SharedLayout(operand=operand, numpy=numpy):
            return Leaf(operand, numpy=numpy)
        case HeldLayout(value=value):
            return value
        case OptionalLayout(value=inner, unset=unset):
            present = _rebuild(inner, operands, made)
            return Optional(present, next(operands), unset)
        case RecordLayout(kind, keys, items, cls, treedef):
            record = Record(kind, keys, many(items), cls, treedef)  # type: ignore[arg-type]
            if kind == "object":
                made.append(record)
            return record
        case ListingLayout(elem=elem, array=array, is_tuple=is_tuple):
            return Listing(tuple(next(operands) for _ in list_types(elem)), elem, array, is_tuple)
        case FunctionLayout(source, default_names, defaults, names, captured):
            given = tuple(zip(default_names, many(defaults), strict=True))
            caught = many(captured)
            return LocalFunction(source, given, None if names is None else tuple(zip(names, caught, strict=True)))
        case MethodLayout(function, receiver, name):
            method, bound = many((function, receiver))
            return Method(method, bound, name)
        case ChoiceLayout(alternatives=alternatives):
            index = next(operands)
            return Choice(index, many(alternatives))
        case RowLayout(heap=heap, null=null, own=own, bound=bound):
            classes = None if bound is None else frozenset(map(heap.whole.members.index, bound))
            return MemoryRow(next(operands), heap, null, classes, own, bound)
        case UnsetLayout(name=name):
            return Unset(name)
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


def type_name(value: Abstract) -> str:
    """What Python calls the type of a value, for messages: 'float', 'list', 'Node', 'float32[3]'."""
    match value:
        case Static(value=held):
            return type(held).__name__
        case Leaf(operand=operand):
            return name_of_type(operand.type)
        case Optional(value=inner):
            return f"{type_name(inner)} or None"
        case Record(kind=kind, cls=cls):
            return kind if cls is None else cls.__name__
        case Listing(array=array, is_tuple=is_tuple):
            return "array" if array else "tuple" if is_tuple else "list"
        case Lazy(is_tuple=is_tuple):
            return "tuple" if is_tuple else "list"
        case MemoryRow(heap=heap):
            return heap.name
        case Choice(alternatives=alternatives):
            return " or ".join(dict.fromkeys(map(type_name, alternatives)))
        case LocalFunction() | Method():
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
