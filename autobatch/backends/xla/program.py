"""Equations over rows as one program of XLA, with its derivatives; the back end `xla`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from autobatch.backends.interface import Cost, Declined, Load, Mode, RowEquations, Work
from autobatch.backends.row_operations import is_float
from autobatch.backends.xla.adjoint import AdjointProgram
from autobatch.backends.xla.emit import Emission, ScheduleEmitter
from autobatch.backends.xla.level_tasks import all_by_kernel
from autobatch.backends.xla.machine import machine
from autobatch.backends.xla.rows import rows_read
from autobatch.common.sparse_rows import SparseRows
from autobatch.data.spec import Signature
from autobatch.errors import UnsupportedError
from autobatch.ir import core
from autobatch.ir.system import Compute, Equation, Variable
from autobatch.options import Options
from autobatch.passes.adjoint import Adjoint, RowCotangents, differentiate
from autobatch.passes.costs import TYPICAL, MachineCosts
from autobatch.passes.derivative_rules import Policy
from autobatch.passes.fission import Recurrence, Schedule, print_schedule
from autobatch.planning.plan import DataPlan

# ---- costs
#
# What a call of XLA costs: the executable, control flow on computed numbers, and the plan of examples of structure.
#
# The constants are microseconds (`_ns`: nanoseconds), fitted to 402 calls and 242 derivatives by
# `python -m benchmarks.choice.fit`. Control flow costs from 0.2 ms to seconds; the constants are of its cheapest kinds,
# as machine code is the faster one of all.


MANY, LARGE, SHARED, PRODUCTS = 16, 256, 30_000, 200_000
"""Rows from which on a product of many rows is another one, and from which on threads share so many numbers; the
multiplications from which on they share products of fewer rows."""


@dataclass(frozen=True)
class XlaConstants:
    """`call`: of one executable. `operation_ns`: those that XLA does not fuse. Of each row: numbers that are made,
    multiplications of products, and products and sorts that each row has for itself (`own`). `dot`: a product of many
    rows. `control`: data-dependent control flow; `inside_ns`: of each row, the multiplications in there. `plan`,
    `plan_row`, `plan_operation_ns`: where lists and objects come with the call, or integers decide a recursion; of each
    row, and of each of its operations. `planned`: where their
    plan is kept; `level`: a loop over them whose steps have no product; `case`: a branch in a recursion. `wake`:
    threads that share the rows. `planned_*`: of examples of structure, numbers and multiplications, as there are few
    iterations, and more of products whose factors each row has for itself (`planned_own_ns`)."""

    call: float
    operation_ns: float
    element_ns: float
    multiplication_ns: float
    own: float
    dot: float
    control: float
    inside_ns: float
    plan: float
    plan_row: float
    plan_operation_ns: float
    planned: float
    level: float
    case: float
    wake: float
    planned_element_ns: float
    planned_multiplication_ns: float
    planned_own_ns: float


VALUES = XlaConstants(
    17.0, 0.62, 0.22, 0.014, 1.3, 7.8, 260.0, 0.28, 7000.0, 0.91, 92.0, 170.0, 2.1, 1.3, 94.0, 0.0057, 0.017, 1.1
)
DERIVATIVES = XlaConstants(
    36.0, 78.0, 1.4, 0.02, 1.3, 16.0, 840.0, 4.4, 5900.0, 10.0, 46.0, 170.0, 320.0, 260.0, 30.0, 0.025, 0.098, 5.2
)

LAUNCH, GPU_CALL, TURNS = 10.0, 80.0, 16
"""On a GPU: of a kernel in a loop, and of a call; iterations that such a loop is taken to have."""

START, OPERATION = 0.3, 5e-4
"""Seconds to compile at least, and for each operation (medians of the same programs)."""
MOST_UNROLLED = 3000
"""Operations from which on loops stay loops."""


def cost(work: Work, load: Load, constants: XlaConstants | None = None) -> Cost:
    """What a call costs."""
    of = constants or (DERIVATIVES if load.derives else VALUES)
    is_planned = work.structured or work.recursions > work.following
    rows, controls = load.rows, work.decided if is_planned else work.loops + work.branches + work.fails
    first = (START + OPERATION * min(work.operations, MOST_UNROLLED)) * (2 if load.derives else 1)
    if load.device == "gpu":
        return Cost(GPU_CALL + LAUNCH * TURNS * min(controls, work.loops), first)
    wakes = not is_planned and work.dots > 0 and rows * work.products > PRODUCTS
    wakes = wakes or (rows > LARGE and (work.dots > 0 or rows * work.elements > SHARED))
    row = of.element_ns * work.elements + of.multiplication_ns * work.multiplications
    if is_planned:
        row = of.planned_element_ns * work.elements + of.planned_multiplication_ns * work.multiplications
        row += of.planned_own_ns * work.own_multiplications
    call = of.call + of.wake * wakes + rows * (1e-3 * row + of.own * work.own)
    if is_planned:
        call += of.planned + of.level * work.loops * (not work.dots) + of.case * work.branches * work.recursions
        call += 0.0 if load.planned else of.plan + (of.plan_row + 1e-3 * of.plan_operation_ns * work.operations) * rows
    else:
        call += 1e-3 * of.operation_ns * work.operations + of.dot * work.dots * (rows > MANY)
    if controls:
        call += of.control + 1e-3 * of.inside_ns * work.inside * rows
    return Cost(call, first)


# ---- differentiable
#
# A program with its derivative, for JAX: `jax.custom_vjp` around the emitted computation.
#
# Nothing is differentiated before a derivative is asked for. The two halves of a derivative, the forward pass that
# keeps residuals and the backward pass that reads them, are programs like the first, and have derivatives in turn: to
# any order. The rule lets no value of an enclosing trace in but by its arguments, so that it works under `jax.jit`,
# `jax.vmap` and `jax.checkpoint`.


class Differentiable:
    """An emitted program that JAX can differentiate. `root` is the schedule that its tables were made for. `by_rows`:
    for `linearised`, where the cotangents of tables that are read by rows are these rows. `cut`: examples that failed
    have no derivative (`passes/adjoint.py`)."""

    def __init__(
        self,
        program: ScheduleEmitter,
        root: Schedule,
        policy: Policy = "save_dots",
        by_rows: bool = False,
        cut: bool = False,
    ) -> None:
        self.program, self.root, self.policy, self.by_rows, self.cut = program, root, policy, by_rows, cut

    @cached_property
    def adjoint(self) -> Adjoint | None:
        """The adjoint; None where nothing that an output depends on can move."""
        program = self.program
        return differentiate(program.schedule, self.root, program.constants, self.policy, self.by_rows, self.cut)

    @cached_property
    def residuals(self) -> tuple[Variable, ...]:
        return self.adjoint.residuals if self.adjoint is not None else ()

    @cached_property
    def keeping(self) -> Differentiable:
        """The program with the residuals of its adjoint as outputs behind its own."""
        system = self.program.schedule.system
        wider = replace(system, outputs=(*system.outputs, *self.residuals))
        program = replace(self.program, schedule=replace(self.program.schedule, system=wider))
        return Differentiable(program, self.root, self.policy, cut=self.cut)

    @cached_property
    def reverse(self) -> Differentiable:
        """The adjoint as a program."""
        assert self.adjoint is not None
        program = self.program
        made = AdjointProgram(
            self.adjoint.schedule, program.request, self.adjoint.constants, program.products, program.loops, self.root
        )
        return Differentiable(made, self.root, self.policy, cut=self.cut)

    def as_text(self) -> str:
        """What the adjoint is handed of the values of the program, and its schedule."""
        if self.adjoint is None:
            return "nothing that can move\n"
        kept = ", ".join(f"{v}: {v.type}" for v in self.residuals)
        return f"residuals, {self.policy}: {kept or 'none'}\n{print_schedule(self.adjoint.schedule)}"

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        handed: Sequence[Any] = (),
        mode: Mode = "reverse",
    ) -> list[Any]:
        """The outputs of the system: arrays over the capacity of their spaces."""
        assert not self.by_rows
        if mode == "forward":
            return self.program.run(shared, tables, signature, handed)
        moving, still = _split(tables)
        inner: Mode = "reverse" if mode == "reverse" else "forward"

        @jax.custom_vjp
        def apply(shared: list[Any], moving: dict[str, Any], handed: list[Any], still: dict[str, Any]) -> list[Any]:
            return self.program.run(shared, {**moving, **still}, signature, handed)

        def forward(shared: list[Any], moving: dict[str, Any], handed: list[Any], still: dict[str, Any]) -> Any:
            found = self.keeping.run(shared, {**moving, **still}, signature, handed, inner)
            count = len(self.program.schedule.system.outputs)
            return found[:count], (found[count:], shared, moving, handed, still)

        def backward(held: Any, cotangents: list[Any]) -> Any:
            kept, shared, moving, handed, still = held
            return *self.pulled(shared, moving, handed, still, signature, kept, cotangents, inner), None

        apply.defvjp(forward, backward)
        outputs: list[Any] = apply([jnp.asarray(x) for x in shared], moving, list(handed), still)
        return outputs

    def pulled(
        self,
        shared: Sequence[Any],
        moving: Mapping[str, Any],
        handed: Sequence[Any],
        still: Mapping[str, Any],
        signature: Signature,
        kept: Sequence[Any],
        cotangents: Sequence[Any],
        mode: Mode,
    ) -> tuple[list[Any], dict[str, Any], list[Any]]:
        """The cotangents of shared inputs, of columns of floats and of what was handed in, from those of the outputs
        and the residuals `kept`."""
        adjoint = self.adjoint
        rows = {} if adjoint is None else adjoint.rows
        of_shared: list[Any] = [
            jnp.zeros_like(x) if is_float(x) and k not in rows else None for k, x in enumerate(shared)
        ]
        of_columns = {name: jnp.zeros_like(x) for name, x in moving.items()}
        of_handed: list[Any] = [jnp.zeros_like(x) if is_float(x) else None for x in handed]
        if adjoint is None:
            return of_shared, of_columns, of_handed
        tables = {**moving, **still}
        given = [*kept, *(cotangents[k] for k in adjoint.seeds)]
        made = self.reverse.run(shared, tables, signature, given, mode)
        assert len(set(adjoint.shared)) == len(adjoint.shared), "each input is one variable"
        found = iter(made)
        for k in adjoint.shared:
            of_shared[k] = next(found).astype(shared[k].dtype)
        for column in adjoint.columns:
            of_columns[column] = next(found).astype(moving[column].dtype)
        for k in adjoint.given:
            of_handed[k] = next(found).astype(handed[k].dtype)
        emission = Emission(self.reverse.program, shared, tables, signature)
        for k, parts in rows.items():
            read = [_rows(emission, part, made) for part in parts]
            indices, values = (jnp.concatenate(xs) if len(xs) > 1 else xs[0] for xs in zip(*read, strict=True))
            of_shared[k] = SparseRows(indices, values.astype(shared[k].dtype), shared[k].shape)
        return of_shared, of_columns, of_handed

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs, and the pullback of their cotangents (of those that are floats; None for others) to shared
        inputs and columns of floats. The pullback is a pytree."""
        inner: Mode = "reverse" if mode == "reverse" else "forward"
        moving, still = _split(tables)
        held = [jnp.asarray(x) for x in shared]
        found = self.keeping.run(held, tables, signature, (), inner)
        count = len(self.program.schedule.system.outputs)
        pull = _Pull(self, signature, inner)
        return found[:count], jax.tree_util.Partial(pull, held, moving, still, found[count:])


