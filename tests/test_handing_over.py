"""Arrays of NumPy become the same arrays of JAX, whichever way they go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch import handing_over


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch):
    monkeypatch.setattr(handing_over, "_seen", {})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool", "uint32", "complex64", "float16"])
def test_every_call_gives_the_same(dtype):
    given = {"a": np.arange(12).reshape(3, 4).astype(dtype), "b": (np.zeros((0, 2), dtype), np.ones((), dtype))}
    wanted = jax.tree.map(jnp.asarray, given)
    for _ in range(handing_over.SEEN + 2):
        found = handing_over.as_jax(given)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert isinstance(a, jax.Array) and (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
            np.testing.assert_array_equal(a, b)


def test_they_are_copies():
    for _ in range(handing_over.SEEN + 2):
        x = np.arange(4096, dtype=np.float32)
        found = handing_over.as_jax(x)
        found.block_until_ready()
        x[:] = -1
        np.testing.assert_array_equal(found, np.arange(4096))


def test_many_shapes_are_forgotten(monkeypatch):
    monkeypatch.setattr(handing_over, "MOST", 4)
    for n in range(40):
        handing_over.as_jax(np.ones(n % 9, np.float32))
    assert len(handing_over._seen) <= 4


def test_what_is_more_than_arrays_of_numpy_goes_the_usual_way():
    found = handing_over.as_jax([np.ones(2), jax.random.key(0), 3.0])
    assert all(isinstance(x, jax.Array) for x in found) and jnp.issubdtype(found[1].dtype, jax.dtypes.prng_key)


def test_handles_and_calls_of_machine_code_give_arrays_of_jax():
    f = ab.batched(lambda x: (x * 2.0, x > 1.0), backend="llvm")
    x = jnp.arange(5.0)
    handle = f.lower(np.asarray(x)).compile()
    for _ in range(handing_over.SEEN + 2):
        for call in (f, handle):
            found = call(x)
            assert all(isinstance(a, jax.Array) for a in found)
            np.testing.assert_array_equal(found[0], 2 * x)
            np.testing.assert_array_equal(found[1], x > 1)


@pytest.mark.parametrize("count", [3, 4096, 1 << 19])
def test_they_are_copies_of_any_size(count):
    for _ in range(20):
        x = np.arange(count, dtype=np.float32)
        found = [handing_over.as_jax(x), *handing_over.as_jax([x, 1.5])[:1]]
        x[:] = -1
        for y in found:
            np.testing.assert_array_equal(y, np.arange(count, dtype=np.float32))
