"""Python's operators and the functions of `math`: what they raise, and what they give."""

import cmath
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autobatch as ab
from autobatch.frontend.library.domains import DOMAINS
from autobatch.testing import assert_same
from tests.conftest import Golden

INF, NAN = math.inf, math.nan
FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -3.0, 800.0, -800.0, 1e30, -1e30, INF, -INF, NAN]
PAIRED = [0.0, -0.0, 1.0, -2.0, 0.5, 3.0, 400.0, INF, NAN]
INTS = [0, 1, -1, 7, -8]

OF_ONE: list[Any] = [
    *(math.exp, math.expm1, math.log, math.log1p, math.log2, math.log10, math.sqrt, math.fabs),
    *(math.asin, math.acos, math.atan, math.sinh, math.cosh, math.tanh, math.asinh, math.acosh, math.atanh),
    *(math.erf, math.erfc, math.gamma, math.lgamma, math.degrees, math.radians),
    *(math.floor, math.ceil, math.trunc, math.isnan, math.isinf, math.isfinite),
    *(int, float, bool, round, abs, operator.neg, operator.pos),
]
SMALL: list[Any] = [math.sin, math.cos, math.tan]
"""Whose results for large arguments differ by the accuracy of the argument."""
OF_TWO: list[Any] = [
    *(math.pow, math.atan2, math.hypot, math.copysign, math.fmod, math.log),
    *(operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.add, operator.sub, operator.mul, operator.lt, operator.eq),
]
OF_INTS: list[Any] = [operator.floordiv, operator.mod, operator.truediv]


def one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def two(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(x, y)


def plain(function: Callable[..., Any], *args: Any) -> Any:
    """What Python gives, or the kind and the message of what it raises."""
    try:
        return function(*args)
    except (ArithmeticError, ValueError) as error:
        return type(error).__name__, str(error)


def agree(function: Callable[..., Any], examples: list[Any], backend: str) -> None:
    run = ab.batched((one, two)[len(examples[0]) - 1](function), backend=backend, on_error="mask")
    got, failures = run(*map(list, zip(*examples, strict=True)))
    failed = {f.index: (f.kind, f.message) for f in failures.details}
    for k, args in enumerate(examples):
        want, value = plain(function, *args), np.asarray(got)[k].item()
        if isinstance(want, complex):
            assert failed[k][0] == "ValueError", args
        elif isinstance(want, int) and abs(want) >= 2**31:
            assert failed[k][0] == "OverflowError", args
        elif isinstance(want, tuple):
            assert failed.get(k, value) == want, args
        else:
            assert k not in failed, (args, failed[k])
            large = isinstance(want, float) and abs(want) > float(np.finfo(np.float32).max)
            assert value == (INF if large else pytest.approx(want, rel=2e-4, abs=1e-6, nan_ok=True)) or large, args
            if want == 0 and isinstance(want, float) and value == 0:
                assert math.copysign(1, value) == math.copysign(1, want), args


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", OF_ONE, ids=lambda f: f.__name__)
def test_functions_of_a_number(function: Callable[..., Any], backend: str) -> None:
    agree(function, [(x,) for x in FLOATS], backend)


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", SMALL, ids=lambda f: f.__name__)
def test_functions_of_an_angle(function: Callable[..., Any], backend: str) -> None:
    agree(function, [(x,) for x in FLOATS if not 100 < abs(x) < INF], backend)


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", OF_TWO, ids=lambda f: f.__name__)
def test_functions_of_two_numbers(function: Callable[..., Any], backend: str) -> None:
    agree(function, list(itertools.product(PAIRED, PAIRED)), backend)


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("function", OF_INTS, ids=lambda f: f.__name__)
def test_operators_of_two_integers(function: Callable[..., Any], backend: str) -> None:
    agree(function, list(itertools.product(INTS, INTS)), backend)


def test_what_python_raises(golden: Golden) -> None:
    """The table of what is checked. Every function here that Python refuses something to is in it."""
    lines = []
    for function, rows in DOMAINS.items():
        for row in rows:
            for kind in (float, int):
                raised = row.raised([kind] * max(len(row.sample), 1))
                if raised is not None:
                    shown = ", ".join(map(repr, row.sample)) or "..."
                    name = f"{function.__module__}.{function.__name__}".replace("_operator.", "operator.")
                    lines.append(f"{name.removeprefix('builtins.')}({shown}) of {kind.__name__}: {raised[0]}")
    golden("python", "raises", "\n".join(lines) + "\n")


# ---- elements of arrays follow NumPy, unless a `try` asks for what Python's numbers raise


def of_elements(a: Any) -> Any:
    return 1.0 / a[0] + a[1] ** -2


def of_elements_in_a_try(a: Any) -> Any:
    try:
        return 1.0 / a[0] + a[1] ** -2
    except ZeroDivisionError:
        return -1.0


@pytest.mark.parametrize("backend", ["interpret", "llvm", "xla"])
def test_elements_of_arrays(backend: str) -> None:
    a = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 2.0]], np.float32)
    assert np.asarray(ab.batched(of_elements, backend=backend)(a)).tolist() == [INF, INF, 1.25]
    assert np.asarray(ab.batched(of_elements_in_a_try, backend=backend)(a)).tolist() == [-1.0, -1.0, 1.25]


