"""The products that the kernel computes. In level loops: matrices packed before, rows gathered in the loop. Of all rows
of a space: as many as there are, whatever there is room for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autobatch.backends.xla.products.build import Registered
from autobatch.backends.xla.products.choice import ProductChoice, choose, require
from autobatch.backends.xla.products.operation import Matrix, Source, multiply, pack
from autobatch.ir.system import Atom, Compute, Equation, Gather, Variable, results
from autobatch.passes.schedule.contractions import RowProduct, row_product
from autobatch.passes.schedule.fission import Recurrence

__all__ = ["LoopProducts", "Matrices", "Source", "product_of_rows"]

logger = logging.getLogger("autobatch")


class Matrices:
    """The matrices of a program, packed once each."""

    def __init__(self, values: Mapping[Variable, Any], makers: Mapping[Variable, Equation]) -> None:
        """`values`: of the variables that are known so far, and what made them: more of them as the program is traced,
        outside of its loops."""
        self.values, self.makers = values, makers
        self.packed: dict[tuple[Variable, int, str], Matrix] = {}

    def get(self, product: RowProduct, kernel: Registered) -> Matrix | None:
        """The matrix of a product as a kernel reads it, where it was packed."""
        return self.packed.get((product.weight, product.axis, kernel.target))

    def pack(self, product: RowProduct, choice: ProductChoice) -> Matrix | None:
        """The same, packed now where it was not; None where no kernel is chosen."""
        if choice.kernel is None or choice.packing is None:
            return None
        if (found := self.get(product, choice.kernel)) is None:
            found = pack(self._parts(product.weight), product.axis == 1, choice.packing)
            self.packed[product.weight, product.axis, choice.kernel.target] = found
        return found

    def _parts(self, weight: Variable) -> list[Any]:
        """The matrices of which a matrix is put together, one above the other: perhaps nobody else needs it whole."""
        maker = self.makers.get(weight)
        if isinstance(maker, Compute) and maker.op.name == "concatenate" and maker.op["dimension"] == 0:
            parts = [self.values.get(x) for x in maker.operands if isinstance(x, Variable)]
            if len(parts) == len(maker.operands) and all(p is not None and p.shape[0] for p in parts):
                return parts
        return [self.values[weight]]


def product_of_rows(
    option: str, equation: Equation, matrices: Matrices, capacity: int, rows: Callable[[Variable], Any], count: Any
) -> Any | None:
    """The result of an equation over all rows of a space, where it is a product that the kernel computes; else None.

    `rows`: those of an operand. Only the first `count` are multiplied, the others are zero."""
    product = row_product(equation)
    if product is None or product.weight not in matrices.values:
        return None
    choice = choose(option, product, capacity, once=True)
    if choice.kernel is None or (matrix := matrices.pack(product, choice)) is None:
        return None
    return multiply([(rows(product.row), None)], matrix, choice.kernel, count)


class LoopProducts:
    """Which products of a recurrence are the kernel's at which width, and their matrices, packed."""

    def __init__(self, option: str, recurrence: Recurrence, widths: Sequence[int], matrices: Matrices) -> None:
        """`matrices`: of the variables that are known before the loop."""
        require(option)
        self.makers: dict[Variable, Equation] = {
            r: e for t in recurrence.tasks for e in t.equations for r in results(e)
        }
        self.option, self.matrices = option, matrices
        for task in recurrence.tasks:
            for equation in task.equations:
                product = row_product(equation)
                if product is not None and product.weight in matrices.values:
                    self._prepare(product, widths)

    def _prepare(self, product: RowProduct, widths: Sequence[int]) -> None:
        """Pack the matrix of a product where the kernel computes it at some width."""
        for width in widths:
            choice = choose(self.option, product, width)
            shape = f"[{width}, {product.contracted}] x [{product.contracted}, {product.columns}]"
            by = "XLA" if choice.kernel is None else choice.kernel.target
            logger.debug("product %s of the line %s by %s: %s", shape, product.equation.span.line, by, choice.why)
            self.matrices.pack(product, choice)

    def of(
        self,
        equation: Equation,
        width: int,
        row: Callable[[Atom], Any],
        gathered: Callable[[Gather], Source],
    ) -> Any | None:
        """The result of an equation for one window, where it is a product that the kernel computes; else None.

        `row`: the window's rows of an operand. `gathered`: what a gather reads, and which rows."""
        product = row_product(equation)
        if product is None:
            return None
        kernel = choose(self.option, product, width).kernel
        if kernel is None or (matrix := self.matrices.get(product, kernel)) is None:
            return None
        return multiply(self._sources(product.row, matrix.dtype, row, gathered), matrix, kernel)

    def _sources(
        self, x: Variable, dtype: Any, row: Callable[[Atom], Any], gathered: Callable[[Gather], Source]
    ) -> list[Source]:
        """The rows of an operand, as the kernel gathers them itself: straight from where they come from."""
        maker = self.makers.get(x)
        if isinstance(maker, Gather):
            source = gathered(maker)
            if source[0].dtype == dtype:
                return [source]
        if isinstance(maker, Compute) and maker.op.name == "concatenate":
            parts = [p for p in maker.operands if isinstance(p, Variable) and p.space is not None]
            if len(parts) == len(maker.operands) and all(p.type.shape[0] for p in parts):
                return [s for p in parts for s in self._sources(p, dtype, row, gathered)]
        return [(row(x), None)]
