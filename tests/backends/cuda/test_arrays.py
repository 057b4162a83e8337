"""Arrays on a GPU: read where they lie, handed out so, in the order of streams."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.cuda import device
from autobatch.backends.cuda.device import LEGACY, DeviceArray, Place, current_device
from autobatch.call import native
from tests.backends.whole.programs import chase, horner, mandel, newton, parameters

X = np.linspace(-2, 1, 40).astype(np.float32)


def squared(x):
    while x < 5.0:
        x = x * x + 1.0
    return x


def squared_by_jax(x):
    return jax.lax.fori_loop(0, 8, lambda _, x: jnp.where(x < 5.0, x * x + 1.0, x), x)


def there(x, stream=LEGACY):
    """A copy on the GPU."""
    held = np.require(x, requirements="C")
    found = device.made(current_device(), held.shape, held.dtype, stream)
    if held.nbytes:
        found.view.owner.write(held.ctypes.data, held.nbytes, stream)
    return found


class Tensor:
    """An array of another library that has DLPack, as PyTorch's; `streams`: those that have asked for it."""

    def __init__(self, x):
        self.x, self.streams = x, []

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, stream=None):
        if stream == -1:
            raise ValueError("JAX refuses it, which the protocol allows")
        self.streams.append(stream)
        return self.x.__dlpack__(stream=stream)


class Interface:
    """An array that has `__cuda_array_interface__` alone, as Numba's."""

    def __init__(self, x, **changes):
        self.x, self.changes = x, changes

    @property
    def __cuda_array_interface__(self):
        return {**self.x.__cuda_array_interface__, **self.changes}


@pytest.fixture
def wanted():
    return ab.batched(mandel, backend="llvm")(X, X)