@dataclass(frozen=True)
class _Pull:
    """A pullback but for its arrays: what `jax.jit` compares."""

    of: Differentiable
    signature: Signature
    mode: Mode

    def __call__(
        self, shared: Any, moving: Any, still: Any, kept: Any, cotangents: Sequence[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        of_shared, of_columns, _ = self.of.pulled(
            shared, moving, (), still, self.signature, kept, cotangents, self.mode
        )
        return of_shared, of_columns


def _rows(emission: Emission, part: RowCotangents, outputs: Sequence[Any]) -> tuple[Any, Any]:
    """The indices and rows of a read, of the outputs of an adjoint."""
    indices = [emission.literal(x) if isinstance(x, core.Literal) else outputs[x] for x in part.indices]
    return rows_read(part.of, indices, outputs[part.cotangent], emission.live(part.of), clean=True)


def _split(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of floats, and everything else."""
    moving = {name: jnp.asarray(x) for name, x in tables.items() if is_float(x)}
    return moving, {name: x for name, x in tables.items() if name not in moving}


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
        return cost(work, load)

    def compile(self, taken: XlaProgram) -> XlaProgram:
        """The same: JAX traces it when it is run first."""
        return taken


def _multiply(equations: Iterable[Equation]) -> bool:
    return any(isinstance(e, Compute) and e.op.name == "dot_general" for e in equations)
