"""Programs whose loops are machine code, against the same whose loops are XLA's: values, gradients, failures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.options import OptionError

try:
    machine_code.host()
except machine_code.UnavailableError as error:
    pytest.skip(f"no machine code here: {error}", allow_module_level=True)

RNG = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return jnp.asarray(RNG.normal(0, scale, shape), jnp.float32)


def long_loop(p, x):
    """More turns than there are states of the finest unit: some run again for the derivative."""
    n = 0
    while n < 90 + x * 10:
        x = x + p * jnp.sin(x) / 50
        n += 1
    return x, n


def nested(p, x):
    total = jnp.float32(0.0)
    y = jnp.abs(x) + 0.1
    while y < 3:
        k = 0
        z = y
        while k < 5:
            z = z * 1.2 + p[k % 3]
            k += 1
            if z > 4:
                break
        total += z
        y = y * 1.3 + 0.01 * z
    return total


def arms(p, x):
    y = x
    while jnp.abs(y) < 10:
        if y > 0:
            y = y * 1.5 + jnp.exp(-y * p)
        elif y > -0.5:
            y = y - 1.0
        else:
            y = y * 2 - jnp.log(1 - y) * p
    return y


def small_arrays(p, x):
    """Arrays that lanes keep in memory."""
    v = jnp.outer(x, jnp.ones(5)).ravel()[:24] * 0.1
    while jnp.sum(v * v) < 40:
        v = v + 0.1 * jnp.roll(v, 1) + 0.2 * jnp.tanh(p * v) + 0.05
        v = v.at[3].set(v[4] * 0.5)
    return v.max(), v


def large_arrays(p, x):
    """One row after another, by vectors of its own."""
    v = x
    while jnp.sum(v * v) < 400:
        v = v * 1.1 + 0.2 * jnp.tanh(p * v) + 0.01 * jnp.cumsum(v)[::-1]
    return v.sum(), jnp.argmax(v)


def counted(p, x):
    y = x
    while y < 20:
        for k in range(3):
            y = y + p * k + jnp.abs(x) + 0.1
    return y


def leaves_with_loops(p, x):
    """A loop of JAX in a leaf operation."""
    y = x
    while jnp.sum(y * y) < 30:
        c, ys = jax.lax.scan(lambda c, v: (jnp.sin(c) + v * p, c * v), p, y)
        y = y * 1.3 + 0.1 * ys + 0.05 * c
    return y


def orbit(p, x):
    """Complex numbers."""
    z = jax.lax.complex(x, p)
    k = 0
    while abs(z) < 4 and k < 30:
        z = z * z + jax.lax.complex(x, p * 0.3) + 0.1
        k += 1
    return z.real, z.imag, k


def fails(p, x):
    y = x
    while y < 10:
        assert y > -2, "too small"
        y = y * 1.5 + 1 + jnp.sqrt(y + 2) * p
    return y


PROGRAMS = {
    "long_loop": (long_loop, normal(), normal(19)),
    "nested": (nested, normal(3, scale=0.3), normal(21)),
    "arms": (arms, jnp.float32(0.7), normal(23)),
    "small_arrays": (small_arrays, jnp.float32(0.3), normal(18, 6)),
    "large_arrays": (large_arrays, jnp.float32(0.3), normal(7, 100)),
    "counted": (counted, jnp.float32(0.3), normal(20)),
    "leaves_with_loops": (leaves_with_loops, jnp.float32(0.3), normal(17, 5)),
    "orbit": (orbit, jnp.float32(0.3), normal(19)),
}


def both(fun, *args):
    """Results by machine code, and by XLA's loops. Each is a function of its own: JAX keeps what it has traced."""
    found = []
    for loops in ("native", "xla"):
        with ab.options(loops=loops):
            lowered = jax.jit(lambda *args: fun(*args)).lower(*args)
            assert ("autobatch_rows" in lowered.as_text()) == (loops == "native")
            found.append(lowered.compile()(*args))
    return found


def close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=3e-4, atol=3e-4 * float(np.abs(np.asarray(y)).max()))


FORMS = ("nested", "arms", "small_arrays", "counted", "leaves_with_loops")
"""Every construct is in one of these; the others have more of the same."""


@pytest.mark.parametrize(
    "name", [*FORMS, *(pytest.param(n, marks=pytest.mark.long) for n in PROGRAMS if n not in FORMS)]
)
def test_values_and_gradients(name):
    """Machine code alone, and with what the derivative keeps; XLA takes long for its loops, and once is enough."""
    fun, p, x = PROGRAMS[name]
    batched = ab.batched(fun, in_axes=(None, 0))

    def loss(p, x):
        found = batched(p, x)
        return sum(jnp.sum(y * 0.1) for y in jax.tree.leaves(found) if jnp.issubdtype(y.dtype, jnp.floating)), found

    native, by_xla = both(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), p, x)
    close(native, by_xla)
    with ab.options(loops="native"):
        close(jax.jit(lambda p, x: batched(p, x))(p, x), by_xla[0][1])


