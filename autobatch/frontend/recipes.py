"""Arithmetic that is met again: the instructions that a traced operator became, written anew for other operands.

    a * b      traced once:  %0 = convert(a); %1 = mul(%0, b)        c * d     the same instructions, renamed

A function has a few dozen kinds of arithmetic and thousands of places with it. What JAX makes of one depends on the
operator, on the types of the operands, on those that are literals, and on which of them are one value; so that is the
key. Whatever does not fit goes the way of every other call (`tracing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from autobatch.frontend import values as v
from autobatch.frontend.numpy_arrays import marked, of_call
from autobatch.frontend.state import State
from autobatch.frontend.tracing import trace
from autobatch.ir.core import Apply, Literal, Operand, Value
from autobatch.ir.types import Array


class Recipe(NamedTuple):
    """What the trace of an operator became: instructions that read `inputs`, and its result."""

    inputs: tuple[Value, ...]
    body: tuple[Apply, ...]
    result: Operand


def trace_numbers(s: State, function: Callable[..., Any], args: Sequence[v.Abstract]) -> v.Abstract:
    """As `tracing.trace`, for functions of ours and of `operator`, which outlive the lowering. Raises Untraceable."""
    operands = [_operand(a) for a in args]
    if any(x is None for x in operands):
        return trace(s, function, args, {})
    used = list(dict.fromkeys(x for x in operands if isinstance(x, Value)))
    key = (function, tuple([_form(x, used) for x in operands]), jax.config.read("jax_enable_x64"))
    recipes = s.context.memory.recipes
    if key not in recipes:
        return _recorded(s, function, args, key, used)
    recipe: Recipe | None = recipes[key]
    if recipe is None:
        return trace(s, function, args, {})
    env: dict[Operand, Operand] = dict(zip(recipe.inputs, used, strict=True))
    for i in recipe.body:
        results = tuple(s.context.value(r.type) for r in i.results)
        s.emit(Apply(results, i.op, tuple([env.get(x, x) for x in i.operands]), s.span))
        env.update(zip(i.results, results, strict=True))
    return marked(v.Leaf(env.get(recipe.result, recipe.result)), of_call(function, args))


def _recorded(
    s: State, function: Callable[..., Any], args: Sequence[v.Abstract], key: Any, used: Sequence[Value]
) -> v.Abstract:
    """Trace, and keep what that has emitted, where it is nothing but arithmetic on the operands."""
    before, constants = len(s.block.body), len(s.context.constants)
    result = trace(s, function, args, {})
    body = tuple(i for i in s.block.body[before:] if isinstance(i, Apply))
    known = {*used, *(r for i in body for r in i.results)}
    reads = [x for i in body for x in i.operands] + [result.operand if isinstance(result, v.Leaf) else None]
    plain = len(body) == len(s.block.body) - before and len(s.context.constants) == constants
    if plain and all(x in known if isinstance(x, Value) else _is_number(x) for x in reads):
        assert isinstance(result, v.Leaf)
        s.context.memory.recipes[key] = Recipe(tuple(used), body, result.operand)
    else:
        s.context.memory.recipes[key] = None
    return result


def _operand(x: v.Abstract) -> Operand | bool | int | float | None:
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


def _form(x: Operand | bool | int | float | None, used: Sequence[Value]) -> Any:
    """What a trace depends on: a number, or the type of a value and which of the others it is."""
    match x:
        case Value(type=held):
            return (held, used.index(x))
        case Literal(value=value, type=held):
            return (type(value), repr(value), held)
        case _:
            return (type(x), repr(x))
