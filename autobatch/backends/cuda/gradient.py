"""The derivative of a whole function in reverse, as a kernel.

    operands   those of the function, the arrays that its literals name, the weight of each row
    results    of each operand asked for: its cotangents row by row; of a shared one what each row contributes

The states of loops lie in global memory, those of a warp side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.backends.cuda.kernel import DEVICE, WARP, CudaKernel, refusal, written
from autobatch.backends.llvm.lanes.tensors import word
from autobatch.backends.llvm.lanes.writer import stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.whole.code import SCRATCH
from autobatch.backends.llvm.whole.gradient import derivative_of
from autobatch.backends.llvm.whole.region import WholeRegion


def write_gradient(
    whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int], machine: str = DEVICE
) -> CudaKernel:
    """The kernel of a derivative. UnsupportedError where there is none."""
    try:
        found = derivative_of(whole, sites, output, wrt)
        for result in found.signature.results:
            if result.summed and stored(word(result.dtype)) not in ("float", "double"):
                raise RefusedError(f"a sum over rows of numbers of {result.dtype}")
        kernel = written(found.signature, found.body, machine, False, False, found.arrays)
        if kernel.scratch > SCRATCH * WARP:
            each = kernel.scratch // WARP
            raise RefusedError(f"the states of its loops take {each:,} bytes, more than {SCRATCH:,}")
        return kernel
    except RefusedError as error:
        raise refusal(error) from error
