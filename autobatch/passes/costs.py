"""What a window of a level loop costs, by its width: the planner covers each level with the cheapest windows.

    cost = overhead + operations * step + rows * (elements * element + flops / speed of products of so many rows)

A window of few rows is cheap where a row is much work, and as dear as a wide one where it is little. The numbers of a
`MachineCosts` are microseconds on one core; only ratios of costs matter. A back end measures them where its programs
run (`backends/xla/program.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from autobatch.data.spec import (
    UNIFORM,
    DistinctRequest,
    Edge,
    FoldRequest,
    GatherRequest,
    LoopRequest,
    OrderRequest,
    PathRequest,
    TableRequest,
)
from autobatch.errors import PlanError
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Array, walk
from autobatch.ir.ops import Op
from autobatch.ir.regions import is_masked
from autobatch.ir.system import (
    Compute,
    Data,
    Equation,
    Fold,
    Gather,
    HostColumn,
    PathSum,
    Space,
    Spread,
    Variable,
    reads,
    results,
    space_of,
)
from autobatch.passes.equations import deciding_columns
from autobatch.passes.fission import Recurrence, Schedule, ScheduleStage, Task

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
"""How many operations the windows of a recurrence may be in the executable, those of all its tasks and widths together.
An operation takes about a millisecond to compile, three with its derivative."""
OF_WINDOW = 30
"""Operations that the loop over windows of one width is beside those of its task, to read tables, slice and write."""
OF_CONTROL, OF_BLOCK = 4, 16
"""Operations that an instruction is under a mask, and a block without its instructions: to find the rows that run it,
and to leave the others as they are."""


def copies_of(tasks: Sequence[Task]) -> list[int]:
    """For how many widths each task of a recurrence should be compiled, at the most: for two at least, unless it is
    huge."""
    operations = [sum(_emitted(e.op) if isinstance(e, Compute) else 1 for e in t.equations) for t in tasks]
    copies = COPIES // (sum(operations) + OF_WINDOW * len(tasks))
    return [max(copies, 2 if n <= 4 * COPIES else 1) for n in operations]


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


# ---- footprint
#
# The memory that a batch needs at least: the arrays that level loops carry, and the results.
#
# What stages need beside them is XLA's to decide, so this is a lower bound: a batch that is refused because of it could
# never have run, and one that is not may still be too large.


SHOWN = 3
"""The message names so many of the largest arrays."""


def carried(schedule: Schedule, recurrence: Recurrence) -> tuple[Variable, ...]:
    """The arrays that a loop carries: what its gathers read, and what is read outside the task that makes it."""
    task_of: dict[Variable, int] = {}
    inside: dict[int, int] = {}
    for k, task in enumerate(recurrence.tasks):
        for equation in task.equations:
            inside[id(equation)] = k
            task_of.update(dict.fromkeys(results(equation), k))
    kept = dict.fromkeys(v for group in recurrence.buffers for v in group)
    kept.update(dict.fromkeys(v for v in schedule.system.outputs if v in task_of))
    for equation in schedule.system.equations:
        kept.update((v, None) for v in reads(equation) if v in task_of and _leaves_task(equation, inside, task_of[v]))
    return tuple(kept)


def _leaves_task(reader: Equation, inside: Mapping[int, int], task: int) -> bool:
    return inside.get(id(reader)) != task


def row_bytes(variable: Variable) -> int:
    """The bytes of one row of a variable."""
    return math.prod(variable.type.shape) * int(jax_compat.device_dtype(variable.type).itemsize)


def size(variable: Variable, capacity: Sequence[int]) -> int:
    """The bytes of the array that holds a variable."""
    return row_bytes(variable) * (1 if variable.space is None else capacity[variable.space.index])


@dataclass(frozen=True)
class Footprint:
    """The arrays of a schedule that have to be in memory at one time."""

    arrays: tuple[Variable, ...]

    @staticmethod
    def of(schedule: Schedule) -> Footprint:
        """The results are there at the end, beside what the largest loop has carried; loops may follow each other."""
        outputs = dict.fromkeys(schedule.system.outputs)
        loops = [dict.fromkeys(carried(schedule, r)) for r in schedule.recurrences()]
        most = max(loops, key=lambda loop: sum(map(row_bytes, loop)), default={})
        return Footprint(tuple(outputs | most))

    def bytes(self, capacity: Sequence[int]) -> int:
        """All of them, for spaces of these capacities."""
        return sum(size(v, capacity) for v in self.arrays)

    def words(self, capacity: Sequence[int]) -> str:
        """How much that is, and the largest arrays by name."""
        largest = sorted(self.arrays, key=lambda v: -size(v, capacity))[:SHOWN]
        named = "; ".join(f"{_array(v, capacity)}: {in_words(size(v, capacity))}" for v in largest)
        return f"{in_words(self.bytes(capacity))} ({named})"

    def check(self, capacity: Sequence[int], examples: int, limit: int) -> None:
        """Refuse a batch whose arrays cannot be in a memory of `limit` bytes. Raises PlanError."""
        if self.bytes(capacity) > limit:
            raise too_large(examples, f"there are {in_words(limit)}", self.words(capacity))


def too_large(examples: int, reason: str, needed: str) -> PlanError:
    """The error for a batch that memory does not hold."""
    return PlanError(
        f"this batch of {examples:,} examples is too large for the memory: {reason}, and its results and what loops "
        f"carry alone are {needed}; call with fewer examples at a time, and set ab.options(max_rows=...) to refuse "
        "what is too large before it is planned"
    )


def _array(variable: Variable, capacity: Sequence[int]) -> str:
    if variable.space is None:
        return f"one {variable.type}"
    name = f" ({variable.hint})" if variable.hint.isidentifier() else ""
    return f"{capacity[variable.space.index]:,} rows of {variable.space.name}{name}, each {variable.type}"


def in_words(count: int) -> str:
    """Bytes in the unit that fits, as in `1.5 GB`."""
    number, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "bytes" else f"{number:.1f} {units[0]}"


# ---- requests
#
# From a schedule to the integer tables it needs: what the planner is asked to make.


def table_request(schedule: Schedule, widths: tuple[int, ...], machine: MachineCosts = TYPICAL) -> TableRequest:
    """Everything that the executable of this schedule reads beside the shared arguments. Levels are covered by windows
    of `widths`, as is cheapest on `machine`."""
    return _Requests(schedule, machine).build(widths)


def gather_layout(
    schedule: Schedule, equation: Gather | Fold | PathSum, step: ScheduleStage | Recurrence
) -> tuple[tuple[Variable, ...], tuple[int, ...]]:
    """The variables of the array that a gather reads, one behind the other, and where each of its sources stands.

    Inside a recurrence that makes one of the sources, it is the buffer they share; else it is the sources alone."""
    sources = equation.terms if isinstance(equation, PathSum) else equation.sources
    if isinstance(step, Recurrence) and (inside := step.made().intersection(sources)):
        group = next(g for g in step.buffers if not inside.isdisjoint(g))
        return group, tuple(group.index(s) for s in sources)
    return sources, tuple(range(len(sources)))


def weight_dtype(equation: PathSum) -> str:
    """The dtype in which the weights of a sum travel: that of its numbers, in words of 32 bits."""
    dtype = jnp.dtype(jax_compat.device_dtype(equation.result.type))
    return dtype.name if dtype.itemsize >= 4 else "float32"


def base_of(space: Space) -> int:
    """The space that pointers to rows count in."""
    return space.base if space.kind == "distinct" else space.index


class _Requests:
    def __init__(self, schedule: Schedule, machine: MachineCosts) -> None:
        self.schedule, self.machine = schedule, machine
        self.columns: dict[tuple[str, int], None] = {}
        self.wide: set[str] = set()
        self.gathers: dict[tuple[str, int], GatherRequest] = {}
        self.folds: dict[tuple[str, int], FoldRequest] = {}
        self.permutations: dict[tuple[int, int], None] = {}
        self.data: dict[str, int] = {}
        self.paths: list[PathRequest] = []
        self.keys = deciding_columns(schedule.system)
        self.readers: dict[Space, dict[int, None]] = {}
        self.few: dict[int, int] = {}

    def build(self, widths: tuple[int, ...]) -> TableRequest:
        loops: list[LoopRequest] = []
        for step in self.schedule.steps:
            if isinstance(step, Recurrence):
                for task in step.tasks:
                    for equation in task.equations:
                        self.visit(equation, step, task.order.index)
                loops.append(self.loop(step, widths))
            else:
                for equation in step.equations:
                    self.visit(equation, step, None)
        spaces = self.schedule.system.spaces
        return TableRequest(
            tuple(OrderRequest(o.space.index, o.recurrence) for o in self.schedule.orders),
            tuple(self.columns),
            frozenset(self.wide),
            tuple(self.gathers.values()),
            tuple(self.folds.values()),
            tuple(self.permutations),
            tuple(loops),
            tuple(DistinctRequest(s.index, s.base, s.keys, tuple(orders)) for s, orders in self.readers.items()),
            tuple(self.paths),
            tuple(self.data.items()),
            widths,
            tuple(self.few.items()),
            len(spaces),
            next(s.index for s in spaces if s.kind == "example"),
        )

    def deciding(self, sources: tuple[Variable, ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(sorted(self.keys.get(v, ()))) for v in sources)

    def member(self, variable: Variable) -> int:
        """The order that the rows of a variable lie in; a space of distinct rows is asked for where it is read."""
        if variable.space is None:
            return UNIFORM
        if variable.space.kind == "distinct":
            self.readers.setdefault(variable.space, {})
        return self.schedule.home[variable].index

    def visit(self, equation: Equation, step: ScheduleStage | Recurrence, order: int | None) -> None:
        if space_of(equation) is None:
            return
        home = self.schedule.home[results(equation)[0]].index if order is None else order
        match equation:
            case HostColumn(result=result, table=table):
                self.columns.setdefault((table, home))
                if jax_compat.device_dtype(result.type).itemsize > 4:
                    self.wide.add(table)
            case Data(result=result, column=column):
                assert result.space is not None
                self.data[column] = result.space.index
            case Spread(source=source):
                assert source.space is not None
                self.readers.setdefault(source.space, {}).setdefault(home)
            case Gather(table=table):
                layout, place = gather_layout(self.schedule, equation, step)
                members = tuple(self.member(v) for v in layout)
                request = GatherRequest(table, home, place, members, self.deciding(equation.sources))
                self.gathers.setdefault((table, home), request)
            case Fold(table=table, elements=elements):
                layout, place = gather_layout(self.schedule, equation, step)
                members = tuple(self.member(v) for v in layout)
                keys = self.deciding(equation.sources)
                self.folds.setdefault((table, home), FoldRequest(table, home, elements.index, place, members, keys))
            case PathSum():
                self.path_sum(equation, step, home)
            case Compute():
                for variable in reads(equation):
                    if variable.space is not None and self.member(variable) != home:
                        self.permutations.setdefault((home, self.member(variable)))
            case _:
                pass

    def path_sum(self, equation: PathSum, step: ScheduleStage | Recurrence, home: int) -> None:
        layout, place = gather_layout(self.schedule, equation, step)
        members = tuple(self.member(v) for v in layout)
        weight = weight_dtype(equation)
        name, elements = equation.name, equation.elements.index
        self.folds[name, home] = FoldRequest(
            name, home, elements, place, members, self.deciding(equation.terms), weight
        )
        spaces = tuple(v.space.index for v in equation.variables if v.space is not None)
        terms = tuple(UNIFORM if v.space is None else base_of(v.space) for v in equation.terms)
        self.paths.append(PathRequest(name, elements, spaces, terms, equation.links, weight))

    def loop(self, step: Recurrence, widths: tuple[int, ...]) -> LoopRequest:
        made = {r: n for n, task in enumerate(step.tasks) for e in task.equations for r in results(e)}
        edges: dict[Edge, None] = {}
        for n, task in enumerate(step.tasks):
            for equation in task.equations:
                match equation:
                    case Gather(table=table, sources=sources) | Fold(table=table, sources=sources):
                        for k, source in enumerate(sources):
                            if source in made:
                                edges.setdefault(Edge(n, made[source], table, k, isinstance(equation, Fold)))
                    case _:
                        for variable in reads(equation):
                            if variable in made and made[variable] != n:
                                edges.setdefault(Edge(n, made[variable], None))
        for task, copies in zip(step.tasks, copies_of(step.tasks), strict=True):
            if copies < len(widths):
                self.few[task.order.index] = copies
        costs = tuple(window_costs(t, widths, self.machine) for t in step.tasks)
        return LoopRequest(tuple(t.order.index for t in step.tasks), tuple(edges), costs)
