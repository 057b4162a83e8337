"""Pure functions of strings, and of lists: what `text[function, args](...)`, `sort_order`, `find` and `put` compute.

`text['startswith', args=(..., 'st')](%3)` is `word.startswith('st')`: `...` stands for the operands, in order.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.ir.types import BOOL, INT, Tag, Type

_STR = Tag("str")

_METHODS: dict[Type, str] = {
    BOOL: "startswith endswith isalpha isdigit isalnum isupper islower isspace istitle isnumeric isdecimal isascii "
    "isidentifier isprintable __contains__ __lt__ __le__ __gt__ __ge__",
    INT: "find rfind index rindex count __len__",
    _STR: "upper lower title capitalize swapcase casefold strip lstrip rstrip removeprefix removesuffix replace zfill "
    "center ljust rjust expandtabs format __getitem__ __add__ __mul__",
}


def _part(word: str, start: int | None, stop: int | None, step: int | None) -> str:
    return word[start:stop:step]


def _split_count(word: str, *how: Any) -> int:
    return len(word.split(*how))


def _split_item(word: str, position: int, *how: Any) -> str:
    return word.split(*how)[position]


def _join(separator: str, *words: str) -> str:
    return separator.join(words)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Type]] = {
    **{name: (getattr(str, name), type) for type, names in _METHODS.items() for name in names.split()},
    "part": (_part, _STR),
    "split_count": (_split_count, INT),
    "split_item": (_split_item, _STR),
    "join": (_join, _STR),
    "int": (int, INT),
    "ord": (ord, INT),
    "chr": (chr, _STR),
}
"""By name: the function, and the type of its result."""

MAY_FAIL = {"int", "ord", "chr", "index", "rindex", "__getitem__", "format", "center", "ljust", "rjust"} | {
    "split_count",
    "split_item",
}
"""The functions that do not fit all operands of their types."""

FAILURES = (ValueError, LookupError, TypeError, OverflowError)
"""What a function of strings raises where it does not fit its operands."""


def is_plain_format(function: str, args: Sequence[Any]) -> bool:
    """Does it format by `{}` alone, which fits all operands?"""
    if function != "format" or not isinstance(args[0], str):
        return False
    return not any(spec or conversion for _, _, spec, conversion in string.Formatter().parse(args[0]))


def order(keys: Sequence[Sequence[Any]], reverse: bool) -> list[int]:
    """The positions of elements in ascending order; `keys` are the parts of their keys, each for all elements."""
    ranks = [tuple(map(plain, parts)) for parts in zip(*keys, strict=True)]
    return sorted(range(len(ranks)), key=ranks.__getitem__, reverse=reverse)


def find(operands: Sequence[Any]) -> int:
    """The position of the last element that is the second half of the operands; the first are the parts of all."""
    half = len(operands) // 2
    rows, wanted = zip(*operands[:half], strict=True), tuple(map(plain, operands[half:]))
    return max((k for k, row in enumerate(rows) if tuple(map(plain, row)) == wanted), default=-1)


def put(items: list[Any], place: Any, x: Any) -> list[Any]:
    """The list with another element at a place from the front; at its length, behind it."""
    return [*items[: plain(place)], x, *items[plain(place) + 1 :]]


BEHIND = 0x110000
"""More than any code point is."""
_numbers: dict[Any, int] = {}
_words: dict[int, Any] = {}
_counter = itertools.count(BEHIND)


def number(word: Any) -> int:
    """A number for a string or enum member, another one for each that is not equal to it: of a character, its code
    point."""
    if isinstance(word, str) and len(word) == 1:
        return ord(word)
    return _numbers.setdefault(word, next(_counter))  # in one step: programs are planned by several threads


def word(number: int) -> Any:
    """The string or enum member that a number stands for; None for a number that stands for none."""
    if number < BEHIND:
        return chr(number)
    if number not in _words:
        _words.update((n, w) for w, n in list(_numbers.items()))
    return _words.get(number)


def plain(value: Any) -> Any:
    """A value of one row as Python has it."""
    return value.item() if hasattr(value, "item") else value


def spelt(function: str, room: int, lists: Sequence[Sequence[Any]]) -> Any:
    """What `spelt` computes of lists of code points."""
    words = ["".join(chr(plain(c)) for c in x) for x in lists]
    if function == "packed":
        return [len(words[0]), *map(ord, words[0].ljust(room, "\0"))]
    return getattr(str, function)(*words)


def call(function: str, args: Sequence[Any], operands: Sequence[Any]) -> Any:
    """The function on plain Python values: `args` with the operands in the places of `...`."""
    rest = iter(operands)
    return FUNCTIONS[function][0](*(next(rest) if a is ... else a for a in args))
