"""Arrays of NumPy that a function makes and changes in place: `a[[i, p]] = a[[p, i]]`, `a[r] -= f * a[i]`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.errors import ExampleError, UnsupportedError
from autobatch.testing import check_equivalence

BACKENDS = ("interpret", "xla", "llvm")


def solved(a: Any, b: Any) -> Any:
    """Gauss elimination with partial pivoting: numbers decide which rows are swapped."""
    n = len(b)
    a, b = a.copy(), b.copy()
    for i in range(n):
        p = i
        for r in range(i + 1, n):
            if abs(a[r, i]) > abs(a[p, i]):
                p = r
        a[[i, p]] = a[[p, i]]
        b[i], b[p] = b[p], b[i]
        for r in range(i + 1, n):
            f = a[r, i] / a[i, i]
            a[r] -= f * a[i]
            b[r] = b[r] - f * b[i]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - np.dot(a[i], x)) / a[i, i]
    return x


def eliminated(a: Any, b: Any) -> Any:
    """The same with `max` for the pivot, and swaps behind a branch; gives both arrays back."""
    n = len(b)
    a = a.copy()
    b = b * 1.0
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(a[r, i]))
        if p != i:
            a[[i, p], :] = a[[p, i], :]
            b[[i, p]] = b[[p, i]]
        for r in range(i + 1, n):
            f = a[r, i] / a[i, i]
            a[r] = a[r] - f * a[i]
            b[r] -= f * b[i]
    return a, b


def rows_of_lists(a: Any, b: Any) -> Any:
    """The same over a list of rows."""
    n = len(b)
    rows = [a[i] for i in range(n)]
    for i in range(n):
        p = i
        for r in range(i + 1, n):
            if abs(rows[r][i]) > abs(rows[p][i]):
                p = r
        rows[i], rows[p] = rows[p], rows[i]
        for r in range(i + 1, n):
            rows[r] = rows[r] - rows[r][i] / rows[i][i] * rows[i]
    return rows[n - 1] * b


def counted(a: Any, b: Any) -> Any:
    """A histogram at computed places, some of them counted from behind; a column, a slice and a list that are set."""
    counts, table = np.zeros(7), np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            counts[int(np.floor(a[i, j])) % 7 - 7] += a[i, j]
    table[:, 1] = b
    table[0] = [b[1], b[2], 1.0]
    table[1:, 2] += counts[2]
    return counts * counts + table.sum(), table


def aligned(a: Any, b: Any) -> Any:
    """The table of an edit distance, whose least way numbers decide."""
    n, m = a.shape
    table = np.zeros((n + 1, m + 1))
    for i in range(n):
        for j in range(m):
            cost = abs(a[i, j] - b[j])
            table[i + 1, j + 1] = min(table[i, j] + cost, table[i, j + 1] + 0.5, table[i + 1, j] + 0.7)
    return table[n, m]


def called_later(a: Any, b: Any) -> Any:
    """A function that is made before the change, and called behind it."""
    x = b.copy()
    first = lambda k: x[k]  # noqa: E731
    x[0] = x[1] * a[0, 0]
    return first(0)


PROGRAMS = (solved, eliminated, rows_of_lists, counted, aligned, called_later)


def matrices(seed: int, count: int = 4) -> Any:
    draw = np.random.default_rng(seed)
    a = (
        draw.uniform(-3.0, 3.0, (count, 3, 3))
        + 4.0 * np.eye(3)[draw.permuted(np.tile(np.arange(3), (count, 1)), axis=1)]
    )
    return a.astype(np.float32), draw.uniform(0.5, 2.0, (count, 3)).astype(np.float32)


def check_values(f: Any, seed: int, backend: str) -> None:
    examples = list(zip(*matrices(seed), strict=True))
    check_equivalence(ab.batched(f), examples, grads=False, backends=(backend,), jit=False, tolerance=1e-3)


def weighed(results: Any) -> Any:
    """All numbers of the results, by other weights each; JAX takes no derivative of arrays that change in place."""
    found = [x.reshape(-1) for x in jax.tree.leaves(results)]
    return sum((x * np.cos(np.arange(x.size))).sum() for x in found)


def check_gradients(f: Any, backend: str) -> None:
    """Derivatives by XLA or machine code are quotients of differences, with 64 bits, of plain Python."""
    a, b = matrices(0, 1)
    batched = ab.batched(f, backend=backend)
    found = jax.grad(lambda *xs: weighed(batched(*xs)), (0, 1))(a, b)
    a, b = a[0].astype(np.float64), b[0].astype(np.float64)
    for x, by_x in zip((a, b), found, strict=True):
        for place in np.ndindex(x.shape):
            kept, values = x[place], []
            for step in (1e-6, -1e-6):
                x[place] = kept + step
                values.append(float(weighed(jax.tree.map(np.asarray, f(a, b)))))
            x[place] = kept
            np.testing.assert_allclose(by_x[0][place], (values[0] - values[1]) / 2e-6, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("f", PROGRAMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_stores(f: Any, backend: str) -> None:
    check_values(f, 0, backend)


@pytest.mark.parametrize("f", (solved, pytest.param(eliminated, marks=pytest.mark.long), counted, aligned))
def test_derivatives(f: Any) -> None:
    check_gradients(f, "llvm")


@pytest.mark.parametrize("f", (pytest.param(eliminated, marks=pytest.mark.long), counted))
def test_derivatives_by_xla(f: Any) -> None:
    check_gradients(f, "xla")


@settings(max_examples=6)
@given(st.integers(1, 1000), st.sampled_from(PROGRAMS))
def test_stores_of_any_numbers(seed: int, f: Any) -> None:
    check_values(f, seed, "llvm")


def outside(a: Any, b: Any) -> Any:
    x = b.copy()
    x[int(a[0, 0])] = 1.0
    return x


def test_places_out_of_range() -> None:
    a, b = matrices(3)
    a[:, 0, 0] = [0.0, -3.0, 3.0, 2.0]
    for backend in ("xla", "llvm"):
        with pytest.raises(ExampleError, match="out of bounds"):
            ab.batched(outside, backend=backend)(a, b)


def keeps_view(a: Any, b: Any) -> Any:
    a = a.copy()
    row = a[0]
    a[0, 1] = b[0]
    return row * a[1]


def has_two_names(a: Any, b: Any) -> Any:
    x = b.copy()
    y = x
    x[0] = a[0, 0]
    return y


def has_no_copy(a: Any, b: Any) -> Any:
    x = b.copy()
    y = np.array(x, copy=False)
    x[0] = a[0, 0]
    return y


def swaps_views(a: Any, b: Any) -> Any:
    a = a.copy()
    a[0], a[1] = a[1], a[0]
    return a


def may_change_argument(a: Any, b: Any) -> Any:
    if b[0] > 1.0:
        b = b.copy()
    b[0] = a[0, 0]
    return b


def changes_argument(a: Any, b: Any) -> Any:
    b += 1.0
    b[0] = a[0, 0]
    return b


def kept_in_list(a: Any, b: Any) -> Any:
    x, found = b.copy(), []
    for k in range(3):
        x[k] = a[k, k]
        found.append(x)
    return found[0]


def cut(a: Any, b: Any) -> Any:
    x = np.zeros(3, np.int32)
    x[0] = b[0]
    return x


SHARED = (may_change_argument, changes_argument)
HELD = (keeps_view, has_two_names, has_no_copy, swaps_views, kept_in_list)


@pytest.mark.parametrize("f", HELD)
def test_arrays_that_something_else_holds_change_with_it(f: Any) -> None:
    for backend in ("llvm", "interpret"):
        found = ab.unbatch(ab.batched(f, backend=backend)(*matrices(0)))
        np.testing.assert_allclose(found, [f(a.copy(), b.copy()) for a, b in zip(*matrices(0), strict=True)], rtol=1e-6)


@pytest.mark.parametrize("f", SHARED)
def test_arrays_that_something_else_may_hold_are_refused(f: Any) -> None:
    with pytest.raises(UnsupportedError, match="where something else may hold them"):
        ab.batched(f, backend="xla")(*matrices(0))


def test_what_is_cut_to_integers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="floats are cut to integers"):
        ab.batched(cut, backend="xla")(*matrices(0))


def sliced(a: Any, b: Any) -> Any:
    total = 0.0
    for i in range(int(b[0])):
        total = total + a[i:, 0].sum()
    return total


def test_a_slice_of_unknown_length_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"how long this slice of an array is(.|\n)*np\.where"):
        ab.batched(sliced, backend="xla")(*matrices(0))


def test_lists_as_indices() -> None:
    for backend in BACKENDS:
        a, b = matrices(5)
        got = ab.batched(lambda a, b: b[[2, int(b[0] > 1.0)]] @ a[[0, 1], 1], backend=backend)(a, b)
        wanted = [y[[2, int(y[0] > 1.0)]] @ x[[0, 1], 1] for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
