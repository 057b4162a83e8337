"""Calls that both arms of a branch make are one call, so that lanes which disagree on the branch stay together in it.

    %r = if %c then:                        %a = call @f(%l)                          what both compute, once
      %a = call @f(%l); %s = sin(%a)        %r = if %c then:
      yield %s                        ->      %s = sin(%a); yield %s
    else:                                   else:
      %b = call @f(%l)                        %d = call @f(%m)
      %d = call @f(%m)                        %t = add(%a, %d); yield %t
      yield %b + %d

    %r = if %c then: call @f(%l)      ->    %x = if %c then: yield %l else: yield %m
         else: call @f(%m) * 2              %a = call @f(%x)
                                            %r = if %c then: yield %a else: yield %a * 2

Each lane does the same in the same order. What is moved is no product of floats, which would be rounded apart from the
sum that it meets: so the bits are those of one row alone. (Branch fusion: Coutinho, Sampaio, Pereira and Meira,
"Divergence analysis and optimizations", PACT 2011.) A call that is the last thing its function does is a turn of a
loop, where lanes meet anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autobatch.backends.llvm.lanes.uniform import last_calls
from autobatch.ir.core import (
    Apply,
    Call,
    Function,
    If,
    Instruction,
    Module,
    Operand,
    Region,
    Value,
    operands,
    walk,
)
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh, copy_instruction, copy_region, free_values, substitute, with_regions
from autobatch.ir.types import Array


def melded(functions: Sequence[Function]) -> tuple[Function, ...]:
    """The functions of a recursion with calls of both arms melded."""
    captured = dict.fromkeys(v for f in functions for v in free_values(f.region))
    fresh = Fresh(Module(tuple(functions), tuple(captured)))
    return tuple(_Melding(f, fresh).function() for f in functions)


def parts(functions: Sequence[Function]) -> bool:
    """Do lanes part that call? Is there a branch in melded functions both of whose arms call functions of the
    recursion, but as the last thing that they do?"""
    for f in functions:
        turns = {id(c) for c in last_calls(f)}
        for i in walk(f.region):
            if isinstance(i, If) and all(_calls(arm, turns) for arm in (i.then, i.orelse)):
                return True
    return False


def _calls(region: Region, turns: Collection[int]) -> bool:
    return any(isinstance(i, Call) and id(i) not in turns for i in walk(region))


@dataclass
class _Arm:
    """What is left of an arm, and what its values are called that were moved out of it."""

    body: list[Instruction]
    results: tuple[Operand, ...]
    names: dict[Value, Operand]

    def renamed(self, i: Instruction) -> Instruction:
        return copy_instruction(i, dict(self.names), None)

    def effect(self) -> int | None:
        """Where the first instruction stands that is more than arithmetic."""
        return next((k for k, i in enumerate(self.body) if not _is_arithmetic(i)), None)

    def before(self, end: int, xs: Sequence[Operand]) -> tuple[list[Instruction], list[Value]]:
        """What stands before a call and has to be computed there: what its operands `xs` need, and what would be
        rounded otherwise behind it. And which values of the latter are read behind the call."""
        fixed = [i for i in self.body[:end] if not _may_move(i)]
        wanted = {x for x in xs if isinstance(x, Value)} | {r for i in fixed for r in i.results}
        found: list[Instruction] = []
        for i in reversed(self.body[:end]):
            if not wanted.isdisjoint(i.results):
                found.insert(0, i)
                wanted.update(x for x in operands(i) if isinstance(x, Value))
        self.body = [*(i for i in self.body[:end] if _may_move(i)), *self.body[end:]]
        made = {r for i in fixed for r in i.results}
        return found, [v for v in free_values(Region((), tuple(self.body), self.results)) if v in made]

    def region(self) -> Region:
        body = tuple(map(self.renamed, self.body))
        return Region((), body, tuple(substitute(x, self.names) for x in self.results))


@dataclass
class _Side:
    """An arm, and where its first call stands."""

    arm: _Arm
    at: int
    call: Call

    def operands(self) -> tuple[Operand, ...]:
        return tuple(substitute(x, self.arm.names) for x in self.call.operands)


class _Melding:
    def __init__(self, function: Function, fresh: Fresh) -> None:
        self.of, self.fresh = function, fresh
        self.turns = {id(c) for c in last_calls(function)}

    def function(self) -> Function:
        return replace(self.of, region=self.region(self.of.region))

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            inner = i if isinstance(i, Apply | Call) else with_regions(i, self.region)
            body += self.branch(inner) if isinstance(inner, If) else [inner]
        return replace(region, body=tuple(body))

    def branch(self, branch: If) -> list[Instruction]:
        if not all(_calls(arm, self.turns) for arm in (branch.then, branch.orelse)):
            return [branch]
        one, other = (_Arm(list(r.body), r.results, {}) for r in (branch.then, branch.orelse))
        made: list[Instruction] = []
        while True:
            self.move_equals(one, other, made)
            if not self.move_call(branch, one, other, made):
                break
        return [*made, replace(branch, then=one.region(), orelse=other.region())] if made else [branch]

    def move_equals(self, one: _Arm, other: _Arm, made: list[Instruction]) -> None:
        """Arithmetic that stands before any call in both arms, in front of the branch."""
        at = 0
        while at < len(one.body) and _is_arithmetic(one.body[at]):
            found = one.renamed(one.body[at])
            k = next((k for k in range(other.effect() or len(other.body)) if self.equal(found, other, k, one)), None)
            if k is None or not _may_move(found):
                at += 1
                continue
            made.append(found)
            del one.body[at]
            other.names.update(zip(other.body.pop(k).results, found.results, strict=True))

    def equal(self, found: Instruction, other: _Arm, at: int, one: _Arm) -> bool:
        """Is an instruction the same as one of the other arm, of values from outside of both?"""
        beside = other.renamed(other.body[at])
        if not isinstance(found, Apply) or not isinstance(beside, Apply) or found.op != beside.op:
            return False
        inside = {r for arm in (one, other) for i in arm.body for r in i.results}
        return found.operands == beside.operands and inside.isdisjoint(found.operands)

    def move_call(self, branch: If, one: _Arm, other: _Arm, made: list[Instruction]) -> bool:
        """The first call of both arms, in front of the branch, where it is of one function."""
        places = one.effect(), other.effect()
        if places[0] is None or places[1] is None:
            return False
        first, second = one.body[places[0]], other.body[places[1]]
        if not isinstance(first, Call) or not isinstance(second, Call) or first.callee != second.callee:
            return False
        if not self.turns.isdisjoint((id(first), id(second))):
            return False
        given = self.chosen(branch, [_Side(one, places[0], first), _Side(other, places[1], second)], made)
        results = self.fresh.like(first.results)
        made.append(replace(first, results=results, operands=given))
        for arm, call in ((one, first), (other, second)):
            arm.body.remove(call)
            arm.names.update(zip(call.results, results, strict=True))
        return True

    def chosen(self, branch: If, sides: Sequence[_Side], made: list[Instruction]) -> tuple[Operand, ...]:
        """The operands of a call that both arms make, behind a branch of what they need."""
        given = [side.operands() for side in sides]
        befores = [side.arm.before(side.at, side.call.operands) for side in sides]
        kept = [v for _, live in befores for v in live]
        if given[0] == given[1] and not any(found for found, _ in befores):
            return given[0]
        arms = []
        for side, (body, live), xs in zip(sides, befores, given, strict=True):
            blanks = {v: self.fresh.value(v.type) for v in kept if v not in live}
            none = [Apply((b,), own("undefined", type=b.type), ()) for b in blanks.values()]
            whole = Region((), (*map(side.arm.renamed, body), *none), (*xs, *(blanks.get(v, v) for v in kept)))
            arms.append(copy_region(whole, {}, self.fresh))
        chosen = tuple(self.fresh.value(x.type) for x in (*given[0], *kept))
        made.append(If(chosen, branch.condition, arms[0], arms[1], branch.span))
        for side in sides:
            side.arm.names.update(zip(kept, chosen[len(given[0]) :], strict=True))
        return chosen[: len(given[0])]


def _is_arithmetic(i: Instruction) -> bool:
    return isinstance(i, Apply) and i.op.name != "check"


def _may_move(i: Instruction) -> bool:
    """Is it the same wherever it stands? A product of floats that meets a sum is rounded once with it."""
    assert isinstance(i, Apply)
    return i.op.name == "take_row" or all(
        isinstance(r.type, Array) and not r.type.dtype.startswith(("float", "complex", "bfloat")) for r in i.results
    )
