"""A function of Python in machine code that hands arrays of NumPy to a whole function: what a small call costs.

    call(x, ..., out, ...) -> True     it ran
                              False    it ran, and a row has failed
                              None     an array is not what the code reads; nothing ran

ctypes asks each array for its address and makes an object of it, a microsecond or more; here the address is a load. The
fields of an array are those of `PyArrayObject` (numpy/ndarraytypes.h), which every extension module is compiled
against; `Layout` looks whether they are where they were, and without them there is no such function.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.interrupts import HEADER, STOPPED
from autobatch.backends.llvm.lanes.program import CodeOperand, Result
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.whole.running import MachineCode, words_dtype, words_shape

TYPE, DATA, AXES, DIMENSIONS, DESCRIPTOR, FLAGS = 8, 16, 24, 32, 56, 64
"""Where the fields of an array lie, in bytes."""

READ, WRITTEN = 0x101, 0x501
"""Flags of an array that is contiguous and aligned; and may be written to."""

ROOM = 32 * 1024
"""Bytes of scratch memory that are taken from the stack."""

CLASS, NONE, TRUE, FALSE, RELEASE, ACQUIRE, RUN, FIRST = range(8)
"""What stands in the table of addresses; behind it the constants of the program, then a descriptor of each array."""


class _TrampolineMethod(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("text", ctypes.c_char_p)]  # fmt: skip


FASTCALL = 0x80
_kept: list[Any] = []


def trampoline(executable: MachineCode) -> Callable[..., bool | None] | None:
    """A function of the operands, then of arrays for the results. None where Python or NumPy are none that this knows,
    or the program is none for it."""
    if not _is_known() or executable.scratch > ROOM or not any(x.varies for x in executable.operands):
        return None
    text = _text(executable)
    name = machine_code.target_name("call", text)
    code = machine_code.load(name, text, ("call",))
    api = ctypes.pythonapi
    addresses = [id(np.ndarray), id(None), id(True), id(False)]
    addresses += [_address(api.PyEval_SaveThread), _address(api.PyEval_RestoreThread), executable.address]
    addresses += [x.ctypes.data for x in executable.constants]
    arrays: list[CodeOperand | Result] = [*executable.operands, *executable.results]
    descriptors = [words_dtype(x) for x in arrays]
    table = np.array([*addresses, *map(id, descriptors)], np.int64)
    method = _TrampolineMethod(b"call", code.functions["call"], FASTCALL, None)
    api.PyCFunction_NewEx.restype = ctypes.py_object
    api.PyCFunction_NewEx.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    made: Callable[..., bool | None] = api.PyCFunction_NewEx(ctypes.byref(method), table, None)
    _kept.append((method, executable, descriptors))  # a function of C code keeps its table alone
    return made


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def _is_known() -> bool:
    """Are Python and NumPy what the text is written for?"""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    probe = np.zeros((3, 5), np.float32)
    probe.flags.writeable = False

    def field(kind: Any, at: int) -> Any:
        return kind.from_address(id(probe) + at).value

    shape = (ctypes.c_ssize_t * 2).from_address(field(ctypes.c_void_p, DIMENSIONS))
    return bool(
        field(ctypes.c_void_p, TYPE) == id(np.ndarray)
        and field(ctypes.c_void_p, DATA) == probe.ctypes.data
        and field(ctypes.c_int, AXES) == 2
        and tuple(shape) == probe.shape
        and field(ctypes.c_void_p, DESCRIPTOR) == id(np.dtype(np.float32))
        and field(ctypes.c_int, FLAGS) & WRITTEN == READ
    )


def _text(executable: MachineCode) -> str:
    """`PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count)`; `self` is the table, an array."""
    f = LlvmFunction("ptr @call(ptr %self, ptr %arguments, i64 %count) nounwind")
    table = f.load("ptr", "%self", DATA)
    operands, results = executable.operands, executable.results
    arrays: list[CodeOperand | Result] = [*operands, *results]

    def entry(number: int) -> str:
        return f.load("ptr", table, 8 * number)

    def require(condition: str) -> None:
        fine = f.name("fine")
        f.branch(condition, fine, "refused")
        f.block(fine, falls=False)

    require(f.let(f"icmp eq i64 %count, {len(arrays)}"))
    held = [f.load("ptr", "%arguments", 8 * k) for k in range(len(arrays))]
    kind, rows = entry(CLASS), None
    for k, (x, of) in enumerate(zip(held, arrays, strict=True)):
        descriptor = entry(FIRST + len(executable.constants) + k)
        require(f.let(f"icmp eq ptr {f.load('ptr', x, TYPE)}, {kind}"))
        require(f.let(f"icmp eq ptr {f.load('ptr', x, DESCRIPTOR)}, {descriptor}"))
        wanted = READ if k < len(operands) else WRITTEN
        flags = f.let(f"and i32 {f.load('i32', x, FLAGS, 4)}, {wanted}")
        require(f.let(f"icmp eq i32 {flags}, {wanted}"))
        shape = words_shape(of)
        varies = not isinstance(of, CodeOperand) or of.varies
        require(f.let(f"icmp eq i32 {f.load('i32', x, AXES, 4)}, {varies + len(shape)}"))
        dimensions = f.load("ptr", x, DIMENSIONS)
        if varies:
            first = f.load("i64", dimensions)
            rows = rows or first
            require(f.let(f"icmp eq i64 {first}, {rows}"))
        for axis, n in enumerate(shape, varies):
            require(f.let(f"icmp eq i64 {f.load('i64', dimensions, 8 * axis)}, {n}"))
    places = [f.load("ptr", x, DATA) for x in held]
    constants = [entry(FIRST + k) for k in range(len(executable.constants))]
    memory, flag = f.array_slot("i8", max(executable.scratch, 1) + HEADER), f.slot(0)
    f.do(f"store ptr {flag}, ptr {memory}")
    f.do(f"store i64 0, ptr {f.at(memory, 8)}")
    scratch = f.at(memory, HEADER)
    given = [*places[: len(operands)], *constants, *places[len(operands) :], scratch]
    passed = ", ".join([*(f"ptr {x}" for x in given), "i64 0", f"i64 {rows}"])
    state = f.let(f"call ptr {entry(RELEASE)}()")
    failed = f.let(f"call i64 {entry(RUN)}({passed})")
    f.do(f"call void {entry(ACQUIRE)}(ptr {state})")
    with f.when(f.let(f"icmp eq i64 {failed}, {STOPPED}")):  # by an exception, which is set
        f.do("ret ptr null")
        f.block(f.name("never"), falls=False)
    some = f.let(f"icmp ne i64 {failed}, 0")
    _give(f, f.let(f"select i1 {some}, ptr {entry(FALSE)}, ptr {entry(TRUE)}"))
    f.block("refused", falls=False)
    _give(f, entry(NONE))
    return str(f)


def _give(f: LlvmFunction, x: str) -> None:
    """Return an object, of which the caller has one reference then; those that live for ever count none."""
    if sys.version_info < (3, 12):
        f.do(f"store i64 {f.add(f.load('i64', x), 1)}, ptr {x}")
    f.do(f"ret ptr {x}")


def arrays_for(executable: MachineCode) -> Sequence[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Of one row of each result: shape and dtype."""
    return [(words_shape(r), words_dtype(r)) for r in executable.results]
