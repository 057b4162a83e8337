"""lgamma and digamma: a polynomial about 2 (and about digamma's zero at 1.46), recurrences up to 6, Stirling's series
from there on, reflection below 0 (DLMF 5.5, 5.7, 5.11, 5.15).

    lgamma(n + u)  =  lgamma(2 + u) + log((u + 2) (u + 3) ... (u + n - 1))
    lgamma(-s)     =  log(pi / (s |sin(pi s)|)) - lgamma(s)
    digamma(n + u) =  digamma(1 + u) + 1 / (u + 1) + ... + 1 / (u + n - 1)
    digamma(-s)    =  digamma(1 + s) + pi / tan(pi s)

All is kept as pairs, with some 60 digits, so that what cancels leaves enough of them. Below 0, where there are zeros
between the poles, the sums leave no digits near to one; there it is Taylor's series about the zero (`zeros.py`). Of the
endless zeros of digamma the first 24 are known: below -25 it is off by up to 3e-19, which is more than two units in the
last place where it is less than 2^-10.
"""

from __future__ import annotations

from autobatch.backends.llvm.double.exponentials import or_nan
from autobatch.backends.llvm.double.logarithms import log_of
from autobatch.backends.llvm.double.pairs import Pair, choose, exact_product, exact_sum, exactly, quick_sum
from autobatch.backends.llvm.double.zeros import DIGAMMA_ZEROS, digamma_near_zero, lgamma_near_zero
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    Mask,
    Real,
    absolute,
    floor,
    fma,
    greatest,
    if_any,
    least,
    nearest,
    polynomial,
    where,
)

LGAMMA = (
    -0.0673523010531981,
    0.02058080842778455,
    -0.007385551028673429,
    0.002890510330741257,
    -0.00119275391176255,
    0.0005096695247713671,
    -0.00022315475602710603,
    9.945751162260417e-05,
    -4.492628637818162e-05,
    2.050723648981259e-05,
    -9.43891959627718e-06,
    4.3745951284891045e-06,
    -2.043022895180944e-06,
    9.569598111140567e-07,
    -4.3454173670260496e-07,
    2.0504811151039471e-07,
    -1.3029870239068415e-07,
    6.196070134106839e-08,
)
LGAMMA_LEADING = ((0.42278433509846713, 4.942915152430645e-18), (0.3224670334241132, 1.520336175199238e-17))
"""lgamma(2 + u) = u (a + u (b + u P(u))) up to 1/2, with a and b as pairs."""
DIGAMMA = (
    0.258499760955651,
    -0.16394270544240624,
    0.10782405069126288,
    -0.07219956125654463,
    0.04880428816410802,
    -0.033161126466243196,
    0.022597648230408437,
    -0.015424766281997218,
    0.010538791838238819,
    -0.0072045253325662435,
    0.0049267734678079015,
    -0.003369931469439546,
    0.0023052719703543878,
    -0.0015757857281696055,
    0.0010772657345207055,
    -0.0007443380623513606,
    0.0005150205646456579,
    -0.00032588317888162074,
    0.0001981368365946236,
    -0.00018923315954795885,
    0.0001868460971495369,
    -8.103566263483997e-05,
)
DIGAMMA_LEADING = ((0.9676722454476212, -3.387874303038943e-17), (-0.4427631689835921, -2.4685968258808798e-17))
"""digamma(root + r) = r (a + r (b + r P(r))), from 1 to 2."""
ROOT_LESS_1 = (0.46163214496836236, -1.5522348162858677e-17)
"""The zero of digamma, less 1."""
STIRLING = (
    -0.0027777777777777714,
    0.000793650793622215,
    -0.0005952380734381973,
    0.0008417444526770859,
    -0.0019165961930440504,
    0.006335131595125854,
    -0.026055700445084082,
    0.08644963973576185,
)
TWELFTH = (1.0 / 12.0, 4.625929269271485e-18)
HALF_LOG_2_PI_LESS_HALF = (0.4189385332046727, 1.6728209650585413e-17)
"""lgamma(x) = (x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + (1/12 + w P(w)) / x with w = 1 / x^2, from 6 on."""
OF_DIGAMMA = (
    0.08333333333333333,
    -0.008333333333329406,
    0.0039682539644546435,
    -0.0041666652417935435,
    0.007575487397643495,
    -0.021063611862127792,
    0.0814363050587353,
    -0.3678576332158468,
    1.2391679863993024,
)
"""digamma(x) = log(x) - 1 / (2 x) - w P(w)."""
SIN_OF_HALVES = (
    -0.5992645293207921,
    0.08214588661112747,
    -0.007370430945571342,
    0.00046630279600272346,
    -2.1915052005412593e-05,
    7.909143969607999e-07,
)
SIN_LEADING = (
    (3.141592653589793, 1.2246467991473532e-16),
    (-5.16771278004997, 2.2665622825789447e-16),
    (2.5501640398773455, -7.931006345326556e-17),
)
"""sin(pi r) = r (a + z (b + z (c + z P(z)))) with z = r^2, up to 1/4."""
COS_OF_HALVES = (
    -1.3352627688545895,
    0.23533063035888857,
    -0.025806891389149548,
    0.0019295742503722122,
    -0.00010463628253398391,
    4.277125596696382e-06,
)
COS_LEADING = ((1.0, 0.0), (-4.934802200544679, -3.1326477543698557e-16), (4.0587121264167685, -2.6602000824298645e-16))
"""cos(pi r) = a + z (b + z (c + z P(z)))."""
PI = SIN_LEADING[0]
LOG_PI = (1.1447298858494002, 1.0265951162707826e-17)
SMALL = 6
MOST = 2.5599833278516383e305
"""Beyond, lgamma is infinite."""


