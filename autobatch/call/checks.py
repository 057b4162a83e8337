"""Has a column changed since a batch was planned? Checksums of columns, the same on the host and on the device.

A column is read as words of 32 bits. Each word is mixed with its position, and the results are added, so that a device
may add them in any order. Floats that are equal have equal sums: -0.0 is 0.0, and NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm.checksums import MIX, POSITION, by_machine_code
from autobatch.compiler.reporting import raise_failures, raise_words, report_failures, report_words
from autobatch.ir.blocks import Site


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
