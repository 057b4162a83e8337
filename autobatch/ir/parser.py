"""Reads what `ir/printer.py` writes: `parse(dump(module)) == module`.

Indentation and comments (`#` to the end of the line) mean nothing; a region ends with `yield`, a function with
`return`. Params and constants written `@n` come from the table of the dump. Hints and spans are not in the text, and
are not compared either; a NaN equals nothing, not even itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import jax.numpy as jnp

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
)
from autobatch.ir.ops import MARKS, OWN, Op, own
from autobatch.ir.printer import NAMED, SAFE_NAME, Dump
from autobatch.ir.types import MADE, Array, List, Ref, Tag, Type

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
