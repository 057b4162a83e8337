"""Functions that cut words, pad them and put others into them, of their code points (`spelt.py`).

spelt['split_item'](a, 1, b)     the letters of `a` from behind the first `b` to the second one
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from autobatch.passes.strings import characters
from autobatch.passes.strings.spelt_words import CodePoints, chosen, cut, inside, places, read, starts_at, woven


def _ends(a: CodePoints, chars: tuple[CodePoints, ...]) -> tuple[Any, Any]:
    """The first letter that is not to be stripped, and the place behind the last one."""
    if chars:
        (given,) = chars
        gone = jnp.any((a.letters[:, None] == given.letters[None, :]) & inside(given)[None, :], 1)
    else:
        gone = characters.holds("isspace", a.letters)
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
    held = jnp.append(inside(a) & ~characters.holds("isspace", a.letters), False)
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


FUNCTIONS: dict[str, Callable[..., Any]] = {
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
