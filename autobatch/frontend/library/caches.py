"""What one lowering knows of functions under `functools.cache` (`functions.py`)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from autobatch.errors import Span


@dataclass(frozen=True)
class Cached:
    """A function under such a decorator: where it stands, and how many results are kept; None: all of them."""

    place: Span
    bound: int | None


@dataclass
class Caches:
    """`known`: by their texts. `remembered`: where those stand whose results are kept in a dict; `exact`: which are so
    because it matters how often they run. `owners`: the functions, by their texts, with the names of such dicts that
    are variables of them; None: of the example. `beginnings`: the statements that make such dicts, by name; `written`:
    the functions that use them."""

    known: dict[ast.AST, Cached] = field(default_factory=dict)
    remembered: set[Span] = field(default_factory=set)
    exact: set[Span] = field(default_factory=set)
    owners: set[tuple[ast.AST | None, str]] = field(default_factory=set)
    beginnings: dict[str, ast.Assign] = field(default_factory=dict)
    written: set[ast.AST] = field(default_factory=set)

    def run_with_effect(self, functions: Iterable[ast.AST]) -> bool:
        """Note that it matters how often functions run. Was that new of one?"""
        found = {self.known[f].place for f in functions if f in self.known} - self.exact
        self.exact |= found
        self.remembered |= found
        return bool(found)

    @property
    def left_out(self) -> frozenset[Span]:
        """Where decorators stand that are left out."""
        return frozenset(x.place for x in self.known.values()) - self.remembered
