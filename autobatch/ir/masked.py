"""What a masked operation is: one that holds branches and loops, for lanes that decide each for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from autobatch.ir.core import Apply, Instruction, While, walk
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
