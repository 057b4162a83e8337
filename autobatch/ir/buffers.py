"""Growable buffers: the memory of what an example makes itself. Capacities and their failures, and lists in segments.

Lists that are changed through several names lie in segments, which functions of JAX read and extend for one example:

    counts      how many lists there are, and how many elements have a place
    lengths     of each list
    table       of each list where its segments begin in the columns, plus one; 0 where there is no such segment yet
    columns     the elements

A list grows by segments of 4, 8, 16, ... elements, so that its elements never move, an element is found by two reads,
and at most half of what is laid out is empty. (Brodnik, Carlsson, Demaine, Munro, Sedgewick, "Resizable arrays in
optimal time and space", 1999, section 2.) What lies behind the length of a list is whatever was there before.

An example that needs more capacity, or integers of more bits, fails with a message that says which capacity it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jax import lax

from autobatch.ir import jax_compat

# ---- capacities


NO_ROOM = "MemoryError"
"""What an example fails with that needs more."""
_WORDS = "list_capacity="
TOO_LARGE = ("OverflowError", "an int needs more bits than the device's integers have")
"""What an example fails with whose integer the device has no bits for, and the words."""
TOO_LARGE_FOR_HOST = ("OverflowError", "an int needs more than 64 bits")
"""The same of the host."""


DEVICE_IS_NARROW = "jax_enable_x64 makes"
"""What the message says of an integer for which the host has bits, and the device has not."""


def needs_bits(kind: str, message: str) -> bool:
    """Does an example fail because an integer needs more bits than the device's, or the host's, have?"""
    known = (TOO_LARGE, TOO_LARGE_FOR_HOST)
    return (kind, message) in known or (kind == TOO_LARGE[0] and DEVICE_IS_NARROW in message)


def out_of_room(capacity: int, objects: str = "") -> str:
    """What an example fails with whose list is longer than there is room for, or which makes more `objects` of a
    class."""
    full = f"{_MADE.format(objects)} {_WORDS}{capacity}" if objects else f"{_LIST} {_WORDS}{capacity} elements"
    return f"{full}; raise ab.options(list_capacity=...), which a call outside jax.jit does by itself, up to a limit"


_MADE = "more objects of {} are made than"
_LIST = "a list of which computed numbers say how long it is has more than"


def room_of(message: str) -> int | None:
    """The capacity that `out_of_room` says was too small; None of other words."""
    found = re.match(f"(?:{_LIST}|{_MADE.format('.*')}) {_WORDS}([0-9]+)", message)
    return int(found[1]) if found else None


# ---- segments


FIRST = 4
"""How many elements the first segment of a list has."""
EACH = 8
"""How many elements there is room for, for each list that there is room for."""


def elements(capacity: int) -> int:
    """How many elements all lists together have room for."""
    return EACH * capacity


def segments(capacity: int) -> int:
    """How many segments a list has at most."""
    return (elements(capacity) // FIRST + 1).bit_length()


def segment_of(index: Any) -> Any:
    """The segment in which the element at an index stands; the first one for what is no index, as of the last element
    of a list without any, which nobody reads: the host fails rows that shift by less than nothing."""
    return 32 - FIRST.bit_length() - lax.clz(jnp.asarray(jnp.maximum(index, 0) + FIRST, jnp.int32))


def start_of(segment: Any) -> Any:
    """The index of its first element."""
    return FIRST * ((1 << segment) - 1)


@lru_cache(maxsize=64)
def slot(width: int) -> Callable[[Any, Any], Any]:
    """Where the table says where a segment begins: of the list, and an index in that segment."""
    return lambda row, index: jax_compat.weakened(row * width + segment_of(index))


def place(begin: Any, index: Any) -> Any:
    """Where an element stands in the columns: of where its segment begins, and its index."""
    return jax_compat.weakened(begin - 1 + index - start_of(segment_of(index)))


def size(index: Any) -> Any:
    """How many elements the segment has in which an index is."""
    return jax_compat.weakened(jnp.left_shift(FIRST, segment_of(index)))


def room_for(length: Any) -> Any:
    """How many elements a new list has room for."""
    return jax_compat.weakened(jnp.where(length > 0, start_of(segment_of(jnp.maximum(length - 1, 0)) + 1), 0))


@lru_cache(maxsize=64)
def laid_out(width: int) -> Callable[[Any, Any, Any, Any], Any]:
    """The table where the segments of a new list stand side by side: of the table, the list, its length, and how many
    elements have a place."""

    def found(table: Any, row: Any, length: Any, used: Any) -> Any:
        firsts = start_of(jnp.arange(width))
        begins = jnp.where(firsts < length, used + 1 + firsts, 0)
        return lax.dynamic_update_slice(table, jnp.asarray(begins, table.dtype), (row * width,))

    return found


def length_with(length: Any, index: Any) -> Any:
    """How long a list is whose element at an index is set, or which gets one more."""
    return jax_compat.weakened(jnp.maximum(length, index + 1))


@jax_compat.choosing
def choose(condition: Any, a: Any, b: Any) -> Any:
    """A number of Python's, one of two."""
    return jax_compat.weakened(jnp.where(condition, a, b))


@jax_compat.choosing
def read(column: Any, index: Any) -> Any:
    """An element of a column."""
    return lax.dynamic_index_in_dim(column, index, 0, False, allow_negative_indices=False)


def read_weak(column: Any, index: Any) -> Any:
    """A number of Python that stands in a column."""
    return jax_compat.weakened(read(column, index))


def write(column: Any, x: Any, index: Any) -> Any:
    """A column with an element set."""
    x = jnp.broadcast_to(jnp.asarray(x, column.dtype), column.shape[1:])
    return lax.dynamic_update_index_in_dim(column, x, index, 0, allow_negative_indices=False)
