"""The methods of symbols in LLVM IR: what is done for an operation that was met before, at this place and for such
operands. All else is left to the method in Python, which is what these mean.

    x * 2.0     key: mul, the code and instruction that call it, the types of x and float   ->  site 4, float32[]
                number: 2.0                                                                 ->  word -3
                the site and the words of x and 2.0 are noted; a symbol is made

They call CPython's public C API alone. What they know of objects, where a symbol has its slots and an object its class,
is measured when they are loaded (`slots.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autobatch.call.tracing.log import OUTS
from autobatch.call.tracing.slots_methods import METHODS
from autobatch.call.tracing.slots_notes import NOTES

# What machine code knows of a run, by the number of the word that it lies in: `STATE` of them, and behind these the
# methods in Python by the numbers of their operations.
BASE, MOST, PENDING, CAPACITY, WORDS, SITES_AT, WORDS_AT, KEYS_AT, KEYS, NUMBERS_AT, NUMBERS, SYMBOL = range(12)
FLOAT, INT, SLICE, NONE = range(12, 16)
STATE = 16

AT_ONCE = 3
"""Operands that a function of JAX has at most, to be done by machine code."""
KEY, NUMBER = 10, 3
"""Words of an entry for a key, of seven words, behind which are the site, the type of the result, and the size of what
a row is read of; and of one for a number that Python knows: its kind, its bits, its word."""
ABSENT = -(1 << 63)
"""Stands for None in a slice."""
FACTOR = 0x9E3779B97F4A7C15

API = {
    "PyEval_GetFrame": "ptr @PyEval_GetFrame()",
    "PyFrame_GetCode": "ptr @PyFrame_GetCode(ptr)",
    "PyFrame_GetLasti": "i32 @PyFrame_GetLasti(ptr)",
    "Py_DecRef": "void @Py_DecRef(ptr)",
    "Py_IncRef": "void @Py_IncRef(ptr)",
    "PyType_GenericAlloc": "ptr @PyType_GenericAlloc(ptr, i64)",
    "PyLong_FromLongLong": "ptr @PyLong_FromLongLong(i64)",
    "PyLong_AsLongLong": "i64 @PyLong_AsLongLong(ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "PyFloat_AsDouble": "double @PyFloat_AsDouble(ptr)",
    "PyTuple_GetItem": "ptr @PyTuple_GetItem(ptr, i64)",
    "PyObject_Vectorcall": "ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)",
    "PyErr_BadInternalCall": "void @PyErr_BadInternalCall()",
}
"""Functions of CPython that are called."""


@dataclass(frozen=True)
class SlotLayout:
    """Where things lie in objects, in bytes: the class of any object, the slots of a symbol, the state of a run, and
    the parts of a slice."""

    type: int
    key: int
    run: int
    word: int
    state: int
    start: int
    stop: int
    step: int


def mixed(parts: Sequence[int]) -> int:
    """The hash of the words of a key, as machine code has it."""
    made = 0
    for x in parts:
        made = (made ^ x & (1 << 64) - 1) * FACTOR & (1 << 64) - 1
        made ^= made >> 29
    return made


def text(layout: SlotLayout, binary: Mapping[str, int], unary: Mapping[str, int], others: Mapping[str, int]) -> str:
    """A module with a function for each method. `binary`, `unary`: the numbers of operations by the names of functions;
    `others`: those of `x[k]`, `x[a:b]`, and of powers."""
    words = {n: x for n, x in globals().items() if n.isupper() and isinstance(x, int)}
    names = {f"N_{n}": x for n, x in words.items()} | {f"{n}_BYTES": 8 * x for n, x in words.items()}
    names |= {n.upper(): k for n, k in others.items()}
    names |= {"TYPE": layout.type, "S_KEY": layout.key, "S_RUN": layout.run, "S_WORD": layout.word}
    names |= {"R_STATE": layout.state, "P_START": layout.start, "P_STOP": layout.stop, "P_STEP": layout.step}
    names |= {"ENTRY": KEY, "NUMBER": NUMBER, "OUTS": OUTS, "FACTOR": FACTOR - (1 << 64)}
    names |= {"ABSENT": ABSENT, "OTHER": ABSENT + 1, "LOWEST": ABSENT + 2}
    body = NOTES + METHODS
    for name in sorted(names, key=len, reverse=True):  # no name is cut by one that it begins with
        body = body.replace(f"${name}", str(names[name]))
    methods = [f"define ptr @{n}(ptr %x, ptr %y) {{\n  %r = call ptr @binary(ptr %x, ptr %y, i64 {k})\n  ret ptr %r\n}}"
               for n, k in binary.items()]  # fmt: skip
    methods += [f"define ptr @{n}(ptr %x, ptr %y) {{\n  %r = call ptr @unary(ptr %x, i64 {k})\n  ret ptr %r\n}}"
                for n, k in unary.items()]  # fmt: skip
    return "\n".join([*(f"declare {x}" for x in API.values()), body, *methods, ""])
