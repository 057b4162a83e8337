"""What a call of XLA costs: the executable, control flow on computed numbers, and the plan of examples of structure.

The constants are microseconds (`_ns`: nanoseconds), fitted to 357 calls and 213 derivatives by
`python -m benchmarks.choice.fit`. Control flow costs from 0.2 ms to seconds; the constants are of its cheapest kinds,
as machine code is the faster one of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobatch.backends.interface import Cost, Load, Work

MANY, LARGE, SHARED, PRODUCTS = 16, 256, 30_000, 200_000
"""Rows from which on a product of many rows is another one, and from which on threads share so many numbers; the
multiplications from which on they share products of fewer rows."""


@dataclass(frozen=True)
class XlaConstants:
    """`call`: of one executable. `operation_ns`: those that XLA does not fuse. Of each row: numbers that are made,
    multiplications of products, and products and sorts that each row has for itself (`own`). `dot`: a product of many
    rows. `control`: data-dependent control flow; `inside_ns`: of each row, the multiplications in there. `plan`,
    `plan_row`: where lists and objects come with the call, or integers decide a recursion. `planned`: where their
    plan is kept; `level`: a loop over them whose steps have no product; `case`: a branch in a recursion. `wake`:
    threads that share the rows. `planned_*`: of examples of structure, numbers and multiplications, as there are few
    iterations."""

    call: float
    operation_ns: float
    element_ns: float
    multiplication_ns: float
    own: float
    dot: float
    control: float
    inside_ns: float
    plan: float
    plan_row: float
    planned: float
    level: float
    case: float
    wake: float
    planned_element_ns: float
    planned_multiplication_ns: float


VALUES = XlaConstants(18.0, 1.6, 0.2, 0.04, 1.5, 7.9, 250.0, 0.4, 5500.0, 24.0, 130.0, 1.8, 34.0, 87.0, 0.11, 0.018)
DERIVATIVES = XlaConstants(
    35.0, 90.0, 1.4, 0.0089, 1.3, 15.0, 840.0, 4.1, 5200.0, 38.0, 240.0, 380.0, 260.0, 52.0, 0.064, 0.093
)

LAUNCH, GPU_CALL, TURNS = 10.0, 80.0, 16
"""On a GPU: of a kernel in a loop, and of a call; iterations that such a loop is taken to have."""

START, OPERATION = 0.3, 5e-4
"""Seconds to compile at least, and for each operation (medians of the same programs)."""
MOST_UNROLLED = 3000
"""Operations from which on loops stay loops."""


def cost(work: Work, load: Load, constants: XlaConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    is_planned = work.structured or work.recursions > work.following
    rows, controls = load.rows, work.decided if is_planned else work.loops + work.branches + work.fails
    first = (START + OPERATION * min(work.operations, MOST_UNROLLED)) * (2 if load.derives else 1)
    if load.device == "gpu":
        return Cost(GPU_CALL + LAUNCH * TURNS * min(controls, work.loops), first)
    wakes = not is_planned and work.dots > 0 and rows * work.products > PRODUCTS
    wakes = wakes or (rows > LARGE and (work.dots > 0 or rows * work.elements > SHARED))
    row = of.element_ns * work.elements + of.multiplication_ns * work.multiplications
    if is_planned:
        row = of.planned_element_ns * work.elements + of.planned_multiplication_ns * work.multiplications
    call = of.call + of.wake * wakes + rows * (1e-3 * row + of.own * work.own)
    if is_planned:
        call += of.planned + of.level * work.loops * (not work.dots) + of.case * work.branches * work.recursions
        call += 0.0 if load.planned else of.plan + of.plan_row * rows
    else:
        call += 1e-3 * of.operation_ns * work.operations + of.dot * work.dots * (rows > MANY)
    if controls:
        call += of.control + 1e-3 * of.inside_ns * work.inside * rows
    return Cost(call, first)
