"""Loops that floats of the examples end: on the device where its numbers are the host's, else laid out by the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same


def newton(p: Any, a: Any) -> Any:
    x, n = a, 0
    while True:
        step = (x * x - a) / (2 * x)
        x, n = x - step, n + 1
        if abs(step) < 1e-6:
            break
    return x * p, n


def decides(p: Any, x: Any) -> Any:
    """Its number of turns is the length of a list."""
    k = 0
    while x > 0.1:
        x, k = x * 0.5, k + 1
    return [p * i for i in range(k)]


def calls(p: Any, x: Any) -> Any:
    """What it gives decides whether the function is called again."""
    while x > 1.0:
        x = x * 0.4
    return p if x < 0.2 else calls(p, x - 0.3) + x


def grows(p: Any, x: Any) -> Any:
    """An integer that 32 bits do not hold."""
    n = 1
    while x > 0.5:
        x, n = x - 1.0, n * 100_000
    return p * (n % 7)


def counts(p: Any, n: Any) -> Any:
    k = 0
    while k < n:
        k = k + 1
    return k * p


def is_masked(function: Any, batch: Any) -> bool:
    f = ab.batched(function, in_axes=(None, 0))
    return "masked" in f.lower(jnp.asarray(2.0), batch).as_text("spmd")


XS = np.array([2.75, 0.03, 1.0, 9.5])
CASES = [(newton, XS, True), (decides, XS, False), (calls, XS, False), (grows, XS % 4, False), (counts, XS, False)]


@pytest.mark.parametrize(("function", "batch", "masked"), CASES, ids=lambda x: getattr(x, "__name__", None))
def test_equal_to_plain_python(function: Any, batch: Any, masked: bool) -> None:
    p = jnp.asarray(2.0)
    f = ab.batched(function, in_axes=(None, 0), backend="interpret")
    assert_same(ab.unbatch(f(p, batch)), f.loop(p, batch), function.__name__)
    assert is_masked(function, batch) == masked


def test_derivatives() -> None:
    root = ab.batched(lambda p, a: newton(p, a)[0], in_axes=(None, 0))
    by_p, by_a = ab.grad(root, argnums=(0, 1))(jnp.asarray(2.0), XS)
    np.testing.assert_allclose(by_p, np.sqrt(XS).sum(), rtol=1e-9)
    np.testing.assert_allclose(by_a, 1 / np.sqrt(XS), rtol=1e-9)


def test_floats_of_python_have_all_their_bits() -> None:
    """Ten times 0.1 is less than 1 in 64 bits, and more in 32."""

    def steps(p: Any, by: Any) -> Any:
        at, n = 0.0, 0
        while at < 1.0:
            at, n = at + 0.1 * by, n + 1
        return p * n

    with jax.enable_x64(False):
        f = ab.batched(steps, in_axes=(None, 0), backend="interpret")
        one = jnp.asarray(1.0)
        assert np.asarray(f(one, [1.0, 0.5])).tolist() == f.loop(one, [1.0, 0.5]) == [11.0, 20.0]
        assert not is_masked(steps, [1.0, 0.5]) and is_masked(steps, np.array([1.0, 0.5], np.float32))
        assert float(f(one, np.array([1.0], np.float32))[0]) == float(steps(one, np.float32(1.0))) == 10.0
