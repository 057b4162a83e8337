"""Memory of the host that computations free and take again, and the C library between."""

from __future__ import annotations

import ctypes

ARENAS, MAPPED_BLOCKS, TRIMMED, PADDED = -8, -4, -1, -2
"""Parameters of `mallopt` (malloc.h of glibc)."""


def keep_memory() -> bool:
    """Keep the memory that computations on the CPU free for those that follow, instead of giving it back.

    XLA takes the working memory of a call in one block and frees it behind the call. The C library of Linux returns a
    block of that size to the system, which clears every page of it in the next call: a fifth to a third of the time of
    a gradient of some hundred trees. Call this once in a program, before JAX computes anything: memory of threads that
    run by then is given back as before. From then on the process holds as much as it has needed at once, whoever in it
    asked for memory. The same from outside: `MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647`.

    Returns:
        Whether the C library has such settings: glibc has, others have not, and nothing changes there.

    Example:
        >>> import autobatch as ab
        >>> keeps = ab.keep_memory()
    """
    try:
        set_parameter = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = {ARENAS: 1, MAPPED_BLOCKS: 0, TRIMMED: 2**31 - 1, PADDED: 2**26}
    taken = [set_parameter(number, value) == 1 for number, value in wanted.items()]
    return all(taken)
