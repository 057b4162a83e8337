"""Operators: arithmetic, comparison, membership, identity, on numbers, containers, tags and objects."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import EllipsisType
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from autobatch.errors import UnsupportedError
from autobatch.frontend.library import sets, tables
from autobatch.frontend.library.domains import guard
from autobatch.frontend.library.equality import (
    Comparison,
    equal_containers,
    equal_objects,
    lexicographic,
    of_lists,
    ordered,
)
from autobatch.frontend.library.graphs import viewed
from autobatch.frontend.library.numpy_arrays import is_dynamic
from autobatch.frontend.library.strings import is_text, percent, tag_equal, text
from autobatch.frontend.library.tables import concatenate
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import (
    At,
    alternatives,
    attribute,
    class_list,
    classes_of,
    fields_of,
    forms_of,
    is_none,
    is_stack,
    written,
)
from autobatch.frontend.lowering.branches import not_expression, truth
from autobatch.frontend.lowering.joins import as_listing, conditional
from autobatch.frontend.lowering.numbers import (
    as_number,
    binary,
    combine,
    is_number,
    operand_of,
    present,
    refuse_made,
    traced,
    unary,
)
from autobatch.frontend.lowering.selection import is_function, of_each, select, tested
from autobatch.frontend.lowering.sequences import arithmetic, bounds_of, is_tuple, item, sequence, sliced
from autobatch.frontend.lowering.state import ClassTest, Impure, LoweringState, expand, fold, hand_out, note_contents
from autobatch.frontend.lowering.tracing import Untraceable, trace
from autobatch.frontend.lowering.unions import alike, by_type, of_sorts, taken_as
from autobatch.frontend.memory import container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import NeedsMemory, is_given
from autobatch.frontend.memory.list_heap import copied, there
from autobatch.frontend.memory.rebinding import without_memory
from autobatch.frontend.syntax.sources import FunctionSource
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind, inputs
from autobatch.frontend.types.unify import as_table, constant, sort_of
from autobatch.frontend.types.values import layout_of, type_name
from autobatch.ir.core import BOOL, INT, Apply, Array, List, Literal, Operand, Ref, Tag, Value
from autobatch.ir.interpret import words
from autobatch.ir.ops import own

BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SYMBOLS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "** or pow()", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.neg: "unary -", operator.pos: "unary +", operator.invert: "unary ~",
}  # fmt: skip
_NAMES = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv",
    operator.floordiv: "floordiv", operator.mod: "mod", operator.pow: "pow", operator.matmul: "matmul",
    operator.and_: "and", operator.or_: "or", operator.xor: "xor", operator.lshift: "lshift",
    operator.rshift: "rshift", operator.eq: "eq", operator.ne: "ne", operator.lt: "lt", operator.le: "le",
    operator.gt: "gt", operator.ge: "ge", operator.neg: "neg", operator.pos: "pos", operator.invert: "invert",
}  # fmt: skip
_MIRRORED = {operator.lt: "gt", operator.gt: "lt", operator.le: "ge", operator.ge: "le", operator.eq: "eq",
             operator.ne: "ne"}  # fmt: skip


def _is_string(value: v.Abstract) -> bool:
    return isinstance(value, v.Static) and isinstance(value.value, str)


def apply_binary(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`a function b` for an arithmetic operator."""
    if function in _OF_SETS:
        a, b = _views_as_sets(s, function, a, b)
    a, b = alike(s, present(s, a), present(s, b))
    if (made := of_each(s, (a, b), lambda t, x, y: apply_binary(t, function, x, y), function)) is not None:
        return made
    if isinstance(a, v.Static) and isinstance(b, v.Static) and not inputs(a.value) and not inputs(b.value):
        return fold(s, function, a.value, b.value)
    a, b = as_number(s, a), as_number(s, b)
    if is_number(a) and is_number(b):
        guard(s, function, (a, b))
        return binary(s, function, a, b)
    if is_stack(s, a) or is_stack(s, b):
        return s.context.rules.stacked(s, function, (a, b))
    are_words = [is_text(x) or _is_string(x) for x in (a, b)]
    if function is operator.add and any(are_words):
        if not all(are_words):
            _refuse(s, function, a, b, cure="make a string of what is none: str(x)")
        return text(s, "__add__", a, b)
    if function is operator.mul and any(are_words):
        a, b = (a, b) if are_words[0] else (b, a)
        if not _is_whole(b):
            _refuse(s, function, a, b, cure="a string is multiplied by an int alone")
        return text(s, "__mul__", a, b)
    left, right = expand(s, copied(s, a)), expand(s, copied(s, b))
    if function is operator.mod and isinstance(a, v.Static) and isinstance(a.value, str):
        return percent(s, a.value, right)
    if function is operator.add and _is_sequence(left) and _is_sequence(right):
        return concatenate(s, left, right)
    if function is operator.mul and (_is_sequence(left) or _is_sequence(right)):
        return _repeat(s, left, right)
    if (made := sets.operate(s, function, a, b)) is not None:
        return made
    overloaded = _overloaded(s, function, a, b)
    if overloaded is not None:
        return overloaded
    _refuse(s, function, a, b, cure="check the types of both sides")


