"""Executables of finished tests are let go before the process has too many of them."""

from __future__ import annotations

import gc
from pathlib import Path

import jax

MAPS = Path("/proc/self/maps")
MOST = 20_000
"""Areas of memory. An executable of XLA on a CPU keeps dozens of them, and a process that asks for more than
`vm.max_map_count`, 65,530 by default, ends wherever it stands: as a segmentation fault, in the middle of LLVM."""


def let_go() -> None:
    """Forget all executables where this process holds many; what is called again is compiled again."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
        gc.collect()
