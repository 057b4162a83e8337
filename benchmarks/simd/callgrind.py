"""How many instructions each kernel takes with AVX2: ours, gcc's and ispc's, counted by callgrind.

Ours is an object file (`export_object`); each is linked with a C program that maps the arrays and calls the kernel
once, so nothing of Python, NumPy or JAX is counted. Valgrind does not know AVX-512, and counts the same on any machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autobatch as ab
from autobatch.backends.llvm.machine_code import AVX2
from autobatch.backends.llvm.program import ArrayForm, ObjectFile, as_read, object_of, words_dtype, words_shape
from benchmarks.simd.kernels import KERNELS, Kernel
from benchmarks.simd.peers import SOURCES, MissingError

GCC = ("gcc", "-O3", "-march=x86-64-v3")
PEERS = ("gcc", "ispc")

MAIN = """
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *mapped(const char *name, size_t size) {{
    int file = open(name, O_RDWR);
    void *at = size ? mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : malloc(64);
    if (file < 0 || at == MAP_FAILED) {{ perror(name); exit(2); }}
    return at;
}}

{declaration}

int main(void) {{
{arrays}
    {call}
    return 0;
}}
"""


@dataclass(frozen=True)
class Call:
    """A kernel in C: the arrays that it reads and writes, and its call, where `a0`, `a1` ... are the arrays."""

    function: str
    arrays: Sequence[np.ndarray]
    declaration: str
    call: str


def plain(function: str, kernel: Kernel) -> Call:
    """A kernel of `competitors/`."""
    arrays = [*(np.ascontiguousarray(x) for x in kernel.plain), *(np.zeros_like(x) for x in kernel.out)]
    names = ", ".join(f"a{k}" for k in range(len(arrays)))
    parameters = ", ".join(["int", *["void *"] * len(arrays)])
    return Call(function, arrays, f"void {function}({parameters});", f"{function}({kernel.count}, {names});")


def ours(made: ObjectFile, operands: Sequence[Any], rows: int) -> Call:
    """Our object."""
    given = [np.array(as_read(x, ArrayForm.of(o), rows)) for x, o in zip(operands, made.operands, strict=True)]
    written = [np.zeros((rows, *words_shape(r)), words_dtype(r)) for r in made.results]
    arrays = [*given, *written, np.zeros(made.scratch + 64, np.uint8)]
    names = ", ".join(f"a{k}" for k in range(len(arrays)))
    parameters = ", ".join([*["void *"] * len(arrays), "int64_t", "int64_t"])
    function = made.name
    return Call(function, arrays, f"int64_t {function}({parameters});", f"{function}({names}, 0, {rows});")


def counted(call: Call, objects: Sequence[Path], folder: Path) -> tuple[int, list[np.ndarray]]:
    """The instructions of a kernel and of all that it calls, and what it has written into its arrays."""
    lines = []
    for k, x in enumerate(call.arrays):
        x.tofile(folder / f"a{k}")
        lines.append(f'    void *a{k} = mapped("a{k}", {x.nbytes});')
    source = MAIN.format(declaration=call.declaration, arrays="\n".join(lines), call=call.call)
    (folder / "main.c").write_text(source, encoding="utf-8")
    _run([*GCC, "-w", "main.c", *map(str, objects), "-o", "main", "-lm"], folder)
    command = ["valgrind", "--tool=callgrind", f"--toggle-collect={call.function}", "--callgrind-out-file=counts"]
    said = _run([*command, "./main"], folder)
    found = re.search(r"Collected : (\d+)", said)
    if found is None:
        raise MissingError(f"valgrind says nothing of instructions: {said[-300:]}")
    return int(found[1]), [np.fromfile(folder / f"a{k}", x.dtype).reshape(x.shape) for k, x in enumerate(call.arrays)]


def _run(command: Sequence[str], folder: Path) -> str:
    if shutil.which(command[0]) is None:
        raise MissingError(f"there is no {command[0]}")
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if found.returncode:
        raise MissingError(f"{' '.join(command)[:200]} failed: {found.stderr.strip()[-500:]}")
    return found.stderr


class Peers:
    """gcc's and ispc's kernels as object files; `missing` says why one is not there."""

    def __init__(self, folder: Path, ispc: str) -> None:
        self.objects: dict[str, Path] = {}
        self.missing: dict[str, str] = {}
        made = {
            "gcc": [*GCC, "-c", str(SOURCES / "kernels.c"), "-o", str(folder / "gcc.o")],
            "ispc": [ispc, "-O3", "--target=avx2-i32x8", "--pic", "--woff", str(SOURCES / "kernels.ispc"), "-o",
                     str(folder / "ispc.o")],
        }  # fmt: skip
        for name, command in made.items():
            try:
                _run(command, folder)
                self.objects[name] = folder / f"{name}.o"
            except MissingError as error:
                self.missing[name] = str(error)


def count(kernel: Kernel, peers: Peers, folder: Path) -> dict[str, Any]:
    """Instructions of each way, and whether the results agree with those of the first one that is there."""
    report: dict[str, Any] = {"examples": kernel.count, "instructions": {}}
    results: dict[str, list[np.ndarray]] = {}
    for name, made in peers.objects.items():
        for function in [kernel.name, *(kernel.also if name == "ispc" else ())]:
            taken, arrays = counted(plain(function, kernel), [made], folder)
            if taken < report["instructions"].get(name, taken + 1):
                report["instructions"][name] = taken
                results[name] = arrays[len(kernel.plain) :]
    try:
        with ab.options(backend="llvm"):
            handle = kernel.function.lower(*kernel.given).compile()
            operands = handle.operands(*kernel.given)
        native = handle.executable
        written = object_of(native.whole, native.sites, f"ours_{kernel.name}".replace(" ", "_"), AVX2)
        (folder / "ours.o").write_bytes(written.code)
        call = ours(written, operands, kernel.count)
        report["instructions"]["ours"], arrays = counted(call, [folder / "ours.o"], folder)
        results["ours"] = arrays[len(operands) : len(operands) + len(kernel.out)]
    except ab.Error as error:
        report["refused"] = str(error).splitlines()[0]
    truth = next(iter(results.values()), [])
    report["agrees"] = all(_close(found, truth, kernel) for found in results.values())
    return report


def _close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], kernel: Kernel) -> bool:
    far = np.zeros(kernel.count, bool)
    for x, y in zip(found, wanted, strict=True):
        bad = ~(np.abs(x - y) <= kernel.tolerance * np.maximum(1.0, np.abs(y)))
        far |= bad.reshape(kernel.count, -1).any(axis=1)
    return float(far.mean()) <= kernel.strays


def main(options: argparse.Namespace) -> dict[str, Any]:
    """Count the kernels `options.only`; prints a line for each as it goes."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = Peers(folder, options.ispc)
        print(f"{'instructions':16} {'examples':>9} {'ours':>12} {'each':>8}  " + " ".join(f"{p:>8}" for p in PEERS))
        for kernel in options.only:
            found[kernel] = count(KERNELS[kernel](options.size), peers, folder)
            print(line(kernel, found[kernel]), flush=True)
    means = []
    for peer in PEERS:
        factors = [r["instructions"][peer] / r["instructions"]["ours"] for r in found.values()
                   if {peer, "ours"} <= r["instructions"].keys()]  # fmt: skip
        means.append(f"{statistics.geometric_mean(factors):8.2f}" if factors else f"{'-':>8}")
    print(f"{'mean':16} {'':9} {'':12} {'':8}  {' '.join(means)}   (times as many as ours)")
    for peer, why in peers.missing.items():
        print(f"not counted: {peer}, {why}")
    return found


def line(name: str, report: dict[str, Any]) -> str:
    taken = report["instructions"]
    if "refused" in report:
        return f"{name:16} refused: {report['refused']}"
    factors = " ".join(f"{taken[p] / taken['ours']:8.2f}" if p in taken else f"{'-':>8}" for p in PEERS)
    differ = "" if report["agrees"] else "  RESULTS DIFFER"
    each = taken["ours"] / report["examples"]
    return f"{name:16} {report['examples']:9,} {taken['ours']:12,} {each:8,.0f}  {factors}{differ}"
