"""How much memory there is for arrays, where JAX computes by default."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

import jax

CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux tells a container its limit: cgroups of version 2 and 1."""


def limit() -> int:
    """The bytes that arrays can take at most; a very large number where nobody says."""
    return _limit(jax.devices()[0])


@lru_cache(maxsize=8)
def _limit(device: jax.Device) -> int:
    if device.platform == "cpu":
        return min([_physical(), *filter(None, map(_container, CONTAINER))])
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", sys.maxsize))


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize  # a system that does not say


def _container(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
