"""Which expressions make the lists that other containers hold.

    buckets = [[] for _ in range(3)]      the inner `[]` makes a list that a list holds
    buckets[k % 3].append(y)              which is changed there: all lists that are held have memory from here on

Lists are values as long as they are changed through variables alone. What another container holds is changed under two
names, so such lists have memory (`list_heap.py`), from where they are made: by the expression, which is their *site*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autobatch.errors import UnsupportedError
from autobatch.frontend import values as v
from autobatch.frontend.heap import Heap, ListsNeedMemory
from autobatch.frontend.identity import Identities, containers


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

    def hold(self, value: v.Abstract) -> list[v.Abstract]:
        """Note that a container holds a value; the lists in it."""
        found = list(_lists(value))
        self._held += found
        return found

    def lend(self, value: v.Abstract) -> None:
        """Note that a function is given a value."""
        self._lent += _lists(value)

    def of(self, values: Iterable[v.Abstract], known: dict[object, Heap]) -> list[object]:
        """The expressions that may have made some lists, in order; those without memory."""
        roots = {r for x in values for r in (id(x), *self._identities.of(x).roots)}
        found = dict.fromkeys(site for r, (_, site) in self._made.items() if r in roots)
        return [site for site in found if site not in known]

    def needed(self, known: dict[object, Heap], lent: bool = False) -> list[object]:
        """The expressions whose lists have no memory and are held. `lent`: or that functions were given."""
        return self.of([*self._held, *(self._lent if lent else ())], known)

    def refused(self, known: dict[object, Heap], error: UnsupportedError, lent: bool = False) -> UnsupportedError:
        """What to raise where a list that is held is changed."""
        sites = self.needed(known, lent)
        return ListsNeedMemory(sites, error) if sites else error


def is_list(value: v.Abstract) -> bool:
    """Is it a list that the function builds, which is a value?"""
    return (isinstance(value, v.Listing) and not value.array) or (isinstance(value, v.Record) and value.kind == "list")


def _lists(value: v.Abstract) -> Iterator[v.Abstract]:
    if isinstance(value, v.Lazy):
        yield value
    yield from (x for x in containers(value) if is_list(x))
