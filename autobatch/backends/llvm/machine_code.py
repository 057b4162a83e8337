"""LLVM IR as machine code: for which processors it is written, how it is compiled and kept, and how XLA knows it.

A gang has as many lanes as a vector register has numbers of 32 bits: 16 with AVX-512, 8 with AVX2, 4 with SSE2 and with
NEON. The numbers that come out are the same bits on each (`tests/backends/lanes/test_targets.py`).

Text is compiled by llvmlite once, and kept as an object file in the user's cache folder under the name that XLA knows
it by, which holds a hash of its text and of the processor. So an executable that XLA has kept runs only with the code
that it was compiled for, and a later process loads no compiler.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import importlib
import json
import logging
import mmap
import platform
import re
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from autobatch.backends.llvm import background
from autobatch.backends.llvm.formulas import INFINITY, NAN, Real, VectorWriter, power_of_two, where
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.common import cache
from autobatch.common.cache import user_cache_folder
from autobatch.common.runtime import stage
from autobatch.errors import Span

# ---- processors


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
"""LLVM writes for it; nothing loads its objects yet."""

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


# ---- ffi
#
# The function that XLA calls, as LLVM IR: it takes a call frame apart.
#
# The layout of the structures is that of `xla/ffi/api/c_api.h`, which jaxlib ships; fields are of 8 bytes or padded to
# them. The handler says which version of that interface it was written for, and XLA refuses it where it supports that
# version no longer. It keeps no state, so any number of threads may run it at once.


VERSION = (0, 3)
"""Of the foreign function interface: `XLA_FFI_API_MAJOR`, `XLA_FFI_API_MINOR`."""

INTERFACE = 1
"""XLA's typed foreign function interface, as `jax.ffi.register_ffi_target` numbers it."""

METADATA = 1
"""`XLA_FFI_Extension_Metadata`: XLA asks for the version instead of running anything."""

# Offsets of fields, in bytes.
FRAME_EXTENSION = 8
FRAME_API = 16
FRAME_ARGUMENT_COUNT = 56
FRAME_ARGUMENTS = 72
FRAME_RESULTS = 112
FRAME_ATTRIBUTE_COUNT = 136
FRAME_ATTRIBUTE_NAMES = 152
FRAME_ATTRIBUTES = 160
API_ERROR_CREATE = 48
EXTENSION_TYPE = 8
EXTENSION_METADATA = 24
METADATA_MAJOR = 24
METADATA_MINOR = 28
METADATA_TRAITS = 32
BUFFER_DATA = 24
BUFFER_DIMENSIONS = 40

HANDLER = "handler"
"""The name of the function."""


def buffer(f: LlvmFunction, buffers: str, number: str | int) -> str:
    """One of a list of arguments or results."""
    return f.load("ptr", buffers, f.mul(str(number), 8))


def data(f: LlvmFunction, buffer: str) -> str:
    """The address of its first number."""
    return f.load("ptr", buffer, BUFFER_DATA)


def dimension(f: LlvmFunction, buffer: str, axis: int) -> str:
    return f.load("i64", f.load("ptr", buffer, BUFFER_DIMENSIONS), 8 * axis)


def handler(run: Callable[[LlvmFunction, str, str, str], None]) -> LlvmFunction:
    """`XLA_FFI_Handler`: returns no error. `run` writes the call: of the list of arguments, their number, the list of
    results."""
    f = LlvmFunction(f"ptr @{HANDLER}(ptr %frame) nounwind")
    extension = f.load("ptr", "%frame", FRAME_EXTENSION)
    f.branch(f.let(f"icmp ne ptr {extension}, null"), "extended", "run")
    f.block("extended", falls=False)
    kind = f.load("i32", extension, EXTENSION_TYPE, 4)
    f.branch(f.let(f"icmp eq i32 {kind}, {METADATA}"), "metadata", "run")
    f.block("metadata", falls=False)
    metadata = f.load("ptr", extension, EXTENSION_METADATA)
    for place, value in ((METADATA_MAJOR, VERSION[0]), (METADATA_MINOR, VERSION[1]), (METADATA_TRAITS, 0)):
        f.do(f"store i32 {value}, ptr {f.at(metadata, place)}, align 4")
    f.do("ret ptr null")
    f.block("run", falls=False)
    arguments, results = f.load("ptr", "%frame", FRAME_ARGUMENTS), f.load("ptr", "%frame", FRAME_RESULTS)
    run(f, arguments, f.load("i64", "%frame", FRAME_ARGUMENT_COUNT), results)
    f.do("ret ptr null")
    return f


