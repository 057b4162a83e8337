"""The passes in order, once: from a Python function for one example to a program for a batch.

    source -> frontend -> inline -> cse -> uniform loops -> loops to functions -> structure -> system
           -> sharing -> fission -> specialise (and again from structure) -> sums over paths -> contractions -> XLA

`compile` runs everything that depends on types alone; `Program.plan` what depends on a data set; `Program.run` is
traced by JAX for one signature (the shapes of a size class).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.analysis.fallible import fallible_reads
from autobatch.analysis.structure import Structure, analyse
from autobatch.autodiff import Policy
from autobatch.backends.interpret import demand
from autobatch.backends.interpret.callback import decided_on_host
from autobatch.backends.xla import emit, memory
from autobatch.backends.xla.differentiable import Differentiable, Mode
from autobatch.backends.xla.machine import machine
from autobatch.backends.xla.native.eligible import all_by_kernel
from autobatch.errors import Failure, UnsupportedError
from autobatch.frontend import Lowered, lower
from autobatch.ir.blocks import Site
from autobatch.ir.core import Apply, Module, Value, walk
from autobatch.ir.masked import Allowed
from autobatch.ir.printer import print_module
from autobatch.ir.system import System, print_system
from autobatch.ir.template import NO_INTEGERS, Integers
from autobatch.ir.types import INT, Array, Type
from autobatch.ir.verifier import verify
from autobatch.optimize.contractions import merge_contractions
from autobatch.optimize.costs import TYPICAL, Machine
from autobatch.optimize.cse import eliminate_common
from autobatch.optimize.fission import Recurrence, Schedule, fission, print_schedule
from autobatch.optimize.footprint import Footprint
from autobatch.optimize.inline import inline
from autobatch.optimize.narrow import narrow_joins
from autobatch.optimize.path_sums import sum_over_paths
from autobatch.optimize.requests import table_request
from autobatch.optimize.sharing import share_rows
from autobatch.options import Options
from autobatch.runtime.activations import Inspection
from autobatch.runtime.assemble import make_plan
from autobatch.runtime.bind import bind_plan, exact_outputs
from autobatch.runtime.columns import Columns
from autobatch.runtime.combine import combine
from autobatch.runtime.decisions import Decisions
from autobatch.runtime.failures import first_failures
from autobatch.runtime.plan import DataPlan
from autobatch.runtime.returned import element_type
from autobatch.runtime.schema import Schema, columns_read
from autobatch.runtime.size_classes import SizeClasses, Usual
from autobatch.runtime.spec import MOST_TURNS, Number, PlanSpec
from autobatch.runtime.tables import Signature
from autobatch.vectorize.divisors import check_divisors
from autobatch.vectorize.frames import build_system
from autobatch.vectorize.indices import keep_known_bounds
from autobatch.vectorize.kinds import loops_to_functions
from autobatch.vectorize.masks import mask_numeric_control, take_gradients
from autobatch.vectorize.refuse import refuse_made_strings, refuse_numeric_control, refuse_wide_constants
from autobatch.vectorize.specialise import in_recurrences, specialise
from autobatch.vectorize.stack import Limits, use_stack
from autobatch.vectorize.status import cut_off, hand_up_statuses
from autobatch.vectorize.uniform_loops import Turns, fuse_uniform_loops
from autobatch.vectorize.unread import check_unread


@dataclass(frozen=True)
class ArrayResult:
    """One array, examples on axis 0."""

    values: Any


@dataclass(frozen=True)
class RaggedResult:
    """Values of all elements behind one another, and int32[B + 1] offsets."""

    values: ArrayResult | RaggedResult | StructureResult
    offsets: Any


@dataclass(frozen=True)
class StructureResult:
    """Rows of the input, one an example or element: references, tags or lists (-1 is null); or rows of the objects that
    the program has made, and which class they are."""

    rows: Any
    type: Type


Result = ArrayResult | RaggedResult | StructureResult


class Program:
    """One specialisation of a batched function: compiled for types, planned for data sets, run for size classes."""

    def __init__(
        self,
        lowered: Lowered,
        stages: dict[str, Callable[[], str]],
        example: Module,
        system: System,
        spec: PlanSpec,
        schedule: Schedule,
        schema: Schema,
        options: Options,
        turns: Turns,
        sites: tuple[Site, ...] = (),
        masks: bool = False,
        cut: bool = False,
    ) -> None:
        self._schema, self._system = schema, system
        self.lowered, self.spec, self.schedule, self.options = lowered, spec, schedule, options
        self.example = example
        self._stages = stages
        self._request = table_request(schedule, options.widths, _machine(schedule, options))
        self._emit = emit.Program(schedule, self._request, example.constants, options.products, options.loops)
        policy = cast(Policy, options.residuals)
        self._differentiable = Differentiable(self._emit, schedule, policy, cut=cut)
        self._by_rows = Differentiable(self._emit, schedule, policy, by_rows=True, cut=cut)
        self.footprint = Footprint.of(schedule)
        """What a batch needs of the memory at least."""
        self._fitting = set[tuple[int, ...]]()
        self._sizes = SizeClasses(least=min(options.widths))
        self.masks = masks
        """Are examples that fail cut off from the others, and from derivatives?"""
        self.turns = turns
        """Room for the turns of loops that shared integers count."""
        self.sites = sites
        """What examples can fail with on the device: the result behind those of the function says which, from 1, and 0
        where they do not."""
        self._decisions = Decisions(example, tuple(spec.numbers))
        self.deciding = self._decisions.deciding
        """The shared inputs that decide structure: integers."""

    def plan(self, columns: Sequence[Columns], max_rows: int | None = None, numbers: Sequence[Number] = ()) -> DataPlan:
        """The tables of a data set: one `Columns` for each batched argument. Examples that fail are in `failures`.
        `max_rows`: the option as it is now; that of the compilation by default. `numbers`: what `decide` says."""
        limit = self.options.max_rows if max_rows is None else max_rows
        turns = min(self.options.max_iterations, MOST_TURNS)
        spec = replace(self.spec, numbers=dict(zip(self.spec.numbers, numbers, strict=True)), turns=turns)
        data, roots = combine(columns)
        failed: dict[int, Failure] = {}
        examples = np.arange(data.count)
        while True:
            inspection = Inspection(spec, data, roots, limit, examples)
            found = inspection.run()
            if found is None:
                wrong = sorted(inspection.failed)
            else:
                plan, cyclic = self._assemble(data, roots, found)
                if not len(cyclic):
                    return replace(plan, failures=tuple(failed[k] for k in sorted(failed)))
                wrong = cyclic.tolist()
            failed.update((f.index, f) for f in first_failures(spec, data, roots, wrong, inspection.of_device))
            examples = np.setdiff1d(examples, wrong)

    def _assemble(self, data: Columns, roots: Sequence[Any], found: Any) -> tuple[DataPlan, Any]:
        def held(column: str) -> Any:
            if column.startswith("#argument"):
                return roots[int(column.removeprefix("#argument"))]
            return data.arrays[column]

        return make_plan(self.spec, self._request, found, data, {c: (s, held(c)) for c, s in self._request.data})

    def bind(self, plan: DataPlan, at_least: Sequence[Signature] = ()) -> tuple[dict[str, Any], Signature]:
        """The arrays and the signature of one call; its capacities hold those of the signatures `at_least` too.

        Raises PlanError where memory cannot hold them."""

        def capacities(counts: Mapping[int, int], usual: Usual | None) -> tuple[int, ...]:
            own = self._sizes.capacities(counts, usual)
            others = (s.capacity for s in at_least)
            whole = tuple(max(sizes) for sizes in zip(own, *others, strict=True)) if at_least else own
            if whole not in self._fitting and self.options.backend != "interpret":
                self.footprint.check(whole, plan.count, memory.limit())
                self._fitting.add(whole)
            return whole

        return bind_plan(plan, capacities)

    def decide(self, integers: Sequence[int]) -> tuple[Number, ...]:
        """What a plan depends on, for values of the shared inputs at `deciding`."""
        return self._decisions.values(integers)

    @property
    def structural(self) -> frozenset[int]:
        """The parameters of the entry that the host reads: they decide structure."""
        args = self.spec.module.functions[0].region.args
        return frozenset(k for k, a in enumerate(args) if a in self.spec.on_host)

    @functools.cached_property
    def structure_columns(self) -> frozenset[str]:
        """The columns of the examples that the host reads: a plan is stale when one of them has changed."""
        found = {f"#argument{k}" for k in self.structural}
        for function in self.spec.slice.functions:
            for instruction in walk(function.region):
                if isinstance(instruction, Apply):
                    found.update(columns_read(instruction, self._schema))
        return frozenset(found)

    def interpret(self, shared: Sequence[Any], plan: DataPlan, tables: Mapping[str, Any]) -> list[Result]:
        """The results by the reference back end, row by row. `tables` are what `bind` made of the plan; columns of data
        among them may hold other numbers than those that were planned."""
        live = {column: tables[column][: plan.rows(space)] for column, space in self._request.data}
        arrays = iter(self.evaluate(shared, plan, live))
        return self._results(arrays, {**tables, **exact_outputs(plan, tables)}, plan.count)

    def evaluate(self, shared: Sequence[Any], plan: DataPlan, data: Mapping[str, Any]) -> list[Any]:
        """The arrays that the results are made of, by the reference back end; `data` replaces columns of the plan."""
        whole = replace(plan, data={**plan.data, **data})
        status = self._system.outputs[self._status] if self.masks and self.sites else None

        def run(shared: Sequence[Any], data: Mapping[str, Any]) -> list[Any]:
            live = replace(whole, data={**whole.data, **data})
            return demand.run(self._system, live, shared, self.example.constants, status)

        return decided_on_host(run, demand.shapes(self._system, whole), shared, data)

    def interpret_later(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        evaluate: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> list[Result]:
        """The results where the plan is not known yet: `evaluate` gives the arrays of these shapes."""
        arrays = jax.eval_shape(lambda s, t: self._emit.run(s, t, signature), list(shared), dict(tables))
        return self._results(iter(evaluate(arrays)), tables, signature.batch)

    def run(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode = "reverse"
    ) -> list[Result]:
        """The results of the entry, to be traced under `jax.jit` with `signature` and `mode` static."""
        arrays = self._differentiable.run(shared, tables, signature, mode=mode)
        return self._results(iter(arrays), tables, signature.batch)

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode = "reverse"
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The arrays that the results are made of, and their pullback to shared inputs and columns of floats, in which
        tables that are read by rows have the cotangents of these rows (`SparseRows`)."""
        return self._by_rows.linearised(shared, tables, signature, mode)

    @property
    def tables_of_rows(self) -> frozenset[int]:
        """The shared inputs that are read by rows alone."""
        adjoint = self._by_rows.adjoint
        return frozenset() if adjoint is None else frozenset(adjoint.rows)

    def results(self, arrays: Sequence[Any], tables: Mapping[str, Any], signature: Signature) -> list[Result]:
        """The results of the entry, of the arrays that they are made of."""
        return self._results(iter(arrays), tables, signature.batch)

    def _results(self, arrays: Iterator[Any], tables: Mapping[str, Any], batch: int) -> list[Result]:
        results: list[Result] = []
        for k, table in enumerate(self.spec.outputs):
            depth = 0 if table.elements is None else 1 + len(table.lists)
            if table.kind == "structure":
                found = StructureResult(tables[f"result{k}"], element_type(table.value.type))
                results.append(self._ragged(k, found, tables, depth) if depth else found)
            elif depth:
                results.append(self._ragged(k, _masked(next(arrays), tables, k, depth), tables, depth))
            else:
                rows = next(arrays)
                results.append(ArrayResult(rows[:batch] if table.owner is None else rows))
        if self.spec.made is not None:
            results.append(StructureResult(tables["made"], INT))
        return results

    def _ragged(
        self, k: int, result: ArrayResult | StructureResult, tables: Mapping[str, Any], depth: int
    ) -> RaggedResult:
        """Values by the offsets of each depth, outermost first."""
        made: Result = result
        for d in reversed(range(depth)):
            made = RaggedResult(made, _offsets(tables, k, d))
        assert isinstance(made, RaggedResult)
        return made

    @property
    def _status(self) -> int:
        """Which output of the system says what examples have failed with on the device: that behind the results."""
        before = self.spec.outputs[: len(self.lowered.module.functions[0].region.results)]
        return sum(table.kind != "structure" for table in before)

    def as_text(self, stage: str) -> str:
        """The program after a stage: "example", "functions", "spmd", "fissioned" or "adjoint"."""
        if stage == "adjoint":
            return self._differentiable.as_text()
        return self._stages[stage]()


