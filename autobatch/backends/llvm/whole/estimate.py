"""Is a whole function better off as machine code than in XLA? What `backend="auto"` goes by.

A call of machine code costs less than half of one of XLA's: there is no plan and there are no tables; loops and
branches on numbers run under masks in registers. XLA wins where products are of size, and on long arrays of functions
of floats, which it cuts among cores row by row or not. What a loop does that computed numbers end it calls as machine
code, row after row, like us: so products in there do not count. The bounds are those that `python -m benchmarks.choice`
measured.

Where examples have structure, XLA knows it ahead: rows of many examples meet in one product, equal rows are one. To
plan that takes the host 5 to 100 times as long as machine code runs (some thousand times where integers of the examples
decide much), so it pays where the plan is kept with the batch; there it takes a loop that computed numbers end for
machine code to be chosen. Recursions are XLA's: what calls have in
common may be all but one of their branches (fib(45), a graph that is walked as if it were a tree).

It has to compute the same, too: where an integer needs more bits than the device has, the call is run again by XLA, for
whose host they have 64 (`room.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autobatch.analysis.device import depending_on
from autobatch.backends.llvm.lanes.floats import FLOATS
from autobatch.backends.llvm.whole.region import Whole
from autobatch.ir import jax_compat
from autobatch.ir.blocks import BlockProgram
from autobatch.ir.core import Apply, For, If, Instruction, Literal, Operand, Region, While, regions
from autobatch.ir.types import Array, Type

MOST_MULTIPLICATIONS = 6000
"""Multiplications in the products of one example, up to which machine code is faster. (Eight steps of a recurrent cell
with 32 numbers have 8,192, and take 1.1 times as long.)"""

MOST_UNPLANNED = 66_000
"""The same where XLA would first have to plan the examples. (A recurrent cell with 64 numbers over lists of 16 takes
1/9 of XLA's time; products of larger matrices have no machine code of ours.)"""

LONGEST = 512
"""Numbers in an array that functions of floats are applied to, up to which machine code is faster. (tanh(x) * x takes
1.3 times as long for 1,024 numbers, 0.9 times for 256.)"""

NO_LOOPS = "structure alone decides how often loops run, and its plan is kept"

TURNS = 16
"""Turns that a loop over structure is taken to have."""


class DeclinedError(Exception):
    """This function runs by XLA: why."""


@dataclass(frozen=True)
class Estimate:
    """What one example computes: instructions, those of static loops as often as they run, of others once; the
    multiplications of its products, those in loops that computed floats end apart; and the largest array that functions
    of floats are applied to. `loops`: those that numbers end, and `decided` of them computed floats."""

    operations: int
    multiplications: int
    longest: int
    loops: int
    decided: int = 0
    inside: int = 0

    def __str__(self) -> str:
        loops = "a loop that numbers end" if self.loops == 1 else f"{self.loops} loops that numbers end"
        words = [f"{self.operations:,} operations", loops if self.loops else ""]
        products = self.multiplications + self.inside
        words += [f"products of {products:,} multiplications" if products else ""]
        words += [f"arrays of {self.longest:,} numbers" if self.longest > 1 else ""]
        return ", ".join(w for w in words if w)


def estimate(whole: Whole) -> Estimate:
    """What one example costs, as far as that can be told."""
    cost = _Cost(_computed(whole), TURNS if whole.columns else 1)
    cost.region(whole.region, 1)
    return Estimate(cost.operations, cost.multiplications, cost.longest, cost.loops, cost.decided, cost.inside)


def _computed(whole: Whole) -> Collection[Operand]:
    """What floats of the function decide or compute: of all else the host of XLA knows the value."""
    if whole.module is None:
        return frozenset()
    values = (v for r in all_regions(whole.region) for v in (*r.args, *(v for i in r.body for v in i.results)))
    return depending_on(whole.module, {v for v in values if _is_float(v.type)})


def accept(whole: Whole, on_gpu: bool = False, planned: bool = False) -> None:
    """Is machine code to run a function? DeclinedError: why XLA runs it. `on_gpu`: it would be a kernel, which has no
    matrix units, and is launched by Python; what it saves is that XLA launches kernels in each turn of a loop.
    `planned`: XLA's plan of the examples is kept."""
    made = estimate(whole)
    inside = [i for r in all_regions(whole.region) for i in r.body]
    recursions = [x for i in inside if isinstance(i, Apply) for _, x in i.op.params if isinstance(x, BlockProgram)]
    if any(whole.columns or not _follows_floats(x) for x in recursions):
        raise DeclinedError("a recursion over structure, whose rows xla computes together, and equal ones once")
    if whole.columns and (planned or on_gpu) and not made.decided:
        raise DeclinedError(NO_LOOPS)
    if made.multiplications > (MOST_UNPLANNED if whole.columns and not planned else MOST_MULTIPLICATIONS):
        raise DeclinedError(f"products of {made.multiplications:,} multiplications an example are for xla")
    if on_gpu and not made.loops:
        raise DeclinedError("no loop that numbers end: xla has kernels for the rest")
    if made.longest > LONGEST:
        raise DeclinedError(f"functions of {made.longest:,} numbers an example are for xla")


def _follows_floats(program: BlockProgram) -> bool:
    """Do floats decide a branch of a recursion?"""
    for region in regions_of(program):
        inside = [i for r in all_regions(region) for i in r.body]
        made = {r: i for i in inside if isinstance(i, Apply) for r in i.results}
        todo: list[Operand] = [i.condition for i in inside if isinstance(i, If)]
        todo += [i.condition.results[0] for i in inside if isinstance(i, While)]
        seen: set[Operand] = set()
        while todo:
            x = todo.pop()
            if _is_float(x.type):
                return True
            if x not in seen and x in made:
                seen.add(x)
                todo += made[x].operands
    return False


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


class _Cost:
    """`computed`: the values that the host of XLA does not know. `turns`: of loops that it counts."""

    def __init__(self, computed: Collection[Operand], turns: int) -> None:
        self.computed, self.turns, self.within = computed, turns, 0
        self.operations = self.multiplications = self.longest = self.loops = self.decided = self.inside = 0

    def region(self, region: Region, times: int) -> None:
        for i in region.body:
            self.instruction(i, times)

    def instruction(self, i: Instruction, times: int) -> None:
        match i:
            case For(count=Literal(value=int(turns)), body=body):
                self.region(body, times * max(turns, 0))
            case For(count=count, body=body):
                self.loop(count, (body,), times)
            case While(condition=test, body=body):
                self.loops += 1
                self.loop(test.results[0], (test, body), times)
            case Apply(op=op):
                for _, x in op.params:
                    self.parameter(x, times)
                self.operations += times
                self.one(op.name, [x.type for x in i.operands], [r.type for r in i.results], dict(op.params), times)
            case _:
                self.operations += times * isinstance(i, If)
                for inner in regions(i):
                    self.region(inner, times)

    def loop(self, end: Operand, regions: Sequence[Region], times: int) -> None:
        """A loop of so many turns, or which ends by that."""
        decides = end in self.computed
        self.within += decides
        self.decided += decides
        for inner in regions:
            self.region(inner, times if decides else times * self.turns)
        self.within -= decides

    def parameter(self, x: Any, times: int) -> None:
        """What stands in the parameters of an operation: programs of JAX, or of blocks."""
        if isinstance(x, Region):
            self.region(x, times)
        elif isinstance(x, BlockProgram):
            self.loops += 1
            for region in regions_of(x):
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
            found = times * math.prod(outs[0].shape) * summed
            self.inside += found * bool(self.within)
            self.multiplications += found * (not self.within)
        elif name in FLOATS:
            self.longest = max([self.longest, *map(math.prod, shapes)])


def _is_float(type: Type) -> bool:
    return isinstance(type, Array) and not (type.is_integer or type.is_bool)


def _of_aval(aval: Any) -> Type:
    return Array(str(getattr(aval, "dtype", "float32")), tuple(getattr(aval, "shape", ())))
