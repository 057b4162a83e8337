"""Adjoints of whole systems: what they are handed, and where it lies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from tests.properties.strategies import Many


@ab.batched(in_axes=(None, 0))
def looped(p, t: Many):
    """A loop inside a loop, left and continued: states of several spaces share a buffer."""
    h = p["b"]
    for kid in t.kids:
        for other in t.kids:
            if other.name == "c":
                continue
            if other.name == "d":
                break
            h = jnp.sin(h * other.x + h)
        else:
            h = h + p["w"]
        h = h + looped(p, kid)
    return jnp.tanh(h)


FAMILY = Many(0.5, [Many(0.25, [Many(1.0, name="d")]), Many(0.75, name="c"), Many(-0.5, [Many(0.1), Many(0.3)])])


def test_a_buffer_that_is_read_in_part():
    """A gather that runs again in the adjoint counts what it does not read: that is handed over too."""
    p = {"b": jnp.array([0.3, -0.5]), "w": jnp.float64(0.7)}
    batch = [FAMILY, Many(1.0), Many(0.0, [FAMILY, Many(2.0)])]
    expected = jax.grad(lambda p: sum(jnp.sum(y * y) for y in looped.loop(p, batch)))(p)
    found = jax.grad(lambda p: jnp.sum(looped(p, batch) ** 2))(p)
    for name in p:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, err_msg=name)
