"""The order of the keys of a dict is a part of the program only where the function runs over them."""

import itertools
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import autobatch as ab
from examples.trees.binary import encode as encode_
from examples.trees.binary import parameters
from examples.trees.data import Phrase
from tests.api import nodes
from tests.api.nodes import close

X = jnp.arange(3.0)
P = {"w": jnp.float32(2), "b": jnp.float32(3), "emb": jnp.float32(5)}


def reordered(table):
    """The same dict in every order of its keys."""
    return [{k: table[k] for k in names} for names in itertools.permutations(table)]


def same(found, expected):
    found = ab.unbatch(found)
    assert [jax.tree.structure(x) for x in found] == [jax.tree.structure(x) for x in expected]
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, dict):
            assert list(a) == list(b)
        np.testing.assert_allclose(jax.tree.leaves(a), jax.tree.leaves(b), rtol=1e-6)


# ---- functions that only look keys up


def helper(p, x):
    return p["w"] * x + p["b"]


LOOKUPS = {
    "subscript": lambda p, x: p["w"] * x - p["b"],
    "helper": lambda p, x: helper(p, x) - p["b"],
    "get": lambda p, x: p.get("w") * x - p["b"] + p.get("none", 1.0),
    "in": lambda p, x: p["w"] * x if "b" in p and "c" not in p else x,
    "length": lambda p, x: p["w"] * x + len(p) if p else x,
    "carried": lambda p, x: [p["w"] * k + x for k in range(2)],
    "lambda": lambda p, x: (lambda k: p["w"] * x - p[k])("b"),
    "equal": lambda p, x: p["w"] * x if p != {} else x,
    "isinstance": lambda p, x: p["w"] * x if isinstance(p, dict) else x,
}


@pytest.mark.parametrize("way", LOOKUPS)
def test_a_function_that_looks_keys_up_is_one_program(way):
    f = ab.batched(LOOKUPS[way], in_axes=(None, 0), backend="xla")
    expected = f.loop(P, X)
    within = jax.jit(lambda p: f(p, X))
    for p in reordered(P)[::2]:
        same(f(p, X), expected)
        same(within(p), expected)
    assert f.cache_info().specialisations == f.cache_info().executables == 1


# ---- functions that run over a dict


def by_loop(p, x):
    total = x
    for k in p:
        total = 2 * total + p[k]
    return total


def by_items(p, x):
    total = x
    for k, value in p.items():
        total = 2 * total + value * len(k)
    return total


def by_unpacking(p, x):
    first, second, third = p
    return p[first] * x - p[second] + p[third]


def by_matching(p, x):
    match p:
        case {"w": w, **rest}:
            return [w * x, *rest.values()]
    return [x]


ITERATIONS = {
    "loop": by_loop,
    "items": by_items,
    "unpacking": by_unpacking,
    "matching": by_matching,
    "values": lambda p, x: jnp.stack(list(p.values())) * x,
    "keys": lambda p, x: p[list(p.keys())[0]] * x,
    "list": lambda p, x: p[list(p)[-1]] * x,
    "tuple": lambda p, x: p[tuple(p)[1]] * x,
    "next": lambda p, x: p[[k for k in p][0]] * x,
    "enumerate": lambda p, x: sum([k * p[n] for k, n in enumerate(p)]) * x,
    "zip": lambda p, x: sum([k * value for k, value in zip((1.0, 4.0, 16.0), p.values(), strict=True)]) * x,
    "returned": lambda p, x: p,
    "in a tuple": lambda p, x: (x, p),
    "comprehension": lambda p, x: {k: p[k] * x for k in p},
    "spread": lambda p, x: {**p, "x": x},
    "dict": lambda p, x: dict(p, x=x),
    "stacked": lambda p, x: jnp.stack([*p.values()]) * x,
    "sum": lambda p, x: x * sum([k * w for k, w in enumerate(p.values())]),
    "mapped": lambda p, x: jax.tree.map(lambda w: w * x, p),
    "traced": lambda p, x: jax.vmap(lambda k: jnp.stack(list(p.values())) * k)(jnp.stack([x, x])),
    "helper": lambda p, x: by_loop(p, x),
    "closure": lambda p, x: (lambda y: by_items(p, y))(x),
    "text": lambda p, x: x * len(str(list(p))) + (p["w"] if list(p)[0] == "w" else p["b"]),
    "reversed": lambda p, x: p[list(reversed(list(p)))[0]] * x,
    "sorted": lambda p, x: p[sorted(p, key=len)[0]] * x,
    "maximum": lambda p, x: p[max(p, key=len)] * x + p[min(p, key=len)],
}


@pytest.mark.parametrize("way", ITERATIONS)
def test_a_function_that_runs_over_a_dict_meets_its_order(way):
    f = ab.batched(ITERATIONS[way], in_axes=(None, 0))
    orders = reordered(P)[1::2]
    for p in [*orders, *orders]:
        same(f(p, X), f.loop(p, X))
    assert f.cache_info().specialisations == 3
    p = orders[-1]
    assert list(p) != sorted(p)
    same(jax.jit(lambda p: f(p, X))(p), f.loop(dict(sorted(p.items())), X))


