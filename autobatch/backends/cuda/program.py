"""A whole function with its derivatives, each as a kernel that is written when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from autobatch.backends.cuda.gradient import write_gradient
from autobatch.backends.cuda.kernel import CURE, write
from autobatch.backends.cuda.running import Executable
from autobatch.backends.llvm.whole.region import Whole, of_kernels, whole_function
from autobatch.errors import UnsupportedError
from autobatch.ir.core import Module
from autobatch.runtime.schema import ColumnInput, WordInput


def _region(module: Module) -> Whole:
    try:
        return whole_function(module)
    except UnsupportedError as error:
        raise of_kernels(error) from error


class CudaProgram(Executable):
    """The entry of a module. `sites`: its last result says what an example has failed with. `inputs`: what its last
    shared inputs are, those that come with the examples. No GPU is looked for before the first call. `accept` raises
    what is to be raised where the function is not to be a kernel."""

    def __init__(
        self,
        module: Module,
        sites: bool,
        inputs: Sequence[ColumnInput | WordInput] = (),
        accept: Callable[[Whole, bool], None] | None = None,
    ) -> None:
        self.whole, self.sites, self.inputs = _region(module), sites, tuple(inputs)
        if accept is not None:
            accept(self.whole, sites)
        names = [v.hint or f"argument {k}" for k, v in enumerate(self.whole.region.args)]
        super().__init__(write(self.whole, sites), names)
        self.gradients: dict[tuple[int, tuple[int, ...]], Executable] = {}
        self._writing = threading.Lock()

    def gradient(self, output: int, wrt: tuple[int, ...]) -> Executable:
        """The derivative of result `output`, each row weighted by an operand more, by the operands `wrt`: of what
        varies row by row, of what is shared summed over rows. UnsupportedError where there is no kernel for it."""
        if self.inputs:
            raise UnsupportedError(
                "backend='cuda' has no kernel for a derivative of a function of structure", cure=CURE
            )
        with self._writing:
            if (output, wrt) not in self.gradients:
                kernel = write_gradient(self.whole, self.sites, output, wrt)
                held = [f"an array of the program ({k})" for k in range(len(kernel.arrays))]
                made = Executable(kernel, [*self.names, *held, "the weight of each example"])
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]
