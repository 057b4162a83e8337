"""What a batched function remembers between calls: specialisations under a key, bounded, safe under threads.

A key is a record of named parts. When a call finds no specialisation, the log says which part of the key differs from
the nearest one that exists, so that a needless recompile is found by reading one line:

    autobatch: recompiling encode: shared changed from float32[5x4] to float32[6x4]
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

logger = logging.getLogger("autobatch")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CacheInfo(NamedTuple):
    """How much a batched function has compiled and keeps: `specialisations` are programs for one set of types,
    `executables` are those programs compiled for one size class, `plans` are plans made (cutting a minibatch out of a
    planned data set makes none)."""

    specialisations: int
    executables: int
    plans: int


@dataclass(frozen=True)
class Key:
    """What a specialisation depends on, but for the sources and free variables of the functions that it reaches: those
    are known only after compiling, and are compared with their present values at every call.

    `arguments`: containers, static values and forms of all arguments. `shared`: types of the run-time values that
    all examples share. `schema`: classes, fields and types of the examples."""

    axes: Any
    arguments: Any
    shared: tuple[Any, ...]
    schema: Any
    backend: str
    on_error: str
    options: Any
    x64: bool

    def __hash__(self) -> int:
        return hash((self.arguments, self.shared, self.backend, self.x64))


def differences(old: Key, new: Key) -> list[str]:
    """The parts in which two keys differ, in words."""
    found = []
    for field in dataclasses.fields(Key):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            found.append(_difference(field.name, before, after))
    return found


def _difference(name: str, before: Any, after: Any) -> str:
    if name == "schema":
        return "schema changed: " + (_schema_words(before, after) or "other classes")
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        parts = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
        if len(parts) < len(before):
            return ", ".join(f"{name} changed from {_short(b)} to {_short(a)}" for b, a in parts[:3])
    return f"{name} changed from {_short(before)} to {_short(after)}"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _schema_words(before: Any, after: Any) -> str:
    """What is new or different in a schema, field by field."""

    def fields(schema: Any) -> dict[str, str]:
        held = {f.column: f"{f.type}{'?' if f.optional or f.nullable else ''}" for s in schema.stores for f in s.fields}
        return {"one example": str(schema.root), **held}

    old, new = fields(before), fields(after)
    words = [f"{name} was {old[name]}, is {new[name]}" for name in old if name in new and old[name] != new[name]]
    words += [f"{name} is new" for name in new if name not in old]
    return "; ".join(words[:3])


class Bounded(Generic[K, V]):
    """A mapping that keeps the entries used last. Entries are made once, also when threads ask together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self.size:
                self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The entry, made under the lock when there is none: a compilation is never done twice."""
        with self._lock:
            held = self.get(key)
            if held is None:
                held = make()
                self.put(key, held)
            return held

    def items(self) -> Iterator[tuple[K, V]]:
        """The entries from the one used last to the oldest."""
        with self._lock:
            return iter(list(reversed(self._entries.items())))

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
