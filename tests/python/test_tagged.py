"""Trees and lists of several kinds of tuples, lists, dicts and objects that the function makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.python import drawn_tagged
from tests.python.tagged import NUMBERS, OF_NUMBERS, PROGRAMS, TOKENS

XLA = pytest.param("xla", marks=pytest.mark.xla)
BACKENDS = ["llvm", "auto", XLA, pytest.param("interpret", marks=pytest.mark.long)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", PROGRAMS, ids=[f.__name__ for f in PROGRAMS])
def test_programs(function, backend):
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(function, backend=backend)(TOKENS, NUMBERS))
    assert_same(found, list(map(function, TOKENS, NUMBERS)), tolerance=1e-4)


@pytest.mark.parametrize("function", OF_NUMBERS)
def test_derivatives(function):
    found = ab.grad(ab.batched(function, backend="llvm"), 1)(TOKENS, NUMBERS)
    step = 1e-5
    wanted = [
        (function(t, x + step) - function(t, x - step)) / (2 * step) for t, x in zip(TOKENS, NUMBERS, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@settings(max_examples=15, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_tagged.programs())
def test_random_languages(drawn):
    program, examples = drawn
    tokens, xs = map(list, zip(*examples, strict=True))
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(program.function, backend="llvm")(tokens, xs))
    assert_same(found, [program.function(*x) for x in examples], tolerance=1e-3)


@settings(max_examples=15, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_tagged.readers())
def test_random_languages_of_the_examples(drawn):
    """The second call has kinds of nodes that the first may not have shown."""
    program, examples = drawn
    f = ab.batched(program.function, backend="llvm")
    with ab.options(trace=False):
        for part in (examples[:2], examples[2:]):
            found = ab.unbatch(f(*map(list, zip(*part, strict=True))))
            assert_same(found, [program.function(*x) for x in part], tolerance=1e-3)


def test_integers_stay_integers_beside_floats():
    """At one place of tuples that a tag tells apart."""

    def f(x):
        found = [("n", 7), ("x", x)] if x > 1 else [("x", x), ("n", 3)]
        return [e[1] // 2 if e[0] == "n" else e[1] for e in found]

    wanted = list(map(f, NUMBERS))
    assert_same(ab.unbatch(ab.batched(f, backend="llvm")(NUMBERS)), wanted)


def test_a_part_that_the_kind_has_not():
    def f(x):
        e = ("num", x) if x > 1 else ("name", "y")
        stack = [e]
        return stack[0][1] * 2.0

    with pytest.raises(ab.ExampleError, match=r"TypeError|a value of type str"):
        ab.batched(f, backend="llvm")(NUMBERS)


def calculated(text):
    """Tokens of two kinds at one place, of which one loop takes both."""
    tokens, n = [], 0
    for c in text:
        if c.isdigit():
            n = n * 10 + int(c)
        else:
            tokens.append(("num", n))
            tokens.append(("op", c))
            n = 0
    tokens.append(("num", n))
    total, product = 0, 1
    for kind, value in tokens:
        if kind == "num":
            product *= value
        elif value == "+":
            total += product
            product = 1
    return total + product


def test_tokens():
    texts = ["1+2*3", "12", "2*3+4*5+6", "7+8"]
    assert_same(ab.unbatch(ab.batched(calculated, backend="llvm")(texts)), list(map(calculated, texts)))


def test_a_string_is_multiplied_by_an_int_alone():
    def f(k, word):
        try:
            return word * (word if k > 1 else k > 0)
        except TypeError:
            return "?"

    ks, words = [0, 1, 2, 3], ["a", "bc", "d", ""]
    assert_same(ab.unbatch(ab.batched(f, backend="llvm")(ks, words)), list(map(f, ks, words)))


def updated(x):
    dicts = [{"op": "a", "v": x}, {"op": "b", "v": "s"}]
    for d in dicts:
        if d["op"] == "a":
            d.update({"op": "c"})
    return [d["op"] for d in dicts]


def exchanged(x):
    rows = [["a", x], ["b", "s"], ["c", 2]]
    rows[0][0], rows[1][0] = rows[1][0], rows[0][0]
    return [r[0] for r in rows], [r[0] == "a" for r in rows]


def renamed(row, word):
    row[0] = word


def by_a_helper(x):
    rows = [["a", x], ["b", "s"]]
    for r in rows:
        if r[0] == "b":
            renamed(r, "q")
    return [r[0] for r in rows]


def counted(x):
    rows = [[0, x], [1, "s"]]
    rows[0][0] += 5
    return [r[0] for r in rows], [r[0] == 0 for r in rows]


def nested(x):
    pairs = [("a", ("b", x)), ("a", ("c", "s"))]
    return [p[1][0] for p in pairs], [p[1][1] if p[1][0] == "b" else -1.0 for p in pairs]


@pytest.mark.parametrize("function", [updated, exchanged, by_a_helper, counted, nested])
def test_a_tag_is_what_was_stored_last(function):
    xs = [0.5, 1.5]
    assert_same(ab.unbatch(ab.batched(function, backend="llvm")(xs)), list(map(function, xs)))
