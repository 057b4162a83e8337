"""On a GPU: values, gradients, failures and arrays of other libraries; skipped where there is none."""

import importlib
from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, reject, settings

import autobatch as ab
from autobatch.backends.cuda.device import DeviceArray, current_device
from autobatch.testing import NotEquivalent, assert_same, check_equivalence
from tests.backends.cuda.test_arrays import Interface, Tensor, there
from tests.backends.whole import drawn, test_whole
from tests.backends.whole.programs import cases, chase, mandel, newton, parameters
from tests.properties import masked, recursions

CASES = cases()


@cache
def missing():
    try:
        current_device()
    except ab.DeviceError as error:
        return str(error).splitlines()[0]
    return ""


pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def gpu():
    if missing():
        pytest.skip(missing())


def on_both(function, in_axes, *arguments):
    return tuple(ab.batched(function, in_axes=in_axes, backend=b)(*arguments) for b in ("cuda", "llvm"))


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_processor(name):
    case = CASES[name]
    jax.tree.map(np.testing.assert_array_equal, *on_both(case.function, case.in_axes, *case.arguments))


def test_large_batches():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3_000_001)).astype(np.float32)
    found, wanted = on_both(mandel, 0, x, y)
    np.testing.assert_array_equal(found, wanted)
    on_gpu = ab.batched(mandel, backend="cuda")(there(x), there(y))
    np.testing.assert_array_equal(np.asarray(on_gpu), wanted)


@pytest.mark.parametrize("name", ["takeuchi", "ackermann", "minimax", "select", "is_even", "halved"])
def test_recursion(name):
    f, batch = recursions.cases()[name]
    f = ab.batched(f.__wrapped__, in_axes=(None, *(0 for _ in batch)), backend="cuda")
    batch = [np.asarray(x) if hasattr(x, "dtype") else x for x in batch]
    assert_same(ab.unbatch(f(recursions.parameters(), *batch)), f.loop(recursions.parameters(), *batch))


def test_deep_recursion_is_run_again_with_larger_stacks():
    def deep(n):
        return 0 if n == 0 else deep(n - 1) + 1

    n = np.arange(5000, dtype=np.int32) % 900
    np.testing.assert_array_equal(ab.batched(deep, backend="cuda")(n), n)


@pytest.mark.parametrize("function", [masked.guarded, masked.early_exit, masked.nested, masked.unlike])
def test_control_on_numbers(function):
    f = masked.batched(function, backend="cuda")
    x = np.array([0.0, 0.25, 1.5, 2.75, 7.0], np.float32)
    assert_same(ab.unbatch(f(masked.shared(), x)), f.loop(masked.shared(), x))


@pytest.mark.parametrize("name", test_whole.TestGradients.calls)
def test_gradients_have_the_bits_of_the_processor(name):
    function, batch = test_whole.TestGradients.calls[name]
    axes, wrt = (None, *(0 for _ in batch)), (0, len(batch))
    found, wanted = (
        ab.value_and_grad(ab.batched(function, in_axes=axes, backend=b), wrt)(parameters(), *batch)
        for b in ("cuda", "llvm")
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_sums_over_many_rows():
    x = np.linspace(0.1, 2, 100_000).astype(np.float32)
    found, wanted = (
        ab.grad(ab.batched(newton, in_axes=(None, 0), backend=b), (0, 1))(parameters(), x) for b in ("cuda", "llvm")
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_failures():
    table, i = np.array([3, 0, 4, 1, 2], np.int32), np.array([0, 5, 2, -5, -6], np.int32)
    f = ab.batched(chase, in_axes=(None, 0, 0), backend="cuda", on_error="mask")
    found, failures = f(table, there(i), there(np.ones(5, np.float32)))
    np.testing.assert_array_equal(np.asarray(found), [3, 0, 4, 3, 0])
    assert [e.index for e in failures] == [1, 4]


@settings(max_examples=20)
@given(program=drawn.programs(), batch=drawn.batches())
def test_random_programs(program, batch):
    try:
        given_to = {"backends": ("cuda",), "grads": False, "jit": False}
        check_equivalence(program.function, batch, (program.parameters(),), **given_to)
    except NotEquivalent as error:
        if not error.at_a_jump:
            raise
        reject()


class TestArrays:
    x = np.linspace(-2, 1, 1000).astype(np.float32)

    @pytest.fixture
    def wanted(self):
        return ab.batched(mandel, backend="llvm")(self.x, self.x)

    @pytest.mark.parametrize("kind", [DeviceArray, Tensor, Interface])
    def test_by_protocol(self, wanted, kind):
        given = there(self.x) if kind is DeviceArray else kind(there(self.x))
        np.testing.assert_array_equal(np.asarray(ab.batched(mandel, backend="cuda")(given, self.x)), wanted)

    def test_that_are_not_contiguous(self, wanted):
        rows = there(np.stack([self.x, self.x], 1))
        f = ab.batched(lambda v: mandel(v[0], v[1]), in_axes=1, backend="cuda")
        np.testing.assert_array_equal(np.asarray(f(rows.with_axis(0, 1))), wanted)

    def test_of_pytorch(self, wanted):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch knows no GPU")
        x = torch.as_tensor(self.x, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), ab.options(stream=stream.cuda_stream):
            found = torch.from_dlpack(ab.batched(mandel, backend="cuda")(x * 1, x))
            np.testing.assert_array_equal((found + 0).cpu().numpy(), wanted)

    def test_of_cupy(self, wanted):
        try:
            cupy = importlib.import_module("cupy")
        except ImportError as error:
            pytest.skip(f"no CuPy: {error}")
        x = cupy.asarray(self.x)
        found = ab.batched(mandel, backend="cuda")(x * 1, x)
        for take in (cupy.asarray, cupy.from_dlpack):
            np.testing.assert_array_equal((take(found) + 0).get(), wanted)

    def test_of_jax(self, wanted):
        try:
            (on, *_) = jax.devices("cuda")
        except RuntimeError as error:
            pytest.skip(f"this JAX knows no GPU: {error}")
        x = jax.device_put(self.x, on)
        found = ab.batched(mandel, backend="cuda")(x * 1, x)
        assert isinstance(found, jax.Array) and found.devices() == {on}
        np.testing.assert_array_equal(found + 0, wanted)
