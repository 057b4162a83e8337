"""Which characters and parts of the host's strings are read where only the device knows the place.

for %n do (%k):                          %n: computed numbers say how often it turns
  %4 = text['__getitem__'](%1, %k)       one of the letters of %1, which are copied where it is defined
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from autobatch.ir.core import Apply, For, Map, Operand, Region, Value, While, regions, walk
from autobatch.ir.rewrite import free_values
from autobatch.passes.analysis.device import deciding
from autobatch.passes.memory.arena_lists import decided_by_device


def read_in_loops(region: Region, device: Collection[Operand]) -> Iterator[Value]:
    """The characters of strings that are read at places which loops of computed numbers count."""
    for i in walk(region):
        if isinstance(i, For | Map | While) and deciding(i)[0] in device and decided_by_device(i, device):
            free = set(free_values(Region((), (i,), ())))
            within = (j for r in regions(i) for j in walk(r))
            inside = (j for j in within if isinstance(j, Apply) and j.op.name == "text" and j.operands)
            read = (j for j in inside if is_read(j) and isinstance(j.operands[-1], Value))
            yield from (j.results[0] for j in read if j.operands[-1] not in free)


def is_read(text: Apply) -> bool:
    """Is it a character, or a part, of a string?"""
    name, args = text.op["function"], text.op["args"]
    return (name == "__getitem__" or name.endswith("_item")) and args[:2] == (..., ...) and ... not in args[2:]
