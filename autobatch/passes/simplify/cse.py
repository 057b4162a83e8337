"""Common subexpressions: an operation that a dominating region has done already is not done again.

    %3 = load[left](%1)                 %3 = load[left](%1)
    %4 = is_none(%3)              ->    %4 = is_none(%3)
    %7 = load[left](%1)                 ... %3 wherever %7 stood
    %8 = call @encode(%7)               %8 = call @encode(%3)

Everything but checks is pure, loads too: nothing in a per-example function mutates its data. Two objects that are made
alike are two, all the same; so are two seeds of derivatives.

What a loop carries and does not change is not carried, and what both arms of a branch give is that. So the integers of
memory (`frontend/memory/heap.py`) that a loop only passes on do not become numbers of the device with the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from autobatch.ir.core import Apply, Array, For, If, Instruction, Literal, Module, Operand, Region, Type, Value, While
from autobatch.ir.ops import about
from autobatch.ir.rewrite import copy_instruction, substitute, with_operands, with_regions

# ---- constants
#
# Operations on integers and bools that the program holds: what they give is known while compiling.
#
#     %3 = eq(17, 0)                      (Python's `%` by 17 asks whether that is zero)
#     %4 = select_n(%3, 17, 1)     ->     17 wherever %4 stood
#     %5 = and(%2, true)                  %2 wherever %5 stood
#
# Floats are left alone: the device computes them, in its own precision.


COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "ne": operator.ne,
}

UNIT: Mapping[tuple[str, bool], bool | None] = {
    ("and", True): None,
    ("and", False): False,
    ("or", False): None,
    ("or", True): True,
    ("ne", False): None,
    ("eq", True): None,
}
"""Of a bool and a constant, in either order: what that is; None: the bool."""


def known_constant(apply: Apply) -> Operand | None:
    """What the result of an operation is, where that is a constant or one of its operands; None elsewhere."""
    if len(apply.results) != 1 or not apply.op.is_jax:
        return None
    name, xs, type = apply.op.name, apply.operands, apply.results[0].type
    if name == "select_n" and (chosen := _constant(xs[0])) is not None and 0 <= chosen < len(xs) - 1:
        found = xs[1 + chosen]
        return found if _same_numbers(found.type, type) else None
    if len(xs) == 2:
        return _of_two(name, xs[0], xs[1], type)
    if name == "sign" and (x := _constant(xs[0])) is not None and isinstance(type, Array) and type.is_integer:
        return Literal((x > 0) - (x < 0), type)
    return None


def _of_two(name: str, a: Operand, b: Operand, type: Type) -> Operand | None:
    x, y = _constant(a), _constant(b)
    if x is not None and y is not None and name in COMPARED:
        return Literal(COMPARED[name](x, y), type)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Literal) and isinstance(one.value, bool) and (name, one.value) in UNIT:
            found = UNIT[name, one.value]
            if found is None:
                return other if _same_numbers(other.type, type) else None
            return Literal(found, type)
    return None


def _constant(x: Operand) -> int | None:
    """The integer or bool of one number that the device holds exactly."""
    if not isinstance(x, Literal) or x.constant >= 0 or x.is_wide or not isinstance(x.value, bool | int):
        return None
    of_whole = isinstance(x.type, Array) and x.type.shape == () and not x.type.dtype.startswith("float")
    return int(x.value) if of_whole else None


def _same_numbers(a: Type, b: Type) -> bool:
    return isinstance(a, Array) and isinstance(b, Array) and (a.dtype, a.shape) == (b.dtype, b.shape)


_T = TypeVar("_T")


def eliminate_common(module: Module) -> Module:
    """Every function with repeated operations removed."""
    functions = tuple(replace(f, region=_region(f.region, {}, {})) for f in module.functions)
    return replace(module, functions=functions)


def _region(region: Region, known: dict[Hashable, tuple[Value, ...]], env: dict[Value, Operand]) -> Region:
    """`known` are the operations of this region and of those around it, by key."""
    body: list[Instruction] = []
    own: list[Hashable] = []
    for instruction in region.body:
        if isinstance(instruction, Apply):
            new = copy_instruction(instruction, env, None)
            assert isinstance(new, Apply)
            if (constant := known_constant(new)) is not None:
                env[instruction.results[0]] = constant
                continue
            if new.op.name == "check" and _is_true(new.operands[0]):
                continue
            key = key_of(new)
            if key is not None and key in known:
                env.update(zip(instruction.results, known[key], strict=True))
                continue
            if key is not None:
                known[key] = new.results
                own.append(key)
            body.append(new)
        else:
            inner = copy_instruction(with_regions(instruction, lambda r: _region(r, known, env)), env, None)
            body.append(_without_unchanged(inner, env))
    for key in own:
        del known[key]  # what stands in a region is known in no other one beside it
    return Region(region.args, tuple(body), tuple(substitute(r, env) for r in region.results))


def _without_unchanged(i: Instruction, env: dict[Value, Operand]) -> Instruction:
    """A branch or loop without the results that are what was there before it, which are noted in `env`."""
    match i:
        case If(then=then, orelse=orelse):
            same = [k for k, (x, y) in enumerate(zip(then.results, orelse.results, strict=True)) if _is_same(x, y)]
            env.update((i.results[k], then.results[k]) for k in same)
            arms = (replace(r, results=_without(r.results, same)) for r in (then, orelse))
            return _with(i, same, then=next(arms), orelse=next(arms)) if same else i
        case For(init=init, body=body):
            turn, *args = body.args
            same = [k for k, (x, y) in enumerate(zip(args, body.results, strict=True)) if x == y]
            if not same:
                return i
            inner = _renamed(body, {args[k]: init[k] for k in same})
            inner = replace(inner, args=(turn, *_without(args, same)), results=_without(inner.results, same))
            env.update((i.results[k], init[k]) for k in same)
            return _with(i, same, init=_without(init, same), body=inner)
        case While(init=init, condition=test, body=body):
            same = [k for k, (x, y) in enumerate(zip(body.args, body.results, strict=True)) if x == y]
            if not same:
                return i
            inner = _renamed(body, {body.args[k]: init[k] for k in same})
            tested = _renamed(test, {test.args[k]: init[k] for k in same})
            inner = replace(inner, args=_without(body.args, same), results=_without(inner.results, same))
            tested = replace(tested, args=_without(test.args, same))
            env.update((i.results[k], init[k]) for k in same)
            return _with(i, same, init=_without(init, same), condition=tested, body=inner)
        case _:
            return i


def _with(i: Instruction, same: Sequence[int], **changes: Any) -> Instruction:
    return replace(i, results=_without(i.results, same), **changes)


def _without(xs: Sequence[_T], places: Collection[int]) -> tuple[_T, ...]:
    return tuple(x for k, x in enumerate(xs) if k not in places)


def _renamed(region: Region, names: Mapping[Value, Operand]) -> Region:
    return with_operands(region, lambda x: names.get(x, x) if isinstance(x, Value) else x)


def _is_same(x: Operand, y: Operand) -> bool:
    """Are two operands, which are there in front of a branch, one? Of constants that is not asked: they say more where
    they are not."""
    return x == y and isinstance(x, Value)


def _is_true(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0 and x.value is True


def key_of(instruction: Apply) -> Hashable | None:
    """What makes two operations one, or None for those that must stay apart."""
    op = instruction.op
    if not op.is_jax and (about(op).effect or op.name in ("undefined", "make", "seed")):
        return None
    key = (
        op,
        instruction.operands,
        tuple(r.type for r in instruction.results),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key
