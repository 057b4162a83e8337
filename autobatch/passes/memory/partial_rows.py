"""Structure as numbers in a part of a module: some objects and lists become numbers of rows, all others stay what they
are. `chosen_rows.py` does so for those of the examples that computed numbers choose, `shared_rows.py` for what all
examples share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from autobatch.data.schema import Schema
from autobatch.ir.core import Apply, Call, For, Function, If, Instruction, Map, Module, Operand, Region, Value, While
from autobatch.ir.rewrite import Fresh, calls
from autobatch.ir.types import List, Ref, Tag, Type
from autobatch.passes.memory.rows import Lowering


def with_entry_apart(module: Module) -> Module:
    """A module whose entry nothing calls: where something does, one that calls it alone."""
    first = module.functions[0]
    if all(call.callee != first.name for f in module.functions for call in calls(f.region)):
        return module
    fresh, region = Fresh(module), first.region
    args, results = fresh.like(region.args), tuple(fresh.value(x.type) for x in region.results)
    call = Call(results, first.name, args, first.span)
    entry = Function(f"{first.name}.call", Region(args, (call,), results), first.span)
    return replace(module, functions=(entry, *module.functions))


def refers(type: Type) -> bool:
    """Does it say which object or list of the examples it is, or hold such?"""
    match type:
        case Ref() | List(store=str()):
            return True
        case List(elem=elem):
            return refers(elem)
        case _:
            return False


class PartialLowering(Lowering):
    """`chosen`: what becomes a number of a row."""

    def __init__(self, module: Module, schema: Schema, chosen: Collection[Value]) -> None:
        super().__init__(module, schema)
        self.chosen = chosen
        self.functions: Mapping[str, Region] = {f.name: f.region for f in module.functions}

    # ---- types and operands

    def type(self, type: Type) -> Type:
        return type if isinstance(type, Tag) else super().type(type)

    def value(self, x: Value) -> Value:
        return super().value(x) if x in self.chosen else x

    def plain(self, x: Operand) -> Operand:
        """An operand as it is."""
        return self.env.get(x, x) if isinstance(x, Value) and not refers(x.type) else x

    def given(self, xs: Sequence[Operand], targets: Sequence[Operand]) -> tuple[Operand, ...]:
        """Operands that become these."""
        pairs = zip(xs, targets, strict=True)
        return tuple(self.read(x) if y in self.chosen else self.plain(x) for x, y in pairs)

    # ---- instructions

    def region(self, region: Region, targets: Sequence[Operand] = ()) -> Region:
        """`targets`: what the results become; results are read as they are where there are none."""
        before, self.made = self.made, []
        args = self.values(region.args)
        self.note(region.args)
        for instruction in region.body:
            self.span = instruction.span
            self.instruction(instruction)
            self.note(instruction.results)
        results = self.given(region.results, targets or region.results)
        found = Region(args, tuple(self.made), results)
        self.made = before
        return found

    def note(self, defined: Sequence[Value]) -> None:
        """Look at what has just been defined."""

    def is_on_rows(self, xs: Sequence[Operand]) -> bool:
        """Is an operation, of these operands and results, one on rows?"""
        return any(x in self.chosen for x in xs)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                xs = (*i.operands, *i.results)
                if self.is_on_rows(xs):
                    self.checked(i)
                else:
                    self.made.append(replace(i, operands=tuple(map(self.plain, i.operands))))
                return
            case Call(operands=xs, callee=callee):
                made: Instruction = replace(i, operands=self.given(xs, self.functions[callee].args))
            case If(condition=condition, then=then, orelse=orelse):
                arms = self.region(then, i.results), self.region(orelse, i.results)
                made = replace(i, condition=self.plain(condition), then=arms[0], orelse=arms[1])
            case For(count=count, init=init, body=body):
                start, carried = self.given(init, body.args[1:]), body.args[1:]
                made = replace(i, count=self.plain(count), init=start, body=self.region(body, carried))
            case While(init=init, condition=test, body=body):
                start, tested = self.given(init, body.args), self.region(test)
                made = replace(i, init=start, condition=tested, body=self.region(body, body.args))
            case Map(count=count, body=body, filtered=filtered):
                flags = body.results[:filtered]
                made = replace(i, count=self.plain(count), body=self.region(body, (*flags, *i.results)))
            case _:
                assert_never(i)
        self.made.append(replace(made, results=self.values(i.results)))
