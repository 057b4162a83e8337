"""Dicts, sets and queues that computed numbers change: any sequence of operations, aliases, arms, failures."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.programs import TABLES

BACKENDS = ("interpret", "xla", "llvm")
LONG = pytest.mark.long
BATCH = [[0.9, 0.4, -0.7], [3.1, 0.3, 0.8], [0.61, 0.2, 0.3]]
ONE = jnp.float32(1.0)


def check(f: Any, batch: Any, backends: Any = BACKENDS, grads: bool = True) -> None:
    f = ab.batched(f, in_axes=(None, 0))
    check_equivalence(f, batch, (jnp.float32(1.1),), grads=grads, backends=backends, jit=False, tolerance=2e-5)


@pytest.mark.parametrize("name", ["dict_get", "dict_tuple"])
def test_programs_whose_numbers_decide(name: str) -> None:
    program = next(p for p in TABLES if p.name == name)
    check_equivalence(
        program.load("computed"), BATCH, (jnp.float32(1.1),), backends=("interpret",), jit=False, tolerance=2e-5
    )


# ---- any sequence of operations

ROUNDS = 8
CODES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=ROUNDS)


def padded(batch: list[list[tuple[int, int]]]) -> list[Any]:
    return [np.array([*codes, *[(-1, 0)] * (ROUNDS - len(codes))], np.int32) for codes in batch]


def run_dict(w: Any, codes: Any) -> Any:
    """Operations on a dict, one for each pair of a code and a key; numbers decide which."""
    d, total, n = {7: w}, w, 0
    while n < codes.shape[0] and codes[n, 0] * w >= 0.0:
        code, k = codes[n, 0] * w, int(codes[n, 1])
        if code < 0.5:
            d[k] = total * 0.5
        elif code < 1.5:
            d[k] = d.get(k, 0.5) + total
        elif code < 2.5:
            total = total * 0.5 + (d[k] if k in d else w)
        elif code < 3.5:
            total = total + d.pop(k, 0.25 * w)
        elif code < 4.5:
            if k in d:
                del d[k]
        elif code < 5.5:
            total = total * 0.5 + d.setdefault(k, 2.0 * w)
        elif code < 6.5:
            for key, value in d.items():
                total = total * 0.5 + value * (key + 1)
        elif code < 7.5:
            d.update({k: w, 9: total})
        else:
            d = {key: value * 0.5 for key, value in d.items() if key != k}
        n = n + 1
    for value in d.values():
        total = total * 0.5 + value
    return total + sum(d.keys()) + len(d)


@settings(max_examples=6)
@given(batch=st.lists(CODES, min_size=3, max_size=3))
def test_any_sequence_of_dict_operations(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_dict, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("llvm",), jit=False, grads=False, tolerance=2e-5)


@LONG
@settings(max_examples=8)
@given(batch=st.lists(CODES, min_size=2, max_size=2))
def test_any_sequence_of_dict_operations_and_derivatives(batch: list[list[tuple[int, int]]]) -> None:
    f = ab.batched(run_dict, in_axes=(None, 0))
    check_equivalence(f, padded(batch), (ONE,), backends=("interpret", "xla"), jit=False, tolerance=2e-5)


# ---- failures


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_that_is_missing_fails_its_example_alone(backend: str) -> None:
    def missing(w: Any, x: Any) -> Any:
        d, y, k = {0: w}, w * x, 0
        while y < 3.0:
            y = y + 1.0
            k = k + 1
            d[k] = y
        return d[2] * 2.0

    f = ab.batched(missing, in_axes=(None, 0), backend=backend)
    with pytest.raises(ab.ExampleError) as failed:
        f(ONE, np.array([0.5, 1.5, 2.5, 7.5], np.float32))
    assert [(x.index, x.kind, x.message) for x in failed.value.failures] == [(2, "KeyError", "2"), (3, "KeyError", "2")]
    assert failed.value.failures[0].span.line == missing.__code__.co_firstlineno + 6
