"""What a call has computed, row by row, and columns that are made of it.

Rows are those of the examples, of the elements of the lists of a result, or of the objects that the program has made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, assert_never

import jax.numpy as jnp

from autobatch.compiler.computed import ArrayResult, RaggedResult, StructureResult
from autobatch.data.schema import Schema
from autobatch.ir.template import Container, HeapTemplate, MadeTemplate
from autobatch.ir.types import Type
from autobatch.source import Span

ClassKind = Literal["object", "namedtuple", "tuple", "list", "dict", "table"]
Result = ArrayResult | RaggedResult | StructureResult


@dataclass(frozen=True)
class MadeRows:
    """The objects that a call has made. `results` are all outputs of the program: those of class k begin at
    `classes[k][1]`; the one at `kinds` says of which class each object is, the ones behind it which rows of the stores
    `adopted` they are; the last one where the objects of each example begin."""

    classes: tuple[tuple[MadeTemplate, int], ...]
    adopted: tuple[str, ...]
    kinds: int
    results: Sequence[Result]

    def rows(self, output: int) -> Any:
        held = self.results[output]
        assert isinstance(held, StructureResult)
        return held.rows

    @property
    def starts(self) -> Any:
        """int32[B + 1]"""
        return self.rows(-1)


@dataclass(frozen=True)
class Outcome:
    """What a call has computed, and what its structure refers to: `leaves` gives the columns of the examples, for
    results that are nodes of the input. `reached(k)`: where a batched argument reaches result k.

    `results` have one row for each of `count` entries: the examples, or the elements of all lists of a result; then
    `live` of them are elements, and the others capacity. `heaps`: the memory of objects, whose columns are among
    `whole`, the results with a row for each example; `owners`: the example that each entry belongs to, where these are
    not the examples themselves; `common`: what has been made for some part of the result and serves others. `placed`:
    in memory words are places in a vocabulary, and objects of the examples rows of the batch, not numbers of their own
    (`ir.texts.number`) and of rows of their example."""

    function: str
    count: int
    results: Sequence[Result]
    schema: Schema
    leaves: Callable[[], dict[str, Any]]
    enums: tuple[tuple[str, type], ...]
    words: Mapping[str, Any]
    reached: Callable[[int], Span | None]
    live: Any = None
    made: MadeRows | None = None
    heaps: tuple[HeapTemplate, ...] = ()
    whole: Sequence[Result] = ()
    owners: Any = None
    placed: bool = False
    common: dict[str, Any] = field(default_factory=dict)

    def inside(self, held: RaggedResult) -> Outcome:
        """The same, one row for each element of the lists of a result."""
        inner = [r.values if isinstance(r, RaggedResult) else r for r in self.results]
        count = capacity(held.values)
        owners = None
        if self.heaps or _is_of_example(held):
            rows = jnp.searchsorted(held.offsets, jnp.arange(count, dtype=jnp.int32), side="right") - 1
            owners = self.examples_of(jnp.clip(rows, 0, max(self.count - 1, 0)))
        return replace(self, count=count, results=inner, live=held.offsets[-1], owners=owners)

    def examples_of(self, entries: Any) -> Any:
        """The examples that entries belong to."""
        return entries if self.owners is None else self.owners[entries]

    @property
    def firsts(self) -> Any:
        """int32[count + 1]: the number of entries before each one; capacity adds none."""
        whole = jnp.arange(self.count + 1, dtype=jnp.int32)
        return whole if self.live is None else jnp.minimum(whole, self.live)


def _is_of_example(held: Result) -> bool:
    """Are its innermost elements rows that are numbered in their examples?"""
    while isinstance(held, RaggedResult):
        held = held.values
    return isinstance(held, StructureResult) and held.of_example


def capacity(values: Result) -> int:
    """The number of rows of a result."""
    match values:
        case ArrayResult(values=array):
            return int(array.shape[0])
        case StructureResult(rows=rows):
            return int(rows.shape[0])
        case RaggedResult(offsets=offsets):
            return int(offsets.shape[0]) - 1
        case _:
            assert_never(values)


@dataclass
class ResultCell:
    """A column under construction. `missing`: where it is None. A reference or list that is `nullable` is -1 there."""

    type: Type
    values: Any
    missing: Any = None
    nullable: bool = False

    @property
    def has_none(self) -> bool:
        """Is it None in some row, as far as types tell?"""
        return self.missing is not None or self.nullable


@dataclass(frozen=True)
class ResultLevel:
    """Rows of results: those of the entries of the Batch themselves, or of the elements of a list in each of them.
    `starts`: where the rows of each entry begin."""

    outcome: Outcome
    starts: Any

    @property
    def count(self) -> int:
        return self.outcome.count

    def inside(self, held: RaggedResult) -> ResultLevel:
        return ResultLevel(self.outcome.inside(held), held.offsets[self.starts])


def class_kind(template: Container) -> ClassKind:
    """What sort of record a container is."""
    match template.kind:
        case "tuple" | "dict" | "namedtuple" | "table":
            return template.kind
        case "mixture" | "list":
            return "list"
        case _:
            return "object"
