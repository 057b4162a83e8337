"""Strings of the examples in kernels: their letters are columns that every thread reads."""

import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.memory.test_letters import EXAMPLES, counted, vowels


@pytest.mark.parametrize("program", [counted, vowels], ids=lambda f: f.__name__)
def test_equals_the_loop(gpu, program):
    f = ab.batched(program, backend="cuda")
    assert_same(ab.unbatch(f(EXAMPLES)), f.loop(EXAMPLES))
