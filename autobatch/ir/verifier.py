"""Is a module well formed at a stage? A failed check prints the function with the offending line marked.

    VerifierError: example: operand 1 of is_none is a reference or list, not int32*[]

    func @f(%0: int32*[]) -> (bool[]):
      %1: bool[] = is_none(%0)
      ^^^^^^^^^^^^^^^^^^^^^^^^ operand 1 of is_none is a reference or list, not int32*[]
      return %1

Checked: every value is defined once and before it is read, in the region at hand or one around it; literals are of
their type; operands and results of operations, regions and calls agree; nothing but the stage's instructions occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NoReturn, assert_never

import numpy as np

from autobatch.errors import Error
from autobatch.ir import jax_compat
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
    operands,
)
from autobatch.ir.printer import Marked, Note, print_function, print_type
from autobatch.ir.stages import EXAMPLE, MASKED, RuleError, Stage
from autobatch.ir.types import BOOL, INT, Array, BuiltObject, List, Ref, Tag, Type
from autobatch.source import NOWHERE


class VerifierError(Error):
    """A module that breaks a rule of its stage: a mistake of a pass, never of the user. `about` is what breaks it."""

    def __init__(
        self, stage: str, complaint: str, function: Function | None = None, about: Marked | None = None
    ) -> None:
        self.complaint, self.function, self.about = complaint, function, about
        text = f"{stage}: {complaint}"
        span = getattr(about, "span", NOWHERE)
        if span != NOWHERE:
            text += f"\n{span}\n{span.excerpt()}"
        if function is not None:
            text += "\n\n" + print_function(function, Note(about, complaint) if about is not None else None)
        super().__init__(text)


def verify(module: Module, stage: Stage = EXAMPLE) -> None:
    """Check a module. Raises VerifierError."""
    _Verifier(module, stage).module()


class _Verifier:
    def __init__(self, whole: Module, stage: Stage) -> None:
        self.whole, self.stage = whole, stage
        self.functions = {f.name: f for f in whole.functions}
        self.defined: dict[int, Value] = {}
        self.function: Function | None = None

    def fail(self, complaint: str, about: Marked | None = None) -> NoReturn:
        raise VerifierError(self.stage.name, complaint, self.function, about or self.function)

    def module(self) -> None:
        if not self.whole.functions:
            self.fail("a module has an entry function")
        if len(self.functions) != len(self.whole.functions):
            self.fail("two functions have one name")
        scope: dict[int, Value] = {}
        self.define(self.whole.shared, scope, None)
        for function in self.whole.functions:
            self.function = function
            self.region(function.region, dict(scope), function)

    # ---- values

    def define(self, values: Iterable[Value], scope: dict[int, Value], about: Marked | None) -> None:
        for value in values:
            if value.id in self.defined:
                self.fail(f"{value} is defined twice", about)
            self.defined[value.id] = scope[value.id] = value

    def read(self, xs: Iterable[Operand], scope: dict[int, Value], about: Marked) -> None:
        for x in xs:
            if isinstance(x, Literal):
                self.literal(x, about)
            elif x.id not in scope:
                where = "not visible here" if x.id in self.defined else "not defined before"
                self.fail(f"{x} is {where}", about)
            elif scope[x.id].type != x.type:
                held = print_type(scope[x.id].type)
                self.fail(f"{x} is read as {print_type(x.type)} and defined as {held}", about)

    def literal(self, x: Literal, about: Marked) -> None:
        if x.constant >= 0:
            if x.constant >= len(self.whole.constants):
                self.fail(f"there is no constant {x.constant}", about)
            array = self.whole.constants[x.constant]
            held, wanted = jax_compat.type_of(array), x.type
            if not isinstance(wanted, Array) or (held.dtype, held.shape) != _stored(wanted):
                self.fail(f"constant {x.constant} is {held}, not {print_type(wanted)}", about)
        elif not _is_literal_of(x.value, x.type):
            self.fail(f"{x.value!r} is no literal of {print_type(x.type)}", about)

    # ---- regions and instructions

    def region(self, region: Region, scope: dict[int, Value], about: Marked) -> None:
        """Check a region in its own copy of the scope."""
        self.define(region.args, scope, about)
        for instruction in region.body:
            if not isinstance(instruction, self.stage.instructions):
                self.fail(f"{type(instruction).__name__} does not occur at this stage", instruction)
            self.read(operands(instruction), scope, instruction)
            self.instruction(instruction, scope)
            self.define(instruction.results, scope, instruction)
        self.read(region.results, scope, region)

    def instruction(self, instruction: Instruction, scope: dict[int, Value]) -> None:
        match instruction:
            case Apply():
                try:
                    self.stage.check(instruction)
                except RuleError as error:
                    self.fail(str(error), instruction)
                if instruction.op.name in ("masked", "gradient_of"):
                    self.closed(instruction.op["region"], instruction)
            case Call():
                self.call(instruction)
            case If():
                self.branches(instruction, scope)
            case For(count=count, init=init, body=body):
                self.count(count, instruction)
                self.carried(init, instruction)
                self.body(body, [INT, *_types(init)], _types(init), scope, instruction)
            case While(init=init, condition=condition, body=body):
                self.carried(init, instruction)
                self.body(condition, _types(init), [BOOL], scope, instruction)
                self.body(body, _types(init), _types(init), scope, instruction)
            case Map(count=count, body=body, filtered=filtered):
                self.count(count, instruction)
                kept = [BOOL] if filtered else []
                self.body(body, [INT], [*kept, *self.elements(instruction)], scope, instruction)
            case _:
                assert_never(instruction)

    def closed(self, region: Region, about: Instruction) -> None:
        """Check the region that an operation holds: it sees its arguments alone, and its names are its own."""
        inner = _Verifier(self.whole, replace(self.stage, instructions=MASKED))
        inner.function = self.function
        inner.region(region, {}, about)

    def call(self, call: Call) -> None:
        callee = self.functions.get(call.callee)
        if callee is None:
            self.fail(f"there is no function {call.callee!r}", call)
        self.agree("the operands", _types(call.operands), "the parameters", _types(callee.region.args), call)
        self.agree("the results", _types(call.results), "what it returns", _types(callee.region.results), call)

    def branches(self, branch: If, scope: dict[int, Value]) -> None:
        if branch.condition.type != BOOL:
            self.fail(f"a condition is bool[], not {print_type(branch.condition.type)}", branch)
        for region in (branch.then, branch.orelse):
            self.body(region, [], _types(branch.results), scope, branch)

    def count(self, count: Operand, about: Instruction) -> None:
        if not (isinstance(count.type, Array) and count.type.is_scalar and count.type.is_integer):
            self.fail(f"a number of turns is an int, not {print_type(count.type)}", about)

    def carried(self, init: Sequence[Operand], loop: For | While) -> None:
        self.agree("the results", _types(loop.results), "the carried values", _types(init), loop)

    def elements(self, loop: Map) -> list[Type]:
        found = []
        for result in loop.results:
            if not isinstance(result.type, List) or result.type.store is not None:
                self.fail(f"a Map gives lists that lie in no store, not {print_type(result.type)}", loop)
            found.append(result.type.elem)
        return found

    def body(
        self,
        region: Region,
        args: Sequence[Type],
        results: Sequence[Type],
        scope: dict[int, Value],
        about: Instruction,
    ) -> None:
        """Check a region inside an instruction: its signature, then what it holds."""
        self.agree("the region takes", _types(region.args), "the instruction gives it", args, about)
        self.region(region, dict(scope), about)
        self.agree("the region yields", _types(region.results), "the instruction needs", results, region)

    def agree(self, a: str, found: Sequence[Type], b: str, wanted: Sequence[Type], about: Marked) -> None:
        if list(found) != list(wanted):
            self.fail(f"{a} {_list(found)} and {b} {_list(wanted)} differ", about)


def _types(xs: Iterable[Operand]) -> list[Type]:
    return [x.type for x in xs]


def _list(types: Iterable[Type]) -> str:
    return f"({', '.join(map(print_type, types))})"


def _stored(type: Array) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape of an array that holds values of a type."""
    dtype = type.dtype if type.dtype.startswith("key") else str(jax_compat.device_dtype(type))
    return dtype, type.shape


def _is_literal_of(value: object, type: Type) -> bool:
    match type:
        case Array(dtype=dtype, shape=shape):
            if shape or dtype.startswith("key"):
                return False
            kinds = {bool: "b", int: "iu", float: "fV", complex: "c"}
            for cls, kind in kinds.items():
                if isinstance(value, cls):
                    return np.dtype(jax_compat.dtype_of(dtype)).kind in kind
            return False
        case Tag():
            return isinstance(value, str)
        case Ref() | List() | BuiltObject():
            return value is None
        case _:
            assert_never(type)
