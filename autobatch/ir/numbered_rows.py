"""Rows of the examples by their numbers among those of one example, as `ir/interpret.py` computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autobatch.ir.memory import ExampleMemory
from autobatch.ir.ops import Op

Operation = Callable[..., Sequence[Any]]


def _row(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (type,) = operands

    def number(row: int) -> Sequence[Any]:
        if row < 0:
            return [np.array([-1])]
        begin = _begins[type.store] = memory.place(type.store, type, row)[0]
        return [np.array([row - begin])]

    return number


_begins: dict[str, int] = {}
"""Where the rows of the example begin of which a number was taken last, by store: it is the one that is run."""


def _row_of(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (result,) = results

    def row(number: Any) -> Sequence[Any]:
        n = int(number[0])
        return [_begins[result.store] + n if n >= 0 else -1]

    return row


def _rows(op: Op, types: Sequence[Any], memory: ExampleMemory, roots: Sequence[int]) -> tuple[int, int]:
    """Where the rows of a space begin and end that belong to the example which is given these objects and lists."""
    pairs = zip(types, roots, strict=True)
    return next((memory.place(op["space"], t, row) for t, row in pairs if row >= 0), (0, 0))


def _rows_of(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    def count(*roots: int) -> Sequence[Any]:
        begin, end = _rows(op, operands, memory, roots)
        return [np.array([end - begin])]

    return count


def _row_at(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (result,) = results

    def row_at(number: Any, *roots: int) -> Sequence[Any]:
        row = _rows(op, operands[1:], memory, roots)[0] + int(number[0])
        return [row if result.store == op["space"] else memory.list_of(result.store, row)]

    return row_at


def _first(op: Op, operands: Sequence[Any], results: Sequence[Any], memory: ExampleMemory) -> Operation:
    (type,) = operands

    def first(row: int) -> Sequence[Any]:
        begin = memory.place(type.store, type, row)[0]
        return [np.array([sum(memory.length(type, k) for k in range(begin, row))])]

    return first


NUMBERED: dict[str, Callable[[Op, Sequence[Any], Sequence[Any], ExampleMemory], Operation]] = {
    "row": _row,
    "row_of": _row_of,
    "rows_of": _rows_of,
    "row_at": _row_at,
    "first": _first,
}
"""By the names of the operations; see `ir/interpret.py`."""
