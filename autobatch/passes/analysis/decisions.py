"""What shared integers decide, computed on the host at every call: what a plan is for.

if n > 3:                 n = 4, n = 5: one plan, for True          n = 2: another one, for False
f(node.left, n - 1)       a plan for each n
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.spec import Number
from autobatch.ir import host_ops
from autobatch.ir.core import Apply, Literal, Module, Operand, Value, walk
from autobatch.ir.types import Array


class Decisions:
    """The values `asked` of a module, as functions of shared values alone: those at the positions `deciding`."""

    def __init__(self, module: Module, asked: Sequence[Value]) -> None:
        self.asked, self.constants = asked, module.constants
        makers = {r: i for f in module.functions for i in walk(f.region) if isinstance(i, Apply) for r in i.results}
        self.steps: list[Apply] = []
        needed: set[Value] = set()
        todo: list[Operand] = list(asked)
        while todo:
            value = todo.pop()
            if isinstance(value, Value) and value not in needed:
                needed.add(value)
                if value in makers:
                    todo += makers[value].operands
        for made in makers.values():
            if not needed.isdisjoint(made.results) and made not in self.steps:
                self.steps.append(made)
        self.deciding = tuple(k for k, x in enumerate(module.shared) if x in needed)
        self.read = tuple(module.shared[k] for k in self.deciding)

    def values(self, integers: Sequence[int]) -> tuple[Number, ...]:
        """The values of `asked`, for values of the shared inputs at `deciding`."""
        held = {x: np.array([n]) for x, n in zip(self.read, integers, strict=True)}
        for step in self.steps:
            types = [r.type for r in step.results if isinstance(r.type, Array)]
            operands = [self.literal(x) if isinstance(x, Literal) else held[x] for x in step.operands]
            held.update(zip(step.results, host_ops.evaluate(step.op, types, operands, 1), strict=True))
        return tuple(held[x][0].item() for x in self.asked)

    def literal(self, x: Literal) -> NDArray[Any]:
        return np.asarray(x.value if x.constant < 0 else self.constants[x.constant])[None]
