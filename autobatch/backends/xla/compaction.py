"""Rows under a mask of which few are active are packed together, and go on as fewer rows.

    while count(active) > 64: 256 rows take a turn
    at = places of the active rows                      row 3, 17, 40, ... of 256
    state = state256[at]                                run on as row 0, 1, 2, ... of 64
    while count(active) > 16: 64 rows take a turn
    ...                                                 until 8 rows are left
    state256[at] = state

A loop whose rows need from few turns to many then computes little more rows than it has to: for trip counts that are
distributed exponentially 1.4 times as many by halves, 1.8 by quarters, where 1,000 rows that all take the turns of the
longest are 7 times as many. Each width is a copy of the loop in the executable, so a long one has fewer of them. The
same for an arm of a branch: if few rows take it, they are computed as few.

What it costs was measured on CPUs (`benchmarks/masks.py`), and on other platforms, whose lanes are cheap, it is off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from autobatch.common import targets
from autobatch.ir.core import Apply, For, If, Instruction, Literal, Region, While, regions
from autobatch.ir.elementwise import MOVING
from autobatch.ir.types import Array
from autobatch.passes.schedule.costs import EXPENSIVE

WORK = 1024
"""Operations on numbers in a turn of all rows from which on fewer rows are faster. A turn of XLA's CPU loops that does
next to nothing takes as long as some hundred of them."""

ARM_COST, ARM_ROWS = 64, 128
"""Operations of an arm on one row, and rows, from which on the same holds of an arm: its rows are looked for and put
back each time that the branch runs, which takes as long as some forty operations on each of all rows."""

FEWEST = 8
"""Rows that a vector unit computes at once: fewer are not faster."""

COPIES, COPIES_FOR_WORK = 256, 2048
"""How many instructions the copies of a loop may have: in any case, and where its turns are much work. An instruction
takes about a millisecond to compile."""


def loop_widths(loop: While, rows: int, careful: bool) -> list[int]:
    """How many rows a loop on `rows` rows computes in a turn, from all of them to the fewest: by halves, or by quarters
    where the loop is long."""
    cost = cost_of(loop.condition) + cost_of(loop.body)
    if not _is_measured() or rows * cost < WORK:
        return [rows]
    room = min(COPIES + rows * cost // 256, COPIES_FOR_WORK) // _emitted(loop, careful)
    halves, quarters = ([rows, *_narrowings(rows, cost, factor)] for factor in (2, 4))
    return halves if len(halves) <= room + 1 else quarters[: room + 1]


def _narrowings(rows: int, cost: int, factor: int) -> Iterator[int]:
    while rows * cost >= WORK and (narrower := _narrower(rows, factor)) < rows:
        yield narrower
        rows = narrower


def _emitted(instruction: Instruction, careful: bool) -> int:
    """How many instructions there will be in the executable: a loop with a derivative is run, recorded, run again,
    run once more and reversed."""
    inside = sum(_emitted(i, careful) for region in regions(instruction) for i in region.body)
    return 1 + inside * (5 if careful and isinstance(instruction, While) else 1)


def arm_width(arm: Region, rows: int) -> int | None:
    """For how few rows an arm of a branch on `rows` rows is compiled once more. None: it is not worth it."""
    if not _is_measured() or rows < ARM_ROWS or cost_of(arm) < ARM_COST:
        return None
    return _narrower(rows, 16)


def _narrower(rows: int, factor: int) -> int:
    return max(FEWEST, -(-rows // (factor * FEWEST)) * FEWEST)


def _is_measured() -> bool:
    return targets.platform() == "cpu"


def cost_of(region: Region) -> int:
    """What a region computes for one row, in operations on numbers; a loop that nobody can count has ten turns."""
    return sum(map(_cost, region.body))


def _cost(instruction: Instruction) -> int:
    match instruction:
        case Apply(op=op) if op.name in MOVING:
            return 0
        case Apply(op=op, operands=xs, results=results):
            size = sum(map(_size, results)) * (8 if op.name in EXPENSIVE else 1)
            contracts = op.name in ("dot_general", "conv_general_dilated", "scan", "while", "cond")
            return size * max([1, *map(_size, xs)]) if contracts else size
        case If(then=then, orelse=orelse):
            return max(cost_of(then), cost_of(orelse))
        case For(count=Literal(value=int(count)), body=body):
            return count * cost_of(body)
        case _:
            return 10 * sum(map(cost_of, regions(instruction)))


def _size(x: Any) -> int:
    return math.prod(x.type.shape) if isinstance(x.type, Array) else 1


class CompactedRows(NamedTuple):
    """Some of the rows as fewer ones: row `at[k]` is the `k`-th, for each `k` of `live`, bool[width]."""

    rows: int
    at: Any
    live: Any

    def take(self, xs: Sequence[Any]) -> list[Any]:
        """These rows of arrays; those past the last of them have the numbers of some row."""
        at = jnp.minimum(self.at, self.rows - 1)
        return [jnp.take(x, at, axis=0, mode="clip") for x in xs]

    def put(self, xs: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """Arrays with these rows replaced."""
        past = self.rows + jnp.arange(self.live.shape[0], dtype=jnp.int32)
        at = jnp.where(self.live, self.at, past)
        return [x.at[at].set(y, mode="drop", unique_indices=True) for x, y in zip(xs, found, strict=True)]


def packed(mask: Any, width: int) -> CompactedRows:
    """The rows of a mask, `width` of them at most, in their order."""
    rows = mask.shape[0]
    before = jnp.cumsum(mask, dtype=jnp.int32)
    at = jnp.searchsorted(before, jnp.arange(1, width + 1, dtype=jnp.int32)).astype(jnp.int32)
    return CompactedRows(rows, at, at < rows)
