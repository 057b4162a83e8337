"""What a row fails with under a mask, as one more number: the status of a masked region.

    check[kind='ValueError'](%ok)          %s = select(%ok, 1, 0)
    %y = while (%x) test ... do            %y, %t = while (%x, 0) test ... and %s == 0 and %t == 0 do
      check[...](%fine)             ->       %u = select(%fine, 2, 0)
      yield %z                               %v = within[site=3, states=32, turns=1000000](%u)
                                             yield %z, %v
    yield %y                               yield %y, (%s if %s != 0 else %t)

Status `k` is the `k`-th of `sites`; 0 is none. A row that has failed runs no more loops. `within` says how many turns a
loop may have, what its status is where they were not enough (whoever runs the loop counts), and how many states its
derivative keeps (`ir/masked.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from autobatch.ir.blocks import STATUS, Site
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    If,
    Instruction,
    Literal,
    Map,
    Operand,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.elementwise import INFINITE
from autobatch.ir.masked import Allowed, out_of_turns
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh, copy_region, substitute
from autobatch.ir.types import BOOL
from autobatch.passes.control.blocks import words
from autobatch.passes.control.statuses import FINE, Statuses
from autobatch.source import Span

LATE = "RuntimeError"
"""What a loop fails with that has more turns than it may."""


class CheckedBody(NamedTuple):
    """Instructions that have no checks, what they yield, and their status: None where they cannot fail."""

    made: list[Instruction]
    results: tuple[Operand, ...]
    status: Operand | None


def can_fail(instruction: Instruction) -> bool:
    """Is this a check, or a loop, which has a limit?"""
    return isinstance(instruction, While) or (isinstance(instruction, Apply) and instruction.op.name == "check")


def may_be_infinite(instruction: Instruction) -> bool:
    """Has this a value, or a derivative, that is not finite somewhere?"""
    inside = (instruction, *(i for r in regions(instruction) for i in walk(r)))
    return any(isinstance(i, Apply) and i.op.name in INFINITE for i in inside)


class Failing:
    """Regions of arithmetic, branches, loops and checks without the checks. `turns`: those that a loop may have; those
    that it has are in `counts`, by its first result, where they are known."""

    def __init__(self, fresh: Fresh, turns: Allowed, counts: Mapping[Value, int]) -> None:
        self.fresh, self.turns, self.counts = fresh, turns, counts
        self.statuses = Statuses(fresh)
        self.sites: list[Site] = []

    def body(
        self, instructions: Sequence[Instruction], results: Sequence[Operand], before: tuple[Operand, ...]
    ) -> CheckedBody:
        """What `results` are after some instructions, and the status of these. `before`: what must be 0 for a loop to
        run. What stands behind a failure, and is not finite everywhere, is behind a branch."""
        made: list[Instruction] = []
        checks: list[Apply] = []
        status: Operand | None = None
        assert not any(isinstance(i, Apply) and i.op.name == "masked" for i in instructions)  # its checks would be lost
        for k, instruction in enumerate(instructions):
            if isinstance(instruction, Apply) and instruction.op.name == "check":
                checks.append(instruction)
                continue
            if isinstance(instruction, Apply) and not may_be_infinite(instruction):
                made.append(instruction)
                continue
            status, checks = self.checked(checks, status, made), []
            if status is not None and may_be_infinite(instruction):
                return self.behind(instructions[k:], results, before, status, made)
            found = self.instruction(instruction, made, before if status is None else (*before, status))
            status = self.earliest(status, found, made)
        return CheckedBody(made, tuple(results), self.checked(checks, status, made))

    def checked(self, checks: Sequence[Apply], status: Operand | None, made: list[Instruction]) -> Operand | None:
        """The status after some checks, of which the first that fails tells."""
        sites = [self.site(c.op["kind"], words(c.op["message"]), c.span) for c in checks]
        found: Operand = FINE
        for check, site in zip(reversed(checks), reversed(sites), strict=True):
            found = self.statuses.chosen(check.operands[0], found, site, made)
        return self.earliest(status, found, made) if checks else status

    def earliest(self, status: Operand | None, later: Operand | None, made: list[Instruction]) -> Operand | None:
        if status is None or later is None:
            return later if status is None else status
        return self.statuses.first(status, later, made)

    def behind(
        self,
        rest: Sequence[Instruction],
        results: Sequence[Operand],
        before: tuple[Operand, ...],
        status: Operand,
        made: list[Instruction],
    ) -> CheckedBody:
        """The rest of a block, which rows run that have not failed."""
        defined = {r for i in rest for r in i.results}
        live = [x for x in dict.fromkeys(results) if isinstance(x, Value) and x in defined]
        inner = self.body(rest, live, (*before, status))
        names = dict(zip(live, self.fresh.like(live), strict=True))
        blanks = [self.fresh.value(x.type) for x in live]
        none = [Apply((b,), own("undefined", type=b.type), ()) for b in blanks]
        later, whole = self.fresh.value(STATUS), status
        then = Region((), tuple(inner.made), (*inner.results, inner.status or FINE))
        orelse = Region((), tuple(none), (*blanks, FINE))
        made.append(If((*names.values(), later), self.statuses.is_fine(status, made), then, orelse))
        if inner.status is not None:
            whole = self.statuses.first(status, later, made)
        return CheckedBody(made, tuple(substitute(x, names) for x in results), whole)

    def instruction(
        self, instruction: Instruction, made: list[Instruction], before: tuple[Operand, ...]
    ) -> Operand | None:
        match instruction:
            case Apply():
                made.append(instruction)
                return None
            case If():
                return self.branch(instruction, made, before)
            case For():
                return self.counted(instruction, made, before)
            case While():
                return self.conditional(instruction, made, before)
            case Map() | Call():
                raise AssertionError("no calls and no lists in a masked region")
            case _:
                assert_never(instruction)

    def branch(self, branch: If, made: list[Instruction], before: tuple[Operand, ...]) -> Operand | None:
        arms = [self.body(arm.body, arm.results, before) for arm in (branch.then, branch.orelse)]
        fails = any(arm.status is not None for arm in arms)
        then, orelse = (
            Region((), tuple(arm.made), (*arm.results, arm.status or FINE) if fails else arm.results) for arm in arms
        )
        status = self.fresh.value(STATUS)
        results = (*branch.results, status) if fails else branch.results
        made.append(replace(branch, results=results, then=then, orelse=orelse))
        return status if fails else None

    def counted(self, loop: For, made: list[Instruction], before: tuple[Operand, ...]) -> Operand | None:
        held, status = self.fresh.value(STATUS), self.fresh.value(STATUS)
        turn = self.body(loop.body.body, loop.body.results, (*before, held))
        if turn.status is None:
            made.append(replace(loop, body=replace(loop.body, body=tuple(turn.made))))
            return None
        whole = self.statuses.first(held, turn.status, turn.made)
        body = Region((*loop.body.args, held), tuple(turn.made), (*turn.results, whole))
        made.append(replace(loop, results=(*loop.results, status), init=(*loop.init, FINE), body=body))
        return status

    def conditional(self, loop: While, made: list[Instruction], before: tuple[Operand, ...]) -> Operand:
        if any(can_fail(i) for i in walk(loop.condition)):
            return self.tested_behind(loop, made, before)
        tested, held, last, status = (self.fresh.value(STATUS) for _ in range(4))
        test, goes_on = list(loop.condition.body), loop.condition.results[0]
        for x in (*before, tested):
            goes_on = self.statuses.both(goes_on, self.statuses.is_fine(x, test), test)
        turn = self.body(loop.body.body, loop.body.results, (*before, held))
        late = self.site(LATE, out_of_turns(self.turns.most), loop.span)
        most, states = self.turns.most, self.turns.states
        if (count := self.counts.get(loop.results[0]) if loop.results else None) is not None:
            most, states = count, min(states, math.isqrt(count - 1) + 1)
        within = own("within", site=late.value, states=states, turns=most)
        turn.made.append(Apply((last,), within, (held if turn.status is None else turn.status,), loop.span))
        made.append(
            replace(
                loop,
                results=(*loop.results, status),
                init=(*loop.init, FINE),
                condition=Region((*loop.condition.args, tested), tuple(test), (goes_on,)),
                body=Region((*loop.body.args, held), tuple(turn.made), (*turn.results, last)),
            )
        )
        return status

    def tested_behind(self, loop: While, made: list[Instruction], before: tuple[Operand, ...]) -> Operand:
        """A loop whose test can fail: the turns end with the test of the next one, and carry what it has said."""
        test = self.copied(loop.condition, loop.init)
        first = self.body(test.body, test.results, before)
        made += first.made
        again = self.copied(loop.condition, loop.body.results)
        goes_on, said, last = (self.fresh.value(BOOL) for _ in range(3))
        body = Region((*loop.body.args, said), (*loop.body.body, *again.body), (*loop.body.results, again.results[0]))
        carried = (*self.fresh.like(loop.condition.args), goes_on)
        whole = While(
            (*loop.results, last), (*loop.init, first.results[0]), Region(carried, (), (goes_on,)), body, loop.span
        )
        if first.status is None:
            return self.conditional(whole, made, before)
        status = self.conditional(whole, made, (*before, first.status))
        return self.statuses.first(first.status, status, made)

    def copied(self, test: Region, values: Sequence[Operand]) -> Region:
        """A test of these values."""
        return copy_region(replace(test, args=()), dict(zip(test.args, values, strict=True)), self.fresh)

    def site(self, kind: str, message: str, span: Span) -> Literal:
        self.sites.append(Site(kind, message, span))
        return Literal(len(self.sites), STATUS)
