"""Functions of statistics and physics that are endless sums and fractions, in `jax.lax`: the incomplete gamma and beta
functions, and Hurwitz's zeta function.

Each goes on until its terms no longer count, at most as long as JAX's own: in a gang until its last lane is done. What
is summed is in S. L. Moshier, "Methods and Programs for Mathematical Functions" (1989), chapters 4 and 7, as in JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

# ---- bessel
#
# Modified Bessel functions of orders 0 and 1, times e^-|x|, as sums of Chebyshev's polynomials, in `jax.lax`.
#
# Up to 8 of x / 4 - 1, beyond of 16 / x - 1 with the root of x taken out: the arrangement of C. W. Clenshaw, "Chebyshev
# Series for Mathematical Functions" (1962), which S. L. Moshier's Cephes has as well. Coefficients are those of the
# interpolation at 80 points.


I0_NEAR = (
    0.6767952744094761,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
I0_FAR = (
    0.8044904110141088,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
)
I1_NEAR = (
    0.25258718644363365,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
    2.7779141127610464e-18,
)
I1_FAR = (
    0.7785762350182801,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
)


def _sum(t: jax.Array, coefficients: Sequence[float]) -> jax.Array:
    """c0 / 2 + c1 T1(t) + c2 T2(t) + ..., by Clenshaw's recurrence, without what the dtype cannot hold."""
    least = float(np.finfo(t.dtype).eps) / 64
    held = [c for c in coefficients if abs(c) > least]
    after, afterwards = jnp.zeros_like(t), jnp.zeros_like(t)
    for c in held[:0:-1]:
        after, afterwards = 2 * t * after - afterwards + c, after
    return t * after - afterwards + held[0] / 2


def _either(x: jax.Array, near: jax.Array, far: Sequence[float]) -> jax.Array:
    size = jnp.maximum(abs(x), 8)
    return jnp.where(abs(x) <= 8, near, _sum(16 / size - 1, far) / lax.sqrt(size))


def bessel_i0e(op: Op, x: jax.Array) -> jax.Array:
    return _either(x, _sum(abs(x) / 4 - 1, I0_NEAR), I0_FAR)


def bessel_i1e(op: Op, x: jax.Array) -> jax.Array:
    return _either(x, abs(x) * _sum(abs(x) / 4 - 1, I1_NEAR), I1_FAR) * jnp.sign(x)


MOST_OF_FRACTION = 2000
MOST_OF_SERIES = 10000
"""Terms."""
VALUE, BY_A, OF_SAMPLE = "value", "by a", "of a sample"
"""What is wanted of an incomplete gamma function: itself, its derivative by the shape a, and that of a sample x by it,
which is the former over the density, negative."""


def _eps(x: jax.Array) -> float:
    return float(np.finfo(x.dtype).eps)


def _chosen(active: jax.Array, new: tuple[jax.Array, ...], old: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(jnp.where(active, x, y) for x, y in zip(new, old, strict=True))


# ---- the incomplete gamma functions


def _series(a: jax.Array, x: jax.Array, active: jax.Array, with_slope: bool) -> tuple[jax.Array, jax.Array]:
    """1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ... and its derivative by a (DLMF 8.7.1)."""
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)

    def turn(state: Any) -> Any:
        count, active, held = state
        r, term, total, slope, slopes = held
        r = r + 1
        slope = slope * (x / r) - term * x / (r * r)
        term = term * (x / r)
        total, slopes = total + term, slopes + slope
        large = abs(slope) > _eps(x) * abs(slopes) if with_slope else term > _eps(x) * total
        return count + 1, active & large, _chosen(active, (r, term, total, slope, slopes), held)

    def more(state: Any) -> Any:
        return (state[0] < MOST_OF_SERIES) & jnp.any(state[1])

    _, _, (_, _, total, _, slopes) = lax.while_loop(more, turn, (0, active, (a, one, one, zero, zero)))
    return total, slopes


