"""Fields that are assigned in recursions and loops agree with plain Python, by values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.linked import PROGRAMS, Link, Token, insert, never_set, pushed, search_tree, set_later, tokens, total

W = jnp.float32(1.1)
XS = [[0.9, 0.4, 1.7, 0.3], [0.5, 1.7, 0.2, 2.1], [1.4, 0.35, 0.7, 0.6], [0.1, 0.2, 0.3, 0.9]]
SLOW = ("sorted_by_tree", "treap", "avl_tree", "union_find", "search_tree")
"""Those take more than a second by `interpret`."""


def check(program: Callable[..., Any], backend: str, grads: bool, xs: Any = XS) -> None:
    with ab.options(max_iterations=3_000):
        f = ab.batched(program, in_axes=(None, 0))
        check_equivalence(f, xs, (W,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ not in SLOW], ids=lambda p: p.__name__)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program in (pushed, tokens))


@pytest.mark.parametrize("program", [pushed, set_later, tokens], ids=lambda p: p.__name__)
def test_machine_code(program: Callable[..., Any]) -> None:
    check(program, "llvm", grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    check(program, backend, grads=program is not never_set)


@settings(max_examples=3)
@given(
    xs=st.lists(st.lists(st.sampled_from([0.2, 0.5, 0.9, 1.3, 1.8]), min_size=3, max_size=3), min_size=2, max_size=3)
)
def test_random_trees(xs: list[list[float]]) -> None:
    check(search_tree, "interpret", grads=True, xs=xs)


def test_attributes_that_are_not_set_are_not_in_results() -> None:
    def made(w: Any, x: Any) -> Any:
        head = None
        while x < 3.0:
            x = x * 1.4 + 0.3
            head = Link(x, head)
            if x < 2.5:
                head.extra = x * w  # type: ignore[attr-defined]
        return head

    last, other = ab.unbatch(ab.batched(made, in_axes=(None, 0), backend="interpret")(W, jnp.asarray([2.2, 1.4])))
    assert [sorted(vars(o)) for o in (last, other.next)] == [["next", "value"], ["extra", "next", "value"]]


def test_numbers_end_the_loop_that_inserts() -> None:
    def grown(w: Any, x: Any) -> Any:
        root = None
        while x < 3.0:
            x = x * 1.4 + 0.3
            root = insert(root, (x * 7.3) % 1.0 * w)
        return total(root)

    check(grown, "interpret", grads=True, xs=jnp.asarray([0.9, 2.2, 3.1, 0.61], jnp.float32))


def words_of_the_example(w: Any, words: list[str], x: Any) -> Any:
    head, k = None, 0
    while x < 4.0:
        x = x * 1.4 + 0.3
        head = Token(words[k % 3], x * w, head)
        k = k + 1
    last, s = head, w * 0.0
    while head is not None:
        s = s * 0.5 + head.score * (2.0 if head.word == "a" else 1.0)
        head = head.next
    return s, last.word if last is not None else ""


WORDS, STARTS = [["a", "bc", "d"], ["x", "a", "bc"], ["d", "d", "a"]], [0.9, 2.2, 1.4]


@pytest.mark.parametrize("backend", ["interpret", pytest.param("xla", marks=pytest.mark.xla)])
def test_words_of_the_example_are_fields(backend: str) -> None:
    f = ab.batched(words_of_the_example, in_axes=(None, 0, 0), backend=backend)  # type: ignore[call-overload]
    for (s, word), (t, other) in zip(ab.unbatch(f(W, WORDS, STARTS)), f.loop(W, WORDS, STARTS), strict=True):
        assert float(s) == pytest.approx(float(t), rel=1e-5)
        assert word == other
