"""Memory of a program that rows are written to one window after another."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.products.choice import choose_empty
from autobatch.backends.xla.products.operation import empty
from autobatch.ir import jax_compat


class Buffers:
    """Those of one program."""

    def __init__(self, products: str, first: int) -> None:
        """`products`: the option of that name. `first`: tells them from those of other programs in one executable."""
        self.products, self.numbers = products, count(first)

    def unwritten(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A buffer whose rows are written before they count for anything. (Nothing that is in it reaches a result:
        `tests/properties/test_poisoned_padding.py`.) To fill it would take as long as an operation on all of it."""
        if jnp.issubdtype(dtype, jnp.floating):
            kernel = choose_empty(self.products, dtype, math.prod(shape) * dtype.itemsize).kernel
            if kernel is not None:
                return empty(shape, dtype, next(self.numbers), kernel)
        return jax_compat.zeros(shape, dtype)

    def beginning(self, parts: list[Any | None], rows: list[int], shape: tuple[int, ...], dtype: Any) -> Any:
        """A buffer of several arrays, one behind the other, each of so many rows; None: not written yet."""
        if len(parts) == 1:
            return self.unwritten((rows[0], *shape), dtype) if parts[0] is None else parts[0]
        whole, at = self.unwritten((sum(rows), *shape), dtype), 0
        for part, number in zip(parts, rows, strict=True):
            if part is not None:
                whole = jax.lax.dynamic_update_slice_in_dim(whole, part, at, 0, allow_negative_indices=False)
            at += number
        return whole
