"""Strings that recursions build, take apart, pass on and return: machine code has their letters in lists, the entry
among its own calls too."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings

import autobatch as ab
from tests.python import drawn_texts

P = jnp.asarray([0.7, -0.4], jnp.float32)


@dataclass
class Named:
    name: str
    x: float = 1.0
    children: list[Named] = field(default_factory=list)


TREES = [
    Named("a", 0.5, [Named("cab", -1.0), Named("b", 2.0, [Named("abba", 0.25)])]),
    Named("zz", -0.5),
    Named("cab", 1.5, [Named("a", 0.5, [Named("a", 0.1), Named("bc", 0.3, [Named("c")])])]),
]
WORDS = ["abba", "cab", "", "a", "zzab"]


def same(found, wanted):
    for a, b in zip(ab.unbatch(found), wanted, strict=True):
        for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (a, b)), strict=True):
            if isinstance(y, str):
                assert x == y
            else:
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(program=drawn_texts.programs())
def test_random_recursions(program):
    main = program.function
    wanted = [main(P, t) for t in TREES]
    for backend in ("llvm", "auto"):
        f = ab.batched(main, in_axes=(None, 0), backend=backend)
        same(f(P, TREES), wanted)
        if isinstance(wanted[0], jax.Array):
            slopes = jax.grad(lambda p: sum(main(p, t) for t in TREES))(P)
            np.testing.assert_allclose(ab.grad(f)(P, TREES), slopes, rtol=1e-3, atol=1e-4)


def newick(t):
    if not t.children:
        return t.name
    return "(" + ",".join([newick(c) for c in t.children]) + ")" + t.name


def outline(t, depth=0):
    return "  " * depth + t.name + "\n" + "".join(outline(c, depth + 1) for c in t.children)


def palindrome(s):
    return True if len(s) < 2 else s[0] == s[-1] and palindrome(s[1:-1])


def reversed_by_slices(s):
    return s if len(s) <= 1 else reversed_by_slices(s[1:]) + s[0]


def distance(s):
    def of(i, j):
        if i == 0 or j == 0:
            return i + j
        changed = s[i - 1] != "abcab"[j - 1]
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + changed)

    return of(len(s), 5)


def towers(n):
    def go(n, a, b, c):
        return "" if n == 0 else go(n - 1, a, c, b) + a + c + go(n - 1, b, a, c)

    return go(n, "x", "y", "z")


@pytest.mark.parametrize(
    ("function", "data"),
    [
        (newick, TREES),
        (outline, TREES),
        (palindrome, WORDS),
        (reversed_by_slices, WORDS),
        (distance, WORDS),
        (towers, [0, 3, 1]),
    ],
)
def test_machine_code_is_taken(function, data):
    f = ab.batched(function)
    same(f(data), [function(x) for x in data])
    explained = f.explain(data)
    assert explained.data["backend"]["taken"] == "llvm"
    same(ab.batched(function, backend="xla", options={"trace": True})(data), [function(x) for x in data])


def test_nothing_is_written_to_standard_error(capfd):
    """LLVM writes there of a loop that it was told to make vectors of, and cannot."""

    def least(p):
        def go(a, b):
            if not a or not b:
                return len(a) + len(b)
            return min(go(a[1:], b) + 1, go(a, b[1:]) + 1, go(a[1:], b[1:]) + (a[0] != b[0]))

        return go(p[0], p[1])

    found = ab.batched(least, backend="llvm")([("abc", "cab"), ("", "a")])
    np.testing.assert_array_equal(found, [2, 1])
    assert capfd.readouterr().err == ""
