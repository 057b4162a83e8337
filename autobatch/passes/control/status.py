"""What an example fails with on the device, as a result of the entry: statuses are handed up from where they are made.

    func @f(%t):                                      func @f(%t) -> (..., status):
      %r, %s = blocks[program=...](%x)          ->      %r, %s = blocks[base=0, program=...](%x)
      %q = call @g(%t)                                  %q, %u = call @g(%t)
      return %r + %q                                    return %r + %q, (%s if %s != 0 else %u)

The first status in the order of the program that is not zero is that of the example. Statuses of the turns of a
comprehension are reduced by `max`: one of those that failed. A status is a number like others, so rows that are shared
by examples fail in all of them, and no pass behind this one knows about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import jax
import networkx as nx

from autobatch.ir.blocks import STATUS, BlockProgram, Site
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    walk,
)
from autobatch.ir.masked import cut
from autobatch.ir.ops import OF_CONTROL, own
from autobatch.ir.rewrite import Fresh, copy_region, with_regions
from autobatch.ir.types import BOOL, INT, List
from autobatch.passes.control.statuses import FINE, Statuses
from autobatch.passes.simplify.inline import call_graph


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
