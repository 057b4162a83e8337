"""Arrays in the form of DLPack: what `__dlpack__` hands from one library to another.

The structures are those of `dlpack.h` (version 0.x, which every library takes that has the protocol).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.errors import BatchError

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
