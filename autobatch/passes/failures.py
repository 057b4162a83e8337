"""Failures: what an example fails with on the device is a result; what frames cannot run is refused.

Statuses are a result of the entry, handed up from where they are made:

    func @f(%t):                                      func @f(%t) -> (..., status):
      %r, %s = blocks[program=...](%x)          ->      %r, %s = blocks[base=0, program=...](%x)
      %q = call @g(%t)                                  %q, %u = call @g(%t)
      return %r + %q                                    return %r + %q, (%s if %s != 0 else %u)

The first status in the order of the program that is not zero is that of the example. Statuses of the turns of a
comprehension are reduced by `max`: one of those that failed. A status is a number like others, so rows that are shared
by examples fail in all of them, and no later pass knows about it.

Control of frames that depends on computed numbers is refused before any code is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

import jax
import networkx as nx
from jax import lax

from autobatch.data.columns import Schema
from autobatch.errors import Span, UnsupportedError
from autobatch.ir import strings
from autobatch.ir.core import (
    BOOL,
    INFINITE,
    INT,
    Apply,
    BuiltObject,
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
    Ref,
    Region,
    Tag,
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.leaf import STATUS, BlockProgram, Site
from autobatch.ir.ops import OF_CONTROL, Op, own
from autobatch.ir.regions import Allowed, Fresh, copy_region, cut, out_of_turns, substitute, with_regions
from autobatch.passes.fallible import lacking
from autobatch.passes.simplify import call_graph
from autobatch.passes.stack import words
from autobatch.passes.structure import StructureFacts

# ---- statuses
#
# Arithmetic on statuses: what an example has failed with, as a number, and 0 where with nothing.


FINE = Literal(0, STATUS)
"""The status of what did not fail."""


class Statuses:
    """Writes instructions behind those that are `made` already."""

    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh

    def is_fine(self, status: Operand, made: list[Instruction]) -> Value:
        return self.of(BOOL, "eq", jax.lax.eq_p, (status, FINE), made)

    def both(self, x: Operand, y: Operand, made: list[Instruction]) -> Value:
        return self.of(BOOL, "and", jax.lax.and_p, (x, y), made)

    def chosen(self, condition: Operand, one: Operand, other: Operand, made: list[Instruction]) -> Value:
        """`one if condition else other`"""
        return self.of(STATUS, "select_n", jax.lax.select_n_p, (condition, other, one), made)

    def first(self, status: Operand, other: Operand, made: list[Instruction]) -> Value:
        """`status if status != 0 else other`"""
        return self.chosen(self.is_fine(status, made), other, status, made)

    def moved(self, status: Operand, base: int, made: list[Instruction]) -> Value:
        """`status + base if status != 0 else 0`"""
        fine = self.is_fine(status, made)
        later = self.of(STATUS, "add", jax.lax.add_p, (status, Literal(base, STATUS)), made)
        return self.chosen(fine, FINE, later, made)

    def of(self, type: Type, name: str, primitive: object, xs: Sequence[Operand], made: list[Instruction]) -> Value:
        found = self.fresh.value(type)
        made.append(Apply((found,), Op(name, (), primitive), tuple(xs)))
        return found


def hand_up_statuses(module: Module) -> tuple[Module, tuple[Site, ...]]:
    """The module whose entry returns its status last, and what each status from 1 means; the module itself and nothing
    where no operation on the device can fail."""
    hander = _Hander(module)
    if not hander.failing:
        return module, ()
    return hander.run(), tuple(hander.sites)


def cut_off(module: Module) -> Module:
    """The module whose operations with control of their own say that rows may have failed, and have no derivative."""

    def each(instruction: Instruction) -> Instruction:
        new = with_regions(instruction, region)
        if not isinstance(new, Apply) or new.op.name not in ("masked", "blocks"):
            return new
        return replace(new, op=cut(new.op))

    def region(region: Region) -> Region:
        return replace(region, body=tuple(map(each, region.body)))

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def _fails(instruction: Instruction) -> bool:
    if not isinstance(instruction, Apply):
        return False
    return instruction.op.name in OF_CONTROL or (instruction.op.name == "masked" and bool(instruction.op["sites"]))


class _Hander:
    """`failing`: the functions that return a status."""

    def __init__(self, module: Module) -> None:
        self.module, self.fresh = module, Fresh(module)
        self.statuses = Statuses(self.fresh)
        direct = {f.name for f in module.functions if any(map(_fails, walk(f.region)))}
        graph = call_graph(module)
        self.failing = direct.union(*(nx.ancestors(graph, name) for name in direct)) if direct else set()
        self.sites: list[Site] = []
        self.bases: dict[BlockProgram, int] = {}

    def run(self) -> Module:
        return replace(self.module, functions=tuple(map(self.function, self.module.functions)))

    def function(self, function: Function) -> Function:
        if function.name not in self.failing:
            return function
        body, status = self.body(function.region)
        results = (*function.region.results, status)
        return replace(function, region=Region(function.region.args, tuple(body), results))

    def body(self, region: Region) -> tuple[list[Instruction], Operand]:
        """The instructions of a region, and the status of all of them."""
        made: list[Instruction] = []
        status: Operand = FINE
        for instruction in region.body:
            own_status = self.instruction(instruction, made)
            if own_status is not None:
                status = own_status if status == FINE else self.statuses.first(status, own_status, made)
        return made, status

    def can_fail(self, region: Region) -> bool:
        return any(_fails(i) or (isinstance(i, Call) and i.callee in self.failing) for i in walk(region))

    def instruction(self, instruction: Instruction, made: list[Instruction]) -> Operand | None:
        """Add an instruction, and what it needs; its status, None where it cannot fail."""
        match instruction:
            case Apply():
                if instruction.op.name == "masked" and _fails(instruction):
                    return self.masked(instruction, made)
                made.append(self.apply(instruction))
                return instruction.results[-1] if _fails(instruction) else None
            case Call(callee=callee):
                if callee not in self.failing:
                    made.append(instruction)
                    return None
                status = self.fresh.value(STATUS)
                made.append(replace(instruction, results=(*instruction.results, status)))
                return status
            case If() | For() | While() | Map():
                regions = {If: ("then", "orelse"), For: ("body",), While: ("condition", "body"), Map: ("body",)}
                if not any(self.can_fail(getattr(instruction, n)) for n in regions[type(instruction)]):
                    made.append(instruction)
                    return None
                return self.control(instruction, made)
            case _:
                assert_never(instruction)

    def masked(self, apply: Apply, made: list[Instruction]) -> Operand:
        """Add a masked operation: its status, from 1 for the first of its own sites, as one of all."""
        base, status = len(self.sites), apply.results[-1]
        self.sites += apply.op["sites"]
        made.append(apply)
        return self.statuses.moved(status, base, made) if base else status

    def apply(self, apply: Apply) -> Apply:
        """An operation that can fail gets the number of the first thing that it can fail with."""
        if not _fails(apply):
            return apply
        program: BlockProgram = apply.op["program"]
        if program not in self.bases:
            self.bases[program] = len(self.sites)
            self.sites += program.sites(apply.op["depth"], apply.op["steps"])
        params = {**dict(apply.op.params), "base": self.bases[program]}
        return replace(apply, op=replace(apply.op, params=tuple(sorted(params.items()))))

    def control(self, instruction: If | For | While | Map, made: list[Instruction]) -> Operand:
        status = self.fresh.value(STATUS)
        match instruction:
            case If(results=results, then=then, orelse=orelse):
                arms = [self.yielding(arm) for arm in (then, orelse)]
                made.append(replace(instruction, results=(*results, status), then=arms[0], orelse=arms[1]))
            case For(results=results, init=init, body=body):
                turn = self.carrying(body)
                made.append(replace(instruction, results=(*results, status), init=(*init, FINE), body=turn))
            case While():
                return self.conditional(instruction, made)
            case Map(results=results, body=body):
                statuses = self.fresh.value(List(STATUS))
                made.append(replace(instruction, results=(*results, statuses), body=self.yielding(body)))
                return self.largest(statuses, made)
            case _:
                assert_never(instruction)
        return status

    def conditional(self, loop: While, made: list[Instruction]) -> Operand:
        """A `while` whose turns end with the test of the next one: a test can fail too."""
        status, held, flag = self.fresh.value(STATUS), self.fresh.value(STATUS), self.fresh.value(BOOL)
        holds, before = self.tested(loop.condition, loop.init, made)
        body, of_turn = self.body(loop.body)
        again, of_test = self.tested(loop.condition, loop.body.results, body)
        whole: Operand = held
        for found in (of_turn, of_test):
            whole = whole if found == FINE else self.statuses.first(whole, found, body)
        carried = self.fresh.like(loop.condition.args)
        test = Region((*carried, self.fresh.value(BOOL), self.fresh.value(STATUS)), (), ())
        turn = Region((*loop.body.args, flag, held), tuple(body), (*loop.body.results, again, whole))
        made.append(
            replace(
                loop,
                results=(*loop.results, self.fresh.value(BOOL), status),
                init=(*loop.init, holds, before),
                condition=replace(test, results=(test.args[-2],)),
                body=turn,
            )
        )
        return status

    def tested(self, test: Region, values: Sequence[Operand], made: list[Instruction]) -> tuple[Operand, Operand]:
        """Add a copy of a test of these values: what it says, and its status."""
        copy = copy_region(replace(test, args=()), dict(zip(test.args, values, strict=True)), self.fresh)
        body, status = self.body(copy)
        made += body
        return copy.results[0], status

    def yielding(self, region: Region) -> Region:
        """The region yields its status last."""
        body, status = self.body(region)
        return Region(region.args, tuple(body), (*region.results, status))

    def carrying(self, body: Region) -> Region:
        """The body of a loop that carries the first status so far."""
        before = self.fresh.value(STATUS)
        made, status = self.body(body)
        whole = before if status == FINE else self.statuses.first(before, status, made)
        return Region((*body.args, before), tuple(made), (*body.results, whole))

    def largest(self, statuses: Value, made: list[Instruction]) -> Operand:
        """The largest status of the turns of a comprehension; there may be none."""
        length = self.fresh.value(INT)
        most, status = self.fresh.value(STATUS), self.fresh.value(STATUS)
        made.append(Apply((length,), own("length"), (statuses,)))
        some = self.statuses.of(BOOL, "gt", jax.lax.gt_p, (length, Literal(0, INT)), made)
        reduced = Apply((most,), own("reduce", kind="max"), (statuses,))
        made.append(If((status,), some, Region((), (reduced,), (most,)), Region((), (), (FINE,))))
        return status


# ---- failing
#
# What a row fails with under a mask, as one more number: the status of a masked region.
#
#     check[kind='ValueError'](%ok)          %s = select(%ok, 1, 0)
#     %y = while (%x) test ... do            %y, %t = while (%x, 0) test ... and %s == 0 and %t == 0 do
#       check[...](%fine)             ->       %u = select(%fine, 2, 0)
#       yield %z                               %v = within[site=3, states=32, turns=1000000](%u)
#                                              yield %z, %v
#     yield %y                               yield %y, (%s if %s != 0 else %t)
#
# Status `k` is the `k`-th of `sites`; 0 is none. A row that has failed runs no more loops. `within` says how many turns
# a loop may have, what its status is where they were not enough (whoever runs the loop counts), and how many states its
# derivative keeps (`ir/regions.py`).


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


# ---- read checks
#
# What Python checks when it reads structure, as checks of their own.
#
#     %4 = load[field='x'](%3)       %5 = is_none(%3)
#                                    %6 = not(%5)
#                                    check[kind='AttributeError', message="'NoneType' object has ..."](%6)
#
# The host decides them.


class ReadChecks:
    """Writes the checks of reads, one after another, into `made`."""

    def __init__(self, fresh: Fresh, schema: Schema) -> None:
        self.fresh, self.schema = fresh, schema
        self.made: list[Instruction] = []

    def read(self, read: Apply) -> bool:
        """Add the checks of a read of a field, a length or an element. False: it is none of these."""
        op, xs = read.op, read.operands
        match op.name:
            case "load" | "load_is_none":
                self.field(read, op["field"])
            case "length":
                self.there(xs[0], "TypeError", "object of type 'NoneType' has no len()", read.span)
            case "item":
                self.item(xs[0], xs[1], read.span)
            case "text":
                self.text(read)
            case _:
                return False
        return True

    def field(self, load: Apply, name: str) -> None:
        ref, span = load.operands[0], load.span
        self.there(ref, "AttributeError", f"'NoneType' object has no attribute '{name}'", span)
        for cls in lacking(load, self.schema):
            other = self.negated(self.apply(own("is_class", names=(cls,)), (ref,), BOOL, span), span)
            self.fails(other, "AttributeError", f"'{cls}' object has no attribute '{name}'", span)

    def item(self, xs: Operand, index: Operand, span: Span) -> None:
        if xs.type.store is not None:  # type: ignore[union-attr]
            self.there(xs, "TypeError", "'NoneType' object is not subscriptable", span)
        if index.type != INT:
            index = self.apply(own("int"), (index,), INT, span)
        count = self.apply(own("length"), (xs,), INT, span)
        least = self.apply(Op("neg", (), lax.neg_p), (count,), INT, span)
        low = self.apply(Op("ge", (), lax.ge_p), (index, least), BOOL, span)
        high = self.apply(Op("lt", (), lax.lt_p), (index, count), BOOL, span)
        inside = self.apply(Op("and", (), lax.and_p), (low, high), BOOL, span)
        self.fails(inside, "IndexError", "list index out of range", span)

    def text(self, text: Apply) -> None:
        function, args = text.op["function"], text.op["args"]
        fits = self.apply(own("text", function="fits", args=(function, *args)), text.operands, BOOL, text.span)
        kind, message = strings.WHAT_FAILS.get(function, ("ValueError", ""))
        self.fails(fits, kind, words(message), text.span)

    # ---- instructions

    def there(self, x: Operand, kind: str, message: str, span: Span) -> None:
        self.fails(self.negated(self.apply(own("is_none"), (x,), BOOL, span), span), kind, message, span)

    def negated(self, x: Value, span: Span) -> Value:
        return self.apply(Op("not", (), lax.not_p), (x,), BOOL, span)

    def fails(self, holds: Value, kind: str, message: str, span: Span) -> None:
        self.emit(own("check", kind=kind, message=message), (holds,), span)

    def apply(self, op: Op, xs: tuple[Operand, ...], type: Type, span: Span) -> Value:
        result = self.fresh.value(type)
        self.made.append(Apply((result,), op, xs, span))
        return result

    def emit(self, op: Op, xs: tuple[Operand, ...], span: Span) -> None:
        self.made.append(Apply((), op, xs, span))


# ---- what is refused


CURE = (
    "let it decide arithmetic alone: read and call in front of it, choose between the results in it; or decide it from "
    "the example itself: its fields, lengths, classes and integers"
)

OF_OBJECTS = (
    "hand on what is read of it in place of the object (`best = child.value`, not `best = child`), or decide it from "
    "the example itself"
)

_AS_INTEGER = "pass {name} as a Python int: close over it, or name it in static_argnames of jax.jit"
_AS_BATCH = "pass {name} in a Batch, which brings its plan along (f.pack), or call outside jax.jit"


def refuse_numeric_control(
    module: Module,
    facts: StructureFacts,
    traced: Mapping[int, str],
    batched: Mapping[int, str],
    obstacles: Mapping[Span, tuple[str, Span]],
) -> None:
    """Raise UnsupportedError for the first instruction whose control or index is known to the device alone. `traced`
    are the names of shared integers, by position, whose values the host would know if JAX did not trace them, and
    `batched` those of the entry's parameters. `obstacles`: why control at a place is no masked operation."""
    check = _Check(module, facts, traced, batched, obstacles)
    for function in module.functions:
        for instruction in walk(function.region):
            match instruction:
                case If(condition=c, span=span):
                    check.demand(c, span, "this condition", "depends on numbers that are computed in the batch")
                case Map(count=n, body=body, filtered=filtered, span=span):
                    check.demand(n, span, "the length of this loop", "depends on numbers computed in the batch")
                    for keep in body.results[:filtered]:
                        what, problem = "which elements are kept", "depends on numbers computed in the batch"
                        check.demand(keep, span, what, problem)
                case Apply(op=op, operands=xs, span=span) if op.name == "check":
                    for x in xs:
                        check.demand(x, span, f"this {op['kind']}", "depends on numbers that are computed in the batch")
                case Apply(op=op, span=span) if op.name == "gradient" and not op.is_jax:
                    what, where = obstacles[span]
                    raise UnsupportedError(
                        "inside a function a derivative is taken of arithmetic, branches and loops on numbers, and of "
                        f"recursion on numbers: of this one {what}, in line {where.line}",
                        span,
                        "read in front of it, and hand it numbers and arrays; or take the derivative outside, of the "
                        "batched function (ab.grad)",
                    )
                case Apply(op=op, operands=xs, span=span) if not op.is_jax:
                    for x in xs:
                        if isinstance(x.type, Ref | Tag) or (isinstance(x.type, List) and x.type.store is not None):
                            problem = "depends on numbers that are computed in the batch"
                            check.demand(
                                x, span, "this object", problem, OF_OBJECTS if isinstance(x.type, Ref) else CURE
                            )
                    if op.name == "item":
                        check.demand(xs[1], span, "this index", "depends on numbers that are computed in the batch")
                    if op.name in ("sort_order", "text"):
                        what = "this order" if op.name == "sort_order" else "this string"
                        for x in xs:
                            check.demand(x, span, what, "depends on numbers that are computed in the batch")
                    if op.name == "stack":
                        raise UnsupportedError(
                            "a list whose length differs between examples cannot become an array",
                            span,
                            "reduce it instead (sum, max, min, any, all), or return the list itself",
                        )
                case _:
                    pass


