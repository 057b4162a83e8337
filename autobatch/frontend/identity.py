"""Which containers may be one object: those that the function builds are values here, and a change makes a new one.

    row = m[0]; row.append(1)         m would have to change too
    c = a if test else b; c.n += 1    a or b would have to change too

Every container has *roots*: the objects that it may be. A changed one keeps those of what it was, one behind a branch
has those of both arms. An item of a list that a comprehension made has, beside, the roots of its *holders*. What may be
held by something else that is still there is not changed (`rebinding.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autobatch.frontend import values as v

MEMORY = 0
"""The holder that memory is, which is there to the end."""


@dataclass(frozen=True)
class Kin:
    """What a container may be, and lists that may hold it. `value` keeps its identity from being given again."""

    value: v.Abstract
    roots: frozenset[int]
    holders: frozenset[int]


class Identities:
    """The kin of containers, by identity."""

    def __init__(self) -> None:
        self._kin: dict[int, Kin] = {}
        self._views: dict[int, tuple[v.Abstract, v.Abstract]] = {}

    def of(self, value: v.Abstract) -> Kin:
        found = self._kin.get(id(value))
        if found is None:
            found = self._kin[id(value)] = Kin(value, frozenset({id(value)}), frozenset())
        return found

    def view(self, value: v.Abstract, whole: v.Abstract) -> v.Abstract:
        """Note that a value shows what a dict holds, also what it will hold; the value."""
        self._views[id(value)] = (value, whole)
        return value

    def is_view(self, value: v.Abstract, whole: v.Abstract) -> bool:
        """May a value be a view of this dict, or hold one?"""
        if isinstance(value, v.Record) and value.kind != "table":
            return any(self.is_view(x, whole) for x in value.items) or self._shows(value, whole)
        return self._shows(value, whole)

    def _shows(self, value: v.Abstract, whole: v.Abstract) -> bool:
        found = self._views.get(id(value))
        return found is not None and not self.of(found[1]).roots.isdisjoint(self.of(whole).roots)

    def item(self, holder: v.Abstract, value: v.Abstract) -> None:
        """Note that a value is an item of a list, or a part of one."""
        held = self.of(holder).roots
        for part in containers(value):
            kin = self.of(part)
            self._kin[id(part)] = Kin(part, kin.roots, kin.holders | held)

    def taken_out(self, value: v.Abstract) -> None:
        """Note that no list holds a value any more."""
        for part in containers(value):
            self._kin[id(part)] = Kin(part, self.of(part).roots, frozenset())

    def stored(self, value: v.Abstract) -> None:
        """Note that memory of objects or lists holds a value, or has held it (`heap.py`)."""
        for part in containers(value):
            kin = self.of(part)
            self._kin[id(part)] = Kin(part, kin.roots, kin.holders | {MEMORY})

    def same(self, new: v.Abstract, *olds: v.Abstract) -> None:
        """Note that a value is one of others, at another point of the program, and so are its parts."""
        olds = tuple(x.value if isinstance(x, v.Optional) else x for x in olds)
        match new:
            case v.Optional(value=inner):
                self.same(inner, *olds)
            case v.Listing():
                self._join(new, [x for x in olds if _is_container(x)])
            case v.Record(keys=keys, items=items):
                if _is_container(new):
                    self._join(new, [x for x in olds if _is_container(x)])
                records = [x for x in olds if isinstance(x, v.Record)]
                for key, item in zip(keys, items, strict=True):
                    self.same(item, *(part for x in records if (part := x.get(key)) is not None))

    def successor(self, new: v.Abstract, old: v.Abstract) -> None:
        """Note that a container has been changed."""
        self._join(new, [old])

    def _join(self, new: v.Abstract, olds: Sequence[v.Abstract]) -> None:
        kins = [self.of(x) for x in (new, *olds)]
        roots = frozenset().union(*(k.roots for k in kins))
        self._kin[id(new)] = Kin(new, roots, frozenset().union(*(k.holders for k in kins)))

    def roots_in(self, values: Iterable[v.Abstract]) -> frozenset[int]:
        """What the containers in some values may be."""
        return frozenset().union(*(self.of(x).roots for value in values for x in containers(value)))

    def is_of(self, value: v.Abstract, roots: frozenset[int]) -> bool:
        """May it be, or hold, or be held by, one of these?"""
        return any(not roots.isdisjoint(k.roots | k.holders) for k in map(self.of, containers(value)))

    def may_share(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May the two hold one object?"""
        pairs = ((self.of(x), self.of(y)) for x in _seen(a) for y in _seen(b) if _kind(x) == _kind(y))
        return any(x.roots & y.roots or x.holders & y.holders for x, y in pairs)

    def may_be_in(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May a list in the second hold something that the first holds?"""
        roots = self._roots(b)
        return any(not roots.isdisjoint(self.of(x).holders) for x in _seen(a))

    def relate(self, a: v.Abstract, b: v.Abstract) -> None:
        """Note that two values may hold one object."""
        for x in _seen(a):
            for y in _seen(b):
                if x is not y and _kind(x) == _kind(y):
                    kins = self.of(x), self.of(y)
                    for part in (x, y):
                        roots, holders = kins[0].roots | kins[1].roots, kins[0].holders | kins[1].holders
                        self._kin[id(part)] = Kin(part, roots, holders)

    def hold(self, a: v.Abstract, b: v.Abstract) -> None:
        """Note that lists in the second may hold what the first holds."""
        for part in _seen(a):
            kin = self.of(part)
            self._kin[id(part)] = Kin(part, kin.roots, kin.holders | self._roots(b))

    def _roots(self, value: v.Abstract) -> frozenset[int]:
        return frozenset().union(*(self.of(x).roots for x in _seen(value)))

    def may_be_held(self, value: v.Abstract, others: Iterable[v.Abstract]) -> bool:
        """May a container be one of these values or a part of them, or may a list among them hold it?"""
        kin = self.of(value)
        return MEMORY in kin.holders or not self.roots_in(others).isdisjoint(kin.roots | kin.holders)

    def from_call(self, result: v.Abstract, roots: frozenset[int]) -> None:
        """Note that a function returns its arguments, or what it found in them."""
        for part in containers(result):
            kin = self.of(part)
            self._kin[id(part)] = Kin(part, kin.roots | roots, kin.holders | roots)


def _seen(value: v.Abstract) -> Iterator[v.Abstract]:
    """As `containers`, without the columns of tables, which nobody else sees."""
    columns = _columns(value)
    return (x for x in containers(value) if id(x) not in columns)


def _columns(value: v.Abstract) -> set[int]:
    match value:
        case v.Record(kind=kind, items=items):
            own = {id(x) for x in items} if kind == "table" else set()
            return own.union(*map(_columns, items))
        case v.Optional(value=inner):
            return _columns(inner)
        case _:
            return set()


def _kind(value: v.Abstract) -> object:
    """What kind of container it is: those of two kinds are never one."""
    return (value.kind, value.cls) if isinstance(value, v.Record) and value.kind != "list" else "list"


def _is_container(value: v.Abstract) -> bool:
    return isinstance(value, v.Listing) or (isinstance(value, v.Record) and value.kind in _MUTABLE)


_MUTABLE = ("list", "dict", "table", "object")


def containers(value: v.Abstract) -> Iterator[v.Abstract]:
    """The lists, dicts and objects that a value is or holds; items of lists that a comprehension made left out."""
    match value:
        case v.Record(kind=kind, items=items):
            if kind in _MUTABLE:
                yield value
            for item in items:
                yield from containers(item)
        case v.Listing():
            yield value
        case v.Optional(value=inner):
            yield from containers(inner)