def _refuse(s: LoweringState, function: Callable[..., Any], *operands: v.Abstract, cure: str) -> NoReturn:
    """In Python's words."""
    names = [repr(type_name(x)) for x in operands]
    if function in _MIRRORED and len(operands) == 2:
        s.refuse(f"{_SYMBOLS[function]!r} not supported between instances of {' and '.join(names)}", cure)
    if len(operands) == 1:
        s.refuse(f"bad operand type for {_SYMBOLS[function]}: {names[0]}", cure)
    s.refuse(f"unsupported operand type(s) for {_SYMBOLS[function]}: {' and '.join(names)}", cure)


def _is_sequence(value: v.Abstract) -> bool:
    match value:
        case v.Record(kind="tuple" | "list") | v.Listing(array=False) | v.Lazy():
            return True
        case v.Leaf(operand=operand):
            return isinstance(operand.type, List)
        case _:
            return False


def _repeat(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    found, times = (a, b) if _is_sequence(a) else (b, a)
    if not _is_whole(times):
        cure = "a list is multiplied by an int alone: write [x * y for x in xs] to multiply its elements"
        _refuse(s, operator.mul, a, b, cure=cure)
    if isinstance(found, v.Record) and isinstance(times, v.Static):
        items = found.items * times.value
        return v.Record(found.kind, tuple(range(len(items))), items)
    if isinstance(found, v.Record) and not found.items:
        return found
    turns = v.Static(max(0, times.value)) if isinstance(times, v.Static) else traced(s, _not_negative, times)
    if isinstance(found, v.Record) and len(found.items) == 1:
        return s.context.rules.materialise(s, v.Lazy(turns, lambda t, i: found.items[0], is_tuple=is_tuple(found)))
    whole = sequence(s, as_listing(s, found) if isinstance(found, v.Record) else found)
    assert isinstance(whole, v.Lazy)
    count = arithmetic(s, operator.mul, whole.length, turns)
    again = v.Lazy(
        count, lambda t, i: whole.item(t, arithmetic(t, operator.mod, i, whole.length)), is_tuple=is_tuple(found)
    )
    return s.context.rules.materialise(s, again)


def _is_whole(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, int)
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and type.is_scalar and (type.is_integer or type.is_bool)


def _not_negative(n: Any) -> Any:
    return n * (n > 0)


def augmented(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """What `a += b` assigns: objects may have a method of their own for it."""
    if is_dynamic(a):
        new = apply_binary(s, function, a, b)
        s.context.rules.stacked(s, operator.setitem, (a, v.Static(...), new))
        return a
    method = f"__i{_NAMES[function]}__"
    if written(s, viewed(s, a), method):
        return s.call(attribute(s, a, method), [b])
    return apply_binary(s, function, a, b)


def _overloaded(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """Operators that classes of the user define."""
    name = _NAMES[function]
    mirrored = _MIRRORED.get(function)
    for method, x, y in ((f"__{name}__", a, b), (f"__{mirrored}__" if mirrored else f"__r{name}__", b, a)):
        if written(s, viewed(s, x), method):
            return ordered(s, x, y, method) or s.call(attribute(s, x, method), [y])
    return None


def apply_unary(s: LoweringState, node: ast.unaryop, value: v.Abstract) -> v.Abstract:
    """`-x`, `+x`, `~x`, `not x`"""
    if isinstance(node, ast.Not):
        return not_expression(s, value)
    function = UNARY[type(node)]
    value = taken_as(s, present(s, value), unions.is_number)
    if (made := of_each(s, (value,), lambda t, x: apply_unary(t, node, x), function)) is not None:
        return made
    if isinstance(value, v.Static) and not inputs(value.value):
        return fold(s, function, value.value)
    value = as_number(s, value)
    if is_number(value):
        return unary(s, function, value)
    if is_stack(s, value):
        return s.context.rules.stacked(s, function, (value,))
    method = f"__{_NAMES[function]}__"
    if written(s, value, method):
        return s.call(attribute(s, value, method), [])
    _refuse(s, function, value, cure="use it on numbers and arrays; objects need the method of the operator")


def comparison(s: LoweringState, node: ast.Compare) -> v.Abstract:
    """A chain of comparisons: each operand is evaluated once, later ones only if needed."""
    return _chain(s, s.evaluate(node.left), node.ops, node.comparators)


def _chain(s: LoweringState, left: v.Abstract, ops: Sequence[ast.cmpop], nodes: Sequence[ast.expr]) -> v.Abstract:
    right = s.evaluate(nodes[0])
    first = compare(s, ops[0], left, right)
    if len(ops) == 1:
        return first
    condition = truth(s, first)
    if isinstance(condition, bool):
        return _chain(s, right, ops[1:], nodes[1:]) if condition else first
    if all(isinstance(n, ast.Constant | ast.Name) for n in nodes[1:]):
        second = truth(s, _chain(s, right, ops[1:], nodes[1:]))
        if isinstance(second, bool):
            return v.Leaf(condition) if second else v.Static(False)
        return v.Leaf(combine(s, "and", condition, second))
    return conditional(s, condition, lambda t: _chain(t, right, ops[1:], nodes[1:]), lambda t: v.Static(False))


def compare(s: LoweringState, op: ast.cmpop, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """One comparison."""
    if isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and (fit := _has_type(s, a, b)) is not None:
        return not_expression(s, fit) if isinstance(op, ast.IsNot | ast.NotEq) else fit
    match op:
        case ast.Is() | ast.IsNot():
            result = identical(s, a, b)
        case ast.In() | ast.NotIn():
            of_one = of_each(s, (a, b), lambda t, x, y: contains(t, y, x), lambda x, y: x in y)
            result = contains(s, b, a) if of_one is None else of_one
        case ast.Eq():
            return equal(s, a, b)
        case ast.NotEq():
            return not_equal(s, a, b)
        case _:
            return _ordered(s, COMPARE[type(op)], a, b)
    return not_expression(s, result) if isinstance(op, ast.IsNot | ast.NotIn) else result


def _has_type(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """`type(x) is C`, so that what `x` may be is known behind it; None for other comparisons."""
    for x, y in ((a, b), (b, a)):
        if not (isinstance(x, v.Choice) and isinstance(x.index, Value) and isinstance(y, v.Static)):
            continue
        if isinstance(y.value, type):
            match s.context.meanings.get(x.index):
                case ("type", tests):
                    return _known(s, tests[y.value](s)) if y.value in tests else v.Static(False)
    return None


_OF_SETS = (operator.and_, operator.or_, operator.sub, operator.xor)


def _views_as_sets(
    s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract
) -> tuple[v.Abstract, v.Abstract]:
    """The operands, with sets in the place of what `keys()` and `items()` give, which operators take for sets."""
    are_views = [s.context.identities.is_like_a_set(x) for x in (a, b)]
    if not any(are_views):
        return a, b
    wanted = [True, True] if function in _OF_SETS else are_views
    made = [s.call(v.Static(set), [x]) if w else x for x, w in zip((a, b), wanted, strict=True)]
    return made[0], made[1]


def _ordered(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    a, b = _views_as_sets(s, function, a, b)
    if (made := of_each(s, (a, b), lambda t, x, y: _ordered(t, function, x, y), function)) is not None:
        return made
    a, b = alike(s, present(s, a), present(s, b))
    if isinstance(a, v.Static) and isinstance(b, v.Static):
        return fold(s, function, a.value, b.value)
    a, b = as_number(s, a), as_number(s, b)
    if is_number(a) and is_number(b):
        return _telling(s, function, a, b, binary(s, function, a, b))
    if is_stack(s, a) or is_stack(s, b):
        return s.context.rules.stacked(s, function, (a, b))
    are_words = [is_text(x) or _is_string(x) for x in (a, b)]
    if all(are_words):
        return text(s, f"__{_NAMES[function]}__", a, b)
    if any(are_words):
        _refuse(s, function, a, b, cure="compare strings with strings")
    x, y = _expanded(s, a), _expanded(s, b)
    method = f"__{_NAMES[function]}__"
    if isinstance(x, v.Record) and isinstance(y, v.Record) and _are_ordered_alike(s, method, x, y):
        return lexicographic(s, Comparison(function, method, equal, identical, _ordered), x.items, y.items)
    if (made := sets.operate(s, function, a, b)) is not None:
        return made
    overloaded = _overloaded(s, function, a, b)
    if overloaded is not None:
        return overloaded
    a, b = copied(s, a), copied(s, b)
    if (_is_list(a) and _is_list(b)) or (is_tuple(x) and is_tuple(y)):
        return of_lists(s, function, a, b)
    _refuse(s, function, a, b, cure="compare numbers, strings, tuples or lists of one kind")


def _are_ordered_alike(s: LoweringState, method: str, x: v.Record, y: v.Record) -> bool:
    """Are both lists, or both tuples, that are ordered by their elements?"""
    tuples = ("tuple", "namedtuple")
    own = any(z.kind == "namedtuple" and written(s, z, method) for z in (x, y))
    return not own and (x.kind == y.kind == "list" or (x.kind in tuples and y.kind in tuples))


def _expanded(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A container, also one of the examples, as a record of its elements."""
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        return fields_of(s, value) or value
    return expand(s, list_heap.as_value(s, value))


def compare_with(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """An ordering or equality of two values, by its function in `operator`."""
    return equal(s, a, b) if function is operator.eq else _ordered(s, function, a, b)


def not_equal(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    if is_number(a) and is_number(b) and not (isinstance(a, v.Static) and isinstance(b, v.Static)):
        return _telling(s, operator.ne, a, b, binary(s, operator.ne, a, b))
    if alternatives(s, a) or alternatives(s, b):
        return not_expression(s, equal(s, a, b))
    if (is_stack(s, a) or is_stack(s, b)) and not _is_nothing(a) and not _is_nothing(b):
        return s.context.rules.stacked(s, operator.ne, (a, b))
    return _overloaded(s, operator.ne, a, b) or not_expression(s, equal(s, a, b))


def equal(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`a == b`"""
    a, b = _views_as_sets(s, operator.eq, a, b)
    if (made := of_each(s, (a, b), equal)) is not None:
        return made
    if _is_nothing(a) or _is_nothing(b):
        return identical(s, a, b)
    if not (isinstance(a, v.Static) and isinstance(b, v.Static)) and is_function(a) and is_function(b):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, v.Choice):
                return tested(s, x, partial(_equal_to, y))
        return _same_function(s, a, b, equal)
    if isinstance(a, v.Optional) or isinstance(b, v.Optional):
        return _equal_optional(s, a, b)
    if isinstance(a, v.Static) and isinstance(b, v.Static) and not inputs(a.value) and not inputs(b.value):
        return fold(s, operator.eq, a.value, b.value)
    for x, y in ((a, b), (b, a)):
        if alternatives(s, x):
            return by_type(s, x, partial(_equal_to, y), _is_none(s, y))
    if any(is_number(x) and not isinstance(x, v.Static) for x in (a, b)):
        a, b = as_number(s, a), as_number(s, b)
    if is_number(a) and is_number(b):
        return _telling(s, operator.eq, a, b, binary(s, operator.eq, a, b))
    if is_stack(s, a) or is_stack(s, b):
        return s.context.rules.stacked(s, operator.eq, (a, b))
    for x, y in ((a, b), (b, a)):
        if isinstance(x, v.Leaf) and isinstance(x.type, Tag):
            return _telling(s, operator.eq, x, y, v.Leaf(tag_equal(s, x.operand, present(s, y))))
    if (found := equal_containers(s, a, b)) is not None:
        return found
    a, b = copied(s, a), copied(s, b)
    left, right = expand(s, a, ordered=False), expand(s, b, ordered=False)
    if tables.is_deque(left) and tables.is_deque(right):
        return equal(s, tables.items_of(left), tables.items_of(right))
    if (same := sets.equal(s, left, right)) is not None:
        return same
    if not _is_object(left) and not _is_object(right) and isinstance(left, v.Record) and isinstance(right, v.Record):
        return _equal_records(s, left, right)
    compared = equal_objects(s, a, b) or _overloaded(s, operator.eq, a, b)
    if compared is not None:
        return compared
    if isinstance(left, v.Record) and isinstance(right, v.Record):
        return _same_container(s, left, right)
    if isinstance(a, v.Leaf) and isinstance(b, v.Leaf) and isinstance(a.type, Ref) and a.type == b.type:
        return _equal_objects(s, a, b)
    if (_is_list(a) or is_tuple(left)) and (_is_list(b) or is_tuple(right)):
        return _equal_lists(s, a, b) if is_tuple(left) == is_tuple(right) else v.Static(False)
    if sort_of(layout_of(a)) == sort_of(layout_of(b)):
        s.refuse("these values cannot be compared with `==`", "compare their parts")
    return v.Static(False)


def _telling(
    s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract, result: v.Leaf
) -> v.Abstract:
    """The result of a comparison. Of what an object has by its class with a constant, it says of which that is."""
    if not isinstance(a, v.Leaf) or not isinstance(a.operand, Value) or not isinstance(b, v.Static):
        return result
    match s.context.meanings.get(a.operand):
        case ("of_class", row, by_class, name):
            left = s.block.fact((row.operand, name)).classes
            held = {k: x if left is None or x is None else x & left for k, x in by_class.items()}
            hits = {x for words in held.values() for x in words or () if function(x, b.value)}
            fit = frozenset(k for k, words in held.items() if words is None or words & hits)
            unfit = frozenset(k for k, words in held.items() if words is None or words - hits)
            possible = s.positions(row)
            if not possible & fit or not possible & unfit:
                return v.Static(bool(possible & fit))
            tests = [ClassTest(row.operand, fit, unfit)]
            if None not in held.values():
                others = frozenset[Any]().union(*held.values()) - hits
                tests.append(ClassTest((row.operand, name), frozenset(hits), others, held))
            if isinstance(result.operand, Value):
                s.context.meanings[result.operand] = ("is_class", *tests)
    return result


def _equal_to(b: v.Abstract, s: LoweringState, a: v.Abstract) -> v.Abstract:
    return equal(s, a, b)


def _is_list(value: v.Abstract) -> bool:
    match value:
        case v.Listing() | v.Lazy():
            return not value.is_tuple
        case v.Record(kind="list"):
            return True
        case v.Leaf():
            return isinstance(value.type, List)
        case v.Static(value=held):
            return type(held) is list
        case _:
            return False


def _equal_lists(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    for x, y in ((a, b), (b, a)):
        if (isinstance(x, v.Record) and not x.items) or x == v.Static([]):
            return not_expression(s, y)
    return s.call(v.Static(_same_items), [a, b])


def _same_items(xs: list[Any], ys: list[Any]) -> bool:
    """What `==` of lists means: lowered like a function of the user."""
    return len(xs) == len(ys) and all(x == y for x, y in zip(xs, ys))  # noqa: B905  they are equally long


def _equal_optional(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    if not isinstance(a, v.Optional):
        a, b = b, a
    assert isinstance(a, v.Optional)
    inner = a.value
    return conditional(s, a.missing, lambda t: identical(t, b, v.Static(None)), lambda t: equal(t, inner, b))


def _is_object(value: v.Abstract) -> bool:
    return isinstance(value, v.Record) and value.kind == "object"


def _equal_records(s: LoweringState, x: v.Record, y: v.Record) -> v.Abstract:
    if {x.kind, y.kind} == {"list", "tuple"} or x.cls is not y.cls or set(x.keys) != set(y.keys):
        return v.Static(False)
    result: v.Abstract = v.Static(True)
    for key, value in zip(x.keys, x.items, strict=True):
        other = y.get(key)
        assert other is not None
        before, same = truth(s, result), truth(s, equal(s, value, other))
        if before is True or same is False:
            result = v.Static(same) if isinstance(same, bool) else v.Leaf(same)
        elif not isinstance(before, bool) and not isinstance(same, bool):
            result = v.Leaf(combine(s, "and", before, same))
    return result


def _equal_objects(s: LoweringState, a: v.Leaf, b: v.Leaf) -> v.Abstract:
    """Objects of a class without `__eq__` are equal when they are the same."""
    assert isinstance(a.type, Ref)
    classes = [class_list(s, a.type)[c] for c in classes_of(s, a)]
    if any(c.cls is None or inspect.getattr_static(c.cls, "__eq__") is not object.__eq__ for c in classes):
        s.refuse(
            "`==` of two objects of the examples cannot be compiled where one may be a container",
            "compare the fields that matter, or test `a is b`",
        )
    return v.Leaf(s.apply(own("same"), (a.operand, b.operand), BOOL))


def identical(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`a is b`"""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, v.Choice):
            return tested(s, x, partial(identical, b=y))
    if _is_nothing(a) or _is_nothing(b):
        return _is_none(s, a if _is_nothing(b) else b)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, v.Optional) and not x.unset:
            return _identical_optional(s, x, y)
    a, b = present(s, a), present(s, b)
    if isinstance(a, v.MemoryRow) or isinstance(b, v.MemoryRow):
        return heaps.same(s, a, b)
    if isinstance(a, v.Static) and isinstance(b, v.Static):
        return v.Static(a.value is b.value)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, v.Leaf) and isinstance(x.type, Tag):
            return _telling(s, operator.eq, x, y, v.Leaf(tag_equal(s, x.operand, y)))
        if isinstance(y, v.Static) and isinstance(y.value, bool) and isinstance(x, v.Leaf) and x.type == BOOL:
            return x if y.value else not_expression(s, x)
    if isinstance(a, v.Leaf) and isinstance(b, v.Leaf) and a.type == b.type and isinstance(a.type, Ref | List):
        return v.Leaf(s.apply(own("same"), (a.operand, b.operand), BOOL))
    if is_function(a) and is_function(b):
        return _same_function(s, a, b, identical)
    if is_number(a) or is_number(b):
        raise Impure("`is` compares objects, not numbers", s.span, "compare numbers with `==`")
    return _same_container(s, a, b)


def _same_function(s: LoweringState, a: v.Abstract, b: v.Abstract, same: Callable[..., v.Abstract]) -> v.Abstract:
    """Are two functions one? Each time that a `def` or `lambda` runs it makes another one."""
    match a, b:
        case v.Method(), v.Method():
            by_class = v.Static(None) in (a.function, b.function)  # what the name is in the class of the object
            if a.name != b.name if by_class else same(s, a.function, b.function) == v.Static(False):
                return v.Static(False)
            if same is identical:
                s.refuse("a method is made anew where it is read, and compared by `is`", "compare it with `==`")
            return identical(s, a.receiver, b.receiver)
        case v.LocalFunction(source=source), v.LocalFunction(source=other) if source is other and a is not b:
            if not _is_made_once(s, source):
                words = "which of the functions that this `def` or `lambda` has made it is does not show"
                s.refuse(words, "compare numbers or strings that stand for them", source.span)
            return v.Static(True)
        case _:
            return v.Static(a is b)


def _is_made_once(s: LoweringState, function: FunctionSource) -> bool:
    """Does the entry make this function, and make it once?"""
    entry = s.context.entry
    if entry is None or entry.name in entry.loads:
        return False
    todo: list[ast.AST] = [*entry.body]
    while todo:
        node = todo.pop()
        if node is function.node:
            return True
        if not isinstance(node, _RUNS_OFTEN):
            todo += ast.iter_child_nodes(node)
    return False


_RUNS_OFTEN = (
    ast.For,
    ast.While,
    ast.FunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def _identical_optional(s: LoweringState, a: v.Optional, b: v.Abstract) -> v.Abstract:
    none, inner = v.Static(None), a.value
    return conditional(s, a.missing, lambda t: identical(t, none, b), lambda t: identical(t, inner, b))


def _same_container(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """Are two containers that the function built one object? Values do not say that where one may be the other."""
    lists = (v.Record, v.Listing)
    if a is not b and ((isinstance(a, lists) and is_given(b)) or (isinstance(b, lists) and is_given(a))):
        if not s.context.sites.may_be_given(a if is_given(b) else b):
            return v.Static(False)
        words = "a list that may be one of the examples is compared by `is`"
        s.refuse(words, "compare what they hold, or numbers that stand for them")
    if a is b or not isinstance(a, lists) or not isinstance(b, lists):
        return v.Static(a is b)
    sites, cure = s.context.sites, "compare what they hold, or numbers that stand for them"
    ours, theirs = s.context.identities.of(a), s.context.identities.of(b)
    is_tuple = all(isinstance(x, v.Record) and x.kind == "tuple" for x in (a, b))
    if is_tuple and not (sites.is_made(a) and sites.is_made(b)):
        error = UnsupportedError("whether two tuples are one object does not show here", s.span, cure)
        raise NeedsMemory((), error, forms=[("tuple", None, x.keys) for x in (a, b) if isinstance(x, v.Record)])
    if (ours.roots | ours.holders).isdisjoint(theirs.roots | theirs.holders):
        s.context.memory.ask_for_related(x for x, _ in s.context.active)
        return v.Static(False)
    words = "whether these two are one object is known only when the program runs"
    raise without_memory(s, [a, b], words, cure)


def _is_nothing(value: v.Abstract) -> bool:
    """The constant None; objects are not asked, whose `__eq__` may expect something else."""
    return isinstance(value, v.Static) and value.value is None


def _is_none(s: LoweringState, value: v.Abstract) -> v.Abstract:
    refuse_made(s, value)
    match value:
        case v.Static(value=held):
            return v.Static(held is None)
        case v.Optional(missing=missing, unset=""):
            return _known(s, missing)
        case v.Optional():
            return _is_none(s, present(s, value))
        case v.MemoryRow():
            return _known(s, heaps.missing(s, value))
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref | List):
            return _known(s, is_none(s, operand))
        case _:
            return v.Static(False)


def _known(s: LoweringState, condition: Operand) -> v.Abstract:
    """A bool, static where it is known."""
    known = s.block.truth(condition)
    return v.Leaf(condition) if known is None else v.Static(known)


def contains(s: LoweringState, container: v.Abstract, value: v.Abstract) -> v.Abstract:
    """`value in container`"""
    if isinstance(container, v.Generator):
        return s.call(v.Static(_read_up_to), [container, value])
    container = present(s, container)
    if isinstance(container, v.Static):
        if isinstance(value, v.Static) and not (inputs(container.value) and container_kind(container.value)):
            note_contents(s.context, container)
            if container_kind(container.value) is None:
                hand_out(s.context, container.value)
            return v.Static(value.value in container.value)
        if isinstance(container.value, str):
            return text(s, "__contains__", container, value)
    container = viewed(s, container)
    if written(s, container, "__contains__"):
        return s.call(attribute(s, container, "__contains__"), [value])
    if written(s, container, "__next__"):
        return s.call(v.Static(_read_up_to), [container, value])
    if isinstance(container, v.Leaf) and isinstance(container.type, Ref):
        found_ = forms_of(s, container)
        if found_ is not None and unions.is_dict(s, container) and isinstance(value, v.Static):
            return unions.holds(s, container, found_, value.value)
        container = container if found_ is not None else fields_of(s, container) or container
    if is_text(container):
        return text(s, "__contains__", container, value)
    table = list_heap.for_key(s, expand(s, container, ordered=False), value)
    if isinstance(table, v.MemoryRow) and table.heap.is_dict:
        return container_heap.holds(s, there(s, table), value)
    if isinstance(table, v.Record) and table.kind == "table" and not tables.is_deque(table):
        return tables.holds(s, table, value)
    if isinstance(table, v.Record) and table.kind == "dict":
        container = v.Record("tuple", tuple(range(len(table.keys))), tuple(map(v.Static, table.keys)))
    found = sequence(s, container)
    if isinstance(found, v.Lazy):
        hits = s.context.rules.materialise(s, v.Lazy(found.length, lambda t, i: equal(t, found.item(t, i), value)))
        assert isinstance(hits, v.Listing)
        return v.Leaf(s.apply(own("reduce", kind="any"), hits.lists, BOOL))
    result: bool | Operand = False
    for x in found.items:
        hit = truth(s, equal(s, x, value))
        if hit is True or result is True:
            return v.Static(True)
        if isinstance(hit, bool):
            continue
        result = hit if isinstance(result, bool) else combine(s, "or", result, hit)
    return v.Static(result) if isinstance(result, bool) else v.Leaf(result)


def _read_up_to(iterator: Any, value: Any) -> Any:
    """`value in iterator`, which reads no item behind the value."""
    return any(x == value for x in iterator)


def _called(meaning: Callable[..., v.Abstract], node: Any, arity: int) -> Callable[..., v.Abstract]:
    def call(s: LoweringState, args: Sequence[v.Abstract], kwargs: Mapping[str, v.Abstract]) -> v.Abstract:
        if kwargs or len(args) != arity:
            s.refuse(f"a function of `operator` is called with {len(args)} arguments", f"give it {arity}, by position")
        return meaning(s, node, *args)

    return call


OPERATORS: Mapping[Callable[..., Any], Callable[..., v.Abstract]] = {
    **{f: _called(apply_binary, f, 2) for f in BINARY.values()},
    **{f: _called(apply_unary, node(), 1) for node, f in UNARY.items()},
    **{f: _called(compare, node(), 2) for node, f in COMPARE.items()},
}
"""Operators as functions: those of the module `operator`."""


# ---- bounds
#
# The range of an index of an array of NumPy: where the host knows the index, an example that leaves it fails.
#
#     table[k]                %3 = getitem(%1, %2)   ->   bounds[axis=0, size=5](%2)
#                                                         %3 = getitem(%1, %2)
#
# Whether the host knows it is found out when everything is lowered: `passes/overflows.py` makes checks of these
# operations, by the host or by the device.


def check_index(s: LoweringState, value: v.Leaf, index: v.Abstract) -> None:
    """Check `value[index]`, axis by axis."""
    assert isinstance(value.type, Array)
    shape, axis = value.type.shape, 0
    parts = _parts(index)
    for part in parts:
        if isinstance(part, v.Static) and isinstance(part.value, EllipsisType):
            axis += len(shape) - sum(_axes(p) for p in parts)
            continue
        if (
            axis < len(shape)
            and _is_whole_part(part)
            and _may_fail(s, part, axis, shape[axis])
            and value.numpy is not None
        ):
            s.context.memory.asks_numpy = True
            if value.numpy:
                _check(s, part, axis, shape[axis])
        axis += _axes(part)


def _parts(index: v.Abstract) -> Sequence[v.Abstract]:
    match index:
        case v.Record(kind="tuple", items=items):
            return items
        case v.Static(value=tuple() as held):
            return [v.Static(x) for x in held]
        case _:
            return [index]


def _axes(part: v.Abstract) -> int:
    """How many axes a part of an index takes."""
    match part:
        case v.Static(value=None | EllipsisType() | bool()):
            return 0
        case v.Leaf(operand=operand) if isinstance(operand.type, Array) and operand.type.is_bool:
            return len(operand.type.shape)
        case _:
            return 1


def _is_whole_part(part: v.Abstract) -> bool:
    """Is it an integer, or an array of such?"""
    match part:
        case v.Static(value=held):
            return hasattr(held, "__index__") and not isinstance(held, bool)
        case v.Leaf(operand=operand):
            return isinstance(operand.type, Array) and operand.type.is_integer
        case _:
            return False


def _known_part(s: LoweringState, part: v.Abstract) -> Any:
    """The value of an index that is known while compiling, or None."""
    match part:
        case v.Static(value=held):
            return held
        case v.Leaf(operand=Literal(value=held, constant=constant)):
            return held if constant < 0 else s.context.constants[constant]
        case _:
            return None


def _may_fail(s: LoweringState, part: v.Abstract, axis: int, size: int) -> bool:
    known = _known_part(s, part)
    return known is None or words(known, axis, size) != ""


def _check(s: LoweringState, part: v.Abstract, axis: int, size: int) -> None:
    known = _known_part(s, part)
    if known is not None:
        s.check(s.scalar(False), "IndexError", words(known, axis, size))
        return
    assert isinstance(part, v.Leaf)
    s.emit(Apply((), own("bounds", axis=axis, size=size), (part.operand,), s.span))


# ---- indexing
#
# Indexing: `value[index]` of sequences, dicts, arrays and objects.


def subscript(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`value[index]`"""
    value, index = heaps.opened(s, viewed(s, present(s, value))), present(s, index)
    if (made := of_each(s, (index,), lambda t, i: subscript(t, value, i))) is not None:
        return made
    value = list_heap.for_key(s, value, index)
    if list_heap.is_dict_row(value):
        return container_heap.load(s, list_heap.there(s, value), index)
    if list_heap.is_record_row(value):
        if (bounds := bounds_of(index)) is None:
            return list_heap.load(s, list_heap.there(s, value), index)
        if len(s.positions(value)) > 1 and all(isinstance(x, v.Static) for x in bounds):
            of = slice(*(x.value for x in bounds if isinstance(x, v.Static)))
            return list_heap.view(s, list_heap.there(s, value), list_heap.value, of)
    if list_heap.is_row(value) and bounds_of(index) is None:
        return item(s, value, index)
    value = list_heap.copied(s, value)
    if is_stack(s, value):
        return s.context.rules.stacked(s, operator.getitem, (value, index))
    folded = isinstance(value, v.Static) and isinstance(value.value, (str, bytes)) and isinstance(index, v.Static)
    if isinstance(value, v.Leaf) and (found := forms_of(s, value)) is not None:
        held = [x.value for x in bounds_of(index) or () if isinstance(x, v.Static)]
        if len(held) == 3:
            return unions.elements(s, value, found, slice(*held))
        if isinstance(index, v.Static) and not held:
            return unions.load(s, value, found, index.value)
        if not held and not unions.is_dict(s, value):
            return item(s, unions.elements(s, value, found), index)
    if (bounds := bounds_of(index)) is not None and not _is_array(value) and not folded:
        return sliced(s, value, bounds)
    match value:
        case v.Static(value=held, origin=origin) if isinstance(index, v.Static) and not isinstance(held, type):
            origin = origin.child(("item", index.value)) if origin is not None else None
            return fold(s, operator.getitem, held, index.value, origin=origin)
        case v.Choice():
            made = of_each(s, (value, index), subscript, operator.getitem)
            assert made is not None
            return made
        case v.Record(cls=cls) if cls is At:
            return v.Record("object", ("array", "index"), (value.items[0], indices(s, index)), At)
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return index_array(s, value, index)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return _of_object(s, value, index)
    found_ = expand(s, value, ordered=False)
    if isinstance(found_, v.Record) and found_.kind == "dict":
        return lookup(s, found_, index)
    if tables.is_deque(found_):
        return item(s, tables.items_of(found_), index)
    if isinstance(found_, v.Record) and found_.kind == "table":
        return tables.load(s, found_, index)
    if written(s, value, "__getitem__"):
        return s.call(attribute(s, value, "__getitem__"), [index])
    return item(s, found_, index)


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
            return as_number(s, index)


def lookup(s: LoweringState, table: v.Record, key: v.Abstract) -> v.Abstract:
    """`table[key]` of a dict: a constant key, or a string, enum member or number of the examples."""
    key = constant(key)
    if alternatives(s, key):
        return of_sorts(s, key, lambda t, x: lookup(t, table, x), unions.is_number, unions.is_word)
    if isinstance(key, v.Leaf) and is_number(key) and table.keys and all(isinstance(k, str) for k in table.keys):
        s.check(s.scalar(False), "KeyError", "a number, and no key is one")
        s.dead = True
        return v.Static(None)
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
