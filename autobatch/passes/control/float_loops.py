"""Which loops run on the device although the host could count their turns: those that floats of the examples end.

    while abs(x * x - a) > 1e-6:          x and a are rows of an array: the host could compute them, turn after turn,
        x = x - (x * x - a) / (2 * x)     and lay out a row for each; the device runs the loop under a mask

Laid out, a turn costs the host fifty microseconds for every few the device needs, and the numbers are computed twice.
Only loops whose numbers are the same on both sides leave the host: Python's floats have 64 bits there, so they stay
unless the device's have too; so do integers that a turn does more with than count. A loop has to hold arithmetic alone.
Under `jax.jit`, which hides arrays from the host, these loops run the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
    Instruction,
    Literal,
    Module,
    Operand,
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.types import Array

GROWING = frozenset(("mul", "integer_pow", "pow", "dot_general", "cumsum", "cumprod", "reduce_prod", "shift_left"))
"""What makes an integer too large for the device: the host counts in 64 bits, and says where they are not enough."""


def loops_of_floats(module: Module, obstructed: Callable[[While], bool]) -> frozenset[Value]:
    """The floats that such loops carry, and that decide their turns. `obstructed`: can a loop not run on the device?"""
    found: set[Value] = set()
    for function in module.functions:
        for instruction in walk(function.region):
            if isinstance(instruction, While) and not obstructed(instruction) and _same_on_device(instruction):
                for k in _deciding_floats(instruction):
                    found.update((instruction.body.args[k], instruction.condition.args[k], instruction.results[k]))
    return frozenset(found)


def _deciding_floats(loop: While) -> list[int]:
    """The positions of carried floats that turns change and that the test depends on, through any number of turns."""
    test, body = loop.condition, loop.body
    deciding: set[int] = set()
    tested = _sources(test, test.results[:1])
    new = {k for k, a in enumerate(test.args) if a in tested}
    while new - deciding:
        deciding |= new
        read = _sources(body, [body.results[k] for k in deciding])
        new = {k for k, a in enumerate(body.args) if a in read}
    return [k for k in sorted(deciding) if _is_float(body.args[k]) and body.results[k] != body.args[k]]


def _sources(region: Region, results: Sequence[Operand]) -> set[Operand]:
    """What some results of a region are computed from; whatever an instruction with regions reads, it may depend on."""
    makers: Mapping[Value, Instruction] = {r: i for i in region.body for r in i.results}
    found: set[Operand] = set()
    todo = list(results)
    while todo:
        x = todo.pop()
        if x in found:
            continue
        found.add(x)
        if isinstance(x, Value) and x in makers:
            todo += _reads(makers[x])
    return found


def _reads(instruction: Instruction) -> list[Operand]:
    inner = [x for r in regions(instruction) for i in r.body for x in _reads(i)]
    return [*operands(instruction), *inner, *(x for r in regions(instruction) for x in r.results)]


def _same_on_device(loop: While) -> bool:
    """Does the device compute every number of the loop as the host does?"""
    inside = [loop, *(i for r in regions(loop) for i in walk(r))]
    carried = [a for i in inside for r in regions(i) for a in r.args]
    read = [x for i in inside for x in operands(i)]
    return all(_is_wide(x) for x in (*carried, *read)) and not any(_grows(i) for i in inside)


def _is_wide(x: Operand) -> bool:
    """Has a number on the device the bits that it has on the host?"""
    if isinstance(x, Literal) or not _is_float(x):
        return True
    assert isinstance(x.type, Array)
    return not x.type.weak or jax_compat.device_dtype(x.type).itemsize == 8


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and jnp.issubdtype(jax_compat.dtype_of(x.type.dtype), jnp.inexact)


def _grows(instruction: Instruction) -> bool:
    if not isinstance(instruction, Apply) or instruction.op.name not in GROWING:
        return False
    return any(isinstance(r.type, Array) and r.type.is_integer for r in instruction.results)
