"""Room for what an example makes itself, and bits for its integers: the words of their end, and which room they say
was too small."""

from __future__ import annotations

import re

NO_ROOM = "MemoryError"
"""What an example fails with that needs more."""
_WORDS = "list_capacity="
TOO_LARGE = ("OverflowError", "an int needs more bits than the device's integers have")
"""What an example fails with whose integer the device has no bits for, and the words."""
TOO_LARGE_FOR_HOST = ("OverflowError", "an int needs more than 64 bits")
"""The same of the host."""


DEVICE_IS_NARROW = "jax_enable_x64 makes"
"""What the message says of an integer for which the host has bits, and the device has not."""


def needs_bits(kind: str, message: str) -> bool:
    """Does an example fail because an integer needs more bits than the device's, or the host's, have?"""
    known = (TOO_LARGE, TOO_LARGE_FOR_HOST)
    return (kind, message) in known or (kind == TOO_LARGE[0] and DEVICE_IS_NARROW in message)


def out_of_room(capacity: int, objects: str = "") -> str:
    """What an example fails with whose list is longer than there is room for, or which makes more `objects` of a
    class."""
    full = f"{_MADE.format(objects)} {_WORDS}{capacity}" if objects else f"{_LIST} {_WORDS}{capacity} elements"
    return f"{full}; raise ab.options(list_capacity=...), which a call outside jax.jit does by itself, up to a limit"


_MADE = "more objects of {} are made than"
_LIST = "a list of which computed numbers say how long it is has more than"


def room_of(message: str) -> int | None:
    """The capacity that `out_of_room` says was too small; None of other words."""
    found = re.match(f"(?:{_LIST}|{_MADE.format('.*')}) {_WORDS}([0-9]+)", message)
    return int(found[1]) if found else None
