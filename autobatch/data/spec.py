"""What the compiler hands to the planner: plain data, no code.

The planner runs the structural slice of `module` over all activations at once, and records *tables*: for every region
the integers that its rows need. A number that crosses a region or an activation travels as a *pointer*: which
`Definition` computed it, and in which row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.ir.core import Apply, BuiltObject, List, Module, Operand, Ref, Type, Value
from autobatch.ir.regions import out_of_turns
from autobatch.ir.system import Link, Space

# ---- returned
#
# What the entry returns beside numbers: references, tags and lists of them, which the host has computed.
#
# Lists are tuples there. As results they are their innermost elements behind one another, and the lengths at each
# depth:
#
#     ((4, 5), (6,)), ()      ->      values 4 5 6,  lengths (2, 0), (2, 1)


# ---- items
#
# Lists of the host that a program joins: a list that grows turn by turn takes no more room than its elements.
#
# `out = out + [x]` in a loop makes a list a turn, and each of them is kept, as an argument that later turns are
# compared with. As tuples they would take the square of the turns. Here lists that begin alike share one buffer, of
# which each sees its own number of elements; their hash is carried along, so that comparing two of them seldom looks at
# elements.
#
#     out = (3, 7)           joined((out, (9,)))      buffer 3 7 9, length 3
#     again = out + (8,)     joined((out, (8,)))      the buffer goes on with 9 behind `out`: a buffer of its own


_BASE, _PRIME = 1_000_003, (1 << 61) - 1


class Items:
    """A list as long as `length`, in a buffer that longer ones may share. Equal to others with equal elements."""

    __slots__ = ("buffer", "hashed", "length")

    def __init__(self, buffer: list[Any], length: int, hashed: int) -> None:
        self.buffer, self.length, self.hashed = buffer, length, hashed

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.buffer[: self.length])

    def __getitem__(self, index: int) -> Any:
        if not -self.length <= index < self.length:
            raise IndexError("list index out of range")
        return self.buffer[index if index >= 0 else index + self.length]

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Items) or (self.length, self.hashed) != (other.length, other.hashed):
            return False
        if self.buffer is other.buffer:
            return True
        return self.buffer[: self.length] == other.buffer[: other.length]

    def __repr__(self) -> str:
        return f"Items({self.buffer[: self.length]})"

    def followed_by(self, more: Sequence[Any]) -> Items:
        """This list and then `more`; the buffer is taken on where nothing stands behind this list. Raises TypeError
        for elements without a hash."""
        if not more:
            return self
        hashed = self.hashed
        for x in more:
            hashed = (hashed * _BASE + hash(x) + 1) % _PRIME
        buffer = self.buffer if len(self.buffer) == self.length else self.buffer[: self.length]
        buffer.extend(more)
        return Items(buffer, len(buffer), hashed)


def joined(lists: Sequence[Any]) -> Any:
    """The elements of all lists behind one another: `Items`, or a tuple where elements have no hash (arrays)."""
    try:
        whole = Items([], 0, 0)
        for k, items in enumerate(lists):
            whole = items if k == 0 and isinstance(items, Items) else whole.followed_by(tuple(items))
        return whole
    except TypeError:
        return tuple(x for items in lists for x in items)


def is_list(value: Any) -> bool:
    """Is it a list of the host? What is undefined is none."""
    return isinstance(value, tuple | Items)


MADE_STORE = "#made"
"""The store that objects made by the program are rows of."""


def flat_lists(lists: Sequence[Any], depth: int) -> tuple[list[Any], tuple[Ints, ...]]:
    """The innermost elements of tuples nested so deep, and the lengths of the lists of each depth."""
    lengths = []
    for _ in range(depth):
        lists = [x if is_list(x) else () for x in lists]  # what is undefined is no tuple, and never read
        lengths.append(np.array([len(x) for x in lists], np.int64))
        lists = [y for x in lists for y in x]
    return list(lists), tuple(lengths)


def owners(lengths: Sequence[Ints]) -> Ints:
    """For each innermost element the position of the outermost list that it is in."""
    found = np.arange(len(lengths[0]))
    for held in lengths:
        found = np.repeat(found, held)
    return found


def element_type(type: Type) -> Type:
    """The type of the innermost elements of lists that the program made."""
    while isinstance(type, List) and type.store is None:
        type = type.elem
    return type


def depth_of(type: Type) -> int:
    """How deep lists that the program made are nested."""
    return 1 + depth_of(type.elem) if isinstance(type, List) and type.store is None else 0


def store_of(type: Type) -> str | None:
    """The store that values of a type are rows of."""
    held = element_type(type)
    if isinstance(held, BuiltObject):
        return MADE_STORE
    return held.store if isinstance(held, Ref | List) else None


def relative(rows: NDArray[Any], owner: Ints, starts: Ints) -> NDArray[Any]:
    """Rows counted from the first one of their example; null stays null."""
    return np.where(rows >= 0, rows - starts[owner], -1)


Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Definition:
    """A place that numbers come from: `space` is None for a uniform value, which has one row."""

    index: int
    space: Space | None


AHEAD = (
    "the numbers of an example decide it alone, so that the host runs it ahead; raise ab.options(max_host_turns=...) "
    "if it is meant to"
)


@dataclass(frozen=True, slots=True)
class HostLimits:
    """How much the host runs ahead: `turns` of a `while` loop (`iterations`: the option `max_iterations`), calls as
    `depth` that wait for one another, both for one example; `rows` of all examples, for the reason `because`."""

    iterations: int = 10_000_000
    turns: int = 100_000
    depth: int = 100_000
    rows: int = 50_000_000
    because: str = "ab.options(max_rows=...) allows no more"

    @property
    def late(self) -> str:
        """What a loop fails with that has more turns."""
        if self.turns >= self.iterations:
            return out_of_turns(self.iterations)
        return f"this loop never ends, presumably: {self.turns:,} turns were not enough; {AHEAD} run so long"

    @property
    def many(self) -> str:
        """What an example fails with whose control alone has more calls than there may be activations."""
        return (
            f"this recursion never ends, presumably: {self.rows:,} calls were not enough, and {self.because}; test for "
            "its end before this call"
        )

    @property
    def deep(self) -> str:
        """What a recursion fails with that is deeper."""
        return (
            f"this recursion never ends, presumably: {self.depth:,} calls wait for one another; test for its end "
            f"before this call; {AHEAD} go so deep"
        )


OUTPUT = "example:"
"""The prefix of the names of tables that are outputs of the program; the number of the output follows."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to record in a region.

    `kind` "column": the numbers of `value`. "pointer": where `value` is. "fold": where the elements of the list `value`
    are; its rows lie in `elements`, and for lists of lists `lists` are the spaces of the outer ones' elements.
    "structure": a result of the entry that the host computes, or lists of such values, laid out as those of a fold.
    "field": what an object that the program makes holds, as a pointer, or ("kept") as a value of the host.
    `owner` is the space of the rows that have this output: that of the examples when it is None. `sources` are the
    definitions that a pointer may name, in the order of the gather's sources."""

    name: str
    kind: str
    value: Operand
    sources: tuple[int, ...] = ()
    elements: Space | None = None
    lists: tuple[Space, ...] = ()
    owner: Space | None = None

    @property
    def is_pointed(self) -> bool:
        """Does a pointer say where it is? The host has computed what is not."""
        return self.kind != "structure" or isinstance(element_type(self.value.type), BuiltObject)


