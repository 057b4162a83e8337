"""What a call of machine code costs: reading the arguments, and what each row computes.

The constants are microseconds (`_ns`: nanoseconds), fitted to 345 calls and 201 derivatives by
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
    multiplications of products whose factors each row has for itself (`own_ns`, more than others)."""

    call: float
    read: float
    read_row: float
    element_ns: float
    multiplication_ns: float
    operation_ns: float
    recursion: float
    returned_ns: float
    own_ns: float


VALUES = MachineCodeConstants(55.0, 120.0, 0.91, 0.033, 0.058, 0.03, 0.28, 3.8, 1.6)
DERIVATIVES = MachineCodeConstants(140.0, 140.0, 1.0, 0.26, 0.81, 0.05, 11.0, 0.46, 1.3)

START, OPERATION = 0.07, 1e-4
"""Seconds to compile at least, and for each instruction (medians of the same programs)."""
MOST_UNROLLED = 1000
"""Instructions from which on loops stay loops."""


def cost(work: Work, load: Load, constants: MachineCodeConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    row = of.element_ns * work.elements + of.multiplication_ns * work.products + of.operation_ns * work.operations
    row += of.returned_ns * work.returned + of.own_ns * work.own_multiplications
    call = of.call + shared_out(load.rows * (1e-3 * row + of.recursion * work.recursions))
    if work.structured and not load.planned:
        call += of.read + of.read_row * load.rows
    first = START + OPERATION * min(work.operations, MOST_UNROLLED)
    return Cost(call, first * (2 if load.derives else 1))


def shared_out(microseconds: float) -> float:
    """The time that threads need for so much work together."""
    return max(min(microseconds, AT_ONCE), microseconds / processors())
