"""Symbols are arrays of JAX: operators, methods, functions; what they do not know they leave to JAX, or refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.numpy import tanh

import autobatch as ab
from autobatch.call.tracing import templates
from tests.call.tracing.test_programs import agree


def operators(w: Any, xs: list[float]) -> Any:
    held = dict(enumerate(xs))
    x, y = held[0], held[len(xs) - 1] * w
    parts = [x + y, 1 - x, x * 2, 3.0 / (y + 4), (x + 5) // 0.5, (y + 9) % 0.7, -x, +y, abs(y), x**2, (x + 9) ** y]
    parts += [2.0**x, x + np.float32(2), np.float32(3) * y, divmod(x + 9, 2.0)[1], round(y, 1)]
    return [p * w for p in parts], [x < y, x >= 0.5, (x > 0) & (y != x), (x > y) | (x <= 0), ~(x == y)]


def arrays(w: Any, xs: list[float]) -> Any:
    held = {0: jnp.stack([x * w for x in xs[:1] * 4])}
    v = held[0]
    m = jnp.outer(v, jnp.arange(3.0)) + np.ones((4, 3), np.float32)
    first, *rest = v
    return (
        (m.T @ v, m[1:, 0], m[..., -1], m[jnp.array([0, 2])], m.sum(axis=0), m.reshape(-1)[3], v.at[1].add(2.0)),
        (first, rest[-1], len(v), m.shape, v.mean(), jnp.max(m, initial=0.0), jnp.einsum("ij,i->j", m, v)),
        (jnp.where(v > 0, v, 0.5).astype(jnp.float32), jnp.zeros(3) + v[0], np.tanh(v), np.sum(v)),
    )


def by_names(w: Any, xs: list[float]) -> Any:
    """Functions of JAX that are held elsewhere."""
    held = {0: tanh(xs[0] * w)}
    return held[len(xs) - len(xs)]


@jax.jit
def compiled(x: Any) -> Any:
    return x * 2


def by_transformations(w: Any, xs: list[float]) -> Any:
    held = {0: compiled(xs[0] * w)}
    _, ys = lax.scan(lambda c, x: (c + x, c * x), 0.0, jnp.ones(3) * held[0])
    return ys, jax.vmap(jnp.sin)(ys), isinstance(held[0], jax.Array)


@pytest.mark.parametrize("program", (operators, arrays, by_names, by_transformations), ids=lambda f: f.__name__)
def test_symbols_are_arrays(program: Callable[..., Any]) -> None:
    f, w = ab.batched(program, in_axes=(None, 0)), jnp.float32(0.5)
    batch = [[0.3, -1.25], [2.0, 0.75, -0.3]]
    agree(jax.tree.leaves(ab.unbatch(f(w, batch))), jax.tree.leaves(f.loop(w, batch)))


def test_nothing_is_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f, w = ab.batched(arrays, in_axes=(None, 0)), jnp.float32(0.5)
    f(w, [[0.3, -1.25], [2.0]])
    monkeypatch.setattr(templates, "made", None)  # what asks JAX
    monkeypatch.setattr(jax, "make_jaxpr", None)
    agree(jax.tree.leaves(ab.unbatch(f(w, [[1.0]]))), jax.tree.leaves(f.loop(w, [[1.0]])))


def test_functions_of_jax_are_its_own_again() -> None:
    before = jnp.sum, jax.nn.relu, lax.add
    ab.batched(arrays, in_axes=(None, 0))(jnp.float32(1.0), [[1.0]])
    assert (jnp.sum, jax.nn.relu, lax.add) == before


ASKING = (bool, float, int, str, "{:.2f}".format, np.asarray, lambda x: [1, 2][x], lambda x: x.item(), hash)


@pytest.mark.parametrize("ask", ASKING)
def test_a_value_that_is_asked_for_is_refused_with_its_line(ask: Callable[[Any], Any]) -> None:
    def asking(w: Any, xs: list[float]) -> Any:
        held = {len(eval("()")): xs[0] * w}  # which is not compiled
        try:
            ask(held[0])
        except Exception as error:
            assert error
            return held[0]
        return held[0]

    with pytest.raises(ab.Error) as caught:
        ab.batched(asking, in_axes=(None, 0))(jnp.float32(1.0), [[1.0], [2.0]])
    assert "test_symbols.py" in "".join(caught.value.__notes__)


def test_what_python_knows_may_decide() -> None:
    def known(w: Any, xs: list[float]) -> Any:
        held = {int(jnp.argmax(jnp.arange(3))): xs[0] * w}
        return held[2] if jnp.zeros(2).sum() == 0 else xs[1]

    f = ab.batched(known, in_axes=(None, 0))
    agree(list(f(jnp.float32(2.0), [[1.0], [2.0]])), [2.0, 4.0])
