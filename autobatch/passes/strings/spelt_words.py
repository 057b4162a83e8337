"""Words as lengths and buffers of code points, and what functions of them have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp


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
