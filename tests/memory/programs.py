"""Small programs about memory that a function makes for itself, each a sentence of what the library is to take.

A program is what it starts with, what each turn of a loop does, and what it returns. It is written out twice: the data
of an example says how often it turns (`structural`), or a number that is computed does (`computed`). A turn reads `y`,
a computed number, and `k`, the number of the turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from autobatch.testing.programs import load

Control = Literal["structural", "computed"]

HEAD = """
import collections
import functools
import itertools
from dataclasses import replace
from typing import Optional

import jax.numpy as jnp
import autobatch as ab
from tests.memory.classes import Cell, Pair, Window, walk
"""
MAIN: dict[Control, str] = {
    "structural": """
@ab.batched(in_axes=(None, 0))
def main(w, xs: list[float]):
    k = 0
    {setup}
    for x in xs:
        y = w * x
        k = k + 1
        {turn}
    return {result}
""",
    "computed": """
@ab.batched(in_axes=(None, 0))
def main(w, xs: list[float]):
    k = 0
    {setup}
    y = w * xs[0]
    while y < 3.0:
        y = y * 1.5 + 0.3
        k = k + 1
        {turn}
    return {result}
""",
}


@dataclass(frozen=True)
class Program:
    """`setup`, `turn` and `result` are Python."""

    name: str
    setup: str
    turn: str
    result: str

    def source(self, control: Control) -> str:
        parts = {"setup": (self.setup, 4), "turn": (self.turn, 8), "result": (self.result, 4)}
        lines = {key: f"\n{' ' * indent}".join(text.splitlines()) for key, (text, indent) in parts.items()}
        return HEAD + MAIN[control].format(**lines)

    def load(self, control: Control) -> Any:
        return load(self.source(control))


def program(name: str, setup: str, turn: str, result: str) -> Program:
    return Program(name, setup, turn, result)


LISTS = (
    program("append", "out = []", "out.append(y)", "sum(out)"),
    program("append_len", "out = [w]", "out.append(y)", "out[-1] * len(out)"),
    program("append_index", "out = [w]", "out.append(out[k - 1] * 0.5 + y)", "out[len(out) // 2]"),
    program("pop", "out = [w, 1.0]", "out.append(y)\nout.append(out.pop() * out.pop())", "out[0] + 3.0 * out[-1]"),
    program(
        "pop_branch", "out = [w]", "if y < 1.0 or len(out) < 3:\n    out.append(y)\nelse:\n    out.pop()", "sum(out)"
    ),
    program(
        "while_stack",
        "out = []",
        "out.append(y)\nwhile len(out) > 2:\n    a = out.pop()\n    out[-1] = out[-1] + 0.5 * a",
        "sum(out)",
    ),
    program("queue", "out = [w, 0.5]", "out.append(y)\na = out.pop(0)\nout[0] = out[0] + a", "out[0] * 2.0 + out[1]"),
    program(
        "deque", "out = collections.deque([w, w])", "out.append(y)\na = out.popleft()\nout.append(a * 0.5)", "sum(out)"
    ),
    program(
        "item_assignment", "out = [w, 1.0, 2.0]", "out[k % 3] = out[(k + 1) % 3] + y", "out[0] + 2.0 * out[1] - out[2]"
    ),
    program(
        "negative_index", "out = [w, 1.0]", "out.append(y)\nout[-2] = out[-1] * out[-2]", "out[-1] + out[-2] * 2.0"
    ),
    program("augmented_item", "out = [w, 1.0]", "out[k % 2] += y", "out[0] * 2.0 + out[1]"),
    program("slice_read", "out = [w, 1.0, 2.0]", "out.append(y)", "sum(out[1:]) + sum(out[-2:]) + sum(out[::2])"),
    program("slice_drop", "out = [w, 1.0, 2.0]", "out.append(y)\nout = out[-3:]", "out[0] + 2.0 * out[1] - out[2]"),
    program("slice_assignment", "out = [w, 1.0, 2.0, 4.0]", "out[1:3] = [y, out[0]]", "out[0] + 2.0 * out[1] - out[2]"),
    program("extend", "out = [w]", "out.extend([y, out[0]])", "sum(out) + len(out)"),
    program("insert", "out = [w, 2.0]", "out.insert(1, y)", "out[0] + 2.0 * out[1] - out[-1]"),
    program("insert_front", "out = [w]", "out.insert(0, y)", "out[0] + 2.0 * out[-1]"),
    program("reverse", "out = [w, 1.0]", "out.append(y)\nout.reverse()", "out[0] + 2.0 * out[-1]"),
    program("sorted_key", "out = [w]", "out.append(y)", "sorted(out, key=lambda v: -v)[0] + 2.0 * min(out)"),
    program("sort", "out = [w]", "out.append(y)\nout.sort()", "out[0] + 2.0 * out[-1]"),
    program(
        "contains",
        "seen = [0]\ns = w",
        "if k % 3 in seen:\n    s = s + y\nelse:\n    seen.append(k % 3)",
        "s + len(seen)",
    ),
    program("times_plus", "out = [w] * 3", "out = out + [y]\nout = out[1:]", "out[0] + 2.0 * out[1] - out[2]"),
    program("remove_del", "out = [w, 1.0]", "out.append(y)\ndel out[0]", "out[0] + 2.0 * out[-1]"),
    program("clear", "out = [w]", "if y > 1.0:\n    out.clear()\nout.append(y)", "sum(out) + len(out)"),
    program("tuples", "out = [(w, 1)]", "a, n = out[-1]\nout.append((a * 0.5 + y, n + 1))", "out[-1][0] * out[-1][1]"),
    program(
        "tuple_pop",
        "out = [(w, 1)]",
        "out.append((y, k))\na, n = out.pop()\nout.append((a * 2.0, n))",
        "out[-1][0] * out[-1][1]",
    ),
    program(
        "vectors", "out = [jnp.ones(3) * w]", "out.append(jnp.tanh(out[-1] + y))", "jnp.sum(out[-1]) + jnp.sum(out[0])"
    ),
    program(
        "vector_pop",
        "out = [jnp.ones(3) * w]",
        "out.append(jnp.ones(3) * y)\na = out.pop()\nout[-1] = jnp.tanh(out[-1] + a)",
        "jnp.sum(out[0])",
    ),
    program("objects", "out = [Cell(w)]", "out.append(Cell(out[-1].value * 0.5 + y))", "out[-1].value + out[0].value"),
    program("object_field", "c = Cell(w)", "c.value = c.value * 0.5 + y", "c.value"),
    program(
        "objects_changed", "out = [Cell(w), Cell(1.0)]", "out[k % 2].value += y", "out[0].value + 2.0 * out[1].value"
    ),
    program("lists_of_lists", "out = [[w]]", "out.append([y, w])", "sum(sum(r) for r in out)"),
    program("inner_append", "out = [[w], [1.0]]", "out[k % 2].append(y)", "sum(out[0]) + 2.0 * sum(out[1])"),
    program("comprehension", "out = [w, 1.0]", "out = [v * 0.5 + y for v in out]", "out[0] + 2.0 * out[1]"),
    program("filtered", "out = [w]", "out.append(y)\nout = [v for v in out if v > 0.2]", "sum(out)"),
    program(
        "two_stacks",
        "a = [w]\nb = [1.0]",
        "a.append(y)\nif len(b) < 3:\n    b.append(a.pop())\nelse:\n    b.pop()",
        "sum(a) + 2.0 * sum(b)",
    ),
    program("alias", "a = [w]\nb = a", "a.append(y)", "sum(b)"),
    program("returned_list", "out = [w]", "out.append(y)", "out"),
    program("integers", "out = [1]", "out.append(out[-1] + k)", "w * out[-1] + y"),
    program("bools", "out = [True]", "out.append(y > 1.0)", "w * sum(1 for b in out if b)"),
)
TABLES = (
    program("dict_int", "d = {}", "d[k] = y", "sum(d.values()) * w"),
    program("dict_get", "d = {}", "d[k % 2] = d.get(k % 2, 0.0) + y", "d[1] + 2.0 * d.get(0, 0.0)"),
    program(
        "dict_in",
        "d = {0: w}",
        "if k % 3 in d:\n    d[k % 3] = d[k % 3] + y\nelse:\n    d[k % 3] = y",
        "sum(d.values())",
    ),
    program("dict_string", "d = {'a': w, 'b': 1.0}", "d['a' if k % 2 == 0 else 'b'] += y", "d['a'] + 2.0 * d['b']"),
    program(
        "dict_tuple", "d = {(0, 0): w}", "d[k, k + 1] = d[k - 1, k - 1 if k == 1 else k] * 0.5 + y", "d[0, 0] + d[1, 2]"
    ),
    program(
        "memo",
        "known = {}\ndef fib(n):\n    if n < 2:\n        return w\n    if n not in known:\n"
        "        known[n] = fib(n - 1) + fib(n - 2)\n    return known[n]",
        "y = y + fib(min(k, 6))",
        "y * w",
    ),
    program("set_int", "seen = set()\ns = w", "if k % 3 not in seen:\n    s = s + y\nseen.add(k % 3)", "s * len(seen)"),
    program("counter", "c = collections.Counter()", "c[k % 2] += 1", "w * c[0] + c[1] + y"),
    program("defaultdict", "d = collections.defaultdict(float)", "d[k % 2] += y", "d[0] + 2.0 * d[1] + w"),
    program("dict_order", "d = {}", "d[-k] = y", "sum(v * n for n, v in d.items()) * w"),
    program("dict_in_dict", "d = {0: {}, 1: {}}", "d[k % 2][k] = y", "sum(d[0].values()) + w * sum(d[1].values())"),
    program("counters", "d = collections.defaultdict(collections.Counter)", "d[k % 2][k % 3] += 1", "w * d[0][0] + y"),
    program("records", "d = [{'n': 0, 's': w}]", "d[0]['s'] += y\nd[0]['n'] += 1", "d[0]['s'] * d[0]['n']"),
)
OBJECTS = (
    program(
        "linked",
        "head = Cell(w)",
        "head = Cell(y, head)",
        "head.value + (head.next.value if head.next is not None else 0.0)",
    ),
    program("linked_walk", "head = None", "head = Cell(y, head)", "walk(head)"),
    program(
        "optional",
        "best: Optional[Cell] = None",
        "if best is None or best.value < y:\n    best = Cell(y)",
        "w * (best.value if best is not None else 0.0)",
    ),
    program("array_item", "a = jnp.zeros(4) + w", "a = a.at[k % 4].set(y)", "jnp.sum(a * jnp.arange(4))"),
    program("array_slice", "a = jnp.zeros(4) + w", "a = a.at[1:3].add(y)", "jnp.sum(a * jnp.arange(4))"),
    program("string", "s = 'abcab'\nn = w", "c = s[k % 5]\nn = n + (y if c == 'a' else 0.5 * ord(c) / 97.0)", "n"),
    program("string_made", "s = 'a'", "s = s + ('b' if k % 2 == 0 else 'c')", "w * len(s) + y"),
    program("nonlocal", "n = w\ndef add(v):\n    nonlocal n\n    n = n * 0.5 + v", "add(y)", "n"),
    program(
        "recursive_local",
        "def power(v, n):\n    return w if n == 0 else v * power(v, n - 1)\ns = w",
        "s = s + power(0.3 * y, k % 3)",
        "s",
    ),
    program(
        "generator",
        "def halves(v, n):\n    for i in range(n):\n        yield v / (i + 1)\ns = w",
        "for v in halves(y, 3):\n    s = s + v",
        "s",
    ),
    program("namedtuple_replace", "p = Pair(w, 1.0)", "p = p._replace(a=p.a * 0.5 + y)", "p.a + p.b"),
    program("dataclass_replace", "c = Cell(w)", "c = replace(c, value=c.value * 0.5 + y)", "c.value"),
    program("reduce", "s = w", "s = functools.reduce(lambda a, b: a * 0.5 + b, [s, y, 1.0])", "s"),
    program("partial", "def f(a, b):\n    return a * 0.5 + b\ns = w", "s = functools.partial(f, s)(y)", "s"),
    program("product", "s = w", "for i, j in itertools.product(range(2), range(2)):\n    s = s + y * i * j", "s"),
    program("chain", "s = w", "for v in itertools.chain([s], [y, 1.0]):\n    s = s * 0.5 + v", "s"),
    program("accumulate", "out = [w, 1.0]", "out = list(itertools.accumulate([out[0], y]))", "out[0] + 2.0 * out[1]"),
    program("pairwise", "s = w", "for a, b in itertools.pairwise([s, y, 1.0]):\n    s = s * 0.5 + a * b", "s"),
    program(
        "try_except", "s = w\nxs2 = [w, 1.0]", "try:\n    s = s + xs2[k] * y\nexcept IndexError:\n    s = s + 1.0", "s"
    ),
    program("custom_getitem", "v = Window(xs)\ns = w", "s = s + v[k % len(v)] * y", "s"),
    program("custom_iter", "s = w", "s = s + y * sum(v for v in Window([s, 1.0]))", "s"),
    program("property", "s = w", "s = s * 0.5 + Window([y, 1.0]).first", "s"),
)
PROGRAMS = (*LISTS, *TABLES, *OBJECTS)
