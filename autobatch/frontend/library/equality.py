"""`==` of objects whose class compares field by field, as `dataclass` makes it: in Python's words, compiled like any
function of the user.

    a == b     ->     a is b  or  (b is a Node  and  a.x == b.x  and  a.left == b.left)
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

import jax.numpy as jnp

from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import attribute, class_list, classes_of, is_class, is_none
from autobatch.frontend.lowering.branches import truth
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import present, refuse_made, traced
from autobatch.frontend.lowering.selection import is_function
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.rebinding import without_memory
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind, is_namedtuple
from autobatch.frontend.types.unify import is_static_set, sort_of
from autobatch.frontend.types.values import layout_of
from autobatch.ir.core import BOOL, INT, ORIGIN, STR, List, Ref
from autobatch.ir.ops import own


def compares_fields(cls: type | None) -> bool:
    """Has `dataclass` made its `__eq__`?"""
    return _is_generated(cls, "__eq__")


def _is_generated(cls: type | None, name: str, wrapped: bool = False) -> bool:
    """Has `dataclass` made this method, which has no text then? `wrapped`: it is inside another function."""
    if cls is None or not dataclasses.is_dataclass(cls):
        return False
    method = inspect.getattr_static(cls, name, None)
    method = inspect.unwrap(method) if wrapped and method is not None else method
    return isinstance(method, types.FunctionType) and method.__code__.co_filename == "<string>"


def object_class(value: v.Abstract) -> type | None:
    """The class of an object that is built in the function."""
    if isinstance(value, v.MemoryRow):
        return value.heap.members[0] if len(value.heap.members) == 1 else None
    return value.cls if isinstance(value, v.Record) and value.kind == "object" else None


def _is_object(value: v.Abstract) -> bool:
    return object_class(value) is not None or (isinstance(value, v.Leaf) and isinstance(value.type, Ref))


def equal_objects(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """`a == b` where one of them is an object of the examples, or of a class that compares its fields; None where it is
    not this that decides."""
    for x in (a, b):
        refuse_made(s, x)
    if not isinstance(a, v.Leaf) or not isinstance(a.type, Ref):
        a, b = b, a
    if isinstance(a, v.Leaf) and isinstance(a.type, Ref):
        if not any(compares_fields(class_list(s, a.type)[c].cls) for c in classes_of(s, a)):
            return None
        return _of_examples(s, a, b) if _is_object(b) else v.Static(False)
    if isinstance(a, v.MemoryRow) and len(a.heap.members) > 1:
        there = replace(a, null=False)
        return conditional(
            s,
            heaps.missing(s, a),
            lambda t: _is_none(t, b),
            lambda t: list_heap.by_class(t, there, lambda u, one, cls: _equal_rows(u, one, b, cls)),
        )
    cls = object_class(a)
    if cls is not None and (compares_fields(cls) or is_namedtuple(cls)):
        return s.call(v.Static(fields_equal(cls)), [a, b])
    plain = isinstance(a, v.MemoryRow) and inspect.getattr_static(cls, "__eq__", None) is object.__eq__
    return heaps.same(s, a, b) if plain else None


# ---- tuples, dicts and sets of several forms
#
# Of those of the examples and in memory the class says what there is to compare. Two of them are compared by a function
# that may call itself, as they may be trees.


def equal_containers(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """`a == b` where one of them is a container of the examples, or a record in memory, and the other one a container;
    None elsewhere."""
    for x, y in ((a, b), (b, a)):
        if _has_classes(x) and _is_built(y):
            return _equal_parts(s, x, y)
        if _has_classes(x) and _is_container(s, y):
            return s.call(v.Static(_same_containers), [x, y])
        if list_heap.is_record_row(x) and sort_of(layout_of(y)) in ("number", STR.vocabulary):
            return v.Static(False)
    return None


def _same_containers(a: Any, b: Any) -> Any:
    """Lowered like a function of the user."""
    return _same_parts(a, b)


def _same_parts(a: Any, b: Any) -> Any:
    """Stands for the comparison of two containers, class by class."""
    raise NotImplementedError


def _identity(s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract:
    """`id(x)`: a number that no other object of the example has. That of an object in memory says which of the memories
    that is, one of the examples which store."""
    (held,) = args
    x = present(s, held)
    if isinstance(x, v.Static):
        return v.Static(id(x.value))
    if isinstance(x, v.Leaf) and isinstance(x.type, Ref | List) and x.type.store is not None:
        stores = [*(y.name for y in s.context.schema.stores), *(y.name for y in s.context.schema.lists)]
        row, place = v.Leaf(s.apply(own("row"), (x.operand,), INT)), stores.index(x.type.store)
        return traced(s, _number_of_given, row, v.Static(place), v.Static(len(stores)))
    if not isinstance(x, v.MemoryRow):
        cure = "compare with `is`, or number the objects yourself"
        raise without_memory(s, [x], "id() of a value that is no object in memory cannot be compiled", cure)
    heap = x.heap.whole
    if heap.is_list:
        s.context.rules.tell_apart(s, heap)
    origin = (heap.adopts and heaps.field(s, x, ORIGIN)) or heaps.NO_ORIGIN
    known = heaps.heaps_of(s)
    return traced(s, _number_of_row, v.Leaf(x.operand), origin, v.Static(known.index(heap)), v.Static(len(known)))


def _number_of_given(row: Any, store: Any, stores: Any) -> Any:
    return jnp.where(row < 0, 0, -(row * stores + store) - 1)


def _number_of_row(row: Any, origin: Any, heap: Any, heaps: Any) -> Any:
    made = jnp.where(origin < 0, 2 * row, 2 * origin + 1)
    return jnp.where(row < 0, 0, made * heaps + heap + 1)


MARKS = {_same_parts: lambda s, args, kwargs: _equal_parts(s, *args), id: _identity}


def _is_built(value: v.Abstract) -> bool:
    """Is it a tuple, a NamedTuple, a dict or a set that is no value of the examples, and not in memory?"""
    if isinstance(value, v.Static):
        return container_kind(value.value) is not None or is_static_set(value)
    return isinstance(value, v.Record) and value.kind != "object"


def _has_classes(value: v.Abstract) -> TypeGuard[v.Leaf | v.MemoryRow]:
    return list_heap.is_record_row(value) or (isinstance(value, v.Leaf) and isinstance(value.type, Ref))


def _is_container(s: LoweringState, value: v.Abstract) -> bool:
    """Is it a container, whatever class it has?"""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return list_heap.is_record_row(value)
    kinds = class_list(s, value.type)
    return all(kinds[k].kind not in ("object", "value") for k in classes_of(s, value))


def _equal_parts(s: LoweringState, a: v.Leaf | v.MemoryRow, b: v.Abstract) -> v.Abstract:
    """Is one of the examples, or in memory, equal to another one? Class by class; None equals None alone."""

    def equal_to_b(t: LoweringState, parts: v.Abstract | None) -> v.Abstract:
        return v.Static(False) if parts is None else t.call(v.Static(operator.eq), [parts, b])

    if isinstance(a, v.MemoryRow):
        there = replace(a, null=False)
        by_class = lambda t: list_heap.by_class(t, there, lambda u, one, cls: equal_to_b(u, list_heap.opened(u, one)))
        return conditional(s, heaps.missing(s, a), lambda t: _is_none(t, b), by_class)

    def of(t: LoweringState, classes: Sequence[int]) -> v.Abstract:
        if not classes:
            return _is_none(t, b)
        first, *others = classes
        there, narrowed = is_class(t, a.operand, frozenset([first])), replace(a, classes=frozenset([first]))
        return conditional(t, there, lambda u: equal_to_b(u, unions.parts(u, narrowed)), lambda u: of(u, others))

    return of(s, sorted(classes_of(s, a)))


# ---- orders


def ordered(s: LoweringState, a: v.Abstract, b: v.Abstract, method: str) -> v.Abstract | None:
    """`a < b` and its like by the fields, where `dataclass(order=True)` has made this method; None elsewhere."""
    cls = _class(s, a)
    if method not in _ORDERINGS or cls is None or not _is_generated(cls, method):
        return None
    other = object_class(b)
    if other is not None and other is not cls:
        s.refuse(f"{_ORDERINGS[method]!r} of {cls.__name__} and {other.__name__}", "compare objects of one class alone")
    return s.call(v.Static(fields_ordered(cls, method)), [a, b])


def _class(s: LoweringState, a: v.Abstract) -> type | None:
    """The class of an object, where it is known."""
    if isinstance(a, v.Leaf) and isinstance(a.type, Ref) and len(held := classes_of(s, a)) == 1:
        return class_list(s, a.type)[min(held)].cls
    return object_class(a)


def key(s: LoweringState, a: v.Abstract) -> v.Abstract | None:
    """What objects are sorted by whose class has its order from `dataclass(order=True)`; None for others."""
    cls = _class(s, a)
    if cls is None or not _is_generated(cls, "__lt__"):
        return None
    return s.call(v.Static(fields_as_key(cls)), [a])


def have_no_order(s: LoweringState, method: str, a: v.Abstract, b: v.Abstract) -> str | None:
    """What Python says to the order of two objects whose classes have none; None for other values."""
    names = [_without(s, x, method) for x in (a, b)]
    if None in names:
        return None
    return f"{_ORDERINGS[method]!r} not supported between instances of {names[0]!r} and {names[1]!r}"


def _without(s: LoweringState, x: v.Abstract, method: str) -> str | None:
    """The name of the class of an object that does not have a method."""
    if is_function(x):
        return "method" if isinstance(x, v.Method) else "function"
    cls = object_class(x)
    if isinstance(x, v.Leaf) and isinstance(x.type, Ref):
        classes = class_list(s, x.type)
        held = sorted(classes_of(s, x)) or range(len(classes))
        cls = classes[held[0]].cls if all(classes[k].kind == "object" for k in held) else None
    if cls is None or getattr(cls, method) is not getattr(object, method):
        return None
    return cls.__name__


def _equal_rows(s: LoweringState, a: v.MemoryRow, b: v.Abstract, cls: type) -> v.Abstract:
    """`a == b` of an object in memory, which is of this class."""
    if compares_fields(cls) or is_namedtuple(cls):
        return s.call(v.Static(fields_equal(cls)), [a, b])
    if inspect.getattr_static(cls, "__eq__", None) is not object.__eq__:
        s.refuse(
            f"`==` of an object that may be {cls.__name__} or of another class, and says itself what it equals",
            "compare the fields that matter, or test `a is b`",
        )
    return heaps.same(s, a, b)


def _of_examples(s: LoweringState, a: v.Leaf, b: v.Abstract) -> v.Abstract:
    """An object of the examples by its class; None equals None alone."""
    null = is_none(s, a.operand)
    return conditional(s, null, lambda t: _is_none(t, b), lambda t: _by_class(t, a, b, sorted(classes_of(t, a))))


def _is_none(s: LoweringState, b: v.Abstract) -> v.Abstract:
    if isinstance(b, v.MemoryRow):
        return v.Leaf(heaps.missing(s, b))
    if isinstance(b, v.Static):
        return v.Static(b.value is None)
    if isinstance(b, v.Leaf) and isinstance(b.type, Ref):
        found = is_none(s, b.operand)
        known = s.block.truth(found)
        return v.Leaf(found) if known is None else v.Static(known)
    return v.Static(False)


def _by_class(s: LoweringState, a: v.Leaf, b: v.Abstract, classes: list[int]) -> v.Abstract:
    assert isinstance(a.type, Ref)
    first, *rest = classes
    cls = class_list(s, a.type)[first].cls

    def this(t: LoweringState) -> v.Abstract:
        return _of_class(t, v.Leaf(a.operand, frozenset([first])), b, cls)

    if not rest:
        return this(s)
    return conditional(s, is_class(s, a.operand, frozenset([first])), this, lambda t: _by_class(t, a, b, rest))


def _of_class(s: LoweringState, a: v.Leaf, b: v.Abstract, cls: type | None) -> v.Abstract:
    if cls is not None and compares_fields(cls):
        return s.call(v.Static(fields_equal(cls)), [a, b])
    method = inspect.getattr_static(cls, "__eq__", None) if cls is not None else None
    if inspect.isfunction(method):
        return s.call(attribute(s, a, "__eq__"), [b])
    if method is object.__eq__:
        same = isinstance(b, v.Leaf) and b.type == a.type
        return v.Leaf(s.apply(own("same"), (a.operand, b.operand), BOOL)) if same else v.Static(False)  # type: ignore[union-attr]
    s.refuse(
        "`==` of two objects of the examples cannot be compiled where one may be a container",
        "compare the fields that matter, or test `a is b`",
    )


_ORDERINGS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


@lru_cache(maxsize=512)
def fields_ordered(cls: type, method: str) -> Any:
    """A function with source, that says what such a method of a dataclass does."""
    names = [f.name for f in dataclasses.fields(cls) if f.compare]
    mine, others = (f"({''.join(f'{x}.{n}, ' for n in names)})" for x in ("self", "other"))
    return _function(cls, method, f"def ordered(self, other):\n    return {mine} {_ORDERINGS[method]} {others}\n")


@lru_cache(maxsize=512)
def fields_as_key(cls: type) -> Any:
    """A function with source, that gives the fields which the order of a dataclass compares."""
    names = "".join(f"self.{f.name}, " for f in dataclasses.fields(cls) if f.compare)
    return _function(cls, "key", f"def key(self):\n    return ({names})\n")


@lru_cache(maxsize=512)
def fields_shown(cls: type) -> Any:
    """A function with source, that says what the `__repr__` of a dataclass or a NamedTuple does; None for others."""
    if is_namedtuple(cls):
        names = list(getattr(cls, "_fields", ()))
    elif _is_generated(cls, "__repr__", wrapped=True):
        names = [f.name for f in dataclasses.fields(cls) if f.repr]
    else:
        return None
    shown = ", ".join(f"{n}={{self.{n}!r}}" for n in names)
    return _function(cls, "__repr__", f"def shown(self):\n    return f{f'{cls.__qualname__}({shown})'!r}\n")


@lru_cache(maxsize=512)
def fields_equal(cls: type) -> Any:
    """A function with source, that says what the `__eq__` of a dataclass or a NamedTuple does."""
    names = (
        getattr(cls, "_fields", ()) if is_namedtuple(cls) else [f.name for f in dataclasses.fields(cls) if f.compare]
    )
    parts = " and ".join(f"self.{n} == other.{n}" for n in names) or "True"
    text = f"def equal(self, other):\n    return self is other or (isinstance(other, cls) and {parts})\n"
    return _function(cls, "__eq__", text)


def _function(cls: type, method: str, text: str) -> Any:
    """The function of this text, in which `cls` is the class."""
    file = f"<{cls.__module__}.{cls.__qualname__}.{method} {id(cls)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names_of_function: dict[str, Any] = {"cls": cls}
    exec(compile(text, file, "exec"), names_of_function)
    return next(f for f in names_of_function.values() if isinstance(f, types.FunctionType))


# ---- lexicographic
#
# The order of tuples and lists: that of their first elements that differ.
#
# Objects whose classes have no order may stand in them, as in heaps of `(score, count, node)`: an example fails where
# two such objects, or functions, decide. It fails too where they are two that `==` calls equal: to compare the fields
# of whole trees would take more than the heap does.


Compared = Callable[[LoweringState, v.Abstract, v.Abstract], v.Abstract]


class Comparison(NamedTuple):
    """A comparison, by its function in `operator` and the name of its method; how elements are compared: by `==`, `is`
    and an order."""

    function: Callable[..., Any]
    method: str
    equal: Compared
    same: Compared
    ordered: Callable[[LoweringState, Callable[..., Any], v.Abstract, v.Abstract], v.Abstract]


def lexicographic(
    s: LoweringState, order: Comparison, xs: Sequence[v.Abstract], ys: Sequence[v.Abstract]
) -> v.Abstract:
    """Elements are ordered where all in front of them are equal."""
    if not xs or not ys:
        return v.Static(order.function(len(xs), len(ys)))
    words = have_no_order(s, order.method, xs[0], ys[0])

    def differing(t: LoweringState) -> v.Abstract:
        if words is None:
            return order.ordered(t, order.function, xs[0], ys[0])
        t.check(t.scalar(False), "TypeError", words)
        return v.Static(False)

    if words is None:
        same = truth(s, order.equal(s, xs[0], ys[0]))
    else:
        same = not is_function(xs[0]) and truth(s, order.same(s, xs[0], ys[0]))
    if isinstance(same, bool):
        return lexicographic(s, order, xs[1:], ys[1:]) if same else differing(s)
    return conditional(s, same, lambda t: lexicographic(t, order, xs[1:], ys[1:]), differing)


# ---- lists whose lengths are data: lowered like functions of the user


def _less(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x < y
    return len(xs) < len(ys)


def _at_most(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x <= y
    return len(xs) <= len(ys)


def _greater(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x > y
    return len(xs) > len(ys)


def _at_least(xs: Any, ys: Any) -> Any:
    for x, y in zip(xs, ys):  # noqa: B905
        if x != y:
            return x >= y
    return len(xs) >= len(ys)


_OF_LISTS: dict[Any, Callable[..., Any]] = {
    operator.lt: _less,
    operator.le: _at_most,
    operator.gt: _greater,
    operator.ge: _at_least,
}


def of_lists(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """The order of two lists, or two tuples, of any length."""
    return s.call(v.Static(_OF_LISTS[function]), [a, b])
