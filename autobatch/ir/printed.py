"""What a function prints: lines as data, with the numbers that are computed in lists of one type each.

    print("loss", h)            ->   Line((Text("loss"), Number(0)))
    print(f"{n} of {h:.3f}")    ->   Line((Pieces((Spec(Number(1)), Text(" of "), Spec(Number(0), "", ".3f"))),))

An example says which of these lines it prints, in order; the numbers that they show are the next ones of their lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, assert_never

import jax


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
