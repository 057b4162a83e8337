"""Lists that a program makes, as inspection sees them: runs in a pool of pointers, and cells for what is not known yet.

A list is `start << 24 | length` of a run in the pool, as a negative number: a *handle*. Breadth first, a list that a
call returns is read before the callee has run. Then an item of it, and a list joined from such lists, are *cells*:
pointers of two definitions of their own, followed when everything has run. So nothing waits, and lists that are only
joined to longer ones are never laid out.

    leaves(t.left) + leaves(t.right)      flatten(pack_list(a, b))  ->  one cell, which names the list of the two
    xs[0]                                 item(xs, 0)               ->  one cell, which names xs and 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Ints
from autobatch.data.scopes import LENGTH, ROW, SHIFT, GrowingArray, list_handle, list_run
from autobatch.errors import PlanError
from autobatch.planning.equal_rows import longest_paths


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
