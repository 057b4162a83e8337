"""Strings and enum members of the examples: comparison with constants, attributes of enum members, tables."""

from __future__ import annotations

from typing import Any

from autobatch.frontend.lowering.numbers import tag
from autobatch.frontend.lowering.selection import select
from autobatch.frontend.lowering.state import LoweringState, wrap
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import enum_class, vocabulary_of
from autobatch.ir.core import BOOL, INT, Operand, Tag
from autobatch.ir.ops import own


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
