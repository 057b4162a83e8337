"""The structural slice one activation at a time: generated Python with an explicit stack.

Used where control waits for the structural result of a call (`if size(t.left) > 3`), and to find which failure of an
example comes first in program order. Every function of the slice becomes a Python generator; a call is a `yield`, so
recursion 100,000 deep needs no Python stack. Results are remembered by (function, arguments).

    func @size(%1: ref<Node>) -> int32*[]:             def size(v1):
      %2 = is_none(%1)                                     v2 = op0(v1)
      %3 = if %2 then: yield 0 else:             ->        if v2: v3 = 0
        %4 = load[left](%1)                                else:
        %5 = call @size(%4)                                    v4 = op1(v1)
        ...                                                    (v5,) = yield ('size', (v4,))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from types import GeneratorType
from typing import Any, assert_never

import numpy as np

from autobatch.data.columns import Columns, field_column, list_of, place
from autobatch.data.spec import HostLimits, Number, is_list, joined
from autobatch.errors import NOWHERE, Error, Failure, Span
from autobatch.ir import host_ops, strings
from autobatch.ir.buffers import TOO_LARGE_FOR_HOST
from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Type,
    Value,
    While,
)
from autobatch.ir.host_ops import host_dtype
from autobatch.ir.interpret import words
from autobatch.ir.ops import constant_key

# ---- scalar ops
#
# What structural operations compute for one activation: Python scalars in, Python scalars out.


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


def scalar_operation(instruction: Apply, columns: Columns, example: Callable[[], int]) -> Operation:
    """The operation of an instruction as a Python function; it raises `FailedError` with the instruction's place.
    `example`: which one it is called for.

    It returns the result alone where there is one, and a tuple where there are several (a scan)."""
    operation = _operation(instruction, columns, example)

    def guarded(*xs: Any) -> Any:
        try:
            found = operation(*xs)
            if type(found) is int and not -(2**63) <= found < 2**63:
                raise FailedError(*TOO_LARGE_FOR_HOST, instruction.span)
            return found
        except (ArithmeticError, LookupError, AttributeError, ValueError, TypeError) as error:
            raise FailedError(type(error).__name__, str(error), instruction.span) from None

    return guarded


def _operation(instruction: Apply, columns: Columns, example: Callable[[], int]) -> Operation:
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
        case "row_of":
            return _row_of(instruction.results[0].type, columns, example)
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
            return lambda *xs: strings.call(op["function"], op["args"], xs)
        case "sort_order":
            return lambda *keys: tuple(strings.order(keys, op["reverse"]))
        case "reduce":
            return REDUCE[op["kind"]]
        case "tag":
            return lambda: op["value"]
        case "word":
            return strings.number
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


def _row_of(type: Any, columns: Columns, example: Callable[[], int]) -> Operation:
    assert isinstance(type, Ref | List) and type.store is not None
    starts = columns.starts[type.store]
    return lambda number: int(starts[example()]) + number if number >= 0 else -1


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


CYCLE = (
    "the recursion follows a cycle in the data: it comes back to an object that it has not finished; break the cycle "
    "in the example, or hand down a number that stops the recursion"
)
SAME_CALL = (
    "this recursion never ends: it calls itself with the arguments that a call which waits for it has begun with; test "
    "for its end before this call, or hand down something else"
)
LOOP_CYCLE = (
    "this loop never ends: one of its turns begins as a turn before it did, so it follows a cycle in the data, or "
    "changes nothing that it tests"
)

Request = tuple[str, tuple[Any, ...]]
Frame = Generator[Request, tuple[Any, ...], tuple[Any, ...]]


class TooManyCallsError(FailedError):
    """More calls than the limit, of which none waits for too many others."""


class ScalarProgram:
    """The functions of a structural slice over the data of one batch. `calls`: how many it has run. `example`: the one
    that is run now; results are kept for it alone where rows are read by their numbers in it."""

    def __init__(self, slice_: Module, columns: Columns, numbers: Mapping[Value, Number], limits: HostLimits) -> None:
        self.columns, self.limits, self.calls = columns, limits, 0
        self.loops = {f.name: f.span for f in slice_.functions if f.waits}
        self.turns = frozenset(f.name for f in slice_.functions if f.is_loop)
        self.by_bits = frozenset(f.name for f in slice_.functions if not all(_is_exact(a.type) for a in f.region.args))
        self.follows = frozenset(f.name for f in slice_.functions if any(map(_refers, f.region.args)))
        self.functions: dict[str, Callable[..., Frame]] = {}
        self.memo: dict[Request, tuple[Any, ...]] = {}
        self.example, self.of_one = 0, False
        self.places: dict[str, dict[int, Span]] = {}
        for function in slice_.functions:
            writer = _ScalarWriter(function, columns, numbers, slice_.constants, lambda: self.example)
            self.functions[function.name] = writer.compile()
            self.places[function.name] = writer.places
            self.of_one = self.of_one or writer.of_one

    def call(self, name: str, args: tuple[Any, ...], example: int) -> tuple[Any, ...]:
        """The structural results of a function. Raises `FailedError`; a call that waits for itself is a failure too."""
        if self.of_one and example != self.example:
            self.memo.clear()
        memo, self.example = self.memo, example
        request, known = self.find((name, args))
        if known is not None:
            return known
        stack: list[tuple[Request, Frame]] = [(request, self.functions[name](*args))]
        open_: set[Request] = {request}
        sent: tuple[Any, ...] | None = None
        running = dict.fromkeys(self.loops, 0)
        deep = 0  # the calls that wait, without the turns of loops
        most = self.calls + self.limits.rows
        while stack:
            current, frame = stack[-1]
            try:
                asked = frame.send(sent) if sent is not None else next(frame)
            except StopIteration as stop:
                stack.pop()
                open_.discard(current)
                deep -= current[0] not in self.turns
                if current[0] in running:
                    running[current[0]] -= 1
                memo[current] = sent = stop.value
                continue
            key, sent = self.find(asked)
            if sent is None:
                if key in open_:
                    words = LOOP_CYCLE if key[0] in running else CYCLE if key[0] in self.follows else SAME_CALL
                    raise FailedError("RecursionError", words, self.places[current[0]][_line(frame)])
                if key[0] in running:
                    running[key[0]] += 1
                    if running[key[0]] > self.limits.turns:
                        raise FailedError("RuntimeError", self.limits.late, self.loops[key[0]])
                deep += key[0] not in self.turns
                self.calls += 1
                if deep > self.limits.depth:
                    raise FailedError("RecursionError", self.limits.deep, self.places[current[0]][_line(frame)])
                if self.calls > most:
                    raise TooManyCallsError("RuntimeError", self.limits.many, self.places[current[0]][_line(frame)])
                open_.add(key)
                stack.append((key, self.functions[asked[0]](*asked[1])))
        return memo[request]

    def find(self, request: Request) -> tuple[Request, tuple[Any, ...] | None]:
        """The key of a call, and its results where it has been made. Floats and arrays are told apart by their bits."""
        if request[0] in self.by_bits:
            request = (request[0], tuple(map(constant_key, request[1])))
        return request, self.memo.get(request)

    def first_failure(
        self, name: str, args: tuple[Any, ...], example: int, otherwise: Failure | None = None
    ) -> Failure:
        """What the example fails with, in program order; `otherwise` where Python itself would not fail."""
        try:
            self.call(name, args, example)
        except FailedError as error:
            return error.failure(example)
        return otherwise or Failure(example, "RecursionError", CYCLE)


def _refers(parameter: Value) -> bool:
    """Does it take objects or lists of the examples?"""
    return isinstance(parameter.type, Ref) or (isinstance(parameter.type, List) and parameter.type.store is not None)


def _is_exact(type: Type) -> bool:
    """Does `==` tell all its values apart? Lists that functions make are tuples."""
    if isinstance(type, Array):
        return type.is_scalar and (type.is_integer or type.is_bool)
    return not isinstance(type, List) or type.store is not None or _is_exact(type.elem)


def _line(frame: Frame) -> int:
    """The line at which a generator stands."""
    assert isinstance(frame, GeneratorType) and frame.gi_frame is not None
    return frame.gi_frame.f_lineno


class _ScalarWriter:
    """One function as the source of a generator. `numbers` and the arrays of `constants` are global names of it."""

    def __init__(
        self,
        function: Function,
        columns: Columns,
        numbers: Mapping[Value, Number],
        constants: Sequence[Any],
        example: Callable[[], int],
    ) -> None:
        self.function, self.columns, self.example = function, columns, example
        self.of_one = False
        self.lines: list[str] = []
        self.names: dict[str, Any] = {self.name(x): number for x, number in numbers.items()}
        self.places: dict[int, Span] = {}
        """The place of each call, by the line of the source that asks for it."""
        for k, array in enumerate(constants):
            self.names[f"constant{k}"] = array.item() if np.ndim(array) == 0 else np.asarray(array)

    def compile(self) -> Callable[..., Frame]:
        region = self.function.region
        self.line(0, f"def generated({', '.join(self.name(a) for a in region.args)}):")
        self.body(region, 1)
        self.line(1, f"return {self.tuple(region.results)}")
        self.line(1, "yield")
        code = compile("\n".join(self.lines), f"<structure of {self.function.name}>", "exec")
        exec(code, self.names)
        made: Callable[..., Frame] = self.names["generated"]
        return made

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self, x: Operand) -> str:
        if not isinstance(x, Literal):
            return f"v{x.id}"
        if x.constant >= 0:
            return f"constant{x.constant}"
        if x.value is None:
            return "-1"
        if isinstance(x.value, float):
            return f"float('{x.value}')"
        return repr(x.value)

    def tuple(self, xs: Sequence[Operand]) -> str:
        return "(" + "".join(f"{self.name(x)}, " for x in xs) + ")"

    def body(self, region: Region, depth: int) -> None:
        for instruction in region.body:
            self.instruction(instruction, depth)

    def instruction(self, instruction: Instruction, depth: int) -> None:
        match instruction:
            case Apply(operands=xs, results=results):
                operation = f"op{len(self.names)}"
                self.of_one = self.of_one or instruction.op.name == "row_of"
                self.names[operation] = scalar_operation(instruction, self.columns, self.example)
                call = f"{operation}({', '.join(map(self.name, xs))})"
                targets = self.name(results[0]) if len(results) == 1 else self.tuple(results)
                self.line(depth, f"{targets} = {call}" if results else call)
            case If(condition=condition, then=then, orelse=orelse, results=results):
                for header, arm in ((f"if {self.name(condition)}:", then), ("else:", orelse)):
                    self.line(depth, header)
                    self.line(depth + 1, "pass")
                    self.body(arm, depth + 1)
                    self.assign(results, arm.results, depth + 1)
            case Call():
                self.call(instruction, depth)
            case Map(count=count, body=body, results=results, filtered=filtered):
                lists = [self.name(r) for r in results]
                for held in lists:
                    self.line(depth, f"{held} = []")
                self.line(depth, f"for {self.name(body.args[0])} in range({self.name(count)}):")
                self.body(body, depth + 1)
                if filtered:
                    self.line(depth + 1, f"if not {self.name(body.results[0])}: continue")
                for held, value in zip(lists, body.results[filtered:], strict=True):
                    self.line(depth + 1, f"{held}.append({self.name(value)})")
                for held in lists:
                    self.line(depth, f"{held} = tuple({held})")
            case For() | While():
                raise AssertionError("loops are functions by now")
            case _:
                assert_never(instruction)

    def assign(self, names: Sequence[Operand], values: Sequence[Operand], depth: int) -> None:
        for target, value in zip(names, values, strict=True):
            self.line(depth, f"{self.name(target)} = {self.name(value)}")

    def call(self, call: Call, depth: int) -> None:
        asked = f"yield ({call.callee!r}, {self.tuple(call.operands)})"
        self.line(depth, f"{self.tuple(call.results)} = {asked}" if call.results else asked)
        self.places[len(self.lines)] = call.span


def as_column(values: list[Any]) -> np.ndarray[Any, Any]:
    """Structural results of many activations as an array; lists become an array of tuples. A list that is undefined,
    which is never read, is no tuple."""
    if any(map(is_list, values)):
        held = np.empty(len(values), object)
        held[:] = values
        return held
    return np.array(values)
