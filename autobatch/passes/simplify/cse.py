"""Common subexpressions: an operation that a dominating region has done already is not done again.

    %3 = load[left](%1)                 %3 = load[left](%1)
    %4 = is_none(%3)              ->    %4 = is_none(%3)
    %7 = load[left](%1)                 ... %3 wherever %7 stood
    %8 = call @encode(%7)               %8 = call @encode(%3)

Everything but checks is pure, loads too: nothing in a per-example function mutates its data. Two objects that are made
alike are two, all the same; so are two seeds of derivatives.

What a loop carries and does not change is not carried, and what both arms of a branch give is that. So the integers of
memory (`frontend/memory/heap.py`) that a loop only hands on do not become numbers of the device with the others.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from autobatch.ir.core import Apply, For, If, Instruction, Literal, Module, Operand, Region, Value, While
from autobatch.ir.ops import about
from autobatch.ir.rewrite import copy_instruction, substitute, with_operands, with_regions
from autobatch.passes.simplify.constants import known as known_constant

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
