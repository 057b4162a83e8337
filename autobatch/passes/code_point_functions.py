"""Functions of strings that are lists of code points, as functions of JAX for one example: lengths and buffers.

    spelt['__eq__'](a, b)      len(a) == len(b), and a[i] == b[i] for all i in front of that
    spelt['strip'](a)          a list again: a length, and a buffer with as much room

What lies behind the length of a list is whatever was there before. Where a result has more letters than there is room
for, its length says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.ir import jax_compat, strings
from autobatch.passes.overflows import UNKNOWN

# ---- characters
#
# Strings of one character, as code points (`passes/fallible.py`): what functions of them compute.
#
# %5 = text['isdigit', args=(...,)](%4)           ->   a bit of a table of all code points


@dataclass(frozen=True)
class KnownFunction:
    """What a function of characters computes of code points; `check`: where it fits them, else `message`."""

    meaning: Callable[..., Any]
    check: Callable[..., Any] | None = None
    message: str = ""


@functools.cache
def _table(name: str) -> Any:
    """For each code point, a bit: what a method of `str` says of it."""
    method = _INSIDE[name] if name in _INSIDE else getattr(str, name)
    return np.packbits([method(chr(k)) for k in range(strings.BEHIND)], bitorder="little")


_INSIDE: dict[str, Callable[[str], bool]] = {
    "continues": lambda c: f"a{c}".isidentifier(),
    "is_cased": lambda c: f"{c}a".title().endswith("a"),
}
"""What a letter is inside of a word: does it go on with an identifier, or with a word whose letters have cases?"""


def holds(name: str, code: Any) -> Any:
    """What a method of `str` says of characters."""
    table = jnp.asarray(_table(name))
    code = jnp.clip(code, 0, strings.BEHIND - 1)  # what lies behind the end of a list may be anything
    return ((table[code >> 3] >> (code & 7).astype(jnp.uint8)) & 1).astype(bool)


def _predicate(name: str) -> KnownFunction:
    return KnownFunction(functools.partial(holds, name))


@functools.cache
def _zeros() -> Any:
    """The code points of the digits 0: those of the others follow them."""
    return np.array([k for k in range(strings.BEHIND) if chr(k).isdecimal() and int(chr(k)) == 0], np.int32)


def decimal(code: Any) -> Any:
    """The digits that characters are; -1 of others."""
    found = _digit(code)
    return jnp.where(_is_digit(found), found, -1)


def _digit(code: Any) -> Any:
    zeros = jnp.asarray(_zeros())
    return code - zeros[jnp.maximum(jnp.searchsorted(zeros, code, side="right") - 1, 0)]


def _is_digit(found: Any) -> Any:
    return (found >= 0) & (found < 10)


def _is_decimal(code: Any) -> Any:
    return _is_digit(_digit(code))


PREDICATES = (
    *("isalpha", "isdigit", "isalnum", "isupper", "islower", "isspace", "istitle", "isnumeric", "isdecimal"),
    *("isascii", "isidentifier", "isprintable"),
)
KNOWN: dict[str, KnownFunction] = {
    "ord": KnownFunction(lambda code: code),
    "__len__": KnownFunction(jnp.ones_like),
    "__lt__": KnownFunction(lambda a, b: a < b),
    "__le__": KnownFunction(lambda a, b: a <= b),
    "__gt__": KnownFunction(lambda a, b: a > b),
    "__ge__": KnownFunction(lambda a, b: a >= b),
    "int": KnownFunction(_digit, _is_decimal, f"invalid literal for int() with base 10: {UNKNOWN}"),
    **{name: _predicate(name) for name in PREDICATES},
}
"""By name of the function of strings."""


# ---- spelt words
#
# Words as lengths and buffers of code points, and what functions of them have in common.


class CodePoints(NamedTuple):
    """`letters`: int32[room], of which so many count."""

    length: Any
    letters: Any


def places(a: CodePoints) -> Any:
    return jnp.arange(a.letters.shape[0])


def inside(a: CodePoints) -> Any:
    """bool[room]: which letters count."""
    return places(a) < a.length


def read(a: CodePoints, at: Any) -> Any:
    """Letters at some places; any where there are none."""
    return a.letters[jnp.clip(at, 0, a.letters.shape[0] - 1)]


def cut(a: CodePoints, begin: Any, count: Any) -> CodePoints:
    """So many letters from a place on."""
    return CodePoints(count, read(a, places(a) + begin))


def starts_at(a: CodePoints, b: CodePoints) -> Any:
    """bool[room]: does `b` stand in `a` at a place?"""
    place, k = places(a)[:, None], places(b)[None, :]
    alike = read(a, place + k) == b.letters[None, :]
    return jnp.all(alike | (k >= b.length), 1) & (places(a) + b.length <= a.length)


def chosen(condition: Any, a: CodePoints, b: CodePoints) -> CodePoints:
    return CodePoints(jnp.where(condition, a.length, b.length), jnp.where(condition, a.letters, b.letters))


def woven(a: CodePoints, lengths: Any, letter: Any) -> CodePoints:
    """Each place gives so many letters, which come behind one another. `letter`: of a place, and of which letter."""
    ends = jnp.cumsum(lengths)
    k = places(a)
    source = jnp.minimum(jnp.sum(ends[None, :] <= k[:, None], 1), lengths.shape[0] - 1)
    return CodePoints(ends[-1], letter(source, k - (ends[source] - lengths[source])))


# ---- spelt cases
#
# Upper and lower case, of code points. A letter may become up to three: 'ß'.upper() is
# 'SS'.
#
# spelt['title'](a)     each letter by a table of those that change; which table, by the letter in front of it


_NONE = -1


@functools.cache
def _changes(name: str) -> tuple[Any, Any]:
    """The code points that a method changes, ascending; and what each becomes, in rows of three."""
    method = getattr(str, name)
    changed = [(k, method(chr(k))) for k in range(strings.BEHIND) if method(chr(k)) != chr(k)]
    rows = [[*map(ord, word), *[_NONE] * (3 - len(word))] for _, word in changed]
    return np.array([k for k, _ in changed], np.int32), np.array(rows, np.int32)


def _changed(name: str, letters: Any) -> Any:
    """int32[room, 3]: what each letter becomes."""
    keys, rows = (jnp.asarray(x) for x in _changes(name))
    at = jnp.minimum(jnp.searchsorted(keys, letters), keys.shape[0] - 1)
    same = jnp.stack([letters, *[jnp.full_like(letters, _NONE)] * 2], 1)
    return jnp.where((keys[at] == letters)[:, None], rows[at], same)


def _spread(a: CodePoints, becomes: Any) -> CodePoints:
    """The word of what each letter becomes."""
    lengths = jnp.where(inside(a), jnp.sum(becomes != _NONE, 1), 0)
    return woven(a, lengths, lambda source, k: becomes[source, jnp.clip(k, 0, 2)])


def _each(name: str) -> Callable[[CodePoints], CodePoints]:
    return lambda a: _spread(a, _changed(name, a.letters))


def _before(cased: Any) -> Any:
    """Of the letter in front of each one."""
    return jnp.roll(cased, 1).at[0].set(False)


def _title(a: CodePoints) -> CodePoints:
    inner = _before(holds("is_cased", a.letters))
    return _spread(a, jnp.where(inner[:, None], _changed("lower", a.letters), _changed("title", a.letters)))


def _capitalize(a: CodePoints) -> CodePoints:
    first = (places(a) == 0)[:, None]
    return _spread(a, jnp.where(first, _changed("title", a.letters), _changed("lower", a.letters)))


def _is_title(a: CodePoints) -> Any:
    begins, lower = (holds(name, a.letters) & inside(a) for name in ("istitle", "islower"))
    cased = begins | lower
    inner = _before(cased)
    return jnp.any(cased) & ~jnp.any(begins & inner) & ~jnp.any(lower & ~inner)


def _is_upper(a: CodePoints) -> Any:
    upper, title, lower = (holds(name, a.letters) & inside(a) for name in ("isupper", "istitle", "islower"))
    return jnp.any(upper) & ~jnp.any(lower | (title & ~upper))


def _is_lower(a: CodePoints) -> Any:
    title, lower = (holds(name, a.letters) & inside(a) for name in ("istitle", "islower"))
    return jnp.any(lower) & ~jnp.any(title)


CASE_FUNCTIONS: dict[str, Callable[[CodePoints], Any]] = {
    **{name: _each(name) for name in ("upper", "lower", "casefold", "swapcase")},
    "title": _title,
    "capitalize": _capitalize,
    "istitle": _is_title,
    "isupper": _is_upper,
    "islower": _is_lower,
}
LOWERING = frozenset(("lower", "swapcase", "title", "capitalize"))
"""The functions of which a capital sigma depends on the letters around it."""


# ---- spelt parts
#
# Functions that cut words, pad them and put others into them, of their code points.
#
# spelt['split_item'](a, 1, b)     the letters of `a` from behind the first `b` to the second one


def _ends(a: CodePoints, chars: tuple[CodePoints, ...]) -> tuple[Any, Any]:
    """The first letter that is not to be stripped, and the place behind the last one."""
    if chars:
        (given,) = chars
        gone = jnp.any((a.letters[:, None] == given.letters[None, :]) & inside(given)[None, :], 1)
    else:
        gone = holds("isspace", a.letters)
    kept = inside(a) & ~gone
    some = jnp.any(kept)
    return jnp.where(some, jnp.argmax(kept), a.length), jnp.where(some, jnp.max(jnp.where(kept, places(a) + 1, 0)), 0)


def stripped(a: CodePoints, *chars: CodePoints) -> CodePoints:
    begin, behind = _ends(a, chars)
    return cut(a, begin, jnp.maximum(behind - begin, 0))


def _lstrip(a: CodePoints, *chars: CodePoints) -> CodePoints:
    begin, _ = _ends(a, chars)
    return cut(a, begin, a.length - begin)


def _rstrip(a: CodePoints, *chars: CodePoints) -> CodePoints:
    return CodePoints(_ends(a, chars)[1], a.letters)


def _removeprefix(a: CodePoints, b: CodePoints) -> CodePoints:
    by = jnp.where((b.length <= a.length) & starts_at(a, b)[0], b.length, 0)
    return cut(a, by, a.length - by)


def _removesuffix(a: CodePoints, b: CodePoints) -> CodePoints:
    at = a.length - b.length
    stands = (at >= 0) & jnp.any(starts_at(a, b) & (places(a) == at))
    return CodePoints(jnp.where(stands, at, a.length), a.letters)


# ---- places where another word stands


def _taken(a: CodePoints, b: CodePoints, most: Any = None) -> Any:
    """bool[room]: where `b`, which is not empty, stands in `a`, from the left, where none overlaps another."""

    def step(free: Any, given: Any) -> tuple[Any, Any]:
        place, here = given
        takes = here & (place >= free)
        return jnp.where(takes, place + b.length, free), takes

    start = jnp.zeros((), places(a).dtype)
    _, found = lax.scan(step, start, (places(a), starts_at(a, b)))
    return found if most is None else found & ((most < 0) | (jnp.cumsum(found) <= most))


def _count(a: CodePoints, b: CodePoints) -> Any:
    return jnp.where(b.length == 0, a.length + 1, jnp.sum(_taken(a, b)))


def _replace(a: CodePoints, old: CodePoints, new: CodePoints, most: Any = None) -> CodePoints:
    room = a.letters.shape[0]
    at = jnp.arange(room + 1)
    between = (at <= a.length) if most is None else (at <= a.length) & ((most < 0) | (at < most))
    here = jnp.where(old.length == 0, between, jnp.append(_taken(a, old, most), False))
    last = lax.cummax(jnp.where(here, at, -room - 1))
    kept = (at < a.length) & ((old.length == 0) | (at >= last + old.length))
    first = jnp.where(here, new.length, 0)

    def letter(source: Any, k: Any) -> Any:
        return jnp.where(k < first[source], read(new, k), read(a, source))

    return woven(a, first + kept, letter)


def _split_count(a: CodePoints, *how: Any) -> Any:
    return jnp.sum(_begins(a, *how)[0])


def _begins(a: CodePoints, *how: Any) -> tuple[Any, Any]:
    """bool[room + 1]: where parts begin, and where they end. `how`: the separator, if there is one, and how many times
    to split at most."""
    room = a.letters.shape[0]
    at = jnp.arange(room + 1)
    if how and isinstance(how[0], CodePoints):
        found = _taken(a, *how)
        moved = jnp.sum((places(a)[:, None] + how[0].length == at[None, :]) & found[:, None], 0) > 0
        return moved | (at == 0), jnp.append(found, False) | (at == a.length)
    held = jnp.append(inside(a) & ~holds("isspace", a.letters), False)
    before, behind = jnp.roll(held, 1).at[0].set(False), jnp.roll(held, 1).at[0].set(False)
    begins, ends = held & ~before, ~held & behind
    if how:
        most = how[0]
        begins &= (most < 0) | (jnp.cumsum(begins) <= most + 1)
        rest = (most >= 0) & (jnp.cumsum(ends) > most)
        ends = (ends & ~rest) | (at == a.length)
    return begins, ends


def _split_item(a: CodePoints, k: Any, *how: Any) -> CodePoints:
    begins, ends = _begins(a, *how)
    begin = jnp.argmax(begins & (jnp.cumsum(begins) == k + 1))
    at = jnp.arange(begins.shape[0])
    behind = jnp.argmax(ends & (at >= begin))
    return cut(a, begin, jnp.maximum(behind - begin, 0))


def _partition_item(a: CodePoints, k: Any, b: CodePoints) -> CodePoints:
    here = starts_at(a, b)
    return _part(a, b, k, jnp.any(here), jnp.argmax(here), k == 0)


def _rpartition_item(a: CodePoints, k: Any, b: CodePoints) -> CodePoints:
    here = starts_at(a, b)
    return _part(a, b, k, jnp.any(here), jnp.max(jnp.where(here, places(a), 0)), k == 2)


def _part(a: CodePoints, b: CodePoints, k: Any, some: Any, at: Any, whole: Any) -> CodePoints:
    """The part in front of a place, the separator there, or what is behind; `whole`: of which there is all, where it
    stands nowhere."""
    begin = jnp.where(some & (k > 0), at + jnp.where(k == 2, b.length, 0), 0)
    behind = jnp.where(k == 0, at, jnp.where(k == 1, at + b.length, a.length))
    return cut(a, begin, jnp.where(some, behind - begin, jnp.where(whole, a.length, 0)))


# ---- pads


def _padded(a: CodePoints, width: Any, left: Any, fill: Any) -> CodePoints:
    """As wide at least; `left`: how many letters of those that are missing come first."""
    before = left(jnp.maximum(width - a.length, 0))
    at = places(a) - before
    letters = jnp.where((at >= 0) & (at < a.length), read(a, at), fill)
    return CodePoints(jnp.maximum(width, a.length), letters)


def _fill(given: tuple[CodePoints, ...]) -> Any:
    return given[0].letters[0] if given else ord(" ")


def _center(a: CodePoints, width: Any, *fill: CodePoints) -> CodePoints:
    return _padded(a, width, lambda missing: missing // 2 + (missing & width & 1), _fill(fill))


def _zfill(a: CodePoints, width: Any) -> CodePoints:
    signed = (a.length > 0) & ((a.letters[0] == ord("-")) | (a.letters[0] == ord("+")))
    by = jnp.where(signed, 1, 0)
    zeros = _padded(cut(a, by, a.length - by), width - by, lambda missing: missing, ord("0"))
    moved = CodePoints(zeros.length + by, jnp.where(places(a) < by, a.letters[0], read(zeros, places(a) - by)))
    return chosen(width > a.length, moved, a)


PART_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "strip": stripped,
    "lstrip": _lstrip,
    "rstrip": _rstrip,
    "removeprefix": _removeprefix,
    "removesuffix": _removesuffix,
    "count": _count,
    "replace": _replace,
    "split_count": _split_count,
    "split_item": _split_item,
    "partition_item": _partition_item,
    "rpartition_item": _rpartition_item,
    "ljust": lambda a, width, *fill: _padded(a, width, jnp.zeros_like, _fill(fill)),
    "rjust": lambda a, width, *fill: _padded(a, width, lambda missing: missing, _fill(fill)),
    "center": _center,
    "centred": lambda a, width, *fill: _padded(a, width, lambda missing: missing // 2, _fill(fill)),
    "zfill": _zfill,
}


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


def _ends_with(a: CodePoints, b: CodePoints) -> Any:
    return (b.length <= a.length) & jnp.all((cut(a, a.length - b.length, b.length).letters == b.letters) | ~inside(b))


def _all_are(name: str, of_none: bool = False) -> Callable[[CodePoints], Any]:
    def all_hold(a: CodePoints) -> Any:
        return jnp.all(holds(name, a.letters) | ~inside(a)) & (of_none | (a.length > 0))

    return all_hold


def _is_identifier(a: CodePoints) -> Any:
    first = holds("isidentifier", a.letters[0])
    rest = holds("continues", a.letters) | (places(a) == 0) | ~inside(a)
    return (a.length > 0) & first & jnp.all(rest)


# ---- numerals


def _numeral(a: CodePoints) -> tuple[Any, Any, Any]:
    """The digits of a numeral, where there are some, and whether it is negative; bool[room] for the digits."""
    word = stripped(a)
    first = word.letters[0]
    signed = (word.length > 0) & ((first == ord("-")) | (first == ord("+")))
    digit, held = decimal(word.letters), inside(word)
    return digit, held & (digit >= 0) & ~(signed & (places(a) == 0)), signed & (first == ord("-"))


def _fits_int(a: CodePoints) -> Any:
    """Is it a sign, and digits with single underscores between them?"""
    word = stripped(a)
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
    "endswith": _ends_with,
    "int": _int,
    "fits_int": _fits_int,
    "is_narrow": _is_narrow,
    "isidentifier": _is_identifier,
    **{name: _all_are(name) for name in ("isalpha", "isdigit", "isalnum", "isspace", "isnumeric", "isdecimal")},
    **{name: _all_are(name, True) for name in ("isascii", "isprintable")},
    **CASE_FUNCTIONS,
    **PART_FUNCTIONS,
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
