"""What leaves the program, when everything has run: results of the entry, and the objects that it has made.

Every output has one value for each row of its owner: the examples, or the objects made. A number is a pointer still, an
object its row among all objects made, anything else what the host has computed. Lists are laid out: their innermost
elements behind one another, and the lengths at each depth.

    pointers of `make`   ->   objects sorted by example: object 0 1 | 2 3 4 | ...
    Node.left            ->   1 -1 | 3 4 -1 | ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns, Ints, offsets_of
from autobatch.data.returned import element_type, flat_lists
from autobatch.data.scopes import ROW, SHIFT
from autobatch.data.spec import MadeObjects, TableSpec
from autobatch.ir.types import BuiltObject, Type
from autobatch.planning.made_lists import Resolver

AsColumn = Callable[[list[Any], Type], NDArray[Any]]


@dataclass
class Activations:
    """What inspection found, row by row in order of discovery.

    `tables[name]` holds numbers, or resolved pointers; `elements[name]` of a fold, for each element: the row that reads
    it and the pointer. `example[space]` is the example of each row. `outputs[k]`: the pointer, or the structural value,
    of output k of each row; `lengths[k]`: of an output that is a list, the lengths at each depth. `made`: the objects
    that each example has made."""

    example: dict[int, Ints]
    tables: dict[str, NDArray[Any]]
    elements: dict[str, tuple[Ints, Ints]]
    outputs: dict[int, NDArray[Any]]
    lengths: dict[int, tuple[Ints, ...]]
    made: Ints | None


class Outgoing:
    """The outputs of one inspection. `values[k]`, or `elements[name]` of lists of numbers: for each element its owner
    and pointer; `lengths[k]` of any lists. `starts`: the objects of each example."""

    def __init__(self, resolve: Resolver, as_column: AsColumn) -> None:
        self.resolve, self.as_column = resolve, as_column
        self.values: dict[int, NDArray[Any]] = {}
        self.elements: dict[str, tuple[Ints, Ints]] = {}
        self.lengths: dict[int, tuple[Ints, ...]] = {}
        self.starts: Ints | None = None
        self.places: dict[int, Ints] = {}

    # ---- objects

    def number(self, made: MadeObjects, example: Mapping[int, Ints], columns: Columns) -> None:
        """Give every object its row: example by example, adopted ones first."""
        owned: dict[int, Ints] = {}
        for store, definition in made.adopted:
            owned[definition] = np.repeat(np.arange(columns.count), np.diff(columns.starts[store]))
        for cls in made.classes:
            owned.update((p.definition, example.get(p.space, np.zeros(0, np.int64))) for p in cls.places)
        whole = np.concatenate(list(owned.values()))
        row = np.empty(len(whole), np.int64)
        row[np.argsort(whole, kind="stable")] = np.arange(len(whole))
        bounds = np.cumsum([len(x) for x in owned.values()])[:-1]
        self.places = dict(zip(owned, np.split(row, bounds), strict=True))
        self.starts = offsets_of(np.bincount(whole, minlength=columns.count))

    def objects(self, pointers: Ints) -> Ints:
        """The rows of objects; -1 is None."""
        rows = np.full(len(pointers), -1)
        definition = pointers >> SHIFT
        for d, place in self.places.items():
            mine = np.flatnonzero(definition == d)
            rows[mine] = place[pointers[mine] & ROW]
        return rows

    def fields(self, made: MadeObjects, outputs: Sequence[TableSpec], tables: Mapping[str, NDArray[Any]]) -> None:
        """What all objects hold, and of which class they are."""
        assert self.starts is not None
        total = int(self.starts[-1])
        kinds = np.full(total, -1)
        for number, cls in enumerate(made.classes):
            rows = np.concatenate([self.places[p.definition] for p in cls.places])
            kinds[rows] = number
            for k in range(len(cls.places[0].fields)):
                parts = [tables[p.fields[k].name] for p in cls.places if p.fields[k].name in tables]
                held = np.concatenate([p for p in parts if len(p)]) if len(rows) else np.zeros(0, np.int64)
                self.put(cls.first + k, outputs[cls.first + k], rows, held, total)
        self.values[made.kinds] = kinds
        for k, (_, definition) in enumerate(made.adopted, made.kinds + 1):
            self.values[k] = np.full(total, -1)
            self.values[k][self.places[definition]] = np.arange(len(self.places[definition]))

    # ---- outputs

    def put(self, k: int, table: TableSpec, rows: Ints, held: NDArray[Any], total: int) -> None:
        """Output k: what some `rows` of the `total` ones of its owner hold; the others hold nothing."""
        order = np.argsort(rows, kind="stable")
        rows, held = rows[order], held[order]
        made = isinstance(element_type(table.value.type), BuiltObject)
        if table.elements is None:
            if table.is_pointed:
                held = self.resolve(held)
            held = self.objects(held) if made else held
            self.values[k] = np.full((total, *held.shape[1:]), -1, held.dtype)
            self.values[k][rows] = held
            return
        depth = 1 + len(table.lists)
        if not table.is_pointed:
            items, inner = flat_lists(held.tolist(), depth)
            self.values[k] = self.as_column(items, element_type(table.value.type)).astype(np.int64, copy=False)
            own, *deeper = inner
            self.lengths[k] = (_spread(rows, own, total), *deeper)
            return
        owner, found, inner = self.nested(held, depth)
        self.lengths[k] = (_spread(rows, inner[0], total), *inner[1:])
        if made:
            self.values[k] = self.objects(found)
        else:
            self.elements[table.name] = rows[owner], found

    def nested(self, lists: Ints, depth: int) -> tuple[Ints, Ints, tuple[Ints, ...]]:
        """The innermost elements of lists: for each the outermost list that it is in, and its pointer; and the lengths
        of the lists of each depth."""
        owner = np.arange(len(lists))
        lengths: list[Ints] = []
        for _ in range(depth):
            which, found = self.resolve.expand(lists)
            lengths.append(np.bincount(which, minlength=len(lists)))
            owner, lists = owner[which], found
        return owner, lists, tuple(lengths)


def _spread(rows: Ints, values: Ints, total: int) -> Ints:
    whole = np.zeros(total, np.int64)
    whole[rows] = values
    return whole
