"""PTX for kinds of GPUs, by llvmlite alone: no compiler of NVIDIA is needed, and the driver assembles it.

Each kind has the oldest version of PTX that knows it, so that the oldest driver that knows it takes the text. A GPU
runs the PTX of every kind that is not newer than itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.targets import ProcessorTarget

TRIPLE = "nvptx64-nvidia-cuda"


@dataclass(frozen=True)
class Architecture:
    """`capability`: of the first GPU of its kind; `version`: of PTX; `driver`: the first version of CUDA whose driver
    takes that, as `cuDriverGetVersion` says it."""

    name: str
    capability: tuple[int, int]
    version: str
    driver: int

    @property
    def target(self) -> ProcessorTarget:
        return ProcessorTarget(
            f"CUDA {self.name}", 32, frozenset(), TRIPLE, self.name, f"+ptx{self.version.replace('.', '')}"
        )


SM80 = Architecture("sm_80", (8, 0), "7.0", 11000)
"""Ampere: A100."""
SM90 = Architecture("sm_90", (9, 0), "7.8", 11080)
"""Hopper: H100, H200."""
SM100 = Architecture("sm_100", (10, 0), "8.6", 12080)
"""Blackwell: B200."""

ARCHITECTURES = (SM80, SM90, SM100)
"""The oldest first."""


def architecture(name: str) -> Architecture:
    """That of a name such as "sm_90". ValueError for others."""
    found = next((a for a in ARCHITECTURES if a.name == name), None)
    if found is None:
        raise ValueError(f"{name!r} is no kind of GPU that kernels are written for: {', '.join(names())}")
    return found


def names() -> list[str]:
    return [a.name for a in ARCHITECTURES]


def newest_for(capability: tuple[int, int], driver: int = 1 << 30) -> Architecture | None:
    """The newest kind whose PTX a GPU and a driver take; None where there is none."""
    fits = [a for a in ARCHITECTURES if a.capability <= capability and a.driver <= driver]
    return fits[-1] if fits else None


def assembled(text: str, of: Architecture) -> str:
    """The PTX of a module."""
    found = machine_code.assembly(text, False, of.target)
    missing = re.findall(r"^\.extern \.func .*?(\w+)\s*$", found, re.M)
    assert not missing, f"no library is linked to a kernel, but this needs {missing}"
    return found


@lru_cache(maxsize=256)
def kept(text: str, of: Architecture) -> str:
    """The same, from the cache of kernels where it was made before."""
    return machine_code.kept(f"ptx_{of.name}", text, ".ptx", lambda: assembled(text, of).encode()).decode()
