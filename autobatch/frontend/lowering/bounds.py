"""The range of an index of an array of NumPy: where the host knows the index, an example that leaves it fails.

    table[k]                %3 = getitem(%1, %2)   ->   bounds[axis=0, size=5](%2)
                                                        %3 = getitem(%1, %2)

Whether the host knows it is found out when everything is lowered: `passes/control/indices.py` makes checks of these
operations, by the host or by the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.ir.bounds import words
from autobatch.ir.core import Apply, Literal
from autobatch.ir.ops import own
from autobatch.ir.types import Array


def check_index(s: LoweringState, value: v.Leaf, index: v.Abstract) -> None:
    """Check `value[index]`, axis by axis."""
    assert isinstance(value.type, Array)
    shape, axis = value.type.shape, 0
    parts = _parts(index)
    for part in parts:
        if isinstance(part, v.Static) and isinstance(part.value, EllipsisType):
            axis += len(shape) - sum(_axes(p) for p in parts)
            continue
        if axis < len(shape) and _is_whole(part) and _may_fail(s, part, axis, shape[axis]) and value.numpy is not None:
            s.context.memory.asks_numpy = True
            if value.numpy:
                _check(s, part, axis, shape[axis])
        axis += _axes(part)


def _parts(index: v.Abstract) -> Sequence[v.Abstract]:
    match index:
        case v.Record(kind="tuple", items=items):
            return items
        case v.Static(value=tuple() as held):
            return [v.Static(x) for x in held]
        case _:
            return [index]


def _axes(part: v.Abstract) -> int:
    """How many axes a part of an index takes."""
    match part:
        case v.Static(value=None | EllipsisType() | bool()):
            return 0
        case v.Leaf(operand=operand) if isinstance(operand.type, Array) and operand.type.is_bool:
            return len(operand.type.shape)
        case _:
            return 1


def _is_whole(part: v.Abstract) -> bool:
    """Is it an integer, or an array of such?"""
    match part:
        case v.Static(value=held):
            return hasattr(held, "__index__") and not isinstance(held, bool)
        case v.Leaf(operand=operand):
            return isinstance(operand.type, Array) and operand.type.is_integer
        case _:
            return False


def _known(s: LoweringState, part: v.Abstract) -> Any:
    """The value of an index that is known while compiling, or None."""
    match part:
        case v.Static(value=held):
            return held
        case v.Leaf(operand=Literal(value=held, constant=constant)):
            return held if constant < 0 else s.context.constants[constant]
        case _:
            return None


def _may_fail(s: LoweringState, part: v.Abstract, axis: int, size: int) -> bool:
    known = _known(s, part)
    return known is None or words(known, axis, size) != ""


def _check(s: LoweringState, part: v.Abstract, axis: int, size: int) -> None:
    known = _known(s, part)
    if known is not None:
        s.check(s.scalar(False), "IndexError", words(known, axis, size))
        return
    assert isinstance(part, v.Leaf)
    s.emit(Apply((), own("bounds", axis=axis, size=size), (part.operand,), s.span))