# ---- in `try`


def of_constants(x: float, k: int) -> Any:
    try:
        return x + math.sqrt(-1.0)
    except ValueError:
        return x


def power(x: float, k: int) -> Any:
    try:
        y = x**-2.0
    except ZeroDivisionError:
        y = 7.0
    return y


def by_another_name(x: float, k: int) -> Any:
    from math import log as logarithm

    try:
        return logarithm(x)
    except ValueError:
        return -5.0


def two_kinds(x: float, k: int) -> Any:
    try:
        return math.exp(x * 1000) + math.sqrt(x)
    except OverflowError:
        return -1.0
    except ValueError:
        return -2.0


def in_a_loop(x: float, k: int) -> Any:
    total = 0.0
    for i in range(3):
        try:
            total += 1 / (x - i)
        except ZeroDivisionError:
            total += 100.0
    return total


def in_a_helper(x: float, k: int) -> Any:
    def half(z: float) -> float:
        return 1 / z

    try:
        return half(x) + half(k)
    except ZeroDivisionError:
        return float(k)


def of_integers(x: float, k: int) -> Any:
    try:
        return k // (k - 1) + 7 % k
    except ZeroDivisionError:
        return -1


def whole(x: float, k: int) -> Any:
    try:
        return int(x / 0.1 if x > 0 else math.inf) + round(x)
    except OverflowError:
        return -9


def by_arithmetic_error(x: float, k: int) -> Any:
    try:
        y = math.log(k) / x
    except ArithmeticError:
        y = -3.0
    except ValueError:
        y = -4.0
    else:
        y += 1.0
    return y


def not_reached(x: float, k: int) -> Any:
    if k > 100:
        return float(int("no number"))
    return x


def constant_out_of_its_domain(x, k):
    try:
        y = math.log(-0.0) / (k * 0.5)
    except ValueError:
        y = k * 0.5
    return y + x


def constant_before_what_fails(x, k):
    try:
        y = math.sqrt(-1.0) + 7 // k
    except (ValueError, ZeroDivisionError) as error:
        y = 1.0 if isinstance(error, ValueError) else 2.0
    return y * x


IN_TRY = [
    *(of_constants, power, by_another_name, two_kinds, in_a_loop, in_a_helper, of_integers, whole),
    *(by_arithmetic_error, not_reached, constant_out_of_its_domain, constant_before_what_fails),
]


@pytest.mark.parametrize("backend", ["interpret", "llvm", "xla"])
@pytest.mark.parametrize("program", IN_TRY, ids=lambda f: f.__name__)
def test_in_try(program: Callable[..., Any], backend: str) -> None:
    xs, ks = [0.0, 1.0, -1.0, 2.5], [0, 1, 2, 3]
    got = np.asarray(ab.batched(program, backend=backend)(xs, ks))
    want = [program(x, k) for x, k in zip(xs, ks, strict=True)]
    np.testing.assert_allclose(got, np.asarray(want, np.float32), rtol=1e-5)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: float(k) / x,
        lambda x, k: x / float(k),
        lambda x, k: x % float(k),
        lambda x, k: 1.0 / sum([x, float(k)]),
        lambda x, k: 1.0 / float(x > 0),
        lambda x, k: 2.0 / float(math.trunc(x)),
        lambda x, k: 2.0 / math.trunc(x),
        lambda x, k: x / (k * 0.0 + math.floor(x) / 8),
        lambda x, k: 1 / math.ceil(x),
        lambda x, k: divmod(3.0, x)[0],
    ],
)
def test_what_float_and_the_functions_of_math_give_are_numbers_of_python(function, backend):
    x, k = [1.5, 0.0, 0.25], [2, 0, 0]
    wanted = {}
    for n in range(3):
        try:
            function(x[n], k[n])
        except ZeroDivisionError:
            wanted[n] = "ZeroDivisionError"
    _, failures = ab.batched(function, backend=backend, on_error="mask")(x, k)
    assert {f.index: f.kind for f in failures.details} == wanted


def root_in_a_loop_then_division(x, k):
    for _ in range(2):
        x = x * 0.5 + math.sqrt(abs(x))
    if x != 0.5:
        x = 1.0 / (k * 0.5)
    return x


