"""What is measured: functions, what they are compared with, and over what numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax

from benchmarks.ulp.digamma import digamma

Exact = Callable[..., np.ndarray]
"""`exact(*xs)` of numbers of more digits: doubles for float32, long doubles for float64."""


@dataclass(frozen=True)
class Measured:
    """`wide`: of doubles, `long`: of long doubles (None: there is none); `numpy`: what NumPy or SciPy have, in the same
    dtype; `near`: where to look besides all numbers there are, as (low, high) for each operand."""

    function: Callable[..., Any]
    wide: Exact
    long: Exact | None
    numpy: Callable[..., Any] | None
    near: Sequence[tuple[tuple[float, float], ...]]

    @property
    def count(self) -> int:
        return len(self.near[0])


def _plain(function: Callable[..., Any], numpy: Exact, *near: tuple[float, float]) -> Measured:
    """What NumPy has in all precisions."""
    return Measured(function, numpy, numpy, numpy, [(pair,) for pair in near])


def _logistic(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    found: np.ndarray = np.where(x < 0, e, 1) / (1 + e)
    return found


def _single(function: Exact) -> Exact:
    """What depends on the size of floats."""
    return lambda *xs: function(*(x.astype(np.float32) for x in xs)).astype(np.float64)


def _double(function: Exact) -> Exact:
    return lambda *xs: function(*(x.astype(np.float64) for x in xs)).astype(np.longdouble)


class _Long(ctypes.c_longdouble):
    """Not made a Python float by ctypes, which would round it."""


def of_c_library(name: str) -> Exact:
    """A function of long doubles that NumPy lacks, of glibc."""
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = _Long, [_Long]

    def call(x: np.ndarray) -> np.ndarray:
        found = b"".join(bytes(function(_Long.from_buffer_copy(one.tobytes()))) for one in x.astype(np.longdouble))
        return np.frombuffer(found, np.longdouble)

    return call


def _inverse_of_erf(x: np.ndarray) -> np.ndarray:
    """By Newton's method from SciPy's, which has no signed zero."""
    erf, erfc = of_c_library("erfl"), of_c_library("erfcl")
    size = np.abs(x)
    y = scipy.special.erfinv(size.astype(np.float64)).astype(np.longdouble)
    for _ in range(2):
        off = np.where(size < 0.5, erf(y) - size, (1 - size) - erfc(y))
        slope = 2 / np.sqrt(np.longdouble(np.pi)) * np.exp(-y * y)
        y = np.where(np.isfinite(y), y - off / slope, y)
    found: np.ndarray = np.copysign(y, x)
    return found


def _wide_inverse_of_erf(x: np.ndarray) -> np.ndarray:
    """SciPy's takes a microsecond for each number that has none, and has no signed zero."""
    found, inside = np.full(x.shape, np.nan), np.abs(x) <= 1
    found[inside] = np.copysign(scipy.special.erfinv(x[inside]), x[inside])
    return found


def _lgamma(x: np.ndarray) -> np.ndarray:
    """As C has it where x is infinite; by long doubles near the zeros of negative numbers, where SciPy's is off."""
    found: np.ndarray = np.where(np.isinf(x), np.inf, scipy.special.gammaln(x))
    near = (x < 0) & (np.abs(found) < 0.5)
    found[near] = of_c_library("lgammal")(x[near])
    return found


def _digamma(x: np.ndarray) -> np.ndarray:
    """NaN at the pole, as XLA has it."""
    found: np.ndarray = np.where((x == 0) | np.isneginf(x), np.nan, scipy.special.psi(x))
    return found


