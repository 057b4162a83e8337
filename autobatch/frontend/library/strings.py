"""Strings and enum members of the examples: comparison, attributes, methods, indexing, joining, formatting.

Comparison with constants and tables by string are computed from tags, the numbers of strings. Methods are computed on
the host, string by string:

    t.name.startswith("st")        %4: bool[] = text[function='startswith', args=(..., 'st')](%3)
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Sequence
from typing import Any

from jax import lax

from autobatch.frontend.lowering.numbers import integer, present, tag, traced
from autobatch.frontend.lowering.selection import of_each, select
from autobatch.frontend.lowering.state import Impure, LoweringState, expand, fold, wrap
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import enum_class, vocabulary_of
from autobatch.ir import jax_compat, strings
from autobatch.ir.core import BOOL, INT, Array, Operand, Tag
from autobatch.ir.ops import own

# ---- tags: comparison, attributes


def tag_equal(s: LoweringState, operand: Operand, other: v.Abstract) -> Operand:
    """Is a tag this string or enum member, or equal to another tag?"""
    assert isinstance(operand.type, Tag)
    if isinstance(other, v.Leaf):
        if other.type != operand.type:
            return s.scalar(False)
        return s.apply(own("tag_equal"), (operand, other.operand), BOOL)
    value = _member(operand.type, other.value) if isinstance(other, v.Static) else None
    if value is None:
        return s.scalar(False)
    key = ("tag_equal", operand, value)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        return known.operand
    result = s.apply(own("tag_equal"), (operand, tag(s, value, operand.type)), BOOL)
    s.block.memo[key] = v.Leaf(result)
    return result


def _member(type: Tag, value: Any) -> Any:
    """The constant as a word of the vocabulary: itself, the member of a `StrEnum` that equals it, or None."""
    if vocabulary_of(value) == type.vocabulary:
        return value
    cls = enum_class(type)
    if cls is not None and isinstance(value, (str, int)):
        return next((m for m in cls if isinstance(m, (str, int)) and m == value), None)
    if type.vocabulary == "str" and isinstance(value, str):
        return str(value)
    return None


def is_ordered(type: Tag) -> bool:
    """Have these strings or enum members an order?"""
    cls = enum_class(type)
    return cls is None or issubclass(cls, (int, str))


def tag_attribute(s: LoweringState, operand: Operand, name: str) -> v.Abstract:
    """`member.name`, `member.value` or another attribute that each member has; a method of a string."""
    assert isinstance(operand.type, Tag)
    cls = enum_class(operand.type)
    if cls is None:
        method = getattr(str, name, None)
        if not callable(method):
            s.refuse(f"a string has no attribute {name!r}", "check the spelling")
        return v.Method(v.Static(method), v.Leaf(operand), name)
    members = list(cls)
    if not all(hasattr(m, name) for m in members):
        s.refuse(
            f"{cls.__name__} has no attribute {name!r}",
            "check the spelling; of an enum member, `name` and `value` can be read",
        )
    index = s.apply(own("tag_index", keys=tuple(members)), (operand,), INT)
    return select(s, index, [wrap(s.context, getattr(m, name)) for m in members])


# ---- methods, indexing, formatting


STR = Tag("str")


def is_text(value: v.Abstract) -> bool:
    """A string of the examples, or one computed from such."""
    return isinstance(value, v.Leaf) and value.type == STR


def text(s: LoweringState, function: str, *args: v.Abstract) -> v.Abstract:
    """A function of strings, whole numbers and constants."""
    fixed: list[Any] = []
    operands = []
    for value in (present(s, a) for a in args):
        if isinstance(value, v.Static):
            fixed.append(value.value)
            continue
        if not is_text(value) and not _is_whole(value):
            what, cure = "strings and whole numbers", "make other strings before packing"
            if function == "format":
                cure = "print() formats floats; or return the number, and format it outside"
            raise Impure(f"strings are made of {what} here", s.span, cure)
        assert isinstance(value, v.Leaf)
        fixed.append(...)
        operands.append(integer(s, value.operand) if function != "format" else value.operand)
    if not operands:
        return fold(s, strings.call, function, fixed, ())
    words = strings.misfit(function, fixed, [x.type != STR for x in operands])
    if words is not None:
        s.refuse(words, "check the types of what it is given")
    _, type = strings.FUNCTIONS[function]
    key = ("text", function, tuple(map(repr, fixed)), *operands)
    known = s.block.recall(key)
    if known is None:
        known = v.Leaf(s.apply(own("text", function=function, args=tuple(fixed)), operands, type))
        s.block.memo[key] = known
    return known


def _is_whole(value: v.Abstract) -> bool:
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and type.is_scalar and (type.is_integer or type.is_bool)


def method_of(function: Any) -> str | None:
    """The name of a method of `str`, bound or not; None for other functions."""
    if isinstance(function, types.MethodDescriptorType) and function.__objclass__ is str:
        return function.__name__
    if isinstance(function, types.BuiltinFunctionType) and isinstance(function.__self__, str):
        return function.__name__
    return None


def call_method(s: LoweringState, name: str, receiver: v.Abstract, args: Sequence[v.Abstract]) -> v.Abstract:
    """`receiver.name(*args)`"""
    args = [_written_out(x) for x in args]
    if name in ("split", "rsplit", "splitlines"):
        count = text(s, f"{name}_count", receiver, *args)
        return v.Lazy(count, lambda t, i: text(t, f"{name}_item", receiver, i, *args), is_list=True)
    if name in ("partition", "rpartition"):
        parts = [text(s, f"{name}_item", receiver, v.Static(k), *args) for k in range(3)]
        return v.Record("tuple", tuple(range(3)), tuple(parts))
    if name == "join":
        words = expand(s, args[0])
        assert isinstance(words, v.Record)
        return text(s, name, receiver, *words.items)
    if name not in strings.FUNCTIONS:
        s.refuse(
            f"the string method {name!r} cannot be compiled",
            "compute it before packing and store the result in a field",
        )
    return text(s, name, receiver, *args)


def as_float(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """`float(value)`; what the host hands over are whole numbers."""
    return traced(s, _of_bits, text(s, "float_bits", value))


def _of_bits(bits: Any) -> Any:
    dtype = jax_compat.float_dtype()
    return jax_compat.weakened(lax.bitcast_convert_type(bits.astype(f"int{dtype.itemsize * 8}"), dtype))


def _written_out(value: v.Abstract) -> v.Abstract:
    """A tuple of constants as one: `s.startswith(("a", "b"))`."""
    if isinstance(value, v.Record) and value.kind == "tuple":
        items = [x.value for x in value.items if isinstance(x, v.Static)]
        return v.Static(tuple(items)) if len(items) == len(value.items) else value
    return value


PERCENT = re.compile(r"%(?P<flags>[-0+ ]*)(?P<width>[0-9]*)(?P<kind>[sdir%])")


def percent(s: LoweringState, form: str, value: v.Abstract) -> v.Abstract:
    """`form % value`, as a format by `{}`."""
    values = value.items if isinstance(value, v.Record) and value.kind == "tuple" else (value,)
    made, at, used = "", 0, 0
    for found in PERCENT.finditer(form):
        made += _doubled(s, form[at : found.start()])
        at, kind, flags = found.end(), found["kind"], found["flags"]
        if kind == "%":
            made += "%"
            continue
        spec = found["width"]
        if kind in "sr":
            spec = f"{'<' if '-' in flags else '>'}{spec}" if spec else ""
        else:
            sign = "+" if "+" in flags else " " if " " in flags else ""
            zero = "0" if "0" in flags and "-" not in flags else ""
            spec = f"{'<' if '-' in flags and spec else ''}{sign}{zero if spec else ''}{spec}d"
        made += "{" + {"s": "!s", "r": "!r"}.get(kind, "") + (f":{spec}" if spec else "") + "}"
        used += 1
    made += _doubled(s, form[at:])
    if used != len(values):
        s.refuse("as many values as the format has places are needed", "write a value for each %")
    return text(s, "format", v.Static(made), *values)


def _doubled(s: LoweringState, plain: str) -> str:
    if "%" in plain:
        s.refuse("this format cannot be compiled", "write an f-string")
    return plain.replace("{", "{{").replace("}", "}}")


def characters(s: LoweringState, value: v.Abstract) -> v.Lazy:
    """A string as the sequence of its characters."""
    return v.Lazy(text(s, "__len__", value), lambda t, i: text(t, "__getitem__", value, i))


def part(s: LoweringState, value: v.Abstract, bounds: Sequence[v.Abstract]) -> v.Abstract:
    """`value[start:stop:step]`"""
    return text(s, "part", value, *bounds)


def formatted(s: LoweringState, node: ast.JoinedStr) -> v.Abstract:
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
        value = s.evaluate(piece.value)
        is_plain = isinstance(value, v.Static) or (isinstance(value, v.Leaf) and isinstance(value.type, Array | Tag))
        if conversion != "!a" and (conversion or (not is_plain and not spec.value)):
            value, conversion = s.call(v.Static(repr if conversion == "!r" else str), [value]), ""
        form += "{" + conversion + (f":{spec.value}" if spec.value else "") + "}"
        parts.append(value)
    made = of_each(s, parts, lambda t, *xs: text(t, "format", v.Static(form), *xs))
    return text(s, "format", v.Static(form), *parts) if made is None else made
