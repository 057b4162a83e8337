"""Functions of strings that are lists of code points, as functions of JAX for one example: lengths and buffers.

    spelt['__eq__'](a, b)      len(a) == len(b), and a[i] == b[i] for all i in front of that
    spelt['strip'](a)          a list again: a length, and a buffer with as much room

What lies behind the length of a list is whatever was there before. Where a result has more letters than there is room
for, its length says so. Cases of letters are in `spelt_cases.py`; `split`, `replace` and others in `spelt_parts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.ir import jax_compat
from autobatch.passes.strings import characters, spelt_cases, spelt_parts
from autobatch.passes.strings.spelt_words import CodePoints, cut, inside, places, starts_at


def _equal(a: CodePoints, b: CodePoints) -> Any:
    return (a.length == b.length) & jnp.all((a.letters == b.letters) | ~inside(a))


def _less(a: CodePoints, b: CodePoints) -> Any:
    """Is `a` before `b`? By the first letter that differs; else the shorter one is."""
    both = places(a) < jnp.minimum(a.length, b.length)
    differs = both & (a.letters != b.letters)
    first = jnp.argmax(differs)
    return jnp.where(jnp.any(differs), a.letters[first] < b.letters[first], a.length < b.length)


def _found(a: CodePoints, b: CodePoints, *ends: Any) -> tuple[Any, Any, Any]:
    """bool[room]: where `b` stands in a part of `a`; where that part begins, and the last place where it may."""
    n = a.length

    def end(k: int, default: Any) -> Any:
        if len(ends) <= k:
            return default
        return jnp.clip(jnp.where(ends[k] < 0, ends[k] + n, ends[k]), 0, n)

    start = ends[0] if ends else 0
    begin = jnp.maximum(jnp.where(start < 0, start + n, start), 0) if ends else jnp.zeros_like(n)
    last = end(1, n) - b.length
    return starts_at(a, b) & (places(a) >= begin) & (places(a) <= last), begin, last


def _find(a: CodePoints, b: CodePoints, *ends: Any) -> Any:
    here, begin, last = _found(a, b, *ends)
    found = jnp.where(jnp.any(here), jnp.argmax(here), -1)
    return jnp.where(b.length == 0, jnp.where(begin <= last, begin, -1), found)


def _rfind(a: CodePoints, b: CodePoints, *ends: Any) -> Any:
    here, begin, last = _found(a, b, *ends)
    found = jnp.max(jnp.where(here, places(a), -1))
    return jnp.where(b.length == 0, jnp.where(begin <= last, last, -1), found)


def _contains(a: CodePoints, b: CodePoints) -> Any:
    return (b.length == 0) | jnp.any(starts_at(a, b))


def _starts(a: CodePoints, b: CodePoints) -> Any:
    return (b.length <= a.length) & jnp.all((a.letters == b.letters) | ~inside(b))


def _ends(a: CodePoints, b: CodePoints) -> Any:
    return (b.length <= a.length) & jnp.all((cut(a, a.length - b.length, b.length).letters == b.letters) | ~inside(b))


def _all_are(name: str, of_none: bool = False) -> Callable[[CodePoints], Any]:
    def holds(a: CodePoints) -> Any:
        return jnp.all(characters.holds(name, a.letters) | ~inside(a)) & (of_none | (a.length > 0))

    return holds


def _is_identifier(a: CodePoints) -> Any:
    first = characters.holds("isidentifier", a.letters[0])
    rest = characters.holds("continues", a.letters) | (places(a) == 0) | ~inside(a)
    return (a.length > 0) & first & jnp.all(rest)


# ---- numerals


def _numeral(a: CodePoints) -> tuple[Any, Any, Any]:
    """The digits of a numeral, where there are some, and whether it is negative; bool[room] for the digits."""
    word = spelt_parts.stripped(a)
    first = word.letters[0]
    signed = (word.length > 0) & ((first == ord("-")) | (first == ord("+")))
    digit, held = characters.decimal(word.letters), inside(word)
    return digit, held & (digit >= 0) & ~(signed & (places(a) == 0)), signed & (first == ord("-"))


def _fits_int(a: CodePoints) -> Any:
    """Is it a sign, and digits with single underscores between them?"""
    word = spelt_parts.stripped(a)
    _, is_digit, _ = _numeral(a)
    first, held = word.letters[0], inside(word)
    signed = (word.length > 0) & ((first == ord("-")) | (first == ord("+")))
    between = held & (word.letters == ord("_"))
    neighbours = jnp.roll(is_digit, 1).at[0].set(False) & jnp.roll(is_digit, -1).at[-1].set(False)
    others = held & ~is_digit & ~(between & neighbours) & ~(signed & (places(a) == 0))
    return jnp.any(is_digit) & ~jnp.any(others)


def _int(a: CodePoints) -> Any:
    digit, is_digit, negative = _numeral(a)
    behind = jnp.sum(is_digit) - jnp.cumsum(is_digit)
    kind = jnp.zeros((), jnp.result_type(int)).dtype
    powers = jnp.power(jnp.asarray(10, kind), behind.astype(kind))
    found = jnp.sum(jnp.where(is_digit, digit.astype(kind) * powers, 0)).astype(kind)
    return jnp.where(negative, -found, found)


def _is_narrow(a: CodePoints) -> Any:
    """Has the number room on the device? By how many digits it has, and of as many as the largest, by all but one."""
    digit, is_digit, negative = _numeral(a)
    behind = jnp.sum(is_digit) - jnp.cumsum(is_digit)
    kind = jnp.zeros((), jnp.result_type(int)).dtype
    most = int(np.iinfo(kind).max)
    width = len(str(most))
    count = jnp.max(jnp.where(is_digit & (digit > 0), behind + 1, 0))
    powers = jnp.power(jnp.asarray(10, kind), jnp.maximum(behind - 1, 0).astype(kind))
    high = jnp.sum(jnp.where(is_digit & (behind > 0), digit.astype(kind) * powers, 0)).astype(kind)
    last = jnp.sum(jnp.where(is_digit & (behind == 0), digit, 0))
    fits = (high < most // 10) | ((high == most // 10) & (last <= most % 10 + negative))
    return ~_fits_int(a) | (count < width) | ((count == width) & fits)


def _packed(room: int) -> Callable[..., Any]:
    def packed(a: CodePoints) -> tuple[Any]:
        held = jnp.pad(jnp.where(inside(a), a.letters, 0), (0, room - a.letters.shape[0]))
        return (jnp.concatenate([jnp.asarray(a.length, jnp.int32)[None], jnp.asarray(held, jnp.int32)]),)

    return packed


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__eq__": _equal,
    "is_letter": lambda a, code: (a.length == 1) & (a.letters[0] == code),
    "__lt__": _less,
    "__le__": lambda a, b: ~_less(b, a),
    "__gt__": lambda a, b: _less(b, a),
    "__ge__": lambda a, b: ~_less(a, b),
    "__contains__": _contains,
    "find": _find,
    "rfind": _rfind,
    "startswith": _starts,
    "endswith": _ends,
    "int": _int,
    "fits_int": _fits_int,
    "is_narrow": _is_narrow,
    "isidentifier": _is_identifier,
    **{name: _all_are(name) for name in ("isalpha", "isdigit", "isalnum", "isspace", "isnumeric", "isdecimal")},
    **{name: _all_are(name, True) for name in ("isascii", "isprintable")},
    **spelt_cases.FUNCTIONS,
    **spelt_parts.FUNCTIONS,
}
"""By the name of the function of strings; of words, and of whole numbers."""


def function(name: str, room: int, lists: Sequence[bool]) -> Callable[..., Any]:
    """A function of lengths and buffers, and of whole numbers, whose results are as those of strings are. `room`: how
    many code points an array of them has room for; `lists`: which of its operands are lists."""
    of = _packed(room) if name == "packed" else FUNCTIONS[name]

    def applied(*parts: Any) -> Any:
        rest = iter(parts)
        found = of(*(CodePoints(next(rest), next(rest)) if is_list else next(rest) for is_list in lists))
        if name == "packed":
            return found
        if isinstance(found, CodePoints):
            return jax_compat.weakened(found.length), jax_compat.weakened(found.letters)
        is_bool = jnp.asarray(found).dtype == bool
        return (jnp.asarray(found, bool) if is_bool else jax_compat.weakened(found),)

    return applied


def digits(x: Any) -> tuple[Any, Any]:
    """How many characters an int has in decimal, and whether the first one is a sign."""
    sign = jnp.where(x < 0, 1, 0)
    rest, count = jnp.abs(x), jnp.ones_like(x)
    for k in range(1, 19 if x.dtype.itemsize == 8 else 10):
        count = count + jnp.where(rest >= 10**k, 1, 0)
    return jax_compat.weakened(count + sign), jax_compat.weakened(sign)


def digit(x: Any, turn: Any, count: Any, sign: Any) -> tuple[Any]:
    """One of these characters."""
    place = count - 1 - turn
    rest = jnp.abs(x)
    for k in range(18 if x.dtype.itemsize == 8 else 9):
        rest = jnp.where(k < place, rest // 10, rest)
    code = jnp.where((sign == 1) & (turn == 0), ord("-"), ord("0") + rest % 10)
    return (jax_compat.weakened(code),)