@dataclass(frozen=True, slots=True)
class MakeSpec:
    """One place where objects are made: every row of the region `space` makes one, which pointers of `definition`
    name. `fields` are the tables of what they hold, one for each output of the class."""

    definition: int
    space: int
    fields: tuple[TableSpec, ...]


@dataclass(frozen=True, slots=True)
class MadeSpec:
    """A class of objects that the program makes. Field k of them is output `first + k` of the program."""

    name: str
    first: int
    places: tuple[MakeSpec, ...]


@dataclass(frozen=True, slots=True)
class MadeObjects:
    """All objects that a program makes are rows of one space. `adopted`: stores of the examples that may stand beside
    them, with the definition of pointers to their rows: all their rows come first, example by example.

    `kinds` is the output that says of which class each object is; behind it comes one for each adopted store, the row
    that the object is."""

    space: Space
    classes: tuple[MadeSpec, ...]
    adopted: tuple[tuple[str, int], ...]
    kinds: int


@dataclass(frozen=True)
class RegionSpec:
    """`arms[k]` belongs to the region's instruction k, an `If`. `exports` are the values computed in this region that
    other regions may read."""

    space: Space
    tables: tuple[TableSpec, ...]
    exports: Mapping[Value, int]
    arms: Mapping[int, tuple[RegionSpec, RegionSpec]]


