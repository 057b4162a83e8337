"""Data-dependent objects of several classes agree with plain Python, by values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.families import PROGRAMS, Branch, Leaf

W, X = jnp.float32(1.1), jnp.asarray([0.9, 2.2, 3.1, 0.61], jnp.float32)
FAILING = ("wrong_class",)
QUICK = ("spine", "returned", "shapes", "inserted", "wrong_class", "equals")


@dataclass
class Pair:
    value: Any


def check(program: Callable[..., Any], backend: str, grads: bool) -> None:
    f = ab.batched(program, in_axes=(None, 0))
    with ab.options(max_iterations=3_000):
        check_equivalence(f, X, (W,), grads=grads, backends=(backend,), jit=False, tolerance=2e-5)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.__name__ in QUICK], ids=lambda p: p.__name__)
def test_interpreted(program: Callable[..., Any]) -> None:
    check(program, "interpret", grads=program.__name__ == "inserted")


def test_machine_code() -> None:
    check(next(p for p in PROGRAMS if p.__name__ == "shapes"), "llvm", grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_with_derivatives(program: Callable[..., Any], backend: str) -> None:
    if (program.__name__, backend) == ("returned", "llvm"):
        pytest.skip("the tree is never read, so it needs no memory; machine code returns objects of memory alone")
    check(program, backend, grads=program.__name__ not in FAILING)


@settings(max_examples=4)
@given(cuts=st.lists(st.sampled_from([0.2, 0.4, 0.5, 0.8]), min_size=2, max_size=3), deep=st.booleans())
def test_random_towers(cuts: list[float], deep: bool) -> None:
    """Which of the classes is put on top of a tower, or replaces it."""

    def tower(w: Any, x: Any) -> Any:
        node: Any = Leaf(w)
        while x < 3.0:
            x = x * 1.4 + 0.2
            for cut in cuts:
                if x % 1.0 < cut:
                    node = Branch(node, Leaf(x * cut), w * x) if deep or x > 2.0 else Leaf(x + w)
        s, turns = w * 0.0, 0
        while isinstance(node, Branch) and turns < 6:
            s = s * 0.5 + node.cut * w
            node = node.right if s > 3.0 else node.left
            turns = turns + 1
        return s + (node.value if isinstance(node, Leaf) else node.cut)

    check(tower, "interpret", grads=False)


def test_results_are_of_their_classes() -> None:
    def made(w: Any, x: Any) -> Any:
        return Leaf(w) if x > 1.0 else Branch(Leaf(x), None, w)

    found = ab.unbatch(ab.batched(made, in_axes=(None, 0), backend="interpret")(W, X))
    assert [type(o) for o in found] == [Branch, Leaf, Leaf, Branch]
    assert type(found[0].left) is Leaf
    assert found[0].right is None


def test_a_field_of_two_types_is_refused() -> None:
    def mixed(w: Any, x: Any) -> Any:
        node: Any = Leaf(w)
        while x < 3.0:
            x = x * 1.5 + 0.3
            node = Pair(jnp.ones(3) * x) if x < 2.0 else Leaf(x)
        return node.value if isinstance(node, Leaf) else node.value[0]

    with pytest.raises(ab.Error, match=r"the field 'value' of .* has different types"):
        ab.batched(mixed, in_axes=(None, 0), backend="interpret")(W, X)
