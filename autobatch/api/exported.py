"""A program from a file that `f.export` wrote: called like the function, in a process that has no source of it.

f.lower(w, trees).export("energy.program")     here
energy = ab.load_exported("energy.program")    there, or on another machine with a CPU, GPU or TPU
energy(w, ab.load("trees.npz"))
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from autobatch.backends.llvm.binding import binding_machine
from autobatch.call import exporting, packed
from autobatch.call.arguments import (
    ArgumentSlot,
    AxisEntries,
    BoundArguments,
    Raw,
    Sharing,
    bind,
    form_key,
    order_of,
    parts,
)
from autobatch.call.batch import Batch
from autobatch.call.examples import Component, Examples, KnownTypes, gather
from autobatch.call.exporting import Description, portable
from autobatch.call.packed import Group
from autobatch.call.prepared import Prepared
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.cache import Key
from autobatch.common.stages import Timings
from autobatch.compiler import pipeline
from autobatch.compiler.computed import ArrayResult, RaggedResult, StructureResult
from autobatch.compiler.stored import ProgramFacts
from autobatch.data.spec import PlanSpec, Signature
from autobatch.errors import BatchError, PlanError, TargetError, entry
from autobatch.frontend import LoweredModule
from autobatch.ir.core import BOOL, Function, Literal, Module, Region
from autobatch.options import Options, current
from autobatch.passes.costs import Footprint
from autobatch.planning.bind import bind_plan
from autobatch.planning.plan import DataPlan, Usual


class _Planning(pipeline.CompiledProgram):
    """A compiled program of which nothing is left but what plans examples, for one size class."""

    def __init__(self, d: Description) -> None:
        results = tuple(Literal(False, BOOL) for _ in range(d.count))
        entry = Function("entry", Region((), d.tags, results))
        self.lowered = LoweredModule(Module((entry,)), d.result, (), (), made=d.made)
        asks = d.arguments.asks_numpy
        self.facts = ProgramFacts(
            d.result, (), tuple(r.type for r in results), d.sites, asks, lists=d.lists, heaps=d.heaps
        )
        self.options, self.masks, self.sites, self.native = current(), d.masks, d.sites, None
        self._schema, self._held, self._signature, self._name = d.schema, d.spec, d.signature, d.name
        self.__dict__["_request"] = d.request  # what a cached property would make of the schedule

    @property
    def spec(self) -> PlanSpec:
        return self._held

    @property
    def deciding(self) -> Sequence[int]:
        return ()  # the values of integers that decide structure are part of the file

    @functools.cached_property
    def footprint(self) -> Footprint:
        return Footprint(())

    def bind(self, plan: DataPlan, at_least: Sequence[Signature] = ()) -> tuple[dict[str, Any], Signature]:
        """The tables in the size class that the program is for. Raises PlanError where they do not fit."""
        return bind_plan(plan, self._capacities, binding_machine())

    def bind_arrays(self, plan: DataPlan) -> tuple[dict[str, Any], Signature]:
        return self.bind(plan)

    def _capacities(self, counts: Mapping[int, int], usual: Usual | None) -> tuple[int, ...]:
        room = self._signature.capacity
        for (space, rows), most in zip(sorted(counts.items()), room, strict=True):
            if rows > most:
                what = next((s.name for s in self._held.spaces if s.index == space), f"space {space}")
                raise PlanError(
                    f"{self._name}: these examples have {rows} rows of {what}, and the exported program has room for "
                    f"{most}; call it with fewer or smaller examples, or export it for larger ones"
                )
        return room


class Exported:
    """A function that was exported, for batches of `count` examples or fewer. `classes` are those of its examples and
    results by name; where the process has no such class, one that looks like it."""

    def __init__(self, description: Description, program: bytes) -> None:
        self._d = d = description
        try:
            self.exported = jax_export.deserialize(bytearray(program))
        except ImportError as error:
            raise BatchError(f"{d.name}: {error}: pip install 'autobatch[export]'") from None
        except Exception as error:
            raise BatchError(
                f"{d.name}: JAX {jax.__version__} cannot read the program ({str(error).splitlines()[0]}); it keeps "
                "such programs readable for six months: export it again"
            ) from error
        self._run: Any = jax.jit(self.exported.call)
        self._planner = _Planner(self)
        compiled = _Planning(d)
        key = Key("", (), d.arguments.types, d.schema, "xla", "mask" if d.masks else "raise", None, d.x64)
        self._program = SpecialisedProgram(d.name, self._planner, key, compiled, d.components, 1, Timings(d.name))
        self._program.numbers = d.numbers
        self._known = KnownTypes()
        self._known.learn(d.schema, self._width)
        kinds = {n: getattr(inspect.Parameter, kind) for n, kind in d.arguments.parameters}
        self.signature = inspect.Signature([inspect.Parameter(n, kind) for n, kind in kinds.items()])
        self._entries = AxisEntries(d.arguments.axes, None, False, None)

    # -- what it is

    @property
    def __name__(self) -> str:
        return self._d.name

    @property
    def count(self) -> int:
        """The examples that a call can have at most."""
        return self._d.signature.batch

    @property
    def platforms(self) -> tuple[str, ...]:
        """Where the program can run."""
        return tuple(self.exported.platforms)

    @property
    def classes(self) -> dict[str, type]:
        """The classes of the examples by name."""
        held = [c for s in self._d.schema.stores for c in s.classes if c.cls is not None]
        return {c.name: c.cls for c in held if c.cls is not None and not c.cls.__module__.startswith("autobatch.")}

    def __repr__(self) -> str:
        return f"<exported {self._d.name}{self.signature}, {self.count} examples, for {', '.join(self.platforms)}>"

    def __str__(self) -> str:
        d = self._d
        lines = [repr(self), f"  one example: {d.schema}" if self._width else "  examples are arrays"]
        lines += [f"  {n}: {d.arguments.types[k]}" for k, n in enumerate(d.arguments.leaves) if k in d.arguments.given]
        return "\n".join(lines)

    # -- calls

    def pack(self, *examples: Sequence[Any]) -> Batch:
        """Packed arguments as a batch that is planned for this, one list of examples each: objects of `classes`, or
        what stands for them. With several arguments the result's `args` are passed on."""
        if len(examples) != self._width:
            raise BatchError(f"{self._d.name}.pack takes {self._width} lists of examples; {len(examples)} were given")
        slots = [ArgumentSlot(k, f"argument {k}", "list", list(held)) for k, held in enumerate(examples)]
        found = gather(self._d.name, slots, self._known, lambda slot: None, self._planner, grow=False)
        if found.schema != self._d.schema:
            self._refuse("the examples", str(self._d.schema), str(found.schema))
        return Batch(found.on_host()).plan(self)

    @entry
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the function, as the function itself returns it.

        Raises TypeError and BatchError for arguments of other types than it was exported for, PlanError for examples
        that have more rows than it has room for, TargetError where it was not exported for this machine, ExampleError
        where examples fail."""
        d = self._d
        self._check_process()
        bound = bind(d.name, self.signature, self._entries, frozenset(d.arguments.static), args, kwargs)
        live = bound.size
        if not 0 < live <= self.count:
            raise BatchError(
                f"{d.name} was exported for batches of at most {self.count} examples, and {live} were given; "
                + ("cut the batch" if live else "there is nothing to compute")
            )
        if live < self.count and d.made:
            raise BatchError(f"{d.name} makes objects, so its exported program takes {self.count} examples, no fewer")
        examples = gather(d.name, bound.slots, self._known, lambda slot: None, self._planner, grow=False)
        shared = self._shared(bound, examples)
        self._check(examples)
        prepared = Prepared(d.name, self._program, examples, shared, examples.ready(self._program), d.out_axes, True)
        return self._result(prepared, live)

    def _result(self, prepared: Prepared, live: int) -> Any:
        """Run, for `live` examples."""
        prepared.refuse_failures()
        leaves = self._run([jnp.asarray(x) for x in prepared.shared], self._sized(prepared.tables))
        computed = list(jax.tree.map(lambda k: leaves[k], self._d.results))
        if live < self.count:
            computed = [_cut(x, live) for x in computed]
        return prepared.assemble(computed, prepared.stale())

    def _sized(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Tables of fewer examples with as many entries as the program reads: nobody reads what it computes of those
        that are added."""
        shapes = jax.tree.unflatten(self.exported.in_tree, self.exported.in_avals)[0][1]
        made = dict(tables)
        for name, aval in shapes.items():
            held, missing = made[name], aval.shape[0] - made[name].shape[0]
            if missing:
                last = held[-1:] if held.shape[0] else np.zeros((1, *held.shape[1:]), held.dtype)
                xp: Any = np if isinstance(held, np.ndarray) else jnp
                made[name] = xp.concatenate([held, xp.repeat(last, missing, axis=0)])
        return made

    def _shared(self, bound: BoundArguments, examples: Examples) -> list[Any]:
        """The shared leaves of a call, with those that are part of the file; refuses what it was not exported for."""
        a = self._d.arguments
        sharing = Sharing(self._d.name, frozenset(a.static))
        for raw in (r for form in bound.forms.values() for r in parts(form, Raw)):
            sharing.raw(raw)
        names = tuple(a.leaves[k] for k in a.given)
        types = tuple(a.types[k] for k in a.given)
        form = portable(tuple((n, form_key(f)) for n, f in bound.forms.items()))
        if form != a.form or tuple(sharing.names) != names or portable(tuple(sharing.keys)) != a.keys:
            self._refuse("arguments", a.form + " " + a.keys, form + " " + portable(tuple(sharing.keys)))
        for name, wanted, found in zip(names, types, sharing.types, strict=True):
            if (wanted.dtype, wanted.shape) != (found.dtype, found.shape):
                self._refuse(name, str(wanted), str(found))
        orders = {**bound.orders, **{n: order_of(held) for n, held in sharing.dicts.items()}}
        for name, order in self._d.orders.items():
            if orders.get(name, order) != order:
                self._refuse(f"the order of the keys of {name}", _keys(order), _keys(orders[name]))
        whole = _merged(a.given, sharing.leaves, self._d.kept)
        for k, value in a.decided.items():
            self._check_decided(a.leaves[k], value, whole[k])
        if a.asks_numpy and (*sharing.numpy, *examples.numpy) != _given_numpy(a, len(examples.numpy)):
            self._refuse("which arrays are NumPy's (their indices fail out of range)", "as exported", "other ones")
        return whole

    def _check_decided(self, name: str, wanted: Any, found: Any) -> None:
        if isinstance(found, jax.core.Tracer) or found != wanted:
            shown = "traced by JAX" if isinstance(found, jax.core.Tracer) else repr(found)
            raise BatchError(
                f"{self._d.name}: {name} decides structure, and the program was exported for the value {wanted!r}; it "
                f"is {shown}: export it for that value"
            )

    def _check(self, examples: Examples) -> None:
        wanted = self._d.components
        if examples.components == wanted and (examples.schema == self._d.schema or not self._width):
            return
        here = str(self._d.schema) if self._width else _arrays(wanted)
        self._refuse("the examples", here, str(examples.schema) if examples.width else _arrays(examples.components))

    def _refuse(self, what: str, wanted: str, found: str) -> NoReturn:
        raise BatchError(f"{self._d.name}: {what}: exported for {wanted}; given {found}")

    def _check_process(self) -> None:
        here = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
        if here not in self.platforms:
            raise TargetError(
                f"{self._d.name} was exported for {', '.join(self.platforms)}, and JAX computes on {here} here; export "
                f"it with platforms=({here!r}, ...)"
            )
        if packed.x64() != self._d.x64:
            state = "on" if self._d.x64 else "off"
            raise BatchError(f"{self._d.name} was exported with jax_enable_x64 {state}; it has to be {state} here too")

    # -- as what batches are planned for

    @property
    def planner(self) -> _Planner:
        """What batches are planned for."""
        return self._planner

    def specialisations_for(self, group: Group) -> tuple[SpecialisedProgram, ...]:
        """Its program, for examples of its types."""
        fits = group.schema == self._d.schema and group.width == self._width
        fits = fits and not any(c.array for c in self._d.components) and group.count <= self.count
        return (self._program,) if fits else ()

    @property
    def _width(self) -> int:
        return sum(not c.array for c in self._d.components)


