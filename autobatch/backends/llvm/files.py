"""Files between runs of Python: written whole, and read only if they are whole.

A file ends with the hash of the rest, so one that was cut off or changed is none. It gets its name when it is complete;
processes that write the same one do not meet. Where nothing can be written (no room, no right) everything works, and
is made anew in each process; the log says so once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

logger = logging.getLogger("autobatch")

_told: set[str] = set()
"""The folders that could not be written to."""


def read(path: Path | None) -> bytes | None:
    """What was written to a file; None where there is no such file, or it is not what was written."""
    try:
        content = path.read_bytes() if path is not None else b""
    except OSError:
        return None
    held, digest = content[:-32], content[-32:]
    if held and hashlib.sha256(held).digest() == digest:
        return held
    if content:
        logger.info("%s is damaged: made again", path)
    return None


def write(path: Path | None, content: bytes) -> None:
    """Put a whole file in place at once; without a cache where there is no room or no right to write."""
    if path is None:
        return
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = file.name
            file.write(content + hashlib.sha256(content).digest())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if str(path.parent) not in _told:
            _told.add(str(path.parent))
            logger.warning("nothing is kept in %s, so each process compiles anew: %s", path.parent, error)
