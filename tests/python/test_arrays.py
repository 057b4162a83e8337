"""Arrays as Python has them: those of NumPy are changed in place by `+=`, those of JAX get another name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab

A = np.arange(6, dtype=np.float32).reshape(2, 3)
ROWS = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
BACKENDS = ["interpret", "xla", "llvm", "auto"]


def argument(a):
    a += 1.0
    return a.sum()


def other_name(a):
    b = a
    b *= 2.0
    return b.sum()


def argument_of_a_helper(a):
    def less(z):
        z -= 1.0
        return z

    return less(a).sum() + a.sum()


def element(a):
    pair = [a, a]
    pair[0] += 1.0
    return pair[1].sum()


def row(a):
    total = 0.0
    for r in a:
        r += 1.0
        total += r.sum()
    return total + a.sum()


def view(a):
    v = a[1:]
    v += 1.0
    return v.sum() + a.sum()


def reshaped(a):
    v = a.reshape(3, 1)
    v += 1.0
    return a.sum()


def two_names(a):
    b = a * 2.0
    c = b
    c += 1.0
    return b.sum()


def in_a_loop(a):
    for _ in range(3):
        a += 1.0
    return a.sum()


SHARED = [argument, other_name, argument_of_a_helper, element, row, view, reshaped, in_a_loop]


def copied(a):
    a = a.copy()
    a += 1.0
    return a.sum()


def computed(a):
    h = np.tanh(a * 2.0)
    h += a
    h *= 2.0
    return h.sum()


def zeros(a):
    total = np.zeros(2, np.float32)
    for r in a:
        total += r
    return total.sum()


def numbers(a):
    x = a[0, 1]
    x += 1.0
    return x + a[0, 1]


ALONE = [copied, computed, zeros, numbers]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fun", SHARED, ids=lambda f: f.__name__)
def test_what_others_hold_is_not_changed(fun, backend):
    given = ROWS if fun is row else A
    before = given.copy()
    with pytest.raises(ab.UnsupportedError, match="something else may hold") as caught:
        ab.batched(fun, backend=backend)(given)
    assert caught.value.span.file == __file__
    np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("fun", SHARED, ids=lambda f: f.__name__)
def test_arrays_of_jax_get_another_name(fun):
    given = jnp.asarray(ROWS if fun is row else A)
    batched = ab.batched(fun)
    np.testing.assert_allclose(batched(given), [fun(x) for x in given], rtol=1e-6)
    with pytest.raises(ab.UnsupportedError, match="something else may hold"):
        batched(np.asarray(given))  # the program for arrays of JAX is another


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fun", ALONE, ids=lambda f: f.__name__)
def test_what_the_function_made_is_changed(fun, backend):
    given = ROWS.copy()
    np.testing.assert_allclose(ab.batched(fun, backend=backend)(given), [fun(x) for x in ROWS], rtol=1e-5)
    np.testing.assert_array_equal(given, ROWS)


def squares(x, p):
    return x * p["w"] ** 2 + p["b"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_python_floats_have_the_bits_of_the_device(backend):
    with jax.enable_x64(True):
        xs = np.array([1.1, 2.2, 3.3])
        f = ab.batched(squares, in_axes=(0, None), backend=backend)
        found = ab.per_example_grad(f, 1)(xs, {"w": 1.1, "b": 0.5})
        assert found["w"].dtype == np.float64
        np.testing.assert_allclose(found["w"], 2 * 1.1 * xs, rtol=1e-14)
        weak = jnp.broadcast_to(jnp.asarray(1.1), (3,))
        assert weak.weak_type
        product = ab.batched(lambda x, w: x * w * w, backend=backend)
        np.testing.assert_allclose(product(xs, weak), xs * 1.1 * 1.1, rtol=1e-14)
        np.testing.assert_allclose(ab.grad(product, 1)(xs, weak), 2 * 1.1 * xs, rtol=1e-14)
