"""Plans: minibatches cut from a data set, levels, windows, size classes."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.passes.costs import window_costs, work_of
from autobatch.planning import numbering
from autobatch.planning.numbering import longest_paths
from autobatch.planning.plan import cover, of_word, windows
from tests.passes.frames.programs import child_sum, parameters, prepared, random_many, random_tree, tree_lstm
from tests.properties import functions
from tests.properties import strategies as draws

# ---- minibatches


def assert_same_plan(taken, anew):
    """Every table of two plans, entry by entry. (Value numbers are names: equal rows have equal ones.)"""
    assert taken.count == anew.count
    for field in ("starts", "columns", "owners", "levels", "data", "structure", "stores"):
        a, b = getattr(taken, field), getattr(anew, field)
        assert a.keys() == b.keys(), field
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], err_msg=f"{field}[{key!r}]")
    assert taken.pointers.keys() == anew.pointers.keys()
    for name in taken.pointers:
        for a, b in zip(taken.pointers[name], anew.pointers[name], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
    for k in anew.lengths:
        for a, b in zip(taken.lengths[k], anew.lengths[k], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"lengths of result {k}")
    for space in taken.numbers:
        assert_same_partition(taken.numbers[space], anew.numbers[space])


def assert_same_partition(a, b):
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    assert len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs})


FULL = draws.Many(0.5, [draws.Many(0.25, [draws.Many(0.5)], "b")], "c")

CASES = {
    "bottom up": (functions.bottom_up, draws.trees(), draws.perfect(1), functions.params),
    "chained": (functions.chained, draws.dags(), draws.perfect(1), functions.params),
    "child-sum": (functions.child_sum, draws.many_trees(), FULL, functions.params),
    "lists as results": (functions.ragged_results, draws.tokens(), [1, 2], functions.params),
    "loops in loops": (functions.nested_loops, draws.sentences(), [[[1]]], functions.params),
    "several classes": (functions.evaluate, draws.expressions(), draws.Neg(draws.Num(1.0)), lambda: np.arange(3.0)),
    "structure as result": (functions.kept_nodes, draws.trees(), draws.perfect(1), None),
}
"""A function, its examples, one example that has something in every field, and the shared argument."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@settings(max_examples=15)
@given(data=st.data())
def test_a_minibatch_is_planned_as_if_alone(case, data):
    """Slices of a planned data set equal plans of the selected examples, repeats included."""
    function, examples, full, shared = case
    batch = [full, *data.draw(draws.batches(examples, 4))]
    chosen = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    arguments = () if shared is None else (shared(),)
    packed = ab.pack(batch)
    whole = prepared(function, *arguments, packed)
    alone = prepared(function, *arguments, ab.pack([batch[k] for k in chosen], like=packed))
    assert alone.program is whole.program
    assert_same_plan(whole.ready.plan.take(np.array(chosen)), alone.ready.plan)


@settings(max_examples=3)
@given(batch=draws.batches(draws.many_trees(), 4), chosen=st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_a_minibatch_computes_the_same(batch, chosen):
    batch = [FULL, *batch]
    data = ab.pack(batch).plan(functions.child_sum)
    found = np.asarray(functions.child_sum(functions.params(), data[chosen]))
    alone = np.asarray(functions.child_sum(functions.params(), [batch[k] for k in chosen]))
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-5)  # single precision, windows of other widths


# ---- levels


@st.composite
def graphs(draw):
    """Edges of an acyclic graph, with weights 0 or 1."""
    rows = draw(st.integers(1, 12))
    pairs = st.tuples(st.integers(0, rows - 1), st.integers(0, rows - 1), st.integers(0, 1))
    shuffled = draw(st.permutations(range(rows)))
    edges = [(shuffled[min(a, b)], shuffled[max(a, b)], w) for a, b, w in draw(st.lists(pairs, max_size=25)) if a != b]
    return rows, edges


