"""The passes in order, once: from a Python function for one example to a program for a batch.

    source -> frontend -> inline -> cse -> uniform loops -> loops to functions -> structure -> system
           -> sharing -> fission -> specialise (and again from structure) -> sums over paths -> contractions -> XLA

`compile` runs everything that depends on types alone; `Program.plan` what depends on a data set; `Program.run` is
traced by JAX for one signature (the shapes of a size class).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from autobatch.backends.interface import Declined, FunctionProgram, Mode, RowEquations, WholeFunction
from autobatch.backends.interpret import Interpret, Interpreted
from autobatch.backends.llvm.binding import binding_machine
from autobatch.backends.llvm.program import Llvm, WholeProgram
from autobatch.backends.xla.program import Xla, XlaProgram, window_costs
from autobatch.common import runtime
from autobatch.common.runtime import not_cheap, stage
from autobatch.compiler import choice
from autobatch.compiler import passes as pm
from autobatch.compiler.executables import (
    ArrayResult,
    RaggedResult,
    Result,
    StructureResult,
    first_rows,
    masked_elements,
    offsets,
)
from autobatch.compiler.passes import (
    ControlledFunctions,
    MaskedFunctions,
    PassManager,
    PassRequest,
    control,
    planned,
    remembering,
    whole_of,
    with_arenas_alone,
    with_letters,
)
from autobatch.compiler.stored import ProgramFacts, ProgramStore, facts_of, is_plain, store_of
from autobatch.data.columns import ColumnInput, Columns, Schema, SharedColumns, WordInput, columns_read, with_shared
from autobatch.data.spec import Number, PlanSpec, Signature, TableRequest, element_type
from autobatch.data.together import combine
from autobatch.errors import ExampleError, Failure, Span
from autobatch.frontend import LoweredModule
from autobatch.ir.core import INT, NO_INTEGERS, Apply, Array, Integers, Module, walk
from autobatch.ir.leaf import is_too_deep
from autobatch.ir.printer import print_module
from autobatch.ir.system import System, print_system
from autobatch.options import Options
from autobatch.passes.code_points import keeps_made_strings
from autobatch.passes.costs import Footprint, table_request
from autobatch.passes.fission import Recurrence, Schedule, print_schedule
from autobatch.passes.frames import in_recurrences
from autobatch.passes.loops import Turns
from autobatch.passes.object_rows import has_structure
from autobatch.passes.overflows import unchecked
from autobatch.passes.structure import Decisions
from autobatch.planning.activations import HOPELESS, EndlessWatch, first_failures, host_limits, inspect
from autobatch.planning.assemble import make_plan
from autobatch.planning.bind import bind_plan, exact_outputs
from autobatch.planning.plan import STEP, DataPlan, SizeClasses, Usual

# ---- scheduling
#
# From functions whose control is known to equations over rows, and the order in which these run: passes 9 to 16.


class Scheduled(NamedTuple):
    """A program as equations over rows, and in which order they run. `turns`: room for the turns of loops that shared
    integers count."""

    functions: Module
    system: System
    spec: PlanSpec
    schedule: Schedule
    turns: Turns


def scheduled(found: ControlledFunctions, asked: PassRequest) -> Scheduled:
    """Passes 9 to 16: equations over spaces of rows, and the order in which they run."""
    passes, schema, known, on_device = asked.passes, asked.schema, asked.known, asked.on_device
    functions, facts, fallible, turns, _ = found
    functions = passes.run(pm.UNREAD, functions, facts, fallible, schema)
    while True:
        facts = passes.run(pm.STRUCTURE, functions, on_device, known)
        system, spec, values = passes.run(pm.SYSTEM, functions, facts, schema)
        schedule = passes.run(pm.FISSION, passes.run(pm.SHARE, system))
        moved = passes.run(pm.SPECIALISE, functions, in_recurrences(schedule, values))
        if moved is None:
            break
        functions = moved
    for improve in (pm.PATH_SUMS, pm.CONTRACTIONS, pm.NARROW_JOINS):
        if (better := passes.run(improve, schedule)) is not None:
            schedule = passes.run(pm.FISSION, better)
    return Scheduled(functions, system, spec, schedule, turns)


Ready = tuple[LoweredModule, Module, PassRequest]
"""What the front end has made of a function, and what is asked for."""


class Passed(NamedTuple):
    """What the passes have made of a function."""

    lowered: LoweredModule
    whole: MaskedFunctions
    scheduled: Callable[[], Scheduled]
    inputs: tuple[ColumnInput | WordInput, ...] = ()
    by_xla: Callable[[], CompiledProgram] | None = None

    @property
    def facts(self) -> ProgramFacts:
        """What calls need of it."""
        return facts_of(self.lowered, self.whole.module.functions[0].region.results, self.whole.sites)


class CompiledProgram:
    """One specialisation of a batched function: compiled for types, planned for data sets, run for size classes.

    `native`: the whole function as machine code, where that is the back end; then the schedule is made when something
    else than a call asks for it. `by_xla`: the program that XLA runs in its place, where the host knows structure.
    `masks`: are examples that fail cut off from the others, and from derivatives? `sites`: what examples can fail with
    on the device; the result behind those of the function says which, from 1, and 0 where they do not."""

    def __init__(
        self,
        facts: ProgramFacts,
        schema: Schema,
        options: Options,
        masks: bool,
        passed: Callable[[], Passed],
        native: FunctionProgram | None = None,
        by_xla: Callable[[], CompiledProgram] | None = None,
    ) -> None:
        self.facts, self.options, self.masks, self.sites = facts, options, masks, facts.sites
        self.native, self._schema, self._passed, self.by_xla = native, schema, passed, by_xla
        self._fitting = set[tuple[int, ...]]()
        if native is None:
            self.code  # noqa: B018  what cannot be emitted is refused here

    @functools.cached_property
    def lowered(self) -> LoweredModule:
        """What the front end has made of the function."""
        return self._passed().lowered

    @property
    def in_front(self) -> Mapping[Span, Span]:
        """The loops and calls that run ahead of a branch on computed numbers, with the branch that they stand in."""
        return self._passed().whole.found.in_front

    @functools.cached_property
    def _made(self) -> Scheduled:
        return self._passed().scheduled()

    @property
    def example(self) -> Module:
        """The functions behind all passes."""
        return self._made.functions

    @property
    def spec(self) -> PlanSpec:
        return self._made.spec

    @property
    def schedule(self) -> Schedule:
        return self._made.schedule

    @property
    def request(self) -> TableRequest:
        """The tables that a plan is turned into."""
        return self._request

    @functools.cached_property
    def _request(self) -> TableRequest:
        return table_request(self.schedule, self.options.widths, window_costs(self.schedule, self.options))

    @functools.cached_property
    def _sizes(self) -> SizeClasses:
        regular = not (self._schema.stores or self._schema.lists or self.deciding)
        levels = any(isinstance(s, Recurrence) for s in self.schedule.steps)
        return SizeClasses(min(self.options.widths) if levels or not regular else 1, regular)

    @functools.cached_property
    def rows(self) -> RowEquations:
        """Equations over rows, as back ends compile them."""
        made = self._made
        status = made.system.outputs[self._status] if self.masks and self.sites else None
        cut = self._passed().whole.cut
        return RowEquations(
            made.system, made.schedule, self._request, made.functions.constants, self.options, cut, status
        )

    @functools.cached_property
    def code(self) -> XlaProgram:
        """The program that XLA runs."""
        found = Xla().accepts(self.rows)
        if isinstance(found, Declined):
            raise found.error
        return found

    @functools.cached_property
    def _reference(self) -> Interpreted:
        return Interpret().compile(self.rows)

    @functools.cached_property
    def footprint(self) -> Footprint:
        """What a batch needs of the memory at least."""
        return Footprint.of(self.schedule)

    @functools.cached_property
    def _decisions(self) -> Decisions:
        return Decisions(self.example, tuple(self.spec.numbers))

    @property
    def deciding(self) -> Sequence[int]:
        """The shared inputs that decide structure: integers."""
        return () if self.native is not None else self._decisions.deciding

    def has_room(self, integers: Mapping[int, int]) -> bool:
        """Is there room for the turns of loops that these values of shared inputs count?"""
        return self.native is not None or self._made.turns.enough(integers)

    def plan(
        self,
        columns: Sequence[Columns],
        max_rows: int | None = None,
        numbers: Sequence[Number] = (),
        *,
        patient: bool = True,
    ) -> DataPlan:
        """The tables of a data set: one `Columns` for each batched argument. Examples that fail are in `failures`.
        `max_rows`: the option as it is now; that of the compilation by default. `numbers`: what `decide` says.
        Unless `patient`, raises ExampleError once several examples are known not to end: each takes seconds."""
        data, roots = combine(columns)
        limits = host_limits(self.options, max_rows, data, runtime.memory_limit())
        spec = replace(self.spec, numbers=dict(zip(self.spec.numbers, numbers, strict=True)), limits=limits)
        failed: dict[int, Failure] = {}
        examples, watch = np.arange(data.count), EndlessWatch(spec, data, roots, patient)
        while True:
            inspection, found = inspect(spec, data, roots, examples, watch)
            if found is None:
                wrong = sorted(inspection.failed)
            else:
                plan, cyclic = self._assemble(data, roots, found)
                if not len(cyclic):
                    return replace(plan, failures=tuple(failed[k] for k in sorted(failed)))
                wrong = cyclic.tolist()
            failed |= watch.failures
            if watch.hopeless:
                raise ExampleError([failed[k] for k in sorted(failed)], note=HOPELESS)
            unknown = [e for e in wrong if e not in failed]
            failed.update((f.index, f) for f in first_failures(spec, data, roots, unknown, inspection.of_device))
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
                self.footprint.check(whole, plan.count, runtime.memory_limit())
                self._fitting.add(whole)
            return whole

        return bind_plan(plan, capacities, binding_machine())

    def bind_arrays(self, plan: DataPlan) -> tuple[dict[str, Any], Signature]:
        """The same of examples that are arrays, of which the host reads nothing: as many have these tables always."""
        tables, signature = self.bind(plan)
        if not self._sizes.regular or not plan.count or (plan.count > STEP and plan.count % STEP):
            return tables, signature  # of sizes that come once there is an executable for a class
        return tables, signature.filled(self._request, tables["integers"])

    def decide(self, integers: Sequence[int]) -> tuple[Number, ...]:
        """What a plan depends on, for values of the shared inputs at `deciding`."""
        return self._decisions.values(integers)

    @property
    def structural(self) -> frozenset[int]:
        """The parameters of the entry that the host reads: they decide structure."""
        return frozenset(k for k, a in enumerate(self.spec.module.functions[0].region.args) if a in self.spec.on_host)

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
        arrays = iter(self._reference.run(shared, tables, plan=plan))
        return self._results(arrays, {**tables, **exact_outputs(plan, tables)}, plan.count)

    def evaluate(self, shared: Sequence[Any], plan: DataPlan, data: Mapping[str, Any]) -> list[Any]:
        """The arrays that the results are made of, by the reference back end; `data` replaces columns of the plan."""
        return self._reference.run(shared, data, plan=plan)

    def interpret_later(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        signature: Signature,
        evaluate: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> list[Result]:
        """The results where the plan is not known yet: `evaluate` gives the arrays of these shapes."""
        arrays = jax.eval_shape(lambda s, t: self.code.run(s, t, signature, "forward"), list(shared), dict(tables))
        return self._results(iter(evaluate(arrays)), tables, signature.batch)

    def run(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode = "reverse"
    ) -> list[Result]:
        """The results of the entry, to be traced under `jax.jit` with `signature` and `mode` static."""
        found = self.results(self.code.run(shared, tables, signature, mode), tables, signature)
        if self.may_run_long and signature.batch:
            status = found[len(self.facts.kinds)]
            assert isinstance(status, ArrayResult)
            found[len(self.facts.kinds)] = replace(status, values=not_cheap(status.values))
        return found

    @functools.cached_property
    def may_run_long(self) -> bool:
        """Do computed numbers end a loop?"""
        return bool(self.sites) and self.schedule.holds_masked_loop

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Signature, mode: Mode = "reverse"
    ) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[list[Any], dict[str, Any]]]]:
        """The arrays that the results are made of, and their pullback to shared inputs and columns of floats, in which
        tables that are read by rows have the cotangents of these rows (`SparseRows`)."""
        return self.code.gradient(shared, tables, signature, mode)

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
                results.append(self._ragged(k, masked_elements(next(arrays), tables, k, depth), tables, depth))
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
            made = RaggedResult(made, offsets(tables, k, d))
        assert isinstance(made, RaggedResult)
        return made

    def of_examples(self, results: Sequence[Result], count: int) -> list[Result]:
        """Results of so many examples: a size class has room for more."""
        tables = (*self.spec.outputs, *[None] * (self.spec.made is not None))
        return [
            replace(r, values=first_rows(r.values, count))
            if isinstance(r, ArrayResult) and t is not None and t.owner is None and r.values.shape[0] != count
            else r
            for r, t in zip(results, tables, strict=True)
        ]

    @functools.cached_property
    def gives_rows(self) -> bool:
        """Is each result an array with a row for each example?"""
        plain = (t.owner is None and t.elements is None and t.kind != "structure" for t in self.spec.outputs)
        return self.spec.made is None and all(plain)

    @property
    def recurses(self) -> bool:
        """Is there a recursion on the device, of which nobody knows ahead which calls there are?"""
        return any(is_too_deep(site.kind, site.message) for site in self.sites)

    @property
    def _status(self) -> int:
        """Which output of the system says what examples have failed with on the device: that behind the results."""
        before = self.spec.outputs[: len(self.facts.kinds)]
        return sum(table.kind != "structure" for table in before)

    def as_text(self, stage: str) -> str:
        """The program after a stage: "example", "functions", "spmd", "fissioned" or "adjoint"."""
        if stage == "adjoint":
            return self.code.differentiable.as_text()
        made = self._made
        match stage:
            case "example":
                return print_module(self.lowered.module)
            case "functions":
                return print_module(made.functions)
            case "spmd":
                return print_system(made.system)
            case _:
                return print_schedule(made.schedule)


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
    columns: Sequence[SharedColumns] = (),
) -> CompiledProgram:
    """Compile `fun` for arguments whose array leaves are `ir.template.Input`; see `ir/core.py`.

    `traced`: parameters of the entry whose values only the device will know, and their names. `integers`: the shared
    inputs that are Python integers; `frontend.needs.Needed` is raised where one of them has to be static instead.
    `dicts`: those that all examples share, by name. `masks`: examples that fail have no derivative. `columns`: objects
    that all examples share, as shared inputs."""
    with_columns = with_shared(schema, columns)

    @functools.cache
    def lowered(remembered: frozenset[Span], checked: bool = False, letters: bool = False) -> Ready:
        bounds = (options.list_capacity, options.trace and not checked, remembered, not checked, letters)
        passes = PassManager(options)
        found = passes.run(pm.LOWER, fun, args, kwargs, with_columns, shared, integers.known, dicts, *bounds)
        module = passes.run(pm.MARK_INTEGERS, found.module, checked)
        if checked:
            _decline_unchecked(module, options)
            module = passes.run(pm.ADD_UP, module)
        found = replace(found, module=passes.run(pm.SHARED_ROWS, module, with_columns, columns))
        module = passes.run(pm.CSE, passes.run(pm.INLINE, found.module))
        if checked and not letters and keeps_made_strings(module):
            return lowered(remembered, True, True)
        return found, module, PassRequest(passes, schema, options, traced, integers, masks, found.caches)

    def native() -> Passed:
        return remembering(lambda places: _native(*lowered(places, True), lowered))

    if options.backend in choice.WHOLE:
        needs = (args, kwargs, shared, traced, integers.names, integers.unknown, sorted(integers.known), masks)
        store = store_of(fun, schema, options, (*needs, {name: list(d) for name, d in dicts.items()}))
        return _of_function(native, schema, options, masks, store)
    return remembering(lambda places: _planned(*lowered(places)))


def _planned(lowered: LoweredModule, module: Module, asked: PassRequest) -> CompiledProgram:
    """A program whose rows the host plans."""
    found = planned(module, asked)
    made = scheduled(found, asked)  # what it refuses is refused here
    passed = Passed(lowered, found.whole, lambda: made)
    return CompiledProgram(passed.facts, asked.schema, asked.options, asked.masks, lambda: passed)


def _of_function(
    native: Callable[[], Passed], schema: Schema, options: Options, masks: bool, store: ProgramStore | None
) -> CompiledProgram:
    """A program whose code is that of a whole function: as an earlier process has left it, where there is one."""
    passed, by_llvm = functools.cache(native), choice.compiles_functions(options.backend).name == Llvm.name
    if by_llvm and store is not None and (held := store.find()) is not None:
        with suppress(LookupError):  # its object is gone, or none any more
            kept = Llvm().restored(lambda: _taken(passed(), options), bool(held.facts.sites), held.made, held.code)
            return CompiledProgram(held.facts, schema, options, masks, passed, kept)
    made = passed()
    taken = _taken(made, options)
    choice.require(options.backend, taken)
    with stage("machine code"):
        code = choice.compiles_functions(options.backend).compile(taken)
    plain = not made.lowered.traced and made.by_xla is None and is_plain(made.lowered.module)
    if store is not None and plain and isinstance(code, WholeProgram):
        store.keep(made.facts, made.lowered.sources, code.made, code.name)
    return CompiledProgram(made.facts, schema, options, masks, passed, code, made.by_xla)


def _taken(made: Passed, options: Options) -> Any:
    """What the back end compiles of a function."""
    function = WholeFunction(made.whole.module, bool(made.whole.sites), made.inputs)
    taken = choice.compiles_functions(options.backend).accepts(function)
    if isinstance(taken, Declined):
        raise taken.error
    return taken


def _decline_unchecked(module: Module, options: Options) -> None:
    """DeclinedError where no check tells whether an integer overflows, and nobody asked for machine code."""
    for at, name in unchecked(module) if choice.is_use(options.backend) else ():
        words = "makes an integer of Python, which may need more bits than the device's integers have"
        raise choice.DeclinedError(f"{name} {words} (line {at.line})")


def _native(
    lowered: LoweredModule, module: Module, asked: PassRequest, again: Callable[[frozenset[Span]], Ready]
) -> Passed:
    """What the passes make of a program that is machine code as a whole. `again` lowers it for XLA."""
    options = asked.options
    if choice.is_use(options.backend):
        options = replace(options, max_steps=min(options.max_steps, choice.PATIENCE))
    alone = replace(asked, integers=asked.integers.on_device(), options=options)
    on_device = asked.passes.run(pm.MADE_LISTS, module, asked.schema)
    if not has_structure(module):
        arrays = with_arenas_alone(on_device, asked, False)
        whole, known = whole_of(arrays, alone)
        by_rows, of = (planned, module) if arrays is on_device else (control, arrays)
        return Passed(lowered, whole, lambda: scheduled(known or by_rows(of, alone), alone))
    rows, inputs = asked.passes.run(pm.ROWS, with_letters(on_device, asked), asked.schema)
    batched = range(len(rows.functions[0].region.args))
    alone = replace(alone, traced={k: asked.traced.get(k, "an argument") for k in batched})
    whole, _ = whole_of(with_arenas_alone(rows, asked, True), alone)

    @functools.cache
    def by_xla() -> CompiledProgram:
        chosen = replace(asked.options, backend="xla")

        def anew(places: frozenset[Span]) -> CompiledProgram:
            found, whole, as_before = again(places)
            return _planned(found, whole, replace(as_before, options=chosen, passes=PassManager(chosen)))

        return remembering(anew)

    return Passed(lowered, whole, lambda: by_xla()._made, tuple(inputs), by_xla)
