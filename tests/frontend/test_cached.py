"""Functions under `functools.cache` and `lru_cache` run as often as plain Python runs them, where computed numbers
decide; where structure alone does, equal rows are one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.frontend.batches import refused

XS = [[0.9, 0.41, -0.7, 1.3, 0.2], [0.5, 1.7], [1.4, 0.31, 0.8], [0.05]]
PROGRAMS: list[Callable[..., Any]] = []


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(function)
    return function


@dataclass(eq=False)
class Node:
    value: float
    left: Node | None = None
    right: Node | None = None


def tree() -> Node:
    leaf = Node(0.7)
    middle = Node(0.6, leaf, Node(0.9, leaf))
    return Node(1.5, middle, middle)


@program
def in_one_argument(w, xs):
    n = 0

    @functools.cache
    def walk(k):
        nonlocal n
        n += 1
        if k >= len(xs):
            return 1.0
        return walk(k + 1) + walk(k + 2) * xs[k] if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return walk(0), n


@program
def by_defaults_names_and_the_rest(w, xs):
    n = 0

    @functools.lru_cache(maxsize=None)
    def walk(k, step=1, *rest, scale=2.0):
        nonlocal n
        n += 1
        if k >= len(xs):
            return scale + len(rest)
        if xs[k] * w > 0.3:
            return walk(k + step, 2, scale=3.0) + walk(k + 1)
        return walk(k + 2, step, 1) * 0.5

    return walk(0), n


@program
def by_any_names(w, xs):
    n = 0

    @functools.cache
    def walk(k, **named):
        nonlocal n
        n += 1
        if k >= len(xs):
            return named.get("least", 0.5)
        return walk(k + 1, least=2.0) + walk(k + 2, **named) if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

    return walk(0), n


@program
def by_pairs(w, xs):
    n = 0

    @functools.cache
    def best(span):
        nonlocal n
        n += 1
        low, high = span
        if low >= high:
            return 1.0
        if xs[low] * w > 0.3:
            return best((low + 1, high)) + best((low, high - 1)) * xs[high - 1]
        return 0.5 * best((low + 1, high))

    return best((0, len(xs))), n


@program
def by_strings_and_none(w, xs):
    n = 0

    @functools.cache
    def walk(k, mode, before):
        nonlocal n
        n += 1
        if k >= len(xs):
            return 1.0 if mode == "in" else 2.0 if before is None else before
        if xs[k] * w > 0.3:
            return walk(k + 1, "in", None) + walk(k + 1, mode, k) * 0.25
        return 0.5 * walk(k + 1, "out", before)

    return walk(0, "out", None), n


@program
def by_floats(w, xs):
    n = 0

    @functools.cache
    def walk(k, y):
        nonlocal n
        n += 1
        if k >= len(xs):
            return y
        return walk(k + 1, xs[k]) + walk(k + 2, 0.5) if xs[k] * w > 0.3 else 0.5 * walk(k + 1, y * 2.0)

    return walk(0, 1.0), n


@program
def without_arguments(w, xs):
    n = 0

    @functools.cache
    def scale():
        nonlocal n
        n += 1
        return w * 2

    s = 0.0
    for x in xs:
        if x * w > 0.3:
            s = s + scale()
    return s, n


@program
def two_that_call_each_other(w, xs):
    @functools.cache
    def even(k):
        return 1.0 if k >= len(xs) else odd(k + 1) + even(k + 2) * 0.5 if xs[k] * w > 0.3 else odd(k + 2)

    @functools.cache
    def odd(k):
        return 2.0 if k >= len(xs) else even(k + 1) * xs[k] + odd(k + 1)

    return even(0)


@program
def anew_in_each_turn(w, xs):
    total, n = 0.0, 0
    for x in xs:

        @functools.cache
        def go(k, x=x):
            nonlocal n
            n += 1
            return 1.0 if k <= 0 else (go(k - 1) + go(k - 2) * x if x * w > 0.3 else 0.5 * go(k - 1))

        total = total + go(4) + go(2)
    return total, n


@program
def the_three_latest(w, xs):
    n = 0

    @functools.lru_cache(3)
    def go(k):
        nonlocal n
        n += 1
        return 1.0 if k <= 0 else go(k - 1) + 0.5 * go(k - 3) if w * k > 2.5 else go(k - 2)

    for x in xs:
        if x * w > 0.3:
            go(6)
        go(7)
    return n


@functools.lru_cache
def ways(n, odd):
    return 1 if n <= 0 else ways(n - 1, odd) + ways(n - (3 if odd else 2), not odd)


@program
def of_a_module(w, xs):
    s = 0
    for x in xs:
        if x * w > 0.3:
            s += ways(9, x > 0.8)
    return s


class Solver:
    def __init__(self, xs):
        self.xs = xs

    @functools.cache  # noqa: B019
    def solve(self, k, w):
        if k >= len(self.xs):
            return 1.0
        return self.solve(k + 1, w) + self.solve(k + 2, w) if self.xs[k] * w > 0.3 else 0.5 * self.solve(k + 1, w)


@program
def a_method(w, xs):
    return Solver(xs).solve(0, 0.9) * w


@program
def called_by_name(w, xs):
    walk = functools.cache(lambda k: 1.0 if k >= len(xs) else walk(k + 1) + walk(k + 2) if xs[k] * w > 0.3 else 0.5)
    return walk(0)


@program
def what_it_reads_changes(w, xs):
    s, t = 0.0, 0.0

    @functools.cache
    def go(k):
        return k + s

    for x in xs:
        if x * w > 0.3:
            s = s + x
            t = t + go(1)
    return t


@program
def its_results_are_changed(w, xs):
    @functools.cache
    def go(k):
        return [k * w]

    for x in xs:
        if x * w > 0.3:
            found = go(1)
            found.append(x)
    return len(go(1)) + sum(go(1))


@program
def a_failure_is_not_kept(w, xs):
    n = 0

    @functools.cache
    def go(k):
        nonlocal n
        n += 1
        if k * w > 3:
            raise ValueError(k)
        return go(k + 1) + go(k + 2)

    for x in xs:
        try:
            go(x > 0.6)
        except ValueError:
            n += 10
    return n


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_agreement(function: Callable[..., Any]) -> None:
    check_equivalence(function, XS, (1.1,), grads=False, backends=("llvm",), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("function", [in_one_argument, by_strings_and_none, of_a_module, its_results_are_changed])
def test_agreement_by_rows(function: Callable[..., Any]) -> None:
    check_equivalence(function, XS, (1.1,), grads=False, backends=("interpret",), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_over_nodes(backend: str) -> None:
    def f(w, node):
        n = 0

        @functools.cache
        def walk(node, depth):
            nonlocal n
            n += 1
            if node is None:
                return 1.0
            s = walk(node.left, depth + 1)
            if s * node.value * w > 0.3:
                s = s + walk(node.right, depth + 1)
            return s * node.value

        return walk(node, 0), n

    check_equivalence(
        f, [tree(), Node(0.4, None, tree()), Node(0.1)], (1.1,), backends=(backend,), grads=False, jit=False
    )


def test_gradients() -> None:
    def f(w, xs):
        @functools.cache
        def walk(k):
            if k >= len(xs):
                return 1.0
            return jnp.tanh(walk(k + 1) + walk(k + 2) * xs[k]) if xs[k] * w > 0.3 else w * walk(k + 1)

        return walk(0)

    check_equivalence(f, XS[1:], (jnp.float32(1.1),), backends=("interpret",), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_structure_alone(backend: str) -> None:
    """Of `2 ** 60` activations 61 are there."""

    def f(w, n):
        @functools.cache
        def fib(k):
            return w if k < 2 else jnp.tanh(fib(k - 1) + fib(k - 2))

        return fib(n)

    w = jnp.float32(0.3)
    made = ab.batched(f, in_axes=(None, 0), backend=backend)(w, [60, 3])
    np.testing.assert_allclose(np.asarray(made), [f(w, 60), f(w, 3)], rtol=1e-5)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_it_is_not_exponential(backend: str) -> None:
    xs = [[0.4] * 60, [0.1, 0.5]]

    def f(w, xs):
        @functools.cache
        def walk(k):
            if k >= len(xs):
                return 1.0
            return 0.6 * walk(k + 1) + 0.2 * walk(k + 2) if xs[k] * w > 0.3 else 0.5 * walk(k + 1)

        return walk(0)

    g = ab.batched(f, in_axes=(None, 0), backend=backend)
    np.testing.assert_allclose(np.asarray(g(1.1, xs)), g.loop(1.1, xs), rtol=1e-4)


def test_structure_that_changes_what_was_returned() -> None:
    def f(w, xs):
        @functools.cache
        def go(k):
            return [k * w]

        found = go(1)
        found.append(sum(xs))
        return len(go(1)), sum(go(1))

    check_equivalence(f, XS, (1.1,), grads=False, backends=("interpret", "llvm"), jit=False)


def test_structure_that_changes_what_is_read() -> None:
    def f(w, xs):
        s = 1.0

        @functools.cache
        def go(k):
            return k * s * w

        first = go(1)
        s = 2.0
        return first + go(1) + go(2)

    check_equivalence(f, XS, (1.1,), grads=False, backends=("interpret", "llvm"), jit=False)


def test_lines_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def f(w, xs):
        @functools.cache
        def walk(k):
            print("walk", k)
            return 1.0 if k >= len(xs) else walk(k + 1) + walk(k + 2) if xs[k] * w > 0.3 else walk(k + 1)

        return walk(0)

    g = ab.batched(f, in_axes=(None, 0), backend="llvm")
    g(1.1, XS)
    printed = capsys.readouterr().out
    g.loop(1.1, XS)
    assert printed == capsys.readouterr().out


def test_an_argument_that_has_no_hash() -> None:
    def f(w, xs):
        @functools.cache
        def walk(k, y):
            return y if k >= len(xs) else walk(k + 1, y * w) if xs[k] * w > 0.3 else 0.5 * walk(k + 1, y)

        return walk(0, w)

    refused(
        f, XS, jnp.float32(1.1), saying="walk is cached by functools, and an argument of it cannot be a key: an array"
    )
