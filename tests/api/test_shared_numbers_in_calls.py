"""Shared Python integers and bools in containers, objects and methods; with batches, `jax.jit`, and the other calls."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.api.nodes import agrees, chain, limited, trees

X = np.array([1.5, -2.0, 0.25], np.float32)
PAIR = (1, 2)

# ---- where integers are


@dataclass
class Config:
    depth: int
    width: int = 2
    flag: bool = False
    scale: float = 1.0
    name: str = "c"
    inner: Any = None
    sizes: list[int] = field(default_factory=lambda: [1, 2])


class Pair(NamedTuple):
    n: int
    w: Any


def test_objects_and_nested_containers():
    """Each integer by itself: one is a shape, one a depth, one a number."""

    def f(c, t):
        if t is None or c.depth == 0:
            return jnp.zeros(c.inner["width"])
        inner = Config(c.depth - 1, c.width, inner=c.inner)
        return f_(inner, t.left) + t.x * c.width + sum(c.sizes)

    f_ = ab.batched(f, in_axes=(None, 0))
    data = ab.pack(trees()).plan(f_)
    for depth in (0, 1, 2):
        for width in (3, -1):
            agrees(f_, Config(depth, width, inner={"width": 2}), data)
    assert f_.cache_info().specialisations == 1
    agrees(f_, Config(2, 1, inner={"width": 3}), data)
    assert f_.cache_info().specialisations == 2


def test_filters_over_shared_lists():
    f = ab.batched(lambda ns, x: sum([x * n for n in ns if n > 1]), in_axes=(None, 0))
    for ns in ([2, 0, 3], [1, 1, 1]):
        agrees(f, ns, [1, 2, 3])
    assert f.cache_info().specialisations == 1


def test_tuples_dicts_and_namedtuples():
    f = ab.batched(lambda p, x: x[p[0].n] * p[0].w + p[1]["k"][1] * len(p[1]["k"]), in_axes=(None, 0))
    rows = jnp.arange(12.0).reshape(3, 4)
    for n, k in ((0, 1), (3, -2)):
        agrees(f, (Pair(n, jnp.float32(2)), {"k": [9, k]}), rows)
    assert f.cache_info().specialisations == 1


def test_membership_and_equality_of_shared_containers():
    """Comparisons of containers that hold integers are never decided by what stands for them."""

    def f(allowed, pair, k):
        return (
            k in allowed,
            pair == (1, 2),
            (1, 2) == pair,
            pair != (1, 2),
            pair < (2, 0),
            min(allowed),
            max(allowed),
            sum(allowed),
        )

    f = ab.batched(f, in_axes=(None, None, 0))
    assert ab.unbatch(ab.batched(lambda pair, k: (2 in pair, PAIR == pair), in_axes=(None, 0))((1, 2), [0])) == [
        (True, True)
    ]
    for allowed, pair in (([1, 2], (1, 2)), ([3, -4], (2, 1)), ([0, 2], (1, 3))):
        assert ab.unbatch(f(allowed, pair, [1, 2, 3])) == f.loop(allowed, pair, [1, 2, 3])


class Model:
    def __init__(self, depth: int, power: int) -> None:
        self.depth, self.power = depth, power

    @ab.batched(in_axes=0, backend="xla")
    def value(self, t):
        return self.below(t, self.depth) * self.power

    def below(self, t, depth):
        if t is None or depth == 0:
            return 0.0
        return t.x + self.below(t.left, depth - 1) - self.below(t.right, depth - 1)


def test_attributes_of_self():
    data = ab.pack(trees()).plan(Model(1, 1).value)
    for depth in (0, 2, 5):
        for power in (1, -3):
            agrees(Model(depth, power).value, data)
    assert Model(1, 1).value.cache_info().specialisations == 1
    assert Model(1, 1).value.cache_info().plans == 3


def test_integers_of_closures_are_guarded():
    """Free variables are read again at every call; they are part of the program."""
    n = 2
    f = ab.batched(lambda x: x * n)
    agrees(f, X)
    n = 5
    agrees(f, X)
    assert f.cache_info().specialisations == 2


# ---- batches, jit, options


def test_batches_packed_and_cut():
    """Plans for several values live on one data set; what is cut from it uses them."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None), backend="xla")
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (2, 4):
        agrees(f, 1.0, data, depth)
    plans = f.cache_info().plans
    for rows in ([3], [0, 3, 3], slice(1, None), []):
        for depth in (2, 4):
            agrees(f, 1.0, data[rows], depth)
    assert f.cache_info().plans == plans == 2


