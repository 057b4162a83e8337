"""Instructions whose result is known while they are written: those on literals, and on bools beside one.

    icmp eq i32 3, 0            false
    and i1 %v1, true            %v1

LLVM would find the same, later and for more: a text that has none of these is read and compiled faster.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

LITERALS = frozenset("-0123456789")

WHOLE: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "smin": min,
    "smax": max,
}
"""Of integers as they are."""

COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
UNSIGNED: Mapping[str, Callable[[int, int], bool]] = {
    "ult": operator.lt,
    "ule": operator.le,
    "ugt": operator.gt,
    "uge": operator.ge,
}

BESIDE: Mapping[tuple[str, str], str | None] = {
    ("and", "true"): None,
    ("and", "false"): "false",
    ("or", "true"): "true",
    ("or", "false"): None,
    ("xor", "false"): None,
    ("icmp ne", "false"): None,
    ("icmp eq", "true"): None,
}
"""Of a bool and a literal, in either order: what that is; None: the bool."""


def whole(text: str) -> int | None:
    """The integer that a literal is; None where it is none."""
    return int(text) if text[0] in LITERALS and not text.startswith("0x") else None


def literal(n: int, bits: int) -> str:
    """A number of so many bits, as texts have it: with a sign."""
    n &= (1 << bits) - 1
    return str(n - (1 << bits) if n >> (bits - 1) else n)


def of_integers(name: str, a: str, b: str, bits: int) -> str | None:
    """The literal that an instruction on two integers is; None where that is not known."""
    x, y = whole(a), whole(b)
    if x is None or y is None:
        return None
    if name in WHOLE:
        return literal(WHOLE[name](x, y), bits)
    predicate = name.removeprefix("icmp ")
    if predicate in COMPARED:
        return "true" if COMPARED[predicate](x, y) else "false"
    if predicate in UNSIGNED:
        mask = (1 << bits) - 1
        return "true" if UNSIGNED[predicate](x & mask, y & mask) else "false"
    return None


def of_bools(name: str, a: str, b: str) -> str | None:
    """What an instruction on two bools is, where one is a literal: that bool, or a literal."""
    for one, other in ((a, b), (b, a)):
        if (name, one) in BESIDE:
            found = BESIDE[name, one]
            return other if found is None else found
    return "false" if name == "xor" and a == b == "true" else None