def _constant(like: Real, c: tuple[float, float]) -> Pair:
    return Pair(like.like(c[0]), like.like(c[1]))


def _reciprocal(x: Real) -> Pair:
    found = 1.0 / x
    return Pair(found, found * fma(-found, x, 1.0))


def _of_offset(x: Pair, leading: tuple[tuple[float, float], ...], rest: tuple[float, ...]) -> Pair:
    """a + x (b + ... + x P(x)), with the leading coefficients as pairs."""
    *first, last = (_constant(x.high, c) for c in leading)
    total = quick_sum(last.high, fma(x.high, polynomial(x.high, rest), last.low))
    for c in reversed(first):
        total = c + x * total
    return total


def _sin_and_cos(s: Real) -> tuple[Pair, Pair]:
    """Of pi s for s from 0 on: |sin| and |cos|, with the sign of tan at the cosine."""
    r = s - nearest(s)
    size = absolute(r)
    flat = size > 0.25
    t = where(flat, 0.5 - size, size)
    z = exact_product(t, t)
    sin = _of_offset(z, SIN_LEADING, SIN_OF_HALVES).times(t)
    cos = _of_offset(z, COS_LEADING, COS_OF_HALVES)
    below = r < 0.0
    of_cos = choose(flat, sin, cos)
    return choose(flat, cos, sin), choose(below, -of_cos, of_cos)


def _is_pole(x: Real) -> Mask:
    return (x <= 0.0) & floor(x).equals(x)


# ---- lgamma


def _product(s: Real, n: Real) -> Pair:
    """What the recurrence multiplies, to be divided by where n is 0 or 1. All factors are exact."""
    u = s - n
    few = [where(n > float(k), u + float(k), 1.0) for k in range(2, SMALL)]
    total = exact_product(few[0], few[1])
    for factor in few[2:]:
        total = total.times(factor)
    alone = exact_sum(s, where(n < 1.0, s.like(1.0), 0.0)).times(where(n < 1.0, absolute(s), 1.0))
    return choose(n < 2.0, alone, total)


