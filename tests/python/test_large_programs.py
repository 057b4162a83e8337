"""Programs with more arguments than ctypes passes, and with longer chains than Python's stack is deep."""

import numpy as np
import pytest

import autobatch as ab

COUNT = 1100
WEIGHTS = tuple(np.float32(k % 7) for k in range(COUNT))


def chain(weights, x):
    for w in weights:
        x = x * 0.5 + w
    return x


@pytest.mark.parametrize("backend", ["auto", "xla", "llvm"])
def test_more_arguments_than_a_call_of_c_has(backend):
    found = ab.batched(chain, in_axes=(None, 0), backend=backend)(WEIGHTS, [1.0, 2.0])
    np.testing.assert_allclose(found, [chain(WEIGHTS, 1.0), chain(WEIGHTS, 2.0)], rtol=1e-6)


@pytest.mark.long
def test_more_results_than_a_call_of_c_has():
    slopes = ab.grad(ab.batched(chain, in_axes=(None, 0), backend="llvm"))(WEIGHTS, [1.0, 2.0])
    np.testing.assert_allclose(slopes[-3:], [0.5, 1.0, 2.0])
    assert len(slopes) == COUNT
