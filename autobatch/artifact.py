"""The file of an exported program: what is needed to call it where the source of its function is not.

    program       what XLA is to run, for several platforms, as `jax.export` writes it
    description   types, names of arguments, the structure of the result, and the structural slice, which plans examples
    arrays        constants, and the numbers that the function has closed over

It is one `.npz` file. JSON and arrays are all that is in it: no pickle, and no code but that of the program.
"""

from __future__ import annotations

import json
import os
import types
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.computed import ArrayResult, InMemory, RaggedResult, StructureResult
from autobatch.data import Component
from autobatch.errors import BatchError
from autobatch.ir import blocks, core, system, template
from autobatch.ir import types as ir_types
from autobatch.ir.ops import Op
from autobatch.runtime import schema, spec, tables
from autobatch.runtime.codec import Names, Reader, UnwritableError, Writer
from autobatch.runtime.stand_ins import Look, class_of, name_of
from autobatch.source import Span

FORMAT = "autobatch program 2"
AnyArray = np.ndarray[Any, Any]


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
    writer = Writer(NAMES, name_of)
    try:
        held = writer.value(description)
    except UnwritableError as error:
        raise BatchError(
            f"{description.name}: what it returns or is called with cannot be in a file: {error}"
        ) from None
    text = {"format": FORMAT, "classes": _looks(description), "description": held}
    entries = {f"a{k}": a for k, a in enumerate(writer.arrays)}
    entries["description"] = np.frombuffer(json.dumps(text).encode("utf-8", "surrogatepass"), np.uint8)
    entries["program"] = np.frombuffer(program, np.uint8)
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **entries)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[Description, bytes]:
    """What `write` wrote. Raises BatchError for a file of another kind, and for one that is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        text = json.loads(bytes(held["description"]).decode("utf-8", "surrogatepass"))
        found = text["format"]
        if found != FORMAT:
            raise BatchError(f"{path}: the format is {found!r}, and this version reads {FORMAT!r}; export it again")
        arrays = [held[f"a{k}"] for k in range(len(held) - 2)]
        looks = {name: Look(kind, tuple(fields)) for name, (kind, fields) in text["classes"].items()}
        description = Reader(NAMES, lambda name: class_of(name, str(path), looks), arrays).value(text["description"])
        return description, bytes(held["program"])
    except FileNotFoundError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise BatchError(f"{path} is no file that f.export wrote, or it is damaged: {error}") from None


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
            case template.Rows(element=inner) | template.Maybe(value=inner):
                results(inner)

    fields = (*(m.fields for m in description.made), *(x for h in description.heaps for x in (*h.members, h.fields)))
    for held in (description.result, *fields):
        results(held)
    return found
