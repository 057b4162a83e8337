"""Exported programs: a call's program as a file, and the program that is read from it, called like the function.

    f.lower(w, trees).export("energy.program")     here
    energy = ab.load_exported("energy.program")    there, or on another machine with a CPU, GPU or TPU
    energy(w, ab.load("trees.npz"))

A file needs no source of the function. It holds

    for the devices   the XLA program of the call's size class, for each platform, without machine code of ours
    for the host      the structural slice: it plans examples in the other process, as here

A program is described by JSON and arrays. No pickle, and no code of the file is run. Objects are dataclasses and
NamedTuples of the closed set `NAMES`; whatever else a file names is refused. An object that two others hold is one
object again.

    Apply((Value(3, INT),), op, ...)   ->   {"o": ["Apply", {"results": {"t": [...]}, "op": ..., ...}]}   an object
    the same object again              ->   {"r": 17}                                                     object 17
"""

from __future__ import annotations

import base64
import enum
import functools
import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from autobatch.backends.llvm.binding import binding_machine
from autobatch.call import packed
from autobatch.call.arguments import (
    ArgumentSlot,
    AxisEntries,
    BoundArguments,
    ByIdentity,
    Raw,
    Sharing,
    bind,
    form_key,
    order_of,
    parts,
)
from autobatch.call.batch import Batch
from autobatch.call.examples import FAILED, Component, Examples, KnownTypes, gather, raw
from autobatch.call.packed import Group
from autobatch.call.prepared import Prepared
from autobatch.call.results import refuse_changes, returned
from autobatch.call.specialise import SpecialisedProgram
from autobatch.common.cache import Key
from autobatch.common.runtime import PORTABLE, Timings, made_for
from autobatch.compiler import pipeline
from autobatch.compiler.executables import ArrayResult, InMemory, RaggedResult, StructureResult
from autobatch.compiler.stored import ProgramFacts
from autobatch.data import columns, spec, storage
from autobatch.data.spec import PlanSpec, Signature, TableRequest
from autobatch.data.storage import AllowedClasses, Damaged, Look, name_of, part
from autobatch.errors import BatchError, PlanError, Span, TargetError, entry
from autobatch.frontend import LoweredModule
from autobatch.ir import core, jax_compat, leaf, system
from autobatch.ir.core import BOOL, Apply, Function, If, Instruction, Literal, Map, Module, Region, walk
from autobatch.ir.core import For as ForLoop
from autobatch.ir.core import While as WhileLoop
from autobatch.ir.ops import Op
from autobatch.options import Options, current
from autobatch.passes.costs import Footprint
from autobatch.planning.bind import bind_plan
from autobatch.planning.plan import DataPlan, Usual

# ---- JSON


AnyArray = np.ndarray[Any, Any]
Names = Mapping[str, type]
"""The classes of objects by name, enums among them."""


class UnwritableError(Exception):
    """A value that no file can hold."""


