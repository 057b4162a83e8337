"""Columns as leaves of a pytree, and back: how packed examples travel to the device.

Every space (the rows of a store, the lists of a list store, their elements) is rounded up to a capacity, so that
batches of one size class have leaves of equal shapes. Strings are data too: a vocabulary travels as UTF-8 text.

    Node.left  int32[7]   ->   Node.left  int32[8]                  rows past the count hold nothing
    {"str": ("a", "b")}   ->   vocabulary:str  uint8[64]            ["a", "b"]
"""

from __future__ import annotations

import enum
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.machine_code import MIX, POSITION, by_machine_code
from autobatch.compiler.reporting import raise_failures, raise_words, report_failures, report_words
from autobatch.data.columns import Columns, columns_of, host_dtype
from autobatch.data.schema import Schema
from autobatch.errors import PlanError
from autobatch.ir.core import Type
from autobatch.ir.jax_compat import integers_are_wide
from autobatch.ir.leaf import Site
from autobatch.planning.plan import SPREAD

Values = Any
"""A NumPy array, a JAX array or a tracer."""

STARTS, VOCABULARY = "starts:", "vocabulary:"
_GROWTH = 1.25
_SMALLEST = 8


def x64() -> bool:
    """Does JAX use 64 bits for Python numbers?"""
    return bool(jax.config.read("jax_enable_x64"))


def widths() -> int:
    """How many bits Python numbers have: False, all 32; True, all 64; 2, integers 64 and floats 32."""
    return 2 if integers_are_wide() else x64()


def spaces_of(schema: Schema) -> tuple[str, ...]:
    """The keys of `Columns.starts`."""
    return (*(s.name for s in schema.stores), *(n for s in schema.lists for n in (s.name, f"{s.name}.#values")))


def rounded(rows: int) -> int:
    """The smallest capacity of the geometric series that holds so many rows."""
    if rows <= _SMALLEST:
        return _SMALLEST
    capacity = float(_SMALLEST)
    while math.ceil(capacity) < rows:
        capacity *= _GROWTH
    return math.ceil(capacity)


@dataclass(frozen=True)
class Profile:
    """The rows of a space in the examples of a data set: of how many `examples`, on average, their standard deviation,
    and the `most` that one has."""

    examples: int
    mean: float
    spread: float
    most: int

    def expected(self, count: int) -> int:
        """Room for as many examples, chosen at random."""
        return _expected(self, count)


@functools.lru_cache(maxsize=4096)
def _expected(profile: Profile, count: int) -> int:
    rest = max(0.0, 1 - count / max(1, profile.examples))  # of all of them, nothing is left to chance
    rows = count * profile.mean + SPREAD * profile.spread * math.sqrt(count * rest)
    return max(_SMALLEST, math.ceil(min(rows, count * profile.most)))


def capacities(columns: Columns, profile: Mapping[str, Profile] | None) -> dict[str, int]:
    """A capacity for every space. `profile` is that of the data set that the examples were cut from: practically all
    minibatches of random examples have the same capacities then, and one factor scales all spaces for others."""
    rows = {space: int(starts[-1]) for space, starts in columns.starts.items()}
    if profile is None:
        return {space: rounded(n) for space, n in rows.items()}
    expected = {space: profile[space].expected(columns.count) for space in rows}
    factor = 1.0
    while any(n > math.ceil(expected[space] * factor) for space, n in rows.items()):
        factor *= _GROWTH
    return {space: math.ceil(n * factor) for space, n in expected.items()}


def profile_of(columns: Columns) -> dict[str, Profile]:
    """The profile of every space."""
    made = {}
    for space, starts in columns.starts.items():
        rows = np.diff(starts) if columns.count else np.zeros(1, np.int64)
        made[space] = Profile(columns.count, float(rows.mean()), float(rows.std()), int(rows.max()))
    return made


def to_leaves(columns: Columns, capacity: Mapping[str, int]) -> dict[str, Values]:
    """The arrays of the columns, padded, with the dtypes that JAX gives them."""
    leaves: dict[str, Values] = {}
    for column in columns_of(columns.schema):
        held = columns.arrays[column.name]
        fill = -1 if column.target is not None else 0
        rows = columns.count if column.space is None else capacity[column.space]
        leaves[column.name] = padded(canonical(held), rows, fill)
    for items in columns.schema.lists:
        name = f"{items.name}.#offsets"
        offsets = columns.arrays[name]
        leaves[name] = padded(offsets, capacity[items.name] + 1, int(offsets[-1]))
    for space, starts in columns.starts.items():
        leaves[STARTS + space] = starts.astype(np.int32)
    for name, values in columns.vocabularies.items():
        leaves[VOCABULARY + name] = encode(values)
    return leaves


