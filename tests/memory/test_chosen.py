"""Ways over the objects of the examples that computed numbers choose agree with plain Python, by values and
derivatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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
    features,
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


def test_lists_that_constant_turns_append_to_by_machine_code() -> None:
    check(common_way, IN_PLACES, "llvm", grads=False)


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


def kept_with_scores(w: Any, tree: Any, x: Any) -> Any:
    """Objects in lists, beside numbers, and None."""
    y, way, last = features(w, x), [], None
    while isinstance(tree, Split):
        way.append((tree, y[0] * tree.at))
        last = tree if y[1] > tree.at else last
        tree = tree.sides[0] if y[tree.feature] < tree.at else tree.sides[1]
    return {"way": way, "last": last}


def kept_unless_large(w: Any, tree: Any, x: Any) -> Any:
    if x[1] * w > 0.75:
        raise ValueError("too large")
    return kept(w, tree, x)


@pytest.mark.parametrize(
    ("program", "backend"), [(kept, "xla"), (kept_with_scores, "interpret"), (kept_with_scores, "llvm")]
)
def test_as_results(program: Callable[..., Any], backend: str) -> None:
    check(program, IN_TREES, backend, grads=False, jit=program is kept)


def test_as_results_of_examples_of_which_some_fail() -> None:
    f = ab.batched(kept_unless_large, in_axes=(None, 0, 0), backend="interpret", on_error="mask")
    nodes, failures = f(W, [t for t, _ in IN_TREES], [x for _, x in IN_TREES])
    want = [None if failed else kept(W, *e) for failed, e in zip(failures.failed, IN_TREES, strict=True)]
    assert [type(n) for n in ab.unbatch(nodes)] == [type(n) for n in want] and sum(map(bool, failures.failed)) == 1


def test_as_results_of_minibatches_and_of_exported_programs(tmp_path: Path) -> None:
    f = ab.batched(kept, in_axes=(None, 0, 0), backend="xla")
    trees, numbers = [t for t, _ in IN_TREES], [x for _, x in IN_TREES]
    chosen = f.pack(trees, numbers)[np.array([3, 0, 1])].args
    want = [kept(W, *IN_TREES[k]) for k in (3, 0, 1)]
    f.export(tmp_path / "kept.autobatch", W, *chosen)
    exported = ab.load_exported(tmp_path / "kept.autobatch")
    for found in (jax.jit(f)(W, *chosen), exported(W, *chosen)):
        assert [leaf_or_at(n) for n in ab.unbatch(found)] == pytest.approx([leaf_or_at(n) for n in want])


def leaf_or_at(node: Any) -> float:
    return float(node.value if isinstance(node, Leaf) else node.at)


@pytest.mark.parametrize("backend", ["interpret", "xla", "llvm"])
def test_objects_that_all_examples_share(backend: str) -> None:
    wanted = [float(decided(W, A, x)) for x in NUMBERS]
    f = ab.batched(decided, in_axes=(None, None, 0), backend=backend)
    np.testing.assert_allclose(f(W, A, [x for x in NUMBERS]), wanted, rtol=1e-5)
    own = ab.batched(decided, in_axes=(None, 0, 0), backend=backend)
    np.testing.assert_allclose(own(W, [A] * 4, NUMBERS), wanted, rtol=1e-5)
