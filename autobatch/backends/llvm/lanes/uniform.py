"""Which values all lanes of a gang share that are where they are read: arguments of recursive functions that every
call gives alike, counters of loops, and what is computed of shared values alone.

    trace(ray, depth + 1)     `depth` is 0 in the first call, so it is one number for all lanes, and `depth < 3` a jump

All lanes of an activation come from one call, so an argument is shared where every call gives a shared value. A call
that is the last thing its function does is a turn of a loop: lanes of several such calls meet there. (The greatest
solution: everything is shared until something says otherwise. ispc's `uniform`, found rather than declared.)

What a loop carries is shared by the lanes that are still in it, however many have left: a counter is one number for the
gang, even where each lane has a test of its own. Behind the loop it is shared only if all lanes leave together. (The
divergence analysis of Karrenberg and Hack, "Improving performance of OpenCL on CPUs", CC 2012, section 4: values that a
loop's lanes leave with at different times are varying outside of it alone.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

from autobatch.backends.llvm.lanes.tensors import SMALL
from autobatch.ir.core import Apply, Call, For, Function, If, Instruction, Literal, Map, Operand, Region, Value, While
from autobatch.ir.types import Array

CONTROL = ("masked", "gradient_of", "blocks")
"""Operations with control of their own, whose lanes end apart."""


def uniform_values(functions: Sequence[Function], shared: Collection[Value]) -> frozenset[Value]:
    """The values of some functions that all lanes share. `functions[0]` is called from outside; `shared`: those of its
    arguments, and of the values that all functions read, which all lanes share there."""
    args = {f.name: f.region.args for f in functions}
    first = functions[0].region.args
    varying = {a for a in first if a not in shared}
    outside = [v for v in shared if v not in first]
    while True:
        known = {*outside, *(a for f in functions for a in f.region.args if a not in varying and _is_small(a))}
        found = _SharedValues(known)
        for f in functions:
            found.function(f)
        more = {
            a
            for callee, operands in found.calls
            for a, x in zip(args[callee], operands, strict=True)
            if a not in varying and not found.is_shared(x)
        }
        more |= {a for f in functions for a in _mixed(f) if a not in varying}
        if not more:
            return frozenset(found.known)
        varying |= more


def shared_inside(region: Region, shared: Collection[Value]) -> frozenset[Value]:
    """The values of a region that all lanes share which are in it, where they share some others."""
    found = _SharedValues(set(shared))
    found.body(region)
    return frozenset(found.known)


@dataclass(frozen=True)
class Carried:
    """What the lanes share that are in a loop: of what it carries, by number, and all that is `inside` of it;
    `together`: they leave it together."""

    numbers: frozenset[int] = frozenset()
    inside: frozenset[Value] = frozenset()
    together: bool = False


NOTHING = Carried()


def carried_alike(loop: For | While, shared: Collection[Value], given: Sequence[bool]) -> Carried:
    """`shared`: of what a loop reads from outside, what all lanes share; `given`: which of what it begins with."""
    found = _SharedValues(set(shared))
    args = loop.body.args[1:] if isinstance(loop, For) else loop.body.args
    test = loop.condition if isinstance(loop, While) else None
    if isinstance(loop, For):
        found.known.add(loop.body.args[0])
    varying, together = found.fixed(loop, args, test, {k for k, x in enumerate(given) if not x})
    numbers = frozenset(k for k, a in enumerate(args) if k not in varying and _is_small(a))
    return Carried(numbers, frozenset(found.known), together)


def one_of(branch: If, number: int) -> Operand | None:
    """The one value that a result of a branch has: in both arms, or where it has any. Then lanes of both arms share it,
    if they do where it is computed."""
    of_then, of_orelse = branch.then.results[number], branch.orelse.results[number]
    if _is_undefined(branch.then, of_then):
        return of_orelse
    if _is_undefined(branch.orelse, of_orelse) or (of_then == of_orelse and isinstance(of_then, Value)):
        return of_then
    return None


def _is_undefined(arm: Region, x: Operand) -> bool:
    return any(isinstance(i, Apply) and i.op.name == "undefined" and x in i.results for i in arm.body)


def last_calls(function: Function) -> list[Call]:
    """The calls of a function to itself that are the last thing it does: turns of a loop."""
    return list(_last_calls(function.name, function.region.body, function.region.results))


def yielded(branch: If, arm: Region, results: Sequence[Operand]) -> tuple[Operand, ...]:
    """What is returned behind an arm of a branch that is the last instruction before `results`."""
    of_arm = dict(zip(branch.results, arm.results, strict=True))
    return tuple(of_arm.get(x, x) if isinstance(x, Value) else x for x in results)


def _last_calls(name: str, body: Sequence[Instruction], results: Sequence[Operand]) -> list[Call]:
    match body[-1] if body else None:
        case Call(callee=callee) as call if callee == name and call.results == tuple(results):
            return [call]
        case If(then=then, orelse=orelse) as branch:
            arms = (then, orelse)
            return [c for arm in arms for c in _last_calls(name, arm.body, yielded(branch, arm, results))]
        case _:
            return []


def _mixed(function: Function) -> list[Value]:
    """The arguments that lanes of several last calls may bring different values for."""
    turns = last_calls(function)
    if len(turns) < 2:
        return []
    return [a for k, a in enumerate(function.region.args) if any(c.operands[k] != a for c in turns)]


def _is_small(x: Operand) -> bool:
    return isinstance(x.type, Array) and math.prod(x.type.shape) <= SMALL


class _SharedValues:
    """`known`: what is shared as far as the regions are read; `calls`: those that were met, and what they hand on."""

    def __init__(self, known: set[Value]) -> None:
        self.known = known
        self.calls: list[tuple[str, tuple[Operand, ...]]] = []

    def is_shared(self, x: Operand) -> bool:
        return isinstance(x, Literal) or x in self.known

    def function(self, function: Function) -> None:
        self.body(function.region)

    def body(self, region: Region) -> bool:
        """Reads a region. Is all that it yields shared?"""
        for i in region.body:
            self.instruction(i)
        return all(map(self.is_shared, region.results))

    def add(self, values: Sequence[Value]) -> None:
        self.known.update(v for v in values if _is_small(v))

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(op=op, operands=xs):
                if op.name not in CONTROL and all(map(self.is_shared, xs)):
                    self.add(i.results)
            case If(condition=condition, then=then, orelse=orelse):
                arms = (then, orelse)
                for arm in arms:
                    self.body(arm)
                jumps = self.is_shared(condition)
                for k, (r, *both) in enumerate(zip(i.results, then.results, orelse.results, strict=True)):
                    if (jumps or one_of(i, k) is not None) and all(map(self.is_shared, both)):
                        self.add([r])
            case For(count=count, body=body):
                self.known.add(body.args[0])  # lanes that still turn are in the same turn
                self.carried(i, body.args[1:], None, self.is_shared(count))
            case While(condition=test, body=body):
                self.carried(i, body.args, test)
            case Call(callee=callee, operands=xs):
                self.calls.append((callee, xs))
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(i)

    def carried(self, i: For | While, args: Sequence[Value], test: Region | None, together: bool = True) -> None:
        """A loop. `together`: all lanes have as many turns, as far as its count says."""
        varying, alike = self.fixed(i, args, test, {k for k, x in enumerate(i.init) if not self.is_shared(x)})
        if together and alike:
            self.add([r for k, r in enumerate(i.results) if k not in varying])

    def fixed(
        self, i: For | While, args: Sequence[Value], test: Region | None, varying: set[int]
    ) -> tuple[set[int], bool]:
        """What of a loop the lanes in it do not share, by number, of which `varying` they do not begin with; and
        whether its test is shared."""
        before, calls = set(self.known), len(self.calls)
        while True:
            self.known = set(before)
            del self.calls[calls:]
            self.add([a for k, a in enumerate(args) if k not in varying])
            together = True
            if test is not None:
                self.add([a for k, a in enumerate(test.args) if k not in varying])
                together = self.body(test)
            self.body(i.body)
            more = {k for k, x in enumerate(i.body.results) if not self.is_shared(x)}
            if more <= varying:
                return varying, together
            varying = varying | more