def _machine(schedule: Schedule, options: Options) -> Machine:
    """What the covers of levels go by: this machine is measured only where there are levels, and XLA runs them."""
    if options.backend == "interpret" or not any(isinstance(s, Recurrence) for s in schedule.steps):
        return TYPICAL
    if all_by_kernel(schedule, options.loops, options.products, options.widths):
        return TYPICAL
    return machine(options.window_costs)


def _offsets(tables: Mapping[str, Any], k: int, depth: int) -> Any:
    return jnp.asarray(tables[f"offsets{k}" + (f".{depth}" if depth else "")], jnp.int32)


def _masked(values: Any, tables: Mapping[str, Any], k: int, depth: int) -> ArrayResult:
    """The elements of lists; capacity past the last one is zero."""
    live = jnp.arange(values.shape[0]) < _offsets(tables, k, depth - 1)[-1]
    mask = live.reshape(live.shape + (1,) * (values.ndim - 1))
    return ArrayResult(jnp.where(mask, values, jnp.zeros_like(values)))


NOTHING_TRACED: Mapping[int, str] = {}
NO_DICTS: Mapping[str, Any] = {}


def compile(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    schema: Schema,
    shared: Sequence[Array],
    options: Options,
    traced: Mapping[int, str] = NOTHING_TRACED,
    integers: Integers = NO_INTEGERS,
    dicts: Mapping[str, Any] = NO_DICTS,
    masks: bool = False,
) -> Program:
    """Compile `fun` for arguments whose array leaves are `ir.template.Input`; see `ir/template.py`.

    `traced`: parameters of the entry whose values only the device will know, and their names. `integers`: the shared
    inputs that are Python integers; `frontend.needs.Needed` is raised where one of them has to be static instead.
    `dicts`: those among the arguments that all examples share, by their names. `masks`: what examples that fail have
    computed reaches no derivative."""
    lowered = lower(fun, args, kwargs, schema, shared, integers.known, dicts)
    passes = _Passes(options)
    passes.after("example", lowered.module)
    module = passes.after("inline", inline(lowered.module))
    module = passes.after("cse", eliminate_common(module))
    known, on_device = frozenset(integers.known), frozenset(traced)
    try:
        control = _control(module, passes, schema, options, traced, integers, masks, floats=True)
    except _StaysOnHost:
        control = _control(module, passes, schema, options, traced, integers, masks, floats=False)
    functions, facts, fallible, turns, sites, cut = control
    functions = passes.after("unread", check_unread(functions, facts, fallible, schema))
    functions = passes.after("divisors", check_divisors(functions, facts, known))
    facts = analyse(functions, on_device, known)
    system, spec, values = build_system(functions, facts, schema)
    schedule = fission(share_rows(system))
    while (moved := specialise(functions, in_recurrences(schedule, values))) is not None:
        functions = passes.after("specialise", moved)
        system, spec, values = build_system(functions, analyse(functions, on_device, known), schema)
        schedule = fission(share_rows(system))
    for improve in (sum_over_paths, merge_contractions, narrow_joins):
        if (better := improve(schedule)) is not None:
            schedule = fission(better)
    stages = {
        "example": lambda: print_module(lowered.module),
        "functions": lambda: print_module(functions),
        "spmd": lambda: print_system(system),
        "fissioned": lambda: print_schedule(schedule),
    }
    passes.write("system", lambda: print_system(system))
    passes.write("fission", lambda: print_schedule(schedule))
    return Program(lowered, stages, functions, system, spec, schedule, schema, options, turns, sites, masks, cut)