def _fraction(a: jax.Array, x: jax.Array, active: jax.Array, with_slope: bool) -> tuple[jax.Array, jax.Array]:
    """The continued fraction of the upper function, over x^a e^-x, and its derivative by a (DLMF 8.9.2). Numerators and
    denominators, each with its derivative, of the last two steps."""
    eps, zero, one = _eps(x), jnp.zeros_like(x), jnp.ones_like(x)
    y = 1 - a
    z = x + y + 1

    def turn(state: Any) -> Any:
        count, active, held = state
        result, slope, y, z, p, p1, q, q1, dp, dp1, dq, dq1 = held
        c = (count + 1).astype(x.dtype)
        y, z = y + 1, z + 2
        by = y * c
        p2, q2 = p * z - p1 * by, q * z - q1 * by
        dp2, dq2 = dp * z - p - dp1 * by + p1 * c, dq * z - q - dq1 * by + q1 * c
        fine = q2 != 0
        found = jnp.where(fine, p2 / q2, result)
        steeper = jnp.where(fine, (dp2 - found * dq2) / q2, slope)
        off = abs(steeper - slope) if with_slope else abs((result - found) / found)
        large = jnp.where(abs(p2) > 1 / eps, eps, 1.0).astype(x.dtype)
        last = (p2 * large, p * large, q2 * large, q * large, dp2 * large, dp * large, dq2 * large, dq * large)
        return count + 1, active & (~fine | (off > eps)), _chosen(active, (found, steeper, y, z, *last), held)

    def more(state: Any) -> Any:
        return (state[0] < MOST_OF_FRACTION) & jnp.any(state[1])

    p, q = x + 1, z * x
    start = (p / q, p / q * (x / q), y, z, p, one, q, x, zero, zero, -x, zero)
    _, _, (result, slope, *_) = lax.while_loop(more, turn, (0, active, start))
    return result, slope


def _incomplete(a: jax.Array, x: jax.Array, upper: jax.Array, active: jax.Array, what: str) -> jax.Array:
    """The upper function in some lanes, the lower one in the others, or what is wanted of them."""
    with_slope = what != VALUE
    exponent = a * lax.log(x) - x - lax.lgamma(a)
    active = active & ~(exponent < -math.log(float(np.finfo(x.dtype).max)))
    factor = jnp.where(active, lax.exp(exponent), 0)
    total, slopes = _series(a, x, active & ~upper, with_slope)
    fraction, slope = _fraction(a, x, active & upper, with_slope)
    if what == VALUE:
        return jnp.where(upper, fraction * factor, total * factor / a)
    lower = total * (lax.log(x) - lax.digamma(a + 1)) + slopes
    above = fraction * (lax.log(x) - lax.digamma(a)) + slope
    if what == BY_A:
        return jnp.where(upper, -factor * above, factor * lower / a)
    return jnp.where(upper, above * x, -lower * x / a)


def _unless_wrong(a: jax.Array, x: jax.Array, found: jax.Array) -> jax.Array:
    wrong = (x < 0) | (a < 0) | ((a == 0) & (x == 0)) | jnp.isnan(a) | jnp.isnan(x)
    return jnp.where(wrong, jnp.nan, found)


def igamma(op: Op, a: jax.Array, x: jax.Array) -> jax.Array:
    upper = (x >= 1) & (x > a)
    active = (x > 0) & (a >= 0) & (x < jnp.inf)
    found = _incomplete(a, x, upper, active, VALUE)
    found = jnp.where(x == 0, 0, jnp.where(x == jnp.inf, 1, jnp.where(upper, 1 - found, found)))
    return _unless_wrong(a, x, found)


def igammac(op: Op, a: jax.Array, x: jax.Array) -> jax.Array:
    upper = (x >= 1) & (x >= a)
    active = (x >= 0) & (a > 0) & (x < jnp.inf)
    found = _incomplete(a, x, upper, active, VALUE)
    found = jnp.where((x == jnp.inf) | (a == 0), 0, jnp.where(upper, found, 1 - found))
    return _unless_wrong(a, x, found)


