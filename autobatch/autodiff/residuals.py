"""Which values of the primal an adjoint is handed, and which it computes anew.

A value that an adjoint reads is *saved* (a residual), or its equation runs again, outside any loop, because all that it
reads is known by then. What has a row in a buffer anyway costs nothing to save. (Cf. the policies of `jax.checkpoint`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from autobatch.ir.elementwise import CHEAP
from autobatch.ir.system import (
    Column,
    Compute,
    Constant,
    Data,
    Equation,
    Fold,
    Gather,
    Given,
    PathSum,
    Selected,
    Shared,
    Spread,
    Variable,
    reads,
    results,
)
from autobatch.optimize.fission import Recurrence, Schedule, Stage
from autobatch.optimize.requests import gather_layout

Policy = Literal["save_dots", "save_all", "recompute"]
"""The option `residuals`."""


def complete(
    primal: Schedule,
    root: Schedule,
    equations: Iterable[Equation],
    outputs: Iterable[Variable],
    handed: Iterable[Variable],
    policy: Policy,
) -> tuple[list[Equation], tuple[Variable, ...]]:
    """The equations of an adjoint with those that make the values of the primal that it reads or returns; and the
    residuals among these values, in the order of their `Given`s. Nothing makes the cotangents `handed`. The tables are
    those of `root`."""
    own = list(equations)
    made = {*handed, *(r for e in own for r in results(e))}
    steps = {id(e): s for s in root.steps for e in _equations(s)}
    maker = {r: e for e in primal.system.equations for r in results(e)}
    kept = {v for r in primal.recurrences() for group in r.buffers for v in group}
    residuals: dict[Variable, None] = {}
    again: dict[int, Equation] = {}
    wanted = [v for e in own for v in (*reads(e), *_beside(e, root, steps))]
    todo = [v for v in (*wanted, *outputs) if v not in made]
    while todo:
        variable = todo.pop()
        equation = maker[variable]
        if variable in residuals or id(equation) in again:
            continue
        if _saved(variable, equation, policy) or variable in kept:
            residuals[variable] = None
            continue
        again[id(equation)] = equation
        todo += [*reads(equation), *_beside(equation, root, steps)]
    order = tuple(sorted(residuals, key=lambda v: v.id))
    given = [Given(v, k) for k, v in enumerate(order)]
    kept_equations = [e for e in primal.system.equations if id(e) in again]
    return [*given, *kept_equations, *own], order


def _beside(equation: Equation, root: Schedule, steps: Mapping[int, Stage | Recurrence]) -> Sequence[Variable]:
    """What lies in the array that an equation reads, as the tables have it."""
    read = equation.fold if isinstance(equation, Selected) else equation
    return gather_layout(root, read, steps[id(read)])[0] if isinstance(read, Gather | Fold | PathSum) else ()


def _saved(variable: Variable, equation: Equation, policy: Policy) -> bool:
    """Does an adjoint get this value rather than compute it?"""
    match equation:
        case Shared() | Constant() | Column() | Data():
            return False
        case Given():
            return True
        case Gather() | Spread():
            return policy == "save_all"
        case Compute(op=op):
            if variable.space is None or policy == "save_all":
                return True
            return policy == "save_dots" and op.name not in CHEAP
        case _:
            return True


def _equations(step: Stage | Recurrence) -> Iterable[Equation]:
    return step.equations if isinstance(step, Stage) else (e for t in step.tasks for e in t.equations)
