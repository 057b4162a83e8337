"""Rows that have failed, or do not use a value, are cut off from derivatives: what they contribute is zero, whatever
they have computed.

    y = sqrt(x)             x~ = y~ * (0.5 / y)
    check(x >= 0)     ->    x~ = 0 where y~ is 0 and that is not finite

The rows of an example that has failed have cotangents of zero (`on_error="mask"`), so have rows that do not use what
they have computed (`unused.py`), and zero times infinity is not a number. A row of another example whose
cotangent happens to be zero keeps its derivatives, second ones too, wherever they are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from autobatch.ir import jax_compat
from autobatch.ir.types import Array


def without_failed(type: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """As a closed jaxpr, for one row: `x` of this type and its cotangents -> `x`, or `other` where it is not finite and
    they are zero."""
    return _traced(type, cotangents, other, bool(jax.config.read("jax_enable_x64")))


def as_checked(type: Array, given: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """The same for `x`, `y` and cotangents: `x`, or `other` where `y` is not finite and they are zero."""
    return _by_another(type, given, cotangents, other, bool(jax.config.read("jax_enable_x64")))


def in_part(run: Callable[[Sequence[Any]], Sequence[Any]], xs: Sequence[Any], rows: Sequence[bool]) -> list[Any]:
    """`run(xs)`, where a row whose cotangents are zero has derivatives of zero where they would not be finite. `rows`:
    which of `xs` have a leading axis of rows; without one there is one row.

    JAX can push the derivative forward, but not differentiate the operation itself in forward mode."""
    moving = [k for k, x in enumerate(xs) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    many = any(rows)
    cut = [rows[k] or not many for k in moving]

    def whole(moved: Sequence[Any], held: Sequence[Any]) -> list[Any]:
        found = list(held)
        for k, x in zip(moving, moved, strict=True):
            found[k] = x
        return list(run(found))

    @jax.custom_vjp
    def apply(moved: list[Any], held: list[Any]) -> list[Any]:
        return whole(moved, held)

    def forward(*given: Any) -> tuple[list[Any], Any]:
        moved, held = jax.tree.map(lambda x: x.value, given)
        return whole(moved, held), (moved, held)

    def backward(residuals: Any, all_cotangents: list[Any]) -> Any:
        moved, held = residuals
        # the zeros of one result would reach what is not finite, where another one is read
        read = [
            k for k, ct in enumerate(all_cotangents) if not (type(ct) is SymbolicZero or (not many and _is_zero(ct)))
        ]
        cotangents = [all_cotangents[k] for k in read]
        floats = [ct for ct in cotangents if jnp.issubdtype(ct.dtype, jnp.inexact)]
        zero = [jnp.all(ct == 0, axis=tuple(range(many, ct.ndim))) for ct in floats]
        idle = reduce(jnp.logical_and, zero, jnp.bool_(True))

        def finite(x: Any) -> Any:
            unused = idle.reshape(-1, *(1,) * (x.ndim - 1)) if many else idle
            return jnp.where(jnp.isfinite(x) | ~unused, x, jnp.zeros_like(x))

        safe = [finite(x) if c else x for x, c in zip(moved, cut, strict=True)]
        _, pull = jax.vjp(lambda moved: [whole(moved, held)[k] for k in read], safe)
        (found,) = pull(cotangents)
        return [finite(x) if c else x for x, c in zip(found, cut, strict=True)], None

    apply.defvjp(forward, backward, symbolic_zeros=True)
    made: list[Any] = apply(
        [jnp.asarray(xs[k]) for k in moving], [None if k in moving else x for k, x in enumerate(xs)]
    )
    return made


def _is_zero(ct: Any) -> bool:
    """Is it known to be zero?"""
    return not isinstance(ct, jax.core.Tracer) and not jnp.any(ct)


@lru_cache(maxsize=1024)
def _traced(type: Array, cotangents: tuple[Array, ...], other: float, x64: bool) -> Any:
    def keep(x: Any, *cts: Any) -> Any:
        return jnp.where(jnp.isfinite(x) | _any_moves(x, cts, True), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, *cotangents)[0]


@lru_cache(maxsize=1024)
def _by_another(type: Array, given: Array, cotangents: tuple[Array, ...], other: float, x64: bool) -> Any:
    def keep(x: Any, y: Any, *cts: Any) -> Any:
        finite = _for_each(x, jnp.min, jnp.where(jnp.isfinite(y), jnp.float32(1), jnp.float32(0))) != 0
        return jnp.where(finite | _any_moves(x, cts, False), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, given, *cotangents)[0]


def _any_moves(x: Any, cotangents: Any, by_number: bool) -> Any:
    """Is a cotangent of the row not zero? For each number of `x`; `by_number`: each for itself, where they have its
    shape. (What is reduced is a number, and compared behind that: level loops have a kernel for that.)"""
    if by_number and all(ct.shape == x.shape for ct in cotangents):
        found = [ct != 0 for ct in cotangents]
    else:
        found = [_for_each(x, jnp.max, jnp.abs(ct)) != 0 for ct in cotangents]
    return reduce(jnp.logical_or, found)


def _for_each(x: Any, reduction: Callable[..., Any], y: Any) -> Any:
    """A number that a row has, for each number of `x`."""
    return jnp.broadcast_to(reduction(y, initial=0) if y.size == 0 else reduction(y), x.shape)
