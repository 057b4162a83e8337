"""What a run returns, as a graph: its numbers are leaves, what can change keeps its identity, and an instance of any
class is what `copy.copy` takes it apart into.

[Cell(h, None)]   ->   Listed([Object(Cell, state=Table({"value": Leaf(0), "next": None}))])
"""

from __future__ import annotations

import copyreg
import enum
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autobatch.call.tracing.filled import Filled, whole
from autobatch.call.tracing.log import LeafMarker
from autobatch.errors import UnsupportedError
from autobatch.source import NOWHERE


@dataclass(eq=False)
class ListNode:
    """A list. What can change keeps its identity in a graph."""

    parts: list[Node]


@dataclass(eq=False)
class DictNode:
    """A dict: its keys, as they are and as nodes, and its values."""

    keys: list[Any]
    names: list[Node]
    parts: list[Node]


@dataclass(eq=False)
class Tuple:
    """A tuple or NamedTuple like `of`."""

    of: tuple[Any, ...]
    parts: list[Node]


@dataclass(eq=False)
class ObjectNode:
    """An instance of any class, as `copy.copy` takes it apart."""

    make: Any
    args: list[Node]
    state: Node = None
    items: Sequence[Node] = ()
    pairs: Sequence[tuple[Node, Node]] = ()


@dataclass(frozen=True)
class ConstantNode:
    """A class, a function or a member of an enum."""

    value: Any


Node = LeafMarker | ListNode | DictNode | Tuple | ObjectNode | ConstantNode | str | bytes | None

CONSTANTS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    enum.Enum,
    types.MethodDescriptorType,
)


class ResultGraph:
    """The graph of a result. `leaves` receives its numbers, of which symbols are instances of `symbol`."""

    def __init__(self, leaves: list[Any], symbol: type) -> None:
        self.leaves = leaves
        self.numbers = (symbol, bool, int, float, complex, np.ndarray, np.generic, jax.Array)
        self._made: dict[int, Node] = {}
        self._alive: list[Any] = []
        self._waiting: deque[Callable[[], None]] = deque()

    def whole(self, value: Any) -> Node:
        """The graph of a value. Objects that are linked in long chains need no deep recursion."""
        made = self.of(value)
        while self._waiting:
            self._waiting.popleft()()
        return made

    def of(self, value: Any) -> Node:
        """The node of a value, whose parts may still be missing."""
        if value is None or type(value) in (str, bytes):
            return value  # type: ignore[no-any-return]
        if isinstance(value, CONSTANTS):
            if isinstance(value, types.FunctionType) and value.__closure__:
                raise _refused(value)
            return ConstantNode(value)
        value = whole(value) if type(value) is Filled else value
        if type(value) in self.numbers or (isinstance(value, self.numbers) and not isinstance(value, PYTHON)):
            self.leaves.append(value)
            return LeafMarker(len(self.leaves) - 1)
        if id(value) not in self._made:
            self._alive.append(value)
            self._container(value)
        return self._made[id(value)]

    def all(self, values: Iterable[Any]) -> list[Node]:
        return [self.of(x) for x in values]

    def _container(self, value: Any) -> None:
        later = self._waiting.append
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
            self._made[id(value)] = Tuple(value, self.all(value))
        elif type(value) is list:
            listed = self._made[id(value)] = ListNode([])
            later(lambda: listed.parts.extend(self.all(value)))
        elif type(value) is dict:
            table = self._made[id(value)] = DictNode(list(value), [], [])
            later(lambda: table.names.extend(self.all(value)))
            later(lambda: table.parts.extend(self.all(value.values())))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            found = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except TypeError:
            raise _refused(value) from None
        if isinstance(found, str):
            self._made[id(value)] = ConstantNode(value)
            return
        make, args, state, items, pairs = (*found, None, None, None)[:5]
        made = self._made[id(value)] = ObjectNode(make, self.all(args))

        def fill() -> None:
            made.state, made.items = self.of(state), self.all(items or ())
            made.pairs = [(self.of(k), self.of(x)) for k, x in pairs or ()]

        self._waiting.append(fill)


PYTHON = (bool, int, float, complex)
"""What has subclasses that are objects."""


def _refused(value: Any) -> UnsupportedError:
    return UnsupportedError(
        f"a result of type {type(value).__name__} of a function whose structure is traced", NOWHERE,
        "return numbers, arrays, strings, containers, and objects that `copy.copy` can copy",
    )  # fmt: skip
