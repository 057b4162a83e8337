"""Which expressions make the lists and dicts that other containers hold.

    buckets = [[] for _ in range(3)]      the inner `[]` makes a list that a list holds
    buckets[k % 3].append(y)              which is changed there: all lists that are held have memory from here on

Lists are values as long as they are changed through variables alone. What another container holds is changed under two
names, so such lists have memory (`list_heap.py`), from where they are made: by the expression, which is their *site*.
So it is with dicts (`dict_heap.py`). Where dicts have memory, lists that are held have it too; where lists have it,
dicts stay values until one of them is changed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from autobatch.errors import UnsupportedError
from autobatch.frontend.memory.heap import DICTS, Heap, ListsNeedMemory, record_class
from autobatch.frontend.memory.identity import Identities, containers
from autobatch.frontend.types import values as v
from autobatch.ir.types import List


class Sites:
    """What one round of the lowering has seen: by identity, the lists and the expressions that made them; those that
    containers hold, and those that functions were lent."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._made: dict[int, tuple[v.Abstract, object]] = {}
        self._held: list[v.Abstract] = []
        self._lent: list[v.Abstract] = []

    def made(self, value: v.Abstract, site: object) -> None:
        """Note that an expression has made a list; one that is known stays its own."""
        self._made.setdefault(id(value), (value, site))

    def makers(self, value: v.Record) -> set[object]:
        """The expressions that may have made an object: of an argument, of which nothing is known, all that make such
        ones."""
        roots = self._identities.of(value).roots
        found = {site for r, (_, site) in self._made.items() if r in roots}
        return found or {site for x, site in self._made.values() if isinstance(x, v.Record) and x.cls is value.cls}

    def hold(self, value: v.Abstract) -> list[v.Abstract]:
        """Note that a container holds a value; the lists in it."""
        found = list(_lists(value))
        self._held += found
        return found

    def lend(self, value: v.Abstract) -> None:
        """Note that a function is given a value."""
        self._lent += _lists(value)

    def of(self, values: Iterable[v.Abstract], known: dict[object, Heap], dicts: bool) -> dict[object, type]:
        """The expressions that may have made some lists, in order, with their classes; those without memory. `dicts`:
        those of dicts too."""
        roots = {r for x in values for r in (id(x), *self._identities.of(x).roots)}
        found = {site: class_of(value) for r, (value, site) in self._made.items() if r in roots}
        return {site: cls for site, cls in found.items() if site not in known and (dicts or cls in (list, tuple))}

    def may_be_given(self, value: v.Abstract) -> bool:
        """May this list be one of the examples? One that a display or the like has made is none; what is behind a
        branch, in a loop, or comes of a call or a list, may be either."""
        _, site = self._made.get(id(value), (value, None))
        return not isinstance(site, ast.List | ast.ListComp | ast.BinOp)

    def needed(self, known: dict[object, Heap], lent: bool = False, dicts: bool = False) -> dict[object, type]:
        """The expressions whose lists have no memory and are held. `lent`: or that functions were given; `dicts`: those
        of dicts too."""
        return self.of([*self._held, *(self._lent if lent else ())], known, dicts or dicts_have_memory(known))

    def refused(
        self, known: dict[object, Heap], error: UnsupportedError, lent: bool = False, dicts: bool = False
    ) -> UnsupportedError:
        """What to raise where a list or dict that is held is changed."""
        sites = self.needed(known, lent, dicts)
        return ListsNeedMemory(sites, error) if sites else error


def dicts_have_memory(known: dict[object, Heap]) -> bool:
    """Have some dicts memory?"""
    return any(heap.is_dict for heap in known.values())


def class_of(value: v.Abstract) -> type:
    """The class of a list or dict that may have memory."""
    if is_set_value(value):
        return set
    if not is_dict_value(value):
        return tuple if isinstance(value, v.Listing) and value.is_tuple else list
    assert isinstance(value, v.Record)
    if value.kind == "dict" and value.keys and all(type(k) is str for k in value.keys):
        return record_class(value.keys)
    return value.cls or dict


def is_list(value: v.Abstract) -> bool:
    """Is it a list that the function builds, which is a value?"""
    return (isinstance(value, v.Listing) and not value.array) or (isinstance(value, v.Record) and value.kind == "list")


def is_given(value: v.Abstract) -> TypeGuard[v.Leaf]:
    """Is it a list of the examples?"""
    return isinstance(value, v.Leaf) and isinstance(value.type, List) and value.type.store is not None


def is_dict_value(value: v.Abstract) -> bool:
    """Is it a dict or set that the function builds, which is a value, of a class that may have memory?"""
    if is_set_value(value):
        return True
    if not isinstance(value, v.Record) or (value.cls or dict) not in DICTS:
        return False
    return value.kind == "dict" or (value.kind == "table" and "values" in value.keys)


def is_set_value(value: v.Abstract) -> bool:
    """Is it a set that the function builds, which is a value?"""
    if isinstance(value, v.Static):
        return type(value.value) is set
    return isinstance(value, v.Record) and value.kind == "table" and value.cls is set


def _sets_of_constants(value: v.Abstract) -> Iterator[v.Abstract]:
    if isinstance(value, v.Static) and is_set_value(value):
        yield value
    elif isinstance(value, v.Record):
        for item in value.items:
            yield from _sets_of_constants(item)
    elif isinstance(value, v.Optional):
        yield from _sets_of_constants(value.value)


def _lists(value: v.Abstract) -> Iterator[v.Abstract]:
    if isinstance(value, v.Lazy):
        yield value
    yield from _sets_of_constants(value)
    yield from (x for x in containers(value) if is_list(x) or is_dict_value(x))
