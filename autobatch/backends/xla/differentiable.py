"""A program with its derivative, for JAX: `jax.custom_vjp` around the emitted computation.

Nothing is differentiated before a derivative is asked for. The rule lets no value of an enclosing trace in but by its
arguments, so that it works under `jax.jit`, `jax.vmap` and `jax.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.autodiff import Adjoint, differentiate
from autobatch.backends.xla.adjoint import AdjointProgram
from autobatch.backends.xla.emit import Program
from autobatch.optimize.fission import print_schedule
from autobatch.runtime.tables import Signature


class Differentiable:
    """An emitted program that JAX can differentiate in reverse."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def adjoint(self) -> Adjoint | None:
        """The adjoint; None where nothing that an output depends on can move."""
        return differentiate(self.program.schedule, self.program.constants)

    def as_text(self) -> str:
        """The schedule of the adjoint."""
        return print_schedule(self.adjoint.schedule) if self.adjoint is not None else "nothing that can move\n"

    def run(self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature) -> list[Any]:
        """The outputs of the system: arrays over the capacity of their spaces."""
        moving, still = _split(tables)

        @jax.custom_vjp
        def apply(shared: list[Any], moving: dict[str, Any], still: dict[str, Any]) -> list[Any]:
            return self.program.run(shared, {**moving, **still}, signature)[0]

        def forward(shared: list[Any], moving: dict[str, Any], still: dict[str, Any]) -> Any:
            keep = self.adjoint.residuals if self.adjoint is not None else ()
            outputs, kept = self.program.run(shared, {**moving, **still}, signature, keep)
            return outputs, (kept, shared, moving, still)

        def backward(held: Any, cotangents: list[Any]) -> Any:
            kept, shared, moving, still = held
            return *self.pull_back(kept, shared, moving, still, cotangents, signature), None

        apply.defvjp(forward, backward)
        outputs: list[Any] = apply([jnp.asarray(x) for x in shared], moving, still)
        return outputs

    def pull_back(
        self,
        kept: Sequence[Any],
        shared: Sequence[Any],
        moving: Mapping[str, Any],
        still: Mapping[str, Any],
        cotangents: Sequence[Any],
        signature: Signature,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The cotangents of the shared inputs (None for integers) and of the columns of floats."""
        of_shared = [jnp.zeros_like(x) if _moves(x) else None for x in shared]
        of_columns = {name: jnp.zeros_like(x) for name, x in moving.items()}
        adjoint = self.adjoint
        if adjoint is None:
            return of_shared, of_columns
        program = self.program
        reverse = AdjointProgram(
            adjoint.schedule, program.request, adjoint.constants, program.products, program.schedule
        )
        handed = [*kept, *(cotangents[k] for k in adjoint.seeds)]
        found = iter(reverse.run_adjoint(shared, {**moving, **still}, signature, handed))
        for k in adjoint.shared:
            of_shared[k] = of_shared[k] + next(found).astype(shared[k].dtype)
        for column in adjoint.columns:
            of_columns[column] = of_columns[column] + next(found).astype(moving[column].dtype)
        return of_shared, of_columns


def _moves(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _split(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of floats, and everything else."""
    moving = {name: jnp.asarray(x) for name, x in tables.items() if _moves(x)}
    return moving, {name: x for name, x in tables.items() if name not in moving}
