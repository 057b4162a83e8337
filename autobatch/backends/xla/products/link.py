"""Machine code from an object file into the memory of this process: sections side by side, relocations applied.

A process that finds its kernels in the cache needs nothing but this: no LLVM, whose library alone takes longer to load
than everything else. Objects are those that LLVM writes for x86-64 with the small code model and position-independent
code (ELF, System V ABI for AMD64): they call nothing outside, and all distances in them fit 32 bits.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8
ALLOCATED = 2
"""The flag of sections that are in memory when the program runs."""
RELATIVE = frozenset({2, 4})
"""R_X86_64_PC32 and R_X86_64_PLT32: a distance from the place that is written to."""


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
    """Memory that can be executed, for as long as this object lives, and the address of a function in it."""

    memory: mmap.mmap
    address: int


def link(content: bytes, function: str) -> Code:
    """The code of an object file, and the address of one of its functions. LinkError where that cannot be."""
    try:
        return _link(content, function)
    except (struct.error, IndexError, ValueError, OSError) as error:
        raise LinkError(f"{type(error).__name__}: {error}") from error


def _link(content: bytes, function: str) -> Code:
    if content[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", content, 16) != (1, 62):
        raise LinkError("it is no object file for x86-64")
    sections = list(_sections(content))
    places, size = {}, 0
    for number, section in enumerate(sections):
        if section.flags & ALLOCATED and section.type in (PROGBITS, NOBITS):
            size = -(-size // max(section.align, 1)) * max(section.align, 1)
            places[number] = size
            size += section.size
    memory = mmap.mmap(-1, max(size, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
    for number, at in places.items():
        section = sections[number]
        if section.type == PROGBITS:
            memory[at : at + section.size] = content[section.offset : section.offset + section.size]
    for section in sections:
        if section.type == RELA and section.info in places:
            _relocate(memory, content, section, sections[section.link], places)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(start), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    return Code(memory, start + _find(content, sections, places, function))


def _sections(content: bytes) -> Iterator[Section]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for number in range(count):
        fields = struct.unpack_from("<IIQQQQIIQQ", content, table + number * size)
        name, kind, flags, _, offset, length, link, info, align, _ = fields
        yield Section(name, kind, flags, offset, length, link, info, align)


def _symbol(content: bytes, table: Section, number: int, places: dict[int, int]) -> int:
    """Where a symbol is, from the beginning of the memory."""
    _, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", content, table.offset + 24 * number)
    if section not in places:
        raise LinkError("it refers to something outside")
    return places[section] + int(value)


def _relocate(memory: mmap.mmap, content: bytes, section: Section, symbols: Section, places: dict[int, int]) -> None:
    for at in range(section.offset, section.offset + section.size, 24):
        offset, info, addend = struct.unpack_from("<QQq", content, at)
        if info & 0xFFFFFFFF not in RELATIVE:
            raise LinkError(f"relocations of type {info & 0xFFFFFFFF} are not known")
        place = places[section.info] + offset
        struct.pack_into("<i", memory, place, _symbol(content, symbols, info >> 32, places) + addend - place)


def _find(content: bytes, sections: list[Section], places: dict[int, int], function: str) -> int:
    """Where a function is, from the beginning of the memory."""
    for table in sections:
        if table.type != SYMTAB:
            continue
        names = sections[table.link].offset
        for number in range(table.size // 24):
            (name,) = struct.unpack_from("<I", content, table.offset + 24 * number)
            if content[names + name : content.index(b"\0", names + name)] == function.encode():
                return _symbol(content, table, number, places)
    raise LinkError(f"it has no function {function}")
