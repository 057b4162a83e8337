"""Machine code from an object file into the memory of this process: sections side by side, relocations applied.

A process that finds its kernels in the cache needs nothing but this: no LLVM, whose library alone takes longer to load
than everything else. Objects are those that LLVM writes for x86-64 with the small code model and position-independent
code (ELF, System V ABI for AMD64): all distances in them fit 32 bits. Functions of other code that they call are
reached by jumps behind their own sections.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

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
