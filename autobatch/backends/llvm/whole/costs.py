"""What a call of machine code costs: reading the arguments, and what each row computes.

The constants are microseconds (`_ns`: nanoseconds), fitted to 357 calls and 213 derivatives by
`python -m benchmarks.choice.fit`.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobatch.backends.interface import Cost, Load, Work
from autobatch.backends.llvm.whole.running import processors

AT_ONCE = 200.0
"""What a thread does by itself: to wake others for less does not pay."""


@dataclass(frozen=True)
class MachineCodeConstants:
    """`call`: with arrays of JAX. `read`, `read_row`: where lists and objects come with the call. Of each row: numbers
    that are made, multiplications of products, instructions, calls of a recursion, numbers that are returned,
    multiplications of products whose factors each row has for itself (`own_ns`, more than others), numbers that a
    recursion with products makes, whose rows are computed one after another (`alone_ns`, more than others)."""

    call: float
    read: float
    read_row: float
    element_ns: float
    multiplication_ns: float
    operation_ns: float
    recursion: float
    returned_ns: float
    own_ns: float
    alone_ns: float


VALUES = MachineCodeConstants(55.0, 120.0, 0.77, 0.022, 0.068, 0.055, 0.2, 3.7, 1.9, 1.1)
DERIVATIVES = MachineCodeConstants(130.0, 140.0, 1.4, 0.21, 1.0, 0.21, 3.7, 0.55, 1.9, 0.26)

START, OPERATION = 0.07, 1e-4
"""Seconds to compile at least, and for each instruction (medians of the same programs)."""
MOST_UNROLLED = 1000
"""Instructions from which on loops stay loops."""


def cost(work: Work, load: Load, constants: MachineCodeConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    row = of.element_ns * work.elements + of.multiplication_ns * work.products + of.operation_ns * work.operations
    row += of.returned_ns * work.returned + of.own_ns * work.own_multiplications
    row += of.alone_ns * work.elements * (work.structured and work.recursions > 0 and work.dots > 0)
    call = of.call + shared_out(load.rows * (1e-3 * row + of.recursion * work.recursions))
    if work.structured and not load.planned:
        call += of.read + of.read_row * load.rows
    first = START + OPERATION * min(work.operations, MOST_UNROLLED)
    return Cost(call, first * (2 if load.derives else 1))


def shared_out(microseconds: float) -> float:
    """The time that threads need for so much work together."""
    return max(min(microseconds, AT_ONCE), microseconds / processors())
