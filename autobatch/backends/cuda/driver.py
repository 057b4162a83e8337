"""The CUDA driver, by ctypes: the functions that are called, and what they say where they fail.

No package of CUDA is imported: what a GPU needs is its driver, which comes with `libcuda.so.1`. It is looked for at the
first call that runs on a GPU, and its absence is an error with what was tried, the cause, and a cure.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from autobatch.errors import DeviceError

LIBRARIES: Sequence[str] = ("libcuda.so.1",)
"""What the driver's library is called."""

OLDEST = 11020
"""The first version of CUDA whose driver has memory in the order of streams."""

ELSEWHERE = "use backend='llvm' or backend='xla', which run on the processor"
INSTALL = (
    "install NVIDIA's driver (`nvidia-smi` says whether it works), start a container with its GPUs "
    f"(`docker run --gpus all`), or {ELSEWHERE}"
)

Handle = ctypes.c_void_p
Place = ctypes.c_uint64
"""An address in the memory of a GPU."""
_int, _unsigned, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_out = ctypes.POINTER

FUNCTIONS: dict[str, list[Any]] = {
    "cuInit": [_unsigned],
    "cuDriverGetVersion": [_out(_int)],
    "cuGetErrorName": [_int, _out(ctypes.c_char_p)],
    "cuGetErrorString": [_int, _out(ctypes.c_char_p)],
    "cuDeviceGetCount": [_out(_int)],
    "cuDeviceGet": [_out(_int), _int],
    "cuDeviceGetName": [ctypes.c_char_p, _int, _int],
    "cuDeviceGetAttribute": [_out(_int), _int, _int],
    "cuDevicePrimaryCtxRetain": [_out(Handle), _int],
    "cuCtxPushCurrent_v2": [Handle],
    "cuCtxPopCurrent_v2": [_out(Handle)],
    "cuCtxGetDevice": [_out(_int)],
    "cuModuleLoadDataEx": [_out(Handle), ctypes.c_char_p, _unsigned, _out(_int), _out(ctypes.c_void_p)],
    "cuModuleGetFunction": [_out(Handle), Handle, ctypes.c_char_p],
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": [_out(_int), Handle, _int, _size],
    "cuLaunchKernel": [Handle, *[_unsigned] * 7, Handle, _out(ctypes.c_void_p), _out(ctypes.c_void_p)],
    "cuMemPoolCreate": [_out(Handle), ctypes.c_void_p],
    "cuMemPoolSetAttribute": [Handle, _int, ctypes.c_void_p],
    "cuMemAllocFromPoolAsync": [_out(Place), _size, Handle, Handle],
    "cuMemAlloc_v2": [_out(Place), _size],
    "cuMemFreeAsync": [Place, Handle],
    "cuMemFree_v2": [Place],
    "cuMemGetInfo_v2": [_out(_size), _out(_size)],
    "cuMemcpyHtoDAsync_v2": [Place, ctypes.c_void_p, _size, Handle],
    "cuMemcpyDtoHAsync_v2": [ctypes.c_void_p, Place, _size, Handle],
    "cuMemsetD8Async": [Place, ctypes.c_ubyte, _size, Handle],
    "cuMemsetD32Async": [Place, _unsigned, _size, Handle],
    "cuPointerGetAttribute": [ctypes.c_void_p, _int, Place],
    "cuStreamSynchronize": [Handle],
    "cuStreamWaitEvent": [Handle, Handle, _unsigned],
    "cuEventCreate": [_out(Handle), _unsigned],
    "cuEventRecord": [Handle, Handle],
    "cuEventQuery": [Handle],
    "cuEventDestroy_v2": [Handle],
}
"""By name: the types of the arguments. Each returns a `CUresult`, 0 where it succeeds."""

OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
NO_DEVICE = 100
NOT_READY = 600
LOST = frozenset({700, 702, 714, 715, 716, 717, 718, 719})
"""Errors after which nothing works in this process any more: `CUDA_ERROR_ILLEGAL_ADDRESS` and its like."""


class OutOfMemory(DeviceError):
    """The memory of a GPU does not suffice."""


class Driver:
    """The functions of the driver. Each raises DeviceError where it fails, with the name that the driver has for it."""

    def __init__(self, library: Any, path: str) -> None:
        self.path, self._functions = path, {}
        for name, types in FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise DeviceError(
                    f"backend='cuda' is not available: {path} has no function {name}, so it is too old\n"
                    f"  install a newer driver, or {ELSEWHERE}"
                ) from None
            function.argtypes, function.restype = types, ctypes.c_int
            self._functions[name] = function

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function; what it returns."""
        found: int = self._functions[name](*arguments)
        return found

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function that has to succeed."""
        if status := self.status(name, *arguments):
            raise self.error(name, status)

    def integer(self, name: str, *arguments: Any) -> int:
        """The number that a function writes behind its first argument."""
        found = ctypes.c_int()
        self(name, ctypes.byref(found), *arguments)
        return found.value

    def handle(self, name: str, *arguments: Any) -> Handle:
        """The same of a handle."""
        found = Handle()
        self(name, ctypes.byref(found), *arguments)
        return found

    def error(self, name: str, status: int, more: str = "") -> DeviceError:
        """What a function has failed with."""
        words = f"{name} of the CUDA driver says {self.text('cuGetErrorName', status)}"
        said = self.text("cuGetErrorString", status)
        words += f": {said}" if said else ""
        words += f"\n{more}" if more else ""
        if status == OUT_OF_MEMORY:
            return OutOfMemory(words)
        if status == NOT_INITIALIZED and os.getpid() != _started:
            words += "\n  a GPU cannot be used in a process that was forked from one that used it; start it by spawn"
        if status in LOST:
            words += "\n  nothing that is on the GPU can be used by this process any more; start another one"
        return DeviceError(words)

    def text(self, name: str, status: int) -> str:
        found = ctypes.c_char_p()
        if self.status(name, status, ctypes.byref(found)) or found.value is None:
            return f"error {status}" if name == "cuGetErrorName" else ""
        return found.value.decode()

    @property
    def version(self) -> int:
        """Of CUDA, as 1000 times its first number and 10 times its second one."""
        return self.integer("cuDriverGetVersion")


_started = os.getpid()


@cache
def driver() -> Driver:
    """The driver of this machine, ready for calls; DeviceError where there is none."""
    made = _found()
    if status := made.status("cuInit", 0):
        cure = INSTALL if status == NO_DEVICE else f"see `nvidia-smi`, or {ELSEWHERE}"
        raise DeviceError(f"backend='cuda' is not available: {made.error('cuInit', status)} ({made.path})\n  {cure}")
    if made.version < OLDEST:
        raise DeviceError(
            f"backend='cuda' is not available: the driver is one of CUDA {dotted(made.version)}, and {dotted(OLDEST)} "
            f"is the oldest that is known\n  install a newer driver, or {ELSEWHERE}"
        )
    return made


def _found() -> Driver:
    tried = []
    for path in LIBRARIES:
        try:
            return Driver(ctypes.CDLL(path), path)
        except OSError as error:
            tried.append(f"{path} ({error})")
    words = f"backend='cuda' is not available: no CUDA driver was found; tried {', '.join(tried)}"
    raise DeviceError(f"{words}\n  {INSTALL}")


def dotted(version: int) -> str:
    """A version of CUDA as people write it.

    >>> dotted(12080)
    '12.8'
    """
    return f"{version // 1000}.{version % 1000 // 10}"
