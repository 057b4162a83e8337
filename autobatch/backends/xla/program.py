"""Equations over rows as one program of XLA, with its derivatives; the back end `xla`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from autobatch.backends.interface import Cost, Declined, Load, Mode, RowEquations, Work
from autobatch.backends.xla import costs
from autobatch.backends.xla.differentiable import Differentiable
from autobatch.backends.xla.emit import ScheduleEmitter
from autobatch.backends.xla.machine import machine
from autobatch.backends.xla.native.eligible import all_by_kernel
from autobatch.data.tables import Signature
from autobatch.errors import UnsupportedError
from autobatch.ir.system import Compute, Equation
from autobatch.options import Options
from autobatch.passes.autodiff import Policy
from autobatch.passes.schedule.costs import TYPICAL, MachineCosts
from autobatch.passes.schedule.fission import Recurrence, Schedule
from autobatch.planning.plan import DataPlan


def window_costs(schedule: Schedule, options: Options) -> MachineCosts:
    """What the covers of levels go by: this machine is measured only where there are levels, and XLA runs them."""
    if options.backend == "interpret" or not any(isinstance(s, Recurrence) for s in schedule.steps):
        return TYPICAL
    if all_by_kernel(schedule, options.loops, options.products, options.widths):
        return TYPICAL
    return machine(options.window_costs)


class XlaProgram:
    """Rows as JAX traces them; what cannot be emitted is refused when it is made."""

    def __init__(self, rows: RowEquations) -> None:
        self.rows = rows
        options = rows.options
        self._emit = ScheduleEmitter(rows.schedule, rows.request, rows.constants, options.products, options.loops)

    @cached_property
    def differentiable(self) -> Differentiable:
        """The program that JAX can differentiate."""
        return self._differentiable(False)

    @cached_property
    def _by_rows(self) -> Differentiable:
        return self._differentiable(True)

    def _differentiable(self, by_rows: bool) -> Differentiable:
        policy = cast(Policy, self.rows.options.residuals)
        return Differentiable(self._emit, self.rows.schedule, policy, by_rows, self.rows.cut)

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> list[Any]:
        """The outputs, for `jax.jit` with `signature` and `mode` static. (The plan is in the tables.)"""
        return self.differentiable.run(shared, tables, signature, mode=mode)

    def gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs and their pullback, in which tables that are read by rows have the cotangents of these rows
        (`SparseRows`)."""
        return self._by_rows.linearised(shared, tables, signature, mode)

    @property
    def tables_of_rows(self) -> frozenset[int]:
        """The shared inputs that are read by rows alone."""
        adjoint = self._by_rows.adjoint
        return frozenset() if adjoint is None else frozenset(adjoint.rows)

    @property
    def runs_step_by_step(self) -> bool:
        """Are there loops from whose steps XLA gains nothing: what numbers end, levels without a product, and those for
        which there is no kernel?"""
        schedule, options = self.rows.schedule, self.rows.options
        recurrences = [s for s in schedule.steps if isinstance(s, Recurrence)]
        if not recurrences:
            return schedule.holds_masked_loop
        multiplied = _multiply(e for r in recurrences for t in r.tasks for e in t.equations)
        kernel = multiplied and all_by_kernel(schedule, options.loops, options.products, options.widths)
        return not kernel or schedule.holds_masked_loop


class Xla:
    """Rows of many examples meet in one operation, on the device where JAX computes."""

    name: ClassVar[str] = "xla"

    def accepts(self, source: RowEquations) -> XlaProgram | Declined:
        """The program as it is emitted, which XLA compiles for each size class."""
        try:
            return XlaProgram(source)
        except UnsupportedError as error:
            return Declined(error)

    def cost(self, work: Work, load: Load) -> Cost:
        """See `costs.py`."""
        return costs.cost(work, load)

    def compile(self, taken: XlaProgram) -> XlaProgram:
        """The same: JAX traces it when it is run first."""
        return taken


def _multiply(equations: Iterable[Equation]) -> bool:
    return any(isinstance(e, Compute) and e.op.name == "dot_general" for e in equations)
