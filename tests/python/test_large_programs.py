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


def doubled(x):
    """What a turn leaves reads each value twice: to follow them all there are as many ways as 2 ** 40."""
    s = x
    for k in range(4):
        t = x * 0.3 + k
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        t = t + t
        t = t * 0.5 + t * 0.5
        s = t
    return s * 1e-6


def test_values_that_are_read_twice_again_and_again():
    found = ab.batched(doubled, backend="llvm")([0.5, -0.25])
    np.testing.assert_allclose(found, [doubled(0.5), doubled(-0.25)], rtol=1e-5)
