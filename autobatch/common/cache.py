"""What a batched function remembers between calls: specialisations under a key, bounded, safe under threads.

A key is a record of named parts. When a call finds no specialisation, the log says which part of the key differs from
the nearest one that exists, so that a needless recompile is found by reading one line:

    autobatch: recompiling encode: shared changed from float32[5x4] to float32[6x4]
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import logging
import os
import stat
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

logger = logging.getLogger("autobatch")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CacheInfo(NamedTuple):
    """How much a batched function has compiled and keeps: `specialisations` are programs for one set of types,
    `executables` are those programs compiled for one size class, `plans` are plans made (cutting a minibatch out of a
    planned data set makes none)."""

    specialisations: int
    executables: int
    plans: int


@dataclass(frozen=True)
class Key:
    """What a specialisation depends on, but for the sources and free variables of the functions that it reaches: those
    are known only after compiling, and are compared with their present values at every call.

    `arguments`: containers, static values and forms of all arguments. `shared`: types of the run-time values that
    all examples share. `schema`: classes, fields and types of the examples."""

    axes: Any
    arguments: Any
    shared: tuple[Any, ...]
    schema: Any
    backend: str
    on_error: str
    options: Any
    x64: int

    def __hash__(self) -> int:
        return hash((self.arguments, self.shared, self.backend, self.x64))


def differences(old: Key, new: Key) -> list[str]:
    """The parts in which two keys differ, in words."""
    found = []
    for field in dataclasses.fields(Key):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            found.append(_difference(field.name, before, after))
    return found


def _difference(name: str, before: Any, after: Any) -> str:
    if name == "schema":
        return "schema changed: " + (_schema_words(before, after) or "other classes")
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        parts = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
        if len(parts) < len(before):
            return ", ".join(f"{name} changed from {_short(b)} to {_short(a)}" for b, a in parts[:3])
    return f"{name} changed from {_short(before)} to {_short(after)}"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _schema_words(before: Any, after: Any) -> str:
    """What is new or different in a schema, field by field."""

    def fields(schema: Any) -> dict[str, str]:
        held = {f.column: f"{f.type}{'?' if f.optional or f.nullable else ''}" for s in schema.stores for f in s.fields}
        return {"one example": str(schema.root), **held}

    old, new = fields(before), fields(after)
    words = [f"{name} was {old[name]}, is {new[name]}" for name in old if name in new and old[name] != new[name]]
    words += [f"{name} is new" for name in new if name not in old]
    return "; ".join(words[:3])


class Bounded(Generic[K, V]):
    """A mapping that keeps the entries used last. Entries are made once, also when threads ask together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self.size:
                self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The entry, made under the lock when there is none: a compilation is never done twice."""
        with self._lock:
            held = self.get(key)
            if held is None:
                held = make()
                self.put(key, held)
            return held

    def items(self) -> Iterator[tuple[K, V]]:
        """The entries from the one used last to the oldest."""
        with self._lock:
            return iter(list(reversed(self._entries.items())))

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


# ---- cache files
#
# Files between runs of Python: written whole, and read only where this user has written them under this name.
#
# Machine code is among them, so a file of somebody else is code of somebody else. A file is opened only where it and
# its folder are this user's and nobody else may write to them, and is used only where its keyed hash is right: that of
# its name and content, by a key that this user alone may read. What is damaged or foreign is made again, which the log
# says once. Where nothing can be written (no room, no right) everything works, and is made anew in each process.


KEY, LENGTH = "key", 32

_told: set[tuple[str, str]] = set()
"""The folders of which something was said, and what."""


def user_cache_folder() -> Path:
    """Where programs keep files for this user that can be made again, by the custom of the platform. RuntimeError for a
    user without a home."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "autobatch"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "autobatch"
    named = os.environ.get("XDG_CACHE_HOME", "")  # the XDG Base Directory Specification: ignored where it is relative
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "autobatch"


def is_name(name: object) -> bool:
    """Is it the name of a file, which leads to no other folder?"""
    return isinstance(name, str) and name.replace("_", "").replace(".", "").isalnum() and not name.startswith(".")


def make_private(folder: Path) -> None:
    """Make a folder that nobody else may write to. OSError where it is another user's, or cannot be made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if not _is_own(found):
        raise PermissionError(f"{folder} belongs to another user")
    if not _is_private(found):
        folder.chmod(stat.S_IMODE(found.st_mode) & ~0o022)


def read(path: Path | None) -> bytes | None:
    """What `write` wrote to a file; None where there is no such file, or it is not what was written."""
    if path is None:
        return None
    try:
        content = _content(path)
        key = _key(make=False)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        _tell(path.parent, "read", "what is kept in %s is not used, and made again: %s", path.parent, error)
        return None
    held, digest = content[LENGTH:], content[:LENGTH]
    if hmac.compare_digest(_hash(key, path.name, held), digest):
        return held
    _tell(path.parent, "damaged", "%s is damaged, or another user or machine has written it: made again", path)
    return None


def write(path: Path | None, content: bytes) -> None:
    """Put a whole file in place at once; without a cache where there is no room or no right to write."""
    if path is None:
        return
    temporary = None
    try:
        if not is_name(path.name):
            raise ValueError(f"{path.name!r} is no name of a file")
        make_private(path.parent)
        digest = _hash(_key(make=True), path.name, content)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(digest + content)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        _tell(path.parent, "write", "nothing is kept in %s, so each process compiles anew: %s", path.parent, error)


def _hash(key: bytes, name: str, content: bytes) -> bytes:
    made = hmac.new(key, name.encode() + b"\0", hashlib.sha256)
    made.update(content)
    return made.digest()


def _content(path: Path) -> bytes:
    """The bytes of a file of this user, in a folder of this user. OSError for any other."""
    found = path.parent.stat()
    if not _is_own(found) or not _is_private(found):
        raise PermissionError("the folder is another user's, or others may write to it")
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not _is_own(found) or not _is_private(found):
            raise PermissionError(f"{path.name} is another user's, or others may write to it")
        return file.read()


def _key(make: bool) -> bytes:
    """The key of this user. FileNotFoundError where there is none, and none is to be made."""
    path = user_cache_folder() / KEY
    for _ in range(2):
        try:
            with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
                found, key = os.fstat(file.fileno()), file.read(LENGTH + 1)
            if _is_own(found) and (not hasattr(os, "geteuid") or not found.st_mode & 0o077) and len(key) == LENGTH:
                return key
            raise PermissionError(f"{path} is not this user's alone: remove it")
        except FileNotFoundError:
            if not make:
                raise
        make_private(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # its mode is 0600
            file.write(os.urandom(LENGTH))
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)  # of several processes, the first
    raise PermissionError(f"{path} cannot be made")


def _is_own(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _is_private(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or not found.st_mode & 0o022


def _tell(folder: Path, what: str, message: str, *arguments: object) -> None:
    if (str(folder), what) not in _told:
        _told.add((str(folder), what))
        logger.warning(message, *arguments)
