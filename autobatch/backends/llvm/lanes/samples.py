"""Numbers drawn of the gamma distribution, in `jax.lax`: those that JAX draws of the same key.

The method is that of G. Marsaglia and W. W. Tsang, "A Simple Method for Generating Gamma Variables" (2000), and keys
are split as JAX splits them. Where roundings decide a comparison otherwise, which is rare, it is another number.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autobatch.ir.ops import Op


def random_gamma(op: Op, key: jax.Array, a: jax.Array) -> jax.Array:
    count = math.prod(a.shape[key.ndim :])
    keys = jax.vmap(lambda k: jax.random.split(k, count))(key.flatten()).flatten()
    if a.size == 1:
        return _one(keys[0], a.reshape(()), op["log_space"]).reshape(a.shape)
    found = lax.map(lambda each: _one(each[0], each[1], op["log_space"]), (keys, a.flatten()))
    return jnp.reshape(found, a.shape)


def _one(key: jax.Array, a: jax.Array, log_space: bool) -> jax.Array:
    """Below 1 it is a number drawn for a + 1, times a power of a uniform one."""
    high = a >= 1
    d = jnp.where(high, a, a + 1) - jnp.asarray(1.0 / 3.0, a.dtype)
    c = jnp.asarray(1.0 / 3.0, a.dtype) / lax.sqrt(d)

    def refused(state: Any) -> Any:
        _, square, v, u = state
        far = u >= 1 - jnp.asarray(0.0331, a.dtype) * (square * square)
        return far & (lax.log(u) >= square * 0.5 + d * ((1 - v) + lax.log(v)))

    def draw(state: Any) -> Any:
        key, of_x, of_u = jax.random.split(state[0], 3)

        def again(inner: Any) -> Any:
            key, part = jax.random.split(inner[0])
            x = jax.random.normal(part, (), a.dtype)
            return key, x, 1 + x * c

        start = (of_x, jnp.zeros_like(a), jnp.full_like(a, -1))
        _, x, v = lax.while_loop(lambda inner: inner[2] <= 0, again, start)
        return key, x * x, v * v * v, jax.random.uniform(of_u, (), a.dtype)

    key, other = jax.random.split(key)
    start = (key, jnp.zeros_like(a), jnp.ones_like(a), jnp.full_like(a, 2))
    _, _, v, _ = lax.while_loop(refused, draw, start)
    if log_space:
        less = -jax.random.exponential(other, (), a.dtype)
        return lax.log(d) + lax.log(v) + jnp.where(high | (less == 0), 0, less * (1 / a))
    u = 1 - jax.random.uniform(other, (), a.dtype)
    return d * v * jnp.where(high, 1, lax.pow(u, 1 / a))
