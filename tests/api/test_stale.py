"""A plan is for the values that decided structure: columns that have changed since fail the call, others may change."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.call.packed import checksum, mixed_sum
from tests.api.nodes import chain, close, params, total


@dataclass
class Item:
    x: float
    kind: int = 0
    word: str = "a"
    kids: list["Item"] = field(default_factory=list)
    key: float | None = None


def items() -> list[Item]:
    return [
        Item(1.0, 2, "b", [Item(2.0, 1), Item(3.0, 0, key=2.0)]),
        Item(4.0, 0, "a", key=1.0),
        Item(5.0, 1, "c", [Item(6.0)]),
    ]


@ab.batched(in_axes=(None, 0), backend="xla")
def score(p, t):
    """Reads classes, lists, integers that decide, strings, None, and floats that only count."""
    below = sum(score(p, c) for c in t.kids)
    own = t.x if t.key is None else t.x * t.key
    return p[t.word] * own + sum(range(t.kind)) + below


P = {"a": 1.0, "b": 2.0, "c": 3.0}


def _changed(batch, name, change):
    """The batch with one of its columns changed, as a user of the pytree does it."""

    def one(path, leaf):
        return change(leaf) if any(getattr(k, "key", None) == name for k in path) else leaf

    return jax.tree_util.tree_map_with_path(one, batch)


def _fails(call, column):
    with pytest.raises(Exception, match=f"stale plan: column {column}"):
        jax.block_until_ready(call())
        jax.effects_barrier()


DECIDING = {
    "#root": lambda x: x[::-1],
    "Item.kind": lambda x: x + 1,
    "Item.word": lambda x: (x + 1) % 3,
    "Item.kids": lambda x: x[::-1],
    "Item.key?": lambda x: ~x,
    "Item.kids.#offsets": lambda x: x * 0,
    "Item.kids.#values": lambda x: x[::-1],
}


step = jax.jit(score)


@pytest.mark.parametrize("backend", ["auto", "llvm"])
class TestMachineCode:
    """It has no plan: what columns say now is what it computes, where they fit each other."""

    @pytest.mark.parametrize(
        ("column", "change"),
        [
            ("#root", lambda x: x + 100_000),
            ("#root", lambda x: x[::-1]),
            ("Item.kids", lambda x: x + 7),
            ("Item.kids.#values", lambda x: x + 10**8),
            ("Item.kids.#offsets", lambda x: x + 10**6),
            ("Item.word", lambda x: x + 1000),
        ],
    )
    def test_columns_that_lead_nowhere_are_refused(self, backend, column, change):
        f = ab.batched(score.__wrapped__, in_axes=(None, 0), backend=backend)
        data = ab.pack(items())
        f(P, data)
        with pytest.raises(ab.PlanError, match="columns of the batch have changed since it was packed"):
            f(P, _changed(data, column, change))

    def test_columns_of_numbers_may_change(self, backend):
        f = ab.batched(score.__wrapped__, in_axes=(None, 0), backend=backend)
        data = _changed(ab.pack(items()), "Item.kind", lambda x: x + 1)
        close(f(P, data), jnp.stack(f.loop(P, data.to_list())))
        close(f(P, data), f(P, ab.pack(data.to_list())))


@pytest.mark.parametrize("column", DECIDING)
def test_columns_that_decide_structure(column):
    data = score.pack(items())
    expected = score(P, data)
    changed, text = _changed(data, column, DECIDING[column]), column.replace("?", r"\?")
    with pytest.raises(ab.PlanError, match=f"stale plan: column {text}"):
        score(P, changed)
    _fails(lambda: step(P, changed), text)
    close(score(P, data), expected)


def test_columns_that_are_changed_inside_jit():
    data = score.pack(items())
    score(P, data)
    _fails(lambda: jax.jit(lambda b: score(P, _changed(b, "Item.kind", lambda x: x + 1)))(data), "Item.kind")


def test_results_of_a_stale_plan_are_no_numbers():
    data = score.pack(items())
    score(P, data)
    changed = _changed(data, "Item.kind", lambda x: x + 1)
    found = jax.jit(lambda b: score(P, b))
    with pytest.raises(Exception, match="stale plan"):
        assert np.isnan(np.asarray(found(changed))).all()
        jax.effects_barrier()


def test_a_changed_batch_is_planned_again():
    data = score.pack(items())
    score(P, data)
    changed = _changed(data, "Item.kind", lambda x: x + 1)
    again = changed.plan(score)
    examples = list(again)
    assert examples[1].kind == 1
    close(score(P, again), score.loop(P, examples))
    close(score(P, changed[[1, 2]]), score.loop(P, examples[1:]))


def test_with_floats_plans_again_wherever_the_batch_is():
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack([Item(1.0), Item(5.0), Item(3.0)])
    f(data)
    for batch in (data, jax.jit(lambda b: b)(data), jax.tree.map(lambda x: x, data), data[[0, 1, 2]]):
        new = batch.with_floats({"Item.x": 6 - batch.floats()["Item.x"]})
        assert f(new).tolist() == [10, -1, -3]
        assert f(new[[1, 0]]).tolist() == [-1, 10]
        close(jax.jit(f)(new.plan(f)), [10, -1, -3])
    assert f(data).tolist() == [-1, 10, -3]


def test_numbers_that_only_count_may_change():
    data = score.pack(items())
    expected = score(P, data)
    changed = _changed(data, "Item.x", lambda x: 2 * x)
    close(jax.jit(score)(P, changed), score(P, changed))
    assert not np.allclose(score(P, changed), expected)
    integers = ab.batched(lambda t: t.kind * 2)
    data = integers.pack(items())
    integers(data)
    close(jax.jit(integers)(data), [4, 0, 2])


# ---- no false alarms


def _donated(batch):
    return jax.jit(lambda b: b, donate_argnums=0)(jax.tree.map(jnp.array, batch))


WAYS = {
    "identity": lambda b: jax.tree.map(lambda x: x, b),
    "device_put": jax.device_put,
    "jit": jax.jit(lambda b: b),
    "donated": _donated,
    "copied": lambda b: jax.tree.map(np.array, b),
    "zero added": lambda b: jax.tree.map(lambda x: x if x.dtype == bool else x + x.dtype.type(0), b),
    "stacked": lambda b: jax.tree.map(lambda x: x[0], jax.tree.map(lambda x: np.stack([x, x]), b)),
    "flattened": lambda b: jax.tree.unflatten(jax.tree.structure(b), jax.tree.leaves(b)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_leaves_columns_as_they_are_is_no_change(way):
    move = WAYS[way]
    data = score.pack(items() * 5)
    expected = score(P, data)
    close(score(P, move(data)), expected)
    close(step(P, move(data)), expected)
    jax.effects_barrier()
    cut = data[[3, 1, 1, 14]]
    close(score(P, move(cut)), expected[np.array([3, 1, 1, 14])])
    close(step(P, move(cut)), expected[np.array([3, 1, 1, 14])])
    jax.effects_barrier()


def test_size_classes_are_no_change():
    data = total.pack([chain(n % 7 + 1) for n in range(40)])
    expected = np.asarray(total(params(), data))
    step, rng = jax.jit(total), np.random.default_rng(0)
    for size in (1, 3, 8, 8, 8):
        index = rng.permutation(40)[:size]
        close(step(params(), data[index]), expected[index])
    jax.effects_barrier()


def test_nan_and_negative_zero_that_decide():
    f = ab.batched(lambda t: t.x * 2 if t.x > 4 else -t.x)
    data = f.pack([Item(float("nan")), Item(-0.0), Item(5.0)])
    f(data)
    again = jax.jit(lambda b: f(b.with_floats({"Item.x": b.floats()["Item.x"] * 1})))(data)
    np.testing.assert_array_equal(np.asarray(again), [np.nan, 0, 10])
    jax.effects_barrier()


@pytest.mark.parametrize("x64", [False, True])
def test_columns_of_every_dtype(x64):
    with jax.enable_x64(x64):
        for kind in (
            "bool",
            "int8",
            "uint16",
            "int32",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "complex64",
        ):
            held = np.asarray(jnp.arange(7).astype(jax.dtypes.canonicalize_dtype(kind)))
            on_device = jax.jit(checksum)(held)
            assert int(checksum(held)) == int(on_device), kind
            assert int(checksum(held[::-1].copy())) != int(on_device), kind
        assert int(checksum(np.zeros(0, np.int32))) == int(jax.jit(checksum)(np.zeros(0, np.int32)))


# ---- transformations


def test_derivatives_of_a_checked_call():
    f = ab.batched(lambda p, t: p[t.word] * t.x + sum(range(t.kind)), in_axes=(None, 0))
    data = f.pack(items())
    f(P, data)
    p = {k: jnp.float32(v) for k, v in P.items()}
    expected = {"a": 4.0, "b": 1.0, "c": 5.0}
    jax.tree.map(close, jax.jit(jax.grad(lambda p, b: f(p, b).sum()))(p, data), expected)
    remembered = jax.checkpoint(lambda p, b: f(p, b).sum())
    jax.tree.map(close, jax.jit(jax.grad(remembered))(p, data), expected)
    column = jax.jit(jax.grad(lambda x, b: f(p, b.with_floats({"Item.x": x})).sum()))
    assert float(column(data.floats()["Item.x"], data).sum()) == 6
    jax.effects_barrier()


def test_a_checked_call_under_scan_and_vmap():
    data = score.pack(items())
    score(P, data)
    _, sums = jax.lax.scan(lambda c, b: (c, score(P, b)), 0, data.epoch([[0, 1], [2, 1]]))
    expected = np.asarray(score(P, data))
    close(sums, [expected[[0, 1]], expected[[2, 1]]])
    scales = jnp.arange(1.0, 3.0)
    mapped = jax.jit(jax.vmap(lambda s, b: score({k: s * v for k, v in P.items()}, b), in_axes=(0, None)))
    close(mapped(scales, data), [score({k: s * v for k, v in P.items()}, items()) for s in (1.0, 2.0)])
    jax.effects_barrier()
    wrong = _changed(data.epoch([[0, 1], [2, 1]]), "Item.kind", lambda x: x + 1)
    _fails(lambda: jax.lax.scan(lambda c, b: (c, score(P, b)), 0, wrong), "Item.kind")


def test_the_first_call_under_jit_is_checked_too():
    f = ab.batched(lambda t: sum(range(t.kind)) + t.x)
    data = f.pack(items())
    changed = _changed(data, "Item.kind", lambda x: x + 1)
    _fails(lambda: jax.jit(f)(changed), "Item.kind")
    fresh = ab.batched(lambda t: sum(range(t.kind)) + t.x)
    data = fresh.pack(items())
    shifted = jax.tree.map(lambda x: x + 1 if x.dtype == np.int32 and x.ndim == 0 else x, data)
    with pytest.raises(Exception, match="stale plan|given up"):
        jax.block_until_ready(jax.jit(fresh)(shifted))
        jax.effects_barrier()


def test_functions_that_mask_failures_are_checked():
    f = ab.batched(lambda t: 6 // t.kind, on_error="mask", backend="xla")
    data = f.pack(items())
    f(data)
    changed = _changed(data, "Item.kind", lambda x: x + 1)
    with pytest.raises(ab.PlanError, match="stale plan"):
        f(changed)


def test_examples_that_are_numbers():
    f = ab.batched(lambda n, x: sum(range(n)) * x)
    pairs = f.pack([3, 1, 2], [1.0, 2.0, 3.0])
    close(f(*pairs.args), [3, 0, 3])
    (column,) = [n for n in pairs.floats()]
    doubled = jax.jit(lambda b: f(*b.with_floats({column: 2 * b.floats()[column]}).args))(pairs)
    close(doubled, [6, 0, 6])
    name = next(n for n in pairs.parts()[0].columns if n.endswith("argument0"))
    _fails(lambda: jax.jit(lambda b: f(*b.args))(_changed(pairs, name, lambda x: x + 1)), name)


# ---- what the check costs


def test_the_check_is_one_report_that_is_called_on_failure_only():
    data = score.pack(items())
    score(P, data)
    text = str(jax.make_jaxpr(lambda b: score(P, b))(data))
    assert text.count("autobatch_report[") == 1 and " cond[" in text


def test_without_reports_a_stale_plan_gives_no_numbers():
    data = score.pack(items())
    score(P, data)
    with ab.options(check_plans=False):
        quiet = jax.jit(lambda b: score(P, b))
        assert "autobatch_report" not in str(jax.make_jaxpr(lambda b: score(P, b))(data))
        close(quiet(data), score.loop(P, items()))
        changed = _changed(data, "Item.kind", lambda x: x + 1)
        assert np.isnan(np.asarray(quiet(changed))).all()
        with pytest.raises(ab.PlanError, match="stale plan"):
            score(P, changed)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 70_001])
def test_words_are_summed_alike_by_machine_code_and_numpy(count):
    words = np.random.default_rng(count).integers(0, 2**32, count, np.uint32)
    assert int(checksum(words.view(np.int32))) == int(mixed_sum(words, np))
