"""`batch.epoch`: minibatches of one size class on a leading axis, for `jax.lax.scan`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import chain, close, depth, params, total, trees


def _over(epoch, step):
    return jax.lax.scan(lambda c, b: (c, step(b)), 0, epoch)[1]


def test_minibatches_of_other_sizes_are_widened_to_one():
    examples = [chain(n) for n in (1, 2, 3, 40, 41, 42)]
    data = total.pack(examples)
    expected = np.asarray(total(params(), data))
    order = np.array([[0, 1, 2], [3, 4, 5], [0, 0, 5]])
    sums = _over(data.epoch(order), lambda b: total(params(), b))
    close(sums, expected[order])


def test_all_plans_travel_along():
    data = ab.pack(trees()).plan(total, depth)
    total(params(), data), depth(data)
    order = [[0, 2], [1, 1], [2, 0]]
    sums, depths = _over(data.epoch(order), lambda b: (total(params(), b), depth(b)))
    close(sums, np.asarray(total(params(), data))[np.array(order)])
    close(depths, np.asarray(depth(data))[np.array(order)])


def test_arguments_packed_together():
    sim = ab.batched(lambda p, a, b: total(p, a) * b.x, in_axes=(None, 0, 0))
    left, right = trees(), trees()[::-1]
    for pairs in (sim.pack(left, right), sim.pack(ab.pack(left), ab.pack(right))):
        expected = np.asarray(sim(params(), *pairs.args))
        order = np.array([[0, 2], [1, 1]])
        close(_over(pairs.epoch(order), lambda b: sim(params(), *b.args)), expected[order])


def test_under_jit_the_next_epoch_compiles_nothing():
    examples = [chain(n % 6 + 1) for n in range(30)]
    data = total.pack(examples)
    expected = np.asarray(total(params(), data))
    traces, rng = [], np.random.default_rng(0)

    @jax.jit
    def train(p, epoch):
        traces.append(1)
        return jax.lax.scan(lambda c, b: (c + total(p, b).sum(), total(p, b)), 0.0, epoch)

    for _ in range(5):
        order = rng.integers(0, 30, (4, 5))
        whole, rows = train(params(), data.epoch(order))
        close(rows, expected[order])
        close(whole, expected[order].sum())
    assert len(traces) <= 3, "one trace for each size class"


def test_an_epoch_takes_the_size_class_of_a_larger_one_before():
    """Epochs that are shuffled anew differ in size; after the largest, none of them compiles."""
    data = total.pack([chain(n) for n in (1, 1, 2, 2, 90, 80)])
    expected = np.asarray(total(params(), data))
    large, small = data.epoch([[4, 5], [0, 1]]), data.epoch([[0, 1], [2, 3]])
    assert jax.tree.structure(large) == jax.tree.structure(small)
    assert [x.shape for x in jax.tree.leaves(large)] == [x.shape for x in jax.tree.leaves(small)]
    traces = []

    @jax.jit
    def run(p, epoch):
        traces.append(1)
        return jax.lax.scan(lambda c, b: (c, total(p, b)), 0, epoch)[1]

    close(run(params(), large), expected[[[4, 5], [0, 1]]])
    close(run(params(), small), expected[[[0, 1], [2, 3]]])
    assert len(traces) == 1


def test_minibatches_still_run_alone_when_an_epoch_has_bound_them():
    data = total.pack([chain(n) for n in (1, 2, 30, 40)])
    expected = np.asarray(total(params(), data))
    data.epoch([[0, 1], [2, 3]])
    for rows in ([0, 1], [2, 3]):
        close(total(params(), data[rows]), expected[rows])
        close(jax.jit(total)(params(), data[rows]), expected[rows])


def test_an_epoch_of_a_cut_and_of_one_example():
    data = total.pack(trees())
    expected = np.asarray(total(params(), data))
    close(_over(data[[2, 0]].epoch([[0], [1], [0]]), lambda b: total(params(), b)), expected[[[2], [0], [2]]])


def test_structure_and_strings_in_an_epoch():
    f = ab.batched(lambda t: ("leaf" if t.left is None else "inner", t.x))
    data = f.pack(trees())
    f(data)
    out = _over(data.epoch([[0, 1], [2, 0]]), f)
    second = jax.tree.map(lambda x: x[1], out)
    assert ab.unbatch(second) == f.loop([trees()[2], trees()[0]])


def test_an_epoch_of_what_went_through_jit():
    total(params(), trees())
    data = jax.jit(lambda b: b)(total.pack(trees()))
    close(_over(data.plan(total).epoch([[0, 1], [2, 2]]), lambda b: total(params(), b)), [[2, 18], [70, 70]])


def test_numbers_of_an_epoch_can_be_changed():
    data = total.pack(trees())
    total(params(), data)
    epoch = data.epoch([[0, 1], [2, 2]])
    doubled = jax.tree.map(lambda x: 2 * x if jnp.issubdtype(x.dtype, jnp.floating) else x, epoch)
    close(_over(doubled, lambda b: total(params(), b)), 2 * _over(epoch, lambda b: total(params(), b)))


def test_bad_orders():
    data = total.pack(trees())
    total(params(), data)
    for order in ([1, 2], np.zeros((0, 2), int), np.zeros((2, 0), int), [[[0]]]):
        with pytest.raises(ab.BatchError, match="one row of examples for each step"):
            data.epoch(order)
    with pytest.raises(ab.BatchError, match="out of range"):
        data.epoch([[0, 3]])
    with pytest.raises(ab.BatchError, match="traced"):
        jax.jit(lambda order: data.epoch(order))(jnp.zeros((2, 2), int))
    with pytest.raises(ab.PlanError, match=r"jax\.lax\.scan"):
        total(params(), data.epoch([[0, 1]]))
    with pytest.raises(ab.PlanError, match="plan it and call it"):
        ab.pack(trees()).epoch([[0, 1]])


def test_failures_of_any_step_are_raised():
    f = ab.batched(lambda words: words[1])
    data = f.pack([[1, 2], [3], [4, 5]])
    f(data[[0, 2]])
    close(_over(data.epoch([[0, 2], [2, 2]]), f), [[2, 5], [5, 5]])
    with pytest.raises(ab.ExampleError, match="example 1"):
        _over(data.epoch([[0, 2], [2, 1]]), f)
    masked = ab.batched(lambda words: words[1], on_error="mask")
    data = masked.pack([[1, 2], [3], [4, 5]])
    masked(data)
    out, failures = _over(data.epoch([[0, 2], [2, 1]]), masked)
    assert out.tolist() == [[2, 5], [5, 0]] and failures.failed.tolist() == [[False, False], [False, True]]
