"""The functions of a program of blocks as they were before they were cut: regions with branches, loops and calls.

    func @f(%n, %a):                              func @f(%n):
      %c = gt(%n, 0)                                %c = gt(%n, 0)
      %r = if %c then:                     ->       %r = if %c then:
        %s = call @f(%n - 1, %a)                      %s = call @f(%n - 1)
        yield %s                                      yield %s
      else: yield %a                                else: yield %a          (%a: an operand that the program captures)

A back end that runs rows in gangs calls them under masks. What they say is what the blocks say: parameters that every
call hands on unchanged are captured there, comprehensions are loops, a bound is a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from autobatch.ir import jax_compat
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
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh
from autobatch.ir.types import Array
from autobatch.passes.control.comprehensions import as_loop
from autobatch.passes.control.indices import UNKNOWN, in_place, is_inside
from autobatch.passes.control.overflows import checked_integer
from autobatch.source import Span


def structured(
    functions: Sequence[Function],
    module: Module,
    operand: Callable[[Operand], Operand],
    is_same: Callable[[Value], bool],
    fresh: Fresh,
) -> tuple[Function, ...]:
    """The functions with what `operand` makes of each operand, without the parameters that `is_same` in all calls."""
    return tuple(_Structuring(module, operand, is_same, fresh).function(f) for f in functions)


def is_choice(branch: If) -> bool:
    """Does a branch compute nothing, and choose between values of one type?"""
    if branch.then.body or branch.orelse.body or isinstance(branch.condition, Literal):
        return False
    pairs = zip(branch.results, branch.then.results, branch.orelse.results, strict=True)
    return all(
        isinstance(x, Value) and isinstance(y, Value) and isinstance(r.type, Array) and r.type == x.type == y.type
        for r, x, y in pairs
    )


def chosen(branch: If, operand: Callable[[Operand], Operand]) -> Iterator[Apply]:
    """The operations that stand for a choice."""
    condition = operand(branch.condition)
    for r, x, y in zip(branch.results, branch.then.results, branch.orelse.results, strict=True):
        operands = (condition, operand(y), operand(x))
        yield Apply((r,), Op("select_n", (), jax_compat.primitive("select_n"), choice=True), operands, branch.span)


class _Structuring:
    def __init__(
        self, module: Module, operand: Callable[[Operand], Operand], is_same: Callable[[Value], bool], fresh: Fresh
    ) -> None:
        self.module, self.operand, self.is_same, self.fresh = module, operand, is_same, fresh

    def function(self, function: Function) -> Function:
        region = self.region(function.region)
        return replace(function, region=replace(region, args=tuple(a for a in region.args if not self.is_same(a))))

    def region(self, region: Region) -> Region:
        results = tuple(self.operand(x) for x in region.results)
        return Region(region.args, tuple(self.body(region.body, region.results)), results)

    def body(self, body: Sequence[Instruction], results: Sequence[Operand]) -> list[Instruction]:
        made: list[Instruction] = []
        for n, instruction in enumerate(body):
            if isinstance(instruction, Map):
                found = as_loop(instruction, body[n + 1 :], results, self.fresh)
                assert found is not None, "the blocks have it as a loop"
                behind = [i for k, i in enumerate(body[n + 1 :]) if k not in found.gone]
                return [*made, *self.body((*found.before, found.loop, *found.behind, *behind), results)]
            made += self.instruction(instruction)
        return made

    def instruction(self, instruction: Instruction) -> list[Instruction]:
        put, span = self.operand, instruction.span
        match instruction:
            case Apply(op=op, operands=xs) if op.name == "bounds" and not op.is_jax:
                made: list[Instruction] = []
                (inside,) = in_place(is_inside, tuple(map(put, xs)), self.fresh, made.append, span, op["size"])
                return [*made, self.check(inside, "IndexError", UNKNOWN, span)]
            case Apply(op=op, operands=xs):
                whole = replace(instruction, operands=tuple(map(put, xs)))
                return checked_integer(whole, self.fresh) if op.exact else [whole]
            case If() if is_choice(instruction):
                return [*chosen(instruction, put)]
            case If(condition=condition, then=then, orelse=orelse):
                arms = (self.region(then), self.region(orelse))
                return [replace(instruction, condition=put(condition), then=arms[0], orelse=arms[1])]
            case For(count=count, init=init, body=body):
                return [replace(instruction, count=put(count), init=tuple(map(put, init)), body=self.region(body))]
            case While(init=init, condition=test, body=body):
                regions = (self.region(test), self.region(body))
                return [replace(instruction, init=tuple(map(put, init)), condition=regions[0], body=regions[1])]
            case Call(callee=callee, operands=xs):
                pairs = zip(self.module.function(callee).region.args, xs, strict=True)
                return [replace(instruction, operands=tuple(put(x) for a, x in pairs if not self.is_same(a)))]
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(instruction)

    def check(self, condition: Operand, kind: str, message: str, span: Span) -> Apply:
        return Apply((), own("check", kind=kind, message=message), (condition,), span)
