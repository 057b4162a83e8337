"""What structural operations compute on the host, for many activations at once.

References, lists and tags are int64 rows (-1 is null), structural numbers are arrays with one entry an activation.
An example that fails is reported to `fail` and goes on with a harmless value: it is planned again alone, in program
order, to find its first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns, Ints, field_column, list_of
from autobatch.data.spec import PlanSpec
from autobatch.ir import host_ops, strings
from autobatch.ir.core import BOOL, Apply, Array, Call, Function, List, Map, Operand, Ref, Tag, Type
from autobatch.ir.interpret import outside
from autobatch.planning.scalar import FailedError, ScalarProgram, as_column, nothing, scalar_operation

Values = NDArray[Any]


def _bits(value: Any) -> Any:
    """What stands for a list of the host, or a value in it, in a dict: equal where all bits are. 0.0 and -0.0 are not,
    though Python calls them equal; nan is."""
    if isinstance(value, tuple | list):
        return tuple(map(_bits, value))
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return value if value and value == value else repr(value)


class StructureOps:
    """The operations on the data of one batch."""

    def __init__(self, columns: Columns, fail: Callable[[Ints], None]) -> None:
        self.columns, self.fail = columns, fail
        self.strings: dict[str, dict[Any, int]] = {}
        self.words: dict[str, list[Any]] = {}
        self.objects: dict[bytes, int] = {}
        self.lists: dict[tuple[Any, ...], int] = {}

    def key(self, column: Values) -> Values:
        """The bits of a column of arguments, as int64: equal keys are equal arguments."""
        if column.dtype == object:  # lists
            return np.array([self.lists.setdefault(_bits(row), len(self.lists)) for row in column], np.int64)
        if column.ndim > 1:
            rows = [row.tobytes() for row in column]
            return np.array([self.objects.setdefault(row, len(self.objects)) for row in rows], np.int64)
        if column.dtype.kind == "f":
            return column.astype(np.float64).view(np.int64)
        if column.dtype.kind == "c":
            return self.key(np.stack([column.real, column.imag], 1))
        return column.astype(np.int64, copy=False)

    def tag(self, vocabulary: str, value: Any) -> int:
        """The tag of a string or enum member; one that no example holds gets a negative one below null."""
        if vocabulary not in self.strings:
            known = self.columns.vocabularies.get(vocabulary, ())
            self.strings[vocabulary] = {v: n for n, v in enumerate(known)}
        table = self.strings[vocabulary]
        return table.setdefault(value, len(table))

    def word(self, vocabulary: str, tag: int) -> Any:
        """The string or enum member that a tag stands for."""
        known = self.columns.vocabularies.get(vocabulary, ())
        if tag < len(known):
            return known[tag]
        if vocabulary not in self.strings:
            return ""  # what is not set, in rows that do not read it
        made = self.words.setdefault(vocabulary, list(self.strings[vocabulary]))
        if tag >= len(made):
            made += list(self.strings[vocabulary])[len(made) :]
        return made[tag]

    def apply(self, instruction: Apply, xs: list[Values], example: Ints) -> list[Values]:
        """The results of one operation; `example` is the example of each row."""
        op, rows = instruction.op, len(example)
        types = [x.type for x in instruction.operands]
        match op.name:
            case "load":
                return [self.load(instruction, xs[0], example)]
            case "item":
                return [self.item(instruction, xs, example)]
            case "load_is_none":
                live = self.live(xs[0], example)
                column = self.column(instruction)
                mask = self.columns.arrays.get(f"{column}?")
                return [np.zeros(rows, bool) if mask is None else mask[live]]
            case "is_none":
                return [xs[0] < 0]
            case "none":
                return [np.full(rows, -1)]
            case "is_class":
                return [self.is_class(types[0], op["names"], xs[0])]
            case "same" | "tag_equal":
                return [xs[0] == xs[1]]
            case "length":
                return [self.length(types[0], self.live(xs[0], example))]
            case "row" | "row_of" | "rows_of" | "row_at" | "first":
                return [self.numbering(instruction, xs, example)]
            case "tag":
                result = instruction.results[0].type
                assert isinstance(result, Tag)
                return [np.full(rows, self.tag(result.vocabulary, op["value"]))]
            case "text":
                return [self.text(instruction, xs, example)]
            case "word":
                return [self.numbers(types[0], xs[0])]
            case "tag_index":
                return [self.tag_index(types[0], op["keys"], xs[0], example)]
            case "check":
                self.failing(~xs[0].astype(bool), example)
                return []
            case "bounds":
                self.failing(np.asarray(outside(xs[0].reshape(rows, -1), op["size"]).any(1)), example)
                return []
            case "undefined":
                if isinstance(op["type"], List) and op["type"].store is None:
                    return [as_column([()] * rows)]  # empty: a test may ask for its length
                return [np.repeat(nothing(op["type"])[None], rows, 0)]
            case _:
                return self.number(instruction, xs, example)

    def numbering(self, instruction: Apply, xs: list[Values], example: Ints) -> Ints:
        """Rows by their numbers among those of one example, and the other way round."""
        starts, type = self.columns.starts, instruction.operands[0].type
        match instruction.op.name:
            case "rows_of":
                held = starts[instruction.op["space"]]
                return held[example + 1] - held[example]
            case "row_at":
                space, result = instruction.op["space"], instruction.results[0].type
                rows = starts[space][example] + xs[0]
                assert isinstance(result, Ref | List) and result.store is not None
                return rows if result.store == space else list_of(self.columns, result.store, rows)
            case "row":
                assert isinstance(type, Ref | List) and type.store is not None
                return np.where(xs[0] < 0, -1, xs[0] - starts[type.store][example])
            case "row_of":
                result = instruction.results[0].type
                assert isinstance(result, Ref | List) and result.store is not None
                return np.where(xs[0] < 0, -1, xs[0] + starts[result.store][example])
            case _:
                assert isinstance(type, List) and type.store is not None
                offsets = self.columns.arrays[f"{type.store}.#offsets"]
                live = self.live(xs[0], example)
                return offsets[live].astype(np.int64) - starts[f"{type.store}.#values"][example]

    def text(self, instruction: Apply, xs: list[Values], example: Ints) -> Values:
        """A function of strings: once for each combination of operands."""
        op, result, types = instruction.op, instruction.results[0].type, [x.type for x in instruction.operands]
        distinct, which = np.unique(np.stack([self.key(x) for x in xs], 1), axis=0, return_inverse=True)
        values, wrong = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), bool)
        for k, row in enumerate(distinct.tolist()):
            operands = [self.plain(x, type) for x, type in zip(row, types, strict=True)]
            try:
                found = strings.call(op["function"], op["args"], operands)
                values[k] = self.tag(result.vocabulary, found) if isinstance(result, Tag) else found
            except strings.FAILURES:
                wrong[k] = True
        self.failing(wrong[which.reshape(-1)], example)
        return values[which.reshape(-1)].astype(bool if result == BOOL else np.int64)

    def numbers(self, type: Any, tags: Ints) -> Ints:
        """A number for each word (`texts.number`)."""
        distinct, which = np.unique(tags, return_inverse=True)
        known = [strings.number(self.word(type.vocabulary, tag)) if tag >= 0 else -1 for tag in distinct.tolist()]
        return np.array(known, np.int64)[which.reshape(-1)]

    def plain(self, value: int, type: Any) -> Any:
        """A word, bool or int as Python has it."""
        if isinstance(type, Tag):
            return self.word(type.vocabulary, value) if value >= 0 else ""  # None, in rows that do not come there
        return bool(value) if type == BOOL else value

    def number(self, instruction: Apply, xs: list[Values], example: Ints) -> list[Values]:
        """Arithmetic; a row that fails goes on with the result of a divisor of one."""
        op = instruction.op
        failed = host_ops.fails(op, *xs)
        if failed is not None and failed.any():
            if not host_ops.is_checked(op, *xs):
                self.failing(failed, example)
            xs = [*xs[:-1], np.where(failed, np.ones_like(xs[-1]), xs[-1])]
        types = [r.type for r in instruction.results if isinstance(r.type, Array)]
        return list(host_ops.evaluate(op, types, xs, len(example)))

    def failing(self, failed: Values, example: Ints) -> None:
        if failed.any():
            self.fail(example[failed])

    def live(self, ref: Ints, example: Ints) -> Ints:
        """`ref` with null references, whose examples fail, replaced by a row that can be read."""
        null = ref < 0
        if null.any():
            self.failing(null, example)
            return np.where(null, 0, ref)
        return ref

    def column(self, load: Apply) -> str:
        type = load.operands[0].type
        assert isinstance(type, Ref)
        result = load.results[0].type if load.op.name == "load" else load.op["type"]
        return field_column(self.columns.schema, type.store, load.op["field"], result)

    def locate(self, load: Apply, xs: list[Values], example: Ints) -> tuple[str, Ints]:
        """For a load of numbers that the device reads: the column, and the row of it for each activation."""
        type = load.operands[0].type
        if load.op.name == "item":
            assert isinstance(type, List)
            return f"{type.store}.#values", self.element(type, xs, example)
        self.check_class(load, xs[0], example)
        return self.column(load), self.live(xs[0], example)

    def load(self, load: Apply, ref: Ints, example: Ints) -> Values:
        column = self.columns.arrays[self.column(load)]
        self.check_class(load, ref, example)
        live = self.live(ref, example)
        if len(column) == 0:
            return np.zeros((len(live), *column.shape[1:]), column.dtype)
        return _wide(column[live], load.results[0])

    def check_class(self, load: Apply, ref: Ints, example: Ints) -> None:
        """A class without the field fails, as an attribute that is missing does."""
        type = load.operands[0].type
        assert isinstance(type, Ref)
        store = self.columns.schema.store(type.store)
        name = self.column(load)
        field = next(f for f in store.fields if f.column == name)
        if len(field.classes) < len(store.classes):
            tags = self.columns.arrays[f"{store.name}.#tag"]
            if len(tags):
                self.failing((ref >= 0) & ~_are(tags[np.maximum(ref, 0)], field.classes, len(store.classes)), example)

    def is_class(self, type: Any, names: tuple[str, ...], ref: Ints) -> Values:
        assert isinstance(type, Ref)
        store = self.columns.schema.store(type.store)
        wanted = [k for k, c in enumerate(store.classes) if c.name in names]
        tags = self.columns.arrays[f"{store.name}.#tag"]
        if not len(tags):
            return np.zeros(len(ref), bool)
        return (ref >= 0) & _are(tags[np.maximum(ref, 0)], wanted, len(store.classes))

    def length(self, type: Any, row: Ints) -> Ints:
        offsets = self.columns.arrays[f"{type.store}.#offsets"]
        if len(offsets) < 2:
            return np.zeros(len(row), np.int64)
        lengths: Ints = (offsets[row + 1] - offsets[row]).astype(np.int64)
        return lengths

    def checked_index(self, index: Values, length: Ints, example: Ints) -> Ints:
        """Python's index into a list of `length`: negative from the end; out of range fails the example."""
        index = index.astype(np.int64)
        self.failing((index < -length) | (index >= length), example)
        return np.clip(np.where(index < 0, index + length, index), 0, np.maximum(length - 1, 0))

    def element(self, type: List, xs: list[Values], example: Ints) -> Ints:
        row = self.live(xs[0], example)
        index = self.checked_index(xs[1], self.length(type, row), example)
        offsets = self.columns.arrays[f"{type.store}.#offsets"]
        return offsets[row].astype(np.int64) + index

    def item(self, item: Apply, xs: list[Values], example: Ints) -> Values:
        type = item.operands[0].type
        assert isinstance(type, List)
        values = self.columns.arrays[f"{type.store}.#values"]
        where = self.element(type, xs, example)
        if not len(values):
            return np.zeros((len(where), *values.shape[1:]), np.int64)
        return _wide(values[np.minimum(where, len(values) - 1)], item.results[0])

    def tag_index(self, type: Any, keys: tuple[Any, ...], tags: Ints, example: Ints) -> Ints:
        assert isinstance(type, Tag)
        numbers = np.array([self.tag(type.vocabulary, k) for k in keys])
        table = np.full(1 + max(int(numbers.max(initial=-1)), int(tags.max(initial=-1))), -1)
        table[numbers] = np.arange(len(keys))
        found = np.where(tags >= 0, table[tags], -1)
        self.failing(found < 0, example)
        return np.maximum(found, 0)


def _are(tags: Values, wanted: Sequence[int], classes: int) -> Values:
    """Which tags are among some, of so many classes."""
    table = np.zeros(classes, np.bool_)
    table[list(wanted)] = True
    return table[tags]


def _wide(values: Values, result: Operand) -> Values:
    """Structural integers have 64 bits on the host."""
    type = result.type
    if not isinstance(type, Array) or (type.is_integer and type.weak):
        return values.astype(np.int64)
    return values


# ---- structural results
#
# Structural results of calls and comprehensions that control waits for, for many activations.
#
# `if size(t.left) > 3` cannot be decided breadth first: the result comes from activations not yet expanded. Such
# results are computed by the scalar program, one activation at a time, and remembered.


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
                found.append(self.program.call(function.name, tuple(args), int(e)))
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
        row = 0
        operation = scalar_operation(instruction, self.columns, lambda: int(example[row]))
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
