"""A GPU: its primary context, which JAX and PyTorch use too, its memory, modules, streams, and arrays in its memory.

Work is done in the order of a stream: that of the caller, or the legacy default stream, which waits for all others that
do not say otherwise.

Arrays of other libraries: whatever has `__dlpack__` on a GPU or `__cuda_array_interface__` is read where it lies, be it
of JAX, CuPy, Numba, or a tensor of PyTorch. Results offer both, so each of these libraries takes them as they are:
`torch.from_dlpack(y)`, `cupy.asarray(y)`, `jax.numpy.from_dlpack(y)`; `numpy.asarray(y)` copies to the host.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import ProcessorTarget
from autobatch.errors import BatchError, DeviceError

# ---- ptx
#
# PTX for kinds of GPUs, by llvmlite alone: no compiler of NVIDIA is needed, and the driver assembles it.
#
# Each kind has the oldest version of PTX that knows it, so that the oldest driver that knows it takes the text. A GPU
# runs the PTX of every kind that is not newer than itself.


TRIPLE = "nvptx64-nvidia-cuda"


@dataclass(frozen=True)
class Architecture:
    """`capability`: of the first GPU of its kind; `version`: of PTX; `driver`: the first version of CUDA whose driver
    takes that, as `cuDriverGetVersion` says it."""

    name: str
    capability: tuple[int, int]
    version: str
    driver: int

    @property
    def target(self) -> ProcessorTarget:
        return ProcessorTarget(
            f"CUDA {self.name}", 32, frozenset(), TRIPLE, self.name, f"+ptx{self.version.replace('.', '')}"
        )


SM80 = Architecture("sm_80", (8, 0), "7.0", 11000)
"""Ampere: A100."""
SM90 = Architecture("sm_90", (9, 0), "7.8", 11080)
"""Hopper: H100, H200."""
SM100 = Architecture("sm_100", (10, 0), "8.6", 12080)
"""Blackwell: B200."""

ARCHITECTURES = (SM80, SM90, SM100)
"""The oldest first."""


def architecture(name: str) -> Architecture:
    """That of a name such as "sm_90". ValueError for others."""
    found = next((a for a in ARCHITECTURES if a.name == name), None)
    if found is None:
        raise ValueError(f"{name!r} is no kind of GPU that kernels are written for: {', '.join(names())}")
    return found


def names() -> list[str]:
    return [a.name for a in ARCHITECTURES]


def newest_for(capability: tuple[int, int], driver: int = 1 << 30) -> Architecture | None:
    """The newest kind whose PTX a GPU and a driver take; None where there is none."""
    fits = [a for a in ARCHITECTURES if a.capability <= capability and a.driver <= driver]
    return fits[-1] if fits else None


def assembled(text: str, of: Architecture) -> str:
    """The PTX of a module."""
    found = machine_code.assembly(text, False, of.target)
    missing = re.findall(r"^\.extern \.func .*?(\w+)\s*$", found, re.M)
    assert not missing, f"no library is linked to a kernel, but this needs {missing}"
    return found


@lru_cache(maxsize=256)
def kept(text: str, of: Architecture) -> str:
    """The same, from the cache of kernels where it was made before."""
    return machine_code.kept(f"ptx_{of.name}", text, ".ptx", lambda: assembled(text, of).encode()).decode()


# ---- driver
#
# The CUDA driver, by ctypes: the functions that are called, and what they say where they fail.
#
# No package of CUDA is imported: what a GPU needs is its driver, which comes with `libcuda.so.1`. It is looked for at
# the first call that runs on a GPU, and its absence is an error with what was tried, the cause, and a cure.


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


LEGACY = 1
"""The legacy default stream, as DLPack and `__cuda_array_interface__` number it, and as the driver takes it."""
PER_THREAD = 2

PROCESSORS, MAJOR, MINOR, POOLS = 16, 75, 76, 115
"""`CUdevice_attribute`."""
ERROR_LOG, ERROR_LOG_SIZE = 5, 6
"""`CUjit_option`."""
LOG = 8192
NO_TIMING = 2
"""`CU_EVENT_DISABLE_TIMING`: such events are cheap."""
RELEASE_THRESHOLD = 4
"""`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`."""
KEPT = 1 << 30
"""Bytes of freed memory that are kept for what comes next: to ask the system for memory takes a millisecond."""

Finished = tuple[Handle, Any]

_inside = threading.local()
"""The device whose context a thread has, as far as we gave it."""


class _PoolProperties(ctypes.Structure):
    """`CUmemPoolProps`: pinned memory of one device."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int),
        ("ordinal", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("most", ctypes.c_size_t),
        ("reserved", ctypes.c_ubyte * 56),
    )


