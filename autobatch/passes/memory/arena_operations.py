"""What lists do, on arrays: a length, and buffers with room for `capacity` elements.

    append(x):  buffer = dynamic_update_slice(buffer, [x], length);  length + 1
    pop():      dynamic_slice(buffer, length - 1);                   length - 1
    a + b:      where(i < len(a), a[i], b[i - len(a)])  for all i at once

Functions of JAX, for one example. A list of numbers or arrays has one buffer; a list of lists has one more axis in
each, and a buffer of the lengths. What lies behind the length is whatever was there before: no result depends on it.
Indices are in range where no check has failed, and clamped elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.ir import jax_compat
from autobatch.ir.core import Operand
from autobatch.ir.types import INT, Array, List, Type

Parts = Sequence[Any]
"""The length of a list, and its buffers."""


def parts_of(type: Type, capacity: int) -> tuple[Array, ...]:
    """The types of the numbers that a list is: its length, and its buffers; of an array, itself."""
    if isinstance(type, Array):
        return (type,)
    assert isinstance(type, List)
    return (INT, *(_stored(p, capacity) for p in parts_of(type.elem, capacity)))


def made_type(x: Operand) -> List:
    """The type of a copy of a list that the program makes."""

    def made(type: Type) -> Type:
        return List(made(type.elem)) if isinstance(type, List) else type

    assert isinstance(x.type, List)
    return List(made(x.type.elem))


def is_storable(type: Type) -> bool:
    """Are there buffers for lists of such elements?"""
    while isinstance(type, List) and type.store is None:
        type = type.elem
    return isinstance(type, Array)


def _stored(type: Array, capacity: int) -> Array:
    return Array(str(jax_compat.device_dtype(type)), (capacity, *type.shape))


def blank(type: Type, capacity: int) -> Parts:
    """An empty list."""
    _, *buffers = parts_of(type, capacity)
    return (0, *(jax_compat.zeros(b.shape, jax_compat.dtype_of(b.dtype)) for b in buffers))


def loaded(parts: Parts, index: Any, elem: Sequence[Array]) -> Parts:
    """The parts of the element at an index."""
    found = [_element(b, index) for b in parts[1:]]
    return [jax_compat.weakened(x) if t.weak else x for x, t in zip(found, elem, strict=True)]


@jax_compat.choosing
def _element(buffer: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(buffer, index, 0, False, allow_negative_indices=False)


def stored(parts: Parts, index: Any, element: Parts) -> Parts:
    """The list with the element at an index set."""
    n, *buffers = parts
    return (n, *(_put(b, x, index) for b, x in zip(buffers, element, strict=True)))


def _put(buffer: Any, x: Any, index: Any) -> Any:
    x = jnp.broadcast_to(jnp.asarray(x, buffer.dtype), buffer.shape[1:])
    return lax.dynamic_update_index_in_dim(buffer, x, index, 0, allow_negative_indices=False)


def put(parts: Parts, index: Any, element: Parts) -> Parts:
    """The list with the element at an index, which is one longer where that is its length."""
    n, *buffers = stored(parts, index, element)
    return (jnp.maximum(n, index + 1), *buffers)


def position(sizes: Sequence[int]) -> Callable[..., Any]:
    """Where the last element is whose parts are equal to others, -1 where none is: of a length, the buffers and these
    parts. `sizes`: one buffer for a part that is a number, two for a list of numbers. All elements are compared at
    once."""
    count = sum(sizes)

    def found(n: Any, *xs: Any) -> tuple[Any]:
        places = jnp.arange(xs[0].shape[0])
        hits = places < n
        for k, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False):
            buffer, x = xs[k], xs[count + k]
            hits &= buffer == jnp.asarray(x, buffer.dtype)
            if size == 2:
                alike = xs[k + 1] == xs[count + k + 1]
                hits &= jnp.all(alike | (jnp.arange(alike.shape[1]) >= x), 1)
        return (jax_compat.weakened(jnp.max(jnp.where(hits, places, -1))),)

    return found


def joined(a: Parts, b: Parts) -> Parts:
    """The elements of both."""
    n = a[0]
    index = jnp.arange(a[1].shape[0]) - n
    return (n + b[0], *(_choose(index < 0, x, taken(y, index)) for x, y in zip(a[1:], b[1:], strict=True)))


@jax_compat.choosing
def taken(buffer: Any, index: Any) -> Any:
    """Elements at places, any where there is none."""
    return buffer.at[jnp.clip(index, 0, buffer.shape[0] - 1)].get(mode="promise_in_bounds")


@jax_compat.choosing
def _choose(condition: Any, a: Any, b: Any) -> Any:
    return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)


def reduced(kind: str, even: bool, type: Array) -> Callable[..., Any]:
    """A reduction of a list, whose result is of a type."""

    def reduce(n: Any, buffer: Any) -> Any:
        made = _reduced(kind, even, n, buffer)
        return jax_compat.weakened(made) if type.weak else jnp.asarray(made, jax_compat.device_dtype(type))

    return reduce


def _reduced(kind: str, even: bool, n: Any, buffer: Any) -> Any:
    places = jnp.arange(buffer.shape[0])
    there = places < n
    match kind:
        case "sum":
            return jnp.sum(_choose(there, buffer, jnp.zeros_like(buffer)), 0, buffer.dtype)
        case "prod":
            return jnp.prod(_choose(there, buffer, jnp.ones_like(buffer)), 0, buffer.dtype)
        case "any":
            return jnp.any(_choose(there, buffer != 0, jnp.zeros(buffer.shape, bool)), 0)
        case "all":
            return jnp.all(_choose(there, buffer != 0, jnp.ones(buffer.shape, bool)), 0)
    if not even:  # as `leaf.extreme` has it
        there &= (places == 0) | (buffer == buffer)
    held = _choose(there, buffer, jnp.full_like(buffer, _extreme(buffer.dtype, kind)))
    if even:
        return (jnp.max if kind == "max" else jnp.min)(held, 0)
    position = (jnp.argmax if kind == "max" else jnp.argmin)(lax.stop_gradient(held), 0)
    return _element(buffer, position)


def _extreme(dtype: Any, kind: str) -> Any:
    """What no element is beyond."""
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf if kind == "max" else jnp.inf
    if jnp.issubdtype(dtype, jnp.bool_):
        return kind == "min"
    found = np.iinfo(dtype)
    return found.min if kind == "max" else found.max


def order(reverse: bool) -> Callable[..., Parts]:
    """The positions of elements in ascending order of their keys, as `sorted` has it."""

    def ordered(n: Any, *keys: Any) -> Parts:
        positions = jnp.arange(keys[0].shape[0], dtype=jnp.result_type(int))
        given = [_descending(k) if reverse else k for k in keys]
        behind = (positions >= n).astype(jnp.int32)
        found = lax.sort((behind, *given, positions), num_keys=1 + len(keys), is_stable=True)
        return n, found[-1]

    return ordered


def no_nan(n: Any, *keys: Any) -> tuple[Any]:
    """Is there no NaN among the keys?"""
    there = jnp.arange(keys[0].shape[0]) < n
    return (~jnp.any(there & functools.reduce(jnp.logical_or, map(jnp.isnan, keys))),)


NAN_IN_ORDER = "NaN among the keys of a sort, whose order in Python depends on its algorithm: leave NaN out"


def ranks(n: Any, lengths: Any, items: Any) -> tuple[Any]:
    """How many of some lists of numbers are less than each one: by the first number that differs; one that ends there
    is less."""
    room = items.shape[0]

    def step(known: Any, given: Any) -> tuple[Any, None]:
        less, equal = known
        place, column = given
        held = place < lengths
        here = held[None, :] & (~held[:, None] | (column[:, None] < column[None, :]))
        same = (held[:, None] == held[None, :]) & (~held[:, None] | (column[:, None] == column[None, :]))
        return (less | (equal & here), equal & same), None

    none = jnp.zeros((room, room), bool)
    (less, _), _ = lax.scan(step, (none, ~none), (jnp.arange(items.shape[1]), items.T))
    return (jnp.sum(less & (jnp.arange(room) < n)[:, None], 0, dtype=jnp.int32),)


def _descending(key: Any) -> Any:
    if key.dtype == bool:
        return ~key
    return ~key if jnp.issubdtype(key.dtype, jnp.integer) else -key
