"""Arrays of NumPy as arrays of JAX, where what a call costs matters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.ir.jax_compat import to_device

_NUMBERS = (np.ndarray, np.generic, jax.Array, bool, int, float, complex)
"""What becomes an array; strings, say, are results as they are."""


def as_jax(result: Any) -> Any:
    """A pytree with arrays of JAX in the place of NumPy's; they hold copies."""
    leaves, tree = jax.tree.flatten(result)
    return jax.tree.unflatten(tree, map(_of, leaves))


def _of(x: Any) -> Any:
    if type(x) is np.ndarray:
        return to_device(x)
    return jnp.asarray(x) if isinstance(x, _NUMBERS) else x
