"""Section 4 of the API, claim by claim: reverse mode, structure of cotangents, errors."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import Node, chain, close, depth, params, total, trees
from tests.api.page.gradients import agree, numbers, of_loop


@dataclass
class Item:
    x: float
    word: int
    name: str
    v: np.ndarray
    kids: list[Item]


def item(x: float, *kids: Item) -> Item:
    return Item(x, 3, "a", np.array([x, 2 * x], np.float32), list(kids))


ITEMS = [item(1.0), item(2.0, item(3.0), item(0.5, item(1.5)))]
FOREST = [Node(1.0), Node(2.0, Node(3.0), Node(4.0)), chain(4)]


@ab.batched(in_axes=(None, 0))
def energy(p, t):
    """A number that is not linear in anything."""
    if t.left is None:
        return jnp.sin(p["w"] * t.x)
    return energy(p, t.left) * p["w"] + jnp.tanh(energy(p, t.right) + t.x)


@ab.batched(in_axes=(None, 0))
def many(p, t):
    """A result of every kind."""
    below = [many(p, k) for k in t.kids]
    return {
        "scalar": p * t.x * (1.0 + sum(b["scalar"] for b in below)),
        "array": t.v * p,
        "count": len(below),
        "list": [p * k.x * k.x for k in t.kids],
        "node": t,
        "name": t.name,
    }


def scaled(w, x):
    return w * x


double = ab.batched(scaled, in_axes=(None, 0))


# ---- vjp


def test_vjp_gives_the_result_and_a_pullback_with_one_entry_for_each_argument():
    out, pull = ab.vjp(energy, params(0.7), FOREST)
    close(out, energy(params(0.7), FOREST))
    dp, dtrees = pull(jnp.ones(3))
    shared, inside = of_loop(energy, params(0.7), FOREST)
    close(dp["w"], shared["w"])
    agree(dtrees, inside, FOREST)


def test_a_cotangent_has_the_structure_of_the_result_or_is_a_list_with_one_for_each_example():
    out, pull = ab.vjp(many, 0.5, ITEMS)
    ct = [
        {"scalar": 2.0, "array": np.ones(2), "count": None, "list": [3.0] * len(t.kids), "node": t, "name": object()}
        for t in ITEMS
    ]

    def weigh(r):
        own = sum(k * k for k in _floats(r["node"]))  # the cotangent of a node: twice its floats
        return 2 * r["scalar"] + r["array"].sum() + 3 * sum(r["list"]) + own / 2

    found = pull(ct)
    shared, inside = of_loop(many, 0.5, ITEMS, weigh)
    close(found[0], shared)
    agree(found[1], inside, ITEMS)
    ones = {**jax.tree.map(jnp.ones_like, {k: out[k] for k in ("scalar", "array")}), "count": None, "name": 3}
    ragged = ab.Ragged(jnp.ones_like(out["list"].values), out["list"].offsets)
    same = pull([{**c, "scalar": 1.0, "list": [1.0] * len(t.kids)} for c, t in zip(ct, ITEMS)])
    whole = pull({**ones, "list": ragged, "node": out["node"]})
    close(same[0], whole[0])
    assert jax.tree.all(jax.tree.map(np.allclose, same[1].floats(), whole[1].floats()))


def test_cotangents_of_lists_of_lists_by_example():
    """Of a Ragged in a Ragged too, whose inner lists have capacity for more."""
    f = ab.batched(lambda w, t: [[w * w * j.x for j in k.kids] for k in t.kids], in_axes=(None, 0))
    out, pull = ab.vjp(f, jnp.float32(0.5), ITEMS)
    given = [[[3.0 * (1 + n) for n, _ in enumerate(k.kids)] for k in t.kids] for t in ITEMS]
    dw, ditems = pull(given)
    shared, inside = of_loop(
        f, jnp.float32(0.5), ITEMS, lambda r: 3 * sum(x * (1 + n) for k in r for n, x in enumerate(k))
    )
    close(dw, shared)
    agree(ditems, inside, ITEMS)
    with pytest.raises(ab.BatchError, match="list 1: a list was given for a list of 1"):
        pull([given[0], [[], [1.0, 2.0]]])


def _floats(node):
    return [x for row in numbers([node]) for value in row for x in (value if np.ndim(value) else [value])]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scalar": None}, r"\['scalar'\]: nothing was given for floats"),
        ({"array": np.ones(3)}, r"\['array'\]: floats of shape \(3,\) were given"),
        ({"list": []}, r"\['list'\]: example 1: a list was given for a list of 2"),
        ({"node": None}, r"\['node'\].*nothing was given for a float"),
    ],
)
def test_a_float_without_a_cotangent_is_an_error(change, words):
    _, pull = ab.vjp(many, 0.5, ITEMS)
    good = {"scalar": 1, "array": 0.0, "count": 1, "list": [], "node": ITEMS[0], "name": None}
    full = {**good, "list": [0.0, 1], "node": ITEMS[1]}
    pull([good, full])
    with pytest.raises(ab.BatchError, match=words):
        pull([good, {**full, **change}])
    with pytest.raises(ab.BatchError, match="1 were given for 2 examples"):
        pull([good])


def test_entries_of_shared_arguments_have_their_structure():
    """Summed over the batch; None for what has no derivative; zeros for what does not reach the output."""
    f = ab.batched(lambda p, x: p["w"] * x * p["n"] + len(p["name"]) + len(p["numpy"]), in_axes=(None, 0))
    p = {
        "numpy": np.str_("a"),
        "w": 2.0,
        "unused": np.ones((2, 3)),
        "n": 3,
        "name": "abc",
        "deep": (None, [True, jnp.float32(1)]),
    }
    _, pull = ab.vjp(f, p, np.arange(4.0))
    dp, dx = pull(jnp.ones(4))
    close(dp["w"], 18.0)
    assert dp["unused"].shape == (2, 3) and not dp["unused"].any()
    assert (
        dp["n"] is None
        and dp["name"] is None
        and dp["numpy"] is None
        and dp["deep"][0] is None
        and dp["deep"][1][0] is None
    )
    assert list(dp) == list(p) and dp["deep"][1][1] == 0.0
    close(dx, [6.0] * 4)


def test_a_container_that_stands_twice_has_a_gradient_in_each_place_as_in_jax():
    layer = {"w": jnp.float32(2.0)}
    f = ab.batched(lambda p, x: p["a"]["w"] ** 2 * p["b"]["w"] * x, in_axes=(None, 0))
    found = ab.grad(f)({"a": layer, "b": layer}, np.ones(3))
    expected = jax.grad(lambda p: f(p, np.ones(3)).sum())({"a": layer, "b": layer})
    close(found["a"]["w"], expected["a"]["w"])
    close(found["b"]["w"], expected["b"]["w"])


def test_entries_of_batched_arguments():
    """A Batch for a list and a Batch, stacked arrays for stacked arrays, on their axis."""
    f = ab.batched(lambda w, t, a, c: w * t.x * a @ c["k"] * c["n"], in_axes=(None, 0, 1, 0))
    a, c = np.arange(6.0).reshape(2, 3), {"k": np.arange(6.0).reshape(3, 2), "n": np.arange(3)}
    for given in (FOREST, ab.pack(FOREST)):
        _, pull = ab.vjp(f, 2.0, given, a, c)
        _, dt, da, dc = pull([1.0, 1.0, 1.0])
        assert isinstance(dt, ab.Batch) and da.shape == (2, 3) and dc["k"].shape == (3, 2) and dc["n"] is None
        roots = np.array([t.x for t in FOREST])
        close(da.T, 2 * (roots * c["n"])[:, None] * c["k"])
        close([t.x for t in ab.unbatch(dt)], 2 * (a.T * c["k"]).sum(1) * c["n"])
    assert dt.floats().keys() == given.floats().keys()
    moved = given.with_floats(jax.tree.map(lambda x, g: x - 0.1 * g, given.floats(), dt.floats()))
    close(moved[0].x, FOREST[0].x - 0.1 * ab.unbatch(dt)[0].x)


def test_leaves_without_derivative_are_none_in_objects():
    (found,) = ab.unbatch(ab.vjp(many, 0.5, ITEMS[1:])[1]([{**_zeros(2), "node": ITEMS[1]}])[1])
    assert isinstance(found, Item) and found.word is None and found.name is None and found.kids[0].word is None
    close(found.v, ITEMS[1].v)


def _zeros(kids):
    return {"scalar": 0, "array": 0.0, "count": None, "list": [0] * kids, "name": None}


def test_an_object_used_twice_has_one_gradient_wherever_it_appears():
    leaf = Node(0.5)
    inner = Node(2.0, leaf, leaf)
    batch = [Node(1.0, inner, inner), leaf]  # the leaf of the second example is another one
    found = ab.unbatch(ab.grad(energy, argnums=1)(params(0.7), batch))
    assert found[0].left is found[0].right and found[0].left.left is found[0].left.right
    agree(ab.grad(energy, argnums=1)(params(0.7), batch), of_loop(energy, params(0.7), batch)[1], batch)


def test_two_arguments_that_were_packed_together():
    f = ab.batched(lambda p, a, b: energy(p, a) * energy(p, b), in_axes=(None, 0, 0))
    shared = Node(0.5)
    left, right = [Node(1.0, shared, Node(2.0)), Node(0.3)], [Node(3.0, Node(1.0), shared), Node(0.2)]
    pairs = f.pack(left, right)
    for args in ((left, right), pairs.args):
        dp, da, db = ab.grad(f, argnums=(0, 1, 2))(params(0.7), *args)
        a, b = ab.unbatch(da), ab.unbatch(db)
        assert a[0].left.x == b[0].right.x, "one object, one gradient"
        step = 1e-2
        more = [Node(1.0, Node(0.5 + step), Node(2.0)), left[1]], [Node(3.0, Node(1.0), Node(0.5 + step)), right[1]]
        less = [Node(1.0, Node(0.5 - step), Node(2.0)), left[1]], [Node(3.0, Node(1.0), Node(0.5 - step)), right[1]]
        slope = (f(params(0.7), *more).sum() - f(params(0.7), *less).sum()) / (2 * step)
        np.testing.assert_allclose(a[0].left.x, slope, rtol=1e-2)


# ---- grad, value_and_grad


def test_grad_is_the_derivative_of_the_sum():
    values, found = ab.value_and_grad(energy)(params(0.7), FOREST)
    close(values, energy(params(0.7), FOREST))
    close(found["w"], jax.grad(lambda p: energy(p, FOREST).sum())(params(0.7))["w"])
    close(found["w"], ab.grad(energy)(params(0.7), FOREST)["w"])


def test_argnums_is_an_int_or_a_tuple():
    one = ab.grad(energy, argnums=1)(params(0.7), FOREST)
    dtrees, dp = ab.grad(energy, argnums=(1, 0))(params(0.7), FOREST)
    assert jax.tree.all(jax.tree.map(np.allclose, one.floats(), dtrees.floats()))
    close(dp["w"], ab.grad(energy, argnums=-2)(params(0.7), FOREST)["w"])
    close(dp["w"], ab.grad(energy, argnums=np.int64(0))(params(0.7), FOREST)["w"])
    with pytest.raises(ab.BatchError, match="argnums=2, but the call has 2"):
        ab.grad(energy, argnums=2)(params(0.7), FOREST)


def test_has_aux():
    f = ab.batched(lambda p, t: (p["w"] * t.x, {"name": "leaf" if t.left is None else "inner"}), in_axes=(None, 0))
    found, aux = ab.grad(f, has_aux=True)(params(), FOREST)
    (values, again), same = ab.value_and_grad(f, has_aux=True)(params(), FOREST)
    assert ab.unbatch(aux) == ab.unbatch(again) == [{"name": "leaf"}, {"name": "inner"}, {"name": "inner"}]
    close(values, [2 * t.x for t in FOREST])
    assert found["w"] == same["w"] == sum(t.x for t in FOREST)
    with pytest.raises(ab.BatchError, match="returns a tuple"):
        ab.grad(f)(params(), FOREST)
    with pytest.raises(ab.BatchError, match="returns a pair"):
        ab.grad(energy, has_aux=True)(params(), FOREST)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda w, x: 3, r"returns int32\[\]"),
        (lambda w, x: jnp.int32(w) * 2, r"returns int32\[\]"),
        (lambda w, x: w * jnp.ones(3), r"returns float32\[3\]"),
        (lambda w, x: [w, w], "returns a list"),
        (lambda w, x: None, "returns None for one"),
        (lambda w, x: w > 1, r"returns bool\[\]"),
        (lambda w, x: jnp.float16(w), r"returns float16\[\]"),
    ],
)
def test_what_is_no_float_has_no_gradient(body, words):
    with pytest.raises(ab.BatchError, match=words):
        ab.grad(ab.batched(body, in_axes=(None, 0)))(2.0, np.ones(2))


def test_a_path_without_a_number_is_named():
    """As a `match` is that has no `case _`."""

    @ab.batched(in_axes=(None, 0))
    def some(p, t):
        if t.left is None:
            return p["w"] * t.x

    with pytest.raises(ab.BatchError, match="some returns None on some path for one example"):
        ab.grad(some)(params(), FOREST)


def test_a_gradient_by_an_integer_names_the_argument():
    with pytest.raises(ab.BatchError, match="argument 1 is an integer"):
        ab.grad(double, argnums=1)(2.0, np.arange(3))
    with pytest.raises(ab.BatchError, match="argument 0 is an integer"):
        ab.grad(double)(2, np.arange(3.0))
    fixed = ab.batched(lambda w, n, x: w * x * n, in_axes=(None, None, 0), static="n")
    with pytest.raises(ab.BatchError, match=r"argument 1 \(n\) is named in static"):
        ab.grad(fixed, argnums=1)(2.0, 3.0, np.ones(2))
    with pytest.raises(ab.BatchError, match="argument 0 is a str"):
        ab.grad(lambda s, x: x)("a", 2.0)
    with pytest.raises(ab.BatchError, match=r"depth returns int32\[\]"):
        ab.grad(depth)(trees())


def test_a_constant_result_has_a_gradient_of_zeros():
    assert ab.grad(ab.batched(lambda w, x: 1.0, in_axes=(None, 0)))(2.0, np.ones(2)) == 0.0
    assert ab.grad(ab.batched(lambda w, x: x * 1.0, in_axes=(None, 0)))(2.0, np.ones(2)) == 0.0


def test_control_is_constant_the_derivative_is_that_of_the_path_taken():
    @ab.batched(in_axes=(None, 0))
    def path(w, t):
        return w * t.x if t.x < 2 else w * w

    close(ab.grad(path)(3.0, [Node(1.0), Node(5.0)]), 1.0 + 6.0)
    close([t.x for t in ab.unbatch(ab.grad(path, argnums=1)(3.0, [Node(1.0), Node(5.0)]))], [3.0, 0.0])


def test_keywords_methods_statics_and_integers_that_decide_structure():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @ab.batched(in_axes={"w": None, "t": 0, "deep": None, "kind": None}, static=("kind",))
        def value(self, w, t, deep, kind="sum"):
            if deep == 0 or t.left is None:
                return self.scale * w * t.x
            return self.value(w, t.left, deep - 1, kind) + w * w

    model = Model(2.0)
    for deep in (1, 2):
        expected = jax.grad(lambda w: sum(model.value.loop(w, FOREST, deep, kind="max")))(0.7)
        close(ab.grad(model.value)(0.7, FOREST, deep, kind="max"), expected)
        close(ab.grad(model.value)(0.7, t=FOREST, kind="max", deep=deep), expected)


def test_an_empty_batch_has_zeros():
    ab.grad(energy)(params(), FOREST)
    dp, dtrees = ab.grad(energy, argnums=(0, 1))(params(), [])
    assert dp["w"] == 0.0 and len(dtrees) == 0 and ab.unbatch(dtrees) == []


def test_failed_examples_have_no_gradient():
    @ab.batched(in_axes=(None, 0), on_error="mask")
    def first(w, t):
        return w * t.kids[0].x ** 2

    (values, failures), (dw, ditems) = ab.value_and_grad(first, argnums=(0, 1))(2.0, ITEMS)
    assert failures.failed.tolist() == [True, False]
    close(values, [0.0, 18.0])
    close(dw, 9.0)
    assert ab.unbatch(ditems)[0].x == 0.0 and ab.unbatch(ditems)[1].kids[0].x == 12.0
    raising = ab.batched(first.__wrapped__, in_axes=(None, 0))
    with pytest.raises(ab.ExampleError, match="IndexError"):
        ab.grad(raising)(2.0, ITEMS)


def test_examples_that_fail_on_the_device_have_no_gradient():
    """Whichever way it is asked for."""

    @ab.batched(in_axes=(None, 0), on_error="mask")
    def logarithm(w, t):
        y = jnp.log(w * t.x)
        assert y == y, "not a number"
        return y

    w, batch = jnp.float32(0.5), [Node(1.0), Node(-1.0), Node(2.0)]
    (values, failures), dw = ab.value_and_grad(logarithm)(w, batch)
    assert failures.failed.tolist() == [False, True, False] and values[1] == 0.0
    close(dw, 4.0)
    close(jax.grad(lambda w: logarithm(w, batch)[0].sum())(w), 4.0)
    close(ab.vjp(logarithm, w, batch)[1]([1.0, 1.0, 1.0])[0], 4.0)
    close(ab.hvp(logarithm, (w, batch), (1.0, None)), -8.0)
    close(ab.per_example_grad(logarithm)(w, batch), [2.0, 0.0, 2.0])


def test_nan_stays_in_the_gradient_of_its_example():
    batch = [Node(2.0), Node(-1.0), Node(3.0)]
    found = ab.unbatch(ab.grad(_logs, argnums=1)(1.0, batch))
    assert np.isnan(found[1].x)
    close([found[0].x, found[2].x], [1 / 2, 1 / 3])
    each = ab.per_example_grad(_logs)(2.0, batch)
    assert np.isnan(each).tolist() == [False, True, False]


@ab.batched(in_axes=(None, 0))
def _logs(w, t):
    return jnp.sqrt(jnp.log(w * t.x) + 2.0) ** 2


def test_a_batch_that_was_planned_for_another_function():
    data = ab.pack(FOREST).plan(total)
    close(ab.grad(energy)(params(0.7), data)["w"], ab.grad(energy)(params(0.7), FOREST)["w"])
    fresh = ab.batched(energy.__wrapped__, in_axes=(None, 0))
    close(
        jax.jit(ab.grad(fresh))(params(0.7), ab.pack(FOREST).plan(total))["w"], ab.grad(energy)(params(0.7), data)["w"]
    )


def test_floats_that_decided_structure_are_named_where_they_changed():
    @ab.batched(in_axes=(None, 0))
    def path(w, t):
        return w * t.x if t.x < 2 else path(w, t.left)

    data = ab.pack([Node(1.0), Node(5.0, Node(1.5))]).plan(path)
    ab.grad(path)(3.0, data)
    changed = jax.tree.map(lambda x: x + 1.0, data.floats())
    step = jax.jit(lambda b, x: ab.grad(path)(3.0, b.with_floats(x)))
    step(data, data.floats())
    with pytest.raises(Exception, match=r"stale plan: column Node\.x"):
        jax.block_until_ready(step(data, changed))
        jax.effects_barrier()


# ---- one executable


def test_a_value_with_its_gradient_is_one_executable_that_is_compiled_once():
    f = ab.batched(energy.__wrapped__, in_axes=(None, 0), backend="xla")
    data = ab.pack(FOREST).plan(f)
    both = ab.value_and_grad(f)
    compiled: list[str] = []

    def noted(event: str, *_: float, **__: str | int) -> None:
        compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(noted)
    try:
        both(params(0.5), data)
        assert compiled and f.cache_info().executables == 1
        compiled.clear()
        both(params(0.7), data)
        ab.value_and_grad(f)(params(0.9), data)
    finally:
        jax.monitoring.unregister_event_duration_listener(noted)
    assert not compiled, "the second call traces and compiles nothing"
    assert f.cache_info().executables == 1


def test_under_jit():
    data = ab.pack(FOREST).plan(energy)
    expected = ab.value_and_grad(energy, argnums=(0, 1))(params(0.7), data)
    values, (dp, dtrees) = jax.jit(ab.value_and_grad(energy, argnums=(0, 1)))(params(0.7), data)
    close(values, expected[0])
    close(dp["w"], expected[1][0]["w"])
    agree(dtrees, numbers(ab.unbatch(expected[1][1])), FOREST)


def test_the_reference_back_end_agrees():
    expected = ab.grad(energy, argnums=(0, 1))(params(0.7), FOREST)
    with ab.options(backend="interpret"):
        found = ab.grad(energy, argnums=(0, 1))(params(0.7), FOREST)
    close(found[0]["w"], expected[0]["w"])
    agree(found[1], numbers(ab.unbatch(expected[1])), FOREST)