def _derivative(what: str) -> Callable[..., jax.Array]:
    def of(op: Op, a: jax.Array, x: jax.Array) -> jax.Array:
        upper = (x > 1) & (x > a)
        found = _incomplete(a, x, upper, (x > 0) & (a > 0), what)
        wrong = (x < 0) | (a <= 0) | jnp.isnan(a) | jnp.isnan(x)
        return jnp.where(wrong, jnp.nan, jnp.where(x == 0, 0, found))

    return of


# ---- the incomplete beta function


def regularized_incomplete_beta(op: Op, a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
    """By its continued fraction (DLMF 8.17.22), from the side where that comes to its end soon."""
    one_a, one_b = (a == 0) | (b == jnp.inf), (b == 0) | (a == jnp.inf)
    wrong = (a < 0) | (b < 0) | (x < 0) | (x > 1) | jnp.isnan(a) | jnp.isnan(b) | jnp.isnan(x) | (one_a & one_b)
    is_zero, is_one = (one_b & (x != 1)) | (one_a & (x == 0)), (one_a & (x != 0)) | (one_b & (x == 1))
    soon = x < (a + 1) / (a + b + 2)
    p, q = jnp.where(soon, a, b), jnp.where(soon, b, a)
    t = jnp.where(soon, x, 1 - x)
    fraction = 1 / _beta_fraction(p, q, t, ~(wrong | is_zero | is_one))
    rest = lax.lgamma(q) - lax.lgamma(p + q)
    exponent = lax.log1p(-t) * q
    usual = lax.exp(lax.log(t) * p + exponent - (lax.lgamma(p) + rest)) / p
    tiny = p < 2 * float(np.finfo(x.dtype).tiny)
    found = fraction * jnp.where(tiny, lax.exp(exponent - rest), usual)
    found = jnp.where(soon, found, 1 - found)
    return jnp.where(wrong, jnp.nan, jnp.where(is_zero, 0, jnp.where(is_one, 1, found)))


def _beta_fraction(a: jax.Array, b: jax.Array, x: jax.Array, active: jax.Array) -> jax.Array:
    """1 + d1 / (1 + d2 / ...), by the method of W. J. Lentz and of I. J. Thompson and A. R. Barnett."""
    least = _eps(x) / 2
    one = jnp.ones_like(x)

    def away_from_zero(x: jax.Array) -> jax.Array:
        return jnp.where(abs(x) < least, least, x)

    def turn(state: Any) -> Any:
        count, active, held = state
        c, d, found = held
        n = count + 1
        m = (n // 2).astype(x.dtype)
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        first = -(a + b) * x / (a + 1)
        term = jnp.where(n % 2 == 0, even, jnp.where(m == 0, first, odd))
        c, d = away_from_zero(1 + term / c), 1 / away_from_zero(1 + term * d)
        step = c * d
        return n, active & (abs(step - 1) >= least), _chosen(active, (c, d, found * step), held)

    def more(state: Any) -> Any:
        return (state[0] < (200 if x.dtype == jnp.float32 else 600)) & jnp.any(state[1])

    return lax.while_loop(more, turn, (0, active, (one, jnp.zeros_like(x), one)))[2][2]


# ---- Hurwitz's zeta function and derivatives of digamma

FIRST_TERMS = 9
"""Of zeta, which are summed as they are, and further ones up to an argument of 9."""


def _bernoulli(count: int) -> list[Fraction]:
    """Those of even numbers from 2 on."""
    found = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        found.append(-sum((math.comb(m + 1, k) * found[k] for k in range(m)), Fraction(0)) / (m + 1))
    return found[2::2]


CORRECTIONS = [b / math.factorial(2 * k) for k, b in enumerate(_bernoulli(12), 1)]


def zeta(op: Op, s: jax.Array, q: jax.Array) -> jax.Array:
    """The sum of (q + k)^-s, the rest of it by Euler's and Maclaurin's formula (DLMF 25.11.28). NaN where q is so far
    below 0 that there are more than ten thousand terms to it."""

    def more(state: Any) -> Any:
        count, at, _ = state
        return (count < MOST_OF_SERIES) & jnp.any((count < FIRST_TERMS) | (at < FIRST_TERMS))

    def turn(state: Any) -> Any:
        count, at, total = state
        active = (count < FIRST_TERMS) | (at < FIRST_TERMS)
        return count + 1, jnp.where(active, at + 1, at), jnp.where(active, total + lax.pow(at, -s), total)

    _, at, total = lax.while_loop(more, turn, (0, q, jnp.zeros_like(q)))
    last = lax.pow(at, -s)
    total = total + last * at / (s - 1) + last / 2
    term = last * s / at * float(CORRECTIONS[0])
    for k, (c, other) in enumerate(zip(CORRECTIONS, [*CORRECTIONS[1:], Fraction(0)], strict=True)):
        total = total + term
        term = term * ((s + (2 * k + 1)) / at) * ((s + (2 * k + 2)) / at) * float(other / c)
    found = jnp.where((at < FIRST_TERMS) | (s < 1), jnp.nan, total)
    found = jnp.where((q <= 0) & (s != lax.floor(s)), jnp.nan, found)
    pole = jnp.where(lax.rem(s, jnp.full_like(s, 2)) == 0, jnp.inf, jnp.nan)
    found = jnp.where((q <= 0) & (q == lax.floor(q)), pole, found)
    return jnp.where(s == 1, jnp.inf, found)


def polygamma(op: Op, n: jax.Array, x: jax.Array) -> jax.Array:
    """The derivative of digamma so many times: (-1)^(n + 1) n! zeta(n + 1, x) (DLMF 5.15.2)."""
    sign = jnp.where(lax.rem(n, jnp.full_like(n, 2)) == 0, -1, 1)
    found = sign * lax.exp(lax.lgamma(n + 1)) * zeta(op, n + 1, x)
    found = jnp.where(n == 0, lax.digamma(x), found)
    return jnp.where((n < 0) | (n != lax.floor(n)), jnp.nan, found)


def _in_single(written: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Floats of 16 bits are computed in 32."""

    def of(op: Op, *xs: jax.Array) -> jax.Array:
        if xs[0].dtype.itemsize > 2:
            return written(op, *xs)
        return written(op, *(x.astype(jnp.float32) for x in xs)).astype(xs[0].dtype)

    return of


_WRITTEN: Mapping[str, Callable[..., jax.Array]] = {
    "bessel_i0e": bessel_i0e,
    "bessel_i1e": bessel_i1e,
    "igamma": igamma,
    "igamma_grad_a": _derivative(BY_A),
    "igammac": igammac,
    "polygamma": polygamma,
    "random_gamma_grad": _derivative(OF_SAMPLE),
    "regularized_incomplete_beta": regularized_incomplete_beta,
    "zeta": zeta,
}
SPECIAL = {name: _in_single(written) for name, written in _WRITTEN.items()}
"""By the name of JAX's primitive: `written(op, *operands)`, to be traced."""


# ---- samples
#
# Numbers drawn of the gamma distribution, in `jax.lax`: those that JAX draws of the same key.
#
# The method is that of G. Marsaglia and W. W. Tsang, "A Simple Method for Generating Gamma Variables" (2000), and keys
# are split as JAX splits them. Where roundings decide a comparison otherwise, which is rare, it is another number.


def random_gamma(op: Op, key: jax.Array, a: jax.Array) -> jax.Array:
    count = math.prod(a.shape[key.ndim :])
    keys = jax.vmap(lambda k: jax.random.split(k, count))(key.flatten()).flatten()
    if a.size == 1:
        return _one(keys[0], a.reshape(()), op["log_space"]).reshape(a.shape)
    found = lax.map(lambda each: _one(each[0], each[1], op["log_space"]), (keys, a.flatten()))
    return jnp.reshape(found, a.shape)


def _one(key: jax.Array, a: jax.Array, log_space: bool) -> jax.Array:
    """Below 1 it is a number drawn for a + 1, times a power of a uniform one."""
    high = a >= 1
    d = jnp.where(high, a, a + 1) - jnp.asarray(1.0 / 3.0, a.dtype)
    c = jnp.asarray(1.0 / 3.0, a.dtype) / lax.sqrt(d)

    def refused(state: Any) -> Any:
        _, square, v, u = state
        far = u >= 1 - jnp.asarray(0.0331, a.dtype) * (square * square)
        return far & (lax.log(u) >= square * 0.5 + d * ((1 - v) + lax.log(v)))

    def draw(state: Any) -> Any:
        key, of_x, of_u = jax.random.split(state[0], 3)

        def again(inner: Any) -> Any:
            key, part = jax.random.split(inner[0])
            x = jax.random.normal(part, (), a.dtype)
            return key, x, 1 + x * c

        start = (of_x, jnp.zeros_like(a), jnp.full_like(a, -1))
        _, x, v = lax.while_loop(lambda inner: inner[2] <= 0, again, start)
        return key, x * x, v * v * v, jax.random.uniform(of_u, (), a.dtype)

    key, other = jax.random.split(key)
    start = (key, jnp.zeros_like(a), jnp.ones_like(a), jnp.full_like(a, 2))
    _, _, v, _ = lax.while_loop(refused, draw, start)
    if log_space:
        less = -jax.random.exponential(other, (), a.dtype)
        return lax.log(d) + lax.log(v) + jnp.where(high | (less == 0), 0, less * (1 / a))
    u = 1 - jax.random.uniform(other, (), a.dtype)
    return d * v * jnp.where(high, 1, lax.pow(u, 1 / a))


# ---- matrices
#
# Linear algebra of small matrices, written out number by number in `jax.lax`: LU, Cholesky, triangular systems.
#
#     lu(a)                    ->  for each column: the largest number, rows exchanged by choices, multiples taken away
#     custom_linear_solve(...) ->  the solution that it brings: two triangular systems
#
# The arrangement is that of LAPACK's unblocked routines (`getf2`, `potf2`, `trsv`), so results are XLA's but for
# roundings, and so is which row is a pivot. Leading axes are those of many matrices.


LARGEST = 8
"""Rows of a matrix up to which all is written out: what there is to compute grows with their cube."""

Rows = list[list[jax.Array]]


def _rows(a: jax.Array) -> Rows:
    if max(a.shape[-2:]) > LARGEST:
        raise RefusedError(f"a matrix of more than {LARGEST} rows or columns")
    return [[a[..., i, j] for j in range(a.shape[-1])] for i in range(a.shape[-2])]


def _joined(rows: Rows) -> jax.Array:
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2)


def _size(x: jax.Array) -> jax.Array:
    """Of complex numbers the sum of their parts', as LAPACK compares them."""
    return abs(x.real) + abs(x.imag) if jnp.iscomplexobj(x) else abs(x)


def _exchanged(first: Any, other: Any, here: jax.Array) -> tuple[Any, Any]:
    return jnp.where(here, other, first), jnp.where(here, first, other)


def lu(op: Op, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """L and U in one matrix, which row was exchanged with each, and the order of rows that comes of it."""
    rows = _rows(a)
    order = [jnp.full(a.shape[:-2], i, np.int32) for i in range(len(rows))]
    pivots = []
    for k in range(min(a.shape[-2:])):
        place, largest = jnp.full(a.shape[:-2], k, np.int32), _size(rows[k][k])
        for i in range(k + 1, len(rows)):
            size = _size(rows[i][k])
            more = size > largest
            place, largest = jnp.where(more, np.int32(i), place), jnp.where(more, size, largest)
        pivots.append(place)
        for i in range(k + 1, len(rows)):
            here = place == i
            order[k], order[i] = _exchanged(order[k], order[i], here)
            for j in range(a.shape[-1]):
                rows[k][j], rows[i][j] = _exchanged(rows[k][j], rows[i][j], here)
        pivot = jnp.where(rows[k][k] == 0, 1, rows[k][k])  # then all below is zero as well
        for row in rows[k + 1 :]:
            row[k] = row[k] / pivot
            row[k + 1 :] = [x - row[k] * y for x, y in zip(row[k + 1 :], rows[k][k + 1 :], strict=True)]
    return _joined(rows), jnp.stack(pivots, -1), jnp.stack(order, -1)


def lu_pivots_to_permutation(op: Op, pivots: jax.Array) -> jax.Array:
    if op["permutation_size"] > LARGEST:
        raise RefusedError(f"a matrix of more than {LARGEST} rows")
    order = [jnp.full(pivots.shape[:-1], i, np.int32) for i in range(op["permutation_size"])]
    for k in range(pivots.shape[-1]):
        for i in range(k + 1, len(order)):
            order[k], order[i] = _exchanged(order[k], order[i], pivots[..., k] == i)
    return jnp.stack(order, -1)


def cholesky(op: Op, a: jax.Array) -> jax.Array:
    """The lower factor; NaN where the matrix is not positive definite. It reads the lower half."""
    rows = _rows(a)
    fine = jnp.full(a.shape[:-2], True)
    for j in range(len(rows)):
        square = rows[j][j].real
        for x in rows[j][:j]:
            square = square - (x * x.conj()).real
        fine = fine & (square > 0)
        root = lax.sqrt(square)
        rows[j][j] = lax.convert_element_type(root, a.dtype)
        for row in rows[j + 1 :]:
            for x, y in zip(row[:j], rows[j][:j], strict=True):
                row[j] = row[j] - x * y.conj()
            row[j] = row[j] / root
    nothing = jnp.zeros(a.shape[:-2], a.dtype)
    wrong = jnp.full(a.shape[:-2], np.nan, a.dtype)
    whole = [[jnp.where(fine, x, wrong) if j <= i else nothing for j, x in enumerate(r)] for i, r in enumerate(rows)]
    return _joined(whole)


def triangular_solve(op: Op, a: jax.Array, b: jax.Array) -> jax.Array:
    """x of t x = b, or of x t = b, for t = a, its transpose or its adjoint. Of `a` one half is read."""
    rows = _rows(a)
    # x t = b is t' x' = b'
    turned = op["transpose_a"] != (not op["left_side"])
    if turned:
        rows = [list(column) for column in zip(*rows, strict=True)]
    if op["conjugate_a"]:
        rows = [[x.conj() for x in row] for row in rows]
    sides = b if op["left_side"] else jnp.swapaxes(b, -1, -2)
    found: dict[int, jax.Array] = {}
    down = op["lower"] != turned
    for i in range(len(rows)) if down else reversed(range(len(rows))):
        x = sides[..., i, :]
        for j in range(i) if down else reversed(range(i + 1, len(rows))):
            x = x - rows[i][j][..., None] * found[j]
        found[i] = x if op["unit_diagonal"] else x / rows[i][i][..., None]
    joined = jnp.stack([found[i] for i in range(len(rows))], -2)
    return joined if op["left_side"] else jnp.swapaxes(joined, -1, -2)


def custom_linear_solve(op: Op, *xs: jax.Array) -> Sequence[jax.Array]:
    """By the function that it brings for that."""
    lengths, solve = op["const_lengths"], op["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    constants = xs[first : first + lengths.solve]
    found: Sequence[jax.Array] = jax.core.eval_jaxpr(solve.jaxpr, solve.consts, *constants, *xs[sum(lengths) :])
    return found


MATRICES: Mapping[str, Callable[..., Any]] = {
    "cholesky": cholesky,
    "custom_linear_solve": custom_linear_solve,
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "triangular_solve": triangular_solve,
}
"""By the name of JAX's primitive: `written(op, *operands)`, to be traced."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("eig", "eigh", "hessenberg", "schur", "tridiagonal"), "eigenvalues of matrices"),
    **dict.fromkeys(("geqrf", "geqp3", "householder_product", "ormqr", "qr"), "QR decompositions"),
    "svd": "singular values of matrices",
}
"""What machine code does not have."""
