"""What stands in the way of a GPU is said: what was tried, what the driver calls it, and what helps."""

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.cuda import device
from autobatch.backends.cuda.device import SM80, SM90, SM100, architecture, newest_for

X = np.ones(3, np.float32)


@pytest.fixture
def f():
    return ab.batched(lambda x: x * 2, backend="cuda")


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(device, "LIBRARIES", ("libcuda-that-is-not-there.so.1",))
    device.device.cache_clear()
    device.driver.cache_clear()
    yield
    device.device.cache_clear()
    device.driver.cache_clear()


def test_no_driver(no_driver, f):
    with pytest.raises(ab.DeviceError) as error:
        f(X)
    text = str(error.value)
    assert "tried libcuda-that-is-not-there.so.1 (" in text, "what was tried"
    assert "cannot open shared object file" in text, "the cause"
    assert "nvidia-smi" in text and "backend='llvm'" in text, "the cure"


def test_what_is_shown_needs_no_driver(no_driver, f):
    text = f.lower(X).as_text("backend")
    assert ".target sm_80" in text and ".visible .entry run(" in text
    assert "one kernel, a thread for each example" in str(f.explain(X))
    assert ".target sm_100" in f.lower(X).ptx("sm_100")
    with pytest.raises(ab.BatchError, match="'sm_50' is not known; it is 'sm_80', 'sm_90', 'sm_100'"):
        f.lower(X).ptx("sm_50")
    with pytest.raises(ab.BatchError, match="where backend='cuda'"):
        ab.batched(lambda x: x * 2, backend="llvm").lower(X).ptx()


def test_handles(gpu, f):
    handle = f.lower(X).compile()
    np.testing.assert_array_equal(handle(np.arange(5, dtype=np.float32)), [0, 2, 4, 6, 8])
    with pytest.raises(ab.PlanError, match="this executable is for"):
        handle(np.arange(5))


def test_no_gpu(gpu, f):
    gpu.machine(devices=0)
    with pytest.raises(ab.DeviceError, match="cuInit of the CUDA driver says CUDA_ERROR_NO_DEVICE(.|\n)*--gpus all"):
        f(X)


def test_a_driver_that_is_too_old(gpu, f):
    gpu.machine(version=10020)
    with pytest.raises(ab.DeviceError, match=r"the driver is one of CUDA 10\.2, and 11\.2 is the oldest"):
        f(X)


def test_a_gpu_that_is_too_old(gpu, f):
    gpu.machine(capability=(7, 5))
    with pytest.raises(ab.DeviceError, match=r"Fake 7\.5 has the compute capability 7\.5, and kernels are for sm_80"):
        f(X)


@pytest.mark.parametrize(
    ("capability", "version", "wanted"),
    [((8, 0), 11020, SM80), ((8, 9), 12080, SM80), ((9, 0), 11040, SM80), ((9, 0), 11080, SM90)]
    + [((10, 0), 12040, SM90), ((10, 0), 12080, SM100), ((12, 0), 13000, SM100), ((7, 5), 13000, None)],
)
def test_the_newest_kind_that_gpu_and_driver_know(capability, version, wanted):
    assert newest_for(capability, version) is wanted


def test_kinds_have_names():
    assert [architecture(a.name) for a in (SM80, SM90, SM100)] == [SM80, SM90, SM100]


def test_ptx_that_the_driver_refuses(gpu, f):
    gpu.fail("cuModuleLoadDataEx", 218)
    with pytest.raises(ab.DeviceError, match="CUDA_ERROR_INVALID_PTX: no words\nptxas says line 7 is wrong"):
        f(X)
    np.testing.assert_array_equal(f(X), 2 * X)


def test_a_kernel_that_fails(gpu, f):
    gpu.fail("cuLaunchKernel", 1)
    with pytest.raises(ab.DeviceError, match="cuLaunchKernel of the CUDA driver says CUDA_ERROR_INVALID_VALUE"):
        f(X)
    gpu.fail("cuStreamSynchronize", 700)
    with pytest.raises(ab.DeviceError, match="illegal memory access(.|\n)*start another one"):
        f(X)


def test_an_error_that_has_no_name(gpu, f):
    gpu.fail("cuLaunchKernel", 4711)
    with pytest.raises(ab.DeviceError, match="says error 4711"):
        f(X)


def test_a_module_is_loaded_once(gpu, f):
    f(X)
    f(np.ones(7, np.float32))
    assert gpu.log.count("load") == 1


def test_memory_without_pools(gpu, f):
    gpu.machine(pools=0)
    np.testing.assert_array_equal(f(X), 2 * X)
    assert "free" in gpu.log


def test_the_context_of_the_caller_is_as_it_was(gpu, f):
    f(X)
    made = device.driver()
    assert made.status("cuCtxPopCurrent_v2", device.Handle()) == 201, "none is left"


def test_a_library_that_is_no_driver(monkeypatch, f):
    monkeypatch.setattr(device, "LIBRARIES", ("libm.so.6",))
    device.driver.cache_clear()
    device.device.cache_clear()
    with pytest.raises(ab.DeviceError, match=r"libm.so.6 has no function cuInit"):
        f(X)
    device.driver.cache_clear()
