"""Structural results of calls and comprehensions that control waits for, for many activations.

`if size(t.left) > 3` cannot be decided breadth first: the result comes from activations not yet expanded. Such results
are computed by the scalar program, one activation at a time, and remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns
from autobatch.data.spec import PlanSpec
from autobatch.ir.core import Apply, Call, Function, Map
from autobatch.ir.types import Array, Tag, Type
from autobatch.planning.scalar import ScalarProgram, as_column
from autobatch.planning.scalar_ops import FailedError, scalar_operation
from autobatch.planning.structure_ops import StructureOps

Ints = NDArray[np.int64]
Values = NDArray[Any]
Found = list[tuple[Any, ...] | None]


class StructuralResults:
    """The scalar program of one batch, made when first asked for."""

    def __init__(self, spec: PlanSpec, columns: Columns, ops: StructureOps, fail: Callable[[Ints], None]) -> None:
        self.spec, self.columns, self.ops, self.fail = spec, columns, ops, fail
        self.program: ScalarProgram | None = None

    def results(self, function: Function, kept: Sequence[int], host: list[Values], example: Ints) -> Found:
        """What the slice of a function returns for each activation; None where it failed. `kept` are the positions of
        the parameters that `host` holds."""
        if self.program is None:
            self.program = ScalarProgram(self.spec.slice, self.columns, self.spec.numbers, self.spec.limits)
        rows = [self.as_scalars(values, function.region.args[k].type) for k, values in zip(kept, host, strict=True)]
        found: Found = []
        for args, e in zip(zip(*rows, strict=True) if rows else [()] * len(example), example, strict=True):
            try:
                found.append(self.program.call(function.name, tuple(args)))
            except FailedError:
                self.fail(np.array([e]))
                found.append(None)
        return found

    def as_scalars(self, values: Values, type: Type) -> Sequence[Any]:
        """A column as Python scalars; tags as what they stand for, arrays row by row."""
        if isinstance(type, Tag):
            return [self.ops.word(type.vocabulary, int(v)) for v in values]
        return values.tolist() if values.ndim == 1 else list(values)

    def position(self, callee: str, k: int) -> int:
        """Where result k of a function is among those that its slice returns."""
        return self.spec.slice_results[callee].index(k)

    def columns_of(self, call: Call, wanted: Sequence[int], found: Found) -> list[Values]:
        """The wanted results of a call as columns."""
        columns = []
        for k in wanted:
            at = self.position(call.callee, k)
            columns.append(self.as_column([r[at] if r is not None else 0 for r in found], call.results[k].type))
        return columns

    def as_column(self, values: list[Any], type: Type) -> Values:
        if isinstance(type, Tag):
            return np.array([self.ops.tag(type.vocabulary, v) for v in values], np.int64)
        if isinstance(type, Array) and type.shape:  # the sum of no arrays is 0
            return np.array([np.broadcast_to(v, type.shape) for v in values])
        return as_column(values)

    def lists_of(self, loop: Map, wanted: Sequence[int], found: Found, which: Ints, rows: int) -> list[Values]:
        """The wanted results of a comprehension: one tuple for each of `rows`; turn n belongs to row `which[n]`."""
        call = loop.body.body[0]
        assert isinstance(call, Call)
        flag = self.position(call.callee, 0) if loop.filtered else 0
        columns = []
        for k in wanted:
            kept = self.spec.slice_results[call.callee]
            at = kept.index(k + loop.filtered) if k + loop.filtered in kept else None
            lists: list[list[Any]] = [[] for _ in range(rows)]
            for row, results in zip(which.tolist(), found, strict=True):
                if results is not None and (not loop.filtered or results[flag]):
                    lists[row].append(0 if at is None else results[at])
            columns.append(as_column([tuple(items) for items in lists]))
        return columns

    def flags(self, call: Call, found: Found) -> list[bool]:
        """Which turns of a filtered comprehension are kept."""
        flag = self.position(call.callee, 0)
        return [results is not None and bool(results[flag]) for results in found]

    def list_operation(self, instruction: Apply, operands: list[Values], example: Ints) -> Values:
        """`length`, `item`, `reduce`, `sort_order` on lists of structural values."""
        operation = scalar_operation(instruction, self.columns)
        found: list[Any] = []
        for row, items in enumerate(operands[0]):
            try:
                found.append(operation(items, *(_scalar(x[row]) for x in operands[1:])))
            except FailedError:
                self.fail(example[row : row + 1])
                found.append(0)
        return self.as_column(found, instruction.results[0].type)


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
