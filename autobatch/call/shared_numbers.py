"""Which shared input holds each number that a call's shared arguments hold, so that derivatives find their places.

    scale = 2.0                               number 0: input 0
    scene = [Sphere(0.5), Sphere(0.75)]       numbers 1, 2: input 1, as columns rows 0 and 1 of input 3

Numbers are counted as `gradients.Structure` counts them. Most are inputs of their own; those in objects that are
columns are rows of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import BoundArguments, is_array
from autobatch.call.batches.packing import pack_fresh
from autobatch.call.gradients import SharedStructure, is_integer
from autobatch.call.sharing import PLAIN, PackedArgument, Sharing
from autobatch.common.sparse_rows import SparseRows
from autobatch.data.columns import Ints
from autobatch.errors import UnsupportedError


class SharedNumbers:
    """The numbers of a call whose shared arguments are `inputs`, among them the columns of those that are `packed`."""

    def __init__(self, bound: BoundArguments, inputs: Sequence[Any], packed: Sequence[PackedArgument]) -> None:
        columns = {p.columns.first + k for p in packed for k in range(len(p.columns.names))}
        own = [k for k, x in enumerate(inputs) if k not in columns and not is_integer(x)]
        self.whole: dict[int, int] = dict(enumerate(own))
        """The inputs that are numbers as they are, by number."""
        self.places: dict[int, tuple[int, Ints]] = {}
        """The column that a number lies in, and where, counted through the column."""
        self.values: list[Any] = []
        if packed:
            self._number(bound, {p.name: p for p in packed}, iter(own))

    def _number(self, bound: BoundArguments, of: Mapping[str, PackedArgument], own: Iterator[int]) -> None:
        self.whole = {}
        structure = SharedStructure("", lambda number, value: None)
        for raw in bound.shared:
            begin = len(structure.leaves)
            structure.raw(raw)
            if raw.name in of:
                self._find(of[raw.name], raw.value, begin, len(structure.leaves) - begin)
            else:
                self.whole.update((n, next(own)) for n in range(begin, len(structure.leaves)))
        self.values = structure.leaves

    def _find(self, packed: PackedArgument, value: Any, begin: int, count: int) -> None:
        """Find the numbers of an argument by packing it with each number's own in its place."""
        numbering = _Numbered(begin)
        numbered = pack_fresh([numbering.share(value, packed.name)[0]]).arrays
        if len(numbering.leaves) != count:
            raise UnsupportedError(
                f"{packed.name} holds objects that another shared argument holds too, and computed numbers choose "
                "among them: there is no derivative by what both hold",
                cure="give each argument objects of its own: copy.deepcopy",
            )
        for k, name in enumerate(packed.columns.names):
            held = numbered.get(name)
            if held is None or held.dtype.kind != "f":
                continue
            flat = np.nan_to_num(held.reshape(-1)).astype(np.int64)
            order = np.argsort(flat, kind="stable")
            numbers, first = np.unique(flat[order], return_index=True)
            for number, at in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
                if number > 0:
                    self.places[number - 1] = packed.columns.first + k, at

    def inputs(self, numbers: Sequence[int]) -> list[int]:
        """The inputs that hold numbers, each once."""
        return list(dict.fromkeys(self.whole[n] if n in self.whole else self.places[n][0] for n in numbers))

    def derivatives(self, numbers: Sequence[int], by_input: Mapping[int, Any]) -> dict[int, Any]:
        """The derivative by each number, from those by inputs."""
        columns: dict[int, Any] = {}
        made: dict[int, Any] = {}
        for n in numbers:
            if n in self.whole:
                made[n] = by_input[self.whole[n]]
                continue
            column, at = self.places[n]
            if column not in columns:
                found = by_input[column]
                dense = found.to_dense() if isinstance(found, SparseRows) else found
                traced = isinstance(dense, jax.core.Tracer)
                columns[column] = dense.reshape(-1) if traced else np.asarray(dense).reshape(-1)  # read once
            made[n] = jnp.asarray(columns[column][at].reshape(np.shape(self.values[n])))
        return made

    def tangents(self, given: Mapping[int, Any], inputs: Sequence[Any]) -> dict[int, Any]:
        """The tangents of inputs, from those of numbers."""
        made: dict[int, Any] = {}
        for n, x in given.items():
            if n in self.whole:
                made[self.whole[n]] = x
                continue
            column, at = self.places[n]
            held = made.get(column, jnp.zeros(inputs[column].shape, inputs[column].dtype))
            made[column] = held.reshape(-1).at[at].set(jnp.reshape(x, -1)).reshape(held.shape)
        return made


class _Numbered(Sharing):
    """A shared value with the number of each float, from 1, in its place."""

    def __init__(self, begin: int) -> None:
        super().__init__("")
        self.begin = begin

    def share(self, value: Any, name: str) -> tuple[Any, Any]:
        if isinstance(value, PLAIN) or is_integer(value):
            return value, None
        if is_array(value) or isinstance(value, (float, complex)):
            self.leaves.append(value)
            number = float(self.begin + len(self.leaves))
            return (np.full(np.shape(value), number) if is_array(value) else number), None
        return super().share(value, name)
