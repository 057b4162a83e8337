"""Sums of mixed words, as machine code: what `autobatch/call/checks.py` tells changed columns by."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.machine_code import UnavailableError
from autobatch.backends.llvm.text import LlvmFunction

POSITION, MIX = 0x9E3779B1, 0x7FEB352D
"""What the position of a word is multiplied by, and what the word is then."""

Words = NDArray[np.uint32]


def module() -> str:
    """sum over i of mixed(words[i] ^ POSITION * i), in 32 bits, in vectors that LLVM makes."""
    f = LlvmFunction("i32 @checksum(ptr %words, i64 %count) nounwind")
    total = f.slot(0)
    with f.loop(0, "%count", 1) as i:
        word = f.load("i32", f.at("%words", f.mul(i, 4)), align=4)
        place = f.let(f"mul i32 {f.let(f'trunc i64 {i} to i32')}, {POSITION}")
        mixed = f.let(f"xor i32 {word}, {place}")
        mixed = f.let(f"mul i32 {_folded(f, mixed, 16)}, {MIX}")
        f.set(total, f.add(f.get(total), f.let(f"zext i32 {_folded(f, mixed, 15)} to i64")))
    f.do(f"ret i32 {f.let(f'trunc i64 {f.get(total)} to i32')}")
    return str(f)


def _folded(f: LlvmFunction, word: str, bits: int) -> str:
    return f.let(f"xor i32 {word}, {f.let(f'lshr i32 {word}, {bits}')}")


@cache
def by_machine_code() -> Callable[[Words], Any] | None:
    """The function of words that lie one behind the other; None where there is no machine code."""
    try:
        text = module()
        with machine_code.lock:
            code = machine_code.load(machine_code.target_name("checksum", text), text, ("checksum",), vectorize=True)
    except UnavailableError:
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64)(code.functions["checksum"])
    return lambda words: np.uint32(function(words.ctypes.data, len(words)))
