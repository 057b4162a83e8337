"""From a schedule to the integer tables it needs: what the planner is asked to make."""

from __future__ import annotations

import jax.numpy as jnp

from autobatch.data.tables import (
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
from autobatch.ir import jax_compat
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
from autobatch.passes.schedule.costs import TYPICAL, MachineCosts, copies_of, window_costs
from autobatch.passes.schedule.fission import Recurrence, Schedule, ScheduleStage
from autobatch.passes.schedule.sharing import deciding_columns


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
        for task in step.tasks:
            if (copies := copies_of(task)) < len(widths):
                self.few[task.order.index] = copies
        costs = tuple(window_costs(t, widths, self.machine) for t in step.tasks)
        return LoopRequest(tuple(t.order.index for t in step.tasks), tuple(edges), costs)
