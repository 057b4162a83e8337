"""Common subexpressions: an operation that a dominating region has done already is not done again.

    %3 = load[left](%1)                 %3 = load[left](%1)
    %4 = is_none(%3)              ->    %4 = is_none(%3)
    %7 = load[left](%1)                 ... %3 wherever %7 stood
    %8 = call @encode(%7)               %8 = call @encode(%3)

Everything but checks is pure, loads too: nothing in a per-example function mutates its data. Two objects that are made
alike are two, all the same; so are two seeds of derivatives.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from autobatch.ir.core import Apply, Instruction, Literal, Module, Operand, Region, Value
from autobatch.ir.ops import about
from autobatch.ir.rewrite import copy_instruction, substitute, with_regions
from autobatch.optimize.constants import known as known_constant


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
            inner = with_regions(instruction, lambda r: _region(r, known, env))
            body.append(copy_instruction(inner, env, None))
    for key in own:
        del known[key]  # what stands in a region is known in no other one beside it
    return Region(region.args, tuple(body), tuple(substitute(r, env) for r in region.results))


def _is_true(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0 and x.value is True


def key_of(instruction: Apply) -> Hashable | None:
    """What makes two operations one, or None for those that must stay apart."""
    op = instruction.op
    if not op.is_jax and (about(op).effect or op.name in ("undefined", "make", "seed")):
        return None
    key = (
        (op.name, op.params),
        tuple(map(_operand_key, instruction.operands)),
        tuple(r.type for r in instruction.results),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _operand_key(x: Operand) -> Hashable:
    if isinstance(x, Literal):
        return (type(x.value), repr(x.value), x.type, x.constant)
    return x
