"""Loops and branches around calls, which computed numbers decide, become functions, so that a stack can run them.

%x = while (%a) test: ... do: ... call @gcd(%a, %b)        %x = call @f.loop0(%a, %b)
                                                     ->    func @f.loop0(%a, %b): %x = while (%a) ...; return %x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autobatch.ir.core import Call, For, Function, If, Instruction, Module, Region, While, regions
from autobatch.ir.rewrite import Fresh, calls, copy_region, free_values, with_regions
from autobatch.ir.types import Array
from autobatch.source import Span


def outline_calls(
    module: Module, places: Mapping[str, frozenset[Span]], numeric: frozenset[str]
) -> tuple[Module, dict[str, Span]]:
    """The module in which control at such places of functions, around calls, is a function where it takes and gives
    numbers alone; and the new functions, with the places. `numeric`: functions of which that is known."""
    outliner = _Outliner(module, numeric)
    functions = [
        replace(f, region=outliner.region(f.region, f.name, places[f.name])) if f.name in places else f
        for f in module.functions
    ]
    return replace(module, functions=(*functions, *outliner.made)), {f.name: f.span for f in outliner.made}


class _Outliner:
    def __init__(self, module: Module, numeric: frozenset[str]) -> None:
        self.fresh, self.shared, self.numeric = Fresh(module), frozenset(module.shared), numeric
        self.names = {f.name for f in module.functions}
        self.made: list[Function] = []

    def region(self, region: Region, owner: str, places: frozenset[Span]) -> Region:
        return replace(region, body=tuple(self.instruction(i, owner, places) for i in region.body))

    def instruction(self, instruction: Instruction, owner: str, places: frozenset[Span]) -> Instruction:
        if not isinstance(instruction, If | For | While) or instruction.span not in places:
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        whole = Region((), (instruction,), instruction.results)
        called = {c.callee for r in regions(instruction) for c in calls(r)}
        captured = free_values(whole, self.shared)
        if not called or not called <= self.numeric or not _are_numbers((*captured, *instruction.results)):
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        name = self.name(owner)
        body = copy_region(replace(whole, args=captured), {}, self.fresh)
        self.made.append(Function(name, body, instruction.span))
        return Call(instruction.results, name, captured, instruction.span)

    def name(self, owner: str) -> str:
        n = 0
        while f"{owner}.loop{n}" in self.names:
            n += 1
        self.names.add(f"{owner}.loop{n}")
        return f"{owner}.loop{n}"


def _are_numbers(values: tuple[object, ...]) -> bool:
    return all(isinstance(getattr(v, "type", None), Array) for v in values)
