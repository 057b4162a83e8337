"""Derivatives by large arrays that all examples share and of which each reads little: they are added up number by
number, wherever they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

pytestmark = pytest.mark.usefixtures("checked_memory")
RNG = np.random.default_rng(3)
NUMBERS = jnp.asarray(RNG.uniform(0.5, 1.5, 400), jnp.float32)
TABLE = jnp.asarray(RNG.normal(0, 1, (60, 12)), jnp.float32)
WORDS = [RNG.integers(60, size=n).tolist() for n in (3, 0, 7, 1, 12, 5, 2, 2, 9, 4, 1, 1, 6, 3, 8, 2, 5, 0, 4)]


@dataclass
class Node:
    word: int
    children: list[Node] = field(default_factory=list)


def tree(depth: int) -> Node:
    return Node(int(RNG.integers(60)), [tree(depth - 1) for _ in range(int(RNG.integers(3)))] if depth else [])


TREES = [tree(4) for _ in range(19)]


def in_a_loop(p: Any, words: list[int]) -> Any:
    total = 0.0
    for w in words:
        total = total * 0.5 + p[w] * p[w + 1]
    return total


def in_branches(p: Any, words: list[int]) -> Any:
    total = 1.0
    for w in words:
        if p[w] > 1.0:
            total = total * p[2 * w]
        elif w % 2:
            total = total + p[w] * p[0]
    return total


def in_a_loop_of_floats(p: Any, words: list[int]) -> Any:
    x, at = 1.0, len(words)
    while x < 20.0 and at < 380:
        x = x * (1.0 + p[at]) + p[at + 1]
        at = at + 3
    return x


def rows(p: Any, words: list[int]) -> Any:
    total = jnp.zeros(12)
    for w in words:
        total = jnp.tanh(total + p[w])
    return total @ p[5] + p[7, 3]


def slices(p: Any, words: list[int]) -> Any:
    total = 0.0
    for w in words:
        total = total + jnp.sin(jax.lax.dynamic_slice(p, (w, 2), (2, 4))).sum() * p[w, -1]
    return total


def gathered(p: Any, words: list[int]) -> Any:
    """The same row several times, and rows out of range, which NaNs would stand for."""
    total = p[0, 0]
    for w in words:
        at = jnp.asarray([w, w, 59, 3])
        total = total + (p[at] * jnp.arange(4.0)[:, None]).sum() * 0.1
    return total


def read_and_used_whole(p: Any, words: list[int]) -> Any:
    total = jnp.sum(p * p) * 0.01
    for w in words:
        total = total + p[w]
    return total * p.max()


def changed(p: Any, words: list[int]) -> Any:
    """What is read is a copy of the table by then."""
    q = p * 2.0
    for w in words:
        q = q.at[w].set(q[w] * q[w + 1])
    return q[3] + q[4]


def recursion(p: Any, t: Node) -> Any:
    total = p[t.word]
    for c in t.children:
        total = total * 0.5 + jnp.sin(recursion(p, c))
    return total


def recursion_of_rows(p: Any, t: Node) -> Any:
    def go(t: Node) -> Any:
        total = p[t.word]
        for c in t.children:
            total = jnp.tanh(total + go(c))
        return total

    return go(t).sum()


def that_fail(p: Any, words: list[int]) -> Any:
    total = 0.0
    for w in words:
        total = total + jnp.sqrt(p[w] - p[0])
    if len(words) == 7:
        raise ValueError("seven")
    return total


PROGRAMS: dict[Any, tuple[Any, Any]] = {
    **dict.fromkeys((in_a_loop, in_branches, in_a_loop_of_floats, read_and_used_whole, changed), (NUMBERS, WORDS)),
    **dict.fromkeys((rows, slices, gathered), (TABLE, WORDS)),
    recursion: (NUMBERS, TREES),
    recursion_of_rows: (TABLE, TREES),
}


@pytest.mark.parametrize("gangs", [False, True], ids=["rows", "gangs"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(program: Any, gangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autobatch.backends.llvm.code.form_gangs", lambda *_: gangs)
    p, data = PROGRAMS[program]
    wanted = jax.grad(lambda p: sum(program(p, x) for x in data))(p)
    f = ab.batched(program, in_axes=(None, 0), backend="llvm")
    for examples, times in ((data, 1), (data * 40, 40)):
        found = ab.grad(f)(p, examples)
        np.testing.assert_allclose(found, times * wanted, rtol=1e-3, atol=1e-3 * times * float(abs(wanted).max()))


@pytest.mark.parametrize("gangs", [False, True], ids=["rows", "gangs"])
def test_examples_that_fail_have_no_part(gangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where a derivative of theirs is not finite."""
    monkeypatch.setattr("autobatch.backends.llvm.code.form_gangs", lambda *_: gangs)
    p = jnp.sort(NUMBERS)
    words = [[0] * 7 if len(w) == 7 else [k + 1 for k in w] for w in WORDS]
    f = ab.batched(that_fail, in_axes=(None, 0), backend="llvm", on_error="mask")
    _, found = ab.value_and_grad(f)(p, words)
    wanted = jax.grad(lambda p: sum(that_fail(p, w) for w in words if len(w) != 7))(p)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.parametrize("program", [rows, slices, in_a_loop, recursion], ids=lambda f: f.__name__)
def test_no_array_of_its_size_is_made(program: Any) -> None:
    """But for that of the result, in each call: the code has no memory of that many numbers."""
    p, data = PROGRAMS[program]
    f = ab.batched(program, in_axes=(None, 0), backend="llvm")
    ab.grad(f)(p, data)
    (made,) = f._cache._all()
    (code,) = made.compiled.native.gradients.values()
    sizes = [int(n) for n in re.findall(r"alloca \[(\d+) x", code.text)]
    assert max(sizes, default=0) < p.size
