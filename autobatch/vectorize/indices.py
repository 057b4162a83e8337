"""Indices of NumPy's arrays: an example fails where the host knows that one is out of range; all others clamp.

bounds[axis=0, size=5](%2)     ->     (the same)     %2 derives from example data
                               ->     (nothing)      %2 derives from shared arrays: only the device knows it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autobatch.analysis.structure import Structure, decided
from autobatch.ir.core import Apply, Instruction, Module, Region, walk
from autobatch.ir.rewrite import with_regions
from autobatch.vectorize.turn_bounds import is_bounds


def keep_known_bounds(module: Module, find: Callable[[], Structure], numbers: frozenset[int]) -> Module:
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
