"""How many numbers a region holds at once, which decides how many registers each value of a gang gets.

    %1 = mul(%x, %x)        live behind it: %1, %x
    %2 = add(%1, %y)        live behind it: %2, %x
    %3 = div(%2, %x)        live behind it: %3                 2 numbers at once, of each lane

A chain of operations waits for each of them; a gang of two registers a value has two chains to go on with. Where values
no longer fit into registers, what is gained is lost to memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autobatch.backends.llvm.lanes.tensors import SMALL
from autobatch.ir.core import Apply, For, If, Instruction, Region, Value, While, regions
from autobatch.ir.rewrite import free_values
from autobatch.ir.types import Array


def most_at_once(region: Region, varying: Sequence[bool]) -> int:
    """The most numbers of one lane that are live behind an instruction of a region, or of one inside it. What all
    lanes share (`varying`: which arguments they do not) and arrays in memory take no registers."""
    shared = {x for x, varies in zip(region.args, varying, strict=True) if not varies}
    return _most(region, set(), shared)


def _most(region: Region, behind: set[Value], shared: set[Value]) -> int:
    """`behind`: what is read after the region."""
    live = behind | _values(region.results)
    most = _count(live - shared)
    for i in reversed(region.body):
        live -= set(i.results)
        for inner in _inside(i):
            known = shared | _given_shared(i, inner, shared)
            most = max(most, _most(inner, live | _needed_again(i, inner), known))
        live |= _read(i)
        most = max(most, _count(live - shared))
    return most


def _needed_again(i: Instruction, inner: Region) -> set[Value]:
    """A loop's next turn reads what its body and its test read from outside."""
    return _read(i) | set(inner.args) if isinstance(i, While | For) else set()


def _inside(i: Instruction) -> tuple[Region, ...]:
    if isinstance(i, Apply):
        return (i.op["region"],) if i.op.name == "masked" and not i.op.is_jax else ()
    return regions(i)


def _given_shared(i: Instruction, inner: Region, shared: set[Value]) -> set[Value]:
    if not isinstance(i, Apply):
        return set()
    given = zip(inner.args, i.operands, strict=True)
    return {x for x, g in given if not isinstance(g, Value) or g in shared}


def _read(i: Instruction) -> set[Value]:
    """What an instruction reads, and what regions in it read from outside."""
    match i:
        case Apply(operands=xs):
            return _values(xs)
        case If(condition=condition):
            found = _values([condition])
        case While(init=init) | For(init=init):
            found = _values(init)
        case _:
            found = set()
    return found.union(*(free_values(r) for r in regions(i)))


def _values(xs: Iterable[object]) -> set[Value]:
    return {x for x in xs if isinstance(x, Value)}


def _count(live: set[Value]) -> int:
    return sum(n for n in map(_size, live) if n <= SMALL)


def _size(x: Value) -> int:
    return math.prod(x.type.shape) if isinstance(x.type, Array) else 1
