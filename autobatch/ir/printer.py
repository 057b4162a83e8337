"""Modules as text, in a form that `ir/parser.py` reads back: `parse(dump(m)) == m`.

    module(shared %0: float32[5x4])
    constant 0: float32[2] = @0

    func @encode(%1: ref<Node>, %2: float32[]) -> (float32[]):
      %3: bool[] = is_none(%1)
      %4: float32[] = if %3 then:
        %5: float32[] = dot_general[dimension_numbers=(((0,), (0,)), ((), ())), ...](%0, const0: float32[2])
        yield %5
      else:
        %6: float32[] = for %7 (%2) do (%8: int32*[], %9: float32[]):
          yield %9
        yield %6
      return %4

Params are Python literals; dtypes, enums and named tuples of `jax.lax` and types of the IR are written by name. What
has no literal form (jaxprs, functions, meshes, arrays) is written `@n`, the position in a table beside the text, and
shown in comments at the end. A primitive of JAX with the name of one of our operations or instructions is written
`jax.pow`; one that JAX does not know by its name, `name@n`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
from jax import lax

from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
)
from autobatch.ir.masked import may_have_failed
from autobatch.ir.ops import OWN, Op
from autobatch.ir.types import Array, BuiltObject, List, Ref, Tag, Type

NAMED: dict[str, Any] = {
    name: cls
    for name, cls in vars(lax).items()
    if isinstance(cls, type) and (issubclass(cls, enum.Enum) or hasattr(cls, "_fields"))
}
"""Enums and named tuples that are written by name."""

SAFE_NAME = re.compile(r"(?:[\w.]|<\w+>)+")
"""Names of functions, stores and vocabularies that are written without quotes."""

INSTRUCTIONS = frozenset({"if", "for", "while", "map", "filter", "call"})

Marked = Instruction | Region | Function
"""What a note can point at; a region stands for its last line."""


@dataclass(frozen=True)
class Dump:
    """A module as text, and the params and constants that the text writes as `@n`."""

    text: str
    table: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Note:
    """A remark under the first line of what it is about (found by identity)."""

    about: Marked
    text: str


def dump(module: Module, note: Note | None = None) -> Dump:
    """A module as text and table."""
    printer = _Printer(note)
    printer.module(module)
    return Dump("\n".join([*printer.lines, *printer.comments()]) + "\n", tuple(printer.table))


def print_module(module: Module, note: Note | None = None) -> str:
    """The text of a module; `parse` reads it back if nothing in it is written `@n`."""
    return dump(module, note).text


def print_function(function: Function, note: Note | None = None) -> str:
    """The text of one function."""
    printer = _Printer(note)
    printer.function(function)
    return "\n".join([*printer.lines, *printer.comments()]) + "\n"


def print_type(type: Type) -> str:
    """A type as it is written in modules."""
    match type:
        case Array() | BuiltObject():
            return str(type)
        case Tag(vocabulary=vocabulary):
            return f"tag<{print_name(vocabulary)}>"
        case Ref(store=store):
            return f"ref<{print_name(store)}>"
        case List(elem=elem, store=store):
            return f"list<{print_type(elem)}{f' in {print_name(store)}' if store is not None else ''}>"
        case _:
            assert_never(type)


def print_name(name: str) -> str:
    return name if SAFE_NAME.fullmatch(name) else repr(name)


@dataclass
class _Printer:
    note: Note | None
    lines: list[str] = field(default_factory=list)
    table: list[Any] = field(default_factory=list)
    depth: int = 0

    def module(self, module: Module) -> None:
        shared = f"shared {_defined(module.shared)}" if module.shared else ""
        self.line(f"module({shared})")
        for position, array in enumerate(module.constants):
            self.line(f"constant {position} = {self.outside(array)}")
        for function in module.functions:
            self.line("")
            self.function(function)

    def function(self, function: Function) -> None:
        region = function.region
        results = ", ".join(print_type(r.type) for r in region.results)
        self.line(f"func @{print_name(function.name)}({_defined(region.args)}) -> ({results}):", function)
        self.block(region, "return")

    def line(self, text: str, about: Marked | None = None) -> None:
        indent = "  " * self.depth
        self.lines.append(f"{indent}{text}".rstrip())
        if self.note is not None and about is not None and about is self.note.about:
            self.lines.append(f"{indent}{'^' * len(text)} {self.note.text}")

    def block(self, region: Region, end: str) -> None:
        self.depth += 1
        for instruction in region.body:
            self.instruction(instruction)
        self.line(f"{end} {_list(region.results)}", region)
        self.depth -= 1

    def region(self, header: str, region: Region, about: Instruction | None = None) -> None:
        arguments = f" ({_defined(region.args)})" if region.args else ""
        self.line(f"{header}{arguments}:", about)
        self.block(region, "yield")

    def instruction(self, instruction: Instruction) -> None:
        left = f"{_defined(instruction.results)} = " if instruction.results else ""
        match instruction:
            case Apply(op=op, operands=xs) if op.name == "masked" and not op.is_jax:
                held = ["cut=True"] if may_have_failed(op) else []
                held += [f"sites={self.outside(op['sites'])}"] if op["sites"] else []
                params = f"[{', '.join(held)}]" if held else ""
                self.region(f"{left}masked{params} ({_list(xs)}) do", op["region"], instruction)
            case Apply(op=op, operands=xs) if op.name == "gradient_of" and not op.is_jax:
                self.region(f"{left}gradient_of[wrt={op['wrt']}] ({_list(xs)}) do", op["region"], instruction)
            case Apply(op=op, operands=xs):
                self.line(f"{left}{self.op(op)}({_list(xs)})", instruction)
            case Call(callee=callee, operands=xs):
                self.line(f"{left}call @{print_name(callee)}({_list(xs)})", instruction)
            case If(condition=condition, then=then, orelse=orelse):
                self.region(f"{left}if {_operand(condition)} then", then, instruction)
                self.region("else", orelse)
            case For(count=count, init=init, body=body):
                self.region(f"{left}for {_operand(count)} ({_list(init)}) do", body, instruction)
            case While(init=init, condition=condition_region, body=body):
                self.region(f"{left}while ({_list(init)}) test", condition_region, instruction)
                self.region("do", body)
            case Map(count=count, body=body, filtered=filtered):
                kind = "filter" if filtered else "map"
                self.region(f"{left}{kind} {_operand(count)} do", body, instruction)
            case _:
                assert_never(instruction)

    def op(self, op: Op) -> str:
        held = (*op.params, *((mark, True) for mark in op.marks))
        params = ", ".join(f"{name}={self.param(value)}" for name, value in held)
        return f"{self.op_name(op)}[{params}]" if params else self.op_name(op)

    def op_name(self, op: Op) -> str:
        if not op.is_jax:
            return op.name
        if op.primitive is not jax_compat.primitive(op.name):
            return f"{op.name}{self.outside(op.primitive)}"
        return f"jax.{op.name}" if op.name in OWN or op.name in INSTRUCTIONS else op.name

    def param(self, value: Any) -> str:
        """A static param; see the docstring of the module."""
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        if value is ...:
            return "..."
        if type(value) is complex:
            return f"complex({value.real!r}, {value.imag!r})"
        if isinstance(value, (Array, Tag, Ref, List, BuiltObject)):
            return print_type(value)
        if isinstance(value, np.dtype) and value.name.isidentifier():
            return value.name
        name = type(value).__name__
        if NAMED.get(name) is type(value):
            if isinstance(value, enum.Enum):
                return f"{name}.{value.name}"
            held = zip(value._fields, value, strict=True)
            return f"{name}({', '.join(f'{k}={self.param(v)}' for k, v in held)})"
        if type(value) is tuple:
            inner = ", ".join(map(self.param, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if type(value) is list:
            return f"[{', '.join(map(self.param, value))}]"
        if type(value) is dict:
            return f"{{{', '.join(f'{self.param(k)}: {self.param(v)}' for k, v in value.items())}}}"
        return self.outside(value)

    def outside(self, value: Any) -> str:
        """A value that has no literal form."""
        for position, known in enumerate(self.table):
            if known is value:
                return f"@{position}"
        self.table.append(value)
        return f"@{len(self.table) - 1}"

    def comments(self) -> Iterable[str]:
        """What is in the table, for human readers."""
        if self.table:
            yield ""
        for position, value in enumerate(self.table):
            first, *rest = _describe(value).split("\n")
            yield f"# @{position}: {first}"
            yield from (f"#   {line}".rstrip() for line in rest)


def _describe(value: Any) -> str:
    """A value in words that are the same in every run: no addresses."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shown = f" {np.array2string(np.asarray(value), threshold=20)}" if value.size <= 20 and _is_plain(value) else ""
        return f"{jax_compat.type_of(value)}{shown}"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    text = name if isinstance(name, str) else str(value)
    return f"{type(value).__name__} {re.sub(r' at 0x[0-9a-f]+', '', text)}"


def _is_plain(value: Any) -> bool:
    return not str(value.dtype).startswith("key")


def _defined(values: Iterable[Value]) -> str:
    return ", ".join(f"{v}: {print_type(v.type)}" for v in values)


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(_operand, operands))


def _operand(operand: Operand) -> str:
    if isinstance(operand, Value):
        return str(operand)
    if operand.constant >= 0:
        return f"const{operand.constant}: {print_type(operand.type)}"
    value = operand.value
    text = f"complex({value.real!r}, {value.imag!r})" if isinstance(value, complex) else repr(value)
    return f"{text}: {print_type(operand.type)}"
