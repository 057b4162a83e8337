"""Strings of one character, as code points (`passes/analysis/single_characters.py`): what functions of them compute.

%5 = text['isdigit', args=(...,)](%4)           ->   a bit of a table of all code points
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.ir import texts
from autobatch.passes.control.indices import UNKNOWN


@dataclass(frozen=True)
class KnownFunction:
    """What a function of characters computes of code points; `check`: where it fits them, else `message`."""

    meaning: Callable[..., Any]
    check: Callable[..., Any] | None = None
    message: str = ""


@functools.cache
def _table(name: str) -> Any:
    """For each code point, a bit: what a method of `str` says of it."""
    method = _INSIDE[name] if name in _INSIDE else getattr(str, name)
    return np.packbits([method(chr(k)) for k in range(texts.BEHIND)], bitorder="little")


_INSIDE: dict[str, Callable[[str], bool]] = {
    "continues": lambda c: f"a{c}".isidentifier(),
    "is_cased": lambda c: f"{c}a".title().endswith("a"),
}
"""What a letter is inside of a word: does it go on with an identifier, or with a word whose letters have cases?"""


def holds(name: str, code: Any) -> Any:
    """What a method of `str` says of characters."""
    table = jnp.asarray(_table(name))
    code = jnp.clip(code, 0, texts.BEHIND - 1)  # what lies behind the end of a list may be anything
    return ((table[code >> 3] >> (code & 7).astype(jnp.uint8)) & 1).astype(bool)


def _predicate(name: str) -> KnownFunction:
    return KnownFunction(functools.partial(holds, name))


@functools.cache
def _zeros() -> Any:
    """The code points of the digits 0: those of the others follow them."""
    return np.array([k for k in range(texts.BEHIND) if chr(k).isdecimal() and int(chr(k)) == 0], np.int32)


def decimal(code: Any) -> Any:
    """The digits that characters are; -1 of others."""
    found = _digit(code)
    return jnp.where(_is_digit(found), found, -1)


def _digit(code: Any) -> Any:
    zeros = jnp.asarray(_zeros())
    return code - zeros[jnp.maximum(jnp.searchsorted(zeros, code, side="right") - 1, 0)]


def _is_digit(found: Any) -> Any:
    return (found >= 0) & (found < 10)


def _is_decimal(code: Any) -> Any:
    return _is_digit(_digit(code))


PREDICATES = (
    *("isalpha", "isdigit", "isalnum", "isupper", "islower", "isspace", "istitle", "isnumeric", "isdecimal"),
    *("isascii", "isidentifier", "isprintable"),
)
KNOWN: dict[str, KnownFunction] = {
    "ord": KnownFunction(lambda code: code),
    "__len__": KnownFunction(jnp.ones_like),
    "__lt__": KnownFunction(lambda a, b: a < b),
    "__le__": KnownFunction(lambda a, b: a <= b),
    "__gt__": KnownFunction(lambda a, b: a > b),
    "__ge__": KnownFunction(lambda a, b: a >= b),
    "int": KnownFunction(_digit, _is_decimal, f"invalid literal for int() with base 10: {UNKNOWN}"),
    **{name: _predicate(name) for name in PREDICATES},
}
"""By name of the function of strings."""
