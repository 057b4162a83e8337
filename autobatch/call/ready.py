"""What an executable reads: the tables of a plan, from the host or from the leaves that a batch is under `jax.jit`.

Group with its plan                 Ready(tables, signature, failures, plan)
Leaves with the tables of a plan    Ready(tables, signature, failures, checks=what the plan relies on)
Leaves whose floats alone move      the same, with the plan of the group that they are of
Leaves planned for later            Ready(tables that the host fetches when the computation runs, signature)
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import packed
from autobatch.call.packed import (
    DECIDED,
    TOKEN,
    BatchForm,
    BatchLeaves,
    Check,
    Group,
    Plan,
    Planned,
    Specialised,
    Tables,
    checksum,
    checksums,
    data_tables,
    deciding_columns,
    group_of,
    living_group,
    planned_leaves,
    with_rows,
)
from autobatch.data.columns import ROOT, Columns, columns_of, host_shape
from autobatch.errors import ExampleError, Failure, PlanError
from autobatch.ir.core import Array


class PlannedProgram(Specialised, typing.Protocol):
    """A specialisation, as far as its data is concerned. `on_host`: components that the host reads values of."""

    on_host: frozenset[int]

    def plan_with(self, columns: tuple[Columns, ...], arrays: Mapping[int, Any], count: int) -> Plan: ...

    def bind(self, plan: Plan, at_least: Sequence[Hashable] = ()) -> tuple[Tables, Hashable]: ...

    def array_tables(self, count: int) -> Ready: ...

    def array_table(self, index: int) -> str:
        """The table of a batched argument that is given as an array."""
        ...


@dataclass(frozen=True)
class Ready:
    """What the executable reads, the signature it is compiled for, and the examples that failed while planning.
    `plan` is None where the examples are known by their leaves only. `checks`: what the plan relies on, as far as it is
    known when the computation runs. `words`: vocabularies of the result."""

    tables: Tables
    signature: Hashable
    failures: tuple[Failure, ...] = ()
    plan: Plan | None = None
    checks: tuple[Check, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict)

    def with_tables(self, tables: Tables) -> Ready:
        """With these tables in the place of those that are called so."""
        return Ready({**self.tables, **tables}, self.signature, self.failures, self.plan, self.checks, self.words)


NOTHING = Ready({}, None)
"""What code reads that takes the arguments as they are."""


def from_leaves(leaves: BatchLeaves, form: BatchForm, fingerprint: str) -> Ready | None:
    """The plan that travels with a batch. Columns of data are read from the batch's own leaves: `with_floats` and
    gradients reach them."""
    require_one_batch(leaves, form)
    for planned, tables in zip(form.plans, leaves.tables, strict=True):
        if planned.fingerprint == fingerprint:
            return _with_plan(leaves, planned, tables)
    return None


def require_one_batch(leaves: BatchLeaves, form: BatchForm) -> None:
    """PlanError where the leaves are those of several batches, stacked."""
    rows = tuple(leaves.columns[ROOT].shape)
    if rows != (form.count, *host_shape(form.schema.root)):
        raise PlanError(
            f"the batch has {form.count} examples, but its columns have the shape {rows}: jax.vmap over a Batch is "
            "refused, and an epoch is for jax.lax.scan"
        )


def _with_plan(leaves: BatchLeaves, planned: Planned, tables: Tables) -> Ready:
    data = {t: with_rows(leaves.columns[c], rows) for t, c, rows in planned.data}
    words = {n: t for n, t in tables.items() if n.startswith(packed.VOCABULARY)}
    kept = {n: t for n, t in tables.items() if n != DECIDED and n not in words}
    checks = _unchanged(leaves, planned, tables[DECIDED])
    return Ready({**kept, **data}, planned.signature, planned.failures, None, checks, words)


def from_host(leaves: BatchLeaves, form: BatchForm, program: PlannedProgram) -> Ready | None:
    """The plan of a batch of which only floats are traced (`jax.grad` by them, outside `jax.jit`), so that it is known
    which examples on the host it is. The plan is made of these; the columns are the batch's own leaves."""
    token = leaves.columns.get(TOKEN)
    if token is None or isinstance(token, jax.core.Tracer) or np.ndim(token):
        return None
    group = living_group(int(token))
    if group is None or program.planner not in dict(form.planners):
        return None
    if (group.schema, group.count, group.width) != (form.schema, form.count, form.width):
        return None
    held, _ = group.leaves(None)
    return _with_plan(leaves, *planned_leaves(group, program, held.columns, {}))


def from_structure(leaves: BatchLeaves, form: BatchForm, program: PlannedProgram) -> Ready | None:
    """The plan of a batch of which only numbers are traced that the host does not read: what a function has returned
    under `jax.grad`, outside `jax.jit`. Nobody keeps it, since nobody else has that batch."""
    traced = {n for n, x in leaves.columns.items() if isinstance(x, jax.core.Tracer)}
    numbers = {c.name for c in columns_of(form.schema) if isinstance(c.type, Array)}
    read = deciding_columns(program, leaves.columns, form.schema)
    if form.elements or not traced <= numbers or not traced.isdisjoint(read):
        return None
    known = {n: np.zeros(x.shape, x.dtype) if n in traced else x for n, x in leaves.columns.items()}
    columns = packed.from_leaves(form.schema, form.count, dict(form.enums), known)
    group = Group(columns, form.width)
    made = _with_plan(leaves, *planned_leaves(group, program, group.leaves(None)[0].columns, {}))
    return replace(made, checks=())  # it is a plan of these very columns


