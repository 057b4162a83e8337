"""Expressions of random programs: numbers, vectors, integers and conditions over trees, as Python source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st

NUMBER, VECTOR, INTEGER, COUNT = "number", "vector", "integer", "count"
"""Kinds of variables. An integer depends on structure alone; a count is an integer that computed numbers decided."""
SCALARS = (NUMBER, VECTOR, COUNT, INTEGER)
"""Those that stand for themselves; the others are containers (`containers.py`)."""
PARAMETERS = {"a": VECTOR, "x": NUMBER, "k": INTEGER}
"""What every drawn function takes behind the shared arguments and a tree, and returns."""

T = TypeVar("T")


@dataclass(frozen=True)
class DrawnScope:
    """Variables by kind, nodes that are not None, how deep in loops code stands, whether it may return early, and
    whether computed numbers decide that it runs: there no integer is assigned that code outside reads."""

    variables: dict[str, str]
    nodes: tuple[str, ...] = ("t",)
    loops: int = 0
    returns: bool = True
    masked: bool = False

    def of(self, kind: str) -> list[str]:
        """The variables of a kind."""
        return [name for name, k in self.variables.items() if k == kind]

    def with_(self, name: str, kind: str) -> DrawnScope:
        """The scope with one more variable."""
        return replace(self, variables={**self.variables, name: kind})

    def node(self, name: str) -> DrawnScope:
        """The scope with one more node."""
        return replace(self, nodes=(*self.nodes, name))

    def inside(self) -> DrawnScope:
        """The scope of a loop's body."""
        return replace(self, loops=self.loops + 1)

    def under(self, computed: bool) -> DrawnScope:
        """The scope of code behind a condition, which may be one on computed numbers."""
        return replace(self, masked=self.masked or computed)

    def assignable(self) -> list[str]:
        """The variables that code may assign here."""
        kinds = SCALARS[: 3 if self.masked else 4]
        return [name for name, kind in self.variables.items() if kind in kinds]


