"""Linear algebra of small matrices in machine code, against JAX: values, derivatives, matrices that have no inverse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jax import lax

import autobatch as ab
from autobatch.backends.llvm.lanes.special import LARGEST
from autobatch.errors import UnsupportedError
from tests.backends.lanes.harness import assert_equal, by_jax, check, many, vector_width

WIDTH = vector_width()

COUNT = 21
RNG = np.random.default_rng(5)


def drawn(*shape, dtype=np.float32):
    found = RNG.normal(size=(COUNT, *shape))
    return jnp.asarray(found + 1j * RNG.normal(size=found.shape) if np.issubdtype(dtype, complex) else found, dtype)


def definite(a):
    return a @ a.conj().T + jnp.eye(len(a), dtype=a.dtype)


def systems(a, b):
    """All that a triangular system may be."""
    a = a + 3 * jnp.eye(len(a), dtype=a.dtype)
    return tuple(
        lax.linalg.triangular_solve(
            a,
            b if left else b.T,
            left_side=left,
            lower=lower,
            transpose_a=turned,
            conjugate_a=turned,
            unit_diagonal=unit,
        )
        for left in (True, False)
        for lower, turned, unit in (
            (True, False, False),
            (True, True, True),
            (False, True, False),
            (False, False, True),
        )
    )


def cases(n, dtype=np.float32):
    a, b, c = drawn(n, n, dtype=dtype), drawn(n, dtype=dtype), drawn(n, 2, dtype=dtype)
    return {
        f"solve {n}": (lambda a, b, c: (jnp.linalg.solve(a, b), jnp.linalg.solve(a, c)), (a, b, c)),
        f"inverse {n}": (jnp.linalg.inv, (a,)),
        f"determinant {n}": (lambda a: (jnp.linalg.det(a), *jnp.linalg.slogdet(a)), (a,)),
        f"lu {n}": (lax.linalg.lu, (a,)),
        f"lu of others {n}": (lambda a, c: (*lax.linalg.lu(jnp.hstack([a, c])), *lax.linalg.lu(c)), (a, c)),
        f"cholesky {n}": (lambda a: jnp.linalg.cholesky(definite(a)), (a,)),
        f"triangular {n}": (systems, (a, c)),
    }


def derivatives(n):
    a, b = drawn(n, n) + 3 * jnp.eye(n), drawn(n)
    return {
        f"of solve {n}": (jax.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1)), (a, b)),
        f"of inverse {n}": (jax.grad(lambda a: jnp.sin(jnp.linalg.inv(a)).sum()), (a,)),
        f"of determinant {n}": (jax.grad(jnp.linalg.det), (a,)),
        f"of cholesky {n}": (jax.grad(lambda a: jnp.sin(jnp.linalg.cholesky(definite(a))).sum()), (a,)),
    }


GROUPS = {
    "of 3": (False, WIDTH, lambda: cases(3)),
    "of 2, row by row": (False, 1, lambda: cases(2)),
    "derivatives of 3": (False, WIDTH, lambda: derivatives(3)),
}
LONG = {
    "of 1 and 5": (False, WIDTH, lambda: {**cases(1), **cases(5)}),
    "of 8": (False, WIDTH, lambda: {**cases(8), **derivatives(8)}),
    "derivatives of 4, row by row": (False, 1, lambda: derivatives(4)),
    "of doubles": (True, WIDTH // 2, lambda: cases(4, np.float64)),
    "of complex numbers": (False, WIDTH, lambda: cases(2, np.complex64)),
}


@pytest.mark.parametrize("name", [*GROUPS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_equals_jax(name):
    """But for units in the last place, as many as matrices are nearly singular."""
    wide, width, make = {**GROUPS, **LONG}[name]
    with jax.enable_x64(wide):
        made, live = make(), jnp.arange(COUNT) % 5 != 3
        found, wanted = many(made, width)(live), by_jax(made)
        for case in made:
            assert_equal(found[case], wanted[case], live, 3000.0, case)


def test_matrices_without_an_inverse():
    """As XLA has them: infinite, NaN, a determinant of zero; of what is not positive definite the factor is NaN."""
    few = [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 3.0], [3.0, 1.0]]]
    few += [[[4.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]]
    undefined = [[[np.nan, 1.0], [1.0, 1.0]]]

    def results(a):
        return jnp.linalg.solve(a, jnp.ones(2)), jnp.linalg.det(a), jnp.linalg.cholesky(a)

    check(results, (jnp.asarray([*few, *undefined] * 3, jnp.float32),), [True], WIDTH)
    check(lax.linalg.lu, (jnp.asarray(few * 3, jnp.float32),), [True], WIDTH)


@ab.batched(in_axes=(None, 0), backend="llvm")
def implicit(stiffness, state):
    """Steps of Euler's implicit method, by Newton's."""
    for _ in range(2):
        new = state
        error = jnp.float32(1.0)
        while error > 1e-4:
            off = new - state + 0.1 * (stiffness @ new + new**3)
            change = jnp.linalg.solve(jnp.eye(3) + 0.1 * (stiffness + jnp.diag(3.0 * new**2)), off)
            new = new - change
            error = jnp.abs(change).max()
        state = new
    return state


numbers = st.floats(-2, 2, width=32)


@settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=3))
def test_a_simulation_equals_plain_python(rows):
    stiffness = np.asarray([[2, -1, 0], [-1, 2, -1], [0, -1, 2]], np.float32)
    states = np.asarray(rows, np.float32)
    wanted = np.stack(implicit.loop(stiffness, states))
    np.testing.assert_allclose(implicit(stiffness, states), wanted, rtol=1e-5, atol=1e-6)


def test_the_derivative_of_a_simulation():
    """By the matrix that all share, and by each state."""
    rng = np.random.default_rng(2)
    stiffness = np.asarray([[2, -1, 0], [-1, 2, -1], [0, -1, 2]], np.float32)
    states = rng.normal(size=(5, 3)).astype(np.float32)

    @ab.batched(in_axes=(None, 0), backend="llvm")
    def energy(stiffness, state):
        return jnp.sum(jnp.linalg.solve(jnp.eye(3) + stiffness, state**2) ** 2)

    def of(stiffness, state):
        return jax.grad(energy.__wrapped__, (0, 1))(stiffness, state)

    of_stiffness, of_states = ab.grad(energy, (0, 1))(stiffness, states)
    by_row = [of(stiffness, state) for state in states]
    np.testing.assert_allclose(of_states, np.stack([b for _, b in by_row]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_stiffness, sum(a for a, _ in by_row), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "size", "what"),
    [
        (lambda a: jnp.linalg.eigh(a)[0], 3, "eigenvalues"),
        (lambda a: jnp.linalg.qr(a)[0], 3, "QR"),
        (lambda a: jnp.linalg.svd(a)[1], 3, "singular values"),
        (jnp.linalg.inv, LARGEST + 1, f"more than {LARGEST} rows"),
    ],
)
def test_what_is_not_there_is_refused(function, size, what):
    with pytest.raises(UnsupportedError, match=what) as caught:
        ab.batched(lambda a: function(a), backend="llvm")(np.ones((2, size, size), np.float32))
    assert "test_matrices.py" in str(caught.value)
    assert "backend='xla'" in str(caught.value)
