"""Programs under `jax.shard_map`, whose types say over which axes of the mesh a value varies.

What we emit mixes values that vary with numbers that do not, in loops too, which JAX refuses. Each device runs the
whole of it by itself, so there it is one operation, of whose inside those types say nothing: all of its operands vary,
and all of its results. Operands that do not vary are cast, whose derivative is the sum over the axes (JAX's pages,
"Manual parallelism with shard_map").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat

NOWHERE: frozenset[str] = frozenset()


def as_one(function: Callable[..., Any], *trees: Any) -> Any:
    """`function(*trees)`; one operation with a derivative in reverse where some array varies over axes of a mesh."""
    leaves, structure = jax.tree.flatten(trees)
    if not any(isinstance(x, jax.core.Tracer) for x in leaves):
        return function(*trees)
    axes = NOWHERE.union(*map(_axes, leaves))
    if not axes:
        return function(*trees)
    return _run(function, structure, axes, [_over(jnp.asarray(x), axes) for x in leaves])


def _run(function: Callable[..., Any], structure: Any, axes: frozenset[str], leaves: list[Any]) -> Any:
    trees: dict[str, Any] = {}

    def flat(*xs: Any) -> list[Any]:
        found, trees["result"] = jax.tree.flatten(function(*jax.tree.unflatten(structure, xs)))
        return found

    def moving(xs: Any) -> list[int]:
        return [k for k, x in enumerate(xs) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def forwards(*xs: Any) -> list[Any]:
        """The results, then what the pullback holds."""
        wrt = moving(xs)

        def run(moved: list[Any]) -> tuple[list[Any], list[Any]]:
            whole = list(xs)
            for k, x in zip(wrt, moved, strict=True):
                whole[k] = x
            found = flat(*whole)
            return [found[k] for k in moving(found)], found

        _, pull, found = jax.vjp(run, [xs[k] for k in wrt], has_aux=True)
        kept, trees["pull"] = jax.tree.flatten(pull)
        return [*found, *kept]

    @jax.custom_vjp
    def call(*xs: Any) -> list[Any]:
        return jax_compat.as_one(flat, xs)

    def forward(*xs: Any) -> tuple[list[Any], Any]:
        whole = jax_compat.as_one(forwards, xs)
        count = trees["result"].num_leaves
        return whole[:count], (whole[count:], xs)

    def backward(held: Any, cotangents: list[Any]) -> Any:
        kept, xs = held
        given = [_over(ct, axes) for ct in cotangents if ct.dtype != jax.dtypes.float0]
        given = [ct for ct in given if jnp.issubdtype(ct.dtype, jnp.inexact)]

        def pulled(*values: Any) -> Any:
            pull = jax.tree.unflatten(trees["pull"], values[: len(kept)])
            return pull(list(values[len(kept) :]))[0]

        found = iter(jax_compat.as_one(pulled, (*kept, *given)))
        wrt = set(moving(xs))
        return tuple(next(found) if k in wrt else None for k in range(len(xs)))

    call.defvjp(forward, backward)
    results = call(*leaves)
    return jax.tree.unflatten(trees["result"], results)


def _axes(x: Any) -> frozenset[str]:
    """The axes of a mesh over which an array varies."""
    if not isinstance(x, jax.core.Tracer):
        return NOWHERE
    found: Any = jax.typeof(x)
    held = getattr(found, "manual_axis_type", None)
    return getattr(held, "varying", None) or getattr(found, "vma", None) or NOWHERE


def _over(x: Any, axes: frozenset[str]) -> Any:
    missing = tuple(sorted(axes - _axes(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x
