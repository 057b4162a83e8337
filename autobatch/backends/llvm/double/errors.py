"""erf, erfc and the inverse of erf.

Up to 3/4 a polynomial of x^2. Beyond, (1 + 2 x) e^(x^2) erfc(x) is smooth as far as there are numbers, and one
polynomial of (x - 3) / (x + 3): M. M. Shepherd, J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x
in 0 <= x < infinity" (1981).
"""

from __future__ import annotations

from collections.abc import Callable

from autobatch.backends.llvm.double.exponentials import ReducedExponent, exp, or_nan, reduced
from autobatch.backends.llvm.double.logarithms import log
from autobatch.backends.llvm.double.pairs import Pair, exact_product, exact_sum, quick_sum
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Real,
    absolute,
    clamped,
    fma,
    greatest,
    least,
    polynomial,
    scaled,
    sqrt,
    where,
    with_sign_of,
)

TWO_OVER_ROOT_PI = (1.1283791670955126, 1.533545961316588e-17)
ERF = (
    -0.37612638903183754,
    0.11283791670955111,
    -0.02686617064512383,
    0.005223977625303399,
    -0.0008548327010023105,
    0.00012055332214208182,
    -1.4925622488807008e-05,
    1.6461446347104607e-06,
    -1.6355114690825904e-07,
    1.4692454144674924e-08,
    -1.1500221494162162e-09,
    6.17383902721109e-11,
)
"""erf(x) = x (2 / sqrt(pi) + x^2 P(x^2)), up to 1."""
MIDDLE = 0.75
ERFC = (
    1.2530080582697296,
    -0.1356211061245812,
    -0.047562294353451225,
    0.12964515870276463,
    -0.11927366341527117,
    0.06830802734381511,
    -0.02377051491974194,
    0.0025293918193870476,
    0.0018886903744828286,
    -0.0007798323123858002,
    -0.00010515991453032468,
    0.0001250996652265225,
    4.94995936458918e-06,
    -2.0102156062357487e-05,
    -7.324321181682352e-07,
    3.4776223375019513e-06,
    3.5649215331179554e-07,
    -6.271809068594282e-07,
    -1.3595625910356186e-07,
    1.1354922559847466e-07,
    3.0771680877759534e-08,
    -1.81565379150145e-08,
    -5.558663071478534e-10,
)
ERFC_LOW = 4.533257194119927e-17
"""erfc(x) = e^(-x^2) P((x - 3) / (x + 3)) / (1 + 2 x) from 3/4 on, and what the first coefficient lacks."""
CENTRAL = (
    1.50140941,
    0.246640727,
    -0.00417768164,
    -0.00125372503,
    0.00021858087,
    -4.39150654e-06,
    -3.5233877e-06,
    3.43273939e-07,
    2.81022636e-08,
)
TAIL = (
    2.83297682,
    1.00167406,
    0.00943887047,
    -0.0076224613,
    0.00573950773,
    -0.00367342844,
    0.00134934322,
    0.000100950558,
    -0.000200214257,
)
"""The inverse of erf to six digits, of w = -log(1 - x^2): M. Giles, "Approximating the erfinv function" (2012)."""


def _erf_of_small(x: Real) -> Pair:
    z = x * x
    main = exact_product(x, x.like(TWO_OVER_ROOT_PI[0]))
    return quick_sum(main.high, fma(x, fma(z, polynomial(z, ERF), TWO_OVER_ROOT_PI[1]), main.low))


def _erfc_of_large(size: Real) -> Real:
    """From 3/4 on."""
    x = clamped(size, MIDDLE, 28.0)
    t = (x - 3.0) / (x + 3.0)
    main = quick_sum(x.like(ERFC[0]), fma(t, polynomial(t, ERFC[1:]), ERFC_LOW))
    square = exact_product(x, x)
    e = reduced(-square.high, -square.low)
    found = main * ReducedExponent(x.like(0.0), e.rest).pair() / exact_sum(x + x, 1.0)
    return scaled(found.one(), e.n.whole())


def erf(x: Real) -> Real:
    size = absolute(x)
    small = _erf_of_small(least(size, MIDDLE)).one()
    return or_nan(x, with_sign_of(where(size < MIDDLE, small, 1.0 - _erfc_of_large(size)), x))


def erfc(x: Real) -> Real:
    size = absolute(x)
    inside = _erf_of_small(clamped(x, -MIDDLE, MIDDLE))
    rest = exact_sum(x.like(1.0), -inside.high)
    small = rest.high + (rest.low - inside.low)
    far = _erfc_of_large(size)
    return or_nan(x, where(size < MIDDLE, small, where(x < 0.0, 2.0 - far, far)))


def inverse_of_erf(x: Real) -> Real:
    return inverse(x, erf, erfc, 2)


def inverse(x: Real, erf: Callable[[Real], Real], erfc: Callable[[Real], Real], steps: int) -> Real:
    """Halley's method, from half on for erfc, whose digits are not lost in a difference with 1."""
    size = least(absolute(x), 1.0 - 2.0**-53)
    w = -log((1.0 - size) * (size + 1.0))
    y = where(w < 5.0, polynomial(w - 2.5, CENTRAL), polynomial(sqrt(greatest(w, 5.0)) - 3.0, TAIL)) * size
    for _ in range(steps):
        off = where(size < 0.5, erf(y) - size, (1.0 - size) - erfc(y))
        u = off * exp(y * y) * (1.0 / TWO_OVER_ROOT_PI[0])
        y = y - u / fma(y, u, 1.0)
    found = where(absolute(x).equals(1.0), INFINITY, where(absolute(x) > 1.0, NAN, y))
    return or_nan(x, with_sign_of(where(size < 1e-150, size * (1.0 / TWO_OVER_ROOT_PI[0]), found), x))