class TestIn:
    @pytest.mark.parametrize("kind", [DeviceArray, Tensor, Interface])
    def test_are_read_where_they_lie(self, gpu, wanted, kind):
        x = there(X)
        given = x if kind is DeviceArray else kind(x)
        f = ab.batched(mandel, backend="cuda")
        f(given, given)
        gpu.forget()
        found = f(given, given)
        assert isinstance(found, DeviceArray)
        assert not any(line.startswith("in ") for line in gpu.log), "nothing is copied to the GPU"
        assert not any(f"out {X.nbytes}" in line for line in gpu.log), "nor back, but two numbers that say how it went"
        np.testing.assert_array_equal(np.asarray(found), wanted)

    def test_where_no_back_end_is_asked_for(self, gpu, wanted):
        f = ab.batched(mandel)
        x = Tensor(there(X))
        found = f(x, X)
        assert isinstance(found, DeviceArray)
        np.testing.assert_array_equal(np.asarray(found), wanted)
        np.testing.assert_allclose(f(X, X), wanted)  # by the processor
        assert f.cache_info().executables == 2

    def test_where_jax_computes_on_a_gpu(self, gpu, wanted, monkeypatch):
        """Loops that numbers end are kernels; results are arrays of JAX, as those of XLA."""
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        monkeypatch.setattr(native, "_of_jax", lambda x: jnp.asarray(np.asarray(x)))  # JAX has no GPU here
        f = ab.batched(mandel)
        found = f(X, X)
        assert isinstance(found, jax.Array)
        np.testing.assert_array_equal(found, wanted)
        assert "cuda ('auto': cuda 100 and xla 240 microseconds, estimated for" in str(f.explain(X, X))
        g = ab.batched(lambda x: x * 2.0)
        assert "cuda 100 and xla 80 microseconds" in g.explain(X).data["backend"]["why"]
        np.testing.assert_allclose(ab.grad(ab.batched(squared))(X), jax.vmap(jax.grad(squared_by_jax))(X), rtol=1e-5)

    def test_where_jax_computes_on_what_is_no_gpu_of_ours(self, monkeypatch, wanted):
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        monkeypatch.setattr(native, "is_there", lambda: False)
        np.testing.assert_array_equal(ab.batched(mandel)(X, X), wanted)

    def test_beside_arrays_of_the_host(self, gpu, wanted):
        np.testing.assert_array_equal(np.asarray(ab.batched(mandel, backend="cuda")(there(X), X)), wanted)

    def test_shared_ones(self, gpu):
        p = jax.tree.map(lambda x: Tensor(there(x)), parameters())
        x = np.linspace(0.1, 2, 9).astype(np.float32)
        f, here = (ab.batched(newton, in_axes=(None, 0), backend=b) for b in ("cuda", "llvm"))
        found = f(p, x)
        assert type(found) is np.ndarray, "the examples are on the host, so is the result"
        np.testing.assert_array_equal(found, here(parameters(), x))
        other = {**parameters(), "a": np.float32(0.7)}
        np.testing.assert_array_equal(f(jax.tree.map(lambda x: Tensor(there(x)), other), x), here(other, x))

    def test_in_containers(self, gpu):
        def both(p, x):
            return x * p[1] + p["a"][0]

        f = ab.batched(both, in_axes=(None, 0), backend="cuda")
        found = f({1: Tensor(there(np.float32(2.0))), "a": (np.float32(1.0),)}, Tensor(there(X)))
        np.testing.assert_array_equal(np.asarray(found), X * 2 + 1)
        assert f.loop({1: Tensor(there(np.float32(2.0))), "a": (1.0,)}, there(X[:2])) == [-3.0, 2 * X[1] + 1]

    def test_that_are_not_contiguous(self, gpu, wanted):
        x, f = there(np.repeat(X, 3).reshape(-1, 3)), ab.batched(mandel, backend="cuda")
        v = x.view
        column = DeviceArray(device.View(v.place + 4, 0, (40,), (12,), v.dtype, v.owner), LEGACY)
        assert not column.is_contiguous
        np.testing.assert_array_equal(np.asarray(f(column, X)), wanted)
        backwards = DeviceArray(device.View(v.place + 12 * 39, 0, (40,), (-12,), v.dtype, v.owner), LEGACY)
        np.testing.assert_array_equal(np.asarray(f(backwards, X[::-1].copy())), wanted[::-1])

    def test_on_another_axis(self, gpu):
        rows, w = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32), X
        f = ab.batched(horner, in_axes=(0, 1), backend="cuda")
        found = f(w, there(rows.T))
        for x, y in zip(found, ab.batched(horner, backend="llvm")(w, rows), strict=True):
            np.testing.assert_array_equal(np.asarray(x), y)

    def test_that_are_misaligned(self, gpu, wanted):
        room = np.zeros(4 * len(X) + 1, np.uint8)
        room[1:] = X.view(np.uint8)
        v = there(room).view
        x = DeviceArray(device.View(v.place + 1, 0, X.shape, (4,), np.dtype("float32"), v.owner), LEGACY)
        assert not x.is_aligned
        np.testing.assert_array_equal(np.asarray(ab.batched(mandel, backend="cuda")(x, X)), wanted)

    def test_of_no_examples(self, gpu):
        found = ab.batched(mandel, backend="cuda")(there(X[:0]), there(X[:0]))
        assert found.shape == (0,) and np.asarray(found).shape == (0,)

    def test_of_another_dtype_are_refused(self, gpu):
        f = ab.batched(mandel, backend="cuda")
        with pytest.raises(ab.BatchError, match="re is an array of float64 on a GPU.*float32.*jax_enable_x64"):
            f(there(X.astype(np.float64)), there(X))

    def test_that_another_back_end_cannot_read_are_refused(self, gpu):
        with pytest.raises(ab.BatchError, match="array on a GPU, which backend='llvm' does not read"):
            ab.batched(mandel, backend="llvm")(there(X), X)

    def test_plain_python_gets_them_on_the_host(self, gpu, wanted):
        assert ab.batched(mandel, backend="cuda").loop(Tensor(there(X)), X) == wanted.tolist()

    def test_with_a_mask_or_a_stream_that_is_none(self, gpu):
        f = ab.batched(mandel, backend="cuda")
        with pytest.raises(ab.BatchError, match="mask"):
            f(Interface(there(X), mask=1), X)
        with pytest.raises(ab.BatchError, match="stream 0"):
            f(Interface(there(X), stream=0), X)

    def test_failures(self, gpu):
        table, i = np.array([3, 0, 4, 1, 2], np.int32), np.array([0, 5, 2], np.int32)
        f = ab.batched(chase, in_axes=(None, 0, 0), backend="cuda", on_error="mask")
        found, failures = f(table, there(i), there(np.ones(3, np.float32)))
        np.testing.assert_array_equal(np.asarray(found), [3, 0, 4])
        assert [e.index for e in failures] == [1]
        with pytest.raises(ab.ExampleError, match="example 1"):
            ab.batched(chase, in_axes=(None, 0, 0), backend="cuda")(table, there(i), there(np.ones(3, np.float32)))


