"""Random per-example programs, as Python source: recursion up and down, loops, branches and comprehensions over trees.

A drawn program is a module with functions `f0`, `f1`, ... that call each other on children, and an entry `main`. All
control depends on structure alone; numbers stay bounded, so batched and plain results agree to 1e-9.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.properties.strategies import floats


@dataclass
class Tree:
    """Data of random programs: something of every kind that a field can hold."""

    x: float
    n: int
    tag: str
    v: np.ndarray
    kids: list[Tree] = field(default_factory=list)
    xs: list[float] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    next: Tree | None = None


HEADER = '''
"""A drawn program."""

import jax.numpy as jnp

import autobatch as ab


def size(t):
    total = 1
    for c in t.kids:
        total += size(c)
    return total if t.next is None else total + size(t.next)


def mix(x, v):
    return jnp.tanh(x * v) + v * 0.5

'''

NUMBER, VECTOR, INTEGER = "number", "vector", "integer"
PARAMETERS = {"a": VECTOR, "x": NUMBER, "k": INTEGER}


@dataclass(frozen=True)
class Scope:
    """Variables by kind, nodes that are not None, how deep in loops code stands, whether it may return early."""

    variables: dict[str, str]
    nodes: tuple[str, ...] = ("t",)
    loops: int = 0
    returns: bool = True

    def of(self, kind: str) -> list[str]:
        return [name for name, k in self.variables.items() if k == kind]

    def with_(self, name: str, kind: str) -> Scope:
        return replace(self, variables={**self.variables, name: kind})

    def node(self, name: str) -> Scope:
        return replace(self, nodes=(*self.nodes, name))

    def inside(self) -> Scope:
        return replace(self, loops=self.loops + 1)


class Writer:
    """Draws the source of one program."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.functions = 0
        self.names = 0

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == 0)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # ---- expressions

    def number(self, s: Scope, depth: int = 2) -> str:
        t = self.pick(s.nodes)
        simple = [*s.of(NUMBER), f"{t}.x", 'p["w"]', "0.5", 'p["b"][1]', f"{t}.x // 0.5"]
        simple += [f"{t}.x % 0.75", f"{t}.x ** 2", f"round({t}.x, 1)", f"{t}.n / 4"]
        if depth == 0:
            return str(self.pick(simple))
        x, y = (lambda: self.number(s, depth - 1)), (lambda: self.number(s, depth - 1))
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
            lambda: f"sum([{self.number(inner, 0)} for {c} in {t}.kids if {self.boolean(inner, 0)}], {x()})",
            lambda: f"max([{self.number(inner, 0)} for {c} in {t}.kids], default={x()})",
            lambda: f"sum([{y()} * {c} for {c} in {t}.xs])",
        ]
        return str(self.pick(forms)())

    def vector(self, s: Scope, depth: int = 2) -> str:
        t = self.pick(s.nodes)
        simple = [*s.of(VECTOR), 'p["b"]', f"{t}.v", f'p["W"][{t}.n % 3]', f'p["W"] @ p["W"][{t}.n % 3]']
        if depth == 0:
            return str(self.pick(simple))
        v, w = (lambda: self.vector(s, depth - 1)), (lambda: self.vector(s, depth - 1))
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
        return str(self.pick(forms)())

    def integer(self, s: Scope, depth: int = 2) -> str:
        t = self.pick(s.nodes)
        simple = [*s.of(INTEGER), f"{t}.n", "1", "2", f"len({t}.kids)", f"len({t}.xs)", f"size({t})", f"int({t}.x)"]
        if depth == 0:
            return str(self.pick(simple))
        i, j = (lambda: self.integer(s, depth - 1)), (lambda: self.integer(s, depth - 1))
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: f"({i()} + {j()}) % 11",
            lambda: f"({i()} * {j()}) % 7",
            lambda: f"({i()} - {j()}) // 2",
            lambda: f"min({i()}, {j()})",
            lambda: f"({i()} if {self.boolean(s, depth - 1)} else {j()})",
            lambda: f"sum([{self.integer(inner, 0)} for {c} in {t}.kids])",
            lambda: f"len([{c} for {c} in {t}.ns if {c} > {i()}])",
        ]
        return str(self.pick(forms)())

    def boolean(self, s: Scope, depth: int = 1) -> str:
        t = self.pick(s.nodes)
        simple = [f"{t}.x > 0.25", f'{t}.tag == "a"', f"{t}.next is None", f"len({t}.kids) > 1", f"{t}.n % 2 == 0"]
        simple += [f"{i} < 3" for i in s.of(INTEGER)]
        if depth == 0:
            return str(self.pick(simple))
        b, d = (lambda: self.boolean(s, depth - 1)), (lambda: self.boolean(s, depth - 1))
        c = self.fresh("c")
        inner = s.node(c)
        forms = [
            lambda: self.pick(simple),
            lambda: f"not ({b()})",
            lambda: f"({b()} and {d()})",
            lambda: f"({b()} or {d()})",
            lambda: f"{self.integer(s, 0)} < {self.integer(s, 0)}",
            lambda: f"any([{self.boolean(inner, 0)} for {c} in {t}.kids])",
            lambda: f"all([{self.boolean(inner, 0)} for {c} in {t}.kids])",
        ]
        return str(self.pick(forms)())

    def value(self, kind: str, s: Scope, depth: int = 2) -> str:
        return {NUMBER: self.number, VECTOR: self.vector, INTEGER: self.integer}[kind](s, depth)

    def bounded(self, kind: str, s: Scope, old: str = "") -> str:
        """A value that may be assigned again and again without growing; mostly one that depends on `old`."""
        text = self.value(kind, s)
        if old and not self.chance(4):
            text = f"{old} + {text}"
        return f"({text}) % 13" if kind == INTEGER else f"jnp.tanh({text})"

    # ---- statements: lines, without indentation

    def statements(self, s: Scope, count: int, depth: int) -> tuple[list[str], Scope]:
        lines: list[str] = []
        for _ in range(count):
            more, s = self.statement(s, depth)
            lines += more
        return lines, s

    def statement(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        simple = [self.new, self.update, self.update]
        nested = [self.branch, self.children, self.counted, self.elements, self.appended, self.following, self.waiting]
        nested += [self.chosen, self.matched, self.by_index, self.nested_lists, self.searched]
        if self.functions:
            simple += [self.call_next]
            nested += [self.children, self.collected, self.chained]
        found: tuple[list[str], Scope] = self.pick(simple + (nested if depth else []))(s, depth)
        return found

    def new(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        kind = self.pick([NUMBER, VECTOR, INTEGER])
        name = self.fresh(kind[0])
        return [f"{name} = {self.value(kind, s)}"], s.with_(name, kind)

    def update(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        name = self.pick(s.variables)
        return [f"{name} = {self.bounded(s.variables[name], s, name)}"], s

    def block(self, s: Scope, depth: int, most: int = 2) -> list[str]:
        lines, _ = self.statements(s, self.draw(st.integers(1, most)), depth - 1)
        return ["    " + line for line in lines]

    def branch(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        lines = [f"if {self.boolean(s)}:", *self.block(s, depth)]
        if self.chance(3):
            lines += [f"elif {self.boolean(s)}:", *self.block(s, depth)]
        if self.chance(2):
            lines += ["else:", *self.block(s, depth)]
        if s.returns and not s.loops and self.chance(3):
            lines += [f"if {self.boolean(s)}:", f"    return {self.result(s)}"]
        return lines, s

    def leave(self, s: Scope) -> list[str]:
        """Perhaps leave a loop, or a turn."""
        if self.chance(2):
            return []
        word = self.pick(["continue", "break"])
        return [f"    if {self.boolean(s)}:", f"        {word}"]

    def children(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        c, t = self.fresh("c"), self.pick(s.nodes)
        inner = s.inside().node(c)
        lines = [f"for {c} in {t}.kids:"]
        if self.chance(3):
            i = self.fresh("i")
            inner = inner.with_(i, INTEGER)
            lines = [f"for {i}, {c} in enumerate({t}.kids):"]
        lines += self.leave(inner)
        if self.functions and s.loops == 0:
            lines += ["    " + line for line in self.call(inner, c)]
        return lines + self.block(inner, depth), s

    def call(self, s: Scope, node: str) -> list[str]:
        """A call on a child; its results go to variables that exist."""
        names = [self.pick(s.of(k)) for k in PARAMETERS.values()]
        args = ", ".join(self.pick([name, self.value(k, s, 1)]) for name, k in PARAMETERS.items())
        return [f"{', '.join(names)} = f{self.draw(st.integers(0, self.functions - 1))}(p, {node}, {args})"]

    def call_next(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        t = self.pick(s.nodes)
        if s.loops:
            return self.update(s, depth)
        return [f"if {t}.next is not None:", *("    " + line for line in self.call(s, f"{t}.next"))], s

    def collected(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """Calls in a comprehension."""
        if s.loops:
            return self.update(s, depth)
        c, t, r, x = self.fresh("c"), self.pick(s.nodes), self.fresh("r"), self.fresh("n")
        args = ", ".join(self.value(k, s.node(c), 1) for k in PARAMETERS.values())
        test = f" if {self.boolean(s.node(c), 0)}" if self.chance(3) else ""
        call = f"f{self.draw(st.integers(0, self.functions - 1))}(p, {c}, {args})"
        lines = [f"{r} = [{call} for {c} in {t}.kids{test}]", f"{x} = sum([q[1] for q in {r}])"]
        return lines, s.with_(x, NUMBER)

    def chained(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """What one call returns goes to the next call."""
        if s.loops:
            return self.update(s, depth)
        t, callee = self.pick(s.nodes), f"f{self.draw(st.integers(0, self.functions - 1))}"
        lines = [f"if len({t}.kids) > 1:", f"    a, x, k = {callee}(p, {t}.kids[0], a, x, k)"]
        lines += [
            f"    a = {self.bounded(VECTOR, s, 'a')}",
            f"    a, x, k = {callee}(p, {t}.kids[1], jnp.sin(a), x, k)",
        ]
        return [*lines, f"    a = jnp.cos(a * {self.number(s, 0)})"], s

    def counted(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        i = self.fresh("i")
        inner = s.inside().with_(i, INTEGER)
        return [f"for {i} in range({self.integer(s, 1)} % 3):", *self.leave(inner), *self.block(inner, depth)], s

    def elements(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        t, x, n = self.pick(s.nodes), self.fresh("n"), self.fresh("i")
        inner = s.inside()
        head, inner = self.pick(
            [
                (f"for {x} in {t}.xs:", inner.with_(x, NUMBER)),
                (f"for {x} in reversed({t}.xs):", inner.with_(x, NUMBER)),
                (f"for {n} in {t}.ns:", inner.with_(n, INTEGER)),
                (f"for {x}, {n} in zip({t}.xs, {t}.ns):", inner.with_(x, NUMBER).with_(n, INTEGER)),
            ]
        )
        return [head, *self.leave(inner), *self.block(inner, depth)], s

    def appended(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        out, c, t, x = self.fresh("out"), self.fresh("c"), self.pick(s.nodes), self.fresh("n")
        body = self.block(s.inside().node(c), 1, 1)
        lines = [f"{out} = []", f"for {c} in {t}.kids:", *body, f"    {out}.append({self.number(s.node(c), 1)})"]
        return [*lines, f"{x} = sum({out})"], s.with_(x, NUMBER)

    def following(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """Along `next`, by a while loop over nodes."""
        m = self.fresh("m")
        inner = s.inside().node(m)
        lines = [f"{m} = {self.pick(s.nodes)}", f"while {m}.next is not None:", f"    {m} = {m}.next"]
        return lines + self.block(inner, depth), s.node(m)

    def waiting(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """A while loop over an integer."""
        i = self.fresh("i")
        inner = s.inside()
        lines = [f"{i} = 0", f"while {i} < 1 + {self.integer(s, 0)} % 3:", f"    {i} = {i} + 1"]
        return lines + self.block(inner, depth), s.with_(i, INTEGER)

    def chosen(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """A list of nodes that the program makes, its length, and a loop over it."""
        ks, c, t, i = self.fresh("ks"), self.fresh("c"), self.pick(s.nodes), self.fresh("i")
        source = self.pick([f"{t}.kids", f"{t}.kids[1:]", f"reversed({t}.kids)", f"{t}.kids + {t}.kids"])
        inner = s.inside().node(c)
        lines = [f"{ks} = [{c} for {c} in {source} if {self.boolean(s.node(c), 1)}]", f"{i} = len({ks})"]
        lines += [f"for {c} in {ks}:", *self.leave(inner), *self.block(inner, depth)]
        return lines, s.with_(i, INTEGER)

    def matched(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        lines = [f"match {self.pick(s.nodes)}.tag:"]
        for case in ('"a"', '"b"', "_"):
            lines += [f"    case {case}:", *("    " + line for line in self.block(s, depth, 1))]
        return lines, s

    def by_index(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """Items by index, from the front and from the end, where there are some; a node of two."""
        m, t = self.fresh("m"), self.pick(s.nodes)
        index = self.pick(["0", "-1", f"{self.integer(s, 0)} % len({t}.kids)"])
        lines = [f"if {t}.kids:", f"    {m} = {t}.kids[{index}]", *self.block(s.node(m), depth)]
        if s.loops == 0 and self.functions and self.chance(2):
            lines += ["    " + line for line in self.call(s.node(m), m)]
        other = self.fresh("m")
        lines += [f"{other} = {t} if {self.boolean(s, 0)} or {t}.next is None else {t}.next"]
        return lines, s.node(other)

    def nested_lists(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """A list of lists, and a sum with two loops."""
        rows, c, d, t, n = self.fresh("rows"), self.fresh("c"), self.fresh("d"), self.pick(s.nodes), self.fresh("n")
        inner = s.node(c)
        lines = [f"{rows} = [[{self.number(inner, 0)} * {d} for {d} in {c}.xs] for {c} in {t}.kids]"]
        lines += [f"{n} = sum([sum({c}) for {c} in {rows}]) + len({rows})"]
        lines += [f"{n} = {n} + sum({d} * {self.number(inner, 0)} for {c} in {t}.kids for {d} in {c}.xs)"]
        return lines, s.with_(n, NUMBER)

    def searched(self, s: Scope, depth: int) -> tuple[list[str], Scope]:
        """A loop with an else, and what must hold."""
        i, c, t = self.fresh("i"), self.fresh("c"), self.pick(s.nodes)
        inner = s.inside().node(c)
        lines = [f"{i} = 0", f"for {c} in {t}.kids:", f"    if {self.boolean(inner)}:", "        break"]
        lines += [f"    {i} += 1", "else:", *self.block(s, depth, 1)]
        return [*lines, f'assert {i} <= len({t}.kids), f"{{{i}}} of {{len({t}.kids)}}"'], s.with_(i, INTEGER)

    # ---- functions

    def result(self, s: Scope) -> str:
        return ", ".join(self.bounded(k, s, name) for name, k in PARAMETERS.items())

    def function(self, name: str) -> list[str]:
        lines, s = self.statements(Scope(dict(PARAMETERS)), self.draw(st.integers(1, 4)), 2)
        head = f"def {name}(p, t, {', '.join(PARAMETERS)}):"
        return [head, *("    " + line for line in [*lines, f"return {self.result(s)}"]), "", ""]

    def program(self) -> str:
        self.functions = self.draw(st.integers(1, 2))
        lines = [line for k in range(self.functions) for line in self.function(f"f{k}")]
        s = Scope(dict(PARAMETERS), returns=False)
        lines += ["@ab.batched(in_axes=(None, 0))", "def main(p, t):", '    a, x, k = p["b"], t.x, 0']
        body, s = self.statements(s, self.draw(st.integers(0, 2)), 2)
        lines += ["    " + line for line in [*body, *self.call(s, "t")]]
        c = self.fresh("c")
        if self.chance(2):
            lines.append(f"    each = [{self.number(s.node(c), 1)} for {c} in t.kids]")
            lines.append(f'    return {{"state": ({self.result(s)}), "each": each, "tag": t.tag}}')
        else:
            lines.append(f"    return {self.result(s)}")
        return HEADER + "\n".join(lines) + "\n"


@st.composite
def programs(draw: Any) -> str:
    """The source of a program."""
    return Writer(draw).program()


vectors = st.lists(floats, min_size=3, max_size=3).map(np.array)


@st.composite
def data(draw: Any, nodes: int = 4) -> Tree:
    """A tree for random programs."""

    def node() -> Tree:
        lists = draw(st.lists(floats, max_size=2)), draw(st.lists(st.integers(-2, 5), max_size=2))
        return Tree(draw(floats), draw(st.integers(-2, 5)), draw(st.sampled_from("abc")), draw(vectors), [], *lists)

    made = [node()]
    for _ in range(draw(st.integers(0, nodes - 1))):
        one, above = node(), draw(st.sampled_from(made))
        if above.next is None and draw(st.booleans()):
            above.next = one
        else:
            above.kids.append(one)
        made.append(one)
    return made[0]


def covering() -> Tree:
    """An example that has something in every field, so that the types of a batch do not depend on what is drawn."""
    leaf = Tree(-0.5, 1, "b", np.array([0.5, -1.0, 0.25]), [], [0.5], [3, -1])
    other = Tree(0.75, 4, "c", np.array([1.0, 0.0, -0.25]), [leaf], [], [], leaf)
    return Tree(0.25, 2, "a", np.array([0.0, 2.0, 1.0]), [leaf, other], [0.25, -0.5], [1, 2], other)


@contextmanager
def loaded(source: str) -> Iterator[Any]:
    """The module of a source, from a file, where the front end can read it."""
    name = "drawn_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            yield module
        finally:
            del sys.modules[name]
