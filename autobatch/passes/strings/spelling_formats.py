"""Formats of strings that computed numbers decide, as pieces that are joined (`spelling.py`).

%4 = text['format', args=('{:03d}: {}', ..., ...)](%1, %2)     zfill(digits of %1, 3), ': ', digits of %2
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any, Protocol

import jax.numpy as jnp

from autobatch.errors import UnsupportedError
from autobatch.ir.core import If, Instruction, Literal, Map, Operand, Region, Value
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh
from autobatch.ir.types import BOOL, INT, List, Type
from autobatch.passes.strings import spelt
from autobatch.passes.strings.words import is_word
from autobatch.source import Span

LETTERS = List(INT)
SPEC = re.compile(r"(?:(?P<fill>.)?(?P<align>[<>^=]))?(?P<sign>[-+ ]?)(?P<zero>0?)(?P<width>[0-9]*)(?P<kind>[ds]?)")


class Speller(Protocol):
    """What pieces are made with."""

    fresh: Fresh
    made: list[Instruction]
    span: Span

    def refused(self, what: str, cure: str = ...) -> UnsupportedError: ...
    def text_of(self, x: Any) -> Operand: ...
    def letters_of(self, text: str) -> Operand: ...
    def applied(self, type: Type, op: Op, *xs: Operand) -> Operand: ...
    def traced(self, function: Any, xs: Sequence[Operand]) -> tuple[Operand, ...]: ...


def pieces(s: Speller, given: Sequence[Any]) -> list[Operand]:
    """What `form.format(...)` joins, as letters."""
    form, *values = given
    if not isinstance(form, str):
        raise s.refused("is a format", "write the format as a constant")
    made = list[Operand]()
    plain = 0
    for text, name, spec, conversion in string.Formatter().parse(form):
        made += [s.letters_of(text)] if text else []
        if name is None:
            continue
        if name.isdecimal() or not name:
            x = values[int(name)] if name else values[plain]
            plain += not name
        else:
            raise s.refused("is formatted by a name", "format by position, with {}")
        if conversion not in (None, "s") and not (conversion in ("r", "a") and (not is_string(x))):
            raise s.refused(f"is formatted with !{conversion}", "write the quotes yourself")
        made.append(_formatted(s, x, spec or "", conversion is not None))
    return made


def is_string(x: Any) -> bool:
    """Is it a string, constant or not?"""
    return isinstance(x, str) or (isinstance(x, Value) and is_word(x.type))


def _formatted(s: Speller, x: Any, spec: str, converted: bool) -> Operand:
    """A value with a specification, as letters."""
    if not isinstance(x, Value | Literal):
        return s.letters_of(format(str(x) if converted else x, spec))
    if not spec:
        return _plain(s, x)
    found = SPEC.fullmatch(spec)
    is_number = (not is_string(x)) and not converted
    kind = "d" if is_number else "s"
    if found is None or (is_number and x.type == BOOL) or (found["kind"] or kind) != kind:
        raise s.refused(
            f"is formatted with {spec!r}", "write a width, with 0, <, > or ^ before it and d or s behind it"
        )
    align, fill = found["align"], found["fill"] or ("0" if found["zero"] else " ")
    if found["zero"] and not align:
        align = "=" if is_number else "<"
    if not is_number and (found["sign"] or align == "="):
        raise s.refused(f"is formatted with {spec!r}", "write a width, with <, > or ^ before it")
    letters = _plain(s, x)
    if found["sign"] in ("+", " ") and is_number:
        letters = _signed(s, x, letters, found["sign"])
    if not found["width"]:
        return letters
    align = align or (">" if is_number else "<")
    width: Operand = Literal(int(found["width"]), INT)
    if align == "=":
        if fill != "0" or found["sign"] == " ":
            raise s.refused(f"is formatted with {spec!r}", "fill with zeros, or in front of the sign")
        return s.applied(LETTERS, own("spelt", function="zfill"), letters, width)
    function = {"<": "ljust", ">": "rjust", "^": "centred"}[align]
    return s.applied(LETTERS, own("spelt", function=function), letters, width, s.letters_of(fill))


def _signed(s: Speller, x: Operand, letters: Operand, sign: str) -> Operand:
    """With a sign in front of what is not negative."""
    (positive,) = s.traced(lambda k: jnp.asarray(k >= 0, bool), (x,))
    first = s.fresh.value(LETTERS)
    arms = [Region((), (), (s.letters_of(text),)) for text in (sign, "")]
    s.made.append(If((first,), positive, arms[0], arms[1], s.span))
    both = s.applied(List(LETTERS), own("pack_list"), first, letters)
    return s.applied(LETTERS, own("flatten"), both)


def _plain(s: Speller, x: Any) -> Operand:
    """`str(x)` as letters."""
    if is_string(x):
        return s.text_of(x)
    if x.type == BOOL:
        arms = [Region((), (), (s.letters_of(str(b)),)) for b in (True, False)]
        found = s.fresh.value(LETTERS)
        s.made.append(If((found,), x, arms[0], arms[1], s.span))
        return found
    count, sign = s.traced(spelt.digits, (x,))
    found, turn = s.fresh.value(LETTERS), s.fresh.value(INT)
    before, s.made = s.made, []
    (code,) = s.traced(spelt.digit, (x, turn, count, sign))
    body, s.made = Region((turn,), tuple(s.made), (code,)), before
    s.made.append(Map((found,), count, body, False, s.span))
    return found
