"""Functions that are endless sums and fractions, and numbers drawn of distributions made of them, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax, random
from jax.scipy import special

import autobatch as ab
from autobatch.backends.llvm.lanes.special import FIRST_TERMS
from tests.backends.lanes.harness import assert_equal, by_jax, many, vector_width

WIDTH = vector_width()

COUNT = 60
RNG = np.random.default_rng(6)
SPECIAL = [0.0, -1.0, 1.0, 2.0, 0.5, np.inf, np.nan, -2.5, -3.0, 4.0]


def some(low, high, dtype):
    """Of every size between two."""
    return jnp.asarray(np.exp(RNG.uniform(np.log(low), np.log(high), COUNT)), dtype)


def functions(dtype):
    a, b, x = some(0.05, 40, dtype), some(0.05, 40, dtype), jnp.asarray(RNG.uniform(0, 1, COUNT), dtype)
    few, wide = some(0.2, 20, dtype), jnp.asarray(RNG.uniform(-40, 40, COUNT), dtype)
    n = jnp.asarray(RNG.integers(0, 5, COUNT), dtype)
    return {
        "incomplete gamma": (lambda a, x: (lax.igamma(a, x), lax.igammac(a, x)), (a, b)),
        "its derivatives": (lambda a, x: (lax.igamma_grad_a(a, x), lax.random_gamma_grad(a, x)), (few, few[::-1])),
        "incomplete beta": (special.betainc, (few, few[::-1], x)),
        "zeta": (lambda s, q: (lax.zeta(1 + s, q), lax.polygamma(jnp.round(s) % 5, q)), (few, a)),
        "polygamma": (lax.polygamma, (n, few)),
        "bessel": (lambda x: (lax.bessel_i0e(x), lax.bessel_i1e(x)), (wide,)),
        "of integers": (lambda x: (special.gamma(x), special.betaln(x, 2 * x), special.factorial(x)), (n + 1,)),
    }


def special_values():
    one, other = (jnp.asarray(x.ravel(), jnp.float32) for x in np.meshgrid(SPECIAL, SPECIAL))
    return {
        "of two": (
            lambda a, x: (lax.igamma(a, x), lax.igammac(a, x), lax.igamma_grad_a(a, x), lax.zeta(a, x)),
            (one, other),
        ),
        "of one": (lambda a, x: (lax.polygamma(a, x), lax.bessel_i0e(x), lax.bessel_i1e(x)), (one, other)),
        "of three": (lambda a, x: special.betainc(a, x, a[::-1]), (jnp.stack([one, other], 1), other)),
    }


def derivatives():
    a, x = some(0.2, 9, np.float32), jnp.asarray(RNG.uniform(0.1, 0.9, COUNT), np.float32)
    return {
        "of lgamma": (jax.grad(lambda a: lax.lgamma(a) + lax.digamma(a)), (a,)),
        "of igamma": (jax.grad(lambda a, x: lax.igamma(a, x), (0, 1)), (a, a[::-1])),
        "of betainc": (jax.grad(lambda x, a: special.betainc(a, 2.0, x)), (x, a)),
        "of bessel": (jax.grad(lambda a: lax.bessel_i0e(a) + lax.bessel_i1e(a)), (a,)),
    }


def draws():
    keys, a = random.split(random.key(3), COUNT), some(0.2, 20, np.float32)
    return {
        "gammas": (lambda k, a: (random.gamma(k, a, (3,)), random.loggamma(k, a)), (keys, a)),
        "others": (lambda k, a: (random.beta(k, a, 2.0), random.dirichlet(k, jnp.stack([a, 2 * a]))), (keys, a)),
        "derivative": (lambda k, a: jax.grad(lambda a: random.gamma(k, a))(a), (keys, a)),
    }


def one_draw():
    return {"gamma": (random.gamma, (random.split(random.key(4), COUNT), some(0.2, 20, np.float32)))}


GROUPS = {
    "floats": (False, WIDTH, lambda: functions(np.float32)),
    "derivatives": (False, WIDTH, derivatives),
    "a draw": (False, WIDTH, one_draw),
}
LONG = {
    "draws": (False, WIDTH, draws),
    "doubles": (True, WIDTH // 2, lambda: functions(np.float64)),
    "row by row": (False, 1, lambda: {**functions(np.float32), **draws()}),
    "special values": (False, WIDTH, special_values),
}


@pytest.mark.parametrize("name", [*GROUPS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_equals_jax(name):
    """As far as XLA's lgamma and its exponentials of large numbers go."""
    wide, width, make = {**GROUPS, **LONG}[name]
    with jax.enable_x64(wide):
        made = make()
        live = jnp.arange(len(next(iter(made.values()))[1][0])) % 5 != 3
        found, wanted = many(made, width)(live), by_jax(made)
        for case in made:
            assert_equal(found[case], wanted[case], live, 500.0, case)


def test_zeta_far_below_zero():
    """It is summed as far as numbers above 0, where XLA's is not: what recurrences say of SciPy's."""
    x = np.asarray([-0.3, -7.6, -8.95, -30.25, -400.8])
    with jax.enable_x64(True):
        made = {"zeta": (lambda q: lax.zeta(3.0, q), (jnp.asarray(x),))}
        (found,) = many(made, WIDTH // 2)(jnp.ones(len(x), bool))["zeta"]
    steps = [np.arange(q, FIRST_TERMS) for q in x]
    wanted = [np.sum(k**-3.0) + scipy.special.zeta(3.0, k[-1] + 1) for k in steps]
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_in_a_function_and_its_derivative():
    @ab.batched(in_axes=(None, 0), backend="llvm")
    def likelihood(shape, x):
        """Of a gamma distribution that is cut at 5."""
        density = (shape - 1) * jnp.log(x) - x - jax.scipy.special.gammaln(shape)
        return density - jnp.log(jax.scipy.special.gammainc(shape, 5.0))

    x = np.asarray([0.3, 1.5, 4.0], np.float32)
    shape = np.float32(2.3)
    wanted = [likelihood.__wrapped__(shape, row) for row in x]
    np.testing.assert_allclose(likelihood(shape, x), np.stack(wanted), rtol=1e-5)
    by_row = [jax.grad(likelihood.__wrapped__, (0, 1))(shape, row) for row in x]
    of_shape, of_x = ab.grad(likelihood, (0, 1))(shape, x)
    np.testing.assert_allclose(of_x, np.stack([b for _, b in by_row]), rtol=1e-5)
    np.testing.assert_allclose(of_shape, sum(a for a, _ in by_row), rtol=1e-4)
