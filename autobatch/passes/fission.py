"""Fission: which equations run once over all their rows, and which need a level loop.

    {leaf.x, leaf.z, leaf.h, leaf.c}            stage
    {node.hl, node.hr, node.z, node.h, node.c}  recurrence (a strongly connected component)
    {logits, loss}                              stage

An acyclic component is a stage. A cyclic one is a recurrence; its equations over one space form *tasks*, one for each
segment: the longest chain of calls before the equation in its own activation, counting calls whose arguments are in the
recurrence. Every task has an order of rows of its own, sorted by level. (Allen and Kennedy 1987, loop distribution.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import networkx as nx

from autobatch.ir.core import ELEMENTWISE
from autobatch.ir.regions import holds_loop, is_masked
from autobatch.ir.system import (
    Collect,
    Compute,
    Equation,
    Fold,
    Follow,
    Gather,
    Given,
    Space,
    System,
    Variable,
    print_equation,
    reads,
    results,
    space_of,
)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of the rows of a space: by the levels of `recurrence`, or (None) as the examples come."""

    index: int
    space: Space
    recurrence: int | None
    segment: int = 0

    def __str__(self) -> str:
        return f"{self.space}" + ("" if self.recurrence is None else f"/r{self.recurrence}.{self.segment}")


@dataclass(frozen=True, slots=True)
class Task:
    """Straight-line equations over one order of rows, in the order in which they are evaluated."""

    order: RowOrder
    equations: tuple[Equation, ...]


