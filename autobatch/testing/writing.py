"""Expressions of random programs: numbers, vectors, integers and conditions over trees, as Python source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st

NUMBER, VECTOR, INTEGER, COUNT = "number", "vector", "integer", "count"
"""Kinds of variables. An integer depends on structure alone; a count is a data-dependent integer."""
SCALARS = (NUMBER, VECTOR, COUNT, INTEGER)
"""Those that stand for themselves; the others are containers (`memory.py`)."""
PARAMETERS = {"a": VECTOR, "x": NUMBER, "k": INTEGER}
"""What every drawn function takes behind the shared arguments and a tree, and returns."""

T = TypeVar("T")


@dataclass(frozen=True)
class DrawnScope:
    """Variables by kind, nodes that are not None, how deep in loops code stands, whether it may return early, and
    is it data-dependent whether it runs? There no integer is assigned that code outside reads."""

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


# ---- statements
#
# Statements and functions of random programs, as Python source: nested control flow, early exits, recursion.


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

Lines = tuple[list[str], DrawnScope]


class StatementWriter(Expressions):
    """Draws the source of one program. `recursion`: calls stand behind conditions on computed numbers too. `small`: a
    function of one or two statements. `numbers`: its results are numbers and arrays alone."""

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        numeric: bool = False,
        recursion: bool = False,
        small: bool = False,
    ) -> None:
        super().__init__(draw, numeric, 1 if small else 2)
        self.recursion, self.small = recursion, small
        self.functions = 0
        self.header = HEADER
        self.numbers = False

    def may_call(self, s: DrawnScope, loops: int = 0) -> bool:
        """Calls stand in so many loops at most: an example runs through few activations."""
        return self.functions > 0 and s.loops <= loops and (self.recursion or not s.masked)

    # ---- statements: lines, without indentation

    def statements(self, s: DrawnScope, count: int, depth: int) -> Lines:
        lines: list[str] = []
        for _ in range(count):
            more, s = self.statement(s, depth)
            lines += more
        return lines, s

    def statement(self, s: DrawnScope, depth: int) -> Lines:
        simple = [self.new, self.update, self.update]
        nested = [self.branch, self.children, self.counted, self.elements, self.appended, self.following, self.waiting]
        nested += [self.chosen, self.matched, self.by_index, self.nested_lists, self.searched]
        if self.numeric:
            nested += [self.computed_while, self.computed_range]
        if self.may_call(s):
            simple += [self.call_next]
            nested += [self.children, self.collected, self.chained]
        found: Lines = self.pick(simple + (nested if depth else []))(s, depth)
        return found

    def new(self, s: DrawnScope, depth: int) -> Lines:
        kind = self.pick([NUMBER, VECTOR, INTEGER, *([COUNT] if self.numeric else [])])
        name = self.fresh({COUNT: "q"}.get(kind, kind[0]))
        return [f"{name} = {self.value(kind, s)}"], s.with_(name, kind)

    def update(self, s: DrawnScope, depth: int) -> Lines:
        name = self.pick(s.assignable())
        return [f"{name} = {self.bounded(s.variables[name], s, name)}"], s

    def block(self, s: DrawnScope, depth: int, most: int = 2) -> list[str]:
        lines, _ = self.statements(s, self.draw(st.integers(1, most)), depth - 1)
        return ["    " + line for line in lines]

    def branch(self, s: DrawnScope, depth: int) -> Lines:
        test, computed = self.condition(s)
        lines = [f"if {test}:", *self.block(s.under(computed), depth)]
        if self.chance(3):
            test, also = self.condition(s)
            computed |= also
            lines += [f"elif {test}:", *self.block(s.under(computed), depth)]
        if self.chance(2):
            lines += ["else:", *self.block(s.under(computed), depth)]
        if s.returns and not s.loops and self.chance(3):
            test, computed = self.condition(s)
            lines += [f"if {test}:", f"    return {self.result(s)}"]
            s = s.under(computed)
        return lines, s

    def leave(self, s: DrawnScope) -> Lines:
        """Perhaps leave a loop, or a turn, or the function; what follows runs under that condition."""
        if self.chance(2):
            return [], s
        words = ["continue", "break"]
        if s.returns:
            words.append(f"return {self.result(s)}")
        test, computed = self.condition(s)
        return [f"    if {test}:", f"        {self.pick(words)}"], s.under(computed)

    def body(self, head: str, s: DrawnScope, inner: DrawnScope, depth: int) -> Lines:
        """A loop with a body that may be left early."""
        leave, after = self.leave(inner)
        return [head, *leave, *self.block(after, depth)], self.behind(s, leave, after)

    def behind(self, s: DrawnScope, leave: list[str], after: DrawnScope) -> DrawnScope:
        """The scope behind a loop, in which the function may have returned."""
        return s.under(after.masked and any("return" in line for line in leave))

    def children(self, s: DrawnScope, depth: int) -> Lines:
        c, t = self.fresh("c"), self.pick(s.nodes)
        inner = s.inside().node(c)
        head = f"for {c} in {t}.kids:"
        if self.chance(3):
            i = self.fresh("i")
            inner = inner.with_(i, INTEGER)
            head = f"for {i}, {c} in enumerate({t}.kids):"
        leave, after = self.leave(inner)
        lines = [head, *leave]
        if self.may_call(after, 1):
            lines += ["    " + line for line in self.call(inner, c)]
        return lines + self.block(after, depth), self.behind(s, leave, after)

    def call(self, s: DrawnScope, node: str) -> list[str]:
        """A call on a child; its results go to variables that exist. With `numeric` the integer is a count."""
        names = [self.pick(s.of(k)) for k in PARAMETERS.values() if k != INTEGER or not self.numeric]
        lines = []
        if self.numeric:
            counts = s.of(COUNT)
            names.append(self.pick(counts) if counts else self.fresh("q"))
        args = ", ".join(self.pick([name, self.value(k, s, 1)]) for name, k in PARAMETERS.items())
        lines += [f"{', '.join(names)} = f{self.draw(st.integers(0, self.functions - 1))}(p, {node}, {args})"]
        return lines

    def call_next(self, s: DrawnScope, depth: int) -> Lines:
        t = self.pick(s.nodes)
        return [f"if {t}.next is not None:", *("    " + line for line in self.call(s, f"{t}.next"))], s

    def collected(self, s: DrawnScope, depth: int) -> Lines:
        """Calls in a comprehension."""
        c, t, r, x = self.fresh("c"), self.pick(s.nodes), self.fresh("r"), self.fresh("n")
        args = ", ".join(self.value(k, s.node(c), 1) for k in PARAMETERS.values())
        test = f" if {self.structural(s.node(c), 0)}" if self.chance(3) else ""
        call = f"f{self.draw(st.integers(0, self.functions - 1))}(p, {c}, {args})"
        lines = [f"{r} = [{call} for {c} in {t}.kids{test}]", f"{x} = sum([q[1] for q in {r}])"]
        return lines, s.with_(x, NUMBER)

    def chained(self, s: DrawnScope, depth: int) -> Lines:
        """What one call returns goes to the next call."""
        t, callee = self.pick(s.nodes), f"f{self.draw(st.integers(0, self.functions - 1))}"
        k = self.fresh("q") if self.numeric else "k"
        lines = [f"if len({t}.kids) > 1:", f"    a, x, {k} = {callee}(p, {t}.kids[0], a, x, k)"]
        lines += [
            f"    a = {self.bounded(VECTOR, s, 'a')}",
            f"    a, x, {k} = {callee}(p, {t}.kids[1], jnp.sin(a), x, k)",
        ]
        return [*lines, f"    a = jnp.cos(a * {self.number(s, 0)})"], s

    def counted(self, s: DrawnScope, depth: int) -> Lines:
        i = self.fresh("i")
        inner = s.inside().with_(i, INTEGER)
        return self.body(f"for {i} in range({self.integer(s, 1)} % 3):", s, inner, depth)

    def computed_range(self, s: DrawnScope, depth: int) -> Lines:
        """As many turns as a computed number says."""
        i = self.fresh("i")
        inner = s.inside().with_(i, COUNT).under(True)
        return self.body(f"for {i} in range({self.count(s, 1)} % 4):", s, inner, depth)

    def computed_while(self, s: DrawnScope, depth: int) -> Lines:
        """A loop that a computed number ends, after a few turns at the latest."""
        q, x = self.fresh("q"), self.pick(s.of(NUMBER))
        inner = s.inside().under(True)  # which does not assign the counter
        head = [f"{q} = 0", f"while {x} < 0.8123 and {q} < {self.pick('345')}:", f"    {q} = {q} + 1"]
        leave, after = self.leave(inner)
        step = f"    {x} = {x} * 0.75 + abs({self.number(inner, 0)}) * 0.25 + 0.0913"
        return [*head, step, *leave, *self.block(after, depth)], self.behind(s.with_(q, COUNT), leave, after)

    def elements(self, s: DrawnScope, depth: int) -> Lines:
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
        return self.body(head, s, inner, depth)

    def appended(self, s: DrawnScope, depth: int) -> Lines:
        out, c, t, x = self.fresh("out"), self.fresh("c"), self.pick(s.nodes), self.fresh("n")
        body = self.block(s.inside().node(c), 1, 1)
        lines = [f"{out} = []", f"for {c} in {t}.kids:", *body, f"    {out}.append({self.number(s.node(c), 1)})"]
        return [*lines, f"{x} = sum({out})"], s.with_(x, NUMBER)

    def following(self, s: DrawnScope, depth: int) -> Lines:
        """Along `next`, by a while loop over nodes."""
        m = self.fresh("m")
        inner = s.inside().node(m)
        lines = [f"{m} = {self.pick(s.nodes)}", f"while {m}.next is not None:", f"    {m} = {m}.next"]
        return lines + self.block(inner, depth), s.node(m)

    def waiting(self, s: DrawnScope, depth: int) -> Lines:
        """A while loop over an integer."""
        i = self.fresh("i")
        inner = s.inside()
        lines = [f"{i} = 0", f"while {i} < 1 + {self.integer(s, 0)} % 3:", f"    {i} = {i} + 1"]
        return lines + self.block(inner, depth), s.with_(i, INTEGER)

    def chosen(self, s: DrawnScope, depth: int) -> Lines:
        """A list of nodes that the program makes, its length, and a loop over it."""
        ks, c, t, i = self.fresh("ks"), self.fresh("c"), self.pick(s.nodes), self.fresh("i")
        source = self.pick([f"{t}.kids", f"{t}.kids[1:]", f"reversed({t}.kids)", f"{t}.kids + {t}.kids"])
        lines = [f"{ks} = [{c} for {c} in {source} if {self.structural(s.node(c), 1)}]", f"{i} = len({ks})"]
        loop, s = self.body(f"for {c} in {ks}:", s, s.inside().node(c), depth)
        return [*lines, *loop], s.with_(i, INTEGER)

    def matched(self, s: DrawnScope, depth: int) -> Lines:
        lines = [f"match {self.pick(s.nodes)}.tag:"]
        for case in ('"a"', '"b"', "_"):
            lines += [f"    case {case}:", *("    " + line for line in self.block(s, depth, 1))]
        return lines, s

    def by_index(self, s: DrawnScope, depth: int) -> Lines:
        """Items by index, from the front and from the end, where there are some; a node of two."""
        m, t = self.fresh("m"), self.pick(s.nodes)
        index = self.pick(["0", "-1", f"{self.integer(s, 0)} % len({t}.kids)"])
        lines = [f"if {t}.kids:", f"    {m} = {t}.kids[{index}]", *self.block(s.node(m), depth)]
        if self.may_call(s) and self.chance(2):
            lines += ["    " + line for line in self.call(s.node(m), m)]
        other = self.fresh("m")
        lines += [f"{other} = {t} if {self.structural(s, 0)} or {t}.next is None else {t}.next"]
        return lines, s.node(other)

    def nested_lists(self, s: DrawnScope, depth: int) -> Lines:
        """A list of lists, and a sum with two loops."""
        rows, c, d, t, n = self.fresh("rows"), self.fresh("c"), self.fresh("d"), self.pick(s.nodes), self.fresh("n")
        inner = s.node(c)
        lines = [f"{rows} = [[{self.number(inner, 0)} * {d} for {d} in {c}.xs] for {c} in {t}.kids]"]
        lines += [f"{n} = sum([sum({c}) for {c} in {rows}]) + len({rows})"]
        lines += [f"{n} = {n} + sum({d} * {self.number(inner, 0)} for {c} in {t}.kids for {d} in {c}.xs)"]
        return lines, s.with_(n, NUMBER)

    def searched(self, s: DrawnScope, depth: int) -> Lines:
        """A loop with an else, and what must hold."""
        i, c, t = self.fresh("i"), self.fresh("c"), self.pick(s.nodes)
        test, computed = self.condition(s.inside().node(c))
        lines = [f"{i} = 0", f"for {c} in {t}.kids:", f"    if {test}:", "        break"]
        lines += [f"    {i} += 1", "else:", *self.block(s.under(computed), depth, 1)]
        kind = COUNT if computed or s.masked else INTEGER
        return [*lines, f'assert {i} <= len({t}.kids), f"{{{i}}} of {{len({t}.kids)}}"'], s.with_(i, kind)

    # ---- functions

    def results(self, s: DrawnScope) -> list[str]:
        """Further variables that an example returns."""
        return []

    def result(self, s: DrawnScope) -> str:
        kinds = {**PARAMETERS, "k": COUNT} if self.numeric else PARAMETERS
        return ", ".join(self.bounded(k, s, name) for name, k in kinds.items())

    def function(self, name: str) -> list[str]:
        depth = 1 if self.small else self.pick([1, 1, 2])  # most are small: compiling takes longer than they are read
        lines, s = self.statements(
            DrawnScope(dict(PARAMETERS)), self.draw(st.integers(1, 2 if self.small else 3)), depth
        )
        head = f"def {name}(p, t, {', '.join(PARAMETERS)}):"
        return [head, *("    " + line for line in [*lines, f"return {self.result(s)}"]), "", ""]

    def search(self) -> list[str]:
        """Recursion that computed numbers end, each call reading what the call before has returned."""
        s = DrawnScope({"v": VECTOR, "x": NUMBER, "n": INTEGER}, nodes=("t",), returns=False, masked=True)
        lines = [f"if n == 0 or {self.computed(s, 0)}:", f"    return {self.bounded(NUMBER, s, 'x')}, v"]
        lines += [f"x, v = search(p, t, {self.bounded(VECTOR, s, 'v')}, {self.bounded(NUMBER, s, 'x')}, n - 1)"]
        test = self.computed(s, 1)
        lines += [f"if {test}:", f"    x, v = search(p, t, jnp.sin(v), x - {self.number(s, 0)} * 0.5, n - 1)"]
        lines += [f"return {self.bounded(NUMBER, s, 'x')}, {self.bounded(VECTOR, s, 'v')}"]
        return ["def search(p, t, v, x, n):", *("    " + line for line in lines), "", ""]

    def program(self) -> str:
        """The source of a module with functions `f0`, `f1`, ... that call each other on children, and `main`."""
        self.functions = self.draw(st.integers(1, 1 if self.small else 2))
        lines = [line for k in range(self.functions) for line in self.function(f"f{k}")]
        s = DrawnScope(dict(PARAMETERS), returns=False)
        searches = self.recursion and self.chance(2)
        if searches:
            lines += self.search()
        lines += ["@ab.batched(in_axes=(None, 0))", "def main(p, t):", '    a, x, k = p["b"], t.x, 0']
        body, s = self.statements(s, 0 if self.small else self.draw(st.integers(0, 1)), 2)
        lines += ["    " + line for line in [*body, *self.call(s, "t")]]
        if searches:
            lines += [f"    x, a = search(p, t, a, x, {self.pick('234')})"]
        c = self.fresh("c")
        if not self.numbers and self.chance(2):
            lines.append(f"    each = [{self.number(s.node(c), 1)} for {c} in t.kids]")
            more = "".join(f', "{name}": {name}' for name in self.results(s))
            lines.append(f'    return {{"state": ({self.result(s)}), "each": each, "tag": t.tag{more}}}')
        else:
            lines.append(f"    return {self.result(s)}")
        return self.header + "\n".join(lines) + "\n"
