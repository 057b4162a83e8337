"""Lists in memory, while a region is rewritten: which are there, and the operations that read and change them.

    Packed(%a, %b)             a list whose elements are known one by one, in no memory yet
    Held(%n, %buffer)          a length, and arrays with room for so many elements

A list never changes: what appends to it gives another one, whose arrays come from an update of those of the first. That
these are one memory is for the back ends to find, where nobody reads the first any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.capacity import NO_ROOM, out_of_room
from autobatch.ir.core import Apply, For, Instruction, Literal, Map, Operand, Region, Value
from autobatch.ir.ops import own
from autobatch.ir.rewrite import ConstantPool, Fresh
from autobatch.ir.types import INT, Array, List
from autobatch.passes.analysis.fallible import is_there
from autobatch.passes.control.comprehensions import EMPTY
from autobatch.passes.memory import arena_operations as lists
from autobatch.source import NOWHERE


@dataclass(frozen=True)
class ListInMemory:
    """A list in memory: its length and its buffers."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class KnownElements:
    """A list whose elements are known one by one, in no memory yet."""

    elements: tuple[Operand, ...]


class ArenaMemory:
    """What is known of the lists of a module. `lists`: those that have memory; `fallible`: reads that are to be checked
    here; `turns`: indices that count from the front. Instructions are added to `made`."""

    def __init__(
        self,
        fresh: Fresh,
        lists: frozenset[Value],
        fallible: frozenset[Value],
        turns: Collection[Operand],
        capacity: int,
        constants: ConstantPool,
    ) -> None:
        self.fresh, self.lists, self.fallible, self.turns, self.capacity = fresh, lists, fallible, turns, capacity
        self.constants = constants
        self.in_front = False  # of all branches and loops, where the host lays lists out
        self.env: dict[Value, ListInMemory | KnownElements] = {}
        self.copies: dict[Operand, ListInMemory] = {}
        self.names: dict[Value, Operand] = {}
        self.made: list[Instruction] = []
        self.span = NOWHERE

    def named(self, x: Operand) -> Operand:
        while isinstance(x, Value) and x in self.names:
            x = self.names[x]
        return x

    def values(self, xs: Sequence[Value]) -> tuple[Value, ...]:
        """Values, those of lists as their parts."""
        made: list[Value] = []
        for x in xs:
            if x in self.lists:
                parts = tuple(self.fresh.value(t, x.hint) for t in self.parts_of(x))
                self.env[x] = ListInMemory(parts)
                made += parts
            else:
                made.append(x)
        return tuple(made)

    def given(self, xs: Sequence[Operand], targets: Sequence[Operand]) -> tuple[Operand, ...]:
        """Operands for targets, of which some are lists in memory."""
        return tuple(o for x, t in zip(xs, targets, strict=True) for o in (self.held(x) if t in self.lists else (x,)))

    def parts_of(self, x: Operand) -> tuple[Array, ...]:
        type = lists.made_type(x) if isinstance(x.type, List) else x.type
        if not lists.is_storable(type):
            raise self.refused(f"holds {x.type}", "keep numbers and arrays in it: fields, positions")
        return lists.parts_of(type, self.capacity)

    def refused(self, what: str, cure: str) -> UnsupportedError:
        return UnsupportedError(f"a list that computed numbers decide {what}", self.span, cure)

    # ---- lists in memory

    def known(self, x: Operand) -> ListInMemory | KnownElements | None:
        """What is known of a list of the device."""
        x = self.named(x)
        return self.copies.get(x) or self.env.get(x) if isinstance(x, Value) else None

    def held(self, x: Operand) -> tuple[Operand, ...]:
        """The parts of a list, which is laid out here where it is not yet."""
        found = self.known(x)
        if isinstance(found, ListInMemory):
            return found.parts
        if isinstance(found, KnownElements):
            return self.appended(self.blank(x), found.elements)
        return self.copy_of(x)

    def blank(self, x: Operand) -> tuple[Operand, ...]:
        """An empty list of the type of another one."""
        self.parts_of(x)
        return self.traced(lambda: lists.blank(lists.made_type(x), self.capacity), ())

    def copy_of(self, x: Operand) -> tuple[Operand, ...]:
        """A list of structure in memory."""
        assert isinstance(x.type, List)
        count, span = self.fresh.value(INT), self.span
        self.made.append(Apply((count,), own("length"), (x,), span))
        self.room_for(count)
        if self.in_front and isinstance(x.type.elem, Array):
            return count, self.laid_out(x, x.type, count)
        _, *buffers = self.blank(x)
        turn, before = self.fresh.value(INT), self.made
        carried = tuple(self.fresh.value(b.type) for b in buffers)
        element, self.made = self.fresh.value(x.type.elem), []
        self.made.append(Apply((element,), own("item"), (x, turn), span))
        parts = self.copy_of(element) if isinstance(x.type.elem, List) else (element,)
        _, *after = self.stored((count, *carried), turn, parts)
        body, self.made = Region((turn, *carried), tuple(self.made), tuple(after)), before
        results = self.fresh.like(carried)
        self.made.append(For(results, count, tuple(buffers), body, span))
        return (count, *results)

    def laid_out(self, x: Operand, type: List, count: Operand) -> Value:
        """The elements of a list of structure in an array, where the host lays them out."""
        _, array = self.parts_of(x)
        listed, whole, span = x, self.fresh.value(array), self.span
        if type.store is not None:
            listed, element, turn = (self.fresh.value(t) for t in (List(type.elem), type.elem, INT))
            body = Region((turn,), (Apply((element,), own("item"), (x, turn), span),), (element,))
            self.made.append(Map((listed,), count, body, False, span))
        self.made.append(Apply((whole,), own("padded", room=self.capacity), (listed,), span))
        return whole

    def element(self, x: Operand) -> tuple[Operand, ...]:
        return self.held(x) if isinstance(x.type, List) else (x,)

    def stored(self, parts: Sequence[Operand], index: Operand, element: Sequence[Operand]) -> tuple[Operand, ...]:
        k = len(parts)
        return self.traced(lambda *xs: lists.stored(xs[:k], xs[k], xs[k + 1 :]), (*parts, index, *element))

    def put(self, parts: Sequence[Operand], index: Operand, element: Sequence[Operand]) -> tuple[Operand, ...]:
        """A list with an element at an index, or behind it, for which there is room."""
        k = len(parts)
        return self.traced(lambda *xs: lists.put(xs[:k], xs[k], xs[k + 1 :]), (*parts, index, *element))

    def appended(self, parts: Sequence[Operand], elements: Sequence[Operand]) -> tuple[Operand, ...]:
        """A list with more elements, for which there is room."""
        for x in elements:
            n, *buffers = self.stored(parts, parts[0], self.element(x))
            (n,) = self.traced(lambda n: (n + 1,), (n,))
            parts = (n, *buffers)
        return tuple(parts)

    def joined(self, pieces: Sequence[Operand]) -> tuple[Operand, ...]:
        first, *others = pieces
        parts = self.held(first)
        for x in others:
            found = self.known(x)
            if isinstance(found, KnownElements):
                self.room_for(parts[0], len(found.elements))
                parts = self.appended(parts, found.elements)
            else:
                parts = self.joined_pair(parts, self.held(x))
        return parts

    def joined_pair(self, a: Sequence[Operand], b: Sequence[Operand]) -> tuple[Operand, ...]:
        (count,) = self.traced(lambda n, m: (n + m,), (a[0], b[0]))
        self.room_for(count)
        return self.traced(lambda *xs: lists.joined(xs[: len(a)], xs[len(a) :]), (*a, *b))

    def flattened(self, i: Apply) -> None:
        outer = i.operands[0]
        found = self.known(outer)
        if isinstance(found, KnownElements) and found.elements:
            self.env[i.results[0]] = ListInMemory(self.joined(found.elements))
            return
        if isinstance(found, KnownElements):
            self.env[i.results[0]] = KnownElements(())
            return
        n, *buffers = self.held(outer)
        start = self.blank(i.results[0])
        turn, carried, before = self.fresh.value(INT), tuple(self.fresh.value(p.type) for p in start), self.made
        self.made = []
        inner = self.loaded((n, *buffers), turn, i.results[0])
        after = self.joined_pair(carried, inner)
        body, self.made = Region((turn, *carried), tuple(self.made), after), before
        results = self.fresh.like(carried)
        self.made.append(For(results, n, start, body, i.span))
        self.env[i.results[0]] = ListInMemory(results)

    def loaded(self, parts: Sequence[Operand], index: Operand, like: Value) -> tuple[Operand, ...]:
        types, k = self.parts_of(like), len(parts)
        return self.traced(lambda *xs: lists.loaded(xs[:k], xs[k], types), (*parts, index))

    def item(self, i: Apply) -> None:
        x, index = i.operands
        found = self.known(x)
        if isinstance(found, KnownElements) and (at := _position(index, len(found.elements))) is not None:
            self.names[i.results[0]] = found.elements[at]
            return
        parts = self.held(x)
        if index.type != INT:
            whole = self.fresh.value(INT)
            self.made.append(Apply((whole,), own("int"), (index,), i.span))
            index = whole
        if i.results[0] in self.fallible:
            (inside,) = self.traced(lambda k, n: (truth((-n <= k) & (k < n)),), (index, parts[0]))
            self.check(inside, "IndexError", "list index out of range")
        if isinstance(index, Literal) and isinstance(index.value, int):
            at = index.value
            index = index if at >= 0 else self.traced(lambda n: (n + at,), parts[:1])[0]
        elif index not in self.turns and not is_there(i):
            (index,) = self.traced(lambda k, n: (forward(k, n),), (index, parts[0]))
        loaded = self.loaded(parts, index, i.results[0])
        if i.results[0] in self.lists:
            self.env[i.results[0]] = ListInMemory(loaded)
        else:
            (self.names[i.results[0]],) = loaded

    def reduced(self, i: Apply) -> None:
        parts, result = self.held(i.operands[0]), i.results[0]
        assert isinstance(result.type, Array)
        kind, even = i.op["kind"], ("ties", "even") in i.op.params
        if kind in EMPTY:
            (some,) = self.traced(lambda n: (truth(n > 0),), parts[:1])
            self.check(some, "ValueError", EMPTY[kind])
        of = lists.reduced(kind, even, result.type)
        (self.names[result],) = self.traced(lambda n, b: (of(n, b),), parts)

    # ---- instructions of arithmetic

    def room_for(self, count: Operand, more: int = 0) -> None:
        if isinstance(count, Literal) and isinstance(count.value, int) and count.value + more <= self.capacity:
            return
        (enough,) = self.traced(lambda n: (truth(n + more <= self.capacity),), (count,))
        self.check(enough, NO_ROOM, out_of_room(self.capacity))

    def check(self, holds: Operand, kind: str, message: str) -> None:
        self.made.append(Apply((), own("check", kind=kind, message=message), (holds,), self.span))

    def traced(self, function: Callable[..., Any], xs: Sequence[Operand]) -> tuple[Operand, ...]:
        """The results of a function of JAX, whose operations are added."""
        xs = tuple(self.named(x) for x in xs)
        closed, _ = jax_compat.trace(function, *(x.type for x in xs if isinstance(x.type, Array)))
        return tuple(jax_compat.inline(closed, xs, self.fresh.value, self.constant, self.made.append, self.span))

    def constant(self, array: Any) -> Literal:
        """An array of the module's constants."""
        return self.constants.literal(array)


def truth(x: Any) -> Any:
    """A bool that is not weak, as comparisons of Python numbers are."""
    return lax.convert_element_type(x, bool)


def forward(index: Any, n: Any) -> Any:
    """An index from the front."""
    return jnp.where(index < 0, index + n, index)


def _position(index: Operand, count: int) -> int | None:
    """A constant index of a list of known length; None where it is none, or out of range."""
    at = index.value if isinstance(index, Literal) else None
    return at if isinstance(at, int) and -count <= at < count else None
