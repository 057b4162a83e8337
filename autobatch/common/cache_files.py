"""Files between runs of Python: written whole, and read only where this user has written them under this name.

Machine code is among them, so a file of somebody else is code of somebody else. A file is opened only where it and its
folder are this user's and nobody else may write to them, and is used only where its keyed hash is right: that of its
name and content, by a key that this user alone may read. What is damaged or foreign is made again, which the log says
once. Where nothing can be written (no room, no right) everything works, and is made anew in each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import stat
import sys
import tempfile
from pathlib import Path

logger = logging.getLogger("autobatch")

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
