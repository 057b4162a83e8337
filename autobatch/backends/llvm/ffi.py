"""The function that XLA calls, as LLVM IR: it takes a call frame apart.

The layout of the structures is that of `xla/ffi/api/c_api.h`, which jaxlib ships; fields are of 8 bytes or padded to
them. The handler says which version of that interface it was written for, and XLA refuses it where it supports that
version no longer. It keeps no state, so any number of threads may run it at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from autobatch.backends.llvm.text import LlvmFunction

VERSION = (0, 3)
"""Of the foreign function interface: `XLA_FFI_API_MAJOR`, `XLA_FFI_API_MINOR`."""

INTERFACE = 1
"""XLA's typed foreign function interface, as `jax.ffi.register_ffi_target` numbers it."""

METADATA = 1
"""`XLA_FFI_Extension_Metadata`: XLA asks for the version instead of running anything."""

# Offsets of fields, in bytes.
FRAME_EXTENSION = 8
FRAME_API = 16
FRAME_ARGUMENT_COUNT = 56
FRAME_ARGUMENTS = 72
FRAME_RESULTS = 112
FRAME_ATTRIBUTE_COUNT = 136
FRAME_ATTRIBUTE_NAMES = 152
FRAME_ATTRIBUTES = 160
API_ERROR_CREATE = 48
EXTENSION_TYPE = 8
EXTENSION_METADATA = 24
METADATA_MAJOR = 24
METADATA_MINOR = 28
METADATA_TRAITS = 32
BUFFER_DATA = 24
BUFFER_DIMENSIONS = 40

HANDLER = "handler"
"""The name of the function."""


def buffer(f: LlvmFunction, buffers: str, number: str | int) -> str:
    """One of a list of arguments or results."""
    return f.load("ptr", buffers, f.mul(str(number), 8))


def data(f: LlvmFunction, buffer: str) -> str:
    """The address of its first number."""
    return f.load("ptr", buffer, BUFFER_DATA)


def dimension(f: LlvmFunction, buffer: str, axis: int) -> str:
    return f.load("i64", f.load("ptr", buffer, BUFFER_DIMENSIONS), 8 * axis)


def handler(run: Callable[[LlvmFunction, str, str, str], None]) -> LlvmFunction:
    """`XLA_FFI_Handler`: returns no error. `run` writes the call: of the list of arguments, their number, the list of
    results."""
    f = LlvmFunction(f"ptr @{HANDLER}(ptr %frame) nounwind")
    extension = f.load("ptr", "%frame", FRAME_EXTENSION)
    f.branch(f.let(f"icmp ne ptr {extension}, null"), "extended", "run")
    f.block("extended", falls=False)
    kind = f.load("i32", extension, EXTENSION_TYPE, 4)
    f.branch(f.let(f"icmp eq i32 {kind}, {METADATA}"), "metadata", "run")
    f.block("metadata", falls=False)
    metadata = f.load("ptr", extension, EXTENSION_METADATA)
    for place, value in ((METADATA_MAJOR, VERSION[0]), (METADATA_MINOR, VERSION[1]), (METADATA_TRAITS, 0)):
        f.do(f"store i32 {value}, ptr {f.at(metadata, place)}, align 4")
    f.do("ret ptr null")
    f.block("run", falls=False)
    arguments, results = f.load("ptr", "%frame", FRAME_ARGUMENTS), f.load("ptr", "%frame", FRAME_RESULTS)
    run(f, arguments, f.load("i64", "%frame", FRAME_ARGUMENT_COUNT), results)
    f.do("ret ptr null")
    return f


def capsule(address: int) -> Any:
    """The address of a handler, as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(address, None, None)
