"""Functions of strings that are lists of code points, as functions of JAX for one example: lengths and buffers.

    spelt['__eq__'](a, b)      len(a) == len(b), and a[i] == b[i] for all i in front of that

What lies behind the length of a list is whatever was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from autobatch.ir import jax_compat


def _inside(n: Any, buffer: Any) -> Any:
    return jnp.arange(buffer.shape[0]) < n


def _equal(n: Any, a: Any, m: Any, b: Any) -> Any:
    return (n == m) & jnp.all((a == b) | ~_inside(n, a))


def _less(n: Any, a: Any, m: Any, b: Any) -> Any:
    """Is `a` before `b`? By the first letter that differs; else the shorter one is."""
    both = _inside(jnp.minimum(n, m), a)
    differs = both & (a != b)
    first = jnp.argmax(differs)
    return jnp.where(jnp.any(differs), a[first] < b[first], n < m)


def _starts_at(n: Any, a: Any, m: Any, b: Any) -> Any:
    """bool[room]: does `b` stand in `a` at a place?"""
    room = a.shape[0]
    place, k = jnp.arange(room)[:, None], jnp.arange(room)[None, :]
    alike = a[jnp.minimum(place + k, room - 1)] == b[None, :]
    return jnp.all(alike | (k >= m), 1) & (jnp.arange(room) + m <= n)


def _contains(n: Any, a: Any, m: Any, b: Any) -> Any:
    return (m == 0) | jnp.any(_starts_at(n, a, m, b))


def _find(n: Any, a: Any, m: Any, b: Any) -> Any:
    here = _starts_at(n, a, m, b)
    return jnp.where(m == 0, 0, jnp.where(jnp.any(here), jnp.argmax(here), -1))


def _starts(n: Any, a: Any, m: Any, b: Any) -> Any:
    return (m <= n) & jnp.all((a == b) | ~_inside(m, a))


def _ends(n: Any, a: Any, m: Any, b: Any) -> Any:
    moved = a[jnp.clip(jnp.arange(a.shape[0]) + n - m, 0, a.shape[0] - 1)]
    return (m <= n) & jnp.all((moved == b) | ~_inside(m, a))


def _packed(room: int) -> Callable[..., Any]:
    def packed(n: Any, a: Any) -> tuple[Any]:
        held = jnp.pad(jnp.where(_inside(n, a), a, 0), (0, room - a.shape[0]))
        return (jnp.concatenate([jnp.asarray(n, jnp.int32)[None], jnp.asarray(held, jnp.int32)]),)

    return packed


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__eq__": _equal,
    "__lt__": _less,
    "__le__": lambda n, a, m, b: ~_less(m, b, n, a),
    "__gt__": lambda n, a, m, b: _less(m, b, n, a),
    "__ge__": lambda n, a, m, b: ~_less(n, a, m, b),
    "__contains__": _contains,
    "find": _find,
    "startswith": _starts,
    "endswith": _ends,
}
"""By the name of the function of strings; each takes length and buffer of two."""


def function(name: str, room: int) -> Callable[..., Any]:
    """A function of lengths and buffers, whose results are as those of strings are. `room`: how many code points an
    array of them has room for."""
    if name == "packed":
        return _packed(room)
    of = FUNCTIONS[name]
    if name == "find":
        return lambda *xs: (jax_compat.weakened(of(*xs)),)
    return lambda *xs: (jnp.asarray(of(*xs), bool),)


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