def capsule(address: int) -> Any:
    """The address of a handler, as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(address, None, None)


# ---- link
#
# Machine code from an object file into the memory of this process: sections side by side, relocations applied.
#
# A process that finds its kernels in the cache needs nothing but this: no LLVM, whose library alone takes longer to
# load than everything else. Objects are those that LLVM writes for x86-64 with the small code model and
# position-independent code (ELF, System V ABI for AMD64): all distances in them fit 32 bits. Functions of other code
# that they call are reached by jumps behind their own sections.


PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8
ALLOCATED = 2
"""The flag of sections that are in memory when the program runs."""
RELATIVE = frozenset({2, 4})
"""R_X86_64_PC32 and R_X86_64_PLT32: a distance from the place that is written to."""
JUMP = b"\xff\x25\x00\x00\x00\x00"
"""`jmp` to the address that lies behind the instruction."""
LENGTH = len(JUMP) + 8


class LinkError(Exception):
    """An object file that is none, or that holds what ours do not."""


@dataclass(frozen=True)
class Section:
    name: int
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True)
class Code:
    """Memory that can be executed, for as long as this object lives, and the addresses of functions in it."""

    memory: mmap.mmap
    functions: Mapping[str, int]


def link(content: bytes, functions: Sequence[str], outside: Mapping[str, int] = MappingProxyType({})) -> Code:
    """The code of an object file, and the addresses of some of its functions. `outside`: those of functions that it
    calls and does not hold. LinkError where that cannot be."""
    try:
        return _link(content, functions, outside)
    except (struct.error, IndexError, ValueError, OSError) as error:
        raise LinkError(f"{type(error).__name__}: {error}") from error


def _link(content: bytes, functions: Sequence[str], outside: Mapping[str, int]) -> Code:
    if content[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", content, 16) != (1, 62):
        raise LinkError("it is no object file for x86-64")
    sections = list(_sections(content))
    places, size = {}, 0
    for number, section in enumerate(sections):
        if section.flags & ALLOCATED and section.type in (PROGBITS, NOBITS):
            size = -(-size // max(section.align, 1)) * max(section.align, 1)
            places[number] = size
            size += section.size
    called = [name for name in outside if b"\0" + name.encode() + b"\0" in content]
    jumps = {name: size + k * LENGTH for k, name in enumerate(called)}
    size += LENGTH * len(jumps)
    memory = mmap.mmap(-1, max(size, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
    for number, at in places.items():
        section = sections[number]
        if section.type == PROGBITS:
            memory[at : at + section.size] = content[section.offset : section.offset + section.size]
    for name, at in jumps.items():
        memory[at : at + LENGTH] = JUMP + struct.pack("<Q", outside[name])
    for section in sections:
        if section.type == RELA and section.info in places:
            _relocate(memory, content, section, sections, places, jumps)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(start), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    return Code(memory, {name: start + _find(content, sections, places, name) for name in functions})


def _sections(content: bytes) -> Iterator[Section]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for number in range(count):
        fields = struct.unpack_from("<IIQQQQIIQQ", content, table + number * size)
        name, kind, flags, _, offset, length, link, info, align, _ = fields
        yield Section(name, kind, flags, offset, length, link, info, align)


def _name(content: bytes, sections: list[Section], table: Section, number: int) -> str:
    """Of a symbol."""
    (name,) = struct.unpack_from("<I", content, table.offset + 24 * number)
    start = sections[table.link].offset + name
    return content[start : content.index(b"\0", start)].decode()


def _symbol(content: bytes, table: Section, number: int, places: Mapping[int, int]) -> int | None:
    """Where a symbol is, from the beginning of the memory; None where it is outside."""
    _, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", content, table.offset + 24 * number)
    return places[section] + int(value) if section in places else None


def _relocate(
    memory: mmap.mmap,
    content: bytes,
    section: Section,
    sections: list[Section],
    places: Mapping[int, int],
    jumps: Mapping[str, int],
) -> None:
    """Write the distances that a section asks for, all at once: a large function has thousands."""
    asked = np.frombuffer(content, _RELA, section.size // _RELA.itemsize, section.offset)
    kinds = asked["info"] & 0xFFFFFFFF
    if unknown := set(kinds.tolist()) - RELATIVE:
        raise LinkError(f"relocations of the types {sorted(unknown)} are not known")
    symbols = sections[section.link]
    targets = _targets(content, symbols, sections, places, jumps, (asked["info"] >> 32).astype(np.int64))
    at = places[section.info] + asked["offset"].astype(np.int64)
    distances = (targets + asked["addend"] - at).astype("<i4")
    np.frombuffer(memory, np.uint8)[at[:, None] + np.arange(4)] = distances.view(np.uint8).reshape(-1, 4)


def _targets(
    content: bytes,
    table: Section,
    sections: list[Section],
    places: Mapping[int, int],
    jumps: Mapping[str, int],
    numbers: Any,
) -> Any:
    """Where symbols are, by their numbers; functions of other code are where the jumps to them are."""
    symbols = np.frombuffer(content, _SYMBOL, table.size // _SYMBOL.itemsize, table.offset)
    starts = np.full(1 << 16, -1, np.int64)
    starts[list(places)] = list(places.values())
    held = starts[symbols["section"]]
    found = np.where(held < 0, -1, held + symbols["value"].astype(np.int64))
    for number in set(numbers[found[numbers] < 0].tolist()):
        name = _name(content, sections, table, number)
        if name not in jumps:
            raise LinkError(f"it refers to something outside: {name}")
        found[number] = jumps[name]
    return found[numbers]


_RELA = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def _find(content: bytes, sections: list[Section], places: Mapping[int, int], function: str) -> int:
    """Where a function is, from the beginning of the memory."""
    for table in sections:
        if table.type != SYMTAB:
            continue
        for number in range(table.size // 24):
            at = _symbol(content, table, number, places)
            if at is not None and _name(content, sections, table, number) == function:
                return at
    raise LinkError(f"it has no function {function}")


logger = logging.getLogger("autobatch")

BUILD = {"reloc": "pic", "codemodel": "small"}
"""How the code reaches what belongs to it: as the loader expects."""


LONG = 3000
"""Lines of a text from which on LLVM runs few passes: those of its level 2 take ten times as long on what is
straight-line arithmetic in vectors, which they make no faster (the function of benchmarks.startup: by less than 2 %;
registers are still chosen with care, without which it takes twice the time)."""
STRAIGHT = 20
"""Lines that such a text has at least for each jump. (With one in seven few passes cost a third of the speed: of the
ray tracer of benchmarks.simd.)"""
IN_VECTORS = "llvm.loop.vectorize.width"
"""What a text holds that has loops for LLVM to make vectors of."""


class RefusedError(Exception):
    """There is no machine code for that, and why; for which operation and for which line, where that is known."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.operation: str | None = None
        self.span: Span | None = None

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}" if self.operation else self.reason