def refuse_wide_constants(module: Module, facts: StructureFacts) -> None:
    """Raise UnsupportedError for an int that the device cannot hold, where it computes with it or returns it."""
    if jax.config.read("jax_enable_x64"):
        return
    entry = module.functions[0]
    _refuse_wide(entry.region.results, entry.span)
    for function in module.functions:
        for instruction in walk(function.region):
            results = instruction.results if isinstance(instruction, Apply) else ()
            if any(r in facts.on_device and not facts.is_column(r) for r in results):
                _refuse_wide(operands(instruction), instruction.span)


def refuse_wide_constants_alone(module: Module) -> None:
    """The same where no host computes with any number."""
    if jax.config.read("jax_enable_x64"):
        return
    for function in module.functions:
        _refuse_wide(function.region.results, function.span)
        for instruction in walk(function.region):
            inside = (x for r in regions(instruction) for x in r.results)
            _refuse_wide((*operands(instruction), *inside), instruction.span)


def _refuse_wide(xs: Iterable[Operand], span: Span) -> None:
    for x in xs:
        if isinstance(x, Literal) and x.is_wide:
            words = f"the constant {x.value} does not fit into the int32 of the device"
            raise WideConstantError(words, span, "write it as a float, or turn on jax_enable_x64")


class WideConstantError(UnsupportedError):
    """An integer of the text for which the device has bits under `jax_enable_x64` alone."""


