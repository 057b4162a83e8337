"""What structural operations compute for one activation: Python scalars in, Python scalars out."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autobatch.data.columns import Columns
from autobatch.data.items import joined
from autobatch.data.memory import list_of, place
from autobatch.data.schema import field_column
from autobatch.errors import Error, Failure
from autobatch.ir import host_ops, texts
from autobatch.ir.bounds import words
from autobatch.ir.core import Apply
from autobatch.ir.host_primitives import host_dtype
from autobatch.ir.types import Array, List, Ref, Tag, Type
from autobatch.source import NOWHERE, Span

Operation = Callable[..., Any]


def _total(division: Operation) -> Operation:
    """A division by zero stands behind a check that has failed, or is done ahead of it: it has any value."""
    return lambda x, y: division(x, y) if y else 0


PYTHON: dict[str, Operation] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "max": lambda x, y: x if x >= y or x != x else y,  # of arrays: NaN stays, whichever it is
    "min": lambda x, y: x if x <= y or x != x else y,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "floordiv": _total(operator.floordiv),
    "mod": _total(operator.mod),
    "truediv": _total(operator.truediv),
    "int": math.trunc,
    "tag_equal": operator.eq,
    "same": operator.eq,
}
"""Operations on scalars that Python has itself, with Python's meaning."""

REDUCE: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "sum": sum,
    "prod": math.prod,
    "max": max,
    "min": min,
    "any": any,
    "all": all,
}


class FailedError(Error):
    """One example failed: the name of Python's exception, its message, and the place."""

    def __init__(self, kind: str, message: str, span: Span = NOWHERE) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.span = kind, message, span

    def failure(self, example: int) -> Failure:
        """The same as a value, for the example with that index."""
        return Failure(example, self.kind, self.message, self.span)


def scalar_operation(instruction: Apply, columns: Columns) -> Operation:
    """The operation of an instruction as a Python function; it raises `FailedError` with the instruction's place.

    It returns the result alone where there is one, and a tuple where there are several (a scan)."""
    operation = _operation(instruction, columns)

    def guarded(*xs: Any) -> Any:
        try:
            found = operation(*xs)
            if type(found) is int and not -(2**63) <= found < 2**63:
                raise FailedError(*host_ops.TOO_LARGE, instruction.span)
            return found
        except (ArithmeticError, LookupError, AttributeError, ValueError, TypeError) as error:
            raise FailedError(type(error).__name__, str(error), instruction.span) from None

    return guarded


def _operation(instruction: Apply, columns: Columns) -> Operation:
    op = instruction.op
    types = [x.type for x in instruction.operands]
    scalar = all(not isinstance(t, Array) or t.is_scalar for t in types)
    match op.name:
        case "load":
            return _load(instruction, columns)
        case "load_is_none":
            return _load_is_none(instruction, columns)
        case "item":
            return _item(types[0], columns)
        case "length":
            return _length(types[0], columns)
        case "row":
            return _row(types[0], columns)
        case "rows_of":
            return lambda *roots: operator.sub(*reversed(_rows(columns, op["space"], types, roots)))
        case "row_at":
            return _row_at(instruction, columns)
        case "first":
            return _first(types[0], columns)
        case "is_none":
            return lambda ref: ref < 0
        case "none":
            return lambda: -1
        case "is_class":
            return _is_class(types[0], op["names"], columns)
        case "pack_list":
            return lambda *xs: xs
        case "flatten":
            return joined
        case "text":
            return lambda *xs: texts.call(op["function"], op["args"], xs)
        case "sort_order":
            return lambda *keys: tuple(texts.order(keys, op["reverse"]))
        case "reduce":
            return REDUCE[op["kind"]]
        case "tag":
            return lambda: op["value"]
        case "word":
            return texts.number
        case "tag_index":
            keys = {k: n for n, k in enumerate(op["keys"])}
            return lambda tag: keys[tag]
        case "check":
            return _check(instruction)
        case "bounds":
            return _bounds(instruction)
        case "undefined":
            is_made = isinstance(op["type"], List) and op["type"].store is None
            zero = () if is_made else _plain(nothing(op["type"]))  # a test may ask for its length: operations are total
            return lambda: zero
        case "select_n" if scalar:
            return lambda which, *cases: cases[int(which)]
        case "not" if scalar:
            return lambda x: (not x) if isinstance(x, (bool, np.bool_)) else ~x
        case _ if scalar and op.name in PYTHON:
            return PYTHON[op.name]
    types_of_results = [r.type for r in instruction.results if isinstance(r.type, Array)]

    def general(*xs: Any) -> Any:
        arrays = [np.asarray(x)[None] for x in xs]
        if (failed := host_ops.fails(op, *arrays)) is not None and failed.any():
            raise FailedError(*host_ops.failure(op, *xs), instruction.span)
        results = [_plain(result[0]) for result in host_ops.evaluate(op, types_of_results, arrays)]
        return results[0] if len(results) == 1 else tuple(results)

    return general


def nothing(type: Type) -> np.ndarray[Any, Any]:
    """What stands for a value that nothing reads: of the dtype and shape that the operations handing it on expect."""
    return np.zeros(type.shape, host_dtype(type)) if isinstance(type, Array) else np.zeros((), np.int64)


