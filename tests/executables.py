"""Executables of finished tests are let go before the process has too many of them."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from pathlib import Path

import jax

MAPS = Path("/proc/self/maps")
MOST = 40_000
"""Areas of memory. An executable of XLA on a CPU keeps dozens of them, and a process that asks for more than
`vm.max_map_count`, 65,530 by default, ends wherever it stands: as a segmentation fault, in the middle of LLVM."""


PAGES = max(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 5)
"""Bytes of memory. Executables have no areas of their own where malloc gives them. What is forgotten is compiled again,
the operations of plain Python among it: with 2 GiB on a machine of 24 that was a fifth of all compiling."""


SECONDS = 2.0
"""Of this process's time between two counts: counting takes as long as ten tests where there are many areas, and
compiling fills none of them faster."""
_counted = 0.0
_allowed = PAGES


def let_go() -> None:
    """Forget all executables where this process holds many; what is called again is compiled again."""
    global _counted, _allowed
    if time.process_time() - _counted < SECONDS or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST or _resident() > _allowed:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _allowed = max(PAGES, 2 * _resident())  # what stays is no executables
    _counted = time.process_time()


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
