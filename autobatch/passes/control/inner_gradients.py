"""Derivatives that a function takes of what it computes itself, where that branches or loops on computed numbers.

    %2 = seed(%1)                            %9 = gradient_of[wrt=(0,)](%1, %3) do (%6, %7):
    %4 = gt(%2, %3)                            %4 = gt(%6, %7)
    %8 = if %4 then:                           %8 = if %4 then:
      %5 = mul(%2, %2)                  ->       %5 = mul(%6, %6)
      yield %5                                   yield %5
    else: yield %2                             else: yield %6
    %9 = gradient(%8, %2)                      yield %8

What lies on the paths from the seeds to the number is copied into the region of one operation; what does not depend on
a seed stays outside, and is read by it. The number itself is computed outside too, where something reads it or it can
fail: there its checks are made. Derivatives inside are made first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autobatch.ir.core import Apply, Instruction, Module, Operand, Region, Value, operands, regions, walk
from autobatch.ir.rewrite import copy_region, free_values, with_regions

Closed = Callable[[Sequence[Instruction], Apply], tuple[list[Instruction], Apply] | None]
"""Instructions as the operation `gradient_of` in place of a `gradient`, behind instructions that stand in front of it;
None where something is in the way."""


def has_gradients(module: Module) -> bool:
    """Does a function take a derivative that is no operation yet?"""
    return any(_is_gradient(i) for f in module.functions for i in walk(f.region))


def close_gradients(module: Module, closed: Closed) -> Module:
    """The module whose derivatives inside functions are operations, where they can be. Seeds of which no derivative is
    left are gone."""
    functions = tuple(replace(f, region=_closed(f.region, closed)) for f in module.functions)
    made = replace(module, functions=functions)
    wanted = {x for f in functions for i in walk(f.region) if _is_gradient(i) for x in operands(i)[1:]}
    return replace(made, functions=tuple(replace(f, region=_without_seeds(f.region, wanted)) for f in functions))


def _is_gradient(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "gradient" and not instruction.op.is_jax


def is_seed(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "seed" and not instruction.op.is_jax


def _closed(region: Region, closed: Closed) -> Region:
    body: list[Instruction] = []
    for instruction in region.body:
        made = with_regions(instruction, lambda r: _closed(r, closed))
        if _is_gradient(made):
            assert isinstance(made, Apply)
            found = closed(_between(body, made), made)
            if found is not None:
                front, made = found
                body += front
        body.append(made)
    return replace(region, body=tuple(body))


def _between(body: Sequence[Instruction], gradient: Apply) -> list[Instruction]:
    """The instructions on paths from the seeds of a derivative to its number."""
    number, *seeds = gradient.operands
    reached: set[Operand] = set(seeds)
    behind = []
    for i in body:
        if not reached.isdisjoint(_read(i)):
            reached.update(i.results)
            behind.append(i)
    needed: set[Operand] = {number}
    found = []
    for i in reversed(behind):
        if not needed.isdisjoint(i.results):
            needed.update(_read(i))
            found.append(i)
    return found[::-1]


def _read(instruction: Instruction) -> list[Operand]:
    inside: list[Value] = [x for r in regions(instruction) for x in free_values(r)]
    return [*operands(instruction), *inside]


def _without_seeds(region: Region, wanted: set[Operand]) -> Region:
    """A seed is the number that it is made of."""
    env: dict[Value, Operand] = {}

    def clean(region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            if is_seed(i) and i.results[0] not in wanted and isinstance(x := operands(i)[0], Value):
                env[i.results[0]] = env.get(x, x)
            else:
                body.append(with_regions(i, clean))
        return replace(region, body=tuple(body))

    cleaned = clean(region)
    return copy_region(cleaned, env, None) if env else cleaned
