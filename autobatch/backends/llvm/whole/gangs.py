"""Do the rows of a batch form gangs, or does each run by itself? By what a gang's turn costs, and its rows' one by one.

    for word in words: total += table[word]     rows of one example are read by vector loads; of 16, number by number

A gang does an operation on all of its rows at once. Where they read or write memory at places of their own it does so
one after another, where they part in a branch it runs both arms, and in a loop inside another it takes as many turns as
its slowest row. A row by itself takes the arm it needs, and pays where the processor has guessed the wrong one.

The costs are in operations on numbers, fitted to 60 programs, each measured both ways (Zen 5, vectors of 512 bits): of
10 that were 1.2 to 3 times as fast row by row 8 are found (not a parser and a stack machine), and one (insertion sort
in an array) is 1.4 times as slow by it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import assert_never

from autobatch.backends.llvm.lanes.floats import FLOATS
from autobatch.backends.llvm.lanes.lifetimes import CHANGING
from autobatch.backends.llvm.lanes.likely import shared_inside, uniform_values
from autobatch.backends.llvm.lanes.tensors import SMALL
from autobatch.backends.llvm.lanes.together import FUNCTION, READS
from autobatch.backends.llvm.whole.estimate import TURNS
from autobatch.ir.core import Apply, Call, For, If, Instruction, Literal, Map, Operand, Region, Value, While
from autobatch.ir.types import Array, Type

PLACE = 48
"""What a number costs a gang that its rows read or write at places of their own."""

PARTED = 64
"""What a branch costs a gang in which its rows part, beside its arms."""

GUESSED = 16
"""The same for a row by itself: every other guess is wrong."""

TAKEN = 0.25
"""How often an arm is run."""

SLOWEST = 2.5
"""Turns of the slowest row of a gang, for one turn of a row, where loops are inside each other."""

ALONE = 0.5
"""What an operation of a row by itself costs: the processor does several at once."""

DIVISION = 4
"""Operations that a division is."""


def form_gangs(region: Region, shared: int, lanes: int) -> bool:
    """Do the rows of a region form gangs of so many lanes, whose first arguments are shared?"""
    cost = _GangCost()
    first = region.args[:shared]
    cost.region(region, {*first, *shared_inside(region, first)}, _Often())
    return lanes * cost.alone >= cost.gang


@dataclass(frozen=True)
class _Often:
    """How often something runs in a row, and in a gang; in so many loops that rows leave one by one."""

    row: float = 1.0
    gang: float = 1.0
    loops: int = 0

    def times(self, turns: float, parts: bool = False) -> _Often:
        slowest = SLOWEST if parts and self.loops else 1.0
        return _Often(self.row * turns, self.gang * turns * slowest, self.loops + parts)


class _GangCost:
    """Of a row by itself (`alone`), and of a gang."""

    def __init__(self) -> None:
        self.alone = self.gang = 0.0

    def region(self, region: Region, known: Collection[Value], often: _Often) -> None:
        for i in region.body:
            self.instruction(i, known, often)

    def instruction(self, i: Instruction, known: Collection[Value], often: _Often) -> None:
        match i:
            case Apply():
                self.applied(i, known, often)
            case For(count=count, body=body):
                turns = count.value if isinstance(count, Literal) else TURNS
                assert isinstance(turns, int)
                self.region(body, known, often.times(turns))
            case While(condition=test, body=body):
                inside = often.times(TURNS, parts=not _is_shared(test.results[0], known))
                self.region(test, known, inside)
                self.region(body, known, inside)
            case If(condition=condition, then=then, orelse=orelse):
                if not _is_shared(condition, known):
                    self.add(often, GUESSED, PARTED)
                for arm in (then, orelse):
                    self.region(arm, known, often.times(TAKEN))
            case Call():
                pass  # the functions of a recursion are counted where it begins
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(i)

    def applied(self, i: Apply, known: Collection[Value], often: _Often) -> None:
        op, xs = i.op, i.operands
        if op.name == "masked":
            given = [a for a, x in zip(op["region"].args, xs, strict=True) if _is_shared(x, known)]
            self.region(op["region"], {*given, *shared_inside(op["region"], given)}, often)
        elif op.name == "blocks":
            program = op["program"]
            inputs = zip((*program.parameters, *program.captured), xs, strict=True)
            given = [v for v, x in inputs if _is_shared(x, known)]
            inside = {*given, *uniform_values(program.structured, given)}
            for f in program.structured:
                self.region(f.region, inside, often.times(TURNS, parts=True))
        elif op.name in (*READS, *CHANGING) and _size(xs[0].type) > SMALL:
            self.memory(i, known, often)
        elif not all(_is_shared(x, known) for x in xs):
            self.numbers(i, often)

    def memory(self, i: Apply, known: Collection[Value], often: _Often) -> None:
        """Numbers of an array that are read or written."""
        xs = i.operands
        if i.op.name.startswith("scatter"):
            places, moved = xs[1:2], xs[2].type
        elif i.op.name in CHANGING:
            places, moved = xs[2:], xs[1].type
        else:
            places, moved = xs[1:], i.results[0].type
        size = _size(moved)
        if all(_is_shared(x, known) for x in places):
            self.add(often, ALONE * size, size)
        else:
            self.add(often, 1 + size / SMALL, PLACE * size)

    def numbers(self, i: Apply, often: _Often) -> None:
        """Operations on numbers."""
        name, types = i.op.name, [x.type for x in (*i.operands, *i.results)]
        size = max([1, *map(_size, types[len(i.operands) :])])
        if name.startswith(("reduce", "cum", "arg")):
            size = _size(types[0])
        if name == "dot_general" and isinstance(types[0], Array):
            (summed, _), _ = i.op["dimension_numbers"]
            size *= math.prod(types[0].shape[k] for k in summed)
        work = size * (FUNCTION if name in FLOATS else DIVISION if name in ("div", "sqrt", "rem") else 1)
        self.add(often, ALONE * work, work)

    def add(self, often: _Often, row: float, gang: float) -> None:
        self.alone += often.row * row
        self.gang += often.gang * gang


def _is_shared(x: Operand, known: Collection[Value]) -> bool:
    return isinstance(x, Literal) or x in known


def _size(of: Type) -> int:
    return math.prod(of.shape) if isinstance(of, Array) else 1
