"""A program with its derivative, for JAX: `jax.custom_vjp` around the emitted computation.

Nothing is differentiated before a derivative is asked for. The two halves of a derivative, the forward pass that keeps
residuals and the backward pass that reads them, are programs like the first, and have derivatives in turn: to any
order. The rule lets no value of an enclosing trace in but by its arguments, so that it works under `jax.jit`,
`jax.vmap` and `jax.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.interface import Mode
from autobatch.backends.xla.adjoint import AdjointProgram
from autobatch.backends.xla.emit import Emission, ScheduleEmitter
from autobatch.backends.xla.lanes import is_float
from autobatch.backends.xla.row_reads import rows_read
from autobatch.common.sparse_rows import SparseRows
from autobatch.data.tables import Signature
from autobatch.ir import core
from autobatch.ir.system import Variable
from autobatch.passes.autodiff import Adjoint, Policy, RowCotangents, differentiate
from autobatch.passes.schedule.fission import Schedule, print_schedule


class Differentiable:
    """An emitted program that JAX can differentiate. `root` is the schedule that its tables were made for. `by_rows`:
    for `linearised`, where the cotangents of tables that are read by rows are these rows. `cut`: examples that failed
    have no derivative (`passes/autodiff/cut.py`)."""

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
