"""`SparseRows`: a table of which few rows are not zero, as the gradient of an embedding table; optimisers over such.

    shape (5, 2)      indices [3, 1, 3, 5]      rows [[1 1] [2 2] [4 4] [0 0]]
    to_dense()        [[0 0] [2 2] [0 0] [5 5] [0 0]]       rows of equal indices are summed; index 5 is no row
    unique()          indices [1, 3, 5, 5]      rows [[2 2] [5 5] [0 0] [0 0]]

`sparse(optax.adam(1e-3))` is an optimiser over tables of which a step touches few rows:

    grads    {"W": dense, "emb": SparseRows}              what the optimiser inside sees
    unique   emb: indices [1 3 5], rows [3, d]            emb: the gradient [3, d]
    state    mu, nu of emb: [V, d]                        mu, nu: their rows 1 3 5, [3, d]
    params   emb: [V, d]                                  its rows 1 3 5, [3, d]
    updates  emb: SparseRows of those rows                and the rows of mu and nu are written back

Which arrays of a state belong to which table is found by asking for the state of a table with one more row: those
arrays have one more row too. Nothing is known about any optimiser.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# ---- rows


@jax.tree_util.register_pytree_with_keys_class
class SparseRows:
    """The array of `shape` that is zero but for `rows[k]`, added at row `indices[k]`.

    Args:
      indices: int[n]. Equal ones are summed. Those that are no row of the table (negative, or `shape[0]` and more) are
        padding: their rows count as zero, whatever they hold.
      rows: [n, ...], the shape of a row of the table behind n.
      shape: the shape of the table.

    A pytree of `indices` and `rows`; the shape is static. `a + b`, `a - b`, `-a`, `a * scalar`, `a / scalar` are
    SparseRows; `dense + a` and `dense - a` are dense, and touch no other rows. A function that is mapped over the
    leaves of a pytree reaches the indices too: pass `is_leaf=lambda g: isinstance(g, ab.SparseRows)` to `jax.tree.map`.

    Raises ValueError where shapes do not fit, TypeError for indices that are no integers.

    >>> g = SparseRows(jnp.array([3, 1, 3]), jnp.array([1.0, 2.0, 4.0]), (5,))
    >>> (2 * g).to_dense().tolist()
    [0.0, 4.0, 0.0, 10.0, 0.0]
    >>> (jnp.ones(5) - g).tolist()
    [1.0, -1.0, 1.0, -4.0, 1.0]
    """

    __slots__ = ("indices", "rows", "shape")
    __array_ufunc__ = None  # NumPy leaves `array + sparse` to us

    def __init__(self, indices: Any, rows: Any, shape: tuple[int, ...]) -> None:
        self.indices, self.rows, self.shape = jnp.asarray(indices), jnp.asarray(rows), tuple(map(int, shape))
        self._checked()
        if not self.shape or self.rows.shape != (*self.indices.shape, *self.shape[1:]) or self.indices.ndim != 1:
            raise ValueError(
                f"SparseRows of shape {self.shape} takes indices[n] and rows of shape {('n', *self.shape[1:])}, not "
                f"{self.indices.shape} and {self.rows.shape}"
            )

    # -- as a pytree: what JAX puts in may be anything

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[int, ...]]:
        key = jax.tree_util.GetAttrKey
        return ((key("indices"), self.indices), (key("rows"), self.rows)), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], children: tuple[Any, Any]) -> SparseRows:
        made = cls.__new__(cls)
        (made.indices, made.rows), made.shape = children, shape
        return made

    def _checked(self) -> SparseRows:
        if not jnp.issubdtype(self.indices.dtype, jnp.integer):
            raise TypeError(
                f"the indices of SparseRows are {self.indices.dtype}: a function was mapped over the leaves of a "
                "pytree and changed them; pass is_leaf=lambda g: isinstance(g, ab.SparseRows) to jax.tree.map"
            )
        return self

    # -- what it stands for

    @property
    def dtype(self) -> Any:
        return self.rows.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __repr__(self) -> str:
        return f"SparseRows({self.rows.shape[0]} rows of {self.dtype}{list(self.shape)})"

    def _places(self) -> Any:
        """The indices; padding is one past the last row."""
        self._checked()
        inside = (self.indices >= 0) & (self.indices < self.shape[0])
        return jnp.where(inside, self.indices, self.shape[0])

    def to_dense(self) -> jax.Array:
        """The table: an array of `shape`."""
        return self.added_to(jnp.zeros(self.shape, self.dtype))

    def unique(self, capacity: int | None = None) -> SparseRows:
        """The same table with each index at most once, ascending, padded with the index `shape[0]` and zeros.

        `capacity` is how many rows the result has, the same inside and outside `jax.jit`: by default as many as there
        may be, the fewer of n and `shape[0]`. Where there are more different indices than that, ValueError is raised
        outside `jax.jit`, and inside it all floats of the result are NaN."""
        most = min(self.rows.shape[0], self.shape[0])
        capacity = most if capacity is None else operator.index(capacity)
        places = self._places()
        order = jnp.argsort(places, stable=True)
        places = places[order]
        first = jnp.ones(len(places), bool).at[1:].set(places[1:] != places[:-1]) & (places < self.shape[0])
        found = first.sum()
        number = jnp.where(places < self.shape[0], jnp.cumsum(first) - 1, capacity)
        indices = jnp.full(capacity, self.shape[0], places.dtype).at[number].set(places, mode="drop")
        rows = jnp.zeros((capacity, *self.shape[1:]), self.dtype)
        rows = rows.at[number].add(self.rows[order], mode="drop", indices_are_sorted=True)
        if capacity < most:
            if not isinstance(found, jax.core.Tracer) and int(found) > capacity:
                raise ValueError(f"unique(capacity={capacity}): there are {int(found)} different rows")
            if jnp.issubdtype(self.dtype, jnp.inexact):
                rows = jnp.where(found > capacity, jnp.nan, rows)
        return SparseRows(indices, rows, self.shape)

    # -- arithmetic

    def added_to(self, dense: Any) -> jax.Array:
        """An array with these rows added to it, in its dtype; reads and writes no other rows."""
        return self._added_to(jnp.asarray(dense), self.rows)

    def _added_to(self, dense: Any, rows: Any) -> jax.Array:
        made: jax.Array = dense.at[self._places()].add(rows.astype(dense.dtype), mode="drop")
        return made

    def __add__(self, other: Any) -> Any:
        if isinstance(other, SparseRows):
            if other.shape != self.shape:
                raise ValueError(f"SparseRows of the shapes {self.shape} and {other.shape} cannot be added")
            parts = [self._checked(), other._checked()]
            dtype = jnp.result_type(self.rows, other.rows)
            indices = jnp.concatenate([p.indices for p in parts])
            return SparseRows(indices, jnp.concatenate([p.rows.astype(dtype) for p in parts]), self.shape)
        return self._with_dense(other, self.rows)

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, int) and other == 0:  # sum([a, b])
            return self
        return self._with_dense(other, self.rows)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, SparseRows):
            return self + -other
        return self._with_dense(-other, self.rows) if isinstance(other, (np.ndarray, jax.Array)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return self._with_dense(other, -self.rows)

    def _with_dense(self, other: Any, rows: Any) -> Any:
        if not isinstance(other, (np.ndarray, jax.Array)):
            return NotImplemented
        if other.shape != self.shape:
            raise ValueError(f"SparseRows of shape {self.shape} and an array of shape {other.shape} cannot be added")
        dense = jnp.asarray(other)
        return self._added_to(dense.astype(jnp.result_type(dense, rows)), rows)

    def _scaled(self, by: Callable[[Any, Any], Any], scalar: Any) -> Any:
        if jnp.ndim(scalar) != 0 or isinstance(scalar, (str, SparseRows)):
            raise TypeError(f"SparseRows are multiplied and divided by numbers only, not by {type(scalar).__name__}")
        return SparseRows(self._checked().indices, by(self.rows, scalar), self.shape)

    def __mul__(self, scalar: Any) -> Any:
        return self._scaled(operator.mul, scalar)

    __rmul__ = __mul__

    def __truediv__(self, scalar: Any) -> Any:
        return self._scaled(operator.truediv, scalar)

    def __neg__(self) -> SparseRows:
        return SparseRows(self._checked().indices, -self.rows, self.shape)


def is_sparse(x: Any) -> bool:
    """For `is_leaf` of `jax.tree.map`."""
    return isinstance(x, SparseRows)


def apply_updates(params: Any, updates: Any) -> Any:
    """`params + updates`, leaf by leaf, in the dtypes of `params`; SparseRows change the rows that they hold alone.

    `updates`: the structure of `params`, with a SparseRows or None (no change) in place of an array. As
    `optax.apply_updates`, which takes SparseRows too. With the parameters donated to `jax.jit` the table is changed in
    place.

    >>> table = {"emb": jnp.zeros((3, 2))}
    >>> apply_updates(table, {"emb": SparseRows(jnp.array([1]), jnp.ones((1, 2)), (3, 2))})["emb"].sum(1).tolist()
    [0.0, 2.0, 0.0]
    """

    def one(update: Any, param: Any) -> Any:
        if update is None:
            return param
        if is_sparse(update):
            return update.added_to(param)
        return jnp.asarray(param + update).astype(jnp.result_type(param))

    return jax.tree.map(one, updates, params, is_leaf=lambda x: x is None or is_sparse(x))


# ---- optimisers


class SparseTransformation(NamedTuple):
    """A gradient transformation as optax knows it: `init(params)`, `update(updates, state, params)`."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def sparse(inner: Any) -> SparseTransformation:
    """An optimiser that takes gradients with SparseRows among them, and gives such updates, without a dense table.

    `inner` is a gradient transformation of optax (or any pair of `init` and `update`), also a whole `optax.chain`; the
    result may stand in a chain itself. `optax.apply_updates` and `ab.apply_updates` take its updates. The state is that
    of `inner` for dense parameters.

    In a step `inner` sees, in place of each table whose gradient is a SparseRows, the rows with a gradient, each once:
    of the gradient (summed), of the parameters, and of its state. Other rows and their state stay as they are. So

    - what treats each number for itself and has no memory (SGD, sign, clipping by value) gives what it gives for the
      dense gradient; so does clipping by the global norm, since rows without gradient add nothing to it;
    - momentum and the moments of Adam are lazy: those of a row decay only in the steps in which the row has a gradient,
      and a row without gradient is not moved by its momentum. Counts, and with them the correction of bias, are those
      of all steps. Weight decay, too, reaches a row only in these steps;
    - what looks at a whole table (the norms of LAMB and LARS, the factors of Adafactor) sees the rows with a gradient
      alone; where its state does not fit that, ValueError says so.

    Which leaves are sparse may change from step to step: gradients without SparseRows go to `inner` as they are.

    With optax: `tx = ab.sparse(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)))`. With two functions:

    >>> descent = SparseTransformation(lambda params: (), lambda g, s, p=None: (jax.tree.map(lambda x: -0.1 * x, g), s))
    >>> tx = sparse(descent)
    >>> gradient = SparseRows(jnp.array([2, 2]), jnp.ones((2, 1)), (4, 1))
    >>> updates, _ = tx.update({"emb": gradient}, tx.init(None))
    >>> [round(x, 1) for x in updates["emb"].to_dense()[:, 0].tolist()]
    [0.0, 0.0, -0.2, 0.0]
    """

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        structure: Any
        state_structure: Any
        leaves, structure = jax.tree.flatten(updates, is_leaf=is_sparse)
        tables = {k: leaf.unique() for k, leaf in enumerate(leaves) if is_sparse(leaf)}
        if not tables:
            return inner.update(updates, state, params, **extra)  # type: ignore[no-any-return]
        held = None if params is None else structure.flatten_up_to(params)
        rows = [tables[k].rows if k in tables else leaf for k, leaf in enumerate(leaves)]
        seen = None if held is None else [_take(tables[k], x) if k in tables else x for k, x in enumerate(held)]
        owners = _owners(inner.init, leaves, structure, state)
        state_leaves, state_structure = jax.tree.flatten(state)
        narrow = [x if k is None else _take(tables[k], x) for x, k in zip(state_leaves, owners, strict=True)]
        new, changed = inner.update(
            structure.unflatten(rows),
            state_structure.unflatten(narrow),
            None if seen is None else structure.unflatten(seen),
            **extra,
        )
        made = structure.flatten_up_to(new)
        _same_shapes("updates", rows, made)
        given = [SparseRows(tables[k].indices, x, tables[k].shape) if k in tables else x for k, x in enumerate(made)]
        after = state_structure.flatten_up_to(changed)
        _same_shapes("state", narrow, after)
        written = [
            x if k is None else _put(tables[k], old, x) for x, old, k in zip(after, state_leaves, owners, strict=True)
        ]
        return structure.unflatten(given), state_structure.unflatten(written)

    return SparseTransformation(inner.init, update)