class JsonWriter:
    """Values as JSON; `arrays` are those among them. `name_of`: a class of the user as text."""

    def __init__(self, names: Names, name_of: Callable[[type], str]) -> None:
        self.arrays: list[AnyArray] = []
        self._names = {cls: name for name, cls in names.items()}
        self._name_of = name_of
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []

    def value(self, x: Any) -> Any:
        if x is None or type(x) in (bool, int, float, str):
            return x
        if isinstance(x, enum.Enum):
            return {"e": [self._class(type(x)), x.name]}
        if id(x) in self._known:
            return {"r": self._known[id(x)]}
        made = self._whole(x)
        if next(iter(made)) in ("o", "p"):
            self._known[id(x)] = len(self._known)
            self._alive.append(x)
        return made

    def _whole(self, x: Any) -> dict[str, Any]:
        match x:
            case Op(primitive=primitive) if primitive is not None:
                return {"p": [x.name, self.value(x.params)]}
            case complex():
                return {"c": [x.real, x.imag]}
            case bytes():
                return {"b": base64.b64encode(x).decode()}
            case np.generic():
                return {"n": self._array(np.asarray(x))}
            case np.ndarray():
                return {"a": self._array(x)}
            case type():
                return {"k": self._name_of(x)}
            case _ if is_dataclass(x):
                kept = (f.name for f in fields(x) if f.init and f.metadata.get("kept", True))
                held = {name: self.value(getattr(x, name)) for name in kept}
                return {"o": [self._class(type(x)), held]}
            case tuple() if hasattr(x, "_fields"):
                return {"o": [self._class(type(x)), {n: self.value(getattr(x, n)) for n in x._fields}]}
            case tuple():
                return {"t": [self.value(y) for y in x]}
            case list():
                return {"l": [self.value(y) for y in x]}
            case Mapping():
                return {"m": [[self.value(k), self.value(v)] for k, v in x.items()]}
            case frozenset() | set():
                return {"s": [self.value(y) for y in sorted(x, key=_place)]}
            case _ if x is ...:
                return {"x": "..."}
            case np.dtype():
                return {"d": str(x)}
        raise UnwritableError(f"{type(x).__name__} {str(x)[:80]}")

    def _class(self, cls: type) -> str:
        if cls not in self._names:
            raise UnwritableError(f"objects of {cls.__module__}.{cls.__qualname__}")
        return self._names[cls]

    def _array(self, x: AnyArray) -> list[Any]:
        if x.dtype.kind == "O":
            raise UnwritableError("an array of objects")
        self.arrays.append(x if x.dtype.kind in "biufc" else x.view(f"u{x.dtype.itemsize}"))
        return [len(self.arrays) - 1, str(x.dtype)]


def _place(x: Any) -> Any:
    """An order of the members of a set, so that equal programs are equal files."""
    return (type(x).__name__, x.name if isinstance(x, enum.Enum) else x.id if hasattr(x, "id") else x)


class JsonReader:
    """Values from JSON. Raises ValueError for what `JsonWriter` did not write."""

    def __init__(self, names: Names, class_of: Callable[[str], type], arrays: Sequence[AnyArray]) -> None:
        self._names, self._class_of, self._arrays = names, class_of, arrays
        self._known: list[Any] = []

    def value(self, text: Any) -> Any:
        if not isinstance(text, dict):
            return text
        ((kind, held),) = text.items()
        match kind:
            case "r":
                return self._known[held]
            case "o":
                cls = self._class(held[0])
                made = cls(**{n: self.value(v) for n, v in held[1].items()})
                self._known.append(made)
                return made
            case "p":
                op = Op(held[0], self.value(held[1]), _primitive(held[0]))
                self._known.append(op)
                return op
            case "e":
                return self._class(held[0])[held[1]]  # type: ignore[index]
            case "t":
                return tuple([self.value(x) for x in held])
            case "l":
                return [self.value(x) for x in held]
            case "m":
                return {self.value(k): self.value(v) for k, v in held}
            case "s":
                return frozenset(self.value(x) for x in held)
            case "a":
                return self._array(held)
            case "n":
                return self._array(held)[()]
            case "c":
                return complex(*held)
            case "b":
                return base64.b64decode(held)
            case "k":
                return self._class_of(held)
            case "d":
                return jax_compat.dtype_of(held)
            case "x":
                return ...
        raise ValueError(f"{kind!r} is nothing that a value can be")

    def _class(self, name: str) -> type:
        if name not in self._names:
            raise ValueError(f"there is no class {name!r}")
        return self._names[name]

    def _array(self, held: list[Any]) -> AnyArray:
        found: AnyArray = self._arrays[held[0]].view(jax_compat.dtype_of(held[1]))
        return found


def _primitive(name: str) -> Any:
    found = jax_compat.primitive(name)
    if found is None:
        raise ValueError(f"JAX has no operation {name!r}")
    return found


# ---- artifact
#
# The file of an exported program: what is needed to call it where the source of its function is not.
#
#     program       what XLA is to run, for several platforms, as `jax.export` writes it
# description   types, names of arguments, the structure of the result, and the structural slice, which plans examples
# arrays        constants, and the numbers that the function has closed over
#
# It is one file of arrays and JSON (`data/storage.py`), whose hash is checked before XLA sees the program: no pickle,
# and no code but that of the program.


FORMAT = "autobatch program 3"
_AGAIN = "export it again, or take another copy of the file"


