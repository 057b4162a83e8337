"""Reads whose result nobody uses fail their example all the same: a check takes their place.

    %4 = load[field='x'](%3)             %5 = is_none(%3)
                                   ->    %6 = not(%5)
                                         check[kind='AttributeError', message="'NoneType' object has ..."](%6)

The host checks; the device has nothing to do with it. A read that the host or the device needs is checked where it is
read, and one that cannot fail (`passes/analysis/fallible.py`) needs no check.
"""

from __future__ import annotations

from dataclasses import replace

from jax import lax

from autobatch.data.schema import Schema
from autobatch.ir.core import Apply, Instruction, Literal, Module, Region, Value
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import BOOL
from autobatch.passes.analysis.structure import StructureFacts
from autobatch.passes.control.read_checks import ReadChecks


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
