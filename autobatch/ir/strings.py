"""Strings: pure functions of them and of lists, string formatting, and the lines that a function prints.

What `text[function, args](...)`, `sort_order`, `find` and `put` compute: `text['startswith', args=(..., 'st')](%3)` is
`word.startswith('st')`; `...` stands for the operands, in order.

Printed lines are data, with the numbers that are computed in lists of one type each. An example says which of these
lines it prints, in order; the numbers that they show are the next ones of their lists.

    print("loss", h)            ->   Line((Text("loss"), Number(0)))
    print(f"{n} of {h:.3f}")    ->   Line((Pieces((Spec(Number(1)), Text(" of "), Spec(Number(0), "", ".3f"))),))
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, assert_never

import jax
import numpy as np

from autobatch.ir.core import BOOL, INT, Tag, Type
from autobatch.ir.jax_compat import float_dtype

# ---- functions


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


def _count_of(method: Callable[..., Sequence[str]]) -> Callable[..., int]:
    return lambda word, *how: len(method(word, *how))


def _item_of(method: Callable[..., Sequence[str]]) -> Callable[..., str]:
    return lambda word, position, *how: method(word, *how)[position]


_SPLITS: dict[str, Callable[..., Sequence[str]]] = {
    "split": str.split,
    "rsplit": str.rsplit,
    "splitlines": str.splitlines,
}
_PARTS: dict[str, Callable[..., Sequence[str]]] = {**_SPLITS, "partition": str.partition, "rpartition": str.rpartition}


def _join(separator: str, *words: str) -> str:
    return separator.join(words)


def _is_narrow(word: str) -> bool:
    """Has an int that a string says room on the device?"""
    width = np.iinfo(jax.dtypes.canonicalize_dtype(int))
    return not _fits("int", word) or width.min <= int(word) <= width.max


def _float_bits(word: str) -> int:
    """The bits of `float(word)`: what the host hands over are whole numbers."""
    x = np.asarray(float(word), float_dtype())
    return int(x.view(f"int{x.dtype.itemsize * 8}"))


def _fits(function: str, *args: Any) -> bool:
    """Is there a result of a function of these?"""
    try:
        FUNCTIONS[function][0](*args)
    except FAILURES:
        return False
    return True


FUNCTIONS: dict[str, tuple[Callable[..., Any], Type]] = {
    **{name: (getattr(str, name), type) for type, names in _METHODS.items() for name in names.split()},
    "part": (_part, _STR),
    **{f"{name}_count": (_count_of(method), INT) for name, method in _SPLITS.items()},
    **{f"{name}_item": (_item_of(method), _STR) for name, method in _PARTS.items()},
    "join": (_join, _STR),
    "fits": (_fits, BOOL),
    "is_narrow": (_is_narrow, BOOL),
    "int": (int, INT),
    "float_bits": (_float_bits, INT),
    "ord": (ord, INT),
    "chr": (chr, _STR),
    "of_letters": (lambda codes: "".join(chr(plain(k)) for k in codes), _STR),
}
"""By name: the function, and the type of its result."""


def misfit(function: str, args: Sequence[Any], numbers: Sequence[bool]) -> str | None:
    """What Python says where a function takes no operands of these types: tried on one of each."""
    given = iter(numbers)
    try:
        FUNCTIONS[function][0](*((1 if next(given) else "a") if a is ... else a for a in args))
    except TypeError as error:
        return str(error)
    except FAILURES:
        return None
    return None


MAY_FAIL = {
    "int",
    "float_bits",
    "ord",
    "chr",
    "index",
    "rindex",
    "__getitem__",
    "format",
    "center",
    "ljust",
    "rjust",
} | {
    *("split_count", "split_item", "rsplit_count", "rsplit_item", "splitlines_item"),
    *("partition_item", "rpartition_item"),
}
"""The functions that do not fit all operands of their types."""

FAILURES = (ValueError, LookupError, TypeError, OverflowError)
"""What a function of strings raises where it does not fit its operands."""


WHAT_FAILS: dict[str, tuple[str, str]] = {
    "int": ("ValueError", "invalid literal for int() with base 10: {!r}"),
    "ord": ("TypeError", "ord() expected a character, but string of length {} found"),
    "chr": ("ValueError", "chr() arg not in range(0x110000)"),
    "index": ("ValueError", "substring not found"),
    "rindex": ("ValueError", "substring not found"),
    "__getitem__": ("IndexError", "string index out of range"),
    "partition_item": ("ValueError", "empty separator"),
    "rpartition_item": ("ValueError", "empty separator"),
    **dict.fromkeys(("split_count", "rsplit_count"), ("ValueError", "empty separator")),
    **dict.fromkeys(("split_item", "rsplit_item", "splitlines_item"), ("IndexError", "list index out of range")),
    "float_bits": ("ValueError", "could not convert string to float: {!r}"),
}
"""By function: what it raises for operands that it does not fit, with what message; other functions, a ValueError."""


def may_fail(function: str, args: Sequence[Any], numbers: Sequence[bool]) -> bool:
    """Is there an operand that a function does not fit? `numbers`: which of the operands are numbers."""
    if function not in MAY_FAIL:
        return False
    match function:
        case "format":
            return not _always_formats(args, numbers)
        case "center" | "ljust" | "rjust":
            return len(args) > 2 and not (isinstance(args[2], str) and len(args[2]) == 1)
        case "split_count" | "rsplit_count":
            return len(args) > 1 and (args[1] is ... or args[1] == "")
        case "partition_item" | "rpartition_item":
            return args[2] is ... or args[2] == ""
        case "__getitem__" if isinstance(args[0], str) and isinstance(args[1], int):
            return not -len(args[0]) <= args[1] < len(args[0])
        case _:
            return True


def _always_formats(args: Sequence[Any], numbers: Sequence[bool]) -> bool:
    """Does a format fit all operands? Which do is a matter of their types, but for numbers as characters."""
    form = args[0]
    if not isinstance(form, str) or any((spec or "").endswith("c") for _, _, spec, _ in string.Formatter().parse(form)):
        return False
    return _fits("format", *_given(args, [0 if n else "a" for n in numbers]))


def _given(args: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    rest = iter(operands)
    return [next(rest) if a is ... else a for a in args]


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


def spelt(function: str, room: int, operands: Sequence[Any]) -> Any:
    """What `spelt` computes of lists of code points, and of whole numbers."""
    given = ["".join(chr(plain(c)) for c in x) if isinstance(x, list) else plain(x) for x in operands]
    match function:
        case "packed":
            return [len(given[0]), *map(ord, given[0].ljust(room, "\0"))]
        case "fits_int":
            return _fits("int", *given)
        case "centred":
            return [*map(ord, f"{given[0]:{''.join(given[2:])}^{given[1]}}")]
    found = getattr(str, function)(*given) if hasattr(str, function) else FUNCTIONS[function][0](*given)
    return [*map(ord, found)] if isinstance(found, str) else found


def call(function: str, args: Sequence[Any], operands: Sequence[Any]) -> Any:
    """The function on plain Python values: `args` with the operands in the places of `...`."""
    return FUNCTIONS[function][0](*_given(args, operands))


# ---- printed lines


@dataclass(frozen=True)
class PrintedText:
    """What is known: a string, or what has one."""

    value: Any


@dataclass(frozen=True)
class PrintedNumber:
    """The next number, array or string of a list."""

    list: int


@dataclass(frozen=True)
class PrintedContainer:
    """A tuple, list, dict or object; `keys` are those of a dict, or the names of fields. "pairs": a dict whose keys are
    computed, as one part, the list of its pairs."""

    kind: str
    keys: tuple[Any, ...]
    parts: tuple[Part, ...]
    cls: type | None = None


@dataclass(frozen=True)
class PrintedList:
    """A list or tuple of as many elements as the next number of a list says."""

    length: int
    of: Part
    is_tuple: bool = False


@dataclass(frozen=True)
class PrintedOptional:
    """None where the next bool of a list is true."""

    missing: int
    value: Part


@dataclass(frozen=True)
class Spec:
    """A value in an f-string: how it is converted ("", "s", "r" or "a"), and its format."""

    value: Part
    conversion: str = ""
    format: str = ""


@dataclass(frozen=True)
class PrintedPieces:
    """An f-string."""

    pieces: tuple[PrintedText | Spec, ...]


Part = PrintedText | PrintedNumber | PrintedContainer | PrintedList | PrintedOptional | Spec | PrintedPieces


@dataclass(frozen=True)
class PrintedLine:
    """A call of `print`."""

    arguments: tuple[Part, ...]
    separator: str = " "
    end: str = "\n"
    stream: str = "stdout"


@partial(jax.tree_util.register_dataclass, data_fields=("result", "lines"), meta_fields=())
@dataclass(frozen=True, eq=False)
class Printed:
    """A result, and what is printed for each example: `PrintedNotes`; of a function that is traced `Objects`, a list of
    lines, `[arguments, separator, end, stream]`, for each."""

    result: Any
    lines: Any


class PrintedNotes:
    """What the examples of a batch print: which lines, and the lists of what these show; a class for each function."""

    lines: ClassVar[tuple[PrintedLine, ...]] = ()


@cache
def notes_class(lines: tuple[PrintedLine, ...]) -> type[PrintedNotes]:
    """The class of what a function prints that has such lines."""
    return type("PrintedNotes", (PrintedNotes,), {"lines": lines})


def printed(
    lines: Sequence[PrintedLine], calls: Sequence[int], lists: Sequence[Sequence[Any]]
) -> Iterator[tuple[PrintedLine, list[Any]]]:
    """The lines of one example, and the arguments of each."""
    reading = [iter(x) for x in lists]
    for call in calls:
        line = lines[call]
        yield line, [value(part, reading) for part in line.arguments]


def value(part: Part, lists: Sequence[Iterator[Any]]) -> Any:
    """What a part of a line shows. What it reads is the next of its lists, whether it is shown or not."""
    match part:
        case PrintedText(value=held):
            return held
        case PrintedNumber(list=number):
            return next(lists[number])
        case PrintedContainer(kind=kind, keys=keys, parts=parts, cls=cls):
            return _container(kind, keys, [value(x, lists) for x in parts], cls)
        case PrintedList(length=length, of=of, is_tuple=is_tuple):
            found = [value(of, lists) for _ in range(int(next(lists[length])))]
            return tuple(found) if is_tuple else found
        case PrintedOptional(missing=missing, value=inner):
            is_none, found_ = bool(next(lists[missing])), value(inner, lists)
            return None if is_none else found_
        case Spec(value=inner, conversion=conversion, format=spec):
            held = value(inner, lists)
            return format(_CONVERSIONS[conversion](held) if conversion else held, spec)
        case PrintedPieces(pieces=pieces):
            return "".join(str(value(x, lists)) for x in pieces)
        case _:
            assert_never(part)


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def _container(kind: str, keys: Sequence[Any], parts: list[Any], cls: type | None) -> Any:
    if kind == "list":
        return parts
    if kind == "tuple":
        return tuple(parts)
    if kind == "dict":
        return dict(zip(keys, parts, strict=True))
    if kind == "pairs":
        return dict(parts[0])
    assert cls is not None
    if kind == "namedtuple":
        return cls(*parts)
    made: Any = object.__new__(cls)
    for key, x in zip(keys, parts, strict=True):
        object.__setattr__(made, key, x)
    return made
