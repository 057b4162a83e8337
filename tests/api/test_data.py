"""Packing, planning, cutting, saving; a Batch as a pytree."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from tests.api.nodes import Node, chain, close, params, total, trees


@ab.batched(in_axes=(None, 0, 0))
def similarity(p, a, b):
    return total(p, a) - total(p, b), a.x * b.x


def test_pack_is_a_snapshot():
    t = Node(1.0)
    data = ab.pack([t])
    t.x = 5.0
    close(total(params(), data), [2])


def test_an_int_gives_the_example_and_indices_a_batch():
    data = ab.pack(trees())
    assert data[1] == trees()[1] and data[-1] == trees()[2]
    assert len(data) == 3 and list(data) == trees()
    for index in ([2, 0, 0], np.array([True, False, True]), slice(1, None), jnp.array([1])):
        cut = data[index]
        assert isinstance(cut, ab.Batch)
        assert list(cut) == [trees()[k] for k in np.arange(3)[index]]
    with pytest.raises(IndexError):
        data[3]
    with pytest.raises(ab.BatchError):
        data[[3]]


def test_a_traced_index_is_an_error():
    data = ab.pack(trees())
    with pytest.raises(ab.BatchError, match="traced"):
        jax.jit(lambda i: data[i].floats())(jnp.array([1]))
    with pytest.raises(ab.BatchError, match="traced"):
        jax.jit(lambda i: data[i])(1)


def test_like_fixes_types():
    data = ab.pack([[1, 2], [3]])
    assert ab.pack([[]], like=data).schema == data.schema
    assert ab.pack([], like=list[int]).schema == data.schema
    with pytest.raises(ab.BatchError, match="like"):
        ab.pack([])


def test_pack_refuses_what_is_no_list():
    with pytest.raises(ab.BatchError, match="a list of examples"):
        ab.pack(Node(1.0))
    with pytest.raises(ab.BatchError, match="packed already"):
        ab.pack(ab.pack(trees()))


def test_schema_and_nbytes():
    data = ab.pack(trees())
    assert {f.name for f in data.schema.stores[0].fields} == {"x", "left", "right"}
    before = data.nbytes
    assert before > 0
    ab.batched(total.__wrapped__, in_axes=(None, 0), backend="xla")(params(), data)
    assert data.nbytes > before


@given(st.lists(st.integers(0, 7), max_size=6))
def test_a_cut_batch_equals_the_cut_list(indices):
    examples = [chain(n) for n in range(1, 9)]
    data = ab.pack(examples).plan(total)
    expected = total.loop(params(), [examples[k] for k in indices])
    close(total(params(), data[indices]), np.array(expected, np.float32))


def test_a_data_set_is_planned_once_for_several_functions():
    first = ab.batched(lambda p, t: p["w"] * t.x, in_axes=(None, 0))
    second = ab.batched(lambda p, t: t.x if t.left is None else t.left.x, in_axes=(None, 0))
    data = ab.pack(trees()).plan(first, second)
    for index in ([0], [1, 2], [2, 0]):
        mini = data[index]
        close(first(params(), mini), [2 * trees()[k].x for k in index])
        close(second(params(), mini), second(params(), [trees()[k] for k in index]))
    plans = first.cache_info().plans
    first(params(), data[[1]])
    assert first.cache_info().plans == plans


def test_an_unplanned_batch_keeps_the_plan_of_its_first_call():
    f = ab.batched(lambda t: t.x * 2)
    data = ab.pack(trees())
    f(data)
    plans = f.cache_info().plans
    f(data)
    f(data[[0, 1]])
    assert f.cache_info().plans == plans


def test_a_batch_that_shows_less_runs_on_the_program_that_is_there():
    f = ab.batched(lambda t: t.x if t.left is None else t.left.x, backend="xla")
    f(trees())
    leaves = ab.pack([Node(1.0), Node(2.0), Node(3.0)])
    close(f(leaves), [1, 2, 3])
    close(f(leaves[[2, 0]]), [3, 1])
    assert f.cache_info().specialisations == 1 and f.cache_info().plans == 2
    assert f(ab.pack([Node(7.0)])).tolist() == [7]
    assert f.cache_info().specialisations == 1


def test_several_arguments_are_planned_together():
    left, right = trees(), trees()[::-1]
    pairs = similarity.pack(left, right)
    expected = similarity(params(), left, right)
    jax.tree.map(close, similarity(params(), *pairs.args), expected)
    cut = similarity(params(), *pairs[1:].args)
    jax.tree.map(lambda a, b: close(a, b[1:]), cut, expected)
    assert pairs[0] == (left[0], right[0])
    plans = similarity.cache_info().plans
    similarity(params(), *pairs[[0]].args)
    assert similarity.cache_info().plans == plans
    alone = pairs.args[0][[2, 1]]
    assert list(alone) == [left[2], left[1]]
    with pytest.raises(ab.BatchError, match="takes the batched arguments"):
        similarity.pack(left)


def test_identity_is_kept_within_an_example_only():
    leaf = Node(3.0)
    shared = Node(1.0, leaf, leaf)
    again = ab.pack([shared, leaf])
    first, second = again
    assert first.left is first.right and second is not first.left


def test_save_and_load(tmp_path):
    data = ab.pack(trees())
    data.save(tmp_path / "trees.npz")
    again = ab.load(tmp_path / "trees.npz")
    assert list(again) == trees()
    close(total(params(), again), total(params(), trees()))


# ---- as a pytree


def test_batches_of_one_size_class_have_equal_structures():
    data = ab.pack([chain(n) for n in (5, 5, 5, 5, 5, 5, 5, 5)]).plan(total)
    total(params(), data[:2])
    a, b = data[:4], data[4:]
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert hash(jax.tree.structure(a)) == hash(jax.tree.structure(b))
    assert [x.shape for x in jax.tree.leaves(a)] == [x.shape for x in jax.tree.leaves(b)]


def test_the_next_minibatch_compiles_nothing():
    examples = [chain(n % 7 + 3) for n in range(64)]
    data = ab.pack(examples).plan(total)
    traces = []

    @jax.jit
    def step(p, b):
        traces.append(len(b))
        return total(p, b).sum()

    rng = np.random.default_rng(0)
    for _ in range(8):
        index = rng.permutation(64)[:16]
        close(step(params(), data[index]), sum(total.loop(params(), [examples[k] for k in index])))
    assert len(traces) <= 4, "the first batch, and very few size classes"


def test_plan_then_jit_without_a_call_before():
    f = ab.batched(lambda p, t: p["w"] * t.x if t.left is None else t.left.x, in_axes=(None, 0))
    data = f.pack(trees())
    step = jax.jit(lambda p, b: f(p, b).sum())
    for index in ([0, 1], [1, 2], [2, 2]):
        close(step(params(), data[index]), sum(f.loop(params(), [trees()[k] for k in index])))


def test_plan_then_jit_of_a_function_of_strings():
    f = ab.batched(lambda t: ("leaf" if t.left is None else "inner", t.x))
    data = f.pack(trees())
    for index in ([0, 1], [1, 2]):
        out = ab.unbatch(jax.jit(lambda b: f(b))(data[index]))
        assert out == f.loop([trees()[k] for k in index])


def test_failures_of_a_function_planned_before_its_first_call():
    f = ab.batched(lambda words: words[1])
    data = f.pack([[1, 2], [3], [4, 5]])
    with pytest.raises(Exception, match="example 1"):
        jax.block_until_ready(jax.jit(lambda b: f(b))(data))
    assert jax.jit(lambda b: f(b))(data[[0, 2]]).tolist() == [2, 5]


def test_a_planned_function_that_is_never_called_costs_no_trace():
    f = ab.batched(lambda p, t: p["w"] * t.x, in_axes=(None, 0))
    never = ab.batched(lambda p, t: p["w"] - t.x, in_axes=(None, 0))
    data = ab.pack(trees() * 8).plan(f, never)
    traces = []

    @jax.jit
    def step(p, b):
        traces.append(1)
        return f(p, b).sum()

    for k in range(18):
        close(step(params(), data[[k, k + 3]]), 2 * sum(t.x for t in [trees()[k % 3], trees()[k % 3]]))
    assert len(traces) <= 4  # size classes, not minibatches
    close(jax.jit(lambda p, b: never(p, b))(params(), data[:3]), [1, 0, -3])


def test_shared_arguments_can_be_mapped_and_batches_cannot():
    data = total.pack(trees())
    total(params(), data)
    scales = jnp.arange(3.0)
    expected = jnp.stack([total({"w": s}, trees()) for s in scales])
    close(jax.vmap(lambda s: total({"w": s}, data))(scales), expected)
    with pytest.raises((ab.PlanError, ValueError)):
        jax.vmap(lambda b: total(params(), b))(data)
    with pytest.raises(ab.PlanError, match=r"jax\.lax\.scan"):
        total(params(), data.epoch([[0, 1], [1, 2]]))


def test_under_jit_a_batch_without_plan_is_refused():
    f = ab.batched(lambda t: t.x, backend="xla")
    with pytest.raises(ab.PlanError, match="batch.plan"):
        jax.jit(f)(ab.pack(trees()))


def test_a_batch_that_went_through_jit_still_runs():
    data = total.pack(trees())
    total(params(), data)
    through = jax.jit(lambda b: b)(data)
    close(total(params(), through), total(params(), trees()))
    assert list(through) == trees() and through[1] == trees()[1]
    close(total(params(), through[[2, 0]]), total(params(), [trees()[2], trees()[0]]))
    mapped = jax.tree.map(lambda x: x, data)
    close(total(params(), mapped), total(params(), trees()))


def test_under_jit_a_batch_cannot_be_unpacked():
    data = total.pack(trees())
    total(params(), data)
    with pytest.raises(ab.PlanError, match="not known under jax.jit"):
        jax.jit(lambda b: list(b))(data)


def test_a_list_inside_jit_is_a_constant():
    close(jax.jit(lambda p: total(p, trees()))(params()), total(params(), trees()))


def test_an_epoch_for_scan():
    examples = [chain(n % 5 + 2) for n in range(12)]
    data = total.pack(examples)
    total(params(), data[:1])
    order = np.random.default_rng(0).permutation(12).reshape(3, 4)
    epoch = data.epoch(order)
    _, sums = jax.lax.scan(lambda c, b: (c, total(params(), b).sum()), 0, epoch)
    close(sums, [sum(total.loop(params(), [examples[k] for k in row])) for row in order])
    with pytest.raises(ab.BatchError, match="one row of examples"):
        data.epoch([1, 2])


def test_floats_and_with_floats():
    data = total.pack(trees())
    total(params(), data)
    floats = data.floats()
    assert list(floats) == ["Node.x"]
    doubled = data.with_floats(jax.tree.map(lambda x: 2 * x, floats))
    close(total(params(), doubled), 2 * total(params(), trees()))
    traced = jax.jit(lambda fl, b: total(params(), b.with_floats(fl)))(floats | {"Node.x": floats["Node.x"] * 3}, data)
    close(traced, 3 * total(params(), trees()))
    with pytest.raises(ab.BatchError, match="no column of floats"):
        data.with_floats({"Node.y": floats["Node.x"]})
    with pytest.raises(ab.BatchError, match="has the shape"):
        data.with_floats({"Node.x": floats["Node.x"][:1]})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_columns_of_every_kind_of_float_are_floats(dtype):
    f = ab.batched(lambda t: t["x"].sum())
    data = f.pack([{"x": jnp.ones(3, dtype)}, {"x": jnp.zeros(3, dtype)}])
    close(f(data), [3, 0])
    (name,) = data.floats()
    assert data.floats()[name].dtype == dtype
    moved = jax.jit(lambda b: b.floats())(data)
    close(f(data.with_floats({name: moved[name][:2] + 1})), [6, 3])


def test_with_floats_plans_again_where_they_decide():
    f = ab.batched(lambda t: "big" if t.x > 4 else "small")
    data = f.pack(trees())
    assert ab.unbatch(f(data)) == ["small", "small", "big"]
    new = data.with_floats({k: 10 - v for k, v in data.floats().items()})
    assert ab.unbatch(f(new)) == ["big", "big", "big"]


def test_a_stale_plan_fails_the_call():
    @ab.batched
    def f(t):
        return t.x * 2 if t.x > 4 else -t.x

    data = f.pack(trees())
    f(data)
    with pytest.raises(Exception, match="stale plan: column Node.x"):
        jax.block_until_ready(
            jax.jit(lambda fl, b: f(b.with_floats(fl)))(jax.tree.map(lambda x: 10 - x, data.floats()), data)
        )
        jax.effects_barrier()


def test_plan_takes_batched_functions():
    with pytest.raises(ab.PlanError, match="made by ab.batched"):
        ab.pack(trees()).plan(lambda t: t)
    with pytest.raises(ab.PlanError, match="share="):
        ab.pack(trees()).plan(total, share="all")


def test_arrays_under_jit_are_device_values():
    f = ab.batched(lambda p, k, x: p[k] * x, in_axes=(None, 0, 0))
    p, labels, x = jnp.arange(10.0), jnp.array([3, 1, 2]), jnp.array([1.0, 2.0, 3.0])
    close(f(p, labels, x), [3, 2, 6])
    close(jax.jit(f)(p, labels, x), [3, 2, 6])


def test_arrays_under_jit_decide_arithmetic():
    f = ab.batched(lambda n: sum(range(n)))
    assert f(np.array([3, 4])).tolist() == [3, 6]
    assert jax.jit(f)(jnp.array([3, 4, -1, 100])).tolist() == [3, 6, 0, 4950]


def test_arrays_beside_a_batch_under_jit():
    f = ab.batched(lambda t, k: t.x * k)
    data = ab.pack(trees())
    close(f(data, jnp.arange(3.0)), [0, 2, 10])
    close(jax.jit(lambda k: f(data, k))(jnp.arange(3.0)), [0, 2, 10])


@pytest.mark.parametrize(
    "examples, words",
    [
        ([1, 2], "int"),
        ([1.0, None], "float | None"),
        ([[1, 2], [3]], "list[int]"),
        ([(1.0, "a", [2.0])], "tuple[float, str, list[float]]"),
        ([{"a": 1, "b": np.ones(2)}], "dict[a, b]"),
        ([np.ones((2, 3))], "float32[2, 3]"),
        ([Node(1.0)], "Node"),
    ],
)
def test_a_batch_says_what_it_holds_in_words_of_python(examples, words):
    assert repr(ab.pack(examples)) == f"Batch({len(examples)} examples of {words})"


def test_arguments_packed_together_say_what_each_holds():
    assert repr(similarity.pack(trees(), trees())) == "Batch(3 examples of (Node, Node))"


def test_a_batch_pickles_without_its_plans():
    data = total.pack(trees())
    total(params(), data)
    again = pickle.loads(pickle.dumps(data))
    assert list(again) == trees()
    close(total(params(), again), total(params(), trees()))
    assert copy.deepcopy(data) is data
    pairs = pickle.loads(pickle.dumps(similarity.pack(trees(), trees())))
    close(similarity(params(), *pairs.args)[1], [1, 4, 25])


def test_floats_are_given_as_they_were_taken():
    with pytest.raises(ab.BatchError, match="a dict of columns"):
        ab.pack(trees()).with_floats([1.0])  # type: ignore[arg-type]
