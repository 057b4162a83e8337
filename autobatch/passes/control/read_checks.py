"""What Python checks when it reads structure, as checks of their own.

    %4 = load[field='x'](%3)       %5 = is_none(%3)
                                   %6 = not(%5)
                                   check[kind='AttributeError', message="'NoneType' object has ..."](%6)

The host decides them.
"""

from __future__ import annotations

from jax import lax

from autobatch.data.schema import Schema
from autobatch.ir import texts
from autobatch.ir.core import Apply, Instruction, Operand, Value
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh
from autobatch.ir.types import BOOL, INT, Type
from autobatch.passes.analysis.fallible import lacking
from autobatch.passes.control.blocks import words
from autobatch.source import Span


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
        kind, message = texts.WHAT_FAILS.get(function, ("ValueError", ""))
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