@dataclass(frozen=True)
class CountedSpec:
    """A loop that counts (`passes/frames.py`), by positions of its arguments.

    `counter` ends the loop where it reaches `bound`, which `bounding` computes before the first turn, or is beyond it
    where `inclusive`. The turn behind a turn has the same arguments but for `steps`, by which counters grow; `delayed`,
    values of the host that `delaying` computes; `exports`, definitions of numbers of the device; `later`, numbers of
    the device of which it is known where they are once the turn has run: until then they go into tables alone."""

    counter: int
    bound: Operand
    inclusive: bool
    bounding: tuple[Apply, ...]
    steps: Mapping[int, int]
    delayed: Mapping[int, Operand]
    delaying: tuple[Apply, ...]
    exports: Mapping[int, int]
    later: frozenset[int]


@dataclass(frozen=True)
class PlanSpec:
    """All that the planner needs to know of a program.

    `slice` is the structural slice of `module`, and `slice_results[f]` the results of function f that are left in it;
    `failing` is the slice with all that can fail.
    `on_host`, `on_device`, `columns`: see `structure.py`. `uniform` names the definition of a value or literal
    that is the same for all rows; `data` that of a column of a store. `slots[f]` are the results of function f that
    somebody reads as numbers. `outputs[j]`: a table in the example space for result j of the entry, then those of the
    objects that are `made`. `numbers`: shared integers, and what is computed from them alone, that decide structure;
    with the values that a plan is made for (zeros where no plan is meant). `counted`: functions that are loops which
    count. `limits`: how far the host goes."""

    module: Module
    slice: Module
    slice_results: Mapping[str, tuple[int, ...]]
    failing: Module
    regions: Mapping[str, RegionSpec]
    definitions: tuple[Definition, ...]
    uniform: Mapping[Operand, int]
    data: Mapping[str, int]
    on_host: frozenset[Value]
    on_device: frozenset[Value]
    columns: frozenset[Value]
    slots: Mapping[str, tuple[int, ...]]
    outputs: tuple[TableSpec, ...]
    made: MadeObjects | None
    spaces: tuple[Space, ...]
    numbers: Mapping[Value, Number]
    counted: Mapping[str, CountedSpec]
    limits: HostLimits = HostLimits()

    def region_tables(self) -> Iterator[tuple[int, TableSpec]]:
        """Every table that some region records, with the index of the region's space."""
        todo = list(reversed(list(self.regions.values())))
        while todo:
            region = todo.pop()
            yield from ((region.space.index, table) for table in region.tables)
            todo.extend(reversed([arm for pair in region.arms.values() for arm in pair]))


# ---- tables
#
# Which integer tables a schedule needs, as plain data: the compiler's request to the planner.
#
# Orders are named by position in `TableRequest.orders`. A *member* of a gather is a source with the order its rows lie
# in (-1: a uniform value, one row); `layout` lists the members of the array that is gathered from, one behind the
# other.


UNIFORM = -1


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """Rows of `space`, sorted by their level in `recurrence` (None: in the order of the examples)."""

    space: int
    recurrence: int | None


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """Rows of `order` read the table `name`: source k of its spec begins at member `place[k]` of `layout`.

    `keys[k]` are the columns that alone decide the values of source k, empty where other things do."""

    name: str
    order: int
    place: tuple[int, ...]
    layout: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """As `GatherRequest`, for the runs of elements that rows of `order` read; `elements` is the space of elements.

    `weight` is the dtype of the factors of the elements, "" where they have none."""

    name: str
    order: int
    elements: int
    place: tuple[int, ...]
    layout: tuple[int, ...]
    keys: tuple[tuple[str, ...], ...]
    weight: str = ""

    @property
    def words(self) -> int:
        """The 32-bit words of a weight."""
        return np.dtype(self.weight).itemsize // 4 if self.weight else 0


