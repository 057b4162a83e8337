"""What grows beyond what a program has for it: the call is run again by one that has more.

    call -> program with list_capacity=32 -> an example is out of room -> program with list_capacity=128 -> ...
    call -> machine code, with integers of 32 bits -> an integer is larger -> XLA, whose host has 64 bits

What a function has needed once it begins with from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from autobatch.cache import logger
from autobatch.errors import ExampleError, Failure
from autobatch.ir.capacity import NO_ROOM, TOO_LARGE, room_of
from autobatch.options import Options

T = TypeVar("T")

FACTOR = 4
"""How much more there is the next time. To compile takes longer than to compute."""
LARGEST = 65_536
"""Room up to which it grows by itself."""


class OutOfRoom(ExampleError):
    """Examples whose lists are longer than there is room for, among those that failed."""

    def __init__(self, failures: Sequence[Failure], capacity: int) -> None:
        super().__init__(failures)
        self.capacity = capacity


class IntegerOverflow(ExampleError):
    """Examples that machine code, for which nobody asked, has no integers for, among those that failed."""


def overflowed(failures: Iterable[Failure]) -> bool:
    """Has an example failed because an integer is large?"""
    return any((f.kind, f.message) == TOO_LARGE for f in failures)


def ask_for_room(failures: Iterable[Failure]) -> None:
    """OutOfRoom where an example has failed because of its lists."""
    rooms = [(f, room_of(f.message)) for f in failures if f.kind == NO_ROOM]
    found = [(f, room) for f, room in rooms if room is not None]
    if found:
        raise OutOfRoom([f for f, _ in found], max(room for _, room in found))


class Room:
    """What the lists and integers of a function have needed so far."""

    def __init__(self) -> None:
        self.capacity = 0
        self.wide = False
        self._last: tuple[Options, Options] | None = None

    def in_options(self, options: Options) -> Options:
        """The options with at least so much room; the same object for the same options."""
        capacity = max(options.list_capacity, self.capacity)
        backend = "xla" if self.wide and options.backend == "auto" else options.backend
        if (capacity, backend) == (options.list_capacity, options.backend):
            return options
        last = self._last
        if last is None or last[0] is not options or (last[1].list_capacity, last[1].backend) != (capacity, backend):
            self._last = last = options, replace(options, list_capacity=capacity, backend=backend)
        return last[1]

    def enough_for(self, call: Callable[[], T]) -> T:
        """What a call gives, which is made again, with more room, as long as its examples run out of it. ExampleError
        where that is too much."""
        while True:
            try:
                return call()
            except OutOfRoom as full:
                wanted = FACTOR * full.capacity
                if wanted > LARGEST:
                    raise ExampleError(full.failures, full.count) from None
                self.capacity = max(self.capacity, wanted)
            except IntegerOverflow as full:
                if self.wide:
                    raise ExampleError(full.failures, full.count) from None
                logger.info("runs by xla from now on: %s", full.failures[0].message)
                self.wide = True
