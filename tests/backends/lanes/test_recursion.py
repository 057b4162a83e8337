"""Recursion in gangs: rows of all lanes are those of one lane to the last bit, and those of plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.backends.llvm import code, machine_code
from tests.backends.lanes import drawn_recursion
from tests.backends.lanes.test_widths import WIDTHS, bits
from tests.properties import recursions

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

RNG = np.random.default_rng(11)


def at_width(function, axes, width, arguments, **options):
    """The results of a function with so many lanes, and what each row fails with."""
    f = ab.batched(function, in_axes=axes, backend="llvm", on_error="mask", options=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "widths", lambda whole: iter([width]))
        patch.setattr(code, "_wider", lambda whole: iter(()))
        found, failures = f(*arguments)
    return np.asarray(found), list(map(str, failures.details))


def by_python(function, p, rows):
    """Rows by plain Python: a result, or the name of an exception."""
    found = []
    for row in rows:
        try:
            found.append(function(p, *row))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def check(function, arguments, axes=None, widths=WIDTHS, **options):
    """All widths give the same, which is what Python gives."""
    p, *columns = arguments
    axes = axes or (None, *(0 for _ in columns))
    first, *others = [at_width(function, axes, width, arguments, **options) for width in widths]
    for found, failures in others:
        np.testing.assert_array_equal(bits(found), bits(first[0]))
        assert failures == first[1]
    return first


def assert_python(function, arguments, found):
    values, failures = found
    wanted = by_python(function, arguments[0], list(zip(*(x.tolist() for x in arguments[1:]), strict=True)))
    failed = {int(text.split()[1]): text for text in failures}
    for row, x in enumerate(wanted):
        if isinstance(x, str):
            assert x in failed[row], (row, x)
        else:
            assert row not in failed, (row, x, failed[row])
            np.testing.assert_allclose(values[row], x, rtol=1e-5)


@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn_recursion.programs(), p=st.integers(0, 3), seed=st.integers(0, 99))
def test_random_recursion(program, p, seed):
    rng = np.random.default_rng(seed)
    arguments = (p, rng.integers(-1, 6, 21), rng.integers(0, 9, 21))
    main = program.function.__wrapped__
    assert_python(main, arguments, check(main, arguments, widths=(1, 16)))


@pytest.mark.parametrize("name", ["halved", "minimax", "best", "collatz_sum", "select"])
def test_numbers_and_arrays(name):
    """Floats: products that meet sums are the same operations in gangs and in blocks."""
    function, batch = recursions.cases()[name]
    rows = [np.resize(x, (19, *np.shape(x)[1:])) for x in batch]
    rows = [x + RNG.normal(0, 0.1, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x for x in rows]
    check(function.__wrapped__, (recursions.parameters(), *rows), widths=WIDTHS if name == "halved" else (1, 16))


def shared_depth(p, x):
    """`depth` is one number for all lanes, in calls under masks and in a loop around them."""

    def down(x, depth, scale):
        if depth == 4:
            return x * scale
        total = 0.0
        for k in range(2):
            if x * (k + 1) > p[depth]:
                total += down(x - p[depth] * k, depth + 1, scale * 0.5)
        return total - down(x * 0.5, depth + 1, scale)

    return down(x, 0, 1.0)


def test_arguments_that_all_lanes_share():
    p, x = np.array([0.1, 0.7, 0.3, 0.2], np.float32), RNG.normal(0, 1, 33).astype(np.float32)
    found = check(shared_depth, (p, x), widths=(1, 8, 16))
    assert_python(shared_depth, (p, x), found)


# ---- what a gang gives up


def depth(zero, n):
    return 1 + depth(zero, n - 1) if n > zero else 0


def test_rows_that_go_deeper_than_the_native_stack():
    ns = np.array([3, 9000, 5, 0, 8000, 2] * 4)
    found, failures = check(depth, (0, ns), widths=(1, 16))
    assert found.tolist() == ns.tolist() and not failures


def test_a_stack_has_a_limit():
    """The rows that need more fail at the call, their neighbours in the gang do not."""
    ns = np.array([40, 41, 3, 40, 50, 12] * 3)
    found, failures = check(depth, (0, ns), widths=(1, 4, 16), max_depth=40)
    assert found.tolist() == [0 if n > 40 else n for n in ns]
    assert len(failures) == 6 and all("RecursionError" in text and "max_depth=40" in text for text in failures)


def down(zero, n):
    return n if n == zero else down(zero, n - 1)


def test_a_recursion_without_end_is_stopped():
    """The last call of a function needs no stack: only the number of blocks tells."""
    ns = np.array([5, -1, 50, 7, 98, 100, 3, 200] * 2)
    _, failures = check(down, (0, ns), widths=(1, 16), max_steps=200)
    assert [int(text.split()[1]) for text in failures] == [k for k, n in enumerate(ns) if n < 0 or n > 99]


def fails(p, n):
    if n <= 0:
        return 1
    total = 0
    for k in range(n % 4):
        assert n != 7, "seven"
        total += fails(p, n - 1 - k)
    assert total != p, "as much"
    return total + n


def test_rows_that_fail():
    ns = np.arange(23) % 12
    arguments = (5, ns)
    assert_python(fails, arguments, check(fails, arguments, widths=(1, 8, 16)))


# ---- structure


@dataclass
class Ball:
    x: float
    size: float
    left: Any = None
    right: Any = None


def nearest(node, best, ray):
    far = abs(node.x - ray) - node.size
    if far >= best:
        return best
    if node.left is None:
        return far
    best = nearest(node.left, best, ray)
    return nearest(node.right, best, ray)


def balls(low, high, depth):
    if depth == 0:
        return Ball((low + high) / 2, 0.1)
    middle = (low + high) / 2
    left, right = balls(low, middle, depth - 1), balls(middle, high, depth - 1)
    return Ball(middle, (high - low) / 2 + 0.1, left, right)


def test_recursion_over_trees():
    """Rows of trees: lanes go down trees of their own, under masks."""
    rays = np.linspace(-5, 5, 21).astype(np.float32)
    trees = [balls(-4.0 + k % 3, 4.0, k % 5) for k in range(21)]
    f = ab.batched(nearest, in_axes=(0, 0, 0), backend="llvm")
    far = np.full(21, 9.0, np.float32)
    found = np.asarray(f(trees, far, rays))
    wanted = [nearest(tree, 9.0, float(ray)) for tree, ray in zip(trees, rays, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def steps(x, n):
    return x if n <= 0 or x > 5 else steps(x * 0.5, n - 1) + 0.5 * steps(x * 1.5, n - 2)


def steeper(x, n):
    return jax.grad(lambda x: steps(x, 3))(x) if x > 0.3 else x


def test_derivatives_behind_a_branch_are_refused():
    """They were a KeyError."""
    f = ab.batched(steeper, backend="llvm")
    with pytest.raises(ab.UnsupportedError, match="a derivative is taken of a recursion") as raised:
        f(np.array([0.1, 0.7], np.float32), np.array([1, 2]))
    assert "steeper" in str(raised.value) or "jax.grad" in str(raised.value)
