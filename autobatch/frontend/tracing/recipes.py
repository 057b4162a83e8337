"""Arithmetic that is met again: the instructions that a traced operator became, written anew for other operands.

    a * 0.5    traced once:  %0 = convert(a); %1 = mul(%0, ?)        c * 0.25     the same instructions, renamed

A function has a few dozen kinds of arithmetic and thousands of places with it. What JAX makes of one depends on the
operator, on the types of the operands, on those that are literals, and on which of them are one value; so that is the
key. Of operators that do the same with each number, literals are told apart by their types alone: they are traced with
a number that is nowhere else (`MARKERS`), whose places in the instructions are those of others. Whatever does not fit
goes the way of every other call (`tracing.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from autobatch.frontend.library.numpy_arrays import marked, of_call
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.tracing.tracing import trace
from autobatch.frontend.types import values as v
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Array, Literal, Operand, Value

Number = bool | int | float

MARKERS: tuple[dict[type, Number], ...] = (
    {int: 1234577, float: 0.7390851332151607},
    {int: 7654321, float: 0.5671432904097838},
)
"""Of the first literal of a call and the second."""

LARGEST = 3e38
"""Of a float that float32 holds."""

KNOWN = 4096
"""Recipes that are kept."""

_blind: set[Callable[..., Any]] = {
    *(operator.add, operator.sub, operator.mul, operator.truediv),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
}
_known: dict[Any, Recipe | None] = {}
"""For all functions that this process compiles. None: for that there is no recipe."""


def alike_for_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """Says of a function of numbers that its trace depends on the types of its operands alone, not on literals."""
    _blind.add(function)
    return function


class LiteralHole(NamedTuple):
    """Where the literal of a call stands: as it is written, or `converted` to the dtype."""

    number: int
    type: Array
    converted: bool

    def filled(self, value: Number) -> Literal:
        return Literal(_converted(value, self.type) if self.converted else value, self.type)


class Recipe(NamedTuple):
    """What the trace of an operator became: instructions that read `inputs` and literals of the call (`holes`, by the
    literal that stands for them), and its result."""

    inputs: tuple[Value, ...]
    body: tuple[Apply, ...]
    result: Operand
    holes: tuple[tuple[Literal, LiteralHole], ...] = ()


def trace_numbers(s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract]) -> v.Abstract:
    """As `tracing.trace`, for functions of ours and of `operator`, which outlive the lowering. Raises Untraceable."""
    operands = [_operand(a) for a in args]
    if any(x is None for x in operands):
        return trace(s, function, args, {})
    used = list(dict.fromkeys([x for x in operands if isinstance(x, Value)]))
    literals = _literals(operands) if used and function in _blind else None
    if literals is not None:
        key = _key(function, operands, used, by_type=True)
        recipe = _known[key] if key in _known else _general(s, function, args, operands, key, used)
        if recipe is not None:
            return _written(s, function, args, recipe, used, literals)
    key = _key(function, operands, used)
    if key not in _known:
        return _recorded(s, function, args, key, used)
    recipe = _known[key]
    return trace(s, function, args, {}) if recipe is None else _written(s, function, args, recipe, used, ())


def _key(function: Callable[..., Any], operands: Sequence[Any], used: Sequence[Value], by_type: bool = False) -> Any:
    return (function, tuple([_form(x, used, by_type) for x in operands]), *jax_compat.settings())


def _written(
    s: LoweringState,
    function: Callable[..., Any],
    args: Sequence[v.Abstract],
    recipe: Recipe,
    used: Sequence[Value],
    literals: Sequence[Number],
) -> v.Abstract:
    """The instructions of a recipe for other operands."""
    env: dict[Operand, Operand] = dict(zip(recipe.inputs, used, strict=True))
    for place, hole in recipe.holes:
        env[place] = hole.filled(literals[hole.number])
    value, span = s.context.value, s.span
    for i in recipe.body:
        results = tuple([value(r.type) for r in i.results])
        s.emit(Apply(results, i.op, tuple([env.get(x, x) for x in i.operands]), span))
        env.update(zip(i.results, results, strict=True))
    return marked(v.Leaf(env.get(recipe.result, recipe.result)), of_call(function, args))


# ---- how they are found


def _recorded(
    s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract], key: Any, used: Sequence[Value]
) -> v.Abstract:
    """Trace, and keep what that has emitted, where it is nothing but arithmetic on the operands."""
    before, constants = len(s.block.body), len(s.context.constants)
    result = trace(s, function, args, {})
    _keep(key, _recipe(s, used, result, before, constants))
    return result


def _recipe(s: LoweringState, used: Sequence[Value], result: v.Abstract, before: int, constants: int) -> Recipe | None:
    """What has been emitted since then, where it is nothing but arithmetic on the operands."""
    body = tuple(i for i in s.block.body[before:] if isinstance(i, Apply))
    known = {*used, *(r for i in body for r in i.results)}
    reads = [x for i in body for x in i.operands] + [result.operand if isinstance(result, v.Leaf) else None]
    plain = len(body) == len(s.block.body) - before and len(s.context.constants) == constants
    if not plain or not all(x in known if isinstance(x, Value) else _is_number(x) for x in reads):
        return None
    assert isinstance(result, v.Leaf)
    return Recipe(tuple(used), body, result.operand)


def _general(
    s: LoweringState,
    function: Callable[..., Any],
    args: Sequence[v.Abstract],
    operands: Sequence[Operand | Number | None],
    key: Any,
    used: Sequence[Value],
) -> Recipe | None:
    """The recipe for all literals of these types: that of the markers, and where they have come to stand."""
    markers = [MARKERS[k][type(value)] for k, value in enumerate(_literals(operands) or ())]
    given, left = list(args), list(markers)
    for k, (x, a) in enumerate(zip(operands, args, strict=True)):
        if isinstance(x, Literal):
            given[k] = v.Leaf(Literal(left.pop(0), x.type))
        elif not isinstance(x, Value):
            assert isinstance(a, v.Static)
            given[k] = v.Static(left.pop(0))
    before, constants = len(s.block.body), len(s.context.constants)
    result = trace(s, function, given, {})
    found = _recipe(s, used, result, before, constants)
    del s.block.body[before:]
    if found is not None:
        reads = (*(x for i in found.body for x in i.operands), found.result)
        holes = {x: h for x in reads if isinstance(x, Literal) and (h := _hole(x, markers)) is not None}
        known = {h.number for h in holes.values()} == set(range(len(markers)))
        found = found._replace(holes=tuple(holes.items())) if known else None
    return _keep(key, found)


def _hole(x: Literal, markers: Sequence[Number]) -> LiteralHole | None:
    """Where a literal is a marker, which and how."""
    assert isinstance(x.type, Array)
    for k, marker in enumerate(markers):
        if type(x.value) is type(marker) and x.value == marker:
            return LiteralHole(k, x.type, False)
        if x.type.dtype.startswith("float") and x.value == _converted(marker, x.type):
            return LiteralHole(k, x.type, True)
    return None


def _converted(value: Number, type: Array) -> Any:
    return np.asarray(value).astype(jax_compat.device_dtype(type)).item()


def _keep(key: Any, recipe: Recipe | None) -> Recipe | None:
    if len(_known) >= KNOWN:
        _known.clear()
    _known[key] = recipe
    return recipe


# ---- operands


def _literals(operands: Sequence[Operand | Number | None]) -> list[Number] | None:
    """The literals of a call, where there are some and each is of a kind that has markers."""
    found = [x.value if isinstance(x, Literal) else x for x in operands if not isinstance(x, Value)]
    if not 0 < len(found) <= len(MARKERS):
        return None
    numbers: list[Number] = [x for x in found if type(x) is int or (type(x) is float and abs(x) < LARGEST)]
    return numbers if len(numbers) == len(found) else None


def _operand(x: v.Abstract) -> Operand | Number | None:
    """The number that an argument is; None where it is something else."""
    match x:
        case v.Leaf(operand=Value(type=Array()) as operand):
            return operand
        case v.Leaf(operand=operand) if _is_number(operand):
            return operand
        case v.Static(value=bool() | int() | float() as held) if type(held) in (bool, int, float):
            return held
    return None


def _is_number(x: Any) -> bool:
    """A literal that says all about itself: a Python number that the device can hold."""
    return isinstance(x, Literal) and x.constant < 0 and not x.is_wide


def _form(x: Operand | Number | None, used: Sequence[Value], by_type: bool) -> Any:
    """What a trace depends on: a number, or the type of a value and which of the others it is."""
    match x:
        case Value(type=held):
            return (held, used.index(x))
        case Literal(value=value, type=held):
            return (type(value), None if by_type else repr(value), held)
        case _:
            return (type(x), None if by_type else repr(x))
