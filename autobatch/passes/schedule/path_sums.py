"""Linear recurrences that only sum up become one sum for each example, with no levels.

    recurrence: below = 0 on leaf | loss[left] + loss[right]      stage: total = sum over paths(xent)
                loss = below + xent                           ->
    stage:      total = loss[root]

`loss[root]` is the sum of what paths from the root lead to, each term as often as there are paths. The host knows the
paths, so the device adds up one run of rows. Only for sums of few numbers a row, that nothing else reads row by row:
adding long rows one by one costs more than the levels. (FRAMES.md, section 2.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from autobatch.ir.core import Literal
from autobatch.ir.system import (
    Compute,
    Constant,
    Equation,
    Fold,
    Gather,
    Link,
    PathSum,
    Space,
    System,
    Variable,
    reads,
    results,
)
from autobatch.passes.schedule.fission import Recurrence, Schedule, eliminate_dead

SIGNS = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}
"""Operations of a linear recurrence, with the signs of their operands."""
LONGEST_ROW = 8
"""Numbers in a row beyond which a recurrence is left as it is."""


def sum_over_paths(schedule: Schedule) -> System | None:
    """The system with linear recurrences replaced; None when there is none."""
    system = schedule.system
    spaces = list(system.spaces)
    replaced: dict[int, PathSum] = {}
    for recurrence in schedule.recurrences():
        for read in _read_by_examples(recurrence, system) or ():
            found = _Linear(recurrence, system).paths(read, Space(len(spaces), f"{read.table}.paths", "elements"))
            if found is not None:
                spaces.append(found.elements)
                replaced[id(read)] = found
    if not replaced:
        return None
    equations = tuple(replaced.get(id(e), e) for e in system.equations)
    return eliminate_dead(replace(system, spaces=tuple(spaces), equations=equations))


def _read_by_examples(recurrence: Recurrence, system: System) -> list[Gather] | None:
    """The reads of a recurrence from outside, where these are rows of examples only."""
    inside = {id(e) for t in recurrence.tasks for e in t.equations}
    made = {r for t in recurrence.tasks for e in t.equations for r in results(e)}
    found: list[Gather] = []
    for equation in system.equations:
        if id(equation) not in inside and not made.isdisjoint(reads(equation)):
            if not isinstance(equation, Gather) or equation.result.space is None:
                return None
            if equation.result.space.kind != "example":
                return None
            found.append(equation)
    return None if made.intersection(system.outputs) else found


class _NotLinear(Exception):
    """Something else than a sum is in the recurrence."""


class _Linear:
    """Follows the sums of one recurrence."""

    def __init__(self, recurrence: Recurrence, system: System) -> None:
        self.maker: dict[Variable, Equation] = {r: e for t in recurrence.tasks for e in t.equations for r in results(e)}
        self.zero = {e.result for e in system.equations if isinstance(e, Constant) and _is_zero(e.literal)}
        self.variables: dict[Variable, int] = {}
        self.terms: dict[Variable, int] = {}

    def paths(self, read: Gather, elements: Space) -> PathSum | None:
        """The sum that a read of the recurrence is."""
        try:
            links = list(self.entries(-1, read, False, 1))
            done = 0
            while done < len(self.variables):
                variable = list(self.variables)[done]
                links.extend(self.links(done, variable, 1))
                done += 1
        except _NotLinear:
            return None
        variables, terms = tuple(self.variables), tuple(self.terms)
        if any(v.type.dtype != read.result.type.dtype for v in (*variables, *terms)):
            return None
        if math.prod(read.result.type.shape) > LONGEST_ROW or read.result.type.is_bool:
            return None
        adds = self.maker[variables[0]]
        span = adds.span if isinstance(adds, Compute) else read.span
        return PathSum(read.result, f"{read.table}.paths", elements, terms, variables, tuple(links), span)

    def links(self, reader: int, variable: Variable, sign: int) -> Iterator[Link]:
        """What `variable` adds up in a row of variable number `reader`, which it is or which reads it there."""
        match self.maker[variable]:
            case Compute(op=op, operands=operands) if op.name in SIGNS:
                for x, own in zip(operands, SIGNS[op.name], strict=True):
                    yield from self.operand(reader, x, variable, own * sign)
            case Gather() as gather:
                yield from self.entries(reader, gather, False, sign)
            case Fold(kind="sum") as fold:
                yield from self.entries(reader, fold, True, sign)
            case _:
                raise _NotLinear

    def operand(self, reader: int, x: Variable | Literal, total: Variable, sign: int) -> Iterator[Link]:
        if isinstance(x, Literal):
            if not _is_zero(x):
                raise _NotLinear
        elif x.type.shape != total.type.shape:
            raise _NotLinear
        elif x in self.maker:
            yield from self.links(reader, x, sign)
        elif x not in self.zero:
            yield Link(reader, self.term(x), None, sign=sign)

    def entries(self, reader: int, equation: Gather | Fold, fold: bool, sign: int) -> Iterator[Link]:
        for k, source in enumerate(equation.sources):
            if source in self.maker:
                target = self.variables.setdefault(source, len(self.variables))
            elif source in self.zero:
                continue
            else:
                target = self.term(source)
            yield Link(reader, target, equation.table, k, fold, sign)

    def term(self, variable: Variable) -> int:
        return ~self.terms.setdefault(variable, len(self.terms))


def _is_zero(literal: Literal) -> bool:
    return literal.constant < 0 and not isinstance(literal.value, bool) and literal.value == 0