class UnavailableError(Exception):
    """There is no kernel here, and why."""


@dataclass(frozen=True)
class Host:
    """The processor: what tells it from others, and what kind it is."""

    identity: str
    target: ProcessorTarget

    @property
    def bits(self) -> int:
        """Of a vector register."""
        return self.target.bits


lock = threading.RLock()
"""Of whoever makes code known."""
_kept: list[Code] = []
"""Machine code lives as long as the process: XLA keeps its address."""
_known: set[str] = set()
"""Targets that XLA knows."""


@functools.cache
def _llvm() -> Any:
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise UnavailableError(f"llvmlite cannot be imported ({error}); pip install 'autobatch[native]'") from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


_asked: ContextVar[Host | None] = ContextVar("written for", default=None)


@contextmanager
def written_for(target: ProcessorTarget) -> Iterator[None]:
    """Inside, texts are written for another kind of processor than the one that we run on."""
    token = _asked.set(Host(target.name, target))
    try:
        yield
    finally:
        _asked.reset(token)


def host() -> Host:
    """The processor that code is written for, the one that we run on; UnavailableError where there is no code for
    it."""
    return _asked.get() or _own_host()


def is_written_for_others() -> bool:
    """Are texts written for no process of this machine?"""
    return _asked.get() is not None


@functools.cache
def _own_host() -> Host:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnavailableError(f"it is for Linux on x86-64, not for {sys.platform} on {platform.machine()}")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UnavailableError(f"the processor is not known: {error}") from error
    identity = dict.fromkeys(line for line in lines if line.startswith(("model name", "flags")))
    found = of_flags({word for line in identity for word in line.split()})
    if found is None:
        raise UnavailableError(f"the processor is none of {', '.join(t.name for t in BY_WIDTH)}")
    return Host("\n".join(identity), found)


def target_name(stem: str, text: str) -> str:
    """What XLA knows some code by."""
    whole = defined(text, host().target)
    digest = hashlib.sha256("\n".join([whole, host().identity, *BUILD.values()]).encode()).hexdigest()[:16]
    return f"autobatch_{stem}_{digest}"


def is_known(target: str) -> bool:
    return target in _known


def make_known(target: str, address: int) -> None:
    """Tell XLA the address of a handler."""
    try:
        jax.ffi.register_ffi_target(target, capsule(address), platform="cpu", api_version=INTERFACE)
    except Exception as error:  # whatever XLA has against it, its own operations remain
        raise UnavailableError(f"XLA does not take the kernel: {error}") from error
    _known.add(target)


def registered_text(
    stem: str, text: str, outside: Mapping[str, int] = MappingProxyType({}), vectorize: bool = False
) -> str:
    """The target of a module's handler, compiled and made known to XLA; UnavailableError where that cannot be."""
    with lock:
        name = target_name(stem, text)
        if name not in _known:
            make_known(name, load(name, text, (HANDLER,), outside, vectorize).functions[HANDLER])
        return name


def load(
    name: str,
    text: str,
    functions: Sequence[str],
    outside: Mapping[str, int] = MappingProxyType({}),
    vectorize: bool = False,
    replace: Callable[[Code], None] | None = None,
) -> Code:
    """The code of a module, compiled now or before. `outside`: functions that it calls; `vectorize`: its loops are for
    LLVM to make vectors of; `replace`: is given the optimised code, later, where this one is baseline code."""
    code = _load(name, text, functions, outside, vectorize, replace)
    _kept.append(code)
    return code


def in_memory(text: str, functions: Sequence[str], outside: Mapping[str, int]) -> Code:
    """The code of a module for this process alone."""
    code = link(compile_object(text), functions, outside)
    _kept.append(code)
    return code


def held(name: str, functions: Sequence[str], outside: Mapping[str, int]) -> Code | None:
    """The code that an earlier `load` has kept under this name; None where there is none."""
    content = cache.read(_object_path(name))
    if content is None:
        return None
    try:
        code = link(content, functions, outside)
    except LinkError as error:
        logger.info("the kept object %s is not usable: %s", name, error)
        return None
    _kept.append(code)
    return code


