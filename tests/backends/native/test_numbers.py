"""Functions of vectors of floats in machine code, against NumPy in double precision."""

import ctypes

import numpy as np
import pytest

from autobatch.backends.llvm import formulas as numbers
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError, link
from autobatch.backends.llvm.text import LlvmFunction, lanes_below
from autobatch.backends.xla import product_kernels
from autobatch.backends.xla.product_kernels import AVX2, ProductKernel, masked_load

try:
    KERNELS = list(dict.fromkeys([ProductKernel("float32", product_kernels.vectors()), ProductKernel("float32", AVX2)]))
except UnavailableError as error:
    pytest.skip(f"no kernel here: {error}", allow_module_level=True)

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38]


def functions(kernel, names):
    """One function for each name: `x` and `out` are arrays of n floats."""
    parts = [kernel.intrinsics(), numbers.declarations(kernel.vector, kernel.suffix)]
    for name in names:
        f = LlvmFunction(f"void @{name}(ptr %x, ptr %out, i64 %n) nounwind")
        v = numbers.VectorWriter(f, kernel.scalar, kernel.lanes)
        with f.loop(0, "%n", kernel.lanes) as at:
            mask = lanes_below(f, kernel.lanes, f.sub("%n", at))
            place = f.mul(at, kernel.bytes)
            y = numbers.FUNCTIONS[name](v, [masked_load(f, kernel, f.at("%x", place), mask)])
            operands = f"{kernel.vector} {y}, ptr {f.at('%out', place)}, i32 4, {kernel.mask} {mask}"
            f.do(f"call void @llvm.masked.store.{kernel.suffix}.p0({operands})")
        f.do("ret void")
        parts.append(str(f))
    code = link(machine_code.compile_object("\n".join(parts)), names)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

    def run(name, x):
        x, out = np.ascontiguousarray(x, np.float32), np.empty(len(x), np.float32)
        prototype(code.functions[name])(x.ctypes.data, out.ctypes.data, len(x))
        return out

    run.code = code
    return run


EXACT = {
    "exp": (np.exp, (-104, 89), 2),
    "log": (np.log, (1e-44, 3e38), 2),
    "tanh": (np.tanh, (-12, 12), 6),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), (-87, 100), 3),
    "sqrt": (np.sqrt, (0, 1e10), 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-10, 1e10), 1.5),
    "abs": (np.abs, (-5, 5), 0),
    "neg": (np.negative, (-5, 5), 0),
    "floor": (np.floor, (-5, 5), 0),
    "ceil": (np.ceil, (-5, 5), 0),
    "square": (np.square, (-5, 5), 0.5),
}
"""The function in double precision, the range, and how many units in the last place it may be off."""


@pytest.fixture(scope="module", params=KERNELS, ids=lambda k: f"{k.lanes} lanes")
def run(request):
    return functions(request.param, list(EXACT))


@pytest.mark.parametrize("name", EXACT)
def test_units_in_the_last_place(run, name):
    exact, (low, high), ulp = EXACT[name]
    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, 50_000) if low >= -200 and high < 1e3 else np.exp(rng.uniform(-100, 88, 50_000))
    x = np.concatenate([x, rng.normal(size=50_000) * 10.0 ** rng.uniform(-10, 0, 50_000)]).astype(np.float32)
    x = x[(x >= np.float32(low)) & (x <= np.float32(high))]
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64))
        step = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
        off = np.abs(run(name, x) - wanted) / step
        fine = np.isfinite(wanted.astype(np.float32))
    assert fine.mean() > 0.4
    worst = int(np.argmax(np.where(fine, off, 0)))
    assert off[worst] <= max(ulp, 0.5), f"{name}({x[worst]}) = {run(name, x[worst : worst + 1])}, not {wanted[worst]}"


@pytest.mark.parametrize("name", EXACT)
def test_special_values(run, name):
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        wanted = EXACT[name][0](x.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(run(name, x), wanted, rtol=1e-6, atol=1e-44)


def test_numbers_as_llvm_writes_them():
    assert numbers.text_of(1.0, 4) == "0x3FF0000000000000"
    assert numbers.text_of(0.1, 4) != numbers.text_of(0.1, 8), "rounded to single precision before"
    assert numbers.text_of(1e300, 4) == numbers.text_of(float("inf"), 8)
