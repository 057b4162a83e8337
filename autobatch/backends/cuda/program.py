"""A whole function with its derivatives, each as a kernel that is written when it is first asked for; the back end
`cuda`."""

from __future__ import annotations

import threading
from typing import ClassVar

from autobatch.backends.cuda.gradient import write_gradient
from autobatch.backends.cuda.kernel import CURE, write
from autobatch.backends.cuda.running import KernelExecutable
from autobatch.backends.interface import Cost, Declined, Load, WholeFunction, Work
from autobatch.backends.llvm.whole.estimate import work_of
from autobatch.backends.llvm.whole.region import WholeRegion, of_kernels, whole_function
from autobatch.errors import UnsupportedError


class CudaProgram(KernelExecutable):
    """The entry of a module. No GPU is looked for before the first call."""

    on_host: ClassVar[bool] = False
    how = "one kernel, a thread for each example"

    def __init__(self, whole: WholeRegion) -> None:
        self.whole, self.sites, self.inputs = whole, whole.fails, whole.inputs
        self.work: Work = work_of(whole)
        names = [v.hint or f"argument {k}" for k, v in enumerate(whole.region.args)]
        super().__init__(write(whole, whole.fails), names)
        self.gradients: dict[tuple[int, tuple[int, ...]], KernelExecutable] = {}
        self._writing = threading.Lock()

    def refusal(self) -> None:
        """Derivatives that have no kernel are errors."""

    def gradient(self, output: int, wrt: tuple[int, ...]) -> KernelExecutable:
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
                made = KernelExecutable(kernel, [*self.names, *held, "the weight of each example"])
                self.gradients[output, wrt] = made
            return self.gradients[output, wrt]


LAUNCH, THREADS = 100.0, 8192
"""Microseconds of a call, by Python; rows that a GPU computes at once."""
ELEMENT = 0.004
"""Microseconds for a number that one thread makes."""
MATRIX = 3.5
"""So many times as long takes a multiplication of a product, whose factors lie in memory."""


class Cuda:
    """A kernel of its own for a GPU of NVIDIA, which launches nothing inside of loops."""

    name: ClassVar[str] = "cuda"

    def accepts(self, source: WholeFunction) -> WholeRegion | Declined:
        """As `llvm`, whose regions it compiles."""
        try:
            return whole_function(source)
        except UnsupportedError as error:
            return Declined(of_kernels(error))

    def cost(self, work: Work, load: Load) -> Cost:
        """A launch, and what the threads do one row after another."""
        waves = -(-load.rows // THREADS)
        row = ELEMENT * (work.elements + MATRIX * work.products)
        return Cost(LAUNCH + waves * row * (3 if load.derives else 1), 1.0)

    def compile(self, taken: WholeRegion) -> CudaProgram:
        """The kernel."""
        return CudaProgram(taken)
