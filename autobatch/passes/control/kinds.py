"""Loops become functions: after this pass an activation is a call, whatever it was in the source.

    %4 = for %n init(%h) body(%i, %x):          %4 = call @f.for0(0, %n, %h, captured...)
      ...                               ->      func @f.for0(%i, %n, %x, captured...):
      yield %y                                    %more = lt(%i, %n)
                                                  %r = if %more then: ...; %t = call @f.for0(%i + 1, %n, %y, ...)
                                                                      yield %t
                                                       else: yield %x
                                                  return %r

A `Map` keeps its count, and its body becomes one call. The next turn of a loop is a tail call: whatever it hands on
unchanged is resolved on the host, so a captured value costs nothing per turn. (FRAMES.md, section 1.)
"""

from __future__ import annotations

from dataclasses import replace

import jax

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
)
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import Fresh, copy_region, free_values
from autobatch.ir.types import BOOL, INT
from autobatch.source import Span


def loops_to_functions(module: Module, watched: frozenset[Value] = frozenset()) -> tuple[Module, frozenset[Value]]:
    """Turn every `For`, `While` and `Map` body into a function of the module. Also what the `watched` values are called
    there."""
    lifter = _Lifter(module)
    functions = [replace(f, region=lifter.region(f.region, f.name)) for f in module.functions]
    return replace(module, functions=(*functions, *lifter.made)), frozenset(map(lifter.name_of, watched))


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.fresh = Fresh(module)
        self.shared = frozenset(module.shared)
        self.made: list[Function] = []
        self.renamed: dict[Value, Value] = {}
        self.names = {f.name for f in module.functions}

    def region(self, region: Region, owner: str) -> Region:
        return replace(region, body=tuple(self.instruction(i, owner) for i in region.body))

    def instruction(self, instruction: Instruction, owner: str) -> Instruction:
        match instruction:
            case Apply() | Call():
                return instruction
            case If(then=then, orelse=orelse):
                return replace(instruction, then=self.region(then, owner), orelse=self.region(orelse, owner))
            case For():
                return self.counted(instruction, owner)
            case While():
                return self.conditional(instruction, owner)
            case Map():
                return self.comprehension(instruction, owner)

    def name(self, owner: str, what: str) -> str:
        n = 0
        while f"{owner}.{what}{n}" in self.names:
            n += 1
        self.names.add(f"{owner}.{what}{n}")
        return f"{owner}.{what}{n}"

    def name_of(self, value: Value) -> Value:
        """Inside loops in each other a value is renamed for each of them."""
        while value in self.renamed:
            value = self.renamed[value]
        return value

    def function(
        self,
        name: str,
        args: tuple[Value, ...],
        captured: tuple[Value, ...],
        region: Region,
        span: Span,
        waits: bool = False,
    ) -> None:
        """Add a function of `args` and then `captured`, renamed so that each value is defined once."""
        whole = Region((*args, *captured), region.body, region.results)
        names: dict[Value, Operand] = {}
        renamed = copy_region(whole, names, self.fresh)
        self.renamed.update((old, new) for old, new in names.items() if isinstance(new, Value))
        self.made.append(Function(name, self.region(renamed, name), span, waits, is_loop=True))

    def counted(self, loop: For, owner: str) -> Instruction:
        name = self.name(owner, "for")
        captured = free_values(loop.body, self.shared)
        turn, carried = loop.body.args[0], loop.body.args[1:]
        count, more, following = (self.fresh.value(t) for t in (INT, BOOL, turn.type))
        again = self.fresh.like(carried)
        step = Region(
            (),
            (
                *loop.body.body,
                _integer("add", following, turn, Literal(1, INT), loop.span),
                Call(again, name, (following, count, *loop.body.results, *captured), loop.span),
            ),
            again,
        )
        out = self.fresh.like(carried)
        body = (
            _integer("lt", more, turn, count, loop.span),
            If(out, more, step, Region((), (), carried), loop.span),
        )
        self.function(name, (turn, count, *carried), captured, Region((), body, out), loop.span)
        return Call(loop.results, name, (Literal(0, INT), loop.count, *loop.init, *captured), loop.span)

    def conditional(self, loop: While, owner: str) -> Instruction:
        name = self.name(owner, "while")
        carried = self.fresh.like(loop.body.args)
        test = copy_region(replace(loop.condition, args=()), dict(zip(loop.condition.args, carried, strict=True)), None)
        turn = copy_region(replace(loop.body, args=()), dict(zip(loop.body.args, carried, strict=True)), None)
        inside = Region(carried, (*test.body, *turn.body), (*test.results, *turn.results))
        captured = free_values(inside, self.shared)
        again, out = self.fresh.like(carried), self.fresh.like(carried)
        step = Region((), (*turn.body, Call(again, name, (*turn.results, *captured), loop.span)), again)
        body = (*test.body, If(out, test.results[0], step, Region((), (), carried), loop.span))
        self.function(name, carried, captured, Region((), body, out), loop.span, waits=True)
        return Call(loop.results, name, (*loop.init, *captured), loop.span)

    def comprehension(self, loop: Map, owner: str) -> Instruction:
        name = self.name(owner, "map")
        captured = free_values(loop.body, self.shared)
        self.function(name, loop.body.args, captured, loop.body, loop.span)
        turn = self.fresh.value(INT)
        results = tuple(self.fresh.value(r.type) for r in loop.body.results)
        body = Region((turn,), (Call(results, name, (turn, *captured), loop.span),), results)
        return replace(loop, body=body)


def _integer(name: str, result: Value, x: Operand, y: Operand, span: Span) -> Apply:
    primitive = {"add": jax.lax.add_p, "lt": jax.lax.lt_p}[name]
    return Apply((result,), Op(name, (), primitive), (x, y), span)
