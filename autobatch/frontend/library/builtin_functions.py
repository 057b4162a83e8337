"""Python's built-in functions, and the methods of containers and strings that read them: one entry each.

The methods that change lists and dicts are in `mutation.py`.
"""

from __future__ import annotations

import ast
import collections
import functools
import math
import operator
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from autobatch.frontend.library import sets, tables
from autobatch.frontend.library.domains import guard
from autobatch.frontend.library.graphs import packed_field, viewed
from autobatch.frontend.library.numpy_arrays import complex_of
from autobatch.frontend.library.strings import as_float, is_text, text
from autobatch.frontend.library.tables import Deque
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import (
    alternatives,
    attribute,
    class_list,
    classes_of,
    field,
    fields_of,
    forms_of,
    is_class,
    is_none,
    is_stack,
    may_be_none,
    python_class,
    written,
)
from autobatch.frontend.lowering.branches import not_expression, truth
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import conditional, stored
from autobatch.frontend.lowering.numbers import (
    integer,
    is_number,
    negate,
    operand_of,
    own_number,
    present,
    refuse_made,
    to_float,
    traced,
)
from autobatch.frontend.lowering.operators import apply_binary, compare, equal, lookup
from autobatch.frontend.lowering.reductions import extreme, ordered, product_of, reduce_sequence, sum_of
from autobatch.frontend.lowering.selection import apply_choice, is_one_of, tested
from autobatch.frontend.lowering.sequences import enumerated, length, make_range, reverse, sequence, zipped
from autobatch.frontend.lowering.state import LoweringState, UnseenInTraces, expand, fold, note
from autobatch.frontend.lowering.unions import is_list, is_word, of_sorts
from autobatch.frontend.memory import container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import SETS
from autobatch.frontend.memory.list_heap import tuple_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import need
from autobatch.frontend.types.statics import MISSING, inputs
from autobatch.frontend.types.unify import constant
from autobatch.frontend.types.values import describe, is_python, layout_of
from autobatch.ir.core import Array, List, Operand, Ref, Tag, Type, Value

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
Builtin = Callable[[LoweringState, Arguments, Named], v.Abstract]


