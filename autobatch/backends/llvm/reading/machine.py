"""The machine that reads Python objects, made once and kept on disk as all machine code is."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from functools import cache

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.reading.functions import CALLED, module
from autobatch.runtime.reading import ObjectReader


@cache
def reading_machine() -> ObjectReader | None:
    """The machine; None where there is no machine code, and for a Python that is not CPython with its lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in CALLED}
    try:
        text = module()
        name = machine_code.target_name("reading", text)
        with machine_code.lock:
            code = machine_code.load(name, text, ("read", "fill"), addresses)
    except UnavailableError:
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)  # it keeps the lock
    read, fill = (kind(code.functions[name]) for name in ("read", "fill"))

    return ObjectReader(read, fill)