class _Planner:
    """An exported program as the function that batches are planned for."""

    def __init__(self, of: Exported) -> None:
        self._of = of

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        raise BatchError(f"{self._of.__name__} is an exported program: the source of its function is not here")

    def options(self) -> Options:
        """The options that a call sees here and now."""
        return current()

    def specialisations_for(self, group: Group) -> tuple[SpecialisedProgram, ...]:
        return self._of.specialisations_for(group)

    def regrouped(self, batch: Batch) -> Batch:
        """The batch itself: an exported program is of one shape."""
        return batch


def _merged(given: Sequence[int], leaves: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    """All shared leaves in their order: those of the call at their places, those of the file at the others."""
    called, own = dict(zip(given, leaves, strict=True)), iter(kept)
    return [called[k] if k in called else next(own) for k in range(len(given) + len(kept))]


def _given_numpy(a: exporting.Arguments, components: int) -> tuple[bool, ...]:
    shared = a.numpy[: len(a.numpy) - components]
    return (*(shared[k] for k in a.given), *a.numpy[len(shared) :])


def _arrays(components: Sequence[Component]) -> str:
    return ", ".join(f"array of {c.type}" if c.array else str(c.type) for c in components)


def _keys(order: Any) -> str:
    return ", ".join(repr(k) for _, k in order)


def _cut(held: Any, live: int) -> Any:
    """The first `live` entries of a result; of lists, what lies behind the last one is zero."""
    match held:
        case ArrayResult(values=values):
            return ArrayResult(values[:live])
        case StructureResult(rows=rows):
            return replace(held, rows=rows[:live])
        case RaggedResult(values=ArrayResult(values=values), offsets=offsets):
            inside = (jnp.arange(values.shape[0]) < offsets[live]).reshape(-1, *(1,) * (values.ndim - 1))
            return RaggedResult(ArrayResult(jnp.where(inside, values, jnp.zeros_like(values))), offsets[: live + 1])
        case RaggedResult(values=inner, offsets=offsets):
            return RaggedResult(inner, offsets[: live + 1])
    raise AssertionError(held)


@entry
def load_exported(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> Exported:
    """The function that `f.export` wrote to a file. It needs neither the source of the function nor its classes.

    Examples are packed and planned here as there: arrays, lists of numbers, tuples and dicts as they are; objects of
    the classes where their modules are imported already or `classes` names them, else of the look-alikes in `.classes`;
    batches from `ab.load`. Raises FileError for a file of another kind or version, and for one that is damaged: its
    hash is checked before anything is used."""
    return Exported(*exporting.read(path, classes))
