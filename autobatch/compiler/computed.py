"""What a program computes, before it is put together as the function's result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.ir import buffers
from autobatch.ir.core import INT, Array, List, Ref, Type
from autobatch.ir.jax_compat import as_jax, by_numpy, taken, xp


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
    the program has made, and which class they are. `of_example`: they are numbered among those of their example."""

    rows: Any
    type: Type
    of_example: bool = False


Result = ArrayResult | RaggedResult | StructureResult


def first_rows(x: Any, count: int) -> Any:
    """The first rows of an array. Nothing is compiled for their number where the host can look at the array."""
    if x.shape[0] == count:
        return x
    if isinstance(x, jax.core.Tracer) or _is_key(x) or {d.platform for d in x.devices()} != {"cpu"}:
        return x[:count]
    return as_jax(np.asarray(x)[:count])


def with_chosen(result: Result, type: Type) -> Result:
    """A result that is numbers of rows in the place of objects or lists of the examples, as such."""
    match result:
        case ArrayResult(values=rows) if isinstance(type, Ref | List):
            return StructureResult(rows, type, of_example=True)
        case RaggedResult(values=values):
            return replace(result, values=with_chosen(values, type))
        case _:
            return result


def offsets(tables: Mapping[str, Any], k: int, depth: int) -> Any:
    """Where the lists of a result begin, at a depth."""
    return jnp.asarray(tables[f"offsets{k}" + (f".{depth}" if depth else "")], jnp.int32)


def masked_elements(values: Any, tables: Mapping[str, Any], k: int, depth: int) -> ArrayResult:
    """The elements of lists; capacity past the last one is zero."""
    live = jnp.arange(values.shape[0]) < offsets(tables, k, depth - 1)[-1]
    mask = live.reshape(live.shape + (1,) * (values.ndim - 1))
    return ArrayResult(jnp.where(mask, values, jnp.zeros_like(values)))


# ---- lists in memory


@dataclass(frozen=True)
class InMemory:
    """Result `at` is how long lists are, and the `depth` ones behind it are their buffers, the last of them with the
    elements, which are of the type `elem`."""

    at: int
    depth: int
    elem: Type


def with_lists(results: Sequence[Result], lists: Sequence[InMemory], numbered: bool) -> Sequence[Result]:
    """The results with lists that the program has left in memory as such. `numbered`: words in them are numbers
    (`ir.texts.number`), not places in a vocabulary, and objects those of rows of their example."""
    if not lists:
        return results
    made = list(results)
    for held in lists:
        lengths, *buffers = (array_of(r) for r in results[held.at : held.at + held.depth + 1])
        found = _in_memory(lengths, buffers, INT if numbered else held.elem)
        made[held.at] = with_chosen(found, held.elem)
    return made


def with_none(results: Sequence[Result], lengths: Collection[int], failed: Any) -> Sequence[Result]:
    """The results where lists and memory are empty in examples that have failed. `lengths`: the results that say how
    long they are."""

    def emptied(x: Any) -> ArrayResult:
        return ArrayResult(jnp.where(failed, jnp.zeros_like(x), x))

    return [emptied(array_of(r)) if k in lengths else r for k, r in enumerate(results)]


def array_of(result: Result) -> Any:
    """The array that a result is."""
    assert isinstance(result, ArrayResult)
    return result.values


def _in_memory(lengths: Any, buffers: Sequence[Any], elem: Type) -> RaggedResult:
    """Lists of these lengths. `buffers`: of lists of lists the lengths of the inner ones come first."""
    rows = CutBuffers(lengths, buffers[0].shape[1])
    first, *others = map(rows.of, buffers)
    if others:
        return RaggedResult(_in_memory(first, others, elem), rows.offsets)
    array = isinstance(elem, Array) or first.ndim == 2  # of strings their letters
    return RaggedResult(ArrayResult(first) if array else StructureResult(first, elem), rows.offsets)


class CutBuffers:
    """What is in buffers up to the length of each, one behind another. Where JAX traces the lengths there are as many
    rows as there is room for, or `most` of them, and those behind the last one are zero.

    lengths 2, 0, 1    buffers [a b .] [. . .] [c . .]    ->    a b c    offsets 0 2 2 3
    """

    def __init__(self, lengths: Any, room: int, most: int | None = None) -> None:
        self.is_known = not isinstance(lengths, jax.core.Tracer)
        if self.is_known:
            held = np.clip(np.asarray(lengths), 0, room)  # an example that fails may say anything
            self.example: Any
            self.place: Any
            self.example, self.place = np.nonzero(np.arange(room) < held[:, None])
            ends = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
            self.offsets: Any = ends if isinstance(lengths, np.ndarray) else as_jax(ends)
            return
        whole = jnp.cumsum(jnp.clip(lengths, 0, room), dtype=jnp.int32)
        self.offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), whole])
        rows = jnp.arange(lengths.shape[0] * room if most is None else most, dtype=jnp.int32)
        self.live = rows < self.offsets[-1]
        found = jnp.searchsorted(self.offsets, rows, side="right").astype(jnp.int32) - 1
        self.example = jnp.where(self.live, found, 0)
        self.place = jnp.where(self.live, rows - self.offsets[self.example], 0)

    def at(self, example: Any, place: Any) -> CutBuffers:
        """The same of other buffers, in which what is read stands elsewhere."""
        made = copy(self)
        made.example, made.place = example, place
        return made

    def of(self, buffer: Any) -> Any:
        """The rows of one of the buffers."""
        if self.is_known and not isinstance(buffer, jax.core.Tracer) and not _is_key(buffer):
            found = np.asarray(buffer)[self.example, self.place]
            return found if isinstance(buffer, np.ndarray) else as_jax(found)
        found = buffer[self.example, self.place]
        if self.is_known or _is_key(buffer):
            return found
        live = self.live.reshape(self.live.shape + (1,) * (found.ndim - 1))
        return jnp.where(live, found, jnp.zeros_like(found))


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


class Segments:
    """The elements of lists that stand in segments, those of one list behind those of another. `rows`: the lists, by
    example; `lengths` and `table`: of those of each example how long they are, and where their segments begin."""

    def __init__(self, rows: CutBuffers, lengths: Any, table: Any, room: int) -> None:
        width, most = buffers.segments(room), buffers.elements(room)
        inside = CutBuffers(rows.of(lengths), most, int(lengths.shape[0]) * most)
        firsts = np.array([buffers.start_of(k) for k in range(width)])
        with by_numpy() if inside.is_known else nullcontext():
            self.example, row = taken(rows.example, inside.example), taken(rows.place, inside.example)
            segment = xp.searchsorted(firsts, inside.place, side="right") - 1
            begin = xp.asarray(table)[self.example, row * width + segment]
            place = begin - 1 + inside.place - taken(firsts, segment)
        self.offsets, self._cut = inside.offsets, inside.at(self.example, place)

    def of(self, column: Any) -> Any:
        """The elements in one of the columns."""
        return self._cut.of(column)
