"""What the compiler hands to the planner: plain data, no code.

The planner runs the structural slice of `module` over all activations at once, and records *tables*: for every region
the integers that its rows need. A number that crosses a region or an activation travels as a *pointer*: which
`Definition` computed it, and in which row. (FRAMES.md, sections 1 and 4.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autobatch.ir.core import Module, Operand, Value
from autobatch.ir.system import Space


Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Definition:
    """A place that numbers come from: `space` is None for a uniform value, which has one row."""

    index: int
    space: Space | None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to record in a region.

    `kind` "column": the numbers of `value`. "pointer": where `value` is. "fold": where the elements of the list `value`
    are; its rows lie in `elements`, and for lists of lists `lists` are the spaces of the outer ones' elements.
    "structure": a result of the entry that the host computes, or lists of such values, laid out as those of a fold.
    `sources` are the definitions that a pointer may name, in the order of the gather's sources."""

    name: str
    kind: str
    value: Operand
    sources: tuple[int, ...] = ()
    elements: Space | None = None
    lists: tuple[Space, ...] = ()


@dataclass(frozen=True)
class RegionSpec:
    """`arms[k]` belongs to the region's instruction k, an `If`. `exports` are the values computed in this region that
    other regions may read."""

    space: Space
    tables: tuple[TableSpec, ...]
    exports: Mapping[Value, int]
    arms: Mapping[int, tuple[RegionSpec, RegionSpec]]


@dataclass(frozen=True)
class PlanSpec:
    """All that the planner needs to know of a program.

    `slice` is the structural slice of `module`, and `slice_results[f]` the results of function f that are left in it;
    `failing` is the slice with all that can fail.
    `on_host`, `on_device`, `columns`: see `analysis/structure.py`. `uniform` names the definition of a value or literal
    that is the same for all rows; `data` that of a column of a store. `slots[f]` are the results of function f that
    somebody reads as numbers. `outputs[j]`: a table in the example space for result j of the entry. `numbers`: shared
    integers, and what is computed from them alone, that decide structure; with the values that a plan is made for (zeros
    where no plan is meant)."""

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
    spaces: tuple[Space, ...]
    numbers: Mapping[Value, Number]

    def region_tables(self) -> Iterator[tuple[int, TableSpec]]:
        """Every table that some region records, with the index of the region's space."""
        todo = list(reversed(list(self.regions.values())))
        while todo:
            region = todo.pop()
            yield from ((region.space.index, table) for table in region.tables)
            todo.extend(reversed([arm for pair in region.arms.values() for arm in pair]))
