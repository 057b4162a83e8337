"""lgamma and digamma: a polynomial about 2 (and about digamma's zero at 1.46), recurrences up to 6, Stirling's series
from there on, reflection below 0 (DLMF 5.5, 5.7, 5.11, 5.15).

    lgamma(n + u)  =  lgamma(2 + u) + log((u + 2) (u + 3) ... (u + n - 1))
    lgamma(-s)     =  log(pi / (s |sin(pi s)|)) - lgamma(s)
    digamma(n + u) =  digamma(1 + u) + 1 / (u + 1) + ... + 1 / (u + n - 1)
    digamma(-s)    =  digamma(1 + s) + pi / tan(pi s)

All is kept as pairs, with some 60 digits, so that what cancels leaves enough of them. Below 0, where there are zeros
between the poles, the sums leave no digits near to one; there it is Taylor's series about the zero.
Of the endless zeros of digamma the first 24 are known: below -25 it is off by up to 3e-19,
which is more than two units in the last place where it is less than 2^-10.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import cache

from autobatch.backends.llvm.float64 import (
    Pair,
    ReducedExponent,
    choose,
    exact_product,
    exact_sum,
    exactly,
    exp,
    log,
    log_of,
    or_nan,
    quick_sum,
    reduced,
)
from autobatch.backends.llvm.formulas import (
    INFINITY,
    NAN,
    IntegerVector,
    Mask,
    Real,
    absolute,
    clamped,
    floor,
    fma,
    greatest,
    if_any,
    least,
    nearest,
    polynomial,
    scaled,
    sqrt,
    table,
    where,
    where_whole,
    with_sign_of,
)

# ---- zeros
#
# Where lgamma and digamma vanish below 0, between their poles: Taylor's series about each of these numbers.
#
# A zero is kept as its distance from the nearest pole, which near a pole has more digits than the zero has.
# Coefficients are those of Hurwitz's zeta function (DLMF 5.15.2, 25.11.12), which is dominated by the nearest pole.


Zero = tuple[int, tuple[float, float], tuple[float, float]]
"""A pole below 0 without its sign, what is to be added to it, as a pair, and the slope, as a pair."""

ZEROS_OF_LGAMMA = (
    (2, (-0.45702473822080064, 1.843554041574456e-17), (1.5156034480216574, -4.0695290379659363e-17)),
    (3, (0.2523173532725874, -2.04688991691325e-17), (-1.9143501856115988, -6.288473508186805e-17)),
    (3, (-0.14358088834998006, 3.862806401714152e-18), (7.781884658131351, -1.2366266971852707e-16)),
    (4, (0.04470571514140207, 8.223977942582053e-19), (-20.725060845803707, 1.4319348367658305e-15)),
    (4, (-0.03936183974053688, 3.2731379225891636e-18), (26.790480886140593, 7.29303362861673e-16)),
    (5, (0.008455359439952277, 8.231751957350036e-19), (-116.53578161624363, -5.71604654736871e-15)),
    (5, (-0.008218168322593521, -5.582665915956405e-19), (123.3621845633534, -1.7685712092825869e-15)),
    (6, (0.0013925199191243706, -7.090441230646531e-20), (-716.2454304275473, -2.978324292002825e-14)),
    (6, (-0.0013852944531550972, -2.6295731811446077e-20), (723.7366299252801, 1.1249184125179834e-14)),
    (7, (0.0001984921093623021, 6.263909978492175e-21), (-5035.967373768125, -3.431412146498085e-13)),
    (7, (-0.00019833340732475162, 1.1820573401560963e-20), (5044.029941110829, 2.1055091809068177e-13)),
    (8, (2.4802904179335845e-05, 3.15397713595963e-22), (-40315.71854218779, -1.3528231836249092e-12)),
    (8, (-2.48002706819597e-05, 1.0083974251164085e-21), (40324.281108124356, -2.389812710483955e-12)),
    (9, (2.7557490225318057e-06, -6.500300408654724e-23), (-362875.4964746711, 1.3486075072383962e-11)),
    (9, (-2.7557148226503463e-06, -5.624459871432079e-23), (362884.5034850277, 5.4195819812064025e-12)),
    (10, (2.7557337083353163e-07, 1.4502658434955713e-23), (-3628795.296492739, -1.2671744970551317e-10)),
    (10, (-2.755730136466002e-07, -2.4472526783403563e-23), (3628804.7035030955, -3.2764123120909294e-11)),
    (11, (2.5052109918476226e-08, -6.807394864189793e-25), (-39916795.114676446, 7.737126660349542e-10)),
    (11, (-2.5052106852407546e-08, 1.2924868620853802e-24), (39916804.88532317, -1.9950818162239775e-09)),
    (12, (2.087675709796081e-09, -8.658839215884982e-26), (-479001594.94800997, 1.1134489574140605e-08)),
    (12, (-2.087675687777539e-09, -4.849684877236172e-26), (479001605.05199003, -2.2289997782624084e-08)),
    (13, (1.6059043843534355e-10, 6.465141936497467e-27), (-6227020794.794164, -1.1429843684124307e-07)),
    (13, (-1.6059043830108875e-10, 7.046449983196074e-27), (6227020805.205836, -1.1693576000219276e-07)),
    (14, (1.147074559808161e-11, -7.830340218001236e-28), (-87178291194.6513, -5.242382227630101e-07)),
    (14, (-1.147074559737784e-11, 4.194056116105366e-28), (87178291205.3487, -5.244311024301018e-07)),
    (15, (7.647163731835846e-13, -3.8035184915187745e-29), (-1307674367994.518, 9.30629114931976e-05)),
    (15, (-7.647163731803788e-13, 4.886154187641447e-29), (1307674368005.482, 9.306289834827595e-05)),
    (16, (4.779477332388026e-14, -9.319923331229129e-31), (-20922789887994.395, 0.0015579066553400769)),
    (16, (-4.779477332386745e-14, -1.811833433216651e-30), (20922789888005.605, 0.0015579066545013966)),
)
"""The pair of zeros about each pole, as far as a double can come near to them; behind -2 there is one."""

ZEROS_OF_DIGAMMA = (
    (1, (0.4959169917355446, -8.15428206243813e-18), (8.939798558792134, 4.661730805438714e-16)),
    (2, (0.42650152683760956, -1.574185691077347e-17), (9.941513615924176, -3.5066551522020224e-16)),
    (3, (0.38927913155585536, -1.2202694992732132e-17), (10.84832879920919, -8.536942638820942e-16)),
    (4, (0.3647066335630989, -9.671895995274374e-19), (11.650939359651861, 2.7717347428725115e-16)),
    (5, (0.34676223825685754, 2.2628894141607193e-17), (12.369637994669782, 3.8877487536134796e-17)),
    (6, (0.33283755844311447, -3.2153051074948335e-18), (13.021406387509394, -6.965089235370473e-16)),
    (7, (0.32158178692657324, 1.40129649619771e-17), (13.61885190419576, -7.135780553752631e-16)),
    (8, (0.312211674968374, -2.4133947001851525e-17), (14.17134063324115, -6.249516188433109e-16)),
    (9, (0.30423583618359873, 4.467870224652488e-18), (14.685967981672645, -5.723133091848305e-16)),
    (10, (0.29732745999813626, 7.435123333532191e-18), (15.168227153977934, 6.378153190846254e-16)),
    (11, (0.29125916174585537, -1.8098511510194027e-17), (15.622457622439102, -3.671625513240059e-16)),
    (12, (0.28586693877104613, 2.715774696551599e-17), (16.052149399699143, -2.276253500863315e-16)),
    (13, (0.2810289742507925, 2.4369117870628782e-17), (16.460153754774325, -1.6912033593757427e-15)),
    (14, (0.2766525426361732, 8.738659301743149e-18), (16.848832388781286, -1.5787597768773472e-15)),
    (15, (0.27266558398147106, 1.8892751268118038e-17), (17.220165296986988, -5.688225105726854e-16)),
    (16, (0.2690110936671176, -5.5027387288572304e-18), (17.57583029204343, 1.7535878417261093e-16)),
    (17, (0.2656432760442643, 1.7295163907657788e-17), (17.917262680194938, -4.030448106280187e-16)),
    (18, (0.2625248400224111, -1.2977261991403057e-17), (18.245700765693552, 1.3291042778223835e-15)),
    (19, (0.2596250552199003, -1.4230298349280131e-18), (18.56222105397533, 2.741193184014789e-17)),
    (20, (0.2569183274097824, -1.556656310557129e-17), (18.86776584413125, 2.8533779086224476e-16)),
    (21, (0.25438313639247406, -6.67177569649072e-18), (19.163165114294156, -2.437338291593014e-16)),
    (22, (0.25200123179887035, -3.3780720055094426e-18), (19.449154068936764, 9.927885525904876e-16)),
    (23, (0.2497570156939399, 1.1118573635369212e-17), (19.726387347479086, 3.271754776398286e-16)),
    (24, (0.24763706261481824, 1.0790059074834907e-17), (19.995450633932613, 8.940133451646123e-16)),
)
"""The zero between each two poles. There are more, to which doubles come near as well."""

DIGAMMA_ZEROS = len(ZEROS_OF_DIGAMMA)
TERMS = 11
"""Of the series, so that it does for values up to 2^-6 (lgamma) and 2^-4 (digamma)."""
COLUMNS = TERMS + 3


def lgamma_near_zero(x: Real, pole: Real) -> Pair:
    """Where it is less than 2^-6. `pole`: the nearest, without its sign."""
    number = clamped(pole, 2.0, 16.0).whole()
    below = where_whole((x + pole) < 0.0, 1, number.like(0))
    row = number * 2 - 5 + below
    row = where_whole(row.is_("slt", 0), 0, row)
    return _series("zeros_of_lgamma", _coefficients_of_lgamma(), exact_sum(x, pole), row)


def digamma_near_zero(x: Real, pole: Real) -> Pair:
    """Where it is less than 2^-4. `pole`: the one below, up to DIGAMMA_ZEROS, without its sign."""
    row = clamped(pole, 1.0, DIGAMMA_ZEROS).whole() - 1
    return _series("zeros_of_digamma", _coefficients_of_digamma(), exact_sum(x, pole), row)


def _series(name: str, rows: Sequence[int], behind: Pair, row: IntegerVector) -> Pair:
    """`behind`: how far behind the pole."""

    def column(k: int) -> Real:
        return table(name, rows, row * COLUMNS + k).bits_as_float()

    off = exact_sum(behind.high - column(0), behind.low - column(1))
    rest = column(COLUMNS - 1)
    for k in range(COLUMNS - 2, 3, -1):
        rest = fma(rest, off.high, column(k))
    return off * quick_sum(column(2), fma(off.high, rest, column(3)))


@cache
def _coefficients_of_lgamma() -> tuple[int, ...]:
    return _bits(ZEROS_OF_LGAMMA, lambda k: 1.0 / k, 0)


@cache
def _coefficients_of_digamma() -> tuple[int, ...]:
    return _bits(ZEROS_OF_DIGAMMA, lambda _: -1.0, 1)


def _bits(zeros: Sequence[Zero], factor: Callable[[int], float], more: int) -> tuple[int, ...]:
    """Rows of a zero, its slope, and the coefficients from the second on: (-1)^k factor(k) zeta(k + more, zero)."""
    numbers = [
        number
        for pole, zero, slope in zeros
        for number in (
            *(*zero, *slope),
            *((-1.0) ** k * factor(k) * _zeta(k + more, pole, zero[0]) for k in range(2, TERMS + 1)),
        )
    ]
    return struct.unpack(f"{len(numbers)}q", struct.pack(f"{len(numbers)}d", *numbers))


def _zeta(k: int, pole: int, behind: float) -> float:
    """The sum of (j + z)^-k for j from 0 on, with z = `behind` - `pole`, by Euler's and Maclaurin's formula."""
    far = 60.0 + behind
    tail = far ** (1 - k) / (k - 1) + 0.5 * far**-k + k / 12.0 * far ** (-k - 1)
    return math.fsum(
        (*((behind + j) ** -k for j in range(-pole, 60)), tail, -k * (k + 1) * (k + 2) / 720.0 * far ** (-k - 3))
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


# ---- errors
#
# erf, erfc and the inverse of erf.
#
# Up to 3/4 a polynomial of x^2. Beyond, (1 + 2 x) e^(x^2) erfc(x) is smooth as far as there are numbers, and one
# polynomial of (x - 3) / (x + 3): M. M. Shepherd, J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc
# x in 0 <= x < infinity" (1981).


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
