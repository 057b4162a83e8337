"""What a derivative of a loop keeps and runs again, as the option `checkpoint` says: counted."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.common import runtime
from autobatch.options import OptionError

turns: list[int] = []
"""An entry for each turn that is run forward, by the primal or for the derivative."""


def counted(x: Any) -> Any:
    def on_host(x: Any) -> Any:
        turns.append(int(np.size(x)))
        return np.zeros(np.shape(x), np.int32)

    fixed = jax.lax.stop_gradient(x)
    return x + jax.pure_callback(on_host, jax.ShapeDtypeStruct((), np.int32), fixed, vmap_method="expand_dims")


def decay(p: Any, x: Any) -> Any:
    while x * p > 0.1:
        x = counted(x) * p
    return x


def gradient(xs: Any, **chosen: Any) -> Any:
    f = ab.batched(decay, in_axes=(None, 0), options=ab.options(**chosen))
    return jax.jit(jax.grad(lambda p: jnp.sum(f(p, xs))))


RATE = 0.97


def again(count: int, states: int, levels: int) -> int:
    """Turns that are run again: going back, each block of `states`, `states ** 2`, ... of them once from its begin."""
    blocks = [max((states**k for k in range(levels) if turn % states**k == 0)) for turn in range(1, count + 1)]
    return sum(block - 1 for block in blocks)


@pytest.mark.parametrize(
    ("checkpoint", "most", "states"), [(32, 10_000_000, 32), (4, 300, 4), ("sqrt", 300, 18), ("all", 300, 300)]
)
def test_turns_are_counted(checkpoint: Any, most: int, states: int) -> None:
    start, expected, count = 1.0, 1.0, 0
    while start * RATE**count * RATE > 0.1:
        count += 1
    expected = count * RATE ** (count - 1)
    run = gradient(jnp.asarray([start]), checkpoint=checkpoint, max_iterations=most)
    np.testing.assert_allclose(run(jnp.asarray(RATE)), expected, rtol=1e-9)
    turns.clear()
    jax.block_until_ready(run(jnp.asarray(RATE)))
    jax.effects_barrier()
    levels = math.ceil(math.log(most, states) - 1e-12)
    repeated = again(count, states, levels)
    assert len(turns) == 3 * count + repeated, "the value, recorded, and for the derivative, besides those run again"
    assert repeated <= (levels - 1) * count and (repeated > 0) == (checkpoint != "all")


def test_a_loop_of_a_million_turns_needs_little_memory() -> None:
    """What it needs does not grow with `max_iterations`, but for a few states, and a long loop runs in it."""

    def bytes_of(most: int) -> int:
        xs = jnp.ones(64)
        f = ab.batched(halve, in_axes=(None, 0), options=ab.options(max_iterations=most))
        step = jax.jit(jax.grad(lambda p: jnp.sum(f(p, xs))))
        analysis: Any = step.lower(jnp.asarray(0.5)).compile().memory_analysis()
        return int(analysis.temp_size_in_bytes)

    small, large = bytes_of(1000), bytes_of(1_000_000)
    assert large < 3 * small < 1_000_000


def counted_turns(p: Any, x: Any) -> Any:
    for k in range(COUNT):
        x = x * p + 1e-3 * k
    return x


def counted_turns_with_a_branch(p: Any, x: Any) -> Any:
    for k in range(COUNT):
        x = x * p if x > 0.1 else x + 1e-3 * k
    return x


COUNT = 1500


@pytest.mark.parametrize("function", [counted_turns, counted_turns_with_a_branch], ids=lambda f: f.__name__)
def test_a_long_counted_loop_keeps_few_states(function: Any) -> None:
    """All turns were kept: a million of them took a gigabyte for 64 rows."""
    xs, p, step = jnp.linspace(0.5, 1.0, 64), 0.999, 1e-6

    def compiled(checkpoint: Any) -> Any:
        # a function of its own for each: a batched one keeps what it was compiled to
        f = ab.batched(lambda p, x: function(p, x), in_axes=(None, 0), options=ab.options(checkpoint=checkpoint))
        return jax.jit(jax.grad(lambda p: jnp.sum(f(p, xs)))).lower(jnp.asarray(p)).compile()

    some, everything = compiled("sqrt"), compiled("all")
    few, all_of_them = (int(c.memory_analysis().temp_size_in_bytes) for c in (some, everything))
    assert few < 4 * COUNT * len(xs) < 8 * COUNT * len(xs) < all_of_them
    plain = lambda p: sum(function(p, float(x)) for x in xs[::9])  # noqa: E731
    f = ab.batched(function, in_axes=(None, 0))
    found = jax.grad(lambda p: jnp.sum(f(p, xs[::9])))(jnp.asarray(p))
    np.testing.assert_allclose(found, (plain(p + step) - plain(p - step)) / (2 * step), rtol=1e-5)
    np.testing.assert_allclose(some(jnp.asarray(p)), everything(jnp.asarray(p)), rtol=1e-9)


def test_states_that_memory_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in XLA's own error."""
    monkeypatch.setattr(runtime, "memory_limit", lambda: 1 << 30)
    run = gradient(jnp.ones(64), checkpoint="all")
    with pytest.raises(OptionError, match="keeps 10,000,000 states of its rows, .* GB") as raised:
        run(jnp.asarray(0.5))
    assert "while x * p > 0.1" in str(raised.value) and "checkpoint='sqrt'" in str(raised.value)


def halve(p: Any, x: Any) -> Any:
    while x > 0.1:
        x = x * p
    return x


@pytest.mark.long
def test_a_million_turns() -> None:
    rate = 1 - 2e-6
    f = ab.batched(halve, in_axes=(None, 0))
    found = jax.jit(jax.grad(lambda p: jnp.sum(f(p, jnp.asarray([1.0])))))(jnp.asarray(rate))
    count = math.ceil(math.log(0.1) / math.log(rate))
    assert count > 1_000_000
    np.testing.assert_allclose(found, count * rate ** (count - 1), rtol=1e-6)
