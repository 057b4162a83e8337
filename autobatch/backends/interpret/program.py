"""Equations over rows as the reference runs them, row by row; the back end `interpret`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from autobatch.backends.interface import Cost, Declined, Load, Mode, RowEquations, Work
from autobatch.backends.interpret import demand
from autobatch.backends.interpret.callback import decided_on_host, has_derivative
from autobatch.data.tables import Signature
from autobatch.planning.plan import DataPlan

ROW = 50.0
"""Microseconds for an operation of JAX on one row."""


class Interpreted:
    """A system of equations, each row of which is computed when something asks for it."""

    def __init__(self, rows: RowEquations) -> None:
        self.rows = rows

    def run(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature | None = None,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> list[Any]:
        """The outputs, for as many rows as `plan` has. Columns of data among the `tables` may hold other numbers than
        those that were planned."""
        assert plan is not None, "the reference runs what has been planned"
        spaces = dict(plan.request.data)
        data = {c: tables[c][: plan.rows(space)] for c, space in spaces.items() if c in tables}
        whole = replace(plan, data={**plan.data, **data})

        def evaluate(shared: Sequence[Any], data: Mapping[str, Any]) -> list[Any]:
            live, rows = replace(whole, data={**whole.data, **data}), self.rows
            return demand.run(rows.system, live, shared, rows.constants, rows.status)

        return decided_on_host(evaluate, demand.shapes(self.rows.system, whole), shared, data)

    def gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature | None = None,
        mode: Mode = "reverse",
        plan: DataPlan | None = None,
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The outputs and their pullback, by JAX's derivative of each operation."""
        moving = {k: jnp.asarray(x) for k, x in enumerate(shared) if has_derivative(x)}
        columns = {n: jnp.asarray(x) for n, x in tables.items() if has_derivative(x)}

        def run(moving: Mapping[int, Any], columns: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
            whole = [moving.get(k, x) for k, x in enumerate(shared)]
            found = self.run(whole, {**tables, **columns}, signature, mode, plan)
            return [x for x in found if has_derivative(x)], found

        _, back, found = jax.vjp(run, moving, columns, has_aux=True)

        def pull(cotangents: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
            of_shared, of_columns = back([c for c, x in zip(cotangents, found, strict=True) if has_derivative(x)])
            return [of_shared.get(k) for k in range(len(shared))], of_columns

        return found, pull


class Interpret:
    """The meaning of programs: slow, and obviously right."""

    name: ClassVar[str] = "interpret"

    def accepts(self, source: RowEquations) -> RowEquations | Declined:
        """All of them."""
        return source

    def cost(self, work: Work, load: Load) -> Cost:
        """Each operation of each row is one of JAX, outside of any compiled program."""
        return Cost(ROW * work.operations * load.rows * (3 if load.derives else 1), 0.0)

    def compile(self, taken: RowEquations) -> Interpreted:
        """There is nothing to compile."""
        return Interpreted(taken)
