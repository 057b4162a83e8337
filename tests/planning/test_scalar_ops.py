"""What the host computes number by number is what it computes for many rows."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.planning.scalar import PYTHON

NAN = float("nan")
FLOATS = (0.0, -0.0, 1.0, -2.5, 1e308, float("inf"), -float("inf"), NAN)
OF_NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("name", OF_NUMPY)
def test_floats(name):
    with np.errstate(all="ignore"):
        for xs in itertools.product(FLOATS, repeat=OF_NUMPY[name].nin):
            found, wanted = PYTHON[name](*xs), OF_NUMPY[name](*xs)
            np.testing.assert_array_equal(found, wanted)  # NaN is NaN
            if name not in ("max", "min"):  # of two zeros either
                assert np.signbit(np.float64(found)) == np.signbit(np.float64(wanted)) or np.isnan(wanted)


def larger(x, y):
    n = 0
    while 1 < 2:
        n += 1
        if x < x:
            return n
        if n > 3:
            break
        x = jnp.maximum(y, x)
    return 10 if x != x else 20


def smaller(x, y):
    n = 0
    while n < 3:
        n += 1
        if y <= 0.0:
            break
        x = jnp.minimum(x, NAN)
    return 10 if x != x else 20


@pytest.mark.parametrize("function", [larger, smaller])
@pytest.mark.parametrize("backend", ["auto", "interpret", "xla", "llvm"])
def test_nan_stays_in_an_extreme_of_arrays(function, backend):
    xs, ys = [NAN, 1.0, 2.0, NAN, 0.5], [0.0, NAN, 1.0, NAN, -1.0]
    found = ab.batched(function, backend=backend)(xs, ys)
    assert found.tolist() == [function(x, y) for x, y in zip(xs, ys)]
