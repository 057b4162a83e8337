"""Strings of the examples under data-dependent control flow: looked into, chosen, put together and returned, on every
back end. Machine code has their letters as columns (`passes/object_rows.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.backends.llvm.region import all_regions
from autobatch.ir.core import Apply
from autobatch.testing import assert_same

EXAMPLES = [(0.5, "the"), (1.5, "cat"), (2.5, ""), (0.1, "aardvark"), (1.25, "žluť")]
Example = tuple[float, str]


def counted(e: Example) -> Any:
    x, w = e
    n = 0
    for c in w:
        if x * ord(c) > 100:
            n += 1
    return n, len(w) * x if x > 1 else -x


def first(e: Example) -> Any:
    x, w = e
    return w[0] == "a" if len(w) > 0 and x < 1 else False


def vowels(e: Example) -> Any:
    x, w = e
    t = 0.0
    for c in w:
        if c in "aeiou":
            t += x
        if t > 0.15:
            break
    return t


def chosen(e: Example) -> Any:
    x, w = e
    if x > 1:
        w = "dog"
    n = 0
    for c in w:
        n += ord(c)
    return w, len(w), w == "dog", w[0] if len(w) > 0 else "z", n


def letters(e: Example) -> Any:
    x, w = e
    found: dict[str, int] = {}
    for c in w:
        if x < 2:
            found[c] = found.get(c, 0) + 1
    return len(found), max(found.values(), default=0), [c for c in w if x * ord(c) > 60], w[::-1]


@dataclass
class Named:
    value: float
    name: str


def keys(e: Example) -> Any:
    x, w = e
    counts: dict[str, int] = {}
    for k in (Named(x, w), Named(-x, w), Named(x - 1, w + "s")):
        name = k.name if k.value > 0 else k.name + "!"
        counts[name] = counts.get(name, 0) + 1
    return counts


def of_characters(e: Example) -> Any:
    """Functions of single letters, and comparisons, in variables, lists and branches."""
    x, w = e
    n, number, last, held = 0, 0, "", [c for c in w if c != "e"]
    for k, c in enumerate(w):
        if c == last or c < "d":
            n += 1
        if c.isalpha() and not c.isupper():
            n += 10
        last = c if x * k < 2 else "a"
        digit = chr(48 + ord(c) % 10)
        number = (number * 10 + int(digit)) % 1000
    for c in held:
        n += 100 * (c == last)
    return n, number, last


PROGRAMS = [keys, counted, first, vowels, chosen, letters, of_characters]


@pytest.mark.parametrize("backend", ["interpret", "llvm", pytest.param("xla", marks=pytest.mark.long)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_agrees_with_the_loop(program: Any, backend: str) -> None:
    f = ab.batched(program, backend=backend)
    assert_same(ab.unbatch(f(EXAMPLES)), f.loop(EXAMPLES))
    assert_same(ab.unbatch(f(EXAMPLES[:1])), f.loop(EXAMPLES[:1]))  # other vocabularies
    if backend == "llvm":
        assert_same(ab.unbatch(f(f.pack(EXAMPLES)[[3, 0]])), f.loop([EXAMPLES[3], EXAMPLES[0]]))


def test_functions_of_characters_are_functions_of_numbers() -> None:
    """They do not compute with as many letters as a string has room for."""
    f = ab.batched(of_characters, backend="llvm")
    f(EXAMPLES)
    (program,) = f._cache._all()
    inside = [i for r in all_regions(program.compiled.native.whole.region) for i in r.body if isinstance(i, Apply)]
    for name in ("reduce_and", "cumsum", "argmax", "gather"):
        assert all(i.op.name != name or not i.operands[0].type.shape for i in inside), name


def test_objects_whose_names_may_be_missing() -> None:
    def f(e: tuple[float, str | None]) -> Any:
        x, w = e
        n = 0.0
        while x > 0.3:
            x = x * 0.5
            n = n + (len(w) if w is not None else 10) * x
        return n

    batch = [(0.5, "the"), (2.0, None), (3.0, "")]
    for backend in ("interpret", "llvm"):
        g = ab.batched(f, backend=backend)
        assert_same(ab.unbatch(g(batch)), g.loop(batch))


def test_derivatives() -> None:
    def f(w: Any, e: Example) -> Any:
        x, word = e
        t = x
        for c in word:
            if t * w > 0.2:
                t = t * w + (0.1 if c == "a" else 0.0)
        return t

    g = ab.batched(f, in_axes=(None, 0))
    w = jnp.float32(0.75)
    wanted = jax.grad(lambda w: sum(f(w, e) for e in EXAMPLES))(w)
    assert float(ab.grad(g)(w, EXAMPLES)) == pytest.approx(float(wanted), rel=1e-5)
