"""`AUTOBATCH_CHECK_MEMORY=1`: an access of memory that is nobody's is reported with its line; others are as ever."""

import ctypes
from dataclasses import dataclass

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.text import OutsideError, allow, checked, instrumented

pytestmark = pytest.mark.usefixtures("checked_memory")

ONE = """
define void @entry(ptr %from, ptr %to, i64 %place) {
entry:
  %at = getelementptr float, ptr %from, i64 %place
  %x = load float, ptr %at ; scene.py:7: gather
  store float %x, ptr %to
  ret void
}
"""
LANES = """
declare <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr>, i32, <4 x i1>, <4 x float>)
define void @entry(ptr %from, ptr %to, i64 %place) {
entry:
  %one = insertelement <4 x i64> <i64 0, i64 1, i64 0, i64 1000000>, i64 %place, i64 2
  %at = getelementptr float, ptr %from, <4 x i64> %one
  %x = call <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr> %at, i32 4, <4 x i1> <i1 1, i1 1, i1 1, i1 0>, <4 x float> zeroinitializer) ; scene.py:7: gather
  store <4 x float> %x, ptr %to
  ret void
}
"""  # noqa: E501


@pytest.mark.parametrize("text", [ONE, LANES])
@pytest.mark.parametrize("place", [-1, 0, 2, 3, 1 << 40])
def test_an_access_outside_is_reported_and_does_not_happen(text, place):
    code = machine_code.in_memory(instrumented(text), ("entry",), {})
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.functions["entry"])
    around = np.arange(10, 15, dtype=np.float32)
    inside, out = around[1:4], np.zeros(4, np.float32)

    def call():
        with checked([inside, out]):
            entry(inside.ctypes.data, out.ctypes.data, place)

    if 0 <= place < 3:
        call()
        assert out[0 if text is ONE else 2] == inside[place]
        return
    with pytest.raises(OutsideError, match=r"1 accesses of .* of 4 bytes at 0x\w+: scene.py:7: gather"):
        call()
    assert out[0 if text is ONE else 2] == 0


def test_what_is_allowed_later_is_the_calls_own():
    code = machine_code.in_memory(instrumented(ONE), ("entry",), {})
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.functions["entry"])
    x, out = np.ones(3, np.float32), np.zeros(1, np.float32)
    with checked([out]):
        allow(x)
        entry(x.ctypes.data, out.ctypes.data, 2)
    assert out[0] == 1


def test_arrays_of_a_call_that_raises_are_forgotten():
    """Code that is called with no known arrays, as that of handles, is not looked at."""
    code = machine_code.in_memory(instrumented(ONE), ("entry",), {})
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.functions["entry"])
    x, out = np.arange(3, dtype=np.float32), np.zeros(1, np.float32)
    with pytest.raises(KeyboardInterrupt), checked([np.zeros(1)]):
        raise KeyboardInterrupt
    entry(x.ctypes.data, out.ctypes.data, 2)
    assert out[0] == 2


@dataclass
class Sphere:
    center: list
    color: float


SCENE = [Sphere([float(k), 1.0 - k, 0.5 * k], 0.25 * k) for k in range(4)]


def nearest(scene, d):
    hit, near = None, 1e9
    for s in scene:
        b = d[0] * s.center[0] + d[1] * s.center[1] + s.center[2]
        if 0.0 < b < near:
            hit, near = s, b
    return 0.0 if hit is None else hit.color * near


def none_at_all(scene, d):
    hit, k = None, 0
    while k < len(scene):
        if d[0] > 100.0:
            hit = scene[k]
        k += 1
    return d[1] if hit is None else hit.color * d[0] + hit.center[2]


def the_last(scene, d):
    hit, total = None, 0.0
    for s in scene:
        if hit is not None and hit.color < d[0]:
            total += hit.center[0] * s.color
        if s.color > d[1]:
            hit = s
    return total


@pytest.mark.parametrize("walk", [nearest, none_at_all, the_last])
@pytest.mark.parametrize("rows", [1, 4, 37])
def test_a_lane_that_holds_none_loads_from_nowhere(walk, rows):
    d = np.random.default_rng(rows).normal(size=(rows, 2)).astype(np.float32)
    f = ab.batched(walk, in_axes=(None, 0), backend="llvm")
    np.testing.assert_allclose(f(SCENE, d), f.loop(SCENE, d), rtol=1e-5)
