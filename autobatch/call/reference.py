"""The reference back end for a batch that is its leaves: planned on the host when the computation runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from autobatch.backends.interpret.callback import on_host
from autobatch.call import transfer
from autobatch.call.batches.data import Examples, raw
from autobatch.call.batches.groups import TOKEN, Group, data_tables, with_rows
from autobatch.call.ready import PlannedProgram, Ready
from autobatch.compiler import pipeline
from autobatch.compiler.differentials import moves
from autobatch.errors import ExampleError, PlanError
from autobatch.planning.plan import DataPlan


class Planning(PlannedProgram, Protocol):
    """A specialisation, as far as the reference back end needs it."""

    compiled: pipeline.CompiledProgram


@dataclass
class Reference:
    """One call. The operands of the host's computation are the columns of the examples, the batched arguments that are
    arrays, and the shared arguments, in this order."""

    program: Planning
    shared: Sequence[Any]
    ready: Ready
    examples: Examples

    def __post_init__(self) -> None:
        assert self.examples.leaves is not None
        self.leaves, self.form = self.examples.leaves
        tables, columns = dict(self.ready.tables), self.leaves.columns
        self.data = data_tables(self.program, tables, columns, self.form.schema)
        # floats are read where a derivative moves them: from the tables of the call
        moved = {c: with_rows(tables[t], columns[c].shape[0]) for t, c, _ in self.data if moves(tables[t])}
        self.columns = {n: x for n, x in {**columns, **moved}.items() if n != TOKEN}
        self.arrays = {k: self.array(k) for k in self.examples.arrays}

    def array(self, index: int) -> Any:
        """A batched argument that is an array."""
        given, table = self.examples.arrays[index], self.ready.tables.get(self.program.array_table(index))
        return given if table is None or not moves(table) else with_rows(table, given.shape[0])

    def evaluate(self, shapes: Sequence[jax.ShapeDtypeStruct]) -> Sequence[Any]:
        """The arrays that the results are made of."""
        shared = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in self.shared]
        keys = {k: jax.random.key_impl(x) for k, x in enumerate(shared) if _is_key(x)}
        operands = [*self.columns.values(), *map(raw, self.arrays.values())]
        operands += [jax.random.key_data(x) if k in keys else x for k, x in enumerate(shared)]

        def now(known: Sequence[Any], live: Sequence[Any]) -> list[Any]:
            columns, arrays, given = self.parts(live)
            plan = self.plan(self.parts(known)[0])
            held = [jax.random.wrap_key_data(x, impl=keys[k]) if k in keys else x for k, x in enumerate(given)]
            spaces = dict(plan.request.data)
            data = {t: columns[c][: plan.rows(spaces[t])] for t, c, _ in self.data if t in spaces}
            data |= {t: x for t, x in arrays.items() if t in spaces}
            made = self.program.compiled.evaluate(held, plan, data)
            return [_padded(x, s) for x, s in zip(made, shapes, strict=True)]

        return on_host(now, shapes, operands)

    def parts(self, operands: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any], Sequence[Any]]:
        """Columns by name, arrays by table, shared arguments."""
        first, second = len(self.columns), len(self.columns) + len(self.arrays)
        tables = [self.program.array_table(k) for k in self.arrays]
        columns = dict(zip(self.columns, operands[:first], strict=True))
        return columns, dict(zip(tables, operands[first:second], strict=True)), operands[second:]

    def plan(self, columns: Mapping[str, Any]) -> DataPlan:
        """The plan of the examples, from their columns."""
        form = self.form
        held = transfer.from_leaves(form.schema, form.count, dict(form.enums), columns)
        plan = self.program.plan(Group(held, form.width).components)
        assert isinstance(plan, DataPlan)
        if plan.failures and not self.program.masks:
            raise ExampleError(plan.failures)
        return plan


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _padded(x: Any, shape: jax.ShapeDtypeStruct) -> Any:
    """An array with the rows that its size class has."""
    missing = shape.shape[0] - x.shape[0]
    if missing < 0:
        raise PlanError("stale plan: the examples have other rows than those that were planned; call .plan(f) again")
    return jnp.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)) if missing else x
