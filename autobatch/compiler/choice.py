"""Which back end runs a call for which nobody asked one: the one whose call costs least.

    Call -> use_of -> a Use, for whose programs `declines` compares the costs that back ends have for them

Machine code needs no plan and no tables, and runs loops and branches on numbers under masks in registers. XLA wins
where there is so little to compute that the call itself counts, and where products are of size. Where examples have
structure, XLA plans it ahead: rows of many examples meet in one product, equal rows are one. To plan takes the host 5
to 100 times as long as machine code runs (some thousand times where integers of the examples decide much), so it pays
where the plan is kept with the batch. What each of them takes is in `backends/*/costs.py`, as functions of the work of
one example (`interface.Work`) and of the call (`interface.Load`), with constants that `python -m benchmarks.choice.fit`
makes of measured calls.

Where an integer of Python needs more than 32 bits, the call is run again by machine code with 64 (`prepared.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autobatch.backends.cuda.program import Cuda
from autobatch.backends.interface import (
    Backend,
    Cost,
    FunctionProgram,
    Load,
    RowEquations,
    RowsProgram,
    WholeFunction,
    Work,
)
from autobatch.backends.interpret import Interpret
from autobatch.backends.llvm.program import Llvm
from autobatch.backends.llvm.region import WholeRegion, work_of
from autobatch.backends.xla.program import Xla

BY_ROWS: Mapping[str, Backend[RowEquations, Any, RowsProgram]] = {b.name: b for b in (Interpret(), Xla())}
BY_FUNCTIONS: Mapping[str, Backend[WholeFunction, WholeRegion, FunctionProgram]] = {b.name: b for b in (Llvm(), Cuda())}
BACKENDS: Mapping[str, Backend[Any, Any, Any]] = {**BY_ROWS, **BY_FUNCTIONS}
"""All back ends, by what they compile."""


class Use(StrEnum):
    """What is run of a function for which nobody asked a back end: calls that read their arguments anew, and their
    derivatives, also those of at most so many examples; the same over packed ones, which keep their plans; calls
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


MANY, PACKED = 4096, 64
"""Examples of a call that has more than a thousand, and of packed ones, of which there may be any number."""

CALLS = (Use.CALL_OF_8, Use.CALL_OF_64, Use.CALL_OF_1024, Use.CALL)
DERIVATIVES = (Use.DERIVATIVE_OF_8, Use.DERIVATIVE_OF_64, Use.DERIVATIVE_OF_1024, Use.DERIVATIVE)


_USES = frozenset(Use)


def is_use(backend: str) -> bool:
    """Is it the back end of programs for which nobody asked one?"""
    return backend in _USES


ALIKE = (*CALLS, *DERIVATIVES, Use.OF_BATCH, Use.DERIVATIVE_OF_BATCH)
"""Those whose programs are the same where they are machine code without a recursion."""

WHOLE = (*Use, *BY_FUNCTIONS)
"""The back ends that run whole functions, whose numbers no host looks at."""

PATIENCE = 1_000_000
"""Blocks that a recursion over structure may run for one example, some milliseconds, before XLA is asked, for which
equal calls are one: a graph that is walked as if it were a tree takes it as many calls as there are nodes."""

CLOSE = 1.1
"""Calls that take so many times as long as the fastest are as good."""


class DeclinedError(Exception):
    """This function runs by XLA: why."""


class CostsMoreError(DeclinedError):
    """It runs by XLA because that is faster, where XLA has a form for it."""


@dataclass(frozen=True)
class CallFacts:
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


def use_of(call: CallFacts) -> Use | None:
    """What is to be run; None where it can only be XLA's."""
    if not call.runs or call.traced or (call.structured and call.platform != "cpu"):
        return None
    if call.platform == "cpu":
        if not call.kept:
            uses = DERIVATIVES if call.derives else CALLS
            return next(use for use in uses if use.most is None or call.count <= use.most)
        if call.numbers:
            return None
        return Use.DERIVATIVE_OF_BATCH if call.derives else Use.OF_BATCH
    return Use.ON_GPU if call.platform == "gpu" and call.has_kernels else None


def compiles_functions(backend: str) -> Backend[WholeFunction, WholeRegion, FunctionProgram]:
    """The back end of whole functions that an option, or a use, asks for."""
    return BY_FUNCTIONS.get(backend) or BY_FUNCTIONS[Cuda.name if backend == Use.ON_GPU else Llvm.name]


def load_of(use: Use) -> Load:
    """The call that costs are compared for."""
    packed = "batches" in use
    rows = use.most or (PACKED if packed else MANY)
    return Load(rows, "derivatives" in use, packed, "gpu" if use is Use.ON_GPU else "cpu")


def costs(use: Use, work: Work) -> dict[str, Cost]:
    """What a call costs, by each back end that may be chosen for a use."""
    return {b.name: b.cost(work, load_of(use)) for b in (compiles_functions(use), Xla())}


def declines(use: Use, work: Work) -> str:
    """Why XLA is to run a function for which there is code as a whole; "" where it is not: of those that take nearly as
    long as the fastest, the one that is compiled sooner runs."""
    found = costs(use, work)
    least = min(c.call for c in found.values())
    near = {name: c.first for name, c in found.items() if c.call <= CLOSE * least}
    return in_words(use, work) if min(near, key=near.__getitem__) == Xla.name else ""


def in_words(use: Use, work: Work) -> str:
    """What decides, as `explain` says it."""
    times = " and ".join(f"{name} {cost.call:,.0f}" for name, cost in costs(use, work).items())
    rows = load_of(use).rows
    return f"{times} microseconds, estimated for {rows:,} examples of {work}"


def require(backend: str, whole: WholeRegion) -> None:
    """CostsMoreError where nobody asked for the back end of whole functions, and it costs more."""
    if is_use(backend) and (why := declines(Use(backend), work_of(whole))):
        raise CostsMoreError(why)
