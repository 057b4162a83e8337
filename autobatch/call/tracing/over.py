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
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import packed
from autobatch.call.examples import Component, Examples, Ready
from autobatch.call.packed import Group, Planner, Tables, data_tables
from autobatch.call.specialise import SpecialisedProgram
from autobatch.call.tracing.log import ExampleNumber
from autobatch.call.tracing.rows import ROW, SOURCE
from autobatch.common.cache import Bounded
from autobatch.common.runtime import collecting_later
from autobatch.compiler import pipeline
from autobatch.compiler.differentials import Differentials
from autobatch.data.columns import Columns, columns_of, host_dtype
from autobatch.data.leaves import is_sparse_class
from autobatch.data.schema import Schema
from autobatch.data.unpack import NumberUnpacker, unpack
from autobatch.errors import Failure, UnsupportedError
from autobatch.ir.core import Array
from autobatch.planning.plan import Share

# ---- links
#
# Where the numbers of traces lie in the examples: rows of traces hold what the columns of the examples hold.
#
#     Node.value   0.5  2.0  4.0          the column of the examples, source 0
#     Row.row_k0   2    0    0            where number k0 of each row of traces lies in it, counted from its example on
#     Row.k0       4.0  0.5  7.0          what it is; of the last, whose source is -1, a number of the function's own
#
# So floats of the examples may move, and may be known under `jax.jit` alone: what decides structure is all that a trace
# depends on.


@dataclass(frozen=True)
class NumberOrigin:
    """A column of numbers of the examples. `space`: its rows are those of this space, None: the examples."""

    name: str
    space: str | None
    type: Array

    def starts(self, columns: Columns | None, count: int) -> np.ndarray[Any, Any]:
        """int64[count]: the first row of each example."""
        if self.space is None or columns is None:
            return np.arange(count)
        return columns.starts[self.space][:-1]

    @property
    def dtype(self) -> Any:
        """That of its numbers on a device."""
        return jax.dtypes.canonicalize_dtype(host_dtype(self.type))


@dataclass(frozen=True)
class NumberOrigins:
    """Where the numbers of some examples may lie: in columns, then in arrays that are batched arguments, by slot."""

    columns: tuple[NumberOrigin, ...]
    arrays: Mapping[int, NumberOrigin]

    @classmethod
    def of(cls, schema: Schema | None, arrays: Mapping[int, Array]) -> NumberOrigins:
        """The origins of packed examples, and of arrays beside them by the types of their rows."""
        every = () if schema is None else columns_of(schema)
        typed = [(c.name, c.space, c.type) for c in every if isinstance(c.type, Array)]
        held = [NumberOrigin(name, space, type) for name, space, type in typed if is_float(type)]
        return cls(tuple(held), {k: NumberOrigin(f"array {k}", None, t) for k, t in arrays.items() if is_float(t)})

    @property
    def all(self) -> list[NumberOrigin]:
        return [*self.columns, *self.arrays.values()]

    @collecting_later
    def unpacked(self, columns: Columns) -> list[Any]:
        """The examples, with `ExampleNumber` in the place of their numbers."""
        return unpack(columns, _References({c.name: k for k, c in enumerate(self.columns)}))

    def rows_of(self, slot: int, count: int) -> list[ExampleNumber]:
        """The numbers that an array gives to the examples."""
        number = len(self.columns) + list(self.arrays).index(slot)
        return _References({}).rows(self.arrays[slot].type, number, range(count))


def is_float(type: Array) -> bool:
    """Is it a number that has a derivative?"""
    return not type.dtype.startswith("key<") and bool(jnp.issubdtype(host_dtype(type), jnp.inexact))


def refuses_references(schema: Schema) -> str:
    """The class of a library that wants the numbers themselves; an empty string where there is none."""
    sparse = [c.name for s in schema.stores for c in s.classes if c.cls is not None and is_sparse_class(c.cls)]
    return sparse[0] if sparse else ""


class _References(NumberUnpacker):
    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers

    def each(self, type: Array, column: str, array: Any, rows: Any) -> list[Any]:
        if column not in self.numbers:
            return super().each(type, column, array, rows)
        return self.rows(type, self.numbers[column], range(len(array)) if rows is None else rows.tolist())

    def rows(self, type: Array, number: int, rows: Sequence[int]) -> list[ExampleNumber]:
        dtype = jax.dtypes.canonicalize_dtype(host_dtype(type))
        return [ExampleNumber(type.shape, dtype, type.weak, number, row) for row in rows]

    def slices(self, type: Array, column: str, array: Any, offsets: Sequence[int]) -> list[Any]:
        if column not in self.numbers:
            return super().slices(type, column, array, offsets)
        number = self.numbers[column]
        return [ExampleNumber((b - a, *type.shape), array.dtype, False, number, a) for a, b in pairwise(offsets)]


# ---- columns of traces


@dataclass(frozen=True)
class Links:
    """The columns of traces whose numbers lie in the examples: of each, the columns of its sources and rows, and the
    space."""

    of: Mapping[str, tuple[str, str, str]]

    @classmethod
    def find(cls, schema: Schema) -> Links:
        """The links of the columns of traces of this schema."""
        made: dict[str, tuple[str, str, str]] = {}
        for store in schema.stores:
            for field in store.fields:
                if isinstance(field.type, Array) and is_float(field.type):
                    beside = {f.name: f.column for f in store.fields if f.classes == field.classes}
                    if SOURCE + field.name in beside:
                        place = beside[SOURCE + field.name], beside[ROW + field.name]
                        made[field.column] = (*place, store.name)
        return cls(made)

    def relative(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """Traces whose rows count from the first row of their example on, which those of minibatches do too."""
        starts = [o.starts(columns, traces.count) for o in origins.all]
        return self._shifted(traces, starts, -1)

    def absolute(self, traces: Columns, origins: NumberOrigins, columns: Columns | None) -> Columns:
        """The same, counted from the first row of all."""
        return self._shifted(traces, [o.starts(columns, traces.count) for o in origins.all], 1)

    def _shifted(self, traces: Columns, starts: Sequence[Any], sign: int) -> Columns:
        arrays = dict(traces.arrays)
        for source, row, space in set(self.of.values()):
            example = np.repeat(np.arange(traces.count), np.diff(traces.starts[space]))
            held, number = arrays[row].copy(), arrays[source]
            for k, first in enumerate(starts):
                mine = number == k
                held[mine] += sign * first[example[mine]]
            arrays[row] = held
        return replace(traces, arrays=arrays)

    def with_values(self, traces: Columns, given: Sequence[Any]) -> Columns:
        """Traces, whose rows count from the first of all, with the numbers that the examples have. `given`: arrays of
        all origins."""
        made = {
            c: gathered(traces.arrays[c], traces.arrays[source], traces.arrays[row], given, np)
            for c, (source, row, _) in self.of.items()
        }
        return replace(traces, arrays={**traces.arrays, **made})


def gathered(own: Any, source: Any, row: Any, given: Sequence[Any], xp: Any) -> Any:
    """A column of traces: what lies in the examples is read there, from `given`; the rest is its own."""
    shape, made = own.shape[1:], own
    for is_list in (False, True):
        fits = [
            k for k, x in enumerate(given)
            if x.shape[0] and jax.dtypes.canonicalize_dtype(x.dtype) == own.dtype
            and (x.shape[1:] == shape[1:] and shape if is_list else x.shape[1:] == shape)
        ]  # fmt: skip
        if not fits:
            continue
        first = np.full(len(given), -1, np.int64)
        first[fits] = np.cumsum([0, *(given[k].shape[0] for k in fits[:-1])])
        flat = xp.concatenate([given[k] for k in fits]) if len(fits) > 1 else given[fits[0]]
        begin = xp.asarray(first)[xp.maximum(source, 0)]
        mine = (source >= 0) & (begin >= 0)
        if is_list:
            mine = mine & (row >= 0)
        places = xp.where(mine, begin + row, 0)
        if is_list:
            places = xp.minimum(places[:, None] + xp.arange(shape[0]), flat.shape[0] - 1)
        found = flat[places].astype(own.dtype)
        made = xp.where(mine.reshape(-1, *(1,) * len(shape)), found, made)
    return made


GIVEN, ROWS, SOURCES = "#given:", "#row:", "#source:"
"""The prefixes of tables: of columns of the examples; of where the numbers of a table of the program lie in them."""


@dataclass(frozen=True)
class TracedPlan:
    """The traces of some examples, planned for the program over them. `columns`: of the examples that were traced,
    `chosen`: which of them are meant; None: all."""

    program: SpecialisedProgram
    rows: Group
    columns: Columns | None
    profile: Mapping[str, packed.Profile] | None
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
                made[SOURCES + table] = packed.padded(absolute.arrays[source].astype(np.int32), count, -1)
                made[ROWS + table] = packed.padded(absolute.arrays[row].astype(np.int32), count, 0)
        made |= self.inner.words(plan.rows.vocabularies)
        if plan.own is not None:
            room = packed.capacities(plan.own, plan.profile)
            for origin in self.origins.columns:
                size = plan.count if origin.space is None else room[origin.space]
                made[GIVEN + origin.name] = packed.padded(packed.canonical(plan.own.arrays[origin.name]), size, 0)
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
    words = {n: t for n, t in ready.tables.items() if n.startswith(packed.VOCABULARY)}
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