def _stirling(s: Real, log: Pair) -> Pair:
    inverse = _reciprocal(s)
    w = inverse.high * inverse.high
    series = inverse * quick_sum(s.like(TWELFTH[0]), fma(w, polynomial(w, STIRLING), TWELFTH[1]))
    return exact_sum(s, -0.5) * log.plus(-1.0) + (_constant(s, HALF_LOG_2_PI_LESS_HALF) + series)


def _lgamma(s: Real) -> Pair:
    """From -1/2 on, but for 0."""
    n = nearest(least(s, float(SMALL)))
    large = s >= SMALL
    log = log_of(choose(large, exactly(s), _product(s, n)))
    u = s - n
    about = _of_offset(exactly(u), LGAMMA_LEADING, LGAMMA).times(u)
    near = about + choose(n < 2.0, -log, log)
    return choose(large, _stirling(greatest(s, float(SMALL)), log), near)


def _reflected(s: Real, found: Pair) -> Pair:
    sin, _ = _sin_and_cos(s)
    return _constant(s, LOG_PI) + -log_of(sin.times(s)) + -found


def lgamma(x: Real) -> Real:
    size = absolute(x)
    back = x < -0.5
    positive = _lgamma(where(back, size, x))

    def below() -> list[Real]:
        return [_reflected(size, positive).one()]

    (found,) = if_any(back, [positive.one()], below)
    near = back & (absolute(found) < 2.0**-6)
    (found,) = if_any(near, [found], lambda: [lgamma_near_zero(x, nearest(size)).one()])
    endless = _is_pole(x) | (size > MOST)
    return or_nan(x, where(endless, INFINITY, found))


# ---- digamma


def _sum_of_reciprocals(u: Real, n: Real) -> Pair:
    """1 / (u + 1) + ... + 1 / (u + n - 1), and -1 / u where n is 0."""
    first = _reciprocal(where(n < 1.0, -u, u + 1.0))
    total = choose(n.equals(1.0), exactly(u.like(0.0)), first)
    for k in range(2, SMALL):
        more = n > float(k)
        total = choose(more, total + _reciprocal(where(more, u + float(k), 1.0)), total)
    return total


def _digamma(s: Real, one_more: Mask) -> Pair:
    """Of positive numbers; in the lanes of a mask, of 1 + s."""
    n = floor(least(s, float(SMALL)))
    large = s >= SMALL
    off = exact_sum(s - n, -ROOT_LESS_1[0]).plus(-ROOT_LESS_1[1])
    near = _of_offset(off, DIGAMMA_LEADING, DIGAMMA) * off
    near = near + _sum_of_reciprocals(s - n, n + where(one_more, s.like(1.0), 0.0))
    held = greatest(s, float(SMALL))
    inverse = _reciprocal(held)
    w = inverse.high * inverse.high
    half = inverse.by_power_of_two(where(one_more, s.like(0.5), -0.5))
    far = log_of(exactly(held)) + half.plus(-(w * polynomial(w, OF_DIGAMMA)))
    return choose(large, far, near)


def digamma(x: Real) -> Real:
    """NaN at poles, as XLA has it."""
    size = absolute(x)
    back = x < 0.0
    positive = _digamma(size, back)

    def below() -> list[Real]:
        sin, cos = _sin_and_cos(size)
        return [(positive + cos / sin * _constant(x, PI)).one()]

    (found,) = if_any(back, [positive.one()], below)
    pole = floor(size) + 1.0
    near = back & (absolute(found) < 2.0**-4) & (pole <= DIGAMMA_ZEROS)
    (found,) = if_any(near, [found], lambda: [digamma_near_zero(x, pole).one()])
    found = where(size < 2.0**-60, -1.0 / x, where(x.equals(INFINITY), x, found))
    return or_nan(x, where(_is_pole(x), NAN, found))
