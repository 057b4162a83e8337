"""The machine that reads Python objects, made once and kept on disk as all machine code is."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from functools import cache

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.reading.functions import CALLED, ObjectLayout, module
from autobatch.data.reading import ObjectReader


@cache
def reading_machine() -> ObjectReader | None:
    """The machine; None where there is no machine code, and for a Python that is not CPython with its lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    layout = object_layout()
    if layout is None:
        return None
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in CALLED}
    try:
        text = module(layout)
        name = machine_code.target_name("reading", text)
        with machine_code.lock:
            code = machine_code.load(name, text, ("read", "fill"), addresses)
    except UnavailableError:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # it keeps the lock
    read, fill = (kind(code.functions[name]) for name in ("read", "fill"))

    return ObjectReader(read, fill)


def object_layout() -> ObjectLayout | None:
    """Where objects have what they hold, as some show; None where they are not as CPython's are."""
    pointer = ctypes.sizeof(ctypes.c_void_p)
    kind = object.__basicsize__ - pointer
    layout = ObjectLayout(kind, float.__basicsize__ - pointer, kind + pointer, tuple.__basicsize__, kind + 2 * pointer)
    for held in ([], [1.5], [2.5, None, "a"]):
        items = tuple(held)
        at = ctypes.c_void_p.from_address(id(held) + layout.list_items).value or 0
        words = [ctypes.c_ssize_t.from_address(id(x) + layout.size).value for x in (held, items)]
        types = [ctypes.c_void_p.from_address(id(x) + layout.type).value for x in (held, items, 1.5)]
        if words != [len(held)] * 2 or types != [id(list), id(tuple), id(float)]:
            return None
        for k, x in enumerate(held):
            places = at + k * pointer, id(items) + layout.tuple_items + k * pointer
            if any(ctypes.c_void_p.from_address(p).value != id(x) for p in places):
                return None
            if type(x) is float and ctypes.c_double.from_address(id(x) + layout.float_value).value != x:
                return None
    return layout
