"""Functions of strings that are the same in every turn of a loop stand in front of it.

    while ...:                                %2 = text['lower'](%1)
      %2 = text['lower'](%1)            ->    while ...:
      %3 = text['split_item'](%2, %k)           %3 = text['split_item'](%2, %k)

The host computes them, which sees nothing of loops that computed numbers end. Only those that have a result for all
strings: a row that comes to no turn computes them for nothing.
"""

from __future__ import annotations

from dataclasses import replace

from autobatch.ir import texts
from autobatch.ir.core import Apply, For, If, Instruction, Map, Module, Region, Value, While, operands, regions, walk
from autobatch.ir.rewrite import region_values, with_regions
from autobatch.ir.types import Array


def texts_in_front(module: Module) -> Module:
    """The module in which such functions of the entry stand in front of its loops."""
    entry = module.functions[0]
    if not any(_never_fails(i) for i in walk(entry.region)):
        return module
    return replace(module, functions=(replace(entry, region=_region(entry.region)), *module.functions[1:]))


def _region(region: Region) -> Region:
    body = list[Instruction]()
    for i in region.body:
        inner = with_regions(i, _region)
        if isinstance(inner, For | While | Map):
            front, inner = _taken_out(inner)
            body += front
        body.append(inner)
    return replace(region, body=tuple(body))


def _taken_out(loop: Instruction) -> tuple[list[Instruction], Instruction]:
    inside: set[Value] = {x for r in regions(loop) for x in region_values(r)}
    front = list[Instruction]()

    def clean(region: Region) -> Region:
        body = list[Instruction]()
        for i in region.body:
            if _never_fails(i) and inside.isdisjoint(operands(i)):
                front.append(i)
                inside.difference_update(i.results)
            else:
                body.append(with_regions(i, clean) if isinstance(i, If) else i)
        return replace(region, body=tuple(body))

    return front, with_regions(loop, clean)


def _never_fails(i: Instruction) -> bool:
    if not isinstance(i, Apply) or i.op.is_jax or i.op.name != "text":
        return False
    return not texts.may_fail(i.op["function"], i.op["args"], [isinstance(x.type, Array) for x in i.operands])