class _StaysOnHost(Exception):
    """What floats of the examples decide cannot leave the host: something else depends on it."""


class _Control(NamedTuple):
    """Functions whose control is known to the host, but for what is one operation under a mask, or a program of blocks;
    facts about them, and the reads that can fail; `cut`: are rows that fail cut off from the others?"""

    functions: Module
    facts: Structure
    fallible: frozenset[Value]
    turns: Turns
    sites: tuple[Site, ...]
    cut: bool


def _control(
    module: Module,
    passes: _Passes,
    schema: Schema,
    options: Options,
    traced: Mapping[int, str],
    integers: Integers,
    masks: bool,
    *,
    floats: bool,
) -> _Control:
    """Passes 5 to 9. `masks`: as in `compile`. `floats`: loops that floats of the examples end run on the device;
    raises _StaysOnHost where the rest of the program cannot do without what the host would know of them."""
    known, on_device = frozenset(integers.known), frozenset(traced)
    reads = partial(fallible_reads, schema=schema)
    allowed = Allowed(options.max_iterations, options.states, options.counted_turns)
    moved = False
    try:
        while True:
            module, open_ = take_gradients(module, reads, on_device, known, allowed, schema)
            module = passes.after("gradients", module)
            found = mask_numeric_control(module, reads, on_device, known, allowed, schema, floats, integers.unknown)
            moved = found.moved
            if moved and found.ahead:
                raise _StaysOnHost
            whole, sites = hand_up_statuses(passes.after("masks", found.module))
            if cut := found.ahead or (masks and bool(sites)):
                whole = passes.after("cut", cut_off(whole))
            fused, turns = fuse_uniform_loops(whole, integers.known, allowed.counted)
            fused = passes.after("uniform-loops", fused)
            functions, fallible = loops_to_functions(fused, reads(fused))
            functions = passes.after("functions", functions)
            functions = passes.after(
                "indices", keep_known_bounds(functions, partial(analyse, functions, on_device, known), known)
            )
            facts = analyse(functions, on_device, known)
            stacked = use_stack(module, functions, facts, Limits(options.max_depth, options.max_steps))
            if stacked is None:
                break
            if moved:
                raise _StaysOnHost
            module = passes.after("stack", stacked)
        refuse_made_strings(functions)
        refuse_numeric_control(functions, facts, integers.unknown, traced, {**found.obstacles, **open_})
        refuse_wide_constants(functions, facts)
    except UnsupportedError as error:
        if moved:
            raise _StaysOnHost from error
        raise
    return _Control(functions, facts, fallible, turns, sites, cut)


class _Passes:
    """Verifies and dumps after every pass, where the options ask for it."""

    def __init__(self, options: Options) -> None:
        self.options, self.number = options, 0

    def after(self, name: str, module: Module) -> Module:
        if self.options.verify:
            verify(module)
        self.write(name, lambda: print_module(module))
        return module

    def write(self, name: str, text: Callable[[], str]) -> None:
        self.number += 1
        if self.options.dump is not None:
            self.options.dump.mkdir(parents=True, exist_ok=True)
            (self.options.dump / f"{self.number:02}-{name}.txt").write_text(text())
