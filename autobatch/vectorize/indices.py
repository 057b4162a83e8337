"""Indices of NumPy's arrays: an example fails where the host knows that one is out of range; all others clamp.

bounds[axis=0, size=5](%2)     ->     (the same)     %2 derives from example data
                               ->     (nothing)      %2 derives from shared arrays: only the device knows it
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.analysis.structure import Structure, decided
from autobatch.ir.core import Apply, Instruction, Module, Region
from autobatch.ir.rewrite import with_regions


def keep_known_bounds(module: Module, facts: Structure, numbers: frozenset[int]) -> Module:
    """The module without the checks of indices that only the device computes; the same module when there is none.
    `numbers` are shared integers, by position, that the host may be told."""
    shared = frozenset(module.shared[k] for k in numbers)
    told = shared | decided(module, shared)
    dropped = 0

    def is_known(instruction: Instruction) -> bool:
        nonlocal dropped
        if not isinstance(instruction, Apply) or instruction.op.is_jax or instruction.op.name != "bounds":
            return True
        known = facts.is_host(instruction.operands[0]) or instruction.operands[0] in told
        dropped += not known
        return known

    def kept(region: Region) -> Region:
        return replace(region, body=tuple(with_regions(i, kept) for i in region.body if is_known(i)))

    functions = tuple(replace(f, region=kept(f.region)) for f in module.functions)
    return replace(module, functions=functions) if dropped else module
