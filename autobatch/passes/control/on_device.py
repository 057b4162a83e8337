"""A module of which the host runs nothing: loops that numbers count, checks of indices.

    %4 = for %n init(%x) body(%i, %h):            %4 = while (0, %x) test (%i, %h): yield %i < %n
      bounds[axis=0, size=5](%j)            ->      do (%i, %h): bounds[axis=0, size=5](%j); ...; yield %i + 1, ...
      ...

    %4 = for 3 init(%x) body(%i, %h):             %4 = for 3 init(%x) body(%i, %h):
      bounds[axis=0, size=5](%i)            ->      ...

For back ends that run the whole function of an example, where no row is laid out ahead of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import BOOL, INT, Apply, Array, For, Instruction, Literal, Module, Operand, Region, Value, While
from autobatch.ir.interpret import outside
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import Fresh, region_values, with_regions
from autobatch.passes.control.uniform_loops import is_bounds, steps_to


def run_on_device(module: Module) -> Module:
    """The module with its loops and checks as the device runs them."""
    fresh = Fresh(module)

    def each(instruction: Instruction) -> list[Instruction]:
        whole = with_regions(instruction, region)
        match whole:
            case For(count=Literal()):
                return [_without_checks(whole, module)]
            case For():
                return [_counted(whole, fresh)]
            case _:
                return [whole]

    def region(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    functions = tuple(replace(f, region=region(f.region)) for f in module.functions)
    return replace(module, functions=functions)


def numbers_of(module: Module) -> frozenset[Value]:
    """All numbers and arrays of a module."""
    inside = (v for f in module.functions for v in region_values(f.region))
    return frozenset(v for v in (*module.shared, *inside) if isinstance(v.type, Array))


def _counted(loop: For, fresh: Fresh) -> While:
    """A loop of a number of turns that is computed, as one that this number ends."""
    final, tested = fresh.value(INT), fresh.value(INT)
    turn, carried = loop.body.args[0], fresh.like(loop.body.args[1:])
    more, following = fresh.value(BOOL), fresh.value(INT)
    less = Apply((more,), Op("lt", (), jax.lax.lt_p), (tested, loop.count), loop.span)
    step = Apply((following,), Op("add", (), jax.lax.add_p), (turn, Literal(1, INT)), loop.span)
    test = Region((tested, *carried), (less,), (more,))
    body = Region(loop.body.args, (*loop.body.body, step), (following, *loop.body.results))
    return While((final, *loop.results), (Literal(0, INT), *loop.init), test, body, loop.span)


TRIED = 1 << 20
"""Turns of a loop of which each is looked at while compiling."""


def _without_checks(loop: For, module: Module) -> For:
    """A loop without the checks of indices that hold in each of its turns, as far as the turn alone decides them."""
    assert isinstance(loop.count, Literal) and isinstance(loop.count.value, int)
    if loop.count.value > TRIED:
        return loop
    turn, turns = loop.body.args[0], np.arange(loop.count.value)

    def holds(check: Apply) -> bool:
        steps, reads = steps_to(check.operands[0], loop.body.body)
        if reads != [turn] and reads:
            return False
        env: dict[Value, Any] = {turn: jnp.asarray(turns)}

        def value(x: Operand) -> Any:
            if isinstance(x, Value):
                return env[x]
            assert isinstance(x.type, Array)
            return jnp.asarray(module.constants[x.constant]) if x.constant >= 0 else jax_compat.literal(x.value, x.type)

        if any(r.type.shape for i in steps for r in i.results if isinstance(r.type, Array)):
            return False
        with jax.ensure_compile_time_eval():
            for i in steps:
                types = [Array(r.type.dtype, turns.shape, r.type.weak) for r in i.results if isinstance(r.type, Array)]
                env.update(zip(i.results, leaf.evaluate(i.op, types, *map(value, i.operands)), strict=True))
            return not outside(value(check.operands[0]), check.op["size"]).any()

    body = tuple(i for i in loop.body.body if not (isinstance(i, Apply) and is_bounds(i) and holds(i)))
    return replace(loop, body=replace(loop.body, body=body))
