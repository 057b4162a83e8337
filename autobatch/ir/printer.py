"""Modules as text, in a form that `ir/printer.py` reads back: `parse(dump(m)) == m`.

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

import ast
import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, assert_never

import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.errors import Error
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    MADE,
    Apply,
    Array,
    BuiltObject,
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
from autobatch.ir.ops import MARKS, OWN, Op, own
from autobatch.ir.regions import may_have_failed

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


# ---- parser
#
# Reads what `ir/printer.py` writes: `parse(dump(module)) == module`.
#
# Indentation and comments (`#` to the end of the line) mean nothing; a region ends with `yield`, a function with
# `return`. Params and constants written `@n` come from the table of the dump. Hints and spans are not in the text, and
# are not compared either; a NaN equals nothing, not even itself.


T = TypeVar("T")

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_NUMBER = re.compile(r"-?(?:inf\b|nan\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OP = re.compile(r"(jax\.)?([\w.-]+)(?:@(\d+))?")
_ARRAY = re.compile(r"([a-z]\w*(?:<\w+>)?)(\*?)\[((?:\d+(?:x\d+)*)?)\]")
_CONSTANT = re.compile(r"const(\d+)\b")
_INTEGER = re.compile(r"\d+")


class ParseError(Error):
    """Text that is no module, with its line and column."""


def parse(source: str | Dump) -> Module:
    """The module that a text or a dump describes. Raises ParseError."""
    made = source if isinstance(source, Dump) else Dump(source)
    return _Parser(made.text, made.table).module()


class _Scanner:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0
        self.skip()

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.position)
        assert found is not None
        self.position = found.end()

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
            self.skip()
        return found

    def accept(self, token: str) -> bool:
        """Is `token` next? A word ends where its letters end."""
        if not self.text.startswith(token, self.position):
            return False
        end = self.position + len(token)
        if token[-1].isalnum() and end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            return False
        self.position = end
        self.skip()
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r}")

    def number(self) -> int:
        found = self.take(_INTEGER)
        return int(found.group()) if found is not None else self.fail("expected a number")

    def many(self, item: Callable[[], T], end: str) -> list[T]:
        """Items between commas, up to `end`; a comma may follow the last one."""
        found: list[T] = []
        while not self.accept(end):
            found.append(item())
            if not self.accept(","):
                self.expect(end)
                break
        return found

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.position if at is None else at
        before = self.text[:at]
        line, column = before.count("\n") + 1, at - before.rfind("\n")
        shown = self.text.split("\n")[line - 1]
        raise ParseError(f"line {line}, column {column}: {message}\n    {shown}\n    {' ' * (column - 1)}^")


class _Parser(_Scanner):
    def __init__(self, text: str, table: tuple[Any, ...]) -> None:
        super().__init__(text)
        self.table = table
        self.values: dict[int, Value] = {}

    def module(self) -> Module:
        self.expect("module")
        self.expect("(")
        self.accept("shared")
        shared = self.many(self.defined, ")")
        constants: list[Any] = []
        while self.accept("constant"):
            if self.number() != len(constants):
                self.fail(f"expected constant {len(constants)}")
            self.expect("=")
            self.expect("@")
            constants.append(self.outside(self.number()))
        functions = []
        while self.position < len(self.text):
            functions.append(self.function())
        return Module(tuple(functions), tuple(shared), tuple(constants))

    def function(self) -> Function:
        self.expect("func")
        self.expect("@")
        name = self.name()
        self.expect("(")
        args = tuple(self.many(self.defined, ")"))
        self.expect("->")
        self.expect("(")
        self.many(self.type, ")")
        self.expect(":")
        return Function(name, self.block(args, "return"))

    # ---- instructions

    def region(self) -> Region:
        args = tuple(self.many(self.defined, ")")) if self.accept("(") else ()
        self.expect(":")
        return self.block(args, "yield")

    def block(self, args: tuple[Value, ...], end: str) -> Region:
        body: list[Instruction] = []
        while not self.accept(end):
            body.append(self.instruction())
        return Region(args, tuple(body), self.operands_on_line())

    def operands_on_line(self) -> tuple[Operand, ...]:
        found: list[Operand] = []
        if self.is_operand():
            found.append(self.operand())
            while self.accept(","):
                found.append(self.operand())
        return tuple(found)

    def is_operand(self) -> bool:
        """Does an operand follow `yield`? The next thing could also be a line with an instruction or a region."""
        before = self.position
        if self.accept("%"):
            self.number()
            defines = self.accept(":") or self.accept("=")
            self.position = before
            return not defines
        words = ("None", "True", "False", "complex")
        starts = any(p.match(self.text, before) for p in (_CONSTANT, _NUMBER, _STRING)) or any(map(self.accept, words))
        self.position = before
        return starts

    def instruction(self) -> Instruction:
        results: tuple[Value, ...] = ()
        if self.text.startswith("%", self.position):
            results = tuple(self.many(self.defined, "="))
        if self.accept("if"):
            condition = self.operand()
            self.expect("then")
            then = self.region()
            self.expect("else")
            return If(results, condition, then, self.region())
        if self.accept("for"):
            count, init = self.operand(), self.operands()
            self.expect("do")
            return For(results, count, init, self.region())
        if self.accept("while"):
            init = self.operands()
            self.expect("test")
            condition_region = self.region()
            self.expect("do")
            return While(results, init, condition_region, self.region())
        if (filtered := self.accept("filter")) or self.accept("map"):
            count = self.operand()
            self.expect("do")
            return Map(results, count, self.region(), filtered)
        if self.accept("masked"):
            params = dict(self.many(self.param_item, "]")) if self.accept("[") else {}
            xs = self.operands()
            self.expect("do")
            return Apply(results, own("masked", **{"sites": (), **params}, region=self.region()), xs)
        if self.accept("gradient_of"):
            self.expect("[")
            params = dict(self.many(self.param_item, "]"))
            xs = self.operands()
            self.expect("do")
            return Apply(results, own("gradient_of", **params, region=self.region()), xs)
        if self.accept("call"):
            self.expect("@")
            return Call(results, self.name(), self.operands())
        return Apply(results, self.op(), self.operands())

    def op(self) -> Op:
        start, found = self.position, self.take(_OP)
        if found is None:
            self.fail("expected an instruction")
        prefix, name, position = found.groups()
        held = tuple(self.many(self.param_item, "]")) if self.accept("[") else ()
        marks = {name: True for name, _ in held if name in MARKS}
        params = tuple((name, value) for name, value in held if name not in MARKS)
        if position is not None:
            return Op(name, params, self.outside(int(position)), **marks)
        if name in OWN and not prefix:
            return Op(name, params, None, **marks)
        primitive = jax_compat.primitive(name)
        if primitive is None:
            self.fail(f"no operation is called {name!r}", start)
        return Op(name, params, primitive, **marks)

    # ---- values, types, names

    def defined(self) -> Value:
        self.expect("%")
        number = self.number()
        self.expect(":")
        value = self.values[number] = Value(number, self.type())
        return value

    def operands(self) -> tuple[Operand, ...]:
        self.expect("(")
        return tuple(self.many(self.operand, ")"))

    def operand(self) -> Operand:
        start = self.position
        if self.accept("%"):
            number = self.number()
            if number not in self.values:
                self.fail(f"%{number} is not defined before this", start)
            return self.values[number]
        found = self.take(_CONSTANT)
        value = None if found is not None else self.param()
        self.expect(":")
        return Literal(value, self.type(), int(found.group(1)) if found is not None else -1)

    def type(self) -> Type:
        found = self.maybe_type()
        return found if found is not None else self.fail("expected a type")

    def maybe_type(self) -> Type | None:
        if (array := self.take(_ARRAY)) is not None:
            dtype, weak, dims = array.groups()
            return Array(dtype, tuple(int(d) for d in dims.split("x") if d), bool(weak))
        if self.accept("tag<"):
            tag = Tag(self.name())
            self.expect(">")
            return tag
        if self.accept("ref<"):
            ref = Ref(self.name())
            self.expect(">")
            return ref
        if self.accept("list<"):
            elem = self.type()
            store = self.name() if self.accept("in") else None
            self.expect(">")
            return List(elem, store)
        return MADE if self.accept("made<>") else None

    def name(self) -> str:
        if (quoted := self.take(_STRING)) is not None:
            return str(ast.literal_eval(quoted.group()))
        found = self.take(SAFE_NAME)
        return found.group() if found is not None else self.fail("expected a name")

    # ---- params

    def param_item(self) -> tuple[str, Any]:
        word = self.take(_WORD)
        if word is None:
            self.fail("expected the name of a param")
        self.expect("=")
        return word.group(), self.param()

    def param(self) -> Any:
        if (text := self.take(_STRING)) is not None:
            return ast.literal_eval(text.group())
        if (number := self.take(_NUMBER)) is not None:
            held = number.group()
            return float(held) if re.search(r"[.en]", held) else int(held)
        if self.accept("@"):
            return self.outside(self.number())
        if self.accept("("):
            return self.parenthesised()
        if self.accept("["):
            return self.many(self.param, "]")
        if self.accept("{"):
            return dict(self.many(self.entry, "}"))
        for word, value in (("None", None), ("True", True), ("False", False), ("...", ...)):
            if self.accept(word):
                return value
        if (type := self.maybe_type()) is not None:
            return type
        return self.named()

    def parenthesised(self) -> tuple[Any, ...]:
        return tuple(self.many(self.param, ")"))

    def entry(self) -> tuple[Any, Any]:
        key = self.param()
        self.expect(":")
        return key, self.param()

    def named(self) -> Any:
        start, word = self.position, self.take(_WORD)
        if word is None:
            self.fail("expected the value of a param")
        name = word.group()
        if name == "complex":
            self.expect("(")
            return complex(*self.parenthesised())
        cls = NAMED.get(name)
        if cls is None:
            return self.dtype(name, start)
        if self.accept("("):
            return cls(**dict(self.many(self.param_item, ")")))
        self.expect(".")
        member = self.take(_WORD)
        if member is None or member.group() not in cls.__members__:
            self.fail(f"expected a member of {name}")
        return cls[member.group()]

    def dtype(self, name: str, start: int) -> Any:
        try:
            return jnp.dtype(name)
        except TypeError:
            self.fail(f"{name!r} is no literal, dtype or name that can be written", start)

    def outside(self, position: int) -> Any:
        if position >= len(self.table):
            self.fail(f"@{position} is not in the table: parse the Dump, not its text alone")
        return self.table[position]
