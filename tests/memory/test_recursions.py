"""Recursions that pass lists, dicts and sets, and whose calls are data-dependent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.pairs import W, check


def fibs(w: Any, xs: list[float]) -> Any:
    known = {}

    def fib(n: Any) -> Any:
        if n < 2:
            return w
        if n not in known:
            known[n] = fib(n - 1) + fib(n - 2)
        return known[n]

    y, k = w * xs[0], 0
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
    return fib(k) * w + y


def grid(w: Any, xs: list[float]) -> Any:
    memo = {}

    def solve(i: Any, j: Any) -> Any:
        if i == 0 or j == 0:
            return w * (i + j)
        if (i, j) in memo:
            return memo[i, j]
        r = jnp.minimum(solve(i - 1, j), solve(i, j - 1)) + xs[0] * i * j
        memo[i, j] = r
        return r

    n = 0
    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        n = n + 1
    return solve(n, 3) + len(memo)


def arg_memo(w: Any, xs: list[float]) -> Any:
    def solve(v: Any, memo: Any) -> Any:
        k = int(v * 2)
        if v > 3.0:
            return v
        if k in memo:
            return memo[k]
        memo = {**memo, k: v}
        return solve(v * 1.2 + 0.1, memo) + w

    return solve(xs[0], {})


def push(w: Any, xs: list[float]) -> Any:
    def go(out: Any, y: Any) -> Any:
        if y > 3.0:
            return out
        return go(out + [y], y * 1.5 + 0.3)

    out = go([w], w * xs[0])
    return sum(out) + len(out)


def collatz(w: Any, xs: list[float]) -> Any:
    known = {1: 1}

    def steps(n: Any) -> Any:
        if n in known:
            return known[n]
        r = 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)
        known[n] = r
        return r

    y, k = w * xs[0], 1
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
    return steps(k) + steps(k + 1), len(known)


def visited(w: Any, xs: list[float]) -> Any:
    seen = set()
    order = []

    def visit(n: Any, v: Any) -> Any:
        if n in seen or n > 9:
            return
        seen.add(n)
        if v < 3.0:
            visit(2 * n, v * 1.5 + w)
            visit(n + 1, v + 0.5)
        order.append(v)

    visit(1, xs[0])
    total = w * 0.0
    for v in order:
        total = total * 0.5 + v
    return total + len(seen)


def late_minimum(w: Any, xs: list[float]) -> Any:
    """Reads a list of the examples where only numbers say at which place."""

    def search(k: Any, best: Any) -> Any:
        if best < 0.4 or k > 20:
            return best + w * k
        return search(k + 1, best * 0.8 + 0.01 * w * xs[k % 2])

    return search(0, xs[0])


PROGRAMS: tuple[Callable[..., Any], ...] = (fibs, grid, arg_memo, push, collatz, visited, late_minimum)
FEW = (fibs, visited)


@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program is fibs)


@pytest.mark.parametrize("program", FEW)
@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_compiled(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=True)


def test_structure_alone_is_traced() -> None:
    def paths(w: Any, steps: list[int]) -> Any:
        known = {}

        def count(i: int, j: int) -> Any:
            if i == 0 or j == 0:
                return w
            if (i, j) not in known:
                known[i, j] = count(i - 1, j) + 0.5 * count(i, j - 1)
            return known[i, j]

        return count(steps[0], steps[1])

    f = ab.batched(paths, in_axes=(None, 0))
    with ab.options(trace=True), pytest.warns(ab.StructureWarning):
        check_equivalence(f, [[2, 3], [4, 4], [0, 1]], (W,), backends=("xla",), jit=False, tolerance=2e-5)
