"""Instructions of structure that may run for rows that Python does not bring there: what they fail with is a number.

    %5 = load[field='next'](%4)            %6 = is_none(%4)
    %7 = call @f(%5)                       %s = select(%6, 1, 0)
                                    ->     %7, %t = if %s == 0 then: %5 = load[field='next'](%4)
                                                                     %7, %t = call @f.total(%5); yield %7, %t
                                                    else: yield undefined, 0
                                           (%s if %s != 0 else %t)

Status `k` is the `k`-th of the sites of the module. Behind what the host knows to have failed nothing is read, and
nothing called. What computed numbers have failed with is known to the device alone, so there are two statuses: that of
all checks, and that of the checks of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import jax

from autobatch.data.schema import Schema
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
)
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh, substitute
from autobatch.ir.types import BOOL, INT, List
from autobatch.passes.control.blocks import words
from autobatch.passes.control.read_checks import ReadChecks
from autobatch.passes.control.statuses import FINE, Statuses
from autobatch.source import Span

HELD = "#status"
"""The kind of a check of a status that is made already: it is not zero where something has failed."""


class UnstatedFailure(Exception):
    """Something that may fail in a way that no status says."""

    def __init__(self, what: str, span: Span) -> None:
        super().__init__(what)
        self.what, self.span = what, span


@dataclass
class Status:
    """What has failed so far, and what of it the host knows. FINE: nothing can have."""

    of_all: Operand = FINE
    of_host: Operand = FINE

    @property
    def is_fine(self) -> bool:
        return self.of_all == FINE


@dataclass
class TotalBody:
    made: list[Instruction] = field(default_factory=list)
    results: tuple[Operand, ...] = ()
    status: Status = field(default_factory=Status)


class Total:
    """`device`: the values that computed numbers decide; it learns others. `fallible`: the results of reads that may
    fail. `called`: the name of the function that takes the place of another, and whether that can fail."""

    def __init__(
        self,
        fresh: Fresh,
        schema: Schema,
        device: set[Value],
        fallible: frozenset[Value],
        called: Callable[[str], tuple[str, bool]],
    ) -> None:
        self.fresh, self.schema, self.device, self.fallible, self.called = fresh, schema, device, fallible, called
        self.statuses = Statuses(fresh)
        self.sites: list[Site] = []
        self.changed = False

    def on_device(self, x: Operand) -> bool:
        return isinstance(x, Value) and x in self.device

    def site(self, kind: str, message: str, span: Span) -> Literal:
        self.sites.append(Site(kind, message, span))
        return Literal(len(self.sites), STATUS)

    # ---- blocks

    def body(self, instructions: Sequence[Instruction], results: Sequence[Operand]) -> TotalBody:
        """What `results` are after some instructions. What stands behind something that the host may know to have
        failed is behind a branch."""
        made: list[Instruction] = []
        status = Status()
        for k, instruction in enumerate(instructions):
            before = status.of_host
            status = self.both(status, self.instruction(instruction, made), made)
            rest = instructions[k + 1 :]
            if status.of_host != before and rest:
                return self.behind(rest, results, status, made)
        return TotalBody(made, tuple(results), status)

    def behind(
        self, rest: Sequence[Instruction], results: Sequence[Operand], status: Status, made: list[Instruction]
    ) -> TotalBody:
        defined = {r for i in rest for r in i.results}
        live = [x for x in dict.fromkeys(results) if isinstance(x, Value) and x in defined]
        inner = self.body(rest, live)
        names = dict(zip(live, self.like(live), strict=True))
        later = self.guarded(status.of_host, inner, tuple(names.values()), made)
        return TotalBody(made, tuple(substitute(x, names) for x in results), self.both(status, later, made))

    def guarded(self, known: Operand, inner: TotalBody, results: tuple[Value, ...], made: list[Instruction]) -> Status:
        """Add a block that runs where the host knows of no failure; its status."""
        held = self.held(inner.status)
        blanks = tuple(self.fresh.value(x.type) for x in inner.results)
        none = [Apply((b,), own("undefined", type=b.type), ()) for b in blanks]
        statuses = self.like_statuses(inner.status)
        then = Region((), tuple(inner.made), (*inner.results, *held))
        orelse = Region((), tuple(none), (*blanks, *(FINE for _ in held)))
        made.append(If((*results, *statuses), self.fine(known, made), then, orelse))
        return self.status_of(statuses)

    def like(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Values that stand for others."""
        made = self.fresh.like(values)
        pairs = list(zip(values, made, strict=True))
        self.device.update(new for old, new in pairs if old in self.device)
        self.fallible |= {new for old, new in pairs if old in self.fallible}
        return made

    # ---- statuses

    def fine(self, status: Operand, made: list[Instruction]) -> Value:
        found = self.statuses.is_fine(status, made)
        if self.on_device(status):
            self.device.add(found)
        return found

    def first(self, x: Operand, y: Operand, made: list[Instruction]) -> Operand:
        if FINE in (x, y) or x == y:
            return y if x == FINE else x
        known = len(made)
        found = self.statuses.first(x, y, made)
        if self.on_device(x) or self.on_device(y):
            self.device.update(r for i in made[known:] for r in i.results)
        return found

    def both(self, x: Status, y: Status, made: list[Instruction]) -> Status:
        of_all = self.first(x.of_all, y.of_all, made)
        if x.of_all == x.of_host and y.of_all == y.of_host:
            return Status(of_all, of_all)
        return Status(of_all, self.first(x.of_host, y.of_host, made))

    def held(self, status: Status) -> tuple[Operand, ...]:
        """A status as results of a region: none, one that the host knows, or two."""
        if status.is_fine:
            return ()
        return (status.of_all,) if status.of_all == status.of_host else (status.of_all, status.of_host)

    def like_statuses(self, status: Status) -> tuple[Value, ...]:
        made = tuple(self.fresh.value(STATUS) for _ in self.held(status))
        if made and self.on_device(status.of_all):
            self.device.add(made[0])
        return made

    def status_of(self, held: Sequence[Operand]) -> Status:
        return Status(held[0], held[-1]) if held else Status()

    # ---- instructions

    def instruction(self, instruction: Instruction, made: list[Instruction]) -> Status:
        """Add what an instruction is here; its status."""
        match instruction:
            case Apply(op=op) if not op.is_jax and op.name == "check":
                return self.check(instruction, made)
            case Apply():
                return self.apply(instruction, made)
            case If():
                return self.branch(instruction, made)
            case Call(callee=callee):
                name, fails = self.called(callee)
                statuses = tuple(self.fresh.value(STATUS) for _ in range(2)) if fails else ()
                self.device.update(statuses[:1])
                made.append(replace(instruction, callee=name, results=(*instruction.results, *statuses)))
                return self.status_of(statuses)
            case Map():
                return self.comprehension(instruction, made)
            case For():
                return self.counted(instruction, made)
            case While():
                return self.conditional(instruction, made)
            case _:
                assert_never(instruction)

    def check(self, check: Apply, made: list[Instruction]) -> Status:
        condition, span = check.operands[0], check.span
        if check.op["kind"] == HELD:
            return Status(condition, FINE)
        number = self.site(check.op["kind"], words(check.op["message"]), span)
        status = self.statuses.chosen(condition, FINE, number, made)
        if self.on_device(condition):
            self.device.add(status)
            return Status(status, FINE)
        return Status(status, status)

    def apply(self, apply: Apply, made: list[Instruction]) -> Status:
        if self.fallible.isdisjoint(apply.results) or any(map(self.on_device, apply.operands)):
            made.append(apply)
            return Status()
        checks = ReadChecks(self.fresh, self.schema)
        if not checks.read(apply):
            raise UnstatedFailure("this may fail", apply.span)
        status = Status()
        for i in checks.made:
            status = self.both(status, self.instruction_behind(i, status, made), made)
        if status.is_fine:
            made.append(apply)
            return status
        inside = self.fresh.like(apply.results)
        self.guarded(status.of_host, TotalBody([replace(apply, results=inside)], inside), apply.results, made)
        return status

    def instruction_behind(self, i: Instruction, status: Status, made: list[Instruction]) -> Status:
        """One of the checks of a read, behind those before it."""
        if status.is_fine or (isinstance(i, Apply) and i.op.name in ("check", "not", "and", "ge", "lt", "neg")):
            return self.instruction(i, made)
        inside = self.fresh.like(i.results)
        self.guarded(status.of_host, TotalBody([replace(i, results=inside)], inside), i.results, made)
        return Status()

    def branch(self, branch: If, made: list[Instruction]) -> Status:
        arms = [self.body(arm.body, arm.results) for arm in (branch.then, branch.orelse)]
        by_device = self.on_device(branch.condition)
        if all(arm.status.is_fine for arm in arms):
            wide = 0
        else:
            wide = 2 if any(arm.status.of_all != arm.status.of_host for arm in arms) and not by_device else 1
        statuses = tuple(self.fresh.value(STATUS) for _ in range(wide))
        then, orelse = (
            Region((), tuple(arm.made), (*arm.results, *(arm.status.of_all, arm.status.of_host)[:wide])) for arm in arms
        )
        made.append(replace(branch, results=(*branch.results, *statuses), then=then, orelse=orelse))
        if not wide:
            return Status()
        if by_device or any(self.on_device(arm.status.of_all) for arm in arms):
            self.device.add(statuses[0])
        return Status(statuses[0], FINE) if by_device else self.status_of(statuses)

    def comprehension(self, loop: Map, made: list[Instruction]) -> Status:
        turn = self.body(loop.body.body, loop.body.results)
        held = self.held(turn.status)
        lists = tuple(self.fresh.value(List(STATUS)) for _ in held)
        region = Region(loop.body.args, tuple(turn.made), (*turn.results, *held))
        made.append(replace(loop, results=(*loop.results, *lists), body=region))
        found = [self.largest(x, made, self.on_device(status)) for x, status in zip(lists, held, strict=True)]
        return self.status_of(found)

    def largest(self, statuses: Value, made: list[Instruction], by_device: bool) -> Value:
        """One of the statuses of the turns of a comprehension that are not zero."""
        length, most, status = self.fresh.value(INT), self.fresh.value(STATUS), self.fresh.value(STATUS)
        made.append(Apply((length,), own("length"), (statuses,)))
        some = self.statuses.of(BOOL, "gt", jax.lax.gt_p, (length, Literal(0, INT)), made)
        reduced = Apply((most,), own("reduce", kind="max"), (statuses,))
        made.append(If((status,), some, Region((), (reduced,), (most,)), Region((), (), (FINE,))))
        if by_device:
            self.device.update((statuses, most, status))
        return status

    def counted(self, loop: For, made: list[Instruction]) -> Status:
        turn = self.body(loop.body.body, loop.body.results)
        if turn.status.is_fine:
            made.append(replace(loop, body=replace(loop.body, body=tuple(turn.made))))
            return Status()
        before = self.like_statuses(turn.status)
        statuses = self.like_statuses(turn.status)
        body: list[Instruction] = []
        results = tuple(self.fresh.value(x.type) for x in turn.results)
        self.device.update(r for r, x in zip(results, turn.results, strict=True) if self.on_device(x))
        carried = loop.body.args[1:]
        inside = self.kept(self.status_of(before).of_host, turn, results, carried, body)
        whole = self.both(self.status_of(before), inside, body)
        region = Region((*loop.body.args, *before), tuple(body), (*results, *self.as_held(whole, len(before))))
        init = (*loop.init, *(FINE for _ in before))
        made.append(replace(loop, results=(*loop.results, *statuses), init=init, body=region))
        return self.status_of(statuses)

    def as_held(self, status: Status, count: int) -> tuple[Operand, ...]:
        return (status.of_all, status.of_host)[:count]

    def kept(
        self,
        known: Operand,
        inner: TotalBody,
        results: tuple[Value, ...],
        others: Sequence[Operand],
        made: list[Instruction],
    ) -> Status:
        """Add a block that runs where the host knows of no failure; elsewhere its results are `others`."""
        held, statuses = self.held(inner.status), self.like_statuses(inner.status)
        then = Region((), tuple(inner.made), (*inner.results, *held))
        orelse = Region((), (), (*others, *(FINE for _ in held)))
        made.append(If((*results, *statuses), self.fine(known, made), then, orelse))
        return self.status_of(statuses)

    def conditional(self, loop: While, made: list[Instruction]) -> Status:
        """A loop over structure; behind a failure it ends."""
        test = self.body(loop.condition.body, loop.condition.results)
        if not test.status.is_fine:
            raise UnstatedFailure("what can fail stands in the test of this loop", loop.span)
        turn = self.body(loop.body.body, loop.body.results)
        if turn.status.is_fine:
            made.append(replace(loop, body=replace(loop.body, body=tuple(turn.made))))
            return Status()
        tested, before = self.like_statuses(turn.status), self.like_statuses(turn.status)
        statuses = self.like_statuses(turn.status)
        whole = self.both(self.status_of(before), turn.status, turn.made)
        condition = list(test.made)
        fine = self.fine(self.status_of(tested).of_host, condition)
        goes_on = self.statuses.both(test.results[0], fine, condition)
        made.append(
            replace(
                loop,
                results=(*loop.results, *statuses),
                init=(*loop.init, *(FINE for _ in before)),
                condition=Region((*loop.condition.args, *tested), tuple(condition), (goes_on,)),
                body=Region(
                    (*loop.body.args, *before), tuple(turn.made), (*turn.results, *self.as_held(whole, len(before)))
                ),
            )
        )
        return self.status_of(statuses)
