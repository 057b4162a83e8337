"""Optimisers over tables of which a step touches few rows: `sparse(optax.adam(1e-3))`.

    grads    {"W": dense, "emb": SparseRows}              what the optimiser inside sees
    unique   emb: indices [1 3 5], rows [3, d]            emb: the gradient [3, d]
    state    mu, nu of emb: [V, d]                        mu, nu: their rows 1 3 5, [3, d]
    params   emb: [V, d]                                  its rows 1 3 5, [3, d]
    updates  emb: SparseRows of those rows                and the rows of mu and nu are written back

Which arrays of a state belong to which table is found by asking for the state of a table with one more row: those
arrays have one more row too. Nothing is known about any optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from autobatch.common.sparse_rows import SparseRows, is_sparse


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
