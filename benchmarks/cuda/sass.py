"""Loops in what a GPU runs: how many instructions a turn has, by NVIDIA's disassembler.

Where there is no GPU to measure on, this is what can be said of two kernels: instructions of their innermost loops,
those on doubles apart, which GPUs for graphics run at a small part of the speed.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z0-9_.]+)(.*);")


class NoTool(Exception):
    """A program is not here, or does not work."""


@dataclass(frozen=True)
class Loop:
    """Instructions of one turn. `doubles`: those on numbers of 64 bits."""

    instructions: int
    doubles: int


def tool(name: str, *arguments: str) -> str:
    """What a program of NVIDIA says. NoTool where it is not here."""
    try:
        made = subprocess.run([name, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoTool(f"{name} cannot be run: {error}") from error
    if made.returncode:
        raise NoTool(f"{name} fails: {made.stderr.strip()[:300]}")
    return made.stdout + made.stderr


def assembled(ptx: str, architecture: str) -> bytes:
    """What NVIDIA's assembler makes of PTX: the driver has the same one inside."""
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(ptx)
        tool("ptxas", f"-arch={architecture}", str(text), "-o", str(made))
        return made.read_bytes()


def compiled(source: Path, architecture: str) -> bytes:
    """What nvcc makes of CUDA C++."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernel.cubin"
        tool("nvcc", "-O3", f"-arch={architecture}", "-cubin", "-o", str(made), str(source))
        return made.read_bytes()


def innermost(cubin: bytes, name: str, nvdisasm: str = "nvdisasm") -> Loop:
    """The largest loop of a kernel that has no loop inside."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        lines = _function(tool(nvdisasm, "-c", file.name), name)
    found = list(_loops(lines))
    inner = [(a, b) for a, b in found if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in found)]
    begin, end = max(inner, key=lambda loop: loop[1] - loop[0])
    names = [m.group(1) for line in lines[begin : end + 1] if (m := INSTRUCTION.search(line))]
    return Loop(len(names), sum(n.split(".")[0] in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX") for n in names))


def _function(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith(f".text.{name}:"))
    end = next((k for k in range(begin + 1, len(lines)) if lines[k].startswith(".text.")), len(lines))
    return [line.strip() for line in lines[begin:end]]


def _loops(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Where loops begin and end: at branches to what stands before them. A branch to itself is padding."""
    labels = {m.group(1): k for k, line in enumerate(lines) if (m := LABEL.match(line))}
    for k, line in enumerate(lines):
        found = INSTRUCTION.search(line)
        if found is None or not found.group(1).startswith("BRA"):
            continue
        to = re.search(r"\.L_x_\d+", found.group(2))
        if to is not None and labels.get(to.group(), k) < k - 1:
            yield labels[to.group()], k
