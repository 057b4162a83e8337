"""A whole function with its derivatives, each as machine code that is made when it is first asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from autobatch.backends.llvm.whole.code import write
from autobatch.backends.llvm.whole.gradient import write_gradient
from autobatch.backends.llvm.whole.region import whole_function
from autobatch.backends.llvm.whole.running import Executable
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Module
from autobatch.runtime.schema import ColumnInput, WordInput

logger = logging.getLogger("autobatch")


class WholeProgram(Executable):
    """The entry of a module. `sites`: its last result says what an example has failed with. `inputs`: what its last
    shared inputs are, those that come with the examples."""

    def __init__(self, module: Module, sites: bool, inputs: Sequence[ColumnInput | WordInput] = ()) -> None:
        self.whole, self.sites, self.inputs = whole_function(module, inputs), sites, tuple(inputs)
        super().__init__(write(self.whole, sites))
        self._gradients: dict[tuple[int, tuple[int, ...]], Executable | None] = {}
        self._lock = threading.Lock()

    def gradient(self, output: int, wrt: tuple[int, ...]) -> Executable | None:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. None where there is no machine code for it."""
        with self._lock:
            if (output, wrt) not in self._gradients:
                try:
                    if self.inputs:
                        raise UnsupportedError("a derivative of a function of structure, which XLA computes")
                    made = Executable(write_gradient(self.whole, self.sites, output, wrt))
                except UnsupportedError as error:
                    logger.info("a derivative by XLA: %s", error)
                    made = None
                self._gradients[output, wrt] = made
            return self._gradients[output, wrt]
