"""`try` around what examples fail with, under data-dependent control flow; what is caught elsewhere is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.memory.pairs import check


class TooFar(Exception):
    """One of the user's own."""


class Empty(Exception):
    """Another one."""


class Found(Exception):
    """One that says what was found."""

    def __init__(self, value: Any, scale: Any) -> None:
        self.value = value
        self.scale = scale


@dataclass
class Stack:
    """A stack that says when it is empty."""

    items: list[Any]

    def push(self, x: Any) -> None:
        self.items.append(x)

    def pop(self) -> Any:
        if not self.items:
            raise Empty("nothing there")
        return self.items.pop()


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


def in_a_loop(w: Any, xs: list[float]) -> Any:
    s, k = w, 0
    try:
        for k in range(3):
            s = s + xs[k]
    except IndexError:
        s = s - 1.0
    return s * (k + 1)


def while_left(w: Any, xs: list[float]) -> Any:
    y, k = w * xs[0], 0
    try:
        while xs[k] * y < 9.0:
            y = y * 1.5 + 0.3
            if y > 2.5:
                k = k + 1
        else:
            y = y + 0.5
    except IndexError:
        y = -y
    return y + k


def in_a_function(w: Any, xs: list[float]) -> Any:
    def at(k: int) -> Any:
        return xs[k] * w

    def after(v: Any) -> Any:
        k = 0
        while v < 3.0:
            v = v * 1.5 + 0.3
            k = k + 1
        return at(k) + v

    try:
        return after(xs[0]) + after(xs[1])
    except IndexError:
        return w


def comprehension(w: Any, xs: list[float]) -> Any:
    n, y = 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        n = n + 1
    try:
        s = sum([xs[k] * w for k in range(n)]) + y
    except IndexError:
        s = -y
    return s


def chosen(w: Any, xs: list[float]) -> Any:
    n, y = 0, w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        n = n + 1
    try:
        s = y + (xs[n] if xs[1] > 1.0 else w)
        if xs[0] > 0.8 and xs[n - 1] > 0.5:
            s = s * 2.0
    except IndexError:
        s = -y
    return s


def half_done(w: Any, xs: list[float]) -> Any:
    stack = [w, 2.0 * w]
    try:
        stack.append(stack.pop() + xs[2])
    except IndexError:
        pass
    return sum(stack)


def in_itself(w: Any, xs: list[float]) -> Any:
    def count(v: Any) -> Any:
        if v > 4.0:
            raise TooFar(v)
        return count(v * 1.5 + w) + 1.0

    try:
        return count(xs[0])
    except TooFar as error:
        return error.args[0] * w


def tries_in_itself(w: Any, xs: list[float]) -> Any:
    def down(v: Any, d: int) -> Any:
        if d > 3:
            raise TooFar("deep")
        if v > 4.0:
            return v
        try:
            return down(v * 1.4 + 0.1, d + 1) * 1.1
        except TooFar:
            if d % 2 == 0:
                raise
            return v * 7.0

    try:
        return down(w * xs[0], 0)
    except TooFar:
        return w


def looked_at(w: Any, xs: list[float]) -> Any:
    y = w * xs[0]
    try:
        while True:
            y = y * 1.5 + 0.3
            if y > 5.0:
                raise TooFar(y)
            if y * xs[1] > 6.0:
                raise Found(y, w)
    except TooFar as error:
        (z,) = error.args
        return z * 2.0
    except Found as error:
        return error.value * error.scale


def again(w: Any, xs: list[float]) -> Any:
    def step(v: Any) -> Any:
        try:
            if v > 2.0:
                raise TooFar("too far")
            return 1.0 / (v - v) if v > 1.5 else v * xs[2]
        except (TooFar, IndexError) as error:
            if v > 3.0:
                raise
            raise KeyError from error

    y = w * xs[0]
    try:
        y = y + step(y)
    except TooFar:
        y = y + 10.0
    except LookupError:
        y = y - 10.0
    return y


def memo(w: Any, xs: list[float]) -> Any:
    table, y, k = {0: w}, w * xs[0], 0
    while y < 4.0:
        y = y * 1.5 + 0.3
        k = k + 1
        table[k % 3] = y
        try:
            v = table[(2 * k) % 4]
        except KeyError as error:
            v = w * error.args[0]
        y = y + 0.1 * v
    return y


def changes_a_cell(w: Any, xs: list[float]) -> Any:
    done = []

    def visit(k: int) -> Any:
        done.append(w * k)
        return xs[k] * w

    k, y = 0, w * xs[0]
    try:
        while y < 9.0:
            y = y * 1.5 + visit(k)
            k += 1
    except IndexError:
        y = -y
    return y + sum(done)


def objects(w: Any, xs: list[float]) -> Any:
    stack = Stack([])
    y = w * xs[0]
    while y < 4.0:
        y = y * 1.5 + 0.3
        try:
            a = stack.pop() + stack.pop()
            stack.push(a * 0.5)
        except Empty:
            stack.push(y)
            stack.push(w)
    return sum(stack.items)


def largest(w: Any, xs: list[float]) -> Any:
    y, some = w * xs[0], []
    while y < 3.0:
        y = y * 1.5 + 0.3
        if y > 2.0:
            some.append(y)
    try:
        return max(some) * w
    except ValueError:
        return w


def left_with_finally(w: Any, xs: list[float]) -> Any:
    s = w
    try:
        return xs[2] * w
    except IndexError:
        s = s + 1.0
    finally:
        s = s * 2.0
    return s


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
    in_a_loop,
    while_left,
    in_a_function,
    comprehension,
    chosen,
    half_done,
    in_itself,
    tries_in_itself,
    looked_at,
    again,
    memo,
    changes_a_cell,
    objects,
    largest,
    left_with_finally,
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
