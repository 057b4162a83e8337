"""What structure does behind a test of computed numbers runs in front of it, for the rows that take the arm and others.

    %4 = gt(%3, 0.0)                                %s = call @f.total(%2), status %t
    %7 = if %4 then:                          ->    %4 = gt(%3, 0.0)
      %5 = call @f(%2)                              %7 = if %4 then:
      %6 = add(%3, %5); yield %6                      check(%t == 0); %6 = add(%3, %s); yield %6
    else: yield %3                                  else: yield %3

Frames need to know which calls and turns there are before any number is computed. Which calls and turns there can be is
structure; a row that does not take the arm computes them for nothing. What fails in them is a number,
and fails the rows that take the arm. Nothing that runs in front may wait for a loop that computed numbers end: a row
that does not take the arm might never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import jax
import networkx as nx
from jax import lax

from autobatch.data.columns import Schema
from autobatch.errors import Span
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.leaf import STATUS, Site
from autobatch.ir.ops import OF_CONTROL, Op, own
from autobatch.ir.regions import Fresh, copy_region, free_values, region_values, substitute, with_regions
from autobatch.passes.failures import FINE, ReadChecks, Statuses
from autobatch.passes.simplify import call_graph
from autobatch.passes.stack import words

# ---- implied
#
# What a data-dependent branch says of structure all the same.
#
#     %4 = is_class[names=('Split',)](%1)
#     %9 = if %4 then: ...; yield %8 else: yield False     `isinstance(node, Split) and x > node.at`
#     %11 = if %9 then: load[field='at'](%1) ...           %4 holds in this arm, whatever %8 is
#
# A read that moves in front of such a branch leaves its arm behind. The tests of structure that the host knows in front
# of the branch come along; all others say nothing there.


Definitions = Mapping[Value, tuple[Instruction, int]]
"""What makes each value, and which of its results it is."""

Test = tuple[Value, bool]
"""A test of structure, and what it says."""


def definitions(module: Module) -> Definitions:
    """What makes the values of a module."""
    inside = (i for f in module.functions for i in walk(f.region))
    return {r: (i, k) for i in inside for k, r in enumerate(i.results)}


def implied(condition: Operand, truth: bool, made: Definitions, device: Collection[Operand]) -> Iterator[Test]:
    """The tests of which the host knows what they say where a condition is `truth`, and that stand in front of it.
    `device`: the data-dependent values."""
    if not isinstance(condition, Value):
        return
    if condition not in device:
        yield condition, truth
        return
    match made.get(condition):
        case Apply(op=op, operands=xs), _:
            if op.name == "not":
                yield from implied(xs[0], not truth, made, device)
            elif op.name in ("and", "or") and truth is (op.name == "and"):
                for x in xs:
                    yield from implied(x, truth, made, device)
        case If(condition=c, then=then, orelse=orelse), k:
            for arm, other, side in ((then, orelse, True), (orelse, then, False)):
                constant = other.results[k]
                if isinstance(constant, Literal) and constant.value is not truth:
                    yield from implied(c, side, made, device)
                    inside = set(region_values(arm))
                    found = implied(arm.results[k], truth, made, device)
                    yield from ((test, holds) for test, holds in found if test not in inside)
        case _:
            pass


def without_tests(module: Module, device: frozenset[Value]) -> Module:
    """The module whose branches and loops say nothing of what holds in them, where these are data-dependent: in
    front of `if t is None or budget < 0` a read of `t` may fail."""
    return _blind(module, device, {})


def with_implied_tests(module: Module, device: frozenset[Value]) -> Module:
    """The same, but they say what the host knows in front of them: that of `t`, where `t` comes with its test."""
    return _blind(module, device, definitions(module))


def _blind(module: Module, device: frozenset[Value], made: Definitions) -> Module:
    fresh = Fresh(module)

    def region(of: Region) -> Region:
        return replace(of, body=tuple(map(blind, of.body)))

    def behind(condition: Operand, truth: bool, arm: Region) -> Region:
        checks: list[Instruction] = []
        for test, holds in implied(condition, truth, made, device):
            checked = test
            if not holds:
                checked = fresh.value(BOOL)
                checks.append(Apply((checked,), Op("not", (), lax.not_p), (test,)))
            checks.append(Apply((), own("check", kind="AssertionError", message=""), (checked,)))
        return replace(arm, body=(*checks, *arm.body))

    def blind(i: Instruction) -> Instruction:
        whole = with_regions(i, region)
        match whole:
            case If(condition=x, then=then, orelse=orelse) if x in device:
                arms = behind(x, True, then), behind(x, False, orelse)
                return replace(whole, condition=fresh.value(BOOL), then=arms[0], orelse=arms[1])
            case While(condition=test, body=body) if test.results[0] in device:
                blinded = replace(test, results=(fresh.value(BOOL), *test.results[1:]))
                return replace(whole, condition=blinded, body=behind(test.results[0], True, body))
            case _:
                return whole

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def with_tests_in_front(module: Module, device: frozenset[Value], is_test: Callable[[Instruction], bool]) -> Module:
    """The module whose tests of structure stand in front of data-dependent branches: `k < 0` in front of
    `x < least or k < 0`. `is_test`: can they not fail, and are they no work?"""

    def region(of: Region) -> Region:
        body: list[Instruction] = []
        for i in of.body:
            whole = with_regions(i, region)
            if isinstance(whole, If) and whole.condition in device:
                defined = {r for arm in (whole.then, whole.orelse) for r in region_values(arm)}
                whole = replace(whole, then=left(whole.then, defined, body), orelse=left(whole.orelse, defined, body))
            body.append(whole)
        return replace(of, body=tuple(body))

    def left(arm: Region, defined: set[Value], front: list[Instruction]) -> Region:
        kept: list[Instruction] = []
        for i in arm.body:
            if is_test(i) and defined.isdisjoint(x for x in operands(i) if isinstance(x, Value)):
                front.append(i)
                defined.difference_update(i.results)
            else:
                kept.append(i)
        return replace(arm, body=tuple(kept))

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


# ---- total
#
# Instructions of structure that may run for rows that Python does not bring there: what they fail with is a number.
#
#     %5 = load[field='next'](%4)            %6 = is_none(%4)
#     %7 = call @f(%5)                       %s = select(%6, 1, 0)
#                                     ->     %7, %t = if %s == 0 then: %5 = load[field='next'](%4)
#                                                                      %7, %t = call @f.total(%5); yield %7, %t
#                                                     else: yield undefined, 0
#                                            (%s if %s != 0 else %t)
#
# Status `k` is the `k`-th of the sites of the module. Behind what the host knows to have failed nothing is read, and
# nothing called. What computed numbers have failed with is known to the device alone, so there are two statuses: that
# of all checks, and that of the checks of the host.


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
    """`device`: the data-dependent values; it learns others. `fallible`: the results of reads that may
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


