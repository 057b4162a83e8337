"""Random programs that keep functions: in lists and in fields, returned, passed on and called later, which read and
change variables of the functions around them and objects; methods and functions with defaults beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

Pick = Callable[[Any], Any]
NUMBERS = ("n", "m", "k", "n - k", "m + 1", "count", "2")
TESTS = ("n > 1", "m < 2", "k > n", "count % 2 == 0", "n + m > 3")

CLASSES = """
class Box:
    def __init__(self, v):
        self.v = v
        self.act = lambda x: x

    def add(self, x):
        self.v += x
        return self.v


def apply(f, x):
    return f(x) - f(1)


def counter(w):
    total = w

    def go(x):
        nonlocal total
        total += x
        return total

    return go


def register(to, w):
    seen = [w]

    def look(x):
        seen.append(x)
        return len(seen) + seen[0]

    to.append(look)
    return w

"""


def _function(pick: Pick) -> tuple[list[str], str]:
    """Statements, and behind them a function of one number."""
    number = pick(NUMBERS)
    match pick(["lambda", "default", "def", "object", "method", "counter", "nested"]):
        case "lambda":
            return [], f"lambda x: x {pick('+-*')} {number}"
        case "default":
            return [], f"lambda x, n=n: x + n * {number}"
        case "def":
            change = pick(["count += x", "count += k", "k += 1"])
            return ["def step(x):", "    nonlocal count, k", f"    {change}", f"    return {number} + x"], "step"
        case "object":
            return [], pick(["lambda x: box.v + x", "lambda x: box.add(x)", "lambda x: box.act(x) + k"])
        case "method":
            return [], "box.add"
        case "counter":
            return [], f"counter({number})"
        case _:
            return [f"inner = lambda x: x - {number}"], f"lambda x: inner(x) * {pick(NUMBERS)}"


def _turn(pick: Pick) -> list[str]:
    """What is done with a number."""
    before, made = _function(pick)
    match pick(["keep", "field", "call", "apply", "assign", "box", "register", "pop"]):
        case "keep":
            return [*before, f"kept.append({made})"]
        case "field":
            return [*before, f"last.act = {made}"]
        case "call":
            return ["if kept:", f"    total += kept[-1]({pick(NUMBERS)})"]
        case "apply":
            return [*before, f"total += apply({made}, {pick(NUMBERS)})"]
        case "assign":
            return [f"k = {pick(['n', 'm', 'k + 1'])}"]
        case "box":
            return [f"box = Box({pick(NUMBERS)})", "last = box"]
        case "register":
            return [f"total += register(kept, {pick(NUMBERS)})"]
        case _:
            return ["if len(kept) > 2:", "    total += kept.pop()(m)"]


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(ns)` and four examples of it."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    turns: list[str] = []
    for _ in range(pick([1, 2, 3])):
        turn = _turn(pick)
        turns += [f"if {pick(TESTS)}:", *(f"    {x}" for x in turn)] if pick([True, False]) else turn
    body = [
        "total, count, k, kept, box = 0, 0, 3, [], Box(5)",
        "last = box",
        "for m, n in enumerate(ns):",
        *(f"    {x}" for x in turns),
        f"k = {pick(['k', '7', 'k + count'])}",
        "for f in kept:",
        "    total += f(2)",
    ]
    end = "return total, count, last.act(1), last.v, len(kept)"
    source = "\n".join([CLASSES, "def main(ns):", *(f"    {line}" for line in [*body, end])]) + "\n"
    lists = st.lists(st.integers(-3, 5), min_size=1, max_size=4)
    return Program(source), [draw(lists) for _ in range(4)]