def test_no_examples_and_one():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    agrees(f, 1.0, trees()[2:], 3)
    assert np.asarray(f(1.0, ab.pack(trees())[[]], 3)).shape == (0,)


def test_under_jit_an_integer_of_python():
    """It is closed over: its value is known. Batches bring the plans of their data set along."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (2, 3):
        f(1.0, data, depth)
    for depth in (2, 3, 2):
        step = jax.jit(lambda p, b, depth=depth: f(p, b, depth))
        for rows in ([0, 1], [3, 2]):
            np.testing.assert_allclose(step(1.5, data[rows]), f.loop(1.5, data[rows], depth), rtol=1e-5)
    assert f.cache_info().plans == 2


def test_under_jit_a_value_that_no_call_had_before():
    """It is planned from the host's copy of the examples."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    for depth in (1, 4, 5):
        step = jax.jit(lambda p, b, depth=depth: f(p, b, depth))
        for rows in ([0, 1], [3, 2], [3, 2]):
            np.testing.assert_allclose(step(1.5, data[rows]), f.loop(1.5, data[rows], depth), rtol=1e-5)
    closed = jax.jit(lambda p: f(p, data, 2))
    np.testing.assert_allclose(closed(1.5), f.loop(1.5, data, 2), rtol=1e-5)


def test_under_jit_batches_that_were_given_up():
    """Where only leaves are left there is nothing to plan from: machine code needs no plan, and the error of XLA says
    how to have one."""
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    f(1.0, trees(), 1)
    bare = jax.jit(lambda b: b)(ab.pack(trees()))
    by_xla = ab.batched(limited.__wrapped__, in_axes=(None, 0, None), backend="xla")
    with pytest.raises(ab.PlanError, match="once outside"):
        jax.jit(lambda b: by_xla(1.0, b, 2))(bare)
    np.testing.assert_allclose(jax.jit(lambda b: f(1.0, b, 2))(bare), f.loop(1.0, trees(), 2), rtol=1e-5)
    agrees(f, 1.0, bare, 2)


def test_under_jit_a_traced_integer():
    """As a number it may be used; for XLA it cannot decide structure, and the error names it, the line and the cure."""
    f = ab.batched(lambda n, t: t.x * n + n % 3, in_axes=(None, 0), backend="xla")
    data = ab.pack(trees()).plan(f)
    step = jax.jit(lambda n, b: f(n, b))
    for n in (2, -1):
        np.testing.assert_allclose(step(n, data), f.loop(n, data), rtol=1e-5)
    agrees(f, 4, data)
    assert f.cache_info().specialisations == 1, "the same program for both"
    np.testing.assert_allclose(jax.jit(lambda d: limited(1.0, trees(), d))(2), limited.loop(1.0, trees(), 2), rtol=1e-5)
    by_xla = ab.batched(limited.__wrapped__, in_axes=(None, 0, None), backend="xla")
    with pytest.raises(ab.UnsupportedError, match=r"nodes.py:\d+.*depth, an integer that is traced") as e:
        jax.jit(lambda d: by_xla(1.0, trees(), d))(2)
    assert "Python int" in str(e.value) and "if t is None or depth == 0" in str(e.value)
    signed = ab.batched(lambda flag, x: x if flag else -x, in_axes=(None, 0))
    for flag in (True, False):  # arithmetic alone it may decide: under a mask
        np.testing.assert_array_equal(jax.jit(lambda flag: signed(flag, X))(flag), X if flag else -X)
    with pytest.raises(ab.UnsupportedError, match="static"):
        jax.jit(lambda n: ab.batched(lambda n, x: jnp.ones(n) + x, in_axes=(None, 0))(n, X))(2)
    with pytest.raises(ab.BatchError, match="static_argnames"):
        jax.jit(lambda n: ab.batched(lambda n, x: x + n, in_axes=(None, 0), static="n")(n, X))(2)