class Device:
    """A GPU. Any number of threads may use it."""

    def __init__(self, made: Driver, ordinal: int) -> None:
        self.driver, self.ordinal = made, ordinal
        self.handle = made.integer("cuDeviceGet", ordinal)
        self.name = self._name()
        self.capability = (self.attribute(MAJOR), self.attribute(MINOR))
        self.processors = self.attribute(PROCESSORS)
        self.architecture = self._architecture()
        self.context = made.handle("cuDevicePrimaryCtxRetain", self.handle)
        self._pool = self._make_pool() if self.attribute(POOLS) else None
        self._functions: dict[tuple[str, str], Handle] = {}
        self._lock = threading.RLock()
        self._waiting: list[Finished] = []

    def attribute(self, which: int) -> int:
        return self.driver.integer("cuDeviceGetAttribute", which, self.handle)

    def _name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.driver("cuDeviceGetName", text, len(text), self.handle)
        return text.value.decode()

    def _architecture(self) -> Architecture:
        found = newest_for(self.capability, self.driver.version)
        if found is not None:
            return found
        version, oldest = dotted(self.driver.version), ARCHITECTURES[0]
        kind = ".".join(map(str, self.capability))
        if self.capability < oldest.capability:
            words = f"{self.name} has the compute capability {kind}, and kernels are for {oldest.name} and newer ones"
            cure = ELSEWHERE
        else:
            words = f"the driver, one of CUDA {version}, does not know PTX {oldest.version}"
            cure = f"install a driver of CUDA {dotted(oldest.driver)} or newer, or {ELSEWHERE}"
        raise DeviceError(f"backend='cuda' is not available: {words}\n  {cure}")

    def _make_pool(self) -> Handle:
        wanted = _PoolProperties(1, 0, 1, self.handle, None, 0)
        pool = self.driver.handle("cuMemPoolCreate", ctypes.byref(wanted))
        kept = ctypes.c_uint64(KEPT)
        self.driver("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, ctypes.byref(kept))
        return pool

    @contextmanager
    def current(self) -> Iterator[None]:
        """The context of this device is that of the calling thread; then what it had before is again."""
        before = getattr(_inside, "device", None)
        if before is self:
            yield
            return
        self.driver("cuCtxPushCurrent_v2", self.context)
        _inside.device = self
        try:
            yield
        finally:
            _inside.device = before
            self.driver("cuCtxPopCurrent_v2", ctypes.byref(Handle()))

    # ---- modules

    def function(self, image: str | bytes, name: str) -> Handle:
        """A kernel of a module: PTX, which the driver assembles when it is first asked for, or what was made of it."""
        held = image.encode() if isinstance(image, str) else image
        key = hashlib.sha256(held).hexdigest(), name
        with self._lock:
            if key not in self._functions:
                with self.current():
                    module = self._load(held)
                    self._functions[key] = self.driver.handle("cuModuleGetFunction", module, name.encode())
            return self._functions[key]

    def _load(self, image: bytes) -> Handle:
        module, log = Handle(), ctypes.create_string_buffer(LOG)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG)
        given = ctypes.byref(module), image, 2, options, values
        if status := self.driver.status("cuModuleLoadDataEx", *given):
            raise self.driver.error("cuModuleLoadDataEx", status, log.value.decode(errors="replace").strip())
        return module

    def resident(self, function: Handle, size: int) -> int:
        """Blocks of so many threads that all processors hold at once."""
        each = self.driver.integer("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, size, 0)
        return max(1, each) * self.processors

    def launch(self, function: Handle, blocks: int, size: int, stream: int, arguments: Sequence[int]) -> None:
        """Start a kernel. The arguments are numbers and addresses of 64 bits."""
        held = (ctypes.c_uint64 * max(1, len(arguments)))(*(x & 0xFFFFFFFFFFFFFFFF for x in arguments))
        start = ctypes.addressof(held)
        places = (ctypes.c_void_p * max(1, len(arguments)))(*(start + 8 * k for k in range(len(arguments))))
        self.driver("cuLaunchKernel", function, blocks, 1, 1, size, 1, 1, 0, stream, places, None)

    # ---- memory

    def allocate(self, count: int, stream: int) -> DeviceMemory:
        """So many bytes, for use in the order of a stream. OutOfMemory where there are too few."""
        place = Place()
        with self.current():
            try:
                if self._pool is None:
                    self.driver("cuMemAlloc_v2", ctypes.byref(place), max(count, 1))
                else:
                    self.driver("cuMemAllocFromPoolAsync", ctypes.byref(place), max(count, 1), self._pool, stream)
            except OutOfMemory as error:
                free, whole = self.room()
                raise OutOfMemory(
                    f"{error}\n  {count:,} bytes were asked for on {self.name}, where {free:,} of {whole:,} are free"
                ) from None
        return DeviceMemory(self, place.value, count, stream, self._pool is not None)

    def room(self) -> tuple[int, int]:
        """Bytes that are free, and all there are."""
        free, whole = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            self.driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
        return free.value, whole.value

    # ---- streams

    def wait(self, stream: int) -> None:
        """Until all work of a stream is done."""
        with self.current():
            self.driver("cuStreamSynchronize", stream)

    def order(self, first: int, then: int) -> None:
        """What is given to the stream `then` from now on waits for what the stream `first` has now."""
        if first == then:
            return
        with self.current():
            event = self._event(first)
            self.driver("cuStreamWaitEvent", then, event, 0)
            self.driver("cuEventDestroy_v2", event)

    def keep(self, held: Any, stream: int) -> None:
        """Keep objects alive until the work that a stream has now is done."""
        with self.current(), self._lock:
            waiting, self._waiting = [*self._waiting, (self._event(stream), held)], []
            for x in waiting:
                if self.driver.status("cuEventQuery", x[0]) == NOT_READY:
                    self._waiting.append(x)
                else:
                    self.driver("cuEventDestroy_v2", x[0])

    def _event(self, stream: int) -> Handle:
        event = self.driver.handle("cuEventCreate", NO_TIMING)
        self.driver("cuEventRecord", event, stream)
        return event


class DeviceMemory:
    """Bytes on a GPU, for as long as this object lives. `shared`: others have their address, and may use them in the
    order of other streams."""

    def __init__(self, device: Device, place: int, count: int, stream: int, pooled: bool) -> None:
        self.device, self.place, self.count, self.stream = device, place, count, stream
        self.shared = [False]
        weakref.finalize(self, _free, device, place, stream, pooled, self.shared).atexit = False

    def read(self, into: int, count: int, stream: int, begin: int = 0) -> None:
        """Copy bytes to an address on the host, in the order of a stream; they are there when this returns."""
        with self.device.current():
            self.device.driver("cuMemcpyDtoHAsync_v2", into, self.place + begin, count, stream)
            self.device.driver("cuStreamSynchronize", stream)

    def write(self, address: int, count: int, stream: int, begin: int = 0) -> None:
        """Copy bytes from an address on the host, which may change when this returns."""
        with self.device.current():
            self.device.driver("cuMemcpyHtoDAsync_v2", self.place + begin, address, count, stream)

    def clear(self, stream: int) -> None:
        with self.device.current():
            self.device.driver("cuMemsetD8Async", self.place, 0, self.count, stream)


def _free(device: Device, place: int, stream: int, pooled: bool, shared: Sequence[bool]) -> None:
    with device.current():
        if pooled and not shared[0]:
            device.driver("cuMemFreeAsync", place, stream)
        else:
            device.driver("cuMemFree_v2", place)  # which waits for all work


@cache
def device(ordinal: int) -> Device:
    """The GPU with a number; DeviceError where there is none, or it is too old."""
    made = driver()
    count = made.integer("cuDeviceGetCount")
    if not 0 <= ordinal < count:
        raise DeviceError(f"there is no GPU {ordinal}; the driver knows {count}")
    return Device(made, ordinal)


def current_device() -> Device:
    """The one whose context the calling thread has; else the first."""
    found = ctypes.c_int()
    known = driver().status("cuCtxGetDevice", ctypes.byref(found)) == 0
    return device(found.value if known else 0)


def stream_of(given: Any) -> int:
    """The stream that a caller names: None for the legacy default stream, its number, or an object with
    `__cuda_stream__`."""
    if given is None or (isinstance(given, int) and given == 0):
        return LEGACY
    if isinstance(given, int):
        return given
    protocol = getattr(given, "__cuda_stream__", None)
    if protocol is None:
        raise DeviceError(
            f"stream={given!r} is no stream of CUDA: it takes an int, or an object with __cuda_stream__ (of PyTorch "
            "`stream.cuda_stream`, of CuPy `stream.ptr` is the int)"
        )
    version, handle = protocol() if callable(protocol) else protocol
    if version != 0:
        raise DeviceError(f"stream={given!r} follows version {version} of __cuda_stream__, and 0 is known")
    return int(handle) or LEGACY


# ---- dlpack
#
# Arrays in the form of DLPack: what `__dlpack__` hands from one library to another.
#
# The structures are those of `dlpack.h` (version 0.x, which every library takes that has the protocol).


CUDA, MANAGED = 2, 13
"""`DLDeviceType`: memory of a GPU, and memory that moves to where it is used."""
CPU = 1

KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
"""`DLDataTypeCode`, but for those of one width."""
BFLOAT, BOOL = 4, 6

NAME, USED = b"dltensor", b"used_dltensor"


class _Tensor(ctypes.Structure):
    """`DLManagedTensor`, which begins with a `DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("ordinal", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class View:
    """An array in memory. `strides`: in bytes; `owner` keeps the memory."""

    place: int
    ordinal: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any


def row_strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Those of an array whose rows lie one behind the other.

    >>> row_strides((2, 3), 4)
    (12, 4)
    """
    found: list[int] = []
    for n in reversed(shape):
        found.append(size)
        size *= max(n, 1)
    return tuple(reversed(found))


# ---- from others

_api = ctypes.pythonapi
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _HeldCapsule:
    """Keeps what a capsule holds."""


def taken(capsule: Any) -> View:
    """The array of a capsule, which is used up."""
    place = _pointer(capsule, NAME)
    tensor = _Tensor.from_address(place)
    shape = tuple(tensor.shape[k] for k in range(tensor.axes))
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes)
    size = dtype.itemsize
    strides = (
        tuple(tensor.strides[k] * size for k in range(tensor.axes)) if tensor.strides else row_strides(shape, size)
    )
    _rename(capsule, USED)
    held = _HeldCapsule()
    if tensor.deleter:
        weakref.finalize(held, _Deleter(tensor.deleter), place).atexit = False
    return View((tensor.data or 0) + tensor.offset, tensor.ordinal, shape, strides, dtype, held)


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and code == BFLOAT and bits == 16:
        return jnp.dtype("bfloat16")
    if lanes == 1 and code == BOOL and bits == 8:
        return np.dtype(bool)
    name = f"{KINDS.get(code, '')}{bits}"
    try:
        if lanes == 1 and code in KINDS:
            return np.dtype(name)
    except TypeError:
        pass
    raise BatchError(f"an array whose numbers are of code {code} of DLPack, of {bits} bits in {lanes} lanes each")


