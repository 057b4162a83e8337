"""Run by `test_sharding.py` in a process with two devices: batched functions over arrays of both, and in shard_map."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import autobatch as ab

MESH = Mesh(np.array(jax.devices()[:2]), ("d",))
X = np.linspace(-1, 1, 8).astype(np.float32)
ON_TWO = jax.device_put(X, NamedSharding(MESH, P("d")))
W = jnp.float32(2.0)


def product(w, x):
    return w * x * x


def loop(w, x):
    n = 0
    while x < 2.0 and n < 20:
        x, n = x * 1.3 + 0.4 * w, n + 1
    return x * w


def checked(w, x):
    assert x > -5.0, "too low"
    return [1.0, 2.0, 3.0][int(abs(x) * 2)] * x * w


def nested(w, x):
    total = 0.0
    for k in range(3):
        if x > 0.1 * k:
            total += w * x**k
    return jnp.tanh(jnp.stack([total, x])).sum()


def mapped(f, outputs=P("d")):
    return jax.shard_map(f, mesh=MESH, in_specs=(P(), P("d")), out_specs=outputs)


def check(function):
    f = ab.batched(function, in_axes=(None, 0))
    near = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    wanted, by_w, by_x = f(2.0, X), ab.grad(f, 0)(2.0, X), ab.grad(f, 1)(2.0, X)
    total = lambda w, x: f(w, x).sum()
    near(jax.jit(f)(W, ON_TWO), wanted)
    near(jax.jit(jax.grad(total, 0))(W, ON_TWO), by_w)
    near(jax.jit(jax.grad(total, 1))(W, ON_TWO), by_x)
    near(jax.jit(ab.grad(f, 1))(W, ON_TWO), by_x)
    for way in (lambda g: g, jax.jit):
        near(way(mapped(f))(W, X), wanted)
        near(way(mapped(jax.grad(total, 1)))(W, X), by_x)
        near(way(mapped(ab.grad(f, 1)))(W, X), by_x)
        near(way(mapped(lambda w, x: jax.lax.psum(ab.grad(f, 0)(w, x), "d"), P()))(W, X), by_w)
        near(way(mapped(jax.grad(lambda w, x: jax.lax.psum(total(w, x), "d"), 0), P()))(W, X), by_w)
    near(jax.grad(lambda w, x: mapped(f)(w, x).sum(), 0)(W, X), by_w)
    near(jax.jit(jax.grad(lambda w, x: mapped(f)(w, x).sum(), 1))(W, X), by_x)


def failing():
    f = ab.batched(checked, in_axes=(None, 0))
    for call in (jax.jit(f), jax.jit(mapped(f))):
        try:
            jax.block_until_ready(call(W, ON_TWO - 10.0))
        except Exception as error:
            assert "too low" in str(error), error
        else:
            raise AssertionError("nothing was raised")


if __name__ == "__main__":
    name = sys.argv[1]
    failing() if name == "failing" else check(globals()[name])
    print("fine")