def at_run_time(leaves: BatchLeaves, form: BatchForm, program: PlannedProgram) -> Ready | None:
    """The tables of a batch that was planned for a function before the types of its shared arguments were known: now
    they are. The program is traced for the size class of such a batch, and its tables are fetched from the host when it
    runs. From the next batch on they are leaves, and this executable is not used again."""
    like = form.like() if form.like is not None else None
    token = leaves.columns.get(TOKEN)
    if like is None or not isinstance(token, jax.core.Tracer) or program.planner not in dict(form.planners):
        return None
    if token.ndim:
        return None  # under jax.vmap
    failures = like.failures(program)  # of the batch that is traced: jax.jit traces for the one that it is given
    if failures:
        raise ExampleError(failures)
    tables, signature = like.tables(program)
    data = data_tables(program, tables, leaves.columns, form.schema)
    decided = deciding_columns(program, leaves.columns, form.schema)
    of_columns = {n for n, _, _ in data}

    def fetched_tables(group: Group, made: Tables) -> Tables:
        whole = {n: t for n, t in made.items() if n not in of_columns} | program.words(group.vocabularies)
        return {n: packed.canonical(np.asarray(t)) for n, t in whole.items()}

    own = fetched_tables(like, tables)

    def fetch(number: Any, sums: Any) -> Tables:
        group = group_of(int(number))
        held = group.leaves(None)[0].columns
        for name, found in zip(decided, np.asarray(sums).tolist(), strict=True):
            if checksum(held[name]) != found:
                raise PlanError(_stale(name))
        if failures := group.failures(program):
            raise ExampleError(failures)
        made, found = program.bind(group.plan(program), [signature])
        mine = fetched_tables(group, made)
        if found != signature or any(t.shape != own[n].shape for n, t in mine.items()):
            raise PlanError("the batch is of another size class than the one that was traced; call the function again")
        return mine

    shapes = {n: jax.ShapeDtypeStruct(t.shape, t.dtype) for n, t in own.items()}
    live = checksums([leaves.columns[n] for n in decided])
    fetched = jax.pure_callback(fetch, shapes, token, live)
    words = {n: fetched.pop(n) for n in list(fetched) if n.startswith(packed.VOCABULARY)}
    held = {t: with_rows(leaves.columns[c], rows) for t, c, rows in data}
    return Ready({**fetched, **held}, signature, words=words)


def _stale(column: str) -> str:
    return f"stale plan: column {column} decided structure and has changed since; call .plan(f) again"


def _unchanged(leaves: BatchLeaves, planned: Planned, sums: Any) -> tuple[Check, ...]:
    """That the columns which decided structure are those that were planned. Of leaves that are known, once for all."""
    if not planned.decided or planned.fingerprint in leaves.checked:
        return ()
    live = [leaves.columns[n] for n in planned.decided]
    if not any(isinstance(x, jax.core.Tracer) for x in (*live, sums)):
        live, sums = [np.asarray(x) for x in live], np.asarray(sums)
        if (checksums(live) == sums).all():
            leaves.checked.add(planned.fingerprint)
    return (Check(tuple(_stale(n) for n in planned.decided), checksums(live) != sums),)


@jax.custom_jvp
def _copies(first: Any, *others: Any) -> Any:
    """One array of which each argument brings a copy: it moves with any of them, and each has its derivative."""
    return first


@_copies.defjvp
def _moved_copies(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    return _copies(*primals), functools.reduce(jnp.add, tangents)


def one_batch(copies: Sequence[BatchLeaves]) -> tuple[BatchLeaves, tuple[Check, ...]] | None:
    """The leaves of arguments that were packed together, of which each brings a copy, and what remains to be checked:
    that they are copies. None where they are none, or that costs more than to put them together anew."""
    first = copies[0]
    others = [c for c in copies[1:] if any(c.columns.get(n) is not x for n, x in first.columns.items())]
    if not others:
        return first, ()
    if any(TOKEN not in c.columns or not isinstance(c.columns[TOKEN], jax.core.Tracer) for c in copies):
        return None
    names = [n for n in first.columns if n != TOKEN and not n.startswith((packed.STARTS, packed.VOCABULARY))]
    words = ["the batched arguments were not packed together: pairs = f.pack(...), then f(..., *pairs.args)"]
    words += [
        f"column {n} differs between arguments that were packed together; change it in all of them: "
        "pairs.with_floats(...).args"
        for n in names
    ]
    sums = [checksums([c.columns[n] for n in (TOKEN, *names)]) for c in (first, *others)]
    floats = [n for n in names if jnp.issubdtype(first.columns[n].dtype, jnp.inexact)]
    moving = {n: _copies(first.columns[n], *(c.columns[n] for c in others)) for n in floats}
    return replace(first, columns={**first.columns, **moving}), tuple(
        Check(tuple(words), s != sums[0]) for s in sums[1:]
    )
