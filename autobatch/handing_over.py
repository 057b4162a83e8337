"""Arrays of NumPy as arrays of JAX, where what a call costs matters.

`jax.device_put` takes some 60 microseconds for an array however small, `jnp.asarray` as many, and compiles a program
for each shape; an executable of JAX takes its arguments in three. So arrays that are met again and again go through an
executable that returns them. It is compiled (some ten milliseconds) for shapes that a process has often seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SEEN = 128
"""Calls with the same shapes and dtypes from which on an executable hands them over."""

MOST = 256
"""Kinds of calls that are remembered."""

LARGE = 1 << 20
"""Bytes from which on the copy is what a call costs."""

_seen: dict[tuple[Any, ...], int] = {}
_hand_over: Any = jax.jit(lambda *xs: jax.lax.optimization_barrier(xs))
"""The barrier makes results of arguments: what is merely returned never reaches the fast way."""


_NUMBERS = (np.ndarray, np.generic, jax.Array, bool, int, float, complex)
"""What becomes an array; strings, say, are results as they are."""


def as_jax(result: Any) -> Any:
    """A pytree with arrays of JAX in the place of NumPy's; they hold copies."""
    leaves, tree = jax.tree.flatten(result)
    if all(type(x) is np.ndarray for x in leaves):
        return jax.tree.unflatten(tree, arrays(leaves))
    return jax.tree.unflatten(tree, map(_of, leaves))


def _of(x: Any) -> Any:
    if type(x) is np.ndarray:
        return _copy(x)
    return jnp.asarray(x) if isinstance(x, _NUMBERS) else x


def arrays(xs: Sequence[np.ndarray[Any, Any]]) -> Sequence[Any]:
    """The same arrays as arrays of JAX."""
    key = tuple([(x.shape, x.dtype) for x in xs])
    count = _seen.get(key, 0)
    if count >= SEEN and sum([x.nbytes for x in xs]) < LARGE:
        found: Sequence[Any] = _hand_over(*xs)
        return found
    if len(_seen) >= MOST:
        _seen.clear()
        _hand_over.clear_cache()
    _seen[key] = count + 1
    return [_copy(x) for x in xs]


def _copy(x: np.ndarray[Any, Any]) -> Any:
    return jax.device_put(x.copy())  # it would take what is aligned as it is, whatever `may_alias` says
