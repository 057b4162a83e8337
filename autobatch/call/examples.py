"""The batched arguments of one call as examples of one program: packed, planned, or arrays that the program reads.

    f(p, trees)             a list: packed now                        Examples(group of 1 component)
    f(p, batch)             packed before, with its plans             Examples(its group, or its leaves under jax.jit)
    f(p, left, right)       two lists: packed together                Examples(group of 2 components)
    f(p, X, trees)          an array beside a list                    Examples(arrays={0: X}, group of 1 component)

The executable reads the tables of a plan, from the host or from the leaves that a batch is under `jax.jit`:

    Group with its plan                 Ready(tables, signature, failures, plan)
    Leaves with the tables of a plan    Ready(tables, signature, failures, checks=what the plan relies on)
    Leaves whose floats alone move      the same, with the plan of the group that they are of
    Leaves planned for later            Ready(tables that the host fetches when the computation runs, signature)

The arguments of `f.pack` are the batched ones alone, in their order.
"""

from __future__ import annotations

import functools
import inspect
import threading
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.cuda.device import DeviceArray
from autobatch.call import packed
from autobatch.call.arguments import ArgumentSlot, AxisEntries, BoundArguments, Raw, bind, parts
from autobatch.call.batch import Batch, Declared, merged, pack_fresh, pack_like, schema_like, unknown_lists
from autobatch.call.packed import (
    DECIDED,
    TOKEN,
    BatchForm,
    BatchLeaves,
    Check,
    Group,
    JointPart,
    Plan,
    Planned,
    Planner,
    Specialised,
    Tables,
    checksum,
    checksums,
    data_tables,
    deciding_columns,
    group_of,
    join,
    living_group,
    planned_leaves,
    with_rows,
)
from autobatch.data import storage
from autobatch.data.columns import ROOT, Columns, Schema, columns_of, has_mask, host_dtype, host_shape, without_numpy
from autobatch.data.infer import TypesDisagree
from autobatch.data.ragged import ShapesDiffer, WithinOne, ragged_names
from autobatch.data.storage import Damaged
from autobatch.data.together import component_field, component_schema, root_columns, schema_together, together
from autobatch.errors import BatchError, ExampleError, Failure, PlanError, SourceError, of_empty_lists
from autobatch.ir.core import Array, Input, Type, is_numpy
from autobatch.ir.jax_compat import row_type

# ---- tables of a plan


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


# ---- arguments of f.pack


def bound_to_pack(
    function: str, signature: inspect.Signature, entries: AxisEntries, is_method: bool, args: tuple[Any, ...]
) -> BoundArguments:
    """A call with the batched leaves among arguments that are given for the batched parameters alone, in order."""
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    batched = [p for p in parameters if p.kind is not p.VAR_KEYWORD and _has_axis(entries, p.name, function)]
    if len(args) != len(batched) and not any(p.kind is p.VAR_POSITIONAL for p in batched):
        raise BatchError(
            f"{function}.pack takes the batched arguments ({', '.join(p.name for p in batched)}), "
            f"{len(batched)} of them; {len(args)} were given"
        )
    alone = inspect.Signature(
        [p.replace(kind=p.POSITIONAL_ONLY, default=p.empty) if p.kind is not p.VAR_POSITIONAL else p for p in batched]
    )
    bound = bind(function, alone, entries, frozenset(), args, {})
    if any(not raw.static for form in bound.forms.values() for raw in parts(form, Raw)):
        raise BatchError(f"{function}.pack takes batched arguments only; a part of one is shared")
    return bound


def _has_axis(entries: AxisEntries, name: str, function: str) -> bool:
    if name not in entries.axes and not entries.has_default:
        return False
    entry = entries.of(name, function)
    return any(leaf is not None for leaf in jax.tree.leaves(entry, is_leaf=lambda x: x is None))


# ---- examples


T = TypeVar("T")

VALID = "#valid"
"""Among what was `checked` of leaves: the columns fit each other."""

FAILED = "#failed"
"""The table that says which examples failed while planning, for functions with `on_error="mask"`."""


