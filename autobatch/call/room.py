"""What grows beyond what a program has for it: the call is run again by one that has more.

    call -> program with list_capacity=32 -> an example is out of room -> program with list_capacity=128 -> ...
    call -> machine code, with integers of 32 bits -> an integer is larger -> XLA, whose host has 64 bits
         -> machine code, a recursion of so many calls -> there are more -> XLA, which computes equal ones once

What a function has needed once it begins with from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from autobatch.common.cache import logger
from autobatch.errors import ExampleError, Failure
from autobatch.ir.blocks import is_endless, is_too_deep
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


class OtherBackend(ExampleError):
    """Examples that machine code, for which nobody asked, is not the best for, among those that failed; the call is for
    `backend`."""

    def __init__(self, failures: Sequence[Failure], backend: str) -> None:
        super().__init__(failures)
        self.backend = backend


def overflowed(failures: Iterable[Failure]) -> bool:
    """Has an example failed because an integer is large?"""
    return any((f.kind, f.message) == TOO_LARGE for f in failures)


def exhausted(failures: Iterable[Failure], steps: int) -> str:
    """Has an example failed because its recursion takes more than so many "steps", or is too "deep"?"""
    found = {"steps" for f in failures if is_endless(f.kind, f.message, steps)}
    found |= {"deep" for f in failures if is_too_deep(f.kind, f.message)}
    return max(found, default="")


def ask_for_room(failures: Iterable[Failure]) -> None:
    """OutOfRoom where an example has failed because of its lists."""
    rooms = [(f, room_of(f.message)) for f in failures if f.kind == NO_ROOM]
    found = [(f, room) for f, room in rooms if room is not None]
    if found:
        raise OutOfRoom([f for f, _ in found], max(room for _, room in found))


class KnownCapacities:
    """What the lists and integers of a function have needed so far."""

    def __init__(self) -> None:
        self.capacity = 0
        self.backend = "auto"
        self._last: tuple[Options, Options] | None = None

    def in_options(self, options: Options) -> Options:
        """The options with at least so much room; the same object for the same options."""
        if not self.capacity and self.backend == "auto":
            return options
        capacity = max(options.list_capacity, self.capacity)
        backend = self.backend if options.backend == "auto" else options.backend
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
            except OtherBackend as full:
                if self.backend != "auto":
                    raise ExampleError(full.failures, full.count) from None
                logger.info("runs by %s from now on: %s", full.backend, full.failures[0].message)
                self.backend = full.backend
