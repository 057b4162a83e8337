"""The structural slice one activation at a time: generated Python with an explicit stack (FRAMES.md, 4.1).

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

from collections.abc import Callable, Generator, Mapping, Sequence
from types import GeneratorType
from typing import Any, assert_never

import numpy as np

from autobatch.data.columns import Columns
from autobatch.data.items import is_list
from autobatch.data.spec import HostLimits, Number
from autobatch.errors import Failure
from autobatch.ir.constants import constant_key
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
)
from autobatch.ir.types import Array, List, Ref, Type
from autobatch.planning.scalar_ops import FailedError, scalar_operation
from autobatch.source import Span

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
    """The functions of a structural slice over the data of one batch. `calls`: how many it has run."""

    def __init__(self, slice_: Module, columns: Columns, numbers: Mapping[Value, Number], limits: HostLimits) -> None:
        self.columns, self.limits, self.calls = columns, limits, 0
        self.loops = {f.name: f.span for f in slice_.functions if f.waits}
        self.turns = frozenset(f.name for f in slice_.functions if f.is_loop)
        self.by_bits = frozenset(f.name for f in slice_.functions if not all(_is_exact(a.type) for a in f.region.args))
        self.follows = frozenset(f.name for f in slice_.functions if any(map(_refers, f.region.args)))
        self.functions: dict[str, Callable[..., Frame]] = {}
        self.memo: dict[Request, tuple[Any, ...]] = {}
        self.places: dict[str, dict[int, Span]] = {}
        for function in slice_.functions:
            writer = _ScalarWriter(function, columns, numbers, slice_.constants)
            self.functions[function.name] = writer.compile()
            self.places[function.name] = writer.places

    def call(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The structural results of a function. Raises `FailedError`; a call that waits for itself is a failure too."""
        memo = self.memo
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
            self.call(name, args)
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
        self, function: Function, columns: Columns, numbers: Mapping[Value, Number], constants: Sequence[Any]
    ) -> None:
        self.function, self.columns = function, columns
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
                self.names[operation] = scalar_operation(instruction, self.columns)
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
