"""Results as Python objects: `unbatch` takes a batched result apart, `stack` puts results of examples together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.arguments import is_leaf, same_structure
from autobatch.call.batches.batch import Batch
from autobatch.call.blueprints import Objects
from autobatch.call.grouped import pack
from autobatch.data.common import Common
from autobatch.data.ragged import Ragged
from autobatch.errors import BatchError, entry

PACKED = (Batch, Ragged, Objects)


@entry
def unbatch(result: Any) -> list[Any]:
    """The results of the examples, as Python objects: a list of B.

    Entries of shape () become Python numbers, others NumPy arrays, rows of a Ragged lists, rows of a Batch objects of
    their class, made without calling `__init__`.

    >>> unbatch((np.arange(2), np.ones((2, 3))))
    [(0, array([1., 1., 1.])), (1, array([1., 1., 1.]))]
    """
    if not jax.tree.leaves(result, is_leaf=lambda x: isinstance(x, PACKED)):
        raise BatchError("nothing in this result is batched, so its number of examples is unknown")
    return _entries(result, None, Common())


def _entries(result: Any, count: int | None, common: Common) -> list[Any]:
    """The entries of all parts of a result side by side: the first `count` of them."""
    leaves, tree = jax.tree.flatten(result, is_leaf=lambda x: isinstance(x, PACKED))
    columns = [_rows(leaf, common)[:count] for leaf in leaves]
    if len({len(c) for c in columns}) > 1:
        raise BatchError(f"the parts of this result have different numbers of examples: {[len(c) for c in columns]}")
    entries = [jax.tree.unflatten(tree, row) for row in zip(*columns, strict=True)]
    return [_in_order(e, result) for e in entries] if _has_order(result) else entries


def _has_order(result: Any) -> bool:
    """Is there a dict in it whose keys are not in the order that JAX gives dicts?"""
    if type(result) is dict:
        return list(result) != list(jax.tree.map(lambda x: 0, result, is_leaf=lambda x: x is not result)) or any(
            map(_has_order, result.values())
        )
    return isinstance(result, (tuple, list)) and any(map(_has_order, result))


def _in_order(entry: Any, result: Any) -> Any:
    """The same entry with its dicts in the order of the result's."""
    if type(result) is dict:
        return {k: _in_order(entry[k], part) for k, part in result.items()}
    if not isinstance(result, (tuple, list)):
        return entry
    parts = [_in_order(x, part) for x, part in zip(entry, result, strict=True)]
    return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)


def _rows(leaf: Any, common: Common) -> list[Any]:
    if isinstance(leaf, Batch):
        return leaf.to_list_with(common, leaf.tokens())
    if isinstance(leaf, Objects):
        return leaf.to_list()
    if isinstance(leaf, Ragged):
        bounds = np.asarray(leaf.offsets).tolist()
        packed = jax.tree.leaves(leaf.values, is_leaf=lambda x: isinstance(x, PACKED))
        rows = _entries(leaf.values, bounds[-1], common) if packed else [leaf.values] * bounds[-1]
        lists = [rows[a:b] for a, b in pairwise(bounds)]
        return list(map(tuple, lists)) if leaf.is_tuples else lists
    if isinstance(leaf, jax.core.Tracer):
        raise BatchError("ab.unbatch needs known values; call it outside jax.jit")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return list(leaf)
    if not isinstance(leaf, (np.ndarray, jax.Array)) or leaf.ndim == 0:
        raise BatchError(f"ab.unbatch takes the result of a batched call; {leaf!r} has no axis of examples")
    array = np.asarray(leaf)
    return array.tolist() if array.ndim == 1 else list(array)


def stack(results: Sequence[Any], function: str) -> Any:
    """What a batched call would return for these results of single examples."""
    if not results:
        raise BatchError(f"{function}: the batch is empty, and without compiling the types of its results are unknown")
    first = results[0]
    if all(r is None for r in results):
        return None
    if any(isinstance(r, (list, range)) for r in results):
        return _stack_lists(results, function)
    if all(_is_number(r) for r in results) and (stacked := _stack_numbers(results)) is not None:
        return stacked
    if not isinstance(first, str) and all(type(r) is type(first) for r in results):
        leaves, tree = jax.tree.flatten(first, is_leaf=lambda x: x is not first)
        if not is_leaf(tree):
            rows = [jax.tree.flatten(r, is_leaf=lambda x, r=r: x is not r) for r in results]  # type: ignore[misc]
            if all(same_structure(t, tree) for _, t in rows):
                parts = [stack([row[k] for row, _ in rows], function) for k in range(len(leaves))]
                return jax.tree.unflatten(tree, parts)
    return pack(list(results))


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, np.generic, np.ndarray, jax.Array))


def _stack_numbers(results: Sequence[Any]) -> Any:
    """One array, a number broadcast to the shape of the arrays beside it; None where their shapes differ."""
    if all(isinstance(r, (bool, int, float, complex)) for r in results):
        return jnp.asarray(np.array(list(results)))
    arrays = [jnp.asarray(r) for r in results]
    try:
        shape = jnp.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return None  # a Batch of arrays
    return jnp.stack([jnp.broadcast_to(a, shape) for a in arrays])


def _stack_lists(results: Sequence[Any], function: str) -> Ragged:
    rows = [x for r in results for x in r]
    offsets = np.cumsum([0, *(len(r) for r in results)]).astype(np.int32)
    return Ragged(stack(rows, function) if rows else jnp.zeros(0), jnp.asarray(offsets))
