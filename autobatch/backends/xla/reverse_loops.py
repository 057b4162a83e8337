"""The level loops of a derivative, last level first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.inverse import Runs, scaled
from autobatch.backends.xla.loops import LevelLoop
from autobatch.backends.xla.rows import take
from autobatch.ir import jax_compat
from autobatch.ir.system import Collect, Compute, Equation, Follow, Variable, reads
from autobatch.passes.schedule.fission import Recurrence, RowOrder, Task

if TYPE_CHECKING:
    from autobatch.backends.xla.adjoint import AdjointEmission


class ReverseLoop(LevelLoop):
    """A level loop of a derivative: rows add up what the rows that have read them hand down, or read such sums."""

    e: AdjointEmission

    def __init__(self, emission: AdjointEmission, recurrence: Recurrence, before: Sequence[Task]) -> None:
        super().__init__(emission, recurrence, before)
        self.runs: dict[Variable, Runs] = {}
        for task in recurrence.tasks:
            for equation in task.equations:
                if isinstance(equation, Collect | Follow):
                    first = emission.beginnings(self.buffer_of(equation))
                    self.runs[equation.result] = emission.runs(equation, first)
                for x in reads(equation):
                    if isinstance(equation, Compute) and x in self.made and self.made[x].order != task.order:
                        emission.permutation(task.order, self.made[x].order)

    def runs_of(self, equation: Collect | Follow) -> Runs:
        return self.runs[equation.result]

    def buffer_of(self, equation: Collect | Follow) -> tuple[Variable, ...]:
        """The variables of the buffer that is read."""
        inside = self.made.keys() & set(equation.sources)
        return next(g for g in self.recurrence.buffers if not inside.isdisjoint(g))

    def gathered(self, equation: Equation, order: RowOrder, start: Any, width: int, buffers: list[Any]) -> Any:
        if not isinstance(equation, Collect | Follow):
            return super().gathered(equation, order, start, width, buffers)
        runs = self.runs[equation.result]
        source = self.source(equation, buffers)
        dtype = jax_compat.device_dtype(equation.result.type)

        def entry(where: Any, live: Any) -> Any:
            held = jnp.where(live, where, 0)
            index = take(runs.index, held)
            live = live & (index >= 0)
            values = take(source, jnp.where(live, index, 0)).astype(dtype)
            if runs.factors is not None:
                values = scaled(values, take(runs.factors, held))
            return jnp.where(live.reshape((width,) + (1,) * (values.ndim - 1)), values, jnp.zeros_like(values))

        if runs.first is None:
            return entry(start + jnp.arange(width), jnp.ones(width, bool))
        first, count = (
            jax.lax.dynamic_slice_in_dim(x, start, width, allow_negative_indices=False)
            for x in (runs.first, runs.count)
        )
        longest = jnp.max(count)

        def more(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            at, total = carry
            return at + 1, total + entry(first + at, at < count)

        begin = jnp.int32(1), entry(first, count > 0)
        return jax.lax.while_loop(lambda c: c[0] < longest, more, begin)[1]
