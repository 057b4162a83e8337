"""What competes from outside of this process: C and ispc as shared libraries, others in processes of their own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simd.kernels import Kernel

SOURCES = Path(__file__).with_name("competitors")
ISPC_TARGETS = (("avx512f", "avx512skx-x16"), ("avx2", "avx2-i32x8"))
"""A word among the processor's flags, and what ispc is told: as many lanes as a register has numbers of 32 bits."""


class MissingError(Exception):
    """A competitor that is not here, and why."""


def flags() -> set[str]:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())


def compiled_c(folder: Path, *options: str) -> ctypes.CDLL:
    """`kernels.c` by gcc."""
    made = folder / "kernels_c.so"
    _run("gcc", "-O3", *(options or ("-march=native",)), "-fPIC", "-shared", SOURCES / "kernels.c", "-o", made, "-lm")
    return ctypes.CDLL(str(made))


def compiled_ispc(folder: Path, ispc: str, target: str | None = None) -> ctypes.CDLL:
    """`kernels.ispc` by ispc."""
    has = flags()
    target = target or next((t for word, t in ISPC_TARGETS if word in has), None)
    if target is None:
        raise MissingError("the processor has neither AVX-512 nor AVX2")
    made, objects = folder / "kernels_ispc.so", folder / "kernels_ispc.o"
    _run(ispc, "-O3", f"--target={target}", "--pic", "--woff", SOURCES / "kernels.ispc", "-o", objects)
    _run("gcc", "-shared", objects, "-o", made, "-lm")
    return ctypes.CDLL(str(made))


def _run(*command: str | Path) -> None:
    if shutil.which(command[0]) is None:
        raise MissingError(f"there is no {command[0]}")
    found = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if found.returncode:
        raise MissingError(f"{command[0]} failed: {found.stderr.strip()[-500:]}")


class Plain:
    """A function of a library, over the plain arrays of a kernel; what it writes is its own."""

    def __init__(self, library: ctypes.CDLL, name: str, kernel: Kernel) -> None:
        self.out = [np.zeros_like(x) for x in kernel.out]
        self.given = [np.ascontiguousarray(x) for x in kernel.plain]
        self.function: Any = getattr(library, name)
        self.function.restype = None
        arrays = [*self.given, *self.out]
        self.arguments = [ctypes.c_int(kernel.count), *(ctypes.c_void_p(x.ctypes.data) for x in arrays)]

    def __call__(self) -> Sequence[np.ndarray]:
        self.function(*self.arguments)
        return self.out


class Process:
    """The process that runs `with_NAME.py`; see `competitors/outside.py`."""

    def __init__(self, name: str, process: subprocess.Popen[str], folder: Path) -> None:
        self.name, self.process, self.folder = name, process, folder

    def seconds(self, kernel: str, repeats: int) -> float:
        """Processor time of one run; of the first call, that of compiling."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(kernel, repeats, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise MissingError(f"{self.name} ended with status {self.process.wait()}")
        if answer.startswith("missing"):
            raise MissingError(answer.strip())
        return float(answer)

    def first(self, kernel: Kernel, of: str = "") -> tuple[float, Sequence[np.ndarray]]:
        """The seconds of a first call, and its results. `of`: ".gradient" for those of the derivative."""
        held = {f"in{k}": x for k, x in enumerate(kernel.plain)} | {f"out{k}": x for k, x in enumerate(kernel.out)}
        np.savez(self.folder / f"{kernel.name}.npz", **held)  # type: ignore[arg-type]  # NumPy's stub of keywords
        name = f"{kernel.name}{of}"
        taken = self.seconds(name, 1)
        with np.load(self.folder / f"{name}.{self.name}.npz") as file:
            return taken, [file[f"out{k}"] for k in range(len(file))]


@contextmanager
def process(name: str, interpreter: str, folder: Path) -> Iterator[Process]:
    """A competitor in a process of its own, while it is needed."""
    if shutil.which(interpreter) is None:
        raise MissingError(f"there is no {interpreter}")
    if subprocess.run([interpreter, "-c", f"import {name}"], capture_output=True, check=False).returncode:
        raise MissingError(f"{interpreter} has no {name}")
    with subprocess.Popen(
        [interpreter, str(SOURCES / f"with_{name}.py"), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        try:
            yield Process(name, running, folder)
        finally:
            if running.stdin is not None:
                running.stdin.close()


def processor_time(run: Any, repeats: int) -> float:
    """Seconds of a run, of all threads of this process."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats
