"""Strings that a function puts together and keeps in containers that have memory: their code points have some too, in
machine code; other back ends know them on the host, or trace the call."""

from __future__ import annotations

from dataclasses import is_dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.errors import UnsupportedError
from autobatch.testing import assert_same
from tests.python import drawn_kept_strings, kept_strings

P = jnp.asarray([0.7, -0.4], jnp.float32)
NUMBERS = kept_strings.NAMES, kept_strings.XS


def check(function, shared, *data, backend):
    wanted = [function(*shared, *x) for x in zip(*data, strict=True)]
    f = ab.batched(function, in_axes=(*(None for _ in shared), *(0 for _ in data)), backend=backend)
    assert_same(ab.unbatch(f(*shared, *data)), wanted, tolerance=1e-4)
    return wanted, f


@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(program=drawn_kept_strings.programs())
def test_random_programs(program):
    wanted, f = check(program.function, (P,), *NUMBERS, backend="llvm")
    if isinstance(wanted[0], list) or is_dataclass(wanted[0]) or wanted[0] is None:
        return
    main = program.function

    def total(p):
        return sum(jnp.float32(0) + main(p, n, x) for n, x in zip(*NUMBERS, strict=True))

    np.testing.assert_allclose(ab.grad(f)(P, *NUMBERS), jax.grad(total)(P), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["llvm", "auto"])
@pytest.mark.parametrize(
    ("function", "data"),
    [
        (kept_strings.tokens, (kept_strings.TEXTS,)),
        (kept_strings.renamed, (kept_strings.TREES,)),
        (kept_strings.put_by_a_function, (kept_strings.NAMES,)),
        (kept_strings.paths, (kept_strings.TREES,)),
        (kept_strings.grouped, (kept_strings.NAMES,)),
        (kept_strings.in_order, NUMBERS),
        (kept_strings.last_of_each, NUMBERS),
    ],
)
def test_programs(function, data, backend):
    _, f = check(function, (), *data, backend=backend)
    assert f.explain(*data).data["backend"]["taken"] == "llvm"


def test_results_of_other_functions_and_of_packed_examples():
    trees = ab.batched(kept_strings.renamed)
    again = trees(trees(trees.pack(kept_strings.TREES)))
    wanted = [kept_strings.renamed(kept_strings.renamed(t)) for t in kept_strings.TREES]
    assert_same(ab.unbatch(again), wanted, tolerance=1e-4)


def test_strings_that_jit_would_have_to_know():
    f = ab.batched(kept_strings.renamed, backend="llvm")
    with pytest.raises(UnsupportedError, match="a string that is made inside the function cannot be a result"):
        jax.jit(lambda t: f(t).name)(f.pack(kept_strings.TREES))


def test_more_strings_than_there_is_room_for():
    names = [[f"{'ab' * 9}{k}" for k in range(50)]]
    check(kept_strings.in_order, (), names, [[float(k % 7) for k in range(50)]], backend="llvm")
