"""Programs over lists of the examples that fill tables and beams, and return them beside what is read of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import assert_same

XS = [[0.5, 1.25, -0.5, 2.0], [1.0], [-1.5, 0.75], []]


def warped(w, xs):
    """Dynamic time warping of a sequence and itself, as far as it is cheap."""
    n = len(xs)
    costs = [[0.0] * (n + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            here = abs(xs[i - 1] - xs[j - 1]) * w
            costs[i][j] = here + min(costs[i - 1][j], costs[i][j - 1], costs[i - 1][j - 1])
            if costs[i][j] > 2.0:
                break
    return costs[n][n], costs


def beam(w, xs):
    """The best of three paths, by their scores."""
    held = [(0.0, [0])]
    for x in xs:
        longer = []
        for score, path in held:
            for a in (0, 1):
                longer.append((score + (x * w if a else 0.3 - path[-1] * 0.1), path + [a]))  # noqa: RUF005
        longer.sort(key=lambda t: t[0], reverse=True)
        held = longer[:3]
    return held[0][0], held[0][1]


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", [warped, beam])
def test_values(function, backend):
    f = ab.batched(function, in_axes=(None, 0), backend=backend)
    assert_same(ab.unbatch(f(0.9, XS)), [function(0.9, xs) for xs in XS])


def test_derivatives_of_a_beam():
    """What masked operations compute decides checks behind them, of how long a list is."""
    f = ab.batched(lambda w, xs: beam(w, xs)[0], in_axes=(None, 0), backend="interpret")
    found = jax.grad(lambda w: jnp.sum(f(w, XS)))(0.9)
    wanted = jax.grad(lambda w: sum(beam(w, xs)[0] for xs in XS))(0.9)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def push(out, x):
    out.append(x * 0.5)
    return x + len(out)


def sets_beside_memory(w, xs):
    """A set that a loop assigns, where lists have memory: it is none of those."""
    x = xs[0] * w if xs else w
    seen = {len(xs) % 4, 2}
    for e in sorted(seen):
        if not x * e > 0.5:
            continue
        q = list(xs)
        if len(xs) % 2 in seen:
            seen = seen - {1}
        else:
            x = jnp.tanh(x + push(q, x))
    return x + len(seen)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_sets_beside_memory(backend):
    with ab.options(trace=False):
        f = ab.batched(sets_beside_memory, in_axes=(None, 0), backend=backend)
        assert_same(ab.unbatch(f(0.9, XS)), [sets_beside_memory(0.9, xs) for xs in XS])


def counted(w, xs):
    """Lengths are integers of 32 bits, among numbers of 64."""
    q = list(xs)
    x = jnp.tanh(w + q.pop(0)) if q else w
    q = [jnp.tanh(x), x * len(q)]
    if q:
        del q[0]
    for _ in range(int(abs(q[-1] if q else x) * 2.9) % 4):
        x = jnp.tanh(x + push(q, jnp.tanh(sum(q))))
    return x, len(q) % 13


def test_lengths_among_numbers_of_64_bits():
    with ab.options(trace=False), jax.enable_x64(True):
        for backend in ("interpret", "llvm"):
            f = ab.batched(counted, in_axes=(None, 0), backend=backend)
            assert_same(ab.unbatch(f(0.7, XS)), [counted(0.7, xs) for xs in XS], tolerance=1e-5)