@dataclass(frozen=True)
class Arguments:
    """How a call of the program looks. `parameters`: names and kinds, in order; those that are wholly part of the
    program are not among them. `form` and `keys`: the containers of the arguments, as text. `leaves`: the names of
    shared leaves, of which those in `given` come from the call. `decided`: values of shared integers that structure
    depends on, by leaf."""

    parameters: tuple[tuple[str, str], ...]
    axes: Mapping[str, Any]
    static: tuple[str, ...]
    form: str
    keys: str
    leaves: tuple[str, ...]
    types: tuple[core.Array, ...]
    given: tuple[int, ...]
    decided: Mapping[int, Any]
    numpy: tuple[bool, ...]
    asks_numpy: bool


@dataclass(frozen=True)
class Description:
    """A program and what it works on. `kept`: shared leaves that are no arguments, behind those that are. `results`:
    what it computes, each array by its number. `tags`: its constant strings. `count`: results of the function, of which
    `lists` are in memory, as that of the `heaps`."""

    name: str
    arguments: Arguments
    kept: tuple[Any, ...]
    components: tuple[Component, ...]
    schema: columns.Schema
    spec: PlanSpec
    request: TableRequest
    signature: Signature
    numbers: tuple[Any, ...]
    results: tuple[Any, ...]
    result: core.Template
    made: tuple[core.MadeTemplate, ...]
    tags: tuple[core.Apply, ...]
    count: int
    sites: tuple[leaf.Site, ...]
    masks: bool
    orders: Mapping[str, Any]
    out_axes: Any
    x64: bool
    lists: tuple[InMemory, ...] = ()
    heaps: tuple[core.HeapTemplate, ...] = ()


def _classes() -> Names:
    """The closed set of objects that a description holds."""
    found: dict[str, type] = {}
    for module in (core, spec):
        own = {n: c for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__}
        found |= own
    others = (
        *(Arguments, Description, Component, Op, Span, leaf.Site, system.Space, system.Link),
        *(columns.Class, columns.Field, columns.Store, columns.ListStore, columns.Schema),
        *(columns.ColumnInput, columns.WordInput, columns.SharedColumns),
        *(ArrayResult, InMemory, RaggedResult, StructureResult),
        *(jax.lax.GatherDimensionNumbers, jax.lax.ScatterDimensionNumbers, jax.lax.GatherScatterMode),
        *(jax.lax.ConvDimensionNumbers, jax.lax.Precision, jax.lax.RoundingMethod),
    )
    return types.MappingProxyType(found | {c.__name__: c for c in others})


NAMES = _classes()


def write(path: str | os.PathLike[str], description: Description, program: bytes) -> None:
    """Write the file, replacing it as a whole. Raises BatchError for what no file can hold."""
    writer = JsonWriter(NAMES, name_of)
    try:
        held = writer.value(description)
    except UnwritableError as error:
        raise BatchError(
            f"{description.name}: what it returns or is called with cannot be in a file: {error}"
        ) from None
    text = {"format": FORMAT, "classes": _looks(description), "description": held}
    arrays = {f"a{k}": a for k, a in enumerate(writer.arrays)}
    storage.write(path, text, arrays | {"program": np.frombuffer(program, np.uint8)})


