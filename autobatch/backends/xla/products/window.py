"""The products of a level loop that the kernel computes: matrices packed before it, rows gathered in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autobatch.backends.xla.products.choice import choose, require
from autobatch.backends.xla.products.operation import Source, multiply, pack
from autobatch.ir.system import Atom, Compute, Equation, Gather, Variable, results
from autobatch.optimize.contractions import Product, row_product
from autobatch.optimize.fission import Recurrence

__all__ = ["LoopProducts", "Source"]

logger = logging.getLogger("autobatch")


class LoopProducts:
    """Which products of a recurrence are the kernel's at which width, and their matrices, packed."""

    def __init__(
        self, option: str, recurrence: Recurrence, widths: Sequence[int], values: Mapping[Variable, Any]
    ) -> None:
        """`values`: of the variables that are known before the loop, the matrices among them."""
        require(option)
        self.makers: dict[Variable, Equation] = {
            r: e for t in recurrence.tasks for e in t.equations for r in results(e)
        }
        self.option, self.values = option, values
        self.packed: dict[tuple[Variable, int, str], tuple[Any, Any]] = {}
        for task in recurrence.tasks:
            for equation in task.equations:
                product = row_product(equation)
                if product is not None and product.weight in values:
                    self._prepare(product, widths)

    def _prepare(self, product: Product, widths: Sequence[int]) -> None:
        """Pack the matrix of a product where the kernel computes it at some width."""
        for width in widths:
            choice = choose(self.option, product, width)
            shape = f"[{width}, {product.contracted}] x [{product.contracted}, {product.columns}]"
            by = "XLA" if choice.kernel is None else choice.kernel.target
            logger.debug("product %s of the line %s by %s: %s", shape, product.equation.span.line, by, choice.why)
            if choice.kernel is not None:
                key = (product.weight, product.axis, choice.kernel.target)
                if key not in self.packed:
                    weight = self.values[product.weight]
                    weight = weight if product.axis == 0 else weight.T
                    self.packed[key] = (weight, pack(weight, choice.kernel))

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
        if product is None or product.weight not in self.values:
            return None
        kernel = choose(self.option, product, width).kernel
        if kernel is None:
            return None
        weight, packed = self.packed[product.weight, product.axis, kernel.target]
        return multiply(self._sources(product.row, weight.dtype, row, gathered), weight, packed, kernel)

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
