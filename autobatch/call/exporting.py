"""`f.lower(...).export(path)`: a call's program as a file that runs without the source of its function.

for the devices   the XLA program of the call's size class, for each platform, without machine code of ours
for the host      the structural slice: it plans examples in the other process, as here
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from autobatch.call.arguments import ArgumentSlot, BoundArguments, ByIdentity, Raw, Sharing, form_key, parts
from autobatch.call.examples import FAILED, Component, raw
from autobatch.call.prepared import Prepared
from autobatch.call.results import refuse_changes, returned
from autobatch.common.targets import PORTABLE, made_for
from autobatch.compiler import pipeline
from autobatch.compiler.computed import ArrayResult, InMemory, RaggedResult, StructureResult
from autobatch.data import schema, spec, storage
from autobatch.data.codec import JsonReader, JsonWriter, Names, UnwritableError
from autobatch.data.spec import PlanSpec, Signature, TableRequest
from autobatch.data.storage import AllowedClasses, Damaged, Look, name_of, part
from autobatch.errors import BatchError, Span, TargetError
from autobatch.ir import core, leaf, system
from autobatch.ir.core import Apply, Function, If, Instruction, Map, Module, Region, walk
from autobatch.ir.core import For as ForLoop
from autobatch.ir.core import While as WhileLoop
from autobatch.ir.ops import Op

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
    schema: schema.Schema
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
    for module in (core, spec, schema):
        own = {n: c for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__}
        found |= own
    others = (
        *(Arguments, Description, Component, Op, Span, leaf.Site, system.Space, system.Link),
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
