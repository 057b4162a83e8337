"""A specialisation: one compiled program for one set of types.

It is found by its `Key` (`specialisations.py`). Its free variables (closures, globals, what they lead to) are known
only after compiling; they are read again at every call: arrays enter as hidden shared arguments, everything else is a
guard, and a guard that does not hold compiles anew.
"""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.interface import Mode
from autobatch.backends.interpret import on_host
from autobatch.call import packed, results
from autobatch.call.arguments import Order
from autobatch.call.assembly import MadeRows
from autobatch.call.examples import FAILED, Component, Examples, PlannedProgram, Ready, array_columns, raw, zeros
from autobatch.call.packed import ARGUMENT, TOKEN, Group, Planner, Tables, data_tables, with_rows
from autobatch.common import runtime
from autobatch.common.cache import Bounded, Key, logger
from autobatch.common.runtime import Target, made_for, until_ready
from autobatch.compiler import pipeline
from autobatch.compiler.executables import (
    ArrayResult,
    Differentials,
    RaggedResult,
    StructureResult,
    is_key,
    mode_of,
    moves,
    refusing_forward,
    with_chosen,
    with_lists,
    with_none,
)
from autobatch.data.columns import Columns, Schema
from autobatch.data.spec import Number, Signature, element_type
from autobatch.data.together import root_columns
from autobatch.errors import NOWHERE, ExampleError, PlanError, Span
from autobatch.frontend.lowering.state import FreeVariable
from autobatch.frontend.types.specialisation import read_again
from autobatch.frontend.types.statics import MISSING, same_static
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    STR,
    Apply,
    Array,
    Function,
    List,
    Module,
    Operand,
    Ref,
    Tag,
    Type,
    Value,
    is_numpy,
    operands,
    outputs,
    regions,
    walk,
)
from autobatch.ir.jax_compat import as_one_over_axes
from autobatch.ir.regions import free_values
from autobatch.passes.costs import too_large
from autobatch.planning.plan import DataPlan

# ---- reference
#
# The reference back end for a batch that is its leaves: planned on the host when the computation runs.


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
        keys = {k: jax.random.key_impl(x) for k, x in enumerate(shared) if is_key(x)}
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
        held = packed.from_leaves(form.schema, form.count, dict(form.enums), columns)
        plan = self.program.plan(Group(held, form.width).components)
        assert isinstance(plan, DataPlan)
        if plan.failures and not self.program.masks:
            raise ExampleError(plan.failures)
        return plan


def _padded(x: Any, shape: jax.ShapeDtypeStruct) -> Any:
    """An array with the rows that its size class has."""
    missing = shape.shape[0] - x.shape[0]
    if missing < 0:
        raise PlanError("stale plan: the examples have other rows than those that were planned; call .plan(f) again")
    return jnp.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1)) if missing else x


jax.tree_util.register_dataclass(ArrayResult, ("values",), ())
jax.tree_util.register_dataclass(RaggedResult, ("values", "offsets"), ())
jax.tree_util.register_dataclass(StructureResult, ("rows",), ("type", "of_example"))

_numbers = itertools.count()


OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""What XLA's error says where memory does not suffice."""

NO_ORDERS: Mapping[str, Order] = types.MappingProxyType({})

VALUES = 8
"""A program remembers so many values of what its integers decide."""


@dataclass
class _Made:
    """What has been made for a program, whatever its integers decide."""

    plans: int = 0