class Expressions:
    """Draws expressions. `numeric`: conditions may depend on computed numbers. `deepest`: how deep those are that stand
    in statements by themselves."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], numeric: bool = False, deepest: int = 2) -> None:
        self.draw, self.numeric, self.deepest = draw, numeric, deepest
        self.names = 0

    def pick(self, items: Iterable[T]) -> T:
        """One of these; the first is the simplest."""
        chosen: T = self.draw(st.sampled_from(list(items)))
        return chosen

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == 0)

    def fresh(self, prefix: str) -> str:
        """A name that the program does not use yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def number(self, s: DrawnScope, depth: int = 2) -> str:
        """A float: of the data, a parameter, or computed."""
        t = self.pick(s.nodes)
        simple = [*s.of(NUMBER), f"{t}.x", 'p["w"]', "0.5", 'p["b"][1]', f"{t}.x // 0.5"]
        simple += [f"{t}.x % 0.75", f"{t}.x ** 2", f"round({t}.x, 1)", f"{t}.n / 4"]
        simple += [f"{q} / 8" for q in s.of(COUNT)]
        if depth == 0:
            return self.pick(simple)
        x = y = partial(self.number, s, depth - 1)
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: self.pick(simple),
            lambda: f"jnp.tanh({x()} + {y()})",
            lambda: f"({x()} * {y()})",
            lambda: f"({x()} - {y()})",
            lambda: f"({x()} if {self.boolean(s, depth - 1)} else {y()})",
            lambda: f"jnp.sin({self.vector(s, depth - 1)}).sum()",
            lambda: f"({self.vector(s, 0)} @ {self.vector(s, 0)})",
            lambda: f"max({x()}, {y()})",
            lambda: f"abs({x()})",
            lambda: f"float({self.integer(s, depth - 1)})",
            lambda: f'{{"a": {x()}, "b": {y()}, "c": 0.25}}[{t}.tag]',
            lambda: f"sum([{self.number(inner, depth - 1)} for {c} in {t}.kids])",
            lambda: f"sum([{self.number(inner, 0)} for {c} in {t}.kids if {self.structural(inner, 0)}], {x()})",
            lambda: f"max([{self.number(inner, 0)} for {c} in {t}.kids], default={x()})",
            lambda: f"sum([{y()} * {c} for {c} in {t}.xs])",
        ]
        return self.pick(forms)()

    def vector(self, s: DrawnScope, depth: int = 2) -> str:
        """Three floats."""
        t = self.pick(s.nodes)
        simple = [*s.of(VECTOR), 'p["b"]', f"{t}.v", f'p["W"][{t}.n % 3]', f'p["W"] @ p["W"][{t}.n % 3]']
        if depth == 0:
            return self.pick(simple)
        v = w = partial(self.vector, s, depth - 1)
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: f'jnp.tanh(p["W"] @ {v()})',
            lambda: f"jnp.sin({v()} + {w()})",
            lambda: f"({v()} * {self.number(s, depth - 1)})",
            lambda: f"mix({self.number(s, depth - 1)}, {v()})",
            lambda: f"({v()} if {self.boolean(s, depth - 1)} else {w()})",
            lambda: f"sum([{self.vector(inner, 0)} for {c} in {t}.kids], {v()})",
        ]
        return self.pick(forms)()

    def integer(self, s: DrawnScope, depth: int = 2) -> str:
        """An integer that depends on structure alone."""
        t = self.pick(s.nodes)
        simple = [*s.of(INTEGER), f"{t}.n", "1", "2", f"len({t}.kids)", f"len({t}.xs)", f"size({t})", f"int({t}.x)"]
        if depth == 0:
            return self.pick(simple)
        i = j = partial(self.integer, s, depth - 1)
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: f"({i()} + {j()}) % 11",
            lambda: f"({i()} * {j()}) % 7",
            lambda: f"({i()} - {j()}) // 2",
            lambda: f"min({i()}, {j()})",
            lambda: f"({i()} if {self.structural(s, depth - 1)} else {j()})",
            lambda: f"sum([{self.integer(inner, 0)} for {c} in {t}.kids])",
            lambda: f"len([{c} for {c} in {t}.ns if {c} > {i()}])",
        ]
        return self.pick(forms)()

    def boolean(self, s: DrawnScope, depth: int = 1) -> str:
        """A condition; with `numeric`, perhaps on computed numbers."""
        return self.condition(s, depth)[0]

    def condition(self, s: DrawnScope, depth: int = 1) -> tuple[str, bool]:
        """A condition, and whether it is one on computed numbers."""
        if self.numeric and self.chance(2):
            return self.computed(s, depth), True
        return self.structural(s, depth), False

    def computed(self, s: DrawnScope, depth: int) -> str:
        """A condition on computed numbers. Thresholds that no draw meets exactly: there is one slope on each side."""
        x = self.number(s, min(depth, 1))
        simple = [f"{x} > 0.1037", f"{x} < -0.3071", f"({self.vector(s, 0)}).sum() > 0.2113"]
        if depth == 0:
            return self.pick(simple)
        y = self.number(s, 0)
        forms = [
            lambda: self.pick(simple),
            lambda: f"abs({y}) > 0.0173 and {x} / {y} > 0.7019",  # a difference is 0 here and 1e-17 there
            lambda: f"({self.structural(s, 0)} and {self.pick(simple)})",
            lambda: f"({self.pick(simple)} or {self.structural(s, 0)})",
            lambda: f"not {x} > 0.4051",
        ]
        return self.pick(forms)()

    def structural(self, s: DrawnScope, depth: int = 1) -> str:
        """A condition that depends on structure alone."""
        t = self.pick(s.nodes)
        simple = [f"{t}.x > 0.25", f'{t}.tag == "a"', f"{t}.next is None", f"len({t}.kids) > 1", f"{t}.n % 2 == 0"]
        simple += [f"{i} < 3" for i in s.of(INTEGER)]
        if depth == 0:
            return self.pick(simple)
        b = d = partial(self.structural, s, depth - 1)
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: f"not ({b()})",
            lambda: f"({b()} and {d()})",
            lambda: f"({b()} or {d()})",
            lambda: f"{self.integer(s, 0)} < {self.integer(s, 0)}",
            lambda: f"any([{self.structural(inner, 0)} for {c} in {t}.kids])",
            lambda: f"all([{self.structural(inner, 0)} for {c} in {t}.kids])",
        ]
        return self.pick(forms)()

    def value(self, kind: str, s: DrawnScope, depth: int | None = None) -> str:
        """An expression of a kind."""
        of_kind = {NUMBER: self.number, VECTOR: self.vector, INTEGER: self.integer, COUNT: self.count}[kind]
        return of_kind(s, self.deepest if depth is None else depth)

    def count(self, s: DrawnScope, depth: int = 2) -> str:
        """An integer that depends on computed numbers."""
        x, i = self.number(s, min(depth, 1)), self.integer(s, 0)
        return self.pick([*s.of(COUNT), f"int(abs({x}) * 2.9)", f"({i} if {self.computed(s, 0)} else 1)"])

    def bounded(self, kind: str, s: DrawnScope, old: str = "") -> str:
        """A value that may be assigned again and again without growing; mostly one that depends on `old`."""
        text = self.value(kind, s)
        if old and not self.chance(4):
            text = f"{old} + {text}"
        return f"({text}) % 13" if kind in (INTEGER, COUNT) else f"jnp.tanh({text})"
