"""A whole function with its derivatives, each as machine code that is made when it is first asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property

from autobatch.backends.llvm.lanes.refill import Split, asked_in, holds_loop, why
from autobatch.backends.llvm.whole.code import Made, write
from autobatch.backends.llvm.whole.gradient import write_gradient
from autobatch.backends.llvm.whole.region import Whole, whole_function
from autobatch.backends.llvm.whole.running import Executable
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Module
from autobatch.runtime.schema import ColumnInput, WordInput

logger = logging.getLogger("autobatch")


class WholeProgram(Executable):
    """The entry of a module. `sites`: its last result says what an example has failed with. `inputs`: what its last
    shared inputs are, those that come with the examples. `made` and `kept`: the program as an earlier process has left
    it; LookupError where its code is gone. The module is lowered again then when something else than a call asks.
    `accept` raises what is to be raised where the function is not to be machine code."""

    def __init__(
        self,
        module: Callable[[], Module],
        sites: bool,
        inputs: Sequence[ColumnInput | WordInput] = (),
        made: Made | None = None,
        kept: str = "",
        accept: Callable[[Whole, bool], None] | None = None,
    ) -> None:
        self._module, self.sites, self.inputs = module, sites, tuple(inputs)
        if accept is not None:
            accept(self.whole, sites)
        super().__init__(made or write(self.whole, sites), kept)
        self.gradients: dict[tuple[int, tuple[int, ...]], Executable | None] = {}
        self.refused: UnsupportedError | None = None
        """Why a derivative has none, until somebody has said so."""
        self._lock = threading.Lock()

    @cached_property
    def whole(self) -> Whole:
        """The region that is computed."""
        return whole_function(self._module(), self.inputs)

    @property
    def text(self) -> str:
        return super().text or self._again.program.text

    @cached_property
    def _again(self) -> Made:
        return write(self.whole, self.sites)

    @property
    def refilling(self) -> str | None:
        """What becomes of a lane whose row is done, and why; None where no loop is a lane's own."""
        region, asked = self.whole.forward, asked_in(self.whole.region)
        shared = region.args[: self.whole.shared]
        if self.width == 1 or not holds_loop(region):
            return None
        refills = Split.of(region, shared, asked) is not None
        done = "a row that is done makes room for the next" if refills else "each until its last one is done"
        return f"{done}: {why(region, shared, asked)}"

    def gradient(self, output: int, wrt: tuple[int, ...]) -> Executable | None:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. None where there is no machine code for it."""
        with self._lock:
            if (output, wrt) not in self.gradients:
                try:
                    made = Executable(write_gradient(self.whole, self.sites, output, wrt))
                except UnsupportedError as error:
                    logger.info("a derivative by XLA: %s", error)
                    made, self.refused = None, error
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]
