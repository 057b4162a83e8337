"""The meaning of folds, and of data columns on the device, as all back ends that compute rows have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Array
from autobatch.ir.system import Fold

NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda dtype: np.zeros((), dtype),
    "prod": lambda dtype: np.ones((), dtype),
    "max": lambda dtype: _extreme(dtype, -1),
    "min": lambda dtype: _extreme(dtype, 1),
    "any": lambda dtype: np.zeros((), np.bool_),
    "all": lambda dtype: np.ones((), np.bool_),
}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "any": jnp.logical_or,
    "all": jnp.logical_and,
}


def combine(fold: Fold) -> Callable[[Any, Any], Any]:
    """What a fold holds after one more element."""
    return _COMBINE.get(fold.kind) or partial(leaf.extreme, fold.kind, fold.even)


def _extreme(dtype: Any, sign: int) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(sign * np.inf, dtype)
    if dtype == np.bool_:
        return np.asarray(sign > 0)
    info = np.iinfo(dtype)
    return np.asarray(info.max if sign > 0 else info.min, dtype)


def data_column(values: Any, type: Array) -> Any:
    """A column of the examples as the device computes with it."""
    if type.dtype.startswith("key<"):
        return jax.random.wrap_key_data(jnp.asarray(values), impl=jax_compat.key_implementation(type.dtype))
    return jnp.asarray(values).astype(jax_compat.device_dtype(type))