@dataclass(frozen=True)
class Component:
    """One batched leaf as the program sees it: its type, and whether it may be None. `array`: it was given as an array
    with an axis of examples; `traced`: under a transformation of JAX, so the host does not know it; `numpy`: some of
    its values are arrays of NumPy, which few programs ask for."""

    type: Type
    optional: bool = False
    array: bool = False
    traced: bool = False
    numpy: bool = field(default=False, compare=False)


@dataclass
class Examples:
    """The batched leaves of a call, named for errors. `arrays` are those given as arrays, by slot, examples leading;
    the others are the components of `group`, or of a batch that is its leaves. `own`: their schema before it was joined
    with what the function had seen."""

    function: str
    count: int
    own: Schema
    schema: Schema
    components: tuple[Component, ...]
    names: tuple[str, ...]
    arrays: Mapping[int, Any] = field(default_factory=dict)
    group: Group | None = None
    leaves: tuple[BatchLeaves, BatchForm] | None = None
    checks: tuple[Check, ...] = ()
    kept: bool = False
    """Were they packed before the call? What is planned for them stays with them then."""

    @property
    def width(self) -> int:
        """How many leaves were packed together."""
        return len(self.components) - len(self.arrays)

    @property
    def numpy(self) -> tuple[bool, ...]:
        """Which components hold arrays of NumPy."""
        return tuple(c.numpy for c in self.components)

    @property
    def unfit(self) -> str | None:
        """What of them is not for machine code that nobody asked for; None where they are there."""
        for component, name in zip(self.components, self.names, strict=True):
            if component.traced:
                return f"JAX traces {name}"
        return None if self.components else "no argument is batched"

    @property
    def structure(self) -> str | None:
        """What of them is structure; None where they are arrays."""
        no_arrays = (n for c, n in zip(self.components, self.names, strict=True) if not c.array)
        return next((f"{name} is no array" for name in no_arrays), None)

    @property
    def looks(self) -> tuple[Any, ...]:
        """What calls with examples of the same types have in common."""
        return self.components, self.numpy, self.schema

    def input(self, slot: ArgumentSlot) -> Input:
        """A batched leaf as the compiler sees it."""
        component = self.components[slot.index]
        return Input(slot.index, component.type, optional=component.optional, numpy=component.numpy)

    def ready(self, program: PlannedProgram) -> Ready:
        """What the executable reads. Plans where there is no plan yet."""
        self._refuse_traced(program)
        concrete = {k: a for k, a in self.arrays.items() if k in program.on_host}
        if concrete:  # the arrays decide structure: the plan is for these very values
            plan = program.plan_with(self._columns(), concrete, self.count)
            words = program.words(self.group.vocabularies if self.group is not None else {})
            made = Ready(*program.bind(plan), plan.failures, plan, words=words)
        elif self.width == 0:
            made = program.array_tables(self.count)
        else:
            made = self._planned(program)
        return self.with_arrays(made, program)

    def with_arrays(self, made: Ready, program: PlannedProgram) -> Ready:
        """What the executable reads, with the arrays of this call in their tables."""
        if not self.arrays and not self.checks:
            return made
        given = {program.array_table(k): raw(array) for k, array in self.arrays.items()}
        tables = {n: with_rows(given[n], len(t)) if n in given else t for n, t in made.tables.items()}
        return replace(made, tables=tables, checks=(*self.checks, *made.checks))

    def _columns(self) -> tuple[Columns, ...]:
        return self.on_host().components if self.width else ()

    def _refuse_traced(self, program: PlannedProgram) -> None:
        for k in sorted(program.on_host):
            if self.components[k].traced:
                raise PlanError(
                    f"{self.function}: {self.names[k]} decides structure, but it is an array that is traced by JAX, so "
                    f"its values are not known; pass it in a Batch ({self.function}.pack), or call outside jax.jit"
                )

    def _planned(self, program: PlannedProgram) -> Ready:
        if self.leaves is not None and self.group is None:
            found = from_leaves(*self.leaves, program.fingerprint) or from_host(*self.leaves, program)
            found = found or from_structure(*self.leaves, program) or at_run_time(*self.leaves, program)
            if found is not None:
                return found
        group = self.on_host()
        group.mark(program.planner)
        plan = group.plan(program)
        return Ready(*group.tables(program), plan.failures, plan, words=program.words(group.vocabularies))

    def on_host(self) -> Group:
        """The examples on the host. PlanError where a batch is known by its traced leaves only."""
        if self.group is None:
            assert self.leaves is not None
            leaves, form = self.leaves
            if any(isinstance(x, jax.core.Tracer) for x in leaves.columns.values()):
                raise PlanError(
                    f"{self.function}: under jax.jit this batch has no plan for {self.function} with these "
                    f"types of shared arguments and integers that decide structure; call "
                    f"batch.plan({self.function}) first, or call {self.function} once outside jax.jit"
                )
            else:
                self.group = Batch.from_leaves(leaves, form).group()
        return self.group

    def column(self, name: str) -> Any:
        """A column as machine code reads it, which looks at no reference, offset or tag before it follows it: those of
        a batch whose leaves JAX's functions have put together are looked at here, once. (What JAX traces is not known.)
        PlanError where one of them leads nowhere."""
        if self.leaves is None or self.group is not None:
            return self.on_host().column(name)
        leaves, form = self.leaves
        if VALID not in leaves.checked:
            require_one_batch(leaves, form)
            if not any(isinstance(x, jax.core.Tracer) for x in leaves.columns.values()):
                columns = packed.from_leaves(form.schema, form.count, dict(form.enums), leaves.columns)
                try:
                    storage.check(columns)
                except Damaged as error:
                    raise PlanError(
                        f"{self.function}: the columns of the batch have changed since it was packed, and do not fit "
                        f"each other: {error}; pack the examples again"
                    ) from None
                leaves.checked.add(VALID)
        return leaves.columns[name]

    def host_or_leaves(self) -> dict[str, Any]:
        """The columns of the examples as leaves, for results that are nodes of the input."""
        if self.leaves is not None:
            return self.leaves[0].columns
        if self.group is None:
            return {}
        return packed.to_leaves(self.group.columns, packed.capacities(self.group.columns, self.group.profile))

    @property
    def enums(self) -> tuple[tuple[str, type], ...]:
        """The enums among the examples' values."""
        if self.leaves is not None:
            return self.leaves[1].enums
        held = self.group.vocabularies if self.group is not None else {}
        return tuple((n, type(v[0])) for n, v in held.items() if n != "str" and v)