def _take(table: SparseRows, array: Any) -> Any:
    """The rows of an array at the indices of a table; zeros where these are padding."""
    return jnp.asarray(array).at[table.indices].get(mode="fill", fill_value=0)


def _put(table: SparseRows, old: Any, rows: Any) -> Any:
    return jnp.asarray(old).at[table.indices].set(rows.astype(old.dtype), mode="drop")


def _same_shapes(what: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    for x, y in zip(before, after, strict=True):
        if jnp.shape(x) != jnp.shape(y):
            raise ValueError(
                f"sparse: the optimiser turns {what} of shape {jnp.shape(x)} into {jnp.shape(y)} when it sees some "
                "rows of a table; give it the dense gradient: to_dense()"
            )


def _owners(init: Callable[[Any], Any], leaves: Sequence[Any], structure: Any, state: Any) -> list[int | None]:
    """For each array of a state: which leaf of the parameters it has the rows of, among those that are sparse."""

    expected: Any = jax.tree.structure(state)

    def shapes(longer: int | None) -> list[tuple[int, ...]]:
        """Of the arrays of the state for such parameters; leaf `longer` has one more row."""
        params = [
            jax.ShapeDtypeStruct((x.shape[0] + 1, *x.shape[1:]), x.dtype)
            if k == longer
            else jax.ShapeDtypeStruct(jnp.shape(x), x.dtype)
            for k, x in enumerate(leaves)
        ]
        made = jax.eval_shape(init, structure.unflatten(params))
        if jax.tree.structure(made) != expected:
            raise ValueError("sparse: the state is of another optimiser, or of other parameters")
        return [x.shape for x in jax.tree.leaves(made)]

    plain = shapes(None)
    owners: list[int | None] = [None] * len(plain)
    for k, leaf in enumerate(leaves):
        if not is_sparse(leaf):
            continue
        for n, (before, after) in enumerate(zip(plain, shapes(k), strict=True)):
            if before == after:
                continue
            if owners[n] is not None or before != leaf.shape[:1] + before[1:] or after[1:] != before[1:]:
                raise ValueError(
                    f"sparse: the optimiser keeps an array of shape {before} for a table of shape {leaf.shape}, which "
                    "has no row of its own for each row of the table; use to_dense() for this optimiser"
                )
            owners[n] = k
    return owners
