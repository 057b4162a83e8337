"""Functions of float32 that are computed in double precision, against NumPy: at most one unit in the last place off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autobatch as ab
from autobatch.backends.llvm import machine_code
from tests.backends.lanes.harness import compiled

try:
    WIDTHS = (machine_code.host().bits // 32, 1)
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

RNG = np.random.default_rng(1)
FUNCTIONS = {
    "sin": (jnp.sin, np.sin, (-1e4, 1e4)),
    "cos": (jnp.cos, np.cos, (-1e4, 1e4)),
    "sin of large numbers": (jnp.sin, np.sin, (1e6, 1e12)),
    "tan": (jnp.tan, np.tan, (-100, 100)),
    "sinh": (jnp.sinh, np.sinh, (-89, 89)),
    "cosh": (jnp.cosh, np.cosh, (-89, 89)),
    "exp2": (jnp.exp2, np.exp2, (-126, 127)),
    "expm1": (jnp.expm1, np.expm1, (-20, 88)),
    "expm1 of small numbers": (jnp.expm1, np.expm1, (-1e-3, 1e-3)),
    "log2": (jnp.log2, np.log2, (1e-30, 1e30)),
    "log1p": (jnp.log1p, np.log1p, (-0.9999, 1e3)),
    "log1p of small numbers": (jnp.log1p, np.log1p, (-1e-3, 1e-3)),
}

MOST = {"sin": 1.6, "cos": 1.6, "log2": 2}  # log2: the logarithm times a constant


def off(found, wanted):
    """In units in the last place of float32."""
    step = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    return np.abs(found.astype(np.float64) - wanted) / step


@pytest.mark.parametrize("width", WIDTHS, ids=lambda w: f"{w} lanes")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_in_the_last_place(name, width):
    fun, exact, (low, high) = FUNCTIONS[name]
    x = RNG.uniform(low, high, 20_000).astype(np.float32)
    (found,) = compiled(fun, [jnp.asarray(x)], [True], width)([x], jnp.ones(len(x), bool))
    assert off(np.asarray(found), exact(x.astype(np.float64))).max() <= MOST.get(name, 1)


@pytest.mark.parametrize("width", WIDTHS, ids=lambda w: f"{w} lanes")
def test_powers(width):
    x = np.exp(RNG.uniform(-80, 80, 20_000)).astype(np.float32)
    y = RNG.uniform(-3, 3, 20_000).astype(np.float32)
    (found,) = compiled(lax.pow, [jnp.asarray(x), jnp.asarray(y)], [True, True], width)([x, y], jnp.ones(len(x), bool))
    wanted = x.astype(np.float64) ** y
    normal = (wanted < 3e38) & (wanted > 2e-38)
    assert off(np.asarray(found)[normal], wanted[normal]).max() <= 1
    assert np.all(np.isinf(np.asarray(found)[wanted > 3.5e38]))


@pytest.mark.parametrize("width", WIDTHS, ids=lambda w: f"{w} lanes")
def test_powers_of_special_values(width):
    """As C's `pow`, which NumPy calls."""
    few = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 3.0, -3.0, 2.5, 1e30]
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(few, few))
    (found,) = compiled(lax.pow, [jnp.asarray(x), jnp.asarray(y)], [True, True], width)([x, y], jnp.ones(len(x), bool))
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-7)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


FEW = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-30, 2.5, -1.0, 1.0]
OF_ONE = (
    *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh", "exp", "exp2"),
    *("expm1", "floor", "log", "log1p", "log2", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
)
OF_TWO = ("arctan2", "copysign", "fmod", "hypot", "logaddexp", "maximum", "minimum", "nextafter", "power")


@pytest.mark.parametrize("x64", [False, True], ids=["32 bits", "64 bits"])
def test_functions_of_constants(x64):
    """LLVM folds what it knows: a conversion of NaN to an integer may be any integer there, but no other than that."""

    def folded(k):
        ones = [getattr(jnp, name)(jnp.asarray(x)) for name in OF_ONE for x in FEW]
        return [
            *ones,
            *(getattr(jnp, name)(jnp.asarray(x), jnp.asarray(y)) for name in OF_TWO for x in FEW for y in FEW),
        ]

    with jax.enable_x64(x64):
        found = ab.batched(folded, backend="llvm")([1.0])
        np.testing.assert_allclose(found[0], np.asarray(folded(1.0)), rtol=2e-6)
