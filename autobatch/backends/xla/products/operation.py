"""Products of gathered rows and a matrix, sums of outer products of rows, sums of rows by owner, as operations in JAX.

    multiply([(x0, index0), (x1, None)], pack([weight], False, packing), kernel)
        = concatenate([x0[index0], x1], axis=1) @ weight                                float[m, n]
    multiply(..., count)            the same; rows from `count` on are zero

    outer([(x0, index0), (x1, None)], g, count, kernel)
        = concatenate([x0[index0], x1], axis=1)[:count].T @ g[:count]                   float[k, n]

    sum_rows(x, source, owner, rows, kernel)
        = zeros[rows, n].at[owner].add(x[source])                                       float[rows, n]

    empty(shape, dtype, number, kernel)     whatever is in the memory

The kernel runs where the program is lowered for a CPU. On other platforms, under `jax.vmap` and in derivatives the
operations are what it says on the right, by XLA's own product; so every transformation of JAX goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.xla.products.build import Registered
from autobatch.backends.xla.rows import take

Source = tuple[Any, Any | None]
"""Rows: an array [rows, k], and int32[m], which rows of it are meant; None for all of them, and m is their number."""

SCRATCH = 1024 * 1024
"""Bytes of gathered rows that are worked on together, at most: they stay in the second level of cache."""
TILE = 112
"""Rows that are worked on together, at most: 8 blocks of the widest kernel."""
TRANSPOSED = 768 * 1024
"""Bytes of transposed rows, at most: beside a panel of other rows, in the second level of cache."""


class Matrix(NamedTuple):
    """A matrix [k, n]: `parts` one above the other, transposed then if it is `turned`; and `panels`, the same packed.
    What multiplies by it reads one of both, so the parts stay apart where only the panels are read."""

    parts: tuple[Any, ...]
    turned: bool
    panels: Any

    @property
    def shape(self) -> tuple[int, int]:
        return _shape(self.parts, self.turned)

    @property
    def dtype(self) -> Any:
        return self.parts[0].dtype


def _shape(parts: Sequence[Any], turned: bool) -> tuple[int, int]:
    above, beside = sum(w.shape[0] for w in parts), parts[0].shape[1]
    return (beside, above) if turned else (above, beside)


def _whole(parts: Sequence[Any], turned: bool) -> Any:
    together = jax.lax.concatenate(parts, 0) if len(parts) > 1 else parts[0]
    return jax.lax.transpose(together, (1, 0)) if turned else together


def pack(parts: Sequence[Any], turned: bool, made: Registered) -> Matrix:
    """A matrix in panels `[panels, k, panel]`, zeros past the last column."""
    panel = made.kernel.panel
    k, n = _shape(parts, turned)
    panels = -(-n // panel)

    def plain(*weights: Any) -> Any:
        filled = jnp.pad(_whole(weights, turned), ((0, 0), (0, panels * panel - n)))
        return filled.reshape(k, panels, panel).transpose(1, 0, 2)

    def kernel(*weights: Any) -> Any:
        call = jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct((panels, k, panel), weights[0].dtype))
        return call(jnp.zeros((int(turned),), jnp.int32), *weights)

    return Matrix(tuple(parts), turned, _operation(plain, kernel, moving=range(len(parts)))(*parts))


def rows_of(source: Source) -> Any:
    """The rows of a source; the planner guarantees the range of an index."""
    array, index = source
    return array if index is None else take(array, index)


def multiply(sources: Sequence[Source], matrix: Matrix, made: Registered, count: Any = None) -> Any:
    """The product, of the dtype of the matrix: see above. All arrays have that dtype; k and n are at least 1.

    `count`: how many rows are multiplied, the first ones; zeros stand for the others. None: all of them."""
    arrays = tuple(array for array, _ in sources)
    indices = tuple(index for _, index in sources)
    rows = next((a.shape[0] if i is None else i.shape[0] for a, i in sources))
    counts = () if count is None else (jnp.asarray(count, jnp.int32),)

    def plain(arrays: Any, indices: Any, parts: Any, panels: Any, *counts: Any) -> Any:
        found = jax.lax.dot(side_by_side(arrays, indices), _whole(parts, matrix.turned))
        return jnp.where(jnp.arange(rows)[:, None] < counts[0], found, jnp.zeros_like(found)) if counts else found

    def kernel(arrays: Any, indices: Any, parts: Any, panels: Any, *counts: Any) -> Any:
        call = jax.ffi.ffi_call(made.target, _shapes(rows, matrix, made))
        return call(*_operands(arrays, indices), panels, *counts)[0]

    # what is packed follows from the parts
    operation = _operation(plain, kernel, moving=(0, 2))
    return operation(arrays, indices, matrix.parts, matrix.panels, *counts)


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


def sum_rows(x: Any, source: Any, owner: Any, rows: int, made: Registered) -> Any:
    """The sums, of the dtype of `x`: see above. `x`: [any, n]. An owner that is no row counts for nothing."""

    def plain(x: Any, source: Any, owner: Any) -> Any:
        live = (owner >= 0) & (owner < rows)
        read = rows_of((x, jnp.where(live, source, 0)))
        read = jnp.where(live[:, None], read, jnp.zeros_like(read))
        total = jnp.zeros((rows + 1, x.shape[1]), x.dtype)
        return total.at[jnp.where(live, owner, rows)].add(read, mode="promise_in_bounds")[:rows]

    def kernel(x: Any, source: Any, owner: Any) -> Any:
        return jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct((rows, x.shape[1]), x.dtype))(x, source, owner)

    return _operation(plain, kernel, moving=(0,))(x, source.astype(jnp.int32), owner.astype(jnp.int32))


def empty(shape: tuple[int, ...], dtype: Any, number: int, made: Registered) -> Any:
    """Memory that is written before it is read. `number` tells those of one program apart: XLA would make one of two
    that are alike, and copy it. On platforms without the kernel, zeros."""

    def kernel() -> Any:
        return jax.ffi.ffi_call(made.target, jax.ShapeDtypeStruct(shape, dtype))(number=np.int64(number))

    return jax.lax.platform_dependent(cpu=kernel, default=lambda: jnp.zeros(shape, dtype))


def side_by_side(arrays: Sequence[Any], indices: Sequence[Any]) -> Any:
    parts = [rows_of(source) for source in zip(arrays, indices, strict=True)]
    return jax.lax.concatenate(parts, 1) if len(parts) > 1 else parts[0]


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


def _shapes(rows: int, matrix: Matrix, made: Registered) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Of the result, and of the scratch memory that XLA gives the kernel."""
    k, n = matrix.shape
    kernel = made.kernel
    room = -(-k // kernel.chunk) * kernel.chunk
    most = max(kernel.vectors.rows, min(TILE, SCRATCH // (room * kernel.bytes)))
    tiles = -(-rows // most)
    scratch = (-(-rows // tiles), room)
    return jax.ShapeDtypeStruct((rows, n), matrix.dtype), jax.ShapeDtypeStruct(scratch, matrix.dtype)