def test_static_argnames_of_jit():
    step = jax.jit(lambda p, b, depth: limited(p, b, depth), static_argnames="depth")
    data = ab.pack(trees()).plan(limited)
    for depth in (1, 2):
        np.testing.assert_allclose(step(1.0, data, depth=depth), limited.loop(1.0, data, depth), rtol=1e-5)


def test_gradients_and_vmap_over_the_other_arguments():
    f = ab.batched(lambda w, n, x: w * x * n, in_axes=(None, None, 0))
    for n in (2, -3):
        np.testing.assert_allclose(jax.grad(lambda w: f(w, n, X).sum())(jnp.float32(1)), X.sum() * n, rtol=1e-5)
        np.testing.assert_allclose(jax.vmap(lambda w: f(w, n, X))(jnp.ones(2)), np.stack([X * n] * 2), rtol=1e-5)
    assert f.cache_info().specialisations == 1


def test_epochs_are_for_the_values_that_a_data_set_was_planned_for():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([*trees(), chain(6)]).plan(f)
    with pytest.raises(ab.PlanError):
        data.epoch(np.array([[0, 1], [2, 3]]))
    f(1.0, data[:1], 3)
    epoch = data.epoch(np.array([[0, 1], [2, 3]]))
    _, values = jax.lax.scan(lambda c, b: (c, f(1.0, b, 3)), 0, epoch)
    np.testing.assert_allclose(np.asarray(values).reshape(-1), f.loop(1.0, data, 3), rtol=1e-5)


def test_plans_of_many_values_are_bounded():
    f = ab.batched(limited.__wrapped__, in_axes=(None, 0, None))
    data = ab.pack([chain(40)]).plan(f)
    for depth in range(1, 40):
        f(1.0, data, depth)
    small = data.nbytes
    for depth in range(40, 80):
        f(1.0, data, depth)
    assert data.nbytes < 2 * small
    agrees(f, 1.0, data, 1)


def test_example_loop_disable_lower_explain_and_pickle():
    assert limited.example(2.0, trees()[1], 1) == 4.0
    with ab.disable():
        np.testing.assert_allclose(limited(2.0, trees(), 2), limited.loop(2.0, trees(), 2))
    lowered = limited.lower(2.0, trees(), 2)
    np.testing.assert_allclose(lowered.compile()(2.0, trees(), 2), limited.loop(2.0, trees(), 2), rtol=1e-5)
    assert pickle.loads(pickle.dumps(limited)) is limited
    assert "limited" in str(limited.explain(2.0, trees(), 2))


def test_sixty_four_bits():
    with jax.enable_x64(True):
        f = ab.batched(lambda n, k: k + n, in_axes=(None, 0))
        for n in (2**40, -(2**60), 3):
            assert ab.unbatch(f(n, [1, 2])) == f.loop(n, [1, 2])
        assert f.cache_info().specialisations == 1


def test_another_function_called_with_an_integer():
    """Calls of batched functions are activations; integers cross them as any other argument."""

    @ab.batched(in_axes=(None, 0))
    def power(n, x):
        return 1.0 if n == 0 else x * power(n - 1, x)

    f = ab.batched(lambda n, m, x: power(n, x) + power(m, x) * power(2, x), in_axes=(None, None, 0))
    for n, m in ((0, 1), (3, 2), (2, 5)):
        agrees(f, n, m, X)
    assert f.cache_info().specialisations == 1


def test_keyword_and_variadic_arguments():
    f = ab.batched(lambda x, *, n, m=2: x * n + m, in_axes={"x": 0, "n": None, "m": None})
    for n in (1, -2):
        np.testing.assert_allclose(f(X, n=n), X * n + 2, rtol=1e-6)
        np.testing.assert_allclose(f(X, n=n, m=n), X * n + n, rtol=1e-6)
    g = ab.batched(lambda x, *ns: x * ns[0] + len(ns) * ns[-1], in_axes=(0, None))
    for ns in ((1, 2), (3, -4)):
        agrees(g, X, *ns)
    assert g.cache_info().specialisations == 1
