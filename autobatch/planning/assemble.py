"""What inspection holds while it runs, and how a plan is made of it.

Held are rows that grow, scopes of values, and lists as runs in a pool of pointers. A list is `start << 24 | length` of
a run in the pool, as a negative number: a *handle*. Breadth first, a list that a call returns is read before the callee
has run. Then an item of it, and a list joined from such lists, are *cells*: pointers of two definitions of their own,
followed when everything has run. So nothing waits, and lists that are only joined to longer ones are never laid out.

    leaves(t.left) + leaves(t.right)      flatten(pack_list(a, b))  ->  one cell, which names the list of the two
    xs[0]                                 item(xs, 0)               ->  one cell, which names xs and 0

In a plan the rows of each example lie side by side, and pointers are relative to their example.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Columns, Ints, offsets_of
from autobatch.data.spec import (
    MADE_STORE,
    Edge,
    LoopRequest,
    MadeObjects,
    PlanSpec,
    TableRequest,
    TableSpec,
    element_type,
    flat_lists,
    owners,
    relative,
    store_of,
)
from autobatch.errors import PlanError
from autobatch.ir.core import INT, Array, BuiltObject, Function, Literal, Operand, Type, Value
from autobatch.planning.numbering import NumberingTables, add_paths, longest_paths, number_rows, stable_order
from autobatch.planning.plan import DataPlan

# ---- rows at hand


SHIFT = 40
ROW = (1 << SHIFT) - 1
LENGTH = 24
TURN = Value(-1, INT, "turn")
"""In a scope of a `while` loop: how many turns have been before."""
DEPTH = Value(-2, INT, "depth")
"""In every scope of an activation: how many calls wait for one another there, turns of loops not counted."""


class GrowingArray:
    """A growing array, appended to in bulk."""

    def __init__(self) -> None:
        self.chunks: list[NDArray[Any]] = []
        self.size = 0

    def append(self, chunk: NDArray[Any]) -> int:
        start = self.size
        self.chunks.append(chunk)
        self.size += len(chunk)
        return start

    def array(self, dtype: Any = np.int64) -> NDArray[Any]:
        if len(self.chunks) != 1:
            self.chunks = [np.concatenate(self.chunks)] if self.chunks else [np.zeros(0, dtype)]
        return self.chunks[0]


@dataclass
class FunctionActivations:
    """The activations of one function so far. `seen` interns the arguments of calls. Of the pending ones, `depths`: the
    calls that wait for each; `turns`: of a `while` loop, how many have been before. `handed`: pointers that turns have
    handed on, for arguments which are slots of their own (`handed_slots`); see `activations.py`."""

    function: Function
    host_args: tuple[int, ...]
    pointer_args: tuple[int, ...]
    slots: dict[int, int]
    seen: dict[bytes, int] = field(default_factory=dict)
    count: int = 0
    pending: list[tuple[Ints, list[NDArray[Any]], list[Ints]]] = field(default_factory=list)
    depths: list[Ints] = field(default_factory=list)
    turns: list[Ints] = field(default_factory=list)
    results: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))
    host_results: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))
    handed_slots: dict[int, int] = field(default_factory=dict)
    handed: dict[int, GrowingArray] = field(default_factory=lambda: defaultdict(GrowingArray))

    def known(self, key: NDArray[Any]) -> tuple[Ints, list[int]]:
        """The activations with these keys, one in a row, and which rows are new: the next ones, in order."""
        seen, count = self.seen, self.count
        flat, width = key.tobytes(), key.shape[1] * key.itemsize
        ids, new = np.empty(len(key), np.int64), list[int]()
        for row in range(len(key)):
            cell = flat[row * width : (row + 1) * width]
            found = seen.get(cell)
            if found is None:
                found = seen[cell] = count
                count += 1
                new.append(row)
            ids[row] = found
        return ids, new


class RowsOfRegion:
    """The rows of one region at hand: values by need, those of the enclosing region through `select`. `constants`: the
    arrays of the module."""

    def __init__(
        self,
        rows: int,
        example: Ints,
        parent: RowsOfRegion | None = None,
        select: Ints | None = None,
        constants: Sequence[Any] = (),
    ) -> None:
        self.rows, self.example, self.parent, self.select = rows, example, parent, select
        self.constants: Sequence[Any] = constants if parent is None else parent.constants
        self.host: dict[Value, NDArray[Any]] = {}
        self.pointer: dict[Value, Ints] = {}

    def host_value(self, x: Operand) -> NDArray[Any]:
        if isinstance(x, Literal):
            if x.constant >= 0:
                array = np.asarray(self.constants[x.constant])
                return np.broadcast_to(array, (self.rows, *array.shape))
            filled = x.type.shape if isinstance(x.type, Array) else ()
            return np.full((self.rows, *filled), -1 if x.value is None else x.value)
        if x not in self.host:
            assert self.parent is not None, f"{x} has not been computed on the host"
            self.host[x] = self.parent.host_value(x)[self.select]
        return self.host[x]

    def pointer_value(self, x: Value) -> Ints | None:
        if x not in self.pointer:
            outer = self.parent.pointer_value(x) if self.parent is not None else None
            if outer is None:
                return None
            self.pointer[x] = outer[self.select]
        return self.pointer[x]


def list_handle(start: Ints, length: Ints | int) -> Ints:
    """A list of pointers, as one integer; negative, so that no pointer looks like it."""
    return ~((start << LENGTH) | length)


def list_run(handles: Ints) -> tuple[Ints, Ints]:
    """Where the elements of lists begin in the pool, and how many there are."""
    return ~handles >> LENGTH, ~handles & ((1 << LENGTH) - 1)


def join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def merge(rows: int, pieces: list[tuple[Ints, NDArray[Any]]]) -> NDArray[Any]:
    if not pieces:
        return np.zeros(rows, np.int64)
    if len(pieces[0][0]) == rows:
        return pieces[0][1]
    first = pieces[0][1]
    dtype = np.result_type(*(p[1] for p in pieces))
    out = np.zeros((rows, *first.shape[1:]), dtype)
    for chosen, values in pieces:
        out[chosen] = values
    return out


# ---- lists


class MadeLists:
    """The lists of one inspection. `first` is the definition of items that are cells, `first + 1` of joined lists.
    `outside`: examples whose index is out of range."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.pool = GrowingArray()
        self.item_list, self.item_index, self.item_example = GrowingArray(), GrowingArray(), GrowingArray()
        self.outside = GrowingArray()
        self.joined, self.joined_example = GrowingArray(), GrowingArray()

    def pack(self, columns: Sequence[Ints], rows: int) -> Ints:
        """Lists of a fixed number of elements, one column for each position."""
        table = np.array(columns, np.int64).reshape(len(columns), rows)
        start = self.pool.append(table.T.reshape(-1)) + np.arange(rows) * len(columns)
        return list_handle(start, len(columns))

    def runs(self, elements: Ints, first: Ints, count: Ints) -> Ints:
        """Lists whose elements lie behind one another: list k is `elements[first[k] : first[k] + count[k]]`."""
        return list_handle(self.pool.append(elements) + first, count)

    def flatten(self, lists: Ints, example: Ints) -> Ints:
        """For each list of lists: the elements of all of them."""
        self.joined_example.append(example)
        return ((self.first + 1) << SHIFT) | (self.joined.append(lists) + np.arange(len(lists)))

    def item(self, lists: Ints, index: Ints, example: Ints) -> Ints:
        """An item of each list, read at once where the list is a handle."""
        found = np.full(len(lists), -1)
        known = lists < 0
        found[known], outside = element(self.pool.array(), lists[known], index[known])
        self.outside.append(example[known][outside])
        open_ = np.flatnonzero(~known)
        cells = self.item_list.append(lists[open_]) + np.arange(len(open_))
        self.item_index.append(index[open_])
        self.item_example.append(example[open_])
        found[open_] = (self.first << SHIFT) | cells
        return found


