"""Random programs of numbers and vectors alone: branches and loops that numbers decide, early exits, recursion."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from autobatch.testing.programs import Program
from autobatch.testing.writing import COUNT, INTEGER, NUMBER, VECTOR, DrawnScope, StatementWriter

HEADER = """
import jax.numpy as jnp

import autobatch as ab


def mix(x, v):
    return jnp.tanh(x * v) + v * 0.5


"""
ARGUMENTS = {"x": NUMBER, "k": INTEGER, "a": VECTOR}


class NumberWriter(StatementWriter):
    """Draws programs whose arguments are a float, an integer and a vector."""

    def number(self, s: DrawnScope, depth: int = 2) -> str:
        simple = [*s.of(NUMBER), 'p["w"]', "0.5", 'p["b"][1]', *(f"{k} / 4" for k in s.of(INTEGER))]
        simple += [f"{q} / 8" for q in s.of(COUNT)]
        if depth == 0:
            return self.pick(simple)
        x = y = partial(self.number, s, depth - 1)
        forms = [
            lambda: self.pick(simple),
            lambda: f"jnp.tanh({x()} + {y()})",
            lambda: f"({x()} * {y()})",
            lambda: f"({x()} - {y()})",
            lambda: f"({x()} if {self.boolean(s, depth - 1)} else {y()})",
            lambda: f"jnp.sin({self.vector(s, depth - 1)}).sum()",
            lambda: f"({self.vector(s, 0)} @ {self.vector(s, 0)})",
            lambda: f"{self.vector(s, 0)}[{self.integer(s, 0)} % 3]",
            lambda: f"max({x()}, {y()})",
            lambda: f"abs({x()})",
            lambda: f"float({self.integer(s, depth - 1)})",
        ]
        return self.pick(forms)()

    def vector(self, s: DrawnScope, depth: int = 2) -> str:
        simple = [*s.of(VECTOR), 'p["b"]', 'p["W"][k % 3]']
        if depth == 0:
            return self.pick(simple)
        v = w = partial(self.vector, s, depth - 1)
        forms = [
            lambda: self.pick(simple),
            lambda: f'jnp.tanh(p["W"] @ {v()})',
            lambda: f"jnp.sin({v()} + {w()})",
            lambda: f"({v()} * {self.number(s, depth - 1)})",
            lambda: f"mix({self.number(s, depth - 1)}, {v()})",
            lambda: f"({v()} if {self.boolean(s, depth - 1)} else {w()})",
        ]
        return self.pick(forms)()

    def integer(self, s: DrawnScope, depth: int = 2) -> str:
        simple = [*s.of(INTEGER), "1", "2"]
        if depth == 0:
            return self.pick(simple)
        i = j = partial(self.integer, s, depth - 1)
        forms = [
            lambda: self.pick(simple),
            lambda: f"({i()} + {j()}) % 11",
            lambda: f"({i()} * {j()}) % 7",
            lambda: f"({i()} - {j()}) // 2",
            lambda: f"min({i()}, {j()})",
            lambda: f"({i()} if {self.structural(s, depth - 1)} else {j()})",
        ]
        return self.pick(forms)()

    def structural(self, s: DrawnScope, depth: int = 1) -> str:
        simple = ["k % 2 == 0", *(f"{i} < 3" for i in s.of(INTEGER))]
        b = partial(self.structural, s, depth - 1)
        forms = [lambda: self.pick(simple), lambda: f"not ({b()})", lambda: f"({b()} and {b()})"]
        return self.pick(forms)() if depth else self.pick(simple)

    def statement(self, s: DrawnScope, depth: int):
        nested = [self.branch, self.counted, self.waiting, self.computed_while, self.computed_range]
        return self.pick([self.new, self.update, *(nested if depth else [])])(s, depth)

    def search(self) -> list[str]:
        """Recursion that numbers end, each call reading what the call before has returned."""
        s = DrawnScope({"v": VECTOR, "x": NUMBER, "n": INTEGER, "k": INTEGER}, nodes=(), returns=False, masked=True)
        lines = [f"if n == 0 or {self.computed(s, 0)}:", f"    return {self.bounded(NUMBER, s, 'x')}, v"]
        lines += [f"x, v = search(p, k, {self.bounded(VECTOR, s, 'v')}, {self.bounded(NUMBER, s, 'x')}, n - 1)"]
        test = self.computed(s, 1)
        lines += [f"if {test}:", f"    x, v = search(p, k, jnp.sin(v), x - {self.number(s, 0)} * 0.5, n - 1)"]
        lines += [f"return {self.bounded(NUMBER, s, 'x')}, {self.bounded(VECTOR, s, 'v')}"]
        return ["def search(p, k, v, x, n):", *("    " + line for line in lines), "", ""]

    def program(self) -> str:
        searches = self.recursion and self.chance(3)
        lines = self.search() if searches else []
        body, s = self.statements(DrawnScope(dict(ARGUMENTS), nodes=()), self.draw(st.integers(1, 4)), 2)
        lines += ["@ab.batched(in_axes=(None, 0, 0, 0))", "def main(p, x, k, a):", *("    " + line for line in body)]
        if searches:
            lines += [f"    x, a = search(p, k, a, x, {self.pick('234')})"]
        return HEADER + "\n".join([*lines, f"    return {self.result(s)}"]) + "\n"

    def result(self, s: DrawnScope) -> str:
        """The integer as what computed numbers may have decided."""
        return ", ".join(self.bounded(kind, s, name) for name, kind in (("a", VECTOR), ("x", NUMBER), ("k", COUNT)))


def programs() -> st.SearchStrategy[Program]:
    return st.composite(lambda draw: Program(NumberWriter(draw, numeric=True, recursion=True).program()))()


def batches(size: int = 5) -> st.SearchStrategy[list[tuple[float, int, np.ndarray]]]:
    """Examples of `main`."""
    floats = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 6))
    vectors = st.lists(floats, min_size=3, max_size=3).map(lambda v: np.array(v))
    return st.lists(st.tuples(floats, st.integers(-2, 5), vectors), min_size=size, max_size=size)
