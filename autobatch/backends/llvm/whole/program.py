"""A whole function with its derivatives, each as machine code that is made when it is first asked for; the back end
`llvm`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from autobatch.backends.interface import Cost, Declined, Load, WholeFunction, Work
from autobatch.backends.llvm.lanes.refill import LoopSplit, asked_in, holds_loop, why
from autobatch.backends.llvm.whole.code import WholeCode, write, write_gradient
from autobatch.backends.llvm.whole.region import WholeRegion, whole_function, work_of
from autobatch.backends.llvm.whole.running import MachineCode, processors
from autobatch.data.schema import ColumnInput, WordInput
from autobatch.errors import UnsupportedError

# ---- costs
#
# What a call of machine code costs: reading the arguments, and what each row computes.
#
# The constants are microseconds (`_ns`: nanoseconds), fitted to 402 calls and 242 derivatives by
# `python -m benchmarks.choice.fit`.


AT_ONCE = 200.0
"""What a thread does by itself: to wake others for less does not pay."""


@dataclass(frozen=True)
class MachineCodeConstants:
    """`call`: with arrays of JAX. `read`, `read_row`: where lists and objects come with the call. Of each row: numbers
    that are made, multiplications of products, instructions, calls of a recursion, numbers that are returned,
    multiplications of products whose factors each row has for itself (`own_ns`, more than others), numbers that a
    recursion with products makes, whose rows are computed one after another (`alone_ns`, more than others)."""

    call: float
    read: float
    read_row: float
    element_ns: float
    multiplication_ns: float
    operation_ns: float
    recursion: float
    returned_ns: float
    own_ns: float
    alone_ns: float


VALUES = MachineCodeConstants(54.0, 120.0, 0.7, 0.033, 0.06, 0.032, 1.1, 3.0, 1.5, 0.47)
DERIVATIVES = MachineCodeConstants(140.0, 130.0, 0.97, 0.26, 0.93, 0.91, 6.6, 1.3, 1.9, 1.3)

START, OPERATION = 0.07, 1e-4
"""Seconds to compile at least, and for each instruction (medians of the same programs)."""
MOST_UNROLLED = 1000
"""Instructions from which on loops stay loops."""


def cost(work: Work, load: Load, constants: MachineCodeConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    row = of.element_ns * work.elements + of.multiplication_ns * work.products + of.operation_ns * work.operations
    alone = work.structured and work.recursions > 0 and work.dots > 0
    row += of.returned_ns * work.returned
    row += of.alone_ns * work.elements if alone else of.own_ns * work.own_multiplications
    call = of.call + shared_out(load.rows * (1e-3 * row + of.recursion * work.recursions))
    if work.structured and not load.planned:
        call += of.read + of.read_row * load.rows
    first = START + OPERATION * min(work.operations, MOST_UNROLLED)
    return Cost(call, first * (2 if load.derives else 1))


def shared_out(microseconds: float) -> float:
    """The time that threads need for so much work together."""
    return max(min(microseconds, AT_ONCE), microseconds / processors())


logger = logging.getLogger("autobatch")


class WholeProgram(MachineCode):
    """The entry of a module. `sites`: its last result says what an example has failed with. `inputs`: what its last
    shared inputs are, those that come with the examples. `made` and `kept`: the program as an earlier process has left
    it; LookupError where its code is gone. The module is lowered again then when something else than a call asks for
    the `whole`."""

    on_host: ClassVar[bool] = True

    def __init__(
        self,
        whole: Callable[[], WholeRegion],
        sites: bool,
        inputs: Sequence[ColumnInput | WordInput] = (),
        made: WholeCode | None = None,
        kept: str = "",
    ) -> None:
        self._whole, self.sites, self.inputs = whole, sites, tuple(inputs)
        super().__init__(made or write(self.whole, sites), kept)
        self.gradients: dict[tuple[int, tuple[int, ...]], MachineCode | None] = {}
        self._refused: UnsupportedError | None = None
        self._lock = threading.Lock()

    @cached_property
    def whole(self) -> WholeRegion:
        """The region that is computed."""
        return self._whole()

    @cached_property
    def work(self) -> Work:
        """What one example computes."""
        return work_of(self.whole)

    @property
    def how(self) -> str:
        """How rows are computed, as `explain` says it."""
        many = f"{self.width} examples at once" if self.width > 1 else "one example after another"
        return f"one function of machine code, {many}{f' ({self.refilling})' if self.refilling is not None else ''}"

    @property
    def text(self) -> str:
        return super().text or self._again.program.text

    @cached_property
    def _again(self) -> WholeCode:
        return write(self.whole, self.sites)

    @property
    def refilling(self) -> str | None:
        """What becomes of a lane whose row is done, and why; None where no loop is a lane's own."""
        region, asked = self.whole.forward, asked_in(self.whole.region)
        shared = region.args[: self.whole.shared]
        if self.width == 1 or not holds_loop(region):
            return None
        refills = LoopSplit.of(region, shared, asked) is not None
        done = "a row that is done makes room for the next" if refills else "each until its last one is done"
        return f"{done}: {why(region, shared, asked)}"

    def refusal(self) -> UnsupportedError | None:
        """Why a derivative has no machine code, told once."""
        found, self._refused = self._refused, None
        return found

    def gradient(self, output: int, wrt: tuple[int, ...]) -> MachineCode | None:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. None where there is no machine code for it."""
        with self._lock:
            if (output, wrt) not in self.gradients:
                try:
                    made = MachineCode(write_gradient(self.whole, self.sites, output, wrt))
                except UnsupportedError as error:
                    logger.info("a derivative by XLA: %s", error)
                    made, self._refused = None, error
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]


class Llvm:
    """Machine code for the processor, of as many rows at once as its vectors hold."""

    name: ClassVar[str] = "llvm"

    def accepts(self, source: WholeFunction) -> WholeRegion | Declined:
        """The region of the entry, where it holds arithmetic on numbers and small arrays alone."""
        try:
            return whole_function(source)
        except UnsupportedError as error:
            return Declined(error)

    def cost(self, work: Work, load: Load) -> Cost:
        """See `costs.py`."""
        return cost(work, load)

    def compile(self, taken: WholeRegion) -> WholeProgram:
        """The machine code."""
        return WholeProgram(lambda: taken, taken.fails, taken.inputs)

    def restored(self, whole: Callable[[], WholeRegion], fails: bool, made: WholeCode, kept: str) -> WholeProgram:
        """Code that an earlier process has left. LookupError where it is gone."""
        return WholeProgram(whole, fails, (), made, kept)