def element(pool: Ints, handles: Ints, index: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """What stands in the pool at an index of each list, negative from the end; and where that is out of range."""
    start, length = list_run(handles)
    outside = (index < -length) | (index >= length)
    found = np.full(len(handles), -1)
    inside = np.flatnonzero(~outside)
    found[inside] = pool[(start + np.where(index < 0, index + length, index))[inside]]
    return found, outside


class Resolver:
    """Follows pointers, when everything has run, to the numbers and handles that they lead to.

    `slots[d]` are the pointers that definition `base + d` holds, one an activation; behind them come the items and the
    joined lists that are cells. `examples` has the example of each activation. `cyclic`: examples with a result that is
    itself, of a loop or a recursion that never ends, or with a list that contains itself, made by a recursion that
    follows a cycle in the data; theirs are empty. `outside`: examples whose index is out of range."""

    def __init__(self, base: int, slots: Sequence[Ints], examples: Sequence[Ints], lists: MadeLists) -> None:
        self.base, self.lists = base, lists
        self.examples = np.concatenate([np.zeros(0, np.int64), *examples])
        self.pool = lists.pool.array()
        self.item_list, self.item_index = lists.item_list.array(), lists.item_index.array()
        self.outside = [lists.outside.array()]
        self.joined = lists.joined.array()
        cells = [(lists.first + k) << SHIFT | np.arange(len(p)) for k, p in enumerate((self.item_list, self.joined))]
        parts = [*slots, *cells]
        self.start = np.cumsum([0, *(len(p) for p in parts)])
        self.cells = np.concatenate(parts)
        endless = self.compress()
        stuck = self.cut_cycles()
        self.settle_items()
        self.cyclic = np.concatenate([endless, stuck, self.compress()])

    def __call__(self, pointers: Ints) -> Ints:
        """Numbers' pointers, or handles."""
        open_ = np.flatnonzero(pointers >= self.base << SHIFT)
        if len(open_):
            pointers = pointers.copy()
            pointers[open_] = self.cells[self.cell(pointers[open_])]
        return pointers

    def handles(self, pointers: Ints) -> Ints:
        """The handles of lists; joined ones are laid out."""
        self.lay_out(self.follow(pointers))
        return self.follow(pointers)

    def expand(self, pointers: Ints) -> tuple[Ints, Ints]:
        """The elements of lists: for each one, which list it is in, and its pointer, followed."""
        which, elements = self.elements(self.handles(pointers))
        return which, self(elements)

    def elements(self, handles: Ints) -> tuple[Ints, Ints]:
        start, lengths = list_run(handles)
        which = np.repeat(np.arange(len(handles)), lengths)
        within = np.arange(len(which)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return which, self.pool[start[which] + within]

    def cell(self, pointers: Ints) -> Ints:
        where: Ints = self.start[(pointers >> SHIFT) - self.base] + (pointers & ROW)
        return where

    def compress(self) -> Ints:
        """Let every cell hold the end of its chain (pointer doubling); a chain that runs in a circle ends nowhere. The
        examples with such circles."""
        for _ in range(SHIFT):
            before, self.cells = self.cells, self(self.cells)
            if np.array_equal(before, self.cells):
                break
        circling = np.flatnonzero((self.cells >> SHIFT >= self.base) & (self.cells >> SHIFT < self.lists.first))
        self.cells[circling] = -1
        examples = self.examples[circling[circling < len(self.examples)]]
        return np.unique(examples[examples >= 0])

    def cut_cycles(self) -> Ints:
        """Make joined lists empty that contain themselves, and those around them."""
        outer = self(self.joined)
        known = np.flatnonzero(outer < 0)
        which, parts = self.elements(outer[known])
        parts, owner = np.concatenate([self(parts), outer]), np.concatenate([known[which], np.arange(len(outer))])
        edge = self.is_joined(parts)
        source, target = parts[edge] & ROW, owner[edge]
        _, stuck = longest_paths(len(outer), source, target, np.ones(len(source), np.int64))
        self.cells[self.start[self.lists.first + 1 - self.base] + stuck] = -1
        return np.unique(self.lists.joined_example.array()[stuck])

    def follow(self, pointers: Ints) -> Ints:
        while True:
            before, pointers = pointers, self(pointers)
            if np.array_equal(before, pointers):
                return pointers

    def settle_items(self) -> None:
        """Items in rounds: one may lie in a list that is an item itself."""
        waiting = np.arange(len(self.item_list))
        first = self.start[self.lists.first - self.base]
        while len(waiting):
            lists = self.handles(self.item_list[waiting])
            ready = lists < 0
            if not ready.any():
                return
            done = waiting[ready]
            self.cells[first + done], outside = element(self.pool, lists[ready], self.item_index[done])
            self.outside.append(self.lists.item_example.array()[done][outside])
            waiting = waiting[~ready]

    # ---- laying out joined lists

    def is_joined(self, pointers: Ints) -> NDArray[np.bool_]:
        joined: NDArray[np.bool_] = pointers >> SHIFT == self.lists.first + 1
        return joined

    def lay_out(self, pointers: Ints) -> None:
        """Make handles of the joined lists among `pointers`, except those of which some part is not known yet."""
        roots = np.unique(pointers[self.is_joined(pointers)])
        if not len(roots):
            return
        levels = self.forest(roots)
        _measure(levels)
        ready = ~levels[0].blocked
        sizes = np.where(ready, levels[0].size, 0)
        if sizes.max() >> LENGTH:
            raise PlanError(
                f"a list of {sizes.max():,} elements is too long, at most {(1 << LENGTH) - 1:,} are planned"
            )
        self.cells[self.cell(roots[ready])] = list_handle(len(self.pool) + (np.cumsum(sizes) - sizes), sizes)[ready]
        self.pool = np.concatenate([self.pool, self.gathered(levels, sizes)])

    def forest(self, roots: Ints) -> list[_Level]:
        """Joined lists as trees, level by level, down to runs of the pool."""
        levels = [_Level(roots, np.zeros(len(roots), np.int64))]
        while True:
            level = levels[-1]
            inner = np.flatnonzero(self.is_joined(level.nodes))
            outer = self.handles(self.joined[level.nodes[inner] & ROW])
            level.blocked |= (level.nodes >= 0) & ~self.is_joined(level.nodes)
            level.blocked[inner[outer >= 0]] = True
            inner, outer = inner[outer < 0], outer[outer < 0]
            which, children = self.elements(outer)
            if not len(children):
                return levels
            levels.append(_Level(self.follow(children), inner[which]))

    def gathered(self, levels: list[_Level], sizes: Ints) -> Ints:
        """The elements of the roots that are ready, behind one another."""
        out = np.full(int(sizes.sum()), -1)
        begin, live = np.cumsum(sizes) - sizes, ~levels[0].blocked
        for depth, level in enumerate(levels):
            if depth:
                begin, live = begin[level.parent] + level.before(), live[level.parent]
            runs = np.flatnonzero(live & (level.nodes < 0))
            which, elements = self.elements(level.nodes[runs])
            within = np.arange(len(which)) - np.searchsorted(which, which)
            out[begin[runs][which] + within] = elements
        return out


@dataclass
class _Level:
    """Nodes of the trees of joined lists at one depth: pointers, and the node above each one."""

    nodes: Ints
    parent: Ints

    def __post_init__(self) -> None:
        self.size = np.where(self.nodes < 0, list_run(self.nodes)[1], 0)
        self.blocked = np.zeros(len(self.nodes), bool)

    def before(self) -> Ints:
        """How many elements stand before each node in the list above it; siblings follow each other."""
        ends = np.cumsum(self.size)
        first = np.searchsorted(self.parent, self.parent)
        before: Ints = ends - self.size
        return before - before[first]


def _measure(levels: list[_Level]) -> None:
    """Sizes from the runs up, and which lists have a part that is not known yet."""
    for above, level in zip(levels[-2::-1], levels[:0:-1], strict=True):
        np.add.at(above.size, level.parent, level.size)
        above.blocked[level.parent[level.blocked]] = True


# ---- outgoing
#
# What leaves the program, when everything has run: results of the entry, and the objects that it has made.
#
# Every output has one value for each row of its owner: the examples, or the objects made. A number is a pointer still,
# an object its row among all objects made, anything else what the host has computed. Lists are laid out: their
# innermost elements behind one another, and the lengths at each depth.
#
#     pointers of `make`   ->   objects sorted by example: object 0 1 | 2 3 4 | ...
#     Node.left            ->   1 -1 | 3 4 -1 | ...


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


Values = NDArray[Any]


# ---- plans


def make_plan(
    spec: PlanSpec,
    request: TableRequest,
    found: Activations,
    columns: Columns,
    data: Mapping[str, tuple[int, Values]],
) -> tuple[DataPlan, Ints]:
    """The plan of a data set, and the examples whose rows wait for each other in a cycle."""
    return _Assembler(spec, request, found, columns, data).assemble()


class _Assembler:
    """Puts the rows of each example side by side, and makes pointers relative to their example."""

    def __init__(
        self,
        spec: PlanSpec,
        request: TableRequest,
        found: Activations,
        columns: Columns,
        data: Mapping[str, tuple[int, Values]],
    ) -> None:
        self.spec, self.request, self.found, self.source, self.data = spec, request, found, columns, data
        self.count = columns.count
        self.starts: dict[int, Ints] = {}
        self.place: dict[int, Ints] = {}
        self.order: dict[int, Ints] = {}
        self.home = np.array([-1 if d.space is None else d.space.index for d in spec.definitions] or [-1])
        for column, (space, _) in data.items():
            root = column.startswith("#argument")
            self.starts[space] = np.arange(self.count + 1) if root else columns.starts[spec.spaces[space].name]
        for region in spec.spaces:
            if region.kind == "region":
                self.lay(region.index, found.example.get(region.index, np.zeros(0, np.int64)))
        self.starts[request.example] = np.arange(self.count + 1)
        self.pointers: dict[str, tuple[Ints, Ints]] = {}
        self.columns: dict[str, Values] = {}
        self.owners: dict[str, Ints] = {}
        self.table_space: dict[str, int] = {}

    def lay(self, space: int, example: Ints) -> None:
        self.order[space] = stable_order(example)
        self.place[space] = np.empty(len(example), np.int64)
        self.place[space][self.order[space]] = np.arange(len(example))
        self.starts[space] = offsets_of(np.bincount(example, minlength=self.count))

    def example_of(self, space: int, rows: Ints) -> Ints:
        return np.searchsorted(self.starts[space], rows, side="right") - 1

    def local(self, pointers: Ints, sources: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Pointers as (position among `sources`, row within its example)."""
        member_of = np.full(len(self.home) + 1, -1)
        member_of[list(sources)] = np.arange(len(sources))
        member = member_of[pointers >> SHIFT]
        within, begin = self.within
        at = np.array([0, *(begin.get(int(self.home[d]), 0) for d in sources)])[member + 1]
        counted = np.array([False, *(self.home[d] >= 0 for d in sources)])[member + 1]
        return member, np.where(counted, within[np.where(counted, at + (pointers & ROW), 0)], 0)

    @cached_property
    def within(self) -> tuple[Ints, dict[int, int]]:
        """Of all spaces that numbers come from behind one another: the row within its example that each row is; and
        where each space begins."""
        parts, begin, size = [np.zeros(1, np.int64)], dict[int, int](), 1
        for home in np.unique(self.home[self.home >= 0]).tolist():
            starts = self.starts[home]
            rows = np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
            parts.append(rows[self.place[home]] if home in self.place else rows)
            begin[home] = size
            size = size + len(parts[-1])
        return np.concatenate(parts), begin

    def assemble(self) -> tuple[DataPlan, Ints]:
        if self.spec.made is not None:
            assert self.found.made is not None
            self.starts[self.spec.made.space.index] = self.found.made
        for space, table in self.spec.region_tables():
            if table.kind == "fold":
                self.fold(space, table)
            elif table.kind in ("column", "pointer"):
                self.rows(space, table, self.found.tables.get(table.name, np.zeros(0, np.int64)))
        for k, table in enumerate(self.spec.outputs):
            if table.kind == "fold":
                self.fold(self.owner(table), table)
            elif table.kind == "pointer":
                self.rows(self.owner(table), table, self.found.outputs[k])
        structure, targets = self.results()
        for index in range(self.request.spaces):
            self.starts.setdefault(index, np.zeros(self.count + 1, np.int64))
        plan = DataPlan(
            self.request,
            self.count,
            self.starts,
            self.columns,
            self.pointers,
            self.owners,
            self.table_space,
            {},
            {c: values for c, (_, values) in self.data.items()},
            structure,
            {k: self.space_of_rows(t) for k, t in enumerate(self.spec.outputs) if t.kind == "structure"},
            self.found.lengths,
            {k: self.owner(self.spec.outputs[k]) for k in self.found.lengths},
            {k: tuple(s.index for s in t.lists) for k, t in enumerate(self.spec.outputs) if t.lists},
            {s: self.starts_of(s) for s in targets.values()},
            self.value_numbers(),
            number_rows(
                self.request, NumberingTables(self.starts, self.columns, self.pointers, self.owners, self.table_space)
            ),
            targets,
            None if self.spec.made is None else self.spec.made.space.index,
        )
        plan, looping = add_paths(plan)
        plan, waiting = _with_levels(plan)
        return plan, np.union1d(looping, waiting)

    def value_numbers(self) -> dict[int, Ints]:
        """For spaces whose rows are shared: the same number for rows that are equal in all keys (hash-consing)."""
        numbers: dict[int, Ints] = {}
        for d in self.request.distinct:
            columns = [np.unique(self.columns[key], return_inverse=True)[1] for key in d.keys]
            joined = columns[0]
            for column in columns[1:]:
                joined = np.unique(joined * (1 + column.max(initial=0)) + column, return_inverse=True)[1]
            numbers[d.space] = joined
        return numbers

    def rows(self, space: int, table: TableSpec, raw: Values) -> None:
        self.table_space[table.name] = space
        by_example = self.order.get(space, np.arange(len(raw)))
        if table.kind == "column":
            self.columns[table.name] = raw[by_example]
            return
        member, row = self.local(raw, table.sources)
        self.point(table.name, space, member[by_example], row[by_example])

    def point(self, name: str, space: int, member: Ints, row: Ints) -> None:
        """Keep a table of pointers of the rows of a space. One that is equal to another, as those to several results of
        one call are, is the other: it is cut and bound once."""
        for other, held in self.pointers.items():
            if self.table_space[other] == space and all(map(np.array_equal, held, (member, row))):
                member, row = held
                break
        self.pointers[name] = (member, row)
        self.table_space[name] = space

    def fold(self, space: int, table: TableSpec) -> None:
        assert table.elements is not None
        owner, pointers = self.found.elements.get(table.name, (np.zeros(0, np.int64),) * 2)
        at = self.place[space][owner] if space in self.place else owner
        example = self.example_of(space, at)
        by_owner = stable_order(at)
        self.starts[table.elements.index] = offsets_of(np.bincount(example, minlength=self.count))
        member, row = self.local(pointers, table.sources)
        self.point(table.name, table.elements.index, member[by_owner], row[by_owner])
        self.owners[table.name] = (at - self.starts[space][example])[by_owner]

    def owner(self, table: TableSpec) -> int:
        """The space whose rows have an output: the examples, or the objects that were made."""
        return self.request.example if table.owner is None else table.owner.index

    def space_of_rows(self, table: TableSpec) -> int:
        """The space of the rows of an output: those of its owner, or the elements of its lists."""
        return self.owner(table) if table.elements is None else table.elements.index

    def starts_of(self, store: str) -> Ints:
        if store == MADE_STORE:
            assert self.found.made is not None
            return self.found.made
        return self.source.starts[store]

    def results(self) -> tuple[dict[int, Values], dict[int, str]]:
        """The outputs that are structure, and the stores that they refer to."""
        structure: dict[int, Values] = {}
        targets: dict[int, str] = {}
        for k, table in enumerate(self.spec.outputs):
            if table.kind != "structure":
                continue
            example = np.repeat(np.arange(self.count), np.diff(self.starts[self.owner(table)]))
            if table.elements is not None:
                example = example[owners(self.found.lengths[k])]
                self.starts[table.elements.index] = offsets_of(np.bincount(example, minlength=self.count))
            structure[k], store = self.found.outputs[k], store_of(table.value.type)
            if store is not None:
                targets[k] = store
                structure[k] = relative(structure[k], example, self.starts_of(store))
        return structure, targets


def _with_levels(plan: DataPlan) -> tuple[DataPlan, Ints]:
    levels: dict[int, Ints] = {}
    cyclic: list[Ints] = []
    reads = _Reads(plan)
    for loop in plan.request.loops:
        spaces = [plan.request.orders[t].space for t in loop.tasks]
        first = offsets_of(np.array([plan.rows(s) for s in spaces]))
        edges = [reads.edge(loop, spaces, first, e) for e in loop.edges]
        source, target, weight = (np.concatenate([e[k] for e in edges]) for k in range(3))
        level, stuck = longest_paths(int(first[-1]), source, target, weight)
        for k, task in enumerate(loop.tasks):
            levels[task] = level[first[k] : first[k + 1]]
            mine = stuck[(stuck >= first[k]) & (stuck < first[k + 1])] - first[k]
            cyclic.append(np.searchsorted(plan.starts[spaces[k]], mine, side="right") - 1)
    bad = np.unique(np.concatenate(cyclic)) if cyclic else np.zeros(0, np.int64)
    return replace(plan, levels=levels), bad


class _Reads:
    """Who reads whom in a plan: the entries of each table of pointers by their sources."""

    def __init__(self, plan: DataPlan) -> None:
        self.plan = plan
        self._example: dict[int, Ints] = {}
        self._members: dict[str, tuple[Ints, Ints]] = {}

    def example(self, space: int) -> Ints:
        """The example of each row of a space."""
        if space not in self._example:
            starts = self.plan.starts[space]
            self._example[space] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return self._example[space]

    def of(self, table: str, member: int) -> Ints:
        """The entries of a table that point to its source `member`."""
        if table not in self._members:
            held = self.plan.pointers[table][0] + 1
            order = stable_order(held)
            self._members[table] = order, np.cumsum(np.bincount(held, minlength=1))
        order, ends = self._members[table]
        if member + 1 >= len(ends):
            return order[:0]
        return order[ends[member] : ends[member + 1]]

    def edge(self, loop: LoopRequest, spaces: Sequence[int], first: Ints, edge: Edge) -> tuple[Ints, Ints, Ints]:
        plan = self.plan
        weight = 0 if edge.source < edge.reader else 1
        if edge.table is None:
            rows = np.arange(plan.rows(spaces[edge.reader]))
            source, target = first[edge.source] + rows, first[edge.reader] + rows
        else:
            mine = self.of(edge.table, edge.source_member)
            if not len(mine):
                return mine, mine, mine
            example = self.example(plan.space_of_table[edge.table])[mine]
            source = first[edge.source] + plan.pointers[edge.table][1][mine]
            source += plan.starts[spaces[edge.source]][example]
            target = mine
            if edge.fold:
                target = plan.owners[edge.table][mine] + plan.starts[spaces[edge.reader]][example]
            target = first[edge.reader] + target
        return source, target, np.full(len(source), weight)
