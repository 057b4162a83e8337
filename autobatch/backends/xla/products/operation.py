"""The product of gathered rows and a matrix, as an operation in JAX.

    multiply([(x0, index0), (x1, None)], weight, pack(weight, kernel), kernel)
        = concatenate([x0[index0], x1], axis=1) @ weight                                float[m, n]

The kernel runs where the program is lowered for a CPU. On other platforms, under `jax.vmap` and in derivatives the
operation is what it says on the right, by XLA's own product; so every transformation of JAX goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.backends.xla.products.build import Registered

Source = tuple[Any, Any | None]
"""Rows: an array [rows, k], and int32[m], which rows of it are meant; None for all of them, and m is their number."""

SCRATCH = 1024 * 1024
"""Bytes of gathered rows that are worked on together, at most: they stay in the second level of cache."""
TILE = 112
"""Rows that are worked on together, at most: 8 blocks of the widest kernel."""


def pack(weight: Any, made: Registered) -> Any:
    """The matrix [k, n] in panels [panels, k, panel], zeros past the last column."""
    k, n = weight.shape
    panel = made.kernel.panel
    panels = -(-n // panel)
    filled = jnp.pad(weight, ((0, 0), (0, panels * panel - n)))
    return filled.reshape(k, panels, panel).transpose(1, 0, 2)


def rows_of(source: Source) -> Any:
    """The rows of a source; the planner guarantees the range of an index."""
    array, index = source
    if index is None:
        return array
    return array.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def multiply(sources: Sequence[Source], weight: Any, packed: Any, made: Registered) -> Any:
    """The product, of the dtype of the weight: see above. All arrays have that dtype; k and n are at least 1."""
    arrays = tuple(array for array, _ in sources)
    indices = tuple(index for _, index in sources)
    rows = next((a.shape[0] if i is None else i.shape[0] for a, i in sources))

    def plain(arrays: Any, indices: Any, weight: Any, packed: Any) -> Any:
        parts = [rows_of(source) for source in zip(arrays, indices, strict=True)]
        return (jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]) @ weight

    def kernel(arrays: Any, indices: Any, weight: Any, packed: Any) -> Any:
        whole = jnp.zeros((0,), jnp.int32)
        operands = [x for a, i in zip(arrays, indices, strict=True) for x in (a, whole if i is None else i)]
        return jax.ffi.ffi_call(made.target, _shapes(rows, weight, made))(*operands, packed)[0]

    def choose(*operands: Any) -> Any:
        return jax.lax.platform_dependent(*operands, cpu=kernel, default=plain)

    def batched(size: int, over: Any, *operands: Any) -> tuple[Any, bool]:
        axes = jax.tree.map(lambda batched: 0 if batched else None, over)
        return jax.vmap(plain, in_axes=axes, axis_size=size)(*operands), True

    def differentiated(primals: Any, tangents: Any) -> tuple[Any, Any]:
        arrays, indices, weight, packed = primals
        moved = (tangents[0], tangents[2])  # what is packed follows from the weight
        _, out = jax.jvp(lambda a, w: plain(a, indices, w, packed), (arrays, weight), moved)
        return product(*primals), out

    over_examples = jax.custom_batching.custom_vmap(choose)
    over_examples.def_vmap(batched)
    product = jax.custom_jvp(over_examples)
    product.defjvp(differentiated)
    return product(arrays, indices, weight, packed)


def _shapes(rows: int, weight: Any, made: Registered) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Of the result, and of the scratch memory that XLA gives the kernel."""
    k, n = weight.shape
    kernel = made.kernel
    room = -(-k // kernel.chunk) * kernel.chunk
    most = max(kernel.vectors.rows, min(TILE, SCRATCH // (room * kernel.bytes)))
    tiles = -(-rows // most)
    scratch = (-(-rows // tiles), room)
    return jax.ShapeDtypeStruct((rows, n), weight.dtype), jax.ShapeDtypeStruct(scratch, weight.dtype)