@dataclass(frozen=True, slots=True)
class ScheduleStage:
    """Equations in no cycle, in the order in which they are evaluated."""

    equations: tuple[Equation, ...]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A level loop. `tasks` in their static order within a level. `buffers` are the groups of variables that share one
    array because some gather inside reads their concatenation. What the loop makes is in one group at most; what it
    only reads is in every group that is read together with it. `reverse`: the last level first."""

    index: int
    tasks: tuple[Task, ...]
    buffers: tuple[tuple[Variable, ...], ...]
    reverse: bool = False

    def made(self) -> frozenset[Variable]:
        """What the loop computes."""
        return frozenset(r for task in self.tasks for e in task.equations for r in results(e))


@dataclass(frozen=True)
class Schedule:
    """`home[v]` is the order in which the rows of variable v lie."""

    system: System
    steps: tuple[ScheduleStage | Recurrence, ...]
    orders: tuple[RowOrder, ...]
    home: dict[Variable, RowOrder]

    def recurrences(self) -> tuple[Recurrence, ...]:
        return tuple(s for s in self.steps if isinstance(s, Recurrence))

    @property
    def holds_masked_loop(self) -> bool:
        """Is there a loop that computed numbers end, for each row apart?"""
        ops = [e.op for e in self.system.equations if isinstance(e, Compute)]
        return any(is_masked(op) and holds_loop(op) for op in ops)


def fission(system: System) -> Schedule:
    """Stages and recurrences of a system, in an order in which they can run."""
    system = eliminate_dead(system)
    return _assemble(system, _steps(system))


def mirror(system: System, primal: Schedule, home: Mapping[Variable, RowOrder]) -> Schedule:
    """The schedule of an adjoint: each recurrence runs the tasks of one of the primal on their rows, last first.

    `home[v]` is the order of every variable of the adjoint; the orders are those of the primal."""
    system = eliminate_dead(system)
    static = {t.order: n for r in primal.recurrences() for n, t in enumerate(r.tasks)}
    mirrored = {r.index: r for r in primal.recurrences()}
    done: list[ScheduleStage | Recurrence] = []
    for equations, cyclic in _steps(system):
        if not cyclic:
            done.append(ScheduleStage(tuple(equations)))
            continue
        grouped: dict[RowOrder, list[Equation]] = defaultdict(list)
        for equation in equations:
            grouped[home[results(equation)[0]]].append(equation)
        (index,) = {order.recurrence for order in grouped}
        assert index is not None, "a cycle of the adjoint mirrors one of the primal"
        order = sorted(grouped, key=lambda o: -static[o])
        tasks = tuple(Task(o, straight(grouped[o])) for o in order)
        done.append(Recurrence(index, tasks, _buffers(equations), not mirrored[index].reverse))
    return Schedule(system, tuple(done), primal.orders, dict(home))


def _steps(system: System) -> list[tuple[list[Equation], bool]]:
    """The equations of each stage, and of each recurrence (True), in an order in which they can run."""
    graph = _graph(system)
    condensed = nx.condensation(graph)
    position = {n: k for k, n in enumerate(graph)}
    steps: list[tuple[list[Equation], bool]] = []
    order = nx.lexicographical_topological_sort(
        condensed, key=lambda c: min(position[n] for n in condensed.nodes[c]["members"])
    )
    for component in order:
        members = sorted(condensed.nodes[component]["members"])
        cyclic = len(members) > 1 or graph.has_edge(members[0], members[0])
        equations = [system.equations[m] for m in members]
        if not cyclic and steps and not steps[-1][1]:
            steps[-1][0].extend(equations)
        else:
            steps.append((equations, cyclic))
    return steps


def eliminate_dead(system: System) -> System:
    """Without the equations that no output depends on. What is handed in stays: a gather that reads a buffer finds its
    rows by where everything in that buffer lies, what it does not read included."""
    maker = {r: e for e in system.equations for r in results(e)}
    live: set[int] = set()
    todo = [*system.outputs, *(r for e in system.equations if isinstance(e, Given) for r in results(e))]
    while todo:
        equation = maker[todo.pop()]
        if id(equation) not in live:
            live.add(id(equation))
            todo.extend(reads(equation))
    kept = tuple(e for e in system.equations if id(e) in live)
    return System(system.spaces, kept, system.outputs, system.calls)


def _graph(system: System) -> nx.DiGraph[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    maker = {r: n for n, e in enumerate(system.equations) for r in results(e)}
    graph.add_nodes_from(range(len(system.equations)))
    graph.add_edges_from((maker[v], n) for n, e in enumerate(system.equations) for v in reads(e))
    return graph


def _assemble(system: System, steps: list[tuple[list[Equation], bool]]) -> Schedule:
    orders: list[RowOrder] = []
    home: dict[Variable, RowOrder] = {}
    done: list[ScheduleStage | Recurrence] = []
    count = 0
    for equations, cyclic in steps:
        if not cyclic:
            done.append(ScheduleStage(tuple(equations)))
            continue
        tasks: list[Task] = []
        for (space, segment), members in _tasks(system, equations).items():
            order = RowOrder(len(orders), space, count, segment)
            orders.append(order)
            tasks.append(Task(order, straight(members)))
            home.update({r: order for e in members for r in results(e)})
        done.append(Recurrence(count, tuple(tasks), _buffers(equations)))
        count += 1
    base: dict[Space, RowOrder] = {}
    weight = {t.order: len(t.equations) for r in done if isinstance(r, Recurrence) for t in r.tasks}
    for order in sorted(orders, key=lambda o: (-weight[o], o.index)):
        base.setdefault(order.space, order)
    for equation in system.equations:
        for result in results(equation):
            if result.space is not None and result not in home:
                if result.space not in base:
                    base[result.space] = RowOrder(len(orders), result.space, None)
                    orders.append(base[result.space])
                home[result] = base[result.space]
    for space in system.spaces:
        if space not in base:
            base[space] = RowOrder(len(orders), space, None)
            orders.append(base[space])
    return Schedule(system, tuple(done), tuple(orders), home)


def _tasks(system: System, equations: list[Equation]) -> dict[tuple[Space, int], list[Equation]]:
    """The equations of a recurrence by space and segment, in the static order of one level."""
    maker = {r: e for e in equations for r in results(e)}
    segments: dict[int, int] = {}
    depths: dict[int, int] = {}

    def behind(variables: tuple[Variable, ...], step: int) -> int:
        """The segment that may read these variables of the same activation: `step` is 1 where it reads their buffer,
        which holds no row before its window is written."""
        return max((segment(maker[v]) + step for v in variables if v in maker), default=0)

    def depth(call: int) -> int:
        if call not in depths:
            depths[call] = 0
            site = system.calls[call]
            found = [segment(maker[v]) + 1 for v in site.inside if v in maker]
            depths[call] = max([*found, *(depth(c) for c in site.calls)], default=0)
        return depths[call]

    def segment(equation: Equation) -> int:
        if id(equation) not in segments:
            segments[id(equation)] = 0
            match equation:
                case Gather(calls=calls, inside=inside) | Fold(calls=calls, inside=inside):
                    found = max([behind(inside, 1), *(depth(c) for c in calls)])
                case _:
                    found = behind(tuple(reads(equation)), 0)
            segments[id(equation)] = found
        return segments[id(equation)]

    readers = _pure_readers(equations)
    grouped: dict[tuple[Space, int], list[Equation]] = defaultdict(list)
    for equation in equations:
        space = space_of(equation)
        assert space is not None, "a uniform equation cannot be in a cycle"
        key = min((segment(r) for r in readers.get(id(equation), [])), default=segment(equation))
        grouped[space, key].append(equation)
    return dict(sorted(grouped.items(), key=lambda item: (item[0][1], -item[0][0].index)))


def _pure_readers(equations: list[Equation]) -> dict[int, list[Equation]]:
    """For gathers that are read in their own row only: the readers, in whose segment they may as well be evaluated."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in equations:
        for variable in reads(equation):
            readers[variable].append(equation)
    found: dict[int, list[Equation]] = {}
    for equation in equations:
        if isinstance(equation, Gather):
            all_ = readers[equation.result]
            if all_ and all(isinstance(r, Compute) and r.space == equation.result.space for r in all_):
                found[id(equation)] = all_
    return found


