"""What a masked operation is: one that holds branches and loops, for lanes that decide each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    If,
    Instruction,
    List,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    walk,
)
from autobatch.ir.ops import Op


class Allowed(NamedTuple):
    """A loop may have `most` turns; a derivative keeps `states` of it for each factor of `states` in these. Of a loop
    whose turns the program counts it keeps what all turns compute where there are at most `counted` of them. `refill`:
    do rows that are done make room for others? None: as it pays."""

    most: int
    states: int
    counted: int = 1024
    refill: bool | None = None

    @property
    def levels(self) -> int:
        """How many factors there are."""
        found = 1
        while self.states**found < self.most:
            found += 1
        return found


NO_LIMIT = Allowed((1 << 30) - 1, 32)
"""Of a loop that nothing else ends: more than anybody waits for, and fewer than an int32 counts."""


def out_of_turns(iterations: int) -> str:
    """What a loop fails with that has more than `max_iterations` turns."""
    return (
        f"this loop never ends, presumably: max_iterations={iterations} turns of this loop were not enough; let its "
        "test become false, or raise ab.options(max_iterations=...) if it is meant to run so long"
    )


class Limit(NamedTuple):
    """A loop may have so many `turns`; behind them its last value, a status, is `site`."""

    turns: Allowed
    site: int


def is_masked(op: Op) -> bool:
    """Is this an operation whose rows decide each for itself (a masked one, or a program of blocks), or the derivative
    of one?"""
    while op.name == "pullback":
        op = op["rule"].op
    return op.name in ("masked", "blocks", "gradient_of") and not op.is_jax


def may_have_failed(op: Op) -> bool:
    """Are rows that fail, in this operation or behind it, cut off from derivatives?"""
    while op.name == "pullback":
        op = op["rule"].op
    return dict(op.params).get("cut") is True


def holds_loop(op: Op) -> bool:
    """Does a masked operation, or the derivative of one, hold a loop that computed numbers end?"""
    if op.name == "pullback":
        return bool(op["loops"])
    return op.name == "blocks" or any(_is_loop(i) or _derives_loop(i) for i in walk(op["region"]))


def derives_loop(op: Op) -> bool:
    """Is it, or does it hold, the derivative of something with a loop that computed numbers end?"""
    if op.name in ("pullback", "gradient_of"):
        return holds_loop(op)
    inside = (i for b in op["program"].blocks for i in b.body) if op.name == "blocks" else walk(op["region"])
    return any(map(_derives_loop, inside))


def _derives_loop(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "gradient_of" and holds_loop(instruction.op)


def _is_loop(instruction: Instruction) -> bool:
    return isinstance(instruction, While) or (isinstance(instruction, Apply) and instruction.op.name == "blocks")


def cut(op: Op) -> Op:
    """The operation with rows that may have failed, or do not use its results: they have no part in derivatives."""
    return replace(op, params=tuple(sorted({**dict(op.params), "cut": True}.items())))


def refill_of(op: Op) -> bool | None:
    """What the user wants of rows that are done in a masked operation; None where nothing."""
    found: bool | None = dict(op.params).get("refill")
    return found


def limit_of(loop: While) -> Limit | None:
    """How many turns a loop may have; None where nobody has said."""
    last = loop.body.body[-1] if loop.body.body else None
    if not isinstance(last, Apply) or last.op.name != "within" or last.results != loop.body.results[-1:]:
        return None
    return Limit(Allowed(last.op["turns"], last.op["states"]), last.op["site"])


# ---- by floats
#
# Do floats decide a branch or loop somewhere?
#
#     %3 = lt(%2, 1.0)                 %2 is a float
#     %5 = while (%0) test (%1): %3    so this loop is decided by one
#
# Where none does, control is structure, integers, and what is read of objects by them.


def decided_by_floats(module: Module) -> bool:
    """Is there such a branch or loop in the module?"""
    found = _ByFloats(module)
    while found.grows():
        pass
    return found.decides


class _ByFloats:
    """`values`: what floats decide, so far, floats aside."""

    def __init__(self, module: Module) -> None:
        self.module, self.values, self.decides = module, set[Operand](), False

    def grows(self) -> bool:
        before = len(self.values)
        for function in self.module.functions:
            for i in walk(function.region):
                self.instruction(i)
        return len(self.values) > before

    def by_floats(self, xs: Sequence[Operand]) -> bool:
        return any(x in self.values or _is_float(x) for x in xs)

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.values.update(y for x, y in zip(sources, targets, strict=True) if x in self.values)

    def decided(self, condition: Operand, results: Sequence[Value]) -> None:
        if condition in self.values:
            self.decides = True
            self.values.update(results)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(results=results, op=op, operands=xs):
                compared = op.name in _COMPARING and any(_holds_floats(x) or x in self.values for x in xs)
                self.decides |= compared
                if compared or self.by_floats(xs):
                    self.values.update(r for r in results if not _is_float(r))
            case If(results=results, condition=condition, then=then, orelse=orelse):
                self.flow(then.results, results)
                self.flow(orelse.results, results)
                self.decided(condition, results)
            case For(results=results, count=count, init=init, body=body):
                self.carried(init, body, body.args[1:], results)
                self.decided(count, results)
            case While(results=results, init=init, condition=test, body=body):
                self.carried(init, body, body.args, results)
                self.flow(init, test.args)
                self.flow(body.results, test.args)
                self.decided(test.results[0], results)
            case Map(results=results, count=count, body=body, filtered=filtered):
                for condition in (count, *body.results[:filtered]):
                    self.decided(condition, results)
                self.flow(body.results[filtered:], results)
            case Call(results=results, callee=callee, operands=xs):
                region = self.module.function(callee).region
                self.flow(xs, region.args)
                self.flow(region.results, results)

    def carried(self, init: Sequence[Operand], body: Region, args: Sequence[Value], results: Sequence[Value]) -> None:
        for sources in (init, body.results):
            self.flow(sources, args)
            self.flow(sources, results)


_COMPARING = ("sort_order", "find")
"""What tells positions by comparing elements: of floats, as no trace can. (Their length, no float decides.)"""


def _holds_floats(x: Operand) -> bool:
    return isinstance(x.type, List) and isinstance(x.type.elem, Array) and _floats(x.type.elem)


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and _floats(x.type)


def _floats(type: Array) -> bool:
    return not (type.is_integer or type.is_bool)
