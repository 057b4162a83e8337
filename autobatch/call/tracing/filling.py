"""The arguments of each example at once, where the shared ones are plain containers of numbers.

({"w": Input(0), "b": Input(1)}, Slot(0))   ->   [lambda s: {"w": s[0], "b": s[1]}, ...]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autobatch.call.arguments import ArgumentNode, ArgumentSlot, BoundArguments, Raw
from autobatch.call.tracing.copying import PLAIN
from autobatch.ir.template import Input

Symbols = Sequence[Any]
Maker = Callable[[Symbols], Any]
Filling = Callable[[Symbols, Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""The arguments, by the symbols of shared numbers and by what the batched leaves are."""


def filling(bound: BoundArguments) -> Filling | None:
    """How the arguments of a call are made, whose shared values hold `Input`s for numbers; None of those that hold
    objects, or one container twice, and of batched leaves inside of containers."""
    if any(isinstance(form, ArgumentNode) for form in bound.forms.values()):
        return None
    args, kwargs = bound.rebuild(lambda slot: slot, lambda raw: raw)
    seen = set[int]()
    makers = [_argument(x, seen) for x in (*args, *kwargs.values())]
    if None in makers:
        return None
    known: list[tuple[int, Maker]] = [m for m in makers if m is not None]
    names, count = tuple(kwargs), len(args)

    def fill(symbols: Symbols, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = [leaves[slot] if slot >= 0 else make(symbols) for slot, make in known]
        return tuple(made[:count]), dict(zip(names, made[count:], strict=True))

    return fill


def _argument(part: ArgumentSlot | Raw, seen: set[int]) -> tuple[int, Maker] | None:
    """The batched leaf that an argument is, or -1 and how it is made."""
    if isinstance(part, ArgumentSlot):
        return part.index, _nothing
    made = None if part.static and type(part.value) not in PLAIN else _made(part.value, seen)
    return None if made is None else (-1, made)


def _nothing(symbols: Symbols) -> Any:
    return None


def _made(value: Any, seen: set[int]) -> Maker | None:
    """How a shared value is made of symbols: containers are new ones each time, which the function may change."""
    if isinstance(value, Input):
        index = value.index
        return lambda symbols: symbols[index]
    kind = type(value)
    if kind in PLAIN:
        return lambda symbols: value
    if kind not in (dict, list, tuple) or id(value) in seen:
        return None
    seen.add(id(value))
    parts = list(value.values()) if kind is dict else list(value)
    if kind is dict and all(isinstance(x, Input) for x in parts):
        places = [(k, x.index) for k, x in value.items()]
        return lambda symbols: {k: symbols[index] for k, index in places}
    found = [_made(x, seen) for x in parts]
    makers = [m for m in found if m is not None]
    if len(makers) < len(found):
        return None
    if kind is dict:
        keys = list(value)
        return lambda symbols: {k: make(symbols) for k, make in zip(keys, makers, strict=True)}
    return lambda symbols: kind([make(symbols) for make in makers])