def whole(p, x):
    total = x
    for k in p:
        total = 2 * total + p[k]
    return total


jitted = jax.jit(whole)
TRANSFORMED = {
    "jit": lambda p, x: jitted(p, x),
    "jit here": lambda p, x: jax.jit(whole)(p, x),
    "vmap": lambda p, x: jax.vmap(whole, (None, 0))(p, jnp.stack([x, x])),
    "checkpoint": lambda p, x: jax.checkpoint(whole)(p, x),
}
NOT_TAKEN_APART = {
    "grad": lambda p, x: jax.grad(whole, argnums=1)(p, x) + jax.grad(lambda x: whole(p, x) * x)(x),
    "closure of jit": lambda p, x: jax.jit(lambda y: whole(p, y))(x),
    "closure of vmap": lambda p, x: jax.vmap(lambda y: whole(p, y))(jnp.stack([x, x])),
    "named": lambda p, x: jax.named_call(whole, name="whole")(p, x),
}


@pytest.mark.parametrize("way", TRANSFORMED)
def test_jax_sorts_the_keys_of_what_it_takes_apart(way):
    f = ab.batched(TRANSFORMED[way], in_axes=(None, 0))
    for p in reordered(P)[1::2]:
        same(f(p, X), f.loop(p, X))
    assert f.cache_info().specialisations == 1


@pytest.mark.parametrize("way", NOT_TAKEN_APART)
def test_what_jax_does_not_take_apart_keeps_its_order(way):
    f = ab.batched(NOT_TAKEN_APART[way], in_axes=(None, 0))
    for p in reordered(P)[1::2]:
        same(f(p, X), f.loop(p, X))


def test_a_static_dict_is_run_over_too():
    @ab.batched(in_axes=(None, 0))
    def f(settings, x):
        names = ",".join(list(settings))
        return x * 2 if names.startswith("a") else x * 3 + len(settings["a"])

    for settings in ({"a": "one", "b": "two"}, {"b": "two", "a": "one"}):
        close(f(settings, X), f.loop(settings, X))
    assert f.cache_info().specialisations == 2


def test_only_the_dicts_that_are_run_over_count():
    @ab.batched(in_axes=(None, 0))
    def f(p, x):
        for w in p["layers"].values():
            x = w * x + p["b"]
        return x

    inner, swapped = {"u": jnp.float32(2), "v": jnp.float32(3)}, {"v": jnp.float32(3), "u": jnp.float32(2)}
    for layers in (inner, swapped):
        for p in ({"layers": layers, "b": jnp.float32(1)}, {"b": jnp.float32(1), "layers": layers}):
            close(f(p, X), f.loop(p, X))
    assert f.cache_info().specialisations == 2


class Pair(NamedTuple):
    table: dict[str, Any]
    scale: Any


@jax.tree_util.register_dataclass
@dataclass
class Model:
    table: dict[str, Any]
    scale: Any


class Plain:
    def __init__(self, table, scale):
        self.table, self.scale = table, scale

    @property
    def names(self):
        return list(self.table)


@pytest.mark.parametrize("make", [Pair, Model, Plain])
def test_dicts_inside_of_other_containers(make):
    @ab.batched(in_axes=(None, 0))
    def looked_up(m, x):
        return m.table["w"] * x - m.table["b"] * m.scale

    @ab.batched(in_axes=(None, 0))
    def run_over(m, x):
        return jnp.stack(list(m.table.values())) * x

    for table in reordered(P):
        m = make(table, jnp.float32(7))
        close(looked_up(m, X), looked_up.loop(m, X))
        close(run_over(m, X), run_over.loop(m, X))
    assert looked_up.cache_info().specialisations == 1


def test_a_property_that_runs_over_a_static_dict():
    f = ab.batched(lambda m, x: x * 2 if m.names[0] == "w" else x * 3, in_axes=(None, 0))
    for table in ({"w": "one", "b": "two"}, {"b": "two", "w": "one"}):
        m = Plain(table, "none")
        close(f(m, X), f.loop(m, X))


def test_one_dict_at_two_places():
    @ab.batched(in_axes=(None, None, 0))
    def f(a, b, x):
        return x * 2 if list(a)[0] == "w" else x * len(b["w"])

    one, other = {"w": "word", "b": "two"}, {"b": "two", "w": "word"}
    for a, b in ((one, one), (other, one), (other, other), (one, other)):
        close(f(a, b, X), f.loop(a, b, X))


def test_dicts_of_other_classes_keep_their_order_as_jax_does():
    f = ab.batched(lambda p, x: p["w"] * x - p["b"], in_axes=(None, 0))
    for make in (OrderedDict, lambda p: defaultdict(float, p)):
        for p in map(make, reordered(P)):
            close(f(p, X), f.loop(p, X))
            close(jax.jit(f)(p, X), f.loop(p, X))