@dataclass(frozen=True, slots=True)
class PathRequest:
    """The elements of fold `name`: what paths lead to, over rows of the `spaces` of a recurrence's variables, from the
    examples on. The rows of term k lie in `terms[k]`, or are one (`UNIFORM`)."""

    name: str
    elements: int
    spaces: tuple[int, ...]
    terms: tuple[int, ...]
    links: tuple[Link, ...]
    weight: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of the task `reader` read rows of the task `source` (positions in `LoopRequest.tasks`) through a table, or
    (`table` None) in the same row. `source_member` is the position among the table's sources."""

    reader: int
    source: int
    table: str | None
    source_member: int = 0
    fold: bool = False


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """A level loop: the order of each task, in static order, and what its rows wait for. `costs[task]`: the cost of one
    window of each width (`passes/costs.py`)."""

    tasks: tuple[int, ...]
    edges: tuple[Edge, ...]
    costs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class DistinctRequest:
    """The distinct rows of `base`, by its tables `keys`, are the rows of `space`; rows of `readers` (orders of `base`)
    read the one that they equal."""

    space: int
    base: int
    keys: tuple[str, ...]
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Everything that `bind_plan` makes.

    `few`: (order, how many widths) of tasks that are not compiled for all `widths`. `columns`: (table, order); those of
    `wide` columns hold 64 bits, under x64, and are arrays of their own. `permutations`: (to, from). `data`: columns of
    the examples that the device reads, with their space. `spaces` counts the spaces; `example` is the one of
    examples."""

    orders: tuple[OrderRequest, ...]
    columns: tuple[tuple[str, int], ...]
    wide: frozenset[str]
    gathers: tuple[GatherRequest, ...]
    folds: tuple[FoldRequest, ...]
    permutations: tuple[tuple[int, int], ...]
    loops: tuple[LoopRequest, ...]
    distinct: tuple[DistinctRequest, ...]
    paths: tuple[PathRequest, ...]
    data: tuple[tuple[str, int], ...]
    widths: tuple[int, ...]
    few: tuple[tuple[int, int], ...]
    spaces: int
    example: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The shapes of one executable: capacity for examples, and the capacity of each space. Equal signatures share an
    executable. `full`: every batch of this class has exactly so many rows. `in_place`: the tables of gathers that read
    row k in row k then."""

    batch: int
    capacity: tuple[int, ...]
    full: bool = False
    in_place: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: TableRequest, count: int, capacity: tuple[int, ...]) -> Signature:
        """That of `count` examples: none are of a class of their own."""
        return cls(capacity[request.example] if count else 0, capacity)

    def filled(self, request: TableRequest, integers: NDArray[Any]) -> Signature:
        """The same where all batches of this class that have as many examples have these tables; where there is room
        for more examples, they are not all."""
        places, _ = layout(request, self)
        start, length = places["counts"]
        if tuple(integers[start : start + length].tolist()) != self.capacity[:length]:
            return self

        def is_in_place(gather: GatherRequest) -> bool:
            start, length = places[f"{gather.name}@{gather.order}"]
            rows = self.capacity[request.orders[gather.order].space]
            sources = {UNIFORM if m == UNIFORM else request.orders[m].space for m in gather.layout}
            one = len(gather.layout) == 1 and UNIFORM not in sources and self.capacity[sources.pop()] == rows == length
            return one and bool((integers[start : start + length] == np.arange(length)).all())

        names = frozenset(f"{g.name}@{g.order}" for g in request.gathers if is_in_place(g))
        return Signature(self.batch, self.capacity, True, names)


def window_widths(request: TableRequest, signature: Signature, task: int) -> tuple[int, ...]:
    """The widths of the windows of a task: those that its space has room for, evenly thinned where it has few."""
    room = signature.capacity[request.orders[task].space]
    fitting = tuple(w for w in request.widths if w <= room)
    few = dict(request.few).get(task)
    return fitting if few is None else fitting[:: -(-len(fitting) // few)]


def layout(request: TableRequest, signature: Signature) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each table lies in the one integer array that holds them all: name -> (start, length); and its length."""
    places: dict[str, tuple[int, int]] = {}
    at = 0

    def put(name: str, length: int) -> None:
        nonlocal at
        places[name] = (at, length)
        at += length

    capacity = signature.capacity

    def rows(order: int) -> int:
        return capacity[request.orders[order].space]

    put("counts", request.spaces)
    put("levels", len(request.loops))
    for name, order in request.columns:
        if name not in request.wide:
            put(f"{name}@{order}", rows(order))
    for g in request.gathers:
        put(f"{g.name}@{g.order}", rows(g.order))
    for f in request.folds:
        put(f"{f.name}@{f.order}.start", rows(f.order) + 1)
        put(f"{f.name}@{f.order}.index", capacity[f.elements])
        put(f"{f.name}@{f.order}.owner", capacity[f.elements])
        if f.weight:
            put(f"{f.name}@{f.order}.weight", capacity[f.elements] * f.words)
    for to, origin in request.permutations:
        put(f"perm{to}<{origin}", rows(to))
    for d in request.distinct:
        for reader in d.readers:
            put(f"spread{d.space}@{reader}", rows(reader))
    for n, loop in enumerate(request.loops):
        deepest = sum(rows(task) for task in loop.tasks)
        for task in loop.tasks:
            put(f"loop{n}.{task}.end", deepest)
            put(f"loop{n}.{task}.windows", rows(task))  # each holds a row at least that no other one does
            put(f"loop{n}.{task}.firsts", deepest + 1)
    return places, at
