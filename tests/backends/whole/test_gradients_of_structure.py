"""Derivatives of functions of lists and objects, by what all examples share and by the numbers in these, which machine
code takes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm.program import CHUNK, WholeProgram
from autobatch.testing.ways import floats

pytestmark = pytest.mark.cpu


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Path:
    name: str
    points: list[Point]


def walk(w, xs):
    h = 0.0
    for x in xs:
        h = h * 0.5 + jnp.tanh(x * w)
    return h


def pairs(w, xs):
    total = 0.0
    for a in xs:
        for b in xs:
            total += abs(a - b * w)
    return total


def stops(w, xs):
    total = 1.0
    for x in xs:
        total *= 1.0 + x * w
        if total > 3.0:
            break
        if x < 0.0:
            continue
        total += w
    return total


def halved(w, xs):
    total = 0.0
    for x in xs:
        y = abs(x) * w + 1.0
        while y > 0.3:
            y *= 0.5
        total += y * w
    return total


def distance(w, xs):
    before = [i * w for i in range(len(xs) + 1)]
    for x in xs:
        now = [before[0] + w]
        for j in range(len(xs)):
            now.append(min(before[j + 1] + w, now[j] + w, before[j] + (x - xs[-1 - j]) ** 2 * w))
        before = now
    return before[-1]


def appended(w, xs):
    kept = [1.0]
    for x in xs:
        if x * w > 0.1:
            kept.append(x * w)
    return sum(k * k for k in kept) + len(kept) * w


def chosen(w, xs):
    at, best = 0, -1e9
    for i, x in enumerate(xs):
        if x * w > best:
            at, best = i, x * w
    return xs[at] * w * w if len(xs) > 0 else w


def raises(w, xs):
    total = w
    for x in xs:
        if x > 1.5:
            raise ValueError("too large")
        total = total * 0.9 + x * w
    return total


FUNCTIONS = [walk, pairs, stops, halved, distance, appended, chosen]


def lists(seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [[float(x) for x in rng.normal(size=n)] for n in (3, 1, 0, 7, 5, 2)]


def unpacked(result: Any) -> Any:
    return jax.tree.map(lambda x: ab.unbatch(x) if is_batch(x) else x, result, is_leaf=is_batch)


def is_batch(x: Any) -> bool:
    return isinstance(x, ab.Batch)


def agree(function: Any, shared: Any, data: Any, monkeypatch: Any, argnums: Any = (0, 1), **settings: Any) -> None:
    """On every back end the same value and gradient; machine code is asked for the derivative, and has it."""
    asked, gradient = list[bool](), WholeProgram.gradient

    def noted(program: WholeProgram, *args: Any) -> Any:
        made = gradient(program, *args)
        asked.append(made is not None)
        return made

    monkeypatch.setattr(WholeProgram, "gradient", noted)
    of = ab.batched(function, in_axes=(None, 0), backend="interpret", **settings)
    wanted = unpacked(ab.value_and_grad(of, argnums)(shared, data))
    for backend in ("llvm", "auto"):
        asked.clear()
        f = ab.batched(function, in_axes=(None, 0), backend=backend, **settings)
        found = unpacked(ab.value_and_grad(f, argnums)(shared, data))
        assert asked and all(asked)
        ours, theirs = floats(found), floats(wanted)
        assert ours.keys() == theirs.keys() and floats(found[1])
        for place, x in theirs.items():
            np.testing.assert_allclose(ours[place], x, rtol=2e-5, atol=1e-6, err_msg=place)
            assert np.isfinite(x).all()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_by_a_number(function, monkeypatch):
    agree(function, 0.7, lists(), monkeypatch)


def test_by_arrays_of_a_network(monkeypatch):
    def network(p, vs):
        h = jnp.zeros(5)
        for v in vs:
            h = jnp.tanh(h @ p["W"] + v)
        return jnp.sum(h * p["b"])

    rng = np.random.default_rng(0)
    p = {"W": rng.normal(size=(5, 5)).astype(np.float32) / 2, "b": rng.normal(size=5).astype(np.float32)}
    agree(network, p, [[rng.normal(size=5).astype(np.float32) for _ in range(n)] for n in (2, 4, 0, 1)], monkeypatch)


def test_of_objects_in_lists(monkeypatch):
    def length(w, path):
        total, before = 0.0, None
        for p in path.points:
            if before is not None:
                total += jnp.sqrt((p.x - before.x) ** 2 + (w * (p.y - before.y)) ** 2 + 1e-3)
            before = p
        return total * w if path.name == "long" else total

    rng = np.random.default_rng(0)
    names = ("long", "short", "long")
    paths = [Path(n, [Point(*map(float, rng.normal(size=2))) for _ in range(k)]) for n, k in zip(names, (4, 3, 0))]
    agree(length, 1.3, paths, monkeypatch)


def test_by_what_a_shared_object_holds(monkeypatch):
    def nearest(points, xs):
        total = 0.0
        for x in xs:
            best = 1e9
            for p in points:
                best = min(best, (p.x - x) ** 2 + p.y * p.y)
            total += best
        return total

    agree(nearest, [Point(0.1, 0.2), Point(-1.0, 0.3), Point(0.9, -0.1)], lists(), monkeypatch)


def test_examples_that_fail_have_none(monkeypatch):
    data = [[0.5, 1.0], [0.1, 2.0, 0.3], [], [1.6]]
    agree(raises, 0.7, data, monkeypatch, on_error="mask")
    with pytest.raises(ab.ExampleError, match="too large"):
        ab.grad(ab.batched(raises, in_axes=(None, 0)))(0.7, data)


def test_of_recursions(monkeypatch):
    def product(w, t):
        return 1.0 if t is None else t.x * w * product(w, t.left) + product(w, t.right)

    data = [Tree(1.5, Tree(0.5, None, None), None), Tree(-0.5, None, Tree(2.0, None, None)), None]
    agree(product, 0.7, data, monkeypatch)
    agree(product, 0.7, ab.pack(data), monkeypatch, argnums=1)


def test_of_numbers_that_are_examples_themselves(monkeypatch):
    agree(lambda w, x: x * x * w if x > 0.0 else w, 0.7, [0.5, -1.0, 2.0], monkeypatch)


def test_by_one_of_two_lists():
    def scaled(xs, ys):
        total = 0.0
        for x, y in zip(xs, ys, strict=True):
            total += x * y
        return total

    xs, ys = lists(0), lists(1)
    f = ab.batched(scaled)
    assert ab.unbatch(ab.grad(f)(xs, ys)) == [[np.float32(y) for y in y] for y in ys]
    by_ys, by_xs = map(ab.unbatch, ab.grad(f, (1, 0))(xs, ys))
    assert by_ys == [[np.float32(x) for x in x] for x in xs] and by_xs == ab.unbatch(ab.grad(f)(xs, ys))


def test_of_more_rows_than_a_thread_takes_at_once():
    data = [[0.5 * k, 1.0] for k in range(2 * CHUNK + 5)]
    found = ab.grad(ab.batched(lambda w, xs: w * xs[0] * xs[0] + xs[1], in_axes=(None, 0)), (0, 1))(2.0, data)
    np.testing.assert_allclose(ab.unbatch(found[1]), [[2.0 * k, 1.0] for k in range(len(data))], rtol=1e-6)
    np.testing.assert_allclose(found[0], sum(0.25 * k * k for k in range(len(data))), rtol=1e-5)


@dataclass
class Tree:
    x: float
    left: Tree | None
    right: Tree | None


@pytest.mark.parametrize(
    "function", [jnp.sort, jnp.cumprod, lambda x: jax.lax.top_k(x, 3)[0]], ids=["sort", "cumprod", "top_k"]
)
def test_what_is_at_another_place(function):
    """Cotangents of numbers of a row that nobody reads are zero: not so what the others move."""

    def first(w, rows):
        return jax.vmap(function)(jnp.stack([row * w for row in rows]))[0][2]

    rng = np.random.default_rng(0)
    rows = [[rng.normal(size=4).astype(np.float32) for _ in range(n)] for n in (3, 1, 2)]
    w = jnp.float32([0.5, -1.0, 2.0, 0.3])
    found = ab.grad(ab.batched(first, in_axes=(None, 0), backend="llvm"))(w, rows)
    np.testing.assert_allclose(found, sum(jax.grad(first)(w, r) for r in rows), rtol=1e-5)
