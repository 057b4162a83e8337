"""Random programs that keep iterators: generators of the user with loops, branches, `try` and `return` around their
`yield`s, and iterators over lists, which variables, lists and fields hold and which are stepped in several places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

Pick = Callable[[Any], Any]
NUMBERS = ("n", "k", "n + k", "k - 1", "total", "2", "seen[-1]")
TESTS = ("n > 1", "k % 2 == 0", "total > 4", "n < k", "len(seen) > 3")
PLAIN = ("total += n", "k += 1", "seen.append(k)", "n -= 1", "total = total - k", "n, k = k, n")
DEEPEST = 3


def _body(pick: Pick, depth: int, loop: bool, sends: bool) -> list[str]:
    """Statements of a generator."""
    made: list[str] = []
    for _ in range(pick([1, 2, 2, 3])):
        made += _statement(pick, depth, loop, sends)
    return made


def _statement(pick: Pick, depth: int, loop: bool, sends: bool) -> list[str]:
    kinds = ["yield", "yield", "plain", "plain", *(["leave"] if loop else []), *(["sent"] if sends else [])]
    kinds += ["if", "for", "while", "try", "match", "from", "return"] if depth < DEEPEST else []
    inner = lambda within: [f"    {x}" for x in _body(pick, depth + 1, within, sends)]
    match pick(kinds):
        case "yield":
            return [f"yield {pick(NUMBERS)}"]
        case "sent":
            return [f"given = yield {pick(NUMBERS)}", "if given is not None:", "    total += given"]
        case "plain":
            return [pick(PLAIN)]
        case "leave":
            return [f"if {pick(TESTS)}:", f"    {pick(['break', 'continue'])}"]
        case "return":
            return [f"if {pick(TESTS)}:", "    return"]
        case "if":
            found = [f"if {pick(TESTS)}:", *inner(loop)]
            return [*found, "else:", *inner(loop)] if pick([True, False]) else found
        case "for":
            over = pick([f"range({pick(['2', '3', 'min(k, 3)'])})", "[n, k]", "enumerate([k, 2])", "list(seen)[:2]"])
            target = "k, n" if "enumerate" in over else pick(["k", "item"])
            found = [f"for {target} in {over}:", *inner(True)]
            return [*found, "else:", *inner(loop)] if pick([True, False, False]) else found
        case "while":
            steps = f"steps{depth}"
            return [f"{steps} = 0", f"while {steps} < 3 and {pick(TESTS)}:", f"    {steps} += 1", *inner(True)]
        case "try":
            failing = pick(["total = total // (n - k)", "seen[k] = 1", "n = [1, 2][k]"])
            caught = pick(["ZeroDivisionError", "IndexError", "ArithmeticError"])
            found = ["try:", *inner(loop), f"    {failing}", f"except {caught}:", *inner(loop)]
            return [*found, "else:", *inner(loop)] if pick([True, False]) else found
        case "match":
            return [
                "match n:",
                "    case 0 | 1:",
                *(f"    {x}" for x in inner(loop)),
                "    case _:",
                f"        {pick(PLAIN)}",
            ]
        case _:
            delegate = pick(["yield from [k, n]", "yield from small(k)", "total += yield from summed(n)"])
            return [pick(PLAIN) if sends else delegate]


def generator(pick: Pick, name: str, sends: bool = False) -> list[str]:
    """A generator function of two numbers."""
    body = _body(pick, 0, False, sends)
    start = ["total = 0", "seen = [n]"]
    return [f"def {name}(n, k):", *(f"    {x}" for x in (*start, *body, "yield total"))]


HELPERS = """
def small(n):
    while n > 0:
        yield n
        n -= 2


def summed(n):
    total = 0
    for k in range(min(n, 3)):
        total += k
        yield k
    return total


class Stream:
    def __init__(self, items):
        self.items = items
        self.read = 0

    def take(self):
        self.read += 1
        return next(self.items, -1)


def first(items, count):
    found = 0
    for k, x in enumerate(items):
        found += x
        if k >= count:
            break
    return found

"""


def _turn(pick: Pick) -> list[str]:
    """What is done with a number of the example."""
    made = pick(["one(n, k)", "two(k, n)", "iter([n, k, 3])", "(n * x for x in range(k))", "zip(one(n, 1), [k, n])"])
    pairs = made.startswith("zip")
    item = "sum(next(kept, (0, 0)))" if pairs else "next(kept, 0)"
    match pick(["step", "step", "list", "field", "rest", "loop", "passed", "last"]):
        case "step":
            return [f"kept = {made}", f"total += {item}", f"total -= {item}"]
        case "list" if not pairs:
            return [f"streams.append({made})"]
        case "field" if not pairs:
            return [f"stream = Stream({made})", "total += stream.take() * 2 + stream.take()"]
        case "rest":
            return [f"kept = {made}", f"total += {item}", f"total += {'sum(map(sum, kept))' if pairs else 'sum(kept)'}"]
        case "loop":
            element = "sum(x)" if pairs else "x"
            return [f"kept = {made}", "for x in kept:", f"    total += {element}", f"    total += 2 * {item}"]
        case "passed" if not pairs:
            return [f"kept = {made}", "total += first(kept, 1)", "total += first(kept, k)"]
        case _:
            return ["if streams:", "    total += next(streams[-1], 7)"]


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(ns)` and four examples of it."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    turns: list[str] = []
    for _ in range(pick([1, 2, 3])):
        turn = _turn(pick)
        turns += (
            [f"if {pick(['n > 1', 'k < 2', 'total > n'])}:", *(f"    {x}" for x in turn)]
            if pick([True, False])
            else turn
        )
    body = [
        "total, streams = 0, []",
        "for k, n in enumerate(ns):",
        *(f"    {x}" for x in turns),
        "for s in streams:",
        "    total += next(s, 1) + next(s, 2)",
        "return total, len(streams)",
    ]
    lines = [
        *generator(pick, "one"),
        "",
        *generator(pick, "two"),
        "",
        "def main(ns):",
        *(f"    {line}" for line in body),
    ]
    lists = st.lists(st.integers(-2, 4), min_size=1, max_size=4)
    return Program(HELPERS + "\n".join(lines) + "\n"), [draw(lists) for _ in range(4)]


@st.composite
def generators(draw: Callable[..., Any]) -> Program:
    """A function `main(n, k)` that is a generator."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    return Program(HELPERS + "\n".join(generator(pick, "main", pick([True, False]))) + "\n")
