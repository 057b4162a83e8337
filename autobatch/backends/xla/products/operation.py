"""The product of gathered rows and a matrix, and the sum of outer products of rows, as operations in JAX.

    multiply([(x0, index0), (x1, None)], weight, pack(weight, kernel), kernel)
        = concatenate([x0[index0], x1], axis=1) @ weight                                float[m, n]

    outer([(x0, index0), (x1, None)], g, count, kernel)
        = concatenate([x0[index0], x1], axis=1)[:count].T @ g[:count]                   float[k, n]

The kernel runs where the program is lowered for a CPU. On other platforms, under `jax.vmap` and in derivatives the
operations are what it says on the right, by XLA's own product; so every transformation of JAX goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
TRANSPOSED = 768 * 1024
"""Bytes of transposed rows, at most: beside a panel of other rows, in the second level of cache."""


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
        return side_by_side(arrays, indices) @ weight

    def kernel(arrays: Any, indices: Any, weight: Any, packed: Any) -> Any:
        call = jax.ffi.ffi_call(made.target, _shapes(rows, weight, made))
        return call(*_operands(arrays, indices), packed)[0]

    # what is packed follows from the weight
    return _operation(plain, kernel, moving=(0, 2))(arrays, indices, weight, packed)


def outer(sources: Sequence[Source], g: Any, count: Any, made: Registered) -> Any:
    """The sum of outer products of the first `count` rows: see above. All arrays have the dtype of `g`; k and n are at
    least 1. Nothing of the other rows reaches the result."""
    arrays = tuple(array for array, _ in sources)
    indices = tuple(index for _, index in sources)
    shape = (sum(a.shape[1] for a in arrays), g.shape[1])

    def plain(arrays: Any, indices: Any, g: Any, count: Any) -> Any:
        live = (jnp.arange(g.shape[0]) < count)[:, None]
        x, held = side_by_side(arrays, indices), jnp.where(live, g, jnp.zeros_like(g))
        return jnp.where(live, x, jnp.zeros_like(x)).T @ held

    def kernel(arrays: Any, indices: Any, g: Any, count: Any) -> Any:
        block, chunk = made.kernel.vectors.rows, made.kernel.chunk
        columns = -(-shape[0] // block) * block
        fitting = max(4 * chunk, TRANSPOSED // (columns * made.kernel.bytes) // chunk * chunk)
        room = min(fitting, -(-g.shape[0] // chunk) * chunk)
        shapes = [jax.ShapeDtypeStruct(s, g.dtype) for s in (shape, (columns, room), (room, made.kernel.panel))]
        return jax.ffi.ffi_call(made.target, shapes)(*_operands(arrays, indices), g, jnp.asarray(count, jnp.int32))[0]

    return _operation(plain, kernel, moving=(0, 2))(arrays, indices, g, count)


def side_by_side(arrays: Sequence[Any], indices: Sequence[Any]) -> Any:
    parts = [rows_of(source) for source in zip(arrays, indices, strict=True)]
    return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _operands(arrays: Sequence[Any], indices: Sequence[Any]) -> list[Any]:
    whole = jnp.zeros((0,), jnp.int32)
    return [x for a, i in zip(arrays, indices, strict=True) for x in (a, whole if i is None else i)]


def _operation(plain: Callable[..., Any], kernel: Callable[..., Any], moving: Sequence[int]) -> Callable[..., Any]:
    """An operation that the kernel computes on a CPU, and `plain` under transformations and elsewhere. It has
    derivatives by its operands `moving`."""

    def choose(*operands: Any) -> Any:
        return jax.lax.platform_dependent(*operands, cpu=kernel, default=plain)

    def batched(size: int, over: Any, *operands: Any) -> tuple[Any, bool]:
        axes = jax.tree.map(lambda batched: 0 if batched else None, over)
        return jax.vmap(plain, in_axes=axes, axis_size=size)(*operands), True

    def differentiated(primals: Any, tangents: Any) -> tuple[Any, Any]:
        def of_moving(*moved: Any) -> Any:
            operands = list(primals)
            for k, x in zip(moving, moved, strict=True):
                operands[k] = x
            return plain(*operands)

        _, out = jax.jvp(of_moving, [primals[k] for k in moving], [tangents[k] for k in moving])
        return operation(*primals), out

    over_examples = jax.custom_batching.custom_vmap(choose)
    over_examples.def_vmap(batched)
    operation = jax.custom_jvp(over_examples)
    operation.defjvp(differentiated)
    return operation


def _shapes(rows: int, weight: Any, made: Registered) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Of the result, and of the scratch memory that XLA gives the kernel."""
    k, n = weight.shape
    kernel = made.kernel
    room = -(-k // kernel.chunk) * kernel.chunk
    most = max(kernel.vectors.rows, min(TILE, SCRATCH // (room * kernel.bytes)))
    tiles = -(-rows // most)
    scratch = (-(-rows // tiles), room)
    return jax.ShapeDtypeStruct((rows, n), weight.dtype), jax.ShapeDtypeStruct(scratch, weight.dtype)
