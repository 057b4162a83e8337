"""Whole functions for processors without registers for masks, whose masks are vectors between blocks."""

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import AVX2, AVX512, BY_WIDTH, SSE2
from tests.backends.lanes.test_melding import drawn, evaluate
from tests.backends.whole.test_whole import batched, swinging, swinging_far

try:
    HOST = machine_code.host().target
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

KINDS = [k for k in (AVX2, SSE2) if BY_WIDTH.index(k) >= BY_WIDTH.index(HOST)]


def text_of(f, *arguments):
    return str(f.lower(*arguments).compile().executable.made.program.text)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("name", ["mandel", "collatz", "chase", "sort3", "horner"])
def test_the_same_bits(name, kind):
    f, arguments = batched(name)
    found = f(*arguments)
    with machine_code.written_for(kind):
        again = batched(name)[0]
        jax.tree.map(np.testing.assert_array_equal, found, again(*arguments))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_same_bits_of_lanes_that_end_apart_and_of_recursion(kind):
    x = np.linspace(-0.9, 1.5, 75).astype(np.float32)
    rng = np.random.default_rng(3)
    trees = [drawn(rng, int(rng.integers(0, 6))) for _ in x]
    for fun, arguments in ((swinging, (x,)), (swinging_far, (x,)), (evaluate, (trees, x))):
        found = ab.batched(fun, backend="llvm")(*arguments)
        with machine_code.written_for(kind):
            np.testing.assert_array_equal(ab.batched(fun, backend="llvm")(*arguments), found)


def test_masks_of_loops_are_vectors_where_there_are_no_registers_for_them():
    """LLVM sees no bits that it could pack: an empty piece of assembly stands between."""
    x = np.zeros(3, np.float32)
    assert (HOST is AVX512) == ("call <8 x i32> asm" not in text_of(ab.batched(swinging, backend="llvm"), x))
    with machine_code.written_for(AVX2):
        assert "call <8 x i32> asm" in text_of(ab.batched(swinging, backend="llvm"), x)
