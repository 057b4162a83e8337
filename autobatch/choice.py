"""Which back end runs a call for which nobody asked one: machine code, a kernel, or XLA.

    Call -> use_of -> a Use, for whose programs machine code is made if `accept` finds that it costs less, or "xla"

Machine code needs no plan and no tables, and runs loops and branches on numbers under masks in registers. XLA wins
where there is so little to compute that the call itself counts, where products are of size, and on long arrays of
functions of floats, which it cuts among cores. What a loop does that computed numbers end it calls as machine code, row
after row, like us: so products in there do not count.

Where examples have structure, XLA plans it ahead: rows of many examples meet in one product, equal rows are one. To
plan takes the host 5 to 100 times as long as machine code runs (some thousand times where integers of the examples
decide much), so it pays where the plan is kept with the batch: for products of size, for recursions of few cases, whose
rows it computes together, and for derivatives with products, but of loops that it runs step by step: those whose levels
are no kernel of ours (a CRF, a best path: 2 times as long as machine code), and those that computed numbers end.
Where it is not kept, as the examples come with the call, machine code takes 1/4 to 1/40 of the time, of derivatives
too. It calls a recursion as often as Python does. (A recursion that integers decide, placing queens on 40 boards:
0.2 ms in place of 26, Python 0.25.)

It has to compute the same, too: where an integer needs more bits than the device has, the call is run again by XLA, for
whose host they have 64 (`room.py`).

The bounds are what `python -m benchmarks.choice` measured, over some 80 programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from autobatch.backends.llvm.whole.estimate import estimate, recursions
from autobatch.backends.llvm.whole.region import Whole
from autobatch.ir.types import Array


class Use(StrEnum):
    """What is run of a function for which nobody asked a back end: calls that read their arguments anew, and their
    derivatives, also those of at most so many arrays; the same over packed examples, which keep their plans; calls
    where JAX computes on a GPU."""

    CALL = "auto"
    CALL_OF_8 = "auto of 8"
    CALL_OF_64 = "auto of 64"
    CALL_OF_1024 = "auto of 1024"
    DERIVATIVE = "auto of derivatives"
    DERIVATIVE_OF_8 = "auto of derivatives of 8"
    DERIVATIVE_OF_64 = "auto of derivatives of 64"
    DERIVATIVE_OF_1024 = "auto of derivatives of 1024"
    OF_BATCH = "auto of batches"
    DERIVATIVE_OF_BATCH = "auto of derivatives over batches"
    ON_GPU = "auto on a GPU"

    @property
    def most(self) -> int | None:
        """So many examples at most."""
        last = self.split()[-1]
        return int(last) if last.isdigit() else None


CALLS = (Use.CALL_OF_8, Use.CALL_OF_64, Use.CALL_OF_1024, Use.CALL)
DERIVATIVES = (Use.DERIVATIVE_OF_8, Use.DERIVATIVE_OF_64, Use.DERIVATIVE_OF_1024, Use.DERIVATIVE)


_USES = frozenset(Use)


def is_use(backend: str) -> bool:
    """Is it the back end of programs for which nobody asked one?"""
    return backend in _USES


ALIKE = (*CALLS, *DERIVATIVES, Use.OF_BATCH)
"""Those whose programs are the same where they are machine code without a recursion."""

ANEW = (*CALLS, *DERIVATIVES)
"""Those that read their examples anew, so that XLA would have to plan them."""

WHOLE = (*Use, "llvm", "cuda")
"""The back ends that run whole functions, whose numbers no host looks at."""

MOST_MULTIPLICATIONS = 10_000
"""Multiplications in the products of one example, up to which machine code is faster. (Eight steps of a recurrent cell
with 32 numbers have 8,192, and take 0.4 times as long; attention over 16 vectors of 16 has 20,480, and takes 1.7.)"""

MOST_DERIVED = 512
"""The same for a derivative. (A layer of 32 has 1,024, and takes 1.1 times as long for 64 examples, 1.8 for 1,024;
eight steps of a cell with 16 numbers have 2,048, and take 0.9 and 1.4.)"""

MOST_OF_STRUCTURE = 66_000
"""The same where XLA would have to look up the plan of the examples. (A recurrent cell with 64 numbers over lists of 16
takes as long.)"""

MOST_PLANNED, MOST_DERIVED_PLANNED = 1_500_000, 400_000
"""The same where it would have to plan them in each call, and for a derivative. (A GRU of 64 numbers over lists has
393,000: 64 of them take 0.65 ms in place of 5.4, their derivative 5.0 in place of 6.6.)"""

PATIENCE = 1_000_000
"""Blocks that a recursion over structure may run for one example, some milliseconds, before XLA is asked, for which
equal calls are one: a graph that is walked as if it were a tree takes it as many calls as there are nodes."""

LONGEST = 512
"""Numbers in an array that functions of floats are applied to, up to which machine code is faster. (tanh(x) * x takes
1.3 times as long for 1,024 numbers, 0.9 times for 256.)"""

MOST_RETURNED = 2048
"""Numbers in the results of one example up to which it pays: as they are copied into arrays of JAX. (x * 1.5 + 0.5 of
4,096 numbers takes 1.9 times as long, of 256 0.5.)"""

LITTLE = 100_000
"""Numbers and multiplications of all examples up to which XLA's call costs less: 12 microseconds, where one of
machine code takes 43, and 100 with a derivative, most of them to hand arrays to JAX. (64 examples of a layer of 32
numbers have 66,000 and take 19 microseconds in place of 44; of a layer of 64 there are 262,000: 102 and 67.)"""

MOST_IN_TURN = 128
"""Operations up to which that holds: those that XLA does not fuse, of many turns, cost it a third of a microsecond
each. (The derivative of 16 steps of a filter of two numbers, 471 operations, takes 190 microseconds in place of 80.)"""

PRODUCT = 3000
"""What a product counts of which each example has both factors for itself, and a sort: XLA computes them one after
another, a microsecond each. (Attention over 4 vectors of 4 takes 18 microseconds for one example, and 180 for 64;
64 sorts of 8 numbers take 90, and 45 by machine code.)"""

FEW = 64
"""Examples up to which that holds for products, too: for more of them XLA wakes its threads."""

CASES = 3
"""Branches from which on a recursion without products is faster as machine code, also where its plan is kept: XLA has
operations for each case on each level. (Expressions of five kinds of nodes take 42 microseconds in place of 524 for 8
examples, 0.7 ms in place of 5.5 for 4,000. Trees of one case, whose nodes are tanh of two, take 0.8 to 2.6 times as
long as by XLA; their derivative 0.3 to 1.6 times, but of vectors of 16 1 to 4 times.)"""

RECURSION = "a recursion over structure, whose rows xla computes together, and equal ones once"
NO_LOOPS = "structure alone decides how often loops run, its plan is kept, and rows meet in products"


class DeclinedError(Exception):
    """This function runs by XLA: why."""


@dataclass(frozen=True)
class Call:
    """What decides, of a call. `runs`: nothing but to run it, or a derivative for which machine code is asked.
    `structured`: some examples are no arrays; `count`: of them. `kept`: they were packed before; `numbers`: they
    are numbers alone, which the host may know. `platform`: where JAX computes; `has_kernels`: is there a GPU that
    we write kernels for?"""

    runs: bool
    derives: bool
    structured: bool
    count: int
    kept: bool
    numbers: bool
    traced: bool
    platform: str
    has_kernels: bool


def use_of(call: Call) -> Use | None:
    """What is to be run; None where it can only be XLA's."""
    if not call.runs or call.traced or (call.structured and call.platform != "cpu"):
        return None
    if call.platform == "cpu":
        if not call.kept:
            uses = DERIVATIVES if call.derives else CALLS
            fits = (use for use in uses if use.most is None or (not call.structured and call.count <= use.most))
            return next(fits)
        if call.numbers:
            return None
        return Use.DERIVATIVE_OF_BATCH if call.derives else Use.OF_BATCH
    return Use.ON_GPU if call.platform == "gpu" and call.has_kernels else None


