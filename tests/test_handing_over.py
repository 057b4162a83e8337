"""Arrays of NumPy become the same arrays of JAX, whichever way they go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.ir import jax_compat


@pytest.fixture(autouse=True, params=[True, False], ids=["quick", "by device_put"])
def way(request, monkeypatch):
    """A version of JAX may have another name for it."""
    if not request.param:
        monkeypatch.setattr("autobatch.ir.jax_compat.batched_device_put", None)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "uint32", "complex64", "float16"])
def test_every_call_gives_the_same(dtype):
    given = {"a": np.arange(12).reshape(3, 4).astype(dtype), "b": (np.zeros((0, 2), dtype), np.ones((), dtype))}
    wanted = jax.tree.map(jnp.asarray, given)
    found = jax_compat.as_jax(given)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(a, jax.Array) and (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        assert (a.sharding, a.committed) == (b.sharding, b.committed)
        np.testing.assert_array_equal(a, b)


def test_numbers_of_64_bits_are_left_where_jax_has_them():
    with jax.enable_x64(True):
        assert jax_compat.as_jax(np.arange(3.0)).dtype == np.float64
    assert jax_compat.as_jax(np.arange(3.0)).dtype == np.float32


def test_what_is_more_than_arrays_of_numpy_goes_the_usual_way():
    found = jax_compat.as_jax([np.ones(2), jax.random.key(0), 3.0])
    assert all(isinstance(x, jax.Array) for x in found) and jnp.issubdtype(found[1].dtype, jax.dtypes.prng_key)


def test_handles_and_calls_of_machine_code_give_arrays_of_jax():
    f = ab.batched(lambda x: (x * 2.0, x > 1.0), backend="llvm")
    x = jnp.arange(5.0)
    handle = f.lower(np.asarray(x)).compile()
    for call in (f, handle):
        found = call(x)
        assert all(isinstance(a, jax.Array) for a in found)
        np.testing.assert_array_equal(found[0], 2 * x)
        np.testing.assert_array_equal(found[1], x > 1)


@pytest.mark.parametrize("count", [3, 4096, 1 << 19])
def test_they_are_copies_of_any_size(count):
    for _ in range(20):
        x = np.arange(count, dtype=np.float32)
        found = [jax_compat.as_jax(x), *jax_compat.as_jax([x, 1.5])[:1]]
        x[:] = -1
        for y in found:
            np.testing.assert_array_equal(y, np.arange(count, dtype=np.float32))
