"""A call of a function whose structure is traced, as a call of the program over its traces.

f(p, xs)       ->   main((p["W"], p["b"]), [trace of xs[0], trace of xs[1], ...])
f(p, batch)    ->   the same; traces of packed examples are kept with them
under JAX      ->   the program over traces as one of the examples: `over.Over`
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np

from autobatch.backends.interface import Placement
from autobatch.call import packed
from autobatch.call.arguments import BoundArguments
from autobatch.call.batch import Batch
from autobatch.call.examples import Examples, Ready
from autobatch.call.packed import TOKEN, Group, living_group
from autobatch.call.prepared import Prepared
from autobatch.call.results import note_changes_by_python
from autobatch.call.tracing.rows import Links, NumberOrigins, Over, TracedPlan, refuses_references, without_words
from autobatch.call.tracing.structure import FreeVariables, Kept, Make, Outline, TracedStructure, Tracing
from autobatch.common import runtime
from autobatch.common.cache import Bounded
from autobatch.common.runtime import Timings, collecting_later
from autobatch.data.columns import Column, Columns, Ints, columns_of
from autobatch.errors import (
    NOWHERE,
    BatchError,
    Error,
    ExampleError,
    Failure,
    PlanError,
    SourceError,
    StructureWarning,
    UnsupportedError,
    warn,
)
from autobatch.frontend.memory.heap import CompilesInMemory
from autobatch.ir.core import Array
from autobatch.options import Options

# ---- alike
#
# Examples that differ in their numbers alone have one trace.
#
# [1.5, 2.0], [0.5], [3.0, 4.0]     ->     first [0, 1], of [0, 1, 0]


@dataclass(frozen=True)
class Alike:
    """`first`: one example of each structure; `of`: which of these each example is like."""

    first: Ints
    of: Ints

    def failures(self, found: Sequence[Failure]) -> tuple[Failure, ...]:
        """What all examples fail with, of what those in `first` do."""
        known = {f.index: f for f in found}
        return tuple(replace(known[k], index=n) for n, k in enumerate(self.of.tolist()) if k in known)


def alike(columns: Columns | None, numbers: frozenset[str], arrays: Mapping[int, Any], count: int) -> Alike:
    """Which examples are alike. `numbers`: the columns that decide nothing; `arrays`: the other arguments whose values
    Python sees."""
    parts = [] if columns is None else list(_parts(columns, numbers))
    parts += [(np.arange(count + 1), np.ascontiguousarray(x)) for x in arrays.values()]
    known: dict[tuple[bytes, ...], int] = {}
    first: list[int] = []
    of = np.zeros(count, np.int64)
    bounds = [(starts.tolist(), array) for starts, array in parts]
    for k in range(count):
        key = tuple([array[starts[k] : starts[k + 1]].tobytes() for starts, array in bounds])
        number = known.setdefault(key, len(first))
        if number == len(first):
            first.append(k)
        of[k] = number
    return Alike(np.array(first, np.int64), of)


def _parts(columns: Columns, numbers: frozenset[str]) -> Sequence[tuple[Ints, Any]]:
    """Where the rows of each example begin, and what they hold: rows of their own example counted from its first."""
    found: list[tuple[Ints, Any]] = []
    for column in columns_of(columns.schema):
        starts = np.arange(columns.count + 1) if column.space is None else columns.starts[column.space]
        held = _relative(columns, column, starts)
        if column.name in numbers:  # how many there are is structure
            held = np.zeros((len(held), 1), np.uint8)
        found.append((starts, np.ascontiguousarray(held)))
    for store in columns.schema.lists:
        offsets = columns.arrays[f"{store.name}.#offsets"]
        found.append((columns.starts[store.name], np.ascontiguousarray(np.diff(offsets))))
    return found


def _relative(columns: Columns, column: Column, starts: Ints) -> Any:
    held = columns.arrays[column.name]
    if column.target is None:
        return held
    shift = np.repeat(columns.starts[column.target][:-1], np.diff(starts))
    return np.where(held >= 0, held - shift, held)


# ---- calling
#
# Calls that are to be traced.


class TracedFunction(Protocol):
    """A batched function, as far as its traces know it."""

    __name__: str
    __wrapped__: Callable[..., Any]
    planner: Any
    settings: Any

    def prepare(self, bound: BoundArguments, chosen: Options, runs: bool, *, derives: bool) -> Prepared: ...


@dataclass(frozen=True)
class TraceRequest:
    """A call that is to be traced. `refused`: what the compiler said, for the first one. `runs`: nothing but to run it;
    `derives`: it is differentiated. `over` makes another function batched like this one, for the program over traces;
    `examples` packs the call's."""

    function: TracedFunction
    bound: BoundArguments
    refused: Exception | None
    chosen: Options
    runs: bool
    derives: bool
    over: Make
    examples: Callable[[], Examples]

    @property
    def masks(self) -> bool:
        """May examples fail?"""
        return bool(self.function.settings.on_error == "mask")

    def prepared(self, function: Any, args: tuple[Any, ...]) -> Prepared:
        """A call of the program over traces."""
        bound = function.bound(args, {})
        found: Prepared = function.prepare(bound, replace(self.chosen, trace=False), self.runs, derives=self.derives)
        return replace(found, bound=bound)

    def compiled(self) -> Prepared:
        """The call, whatever else might be traced."""
        return self.function.prepare(self.bound, replace(self.chosen, trace=False), self.runs, derives=self.derives)

    def packed(self, moving: bool) -> Examples | None:
        """Its examples, where they are packed, or have to be."""
        traced = is_traced(self.bound)
        if not (moving or traced or all(s.kind == "batch" for s in self.bound.slots)):
            return None
        try:
            return self.examples()
        except BatchError:
            if traced:
                raise
            return None  # of objects that cannot be packed there are traces, but no derivatives