class TracedDecidesError(UnsupportedError):
    """What an integer decides that JAX traces: as a static argument the host would know it."""


class _Check:
    def __init__(
        self,
        module: Module,
        facts: StructureFacts,
        traced: Mapping[int, str],
        batched: Mapping[int, str],
        obstacles: Mapping[Span, tuple[str, Span]],
    ) -> None:
        self.module, self.facts, self.obstacles = module, facts, obstacles
        self.traced = {module.shared[k]: (name, "an integer", _AS_INTEGER) for k, name in traced.items()}
        entry = module.functions[0].region.args
        self.traced |= {entry[k]: (name, "an array", _AS_BATCH) for k, name in batched.items()}

    def demand(self, x: Operand, span: Span, what: str, problem: str, cure: str = CURE) -> None:
        """The host has to know `x`."""
        if self.facts.is_host(x):
            return
        for name, kind, why in self.traced_below(x):
            error = TracedDecidesError if why is _AS_INTEGER else UnsupportedError
            raise error(
                f"{what} depends on {name}, {kind} that is traced by JAX here, so its value is not known",
                span,
                why.format(name=name),
            )
        also = [self.obstacles[span]] if span in self.obstacles else []
        raise UnsupportedError(f"{what} {problem}", span, cure, also)

    def traced_below(self, x: Operand) -> list[tuple[str, str, str]]:
        """The traced arguments that a value is computed from: name, what it is, and the cure."""
        if not self.traced:
            return []
        makers: dict[Value, Instruction] = {}
        arguments: dict[Value, list[Operand]] = {}
        for function in self.module.functions:
            for instruction in walk(function.region):
                makers.update((r, instruction) for r in instruction.results)
                if isinstance(instruction, Call):
                    parameters = self.module.function(instruction.callee).region.args
                    for parameter, given in zip(parameters, instruction.operands, strict=True):
                        arguments.setdefault(parameter, []).append(given)
        seen: set[Operand] = set()
        todo = [x]
        while todo:
            value = todo.pop()
            if value in seen or not isinstance(value, Value):
                continue
            seen.add(value)
            todo += arguments.get(value, [])
            if (made := makers.get(value)) is not None:
                todo += operands(made)
                todo += [y for region in regions(made) for y in region.results]
                if isinstance(made, Call):
                    todo += self.module.function(made.callee).region.results
        return [words for value, words in self.traced.items() if value in seen]


