"""What fills the buffers of a level loop before it runs: the states of leaves, beside which it writes those of nodes.

    leaf.h = tanh(leaf.x @ W)                       a stage
    node.h = f(gather(leaf.h, node.h), ...)         a recurrence; both are in one buffer

The kernel of the loop computes such values where they belong; made by themselves they would be copied there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autobatch.backends.llvm.formulas import COSTLY
from autobatch.ir.system import Compute, Equation, Variable, reads, results
from autobatch.passes.equations import row_product
from autobatch.passes.fission import Recurrence, RowOrder, Schedule, ScheduleStage, Task


@dataclass(frozen=True)
class Before:
    """`tasks` that a loop can run before its levels, and equations of stages before it that wait for what they make."""

    tasks: tuple[Task, ...]
    waiting: tuple[Equation, ...]


def before_loops(schedule: Schedule, lookups: Collection[Variable]) -> dict[int, Before]:
    """By the index of a recurrence: equations of stages before it that make what stands in its buffers. `lookups`: rows
    that are read where they come from; what reads them is no such equation."""
    order: dict[int, int] = {}
    step_of: dict[int, int] = {}
    makers: dict[Variable, tuple[int, Equation]] = {}
    readers: dict[Variable, list[Equation]] = {}
    for at, step in enumerate(schedule.steps):
        for equation in (e for t in ([step] if isinstance(step, ScheduleStage) else step.tasks) for e in t.equations):
            order[id(equation)], step_of[id(equation)] = len(order), at
            for x in reads(equation):
                readers.setdefault(x, []).append(equation)
            if isinstance(step, ScheduleStage):
                makers.update((r, (at, equation)) for r in results(equation))
    found: dict[int, Before] = {}
    taken: set[int] = set()
    for at, step in enumerate(schedule.steps):
        if not isinstance(step, Recurrence):
            continue
        made = step.made()
        roots = [v for group in step.buffers for v in group if v not in made and v.space is not None]
        tasks: list[Task] = []
        waiting: dict[int, Equation] = {}
        for home in dict.fromkeys(schedule.home[v] for v in roots):
            wanted = [v for v in roots if schedule.home[v] == home]
            chosen = _behind(wanted, home, schedule.home, makers, lookups, at)
            late = _that_wait(chosen, readers)
            late = {k: e for k, e in late.items() if step_of[k] < at}
            blocked = any(
                isinstance(schedule.steps[step_of[id(r)]], Recurrence) and step_of[id(r)] <= at
                for e in late.values()
                for x in results(e)
                for r in readers.get(x, ())
            )
            blocked = blocked or any(isinstance(schedule.steps[step_of[k]], Recurrence) for k in late)
            whole = all(v in makers and id(makers[v][1]) in chosen for v in wanted)
            if whole and not blocked and taken.isdisjoint(chosen) and taken.isdisjoint(late) and _worth(chosen):
                taken.update(chosen, late)
                waiting.update(late)
                tasks.append(Task(home, tuple(sorted(chosen.values(), key=lambda e: order[id(e)]))))
        if tasks:
            found[step.index] = Before(tuple(tasks), tuple(sorted(waiting.values(), key=lambda e: order[id(e)])))
    return found


def _that_wait(chosen: Mapping[int, Equation], readers: Mapping[Variable, list[Equation]]) -> dict[int, Equation]:
    """All others that depend on what some equations make."""
    found: dict[int, Equation] = {}
    stack = list(chosen.values())
    while stack:
        for x in results(stack.pop()):
            for reader in readers.get(x, ()):
                if id(reader) not in chosen and id(reader) not in found:
                    found[id(reader)] = reader
                    stack.append(reader)
    return found


def _behind(
    roots: list[Variable],
    home: RowOrder,
    homes: Mapping[Variable, RowOrder],
    makers: Mapping[Variable, tuple[int, Equation]],
    lookups: Collection[Variable],
    before: int,
) -> dict[int, Equation]:
    """The computations in one order of rows that some variables come from."""
    found: dict[int, Equation] = {}
    stack = list(roots)
    while stack:
        at, equation = makers.get(stack.pop(), (before, None))
        if at >= before or not isinstance(equation, Compute) or equation.space is None or id(equation) in found:
            continue
        if any(x in lookups for x in reads(equation)) or homes[equation.results[0]] != home:
            continue
        if equation.op.name in STAYS:
            continue
        found[id(equation)] = equation
        stack.extend(x for x in reads(equation) if x.space is not None)
    return found


STAYS = frozenset(("gather", "dynamic_slice", "iota", "undefined"))
"""Operations of which the rows are better made by XLA."""


def _worth(chosen: Mapping[int, Equation]) -> bool:
    """Is there more to them than moving numbers?"""
    return any(row_product(e) is not None or (isinstance(e, Compute) and e.op.name in COSTLY) for e in chosen.values())
