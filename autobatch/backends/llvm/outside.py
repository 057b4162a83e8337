"""Functions outside that machine code calls, by name: of the C library, of Python, and of BLAS.

Those of the C library are what a stack needs, what LLVM makes of loops, and what it calls where a processor has no
operation. BLAS is that of SciPy (OpenBLAS in its wheels), through the pointers that `scipy.linalg.cython_blas` has for
Cython; SciPy is loaded when code needs it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from autobatch.backends.llvm.interrupts import OUTSIDE

BLAS = tuple(f"{of}{name}" for of in "sd" for name in ("gemm", "gemv"))
"""Products of matrices, and of a matrix and a vector, of single and double precision."""

BLAS_NAME = "autobatch_{}"
"""What machine code calls them."""


@cache
def library() -> Mapping[str, int]:
    """The addresses of the functions, by the names that machine code has for them."""
    library = ctypes.CDLL("libm.so.6")  # and with it the C library
    rounding = [f"{name}{of}" for name in ("fma", "floor", "ceil", "rint", "round", "roundeven") for of in ("", "f")]
    names = ("malloc", "realloc", "free", "memcpy", "memmove", "memset", *rounding)
    found = {}
    for name, of in (*((n, library) for n in names), *((n, ctypes.pythonapi) for n in OUTSIDE)):
        address = ctypes.cast(getattr(of, name), ctypes.c_void_p).value
        assert address is not None
        found[name] = address
    return _Outside(found)


class _Outside(Mapping[str, int]):
    def __init__(self, found: Mapping[str, int]) -> None:
        self._found = found
        self._blas = {BLAS_NAME.format(name): name for name in BLAS}

    def __getitem__(self, name: str) -> int:
        return _of_blas(self._blas[name]) if name in self._blas else self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._found, *self._blas))

    def __len__(self) -> int:
        return len(self._found) + len(self._blas)


def _of_blas(name: str) -> int:
    capsule = import_module("scipy.linalg.cython_blas").__pyx_capi__[name]
    of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    of.restype, of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, of(capsule)))
