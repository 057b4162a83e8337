"""`programs`: a Hypothesis strategy of random per-example programs, with the data to run them on.

A drawn program is a module with functions that call each other on the children of a tree, and an entry `main`. Numbers
stay bounded, so that batched and plain results agree closely.
"""

from __future__ import annotations

import itertools
import linecache
import types
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autobatch.api.batched import Batched
from autobatch.testing.constructs import CONSTRUCTS, SPECIAL, ConstructWriter
from autobatch.testing.memory import MemoryWriter
from autobatch.testing.statements import StatementWriter

_FLOATS = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 6))


@dataclass
class Tree:
    """Data of random programs: something of every kind that a field can hold."""

    x: float
    n: int
    tag: str
    v: np.ndarray[Any, Any]
    kids: list[Tree] = field(default_factory=list)
    xs: list[float] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    next: Tree | None = None


@dataclass
class Cell:
    """What random programs make of objects: they change its fields, and link it to others."""

    value: float
    n: int = 0
    next: Cell | None = None


@dataclass
class Spot:
    """A node of a search tree that all examples share."""

    at: float
    count: int = 0
    low: Spot | None = None
    high: Spot | None = None


@dataclass(frozen=True)
class Program:
    """A program as Python source: `function(parameters(), trees)` runs it for a list of `Tree`. `constructs`: what it
    is made of, where it is one of `constructs()`; that takes a search tree and numbers instead."""

    source: str
    constructs: tuple[str, ...] = ()

    @cached_property
    def function(self) -> Batched[..., Any]:
        """Its entry, batched over trees. The first parameter is shared."""
        return load(self.source)

    @staticmethod
    def parameters() -> dict[str, Any]:
        """The shared argument: a number `w`, a vector `b` and a matrix `W`."""
        rng = np.random.default_rng(3)
        return {"w": np.float64(0.75), "b": rng.normal(size=3), "W": rng.normal(size=(3, 3))}

    def __repr__(self) -> str:
        return f"Program:\n{self.source}"


_numbers = itertools.count()


def load(source: str) -> Batched[..., Any]:
    """The function `main` of a module that is no file: the compiler finds its text as debuggers do."""
    name = f"<drawn program {next(_numbers)}>"
    module = types.ModuleType(name)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), module.__dict__)
    main: Batched[..., Any] = module.__dict__["main"]
    weakref.finalize(main, linecache.cache.pop, name, None)
    return main


def programs(
    *,
    numeric: bool = False,
    recursion: bool = False,
    small: bool = False,
    memory: Collection[str] = (),
    computed: Collection[str] = ("lists",),
    numbers: bool = False,
) -> st.SearchStrategy[Program]:
    """A strategy of random programs: recursion over trees, nested loops and branches, early exits, comprehensions,
    numbers, small arrays, lists and strings.

    `numeric`: conditions and numbers of turns may depend on computed numbers, not on structure alone. `recursion`: so
    may calls; that is a part of `numeric`. `small`: one function of one or two statements, which compile quickly.
    `memory`: what programs make, alias, change and read for themselves, of "lists", "inner" (lists in lists that are
    changed where they stand), "queues", "dicts", "tallies" (sets and counters), "objects" and "strings". `computed`:
    those of them that are changed where computed numbers decide, too. `numbers`: the results are numbers and arrays
    alone, as machine code returns them.

        @given(program=programs(), batch=st.lists(trees(), min_size=2, max_size=2))
        def test_agreement(program, batch):
            check_equivalence(program.function, batch, (program.parameters(),))
    """

    def written(draw: Any) -> Program:
        of_numbers = numeric or recursion
        writer = (
            MemoryWriter(draw, of_numbers, recursion, small, memory, computed)
            if memory
            else StatementWriter(draw, of_numbers, recursion, small)
        )
        writer.numbers = numbers
        return Program(writer.program())

    return st.composite(written)()


def constructs(*wanted: str) -> st.SearchStrategy[Program]:
    """A strategy of small programs of what Python decides in a way of its own (`CONSTRUCTS`; all of them where none is
    named). They take `parameters()`, a `search_tree()`, and columns of `numbers()`."""

    def written(draw: Any) -> Program:
        writer = ConstructWriter(draw, wanted or tuple(CONSTRUCTS))
        source = writer.program()
        return Program(source, tuple(sorted(writer.used)))

    return st.composite(written)()


def search_tree() -> Spot:
    """What programs of `constructs()` walk through, shared by all examples."""
    low = Spot(-0.5, 1, Spot(-1.25, 3), Spot(0.0, 2))
    return Spot(0.25, 4, low, Spot(1.0, 0, None, Spot(2.0, 1)))


Numbers = tuple[list[float], float, float, int]
"""An example of programs of `constructs()`."""


def numbers(size: int = 6) -> st.SearchStrategy[list[Numbers]]:
    """Batches for programs of `constructs()`: ordinary numbers, and those where Python raises, ties or keeps a sign."""
    special = st.one_of(st.sampled_from(SPECIAL), _FLOATS)
    elements = st.one_of(_FLOATS, _FLOATS, special)
    rows = st.tuples(st.lists(elements, max_size=3), special, special, st.integers(-2, 5))
    plain: list[Numbers] = [([0.5, -0.25], 0.375, -1.125, 1), ([], 0.0, -0.0, 2)]
    return st.lists(rows, min_size=size - 2, max_size=size - 2).map(lambda made: [*plain, *made])


_VECTORS = st.lists(_FLOATS, min_size=3, max_size=3).map(np.array)


@st.composite
def trees(draw: Any, nodes: int = 4) -> Tree:
    """A strategy of data for random programs: trees of at most so many nodes."""

    def node() -> Tree:
        lists = draw(st.lists(_FLOATS, max_size=2)), draw(st.lists(st.integers(-2, 5), max_size=2))
        return Tree(draw(_FLOATS), draw(st.integers(-2, 5)), draw(st.sampled_from("abc")), draw(_VECTORS), [], *lists)

    made = [node()]
    for _ in range(draw(st.integers(0, nodes - 1))):
        one, above = node(), draw(st.sampled_from(made))
        if above.next is None and draw(st.booleans()):
            above.next = one
        else:
            above.kids.append(one)
        made.append(one)
    return made[0]


def typical_tree() -> Tree:
    """A tree that has something in every field: with it, the types of a batch do not depend on what is drawn."""
    leaf = Tree(-0.5, 1, "b", np.array([0.5, -1.0, 0.25]), [], [0.5], [3, -1])
    other = Tree(0.75, 4, "c", np.array([1.0, 0.0, -0.25]), [leaf], [], [], leaf)
    return Tree(0.25, 2, "a", np.array([0.0, 2.0, 1.0]), [leaf, other], [0.25, -0.5], [1, 2], other)


def batches(size: int = 4) -> st.SearchStrategy[list[Tree]]:
    """Batches for random programs: a typical tree, drawn ones, and one of them twice."""
    drawn = st.lists(trees(), min_size=size - 2, max_size=size - 2)
    return drawn.map(lambda made: [typical_tree(), *made, made[0]])
