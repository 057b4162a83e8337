"""The program over traces as a program of the examples: its tables are columns of the examples, which the numbers of
traces are read from on the device.

    Over        #given:Node.value  float32[n]     a column of the examples, which moves, or is a leaf of a batch
                #source:Row.k0, #row:Row.k0       where the numbers of a column of traces lie in them
    program     Row.k0  float32[m]                gathered from these; and its own tables

So everything that holds for programs of examples holds here: plans of data sets and minibatches, batches as leaves
under `jax.jit`, derivatives by batched arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import transfer
from autobatch.call.batches.data import Component, Examples
from autobatch.call.batches.groups import Group, Planner, Tables, data_tables
from autobatch.call.ready import Ready
from autobatch.call.specialise import SpecialisedProgram
from autobatch.call.tracing.links import Links, NumberOrigins, gathered
from autobatch.common.cache import Bounded
from autobatch.compiler import pipeline
from autobatch.compiler.differentials import Differentials
from autobatch.data.columns import Columns, columns_of
from autobatch.data.schema import Schema
from autobatch.errors import Failure, UnsupportedError
from autobatch.planning.plan import Share

GIVEN, ROWS, SOURCES = "#given:", "#row:", "#source:"
"""The prefixes of tables: of columns of the examples; of where the numbers of a table of the program lie in them."""


@dataclass(frozen=True)
class TracedPlan:
    """The traces of some examples, planned for the program over them. `columns`: of the examples that were traced,
    `chosen`: which of them are meant; None: all."""

    program: SpecialisedProgram
    rows: Group
    columns: Columns | None
    profile: Mapping[str, transfer.Profile] | None
    traced: tuple[Failure, ...]
    chosen: Any = None
    share: Share = "batch"

    @cached_property
    def inner(self) -> Any:
        """The plan of the traces."""
        return self.rows.plan(self.program).sharing(self.share)

    @cached_property
    def own(self) -> Columns | None:
        """The columns of these examples."""
        return self.columns if self.chosen is None or self.columns is None else self.columns.take(self.chosen)

    @property
    def failures(self) -> tuple[Failure, ...]:
        found: tuple[Failure, ...] = self.inner.failures
        traced = {f.index: f for f in self.traced}
        which = np.arange(self.rows.count) if self.chosen is None else self.chosen
        known = {n: replace(traced[k], index=n) for n, k in enumerate(which.tolist()) if k in traced}
        return tuple(known.get(f.index, f) for f in found)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def count(self) -> int:
        return self.rows.count

    def take(self, indices: Any) -> TracedPlan:
        chosen = indices if self.chosen is None else self.chosen[indices]
        return replace(self, rows=self.rows.take(indices), chosen=chosen)

    def sharing(self, share: Share) -> TracedPlan:
        return self if share == self.share else replace(self, share=share)


class Over(SpecialisedProgram):
    """The program over traces as one of the examples. `components`: the batched leaves of the function."""

    def __init__(
        self,
        inner: SpecialisedProgram,
        planner: Planner,
        components: tuple[Component, ...],
        origins: NumberOrigins,
        schema: Schema,
        trace: Callable[[Over, tuple[Columns, ...]], TracedPlan],
    ) -> None:
        self.__dict__.update(inner.__dict__)
        self.inner, self.planner, self.components, self.origins, self.schema = (
            inner, planner, components, origins, schema
        )  # fmt: skip
        self.fingerprint = f"{inner.fingerprint} over traces"
        self.on_host = frozenset(k for k, c in enumerate(components) if c.array and k not in origins.arrays)
        self._trace = trace
        self.compiled = self.gathering = _Gathering(
            inner.compiled, tuple(self._table(k) for k in range(len(origins.all)))
        )
        self.kept = Bounded(inner.kept.size)
        self.derivatives = Differentials(self.compiled, inner.derivatives.most, self.compiling)

    def _table(self, number: int) -> str:
        return GIVEN + self.origins.all[number].name

    @property
    def structure_columns(self) -> frozenset[str]:
        """All that is no number: a trace depends on it."""
        held = {o.name for o in self.origins.columns}
        return frozenset(c.name for c in columns_of(self.schema) if c.name not in held)

    def argument_columns(self, schema: Schema) -> dict[str, str]:
        return {GIVEN + o.name: o.name for o in self.origins.columns}

    def array_table(self, index: int) -> str:
        held = self.origins.arrays.get(index)
        return f"#array:{index}" if held is None else GIVEN + held.name

    def words(self, vocabularies: Mapping[str, tuple[Any, ...]]) -> Tables:
        """They are those of the traces, which `bind` knows."""
        return {}

    def at(self, leaves: Sequence[Any]) -> SpecialisedProgram:
        return self

    @property
    def by_xla(self) -> SpecialisedProgram:
        return self

    def bind(self, plan: Any, at_least: Sequence[Any] = (), arrays: bool = False) -> tuple[Tables, Hashable]:
        assert isinstance(plan, TracedPlan)
        tables, signature = self.inner.bind(plan.inner, at_least)
        rows = plan.rows.columns
        links = Links.find(rows.schema)
        absolute = links.absolute(rows, self.origins, plan.own)
        made = dict(tables)
        for table, column, count in data_tables(self.inner, tables, rows.arrays, rows.schema):
            if column in links.of:
                source, row, _ = links.of[column]
                made[SOURCES + table] = transfer.padded(absolute.arrays[source].astype(np.int32), count, -1)
                made[ROWS + table] = transfer.padded(absolute.arrays[row].astype(np.int32), count, 0)
        made |= self.inner.words(plan.rows.vocabularies)
        if plan.own is not None:
            room = transfer.capacities(plan.own, plan.profile)
            for origin in self.origins.columns:
                size = plan.count if origin.space is None else room[origin.space]
                made[GIVEN + origin.name] = transfer.padded(transfer.canonical(plan.own.arrays[origin.name]), size, 0)
        for origin in self.origins.arrays.values():
            made[GIVEN + origin.name] = np.zeros((plan.count, *origin.type.shape), origin.dtype)
        return made, signature

    def plan(self, components: tuple[Columns, ...]) -> Any:
        return self._trace(self, components)

    def plan_with(self, columns: tuple[Columns, ...], arrays: Mapping[int, Any], count: int) -> Any:
        raise NotImplementedError("arrays beside examples are traced with them, at every call")

    def ready(self, examples: Examples, plan: TracedPlan) -> Ready:
        """What the executable reads of examples that are known, with their plan."""
        if examples.width:
            found = examples.ready(self)
        else:
            found = examples.with_arrays(Ready(*self.bind(plan), plan.failures, plan), self)
        return without_words(found)

    def interpret(self, shared: Sequence[Any], ready: Ready, examples: Examples) -> Sequence[Any]:
        if not isinstance(ready.plan, TracedPlan):
            raise UnsupportedError(
                f"{self.name}: its structure is traced, and the reference back end takes no batch that is known under "
                "jax.jit alone",
                cure="call it outside of jax.jit, or on another back end",
            )
        tables = self.gathering.tables(ready.tables)
        return self.compiled.interpret(shared, ready.plan.inner, tables)


def without_words(ready: Ready) -> Ready:
    """Vocabularies are no tables of a program."""
    words = {n: t for n, t in ready.tables.items() if n.startswith(transfer.VOCABULARY)}
    if not words:
        return ready
    return replace(ready, tables={n: t for n, t in ready.tables.items() if n not in words}, words=words)


class _Gathering(pipeline.CompiledProgram):
    """A compiled program whose numbers are read from columns of the examples. `given`: the tables that these are."""

    def __init__(self, program: pipeline.CompiledProgram, given: tuple[str, ...]) -> None:
        self.__dict__.update(program.__dict__)
        self.program, self.given = program, given

    def tables(self, tables: Mapping[str, Any]) -> Tables:
        """The tables of the program over traces."""
        given = [jnp.asarray(tables[n]) if n in tables else jnp.zeros((0,)) for n in self.given]
        made = {n: t for n, t in tables.items() if not n.startswith((GIVEN, ROWS, SOURCES))}
        for name, own in made.items():
            if SOURCES + name in tables:
                source, row = tables[SOURCES + name], tables[ROWS + name]
                made[name] = gathered(jnp.asarray(own), jnp.asarray(source), jnp.asarray(row), given, jnp)
        return made

    def run(self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Any = "reverse") -> Any:
        return self.program.run(shared, self.tables(tables), signature, mode)

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Any = "reverse"
    ) -> tuple[list[Any], Any]:
        moving = {n: jnp.asarray(tables[n]) for n in self.given if n in tables}
        whole = self.tables(tables)
        linked = [n for n in whole if SOURCES + n in tables]

        def linked_tables(moving: Mapping[str, Any]) -> dict[str, Any]:
            made = self.tables({**tables, **moving})
            return {n: made[n] for n in linked}

        _, back = jax.vjp(linked_tables, moving)
        arrays, pull = self.program.linearised(shared, whole, signature, mode)
        return arrays, jax.tree_util.Partial(_pulled, pull, back, {n: whole[n] for n in linked})

    def results(self, arrays: Sequence[Any], tables: Mapping[str, Any], signature: Any) -> Any:
        return self.program.results(arrays, tables, signature)


def _pulled(pull: Any, back: Any, linked: Mapping[str, Any], cotangents: Any) -> tuple[list[Any], dict[str, Any]]:
    """Cotangents of shared inputs, and of tables: those of the traces lead to those of the examples."""
    of_shared, of_tables = pull(cotangents)
    (found,) = back({n: of_tables.get(n, jnp.zeros_like(x)) for n, x in linked.items()})
    return of_shared, {**of_tables, **found}
