"""Random programs over lists and tuples whose elements are of several types: kept in lists, dicts and heaps, changed
under several names, linked to one another as floats decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

FLOATS = ("x", "a[0]", "b[0] * 0.5", "c[0] - x", "x + 0.5", "a[1] * 0.25", "total(chain)")
INTEGERS = ("a[1]", "b[1] + 1", "len(rows)", "2", "a[1] % 3")
TESTS = (
    "a[0] > x",
    "b[0] < 1.0",
    "c[1] > 1",
    "a[2]",
    "not b[2]",
    "a is b",
    "a == c",
    "a < b",
    "chain is None",
    "len(rows) > 3",
    "x > 0.75",
    "1 in found",
)


def _simple(pick: Callable[[Any], Any]) -> list[str]:
    p, q = pick("abc"), pick("abc")
    value, count, test = pick(FLOATS), pick(INTEGERS), pick(TESTS)
    return pick([
        [f"{p}[0] = {value}"],
        [f"{p}[0] += {value}"],
        [f"{p}[1] += {pick([1, 2])}"],
        [f"{p}[-1] = {test}"],
        [f"{p}[0], {q}[0] = {q}[0], {p}[0]"],
        [f"{p} = {q}"],
        [f"{p} = [{value}, {count}, {test}]"],
        [f"{p} = {q}[:]", f"rows.append({p})"],
        [f"rows.append([{value}, {count}, {test}])"],
        ["if len(rows) < 6:", f"    rows.append({p})"],
        [f"{p} = rows[{pick(['0', '-1', 'len(rows) // 2'])}]"],
        ["if len(rows) > 2:", f"    {p} = rows.pop()"],
        ["rows.sort()"],
        ["rows.reverse()"],
        [f"{p} = {pick(['min', 'max'])}(rows)"],
        [f"{p} = min(rows, key=lambda r: r[1])"],
        [f"heapq.heappush(queue, [{value}, {count}, {test}])"],
        ["if queue:", "    v, n, flag = heapq.heappop(queue)", f"    {p}[0] += v * n", f"    {q}[2] = flag"],
        [f"found[{count} % 4] = {p}"],
        [f"if {count} % 4 in found:", f"    found[{count} % 4][0] = {value}"],
        ["for r in found.values():", "    r[1] += 1"],
        [f"chain = ({value}, {count}, chain)"],
        [f"chain = cons({value}, {count}, chain)"],
        ["if chain is not None:", f"    {p}[0], {p}[1], chain = chain"],
        [f"raised({p}, {value})"],
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
                lines += [f"for {pick('abc')} in list(rows):", *inner]
            case "while":
                lines += [f"k{depth} = 0", f"while k{depth} < 2 and {pick(TESTS)}:", f"    k{depth} += 1", *inner]
    return lines


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(x)` and three examples of it."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    start = [
        "a, b, c = [x, 0, False], [0.5, 1, True], [x * 0.5, 2, x > 1.0]",
        "rows, queue, found, chain = [a, b, c], [], {}, None",
    ]
    body = [*start, *_block(pick, 0), *_block(pick, 0)]
    helpers = [
        "import heapq",
        "",
        "def raised(p, v):",
        "    if p[0] < v:",
        "        p[0] = v",
        "        p[1] += 1",
        "def cons(v, n, rest):",
        "    return (v, n, rest)",
        "def total(rest):",
        "    return 0.0 if rest is None else rest[0] * 0.5 + rest[1] + total(rest[2])",
    ]
    end = "return a[0] + 2.0 * b[0] + total(chain), c[1], a[2], sum([v * n for v, n, _ in rows]), sorted(found)"
    source = "\n".join([*helpers, "def main(x):", *(f"    {line}" for line in [*body, end])]) + "\n"
    numbers = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
    return Program(source), [(draw(numbers),) for _ in range(3)]
