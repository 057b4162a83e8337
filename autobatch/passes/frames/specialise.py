"""Join early, specialise late: what a cycle does behind a branch moves into the branch's arms (FRAMES.md, section 1).

    %5 = if %2 then: ... yield %3              %7 = if %2 then: ... %8 = tanh(%3); yield %8
         else: ... yield %4             ->          else: ... %9 = tanh(%4); yield %9
    %7 = tanh(%5)

Code behind a join runs once over the rows of both arms, which is best for stages: one matrix product over all nodes.
Inside a recurrence it would cost leaves their own level, and rows that only pass would take part in the loop. Only
operations that a recurrence holds are moved, and only where their other operands exist before the branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autobatch.ir.core import Apply, If, Instruction, Module, Operand, Region, Value
from autobatch.ir.rewrite import Fresh, copy_instruction, with_regions
from autobatch.ir.system import Compute, Variable
from autobatch.passes.schedule.fission import Schedule


def in_recurrences(schedule: Schedule, values: Mapping[Variable, Value]) -> frozenset[Value]:
    """The values of the module that some recurrence of the schedule computes."""
    return frozenset(
        values[r]
        for recurrence in schedule.recurrences()
        for task in recurrence.tasks
        for equation in task.equations
        if isinstance(equation, Compute)
        for r in equation.results
        if r in values
    )


def specialise(module: Module, cyclic: frozenset[Value]) -> Module | None:
    """The module with operations that make `cyclic` values moved into arms; None when there is nothing to move."""
    sinker = _Sinker(module, cyclic)
    functions = tuple(replace(f, region=sinker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if sinker.moved else None


class _Sinker:
    def __init__(self, module: Module, cyclic: frozenset[Value]) -> None:
        self.fresh, self.cyclic = Fresh(module), cyclic
        self.moved = 0

    def region(self, region: Region) -> Region:
        body = [with_regions(i, self.region) for i in region.body]
        at = 0
        while at < len(body):
            branch = body[at]
            if isinstance(branch, If):
                chosen = self.movable(branch, body[at + 1 :])
                if chosen:
                    self.moved += len(chosen)
                    body[at] = self.sink(branch, chosen)
                    body[at + 1 :] = [i for i in body[at + 1 :] if i not in chosen]
            at += 1
        return replace(region, body=tuple(body))

    def movable(self, branch: If, behind: list[Instruction]) -> list[Apply]:
        """Operations behind a branch that depend on it and otherwise only on what stands before it."""
        later = {r for i in behind for r in i.results}
        available: set[Value] = set(branch.results)
        chosen: list[Apply] = []
        for instruction in behind:
            if not isinstance(instruction, Apply) or not self.cyclic.issuperset(instruction.results):
                continue
            inside = [x for x in instruction.operands if isinstance(x, Value)]
            depends = any(x in available for x in inside)
            if depends and all(x in available or x not in later for x in inside):
                chosen.append(instruction)
                available.update(instruction.results)
        return chosen

    def sink(self, branch: If, chosen: list[Apply]) -> If:
        results = tuple(r for i in chosen for r in i.results)

        def extended(arm: Region) -> Region:
            env: dict[Value, Operand] = dict(zip(branch.results, arm.results, strict=True))
            copies = tuple(copy_instruction(i, env, self.fresh) for i in chosen)
            return Region((), (*arm.body, *copies), (*arm.results, *(env[r] for r in results)))

        return replace(
            branch,
            results=(*branch.results, *results),
            then=extended(branch.then),
            orelse=extended(branch.orelse),
        )