class SpecialisedProgram:
    """One specialisation. `compiled` plans and runs; this class knows where a call's data goes. It keeps `most`
    executables. `deciding`: the shared inputs that are integers which decide structure; `numbers`: what they decide.
    `orders`: of the keys of the dicts among the arguments whose order is a part of the program."""

    def __init__(
        self,
        name: str,
        planner: Planner,
        key: Key,
        compiled: pipeline.CompiledProgram,
        components: tuple[Component, ...],
        most: int,
        timings: runtime.Timings,
        numpy: tuple[bool, ...] = (),
        orders: Mapping[str, Order] = NO_ORDERS,
    ) -> None:
        self.fingerprint = f"{name}#{next(_numbers)}"
        self.name, self.planner, self.key, self.compiled, self.components = name, planner, key, compiled, components
        self.timings = timings
        self.masks = key.on_error == "mask"
        self.on_host = _host_components(compiled, components)
        self.made = _Made()
        self.kept: Bounded[tuple[Hashable, Mode], Any] = Bounded(most)
        """Executables by the signature of their size class, and the derivatives that are taken of them."""
        self.staged: Bounded[Hashable, Any] = Bounded(most)
        """Calls that contain one of these, from their arguments to what they return."""
        self.deciding = compiled.deciding
        self.numbers: tuple[Number, ...] = ()
        self.given: Sequence[Any] | None = None
        """The shared leaves of the last call, of machine code whose program by XLA is planned for what they decide."""
        self._at: Bounded[tuple[Number, ...], SpecialisedProgram] = Bounded(VALUES)
        self._most, self._numpy, self.orders = most, numpy, orders
        free: Sequence[FreeVariable] = compiled.facts.free
        self.guards = tuple(f for f in free if f.shared is None)
        self._guarded = [(*_place(g), g) for g in self.guards]
        self._arrays = tuple(sorted({f.shared: f for f in free if f.shared is not None}.items()))
        self._constants = {} if compiled.facts.is_plain else _constant_words(compiled.lowered.module)
        self.kinds = compiled.facts.kinds
        """The types of the results of the function."""
        computed = self.kinds if compiled.native is not None else [t.value.type for t in compiled.spec.outputs]
        types = {x.index: element_type(x.type) for x in outputs(compiled.facts.result)}
        self.chosen = {k: type for k, type in types.items() if isinstance(type, Ref | List)}
        """The objects and lists of the examples among them, which computed numbers may choose."""
        in_memory = (x.type for heap in compiled.facts.heaps for x in outputs(heap.fields))
        kinds = (*computed, *self.kinds, *(x.elem for x in compiled.facts.lists), *in_memory)
        self.returned_words = tuple(sorted({v for kind in kinds for v in _vocabularies(kind)}))
        """The vocabularies of its results."""
        self._array_tables: Bounded[int, Ready] = Bounded(32)
        self.derivatives = Differentials(compiled, most, self.compiling)

    def compiling(self, stage: str = "first run") -> AbstractContextManager[None]:
        """Inside, something of it is compiled."""
        return runtime.compiling(self.name, stage, self.planner.options().progress, self.timings)

    # -- integers that decide structure

    def at(self, leaves: Sequence[Any]) -> SpecialisedProgram:
        """This program for what the integers among the shared leaves of a call decide: batches are planned for it. It
        shares everything with this one but its plans."""
        if not self.deciding:
            if self.compiled.by_xla is not None and not any(isinstance(x, jax.core.Tracer) for x in leaves):
                self.given = leaves
            return self
        numbers = self.compiled.decide([leaves[k] for k in self.deciding])

        def make() -> SpecialisedProgram:
            made = copy.copy(self)
            made.fingerprint = f"{self.fingerprint}({', '.join(map(str, numbers))})"
            made.numbers, made._array_tables = numbers, Bounded(32)
            return made

        return self._at.get_or_make(numbers, make)

    def in_use(self) -> list[SpecialisedProgram]:
        """This program for all that its calls decided, the last call first."""
        return [made for _, made in self._at.items()]

    @property
    def executables(self) -> int:
        """How many there are: of XLA, for size classes and derivatives, and of machine code that is all of it."""
        return len(self.kept) + self.derivatives.executables + (self.compiled.native is not None)

    @functools.cached_property
    def by_xla(self) -> SpecialisedProgram:
        """This program as XLA runs it, with plans: another one where machine code reads structure itself."""
        if self.compiled.by_xla is None:
            return self
        key = replace(self.key, backend="xla")
        held = (self.name, self.planner, key, self.compiled.by_xla(), self.components, self._most, self.timings)
        return SpecialisedProgram(*held, self._numpy, self.orders)

    @property
    def result(self) -> Any:
        """The template of the result."""
        return self.compiled.facts.result

    def returned(self, results: Sequence[Any], failed: Any = None) -> Sequence[Any]:
        """The results of the function among what the program has computed. `failed`: examples whose lists are empty."""
        facts, found = self.compiled.facts, results[: len(self.kinds)]
        if failed is not None and facts.lengths:
            found = with_none(found, facts.lengths, failed)
        made = with_lists(found, facts.lists, self.compiled.native is None)
        if not self.chosen:
            return made
        return [with_chosen(r, self.chosen[k]) if k in self.chosen else r for k, r in enumerate(made)]

    def status(self, results: Sequence[Any]) -> Any:
        """int32[B] among what the program has computed: 0, or what each example has failed with on the device."""
        return results[len(self.kinds)].values

    @functools.cached_property
    def returns_arrays(self) -> bool:
        """Is what it returns arrays of numbers, with a row for each example, in containers that JAX knows?"""
        facts = self.compiled.facts
        special = self.masks or facts.lengths or facts.lists or facts.heaps or self.chosen or self.returned_words
        numbers = all(isinstance(k, Array) and not k.dtype.startswith("key<") for k in self.kinds)
        return not special and numbers and results.holds_arrays(self.result)

    def objects(self, results: Sequence[Any]) -> MadeRows | None:
        """The objects among what the program has computed."""
        held = self.compiled.spec.made
        if held is None:
            return None
        templates = {t.name: t for t in self.compiled.lowered.made}
        classes = tuple((templates[c.name], c.first) for c in held.classes)
        return MadeRows(classes, tuple(s for s, _ in held.adopted), held.kinds, results)

    # -- free variables

    def is_current(self) -> bool:
        """Do all free variables still have the values that this was compiled with?"""
        same = _same_array if self.compiled.facts.asks_numpy else _same_type
        for names, name, guard in self._guarded:
            if names is not None and names.get(name, MISSING) is guard.value:
                continue
            if not same_static(read_again(guard, guard.value), guard.value):
                return False
        return not self._arrays or all(same(read_again(f, f.value), f.value) for _, f in self._arrays)

    def fits_numpy(self, numpy: tuple[bool, ...]) -> bool:
        """Does it index what are arrays of NumPy in a call as such?"""
        return numpy == self._numpy or not self.compiled.facts.asks_numpy

    def shared(self, leaves: Sequence[Any]) -> list[Any]:
        """All shared inputs: those of the call, then arrays that free variables hold now."""
        return [*leaves, *(read_again(f, f.value) for _, f in self._arrays)]

    # -- strings and enum members

    def extended(self, vocabularies: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        """Vocabularies with the constants of the program behind the words of the data."""
        made = dict(vocabularies)
        for name, words in self._constants.items():
            known = made.get(name, ())
            made[name] = (*known, *(w for w in words if w not in known))
        return made

    def words(self, vocabularies: Mapping[str, tuple[Any, ...]]) -> Tables:
        """The vocabularies that strings and enum members of the result are counted in, as leaves."""
        if not self.returned_words:
            return {}
        made = self.extended(vocabularies)
        return {packed.VOCABULARY + name: packed.encode(made.get(name, ())) for name in self.returned_words}

    @property
    def enums(self) -> tuple[tuple[str, type], ...]:
        """The enums of the program's constants."""
        return tuple((n, type(w[0])) for n, w in self._constants.items() if n != STR.vocabulary)

    # -- plans

    @property
    def structure_columns(self) -> frozenset[str]:
        """The columns that decide structure."""
        return self.compiled.structure_columns

    def argument_columns(self, schema: Schema) -> dict[str, str]:
        """The tables that hold packed arguments themselves, and the columns of the examples that these are."""
        made: dict[str, str] = {}
        packed = [(p, c) for p, c in parameters(self.components) if not c.array]
        for k, (position, component) in enumerate(packed):
            column, missing = root_columns(schema, k, len(packed))
            made[f"{ARGUMENT}{position}"] = column
            if component.optional:
                made[f"{ARGUMENT}{position + 1}"] = missing
        return made

    def array_table(self, index: int) -> str:
        """The table of a batched argument that is given as an array."""
        return f"{ARGUMENT}{list(parameters(self.components))[index][0]}"

    def plan(self, components: tuple[Columns, ...]) -> Any:
        """Plan packed examples; arrays given beside them are not known yet, and not read."""
        return self.plan_with(components, {}, components[0].count)

    def plan_with(self, columns: tuple[Columns, ...], arrays: Mapping[int, Any], count: int) -> Any:
        """Plan packed examples together with arrays whose values the host reads."""
        packed = iter(columns)
        like = columns[0] if columns else None
        whole = []
        for k, component in enumerate(self.components):
            if not component.array:
                whole.append(next(packed))
                continue
            assert isinstance(component.type, Array)
            values = np.asarray(raw(arrays[k])) if k in arrays else zeros(component.type, count)
            whole.append(array_columns(component.type, values, like))
        self.made.plans += 1
        parts = [replace(c, vocabularies=self.extended(c.vocabularies)) for c in whole]
        return self.compiled.plan(parts, self.planner.options().max_rows, self.numbers, patient=self.masks)

    def bind(self, plan: Any, at_least: Sequence[Any] = (), arrays: bool = False) -> tuple[Tables, Hashable]:
        """The tables of a plan, in a size class that holds those of the signatures in `at_least`. `arrays`: the
        examples are that, and the host reads nothing of them."""
        tables, signature = self.compiled.bind_arrays(plan) if arrays else self.compiled.bind(plan, at_least)
        if self.masks:
            failed = np.zeros(plan.count, bool)
            failed[[f.index for f in plan.failures]] = True
            tables = {**tables, FAILED: failed}
        return tables, signature

    def array_tables(self, count: int) -> Ready:
        """The tables where everything batched is an array that the host does not read: the same for every batch."""

        def make() -> Ready:
            plan = self.plan_with((), {}, count)
            return Ready(*self.bind(plan, arrays=True), plan.failures, plan, words=self.words({}))

        return self._array_tables.get_or_make(count, make)

    @property
    def hidden(self) -> int:
        """How many of the shared inputs are arrays that free variables hold: the last ones."""
        return len(self._arrays)

    # -- running

    def execute(
        self, shared: Sequence[Any], tables: Tables, signature: Hashable, concrete: bool = False
    ) -> Sequence[Any]:
        """Run the executable of a size class; traceable by JAX. `concrete`: nothing that it is given is traced."""
        jax_compat.check_process()
        key = signature, mode_of(() if concrete else (*shared, *tables.values()))
        run = self.kept.get(key)
        if new := run is None:
            if len(self.kept):
                logger.info("recompiling %s: another size class: %s", self.fingerprint, signature)
            self.kept.put(key, run := self._executable(*key))
        try:
            with self.compiling() if new else nullcontext():
                made: Sequence[Any] = (
                    run(shared, tables) if concrete else as_one_over_axes(run, list(shared), dict(tables))
                )
            if self.compiled.may_run_long:
                until_ready(made)
            if new:  # a device that computes behind our back would fail where the user reads the result
                jax.block_until_ready([x for x in jax.tree.leaves(made) if not isinstance(x, jax.core.Tracer)])
        except Exception:
            self.kept.drop(key)
            with refusing_forward(self.name), self.in_memory(signature):
                raise
        return made

    @contextmanager
    def in_memory(self, signature: Hashable) -> Iterator[None]:
        """What XLA says where the memory is too small, in our words."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if OUT_OF_MEMORY not in str(error):
                raise
            assert isinstance(signature, Signature)
            needed = self.compiled.footprint.words(signature.capacity)
            raise too_large(signature.batch, f"XLA says {str(error).splitlines()[0]!r}", needed) from error

    def _executable(self, signature: Hashable, mode: Mode) -> Any:
        run = lambda shared, tables: self.compiled.run(shared, tables, signature, mode)  # type: ignore[arg-type]
        return jax.jit(run)

    def interpret(self, shared: Sequence[Any], ready: Ready, examples: Examples) -> Sequence[Any]:
        """Run row by row, by the reference back end; on the host when the computation runs, where the examples are not
        known before."""
        if ready.plan is not None:
            return self.compiled.interpret(shared, ready.plan, ready.tables)  # type: ignore[arg-type]
        reference = Reference(self, shared, ready, examples)
        return self.compiled.interpret_later(shared, ready.tables, ready.signature, reference.evaluate)  # type: ignore[arg-type]

    def lowered(
        self, shared: Sequence[Any], tables: Tables, signature: Hashable, target: Target | None = None
    ) -> jax.stages.Lowered:
        """The executable as JAX lowers it, for this machine or another."""
        given: Any = list(shared), {n: t for n, t in tables.items() if n != FAILED}
        if target is None:
            return self._executable(signature, "reverse").lower(*given)  # type: ignore[no-any-return]
        with made_for(target.platform):
            return self._executable(signature, "reverse").lower(*target.shapes(given))  # type: ignore[no-any-return]

    def reached(self, index: int) -> Span | None:
        """Where a batched argument reaches result `index`; None where it is the same for all examples."""
        module = self.compiled.spec.module
        entry = module.functions[0]
        result = entry.region.results[index]
        if result not in _varying(module, entry):
            return None
        spans = (i.span for i in entry.region.body if result in i.results)
        return next((span for span in spans if span != NOWHERE), entry.span)


def _constant_words(module: Module) -> dict[str, tuple[Any, ...]]:
    """The strings and enum members that a program makes, by vocabulary."""
    found: dict[str, dict[Any, None]] = {}
    for function in module.functions:
        for instruction in walk(function.region):
            if isinstance(instruction, Apply) and instruction.op.name == "tag":
                kind = instruction.results[0].type
                assert isinstance(kind, Tag)
                found.setdefault(kind.vocabulary, {})[instruction.op["value"]] = None
    return {name: tuple(words) for name, words in found.items()}


def _vocabularies(kind: Type) -> tuple[str, ...]:
    match kind:
        case Tag(vocabulary=name):
            return (name,)
        case List(elem=elem):
            return _vocabularies(elem)
        case _:
            return ()


def _host_components(compiled: pipeline.CompiledProgram, components: tuple[Component, ...]) -> frozenset[int]:
    """The components whose values the host reads: they decide structure, or reach the device as a host column."""
    if compiled.native is not None:
        return frozenset()
    spec = compiled.spec
    args = spec.module.functions[0].region.args
    positions = [position for position, _ in parameters(components)]
    return frozenset(k for k, p in enumerate(positions) if args[p] in spec.on_host or args[p] in spec.columns)


def parameters(components: tuple[Component, ...]) -> Iterator[tuple[int, Component]]:
    """Each component with its position among the parameters of the entry: an optional one takes two."""
    position = 0
    for component in components:
        yield position, component
        position += 1 + component.optional


def _varying(module: Module, entry: Function) -> set[Operand]:
    """Values of the entry that depend on its arguments; a call or a branch depends on all that it reads."""
    shared = frozenset(module.shared)
    varying: set[Operand] = set(entry.region.args)
    for instruction in entry.region.body:
        read: list[Operand] = list(operands(instruction))
        for region in regions(instruction):
            read += free_values(region, shared)
        if any(isinstance(x, Value) and x in varying for x in read):
            varying.update(instruction.results)
    return varying


def _place(free: FreeVariable) -> tuple[dict[str, Any] | None, str]:
    """The dict that holds a free variable itself, and its name there: where it is a global one that functions call."""
    owner = free.owner
    if not isinstance(owner, types.FunctionType) or free.path or free.name in ("__defaults__", "__kwdefaults__"):
        return None, ""
    return (None, "") if free.name in owner.__code__.co_freevars else (owner.__globals__, free.name)


def _same_array(a: Any, b: Any) -> bool:
    return _same_type(a, b) and is_numpy(a) == is_numpy(b)


def _same_type(a: Any, b: Any) -> bool:
    return all(getattr(a, name, None) == getattr(b, name, None) for name in ("shape", "dtype"))
