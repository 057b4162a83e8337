"""Which values of a region can move: they are of floats, and depend on operands that a derivative is taken by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autobatch.ir.core import Apply, For, If, Instruction, Operand, Region, Value, While
from autobatch.ir.types import Array
from autobatch.passes.autodiff.rules import has_derivative


def moving(region: Region, by: Iterable[Value]) -> frozenset[Value]:
    """The values of a region, and of all inside it, that move where those of `by` do."""
    found = set(by)
    before = -1
    while before != len(found):  # loops hand on what their bodies find
        before = len(found)
        _find(region, found)
    return frozenset(found)


def is_moving(x: Operand, found: Iterable[Value]) -> bool:
    return isinstance(x, Value) and x in found


def _find(region: Region, found: set[Value]) -> None:
    for i in region.body:
        _find_in(i, found)


def _find_in(i: Instruction, found: set[Value]) -> None:
    match i:
        case Apply(op=op, operands=xs, results=results):
            if op.name == "masked":
                inner: Region = op["region"]
                _flow(xs, inner.args, found)
                _find(inner, found)
                _flow(inner.results, results, found)
            elif any(is_moving(x, found) for x in xs):
                found.update(r for r in results if isinstance(r.type, Array) and has_derivative(r.type))
        case If(then=then, orelse=orelse, results=results):
            for arm in (then, orelse):
                _find(arm, found)
                _flow(arm.results, results, found)
        case For(init=init, body=body, results=results):
            _flow(init, body.args[1:], found)
            _find(body, found)
            _flow(body.results, body.args[1:], found)
            _flow(body.args[1:], results, found)
        case While(init=init, body=body, results=results):
            _flow(init, body.args, found)
            _find(body, found)
            _flow(body.results, body.args, found)
            _flow(body.args, results, found)
        case _:
            raise AssertionError("no calls and no lists in a masked region")


def _flow(sources: Sequence[Operand], targets: Sequence[Value], found: set[Value]) -> None:
    found.update(y for x, y in zip(sources, targets, strict=True) if is_moving(x, found))