def many_functions(p, x):
    """Values from 0.1 to 0.9, on which everything has a derivative."""
    y, n = x, 0
    while n < 3 + 4 * x:
        z = (
            jnp.sinh(y) * jnp.cosh(p)
            + jnp.arcsin(y) * jnp.arccos(y)
            + jnp.arctan2(y, p)
            + jnp.arctanh(y) * jnp.log1p(y)
        )
        z = z + jnp.cbrt(y) + jnp.arcsinh(z) - lax.erf(y) * lax.erfc(p) + lax.erf_inv(y) + jnp.expm1(-y) * jnp.exp2(y)
        z = z + jnp.tan(y) ** 2 + (1 + y) ** p + jnp.fmod(z, p) + jax.nn.sigmoid(z) + jnp.log2(1 + z * z)
        y = 0.5 + 0.05 * jnp.sin(z) * jnp.tanh(jnp.cos(y))
        n += 1
    return y


def test_functions_of_doubles_and_their_derivatives():
    """Against plain Python, and against differences: XLA takes ten seconds for as much."""
    with jax.enable_x64(True), ab.options(loops="native"):
        p, x, step = jnp.asarray(0.7), jnp.asarray(RNG.uniform(0.1, 0.9, 11)), 1e-6
        batched = ab.batched(many_functions, in_axes=(None, 0))
        call = jax.jit(batched)
        found = call(p, x)
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found[:2], [many_functions(p, x[k]) for k in range(2)], rtol=1e-11)
        slopes = (jnp.sum(call(p + step, x) - call(p - step, x)), call(p, x + step) - call(p, x - step))
        gradients = jax.jit(jax.grad(lambda p, x: jnp.sum(batched(p, x)), argnums=(0, 1)))(p, x)
        for gradient, slope in zip(gradients, slopes, strict=True):
            scale = float(np.abs(gradient).max())
            np.testing.assert_allclose(gradient, slope / (2 * step), rtol=1e-5, atol=1e-7 * scale)


def test_other_transformations():
    fun, p, x = PROGRAMS["arms"]
    batched = ab.batched(fun, in_axes=(None, 0))
    scales = jnp.asarray([0.5, 0.9])
    one_by_one = jnp.stack([batched(s, x) for s in scales])
    close(jax.jit(jax.vmap(batched, in_axes=(0, None)))(scales, x), one_by_one)
    gradient = jax.grad(lambda p: batched(p, x).sum())
    _, along = jax.jvp(gradient, (p,), (jnp.float32(1.0),))
    near = (gradient(p + 1e-2) - gradient(p - 1e-2)) / 2e-2
    np.testing.assert_allclose(along, near, rtol=0.05)


@pytest.mark.parametrize("loops", ["native", "xla"])
def test_rows_that_fail_leave_others_alone(loops):
    x = jnp.asarray([1.0, -3.0, 0.5, -5.0])
    masked = ab.batched(fails, in_axes=(None, 0), on_error="mask", options={"loops": loops})

    def loss(p, x):
        y, failures = masked(p, x)
        return jnp.where(failures.failed, 0.0, y).sum(), failures.failed

    (_, failed), (of_p, of_x) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(jnp.float32(0.1), x)
    assert failed.tolist() == [False, True, False, True]
    assert np.isfinite(of_p) and np.all(np.isfinite(of_x)) and not np.any(of_x[np.asarray(failed)])


@ab.batched(in_axes=(None, 0))
def search(p, v):
    """A recursion on arrays: quickselect."""

    def among(v, k, depth):
        if depth == 0:
            return v[k]
        pivot = v.mean()
        below = jnp.where(v < pivot, v, 1e3)
        count = jnp.sum(v < pivot)
        if k < count:
            return among(jnp.abs(jnp.fft.fft(below)), k, depth - 1)
        return among(v + p, k, depth - 1) * 0.5

    return among(v, 3, 4)


def test_an_operation_that_machine_code_does_not_know():
    """`fft` is XLA's: so is all of the recursion, and asking for machine code says why that cannot be."""
    v = normal(5, 20)
    with ab.options(loops="native"), pytest.raises(OptionError, match="fft"):
        jax.jit(lambda p, v: search(p, v)).lower(jnp.float32(0.1), v)
    assert jnp.all(jnp.isfinite(jax.jit(search)(jnp.float32(0.1), v)))


TABLE = np.arange(5.0)


def test_a_table_of_numpy_of_64_bits():
    @ab.batched
    def walk(x):
        y = x
        while y < 3:
            y = y + TABLE[int(y)] + 0.3
        return y

    close(*both(walk, jnp.asarray([0.1, 0.7, 1.4, 2.9])))


@ab.batched
def takeuchi(x, y, z):
    def tak(x, y, z):
        if y >= x:
            return z
        return tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))

    return tak(x, y, z)


def test_recursion():
    args = [jnp.asarray(RNG.integers(0, 8, 20), jnp.int32) for _ in range(3)]
    found, wanted = both(takeuchi, *args)
    assert found.tolist() == wanted.tolist()


@ab.batched(options={"max_depth": 50})
def deep(n):
    def down(n):
        if n <= 0:
            return 0
        return 1 + down(n - 1)

    return down(n)


def test_a_stack_that_is_full():
    with pytest.raises(Exception, match=r"(?s)2 of the batch's examples failed.*example 1 .*max_depth=50"):
        jax.block_until_ready(jax.jit(deep)(jnp.asarray([3, 51, 50, 1000])))
    assert jax.jit(deep)(jnp.asarray([3, 49])).tolist() == [3, 49]
