"""Values that a row may compute and not use: they have no part in its derivative.

    %1 = sqrt(%0)                %1 is used where the arm is taken
    %2 = gt(%0, 0.0)
    %3 = if %2 then: yield %1
         else: yield %0

The cotangent of such a value is zero in the rows that do not use it, and zero times the derivative of a square root at
zero is not a number. Each back end takes the contribution of a row for zero where the cotangent of an operation found
here is zero and what comes of it is not finite. What every row uses keeps the derivative that JAX has for it: that of
`jnp.where(x > 0, jnp.sqrt(x), 0.0)` is not a number at zero, for both arms of a `where` are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autobatch.ir.core import Apply, For, If, Instruction, Operand, Region, Value, While, regions
from autobatch.ir.elementwise import FINITE_DERIVATIVE, SIDE_BY_SIDE, stays_finite
from autobatch.ir.types import Array


def cut_results(region: Region, given: Iterable[Value] = ()) -> frozenset[Value]:
    """The results of operations that a row may not use, and whose derivatives may not be finite. `given`: the arguments
    that may not be."""
    found = _Used()
    found.region(region, region.results)
    return frozenset(found.unused & _infinite(region, given)) if found.unused else frozenset()


class _Used:
    """A pass from the last instruction to the first. `unused`: floats that are not used in every row that has them."""

    def __init__(self) -> None:
        self.unused = set[Value]()

    def region(self, region: Region, results: Iterable[Operand]) -> set[Value]:
        """What a region uses in every row that runs it, where `results` of it are used."""
        used = {x for x in results if isinstance(x, Value)}
        for i in reversed(region.body):
            self.unused.update(r for r in i.results if r not in used and _moves(r))
            used |= self.instruction(i, used)
        return used

    def instruction(self, i: Instruction, used: set[Value]) -> set[Value]:
        match i:
            case If():
                arms = [self.region(arm, _those(arm.results, i.results, used)) for arm in (i.then, i.orelse)]
                return arms[0] & arms[1]
            case For() | While():
                return self.loop(i, used)
            case Apply(op=op) if op.name == "masked":
                inner = self.region(op["region"], _those(op["region"].results, i.results, used))
                return set(_those(i.operands, op["region"].args, inner))
            case Apply(op=op) if op.name not in SIDE_BY_SIDE and op.is_jax and not used.isdisjoint(i.results):
                return {x for x in i.operands if isinstance(x, Value)}
            case _:
                return set()

    def loop(self, loop: For | While, used: set[Value]) -> set[Value]:
        """Of what is carried, the last turn uses what is used behind the loop, and each before it what the next one
        does. There may be no turn, so what is read from outside may not be used."""
        args = loop.body.args[isinstance(loop, For) :]
        carried = {k for k, r in enumerate(loop.results) if r in used}
        before = -1
        while before != len(carried):
            before = len(carried)
            inside = self.region(loop.body, [loop.body.results[k] for k in carried])
            carried = {k for k in carried if args[k] in inside}
        return {x for k, x in enumerate(loop.init) if k in carried and isinstance(x, Value)}


def _those(xs: Iterable[Operand], results: Iterable[Value], used: set[Value]) -> list[Value]:
    return [x for x, r in zip(xs, results, strict=True) if r in used and isinstance(x, Value)]


def _infinite(region: Region, given: Iterable[Value]) -> set[Value]:
    """The results of operations whose derivatives may not be finite: for what they are, or for what they are given."""
    operations: list[Apply] = []
    flows: list[tuple[Operand, Value]] = []
    for i in _inside(region):
        match i:
            case Apply(op=op) if op.name == "masked":
                flows += zip(i.operands, op["region"].args, strict=True)
                flows += zip(op["region"].results, i.results, strict=True)
            case Apply():
                operations.append(i)
            case For() | While():
                args = i.body.args[isinstance(i, For) :]
                flows += zip((*i.init, *i.body.results, *args), (*args, *args, *i.results), strict=True)
            case _:
                flows += [pair for arm in regions(i) for pair in zip(arm.results, i.results, strict=True)]
    infinite, before = set[Value](given), -1
    while before != len(infinite):
        before = len(infinite)
        for i in operations:
            if not stays_finite(i.op, i.operands) or not infinite.isdisjoint(i.operands):
                infinite.update(filter(_moves, i.results))
        infinite.update(y for x, y in flows if x in infinite)
    made = (i for i in operations if i.op.name not in FINITE_DERIVATIVE)
    return {
        r for i in made for r in i.results if not stays_finite(i.op, i.operands) or not infinite.isdisjoint(i.operands)
    }


def _inside(region: Region) -> Iterator[Instruction]:
    for i in region.body:
        yield i
        inner = (i.op["region"],) if isinstance(i, Apply) and i.op.name == "masked" else regions(i)
        for each in inner:
            yield from _inside(each)


def _moves(x: Value) -> bool:
    return isinstance(x.type, Array) and x.type.dtype.startswith(("float", "complex", "bfloat"))