Obstacle = tuple[str, Span]


def speculate(
    module: Module,
    device: frozenset[Value],
    fallible: frozenset[Value],
    schema: Schema,
    obstacle_in: Callable[[Instruction], Obstacle | None],
    stands: Callable[[If], bool],
) -> tuple[Module, Mapping[Span, Obstacle], Mapping[Span, Span]]:
    """The module in which what structure does in such branches runs in front of them; for the other branches what
    stands in the way; and for the loops and calls that run in front, which branch they stood in. `device`: the
    data-dependent values. `stands`: can a branch not stay as it is?"""
    made = _Speculation(module, device, fallible, schema, obstacle_in, stands)
    return made.run(), made.obstacles, made.in_front


@dataclass
class _Codes:
    """The statuses that something can have: its own, and those of the functions that it calls."""

    direct: set[int] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)


class _Speculation:
    def __init__(
        self,
        module: Module,
        device: frozenset[Value],
        fallible: frozenset[Value],
        schema: Schema,
        obstacle_in: Callable[[Instruction], Obstacle | None],
        stands: Callable[[If], bool],
    ) -> None:
        self.module, self.obstacle_in, self.stands = module, obstacle_in, stands
        self.fresh, self.shared = Fresh(module), frozenset(module.shared)
        self.total = Total(self.fresh, schema, set(device), fallible, self.called)
        self.graph, self.made = call_graph(module), definitions(module)
        self.failing = self.found(self.may_fail)
        self.endless = self.found(self.waits)
        self.obstacles: dict[Span, Obstacle] = {}
        self.in_front: dict[Span, Span] = {}
        self.names = {f.name for f in module.functions}
        self.wanted: dict[str, str] = {}
        self.of_status: dict[Operand, _Codes] = {}
        self.of_function: dict[str, _Codes] = {}
        self.now = _Codes()
        self.owner = module.functions[0]
        self.circles = {n: c for c in nx.strongly_connected_components(self.graph) for n in c}

    def run(self) -> Module:
        functions: dict[str, Function] = {}
        for f in self.module.functions:
            self.owner = f
            functions[f.name] = replace(f, region=self.region(f.region))
        made: list[Function] = []
        done: set[str] = set()
        while todo := [name for name in self.wanted if name not in done]:
            for name in todo:
                done.add(name)
                made.append(self.function(functions[name], self.wanted[name]))
        if not self.of_status and not self.total.changed:
            return self.module
        whole = [*functions.values(), *made]
        found = replace(self.module, functions=tuple(replace(f, region=self.resolved(f.region)) for f in whole))
        entry = whole[0].name
        reached = {entry} | nx.descendants(call_graph(found), entry)
        return replace(found, functions=tuple(f for f in found.functions if f.name in reached))

    # ---- what functions do

    def found(self, does: Callable[[Instruction], bool]) -> frozenset[str]:
        """The functions that do something, themselves or in what they call."""
        own_ = {f.name for f in self.module.functions if any(map(does, walk(f.region)))}
        return frozenset(own_.union(*(nx.ancestors(self.graph, name) for name in own_)))

    def may_fail(self, i: Instruction) -> bool:
        if not isinstance(i, Apply) or i.op.is_jax:
            return False
        return i.op.name == "check" or not self.total.fallible.isdisjoint(i.results)

    def waits(self, i: Instruction) -> bool:
        """Is this a loop that computed numbers end?"""
        match i:
            case While(condition=test):
                return self.total.on_device(test.results[0])
            case For(count=count):
                return self.total.on_device(count)
            case Apply(op=op):
                return jax_compat.holds_loop(op) or op.name in (*OF_CONTROL, "gradient_of")
            case _:
                return False

    def called(self, name: str) -> tuple[str, bool]:
        if name not in self.failing or name in self.wanted.values():
            self.now.callees.update({name} & set(self.wanted.values()))
            return name, False
        if name not in self.wanted:
            self.wanted[name] = self.new_name(f"{name}.total")
        self.now.callees.add(self.wanted[name])
        return self.wanted[name], True

    def new_name(self, name: str) -> str:
        while name in self.names:
            name += "'"
        self.names.add(name)
        return name

    def function(self, function: Function, name: str) -> Function:
        """What takes the place of a function: it gives two statuses behind its results."""
        env: dict[Value, Operand] = {}
        copied = copy_region(function.region, env, self.fresh)
        known = {new for old, new in env.items() if old in self.total.device and isinstance(new, Value)}
        self.total.device |= known
        renamed = {new for old, new in env.items() if old in self.total.fallible and isinstance(new, Value)}
        self.total.fallible |= renamed
        for old, new in env.items():
            if old in self.of_status:
                self.of_status[new] = self.of_status[old]
        with self.codes() as codes:
            body = self.total.body(copied.body, copied.results)
        for i in walk(copied):
            if isinstance(i, Apply) and i.op.name == "check" and i.op["kind"] == HELD:
                held = self.of_status[i.operands[0]]
                codes.direct |= held.direct
                codes.callees |= held.callees
        self.of_function[name] = codes
        results = (*body.results, body.status.of_all, body.status.of_host)
        return Function(name, Region(copied.args, tuple(body.made), results), function.span)

    # ---- branches

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            whole = with_regions(i, self.region)
            if isinstance(whole, If) and self.total.on_device(whole.condition) and self.stands(whole):
                try:
                    self.refuse(whole)
                    front: list[Instruction] = []
                    arms = [
                        self.arm(r, front, whole.span, self.outside(whole.condition, truth, front))
                        for r, truth in ((whole.then, True), (whole.orelse, False))
                    ]
                    body += front
                    whole = replace(whole, then=arms[0], orelse=arms[1])
                    self.total.changed = True
                except UnstatedFailure as failed:
                    self.obstacles.setdefault(whole.span, (failed.what, failed.span))
            body.append(whole)
        return replace(region, body=tuple(body))

    def refuse(self, branch: If) -> None:
        """Raise Failed where something cannot run in front."""
        for arm, truth in ((branch.then, True), (branch.orelse, False)):
            tests = [test for test, _ in implied(branch.condition, truth, self.made, self.total.device)]
            for k in self.lifted(arm):
                i = arm.body[k]
                for inner in (i, *(j for r in regions(i) for j in walk(r))):
                    if self.waits(inner):
                        raise UnstatedFailure("a loop that computed numbers end is in it", inner.span)
                    if isinstance(inner, Call):
                        self.refuse_call(inner, tests)
                    if isinstance(inner, Apply) and not self.can_be_checked(inner):
                        raise UnstatedFailure("what may fail in it is not known ahead", inner.span)

    def refuse_call(self, call: Call, tests: Sequence[Value]) -> None:
        """`tests`: what the host knows of rows that come to this call."""
        if call.callee in self.endless:
            raise UnstatedFailure(
                f"{call.callee} is called in it, which holds a loop that computed numbers end", call.span
            )
        callee = self.module.function(call.callee) if call.callee in self.graph else None
        if callee is not None and all(isinstance(a.type, Array) for a in callee.region.args):
            raise UnstatedFailure(f"{call.callee} is called in it, which calls itself", call.span)
        objects = [x for x in call.operands if not isinstance(x.type, Array)]
        if (
            call.callee in self.circles[self.owner.name]
            and self.owner.region.args
            and all(x in self.owner.region.args for x in objects)
            and not (call.callee == self.owner.name and self.counts(call, tests))
        ):
            raise UnstatedFailure(
                f"{call.callee} is called in it with the same objects: numbers alone end that", call.span
            )
        reached = {call.callee} | (nx.descendants(self.graph, call.callee) if call.callee in self.graph else set())
        for name in sorted(reached & self.graph.nodes):
            for i in walk(self.module.function(name).region):
                if isinstance(i, Apply) and not self.can_be_checked(i):
                    raise UnstatedFailure(f"{name} is called in it, and what may fail there is not known ahead", i.span)

    def counts(self, call: Call, tests: Sequence[Value]) -> bool:
        """Does a function call itself with other values of what tests of structure read? They end it."""
        pairs = zip(self.owner.region.args, call.operands, strict=True)
        moving = {a for a, x in pairs if x != a and not self.total.on_device(a)}
        seen, todo = set[Value](), list(tests)
        while todo:
            x = todo.pop()
            if x in moving:
                return True
            if x not in seen and x in self.made:
                seen.add(x)
                todo += free_values(Region((), (self.made[x][0],), ()))
        return False

    def can_be_checked(self, i: Apply) -> bool:
        if self.total.fallible.isdisjoint(i.results) or any(map(self.total.on_device, i.operands)):
            return True
        return i.op.name in ("load", "load_is_none", "length", "item", "text")

    def lifted(self, arm: Region) -> list[int]:
        """The instructions of an arm that run in front: those that are no arithmetic, and what they need."""
        maker = {r: k for k, i in enumerate(arm.body) for r in i.results}
        todo = [k for k, i in enumerate(arm.body) if self.obstacle_in(i) is not None]
        found: set[int] = set()
        while todo:
            k = todo.pop()
            if k not in found:
                found.add(k)
                read = free_values(Region((), (arm.body[k],), ()))
                todo += [maker[x] for x in read if x in maker]
        return sorted(found)

    def outside(self, condition: Operand, truth: bool, front: list[Instruction]) -> Operand:
        """A status: does the host know of a row that it is not in the arm where a condition is `truth`? It may be told
        by a test of structure that is part of it: `x < least or depth == 0`."""
        found: Operand = FINE
        for test, holds in implied(condition, truth, self.made, self.total.device):
            elsewhere = Literal(1, STATUS)
            arms = (FINE, elsewhere) if holds else (elsewhere, FINE)
            found = self.total.first(found, self.total.statuses.chosen(test, *arms, front), front)
        return found

    def arm(self, arm: Region, front: list[Instruction], branch: Span, outside: Operand) -> Region:
        """What stays of an arm of the branch."""
        lifted = set(self.lifted(arm))
        body: list[Instruction] = []
        known = Status(outside, outside)
        for k, i in enumerate(arm.body):
            if k not in lifted:
                body.append(i)
                continue
            if not isinstance(i, Apply | If):
                self.in_front.setdefault(i.span, branch)
            with self.codes() as codes:
                if known.of_host == Status().of_host:
                    status = self.total.instruction(i, front)
                else:
                    inside = self.total.like(i.results)
                    inner = self.total.body([replace(i, results=inside)], inside)
                    status = self.total.guarded(known.of_host, inner, i.results, front)
            if not status.is_fine:
                self.of_status[status.of_all] = codes
                body.append(Apply((), own("check", kind=HELD, message=""), (status.of_all,), i.span))
            known = self.total.both(known, status, front)
        return Region((), tuple(body), arm.results)

    # ---- statuses

    def codes(self) -> _Noting:
        return _Noting(self)

    def all_codes(self, codes: _Codes) -> list[int]:
        found, seen, todo = set(codes.direct), set[str](), list(codes.callees)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                found |= self.of_function[name].direct
                todo += self.of_function[name].callees
        return sorted(found)

    def resolved(self, region: Region) -> Region:
        """Checks of statuses as checks of what they stand for."""
        body: list[Instruction] = []
        for i in region.body:
            if not isinstance(i, Apply) or i.op.name != "check" or i.op["kind"] != HELD:
                body.append(with_regions(i, self.resolved))
                continue
            (status,) = i.operands
            for code in self.all_codes(self.of_status[status]):
                site, other = self.total.sites[code - 1], self.fresh.value(BOOL)
                body.append(Apply((other,), Op("ne", (), jax.lax.ne_p), (status, Literal(code, STATUS)), site.span))
                body.append(Apply((), own("check", kind=site.kind, message=_plain(site.message)), (other,), site.span))
        return replace(region, body=tuple(body))


class _Noting:
    """Notes the statuses that are made inside."""

    def __init__(self, of: _Speculation) -> None:
        self.of, self.codes = of, _Codes()

    def __enter__(self) -> _Codes:
        self.outer, self.of.now = self.of.now, self.codes
        self.first = len(self.of.total.sites)
        return self.codes

    def __exit__(self, *_: object) -> None:
        self.of.now = self.outer
        self.codes.direct.update(range(self.first + 1, len(self.of.total.sites) + 1))


def _plain(message: str) -> str:
    """A message as a format string that says the same."""
    return message.replace("{", "{{").replace("}", "}}")