def _load(
    name: str,
    text: str,
    functions: Sequence[str],
    outside: Mapping[str, int],
    vectorize: bool,
    replace: Callable[[Code], None] | None,
) -> Code:
    path = _object_path(name)
    held = cache.read(path)
    if held is not None:
        try:
            return link(held, functions, outside)
        except LinkError as error:
            logger.warning("the kept object %s is not usable (%s): compiled again", path, error)
    apart = bool(sys.executable) and not getattr(sys, "frozen", False)  # else there is no Python to run apart
    if replace is not None and apart and text.count("\n") > TIERED and not is_straight(text):
        made = _baseline(text)

        def optimised(content: bytes) -> None:
            cache.write(path, content)
            code = link(content, functions, outside)
            _kept.append(code)
            replace(code)

        _compile_in_background(name, text, vectorize, optimised)
    else:
        made = compile_object(text, vectorize)
        cache.write(path, made)
    try:
        return link(made, functions, outside)
    except LinkError as error:
        raise UnavailableError(f"what LLVM makes cannot be linked: {error}") from error


def compile_object(text: str, vectorize: bool = False, target: ProcessorTarget | None = None) -> bytes:
    """Machine code of a module, for this machine or for the least of a kind."""
    with stage("LLVM: optimise"):
        machine, parsed = _optimized(text, vectorize, target)
    with stage("LLVM: generate code"):
        return bytes(machine.emit_object(parsed))


def assembly(text: str, vectorize: bool = False, target: ProcessorTarget | None = None) -> str:
    """The same for people."""
    machine, parsed = _optimized(text, vectorize, target)
    return str(machine.emit_assembly(parsed))


def _machine(target: ProcessorTarget | None, level: int = 3) -> Any:
    llvm = _llvm()
    if target is None:
        return llvm.Target.from_default_triple().create_target_machine(**_own_machine(level))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    made = llvm.Target.from_triple(target.triple)
    return made.create_target_machine(cpu=target.cpu, features=target.features, opt=level, **BUILD)


def _own_machine(level: int) -> background.Machine:
    """What LLVM is told of this machine."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    if host().target is AVX2:
        features += f",{GATHERS}"
    return {"cpu": llvm.get_host_cpu_name(), "features": features, "opt": level, **BUILD}


def _optimized(text: str, vectorize: bool, kind: ProcessorTarget | None) -> tuple[Any, Any]:
    is_long, whole = is_straight(text), defined(text, kind or host().target)
    target = _machine(kind, 1 if is_long else 3)
    if is_long:
        return target, background.baseline(_llvm(), whole, target)
    return target, background.optimised(_llvm(), whole, target, vectorize)


def _baseline(text: str) -> bytes:
    """Machine code that takes a tenth of the time to compile, and some times that of the best one to run."""
    target = _machine(None, 0)
    with stage("LLVM: optimise"):
        parsed = background.baseline(_llvm(), defined(text, host().target), target)
    with stage("LLVM: generate code"):
        return bytes(target.emit_object(parsed))


TIERED = 16_000
"""Lines of a text from which on LLVM takes more than some two seconds, so that results do not wait for it: the
derivative of `tests/python/records.py`'s `shortest` has 52,000, and takes 12 s to optimise and 3 s to generate, or 0.2
and 0.3 s to run at a quarter of the speed."""

_one_at_a_time = threading.Lock()
_compiling: set[threading.Thread] = set()
_processes: set[subprocess.Popen[bytes]] = set()


def _compile_in_background(name: str, text: str, vectorize: bool, optimised: Callable[[bytes], None]) -> None:
    """Compile a text in a process of its own, one after another, and hand on what it has made."""
    told = {"machine": dict(_own_machine(3)), "vectorize": vectorize}
    whole = defined(text, host().target)

    def run() -> None:
        try:
            with _one_at_a_time, tempfile.TemporaryDirectory(prefix="autobatch") as folder:
                here = Path(folder)
                (here / "text.ll").write_text(whole, encoding="utf-8")
                described = json.dumps({**told, "text": str(here / "text.ll"), "object": str(here / "object.o")})
                read = "import sys; exec(compile(open(sys.argv[2]).read(), sys.argv[2], 'exec'))"
                command, nowhere = [sys.executable, "-c", read, described, background.__file__], subprocess.DEVNULL
                with subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
                    _processes.add(process)
                    failed = process.wait()
                    _processes.discard(process)
                if not failed:
                    optimised((here / "object.o").read_bytes())
                    logger.info("%s is optimised code from now on", name)
        except (OSError, LinkError) as error:
            logger.info("%s stays as it is: %s", name, error)
        finally:
            _compiling.discard(threading.current_thread())

    thread = threading.Thread(target=run, name=f"optimise {name}", daemon=True)
    _compiling.add(thread)
    thread.start()


def wait_for_optimised() -> None:
    """Wait until all baseline code is replaced by optimised code: for those who measure."""
    for thread in list(_compiling):
        thread.join()


@atexit.register
def _stop_compiling() -> None:
    for process in list(_processes):
        process.kill()


def is_straight(text: str) -> bool:
    """Is it long, and nearly without jumps and loops, so that few passes do?"""
    lines, jumps = text.count("\n"), text.count("\n  br ")
    return lines > LONG and STRAIGHT * jumps < lines and IN_VECTORS not in text


# ---- objects between runs of Python


def kept(stem: str, text: str, suffix: str, make: Callable[[], bytes]) -> bytes:
    """What `make` makes of a module, for whichever machine: read from the cache where it was made before."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _object_path(f"autobatch_{stem}_{digest}", suffix)
    found = cache.read(path)
    if found is None:
        found = make()
        cache.write(path, found)
    return found


