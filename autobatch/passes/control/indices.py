"""Indices of NumPy's arrays: an example fails where one is out of range.

bounds[axis=0, size=5](%2)     ->     (the same)                         %2 derives from example data: the host looks
                               ->     %3 = ge(%2, -5); %4 = lt(%2, 5)    %2 is computed: the device looks
                                      check[kind='IndexError'](%3 and %4)
                               ->     (nothing)                          what is left behind uniform loops, and clamps
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Instruction, Literal, Module, Operand, Region, Value, operands, walk
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import BOOL, Array
from autobatch.passes.analysis.structure import StructureFacts, decided
from autobatch.passes.control.uniform_loops import is_bounds
from autobatch.source import Span

UNKNOWN = "<...>"
"""What stands in a message for numbers that only the device knows."""


def check_computed_indices(module: Module, device: frozenset[Value]) -> Module:
    """The module in which indices that only the device knows (`device`) are looked at by checks of it."""
    if not any(is_bounds(i) and not device.isdisjoint(operands(i)) for f in module.functions for i in walk(f.region)):
        return module
    fresh = Fresh(module)

    def each(instruction: Instruction) -> list[Instruction]:
        if not isinstance(instruction, Apply) or not is_bounds(instruction) or instruction.operands[0] not in device:
            return [with_regions(instruction, region)]
        return check_of(instruction, fresh)

    def region(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def check_of(bounds: Apply, fresh: Fresh) -> list[Instruction]:
    """What looks on the device whether an index is in range, whoever knows it."""
    made: list[Instruction] = []
    op, span, told = bounds.op, bounds.span, fresh.value(BOOL)
    (inside,) = in_place(is_inside, bounds.operands, fresh, made.append, span, op["size"])
    made.append(Apply((told,), own("unknown"), (inside,), span))
    message = f"index {UNKNOWN} is out of bounds for axis {op['axis']} with size {op['size']}"
    return [*made, Apply((), own("check", kind="IndexError", message=message), (told,), span)]


def in_place(
    function: Callable[..., Any],
    xs: Sequence[Operand],
    fresh: Fresh,
    emit: Callable[[Apply], None],
    span: Span,
    *known: Hashable,
) -> Sequence[Operand]:
    """What a function of JAX that holds no arrays gives of scalars or arrays, in place. `known`: what it is given
    first; for that and the types it is traced once."""
    closed = _traced(function, known, tuple(x.type for x in xs if isinstance(x.type, Array)), jax_compat.settings())
    return jax_compat.inline(closed, xs, fresh.value, _no_constant, emit, span)


@lru_cache(maxsize=4096)
def _traced(
    function: Callable[..., Any], known: tuple[Hashable, ...], types: tuple[Array, ...], settings: Hashable
) -> Any:
    return jax_compat.trace(partial(function, *known), *types)[0]


def is_inside(size: int, index: Any) -> Any:
    """Are all numbers of an index within an axis of this size?"""
    return jnp.all((index >= -size) & (index < size))


def _no_constant(array: Any) -> Literal:
    raise AssertionError("a comparison with a number holds no array")


def keep_known_bounds(module: Module, find: Callable[[], StructureFacts], numbers: frozenset[int]) -> Module:
    """The module without the checks of indices that only the device computes; the same module when there is none.
    `find` are the facts of the module, asked for where there is a check; `numbers` are shared integers, by position,
    that the host may be told."""
    if not any(is_bounds(i) for f in module.functions for i in walk(f.region)):
        return module
    facts = find()
    shared = frozenset(module.shared[k] for k in numbers)
    told = shared | decided(module, shared)
    dropped = 0

    def is_known(instruction: Instruction) -> bool:
        nonlocal dropped
        if not isinstance(instruction, Apply) or not is_bounds(instruction):
            return True
        known = facts.is_host(instruction.operands[0]) or instruction.operands[0] in told
        dropped += not known
        return known

    def kept(region: Region) -> Region:
        return replace(region, body=tuple(with_regions(i, kept) for i in region.body if is_known(i)))

    functions = tuple(replace(f, region=kept(f.region)) for f in module.functions)
    return replace(module, functions=functions) if dropped else module
