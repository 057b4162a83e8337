"""Lists in memory, while a region is rewritten: which are there, and the operations that read and change them.

    Packed(%a, %b)             a list whose elements are known one by one, in no memory yet
    Held(%n, %buffer)          a length, and arrays with room for so many elements

A list never changes: what appends to it gives another one, whose arrays come from an update of those of the first. That
these are one memory is for the back ends to find, where nobody reads the first any more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.errors import NOWHERE, UnsupportedError
from autobatch.ir import jax_compat, leaf
from autobatch.ir.buffers import NO_ROOM, out_of_room
from autobatch.ir.core import (
    INT,
    Apply,
    Array,
    For,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Type,
    Value,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import NO_ELEMENTS, OWN, Op, own
from autobatch.ir.regions import ConstantPool, Fresh, with_regions
from autobatch.passes.fallible import is_there
from autobatch.passes.simplify import SMALL, Update, is_item, reads_at

# ---- arena operations
#
# What lists do, on arrays: a length, and buffers with room for `capacity` elements.
#
#     append(x):  buffer = dynamic_update_slice(buffer, [x], length);  length + 1
#     pop():      dynamic_slice(buffer, length - 1);                   length - 1
#     a + b:      where(i < len(a), a[i], b[i - len(a)])  for all i at once
#
# Functions of JAX, for one example. A list of numbers or arrays has one buffer; a list of lists has one more axis in
# each, and a buffer of the lengths. What lies behind the length is whatever was there before: no result depends on it.
# Indices are in range where no check has failed, and clamped elsewhere.


Parts = Sequence[Any]
"""The length of a list, and its buffers."""


def parts_of(type: Type, capacity: int) -> tuple[Array, ...]:
    """The types of the numbers that a list is: its length, and its buffers; of an array, itself."""
    if isinstance(type, Array):
        return (type,)
    assert isinstance(type, List)
    return (INT, *(_stored(p, capacity) for p in parts_of(type.elem, capacity)))


def made_type(x: Operand) -> List:
    """The type of a copy of a list that the program makes."""

    def made(type: Type) -> Type:
        return List(made(type.elem)) if isinstance(type, List) else type

    assert isinstance(x.type, List)
    return List(made(x.type.elem))


def is_storable(type: Type) -> bool:
    """Are there buffers for lists of such elements?"""
    while isinstance(type, List) and type.store is None:
        type = type.elem
    return isinstance(type, Array)


def _stored(type: Array, capacity: int) -> Array:
    return Array(str(jax_compat.device_dtype(type)), (capacity, *type.shape))


def blank(type: Type, capacity: int) -> Parts:
    """An empty list."""
    _, *buffers = parts_of(type, capacity)
    return (0, *(jax_compat.zeros(b.shape, jax_compat.dtype_of(b.dtype)) for b in buffers))


def loaded(parts: Parts, index: Any, elem: Sequence[Array]) -> Parts:
    """The parts of the element at an index."""
    found = [_element(b, index) for b in parts[1:]]
    return [jax_compat.weakened(x) if t.weak else x for x, t in zip(found, elem, strict=True)]


@jax_compat.choosing
def _element(buffer: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(buffer, index, 0, False, allow_negative_indices=False)


def stored(parts: Parts, index: Any, element: Parts) -> Parts:
    """The list with the element at an index set."""
    n, *buffers = parts
    return (n, *(_put(b, x, index) for b, x in zip(buffers, element, strict=True)))


def _put(buffer: Any, x: Any, index: Any) -> Any:
    x = jnp.broadcast_to(jnp.asarray(x, buffer.dtype), buffer.shape[1:])
    return lax.dynamic_update_index_in_dim(buffer, x, index, 0, allow_negative_indices=False)


def put(parts: Parts, index: Any, element: Parts) -> Parts:
    """The list with the element at an index, which is one longer where that is its length."""
    n, *buffers = stored(parts, index, element)
    return (jnp.maximum(n, index + 1), *buffers)


def position(sizes: Sequence[int]) -> Callable[..., Any]:
    """Where the last element is whose parts are equal to others, -1 where none is: of a length, the buffers and these
    parts. `sizes`: one buffer for a part that is a number, two for a list of numbers. All elements are compared at
    once."""
    count = sum(sizes)

    def found(n: Any, *xs: Any) -> tuple[Any]:
        places = jnp.arange(xs[0].shape[0])
        hits = places < n
        for k, size in zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False):
            buffer, x = xs[k], xs[count + k]
            hits &= buffer == jnp.asarray(x, buffer.dtype)
            if size == 2:
                alike = xs[k + 1] == xs[count + k + 1]
                hits &= jnp.all(alike | (jnp.arange(alike.shape[1]) >= x), 1)
        return (jax_compat.weakened(jnp.max(jnp.where(hits, places, -1))),)

    return found


def joined(a: Parts, b: Parts) -> Parts:
    """The elements of both."""
    n = a[0]
    index = jnp.arange(a[1].shape[0]) - n
    return (n + b[0], *(_choose(index < 0, x, taken(y, index)) for x, y in zip(a[1:], b[1:], strict=True)))


@jax_compat.choosing
def taken(buffer: Any, index: Any) -> Any:
    """Elements at places, any where there is none."""
    return buffer.at[jnp.clip(index, 0, buffer.shape[0] - 1)].get(mode="promise_in_bounds")


@jax_compat.choosing
def _choose(condition: Any, a: Any, b: Any) -> Any:
    return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)


def reduced(kind: str, even: bool, type: Array) -> Callable[..., Any]:
    """A reduction of a list, whose result is of a type."""

    def reduce(n: Any, buffer: Any) -> Any:
        made = _reduced(kind, even, n, buffer)
        return jax_compat.weakened(made) if type.weak else jnp.asarray(made, jax_compat.device_dtype(type))

    return reduce


def _reduced(kind: str, even: bool, n: Any, buffer: Any) -> Any:
    places = jnp.arange(buffer.shape[0])
    there = places < n
    match kind:
        case "sum":
            return jnp.sum(_choose(there, buffer, jnp.zeros_like(buffer)), 0, buffer.dtype)
        case "prod":
            return jnp.prod(_choose(there, buffer, jnp.ones_like(buffer)), 0, buffer.dtype)
        case "any":
            return jnp.any(_choose(there, buffer != 0, jnp.zeros(buffer.shape, bool)), 0)
        case "all":
            return jnp.all(_choose(there, buffer != 0, jnp.ones(buffer.shape, bool)), 0)
    if not even:  # as `leaf.extreme` has it
        there &= (places == 0) | (buffer == buffer)
    held = _choose(there, buffer, jnp.full_like(buffer, _extreme(buffer.dtype, kind)))
    if even:
        return (jnp.max if kind == "max" else jnp.min)(held, 0)
    position = (jnp.argmax if kind == "max" else jnp.argmin)(lax.stop_gradient(held), 0)
    return _element(buffer, position)


def _extreme(dtype: Any, kind: str) -> Any:
    """What no element is beyond."""
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf if kind == "max" else jnp.inf
    if jnp.issubdtype(dtype, jnp.bool_):
        return kind == "min"
    found = np.iinfo(dtype)
    return found.min if kind == "max" else found.max


def order(reverse: bool) -> Callable[..., Parts]:
    """The positions of elements in ascending order of their keys, as `sorted` has it."""

    def ordered(n: Any, *keys: Any) -> Parts:
        positions = jnp.arange(keys[0].shape[0], dtype=jnp.result_type(int))
        given = [_descending(k) if reverse else k for k in keys]
        behind = (positions >= n).astype(jnp.int32)
        found = lax.sort((behind, *given, positions), num_keys=1 + len(keys), is_stable=True)
        return n, found[-1]

    return ordered


def no_nan(n: Any, *keys: Any) -> tuple[Any]:
    """Is there no NaN among the keys?"""
    there = jnp.arange(keys[0].shape[0]) < n
    return (~jnp.any(there & functools.reduce(jnp.logical_or, map(jnp.isnan, keys))),)


NAN_IN_ORDER = "NaN among the keys of a sort, whose order in Python depends on its algorithm: leave NaN out"


def ranks(n: Any, lengths: Any, items: Any) -> tuple[Any]:
    """How many of some lists of numbers are less than each one: by the first number that differs; one that ends there
    is less. Loops end with the lists and their numbers: there may be room for many more."""
    room = items.shape[0]
    none = jnp.zeros(room, bool)
    longest = jnp.max(jnp.where(jnp.arange(room) < n, lengths, 0), initial=0)

    def compared(k: Any, total: Any) -> Any:
        def step(place: Any, known: Any) -> tuple[Any, Any]:
            less, equal = known
            held, column = place < lengths, items[:, place]
            here = held & (~held[k] | (column[k] < column))
            same = (held == held[k]) & (~held[k] | (column == column[k]))
            return less | (equal & here), equal & same

        less, _ = lax.fori_loop(0, longest, step, (none, ~none))
        return total + less.astype(jnp.int32)

    return (lax.fori_loop(0, jnp.minimum(n, room), compared, jnp.zeros(room, jnp.int32)),)


def _descending(key: Any) -> Any:
    if key.dtype == bool:
        return ~key
    return ~key if jnp.issubdtype(key.dtype, jnp.integer) else -key


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
        type = made_type(x) if isinstance(x.type, List) else x.type
        if not is_storable(type):
            raise self.refused(f"holds {x.type}", "keep numbers and arrays in it: fields, positions")
        return parts_of(type, self.capacity)

    def refused(self, what: str, cure: str) -> UnsupportedError:
        return UnsupportedError(f"a data-dependent list {what}", self.span, cure)

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
        return self.traced(lambda: blank(made_type(x), self.capacity), ())

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
        return self.traced(lambda *xs: stored(xs[:k], xs[k], xs[k + 1 :]), (*parts, index, *element))

    def put(self, parts: Sequence[Operand], index: Operand, element: Sequence[Operand]) -> tuple[Operand, ...]:
        """A list with an element at an index, or behind it, for which there is room."""
        k = len(parts)
        return self.traced(lambda *xs: put(xs[:k], xs[k], xs[k + 1 :]), (*parts, index, *element))

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
        return self.traced(lambda *xs: joined(xs[: len(a)], xs[len(a) :]), (*a, *b))

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
        return self.traced(lambda *xs: loaded(xs[:k], xs[k], types), (*parts, index))

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
        if kind in NO_ELEMENTS:
            (some,) = self.traced(lambda n: (truth(n > 0),), parts[:1])
            self.check(some, "ValueError", NO_ELEMENTS[kind])
        of = reduced(kind, even, result.type)
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


# ---- arena stores
#
# Stores that end both arms of a branch stand behind it: an array that either arm changes at one place is not copied.
#
#     %new = if %c then:                                       %u, %k = if %c then:
#       %a = dynamic_update_slice(%old, %x, %i)                  yield %x, %i
#       yield %a                                           ->   else:
#     else:                                                      yield %y, %j
#       %b = dynamic_update_slice(%old, %y, %j)                %new = dynamic_update_slice(%old, %u, %k)
#       yield %b
#
# Under a mask both arms run, and each would change an array of its own; machine code would keep the old one for the
# other arm. An arm that changes nothing stores what is there. So a push and a pop with a push move one element of a
# stack rather than all of it. (Code sinking; cf. Briggs and Cooper, "Effective partial redundancy elimination", 1994.)


STORE = "dynamic_update_slice"


def stores_behind_branches(module: Module) -> Module:
    """The module with such stores of its entry moved."""
    entry, fresh = module.functions[0], Fresh(module)
    return replace(module, functions=(replace(entry, region=_region(entry.region, fresh)), *module.functions[1:]))


def _region(region: Region, fresh: Fresh) -> Region:
    body: list[Instruction] = []
    for i in region.body:
        new = with_regions(i, lambda r: _region(r, fresh))
        body += _behind(new, fresh) if isinstance(new, If) else [new]
    return replace(region, body=tuple(body))


@dataclass(frozen=True)
class _Stored:
    """An array of which each arm, at its end, changes one place, or nothing (None)."""

    result: Value
    base: Value
    arms: tuple[Apply | None, Apply | None]

    @property
    def store(self) -> Apply:
        return next(i for i in self.arms if i is not None)

    @property
    def update(self) -> Array:
        found = self.store.operands[1].type
        assert isinstance(found, Array)
        return found

    def moving(self) -> list[int]:
        """The operands that the branch decides: all but the array, and indices that are one number in both arms."""
        held = [i.operands for i in self.arms if i is not None]
        return [k for k in range(1, len(held[0])) if k == 1 or any(not _same(xs[k], held[0][k]) for xs in held)]


def _same(a: Operand, b: Operand) -> bool:
    return isinstance(a, Literal) and a == b


def _behind(branch: If, fresh: Fresh) -> list[Instruction]:
    """The branch, and the stores behind it."""
    found = [s for k in range(len(branch.results)) if (s := _stored_in_arm(branch, k)) is not None]
    if not found:
        return [branch]
    taken = {s.result for s in found}
    kept = [k for k, r in enumerate(branch.results) if r not in taken]
    made = [{k: fresh.value(s.store.operands[k].type) for k in s.moving()} for s in found]
    arms = [_arm(arm, which, found, kept, fresh) for which, arm in enumerate((branch.then, branch.orelse))]
    results = (*(branch.results[k] for k in kept), *(v for values in made for v in values.values()))
    stores = [
        replace(
            s.store, results=(s.result,), operands=(s.base, *(v.get(k, x) for k, x in enumerate(s.store.operands) if k))
        )
        for s, v in zip(found, made, strict=True)
    ]
    return [replace(branch, results=results, then=arms[0], orelse=arms[1]), *stores]


def _stored_in_arm(branch: If, k: int) -> _Stored | None:
    """How both arms make result `k`, where they store into one array from outside."""
    arms = branch.then, branch.orelse
    made = tuple(_store(arm, arm.results[k]) for arm in arms)
    bases = {arm.results[k] if i is None else i.operands[0] for arm, i in zip(arms, made, strict=True)}
    stores = [i for i in made if i is not None]
    if not stores or len(bases) > 1 or not isinstance(base := bases.pop(), Value):
        return None
    if any(base in _defined(arm) for arm in arms):
        return None
    if len({tuple(x.type for x in i.operands) for i in stores}) > 1:
        return None
    return _Stored(branch.results[k], base, (made[0], made[1]))


def _store(arm: Region, result: Operand) -> Apply | None:
    """The store that makes a result which nothing else in the arm reads."""
    made = next((i for i in arm.body if result in i.results), None)
    if not isinstance(made, Apply) or made.op.name != STORE:
        return None
    inside = any(result in operands(i) or any(result in r.results for r in regions(i)) for i in walk(arm))
    return None if inside or arm.results.count(result) > 1 else made


def _defined(arm: Region) -> set[Value]:
    return {r for i in arm.body for r in i.results}


def _arm(arm: Region, which: int, found: Sequence[_Stored], kept: Sequence[int], fresh: Fresh) -> Region:
    """An arm without its stores, which yields what they would have stored, and where."""
    gone = {id(s.arms[which]) for s in found}
    body = [i for i in arm.body if id(i) not in gone]
    results = [arm.results[k] for k in kept]
    for s in found:
        own, moving = s.arms[which], s.moving()
        if own is not None:
            results += [own.operands[k] for k in moving]
            continue
        indices = [Literal(0, x.type) for x in s.store.operands[2:]]
        here = fresh.value(s.update)
        read = Op("dynamic_slice", (("slice_sizes", s.update.shape),), jax_compat.primitive("dynamic_slice"))
        at: list[Operand] = [i if k in moving else s.store.operands[k] for k, i in enumerate(indices, 2)]
        body.append(Apply((here,), read, (s.base, *at), s.store.span))
        results += [here if k == 1 else indices[k - 2] for k in moving]
    return replace(arm, body=tuple(body), results=tuple(results))


# ---- arena turns
#
# Comprehensions over lists in memory, as far as they need no loop.
#
#     [xs[k] for k in range(n)]                                     the same memory, another length
#     [x if k == place else xs[k] for k in range(len(xs))]          one element set
#     [f(xs[k], y) for k in range(n)]                               all turns at once, where f is a few operations
#
# The front end writes slices and assignments of items in this way.


def is_cut(memory: ArenaMemory, of: Map) -> bool:
    """Does it only take the first elements of lists? They share the memory."""
    if of.filtered or not all(reads_at(i, of.body.args[0]) for i in of.body.body):
        return False
    reads: dict[Operand, Operand] = {i.results[0]: i.operands[0] for i in of.body.body if isinstance(i, Apply)}
    if not all(x in reads and reads[x] in memory.lists for x in of.body.results):
        return False
    for r, x in zip(of.results, of.body.results, strict=True):
        n, *buffers = memory.held(reads[x])
        _check_length(memory, of, n)
        memory.env[r] = ListInMemory((of.count, *buffers))
    return True


def _check_length(memory: ArenaMemory, of: Map, n: Operand) -> None:
    """IndexError where there are more turns than elements, which are read by the turn."""
    reads = (i for i in walk(of.body) if isinstance(i, Apply) and reads_at(i, of.body.args[0]))
    if any(i.results[0] in memory.fallible for i in reads):
        (enough,) = memory.traced(lambda count, n: (truth(count <= n),), (of.count, n))
        memory.check(enough, "IndexError", "list index out of range")


def is_update(memory: ArenaMemory, of: Map) -> bool:
    """Does it set one element of each list? `[x if k == place else xs[k] for k in range(len(xs))]`"""
    found = Update.of(of)
    if found is None or not all(x in memory.lists for x in found.lists):
        return False
    for r, x, value in zip(of.results, found.lists, found.values, strict=True):
        parts = memory.held(x)
        _check_length(memory, of, parts[0])
        _, *buffers = memory.stored(parts, found.place, memory.element(value))
        memory.env[r] = ListInMemory((of.count, *buffers))
    return True


def at_once(memory: ArenaMemory, of: Map) -> bool:
    """All turns of a few operations on numbers, as one operation each on the buffers."""
    if of.filtered or len(of.body.body) > SMALL or any(isinstance(x.type, List) for x in of.body.results):
        return False
    if not all(_is_plain(memory, i) for i in of.body.body):
        return False
    turns = _turns_of(memory, of)
    *buffers, fine = memory.traced(turns.run, (of.count, *turns.outer, *turns.memory))
    if turns.fails:
        memory.check(fine, "IndexError", "list index out of range")
    for r, b in zip(of.results, buffers, strict=True):
        memory.env[r] = ListInMemory((of.count, b))
    return True


@dataclass(frozen=True)
class _ComprehensionTurns:
    """A comprehension as a function of JAX. `outer`: what its turns read from outside; `read`: the lists, and how many
    parts each has in `memory`; `fails`: reads that may be out of range; `types`: those of the elements in memory."""

    made: Map
    outer: tuple[Operand, ...]
    read: dict[Operand, int]
    memory: tuple[Operand, ...]
    fails: frozenset[Value]
    types: tuple[Array, ...]
    capacity: int

    def run(self, count: Any, *xs: Any) -> list[Any]:
        """What all turns yield, and whether all that they read is there."""
        outer, rest = dict(zip(self.outer, xs, strict=False)), list(xs[len(self.outer) :])
        held = {x: [rest.pop(0) for _ in range(parts)] for x, parts in self.read.items()}
        places = jnp.arange(self.capacity)
        *found, fine = jax.vmap(lambda k: self.turn(jax_compat.weakened(k), outer, held))(places)
        return [*found, jnp.all(fine | (places >= count))]

    def turn(self, k: Any, outer: dict[Operand, Any], held: dict[Operand, list[Any]]) -> list[Any]:
        env: dict[Operand, Any] = {**outer, self.made.body.args[0]: k}
        fine: Any = jnp.asarray(True)

        def value(x: Operand) -> Any:
            return leaf.literal_value(x) if isinstance(x, Literal) and _is_scalar(x) else env[x]

        for i in self.made.body.body:
            assert isinstance(i, Apply)
            kinds = [r.type for r in i.results if isinstance(r.type, Array)]
            if is_item(i):
                (n, buffer), index = held[i.operands[0]], value(i.operands[1])
                if i.results[0] in self.fails:
                    fine &= (-n <= index) & (index < n)
                x = taken(buffer, forward(index, n))
                env[i.results[0]] = jax_compat.weakened(x) if kinds[0].weak else x
            else:
                env.update(zip(i.results, leaf.evaluate(i.op, kinds, *map(value, i.operands)), strict=True))
        found = map(value, self.made.body.results)
        return [*(jax_compat.conform(y, t) for y, t in zip(found, self.types, strict=True)), fine]


def _turns_of(memory: ArenaMemory, of: Map) -> _ComprehensionTurns:
    body = [i for i in of.body.body if isinstance(i, Apply)]
    inside = {of.body.args[0], *(r for i in body for r in i.results)}
    read = {i.operands[0]: memory.held(i.operands[0]) for i in body if is_item(i)}
    asked = (*(x for i in body for x in i.operands), *of.body.results)
    outer = dict.fromkeys(x for x in asked if x not in inside and x not in read and not _is_scalar(x))
    types = (memory.parts_of(r)[1] for r in of.results)
    return _ComprehensionTurns(
        of,
        tuple(outer),
        {x: len(parts) for x, parts in read.items()},
        tuple(p for parts in read.values() for p in parts),
        memory.fallible.intersection(r for i in body for r in i.results),
        tuple(replace(t, shape=t.shape[1:]) for t in types),
        memory.capacity,
    )


def _is_plain(memory: ArenaMemory, i: Instruction) -> bool:
    """Is it arithmetic, or a read of a number in memory by an index? Columns of the data are read in turns that there
    are only: nothing says where a column ends."""
    if not isinstance(i, Apply) or (i.op.name == "take_row" and not i.op.is_jax):
        return False
    if is_item(i):
        known = i.operands[0] in memory.lists or i.operands[0] in memory.copies
        return known and i.operands[1].type == INT and isinstance(i.results[0].type, Array)
    return i.op.is_jax or (i.op.name in leaf.NUMERIC and not OWN[i.op.name].effect)


def _is_scalar(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0
