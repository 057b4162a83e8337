"""Local functions under decorators of the user, which call themselves by the decorated name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 0.2], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


def scaled(by: Any) -> Any:
    def decorator(function):
        @functools.wraps(function)
        def inner(*args, **named):
            return by * function(*args, **named)

        return inner

    return decorator


def memoize(function):
    known = {}

    def inner(k):
        if k not in known:
            known[k] = function(k)
        return known[k]

    return inner


@program
def two_decorators(w, xs):
    @scaled(0.5)
    @scaled(w)
    def walk(k, step=1, *, plus=0.25):
        if k >= len(xs):
            return 1.0 + plus
        return walk(k + step) * 0.3 + xs[k] if xs[k] * w > 0.3 else 0.5 * walk(k + 1, 2, plus=1.0)

    return walk(0)


@program
def one_of_the_function_around(w, xs):
    def clipped(function):
        return lambda *args: min(function(*args), w + len(xs))

    @clipped
    def walk(k):
        return 1.0 if k >= len(xs) else walk(k + 1) * 1.3 + xs[k] if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return walk(0)


@program
def around_a_cache(w, xs):
    @scaled(0.5)
    @functools.cache
    def walk(k):
        return 1.0 if k >= len(xs) else walk(k + 1) * 1.3 + walk(k + 2) if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return walk(0)


@program
def inside_a_cache(w, xs):
    n = 0

    @functools.cache
    @scaled(0.5)
    def walk(k):
        nonlocal n
        n += 1
        return 1.0 if k >= len(xs) else walk(k + 1) * 1.3 + walk(k + 2) if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return walk(0), n


@program
def of_what_is_defined_behind(w, xs):
    @scaled(2.0)
    def first(x):
        return second(x) + 1.0 if x * w > 0.3 else x

    def second(x):
        return x * w

    return sum([first(x) for x in xs])


@program
def by_structure_alone(w, xs):
    @scaled(0.5)
    def walk(k):
        return 1.0 if k >= len(xs) else walk(k + 1) * 0.3 + xs[k] * w

    return walk(0)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any]) -> None:
    check_equivalence(function, XS, (1.1,), grads=False, backends=("llvm",), jit=False, tolerance=2e-5)


def test_one_that_keeps_something() -> None:
    def f(w, xs):
        @memoize
        def walk(k):
            return 1.0 if k >= len(xs) else walk(k + 1) + walk(k + 2) if xs[k] * w > 0.3 else walk(k + 1)

        return walk(0)

    refused(f, XS, 1.1, saying="the decorator memoize changes something")
