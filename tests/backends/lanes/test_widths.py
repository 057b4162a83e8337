"""Results do not depend on how many lanes a gang has, to the last bit: one text for each width, the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.xla import row_operations
from tests.backends.lanes.harness import compiled
from tests.backends.lanes.test_programs import PROGRAMS

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

WIDTHS = (1, 4, 8, 16)
RNG = np.random.default_rng(5)
COUNT = 43


def rows(*shape, scale=1.0):
    return jnp.asarray(RNG.normal(0, scale, (COUNT, *shape)), jnp.float32)


def bits(x):
    x = np.asarray(x)
    return x.view(np.uint32) if x.dtype == np.float32 else x


def assert_same(found):
    """Lists of results, by what they were computed with."""
    (name, first), *others = found.items()
    for other, results in others:
        for k, (x, y) in enumerate(zip(first, results, strict=True)):
            np.testing.assert_array_equal(bits(x), bits(y), err_msg=f"result {k} of {name} and of {other}")


def leaves(a, b, m, k):
    """Sums of few and of many, products of matrices, products that meet sums; a product that is read twice."""
    p = a * b
    return (
        a.sum(),
        (a * b).sum(),
        jnp.dot(a[:23], b[:23]),
        jnp.dot(a[:7], b[:7]),
        a[:13].prod(),
        a[:11].mean() * b[0] + a[1],
        m @ a[:9],
        m.sum(0),
        m.sum(),
        (m * m).sum(1),
        a[:9] @ m.T,
        jnp.cumsum(a * b),
        a * b - b * a[::-1],
        p - p,
        p + p * a,
        jax.nn.logsumexp(a),
        jnp.var(a[:20]),
        a[:8].at[k].add(a[3] * b[2]) + a[:8] * 2.0,
        jnp.tanh(a * b + 1.0) - a * a,
        jax.nn.softmax(m),
    )


def test_leaf_operations():
    xs = (rows(37), rows(37), rows(5, 9), jnp.asarray(RNG.integers(0, 8, COUNT), jnp.int32))
    live = jnp.arange(COUNT) % 7 != 2
    found = {w: compiled(leaves, xs, [True] * 4, w)(xs, live) for w in WIDTHS}
    assert_same(found)
    assert not np.any(np.asarray(found[1][13])), "a product less itself is nothing"


@pytest.mark.parametrize("name", ["arms", "small_arrays"])
def test_programs_and_their_gradients(name, monkeypatch):
    """Branches are jumps with one lane, and masks with several; rows are summed over for what they share."""
    fun, p, x = PROGRAMS[name]
    found = {}
    for width in WIDTHS:
        monkeypatch.setattr(row_operations, "_widths", lambda *_, width=width: iter([width]))
        with ab.options(loops="native"):
            batched = ab.batched(lambda p, x: fun(p, x), in_axes=(None, 0))

            def loss(p, x, batched=batched):
                out = jax.tree.leaves(batched(p, x))
                return sum(jnp.sum(jnp.sin(y)) for y in out if jnp.issubdtype(y.dtype, jnp.floating)), out

            (_, out), grads = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(p, x)
        found[width] = [*out, *grads]
    assert_same(found)
