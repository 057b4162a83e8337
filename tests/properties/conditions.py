"""Random programs whose conditions ask for structure and for computed numbers at once, and what they guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

HEAD = """import autobatch as ab
from tests.properties.conditions import Leaf, Node


@ab.batched(in_axes=(None, 0, 0))
def main(w, n, x):
    a, t, c, m = w * x, 0.1, 0, n
"""


@dataclass
class Leaf:
    v: float


@dataclass
class Node:
    v: float
    next: Node | None = None
    side: Any = None
    items: list[float] = field(default_factory=list)
    kids: list[Node] = field(default_factory=list)
    k: int = 0


def nodes() -> list[Node]:
    """Nodes that lack each of their parts in some way."""
    a = Node(1.0)
    b = Node(0.5, a, Leaf(0.2), [1.0, 2.0], [a], 2)
    c = Node(0.2, b, b, [0.5], [a, b], 1)
    d = Node(-0.7, c, Node(0.1), [], [c], 3)
    return [a, b, c, d, Node(0.3, d, None, [0.1, -0.3, 0.7], [d, b, a], 2)]


NUMBERS = (
    *("a > 0.3", "t < 1.0", "a * t > -0.2"),
    *("c < 2 and a > -1", "abs(t) < 2.0"),
)
STRUCTURE = (
    *("{}.next is not None", "isinstance({}.side, Node)", "isinstance({}.side, Leaf)", "len({}.items) > 1"),
    *("{}.k > 1", "{}.items", "not {}.kids", "{}.next is None"),
)
GUARDED = (
    ("{}.next is not None", "{}.next.v"),
    ("isinstance({}.side, Node)", "{}.side.v"),
    ("isinstance({}.side, Leaf)", "{}.side.v * 2"),
    ("len({}.items) > 1", "{}.items[1]"),
    ("{}.items", "max({}.items)"),
    ("{}.kids", "{}.kids[0].v"),
)
"""Tests, and what can be read where they hold."""


@st.composite
def sources(draw: Callable[..., Any]) -> str:
    """The text of a module with a function `main(w, n, x)` for a number, a node and a number."""
    return HEAD + "".join(f"    {line}\n" for line in _Writer(draw).program())


class _Writer:
    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def node(self) -> str:
        """That of the example, or one that numbers may choose."""
        return str(self.one("n", "n", "m"))

    def condition(self, depth: int = 2) -> str:
        kind = self.one("test", "and", "and", "or", "not") if depth else "test"
        match kind:
            case "test":
                return str(self.one(self.one(*STRUCTURE).format(self.node()), self.one(*NUMBERS)))
            case "not":
                return f"not ({self.condition(depth - 1)})"
            case _:
                return f"({self.condition(depth - 1)} {kind} {self.condition(depth - 1)})"

    def guarded(self) -> tuple[str, str]:
        """A condition, and what is there where it holds."""
        test, read = (text.format(self.node()) for text in self.one(*GUARDED))
        number = self.one(*NUMBERS)
        return self.one(f"{test} and {number}", f"{number} and {test}", f"{test} and {self.condition(1)}"), read

    def program(self) -> list[str]:
        return [*(line for _ in range(3) for line in self.statement(3, False)), "return t + c + m.v"]

    def block(self, depth: int, loop: bool) -> list[str]:
        return [f"    {line}" for _ in range(self.one(1, 1, 2)) for line in self.statement(depth, loop)]

    def statement(self, depth: int, loop: bool) -> list[str]:
        plain = ("add", "if guarded", "guarded", "count", "walk", "ratio")
        match self.one(*plain, *(("if", "if", "for", "while", "kids", "end") if depth else ())):
            case "add":
                return [f"t = t + {self.one('a', 'n.v', 'm.v', '0.3', 'c')} * {self.one('w', '0.5', 'a')}"]
            case "if guarded":
                condition, read = self.guarded()
                return [f"if {condition}:", f"    t = t + {read} * w"]
            case "guarded":
                condition, read = self.guarded()
                return [f"t = t + ({read} if {condition} else {self.one('a', '0.2')})"]
            case "count":
                return ["c += 1"]
            case "ratio":  # of a number that only a loop gives: some examples divide by zero
                turn = [f"    if {self.one('kid.k > 1', 'kid.items')}:", "        r += 1"]
                divided = f"t = t + {self.one('1.0 / r', '6 // r')} * w"
                return ["r = 0", "for kid in n.kids:", *turn, self.one(divided, f"if r: {divided}")]
            case "walk":
                return [f"m = m.next if m.next is not None and {self.condition(1)} else {self.one('n', 'm')}"]
            case "if":
                other = ["else:", *self.block(depth - 1, loop)] if self.one(True, False) else []
                return [f"if {self.condition()}:", *self.block(depth - 1, loop), *other]
            case "for":
                count = self.one("2", "3", "len(n.items)", "n.k")
                return [f"for q{depth} in range({count}):", *self.block(depth - 1, True)]
            case "while":
                test, turn = f"while {self.condition(1)} and z{depth} < 3:", f"    z{depth} += 1"
                return [f"z{depth} = 0", test, turn, *self.block(depth - 1, True)]
            case "kids":
                body = [*self.block(depth - 1, True), "    t = t + kid.v * w"]
                return [f"for kid in {self.node()}.kids:", *body]
            case _:
                return [f"if {self.condition(1)}:", "    break" if loop else "    return t * a"]
