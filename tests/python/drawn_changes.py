"""Random programs that change objects of the examples, which are linked with one another as floats decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

FLOATS = ("y", "a.v", "b.v * 0.5", "c.v - y", "y + 0.5", "a.v * b.v", "a.n * 0.5")
TESTS = (
    "a.v > y",
    "b.v < 1.0",
    "c.n > 1",
    "a.next is None",
    "a is b",
    "b.next is not None",
    "len(c.xs) > 1",
    "y > 0.75",
)


@dataclass(eq=False)
class Cell:
    """An object with a number of each kind, links to others, and a list."""

    v: float
    n: int = 0
    next: Cell | None = None
    other: Cell | None = None
    xs: list[float] = field(default_factory=list)


def _simple(pick: Callable[[Any], Any]) -> list[str]:
    x, y, z = pick("abc"), pick("abc"), pick("abc")
    value = pick(FLOATS)
    return pick([
        [f"{x}.v = {value}"],
        [f"{x}.v += {value}"],
        [f"{x}.n += {pick([1, 2])}"],
        [f"{x}.v, {y}.v = {y}.v, {x}.v"],
        [f"{x}.next = {y}"],
        [f"{x}.next = None"],
        [f"{x}.other, {y}.next = {y}, {z}"],
        [f"{x}.other = {y}.next"],
        [f"if {x}.next is not None:", f"    {y} = {x}.next"],
        [f"if {x}.other is not None:", f"    {x}.other.v = {value}", f"    {x}.other.n += 1"],
        [f"{x}.xs.append({value})"],
        [f"if {x}.xs:", f"    {x}.xs[0] = {value}"],
        [f"if {x}.xs:", f"    {y}.v += {x}.xs.pop()"],
        [f"{x}.xs = [{value}, y]"],
        [f"{x} = Cell({value}, 3, {y})"],
        [f"{x} = Cell({value})", f"{y}.next = {x}"],
        [f"cells.append(Cell({value}, {y}.n, {z}))"],
        ["if len(cells) > 1:", f"    {x} = cells.pop()"],
        ["cells.reverse()"],
        [f"raised({x}, {value})"],
        [f"{x} = linked({y}, {z})"],
    ])  # fmt: skip


def _block(pick: Callable[[Any], Any], depth: int) -> list[str]:
    lines: list[str] = []
    for _ in range(pick([1, 2, 3])):
        kind = pick(["simple", "simple", "if", "for", "while"]) if depth < 2 else "simple"
        inner = [f"    {line}" for line in _block(pick, depth + 1)] if kind != "simple" else []
        match kind:
            case "simple":
                lines += _simple(pick)
            case "if":
                lines += [f"if {pick(TESTS)}:", *inner]
                if pick([True, False]):
                    lines += ["else:", *(f"    {line}" for line in _block(pick, depth + 1))]
            case "for":
                lines += [f"for {pick('abc')} in list(cells):", *inner]
            case "while":
                lines += [f"k{depth} = 0", f"while k{depth} < 2 and {pick(TESTS)}:", f"    k{depth} += 1", *inner]
    return lines


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(cells, y)` that changes the objects of a list, and three examples of it: lists of objects, which
    are linked at random, and numbers."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    body = ["a, b, c = cells[0], cells[-1], cells[len(cells) // 2]", *_block(pick, 0), *_block(pick, 0)]
    helpers = [
        "from tests.python.drawn_changes import Cell",
        "",
        "def raised(p, x):",
        "    if p.v < x:",
        "        p.v = x",
        "        p.n += 1",
        "def linked(p, q):",
        "    q.next = p",
        "    return p if p.v > q.v else q",
    ]
    end = "return a.v + 2.0 * b.v, c.n, sum([p.v for p in cells]), len(a.xs)"
    source = "\n".join([*helpers, "def main(cells, y):", *(f"    {line}" for line in [*body, end])]) + "\n"
    numbers = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
    data: list[Any] = []
    for _ in range(3):
        cells = [
            Cell(draw(numbers), pick([0, 1, 2]), xs=[draw(numbers)] * pick([0, 1, 2])) for _ in range(pick([2, 3]))
        ]
        for cell in cells:
            cell.next, cell.other = pick([None, *cells]), pick([None, *cells])
        data.append((cells, draw(numbers)))
    return Program(source), data


def graph(value: Any, seen: dict[int, int] | None = None) -> Any:
    """What a value is, with a number for each object that was met before: equal where the same objects lead to each
    other."""
    seen = {} if seen is None else seen
    if isinstance(value, (tuple, list)) and not isinstance(value, list):
        return tuple(graph(x, seen) for x in value)
    if not isinstance(value, (list, Cell)):
        return value
    if id(value) in seen:
        return f"number {seen[id(value)]}"
    seen[id(value)] = len(seen)
    if isinstance(value, list):
        return [graph(x, seen) for x in value]
    return {name: graph(x, seen) for name, x in vars(value).items()}
