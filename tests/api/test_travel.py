"""A Batch as a pytree: what leaves the host comes back, whatever another batch of its form holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, close, params, total, trees

WAYS = {
    "jit": jax.jit(lambda b: b),
    "map": lambda b: jax.tree.map(lambda x: x, b),
    "copies": lambda b: jax.tree.map(jnp.array, b),
    "device_put": jax.device_put,
    "rebuilt": lambda b: jax.tree.unflatten(jax.tree.structure(b), jax.tree.leaves(b)),
}


@pytest.mark.parametrize("way", WAYS)
def test_examples_come_back(way):
    data = WAYS[way](total.pack(trees()))
    assert list(data) == trees() and data[1] == trees()[1] and len(data) == 3
    assert list(data[[2, 0]]) == [trees()[2], trees()[0]]
    assert data.schema == ab.pack(trees()).schema and data.nbytes > 0


@pytest.mark.parametrize("way", WAYS)
def test_it_still_runs_and_is_cut_and_planned(way):
    expected = total.loop(params(), trees())
    for data in (total.pack(trees()), ab.pack(trees())):
        moved = WAYS[way](data)
        close(total(params(), moved), expected)
        close(total(params(), moved[[2, 0]]), [expected[2], expected[0]])
        other = ab.batched(lambda t: t.x if t.left is None else t.left.x)
        close(other(WAYS[way](data).plan(other)), [1, 3, 6])


def test_a_second_call_plans_nothing():
    f = ab.batched(lambda t: t.x if t.left is None else t.left.x, backend="xla")
    moved = jax.jit(lambda b: b)(ab.pack(trees()))
    f(moved)
    plans = f.cache_info().plans
    f(moved), f(moved)
    assert f.cache_info().plans == plans
    planned = f.pack(trees())
    f(planned)
    plans = f.cache_info().plans
    f(jax.jit(lambda b: b)(planned))
    assert f.cache_info().plans == plans, "its tables came along"


def test_two_batches_of_one_form_are_not_mixed_up():
    data = total.pack([chain(5), chain(5), Node(1.0), Node(2.0)] * 2)
    total(params(), data)
    a, b = data[[0, 2]], data[[1, 3]]
    assert jax.tree.structure(a) == jax.tree.structure(b)
    through = jax.jit(lambda b: b)
    first, second = through(a), through(b)
    assert list(first) == [chain(5), Node(1.0)] and list(second) == [chain(5), Node(2.0)]
    swapped = jax.tree.unflatten(jax.tree.structure(a), jax.tree.leaves(b))
    assert swapped[1] == Node(2.0)


def test_words_come_back_whatever_the_vocabulary():
    f = ab.batched(lambda p, w: p[w], in_axes=(None, 0))
    p = {"a": 1.0, "b": 2.0, "c": 3.0}
    through = jax.jit(lambda b: b)
    for words in (["a", "b"], ["c", "a"], ["b", "c"]):
        data = f.pack(words)
        assert list(through(data)) == words
        assert f(p, through(data)).tolist() == [p[w] for w in words]


def test_results_that_are_batches_travel_too():
    lower = ab.batched(lambda t: t.left)
    data = lower.pack(trees()[1:])
    inner = jax.jit(lambda b: lower(b))(data)
    assert [t.x for t in inner] == [3, 6]
    close(total(params(), inner), total.loop(params(), [t.left for t in trees()[1:]]))


def test_arguments_packed_together_travel():
    sim = ab.batched(lambda p, a, b: total(p, a) * b.x, in_axes=(None, 0, 0))
    pairs = sim.pack(trees(), trees()[::-1])
    expected = sim.loop(params(), trees(), trees()[::-1])
    for way in WAYS.values():
        moved = way(pairs)
        close(sim(params(), *moved.args), expected)
        close(sim(params(), *way(pairs)[[2, 0]].args), [expected[2], expected[0]])
        assert list(way(pairs).args[1]) == trees()[::-1]
        close(sim(params(), *(way(a) for a in pairs.args)), expected)
        close(sim(params(), *way(pairs).plan(sim).args), expected)


def test_under_jit_examples_are_unknown():
    data = total.pack(trees())
    total(params(), data)
    for use in (list, lambda b: b[0], lambda b: b[[0]], lambda b: b.plan(total), lambda b: b.epoch([[0]])):
        with pytest.raises(ab.PlanError, match=r"not known under jax\.jit"):
            jax.jit(lambda b, use=use: (use(b), 0)[1])(data)
    assert int(jax.jit(lambda b: len(b))(data)) == 3


def test_zeros_like_a_batch_and_sums_of_batches():
    data = total.pack(trees())
    total(params(), data)
    zeros = jax.tree.map(jnp.zeros_like, data)
    same = jax.tree.map(jnp.add, data, zeros)
    assert list(same) == trees()
    close(total(params(), same), total.loop(params(), trees()))
    assert [np.shape(x) for x in jax.tree.leaves(zeros)] == [np.shape(x) for x in jax.tree.leaves(data)]


# ---- planned, but never called


def test_failures_are_example_errors_under_jit():
    f = ab.batched(lambda words: words[1])
    data = f.pack([[1, 2], [3], [4, 5], [6]])
    with pytest.raises(ab.ExampleError) as caught:
        jax.jit(f)(data)
    assert [x.index for x in caught.value.failures] == [1, 3]
    with pytest.raises(ab.ExampleError) as caught:
        jax.jit(f)(data[[1, 0]])
    assert [x.index for x in caught.value.failures] == [0]
    assert jax.jit(f)(data[[0, 2]]).tolist() == [2, 5]
    with pytest.raises(ab.ExampleError):
        jax.jit(f)(data[[0, 1]])


def test_failures_after_a_good_batch_of_the_same_form():
    f = ab.batched(lambda words: words[1])
    data = f.pack([[1, 2], [3], [4, 5], [6]])
    step = jax.jit(lambda b: f(b))
    assert step(data[[0, 2]]).tolist() == [2, 5]
    with pytest.raises(ab.ExampleError, match="example 1"):
        step(data[[0, 1]])
    with pytest.raises(ab.ExampleError, match="example 0"):
        step(jax.jit(lambda b: b)(data[[3, 0]]))


def test_failures_that_are_masked_under_a_first_jit():
    f = ab.batched(lambda words: words[1], on_error="mask")
    out, failures = jax.jit(f)(f.pack([[1, 2], [3], [4, 5]]))
    assert out.tolist() == [2, 0, 5] and failures.failed.tolist() == [False, True, False]
