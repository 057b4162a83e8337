"""Arrays and a text in one file: a `.npz` of arrays as they are, the text as JSON, and a hash over all. No pickle.

    text      what the arrays are, as JSON
    sha256    of the names, types and bytes of all other entries: checked before anything is used
    ...       arrays

What a file says of itself is not believed. No entry is compressed, so none is larger than the file; the type and shape
of an array fit its bytes; and whoever reads the text checks each part of it, by `part`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autobatch.errors import FileError
from autobatch.ir import jax_compat

AnyArray = np.ndarray[Any, Any]
TEXT, HASH = "text", "sha256"
BLOCK = 1 << 20


class Damaged(Exception):
    """What is wrong with a file, and in which part; what to do where that is not to write it again."""

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.cure = cure


def refused(path: str | os.PathLike[str], error: Exception, again: str) -> FileError:
    """The error of a file some part of which cannot be used."""
    return FileError(f"{path}: {error}; {error.cure if isinstance(error, Damaged) and error.cure else again}")


def write(path: str | os.PathLike[str], text: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> None:
    """Write the file, replacing it as a whole."""
    entries = {TEXT: np.frombuffer(json.dumps(text).encode("utf-8", "surrogatepass"), np.uint8), **arrays}
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            np.savez(file, allow_pickle=False, **entries, **{HASH: _hash(entries)})
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], what: str, format: str, again: str) -> tuple[Any, dict[str, AnyArray]]:
    """The text and the arrays. Raises FileError for what `write` did not write, or not as `format`; `what` says what
    the file should be, `again` what to do where it is not."""
    with Path(path).open("rb") as file:
        try:
            entries = _entries(file, os.fstat(file.fileno()).st_size)
            if not {TEXT, HASH} <= entries.keys():
                raise Damaged("it has no text, or no hash")
            if entries.pop(HASH).tobytes() != _hash(entries).tobytes():
                raise Damaged("its hash is another: some of its bytes have changed")
            text = json.loads(entries.pop(TEXT).tobytes().decode("utf-8", "surrogatepass"))
            if (found := part(text, "format", str)) != format:
                raise FileError(f"{path}: the format is {found!r}, and this version reads {format!r}; {again}")
        except FileError:
            raise
        except Exception as error:  # whatever zipfile, NumPy and json raise for bytes that nobody wrote
            raise FileError(f"{path} is not {what}, or it is damaged: {_reason(error)}; {again}") from None
    return text, entries


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"


def _entries(file: Any, size: int) -> dict[str, AnyArray]:
    made: dict[str, AnyArray] = {}
    total = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            total += info.file_size
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or total > size:
                raise Damaged(f"the entry {info.filename!r} has a size that cannot be")
            buffer = bytearray(info.file_size)
            view, at = memoryview(buffer), 0
            with archive.open(info) as entry:
                while piece := entry.read(BLOCK):
                    view[at : at + len(piece)] = piece
                    at += len(piece)
            made[info.filename.removesuffix(".npy")] = _array(info.filename, buffer)
    return made


def _array(name: str, content: bytearray) -> AnyArray:
    head = io.BytesIO(memoryview(content)[: 1 << 16])
    version = np.lib.format.read_magic(head)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise Damaged(f"the array {name!r} is written in another way")
    shape, by_columns, dtype = readers[version](head)
    count = math.prod(shape)
    if dtype.kind not in "biufc" or count * dtype.itemsize != len(content) - head.tell() or min(shape, default=0) < 0:
        raise Damaged(f"the array {name!r} has a type or shape that does not fit its bytes")
    flat: AnyArray = np.frombuffer(content, dtype, count, head.tell()) if count else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _hash(entries: Mapping[str, AnyArray]) -> AnyArray:
    digest = hashlib.sha256()
    for name in sorted(entries):
        array = np.ascontiguousarray(entries[name])
        digest.update(repr((name, array.dtype.str, entries[name].shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)


def part(text: Any, name: str, *kinds: type) -> Any:
    """A part of a text, which is of one of these types. Raises Damaged."""
    if not isinstance(text, dict) or name not in text:
        raise Damaged(f"{name!r} is missing")
    if type(text[name]) not in kinds:
        raise Damaged(f"{name!r} is {text[name]!r:.80}, not {' or '.join(k.__name__ for k in kinds)}")
    return text[name]


def array_of(arrays: Mapping[str, AnyArray], entry: Any) -> AnyArray:
    """The array that a text names by its number and its dtype, as JAX names that. Raises Damaged."""
    match entry:
        case [int(number), str(dtype)] if f"a{number}" in arrays:
            found = arrays[f"a{number}"]
            wanted = np.dtype(jax_compat.dtype_of(dtype))
            if wanted.itemsize == found.dtype.itemsize:
                return found.view(wanted)
    raise Damaged(f"there is no array {entry!r:.80}")
