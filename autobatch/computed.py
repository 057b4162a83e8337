"""What a program computes, before it is put together as the function's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from autobatch.ir.types import Type


@dataclass(frozen=True)
class ArrayResult:
    """One array, examples on axis 0."""

    values: Any


@dataclass(frozen=True)
class RaggedResult:
    """Values of all elements behind one another, and int32[B + 1] offsets."""

    values: ArrayResult | RaggedResult | StructureResult
    offsets: Any


@dataclass(frozen=True)
class StructureResult:
    """Rows of the input, one an example or element: references, tags or lists (-1 is null); or rows of the objects that
    the program has made, and which class they are."""

    rows: Any
    type: Type


Result = ArrayResult | RaggedResult | StructureResult


def offsets(tables: Mapping[str, Any], k: int, depth: int) -> Any:
    """Where the lists of a result begin, at a depth."""
    return jnp.asarray(tables[f"offsets{k}" + (f".{depth}" if depth else "")], jnp.int32)


def masked_elements(values: Any, tables: Mapping[str, Any], k: int, depth: int) -> ArrayResult:
    """The elements of lists; capacity past the last one is zero."""
    live = jnp.arange(values.shape[0]) < offsets(tables, k, depth - 1)[-1]
    mask = live.reshape(live.shape + (1,) * (values.ndim - 1))
    return ArrayResult(jnp.where(mask, values, jnp.zeros_like(values)))
