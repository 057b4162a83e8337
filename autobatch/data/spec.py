"""What the compiler hands to the planner: plain data, no code.

The planner runs the structural slice of `module` over all activations at once, and records *tables*: for every region
the integers that its rows need. A number that crosses a region or an activation travels as a *pointer*: which
`Definition` computed it, and in which row. (FRAMES.md, sections 1 and 4.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autobatch.data.returned import element_type
from autobatch.ir.core import Apply, Module, Operand, Value
from autobatch.ir.masked import out_of_turns
from autobatch.ir.system import Space
from autobatch.ir.types import BuiltObject

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
    """A loop that counts (`passes/frames/counted.py`), by positions of its arguments.

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
