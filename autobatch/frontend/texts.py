"""Strings of the examples: methods, indexing, joining, formatting. The host computes them, word by word.

t.name.startswith("st")        %4: bool[] = text[function='startswith', args=(..., 'st')](%3)
"""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any

from autobatch.frontend import values as v
from autobatch.frontend.access import expand, wrap
from autobatch.frontend.key_order import hand_out
from autobatch.frontend.numbers import integer, present
from autobatch.frontend.state import Impure, State
from autobatch.ir import texts
from autobatch.ir.ops import own
from autobatch.ir.types import Array, Tag

STR = Tag("str")


def is_text(value: v.Abstract) -> bool:
    """A string of the examples, or one computed from such."""
    return isinstance(value, v.Leaf) and value.type == STR


def text(s: State, function: str, *args: v.Abstract) -> v.Abstract:
    """A function of strings, whole numbers and constants."""
    fixed: list[Any] = []
    operands = []
    for value in (present(s, a) for a in args):
        if isinstance(value, v.Static):
            fixed.append(value.value)
            continue
        if not is_text(value) and not _is_whole(value):
            raise Impure(
                "strings are made of strings and whole numbers here", s.span, "make other strings before packing"
            )
        assert isinstance(value, v.Leaf)
        fixed.append(...)
        operands.append(integer(s, value.operand) if function != "format" else value.operand)
    if not operands:
        return _folded(s, function, fixed)
    _, type = texts.FUNCTIONS[function]
    key = ("text", function, tuple(map(repr, fixed)), *operands)
    known = s.block.recall(key)
    if known is None:
        known = v.Leaf(s.apply(own("text", function=function, args=tuple(fixed)), operands, type))
        s.block.memo[key] = known
    return known


def _is_whole(value: v.Abstract) -> bool:
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and type.is_scalar and (type.is_integer or type.is_bool)


def _folded(s: State, function: str, fixed: Sequence[Any]) -> v.Abstract:
    hand_out(s.context, *fixed)
    try:
        return wrap(s.context, texts.call(function, fixed, ()))
    except texts.FAILURES as error:
        s.check(s.scalar(False), type(error).__name__, str(error).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return v.Static(None)


def method_of(function: Any) -> str | None:
    """The name of a method of `str`, bound or not; None for other functions."""
    if isinstance(function, types.MethodDescriptorType) and function.__objclass__ is str:
        return function.__name__
    if isinstance(function, types.BuiltinFunctionType) and isinstance(function.__self__, str):
        return function.__name__
    return None


def call_method(s: State, name: str, receiver: v.Abstract, args: Sequence[v.Abstract]) -> v.Abstract:
    """`receiver.name(*args)`"""
    if name == "split":
        return v.Lazy(text(s, "split_count", receiver, *args), lambda t, i: text(t, "split_item", receiver, i, *args))
    if name == "join":
        words = expand(s, args[0])
        assert isinstance(words, v.Record)
        return text(s, name, receiver, *words.items)
    if name not in texts.FUNCTIONS:
        s.refuse(
            f"the string method {name!r} cannot be compiled",
            "compute it before packing and store the result in a field",
        )
    return text(s, name, receiver, *args)


def characters(s: State, value: v.Abstract) -> v.Lazy:
    """A string as the sequence of its characters."""
    return v.Lazy(text(s, "__len__", value), lambda t, i: text(t, "__getitem__", value, i))


def part(s: State, value: v.Abstract, bounds: Sequence[v.Abstract]) -> v.Abstract:
    """`value[start:stop:step]`"""
    return text(s, "part", value, *bounds)


def formatted(s: State, node: ast.JoinedStr) -> v.Abstract:
    """An f-string of strings and whole numbers."""
    form, parts = "", []
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            form += str(piece.value).replace("{", "{{").replace("}", "}}")
            continue
        assert isinstance(piece, ast.FormattedValue)
        spec = s.evaluate(piece.format_spec) if piece.format_spec is not None else v.Static("")
        if not isinstance(spec, v.Static):
            s.refuse("the format of a value must be a constant", "write it in the string")
        conversion = f"!{chr(piece.conversion)}" if piece.conversion > 0 else ""
        form += "{" + conversion + (f":{spec.value}" if spec.value else "") + "}"
        parts.append(s.evaluate(piece.value))
    return text(s, "format", v.Static(form), *parts)