def _plain(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def _cell(columns: Columns, column: str, type: Any) -> Operation:
    """Reads a row of a column; tags are read as the strings or members they stand for."""
    array = columns.arrays[column]
    if isinstance(type, Tag):
        words = columns.vocabularies.get(type.vocabulary, ())
        return lambda row: words[array[row]]
    return lambda row: _plain(array[row])


def _row(type: Any, columns: Columns) -> Operation:
    assert isinstance(type, Ref | List) and type.store is not None
    store = type.store
    return lambda row: row - place(columns, store, type, row)[0] if row >= 0 else -1


def _first(type: Any, columns: Columns) -> Operation:
    assert isinstance(type, List)
    values, offsets = f"{type.store}.#values", columns.arrays[f"{type.store}.#offsets"]
    return lambda row: int(offsets[row]) - place(columns, values, type, row)[0]


def _rows(columns: Columns, space: str, types: Sequence[Any], roots: tuple[int, ...]) -> tuple[int, int]:
    """Where the rows of a space begin and end that belong to the example which is given these objects and lists."""
    return next((place(columns, space, t, row) for t, row in zip(types, roots, strict=True) if row >= 0), (0, 0))


def _row_at(instruction: Apply, columns: Columns) -> Operation:
    space, result = instruction.op["space"], instruction.results[0].type
    types = [x.type for x in instruction.operands[1:]]
    assert isinstance(result, Ref | List) and result.store is not None
    store, is_element = result.store, result.store != space

    def row_at(number: int, *roots: int) -> int:
        row = _rows(columns, space, types, roots)[0] + number
        return int(list_of(columns, store, np.array([row]))[0]) if is_element else row

    return row_at


def _load(instruction: Apply, columns: Columns) -> Operation:
    type, name = instruction.operands[0].type, instruction.op["field"]
    assert isinstance(type, Ref)
    store = columns.schema.store(type.store)
    column = field_column(columns.schema, type.store, name, instruction.results[0].type)
    field = next(f for f in store.fields if f.column == column)
    tags = columns.arrays[f"{store.name}.#tag"]
    read = _cell(columns, column, instruction.results[0].type)

    def load(ref: int) -> Any:
        if ref < 0:
            raise AttributeError(f"'NoneType' object has no attribute '{name}'")
        if tags[ref] not in field.classes:
            raise AttributeError(f"'{store.classes[tags[ref]].name}' object has no attribute '{name}'")
        return read(ref)

    return load


def _load_is_none(instruction: Apply, columns: Columns) -> Operation:
    type, name = instruction.operands[0].type, instruction.op["field"]
    assert isinstance(type, Ref)
    column = field_column(columns.schema, type.store, name, instruction.op["type"])
    mask = columns.arrays.get(f"{column}?")

    def load(ref: int) -> bool:
        if ref < 0:
            raise AttributeError(f"'NoneType' object has no attribute '{name}'")
        return mask is not None and bool(mask[ref])

    return load


def _item(type: Any, columns: Columns) -> Operation:
    assert isinstance(type, List)
    if type.store is None:
        return _element
    offsets = columns.arrays[f"{type.store}.#offsets"]
    read = _cell(columns, f"{type.store}.#values", type.elem)

    def item(row: int, index: int) -> Any:
        if row < 0:
            raise TypeError("'NoneType' object is not subscriptable")
        length = int(offsets[row + 1] - offsets[row])
        if not -length <= index < length:
            raise IndexError("list index out of range")
        return read(int(offsets[row]) + (index + length if index < 0 else index))

    return item


def _element(items: tuple[Any, ...], index: int) -> Any:
    if not -len(items) <= index < len(items):
        raise IndexError("list index out of range")
    return items[index]


def _length(type: Any, columns: Columns) -> Operation:
    assert isinstance(type, List)
    if type.store is None:
        return len
    offsets = columns.arrays[f"{type.store}.#offsets"]

    def length(row: int) -> int:
        if row < 0:
            raise TypeError("object of type 'NoneType' has no len()")
        if row + 1 >= len(offsets):
            return 0  # what is undefined, where there is no list at all
        return int(offsets[row + 1] - offsets[row])

    return length


def _is_class(type: Any, names: tuple[str, ...], columns: Columns) -> Operation:
    assert isinstance(type, Ref)
    store = columns.schema.store(type.store)
    wanted = {k for k, c in enumerate(store.classes) if c.name in names}
    tags = columns.arrays[f"{store.name}.#tag"]
    return lambda ref: ref >= 0 and int(tags[ref]) in wanted


def _bounds(instruction: Apply) -> Operation:
    axis, size = instruction.op["axis"], instruction.op["size"]

    def check(index: Any) -> None:
        if found := words(index, axis, size):
            raise FailedError("IndexError", found, instruction.span)

    return check


def _check(instruction: Apply) -> Operation:
    kind, message = instruction.op["kind"], instruction.op["message"]

    def check(condition: Any, *parts: Any) -> None:
        if not condition:
            raise FailedError(kind, message.format(*parts) if parts else message, instruction.span)

    return check
