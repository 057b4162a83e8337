"""Ways over the objects of the examples that computed numbers choose agree with plain Python, by values and
derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import check_equivalence
from tests.memory.chosen import (
    PLACES,
    TREES,
    Leaf,
    Split,
    best_of_heap,
    by_recursion,
    common_way,
    decided,
    loud_if_lost,
    names_on_the_way,
    nodes_on_the_way,
    ring,
    same_node,
)

W = jnp.float32(0.8)
A = Split(0, 0.1, (Leaf(1.5), Split(1, 0.5, (Leaf(3.0), Leaf(-1.0)), "b")))
B = Split(1, 0.4, (Split(0, 0.3, (Leaf(0.2), Leaf(0.7)), "c"), Leaf(2.5)))
NUMBERS = [[0.2, 0.9], [-0.4, 1.3], [0.7, 0.35], [1.6, -0.8]]
IN_TREES = list(zip([A, B, Leaf(0.4), B], NUMBERS, strict=True))
IN_PLACES = list(zip([ring([0.5, 1.2, -0.3]), ring([0.4, 0.9, 1.1, 0.2])] * 2, NUMBERS, strict=True))
PROGRAMS = [(p, IN_TREES) for p in TREES] + [(p, IN_PLACES) for p in PLACES]

FEW = [
    (p, e)
    for p, e in PROGRAMS
    if p in (by_recursion, same_node, nodes_on_the_way, loud_if_lost, best_of_heap, common_way)
]


def check(program: Callable[..., Any], examples: Any, backend: str, grads: bool, jit: bool = False) -> None:
    f = ab.batched(program, in_axes=(None, 0, 0))
    check_equivalence(f, examples, (W,), grads=grads, backends=(backend,), jit=jit, tolerance=2e-5)


@pytest.mark.parametrize(("program", "examples"), FEW, ids=lambda p: getattr(p, "__name__", ""))
def test_values(program: Callable[..., Any], examples: Any) -> None:
    check(program, examples, "xla", grads=False)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
@pytest.mark.parametrize(("program", "examples"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_with_derivatives(program: Callable[..., Any], examples: Any, backend: str) -> None:
    check(program, examples, backend, grads=True, jit=backend == "xla")


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_derivatives_of_fields_and_shared_numbers(backend: str) -> None:
    check(decided, IN_TREES, backend, grads=True)


numbers = st.sampled_from([-0.7, -0.2, 0.15, 0.45, 0.8])
trees = st.recursive(
    st.builds(Leaf, numbers),
    lambda sides: st.builds(Split, st.integers(0, 1), numbers, st.tuples(sides, sides), st.sampled_from("abc")),
    max_leaves=6,
)


@settings(max_examples=4)
@given(st.lists(st.tuples(trees, st.lists(numbers, min_size=2, max_size=2)), min_size=2, max_size=2))
def test_random_trees(examples: list[Any]) -> None:
    check(names_on_the_way, examples, "interpret", grads=False)


def deep(depth: int, at: float = 0.3) -> Any:
    return Leaf(at) if depth == 0 else Split(depth % 2, at - 0.3, (deep(depth - 1, at / 2), deep(depth - 1, -at)))


def test_trees_that_need_more_room_than_there_is_at_first() -> None:
    """63 nodes, of which lists hold 32 at first."""
    check(decided, [(deep(5), x) for x in NUMBERS], "xla", grads=False)


def test_minibatches_of_packed_trees() -> None:
    f = ab.batched(decided, in_axes=(None, 0, 0), backend="xla")
    together = f.pack([t for t, _ in IN_TREES], [x for _, x in IN_TREES])
    chosen = np.array([3, 0, 1])
    found = jax.jit(f)(W, *together[chosen].args)
    want = [float(decided(W, *IN_TREES[k])) for k in chosen]
    np.testing.assert_allclose(found, want, rtol=1e-5)


def kept(w: Any, tree: Any, x: Any) -> Any:
    while isinstance(tree, Split) and w * x[tree.feature] > tree.at:
        tree = tree.sides[0]
    return tree


def test_chosen_objects_as_results_are_refused_by_name() -> None:
    f = partial(ab.batched(kept, in_axes=(None, 0, 0), backend="xla"), W)
    with pytest.raises(ab.UnsupportedError, match="an object that computed numbers choose is a result"):
        f([t for t, _ in IN_TREES], [x for _, x in IN_TREES])
