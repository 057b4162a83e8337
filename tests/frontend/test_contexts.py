"""`with`, and `try` with `finally`, under data-dependent control flow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 2.1], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
W = jnp.float32(1.1)


def finally_in_a_loop(w, xs):
    s, n = 0.0, 0
    for x in xs:
        try:
            if x * w > 0.3:
                s += x
                continue
            if x < 0.0:
                break
            s -= 0.5
        finally:
            n += 1
    return s * n + n


def finally_in_a_function(w, xs):
    log = []

    def f(k):
        try:
            if xs[k] * w > 0.5:
                return xs[k + 1]
            log.append(1.0)
        except IndexError:
            return -1.0
        finally:
            log.append(xs[k])
        return 0.0

    s = 0.0
    for k in range(len(xs)):
        s += f(k)
    return s + sum(log)


def finally_around_a_loop(w, xs):
    n = 0
    try:
        for x in xs:
            if x * w > 0.8:
                return x + n
            n += 1
    finally:
        n = 100
    return n * w


def finally_and_a_handler_around(w, xs):
    s, n = 0.0, 0
    for x in xs:
        try:
            try:
                if x * w > 1.2:
                    raise ValueError
                if x * w > 0.5:
                    continue
                s += 1.0
            finally:
                n += 1
                s *= 0.5
        except ValueError:
            s += 10.0
        else:
            s += 0.25
    return s + n


def finally_alone_reads_it(w, xs):
    s = 0.0
    for k, x in enumerate(xs):
        t, held = 1.0, []
        try:
            if x * w > 0.3:
                held.append(xs[k + 2])
                t = held[0]
        except IndexError:
            t = 5.0
            held.append(2.0)
        finally:
            s = 2.0 * s + t + len(held)
    return s


class Depth:
    def __init__(self):
        self.total = 0.0
        self.depth = 0

    def __enter__(self):
        self.depth += 1
        return self.depth

    def __exit__(self, kind, error, trace):
        self.depth -= 1
        self.total += 0.5
        return False


def contexts_of_classes(w, xs):
    held, s = Depth(), 0.0
    for x in xs:
        try:
            with held as outer:
                if x * w > 0.3:
                    with held as inner:
                        s += x * inner
                    continue
                if x < 0.0:
                    raise ValueError
                s += outer
        except ValueError:
            s -= 3.0
    return s + held.total * held.depth + held.total


@contextlib.contextmanager
def tagged(log, x):
    log.append(x)
    yield x * 2.0
    log.append(-x * 0.5)


def contexts_of_generators(w, xs):
    log = []
    for x in xs:
        if x * w > 0.3:
            with Depth() as n, tagged(log, x) as y:
                log.append(y * n)
    return sum(log) + len(log)


class Maker:
    def __init__(self):
        self.made = 0

    def depth(self):
        self.made += 1
        return Depth()


def contexts_that_calls_give(w, xs):
    maker, s = Maker(), 0.0
    for x in xs:
        if x * w > 0.3:
            with (maker if x > 0.6 else maker).depth() as n, tagged([], x) as y:
                for z in xs:
                    if z > x:
                        break
                    s += n * z + y
    return s + maker.made


@contextlib.contextmanager
def logged(log, x):
    log.append(x)
    try:
        yield x * 3.0
    except IndexError:
        log.append(0.25)
    finally:
        log.append(-x)


def generators_that_catch(w, xs):
    log, s = [], 0.0
    for k, x in enumerate(xs):
        with logged(log, x) as y:
            if x * w > 0.3:
                log.append(xs[k + 2] * y)
            s = 2.0 * s + y
    return s + sum(log) * len(log)


def generators_that_are_left(w, xs):
    log = []

    def first(x):
        with logged(log, x) as y:
            if x * w > 0.3:
                return y + xs[1]
            log.append(x)
        return 1.0

    s = first(xs[0])
    for x in xs:
        with Depth() as n, logged(log, s) as y:
            if x * w > 1.2:
                break
            s = 0.5 * s + y * n
            if x * w > 0.3:
                continue
            s += 1.0
    return s + sum(log) * len(log)


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is ValueError


def an_exit_that_ends_what_was_raised(w, xs):
    s = 0.0
    for x in xs:
        with Swallow():
            if x * w > 0.3:
                raise ValueError
            s += x
    return s


PROGRAMS = (
    finally_alone_reads_it,
    generators_that_catch,
    generators_that_are_left,
    contexts_that_calls_give,
    finally_in_a_loop,
    finally_in_a_function,
    finally_around_a_loop,
    finally_and_a_handler_around,
    contexts_of_classes,
    contexts_of_generators,
    an_exit_that_ends_what_was_raised,
)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any], backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, XS, (W,), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


def test_a_with_of_a_generator_that_is_left() -> None:
    def f(w, xs):
        log = []
        for x in xs:
            with tagged(log, x):
                if x * w > 0.3:
                    continue
                log.append(w)
        return sum(log)

    refused(f, XS, W, saying="a `with` of a generator is left by return")


@contextlib.contextmanager
def twice(x):
    yield x
    yield -x


@contextlib.contextmanager
def perhaps(x):
    if x < 9.0:
        yield x


@pytest.mark.parametrize("made", [twice, perhaps])
def test_a_with_of_a_generator_that_may_not_yield_once(made: Any) -> None:
    def f(w, xs):
        s = 0.0
        for x in xs:
            if x * w > 0.3:
                with made(x) as y:
                    s += y
        return s

    refused(f, XS, W, saying="may yield never, or more than once")