def _power(n: int) -> Measured:
    def exact(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.power(x, x.dtype.type(n))
        return found

    def wide(x: np.ndarray) -> np.ndarray:
        """By products of doubles, which are off by a few units in their last place; NumPy's takes sixty times as long.
        A double beyond the range belongs to a float beyond it."""
        found, size = x, abs(n)
        for bit in bin(size)[3:]:
            found = found * found * x if bit == "1" else found * found
        return found if n >= 0 else 1.0 / found

    return Measured(lambda x: lax.integer_pow(x, n), wide, exact, exact, [((-3.0, 3.0),)])


TWO = ((-3.0, 3.0), (-3.0, 3.0))
FUNCTIONS: dict[str, Measured] = {
    "acos": _plain(lax.acos, np.arccos, (-1, 1)),
    "acosh": _plain(lax.acosh, np.arccosh, (1, 3)),
    "asin": _plain(lax.asin, np.arcsin, (-1, 1)),
    "asinh": _plain(lax.asinh, np.arcsinh, (-3, 3)),
    "atan": _plain(lax.atan, np.arctan, (-5, 5)),
    "atan2": Measured(lax.atan2, np.arctan2, np.arctan2, np.arctan2, [TWO, ((-1e-3, 1e-3), (-3.0, 3.0))]),
    "atanh": _plain(lax.atanh, np.arctanh, (-1, 1)),
    "cbrt": _plain(lax.cbrt, np.cbrt, (-9, 9)),
    "cos": _plain(lax.cos, np.cos, (-100, 100), (-1e6, 1e6)),
    "cosh": _plain(lax.cosh, np.cosh, (-3, 3), (-710, 710)),
    "digamma": Measured(
        lax.digamma, _digamma, digamma, scipy.special.psi, [((0.0, 10.0),), ((-10.0, 0.0),), ((1.46, 1.464),)]
    ),
    "erf": Measured(lax.erf, scipy.special.erf, of_c_library("erfl"), scipy.special.erf, [((-3, 3),)]),
    "erf_inv": Measured(
        lax.erf_inv,
        _wide_inverse_of_erf,
        _inverse_of_erf,
        scipy.special.erfinv,
        [((-1, 1),)],
    ),
    "erfc": Measured(lax.erfc, scipy.special.erfc, of_c_library("erfcl"), scipy.special.erfc, [((-3, 3),), ((1, 27),)]),
    "exp": _plain(lax.exp, np.exp, (-3, 3), (-745, 710)),
    "exp2": _plain(lax.exp2, np.exp2, (-3, 3), (-1075, 1024)),
    "expm1": _plain(lax.expm1, np.expm1, (-3, 3), (-40, 709)),
    "x ** 10": _power(10),
    "x ** -7": _power(-7),
    "lgamma": Measured(
        lax.lgamma,
        _lgamma,
        of_c_library("lgammal"),
        scipy.special.gammaln,
        [((0.0, 10.0),), ((-10.0, 0.0),), ((-3.2, -2.4),)],
    ),
    "log": _plain(lax.log, np.log, (0.5, 2)),
    "log1p": _plain(lax.log1p, np.log1p, (-0.99, 3)),
    "log2": _plain(jnp.log2, np.log2, (0.5, 2)),
    "logistic": Measured(lax.logistic, _logistic, _logistic, scipy.special.expit, [((-20, 20),), ((-745, 40),)]),
    "nextafter": Measured(lax.nextafter, _single(np.nextafter), _double(np.nextafter), np.nextafter, [TWO]),
    "pow": Measured(
        lax.pow, np.power, np.power, np.power, [((0.0, 3.0), (-80.0, 80.0)), ((0.9, 1.1), (-6000.0, 6000.0))]
    ),
    "rem": Measured(lax.rem, np.fmod, np.fmod, np.fmod, [TWO, ((-1e6, 1e6), (-9.0, 9.0))]),
    "rsqrt": Measured(
        lax.rsqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / np.sqrt(x), lambda x: 1 / np.sqrt(x), [((0, 9),)]
    ),
    "sin": _plain(lax.sin, np.sin, (-100, 100), (-1e6, 1e6)),
    "sinh": _plain(lax.sinh, np.sinh, (-3, 3), (-710, 710)),
    "sqrt": _plain(lax.sqrt, np.sqrt, (0, 9)),
    "tan": _plain(lax.tan, np.tan, (-100, 100), (-1e6, 1e6)),
    "tanh": _plain(lax.tanh, np.tanh, (-3, 3), (-20, 20)),
}