def refuse_made_strings(module: Module) -> None:
    """Raise UnsupportedError where a result of the entry may be a string that no example holds: the words of a result
    are those of the examples and of the program."""
    makers = {r: i for f in module.functions for i in walk(f.region) for r in i.results}
    flows = _flows(module)
    seen: set[Operand] = set()
    todo = [x for x in module.functions[0].region.results if _holds_string(x.type)]
    while todo:
        value = todo.pop()
        if value in seen or not isinstance(value, Value):
            continue
        seen.add(value)
        made = makers.get(value)
        if isinstance(made, Apply) and made.op.name == "text":
            raise UnsupportedError(
                "a string that is made inside the function cannot be a result",
                made.span,
                "return a number, a bool or an enum member, or make the strings outside from what is returned",
            )
        todo += [x for x in flows.get(value, ()) if _holds_string(x.type)]


def _holds_string(type: Type) -> bool:
    while isinstance(type, List):
        type = type.elem
    return isinstance(type, Tag | BuiltObject)


def _flows(module: Module) -> dict[Value, list[Operand]]:
    """For each value, those that it may be, or hold."""
    flows: dict[Value, list[Operand]] = {}
    for function in module.functions:
        for instruction in walk(function.region):
            sources: Sequence[Sequence[Operand]]
            match instruction:
                case If(then=then, orelse=orelse):
                    sources = list(zip(then.results, orelse.results, strict=True))
                case Map(body=body, filtered=filtered):
                    sources = [[x] for x in body.results[filtered:]]
                case Call(callee=callee, operands=xs):
                    target = module.function(callee).region
                    sources = [[x] for x in target.results]
                    for parameter, given in zip(target.args, xs, strict=True):
                        flows.setdefault(parameter, []).append(given)
                case _:
                    sources = [operands(instruction) for _ in instruction.results]
            for result, found in zip(instruction.results, sources, strict=True):
                flows.setdefault(result, []).extend(found)
    return flows


