"""Arrays of NumPy that a function makes and changes: in loops, under names that are given on, and by masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autobatch as ab


def made_in_a_loop(a: Any) -> Any:
    s = 0.0
    for _ in range(10):
        n = np.zeros(4)
        n[0] = 0.5
        s += n[0]
        if s > a[0]:
            break
    return s


def relaxed(a: Any) -> Any:
    u = a.copy()
    for _ in range(4):
        n = u.copy()
        for k in range(1, 3):
            n[k] = 0.5 * u[k] + 0.25 * (u[k - 1] + u[k + 1])
        if np.abs(n - u).max() < 0.05:
            break
        u = n
    return u[1]


def given_on(a: Any) -> Any:
    u = np.abs(a) + 0.2
    while u[0] > 0.1:
        n = u * 1
        n[0] = 0.5 * u[0]
        n[1] = n[0] + u[2]
        u = n
    return u.sum()


def rotated(a: Any) -> Any:
    m = np.eye(3)
    for k in range(4):
        j = np.eye(3)
        j[0, 0] = a[0]
        j[1, 2] = a[k % 4]
        m = j @ m
        if m[0, 0] > 2:
            break
    return m.sum()


def kept_before(a: Any) -> Any:
    n, before = a.copy(), 0.0
    for k in range(3):
        m = n
        n = n * 2
        n[k] = 1.0
        before += m.sum()
    return before + n.sum()


def on_a_branch(a: Any) -> Any:
    n = a.copy()
    m = n
    if a[0] > 0:
        n = n * 1
        n[0] = 9.0
    return m[0] + n[0]


def clamped(a: Any) -> Any:
    w = a.copy()
    for _ in range(3):
        w[w > 1] = 1.0
        w = np.maximum(w, -1.0) * 1.5
        w[np.isnan(w) | (w < -1.2)] = a[0]
    return w.sum()


def rows_and_numbers(a: Any) -> Any:
    w = np.outer(a, a)
    w[a > 0] = 2.0
    w[a < -1] = a
    w[w < 0] = np.abs(a).max()
    return w.sum()


def augmented(a: Any) -> Any:
    w = a.copy()
    w[w > 0] *= 0.5
    w[w < -0.5] += 1.0
    n = (a * 3).astype(int)
    n[n < 0] += 7
    n[n > 5] = 5
    return w.sum() + n.sum()


def rooted(a: Any) -> Any:
    w = a.copy()
    w[w > 0] **= 0.5
    w[w < -1] /= w[0]
    return w.sum()


def changed_after(a: Any) -> Any:
    n, m = a.copy(), a * 0
    for k in range(3):
        n[k] = 5.0
        m = n
        n[k + 1] = 7.0
    return m.sum() + n[0]


def changed_on_some_path(a: Any) -> Any:
    n = a.copy()
    m = n
    if a[0] > 0:
        n = n * 1
    n[0] = 9.0
    return m[0] + n[0]


def jumped_over(a: Any) -> Any:
    n = a.copy()
    u = n
    for _ in range(3):
        u = n
        if u[0] > 1:
            continue
        n = n + 0.5
        n[1] = 0.0
    return u.sum()


def as_many_as_there_are(a: Any) -> Any:
    w = a.copy()
    w[w > 0] += a
    return w.sum()


GIVEN = [np.random.default_rng(k).normal(size=4) for k in range(6)]
PROGRAMS = (
    *(made_in_a_loop, relaxed, given_on, rotated, kept_before, on_a_branch),
    *(clamped, rows_and_numbers, augmented, rooted),
)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_numpy_does(program: Any, backend: str) -> None:
    found = ab.batched(program, backend=backend)(np.stack(GIVEN))
    np.testing.assert_allclose(found, [program(x) for x in GIVEN], rtol=1e-4)


@pytest.mark.parametrize("program", [relaxed, clamped, augmented, rooted], ids=lambda f: f.__name__)
def test_derivatives(program: Any) -> None:
    given = np.stack(GIVEN)
    found = ab.grad(ab.batched(program), argnums=0)(given.astype(np.float32))
    step = 1e-4
    for k in range(4):
        moved = [np.stack([program(x + sign * step * np.eye(4)[k]) for x in GIVEN]) for sign in (1, -1)]
        np.testing.assert_allclose(found[:, k], (moved[0] - moved[1]) / (2 * step), atol=2e-3)


@pytest.mark.parametrize("program", [changed_after, changed_on_some_path, jumped_over], ids=lambda f: f.__name__)
def test_what_another_name_holds_is_changed_too(program: Any) -> None:
    found = ab.batched(program)(np.stack(GIVEN))
    np.testing.assert_allclose(found, [program(x) for x in GIVEN], rtol=1e-5)


def test_as_many_numbers_as_a_mask_picks_are_refused() -> None:
    with pytest.raises(ab.UnsupportedError, match="as many numbers as a mask picks are data"):
        ab.batched(as_many_as_there_are)(np.stack(GIVEN))