def _range(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    args = [present(s, a) for a in args]
    zero, one = v.Static(0), v.Static(1)
    match args:
        case [stop]:
            return make_range(s, zero, stop, one)
        case [start, stop]:
            return make_range(s, start, stop, one)
        case [start, stop, step]:
            return make_range(s, start, stop, step)
    s.refuse(
        "range() takes one to three arguments", "write range(stop), range(start, stop) or range(start, stop, step)"
    )


def _len(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value = viewed(s, args[0])
    if alternatives(s, value):
        return of_sorts(s, value, lambda t, x: _len(t, (x,), {}), is_list, is_word)
    return s.call(attribute(s, value, "__len__"), []) if written(s, value, "__len__") else length(s, value)


def _enumerate(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    start = args[1] if len(args) > 1 else kwargs.get("start", v.Static(0))
    return enumerated(s, args[0], start)


def _zip(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    strict = kwargs.get("strict", v.Static(False))
    need(s, strict)
    return zipped(s, args, strict == v.Static(True))


def _reversed(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return reverse(s, args[0])


def _map(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    function, *lists = args
    found = sequence(s, zipped(s, lists, False) if len(lists) > 1 else lists[0])

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        items = list(x.items) if len(lists) > 1 and isinstance(x, v.Record) else [x]
        return True, lambda u: u.call(function, items)

    return collect(s, found, body)


def _filter(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    function, items = args
    found = sequence(s, items)

    def body(t: LoweringState, x: v.Abstract) -> tuple[Any, Callable[[LoweringState], v.Abstract]]:
        kept = x if function == v.Static(None) else t.call(function, [x])
        return truth(t, kept), lambda u: x

    return collect(s, found, body)


def _list(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if not args:
        return v.Record("list", (), ())
    found = sequence(s, args[0])
    if isinstance(found, v.Lazy):
        return s.context.rules.materialise(s, replace(found, is_tuple=False))
    return v.Record("list", tuple(range(len(found.items))), found.items)


def _tuple(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return tuple_of(_list(s, args, kwargs))


def _dict(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    made = v.Record("dict", (), ())
    for value in (*args, v.Record("dict", tuple(kwargs), tuple(kwargs.values()))):
        made = tables.updated(s, made, value)
    return made


_ARRAY_LIBRARIES = ("jax", "jaxlib", "numpy")


def _isinstance(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value, classes = args
    if not isinstance(classes, v.Static):
        classes = v.Static(tuple(c.value for c in sequence(s, classes).items if isinstance(c, v.Static)))  # type: ignore[union-attr]
    return is_instance(s, value, classes.value)


def is_instance(s: LoweringState, value: v.Abstract, classes: Any) -> v.Abstract:
    """`isinstance(value, classes)`"""
    refuse_made(s, value)
    members = _class_tuple(classes)
    if collections.deque in members:
        members += (Deque,)
    match value:
        case v.Static(value=held):
            return v.Static(isinstance(held, classes))
        case v.Optional(value=inner, missing=missing):
            whole = type(None) in members
            return conditional(s, missing, lambda t: v.Static(whole), lambda t: is_instance(t, inner, classes))
        case v.Record() | v.MemoryRow() | v.Listing() | v.Leaf() if is_stack(s, value):
            return v.Static(any(c.__module__.split(".")[0] in _ARRAY_LIBRARIES for c in members))
        case v.MemoryRow():
            return list_heap.is_instance(s, value, members)
        case v.Record(kind=kind, cls=cls):
            made = cls if cls is not None else {"tuple": tuple, "list": list, "dict": dict}[kind]
            return v.Static(any(issubclass(made, c) for c in members))
        case v.Listing(is_tuple=is_tuple) | v.Lazy(is_tuple=is_tuple):
            return v.Static(issubclass(tuple if is_tuple else list, members))
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return _is_instance_of_classes(s, value, members)
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return v.Static(_is_one(operand.type, members))
        case v.Leaf(operand=operand) if isinstance(operand.type, List) and may_be_none(s, operand.type):
            there, none = v.Static(_is_one(operand.type, members)), v.Static(type(None) in members)
            return conditional(s, is_none(s, operand), lambda t: none, lambda t: there)
        case v.Leaf():
            return v.Static(_is_one(value.type, members))
        case v.Choice():
            return tested(s, value, lambda t, x: is_instance(t, x, classes))
        case _:
            return v.Static(False)


def _class_tuple(classes: Any) -> tuple[type, ...]:
    if isinstance(classes, tuple):
        return tuple(c for x in classes for c in _class_tuple(x))
    if hasattr(classes, "__args__"):
        return tuple(c for x in classes.__args__ for c in _class_tuple(x))
    return (classes,)


def _is_instance_of_classes(s: LoweringState, value: v.Leaf, members: tuple[type, ...]) -> v.Abstract:
    assert isinstance(value.type, Ref)
    plain = {"tuple": tuple, "dict": dict, "namedtuple": tuple, "object": object}
    kinds, values = class_list(s, value.type), alternatives(s, value)
    fit = frozenset(
        k
        for k in classes_of(s, value)
        if (
            _is_one(values[k].type, members)
            if k in values
            else issubclass(kinds[k].cls or plain[kinds[k].kind], members)
        )
    )
    return _is_any(s, value, fit)


def _is_any(s: LoweringState, value: v.Leaf, fit: frozenset[int]) -> v.Abstract:
    """Is an object of the examples of one of these classes? Static where it is known."""
    if value.classes is not None and value.classes <= fit:
        return v.Static(True)
    result = is_class(s, value.operand, fit)
    known = s.block.truth(result)
    return v.Leaf(result) if known is None else v.Static(known)


def _is_one(type: Type, members: tuple[type, ...]) -> bool:
    """Is a number, string, array or list of the examples of one of these classes?"""
    return _number_is(type, members) if isinstance(type, Array) else issubclass(python_class(type), members)


def _number_is(type_: Array, members: tuple[type, ...]) -> bool:
    python = bool if type_.is_bool else int if type_.is_integer else float
    if is_python(type_):
        return any(issubclass(python, c) for c in members)
    return any(c.__module__.split(".")[0] in _ARRAY_LIBRARIES for c in members)


def _int(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if not args:
        return v.Static(0)
    value = present(s, args[0])
    if alternatives(s, value):
        return of_sorts(s, value, lambda t, x: _int(t, (x, *args[1:]), kwargs), unions.is_number, is_word)
    if is_text(value) or len(args) > 1:
        return text(s, "int", value, *args[1:])
    if isinstance(value, v.Static):
        return fold(s, int, value.value)
    x = operand_of(s, value)
    if isinstance(x.type, Array) and is_python(x.type) and (x.type.is_integer or x.type.is_bool):
        return v.Leaf(integer(s, x))
    guard(s, int, (value,))
    return own_number(s, "int", x, python=True)


def _float(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value = present(s, args[0]) if args else v.Static(0.0)
    if alternatives(s, value):
        return of_sorts(s, value, lambda t, x: _float(t, (x,), kwargs), unions.is_number, is_word)
    if is_text(value):
        return as_float(s, value)
    return fold(s, float, value.value) if isinstance(value, v.Static) else to_float(s, value)


def _bool(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return not_expression(s, not_expression(s, args[0])) if args else v.Static(False)


def _round(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value = present(s, args[0])
    digits = args[1] if len(args) > 1 else kwargs.get("ndigits", v.Static(None))
    if not isinstance(digits, v.Static):
        s.refuse("the number of digits of round() must be a constant", "write the digits as a number")
    if isinstance(value, v.Static):
        return fold(s, round, value.value, digits.value)
    x = operand_of(s, value)
    if isinstance(x.type, Array) and (x.type.is_integer or x.type.is_bool) and (digits.value or 0) >= 0:
        return v.Leaf(integer(s, x))
    if digits.value is None:
        guard(s, round, (value,))
    return own_number(s, "round", x, ndigits=digits.value)


def _abs(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value = present(s, args[0])
    if isinstance(value, v.Static) and not inputs(value.value):
        return fold(s, abs, value.value)
    if is_number(value):
        return traced(s, abs, v.Leaf(integer(s, operand_of(s, value))))
    return s.call(attribute(s, value, "__abs__"), [])


def _divmod(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if written(s, viewed(s, args[0]), "__divmod__"):
        return s.call(attribute(s, args[0], "__divmod__"), [args[1]])
    parts = (apply_binary(s, f, args[0], args[1]) for f in (operator.floordiv, operator.mod))
    return v.Record("tuple", (0, 1), tuple(parts))


def _pow(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return apply_binary(s, operator.pow, args[0], args[1])


def _sum(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    start = args[1] if len(args) > 1 else kwargs.get("start", v.Static(0))
    return sum_of(s, args[0], start, builtin=True)


def _complex(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    given = [*args, *(kwargs[name] for name in ("real", "imag") if name in kwargs)]
    if all(isinstance(x, v.Static) for x in given):
        return fold(s, complex, *(x.value for x in given if isinstance(x, v.Static)))
    if not all(is_number(present(s, x)) for x in given) or len(given) > 2 or (kwargs and "real" not in kwargs):
        s.refuse("complex() is computed of one or two numbers, the real part first", "make it so")
    return traced(s, complex_of, *(present(s, x) for x in given))


def _float_sum(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return to_float(s, sum_of(s, args[0], v.Static(0.0)))


def _product(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return product_of(s, args[0], kwargs.get("start", v.Static(1)))


def _any(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return reduce_sequence(s, args[0], "any")


def _all(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return reduce_sequence(s, args[0], "all")


def _min(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return extreme(s, args, kwargs, operator.lt)


def _max(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return extreme(s, args, kwargs, operator.gt)


def _getattr(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if not isinstance(args[1], v.Static):
        s.refuse("getattr() needs a constant name", "write the attribute")
    return attribute(s, args[0], args[1].value)


def packed(s: LoweringState, function: Any, args: Arguments) -> v.Abstract | None:
    """What `graphs.py` reads of a packed graph or matrix; None for other functions."""
    return packed_field(s, function, args, field, _has_field)


def _has_field(s: LoweringState, value: v.Leaf, name: str) -> v.Abstract:
    """Do the objects of the examples that it may be have the attribute?"""
    fit, possible = _having(s, value, name), classes_of(s, value)
    if possible <= fit or not possible & fit:
        return v.Static(bool(possible & fit))
    return v.Leaf(is_class(s, value.operand, fit))


def _having(s: LoweringState, value: v.Leaf, name: str) -> frozenset[int]:
    """The classes of objects of the examples that have an attribute."""
    assert isinstance(value.type, Ref)
    store = s.context.schema.store(value.type.store)
    return frozenset(
        k
        for k, c in enumerate(store.classes)
        if any(f.name == name and k in f.classes for f in store.fields) or hasattr(c.cls, name)
    )


def _hasattr(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value, name = args
    if not isinstance(name, v.Static):
        s.refuse("hasattr() needs a constant name", "write the name as a string")
    if isinstance(value, v.Static):
        there = hasattr(value.value, name.value)
        if not there and value.origin is not None:
            note(s.context, value.origin.child(("attribute", name.value)), MISSING)
        return v.Static(there)
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        return _is_any(s, value, _having(s, value, name.value))
    match value:
        case v.Optional(value=inner, missing=missing):
            absent = lambda t: v.Static(hasattr(None, name.value))
            return conditional(s, missing, absent, lambda t: _hasattr(t, (inner, name), {}))
        case v.MemoryRow(heap=heap) if not heap.is_list:
            return list_heap.has(s, value, name.value)
        case v.Record():
            held = value.get(name.value)
            if isinstance(held, v.Optional) and held.unset and not hasattr(value.cls, name.value):
                return v.Leaf(negate(s, held.missing))
            cls = value.cls or _CONTAINERS.get(value.kind)
            return v.Static(name.value in value.keys or hasattr(cls, name.value))
        case v.Listing(array=False):
            return v.Static(hasattr(value.cls, name.value))
        case v.MemoryRow(heap=heap):
            return v.Static(hasattr(heap.cls, name.value))
        case v.Leaf() if is_text(value):
            return v.Static(hasattr(str, name.value))
        case v.Leaf(operand=operand) if isinstance(operand.type, Array | List):
            return v.Static(hasattr(python_class(operand.type), name.value))
        case v.LocalFunction() | v.Method():
            return v.Static(hasattr(types.FunctionType, name.value))
    s.refuse(f"hasattr() of {describe(layout_of(stored(s, value)))}", "test with isinstance()")


_CONTAINERS = {"list": list, "tuple": tuple, "dict": dict}


def _type(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """One of the classes that a value may be of."""
    value = args[0]
    match value:
        case v.Static(value=held):
            return v.Static(type(held))
        case v.Optional(value=inner, missing=missing, unset=""):
            made = conditional(s, missing, lambda t: _NO_TYPE, lambda t: _type(t, [inner], {}))
            there = _type(s.fork(), [inner], {})
            if isinstance(there, v.Static):
                _note_tests(s, made, {type(None): lambda t: missing, there.value: lambda t: negate(t, missing)})
            return made
        case v.Choice():
            fits = defaultdict[Any, set[int]](set)
            for k, x in enumerate(value.alternatives):
                one = _type(s.fork(), [x], {})
                if not isinstance(one, v.Static):
                    return apply_choice(s, value, lambda t, x: _type(t, [x], {}))
                fits[one.value].add(k)
            made = _one_of(s, fits, lambda t, fit: is_one_of(t, value, frozenset(fit)))
            _note_tests(
                s, made, {c: functools.partial(is_one_of, choice=value, fit=frozenset(f)) for c, f in fits.items()}
            )
            return made
        case v.MemoryRow(heap=heap) if value.null:
            there = replace(value, null=False)
            return conditional(s, heaps.missing(s, value), lambda t: _NO_TYPE, lambda t: _type(t, [there], {}))
        case v.MemoryRow(heap=heap) if list_heap.is_row(value):
            return v.Static(heap.python_class)
        case v.MemoryRow(heap=heap):
            members = {heap.members[k]: frozenset({k}) for k in sorted(s.positions(value))}
            return _one_of(s, members, lambda t, fit: heaps.is_class(t, value, fit))
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            kinds = class_list(s, operand.type)
            places = defaultdict[Any, set[int]](set)
            values = alternatives(s, value)
            for k in sorted(classes_of(s, value)):
                cls = python_class(values[k].type) if k in values else kinds[k].cls or _CONTAINERS.get(kinds[k].kind)
                places[cls].add(k)
            found = lambda t: _one_of(t, places, lambda u, fit: is_class(u, operand, frozenset(fit)))
            made = conditional(s, is_none(s, operand), lambda t: _NO_TYPE, found)
            tests: dict[Any, TypeTest] = {type(None): lambda t: is_none(t, operand)}
            for cls, fit in places.items():
                tests[cls] = functools.partial(is_class, operand=operand, classes=frozenset(fit))
            _note_tests(s, made, tests)
            return made
        case v.Leaf(operand=operand) if isinstance(operand.type, List):
            there = v.Static(python_class(operand.type))
            null = is_none(s, operand) if may_be_none(s, operand.type) else s.scalar(False)
            return conditional(s, null, lambda t: _NO_TYPE, lambda t: there)
        case v.Leaf(type=Tag()) | v.Leaf(type=Array()) if isinstance(value.type, Tag) or is_python(value.type):
            return v.Static(python_class(value.type))
        case v.Record(kind=kind, cls=cls):
            return v.Static(cls or {"tuple": tuple, "list": list, "dict": dict}[kind])
        case v.Listing(array=False) as listing:
            return v.Static(listing.cls)
        case v.Leaf(type=Array()):
            words = "type() of an array, or of a number of NumPy or JAX, depends on whose arrays a call is given"
            raise UnseenInTraces(words, s.span, "test with isinstance(), or hasattr()")
    s.refuse("type() of this value is known only when the program runs", "test with isinstance()")


_NO_TYPE = v.Static(type(None))


TypeTest = Callable[[LoweringState], Operand]


def _note_tests(s: LoweringState, made: v.Abstract, tests: dict[Any, TypeTest]) -> None:
    """Note what tells whether `type(x)` is one of some classes, so that what `x` may be is known behind a test."""
    if isinstance(made, v.Choice) and isinstance(made.index, Value):
        s.context.meanings[made.index] = ("type", tests)


def _one_of(
    s: LoweringState, places: Mapping[Any, Collection[int]], test: Callable[[LoweringState, Any], Operand]
) -> v.Abstract:
    """The class of several whose test is true; the last one needs none."""
    (cls, fit), *others = places.items()
    if not others:
        return v.Static(cls)
    return conditional(s, test(s, fit), lambda t: v.Static(cls), lambda t: _one_of(t, dict(others), test))


def _set(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return sets.set_of(s, args[0] if args else None)


def _frozenset(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return sets.set_of(s, args[0] if args else None, frozenset)


def _elements(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return sets.members(s, args[0])


def _alike(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    like, items = args
    assert isinstance(like, v.Record)
    if list_heap.is_row(items):  # made where the lists of the user have memory
        items = s.context.rules.materialise(s, sequence(s, items))
    return v.Record("table", ("keys",), (stored(s, items),), like.cls)


def _of_members(builtin: Builtin) -> Builtin:
    """A function that does not depend on the order of a set."""
    return lambda s, args, kwargs: builtin(s, [sets.members(s, x) for x in args], kwargs)


def _ord(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return text(s, "ord", args[0])


def _chr(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return text(s, "chr", args[0])


def _callable(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    value = args[0]
    if isinstance(value, v.Static):
        return v.Static(callable(value.value))
    return v.Static(isinstance(value, v.LocalFunction | v.Method | v.Choice))


def _sorted(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return s.context.rules.materialise(s, ordered(s, args[0], kwargs))


def _super(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    match args:
        case [v.Static(value=type() as cls), receiver]:
            return v.Method(v.Static(cls), receiver, v.SUPER)
    owner, parameters = s.frame.owner, s.frame.source.node.args.args
    cells = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True)) if owner is not None else {}
    if args or "__class__" not in cells or not parameters:
        s.refuse("super() is compiled in methods, without arguments", "name the class: Base.method(self)")
    receiver = s.env[parameters[0].arg].value
    return v.Method(v.Static(cells["__class__"].cell_contents), receiver, v.SUPER)


def _partial(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    if kwargs or any(not isinstance(a, v.Static) for a in args):
        names = tuple(kwargs)
        receiver = v.Record(
            "tuple", (0, 1, 2), (args[0], _record(args[1:]), v.Record("dict", names, tuple(kwargs.values())))
        )
        return v.Method(v.Static(PARTIAL), receiver, "partial")
    function, *rest = (a.value for a in args if isinstance(a, v.Static))
    return v.Static(functools.partial(function, *rest))


def _record(args: Arguments) -> v.Record:
    return v.Record("tuple", tuple(range(len(args))), tuple(args))


def PARTIAL() -> None:
    """Stands for a `functools.partial` whose arguments are values of the program."""


BUILTINS: dict[Any, Builtin] = {
    range: _range, len: _len, enumerate: _enumerate, zip: _zip, reversed: _reversed, map: _map, filter: _filter,
    list: _list, tuple: _tuple, dict: _dict, isinstance: _isinstance, int: _int, float: _float, bool: _bool,
    complex: _complex,
    round: _round, abs: _abs, divmod: _divmod, pow: _pow, sum: _of_members(_sum),
    any: _of_members(_any), all: _of_members(_all), min: _of_members(_min), max: _of_members(_max),
    sorted: _of_members(_sorted), super: _super, getattr: _getattr, hasattr: _hasattr, type: _type, callable: _callable,
    ord: _ord, chr: _chr, set: _set, frozenset: _frozenset,
    sets.elements: _elements, sets.alike: _alike, collections.Counter: sets.make_counter,
    collections.OrderedDict: sets.make_ordered_dict,
    collections.defaultdict: sets.make_defaultdict, collections.deque: tables.make_deque,
    math.fsum: _float_sum, math.prod: _product, functools.partial: _partial,
}  # fmt: skip


def _call_partial(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    assert isinstance(receiver, v.Record)
    function, first, named = receiver.items
    assert isinstance(first, v.Record) and isinstance(named, v.Record)
    return s.call(function, [*first.items, *args], dict(zip(named.keys, named.items, strict=True)) | kwargs)


def _items(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.elements(s, list_heap.there(s, receiver))
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return zipped(s, receiver.items[:2], strict=False)
    if (found := _of_forms(s, receiver, "item")) is not None:
        return found
    table = _table(s, receiver)
    pairs = tuple(v.Record("tuple", (0, 1), (v.Static(k), x)) for k, x in zip(table.keys, table.items, strict=True))
    return _record(pairs)


def _keys(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.parts(s, list_heap.there(s, receiver), 0)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return _column(s, tables.keys_of(receiver))
    return _of_forms(s, receiver, "key") or _record([v.Static(k) for k in _table(s, receiver).keys])


def _values(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.parts(s, list_heap.there(s, receiver), 1)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return _column(s, tables.values_of(receiver))
    return _of_forms(s, receiver, "value") or _record(_table(s, receiver).items)


def _of_forms(s: LoweringState, receiver: v.Abstract, part: unions.Part) -> v.Abstract | None:
    """What a dict of the examples holds that may have other keys in each."""
    held = forms_of(s, receiver)
    return unions.elements(s, receiver, held, part=part) if held is not None and isinstance(receiver, v.Leaf) else None


def _column(s: LoweringState, column: v.Abstract) -> v.Abstract:
    """What a dict has in one of its columns, as a list of its own."""
    made = copy(column)
    if isinstance(made, v.Listing):
        s.context.identities.joined(made, column)
    return made


def _table(s: LoweringState, receiver: v.Abstract, ordered: bool = True) -> v.Record:
    table: v.Abstract | None = expand(s, receiver, ordered)
    if isinstance(receiver, v.Leaf) and isinstance(receiver.type, Ref):
        table = fields_of(s, receiver)  # DictsDiffer where they are of several forms
    if not isinstance(table, v.Record) or table.kind != "dict":
        s.refuse("a dict is needed here", "give a dict with constant keys")
    return table


def _get(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    key, default = constant(args[0]), args[1] if len(args) > 1 else v.Static(None)
    receiver = list_heap.for_key(s, receiver, key)
    if list_heap.is_dict_row(receiver):
        return container_heap.get(s, list_heap.there(s, receiver), key, default)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return tables.get(s, receiver, key, default)
    if isinstance(key, v.Static) and isinstance(receiver, v.Leaf):
        held = forms_of(s, receiver)
        if held is not None:
            return unions.get(s, receiver, held, key.value, default)
    table = _table(s, receiver, ordered=False)
    if isinstance(key, v.Static):
        found = table.get(key.value)
        return default if found is None else found
    hit = truth(s, compare(s, ast.In(), key, _record([v.Static(k) for k in table.keys])))
    if isinstance(hit, bool):
        return lookup(s, table, key) if hit else default
    return conditional(s, hit, lambda t: lookup(t, table, key), lambda t: default)


def _copy(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    found = expand(s, list_heap.copied(s, receiver))
    if isinstance(found, v.Static):
        return v.Static(found.value.copy())
    return tables.copied(found)


def _of_set(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named, name: str) -> v.Abstract:
    if isinstance(receiver, v.Static) and all(isinstance(a, v.Static) for a in args):
        return v.Static(getattr(receiver.value, name)(*(a.value for a in args if isinstance(a, v.Static))))
    return sets.method(s, name, receiver, args)


def _count(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    found = sequence(s, receiver)
    hits = collect(s, found, lambda t, x: (True, lambda u: _as_int(u, equal(u, x, args[0]))))
    return sum_of(s, hits, v.Static(0))


def _as_int(s: LoweringState, value: v.Abstract) -> v.Abstract:
    return v.Static(int(value.value)) if isinstance(value, v.Static) else v.Leaf(integer(s, operand_of(s, value)))


def _view(
    method: Callable[[LoweringState, v.Abstract, Arguments, Named], v.Abstract], of_set: bool = False
) -> Callable[..., v.Abstract]:
    """A method that shows what a dict holds; a later change of the dict would show in what it gives. `of_set`: it is
    compared, and taken together with others, as a set."""

    def found(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
        return s.context.identities.view(method(s, receiver, args, kwargs), receiver, of_set)

    return found


METHODS: dict[Any, Callable[[LoweringState, v.Abstract, Arguments, Named], v.Abstract]] = {
    dict.items: _view(_items, of_set=True),
    dict.keys: _view(_keys, of_set=True),
    dict.values: _view(_values),
    dict.get: _get,
    dict.copy: _copy,
    list.count: _count,
    list.copy: lambda s, receiver, args, kwargs: BUILTINS[list](s, [list_heap.copied(s, receiver), *args], kwargs),
    deque.count: _count,
    deque.copy: _copy,
    tuple.count: _count,
    Counter.most_common: sets.most_common,
    Counter.total: sets.total,
    **{getattr(cls, name): partial(_of_set, name=name) for cls in SETS for name in sets.NAMED},
    **{cls.copy: _copy for cls in (*SETS, Counter, defaultdict)},
    PARTIAL: _call_partial,
}
