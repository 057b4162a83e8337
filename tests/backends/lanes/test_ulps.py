"""Functions of floats, in units in the last place, against numbers of more digits; all special values among them."""

import numpy as np
import pytest

from autobatch.backends.llvm import machine_code
from benchmarks.ulp.functions import FUNCTIONS
from benchmarks.ulp.kernels import kernel
from benchmarks.ulp.measure import drawn, every_float32, exact_of, ulps_off, width, worst_of

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

COUNT = 3000
MOST = {"log2": 2.0, "erf_inv": 2.0, "rsqrt": 1.5, "exp": 1.3, "erfc": 1.3, "x ** -7": 1.3}
"""Of those that are more than a unit off."""
SINGLE = {"cos": 1.6, "pow": 1.1, "sin": 1.6, "tanh": 1.4}
"""Of those of float32 that are computed without doubles."""


def most_of(name, dtype):
    return MOST.get(name, SINGLE.get(name, 1.0) if dtype == "float32" else 1.0)


CASES = [(name, dtype) for name, m in FUNCTIONS.items() for dtype in ("float32", "float64") if exact_of(m, dtype)]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_units_in_the_last_place(name, dtype):
    measured = FUNCTIONS[name]
    worst = worst_of(measured, dtype, drawn(measured, dtype, COUNT, np.random.default_rng(0)))
    assert worst.ulps <= most_of(name, dtype), worst


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_any_width_has_the_same_bits(name, dtype):
    measured = FUNCTIONS[name]
    one, many = (kernel(measured.function, dtype, measured.count, n) for n in (1, 2 * width(dtype)))
    for xs in drawn(measured, dtype, 500, np.random.default_rng(1)):
        np.testing.assert_array_equal(one(*xs), many(*xs))
        np.testing.assert_array_equal(np.signbit(one(*xs)), np.signbit(many(*xs)))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, m in FUNCTIONS.items() if m.count == 1])
def test_all_numbers_of_float32(name):
    """A minute each."""
    worst = worst_of(FUNCTIONS[name], "float32", every_float32())
    assert worst.ulps <= most_of(name, "float32"), worst


def test_what_is_off_is_seen():
    found = np.array([1.0, 1.0 + 2.0**-23, 0.0, np.nan, np.inf, 2.0**-149], np.float32)
    wanted = np.array([1.0 + 2.0**-24, 1.0, -0.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(ulps_off(found, wanted), [0.5, 1, np.inf, np.inf, np.inf, 1])