def division_in_a_loop_then_root(x, k):
    for _ in range(2):
        x = x * 0.5 + 1.0 / (k + 1.0)
    while x > 0.5:
        x = x - 1.0
        if x < 0.25:
            x = math.sqrt(x) / (k - 1.0)
    return x


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("function", [root_in_a_loop_then_division, division_in_a_loop_then_root])
def test_checks_behind_checks(function, backend):
    """What decides the branch is known to the device alone since a check stands in the loop before it."""
    x, k = [-1.0, 0.5, 2.0, 3.25], [0, 1, 2, 0]
    wanted = {}
    for n in range(4):
        try:
            function(x[n], k[n])
        except (ArithmeticError, ValueError) as error:
            wanted[n] = type(error).__name__, str(error)
    _, failures = ab.batched(function, backend=backend, on_error="mask")(x, k)
    assert wanted
    assert {f.index: (f.kind, f.message) for f in failures.details} == wanted


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_an_order_of_nan_fails_where_numbers_decide_it(backend):
    def middle(w, x, y):
        while y > w:
            y = y * 0.5
        return sorted([x * y, y, 0.5])[1]

    x, y = np.float32([NAN, 1.0, -2.0]), np.float32([3.0, 5.0, 0.5])
    f = ab.batched(middle, in_axes=(None, 0, 0), backend=backend, on_error="mask")
    result, failures = f(np.float32(1.0), x, y)
    assert [(f.index, f.kind) for f in failures.details] == [(0, "ValueError")]
    np.testing.assert_allclose(np.asarray(result)[1:], [middle(1.0, a, b) for a, b in zip(x[1:], y[1:], strict=True)])


def powers(a: int, k: int, m: int) -> Any:
    return pow(a, k, m), pow(base=a, exp=5, mod=m), pow(3, -1, 7)


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
def test_powers_modulo_a_number(backend: str) -> None:
    """With large exponents, inverses of negative ones, and moduli below zero."""
    f = ab.batched(powers, backend=backend, on_error="mask")
    cases = [(3, 65537, 97), (10, -1, 101), (-4, -3, 9), (2, 0, 1), (5, -2, -7), (2, -1, 4), (6, 3, 0), (0, 0, 5)]
    found, failures = f(*(list(x) for x in zip(*cases, strict=True)))
    failed = {x.index: f"{x.kind}: {x.message}" for x in failures}
    for k, (case, result) in enumerate(zip(cases, ab.unbatch(found), strict=True)):
        try:
            assert tuple(map(int, result)) == powers(*case) and k not in failed
        except ValueError as error:
            assert failed[k] == f"ValueError: {error}"


@pytest.mark.parametrize("backend", ["llvm", pytest.param("xla", marks=pytest.mark.xla)])
def test_methods_of_numbers(backend: str) -> None:
    def whole(x: float) -> bool:
        return x.is_integer()

    def bits(n: int) -> tuple[int, int, int]:
        return n.bit_length() + int.bit_length(n * 3), n.bit_count(), n.numerator * n.denominator

    given = [1.5, 2.0, -0.0, 1e30, 0.999, INF, -INF, NAN]
    assert ab.unbatch(ab.batched(whole, backend=backend)(given)) == [whole(x) for x in given]
    numbers = [0, 1, -1, 7, -8, 1000, 2**29]
    assert ab.unbatch(ab.batched(bits, backend=backend)(numbers)) == [bits(n) for n in numbers]


def _transform(xs):
    n = len(xs)
    return [abs(sum(x * cmath.exp(-2j * cmath.pi * k * i / n) for i, x in enumerate(xs))) for k in range(n)]


def _fast_transform(xs):
    if len(xs) == 1:
        return [complex(xs[0])]
    even, odd = _fast_transform(xs[0::2]), _fast_transform(xs[1::2])
    turned = [cmath.exp(-2j * cmath.pi * k / len(xs)) * odd[k] for k in range(len(odd))]
    return [e + t for e, t in zip(even, turned)] + [e - t for e, t in zip(even, turned)]


def _power(xs):
    return sum(abs(z) ** 2 for z in _fast_transform(xs))


def _roots(xs):
    a, b = xs[0], xs[-1]
    d = cmath.sqrt(b * b - 4 * a)
    return (
        d.imag,
        (-b - d).real,
        cmath.phase(complex(a, b)),
        abs(cmath.rect(a, b)),
        complex(real=a, imag=2).conjugate().imag,
    )


@pytest.mark.parametrize("backend", ["auto", "llvm", "xla"])
@pytest.mark.parametrize("function", [_transform, _power, _roots])
def test_complex_numbers_are_made_of_two(function, backend):
    lists = [[1.0, 2.0, 3.0, 4.0], [2.0, 0.5], [-1.5, 0.25]]
    got = ab.batched(function, backend=backend)(lists)
    got = list(zip(*map(list, got), strict=True)) if isinstance(got, tuple) else list(got)
    assert_same([[float(x) for x in np.ravel(g)] for g in got], [list(np.ravel(function(x))) for x in lists])


def test_derivatives_through_complex_numbers():
    got = ab.grad(ab.batched(lambda x: abs(cmath.exp(complex(x, 1.0)))))([0.5, -1.0])
    assert_same([float(x) for x in got], [math.exp(0.5), math.exp(-1.0)])
