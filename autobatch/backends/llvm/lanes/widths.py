"""How large the arrays are that each row has for itself: what decides whether rows form gangs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Apply, Region, Value, regions, walk
from autobatch.ir.ops import Op
from autobatch.ir.types import Array


def widest(region: Region, varying: Sequence[bool]) -> int:
    """The most numbers in an array of a row. What all rows share (`varying`: which arguments they do not) lies in
    memory once, however large it is."""
    shared = {x for x, varies in zip(region.args, varying, strict=True) if not varies}
    return max([1, *map(_size, _own(region, shared))])


def _own(region: Region, shared: Collection[Value]) -> Iterable[Value]:
    """The values of which each row has its own."""
    yield from (x for x in region.args if x not in shared)
    for i in walk(region):
        yield from i.results
        yield from (x for r in regions(i) for x in r.args)
        if isinstance(i, Apply) and i.op.name == "masked":
            inner: Region = i.op["region"]
            given = zip(inner.args, i.operands, strict=True)
            yield from _own(inner, {x for x, g in given if not isinstance(g, Value) or g in shared})
        if isinstance(i, Apply) and i.op.name == "blocks":
            for f in i.op["program"].structured:
                yield from _own(f.region, ())


def widest_of(op: Op, varying: Sequence[bool]) -> int:
    """The same of an operation with control of its own on operands that differ between rows, or do not."""
    if op.name == "masked":
        return widest(op["region"], varying)
    program: BlockProgram = op["program"]
    given = zip((*program.parameters, *program.captured), varying, strict=True)
    shared = {x for x, varies in given if not varies}
    sizes = (_size(x) for f in program.structured for x in _own(f.region, ()) if x not in shared)
    return max([1, *sizes, *(_size(x) for x in program.captured if x not in shared)])


def _size(x: Value) -> int:
    return math.prod(x.type.shape) if isinstance(x.type, Array) else 1
