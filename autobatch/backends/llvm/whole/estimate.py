"""Is a whole function better off as machine code than in XLA? What `backend="auto"` goes by.

A call of machine code costs less than half of one of XLA's: there is no plan and there are no tables; loops and
branches on numbers run under masks in registers. XLA wins where products are of size, and on long arrays of functions
of floats, which it cuts among cores row by row or not. The bounds are those that `python -m benchmarks.auto` measured.

It has to compute the same, too: there the integers of Python that a function computes fail their example where they
overflow; machine code has those of the device, which wrap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autobatch.backends.llvm.lanes.floats import FLOATS
from autobatch.backends.llvm.whole.region import Whole
from autobatch.ir import jax_compat
from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Apply, For, If, Instruction, Literal, Operand, Region, While, regions
from autobatch.ir.types import Array, Type
from autobatch.source import NOWHERE, Span

MOST_MULTIPLICATIONS = 6000
"""Multiplications in the products of one example, up to which machine code is faster. (Eight steps of a recurrent cell
with 32 numbers have 8,192, and take 1.1 times as long.)"""

LONGEST = 512
"""Numbers in an array that functions of floats are applied to, up to which machine code is faster. (tanh(x) * x takes
1.3 times as long for 1,024 numbers, 0.9 times for 256.)"""

SMALL_STEP = 1 << 16
"""What is added to an integer that no loop carries: a program has too few additions to leave 32 bits so."""

TURN_STEP = 1
"""What a turn adds to an integer that a loop carries, which has fewer than 2**30 turns (`ir/masked.py`)."""

_EXACT = frozenset(
    {
        *("select_n", "where", "max", "min", "neg", "abs", "sign", "mod", "floordiv", "undefined"),
        *("take_row", "slice", "dynamic_slice", "gather", "squeeze", "reshape", "broadcast_in_dim", "concatenate"),
    }
)
"""Operations whose result is no larger than their operands, of Python's integers."""

_COUNTS = frozenset({"add", "sub"})


class DeclinedError(Exception):
    """This function runs by XLA: why."""


@dataclass(frozen=True)
class Estimate:
    """What one example computes: instructions, those of static loops as often as they run, of others once; the
    multiplications of its products; and the largest array that functions of floats are applied to."""

    operations: int
    multiplications: int
    longest: int
    loops: int

    def __str__(self) -> str:
        loops = "a loop that numbers end" if self.loops == 1 else f"{self.loops} loops that numbers end"
        words = [f"{self.operations:,} operations", loops if self.loops else ""]
        words += [f"products of {self.multiplications:,} multiplications" if self.multiplications else ""]
        words += [f"arrays of {self.longest:,} numbers" if self.longest > 1 else ""]
        return ", ".join(w for w in words if w)


def estimate(whole: Whole) -> Estimate:
    """What one example costs, as far as that can be told."""
    cost = _Cost()
    cost.region(whole.region, 1)
    return Estimate(cost.operations, cost.multiplications, cost.longest, cost.loops)


def accept(whole: Whole, on_gpu: bool = False) -> None:
    """Is machine code to run a function? DeclinedError: why XLA runs it. `on_gpu`: it would be a kernel, which has no
    matrix units, and is launched by Python; what it saves is that XLA launches kernels in each turn of a loop."""
    for at, words in _wrapping(whole.region):
        raise DeclinedError(
            f"{words} ({_place(at)}), which fails its example where it overflows 32 bits: xla sees that"
        )
    made = estimate(whole)
    if made.multiplications > MOST_MULTIPLICATIONS:
        raise DeclinedError(f"products of {made.multiplications:,} multiplications an example are for xla")
    if on_gpu and not made.loops:
        raise DeclinedError("no loop that numbers end: xla has kernels for the rest")
    if made.longest > LONGEST:
        raise DeclinedError(f"functions of {made.longest:,} numbers an example are for xla")


def _place(at: Span) -> str:
    return "no line" if at == NOWHERE else f"line {at.line}"


