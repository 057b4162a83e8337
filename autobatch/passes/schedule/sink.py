"""Element-wise work that only one loop reads moves into its windows: what is computed there is read from cache at once.

    stage:      s = logistic(z)                 recurrence:  s = logistic(z)
                d = s * (1 - s)          ->                  d = s * (1 - s)
    recurrence: z~ = c~ * d                                  z~ = c~ * d

For loops of adjoints: what they need of the primal is many arrays, all made of one or two.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from autobatch.ir.elementwise import ELEMENTWISE
from autobatch.ir.system import Compute, Equation, Variable, reads
from autobatch.passes.schedule.fission import Recurrence, Schedule, ScheduleStage, Task, straight


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