def _code(dtype: np.dtype[Any]) -> int:
    if dtype == jnp.dtype("bfloat16"):
        return BFLOAT
    return BOOL if dtype == np.dtype(bool) else {"i": 0, "u": 1, "f": 2, "c": 5}[dtype.kind]


# ---- to others

_handed: dict[int, tuple[_Tensor, Any, Any, Any]] = {}
"""What capsules hold that somebody may still read, by the address of their structure."""


def _given_back(place: int) -> None:
    _handed.pop(place, None)


_done = _Deleter(_given_back)


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _forgotten(capsule: int) -> None:
    """A capsule is gone; nobody has taken what it holds, if it still has its name."""
    if _is_valid(capsule, NAME):
        _handed.pop(_capsule_pointer(capsule, NAME), None)


_dropped = _Destructor(_forgotten)


_make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(("PyCapsule_New", _api))


def handed(view: View) -> Any:
    """A capsule of an array in the memory of a GPU."""
    count, size = len(view.shape), view.dtype.itemsize
    shape = (ctypes.c_int64 * max(count, 1))(*view.shape)
    strides = (ctypes.c_int64 * max(count, 1))(*(s // size for s in view.strides))
    tensor = _Tensor(
        view.place, CUDA, view.ordinal, count, _code(view.dtype), 8 * size, 1, shape, strides, 0, None,
        ctypes.cast(_done, ctypes.c_void_p).value,
    )  # fmt: skip
    place = ctypes.addressof(tensor)
    _handed[place] = (tensor, shape, strides, view.owner)
    return _make(place, NAME, _dropped)


class DeviceArray:
    """An array in the memory of a GPU, which `stream` has computed or will have. It does not change."""

    __slots__ = ("__weakref__", "stream", "view")

    def __init__(self, view: View, stream: int | None) -> None:
        self.view, self.stream = view, stream

    # -- as arrays are

    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.view.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Device:
        return device(self.view.ordinal)

    @property
    def like(self) -> np.ndarray[Any, Any]:
        """An array of this type that takes no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Do its rows lie one behind the other?"""
        wanted = row_strides(self.shape, self.dtype.itemsize)
        return 0 in self.shape or all(
            n == 1 or s == w for n, s, w in zip(self.shape, self.view.strides, wanted, strict=True)
        )

    @property
    def is_aligned(self) -> bool:
        return self.view.place % self.dtype.alignment == 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.view.ordinal})"

    def __getitem__(self, index: Any) -> Any:
        """A part of it on the host."""
        return np.asarray(self)[index]

    def with_axis(self, source: int, to: int) -> DeviceArray:
        """The same numbers with one axis in another place."""
        order = [k for k in range(self.ndim) if k != source % self.ndim]
        order.insert(to % self.ndim, source % self.ndim)
        v = self.view
        shape, strides = tuple(v.shape[k] for k in order), tuple(v.strides[k] for k in order)
        return DeviceArray(View(v.place, v.ordinal, shape, strides, v.dtype, v.owner), self.stream)

    # -- to other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        if copy is False:
            raise ValueError("an array on a GPU is copied to the host")
        found = self.to_host()
        return found if dtype is None else found.astype(dtype, copy=False)

    def to_host(self) -> np.ndarray[Any, Any]:
        """A copy as an array of NumPy; waits until it is computed."""
        view = self.view
        reach = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)) + self.dtype.itemsize
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        if any(s < 0 for s in view.strides):
            raise BatchError(f"an array on a GPU with the strides {view.strides}: it runs backwards")
        held, on, stream = np.empty(reach, np.uint8), self.device, self.stream or LEGACY
        with on.current():
            on.driver("cuMemcpyDtoHAsync_v2", held.ctypes.data, Place(view.place), reach, stream)
            on.driver("cuStreamSynchronize", stream)
        whole: np.ndarray[Any, Any] = np.ndarray(view.shape, self.dtype, held, strides=view.strides)
        return np.ascontiguousarray(whole)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._share()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.view.place, False),
            "strides": None if self.is_contiguous else self.view.strides,
            "version": 3,
            "stream": self.stream or LEGACY,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.view.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of it. `stream`: of who takes it, in whose order it may be used then; -1: takes care itself."""
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("an array on a GPU is handed over where it is, without a copy")
        if stream != -1:
            self.device.order(self.stream or LEGACY, stream or LEGACY)
        self._share()
        return handed(self.view)

    def _share(self) -> None:
        """It is used in the order of other streams than its own."""
        if isinstance(self.view.owner, DeviceMemory):
            self.view.owner.shared[0] = True


def made(on: Device, shape: Sequence[int], dtype: np.dtype[Any], stream: int) -> DeviceArray:
    """A new array, whose numbers are still to be written."""
    shape = tuple(shape)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = on.allocate(count, stream)
    return DeviceArray(View(memory.place, on.ordinal, shape, row_strides(shape, dtype.itemsize), dtype, memory), stream)


# ---- arrays of others


def is_foreign(x: Any) -> bool:
    """Is it an array on a GPU, of a library that this package does not import?"""
    if isinstance(x, (np.ndarray, np.generic, jax.Array, DeviceArray, int, float, str, list, dict, tuple)):
        return False
    if hasattr(type(x), "__dlpack_device__"):
        return bool(x.__dlpack_device__()[0] in (CUDA, MANAGED))
    return hasattr(x, "__cuda_array_interface__")


class Foreign(DeviceArray):
    """An array of another library: nothing is known of when it is computed before it is asked for a stream."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of
        super().__init__(_view(of, None), None)

    def on_stream(self, stream: int) -> DeviceArray:
        """The array for use in the order of a stream."""
        return DeviceArray(_view(self.of, stream), stream)

    def to_host(self) -> np.ndarray[Any, Any]:
        return self.on_stream(LEGACY).to_host()