class TestOut:
    def test_by_dlpack(self, gpu, wanted):
        found = ab.batched(mandel, backend="cuda")(there(X), there(X))
        assert found.__dlpack_device__() == (device.CUDA, 0)
        view = device.taken(found.__dlpack__(stream=LEGACY))
        assert (view.place, view.shape, view.dtype) == (found.view.place, (40,), np.dtype("int32"))
        del found
        gc.collect()
        np.testing.assert_array_equal(np.asarray(DeviceArray(view, LEGACY)), wanted)

    def test_a_capsule_that_nobody_takes_keeps_nothing(self, gpu):
        found = there(X)
        before = len(device._handed)
        capsule = found.__dlpack__()
        assert len(device._handed) == before + 1
        del capsule
        assert len(device._handed) == before

    def test_memory_that_was_handed_out_is_freed_behind_all_work(self, gpu):
        """Others may use it in the order of streams that we do not know."""
        x, held = there(X), gpu.held
        gpu.forget()
        del x
        assert "free" not in gpu.log and gpu.held < held
        x = there(X)
        x.__cuda_array_interface__  # noqa: B018
        del x
        assert "free" in gpu.log

    def test_by_the_array_interface(self, gpu):
        found = there(X.reshape(4, 10)).__cuda_array_interface__
        assert (found["version"], found["shape"], found["typestr"]) == (3, (4, 10), "<f4")
        assert found["strides"] is None and found["stream"] == LEGACY
        turned = there(X.reshape(4, 10)).with_axis(0, 1)
        assert turned.__cuda_array_interface__["strides"] == (4, 40)
        np.testing.assert_array_equal(np.asarray(turned), X.reshape(4, 10).T)

    @pytest.mark.parametrize(
        "dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64", "complex64"]
    )
    def test_every_dtype(self, gpu, dtype):
        x = there(np.arange(6).astype(jnp.dtype(dtype)))
        view = device.taken(x.__dlpack__())
        assert view.dtype == jnp.dtype(dtype)
        np.testing.assert_array_equal(np.asarray(DeviceArray(view, LEGACY)), np.asarray(x))

    def test_axes_of_results(self, gpu):
        def both(x):
            return jnp.stack([x, 2 * x])

        found = ab.batched(both, backend="cuda", out_axes=1)(there(X))
        np.testing.assert_array_equal(np.asarray(found), np.stack([X, 2 * X]))

    def test_arrays_of_jax_on_the_host(self, gpu, wanted):
        found = ab.batched(mandel, backend="cuda")(jnp.asarray(X), X)
        assert isinstance(found, jax.Array)
        np.testing.assert_array_equal(found, wanted)

    def test_nothing_else_is_handed_over(self, gpu):
        with pytest.raises(BufferError):
            there(X).__dlpack__(copy=True)
        with pytest.raises(BufferError):
            there(X).__dlpack__(dl_device=(1, 0))

    def test_gradients(self, gpu):
        x = np.linspace(0.1, 2, 50).astype(np.float32)
        f, here = (ab.grad(ab.batched(newton, in_axes=(None, 0), backend=b), (0, 1)) for b in ("cuda", "llvm"))
        found = f(parameters(), there(x))
        assert all(isinstance(g, DeviceArray) for g in jax.tree.leaves(found))
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), found, here(parameters(), x))

    def test_derivatives_that_xla_computes_are_refused(self, gpu):
        f = ab.batched(newton, in_axes=(None, 0), backend="cuda")
        with pytest.raises(ab.UnsupportedError, match="computed by XLA(.|\n)*from_dlpack"):
            ab.jvp(f, (parameters(), there(np.ones(3, np.float32))), (None, np.ones(3, np.float32)))


class Stream:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


class TestStreams:
    @pytest.mark.parametrize("stream", [7, Stream(7)])
    def test_work_is_in_the_order_of_the_callers(self, gpu, wanted, stream):
        x, f = Tensor(there(X)), ab.batched(mandel, backend="cuda", options={"stream": stream})
        gpu.forget()
        found = f(x, X)
        assert x.streams[-1] == 7, "its owner lets our stream wait for what computes it"
        assert all(line.endswith("on 7") for line in gpu.log if line.startswith(("launch", "in", "out")))
        assert found.__cuda_array_interface__["stream"] == 7
        gpu.forget()
        found.__dlpack__(stream=9)
        assert gpu.log == ["9 waits for 7"]
        np.testing.assert_array_equal(np.asarray(found), wanted)

    def test_what_computes_an_array_is_waited_for(self, gpu):
        f = ab.batched(mandel, backend="cuda")
        with ab.options(stream=7):
            x = f(there(X), there(X))
        gpu.forget()
        ab.batched(lambda n: n + 1, backend="cuda")(x)
        assert f"{LEGACY} waits for 7" in gpu.log
        gpu.forget()
        ab.batched(lambda n: n + 1, backend="cuda")(Interface(x))
        assert f"{LEGACY} waits for 7" in gpu.log

    def test_what_is_none(self):
        for given in ("left", -1, True, Stream):
            with pytest.raises(ab.Error, match="stream"):
                ab.options(stream=given)


def test_place_is_a_number_of_64_bits():
    assert Place(1 << 63).value == 1 << 63
