"""A batch equals the plain Python loop, for every function of `functions.py` and every back end."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.testing import assert_same
from tests.properties import functions as f
from tests.properties import strategies as draws

SIZE = 5
"""Examples in a drawn batch. One size, because it is part of what an executable is compiled for."""


@dataclass(frozen=True)
class Case:
    """A function, the strategies of its batched arguments, and its shared argument (None: it has none)."""

    function: Any
    drawn: tuple[st.SearchStrategy[Any], ...]
    shared: Callable[[], Any] | None = f.params

    @property
    def name(self) -> str:
        return str(self.function.__name__)

    def arguments(self, batches: tuple[list[Any], ...]) -> tuple[Any, ...]:
        return batches if self.shared is None else (self.shared(), *batches)


def values() -> np.ndarray:
    return np.array([0.5, -1.25, 2.0])


CASES = [
    *(Case(g, (draws.trees(),)) for g in (f.bottom_up, f.with_loss, f.down_then_up, f.top_down, f.chained)),
    Case(f.inner_numeric_loop, (draws.trees(),)),
    *(Case(g, (draws.trees(),)) for g in (f.chained_thrice, f.called_from_elsewhere, f.larger_first)),
    *(Case(g, (draws.many_trees(),)) for g in (f.child_sum, f.child_reduction, f.child_fold, f.filtered, f.closures)),
    *(Case(g, (draws.many_trees(),)) for g in (f.of_a_found_node, f.lists_decide, f.kept_or_called)),
    *(Case(g, (draws.tokens(),)) for g in (f.forward, f.joined, f.tail_recursion, f.ragged_results)),
    *(Case(g, (draws.items(),)) for g in (f.interrupted, f.searched, f.table_keys)),
    *(Case(g, (draws.graphs(),)) for g in (f.messages, f.message_rounds)),
    *(Case(g, (draws.expressions(),), values) for g in (f.evaluate, f.simplified)),
    Case(f.unary_chains, (draws.unary_trees(),)),
    Case(f.nested_loops, (draws.sentences(),)),
    Case(f.mutual, (draws.programs_of_blocks(),)),
    Case(f.two_trees, (draws.trees(), draws.trees())),
    Case(f.fib, (st.integers(0, 12),), None),
    Case(f.float_fib, (st.integers(0, 8),)),
    Case(f.numbers, (draws.tokens(),), None),
    Case(f.rounding, (draws.rounded(),), None),
    Case(f.kept_nodes, (draws.trees(),), None),
]


def check(function: Any, *args: Any) -> None:
    """The batched call equals the plain loop, example by example."""
    expected = function.loop(*args)
    found = ab.unbatch(function(*args))
    assert len(found) == len(expected)
    for k, (a, b) in enumerate(zip(found, expected)):
        assert_same(a, b, f"{function.__name__}: example {k}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@settings(max_examples=3)
@given(data=st.data())
def test_xla(case, data):
    check(case.function, *case.arguments(tuple(data.draw(draws.batches(d, SIZE)) for d in case.drawn)))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@settings(max_examples=2)
@given(data=st.data())
def test_interpret(case, data):
    batches = tuple(data.draw(draws.batches(d, 2)) for d in case.drawn)
    with ab.options(backend="interpret"):
        check(case.function, *case.arguments(batches))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@settings(max_examples=25)  # each compiles anew
@given(data=st.data())
def test_batches_of_any_size(case, data):
    size = data.draw(st.integers(1, 12))
    check(case.function, *case.arguments(tuple(data.draw(draws.batches(d, size)) for d in case.drawn)))


# ---- DAGs: the same functions, nodes reached by several paths


@pytest.mark.parametrize("function", [f.with_loss, f.chained, f.down_then_up, f.larger_first])
@settings(max_examples=2)
@given(batch=draws.batches(draws.dags(), SIZE))
def test_shared_nodes(function, batch):
    check(function, f.params(), batch)


@pytest.mark.parametrize("depth", [60, 200])
def test_a_ladder_is_as_many_rows_as_nodes(depth):
    """2**depth paths; with a number passed down that is the same on every path, too."""
    batch = [draws.ladder(depth), draws.Node(0.5)]
    expected = [ladder_value(t) for t in batch]
    found = ab.unbatch(sums_of_paths(np.float64(0.5), batch))
    for a, b in zip(found, expected):
        assert_same(a, b)
    levels = ab.unbatch(ladder_levels(batch))
    assert levels == [(depth, depth - 1), (1, 0)]


@ab.batched(in_axes=(None, 0))
def sums_of_paths(c, t: draws.Node):
    if t.left is None:
        return c * t.x
    return (sums_of_paths(c, t.left) + sums_of_paths(c, t.right)) * c + t.x


def ladder_value(t: draws.Node) -> float:
    """The same from the bottom up, once a node."""
    nodes = [t]
    while nodes[-1].left is not None:
        nodes.append(nodes[-1].left)
    value = 0.5 * nodes[-1].x
    for node in reversed(nodes[:-1]):
        value = (value + value) * 0.5 + node.x
    return value


def depth_below(t, above):
    if t.left is None:
        return 1, above
    a, m = depth_below(t.left, above + 1)
    b, n = depth_below(t.right, above + 1)
    return 1 + max(a, b), max(m, n)


@ab.batched
def ladder_levels(t: draws.Node):
    return depth_below(t, 0)


def test_fib_of_45_is_46_rows():
    assert ab.unbatch(f.fib([45, 3, 0])) == [1134903170, 2, 0]


# ---- corners


def test_one_example_and_all_leaves_and_none():
    leaf, tree = draws.Node(0.5, 1), draws.perfect(3)
    for function in (f.with_loss, f.chained):
        check(function, f.params(), [tree])
        check(function, f.params(), [leaf])
        check(function, f.params(), [leaf] * SIZE)
        check(function, f.params(), [leaf, tree, leaf])


def test_an_empty_batch():
    data = ab.pack([draws.perfect(2)])
    h = f.bottom_up(f.params(), data[[]])
    assert h.shape == (0, 3) and h.dtype == np.float64
    assert ab.unbatch(f.bottom_up(f.params(), ab.pack([], like=data))) == []
    assert ab.unbatch(f.forward(f.params(), [])) == []
    lists = f.ragged_results(f.params(), ab.pack([], like=list[int]))
    assert ab.unbatch(lists) == []


def test_all_leaves_before_any_tree():
    """The first batch has no inner node: a later one has."""
    function = ab.batched(f.bottom_up.__wrapped__, in_axes=(None, 0))
    check(function, f.params(), [draws.Node(0.5, 1), draws.Node(0.25, 2)])
    check(function, f.params(), [draws.Node(0.5, 1), draws.perfect(2)])
    check(function, f.params(), [draws.Node(0.5, 1), draws.Node(0.25, 2)])


@pytest.mark.parametrize("leaves", [1, 4, 5, 8, 9, 17, 25])
def test_levels_of_every_size_around_the_window_widths(leaves):
    """Level sizes from 1 to past the widest window, in one level loop of three paths."""
    wide = [draws.Mul(draws.Num(0.5 + k / 8), draws.Var(k % 3)) for k in range(leaves)]
    batch = [w if k % 3 else draws.Neg(w) for k, w in enumerate(wide)]
    batch.append(draws.Add(draws.Num(1.0), draws.Neg(draws.Neg(draws.Num(2.0)))))
    batch = batch[:SIZE] + [joined_up(batch[SIZE:])] if len(batch) > SIZE else batch
    check(f.evaluate, values(), batch)


def joined_up(parts: list[Any]) -> Any:
    while len(parts) > 1:
        parts = [draws.Add(*parts[k : k + 2]) if k + 1 < len(parts) else parts[k] for k in range(0, len(parts), 2)]
    return parts[0]


def test_one_object_in_two_examples():
    shared = draws.perfect(2)
    check(f.bottom_up, f.params(), [shared, shared, draws.Node(1.0, 0, shared, shared)])
    check(f.two_trees, f.params(), [shared, shared], [shared, draws.perfect(1)])


def test_examples_that_repeat():
    """Equal rows are one row: their folds have fewer elements then, and no result has fewer."""
    batch = [[3, 0, 2, 2, 1], [0], [1, 4], [3, 0, 2, 2, 1], [], [0], []]
    check(f.ragged_results, f.params(), batch)
    check(f.numbers, batch)
    trees = [draws.perfect(2), draws.Many(0.5, [draws.Many(0.25)] * 2)]
    check(f.bottom_up, f.params(), [trees[0], copy.deepcopy(trees[0]), trees[0]])
    check(f.child_reduction, f.params(), [trees[1], copy.deepcopy(trees[1]), draws.Many(0.25)])


def test_equal_rows_in_levels():
    """Integers that rows of a loop read follow the order of its levels, where equal rows are one."""
    var = draws.Assign(draws.Var(0))
    negated = draws.Assign(draws.Neg(draws.Add(draws.Num(0.0), draws.Var(0))))
    last = draws.Block([draws.Block([negated, draws.Assign(draws.Num(0.0)), draws.Assign(draws.Var(1))])])
    twice = draws.Block([draws.Assign(draws.Neg(draws.Neg(draws.Var(0))))])
    batch = [draws.Block([]), draws.Block([draws.Block([]), var]), draws.Block([draws.Block([]), twice, var]), last]
    check(f.mutual, f.params(), batch)
    check(f.mutual, f.params(), [draws.Block([]), *batch])


def test_nan_and_infinity_stay_in_their_examples():
    batch = [draws.perfect(2, x) for x in (1.0, -1.0, 0.0, float("nan"), float("inf"), 2.0)]
    check(f.nan_in_data, f.params(), batch)
    found = np.asarray(f.nan_in_data(f.params(), batch))
    assert np.isfinite(found[[0, 5]]).all() and np.isnan(found[[1, 3]]).all()


def test_garbage_rows_do_not_keep_a_loop_running():
    """Rows of padding, of a later level, or of a space without rows: their inner loops would never end."""
    trees = [draws.perfect(3, 0.5), draws.Node(1.0), draws.perfect(1, 2.0)]
    check(f.inner_numeric_loop, f.params(), trees)
    check(f.inner_numeric_loop, f.params(), [draws.Node(1.0), draws.Node(0.5)])


def test_padding_does_not_divide_by_zero():
    """Rows past the count are computed too; `jax_debug_nans` must not see them."""
    import jax

    batch = [draws.perfect(2, 1.5), draws.Node(2.0)]
    with jax.debug_nans(True):
        check(f.nan_in_data, f.params(), batch)


def test_deep_trees_leave_wide_ones_alone():
    wide = draws.Many(0.5, [draws.Many(k / 50, [], "b" if k % 2 else "a") for k in range(50)])
    deep = draws.Many(0.1)
    for k in range(60):
        deep = draws.Many(k / 60, [deep], "c")
    for function in (f.child_sum, f.child_reduction, f.child_fold, f.filtered):
        check(function, f.params(), [wide, deep, draws.Many(0.5)])


def test_packed_and_sliced_batches_equal_lists():
    trees = [draws.perfect(k % 4, 0.3 + k / 10) for k in range(9)]
    data = ab.pack(trees).plan(f.bottom_up, f.top_down)
    for indices in ([8, 3, 3, 1], list(range(9))):
        for function in (f.bottom_up, f.top_down):
            found = ab.unbatch(function(f.params(), data[indices]))
            expected = function.loop(f.params(), [trees[k] for k in indices])
            for a, b in zip(found, expected):
                assert_same(a, b)


def test_the_batch_does_not_change_the_data():
    batch = [draws.perfect(2), draws.Node(0.5)]
    before = copy.deepcopy(batch)
    f.bottom_up(f.params(), batch)
    assert batch == before
