"""Trees of tuples and dicts that are made of trees of the examples, and of a function's own results."""

from __future__ import annotations

import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.python.rewritten import CASES, DIFFERENTIATED, of_words

XLA = pytest.param("xla", marks=[pytest.mark.xla, pytest.mark.long])


@pytest.mark.parametrize("backend", ["llvm", "auto"])
@pytest.mark.parametrize("function", CASES, ids=[f.__name__ for f in CASES])
def test_programs(function, backend):
    args = CASES[function]
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(*args))
    assert_same(found, list(map(function, *args)), tolerance=1e-4)


@pytest.mark.parametrize("backend", ["llvm", XLA])
@pytest.mark.parametrize("function", DIFFERENTIATED, ids=[f.__name__ for f in DIFFERENTIATED])
def test_derivatives(function, backend):
    args, by, step = CASES[function], DIFFERENTIATED[function], 1e-6
    with ab.options(trace=False):
        found = ab.grad(ab.batched(function, backend=backend), by)(*args)

    def moved(example, step):
        return function(*(x + step if k == by else x for k, x in enumerate(example)))

    examples = list(zip(*args, strict=True))
    wanted = [(moved(x, step) - moved(x, -step)) / (2 * step) for x in examples]
    np.testing.assert_allclose(list(found), wanted, rtol=1e-3, atol=1e-3)


def test_does_not_nest_without_end():
    """The type of a result that holds two of its own results is found at once."""
    assert ab.unbatch(ab.batched(of_words)([3])) == [of_words(3)]
