"""Reads whose result nobody uses fail their example all the same: a check takes their place.

    %4 = load[field='x'](%3)             %5 = is_none(%3)
                                   ->    %6 = not(%5)
                                         check[kind='AttributeError', message="'NoneType' object has ..."](%6)

The host checks; the device has nothing to do with it. A read that the host or the device needs is checked where it is
read, and one that cannot fail (`analysis/fallible.py`) needs no check.
"""

from __future__ import annotations

from dataclasses import replace

from jax import lax

from autobatch.analysis.fallible import lacking
from autobatch.analysis.structure import Structure
from autobatch.ir.core import Apply, Instruction, Literal, Module, Operand, Region, Value
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import BOOL, INT, Type
from autobatch.runtime.schema import Schema
from autobatch.source import Span


def check_unread(module: Module, facts: Structure, fallible: frozenset[Value], schema: Schema) -> Module:
    """The module with a check behind each of the `fallible` reads that nobody needs; the same module when there is
    none."""
    needed = facts.on_host | facts.on_device | facts.numbers
    checker = _Checker(module, facts, fallible - needed, schema)
    functions = tuple(replace(f, region=checker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if checker.made else module


class _Checker:
    def __init__(self, module: Module, facts: Structure, unread: frozenset[Value], schema: Schema) -> None:
        self.fresh, self.facts, self.unread, self.schema = Fresh(module), facts, unread, schema
        self.made: list[Instruction] = []

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for instruction in region.body:
            body.append(with_regions(instruction, self.region))
            if isinstance(instruction, Apply) and self.unread.issuperset(instruction.results) and instruction.results:
                before = len(self.made)
                self.check(instruction)
                body += self.made[before:]
        return replace(region, body=tuple(body))

    def check(self, read: Apply) -> None:
        op, xs = read.op, read.operands
        match op.name:
            case "load" | "load_is_none":
                self.field(read, op["field"])
            case "length":
                self.there(xs[0], "TypeError", "object of type 'NoneType' has no len()", read.span)
            case "item":
                self.item(xs[0], xs[1], read.span)
            case _ if op.is_jax:
                self.shift(read)
            case _ if not (op.name in ("int", "round") and not self.facts.is_column(read.results[0])):
                # the message names the result, so the host computes it
                self.emit(
                    own("check", kind="ValueError", message=""), (Literal(True, BOOL), read.results[0]), read.span
                )

    # ---- what each of them reads

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

    def shift(self, shift: Apply) -> None:
        if self.facts.is_column(shift.results[0]):
            amount = shift.operands[1]
            zero = Literal(0, amount.type)
            holds = self.apply(Op("ge", (), lax.ge_p), (amount, zero), BOOL, shift.span)
            self.fails(holds, "ValueError", "negative shift count", shift.span)

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
