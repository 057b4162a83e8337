"""The file of an exported program: what is needed to call it where the source of its function is not.

    program       what XLA is to run, for several platforms, as `jax.export` writes it
    description   types, names of arguments, the structure of the result, and the structural slice, which plans examples
    arrays        constants, and the numbers that the function has closed over

It is one file of arrays and JSON (`data/archive.py`), whose hash is checked before XLA sees the program: no pickle,
and no code but that of the program.
"""

from __future__ import annotations

import os
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autobatch.call.batches.data import Component
from autobatch.compiler.computed import ArrayResult, InMemory, RaggedResult, StructureResult
from autobatch.data import archive, schema, spec, tables
from autobatch.data.archive import Damaged, part
from autobatch.data.codec import JsonReader, JsonWriter, Names, UnwritableError
from autobatch.data.stand_ins import AllowedClasses, Look, name_of
from autobatch.errors import BatchError
from autobatch.ir import blocks, core, system, template
from autobatch.ir import types as ir_types
from autobatch.ir.ops import Op
from autobatch.source import Span

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
    types: tuple[ir_types.Array, ...]
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
    spec: spec.PlanSpec
    request: tables.TableRequest
    signature: tables.Signature
    numbers: tuple[Any, ...]
    results: tuple[Any, ...]
    result: template.Template
    made: tuple[template.MadeTemplate, ...]
    tags: tuple[core.Apply, ...]
    count: int
    sites: tuple[blocks.Site, ...]
    masks: bool
    orders: Mapping[str, Any]
    out_axes: Any
    x64: bool
    lists: tuple[InMemory, ...] = ()
    heaps: tuple[template.HeapTemplate, ...] = ()


def _classes() -> Names:
    """The closed set of objects that a description holds."""
    found: dict[str, type] = {}
    for module in (core, ir_types, template, spec, tables, schema):
        own = {n: c for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__}
        found |= own
    others = (
        *(Arguments, Description, Component, Op, Span, blocks.Site, system.Space, system.Link),
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
    archive.write(path, text, arrays | {"program": np.frombuffer(program, np.uint8)})


def read(path: str | os.PathLike[str], classes: Sequence[type] = ()) -> tuple[Description, bytes]:
    """What `write` wrote. Raises FileError for a file of another kind, and for one that is damaged."""
    text, held = archive.read(path, "a file that f.export wrote", FORMAT, _AGAIN)
    try:
        looks = {name: Look(kind, tuple(fields)) for name, (kind, fields) in part(text, "classes", dict).items()}
        arrays = [held[f"a{k}"] for k in range(len(held) - 1)]
        description = JsonReader(NAMES, AllowedClasses(classes, looks).find, arrays).value(text["description"])
        return description, held["program"].tobytes()
    except (Damaged, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise archive.refused(f"{path}: its description cannot be used here", error, _AGAIN) from None


def _looks(description: Description) -> dict[str, tuple[str, list[str]]]:
    """The classes of the examples and of results, by name: what stands for them where they are not."""
    found: dict[str, tuple[str, list[str]]] = {}
    for store in description.schema.stores:
        for k, c in enumerate(store.classes):
            if c.cls is not None:
                found[name_of(c.cls)] = (c.kind, list(dict.fromkeys(f.name for f in store.fields if k in f.classes)))

    def results(held: Any) -> None:
        match held:
            case template.Container(kind=kind, cls=cls, keys=keys, children=children):
                if cls is not None:
                    found.setdefault(name_of(cls), (kind, [str(k) for k in keys]))
                for child in children:
                    results(child)
            case template.ListTemplate(element=inner) | template.OptionalTemplate(value=inner):
                results(inner)

    fields = (*(m.fields for m in description.made), *(x for h in description.heaps for x in (*h.members, h.fields)))
    for held in (description.result, *fields):
        results(held)
    return found
