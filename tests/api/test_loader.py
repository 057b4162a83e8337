"""`ab.Loader`: which batches it yields, in what order; what yields them is `test_prefetch.py`."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autobatch as ab
from autobatch.call.loader import POOL, Sampling
from tests.api.nodes import chain, close, depth, params, total, trees


def _words(n):
    return ab.pack([[k] * (k % 4 + 1) for k in range(n)])


def _firsts(batch):
    return [words[0] for words in batch]


# ---- which examples


@given(
    count=st.integers(1, 200),
    batch_size=st.integers(1, 30),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    bucketed=st.booleans(),
    seed=st.integers(0, 3),
)
def test_an_epoch_holds_every_example_once(count, batch_size, shuffle, drop_last, bucketed, seed):
    keys = np.random.default_rng(seed).integers(0, 50, count) if bucketed else None
    held = Sampling(count, batch_size, shuffle, seed, drop_last, keys)
    batches = held.epoch(3)
    assert len(batches) == held.batches
    rows = np.concatenate(batches) if batches else np.zeros(0, int)
    assert len(set(rows.tolist())) == len(rows) == (count // batch_size * batch_size if drop_last else count)
    assert [len(b) for b in batches[:-1]] == [batch_size] * (len(batches) - 1)
    again = Sampling(count, batch_size, shuffle, seed, drop_last, keys).epoch(3)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    if not shuffle and keys is None:
        assert rows.tolist() == list(range(len(rows)))
    if not shuffle and keys is not None:
        assert (np.diff(keys[rows]) >= 0).all()


def test_epochs_and_seeds_differ():
    orders = [tuple(Sampling(50, 10, True, s, False).epoch(e)[0].tolist()) for s in (0, 1) for e in (0, 1)]
    assert len(set(orders)) == 4


def test_bucketing_puts_similar_examples_together_in_random_order():
    rng = np.random.default_rng(0)
    count, size = 40 * POOL, 8
    keys = rng.permutation(count)
    plain = Sampling(count, size, True, 0, False)
    bucketed = Sampling(count, size, True, 0, False, keys)

    def spread(batches):
        return np.mean([np.ptp(keys[b]) for b in batches])

    assert spread(bucketed.epoch(0)) < spread(plain.epoch(0)) / 8
    means = np.array([keys[b].mean() for b in bucketed.epoch(0)])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.25, "neighbours in time are not neighbours in size"
    one, other = (Sampling(64, 8, True, 0, False, np.arange(64)).epoch(e) for e in (0, 1))
    assert {frozenset(b.tolist()) for b in one} != {frozenset(b.tolist()) for b in other}, "a single pool, mixed anew"


def test_what_is_left_out_does_not_depend_on_size():
    """Of 20 examples 2 are left over; each example should be about as often as any other."""
    keys, left = np.arange(20), np.zeros(20)
    for epoch in range(400):
        rows = np.concatenate(Sampling(20, 9, True, 0, True, keys).epoch(epoch))
        left[np.setdiff1d(np.arange(20), rows)] += 1
    assert left.sum() == 800 and left.min() > 15 and left.max() < 70, left


# ---- iterating


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_a_loop_is_one_epoch(prefetch):
    loader = ab.Loader(_words(10), 4, prefetch=prefetch)
    assert len(loader) == 3 and loader.epoch == 0 and loader.indices is None
    seen = []
    for epoch in range(3):
        wanted = loader.order()
        for k, batch in enumerate(loader):
            assert loader.epoch == epoch
            assert _firsts(batch) == wanted[k].tolist() == loader.indices.tolist()
        assert loader.epoch == epoch + 1
        seen.append(np.concatenate(wanted).tolist())
    assert all(sorted(s) == list(range(10)) for s in seen) and seen[0] != seen[1] != seen[2]
    assert [b.tolist() for b in loader.order(1)] == [b.tolist() for b in ab.Loader(_words(10), 4).order(1)]


def test_a_loop_that_is_left_abandons_its_epoch():
    loader = ab.Loader(_words(10), 2)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert len([b for b in loader]) == 5 and loader.epoch == 2


def test_batches_run_and_compile_as_often_as_those_cut_by_hand():
    examples = [chain(n % 6 + 1) for n in range(40)]
    function = ab.batched(total.__wrapped__, in_axes=(None, 0))  # no size classes of other tests
    data = function.pack(examples)
    expected = np.asarray(function(params(), data))
    step = jax.jit(function)
    loader = ab.Loader(data, 8, seed=3)
    for _ in range(2):
        for batch in loader:
            close(function(params(), batch), expected[loader.indices])
            close(step(params(), batch), expected[loader.indices])
            assert [t.x for t in batch] == [examples[k].x for k in loader.indices]
            close(function(params(), batch[[1, 0]]), expected[loader.indices[[1, 0]]])
    assert step._cache_size() <= 4, "one without a plan, then one for each size class"
    assert function.cache_info().executables <= 8


def test_several_functions():
    data = ab.pack(trees() * 4).plan(total, depth)
    deep = np.asarray(depth(data))
    for batch in ab.Loader(data, 5):
        close(total(params(), batch), total.loop(params(), batch.to_list()))
        assert depth(batch).tolist() == depth.loop(batch.to_list())
    assert deep.tolist() == depth.loop(trees() * 4)


def test_examples_whose_arrays_differ_in_shape():
    f = ab.batched(lambda x: x @ x.T)
    data = f.pack([np.full((k % 2 + 2, 3), float(k)) for k in range(12)])
    expected = f.loop(data.to_list())
    loader = ab.Loader(data, 5, bucket_by="size")
    for _ in range(2):
        for batch in loader:
            for found, k in zip(ab.unbatch(f(batch)), loader.indices, strict=True):
                close(found, expected[k])


# ---- several arguments


def test_arguments_packed_together():
    sim = ab.batched(lambda p, a, b: total(p, a) * b.x, in_axes=(None, 0, 0))
    left, right = trees() * 3, trees()[::-1] * 3
    pairs = sim.pack(left, right)
    expected = np.asarray(sim(params(), *pairs.args))
    step = jax.jit(lambda p, pairs: sim(p, *pairs.args))
    loader = ab.Loader(pairs, 4)
    for batch in loader:
        close(sim(params(), *batch.args), expected[loader.indices])
        close(step(params(), batch), expected[loader.indices])


def test_arguments_packed_apart_beside_arrays():
    sim = ab.batched(lambda p, a, b, y: total(p, a) * b.x - y, in_axes=(None, 0, 0, 0))
    left, right = total.pack(trees() * 3), ab.pack(trees()[::-1] * 3)
    labels = np.arange(9.0)
    expected = np.asarray(sim(params(), left, right, labels))
    plans = sim.cache_info().plans
    loader = ab.Loader({"x": (left, right), "y": labels}, 4)
    for batch in loader:
        close(sim(params(), *batch["x"], batch["y"]), expected[loader.indices])
        assert isinstance(batch["y"], jax.Array)
    assert sim.cache_info().plans == plans, "cut from the pairs of the whole data sets"


def test_numbers_of_the_examples():
    data = _words(7)
    for batch, index in ab.Loader((data, np.arange(len(data))), 3):
        assert _firsts(batch) == index.tolist()


def test_arrays_alone():
    x, keys = np.arange(12.0).reshape(6, 2), jax.random.split(jax.random.key(0), 6)
    found = list(ab.Loader({"x": x, "key": keys}, 2, shuffle=False))
    close(np.concatenate([b["x"] for b in found]), x)
    assert (jax.random.key_data(found[1]["key"]) == jax.random.key_data(keys[2:4])).all()


# ---- stacked for scan


@pytest.mark.parametrize("prefetch", [0, 2])
def test_steps_are_stacked_for_scan(prefetch):
    data = total.pack([chain(n % 5 + 1) for n in range(30)])
    expected = np.asarray(total(params(), data))
    labels = np.arange(30.0)
    loader = ab.Loader((data, labels), 4, steps=3, drop_last=True, prefetch=prefetch)
    assert len(loader) == 3 and [o.shape for o in loader.order()] == [(3, 4), (3, 4), (1, 4)]
    run = jax.jit(lambda p, item: jax.lax.scan(lambda c, x: (c, total(p, x[0]) + x[1]), 0, item)[1])
    for _ in range(2):
        for item in loader:
            close(run(params(), item), expected[loader.indices] + labels[loader.indices])
    assert run._cache_size() <= 4


def test_steps_need_batches_of_one_size():
    with pytest.raises(ab.BatchError, match="drop_last=True"):
        ab.Loader(_words(10), 3, steps=2)
    assert len(ab.Loader(_words(9), 3, steps=2)) == 2


# ---- resuming


@pytest.mark.parametrize("options", [{}, {"bucket_by": "size", "drop_last": True}, {"shuffle": False}])
@pytest.mark.parametrize("stop", [0, 1, 2, 3, 4, 6, 7])
def test_a_restored_loader_yields_the_very_same_remaining_batches(options, stop):
    def run(loader, epochs):
        return [_firsts(batch) for _ in range(epochs) for batch in loader]

    whole = run(ab.Loader(_words(14), 4, **options), 3)
    loader, states, seen = ab.Loader(_words(14), 4, **options), [], 0
    states.append(loader.state())
    for _ in range(3):
        for _ in loader:
            states.append(loader.state())
    state = json.loads(json.dumps(states[stop]))
    other = ab.Loader(_words(14), 4, **options)
    other.restore(state)
    seen = run(other, 3 - other.epoch)
    assert seen == whole[stop:]
    assert other.epoch == 3


def test_a_state_after_a_break_and_of_a_restored_loader():
    loader = ab.Loader(_words(10), 2)
    for _ in loader:
        if loader.state()["batch"] == 2:
            break
    other = ab.Loader(_words(10), 2)
    other.restore(loader.state())
    assert other.state() == loader.state() and len([b for b in other]) == 3
    assert other.state()["epoch"] == 1 and other.state()["batch"] == 0
    other.restore(loader.state())
    assert len([b for b in other]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed=0; this one has seed=1"),
        ({"batch_size": 3}, "batch_size=2"),
        ({"shuffle": False}, "shuffle=True"),
        ({"bucket_by": "size"}, "bucket_by=None"),
    ],
)
def test_a_state_of_other_settings_is_refused(change, message):
    state = ab.Loader(_words(10), 2).state()
    other = ab.Loader(_words(10), **{"batch_size": 2, **change})
    with pytest.raises(ab.BatchError, match=message):
        other.restore(state)


def test_a_state_of_other_data_is_refused():
    loader = ab.Loader(_words(10), 2, bucket_by=np.arange(10))
    state = loader.state()
    with pytest.raises(ab.BatchError, match="examples=10; this one has examples=12"):
        ab.Loader(_words(12), 2, bucket_by=np.arange(12)).restore(state)
    with pytest.raises(ab.BatchError, match="in another order"):
        ab.Loader(_words(10), 2, bucket_by=-np.arange(10)).restore(state)
    for wrong in ({}, state | {"epoch": -1}, state | {"batch": 5}, None, state | {"more": 1}):
        with pytest.raises(ab.BatchError):
            loader.restore(wrong)


# ---- bad input


def test_bad_arguments():
    data = _words(6)
    for wrong, message in [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": 2, "seed": -1}, "seed=-1"),
        ({"batch_size": 2, "prefetch": -1}, "prefetch=-1"),
        ({"batch_size": 7, "drop_last": True}, "no minibatch"),
        ({"batch_size": 2, "bucket_by": "length"}, "bucket_by='length'"),
        ({"batch_size": 2, "bucket_by": [1, 2]}, "a number for each of the 6"),
        ({"batch_size": 2, "steps": 0}, "steps=0"),
    ]:
        with pytest.raises(ab.BatchError, match=message):
            ab.Loader(data, **wrong)


def test_bad_data():
    data = _words(6)
    for wrong, message in [
        ([[1], [2]], "a list was given"),
        ((data, np.zeros(5)), "5 and 6 rows"),
        ((), "there is no data"),
        (data[[]], "no rows"),
        ({"x": 1.0}, "not float"),
        ("text", "not str"),
    ]:
        with pytest.raises(ab.BatchError, match=message):
            ab.Loader(wrong, 2)
    with pytest.raises(ab.BatchError, match="needs a Batch"):
        ab.Loader(np.zeros(4), 2, bucket_by="size")
    with pytest.raises(ab.BatchError, match=r"outside jax\.jit"):
        jax.jit(lambda b: len(ab.Loader(b, 2)))(data)
    with pytest.raises(ab.PlanError, match="call it on a small batch"):
        next(iter(ab.Loader(data, 2, steps=2)))


def test_wide_numbers_and_options_reach_the_thread():
    with jax.enable_x64(True):
        f = ab.batched(lambda t: t["x"] * 2.0)
        data = f.pack([{"x": k + 2.0**-40} for k in range(6)])
        f(data)
        for batch in ab.Loader(data, 3, shuffle=False):
            assert batch.parts()[0].columns["dict.x"].dtype == jnp.float64
            assert f(batch).dtype == jnp.float64


def test_batches_are_explained_lowered_and_interpreted():
    data = total.pack(trees() * 3)
    total(params(), data)
    batch = next(iter(ab.Loader(data, 4)))
    by_hand = data[batch.on_host.origin[1]]
    found, wanted = (str(total.explain(params(), b)).partition("bytes")[0] for b in (batch, by_hand))
    assert found == wanted and "levels" in found
    close(total.lower(params(), batch).compile()(params(), batch), total.loop(params(), batch.to_list()))
    slow = ab.batched(total.__wrapped__, in_axes=(None, 0), backend="interpret")
    held = slow.pack(trees())
    slow(params(), held)
    for batch in ab.Loader(held, 2):
        close(slow(params(), batch), slow.loop(params(), batch.to_list()))