def canonical(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in the dtype that JAX holds it in."""
    return array if array.dtype == np.int32 else array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def padded(array: np.ndarray[Any, Any], rows: int, fill: int) -> np.ndarray[Any, Any]:
    if len(array) == rows:
        return array
    made = np.full((rows, *array.shape[1:]), fill, array.dtype)
    made[: len(array)] = array
    return made


def encode(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """A vocabulary as text: strings, or the names of an enum's members."""
    text = json.dumps([v if isinstance(v, str) and type(v) is str else v.name for v in values]).encode()
    return np.frombuffer(text.ljust(rounded(max(len(text), 64))), np.uint8)


def decode(text: Any, members: type[enum.Enum] | None) -> tuple[Any, ...]:
    names = json.loads(np.asarray(text).tobytes().decode())
    return tuple(names) if members is None else tuple(members[name] for name in names)


def from_leaves(schema: Schema, count: int, enums: Mapping[str, type], leaves: Mapping[str, Values]) -> Columns:
    """The columns on the host again; waits for the device. Raises PlanError under a transformation of JAX."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves.values()):
        raise PlanError(
            "the examples of a batch are not known under jax.jit and other transformations; "
            "slice, plan and unbatch outside, or pass the batch in as an argument"
        )
    held: dict[str, np.ndarray[Any, Any]] = {k: np.asarray(v) for k, v in jax.device_get(dict(leaves)).items()}
    starts = {space: held[STARTS + space].astype(np.int64) for space in spaces_of(schema)}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for column in columns_of(schema):
        rows = count if column.space is None else int(starts[column.space][-1])
        kind = _dtype(column.type, held[column.name])
        arrays[column.name] = held[column.name][:rows].astype(kind, copy=False)
    for items in schema.lists:
        name = f"{items.name}.#offsets"
        arrays[name] = held[name][: int(starts[items.name][-1]) + 1]
    names = [k.removeprefix(VOCABULARY) for k in held if k.startswith(VOCABULARY)]
    vocabularies = {n: decode(held[VOCABULARY + n], enums.get(n)) for n in names}
    return Columns(schema, count, arrays, starts, vocabularies)


def _dtype(type: Type | None, held: np.ndarray[Any, Any]) -> np.dtype[Any]:
    if type is not None:
        return host_dtype(type)
    kind: np.dtype[Any] = held.dtype
    return kind


# ---- checks
#
# Has a column changed since a batch was planned? Checksums of columns, the same on the host and on the device.
#
# A column is read as words of 32 bits. Each word is mixed with its position, and the results are added, so that a
# device may add them in any order. Floats that are equal have equal sums: -0.0 is 0.0, and NaN is NaN.


def checksum(column: Any) -> Any:
    """uint32[] of an array: a NumPy number for a NumPy array, else computed by JAX."""
    if isinstance(column, np.ndarray):
        words = _words(column, np)
        sum_of = by_machine_code()
        return sum_of(words) if sum_of is not None else mixed_sum(words, np)
    return mixed_sum(_words(column, jnp), jnp)


def mixed_sum(words: Any, xp: Any) -> Any:
    """The checksum of words by NumPy or JAX."""
    words = words ^ (xp.arange(words.shape[0], dtype=np.uint32) * np.uint32(POSITION))
    words = (words ^ (words >> np.uint32(16))) * np.uint32(MIX)
    return (words ^ (words >> np.uint32(15))).sum(dtype=np.uint32)


def _words(column: Any, xp: Any) -> Any:
    """The bits of an array as uint32[n]."""
    if jnp.issubdtype(column.dtype, jnp.complexfloating):
        return xp.concatenate([_words(column.real, xp), _words(column.imag, xp)])
    flat = column.reshape(-1)
    if jnp.issubdtype(flat.dtype, jnp.floating):
        flat = flat if flat.dtype.itemsize >= 4 else flat.astype(np.float32)
        flat = xp.where(flat == 0, flat.dtype.type(0), flat)
        flat = xp.where(flat != flat, flat.dtype.type(np.nan), flat)
    elif flat.dtype.itemsize < 4:
        flat = flat.astype(np.int32)
    if xp is np:
        return np.ascontiguousarray(flat).view(np.uint32)
    return jax.lax.bitcast_convert_type(flat, np.uint32).reshape(-1)


def checksums(columns: Sequence[Any]) -> Any:
    """uint32[n] of n arrays, on the host where all of them are there."""
    sums = [checksum(c) for c in columns]
    if all(isinstance(s, np.generic) for s in sums):
        return np.array(sums, np.uint32)
    return jnp.stack([jnp.asarray(s) for s in sums])


@dataclass(frozen=True)
class Check:
    """`failed`, bool[k]: what a call relies on and does not hold. `words[k]` says what is wrong then."""

    words: tuple[str, ...]
    failed: Any


def refuse(checks: Sequence[Check], report: bool = True) -> Any:
    """Raise PlanError where a check has failed. Under a transformation of JAX the host is called where one fails, which
    raises when the computation ends, and this returns whether any has failed, else None. `report`: call the host."""
    traced = [c for c in checks if isinstance(c.failed, jax.core.Tracer)]
    for check in checks:
        if not isinstance(check.failed, jax.core.Tracer):
            raise_words(check.words, check.failed)
    if not traced:
        return None
    words = tuple(w for c in traced for w in c.words)
    failed = jnp.concatenate([c.failed for c in traced])
    return report_words(words, failed).any() if report else failed.any()


def refuse_failed(sites: Sequence[Site], status: Any) -> Any:
    """Raise ExampleError where an example has failed; under a transformation of JAX when the computation ends. Returns
    `status`: what depends on it depends on this check."""
    if isinstance(status, jax.core.Tracer):
        return report_failures(sites, status)
    raise_failures(sites, status)
    return status
