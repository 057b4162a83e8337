"""What programs are checked on that take a shared number, and a list of two or one number of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import autobatch as ab
from autobatch.testing import check_equivalence

BATCH = [[0.9, 2.4], [2.2, 1.7], [3.1, 0.3], [0.61, 5.2]]
W, X = jnp.float32(1.1), jnp.asarray([0.9, 2.2, 3.1, 0.61], jnp.float32)


def check(f: Callable[..., Any], backend: str, grads: bool) -> None:
    """The batched function is the plain one on a back end; so are derivatives where they are asked for."""
    f = ab.batched(f, in_axes=(None, 0))
    check_equivalence(f, BATCH, (W,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


def check_numbers(f: Callable[..., Any], backend: str, grads: bool) -> None:
    """The same for functions, batched already, that take a shared number and one of their own, and may loop long."""
    with ab.options(max_iterations=3_000):
        check_equivalence(f, X, (W,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)
