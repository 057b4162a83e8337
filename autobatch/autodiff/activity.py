"""Which values of a system a derivative is about: facts, read from the equations.

active     an output depends on them, and they on an input, by numbers that can move
cut        they are results of operations that a row may compute and not use, with derivatives that may not be finite
live       the equations that some outputs depend on
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence, Set

from autobatch.autodiff.rules import has_derivative
from autobatch.ir.elementwise import FINITE_DERIVATIVE, SIDE_BY_SIDE, stays_finite
from autobatch.ir.system import (
    Compute,
    Data,
    Equation,
    Gather,
    Given,
    Selected,
    Shared,
    Space,
    System,
    Variable,
    reads,
    results,
)

CONSTANT = frozenset(("stop_gradient", "floor", "ceil", "round", "sign", "floordiv"))
"""Operations whose derivative is zero wherever there is one."""

PARTLY = frozenset((*SIDE_BY_SIDE, "masked", "blocks", "gradient_of", "pullback"))
"""Operations that may not use all that they are given."""


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


def cut_results(system: System, moving: Container[Variable]) -> frozenset[Variable]:
    """The results that `analysis/unused.py` describes, among variables that move, of equations over rows.

    What an output, or an operation on the same rows, reads of a row is used; so is what a branch reads of the row of an
    arm that it has taken. What the rows of arms, calls and turns read of the row that they belong to may not be."""
    infinite: set[Variable] = set()
    before = -1
    while before != len(infinite):
        before = len(infinite)
        for e in system.equations:
            if not infinite.isdisjoint(reads(e)) or (isinstance(e, Compute) and not stays_finite(e.op, e.operands)):
                infinite.update(r for r in results(e) if r in moving)
    if not infinite:
        return frozenset()
    maker = {r: e for e in system.equations for r in results(e)}
    called = {site.callee for site in system.calls}
    used, todo = set[Variable](), list(system.outputs)
    while todo:
        variable = todo.pop()
        if variable in used:
            continue
        used.add(variable)
        match maker[variable]:
            case Compute(op=op, operands=xs, space=space) if op.name not in PARTLY:
                todo += [x for x in xs if isinstance(x, Variable) and x.space == space]
            case Gather(result=result, sources=sources):
                chains = {x: _outwards(x.space, system.spaces) for x in sources}
                todo += [
                    x
                    for x in sources
                    if _reach(chains[x], result.space, called)
                    and all(c and x.space not in c for y, c in chains.items() if y != x)
                ]
            case _:
                pass
    return frozenset(
        r
        for e in system.equations
        if isinstance(e, Compute) and e.op.name not in FINITE_DERIVATIVE
        for r in e.results
        if r in infinite and r not in used
    )


def _outwards(space: Space | None, spaces: Sequence[Space]) -> list[Space]:
    """A space of activations, the one that it is an arm in, and so on. Of others nothing is known."""
    found = []
    while space is not None and space.kind == "region":
        found.append(space)
        space = spaces[space.base] if space.base >= 0 else None
    return found


def _reach(outwards: Sequence[Space], by: Space | None, called: Set[str]) -> bool:
    """Belongs each row of a space to one of `by`: has it one for each turn that this takes?"""
    if by is None or not outwards:
        return False
    whole = outwards[-1]
    return by in outwards or (by.kind == "example" and whole.name not in called)


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
