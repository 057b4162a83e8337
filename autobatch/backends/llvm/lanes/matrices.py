"""Linear algebra of small matrices, written out number by number in `jax.lax`: LU, Cholesky, triangular systems.

    lu(a)                    ->  for each column: the largest number, rows exchanged by choices, multiples taken away
    custom_linear_solve(...) ->  the solution that it brings: two triangular systems

The arrangement is that of LAPACK's unblocked routines (`getf2`, `potf2`, `trsv`), so results are XLA's but for
roundings, and so is which row is a pivot. Leading axes are those of many matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

LARGEST = 8
"""Rows of a matrix up to which all is written out: what there is to compute grows with their cube."""

Rows = list[list[jax.Array]]


def _rows(a: jax.Array) -> Rows:
    if max(a.shape[-2:]) > LARGEST:
        raise RefusedError(f"a matrix of more than {LARGEST} rows or columns")
    return [[a[..., i, j] for j in range(a.shape[-1])] for i in range(a.shape[-2])]


def _joined(rows: Rows) -> jax.Array:
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def _size(x: jax.Array) -> jax.Array:
    """Of complex numbers the sum of their parts', as LAPACK compares them."""
    return abs(x.real) + abs(x.imag) if jnp.iscomplexobj(x) else abs(x)


def _exchanged(first: Any, other: Any, here: jax.Array) -> tuple[Any, Any]:
    return jnp.where(here, other, first), jnp.where(here, first, other)


def lu(op: Op, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """L and U in one matrix, which row was exchanged with each, and the order of rows that comes of it."""
    rows = _rows(a)
    order = [jnp.full(a.shape[:-2], i, np.int32) for i in range(len(rows))]
    pivots = []
    for k in range(min(a.shape[-2:])):
        place, largest = jnp.full(a.shape[:-2], k, np.int32), _size(rows[k][k])
        for i in range(k + 1, len(rows)):
            size = _size(rows[i][k])
            more = size > largest
            place, largest = jnp.where(more, np.int32(i), place), jnp.where(more, size, largest)
        pivots.append(place)
        for i in range(k + 1, len(rows)):
            here = place == i
            order[k], order[i] = _exchanged(order[k], order[i], here)
            for j in range(a.shape[-1]):
                rows[k][j], rows[i][j] = _exchanged(rows[k][j], rows[i][j], here)
        pivot = jnp.where(rows[k][k] == 0, 1, rows[k][k])  # then all below is zero as well
        for row in rows[k + 1 :]:
            row[k] = row[k] / pivot
            row[k + 1 :] = [x - row[k] * y for x, y in zip(row[k + 1 :], rows[k][k + 1 :], strict=True)]
    return _joined(rows), jnp.stack(pivots, -1), jnp.stack(order, -1)


def lu_pivots_to_permutation(op: Op, pivots: jax.Array) -> jax.Array:
    if op["permutation_size"] > LARGEST:
        raise RefusedError(f"a matrix of more than {LARGEST} rows")
    order = [jnp.full(pivots.shape[:-1], i, np.int32) for i in range(op["permutation_size"])]
    for k in range(pivots.shape[-1]):
        for i in range(k + 1, len(order)):
            order[k], order[i] = _exchanged(order[k], order[i], pivots[..., k] == i)
    return jnp.stack(order, -1)


def cholesky(op: Op, a: jax.Array) -> jax.Array:
    """The lower factor; NaN where the matrix is not positive definite. It reads the lower half."""
    rows = _rows(a)
    fine = jnp.full(a.shape[:-2], True)
    for j in range(len(rows)):
        square = rows[j][j].real
        for x in rows[j][:j]:
            square = square - (x * x.conj()).real
        fine = fine & (square > 0)
        root = lax.sqrt(square)
        rows[j][j] = lax.convert_element_type(root, a.dtype)
        for row in rows[j + 1 :]:
            for x, y in zip(row[:j], rows[j][:j], strict=True):
                row[j] = row[j] - x * y.conj()
            row[j] = row[j] / root
    nothing = jnp.zeros(a.shape[:-2], a.dtype)
    wrong = jnp.full(a.shape[:-2], np.nan, a.dtype)
    whole = [[jnp.where(fine, x, wrong) if j <= i else nothing for j, x in enumerate(r)] for i, r in enumerate(rows)]
    return _joined(whole)


def triangular_solve(op: Op, a: jax.Array, b: jax.Array) -> jax.Array:
    """x of t x = b, or of x t = b, for t = a, its transpose or its adjoint. Of `a` one half is read."""
    rows = _rows(a)
    # x t = b is t' x' = b'
    turned = op["transpose_a"] != (not op["left_side"])
    if turned:
        rows = [list(column) for column in zip(*rows, strict=True)]
    if op["conjugate_a"]:
        rows = [[x.conj() for x in row] for row in rows]
    sides = b if op["left_side"] else jnp.swapaxes(b, -1, -2)
    found: dict[int, jax.Array] = {}
    down = op["lower"] != turned
    for i in range(len(rows)) if down else reversed(range(len(rows))):
        x = sides[..., i, :]
        for j in range(i) if down else reversed(range(i + 1, len(rows))):
            x = x - rows[i][j][..., None] * found[j]
        found[i] = x if op["unit_diagonal"] else x / rows[i][i][..., None]
    joined = jnp.stack([found[i] for i in range(len(rows))], -2)
    return joined if op["left_side"] else jnp.swapaxes(joined, -1, -2)


def custom_linear_solve(op: Op, *xs: jax.Array) -> Sequence[jax.Array]:
    """By the function that it brings for that."""
    lengths, solve = op["const_lengths"], op["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    constants = xs[first : first + lengths.solve]
    found: Sequence[jax.Array] = jax.core.eval_jaxpr(solve.jaxpr, solve.consts, *constants, *xs[sum(lengths) :])
    return found


MATRICES: Mapping[str, Callable[..., Any]] = {
    "cholesky": cholesky,
    "custom_linear_solve": custom_linear_solve,
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "triangular_solve": triangular_solve,
}
"""By the name of JAX's primitive: `written(op, *operands)`, to be traced."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("eig", "eigh", "hessenberg", "schur", "tridiagonal"), "eigenvalues of matrices"),
    **dict.fromkeys(("geqrf", "geqp3", "householder_product", "ormqr", "qr"), "QR decompositions"),
    "svd": "singular values of matrices",
}
"""What machine code does not have."""
