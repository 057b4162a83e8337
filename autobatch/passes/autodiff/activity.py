"""Which values of a system a derivative is about: facts, read from the equations.

active     an output depends on them, and they on an input, by numbers that can move
live       the equations that some outputs depend on
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from autobatch.ir.elementwise import CONSTANT
from autobatch.ir.system import (
    Compute,
    Data,
    Equation,
    Given,
    Selected,
    Shared,
    System,
    Variable,
    reads,
    results,
)
from autobatch.passes.autodiff.rules import has_derivative


def active(system: System) -> frozenset[Variable]:
    """The variables through which an output depends on an input, by numbers that can move."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in system.equations:
        for variable in reads(equation):
            readers[variable].append(equation)
    inputs = [e for e in system.equations if isinstance(e, Shared | Data | Given)]
    moved: set[Variable] = set()
    todo = [r for e in inputs for r in results(e) if has_derivative(r.type)]
    while todo:
        variable = todo.pop()
        if variable not in moved:
            moved.add(variable)
            todo += [r for e in readers[variable] for r in _moves(e, variable) if has_derivative(r.type)]
    maker = {r: e for e in system.equations for r in results(e)}
    found: set[Variable] = set()
    todo = [v for v in system.outputs if v in moved]
    while todo:
        variable = todo.pop()
        if variable not in found:
            found.add(variable)
            todo += [v for v in reads(maker[variable]) if v in moved and variable in _moves(maker[variable], v)]
    return frozenset(found)


def _moves(equation: Equation, variable: Variable) -> tuple[Variable, ...]:
    """The results of an equation that move with a variable that it reads."""
    if isinstance(equation, Selected) or (isinstance(equation, Compute) and equation.op.name in CONSTANT):
        return ()
    return results(equation)


def live(equations: Sequence[Equation], outputs: Sequence[Variable]) -> list[Equation]:
    """The equations that outputs depend on; what none of them makes is a value of the primal, or handed in."""
    maker = {r: e for e in equations for r in results(e)}
    kept: set[int] = set()
    todo = list(outputs)
    while todo:
        equation = maker.get(todo.pop())
        if equation is not None and id(equation) not in kept:
            kept.add(id(equation))
            todo.extend(reads(equation))
    return [e for e in equations if id(e) in kept]
