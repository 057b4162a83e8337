"""Arrays in the memory of a GPU: those of other libraries as the compiler sees them, and results.

Whatever has `__dlpack__` on a GPU or `__cuda_array_interface__` is read where it lies: arrays of JAX, CuPy, Numba,
tensors of PyTorch. Results offer both, so each of these libraries takes them as they are:
`torch.from_dlpack(y)`, `cupy.asarray(y)`, `jax.numpy.from_dlpack(y)`; `numpy.asarray(y)` copies to the host.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.cuda.device import LEGACY, Device, DeviceMemory, Place, device
from autobatch.errors import BatchError

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
_inside = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _forgotten(capsule: int) -> None:
    """A capsule is gone; nobody has taken what it holds, if it still has its name."""
    if _is_valid(capsule, NAME):
        _handed.pop(_inside(capsule, NAME), None)


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