# ---- unread
#
# Reads whose result nobody uses fail their example all the same: a check takes their place.
#
#     %4 = load[field='x'](%3)             %5 = is_none(%3)
#                                    ->    %6 = not(%5)
#                                          check[kind='AttributeError', message="'NoneType' object has ..."](%6)
#
# The host checks; the device has nothing to do with it. A read that the host or the device needs is checked where it is
# read, and one that cannot fail (`passes/fallible.py`) needs no check.


def check_unread(module: Module, facts: StructureFacts, fallible: frozenset[Value], schema: Schema) -> Module:
    """The module with a check behind each of the `fallible` reads that nobody needs; the same module when there is
    none."""
    needed = facts.on_host | facts.on_device | facts.numbers
    checker = _Checker(module, facts, fallible - needed, schema)
    functions = tuple(replace(f, region=checker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if checker.checks.made else module


class _Checker:
    def __init__(self, module: Module, facts: StructureFacts, unread: frozenset[Value], schema: Schema) -> None:
        self.facts, self.unread = facts, unread
        self.checks = ReadChecks(Fresh(module), schema)

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for instruction in region.body:
            body.append(with_regions(instruction, self.region))
            if isinstance(instruction, Apply) and self.unread.issuperset(instruction.results) and instruction.results:
                before = len(self.checks.made)
                self.check(instruction)
                body += self.checks.made[before:]
        return replace(region, body=tuple(body))

    def check(self, read: Apply) -> None:
        op = read.op
        if op.name != "text" and self.checks.read(read):
            return
        if op.is_jax:
            self.shift(read)
        elif not (op.name in ("int", "round") and not self.facts.is_column(read.results[0])):
            # the host computes it, whose own message names the operand
            failing = own("check", kind="ValueError", message="")
            self.checks.emit(failing, (Literal(True, BOOL), read.results[0]), read.span)

    def shift(self, shift: Apply) -> None:
        if self.facts.is_column(shift.results[0]):
            amount, checks = shift.operands[1], self.checks
            zero = Literal(0, amount.type)
            holds = checks.apply(Op("ge", (), lax.ge_p), (amount, zero), BOOL, shift.span)
            checks.fails(holds, "ValueError", "negative shift count", shift.span)
