"""Arrays of NumPy that a traced function fills, as NumPy has them: views, slices, rows, whole arrays."""

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
from autobatch.testing import assert_same

pytestmark = pytest.mark.usefixtures("quiet")

BATCH = [[0.5, 1.25, 2.0], [2.0], [0.25, 3.0]]


def cells(w: Any, xs: list[float]) -> Any:
    a = np.zeros(4)
    for k, x in enumerate(xs):
        a[k] = w * x
    return a, a.sum(), a[-1], len(a), a.shape, isinstance(a, np.ndarray), a[:2].mean()


def views(w: Any, xs: list[float]) -> Any:
    a = np.ones((3, 2))
    row, column = a[1], a[:, 0]
    row[0] = w * xs[0]
    column += 2.0
    a.T[1] *= w
    flat = a.reshape(-1)
    flat[-1] = 7.0
    b = a.copy()
    b[0, 0] = -1.0
    return a, b.sum(axis=1), row, column


def rows(w: Any, xs: list[float]) -> Any:
    h = np.empty((len(xs), 3))
    for k, x in enumerate(xs):
        h[k] = jnp.tanh(jnp.arange(3.0) * w + x)
    h[0, 1:] = [5.0, w]
    return np.sum(h @ np.ones((3, 2)), axis=0), jnp.max(h), np.tanh(h[0]), np.concatenate([h[0], h[-1]])


def lists(w: Any, xs: list[float]) -> Any:
    a = np.array([w * x for x in xs])
    a[0] += 1.0
    b = np.stack([a, a * 2])
    b[1, 0] = 0.0
    return a, b, np.sum([w, 2.0]), np.max([x * w for x in xs]), np.where(a > 1, a, 0.0), 2.0 - a, -a / w


def masks(w: Any, xs: list[float]) -> Any:
    a = np.arange(5.0)
    a[np.arange(5) > 2] = w
    a[[0, 1]] = [w * 2, 3.0]
    a += np.ones(5) * w
    return a, a[a.argmax() if len(xs) > 5 else 1], [x * 2 for x in a], a.tolist()


PROGRAMS = (cells, views, rows, lists, masks)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(program: Callable[..., Any]) -> None:
    def traced(w: Any, xs: list[float]) -> Any:
        held = {k: x for k, x in enumerate(xs)}
        return program(w, list(held.values()))

    f, w = ab.batched(traced, in_axes=(None, 0)), jnp.float32(1.5)
    with jax.enable_x64(False):
        wanted = jax.tree.map(_single, [program(w, xs) for xs in BATCH])
    assert_same(ab.unbatch(f(w, BATCH)), wanted)

    if program not in (views, rows):
        return

    def total(w: Any, xs: list[float]) -> Any:
        return jnp.sum(traced(w, xs)[0])

    found = ab.grad(ab.batched(total, in_axes=(None, 0)))(w, BATCH)
    step = 1e-3
    sums = [sum(float(np.sum(program(w + d, xs)[0])) for xs in BATCH) for d in (step, -step)]
    np.testing.assert_allclose(found, (sums[0] - sums[1]) / (2 * step), rtol=2e-2, atol=1e-2)


def _single(x: Any) -> Any:
    """What NumPy computes in 64 bits, in 32."""
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x


ops = st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 2))


def run(w: Any, code: list[tuple[int, int, int]]) -> Any:
    a = np.zeros((4, 3))
    held = a
    for op, i, j in code:
        if op == 0:
            a[i, j] = w * (i + 1)
        elif op == 1:
            a[i] = jnp.arange(3.0) * w
        elif op == 2:
            a[:, j] += w
        elif op == 3:
            held = a[i:]
        elif op == 4 and len(held):
            held[0] = a[i] * 0.5
        elif op == 5:
            a = a + a[i, j]
        elif op == 6:
            a[::2, j] = a[1::2, j]
        elif op == 7:
            a = np.array([a[k] for k in (3, 1, 2, 0)])
        elif op == 8:
            held[..., j] *= 2.0
        else:
            a[[i, 0]] = a[[0, i]]
    return a, held.sum() if held.size else 0.0, a[1].sum()


@settings(max_examples=5)
@given(st.lists(st.lists(ops, max_size=8), min_size=1, max_size=3))
def test_as_numpy(codes: list[list[tuple[int, int, int]]]) -> None:
    f, w = ab.batched(run, in_axes=(None, 0)), jnp.float32(1.5)
    with ab.options(backend="interpret"):
        found = ab.unbatch(f(w, codes))
    assert_same(found, jax.tree.map(_single, [run(w, code) for code in codes]))


def test_what_is_no_copy_is_refused() -> None:
    def changed(w: Any, x: Any) -> Any:
        x[0] = w
        return x

    with pytest.raises(ab.UnsupportedError) as caught:
        ab.batched(changed, in_axes=(None, 0))(1.0, np.ones((2, 3), np.float32))
    assert "changed in place" in "".join([str(caught.value), *caught.value.__notes__])
