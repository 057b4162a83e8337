"""The option `residuals`: what gradients keep of the forward pass, by schedule; the gradients are the same."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.options import RESIDUALS, OptionError
from autobatch.passes.derivative_rules import Policy
from tests.properties.strategies import Many

WIDTH = 4


def state(p, t: Many):
    below = sum((state(p, kid) for kid in t.kids), jnp.zeros(WIDTH))
    return jnp.tanh(below @ p["U"] + t.x * p["b"])


@ab.batched(in_axes=(None, 0))
def loss(p, t: Many):
    """Products in a recurrence and behind it, element-wise work around both."""
    h = state(p, t)
    return jnp.sum(jnp.exp(jnp.sin(h) @ p["W"])) + jnp.sum(jnp.sin(p["emb"][len(t.kids)]))


TREES = [Many(0.5, [Many(0.25, [Many(1.0)]), Many(0.75)]), Many(-1.0)]


def parameters():
    rng = np.random.default_rng(0)
    shapes = {"U": (WIDTH, WIDTH), "W": (WIDTH, 3), "b": (WIDTH,), "emb": (5, 2)}
    return {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}


def kept(policy, f=loss, p=None, examples=TREES):
    """How many numbers are kept of each row, by name; and the schedule of the adjoint."""
    with ab.options(residuals=policy, widths=(8,)):
        text = f.lower(parameters() if p is None else p, examples).as_text("adjoint")
    first, schedule = text.split("\n", 1)
    assert first.startswith(f"residuals, {policy}: ")
    values = re.findall(r"(%\d+): \w+\[([\dx]*)\]", first)
    for name, _ in values:
        assert f"{name}: " in schedule, "it is handed to the adjoint"
    return {name: int(np.prod([int(n) for n in shape.split("x") if n])) for name, shape in values}, schedule


def made_by(operation, schedule):
    return set(re.findall(rf"(%\d+): \S+ = {operation}", schedule))


def test_each_policy_keeps_no_more_than_the_one_before():
    (every, _), (dots, adjoint), (least, again) = (kept(policy) for policy in ("save_all", "save_dots", "recompute"))
    assert sum(least.values()) <= sum(dots.values()) < sum(every.values())
    schedule = loss.lower(parameters(), TREES).as_text("fissioned")
    products, exponentials = made_by("dot_general", schedule), made_by("exp", schedule)
    assert len(products) == 2 and len(exponentials) == 1
    assert len(products & made_by("dot_general", again)) == 1, "the one behind the recurrence runs again"
    assert not products & made_by("dot_general", adjoint)
    assert exponentials <= every.keys() and exponentials <= dots.keys(), "no wider than its argument, and later"


def gated(p, t: Many):
    """A cell whose gates come from one product."""
    h = jnp.zeros(WIDTH)
    for kid in t.kids:
        h = h + gated(p, kid)
    a, b, c = jnp.split(jnp.concatenate([h, t.x * jnp.ones(WIDTH)]) @ p["W"] + p["b"], 3)
    return jax.nn.sigmoid(a) * jnp.tanh(b) + jnp.maximum(c, 0.0) ** 3


def test_what_is_kept_is_late_where_it_is_no_wider():
    """Of the gates what they are, not what they were computed from: nothing is computed by exponentials again."""
    rng = np.random.default_rng(0)
    p = {"W": jnp.asarray(rng.normal(size=(2 * WIDTH, 3 * WIDTH))), "b": jnp.asarray(rng.normal(size=3 * WIDTH))}
    f = ab.batched(gated, in_axes=(None, 0))
    values, adjoint = kept("save_dots", f, p)
    assert not made_by("(?:logistic|tanh)", adjoint) - values.keys()
    schedule = f.lower(p, TREES).as_text("fissioned")
    assert made_by("(?:logistic|tanh)", schedule) <= values.keys()


def test_gradients_are_those_of_the_loop():
    """With one function under all policies, one after another: each has its own executable."""
    p = parameters()
    expected = jax.jit(jax.grad(lambda p: sum(loss.loop(p, TREES))))(p)
    for policy in (*RESIDUALS, *reversed(RESIDUALS)):
        with ab.options(residuals=policy, widths=(8,)):
            found = ab.grad(loss, sparse=True)(p, TREES)
            by_jax = jax.grad(lambda p: jnp.sum(loss(p, TREES)))(p)
        found["emb"] = found["emb"].to_dense()
        for name in p:
            for made in (found, by_jax):
                np.testing.assert_allclose(made[name], expected[name], rtol=1e-9, err_msg=f"{policy} {name}")


def test_the_names_are_those_of_the_option():
    assert RESIDUALS == Policy.__args__
    with pytest.raises(OptionError, match="residuals.*one of save_dots, save_all, recompute"):
        ab.options(residuals="save_some")
