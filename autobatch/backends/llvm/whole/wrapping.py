"""Integers of Python that may leave the 32 bits that the device has: there they wrap, where Python's have no end.

    while x > 1.0 carrying %n:       %n: below 2**30 turns, each of which adds 1: below 2**30
      %m = add(%n, 60000)            what no turn hands on may add more
      yield %n + 2                   leaves 32 bits

Where a list begins, and what is reckoned with it to find an element (`vectorize/rows.py`), is in range of a column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, assert_never

import networkx as nx

from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Apply, Call, For, If, Instruction, Literal, Map, Operand, Region, Value, While, regions
from autobatch.ir.types import Array, Type
from autobatch.source import Span

SMALL_STEP = 1 << 16
"""What is added to an integer that no turn hands on: a program has too few additions to leave 32 bits so."""

TURN_STEP = 1
"""What a turn adds to an integer that it hands on to the next, of fewer than 2**30 turns (`ir/masked.py`)."""

_READS = frozenset({"take_row", "slice", "dynamic_slice", "gather"})
"""Operations that make what their first operand holds, wherever they read it."""

_EXACT = _READS | {
    *("select_n", "where", "max", "min", "neg", "abs", "sign", "mod", "floordiv", "undefined", "unknown"),
    *("squeeze", "reshape", "broadcast_in_dim", "concatenate"),
}
"""Operations whose result is no larger than their operands, of Python's integers."""

_COUNTS = frozenset({"add", "sub"})


def wrapping(region: Region, offsets: Collection[Operand]) -> Iterator[tuple[Span, str]]:
    """Where an integer of Python is computed that may leave 32 bits, and by what. `offsets`: columns of where lists
    begin."""
    flow = _Flow(offsets)
    flow.region(region)
    for i in (i for r in all_regions(region) for i in r.body):
        integers = [r for r in i.results if is_python_integer(r.type)]
        if not isinstance(i, Apply) or any(regions_of(x) for _, x in i.op.params) or flow.rows.issuperset(integers):
            continue
        if not _stays(i, SMALL_STEP if flow.handed_on.isdisjoint(integers) else TURN_STEP):
            yield i.span, f"{i.op.name} makes an integer of Python"


def regions_of(x: Any) -> tuple[Region, ...]:
    """Those in a parameter of an operation."""
    if isinstance(x, Region):
        return (x,)
    return tuple(f.region for f in x.structured) if isinstance(x, BlockProgram) else ()


def all_regions(region: Region) -> Iterator[Region]:
    """A region, and those inside, in parameters of operations too."""
    yield region
    for i in region.body:
        held = (r for _, x in i.op.params for r in regions_of(x)) if isinstance(i, Apply) else regions(i)
        for inner in held:
            yield from all_regions(inner)


class _Flow:
    """What each integer is made of that may be as large; `rows`: what is a place in a column."""

    def __init__(self, offsets: Collection[Operand]) -> None:
        self.offsets, self.rows = set(offsets), set[Operand]()
        self.made_of: dict[Operand, list[Operand]] = {}

    @cached_property
    def handed_on(self) -> frozenset[Operand]:
        """What is made of itself, as it was in an earlier turn."""
        graph = nx.DiGraph((x, r) for r, xs in self.made_of.items() for x in xs if isinstance(x, Value))
        return frozenset(x for part in nx.strongly_connected_components(graph) if len(part) > 1 for x in part)

    def join(self, results: Sequence[Value], *sources: Sequence[Operand]) -> None:
        for xs in sources:
            for r, x in zip(results, xs, strict=False):
                self.made_of.setdefault(r, []).append(x)

    def is_row(self, xs: Sequence[Operand]) -> bool:
        return not self.rows.isdisjoint(xs)

    def region(self, region: Region) -> None:
        for i in region.body:
            self.instruction(i)
            for inner in regions(i):
                self.region(inner)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(op=op, operands=xs):
                for r in i.results:
                    self.made_of[r] = list(_magnitudes(i))
                if op.name in _READS:
                    is_row = xs[0] in self.offsets or xs[0] in self.rows
                else:
                    is_row = op.name != "int" and self.is_row(xs)
                if is_row:
                    self.rows.update(i.results)
                for _, x in op.params:
                    if isinstance(x, BlockProgram):
                        self.hand_in(x.captured, xs[len(x.parameters) :])
                    self.inside(i, regions_of(x), isinstance(x, BlockProgram))
            case If(then=then, orelse=orelse):
                self.join(i.results, then.results, orelse.results)
            case For(init=init, body=body):
                self.join(i.results, init, body.results)
                self.join(body.args[1:], init, body.results)
            case While(init=init, condition=test, body=body):
                self.join(i.results, init, body.results)
                self.join(body.args, init, body.results)
                self.join(test.args, init, body.results)
            case Map(body=body, filtered=filtered):
                self.join(i.results, body.results[filtered:])
            case Call(operands=xs):  # of a block, see `inside`
                for x in xs:
                    self.join(i.results, [x] * len(i.results))
            case _:
                assert_never(i)

    def hand_in(self, inner: Sequence[Value], given: Sequence[Operand]) -> None:
        """What is inside of an operation, and never changes there, is what it was given."""
        for v, x in zip(inner, given, strict=True):
            self.offsets.update({v} if x in self.offsets else ())
            self.rows.update({v} if x in self.rows else ())

    def inside(self, i: Apply, found: Sequence[Region], blocks: bool) -> None:
        """What an operation holds: a region, or blocks, each of which may be behind any other."""
        args, results = [a for r in found for a in r.args], [x for r in found for x in r.results]
        for inner in found:
            if blocks:
                for x in (*i.operands, *results):
                    self.join(args, [x] * len(args))
                    self.join(i.results, [x] * len(i.results))
            else:
                self.hand_in(inner.args, i.operands)
                self.join(inner.args, i.operands)
                self.join(i.results, inner.results)
            self.region(inner)


def _magnitudes(i: Apply) -> Sequence[Operand]:
    """The operands that say how large the results are."""
    return i.operands[:1] if i.op.name in _READS else i.operands


def is_python_integer(type: Type) -> bool:
    """Is it one that has no end in Python?"""
    return isinstance(type, Array) and type.is_integer and type.weak


def _stays(i: Apply, most: int) -> bool:
    """Is what it makes no larger than 32 bits hold, if it adds so much at most?"""
    if i.op.name in _EXACT:
        return True
    types = [x.type for x in i.operands if isinstance(x.type, Array)]
    if i.op.name in ("int", "convert_element_type"):
        return all(t.is_bool or t.is_integer for t in types)
    if i.op.name in _COUNTS:
        steps = [x.value for x in i.operands if isinstance(x, Literal)]
        return any(isinstance(s, (int, float)) and abs(s) <= most for s in steps)
    return False
