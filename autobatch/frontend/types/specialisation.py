"""What a program is specialised for: shared integers that have to be known, and free variables as they are now.

Shared integers are run-time values of the program until something needs the number itself:

    jnp.zeros(n)          a shape: the function is lowered again with n in the program
    if train:             a bool that decides a branch is part of the program, so only one arm is compiled

An integer that only numbers or structure depend on stays a run-time value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autobatch.frontend.lowering.state import FreeVariable, LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import MISSING, follow, inputs
from autobatch.frontend.types.values import leaves
from autobatch.ir.core import Operand, Value

# ---- shared integers


Known = dict[Operand, int]


class Needed(Exception):
    """These shared integers, by position among the shared inputs, have to be constants of the program."""

    def __init__(self, numbers: frozenset[int]) -> None:
        self.numbers = numbers
        super().__init__(numbers)


def decided(s: LoweringState, operand: Operand) -> bool:
    """The truth of a shared bool. It is needed, but lowering goes on with it: one attempt finds all of these."""
    assert isinstance(operand, Value)
    s.context.memory.needed.add(s.context.shared.index(operand))
    return bool(s.context.integers[operand])


def need(s: LoweringState, *values: v.Abstract) -> None:
    """Raise `Needed` where these values would be known if shared integers were; else there is nothing to be done."""
    operands = [x for value in values for x in leaves(value)]
    for value in values:
        if isinstance(value, v.Static):
            operands += [s.context.shared[i.index] for i in inputs(value.value) if i.shared]
    _need(s, s.context.decided_by(operands) & s.context.integers.keys())


def need_of_trace(s: LoweringState, used: Iterable[Operand], works: Callable[[Mapping[Operand, int]], bool]) -> Known:
    """The integers among `used` that a function has to know, so that JAX can trace it; nothing where that would not
    help. `works` says whether it can be traced with some of them known. They are needed, but lowering goes on with
    them; where an operand is computed from integers, `Needed` is raised."""
    known = s.context.integers
    operands = [x for x in used if isinstance(x, Value)]
    found = s.context.decided_by(operands) & known.keys()
    given: Known = {x: known[x] for x in operands if x in known}
    if found != given.keys():
        _need(s, found)
    if not given or not works(given):
        return {}
    if len(given) > 1:
        needed = {x: n for x, n in given.items() if not works({y: m for y, m in given.items() if y is not x})}
        given = needed if works(needed) else given
    s.context.memory.needed.update(s.context.shared.index(x) for x in given if isinstance(x, Value))
    return given


def _need(s: LoweringState, found: Iterable[Value]) -> None:
    if found:
        raise Needed(frozenset(s.context.shared.index(x) for x in found))


# ---- free variables


def read_again(free: FreeVariable, otherwise: Any) -> Any:
    """The present value of a free variable; `otherwise` where it is gone."""
    owner, held = free.owner, free.owner
    if isinstance(owner, types.FunctionType):
        names = owner.__code__.co_freevars
        try:
            if free.name in ("__defaults__", "__kwdefaults__"):
                held = getattr(owner, free.name)
            elif free.name in names and owner.__closure__ is not None:
                held = owner.__closure__[names.index(free.name)].cell_contents
            else:
                held = owner.__globals__[free.name]
        except (ValueError, KeyError):
            return otherwise if not free.path else MISSING
    try:
        return follow(held, free.path)
    except (AttributeError, KeyError, IndexError, TypeError):
        return MISSING
