"""Local functions that change variables of the function around them, where data decides which calls run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same
from tests.memory.pairs import BATCH, W, check


class Total:
    def __init__(self) -> None:
        self.total = 0.0


def accumulator(w: Any, xs: list[float]) -> Any:
    n, k = w, 2

    def add(v: Any) -> None:
        nonlocal n, k  # which it only reads
        n = n * 0.5 + v * k

    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        add(y)
    return n


def counted_recursion(w: Any, xs: list[float]) -> Any:
    count, total = 0, 0.0

    def visit(lo: Any, hi: Any, depth: int) -> Any:
        nonlocal count, total
        count += 1
        mid = (lo + hi) / 2
        if depth > 6 or abs(hi - lo) < w:
            total += mid
            return mid
        return visit(lo, mid, depth + 1) + visit(mid, hi, depth + 1)

    r = visit(xs[0], xs[1], 0)
    return r * w + total, count


def through_another(w: Any, xs: list[float]) -> Any:
    out, seen = [w], {}

    def push(v: Any) -> None:
        out.append(v)
        seen[len(out)] = v

    def step(v: Any) -> Any:
        push(v * 2.0)
        return v + out[-1]

    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        if y > 1.5:
            y = y + 0.1 * step(y)
    return sum(out) + len(seen)


def in_comprehension(w: Any, xs: list[float]) -> Any:
    n = 0.0

    def note(v: Any) -> Any:
        nonlocal n
        n = n + v
        return v * n

    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        y = y + 0.01 * sum([note(v * y) for v in xs])
    return n


def by_reduce(w: Any, xs: list[float]) -> Any:
    calls = 0

    def op(a: Any, b: Any) -> Any:
        nonlocal calls
        calls += 1
        return a * 0.5 + b

    r = functools.reduce(op, xs, w)
    return r * calls


def anew_in_each_turn(w: Any, xs: list[float]) -> Any:
    total = w * 0.0
    for x in xs:
        steps = 0

        def go(v: Any) -> Any:
            nonlocal steps
            steps += 1
            if v > 3.0:
                return v
            return go(v * 1.5 + w)

        total = total + go(x) * steps
    return total


def best_so_far(w: Any, xs: list[float]) -> Any:
    best, where = -1.0, None

    def consider(v: Any, k: int) -> None:
        nonlocal best, where
        if v > best:
            best, where = v, k

    for k, x in enumerate(xs):
        consider(jnp.sin(w * x), k)
    return best, where


def of_two_functions(w: Any, xs: list[float]) -> Any:
    total = 0.0

    def outer(v: Any) -> Any:
        scale = 2.0

        def add(u: Any) -> None:
            nonlocal total, scale
            total = total + u * scale
            scale = scale * 0.5

        add(v)
        add(v * v)
        return scale

    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + outer(y)
    return total


def stopped(w: Any, xs: list[float]) -> Any:
    found, budget = False, 5

    def search(v: Any) -> None:
        nonlocal found, budget
        if found or budget == 0:
            return
        budget -= 1
        if v > 2.0:
            found = True
            return
        search(v * 1.5)
        search(v + w)

    search(xs[0])
    return budget + xs[1] * w * found


def changed_object(w: Any, xs: list[float]) -> Any:
    kept = Total()

    def visit(v: Any) -> None:
        kept.total = kept.total + v
        if v < 3.0:
            visit(v * 1.5 + w)

    visit(xs[0])
    return kept.total


def reads_what_is_appended(w: Any, xs: list[float]) -> Any:
    """Was a map over `xs`, in which every turn read the list as it was before the loop."""
    out = [w]

    def last() -> Any:
        return out[-1] * 0.5

    for x in xs:
        out.append(last() + x)
    return out[-1] + sum(out)


def hidden_name(w: Any, xs: list[float]) -> Any:
    """`f` reads the variable of the function around it, wherever it is called."""
    n = w

    def f() -> Any:
        return n

    def g(n: Any) -> Any:
        return f() + n

    return g(5.0) + xs[0]


PROGRAMS: tuple[Callable[..., Any], ...] = (
    accumulator,
    counted_recursion,
    through_another,
    in_comprehension,
    by_reduce,
    anew_in_each_turn,
    best_so_far,
    of_two_functions,
    stopped,
    changed_object,
    reads_what_is_appended,
    hidden_name,
)
FEW = (through_another, counted_recursion)


@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program in FEW)


@pytest.mark.parametrize("program", PROGRAMS)
def test_machine_code(program: Callable[..., Any]) -> None:
    check(program, "llvm", grads=False)


@pytest.mark.parametrize("program", FEW)
def test_xla(program: Callable[..., Any]) -> None:
    check(program, "xla", grads=program is counted_recursion)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=True)


# ---- refused


def test_two_names_of_one_list() -> None:
    def f(w: Any, xs: list[float]) -> Any:
        out = [w]
        other = out

        def push(v: Any) -> None:
            out.append(v)

        y = w * xs[0]
        while y < 3.0:
            y = y * 1.5 + 0.3
            push(y)
        return sum(other)

    check(f, "llvm", grads=True)
    check(f, "xla", grads=False)


def test_argument_that_is_the_variable_too() -> None:
    def f(w: Any, xs: list[float]) -> Any:
        out = [w]

        def push(ys: Any) -> Any:
            out.append(w)
            return len(ys)

        return push(out) * xs[0]

    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(f, in_axes=(None, 0), backend="llvm")(W, BATCH))
    assert_same(found, [f(W, xs) for xs in BATCH])


def test_variable_of_a_function_that_is_not_compiled() -> None:
    n = 0

    def f(x: float) -> Any:
        nonlocal n
        n += 1
        return x

    with pytest.raises(ab.UnsupportedError, match="`nonlocal` of a variable of a function that is not compiled"):
        ab.batched(f)([1.0, 2.0])