def is_traced(bound: BoundArguments) -> bool:
    """Does JAX trace a batched argument?"""
    return any(s.is_traced or (s.kind == "batch" and s.values.is_traced) for s in bound.slots)


STRUCTURES = 32
"""For so many types of its arguments a function remembers what its structure is."""

PROGRAMS = 16
"""So many programs over traces a function keeps as programs of its examples."""


class Traced:
    """The traced structure of one function, and its programs. Safe under threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self._structures: Bounded[Any, TracedStructure] = Bounded(STRUCTURES)
        self.overs: Bounded[Any, _KnownProgram] = Bounded(PROGRAMS)
        self._known: set[Any] = set()
        self._asking: set[Any] = set()
        self.timings: Timings | None = None
        """Of the program over traces that ran last."""

    def knows(self, bound: BoundArguments) -> bool:
        """Is a call like this one known not to compile?"""
        return bool(self._known) and bound.key in self._known

    @property
    def knows_any(self) -> bool:
        """Has a call, or a group of examples of one, not compiled?"""
        return bool(self._known)

    def call(self, asked: TraceRequest, moving: bool) -> Prepared:
        """A call as one of the program over its traces. `moving`: batched arguments are differentiated by. Where Python
        asks for a number, what compiles in memory is compiled."""
        if asked.bound.key in self._asking:
            return asked.compiled()
        try:
            return self._traced(asked, moving)
        except UnsupportedError:
            if not isinstance(asked.refused, CompilesInMemory):
                raise
            self._known.add(asked.bound.key)
            self._asking.add(asked.bound.key)
            return asked.compiled()

    def _traced(self, asked: TraceRequest, moving: bool) -> Prepared:
        with self._lock:
            call, examples = _TracedCall(self, asked), asked.packed(moving)
            try:
                if examples is None:
                    made = call.afresh()
                elif moving or is_traced(asked.bound):
                    made = call.linked(examples)
                else:
                    made = call.packed(examples)
            except ExampleError:
                self._known.add(asked.bound.key)
                raise
            if asked.refused is not None:
                self._known.add(asked.bound.key)
                _warn(self.name, asked.refused)
            return made

    def structure(self, key: Any, asked: TraceRequest) -> TracedStructure:
        settings = asked.function.settings
        whole = key, packed.widths(), id(settings)
        return self._structures.get_or_make(whole, lambda: TracedStructure(self.name, settings, asked.over))

    def over(self, key: Any, make: Callable[[], _KnownProgram]) -> Over:
        """The program of the examples with this key."""
        return self.overs.get_or_make(key, make).program

    def for_group(self, group: Group) -> tuple[Over, ...]:
        """The programs that take such packed examples, which are traced here where they are not yet."""
        with self._lock:
            held = [known for _, known in self.overs.items()]
            fit = [k for k in held if k.program.schema == group.schema and not k.program.origins.arrays]
            found = [k.program for k in fit if k.width == group.width and k.call.plans(k.program, group)]
            return tuple(sorted(found[:4], key=lambda p: p.fingerprint))


@dataclass(frozen=True)
class _KnownProgram:
    """A program of the examples, and how it was found. `free`: what it has read beside them, without arrays."""

    program: Over
    call: _TracedCall
    free: FreeVariables

    @property
    def width(self) -> int:
        return len(self.program.components)


class _TracedCall:
    """One call. What stays of it, for examples that are traced later, holds none of its numbers."""

    def __init__(self, traced: Traced, asked: TraceRequest) -> None:
        function = asked.function
        self.traced, self.name, self.planner = traced, traced.name, function.planner
        self.outline, self.leaves = Outline.of(self.name, function.__wrapped__, asked.bound)
        self.free = self.outline.free()
        structure = traced.structure(self.outline.key, asked)
        self.tracing = Tracing(self.outline, structure, asked.refused, asked.masks, most_steps(asked.chosen.max_rows))
        self.key = self.outline.key, packed.widths(), id(function.settings)
        self.asked: TraceRequest | None = asked

    def lasting(self) -> _TracedCall:
        """The same without its numbers."""
        made: _TracedCall = object.__new__(_TracedCall)
        tracing = replace(self.tracing, refused=None)
        made.__dict__.update(self.__dict__, asked=None, leaves=(), free=None, tracing=tracing)
        return made

    @property
    def shared(self) -> tuple[Any, ...]:
        """What the program over traces shares: shared values, then arrays that are free variables."""
        return (*self.leaves, *self.free.arrays.values())

    @collecting_later
    def prepared(self, function: Any, rows: Any, failures: Sequence[Failure]) -> Prepared:
        """The call of the program over traces."""
        assert self.asked is not None
        args = (self.shared, rows)
        try:
            with deeply():
                found = self.asked.prepared(function, args)
        except SourceError as error:
            raise self.refused(error) from error
        self.traced.timings = found.program.timings
        return replace(found, ready=replace(found.ready, failures=tuple(failures) or found.ready.failures))

    def refused(self, error: SourceError) -> Exception:
        """What to raise where the program over traces does not compile."""
        because = self.tracing.refused
        if because is not None:
            because.add_note(f"As its structure is traced: {error.message}")
            return because
        return UnsupportedError(f"{self.name}: its structure is traced, and {error.message}", NOWHERE, error.cure)

    # -- examples as they are given

    def afresh(self) -> Prepared:
        """A call whose examples are traced for it alone."""
        assert self.asked is not None
        rows, failures = self.tracing.rows(_values(self.asked.bound), self.free)
        if self.tracing.structure.kinds.changes_arguments:
            note_changes_by_python()
        return self.prepared(self.tracing.structure.function(), Batch(Group(rows)), failures)

    # -- packed examples

    def packed(self, examples: Examples) -> Prepared:
        """A call of packed examples, whose numbers are known."""
        group = examples.on_host()
        kept, indices = self.kept(group)
        cut = kept.rows if indices is None else kept.rows[indices]
        return self.prepared(kept.function, cut, _taken(kept.failures, indices))

    def kept(self, group: Group) -> tuple[Kept, Any]:
        """The traces of packed examples, made again only where something that they depend on has changed; and which of
        them are meant."""
        indices = None
        if group.origin is not None and self.planner in group.origin[0].planners:
            group, indices = group.origin
        key, free = (self.traced, self.key), self.free or self.outline.free()
        found: Kept | None = group.traced.get(key)
        if found is None or not found.still_holds(self.outline.decided, free):
            made = self.trace(group.columns, group.width, free)
            found = replace(made, free=self.outline.free())  # which the function may have changed
            group.traced.put(key, found)
        return found, indices

    def trace(self, columns: Columns, width: int, free: FreeVariables) -> Kept:
        """Trace packed examples."""
        held = NumberOrigins.of(None if refuses_references(columns.schema) else columns.schema, {})
        same = alike(columns, frozenset(o.name for o in held.columns), {}, columns.count)
        few = columns.take(same.first) if len(same.first) < columns.count else columns
        examples = held.unpacked(few)
        values = [tuple(x) for x in examples] if width > 1 else [(x,) for x in examples]
        rows, failures = self.tracing.rows(values, free)
        function = self.tracing.structure.function()
        links, traces = _linked(rows, held, few)
        every = links.absolute(traces.take(same.of), held, columns)
        made = links.with_values(every, [columns.arrays[o.name] for o in held.columns])
        batch = _planned(function, links.relative(made, held, columns))
        return Kept(free, self.outline.decided, function, batch, same.failures(failures))

    # -- the program over traces as one of the examples

    def linked(self, examples: Examples) -> Prepared:
        """A call whose numbers move, or are not known."""
        assert self.asked is not None
        self._refuse_unknown(examples)
        if examples.leaves is not None and examples.group is None and is_traced(self.asked.bound):
            if examples.arrays:
                raise PlanError(
                    f"{self.name}: its structure is traced, and under jax.jit arrays beside a Batch are no part of its "
                    f"plan; pack them together: {self.name}.pack"
                )
            found = self._found(examples) or self._of_leaves(examples)
        elif examples.width and not examples.arrays:
            found = self._of_group(examples, examples.on_host())
        else:
            found = self._of_arrays(examples)
        return found

    def _refuse_unknown(self, examples: Examples) -> None:
        for k, c in enumerate(examples.components):
            is_number = isinstance(c.type, Array) and not c.type.is_integer and not c.type.is_bool
            if c.traced and not is_number:
                raise PlanError(
                    f"{self.name}: its structure is traced, and {examples.names[k]} is an array of integers that JAX "
                    f"traces, so they are not known; pass it in a Batch ({self.name}.pack), or call outside jax.jit"
                )
        if name := refuses_references(examples.schema):
            raise UnsupportedError(
                f"{self.name}: its structure is traced, and the numbers of a {name} do not move",
                cure="give the numbers of the matrix as lists or arrays",
            )

    def over(self, prepared: Prepared, kept: Kept, examples: Examples) -> Over:
        """The program of the examples, of a prepared call of the program over traces."""
        arrays = {k: c.type for k, c in enumerate(examples.components) if c.array and isinstance(c.type, Array)}
        origins = NumberOrigins.of(examples.schema if examples.width else None, arrays)
        inner, lasting = prepared.program, self.lasting()

        def make() -> _KnownProgram:
            def trace(program: Over, components: tuple[Columns, ...]) -> TracedPlan:
                return lasting.plan_later(program, kept.function, components)

            over = Over(inner, self.planner, examples.components, origins, examples.schema, trace)
            return _KnownProgram(over, lasting, kept.free.lasting())

        key = inner.fingerprint, examples.components, examples.schema, self.outline.decided
        return self.traced.over(key, make)

    def _with(self, over: Over, ready: Ready, prepared: Prepared, examples: Examples) -> Prepared:
        return replace(prepared, program=over, examples=examples, ready=ready, bound=None, operands=None)

    def _inner(self, kept: Kept, indices: Any) -> Prepared:
        cut = kept.rows if indices is None else kept.rows[indices]
        return self.prepared(kept.function, cut, ()).with_tables()

    def _of_group(self, examples: Examples, group: Group) -> Prepared:
        kept, indices = self.kept(group)
        prepared = self._inner(kept, indices)
        over = self.over(prepared, kept, examples)
        keep_plan(over, group, kept, self.planner)
        return self._with(over, without_words(examples.ready(over)), prepared, examples)

    def _found(self, examples: Examples) -> Prepared | None:
        """The call of a batch that JAX traces, where its plan came with it."""
        assert examples.leaves is not None and self.asked is not None
        plans = {p.fingerprint for p in examples.leaves[1].plans}
        for _, known in self.traced.overs.items():
            over, call = known.program, known.call
            if over.fingerprint in plans and call.is_like(self) and known.free.is_same(self.free):
                ready = without_words(examples.ready(over))
                chosen, out_axes = self.asked.chosen, self.asked.function.settings.out_axes
                held = (over, examples, over.shared(self.shared), ready, out_axes, chosen.check_plans)
                return Prepared(self.name, *held, place=Placement(chosen.threads, chosen.stream))
        return None

    def is_like(self, other: _TracedCall) -> bool:
        """Have two calls the same structure, as far as their arguments say?"""
        return self.key == other.key and self.outline.decided == other.outline.decided

    def _of_leaves(self, examples: Examples) -> Prepared:
        """A batch of which JAX traces the leaves: planned as the group that it is, or as one of its size class."""
        assert examples.leaves is not None
        leaves, form = examples.leaves
        token = leaves.columns.get(TOKEN)
        group = form.like() if form.like is not None else None
        if token is not None and not isinstance(token, jax.core.Tracer):
            group = living_group(int(token))
        if group is None or self.planner not in dict(form.planners):
            raise PlanError(
                f"{self.name}: its structure is traced, and under jax.jit the examples are not known; plan the batch "
                f"before: batch.plan({self.name})"
            )
        return self._of_group(replace(examples, group=None), group)

    def _of_arrays(self, examples: Examples) -> Prepared:
        """Examples that are arrays, and what is packed beside them: traced for this call."""
        group = examples.on_host() if examples.width else None
        arrays = {k: c.type for k, c in enumerate(examples.components) if c.array and isinstance(c.type, Array)}
        origins = NumberOrigins.of(None if group is None else group.schema, arrays)
        kept = self._trace_arrays(examples, origins, group)
        prepared = self._inner(kept, None)
        over = self.over(prepared, kept, examples)
        columns, profile = (None, None) if group is None else (group.columns, group.own_profile)
        plan = TracedPlan(prepared.program, kept.group, columns, profile, kept.failures)
        made = examples.with_arrays(Ready(*over.bind(plan), plan.failures, plan), over)
        return self._with(over, without_words(made), prepared, examples)

    def _trace_arrays(self, examples: Examples, origins: NumberOrigins, group: Group | None) -> Kept:
        seen = {k: np.asarray(jax.device_get(x)) for k, x in examples.arrays.items() if k not in origins.arrays}
        columns = None if group is None else group.columns
        same = alike(columns, frozenset(o.name for o in origins.columns), seen, examples.count)
        few = None if columns is None else columns.take(same.first)
        packed = iter(_components(origins, few, examples.width))
        values = []
        for k, component in enumerate(examples.components):
            if not component.array:
                values.append(next(packed))
            elif k in origins.arrays:
                values.append(origins.rows_of(k, len(same.first)))
            else:
                values.append(list(seen[k][same.first]))
        rows, failures = self.tracing.rows(list(zip(*values, strict=True)), self.free)
        function = self.tracing.structure.function()
        _, traces = _linked(rows, origins, few)
        batch = _planned(function, traces.take(same.of))
        return Kept(self.free, self.outline.decided, function, batch, same.failures(failures))

    def plans(self, over: Over, group: Group) -> bool:
        """Let a group have a plan for a program; false where it shows structure that the program does not know."""
        try:
            kept, _ = self.kept(group)
        except Error:
            return False  # a call of these examples says what is wrong with them
        if kept.function.planner is not over.inner.planner:
            return False
        keep_plan(over, group, kept, self.planner)
        return True

    def plan_later(self, program: Over, function: Any, components: tuple[Columns, ...]) -> TracedPlan:
        """The plan of examples that are met when a computation runs."""
        group = Group(components[0])
        kept = self.trace(components[0], 1, self.outline.free())
        if kept.function is not function:
            raise PlanError(f"{self.name}: the batch shows structure that none before it did; call the function again")
        return TracedPlan(program.inner, kept.group, group.columns, group.own_profile, kept.failures)


def keep_plan(over: Over, group: Group, kept: Kept, planner: Any) -> None:
    """Let the examples that were traced have their plan for a program."""
    if group.origin is not None and planner in group.origin[0].planners:
        group = group.origin[0]
    plan = TracedPlan(over.inner, kept.group, group.columns, group.own_profile, kept.failures)
    if not group.has_plan(over):
        group.keep_plan(over, plan)


def _linked(rows: Columns, origins: NumberOrigins, columns: Columns | None) -> tuple[Links, Columns]:
    """Rows of traces that count the rows of `columns` that they read from those of their example on."""
    links = Links.find(rows.schema)
    return links, links.relative(rows, origins, columns)


def _planned(function: Any, traces: Columns) -> Batch:
    """Traces that are planned for the program over them."""
    return Batch(Group(traces)).plan(function)


def _components(origins: NumberOrigins, columns: Columns | None, width: int) -> list[list[Any]]:
    """The packed arguments, each as a list of its examples."""
    if columns is None:
        return []
    found = origins.unpacked(columns)
    return [list(x) for x in zip(*found, strict=True)] if width > 1 else [found]


def _values(bound: BoundArguments) -> list[tuple[Any, ...]]:
    """The values of each example, one for each batched leaf, as they were given."""
    found: list[Sequence[Any]] = []
    for slot in bound.slots:
        if slot.kind == "batch":
            found.append(slot.values.to_list())
        else:
            found.append(list(jax.device_get(slot.leading())) if slot.kind == "array" else slot.values)
    return list(zip(*found, strict=True))


STEP_BYTES = 1000
"""The memory that an operation of a trace takes, with what is made of it."""


def most_steps(max_rows: int) -> int:
    """How many operations one example may have."""
    return min(max_rows, runtime.memory_limit() // STEP_BYTES)


def _taken(failures: Sequence[Failure], indices: Any) -> tuple[Failure, ...]:
    if indices is None or not failures:
        return tuple(failures)
    held = {f.index: f for f in failures}
    return tuple(replace(held[k], index=n) for n, k in enumerate(indices.tolist()) if k in held)


# ---- the user's call


@contextmanager
def deeply() -> Iterator[None]:
    """Let the front end follow calls as deep as those of a program over traces may be, whose functions each call those
    of what they read."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


DEEP = 30_000


def _warn(name: str, refused: Exception) -> None:
    message = str(refused).splitlines()[0]
    warn(f"{name}: structure is traced, example by example, as it does not compile: {message}", StructureWarning)
