"""`check_equivalence` accepts what agrees with plain Python, and says what does not: where, how, and in which batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.testing import Difference, NotEquivalent, assert_same, check_equivalence, differences
from autobatch.testing.ways import Mismatch, Way, _smallest


@pytest.fixture(scope="module", autouse=True)
def quick():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@dataclass
class Node:
    x: float
    word: int = 0
    left: Node | None = None
    right: Node | None = None


TREES = [Node(0.5, 1), Node(1.5, 2, Node(0.25, 0), Node(-0.5, 1)), Node(0.75, 1, Node(2.0, 2))]
P = {"w": np.float32(0.5), "emb": np.arange(6, dtype=np.float32).reshape(3, 2) / 4, "n": 2}


@ab.batched(in_axes=(None, 0))
def encode(p, t):
    below = [encode(p, kid) for kid in (t.left, t.right) if kid is not None]
    return jnp.tanh(sum(below, p["emb"][t.word]) * t.x) * p["w"] + p["n"]


def test_a_recursive_function_on_every_way():
    check_equivalence(encode, TREES, (P,), options=[{"residuals": "recompute"}])


def test_plain_functions_and_batches():
    check_equivalence(lambda scale, words: scale * sum(words), ab.pack([[1.0, 2.0], [0.5]]), (0.5,), jit=False)


def test_several_batched_arguments_and_methods():
    class Model:
        scale = 0.5

        @ab.batched
        def near(self, a: Node, b: Node, unused: float = 1.0):
            return (a.x - b.x) * self.scale * unused, {"same": a.word == b.word}

    check_equivalence(Model().near, list(zip(TREES, reversed(TREES), strict=True)))


def test_failed_examples_leave_the_others_alone():
    @ab.batched(in_axes=(None, 0))
    def first(p, t):
        assert t.word != 2, "two"
        return t.left.x * p["w"] if t.word == 0 else t.x

    check_equivalence(first, [*TREES, Node(1.0, 0, Node(2.0)), Node(1.0, 0)], (P,))


def test_all_examples_fail():
    check_equivalence(ab.batched(lambda t: t.left.x), TREES[:1])


def test_a_list_that_stands_twice_in_a_result():
    """A batch returns numbers at both places, and each weighs."""

    def rows(w, xs):
        row = [x * w for x in xs]
        return [row, row[:1], row]

    check_equivalence(rows, [[1.0, 2.0], [0.5]], (0.5,), backends=["interpret"], jit=False)


def test_difference_quotients():
    @ab.batched(in_axes=(None, 0))
    def root(p, t):
        return math.sin(t.x) * p["w"] + jnp.sqrt(jnp.abs(t.x))

    with jax.enable_x64(True):
        check_equivalence(root, TREES, ({"w": 0.5},), grads="differences", jit=False)
    with pytest.raises(ab.BatchError, match="64 bits"):
        check_equivalence(root, TREES, ({"w": 0.5},), grads="differences")


def unlike(batched, plain):
    """A batched function whose plain form is another one."""
    made = ab.batched(batched, in_axes=(None, 0))
    made.example = plain
    return made


def test_the_place_and_the_smallest_batch_are_named():
    wrong = unlike(lambda p, t: {"h": (t.x * p["w"], 1)}, lambda p, t: {"h": (t.x * p["w"], 1 + (t.word == 2))})
    with pytest.raises(NotEquivalent) as caught:
        check_equivalence(wrong, TREES, (P,))
    error = caught.value
    assert (error.way, error.example, error.place) == ("interpret", 1, "result['h'][1]")
    assert (error.found, error.expected, error.smallest) == (1, 2, TREES[1:2])
    text = str(error)
    assert "on interpret differs" in text and "example 1, result['h'][1]: 1, not 2" in text
    assert "1 of the 3 examples are enough" in text and f"[0] {TREES[1]}" in text


def test_what_only_several_examples_show():
    """A difference that needs two of the examples together is shrunk to two."""
    way = Way("xla", {}, False)
    words = (0, 1, 0, 0, 2, 0)

    def check(chosen):
        fails = {1, 2} <= {words[k] for k in chosen}
        return Mismatch(way, 0, Difference("result", 0, 1, "0, not 1")) if fails else None

    found, _ = _smallest(check, tuple(range(6)), check(range(6)))
    assert found == (1, 4)


def test_where_plain_python_jumps_is_said():
    """0.005 times ten is above 0.05 with 64 bits and below it with 32."""
    with pytest.raises(NotEquivalent, match="plain Python jumps there") as caught:
        check_equivalence(lambda p, t: round(t.x * 10, 1), [*TREES, Node(0.005)], (P,), backends=["interpret"])
    assert caught.value.at_a_jump and caught.value.example == 3


WRONG = {
    "a threshold that is met": (lambda p, t: t.x >= 0.5, lambda p, t: t.x > 0.5),
    "another threshold": (lambda p, t: t.x * p["w"] > 0.2, lambda p, t: t.x * p["w"] > 0.3),
    "a number": (lambda p, t: t.x * 1.001, lambda p, t: t.x),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_no_jump(name):
    """Not even where a comparison meets its threshold: numbers of few bits are compared exactly."""
    with pytest.raises(NotEquivalent) as caught:
        check_equivalence(unlike(*WRONG[name]), [Node(0.5)], (P,), backends=["interpret"])
    assert not caught.value.at_a_jump


def test_failures_that_differ():
    wrong = unlike(lambda p, t: t.left.x if t.word == 1 else 0.0, lambda p, t: t.x)
    with pytest.raises(NotEquivalent, match="example 0, failure: AttributeError, not a result"):
        check_equivalence(wrong, TREES, (P,), backends=["xla"])


def test_derivatives_that_differ():
    @jax.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * x,))
    wrong = unlike(lambda p, t: square(t.x * p["w"]), lambda p, t: (t.x * p["w"]) ** 2)
    with pytest.raises(NotEquivalent, match=r"derivative by shared\[0\]\['w'\]") as caught:
        check_equivalence(wrong, TREES, (P,), backends=["xla"], jit=False)
    assert caught.value.example is None and len(caught.value.smallest) == 1
    check_equivalence(wrong, TREES, (P,), grads=False, backends=["xla"], jit=False)
    by_example = unlike(lambda p, t: square(t.x), lambda p, t: t.x**2)
    with pytest.raises(NotEquivalent, match=r"example 0, derivative by example\.x"):
        check_equivalence(by_example, TREES, (P,), backends=["xla"], jit=False)


def test_refusals_come_as_they_are():
    with pytest.raises(ab.UnsupportedError):
        check_equivalence(lambda t: input(t.x), TREES)
    with pytest.raises(ab.BatchError, match="at least one example"):
        check_equivalence(encode, [], (P,))
    with pytest.raises(ab.BatchError, match="2 shared arguments were given"):
        check_equivalence(encode, TREES, (P, P))
    with pytest.raises(ab.BatchError, match="not simply batched"):
        check_equivalence(ab.batched(lambda p, t: t, in_axes=({"a": 0, "b": None}, 0)), TREES)


@pytest.mark.parametrize(
    ("found", "expected", "why"),
    [
        (1.0, 2.0, "1.0, not 2.0"),
        (np.float32(1), 1, ""),
        (True, 1, "array(True), not 1"),
        (np.zeros(3), 0, ""),
        (np.zeros(3), 0.0, ""),
        (np.zeros(3), np.zeros(2), "shape (3,), not (2,)"),
        (np.zeros(2, int), np.zeros(2), "int64, not float64"),
        (np.array([1.0, 2.0]), np.array([1.0, 2.5]), "2.0 at [1], not 2.5 (1 of 2 differ)"),
        (None, 1, "None, not 1"),
        ("a", None, "'a', not None"),
        ([1], [1, 2], "1 items, not 2"),
        ((1,), [1], "(1,) is no list"),
        ({"a": 1}, {"b": 1}, "['a'] in it, not ['b']"),
        (Node(1.0), Node(1.0, 2), "0, not 2"),
        (float("nan"), float("nan"), ""),
    ],
)
def test_differences_in_words(found, expected, why):
    said = [d.why for d in differences(found, expected, 1e-9)]
    assert said == ([why] if why else [])


def test_shared_objects_are_compared_once():
    """A ladder of 200 objects has 2**200 paths."""
    ladders = []
    for _ in range(2):
        node = Node(0.5)
        for _ in range(200):
            node = Node(0.5, 0, node, node)
        ladders.append(node)
    assert_same(*ladders)
