"""Kinds of processors: what tells them from others, and how LLVM is told to write for them.

A gang has as many lanes as a vector register has numbers of 32 bits: 16 with AVX-512, 8 with AVX2, 4 with SSE2 and with
NEON. The numbers that come out are the same bits on each (`tests/backends/lanes/test_targets.py`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessorTarget:
    """`flags`: what Linux says of a processor that has it. `cpu` and `features` as LLVM names them: the least that such
    a processor has; code for the one that we run on is compiled for all that it has."""

    name: str
    bits: int
    flags: frozenset[str]
    triple: str
    cpu: str
    features: str

    @property
    def registers(self) -> int:
        """Of vectors."""
        return 16 if self.bits < 512 and self.triple == _LINUX else 32

    @property
    def lanes(self) -> int:
        """Numbers of 32 bits in a register."""
        return self.bits // 32


_LINUX = "x86_64-unknown-linux-gnu"
GATHERS = "+fast-gather"
"""Without it, LLVM writes the gathers of AVX2 as a branch and a load for each lane: twice the instructions of walks of
trees and of noise (`python -m benchmarks.simd --callgrind`)."""
_FUSED = f"+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,{GATHERS}"

AVX512 = ProcessorTarget(
    "AVX-512",
    512,
    frozenset({"avx512f", "avx512vl"}),
    _LINUX,
    "x86-64",
    f"{_FUSED},+avx512f,+avx512vl,-prefer-256-bit",
)
AVX2 = ProcessorTarget("AVX2 with FMA", 256, frozenset({"avx2", "fma"}), _LINUX, "x86-64", _FUSED)
SSE2 = ProcessorTarget("SSE2", 128, frozenset({"sse2"}), _LINUX, "x86-64", "")
"""It has no operation for a product and a sum: each is a call of the C library."""
NEON = ProcessorTarget("NEON", 128, frozenset({"asimd"}), "aarch64-unknown-linux-gnu", "generic", "+neon")
"""LLVM writes for it; there is no `link.py` for its objects yet."""

BY_WIDTH = (AVX512, AVX2, SSE2)
"""Of x86-64, the widest first."""


BY_LEVEL = {"x86-64": SSE2, "x86-64-v3": AVX2, "x86-64-v4": AVX512, "aarch64": NEON}
"""By the names that compilers have for the least that a processor has."""


def of_flags(flags: Set[str]) -> ProcessorTarget | None:
    """The widest that a processor with these flags is; None where it is none."""
    return next((t for t in BY_WIDTH if t.flags <= flags), None)
