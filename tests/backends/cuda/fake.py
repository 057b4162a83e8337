"""A GPU without a GPU: `fake_driver.c` as the driver, and kernels as functions of the host, one call a thread.

The kernels are those of the same emitter with the same parameters, loop over rows and memory, written for the host
(`kernel.HOST`). Which function belongs to some PTX is noted when both are written.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autobatch.backends.cuda import device, program
from autobatch.backends.llvm import machine_code

SOURCE = Path(__file__).with_name("fake_driver.c")

_hosts: dict[str, str] = {}
"""By the text of a kernel for the device: that for the host."""
_written: dict[str, str] = {}
"""By PTX: the text that it was made of."""
_modules: dict[int, str] = {}


def written_for_both(write: Any) -> Any:
    def both(*given: Any) -> program.CudaKernel:
        made: program.CudaKernel = write(*given)
        _hosts[made.text] = write(*given, program.HOST).text
        return made

    return both


def assembled_and_noted(text: str, of: device.Architecture) -> str:
    found = f"// {of.name}\n{text}"  # what LLVM makes of it is not looked at here
    _written[found] = text
    return found


_Load = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_Find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


@_Load
def _load(text: bytes) -> int:
    made_of = _written[text.decode()]
    number = len(_modules) + 1
    _modules[number] = _hosts[made_of]
    return number


@_Find
def _find(module: int, name: bytes) -> int:
    text = _modules[module]
    known = machine_code.target_name(f"fake_{name.decode()}", text)
    return machine_code.load(known, text, (name.decode(),)).functions[name.decode()]


@cache
def library(folder: Path) -> Any:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here, which compiles the driver of these tests")
    try:
        machine_code.host()
    except machine_code.UnavailableError as error:
        pytest.skip(f"no machine code here: {error}")
    path = folder / "libfakecuda.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-w", "-o", path, SOURCE], check=True)
    made = ctypes.CDLL(str(path))
    made.fake_functions(_load, _find)
    made.fake_log.restype = ctypes.c_char_p
    made.fake_held.restype = ctypes.c_size_t
    made.fake_limit.argtypes = [ctypes.c_size_t]
    made.path = str(path)
    return made


class Fake:
    """What a test does with the driver."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def machine(self, version: int = 12080, capability: tuple[int, int] = (9, 0), devices: int = 1, pools: int = 1):
        self.made.fake_machine(version, *capability, devices, pools)
        device.device.cache_clear()
        device.driver.cache_clear()

    def limit(self, count: int) -> None:
        """Bytes of memory that there are from now on, beside those that are in use."""
        self.made.fake_limit(self.held + count)

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """That function fails once, after so many calls."""
        self.made.fake_fail(name.encode(), code, after)

    @property
    def log(self) -> list[str]:
        return self.made.fake_log().decode().splitlines()

    def forget(self) -> None:
        self.made.fake_forget()

    @property
    def held(self) -> int:
        return self.made.fake_held()

    @property
    def broken(self) -> int:
        """Bytes beside a piece of memory that were written to."""
        return self.made.fake_broken()


@contextmanager
def installed(made: Any, patch: pytest.MonkeyPatch):
    """The driver of this machine is the fake one."""
    made.fake_reset()
    patch.setattr(device, "LIBRARIES", (made.path,))
    patch.setattr(program, "write", written_for_both(program.write))
    patch.setattr(program, "write_gradient", written_for_both(program.write_gradient))
    patch.setattr(device, "kept", assembled_and_noted)
    for text in (program.sums_text, program.packing_text):
        _hosts[text()] = text(program.HOST)
    device.device.cache_clear()
    device.driver.cache_clear()
    try:
        yield Fake(made)
    finally:
        device.device.cache_clear()
        device.driver.cache_clear()
