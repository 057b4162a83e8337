"""Iterators in variables and lists that loops change: as Python has them, or refused by name."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import assert_same

BATCH = [[0.9, 0.4, -0.7, 1.3], [0.5], [1.4, 0.3, 0.8]]


def twice(w: Any, xs: list[float]) -> Any:
    g = (x * w for x in xs)
    return sum(g) + sum(g)


def mapped_twice(w: Any, xs: list[float]) -> Any:
    m = map(lambda x: x * w, xs)
    return sum(m) + sum(m)


def pairs_twice(w: Any, xs: list[float]) -> Any:
    z = zip(xs, xs, strict=True)
    return sum(a * b for a, b in z) + sum(a for a, b in z) + w


def in_a_loop(w: Any, xs: list[float]) -> Any:
    g = (x for x in xs)
    total = w
    for _ in range(2):
        total = total + sum(g)
    return total


def late(w: Any, xs: list[float]) -> Any:
    k = 2.0
    g = (x * k for x in xs)
    k = 3.0
    return sum(g) * w


def searched(w: Any, xs: list[float]) -> Any:
    g = (k for k in range(6))
    found = 2 in g
    return w * sum(g) + found


def parameter(w: Any, xs: list[float]) -> Any:
    def both(g: Any) -> Any:
        return sum(g) + sum(g)

    return both(x * w for x in xs)


def chained(w: Any, xs: list[float]) -> Any:
    c = itertools.chain(xs, [1.0])
    return sum(c) * w + sum(c)


def view(w: Any, xs: list[float]) -> Any:
    d = {"k": w}
    v = d.values()
    d["j"] = 2.0
    return sum(v)


def chained_behind(w: Any, xs: list[float]) -> Any:
    ys, total = [0.5, w], 0.0
    for x in itertools.chain(xs, ys):
        if len(ys) > 1:
            ys.reverse()
        total = total * 0.5 + x
    return total


def of_pairs(w: Any, xs: list[float]) -> Any:
    ys, total = [0.5, w, 0.1], 0.0
    for x, y in itertools.pairwise(ys):
        ys[2] = x + 1
        total = total * 0.5 + y
    return total


def mapped(w: Any, xs: list[float]) -> Any:
    total = 0.5 * w
    for x in map(lambda x: x * total, xs):
        total = total * 0.5 + x
    return total


def filtered(w: Any, xs: list[float]) -> Any:
    seen: set[int] = set()
    total = 0.0 * w
    for x in (x for x in xs if len(seen) < 2):
        seen.add(len(seen))
        total = total * 0.5 + x
    return total


def called_by_elements(w: Any, xs: list[float]) -> Any:
    ys = [0.5, w]

    def last(x: Any) -> Any:
        ys[-1] = x + 1
        return x

    return sum(last(y) for y in ys), list(map(last, ys))


def other_items(w: Any, xs: list[float]) -> Any:
    d = {"a": 0.5, "b": w}
    total = 0.0
    for y in d.values():
        d["b"] = 7.0
        total = total * 0.5 + y
    return total


STEPPED = (
    twice, mapped_twice, pairs_twice, in_a_loop, late, searched, parameter, chained, chained_behind, mapped, filtered,
)  # fmt: skip


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("program", STEPPED, ids=lambda f: f.__name__)
def test_iterators_are_stepped(program: Callable[..., Any], backend: str) -> None:
    f, w = ab.batched(program, in_axes=(None, 0), backend=backend), jnp.float32(1.5)
    with ab.options(trace=False):
        assert_same(ab.unbatch(f(w, BATCH)), [program(w, xs) for xs in BATCH])


REFUSED = (view, of_pairs, called_by_elements, other_items)


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_what_is_read_as_a_whole_is_refused_and_traced(program: Callable[..., Any]) -> None:
    f, w = ab.batched(program, in_axes=(None, 0)), jnp.float32(1.5)
    with pytest.raises(ab.UnsupportedError, match="is a view|is changed while a (loop|comp)"):
        f(w, BATCH)
    with ab.options(trace=True, backend="interpret"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ab.StructureWarning)
        assert_same(ab.unbatch(f(w, BATCH)), [program(w, xs) for xs in BATCH])


def once(w: Any, xs: list[float]) -> Any:
    pairs = zip(xs, [w] * len(xs), strict=True)
    total = 0.0
    for a, b in pairs:
        total = total + a * b
    for k in range(2):
        g = (x * k for x in xs)
        total = total + sum(g)
    return total


def own_element(w: Any, xs: list[float]) -> Any:
    out = list(xs)
    for k, x in enumerate(out):
        out[k] = x * w
    for x in list(out):
        out.append(x)
    for x in out:
        if x > -5.0:
            out.append(x)
            break
    return sum(out)


def product(x: Any) -> Any:
    return x * 2


def of_other_names(w: Any, xs: list[float]) -> Any:
    p = jax.tree.map(lambda x: x * w, {"a": w, "b": 2.0})
    x = product(w)
    return p["a"] + p["b"] + x * x


def handed(w: Any, xs: list[float]) -> Any:
    def total(g: Any) -> Any:
        return sum(x * x for x in g)

    return total(x * w for x in xs)


def not_read_again(w: Any, xs: list[float]) -> Any:
    ys, zs, d, total = [w, 2.0], [w], {"a": 0.5, "b": w}, 0.0

    def add(x: Any) -> None:
        ys.append(x)

    def more(x: Any) -> None:
        nonlocal zs
        zs = [*zs, x]

    for y in list(ys):
        add(y)
    for z in zs:
        more(z)
    for key, value in d.items():
        d[key] = value * 2
    for y, x in itertools.product(ys, xs):
        ys[0] = y
        total = total * 0.5 + x
    for y in ys:
        total = total + y
        if y > 1.0:
            add(y)
            break
    return total + sum(ys) + sum(zs) + sum(d.values())


NOT_REFUSED = (once, own_element, of_other_names, handed, not_read_again)


@pytest.mark.parametrize("program", NOT_REFUSED, ids=lambda f: f.__name__)
def test_what_is_read_once_compiles(program: Callable[..., Any]) -> None:
    f, w = ab.batched(program, in_axes=(None, 0)), jnp.float32(1.5)
    with ab.options(backend="interpret"):
        assert_same(ab.unbatch(f(w, BATCH)), [program(w, xs) for xs in BATCH])