def looked_at(x: Any) -> DeviceArray:
    """What describes an array on a GPU, which is not used yet."""
    return x if isinstance(x, DeviceArray) else DeviceArray(_view(x, None), None)


def on_stream(x: Any, stream: int) -> DeviceArray:
    """An array on a GPU for use in the order of a stream: its owner sees to it that what computes it comes before."""
    if isinstance(x, Foreign):
        return x.on_stream(stream)
    if isinstance(x, DeviceArray):
        if x.stream != stream:
            x.device.order(x.stream or LEGACY, stream)
            x._share()
        return x
    return DeviceArray(_view(x, stream), stream)  # of JAX


def _view(x: Any, stream: int | None) -> View:
    """What describes an array, for use in the order of a stream; None: it is only looked at. (The protocol's -1, which
    says so, too, is refused by JAX.)"""
    if hasattr(type(x), "__dlpack__"):
        held = taken(x.__dlpack__(stream=stream))
        return View(held.place, held.ordinal, held.shape, held.strides, held.dtype, (held.owner, x))
    return _of_interface(x, x.__cuda_array_interface__, stream)


def _of_interface(x: Any, held: dict[str, Any], stream: int | None) -> View:
    """`__cuda_array_interface__`, version 3: its stream is waited for; one that names none is ready."""
    if held.get("mask") is not None:
        raise BatchError("an array on a GPU with a mask: which of its numbers count is not known here")
    dtype, shape, place = np.dtype(held["typestr"]), tuple(held["shape"]), int(held["data"][0])
    strides = held.get("strides")
    ordinal = ordinal_of(place)
    before = held.get("stream")
    if before == 0:
        raise BatchError("an array whose __cuda_array_interface__ names the stream 0, which is none of the protocol's")
    if before is not None and stream is not None:
        device(ordinal).order(int(before), stream)
    return View(place, ordinal, shape, tuple(strides) if strides else row_strides(shape, dtype.itemsize), dtype, x)


def ordinal_of(place: int) -> int:
    """The number of the GPU whose memory an address is in."""
    if not place:
        return 0
    made = device(0).driver
    return made.integer("cuPointerGetAttribute", ORDINAL, place)


ORDINAL = 9
"""`CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`."""


def is_on_gpu(x: Any) -> bool:
    """Does it lie in the memory of a GPU?"""
    if isinstance(x, DeviceArray):
        return True
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return any(d.platform in ("gpu", "cuda") for d in x.devices())