def _object_path(name: str, suffix: str = ".o") -> Path | None:
    if not cache.is_name(name):
        raise ValueError(f"{name!r} is no name of a file")
    try:
        return user_cache_folder() / "kernels" / f"{name}{suffix}"
    except RuntimeError:
        return None  # a user without a home


# ---- checksums
#
# Sums of mixed words, as machine code: what `autobatch/call/packed.py` tells changed columns by.


POSITION, MIX = 0x9E3779B1, 0x7FEB352D
"""What the position of a word is multiplied by, and what the word is then."""

Words = NDArray[np.uint32]


def module() -> str:
    """sum over i of mixed(words[i] ^ POSITION * i), in 32 bits, in vectors that LLVM makes."""
    f = LlvmFunction("i32 @checksum(ptr %words, i64 %count) nounwind")
    total = f.slot(0)
    with f.loop(0, "%count", 1) as i:
        word = f.load("i32", f.at("%words", f.mul(i, 4)), align=4)
        place = f.let(f"mul i32 {f.let(f'trunc i64 {i} to i32')}, {POSITION}")
        mixed = f.let(f"xor i32 {word}, {place}")
        mixed = f.let(f"mul i32 {_folded(f, mixed, 16)}, {MIX}")
        f.set(total, f.add(f.get(total), f.let(f"zext i32 {_folded(f, mixed, 15)} to i64")))
    f.do(f"ret i32 {f.let(f'trunc i64 {f.get(total)} to i32')}")
    return str(f)


def _folded(f: LlvmFunction, word: str, bits: int) -> str:
    return f.let(f"xor i32 {word}, {f.let(f'lshr i32 {word}, {bits}')}")


@functools.cache
def by_machine_code() -> Callable[[Words], Any] | None:
    """The function of words that lie one behind the other; None where there is no machine code."""
    try:
        text = module()
        with lock:
            code = load(target_name("checksum", text), text, ("checksum",), vectorize=True)
    except UnavailableError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64)(code.functions["checksum"])
    return lambda words: np.uint32(function(words.ctypes.data, len(words)))