def accept(use: Use, whole: Whole, fails: bool) -> None:
    """Is machine code to run a function? DeclinedError: why XLA runs it. `fails`: examples of it may. A kernel has
    no matrix units, and is launched by Python; what it saves is that XLA launches kernels in each turn of a loop."""
    made, planned = estimate(whole), use is Use.DERIVATIVE_OF_BATCH
    one_by_one = made.branches >= CASES if use is Use.OF_BATCH else planned and made.elements <= made.operations
    by_rows = use in ANEW or (one_by_one and not made.multiplies)
    if any(whole.columns or not follows for follows in recursions(whole)) and not by_rows:
        raise DeclinedError(RECURSION)
    if whole.columns and use is Use.ON_GPU and not made.decided:
        raise DeclinedError(NO_LOOPS)
    most = MOST_OF_STRUCTURE
    if whole.columns and use in ANEW:
        most = MOST_DERIVED_PLANNED if use in DERIVATIVES else MOST_PLANNED
    if planned or not whole.columns:
        most = MOST_DERIVED if use in DERIVATIVES else MOST_MULTIPLICATIONS
    if made.multiplications > most:
        raise DeclinedError(f"products of {made.multiplications:,} multiplications an example are for xla")
    control = whole.columns or fails or made.loops or made.branches
    control = control or made.operations > MOST_IN_TURN
    if use.most and not (control or (made.multiplications and use.most > FEW)):
        work = use.most * (made.elements + made.multiplications + PRODUCT * made.own)
        if work <= LITTLE:
            raise DeclinedError(f"{work:,} numbers in all are so few that a call of xla costs less")
    if use is Use.ON_GPU and not made.loops:
        raise DeclinedError("no loop that numbers end: xla has kernels for the rest")
    if made.longest > LONGEST:
        raise DeclinedError(f"functions of {made.longest:,} numbers an example are for xla")
    returned = sum(math.prod(r.type.shape) for r in whole.region.results if isinstance(r.type, Array))
    if returned > MOST_RETURNED and not made.loops:
        raise DeclinedError(f"results of {returned:,} numbers an example are for xla")
