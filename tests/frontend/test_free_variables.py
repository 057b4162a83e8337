"""What a function reads of free variables: a change is seen at the next call, and arrays may be tracers."""

from __future__ import annotations

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

X = np.arange(1, 4, dtype=np.float32)


class Model:
    factor = 2

    def __init__(self, w=1):
        self.w, self.items, self.table = w, [1, 2], {"a": 1}

    def __call__(self, x):
        return x * self.w

    @property
    def shifted(self):
        return self.w + 1


# each row: what is read, how it is changed, the function that reads it
CHANGES = {
    "truth of a list": (list, lambda o: o.append(1), lambda o: lambda x: x * 2 if o else x),
    "truth of a dict": (dict, lambda o: o.update(a=1), lambda o: lambda x: x * 2 if o else x),
    "hasattr": (Model, lambda o: setattr(o, "z", 1), lambda o: lambda x: x * 2 if hasattr(o, "z") else x),
    "default": (Model, lambda o: setattr(o, "z", 5), lambda o: lambda x: x * getattr(o, "z", 1)),
    "in a set": (lambda: {1, 2}, lambda o: o.add(3), lambda o: lambda x: x * 2 if 3 in o else x),
    "in a list": (lambda: [1, 2], lambda o: o.append(3), lambda o: lambda x: x * 2 if 3 in o else x),
    "not in a dict": (lambda: {"a": 1}, lambda o: o.update(b=3), lambda o: lambda x: x * 2 if "b" not in o else x),
    "equal": (lambda: [1, 2], lambda o: o.insert(0, 3), lambda o: lambda x: x * 2 if o == [1, 2] else x),
    "max": (lambda: [1, 2], lambda o: o.append(3), lambda o: lambda x: x * max(o)),
    "any": (lambda: [False], lambda o: o.append(True), lambda o: lambda x: x * 2 if any(o) else x),
    "slice": (lambda: [1, 2], lambda o: o.append(3), lambda o: lambda x: x * sum(o[1:])),
    "items": (lambda: {"a": 1}, lambda o: o.update(b=3), lambda o: lambda x: x * sum(v for _, v in o.items())),
    "property": (Model, lambda o: setattr(o, "w", 5), lambda o: lambda x: o.shifted * x),
    "nested": (Model, lambda o: o.table.update(a=5), lambda o: lambda x: o.table["a"] * x),
    "namespace": (lambda: types.SimpleNamespace(k=2), lambda o: setattr(o, "k", 5), lambda o: lambda x: x * o.k),
    "function": (lambda: [jnp.sin], lambda o: o.insert(0, jnp.cos), lambda o: lambda x: o[0](x)),
    "default argument": (lambda: [2], lambda o: o.insert(0, 3), lambda o: lambda x, held=o: x * held[0]),
    "partial": (
        lambda: [2],
        lambda o: o.insert(0, 3),
        lambda o: lambda x, f=functools.partial(lambda held, x: held[0] * x, o): f(x),
    ),
    "array of a list": (
        lambda: [1.0, 2.0],
        lambda o: o.insert(0, 3.0),
        lambda o: lambda x: x * jnp.asarray(o[:2]).sum(),
    ),
    "array changed in place": (lambda: np.ones(2), lambda o: o.fill(3.0), lambda o: lambda x: x * o.sum()),
    "traced": (
        lambda: [2.0],
        lambda o: o.insert(0, 3.0),
        lambda o: lambda x: jax.vmap(lambda q: q * o[0])(jnp.stack([x, x])).sum(),
    ),
    "differentiated": (
        lambda: [2.0],
        lambda o: o.insert(0, 3.0),
        lambda o: lambda x: jax.grad(lambda q: q * o[0])(x),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name):
    make, change, function = CHANGES[name]
    held = make()
    plain = function(held)
    batched = ab.batched(plain, in_axes=(0,))
    for _ in range(2):
        np.testing.assert_allclose(batched(X), [plain(x) for x in X], rtol=1e-6)
        change(held)


def apply(p, x):
    return x * p["w"]


jitted = jax.jit(apply)


def over_two(function):
    return lambda x: jax.vmap(function)(jnp.stack([x, x])).sum()


def scanning(w):
    held = {"w": w}

    def body(carry, _):
        return carry * held["w"], None

    return lambda x: jax.lax.scan(body, x, None, length=2)[0]


def recursive(w):
    held = [w]

    def power(x, n):
        return x if n == 0 else power(x, n - 1) * held[0]

    return lambda x: over_two(lambda q: power(q, 2))(x)


def equinox(w):
    eqx = pytest.importorskip("equinox")
    layer = eqx.nn.Linear(1, 1, key=jax.random.key(0))
    layer = eqx.tree_at(lambda held: held.weight, layer, jnp.reshape(w, (1, 1)))
    return lambda x: jax.vmap(layer)(jnp.reshape(x, (1, 1))).sum() + layer(jnp.reshape(x, (1,)))[0]


TRACED = {
    "closure": lambda w: lambda x: x * w,
    "lambda for vmap": lambda w: over_two(lambda q: q * w),
    "dict in a lambda for vmap": lambda w: (lambda held: over_two(lambda q: q * held["w"]))({"w": w}),
    "dict for a jitted function": lambda w: (lambda held: lambda x: jitted(held, x))({"w": w}),
    "dict for tree.map": lambda w: (lambda held: lambda x: apply(jax.tree.map(jnp.sin, held), x))({"w": w}),
    "object": lambda w: (lambda held: lambda x: held(x))(Model(w)),
    "method": lambda w: (lambda held: lambda x: held(x))(Model(w).__call__),
    "object for vmap": lambda w: over_two(Model(w)),
    "method for vmap": lambda w: over_two(Model(w).__call__),
    "partial": lambda w: (lambda held: lambda x: held(x))(functools.partial(apply, {"w": w})),
    "partial for vmap": lambda w: over_two(functools.partial(apply, {"w": w})),
    "grad": lambda w: lambda x: jax.grad(lambda q: q * q * w)(x),
    "scan": scanning,
    "recursion": recursive,
    "default argument": lambda w: lambda x, w=w: x * w,
    "jit": lambda w: (lambda g: lambda x: g(x))(jax.jit(lambda q: q * w)),
    "Batched in a scan": lambda w: (lambda g: lambda x: jax.lax.map(g, jnp.stack([x, x])).sum())(
        ab.batched(lambda q: q * w)
    ),
    "equinox": equinox,
}


@pytest.mark.parametrize("name", TRACED)
def test_arrays_may_be_tracers(name):
    """One function, whose free variables hold a tracer, another tracer, and then an array."""
    make, box = TRACED[name], {}
    batched = ab.batched(lambda x: box["f"](x))

    def step(w):
        box["f"] = make(w)
        return batched(X)

    traced = jax.jit(step)
    for w in (2.0, 3.0):
        expected = [ab.batched(make(jnp.float32(w))).example(x) for x in X]
        np.testing.assert_allclose(traced(jnp.float32(w)), expected, rtol=1e-5)
        np.testing.assert_allclose(step(jnp.float32(w)), expected, rtol=1e-5)


def test_a_trace_changes_nothing_outside():
    seen = [0]

    def helper(x):
        seen.append(x)
        return x

    with pytest.raises(ab.UnsupportedError, match="made outside"):
        ab.batched(lambda x: helper(x) + 1)(X)
    assert seen == [0]
