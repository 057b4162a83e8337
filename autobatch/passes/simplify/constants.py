"""Operations on integers and bools that the program holds: what they give is known while compiling.

    %3 = eq(17, 0)                      (Python's `%` by 17 asks whether that is zero)
    %4 = select_n(%3, 17, 1)     ->     17 wherever %4 stood
    %5 = and(%2, true)                  %2 wherever %5 stood

Floats are left alone: the device computes them, in its own precision.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from autobatch.ir.core import Apply, Literal, Operand
from autobatch.ir.types import Array, Type

COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "ne": operator.ne,
}

UNIT: Mapping[tuple[str, bool], bool | None] = {
    ("and", True): None,
    ("and", False): False,
    ("or", False): None,
    ("or", True): True,
    ("ne", False): None,
    ("eq", True): None,
}
"""Of a bool and a constant, in either order: what that is; None: the bool."""


def known(apply: Apply) -> Operand | None:
    """What the result of an operation is, where that is a constant or one of its operands; None elsewhere."""
    if len(apply.results) != 1 or not apply.op.is_jax:
        return None
    name, xs, type = apply.op.name, apply.operands, apply.results[0].type
    if name == "select_n" and (chosen := _constant(xs[0])) is not None and 0 <= chosen < len(xs) - 1:
        found = xs[1 + chosen]
        return found if _same_numbers(found.type, type) else None
    if len(xs) == 2:
        return _of_two(name, xs[0], xs[1], type)
    if name == "sign" and (x := _constant(xs[0])) is not None and isinstance(type, Array) and type.is_integer:
        return Literal((x > 0) - (x < 0), type)
    return None


def _of_two(name: str, a: Operand, b: Operand, type: Type) -> Operand | None:
    x, y = _constant(a), _constant(b)
    if x is not None and y is not None and name in COMPARED:
        return Literal(COMPARED[name](x, y), type)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Literal) and isinstance(one.value, bool) and (name, one.value) in UNIT:
            found = UNIT[name, one.value]
            if found is None:
                return other if _same_numbers(other.type, type) else None
            return Literal(found, type)
    return None


def _constant(x: Operand) -> int | None:
    """The integer or bool of one number that the device holds exactly."""
    if not isinstance(x, Literal) or x.constant >= 0 or x.is_wide or not isinstance(x.value, bool | int):
        return None
    of_whole = isinstance(x.type, Array) and x.type.shape == () and not x.type.dtype.startswith("float")
    return int(x.value) if of_whole else None


def _same_numbers(a: Type, b: Type) -> bool:
    return isinstance(a, Array) and isinstance(b, Array) and (a.dtype, a.shape) == (b.dtype, b.shape)