def read(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> tuple[Description, bytes]:
    """What `write` wrote. Raises FileError for a file of another kind, and for one that is damaged."""
    text, held = storage.read(path, "a file that f.export wrote", FORMAT, _AGAIN)
    try:
        looks = {name: Look(kind, tuple(fields)) for name, (kind, fields) in part(text, "classes", dict).items()}
        arrays = [held[f"a{k}"] for k in range(len(held) - 1)]
        description = JsonReader(NAMES, AllowedClasses(classes, looks).find, arrays).value(text["description"])
        return description, held["program"].tobytes()
    except (Damaged, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise storage.refused(f"{path}: its description cannot be used here", error, _AGAIN) from None


def _looks(description: Description) -> dict[str, tuple[str, list[str]]]:
    """The classes of the examples and of results, by name: what stands for them where they are not."""
    found: dict[str, tuple[str, list[str]]] = {}
    for store in description.schema.stores:
        for k, c in enumerate(store.classes):
            if c.cls is not None:
                found[name_of(c.cls)] = (c.kind, list(dict.fromkeys(f.name for f in store.fields if k in f.classes)))

    def results(held: Any) -> None:
        match held:
            case core.Container(kind=kind, cls=cls, keys=keys, children=children):
                if cls is not None:
                    found.setdefault(name_of(cls), (kind, [str(k) for k in keys]))
                for child in children:
                    results(child)
            case core.ChoiceTemplate(alternatives=alternatives):
                for each in alternatives:
                    results(each)
            case core.ListTemplate(element=inner) | core.OptionalTemplate(value=inner):
                results(inner)

    fields = (*(m.fields for m in description.made), *(x for h in description.heaps for x in (*h.members, h.fields)))
    for held in (description.result, *fields):
        results(held)
    return found


PLATFORMS = ("cpu", "cuda", "tpu")
"""What a program is exported for where nobody says."""

KNOWN = (*PLATFORMS, "rocm")


@dataclass(frozen=True)
class Calling:
    """What a function says of its arguments: `axes` by parameter, and the names that are `static`."""

    axes: Mapping[str, Any]
    static: Callable[[], frozenset[str]]


def export(
    path: str | os.PathLike[str],
    prepared: Prepared,
    bound: BoundArguments,
    calling: Calling,
    platforms: Sequence[str],
    order: int,
) -> None:
    """Write the program of a call. `order`: how often it can be differentiated in reverse."""
    wanted = (platforms,) if isinstance(platforms, str) else tuple(platforms)
    if not wanted or any(p not in KNOWN for p in wanted):
        raise TargetError(f"platforms={platforms!r}: it takes some of {', '.join(map(repr, KNOWN))}")
    if prepared.is_interpreted:
        raise BatchError("backend='interpret' runs on the host alone: there is no program of it; export under 'xla'")
    program, signature = prepared.program, _exact(prepared)
    tables = {n: t for n, t in prepared.ready.tables.items() if n != FAILED}
    structure: Any = None

    def run(shared: Sequence[Any], tables: Mapping[str, Any]) -> list[Any]:
        nonlocal structure
        leaves, structure = jax.tree.flatten(program.compiled.run(shared, tables, signature, "reverse"))
        return leaves

    given = jax.tree.map(_shape, (list(prepared.shared), tables))
    with made_for(PORTABLE):
        made = jax_export.export(jax.jit(run), platforms=wanted)(*given)
        written = _serialised(made, order)  # which traces the derivatives
    numbered = tuple(jax.tree.unflatten(structure, list(range(len(made.out_avals)))))
    description = _description(prepared, bound, calling, numbered)
    write(path, description, written)


def _serialised(made: jax_export.Exported, order: int) -> bytes:
    try:
        return bytes(made.serialize(vjp_order=order))
    except ImportError as error:
        raise BatchError(f"f.export: {error}: pip install 'autobatch[export]'") from None


def _exact(prepared: Prepared) -> Signature:
    """The signature whose capacity is the number of the examples that it is exported with."""
    assert isinstance(prepared.ready.signature, Signature)
    return Signature(prepared.examples.count, prepared.ready.signature.capacity)


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    aval = jax.typeof(x)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _description(prepared: Prepared, bound: BoundArguments, calling: Calling, results: tuple[Any, ...]) -> Description:
    program, examples = prepared.program, prepared.examples
    compiled = program.compiled
    arguments, inside = _arguments(prepared, bound, calling)
    module = compiled.lowered.module
    tags = tuple(i for f in module.functions for i in walk(f.region) if isinstance(i, Apply) and i.op.name == "tag")
    refuse_changes(compiled.facts.result)
    return Description(
        program.name,
        arguments,
        tuple(_host(x) for x in inside),
        examples.components,
        examples.schema,
        _for_the_host(compiled),
        compiled.request,
        _exact(prepared),
        program.numbers,
        results,
        returned(compiled.facts.result),  # a program from a file prints nothing
        compiled.lowered.made,
        tags,
        len(compiled.facts.kinds),
        compiled.sites,
        program.masks,
        program.orders,
        prepared.out_axes,
        bool(program.key.x64),
        compiled.facts.lists,
        compiled.facts.heaps,
    )


def _arguments(prepared: Prepared, bound: BoundArguments, calling: Calling) -> tuple[Arguments, list[Any]]:
    """How a call looks, and the shared leaves that are no arguments of it: those of `self`, and of free variables."""
    program = prepared.program
    static = calling.static()
    sharing = Sharing(program.name, static)
    given: list[int] = []
    kept: list[str] = []
    keys: list[Any] = []
    for name, form in bound.forms.items():
        first, first_key = len(sharing.leaves), len(sharing.keys)
        for shared in parts(form, Raw):
            sharing.raw(shared)
        own = range(first, len(sharing.leaves))
        if name in calling.axes and (own or any(True for _ in parts(form, ArgumentSlot))):
            given += own
            kept.append(name)
            keys += sharing.keys[first_key:]
    if tuple(sharing.types) != program.key.shared:
        raise BatchError(
            f"{program.name}: the integers that are static in it changed while it was exported; call f.lower(...) again"
        )
    leaves = [*sharing.leaves, *prepared.shared[len(sharing.leaves) :]]
    return Arguments(
        tuple((n, bound.signature.parameters[n].kind.name) for n in kept),
        {n: calling.axes[n] for n in kept},
        tuple(sorted(static & set(sharing.names) | static & set(kept))),
        portable(tuple((n, form_key(bound.forms[n])) for n in kept)),
        portable(tuple(keys)),
        tuple(sharing.names),
        tuple(sharing.types),
        tuple(given),
        {k: _host(sharing.leaves[k])[()].item() for k in program.deciding},
        (*sharing.numpy, *prepared.examples.numpy),
        program.compiled.lowered.asks_numpy,
    ), [x for k, x in enumerate(leaves) if k not in given]


def portable(key: Any) -> str:
    """A key as text that other processes make of the same containers too."""
    match key:
        case tuple():
            return f"({', '.join(map(portable, key))})"
        case type():
            return key.__qualname__
        case frozenset():
            return f"{{{', '.join(sorted(map(portable, key)))}}}"
        case ByIdentity():
            return repr(key)
        case _ if callable(key):
            return str(getattr(key, "__qualname__", type(key).__qualname__))
        case _:
            return repr(key)


def _host(x: Any) -> Any:
    if isinstance(x, jax.core.Tracer):
        raise BatchError("f.export inside jax.jit: its arguments are not known there; call it outside")
    return np.asarray(raw(x) if isinstance(x, jax.Array) else x)


# ---- the structural slice


def _for_the_host(compiled: pipeline.CompiledProgram) -> PlanSpec:
    """What the planner needs, without what only a device computes: its operations keep their places, but not what
    they are."""
    spec = compiled.spec

    def shown(x: Apply) -> Apply:
        on_host = any(r in spec.on_host or r in spec.numbers for r in x.results)
        if on_host or not x.results or x.op.name in STRUCTURAL:
            return x
        return replace(x, op=Op(x.op.name))

    return replace(spec, module=_mapped(spec.module, shown))


STRUCTURAL = frozenset({"load", "item", "make", "adopt", "pack_list", "flatten", "length", "reduce", "check", "bounds"})


def _mapped(module: Module, change: Callable[[Apply], Apply]) -> Module:
    def region(x: Region) -> Region:
        return replace(x, body=tuple(map(instruction, x.body)))

    def instruction(x: Instruction) -> Instruction:
        match x:
            case Apply():
                return change(x)
            case If():
                return replace(x, then=region(x.then), orelse=region(x.orelse))
            case WhileLoop():
                return replace(x, condition=region(x.condition), body=region(x.body))
            case ForLoop() | Map():
                return replace(x, body=region(x.body))
            case _:
                return x

    functions: tuple[Function, ...] = tuple(replace(f, region=region(f.region)) for f in module.functions)
    return replace(module, functions=functions)


# ---- reading


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
        for shared in (r for form in bound.forms.values() for r in parts(form, Raw)):
            sharing.raw(shared)
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


def _given_numpy(a: Arguments, components: int) -> tuple[bool, ...]:
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
    return Exported(*read(path, classes))
