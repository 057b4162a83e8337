"""Operations that look alike, of the same shapes in one batch, are not taken for one another.

A library that batches operations by what it sees of them must see enough: DyNet 2.2, whose batches are formed by
signatures, takes `elu` for `rectify`, and the memory cell of one LSTM for that of another. Here the same programs, as
they are compiled and as they are traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence

ACTIVATIONS: tuple[Callable[[Any], Any], ...] = (jax.nn.relu, jax.nn.elu, jnp.tanh, jax.nn.sigmoid, jnp.negative)
HIDDEN = 4


def vectors(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def two_activations(w: Any, x: Any) -> Any:
    a, b = jax.nn.relu(w * x[0]), jax.nn.elu(w * x[1])
    return a, b, a.sum() + b.sum()


def test_two_activations_of_one_shape() -> None:
    """Of the same operand, too: then `elu` is `relu` where that is positive, and nowhere else."""
    same = jnp.stack([vectors(7, HIDDEN)] * 2)
    check_equivalence(two_activations, [*vectors(0, 3, 2, HIDDEN), same], (jnp.float32(1.5),), jit=False)


def activated(w: Any, codes: list[int]) -> Any:
    """Each vector by the activation that its code names, in one line."""
    found = []
    for k, code in enumerate(codes):
        x = w[k]
        if code == 0:
            x = jax.nn.relu(x)
        elif code == 1:
            x = jax.nn.elu(x)
        elif code == 2:
            x = jnp.tanh(x)
        elif code == 3:
            x = jax.nn.sigmoid(x)
        else:
            x = -x
        found.append(x)
    return found


def activated_in_a_table(w: Any, codes: list[int]) -> Any:
    """The same, by one line of the source for all; functions in a dict are traced."""
    made = {k: ACTIVATIONS[code](w[k]) for k, code in enumerate(codes)}
    return [made[k] for k in sorted(made)]


CODES = st.lists(st.lists(st.integers(0, len(ACTIVATIONS) - 1), min_size=1, max_size=5), min_size=2, max_size=4)


@settings(max_examples=4)
@given(batch=CODES)
def test_any_activations_in_one_batch(batch: list[list[int]]) -> None:
    check_equivalence(activated, batch, (vectors(1, 5, HIDDEN),), backends=("interpret",), jit=False, grads=False)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
@settings(max_examples=4)
@given(batch=CODES)
def test_any_activations_of_one_line_that_is_traced(batch: list[list[int]]) -> None:
    f, w = ab.batched(activated_in_a_table, in_axes=(None, 0)), vectors(1, 5, HIDDEN)
    with ab.options(trace=True, backend="interpret"):
        found = ab.unbatch(f(w, batch))
        wanted = f.loop(w, batch)
        for xs, ys in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.stack(xs), np.stack(ys), rtol=1e-6)


def memory(c: Any, gates: Any) -> Any:
    i, f, _, g = jnp.split(gates, 4)
    return jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)


def state(c: Any, gates: Any) -> Any:
    return jax.nn.sigmoid(jnp.split(gates, 4)[2]) * jnp.tanh(c)


def two_cells(w: Any, given: Any) -> Any:
    """A state that is read of one memory, beside another memory of the same shapes and gates."""
    start, first, second = given[0], given[1:5].ravel(), given[5:].ravel()
    c = memory(w * start, first)
    other = memory(jnp.tanh(start), second)
    return c, state(c, first), other, state(other, first), state(c, second)


def two_cells_traced(w: Any, given: Any) -> Any:
    try:
        return two_cells(w, given)
    except KeyError:
        return None


def test_the_memories_of_two_cells() -> None:
    check_equivalence(two_cells, list(vectors(2, 3, 9, HIDDEN)), (jnp.float32(0.8),), jit=False)


@pytest.mark.filterwarnings("ignore::autobatch.StructureWarning")
def test_the_memories_of_two_cells_that_are_traced() -> None:
    with ab.options(trace=True):
        check_equivalence(two_cells_traced, list(vectors(2, 3, 9, HIDDEN)), (jnp.float32(0.8),), jit=False)


def test_cells_whose_weights_alone_differ() -> None:
    """The same code for either direction, on chains that differ in length."""

    def both(p: Any, xs: list[int]) -> Any:
        results = []
        for name in ("right", "left"):
            h = c = jnp.zeros(HIDDEN)
            for k in xs if name == "right" else xs[::-1]:
                gates = p[name] @ h + p["emb"][k]
                c = memory(c, gates)
                h = state(c, gates)
            results.append(h)
        return results[0], results[1]

    p = {"right": vectors(3, 16, HIDDEN), "left": vectors(4, 16, HIDDEN), "emb": vectors(5, 6, 16)}
    check_equivalence(both, [[0, 1, 2], [2, 1, 0], [5]], (p,), jit=False, grads=False)
