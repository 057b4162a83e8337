"""Examples that fail are cut off from derivatives: what their rows contribute is zero, whatever they have computed.

    y = sqrt(x)             x~ = y~ * (0.5 / y)
    check(x >= 0)     ->    x~ = 0 where y~ is 0 and that is not finite

The rows of an example that has failed have cotangents of zero (`on_error="mask"`), and zero times infinity is not a
number. A row of another example whose cotangent happens to be zero keeps its derivatives, second ones too, wherever
they are finite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat
from autobatch.ir.types import Array


def without_failed(type: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """As a closed jaxpr, for one row: `x` of this type and its cotangents -> `x`, or `other` where it is not finite and
    they are zero."""
    return _traced(type, cotangents, other, bool(jax.config.read("jax_enable_x64")))


def as_checked(type: Array, given: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """The same for `x`, `y` and cotangents: `x`, or `other` where `y` is not finite and they are zero."""
    return _by_another(type, given, cotangents, other, bool(jax.config.read("jax_enable_x64")))


@lru_cache(maxsize=1024)
def _traced(type: Array, cotangents: tuple[Array, ...], other: float, x64: bool) -> Any:
    def keep(x: Any, *cts: Any) -> Any:
        return jnp.where(jnp.isfinite(x) | _any_moves(x, cts), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, *cotangents)[0]


@lru_cache(maxsize=1024)
def _by_another(type: Array, given: Array, cotangents: tuple[Array, ...], other: float, x64: bool) -> Any:
    def keep(x: Any, y: Any, *cts: Any) -> Any:
        return jnp.where(jnp.all(jnp.isfinite(y)) | _any_moves(None, cts), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, given, *cotangents)[0]


def _any_moves(x: Any, cotangents: Any) -> Any:
    """Is a cotangent of the row not zero? Number by number where they have the shape of `x`."""
    if x is not None and all(ct.shape == x.shape for ct in cotangents):
        found = [ct != 0 for ct in cotangents]
    else:
        found = [jnp.any(ct != 0) for ct in cotangents]
    whole = found[0]
    for y in found[1:]:
        whole = whole | y
    return whole
