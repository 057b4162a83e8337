"""`try` around what single examples fail with, where computed numbers decide; what is caught elsewhere is refused."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest

import autobatch as ab
from tests.memory.pairs import BATCH, W, check


class TooFar(Exception):
    """One of the user's own."""


def index(w: Any, xs: list[float]) -> Any:
    s, k, y = w, 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
        try:
            s = s + xs[k] * y
        except IndexError:
            s = s + 1.0
    return s


def keys(w: Any, xs: list[float]) -> Any:
    d, s, k, y = {0: w}, w, 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
        try:
            s = s * 0.5 + d[k % 3]
            found = True
        except KeyError:
            d[k % 3] = y
            found = False
        else:
            s = s + 0.25
        finally:
            s = s * 1.5
        if found:
            s = s + 0.125
    return s


def raised(w: Any, xs: list[float]) -> Any:
    y, k = w * xs[0], 0
    try:
        k = 1
        if y > 2.0:
            raise TooFar("too far")
        k = 2
        if xs[1] > 2.0:
            raise ValueError
        k = 3
    except TooFar:
        return y + k
    except (ValueError, KeyError):
        return y - k
    return y * k


def divided(w: Any, xs: list[float]) -> Any:
    k, y = 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
    try:
        r = 7 // (k - 2)
    except ZeroDivisionError:
        r = 100
    with contextlib.suppress(IndexError):
        y = y + xs[k]
        r = r + 1
    return r * w + y


def uncaught(w: Any, xs: list[float]) -> Any:
    k, y = 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
    try:
        r = xs[k]
    except KeyError:
        r = 100.0
    return r * w


def nested(w: Any, xs: list[float]) -> Any:
    k, y, s = 0, w * xs[0], 0.0
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
        try:
            try:
                s = s + xs[k]
                s = s + 7 // (k - 2)
            except ZeroDivisionError:
                s = s + 0.5
            s = s * 2.0
        except IndexError:
            s = s - 1.0
        finally:
            s = s + 0.0625
    return s * w + y


def stacked(w: Any, xs: list[float]) -> Any:
    stack, y, s = [w], w * xs[0], 0.0
    while y < 4.0:
        y = y * 1.5 + 0.3
        try:
            a = stack.pop()
            b = stack.pop()
            stack.append(a * b + y)
        except IndexError:
            stack.append(y)
            s = s + 1.0
    return s + sum(stack)


def found(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    for k in range(4):
        try:
            v = xs[k] * y
            if v > 2.0:
                break
            if v < 0.0:
                return v
        except IndexError:
            return y + k
    else:
        return w
    return v


def python_floats(w: Any, xs: list[float]) -> Any:
    try:
        r = 1.0 / (xs[0] - 2.2)
        assert xs[1] > 1.0
    except ZeroDivisionError:
        r = 5.0
    except AssertionError:
        r = 7.0
    return r * w


PROGRAMS: tuple[Callable[..., Any], ...] = (
    index,
    keys,
    raised,
    divided,
    uncaught,
    nested,
    stacked,
    found,
    python_floats,
)
FEW = (keys, nested)


@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program in FEW)


@pytest.mark.parametrize("program", FEW)
@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_compiled(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=program is not python_floats)  # JAX's floats divide by zero


# ---- refused


def in_a_loop(w: Any, xs: list[float]) -> Any:
    s = w
    try:
        for k in range(3):
            s = s + xs[k]
    except IndexError:
        s = s - 1.0
    return s


def in_a_function(w: Any, xs: list[float]) -> Any:
    def at(k: int) -> Any:
        return xs[k] * w

    try:
        return at(2)
    except IndexError:
        return w


def half_done(w: Any, xs: list[float]) -> Any:
    stack = [w, 2.0 * w]
    try:
        stack.append(stack.pop() + xs[2])
    except IndexError:
        pass
    return sum(stack)


def of_math(w: Any, xs: list[float]) -> Any:
    try:
        return math.log(xs[0]) * w
    except ValueError:
        return w


def looked_at(w: Any, xs: list[float]) -> Any:
    try:
        return xs[2] * w
    except IndexError as error:
        return w * len(error.args)


def left_with_finally(w: Any, xs: list[float]) -> Any:
    s = w
    try:
        return xs[2] * w
    except IndexError:
        s = s + 1.0
    finally:
        s = s * 2.0
    return s


def in_itself(w: Any, xs: list[float]) -> Any:
    def count(v: Any) -> Any:
        if v > 4.0:
            raise TooFar
        try:
            return count(v * 1.5 + w)
        except TooFar:
            return v

    return count(xs[0])


def two_calls_away(w: Any, xs: list[float]) -> Any:
    def at(k: int) -> Any:
        return xs[k] * w

    def after(k: int) -> Any:
        return at(k + 1)

    try:
        return after(1)
    except IndexError:
        return w


REFUSED = {
    in_itself: "in_itself never returns",
    two_calls_away: "may fail in two_calls_away.after",
    in_a_loop: "may fail inside a loop",
    in_a_function: "may fail in in_a_function.at",
    half_done: "may fail when it has changed something",
    of_math: "a function of `math`",
    looked_at: "the exception error is looked at",
    left_with_finally: "with `finally` is left by return",
}


@pytest.mark.parametrize("program", REFUSED)
def test_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(ab.UnsupportedError, match=REFUSED[program]):
        ab.batched(program, in_axes=(None, 0))(W, BATCH)