def arrays(edges):
    table = np.array(edges, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


@given(graphs())
def test_levels_are_longest_paths(graph):
    rows, edges = graph
    level, stuck = longest_paths(rows, *arrays(edges))
    multigraph = nx.MultiDiGraph()
    multigraph.add_nodes_from(range(rows))
    multigraph.add_weighted_edges_from(edges)
    expected = [0] * rows
    for node in nx.topological_sort(multigraph):
        for _, reader, held in multigraph.out_edges(node, data=True):
            expected[reader] = max(expected[reader], expected[node] + held["weight"])
    assert level.tolist() == expected and not len(stuck)


@given(graphs(), st.integers(1, 4))
def test_rows_on_and_behind_a_cycle_are_found(graph, length):
    rows, edges = graph
    cycle = [(k, (k + 1) % length, 1) for k in range(length)]
    beyond = rows + length
    shifted = [(a + length, b + length, w) for a, b, w in edges] + [(0, length, 1)]
    level, stuck = longest_paths(beyond, *arrays(cycle + shifted))
    directed = nx.DiGraph([(a, b) for a, b, _ in cycle + shifted])
    assert set(stuck.tolist()) == {0} | nx.descendants(directed, 0)
    assert (level[stuck] == -1).all()


def height(t):
    return 1 if t.left is None else 1 + max(height(t.left), height(t.right))


@pytest.mark.parametrize("leaves", [(1, 2), (7, 1, 12), (30,)])
def test_the_levels_of_trees_are_heights(leaves):
    """Leaves are a stage; inner nodes begin at level 0."""
    rng = np.random.default_rng(0)
    trees = [random_tree(rng, n) for n in leaves]
    plan = prepared(functions.bottom_up, functions.params(), trees).ready.plan
    (level,) = plan.levels.values()
    assert level.max() == max(map(height, trees)) - 2
    inner = sum(n - 1 for n in leaves)
    assert len(level) == inner


# ---- windows


def costs_of(widths, fixed):
    return tuple(fixed + w for w in widths)


@given(
    st.lists(st.integers(0, 40), max_size=8),
    st.sampled_from([(8,), (8, 4), (16, 8, 4), (128, 64, 16, 8)]),
    st.sampled_from([0.5, 8.0, 100.0]),
)
def test_windows_cover_each_level(sizes, widths, fixed):
    """Every row is computed in its level; a window reaches back over finished rows only, and forward over none."""
    words, firsts = windows(np.array(sizes, np.int64), widths, costs_of(widths, fixed))
    starts, kind = of_word(words, len(widths))
    ends = np.cumsum([0, *sizes])
    for k, size in enumerate(sizes):
        seen = np.zeros(ends[-1] + max(widths), int)
        for n in range(firsts[k], firsts[k + 1]):
            start, width = starts[n], widths[kind[n]]
            assert 0 <= start
            assert start + width <= max(ends[k + 1], width), "past the level only where there are too few rows"
            seen[start : start + width] += 1
        assert (seen[ends[k] : ends[k + 1]] >= 1).all()
        assert size or not seen.any(), "an empty level has no window"


@given(st.integers(1, 60), st.sampled_from([(8,), (8, 4), (16, 8, 4)]), st.data())
def test_covers_are_the_cheapest(rows, widths, data):
    costs = tuple(sorted((data.draw(st.floats(0.1, 100.0)) for _ in widths), reverse=True))
    found = cover(rows, widths, costs)
    assert sum(found) >= rows and list(found) == sorted(found, reverse=True)
    best = [0.0]
    for n in range(1, rows + 1):
        best.append(min(best[max(0, n - w)] + c for w, c in zip(widths, costs)))
    if rows <= 2 * widths[0]:
        price = dict(zip(widths, costs))
        assert sum(price[w] for w in found) == pytest.approx(best[rows])


def test_windows_follow_the_work_of_a_row():
    """Rows of much work are not wasted; rows of little work go in few wide windows."""
    heavy, light = (9.0, 17.0, 65.0, 129.0)[::-1], (8.1, 8.2, 8.6, 9.0)[::-1]
    assert cover(20, (128, 64, 16, 8), heavy) == (16, 8)
    assert cover(20, (128, 64, 16, 8), light) == (64,)


def test_costs_come_from_the_operations_of_a_task():
    trees = [random_tree(np.random.default_rng(0), 9)]
    schedule = prepared(tree_lstm, parameters(), trees).program.compiled.schedule
    (task,) = schedule.recurrences()[0].tasks
    work = work_of(task)
    assert work.flops == 2 * 16 * 40 and work.operations == len(task.equations)
    costs = window_costs(task, (128, 64, 16, 8))
    assert list(costs) == sorted(costs, reverse=True)
    assert costs[0] / 128 < costs[-1] / 8, "a row is cheaper in a wide window"


# ---- size classes


@pytest.mark.parametrize("function, make", [(tree_lstm, random_tree), (child_sum, random_many)])
def test_a_stream_of_batches_needs_few_executables(function, make):
    """Random batches of 64 out of 500 trees of very different sizes."""
    rng = np.random.default_rng(5)
    sizes = np.minimum(1 + rng.lognormal(2.0, 1.0, 500).astype(int), 200)
    data = ab.pack([make(rng, int(n)) for n in sizes]).plan(function)
    signatures = set()
    for _ in range(60):
        ready = prepared(function, parameters(), data[rng.permutation(500)[:64]]).ready
        signatures.add(ready.signature)
        for space, capacity in enumerate(ready.signature.capacity):
            assert capacity >= ready.plan.rows(space) or space in ready.plan.equal or space in ready.plan.numbers
    assert len(signatures) <= 12


@dataclass
class Word:
    word: int
    kids: list[Word]


@pytest.mark.parametrize("few", [0, numbering.FEW])
@pytest.mark.parametrize(("words", "pays"), [(2, True), (5000, False)])
def test_rows_are_shared_where_it_pays(words, pays, few, monkeypatch):
    """Where hardly any rows are equal, as inner nodes of real trees, nothing is spent on finding those that are; of
    more than `few` rows a sample says so."""
    monkeypatch.setattr(numbering, "FEW", few)

    @ab.batched(in_axes=(None, 0))
    def encode(p, t):
        state = jnp.tanh(p["emb"][t.word])
        for kid in t.kids:
            state = jnp.tanh(state + encode(p, kid))
        return state

    rng = np.random.default_rng(0)

    def labelled(t):
        return Word(int(rng.integers(words)), [labelled(k) for k in t.kids])

    batch = [labelled(random_many(rng, 9)) for _ in range(80)]
    batch[1] = batch[0]  # equal, but these few do not pay
    p = {"emb": rng.normal(size=(5000, 2)).astype(np.float32)}
    rows = {r["name"]: r for r in encode.explain(p, batch).data["rows"] if r["kind"] == "region"}
    assert len(rows) == 2 and all((r["computed"] < r["found"]) == pays for r in rows.values()), rows
    np.testing.assert_allclose(encode(p, batch[:9]), np.stack(encode.loop(p, batch[:9])), rtol=1e-5, atol=1e-6)
