"""What a region computes forward, without what only its derivative needs: the region that machine code is written of.

    %4 = masked (%1) do (%5):                  %6 = exp(%1)
      %6 = exp(%5)                             %7 = add(%6, 1.0)
      %7 = add(%6, 1.0)                  ->    %9 = sqrt(%7)
      yield %7, %6                             yield %9
    %8 = exp(%1); %9 = sqrt(%4.0); ...

Masked operations are the instructions that they hold, for lanes have masks there anyhow. What an arm computes again
because its derivative may be infinite elsewhere (`speculate.py`) is computed once, and what nobody reads not
at all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from autobatch.ir.core import (
    Apply,
    For,
    If,
    Instruction,
    Operand,
    Region,
    Value,
    While,
    operands,
)
from autobatch.ir.ops import OWN
from autobatch.ir.rewrite import Fresh, copy_region, substitute, with_masked, with_regions
from autobatch.passes.simplify.cse import key_of, known_constant

WITH_REGIONS = ("masked", "blocks", "gradient_of")
"""Operations whose parameters are programs: they are not compared."""


def forward(region: Region) -> Region:
    """The region without masked operations, in which nothing is computed twice or for nobody."""
    return _read(_Forward(region).region(region))


class _Forward:
    def __init__(self, whole: Region) -> None:
        self.whole = whole
        self.env: dict[Value, Operand] = {}
        self.known: dict[Hashable, tuple[Operand, ...]] = {}
        self.dissolved: set[Value] = set()
        self.fresh: Fresh | None = None

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        own: list[Hashable] = []
        self.block(region.body, body, own)
        results = self.all_of(region.results)
        for key in own:
            del self.known[key]  # what stands in a region is known in no other one beside it
        return Region(region.args, tuple(body), results)

    def all_of(self, xs: Sequence[Operand]) -> tuple[Operand, ...]:
        env = self.env
        return tuple([env.get(x, x) if isinstance(x, Value) else x for x in xs])

    def block(self, instructions: Sequence[Instruction], body: list[Instruction], own: list[Hashable]) -> None:
        for i in instructions:
            if not isinstance(i, Apply):
                body.append(self.control(i))
            elif i.op.name == "masked" and not i.op.is_jax:
                held = self.held(i)
                self.block(held.body, body, own)
                self.env.update(zip(i.results, self.all_of(held.results), strict=True))
            else:
                self.apply(Apply(i.results, i.op, self.all_of(i.operands), i.span), body, own)

    def held(self, masked: Apply) -> Region:
        """What a masked operation holds, its arguments what it is given. Its values are its own, unless the operation
        stands in two places."""
        region: Region = masked.op["region"]
        given = dict(zip(region.args, self.all_of(masked.operands), strict=True))
        values = {r for i in region.body for r in i.results}
        if self.dissolved.isdisjoint(values):
            self.dissolved |= values
            self.env.update(given)
            return region
        self.fresh = self.fresh or Fresh.behind(with_masked(self.whole))
        return copy_region(replace(region, args=()), given, self.fresh)

    def apply(self, i: Apply, body: list[Instruction], own: list[Hashable]) -> None:
        if (constant := known_constant(i)) is not None:
            self.env[i.results[0]] = constant
            return
        key = None if i.op.name in WITH_REGIONS else key_of(i)
        if key is not None and key in self.known:
            self.env.update(zip(i.results, self.known[key], strict=True))
            return
        if key is not None:
            self.known[key] = i.results
            own.append(key)
        body.append(i)

    def control(self, i: Instruction) -> Instruction:
        match with_regions(i, self.region):
            case If(condition=x) as branch:
                return replace(branch, condition=substitute(x, self.env))
            case For(count=x, init=xs) as loop:
                return replace(loop, count=substitute(x, self.env), init=self.all_of(xs))
            case While(init=xs) as loop:
                return replace(loop, init=self.all_of(xs))
            case other:
                return other


def _read(region: Region) -> Region:
    """The region without what nobody reads. (An example fails by a status, which is read.)"""
    live: set[Value] = set()
    return _with_read(region, region.results, live)


def _with_read(region: Region, results: Sequence[Operand], live: set[Value]) -> Region:
    """`live`: what is read behind an instruction, or by one; it gets what this region reads."""
    _add(live, results)
    body: list[Instruction] = []
    for i in reversed(region.body):
        if isinstance(i, Apply):
            if not live.isdisjoint(i.results) or (not i.op.is_jax and i.op.name in OWN and OWN[i.op.name].effect):
                _add(live, i.operands)
                body.append(i)
        elif not live.isdisjoint(i.results):
            i = _branch(i, live) if isinstance(i, If) else with_regions(i, lambda r: _with_read(r, r.results, live))
            _add(live, operands(i))
            body.append(i)
    return Region(region.args, tuple(reversed(body)), tuple(results))


def _branch(branch: If, live: set[Value]) -> If:
    wanted = [r in live for r in branch.results]

    def chosen(xs: Sequence[Operand]) -> list[Operand]:
        return [x for x, is_wanted in zip(xs, wanted, strict=True) if is_wanted]

    then, orelse = (_with_read(arm, chosen(arm.results), live) for arm in (branch.then, branch.orelse))
    results = tuple(r for r in branch.results if r in live)
    return If(results, branch.condition, then, orelse, branch.span)


def _add(live: set[Value], xs: Iterable[Operand]) -> None:
    live.update([x for x in xs if isinstance(x, Value)])
