"""What a window of a level loop costs, by its width: the planner covers each level with the cheapest windows.

    cost = overhead + operations * step + rows * (elements * element + flops / speed of products of so many rows)

A window of few rows is cheap where a row is much work, and as dear as a wide one where it is little. The numbers of a
`MachineCosts` are microseconds on one core; only ratios of costs matter. A back end measures them where its programs
run (`backends/xla/measure.py`). (FRAMES.md, section 4.4.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autobatch.ir.core import Apply, walk
from autobatch.ir.masked import is_masked
from autobatch.ir.ops import Op
from autobatch.ir.system import Compute, Fold, Gather, results
from autobatch.ir.types import Array
from autobatch.passes.schedule.fission import Task

EXPENSIVE = frozenset({
    "tanh", "logistic", "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "pow", "erf", "erfc",
    "erf_inv", "lgamma", "digamma", "asin", "acos", "atan", "atan2", "sinh", "cosh", "cbrt", "div", "sqrt", "rsqrt",
    "truediv",
})  # fmt: skip
"""Operations whose elements cost several additions."""
RUN = 3
"""Elements that a row of a fold is taken to have: the planner does not know the examples yet."""


@dataclass(frozen=True)
class MachineCosts:
    """`overhead` of a window and `step` of each of its operations, in microseconds; microseconds an `element` (an
    expensive one costs `expensive` of them); `products`: billions of operations a second by rows of the product."""

    overhead: float
    step: float
    element: float
    expensive: float
    products: tuple[tuple[int, float], ...]

    def speed(self, rows: int) -> float:
        """Billions of operations a second of products of `rows` rows: by interpolation between measured ones."""
        below = max((p for p in self.products if p[0] <= rows), default=self.products[0])
        above = min((p for p in self.products if p[0] >= rows), default=self.products[-1])
        if above[0] == below[0] or rows <= below[0]:
            return below[1] * min(1.0, rows / below[0])
        part = math.log(rows / below[0]) / math.log(above[0] / below[0])
        return below[1] + part * (above[1] - below[1])


TYPICAL = MachineCosts(
    8.0, 0.3, 0.0003, 4.0, ((8, 50.0), (16, 80.0), (32, 100.0), (64, 120.0), (128, 130.0), (256, 135.0))
)
"""A core with vectors of 512 bits and XLA's products."""


@dataclass(frozen=True)
class TaskWork:
    """What one row of a task is: operations, elements they make (expensive ones apart), floating-point operations."""

    operations: int
    elements: int
    expensive: int
    flops: int


def work_of(task: Task) -> TaskWork:
    operations = elements = expensive = flops = 0
    for equation in task.equations:
        made = sum(math.prod(r.type.shape) for r in results(equation))
        operations += 1
        match equation:
            case Compute(op=op, operands=operands):
                if op.name == "dot_general":
                    flops += 2 * made * _contracted(op, [x.type for x in operands if isinstance(x.type, Array)])
                if op.name in EXPENSIVE:
                    expensive += made
                elements += made
            case Fold():
                elements += RUN * made
            case Gather():
                elements += made
            case _:
                pass
    return TaskWork(operations, elements, expensive, flops)


def _contracted(op: Op, operands: Sequence[Array]) -> int:
    (axes, _), _ = op["dimension_numbers"]
    return math.prod(operands[0].shape[a] for a in axes)


def window_costs(task: Task, widths: Sequence[int], machine: MachineCosts = TYPICAL) -> tuple[float, ...]:
    """The cost of a window of each width, in microseconds."""
    work = work_of(task)

    def cost(width: int) -> float:
        rows = width * (work.elements + (machine.expensive - 1) * work.expensive) * machine.element
        products = width * work.flops / machine.speed(width) / 1000
        return round(machine.overhead + work.operations * machine.step + rows + products, 3)

    return tuple(map(cost, widths))


COPIES = 1024
"""How many operations the windows of a task may be in the executable, those of all widths together. An operation takes
about a millisecond to compile."""
OF_CONTROL, OF_BLOCK = 4, 16
"""Operations that an instruction is under a mask, and a block without its instructions: to find the rows that run it,
and to leave the others as they are."""


def copies_of(task: Task) -> int:
    """For how many widths a task should be compiled, at the most: for two at least, unless it is huge."""
    operations = sum(_emitted(e.op) if isinstance(e, Compute) else 1 for e in task.equations)
    return max(COPIES // max(operations, 1), 2 if operations <= 4 * COPIES else 1)


def _emitted(op: Op) -> int:
    """About how many operations of XLA an operation is."""
    if not is_masked(op):
        return 1
    while op.name == "pullback":
        op = op["rule"].op
    if op.name == "blocks":
        blocks = op["program"].blocks
        return OF_BLOCK * len(blocks) + OF_CONTROL * sum(_emitted(i.op) for b in blocks for i in b.body)
    return OF_CONTROL * sum(_emitted(i.op) if isinstance(i, Apply) else 1 for i in walk(op["region"]))