class _Cost:
    def __init__(self) -> None:
        self.operations = self.multiplications = self.longest = self.loops = 0

    def region(self, region: Region, times: int) -> None:
        for i in region.body:
            self.instruction(i, times)

    def instruction(self, i: Instruction, times: int) -> None:
        match i:
            case For(count=Literal(value=int(turns)), body=body):
                self.region(body, times * max(turns, 0))
            case While():
                self.loops += 1
                self.region(i.condition, times)
                self.region(i.body, times)
            case Apply(op=op):
                for _, x in op.params:
                    self.parameter(x, times)
                self.operations += times
                self.one(op.name, [x.type for x in i.operands], [r.type for r in i.results], dict(op.params), times)
            case _:
                self.operations += times * isinstance(i, If)
                for inner in regions(i):
                    self.region(inner, times)

    def parameter(self, x: Any, times: int) -> None:
        """What stands in the parameters of an operation: programs of JAX, or of blocks."""
        if isinstance(x, Region):
            self.region(x, times)
        elif isinstance(x, BlockProgram):
            self.loops += 1
            for region in _regions_of(x):
                self.region(region, times)
        elif (program := jax_compat.program_of(x)) is not None:
            self.jaxpr(program, times)
        elif isinstance(x, (tuple, list)):
            for y in x:
                self.parameter(y, times)

    def jaxpr(self, program: Any, times: int) -> None:
        for e in program.eqns:
            inside = times * e.params["length"] if e.primitive.name == "scan" else times
            for x in e.params.values():
                self.parameter(x, inside)
            self.operations += times
            self.loops += e.primitive.name == "while"
            ins, outs = ([_of_aval(v.aval) for v in vs] for vs in (e.invars, e.outvars))
            self.one(e.primitive.name, ins, outs, e.params, times)

    def one(self, name: str, ins: Sequence[Type], outs: Sequence[Type], params: dict[str, Any], times: int) -> None:
        shapes = [t.shape for t in (*ins, *outs) if isinstance(t, Array)]
        if name == "dot_general" and isinstance(ins[0], Array) and isinstance(outs[0], Array):
            (left, _), _ = params["dimension_numbers"]
            summed = math.prod(ins[0].shape[k] for k in left)
            self.multiplications += times * math.prod(outs[0].shape) * summed
        elif name in FLOATS:
            self.longest = max([self.longest, *map(math.prod, shapes)])


def _of_aval(aval: Any) -> Type:
    return Array(str(getattr(aval, "dtype", "float32")), tuple(getattr(aval, "shape", ())))


def _regions_of(x: Any) -> tuple[Region, ...]:
    """Those in a parameter of an operation."""
    if isinstance(x, Region):
        return (x,)
    return tuple(f.region for f in x.structured) if isinstance(x, BlockProgram) else ()


def _wrapping(region: Region, carried: frozenset[Operand] = frozenset()) -> Iterator[tuple[Span, str]]:
    """Where an integer of Python is computed that may leave 32 bits. `carried`: those that depend on earlier turns."""
    for i in region.body:
        for inner, counted in _inner(i):
            arguments = {a for a in inner.args[counted:] if _is_python_integer(a.type)}
            yield from _wrapping(inner, carried | arguments)
        integers = [r for r in i.results if _is_python_integer(r.type)]
        if not isinstance(i, Apply):
            carried |= frozenset(integers if carried else ())
        elif integers and not any(_regions_of(x) for _, x in i.op.params):
            again = not carried.isdisjoint(i.operands)
            if not _stays(i, TURN_STEP if again else SMALL_STEP):
                yield i.span, f"{i.op.name} makes an integer of Python"
            carried |= frozenset(integers if again else ())


def _inner(i: Instruction) -> Iterator[tuple[Region, int]]:
    """The regions inside of an instruction, and how many of their first arguments no turn before has computed."""
    match i:
        case For(body=body):
            yield body, 1
        case Apply(op=op):
            for _, x in op.params:
                yield from ((r, len(r.args) if isinstance(x, Region) else 0) for r in _regions_of(x))
        case _:
            yield from ((r, 0) for r in regions(i))


def _is_python_integer(type: Type) -> bool:
    return isinstance(type, Array) and type.is_integer and type.weak


def _stays(i: Apply, most: int) -> bool:
    """Is what it makes no larger than 32 bits hold, if it adds so much at most?"""
    if i.op.name in _EXACT:
        return True
    if i.op.name == "convert_element_type":
        types = [x.type for x in i.operands]
        return all(isinstance(t, Array) and (t.is_bool or _is_python_integer(t)) for t in types)
    if i.op.name in _COUNTS:
        steps = [x.value for x in i.operands if isinstance(x, Literal)]
        return any(isinstance(s, (int, float)) and abs(s) <= most for s in steps)
    return False