def straight(equations: list[Equation]) -> tuple[Equation, ...]:
    """The equations of a task so that each comes behind those whose results it reads in the same row."""
    maker = {r: n for n, e in enumerate(equations) for r in results(e)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(equations)))
    for n, equation in enumerate(equations):
        if isinstance(equation, Compute):
            graph.add_edges_from((maker[v], n) for v in reads(equation) if v in maker)
    return tuple(equations[n] for n in nx.lexicographical_topological_sort(graph))


def _buffers(equations: list[Equation]) -> tuple[tuple[Variable, ...], ...]:
    """Variables of the loop read together by one gather of it share a buffer (connected components); beside them stands
    what these gathers read from outside. One value from outside, as the zeros that all states begin with, joins
    nothing: each buffer has a copy. A buffer is in the order in which a gather reads all of it, where one does: others
    are likely to read it in this order, and need no copy then."""
    made = {r for e in equations for r in results(e)}
    together: nx.Graph[Variable] = nx.Graph()
    beside: dict[Variable, set[Variable]] = defaultdict(set)
    for equation in equations:
        if isinstance(equation, Gather | Fold | Collect | Follow):
            inside = [v for v in equation.sources if v in made]
            nx.add_path(together, inside)
            for v in inside:
                beside[v].update(equation.sources)
    groups = [set(g).union(*(beside[v] for v in g)) for g in nx.connected_components(together)]
    read = {frozenset(e.sources): tuple(dict.fromkeys(e.sources)) for e in equations if isinstance(e, Gather | Fold)}
    ordered = (read.get(frozenset(g)) or tuple(sorted(g, key=lambda v: v.id)) for g in groups)
    return tuple(sorted(ordered, key=lambda g: [v.id for v in g]))


def print_schedule(schedule: Schedule) -> str:
    """The steps in order, each with its equations."""
    lines: list[str] = []
    for step in schedule.steps:
        if isinstance(step, ScheduleStage):
            lines.append("stage:")
            lines.extend(f"  {space_of(e) or 'once'}: {print_equation(e)}" for e in step.equations)
            continue
        lines.append(f"recurrence r{step.index}{', last level first' if step.reverse else ''}:")
        for task in step.tasks:
            lines.append(f"  {task.order}:")
            lines.extend(f"    {print_equation(e)}" for e in task.equations)
        for group in step.buffers:
            lines.append(f"  buffer {', '.join(map(str, group))}")
    lines.append("return " + ", ".join(map(str, schedule.system.outputs)))
    return "\n".join(lines) + "\n"


# ---- sink
#
# Element-wise work that only one loop reads moves into its windows: what is computed there is read from cache at once.
#
#     stage:      s = logistic(z)                 recurrence:  s = logistic(z)
#                 d = s * (1 - s)          ->                  d = s * (1 - s)
#     recurrence: z~ = c~ * d                                  z~ = c~ * d
#
# For loops of adjoints: what they need of the primal is many arrays, all made of one or two.


def sink_into_loops(schedule: Schedule) -> Schedule:
    """The schedule with element-wise stage equations inside the tasks that alone read them."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in schedule.system.equations:
        for variable in reads(equation):
            readers[variable].append(equation)
    where: dict[int, Task] = {id(e): t for r in schedule.recurrences() for t in r.tasks for e in t.equations}
    outputs = set(schedule.system.outputs)
    sunk: dict[int, list[Equation]] = defaultdict(list)
    for step in reversed(schedule.steps):
        if isinstance(step, ScheduleStage):
            for equation in reversed(step.equations):
                task = _only_reader(equation, schedule, readers, where, outputs)
                if task is not None:
                    where[id(equation)] = task
                    sunk[id(task)].append(equation)
    if not sunk:
        return schedule
    moved = {id(e) for found in sunk.values() for e in found}
    steps: list[ScheduleStage | Recurrence] = []
    for step in schedule.steps:
        if isinstance(step, ScheduleStage):
            steps.append(ScheduleStage(tuple(e for e in step.equations if id(e) not in moved)))
        else:
            tasks = tuple(Task(t.order, straight([*t.equations, *sunk[id(t)]])) for t in step.tasks)
            steps.append(replace(step, tasks=tasks))
    return replace(schedule, steps=tuple(s for s in steps if not isinstance(s, ScheduleStage) or s.equations))


def _only_reader(
    equation: Equation,
    schedule: Schedule,
    readers: dict[Variable, list[Equation]],
    where: dict[int, Task],
    outputs: set[Variable],
) -> Task | None:
    """The task that reads all results of a stage equation in its own rows, if it is worth moving there."""
    if not isinstance(equation, Compute) or equation.space is None or equation.op.name not in ELEMENTWISE:
        return None
    if not outputs.isdisjoint(equation.results):
        return None
    found = {id(where[id(r)]): where[id(r)] for v in equation.results for r in readers[v] if id(r) in where}
    everything = all(isinstance(r, Compute) and id(r) in where for v in equation.results for r in readers[v])
    if len(found) != 1 or not everything:
        return None
    (task,) = found.values()
    return task if schedule.home[equation.results[0]] == task.order else None