def test_keys_that_cannot_be_compared():
    f = ab.batched(lambda p, x: p[1] * x - p["b"], in_axes=(None, 0))
    g = ab.batched(lambda p, x: jnp.stack(list(p.values())) * x, in_axes=(None, 0))
    for p in reordered({"w": jnp.float32(2), 1: jnp.float32(3), "b": jnp.float32(5), (2, "u"): jnp.float32(7)})[::7]:
        close(f(p, X), f.loop(p, X))
        close(g(p, X), g.loop(p, X))
    assert f.cache_info().specialisations == 1


def test_keys_that_look_alike():
    class Name:
        def __repr__(self):
            return "name"

    one, other = Name(), Name()
    f = ab.batched(lambda p, x: jnp.stack([len(v) * x for v in p[one].values()]), in_axes=(None, 0))
    for inner in ({"u": "1", "v": "22"}, {"v": "22", "u": "1"}):
        for p in ({one: inner, other: {"u": "", "v": ""}}, {other: {"u": "", "v": ""}, one: inner}):
            close(f(p, X), f.loop(p, X))


# ---- batched dicts, axes


def test_batched_dicts_in_any_order_are_one_program():
    f = ab.batched(lambda d: d["a"] + 10 * d["b"])
    g = ab.batched(lambda d: jnp.stack(list(d.values())))
    d = {"a": X, "b": X + 1}
    for table in (d, {"b": X + 1, "a": X}, d):
        close(f(table), f.loop(table))
        close(g(table), g.loop(table))
    assert f.cache_info().specialisations == 1 and g.cache_info().specialisations == 2


def test_axes_go_to_the_keys_that_they_name():
    f = ab.batched(lambda d: d["a"] * d["b"], in_axes=({"a": None, "b": 0},))
    close(f({"b": X, "a": jnp.float32(2)}), 2 * X)
    close(f({"a": jnp.float32(2), "b": X}), 2 * X)
    assert f.cache_info().specialisations == 1


# ---- training


@ab.batched(in_axes=(None, 0), backend="xla")
def score(p, t):
    if t.left is None:
        return p["w"] * t.x + p["b"]
    return jnp.tanh(score(p, t.left) * p["w"] + score(p, t.right)) + p["b"]


def test_one_program_and_one_plan_for_training():
    p, data = {"w": jnp.float32(0.3), "b": jnp.float32(0.1)}, score.pack(nodes.trees() * 2)
    rate = optax.sgd(0.01)
    state = rate.init(p)
    step = jax.jit(lambda p, batch: (score(p, batch), optax.apply_updates(p, rate.update(p, state)[0])))
    close(score(p, data), score.loop(p, nodes.trees() * 2))
    found, moved = step(p, data)
    assert list(moved) != list(p)
    close(found, score(p, data))
    close(score(moved, data), score.loop(moved, nodes.trees() * 2))
    epoch = data.epoch(np.arange(6).reshape(3, 2))
    _, found = jax.lax.scan(lambda p, batch: (p, score(p, batch)), p, epoch)
    close(found.reshape(-1), score.loop(p, nodes.trees() * 2))
    assert score.cache_info().specialisations == score.cache_info().plans == 1


def test_parameters_of_an_example_under_jit():
    leaves, encode = [Phrase(k, k) for k in range(2)], ab.batched(encode_.__wrapped__, in_axes=(None, 0), backend="xla")
    p, data = parameters(5, 3, 2), encode.pack([leaves[0], Phrase(2, -1, *leaves)])
    assert list(p) != sorted(p)
    before = encode.cache_info()
    close(encode(p, data)[2], encode(jax.tree.map(lambda x: x, p), data)[2])
    jax.eval_shape(jax.grad(lambda p: encode(p, data)[2].sum()), p)
    jax.eval_shape(encode, p, data)
    after = encode.cache_info()
    assert after.specialisations == before.specialisations + 1
    assert after.plans == before.plans + after.specialisations, "a batch that is an argument has a plan for each"


def test_gradients_have_the_keys_that_were_given():
    f = ab.batched(lambda p, x: p["w"] * x * x - p["b"] * x, in_axes=(None, 0))
    known = None
    for p in reordered(P):
        grads = ab.grad(f)(p, X)
        assert list(grads) == list(p)
        close([grads["w"], grads["b"], grads["emb"]], [np.sum(X**2), -np.sum(X), 0])
        tangents = {k: jnp.float32(n) for n, k in enumerate(sorted(p))}
        _, moved = ab.jvp(f, (p, X), ({k: tangents[k] for k in reversed(list(p))}, None))
        close(moved, 2 * X**2 - 0 * X)
        each = ab.per_example_grad(f)(p, X)
        assert list(each) == list(p)
        close(each["w"], X**2)
        _, pull = ab.vjp(f, p, X)
        close(pull(np.ones(3, np.float32))[0]["w"], np.sum(X**2))
        known = known or f.cache_info()
    assert f.cache_info() == known


def test_the_log_tells_whose_order_has_changed(caplog):
    f = ab.batched(by_loop, in_axes=(None, 0))
    with caplog.at_level("INFO", "autobatch"):
        for p in reordered(P)[:2]:
            f(p, X)
    assert "the keys of p have another order" in caplog.text
