"""Random programs that make data of their own: lists, dicts, objects and strings, which they change, alias and read.

What they do with them stands in tables (`containers.py`); here rows are drawn and their names filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.containers import FEATURES, KINDS
from autobatch.testing.statements import Lines, StatementWriter
from autobatch.testing.writing import COUNT, INTEGER, NUMBER, DrawnScope

HEADER = """
import collections
from dataclasses import replace

from autobatch.testing.programs import Cell

WORDS = ("abca", "bb", "c", "")


def push(out, x):
    out.append(x * 0.5)
    return x + len(out)


def gather(t, out, x):
    out.append(jnp.tanh(t.x * x))
    for c in t.kids:
        gather(c, out, x)


def doubled(out):
    return [jnp.tanh(2 * e) for e in out]


def shift(cell, x):
    cell.value, cell.n = jnp.tanh(cell.value * 0.5 + x), (cell.n + 1) % 5


def walk(cell):
    total = 0.0
    for _ in range(4):
        if cell is not None:
            total, cell = total * 0.5 + cell.value, cell.next
    return total


def length(cell):
    n = 0
    while cell is not None and n < 9:
        n, cell = n + 1, cell.next
    return n

"""
_HIDDEN = {"numbers": {"rows", "grown"}, "rows": {"numbers"}}
"""What may hold a container that a loop walks through, under another name: nothing is changed there meanwhile."""


class _DrawnNames(dict[str, str]):
    """What stands for a name in braces: drawn where it is first met, then the same."""

    def __init__(self, draw: Callable[[str], str], **known: str) -> None:
        super().__init__(known)
        self.draw = draw

    def __missing__(self, field: str) -> str:
        self[field] = self.draw(field)
        return self[field]


class MemoryWriter(StatementWriter):
    """Draws programs that make containers. `features`: of which kinds (`FEATURES`). `free`: those that code may change
    where computed numbers decide that it runs."""

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        numeric: bool,
        recursion: bool,
        small: bool,
        features: Collection[str],
        free: Collection[str],
    ) -> None:
        super().__init__(draw, numeric, recursion, small)
        self.header += HEADER
        self.kinds = [kind for feature in features for kind in FEATURES[feature]]
        self.free = {kind for feature in free for kind in FEATURES[feature]}

    # ---- statements

    def statement(self, s: DrawnScope, depth: int) -> Lines:
        held = self.held(s)
        if not held and not s.loops and not s.masked and self.chance(2):
            return self.made(s, depth)
        if held and not self.chance(3):
            forms = [self.changed, self.changed, self.changed, self.read, self.made]
            found: Lines = self.pick(forms + ([self.walked, self.guarded] if depth else []))(s, depth)
            return found
        return super().statement(s, depth)

    def statements(self, s: DrawnScope, count: int, depth: int) -> Lines:
        """At least one container, where a function begins."""
        lines: list[str] = []
        if not self.held(s) and not s.loops and not s.masked and len(s.nodes) == 1:
            lines, s = self.made(s, depth)
        more, s = super().statements(s, count + bool(lines), depth)
        return lines + more, s

    def held(self, s: DrawnScope) -> list[str]:
        """The containers that code may change here."""
        return [v for v, kind in s.variables.items() if kind in KINDS and (kind in self.free or not s.masked)]

    def made(self, s: DrawnScope, depth: int) -> Lines:
        kind = self.pick(self.kinds)
        name = self.fresh(kind)
        return [f"{name} = {self.row(KINDS[kind].made, s)}"], s.with_(name, kind)

    def changed(self, s: DrawnScope, depth: int) -> Lines:
        name = self.pick(self.held(s))
        kind = KINDS[s.variables[name]]
        return self.row(kind.changes + (kind.computed if self.numeric else ()), s, name).split("\n"), s

    def read(self, s: DrawnScope, depth: int) -> Lines:
        """A variable becomes what a container says; perhaps an example fails there."""
        name, target = self.pick(self.held(s)), self.pick(s.of(NUMBER))
        kind = KINDS[s.variables[name]]
        forms = kind.fails if kind.fails and self.chance(8) else kind.numbers
        return [f"{target} = jnp.tanh({target} + {self.row(forms or ('0.5',), s, name)})"], s

    def walked(self, s: DrawnScope, depth: int) -> Lines:
        """A loop over a container."""
        name = self.pick(self.held(s))
        kind = s.variables[name]
        if not KINDS[kind].loops or s.loops > 1:
            return self.changed(s, depth)
        loop = self.pick(KINDS[kind].loops)
        names = _DrawnNames(partial(self.drawn, s, name, 1), v=name)
        head = loop.head.format_map(names)
        computed = self.numeric and kind in self.free
        hidden = {kind} | _HIDDEN.get(kind, set())
        seen = {v: k for v, k in s.variables.items() if loop.changes or k not in hidden}
        inner = replace(s, variables=seen).inside().under(computed)
        for field, of in loop.names.items():
            inner = inner.with_(names[field], COUNT if of == INTEGER and computed else of)
        return self.body(head, s, inner, depth)

    def guarded(self, s: DrawnScope, depth: int) -> Lines:
        """Changes behind a condition that a container decides."""
        name = self.pick(self.held(s))
        conditions = KINDS[s.variables[name]].conditions
        if not conditions:
            return self.changed(s, depth)
        computed = self.numeric and s.variables[name] in self.free
        lines = [f"if {self.row(conditions, s, name)}:", *self.block(s.under(computed), depth)]
        if self.chance(2):
            lines += ["else:", *self.block(s.under(computed), depth)]
        return lines, s

    def results(self, s: DrawnScope) -> list[str]:
        """Containers as results, in programs where structure decides how many elements they have."""
        if self.numeric or not self.chance(3):
            return []
        return [name for name, kind in s.variables.items() if kind in KINDS and kind not in ("seen", "queue")]

    # ---- expressions that read containers

    def number(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("numbers", s, depth) or super().number(s, depth)

    def vector(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("vectors", s, depth) or super().vector(s, depth)

    def integer(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("integers", s, depth, structural=True) or super().integer(s, depth)

    def count(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("integers", s, depth) or super().count(s, depth)

    def structural(self, s: DrawnScope, depth: int = 1) -> str:
        return self.of_containers("conditions", s, depth, structural=True) or super().structural(s, depth)

    def computed(self, s: DrawnScope, depth: int) -> str:
        return self.of_containers("conditions", s, depth) or super().computed(s, depth)

    def of_containers(self, forms: str, s: DrawnScope, depth: int, structural: bool = False) -> str:
        """Sometimes an expression that reads a container; structural ones read those that structure decides alone."""
        decided = self.free if structural and self.numeric else set()
        held = [
            (name, rows)
            for name, kind in s.variables.items()
            if kind in KINDS and kind not in decided and (rows := getattr(KINDS[kind], forms))
        ]
        if depth == 0 or not held or not self.chance(3):
            return ""
        name, rows = self.pick(held)
        return f"({self.row(rows, s, name, depth - 1)})"

    # ---- rows of the tables

    def row(self, rows: tuple[str, ...], s: DrawnScope, name: str = "", depth: int = 1) -> str:
        """One of them, its names filled in by expressions so deep."""
        return self.pick(rows).format_map(_DrawnNames(partial(self.drawn, s, name, depth), v=name))

    def drawn(self, s: DrawnScope, name: str, depth: int, field: str) -> str:
        if field.startswith("its_"):
            return self.pick(s.of(field.removeprefix("its_")) or [self.fresh(field)])
        if field in KINDS:
            there = s.of(field)
            return self.pick(there) if there and not self.chance(3) else self.row(KINDS[field].made, s, depth=0)
        draw: dict[str, Callable[[], str]] = {
            "w": lambda: self.pick(s.of(s.variables[name])),
            "x": lambda: f"jnp.tanh({self.number(s, depth)})",
            "y": partial(self.number, s, 0),
            "a": lambda: f"jnp.tanh({self.vector(s, depth)})",
            "i": lambda: self.count(s, 0) if self.numeric and s.masked else self.integer(s, 0),
            "k": partial(self.integer, s, 0),
            "b": partial(self.structural, s, 0),
            "B": partial(self.boolean, s, 0),
            "n": lambda: self.pick(s.of(NUMBER)),
            "t": lambda: self.pick(s.nodes),
        }
        return draw[field]() if field in draw else self.fresh(field)
