"""Kinds of processors: what tells them from others, and how LLVM is told to write for them.

A gang has as many lanes as a vector register has numbers of 32 bits: 16 with AVX-512, 8 with AVX2, 4 with SSE2 and with
NEON. The numbers that come out are the same bits on each (`tests/backends/lanes/test_targets.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from autobatch.backends.llvm.formulas import INFINITY, NAN, Real, VectorWriter, power_of_two, where
from autobatch.backends.llvm.text import LlvmFunction


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
"""LLVM writes for it; there is no `machine_code.py` for its objects yet."""

BY_WIDTH = (AVX512, AVX2, SSE2)
"""Of x86-64, the widest first."""


BY_LEVEL = {"x86-64": SSE2, "x86-64-v3": AVX2, "x86-64-v4": AVX512, "aarch64": NEON}
"""By the names that compilers have for the least that a processor has."""


def of_flags(flags: Set[str]) -> ProcessorTarget | None:
    """The widest that a processor with these flags is; None where it is none."""
    return next((t for t in BY_WIDTH if t.flags <= flags), None)


# ---- processor
#
# Steps of formulas for which some processors have an instruction: taking a float32 apart, and putting it together.
#
#     declare <16 x float> @ab_scaled.v16f32(<16 x float>, <16 x float>)      what a text has
# define internal <16 x float> @ab_scaled.v16f32(...) alwaysinline {...}  what it gets when it is compiled: vscalefps
# with AVX-512, elsewhere eight operations
#
# A text says nothing of the processor that it will be compiled for, and the bits are the same on each.


ROUNDING = 1.5 * 2.0**23
"""What a float32 up to 2^22 is added to, and loses, to become a whole number; then its last bits are that number."""
LOWEST = 0x3F400000
"""The bits of 3/4, where mantissas begin: a logarithm near 1 has an exponent of zero."""
LANES = 16
"""Of a register of AVX-512: vectors of as many, or of several times as many, are left to the processor."""


def mantissa(x: Real) -> Real:
    """m from 3/4 to 3/2 of x = 2^n m, for x above 0; of 0, infinity, NaN and negative numbers it is any number."""
    return _step("mantissa", x)


def exponent(x: Real) -> Real:
    """n of the same."""
    return _step("exponent", x)


def scaled(x: Real, turned: Real) -> Real:
    """x 2^n, rounded once, where x is from 1/2 to 2, and n from -252 to 252 has become n + `ROUNDING`."""
    return _step("scaled", x, turned)


def completed(x: Real, found: Real) -> Real:
    """The logarithm of x, where `found` is made of its mantissa and exponent."""
    return _step("completed", x, found)


def _step(name: str, *xs: Real) -> Real:
    v = xs[0].v
    if v.lanes % LANES:
        return _ANYWHERE[name](*xs)
    v.f.declare(f"declare {v.type} @ab_{name}.v{v.lanes}f32({', '.join([v.type] * len(xs))})")
    operands = ", ".join(f"{v.type} {x.text}" for x in xs)
    return Real(v, v.f.let(f"call {v.type} @ab_{name}.v{v.lanes}f32({operands})"))


# ---- by instructions that every processor has


def _normal(x: Real) -> tuple[Real, Real]:
    """x 2^k as a normal number, and k."""
    small = x < 2.0**-126
    return where(small, x * 2.0**23, x), where(small, x.like(23.0), 0.0)


def _mantissa(x: Real) -> Real:
    above = _normal(x)[0].bits() - LOWEST
    return ((above & 0x007FFFFF) + LOWEST).bits_as_float()


def _exponent(x: Real) -> Real:
    held, moved = _normal(x)
    return ((held.bits() - LOWEST) >> 23).as_float() - moved


def _scaled(x: Real, turned: Real) -> Real:
    """In two steps, of which only the second one may round."""
    whole = turned.bits() - turned.like(ROUNDING).bits()
    half = whole >> 1
    return x * power_of_two(half) * power_of_two(whole - half)


def _completed(x: Real, found: Real) -> Real:
    """The instructions of AVX-512 know what is special: the exponent of 0 is -infinity, and of -1 the mantissa NaN."""
    found = where((x > 0.0) & (x < INFINITY), found, where(x < 0.0, -x.like(NAN), x + x))
    return where(x.equals(0.0), x.like(-INFINITY), found)  # where XLA calls us, subnormal numbers are 0


_ANYWHERE: Mapping[str, Callable[..., Real]] = {
    "mantissa": _mantissa,
    "exponent": _exponent,
    "scaled": _scaled,
    "completed": _completed,
}

# ---- by those of AVX-512


def _native(name: str, *xs: Real) -> Real:
    v, of = xs[0].v, xs[0].v.type
    every = [(of, "undef"), ("i16", "-1"), ("i32", "4")]  # all lanes, rounded as everything else is
    match name:
        case "mantissa":
            interval, negative_is_nan = 3, 2 << 2
            return _intrinsic(v, "getmant", [(of, xs[0].text), ("i32", str(interval | negative_is_nan)), *every])
        case "exponent":  # that of a mantissa from 1 to 2
            n = _intrinsic(v, "getexp", [(of, xs[0].text), *every])
            return where(_native("mantissa", xs[0]) < 1.0, n + 1.0, n)
        case "scaled":
            n = xs[1] - ROUNDING
            return _intrinsic(v, "scalef", [(of, xs[0].text), (of, n.text), *every])
        case _:
            return xs[1]


def _intrinsic(v: VectorWriter, name: str, operands: Sequence[tuple[str, str]]) -> Real:
    symbol = f"@llvm.x86.avx512.mask.{name}.ps.512"
    v.f.declare(f"declare {v.type} {symbol}({', '.join(type for type, _ in operands)})")
    return Real(v, v.f.let(f"call {v.type} {symbol}({', '.join(f'{type} {x}' for type, x in operands)})"))


def _in_registers(v: VectorWriter, name: str, xs: tuple[Real, ...]) -> Real:
    """A step for vectors of several registers: for each of them."""
    of = VectorWriter(v.f, v.scalar, LANES)
    found: list[str] = []
    for first in range(0, v.lanes, LANES):
        numbers = ", ".join(f"i32 {first + k}" for k in range(LANES))
        parts = [v.f.let(f"shufflevector {v.type} {x.text}, {v.type} poison, <{LANES} x i32> <{numbers}>") for x in xs]
        found.append(_native(name, *(Real(of, p) for p in parts)).text)
    while len(found) > 1:
        count = v.lanes // len(found)
        numbers = ", ".join(f"i32 {k}" for k in range(2 * count))
        half = f"<{count} x float>"
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [v.f.let(f"shufflevector {half} {a}, {half} {b}, <{2 * count} x i32> <{numbers}>") for a, b in pairs]
    return Real(v, found[0])


# ---- what a text gets when it is compiled

_DECLARED = re.compile(
    r"^declare <\d+ x float> @ab_(mantissa|exponent|scaled|completed)\.v(\d+)f32\(.*\)$", re.MULTILINE
)


def defined(text: str, target: ProcessorTarget) -> str:
    """A text with definitions of the steps that it declares."""
    lines: dict[str, None] = {}

    def definition(found: re.Match[str]) -> str:
        name, lanes = found[1], int(found[2])
        count = 1 if name in ("mantissa", "exponent") else 2
        v = VectorWriter(LlvmFunction(""), "float", lanes)
        xs = tuple(Real(v, f"%x{k}") for k in range(count))
        v.f.head = (
            f"internal {v.type} @ab_{name}.v{lanes}f32({', '.join(f'{v.type} {x.text}' for x in xs)}) "
            "nounwind alwaysinline"
        )
        result = _in_registers(v, name, xs) if target is AVX512 else _ANYWHERE[name](*xs)
        v.f.do(f"ret {v.type} {result.text}")
        lines.update(v.f.declarations)
        return str(v.f)

    made = _DECLARED.sub(definition, text)
    return "\n".join([made, *lines]) if lines else made