# ---- from slots to examples


@dataclass
class KnownTypes:
    """The types that a function has seen, per form of its arguments: they only grow, so that a batch which shows less
    does not compile another program."""

    schemas: dict[int, list[Schema]] = field(default_factory=dict)
    whole: dict[tuple[int, str], str] = field(default_factory=dict)
    """Why the arrays of a ragged column (of so many components) have to be arrays of one shape."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    keys_are_data: bool | None = None
    """Did the function need that of dicts of strings, as they had different keys? None: it was not tried."""

    changes: tuple[frozenset[Hashable], ...] = ()
    """The kinds of objects that it changes; those that lie in the same columns are together (`changes.py`)."""

    apart: dict[tuple[int, Schema, Schema], None] = field(default_factory=dict)
    """Types that join, but with which the function does not compile: of the examples, and joined."""

    def pack(self, examples: list[Any], seen: Sequence[Schema], declared: Declared, function: str) -> Columns:
        """Pack examples into columns; where there are none, their types are those that were seen before."""
        if not examples:
            return pack_like(examples, seen, declared, function)
        return pack_fresh(examples, declared, bool(self.keys_are_data))

    def may_read_keys(self, slots: Sequence[ArgumentSlot]) -> bool:
        """May dicts of strings be packed again, with keys that are data?"""
        return self.keys_are_data is None and all(s.kind != "batch" for s in slots)

    def has_seen(self, schema: Schema, width: int) -> bool:
        """Did the function compile for examples of these very types?"""
        return schema in self.schemas.get(width, ())

    def joined(self, schema: Schema, width: int, declared: Declared = None, grow: bool = True) -> Schema:
        """The schema joined with what was seen before, where the types join: with what holds it already, else
        (`grow`) with what then holds more. `declared` says what lists hold that are empty in all examples."""
        with self.lock:
            seen = self.schemas.get(width, ())
            if schema in seen or self.needs_whole(schema, width):
                return schema
            found = []
            for old in seen:
                whole = merged(without_numpy(old), schema)  # which arrays are NumPy's, every call says anew
                if whole is not None and not unknown_lists(whole) and not self.needs_whole(whole, width):
                    found.append((old, whole))
            for old, whole in found:
                if whole == old and (width, schema, whole) not in self.apart:
                    return old
            for _, whole in found if grow or unknown_lists(schema) else ():
                if (width, schema, whole) not in self.apart:
                    return whole
            if unknown_lists(schema) and declared is not None:
                wider = merged(schema, declared())
                if wider is not None and not unknown_lists(wider):
                    return wider
            return schema

    def learn(self, schema: Schema, width: int) -> None:
        """Remember the types of examples that the function compiles for."""
        with self.lock:
            seen = self.schemas.setdefault(width, [])
            if schema not in seen and not unknown_lists(schema):
                seen[:] = [*(s for s in seen if merged(s, schema) != schema), schema][-16:]

    def apart_from(self, examples: Examples, call: Callable[[], T]) -> T:
        """`call`, where the types of some examples go with nothing that they were joined with. Kept when it works."""
        key = examples.width, examples.own, examples.schema
        with self.lock:
            self.apart[key] = None
            while len(self.apart) > 64:
                del self.apart[next(iter(self.apart))]
        try:
            return call()
        except SourceError:
            self.apart.pop(key, None)
            raise

    def needs_whole(self, schema: Schema, width: int) -> dict[str, str]:
        """The ragged columns of a schema whose arrays the function needs whole, and why."""
        return {n: self.whole[width, n] for n in ragged_names(schema) if (width, n) in self.whole}

    def require_whole(self, width: int, names: Sequence[str], reason: str) -> Callable[[], None]:
        """Remember that the function needs the arrays of some ragged columns whole; the result forgets it again."""
        with self.lock:
            new = [(width, n) for n in names if (width, n) not in self.whole]
            self.whole.update(dict.fromkeys(new, reason))
            seen = self.schemas.setdefault(width, [])
            seen[:] = [s for s in seen if not self.needs_whole(s, width)]

        def forget() -> None:
            with self.lock:
                for key in new:
                    self.whole.pop(key, None)

        return forget


class NeedsWhole(Exception):
    """The function needs arrays whole that are ragged in these examples; `reasons` says why for each column."""

    def __init__(self, group: Group, reasons: Mapping[str, str]) -> None:
        self.group, self.reasons = group, reasons
        super().__init__(*reasons.values())


def check_known(schema: Schema, function: str, names: Sequence[str]) -> None:
    """Refuse arguments that are lists, all empty, where nothing says what they hold. `names` are those of the packed
    arguments. Lists in fields are refused where the function reads them."""
    for found in unknown_lists(schema):
        for k, name in enumerate(names):
            column = root_columns(schema, k, len(names))[0]
            if found == column or found.startswith(f"{column}."):
                raise of_empty_lists(f"{function}: the lists {name}")


def gather(
    function: str,
    slots: Sequence[ArgumentSlot],
    known: KnownTypes,
    declared: Callable[[ArgumentSlot], Declared],
    planner: Planner,
    grow: bool = True,
) -> Examples:
    """The examples of a call of the function `planner`. Batches that it was not planned for take on the types that it
    has seen before, so that examples which show less run on the program that is there. `grow`: also where these
    examples show more."""
    arrays = {s.index: s.leading() for s in slots if s.kind == "array"}
    rest = [s for s in slots if s.kind != "array"]
    count, names = len(slots[0]), tuple(s.name for s in slots)
    given = {k: _array_component(a) for k, a in arrays.items()}
    if not rest:
        kinds = tuple(given[s.index] for s in slots)
        return Examples(function, count, Schema(kinds[0].type), Schema(kinds[0].type), kinds, names, arrays)
    group, leaves, checks = _packed_before(function, rest)
    kept = group is not None or leaves is not None
    if not kept:
        try:
            group = _pack_together(function, rest, known, declared, planner)
        except (WithinOne, TypesDisagree) as error:
            raise _of_one_class(function, rest, known, declared, error) from None
    schema = group.schema if group is not None else leaves[1].schema  # type: ignore[index]
    if reasons := known.needs_whole(schema, len(rest)):
        raise NeedsWhole(_to_be_cut(function, group, reasons), reasons)
    own = schema
    if not known.has_seen(schema, len(rest)):
        wider = known.joined(schema, len(rest), _declared_together([declared(s) for s in rest]), grow)
        if group is not None and wider != schema and (planner not in group.planners or unknown_lists(schema)):
            group, schema = group.conformed(wider), wider
        check_known(schema, function, [s.name for s in rest])
    packed = iter(component_types(schema, len(rest)))
    kinds = tuple(given[s.index] if s.index in given else next(packed) for s in slots)
    return Examples(function, count, own, schema, kinds, names, arrays, group, leaves, checks, kept)


def _to_be_cut(function: str, group: Group | None, reasons: Mapping[str, str]) -> Group:
    if group is None:
        raise PlanError(
            f"{function}: arrays that differ in shape between examples ({', '.join(reasons)}) have to be in groups by "
            f"shape, and under jax.jit the examples are not known: {next(iter(reasons.values()))}; call "
            f"batch = batch.plan({function}) again, now that this is known, and pass that"
        )
    return group


def _packed_before(function: str, rest: Sequence[ArgumentSlot]) -> Before:
    """Batches that belong together; nothing where they do not."""
    batches = [s.values for s in rest if s.kind == "batch"]
    if len(batches) < len(rest):
        return _NOTHING
    if len(batches) == 1:
        return _alone(function, batches[0])
    if [b.component for b in batches] != list(range(len(batches))):
        return _NOTHING
    groups = [b.on_host for b in batches]
    if groups[0] is not None:
        together = groups[0].width == len(batches) and all(g is groups[0] for g in groups)
        return (groups[0], None, ()) if together else _NOTHING
    if any(g is not None for g in groups):
        return _NOTHING
    held = [b.parts() for b in batches]
    form = replace(held[0][1], component=None)
    if form.width != len(held) or any(replace(other, component=None) != form for _, other in held):
        return _NOTHING
    found = one_batch([leaves for leaves, _ in held])
    return _NOTHING if found is None else (None, (found[0], form), found[1])


def _alone(function: str, batch: Batch) -> Before:
    """One batch. Of several arguments that were packed together it is one, or all of them as a tuple."""
    if batch.on_host is None:
        leaves, form = batch.parts()
        if form.width == 1 and (batch.is_traced or form.plans):
            return None, (leaves, form), ()
    if batch.is_traced:
        raise PlanError(
            f"{function}: this batch is one of several arguments that were packed together, and under jax.jit it has "
            f"no plan of its own; plan it before: pairs.args[k].plan({function})"
        )
    return batch.group().alone(batch.component), None, ()


Before = tuple[Group | None, tuple[BatchLeaves, BatchForm] | None, tuple[Check, ...]]
"""The common group of some batches, or the leaves that they are and what is to be checked of these."""
_NOTHING: Before = (None, None, ())


def _pack_together(
    function: str,
    rest: Sequence[ArgumentSlot],
    known: KnownTypes,
    declared: Callable[[ArgumentSlot], Declared],
    planner: Planner,
) -> Group:
    """Lists are packed as examples that are tuples, so that an object in two of them is one object. Batches are put
    together column by column, and keep the result."""
    if all(s.kind == "list" for s in rest):
        seen = known.schemas.get(len(rest), [])
        if len(rest) == 1:
            return Group(known.pack(rest[0].values, seen, declared(rest[0]), function))
        rows = together([s.values for s in rest])
        return Group(known.pack(rows, seen, _declared_together([declared(s) for s in rest]), function), len(rest))
    _refuse_apart(function, rest)
    parts = []
    for k, slot in enumerate(rest):
        if slot.kind == "batch":
            parts.append(JointPart(slot.values.group(), slot.values.component))
        else:
            seen = [component_schema(s, k) for s in known.schemas.get(len(rest), ())]
            seen = [s for s in seen if all(merged(s, b.values.schema) for b in rest if b.kind == "batch")]
            columns = known.pack(slot.values, seen, declared(slot), function)
            parts.append(JointPart(Group(columns), None, fleeting=True))
    return join(parts, planner)


def _of_one_class(
    function: str,
    rest: Sequence[ArgumentSlot],
    known: KnownTypes,
    declared: Callable[[ArgumentSlot], Declared],
    error: BatchError,
) -> BatchError:
    """The error for arguments each of which packs alone, but not together with the others."""
    for slot in rest if len(rest) > 1 else ():
        if slot.kind == "list":
            try:
                known.pack(slot.values, [], declared(slot), function)
            except ShapesDiffer:
                continue  # in groups they pack
            except BatchError:
                return error
    if len(rest) == 1:
        return error
    names = [s.name for s in rest]
    return BatchError(
        f"{function}: {', '.join(names[:-1])} and {names[-1]} hold objects of one class, which lie in the same columns "
        f"(an object in two arguments is one object) and need arrays of one shape in each example: {error}; or give "
        "one argument a class of its own (a subclass)"
    )


def _refuse_apart(function: str, rest: Sequence[ArgumentSlot]) -> None:
    """Under `jax.jit` batches are put together beforehand."""
    for slot in rest:
        if slot.kind == "batch" and slot.values.is_traced:
            names = ", ".join(s.name for s in rest)
            raise PlanError(
                f"{function}: the batched arguments {names} were packed apart, and under jax.jit their examples are "
                f"not known; put them together before: pairs = {function}.pack({names}), then "
                f"{function}(..., *pairs.args); floats are changed in all of them: pairs.with_floats(...).args"
            )


def _declared_together(parts: Sequence[Declared]) -> Declared:
    """What annotations say about arguments that are packed together."""
    if len(parts) == 1:
        return parts[0]
    if all(p is None for p in parts):
        return None
    return lambda: schema_together([None if p is None else p() for p in parts])


def fixed_by(like: Any) -> Callable[[ArgumentSlot], Declared]:
    """What a Batch or an annotation says about every argument."""
    schema = schema_like(like)
    return lambda slot: None if schema is None else lambda: schema


def component_types(schema: Schema, width: int) -> list[Component]:
    """The components of examples of this schema."""
    if width == 1:
        return [Component(schema.root, schema.root_optional, numpy=schema.root_numpy)]
    fields = [component_field(schema, k) for k in range(width)]
    return [Component(f.type, has_mask(f), numpy=f.numpy) for f in fields]


def _array_component(array: Any) -> Component:
    """One row of an array of examples."""
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        raise BatchError(
            f"an array of dtype {array.dtype.str!r} has its bytes in an order that is not this machine's; "
            "x.astype(x.dtype.newbyteorder('=')) has"
        )
    row = row_type(array.like if isinstance(array, DeviceArray) else array)
    traced = isinstance(array, jax.core.Tracer)
    return Component(row, array=True, traced=traced, numpy=is_numpy(array) and bool(row.shape))


def raw(array: Any) -> Any:
    """An array as columns hold it: typed random keys are their raw data."""
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def array_columns(type: Type, values: Any, like: Columns | None) -> Columns:
    """An array of examples as columns: its rows are the roots. `like` holds the stores of the other components."""
    if like is None:
        return Columns(Schema(type), len(values), {ROOT: values}, {}, {})
    schema = replace(like.schema, root=type, root_optional=False)
    return replace(like, schema=schema, arrays={**like.arrays, ROOT: values})


def zeros(type: Array, count: int) -> np.ndarray[Any, Any]:
    """A stand-in for an array that the host does not read; takes no memory."""
    return np.broadcast_to(np.zeros((), host_dtype(type)), (count, *host_shape(type)))
