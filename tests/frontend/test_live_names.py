"""Where variables are live: what is read on a way that a run takes is live there, whatever the program."""

from __future__ import annotations

import ast
import random
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.frontend.syntax.sources import LiveNames

NAMES = "abc"


def behind(source, line, name):
    """Is a variable live behind the statement that begins at a line of the source?"""
    body = ast.parse(textwrap.dedent(source)).body
    (node,) = (n for n in ast.walk(ast.Module(body, [])) if isinstance(n, ast.stmt) and n.lineno == line)
    return LiveNames(body).behind(node, name)


LOOPS = """\
for c in xs:
    out.append(c)
for c in ys:
    s = s + c
return s
"""
ROUNDS = """\
for k in range(3):
    for c in xs:
        y = f(c)
        new.append(y)
    xs = new
return xs
"""
LEFT = """\
for c in xs:
    if c > 0:
        break
    c = 0
return c
"""
TRIED = """\
try:
    a = f(x)
    b = g(a)
except ValueError:
    return a
return b
"""
HELD = """\
a = 1
f = lambda: a
return f()
"""


@pytest.mark.parametrize(
    ("source", "line", "name", "live"),
    [
        (LOOPS, 1, "c", False),
        (LOOPS, 1, "s", True),
        (LOOPS, 3, "c", False),
        (ROUNDS, 2, "y", False),
        (ROUNDS, 2, "c", False),
        (ROUNDS, 2, "new", True),
        (ROUNDS, 4, "xs", False),  # its turns are those of the list that it began with
        (ROUNDS, 1, "xs", True),
        (ROUNDS, 5, "k", False),
        (LEFT, 1, "c", True),
        (LEFT, 2, "c", True),  # paths that have left go on beside those that have not
        (LEFT, 3, "c", True),
        (LEFT, 4, "c", True),  # there may be no next turn
        (TRIED, 2, "a", True),
        (TRIED, 3, "b", True),
        (HELD, 1, "a", True),
        (HELD, 2, "a", True),
        ("a = 1\nb = [a for a in xs]\nreturn b", 1, "a", False),
        ("a = 1\nb = [c for c in a]\nreturn b", 1, "a", True),
        ("a = 1\na += 1\nreturn 0", 1, "a", True),
        ("a, (b, *c) = f()\na, (b, *c) = g()\nreturn c", 1, "c", False),
        ("h = {}\nh[k] = 1\nreturn 0", 1, "h", True),
    ],
)
def test_known_cases(source, line, name, live):
    assert behind(source, line, name) is live


def test_other_statements_are_not_known():
    assert LiveNames(ast.parse("a = 1").body).behind(ast.parse("a = 2").body[0], "a") is None


@st.composite
def bodies(draw, depth=2, loop=False):
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        name, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
        kinds = ["set", "read", "add", *(["break", "continue"] if loop else ["return"])]
        kind = draw(st.sampled_from(kinds if depth == 0 else [*kinds, "if", "for", "while"]))
        inner = textwrap.indent(draw(bodies(depth - 1, loop or kind != "if")), "    ") if depth else ""
        ended = "else:\n" + textwrap.indent(draw(bodies(depth - 1, loop)), "    ") if depth else ""
        lines.append(
            {
                "set": f"{name} = 0",
                "read": f"use({name})",
                "add": f"{name} += {other}",
                "break": "break",
                "continue": "continue",
                "return": f"return {name}",
                "if": f"if {name}:\n{inner}{ended}",
                "for": f"for {name} in {other}:\n{inner}{ended}",
                "while": f"while {name}:\n{inner}{ended}",
            }[kind].rstrip("\n")
        )
    return "\n".join(lines) + "\n"


class Run:
    """Statements run with tests that chance decides: which of them each read reaches back to."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.since = {name: set() for name in NAMES}
        self.found = set()
        self.left = 60

    def read(self, node):
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and n.id in NAMES and isinstance(n.ctx, ast.Load):
                self.found |= {(statement, n.id) for statement in self.since[n.id]}

    def done(self, node):
        for ends in self.since.values():
            ends.add(node)

    def body(self, statements):
        for node in statements:
            self.left -= 1
            if self.left < 0:
                return "stopped"
            if (way := self.one(node)) is not None:
                return way
            self.done(node)
        return None

    def one(self, node):
        match node:
            case ast.If():
                self.read(node.test)
                return self.body(node.body if self.chance.random() < 0.5 else node.orelse)
            case ast.For() | ast.While():
                if isinstance(node, ast.For):
                    self.read(node.iter)
                while True:
                    if isinstance(node, ast.While):
                        self.read(node.test)
                    if self.chance.random() < 0.4:
                        return self.body(node.orelse)
                    if isinstance(node, ast.For):
                        self.since[node.target.id] = set()
                    way = self.body(node.body)
                    if way in ("return", "stopped"):
                        return way
                    if way == "break":
                        return None
            case ast.Break():
                return "break"
            case ast.Continue():
                return "continue"
            case ast.Return():
                self.read(node)
                return "return"
            case ast.AugAssign(target=target):
                self.read(node.value)
                self.found |= {(statement, target.id) for statement in self.since[target.id]}
                self.since[target.id] = set()
            case ast.Assign(targets=[target]):
                self.since[target.id] = set()
            case _:
                self.read(node)
        return None


@given(bodies(), st.integers(0, 2**16))
@settings(max_examples=150)
def test_what_a_run_reads_is_live(source, seed):
    """And what is live is read in one of many runs, but for a few that chance does not take."""
    body = ast.parse(source).body
    live = LiveNames(body)
    found = set()
    for k in range(40):
        run = Run(seed + k)
        run.body(body)
        found |= run.found
    for node, name in found:
        assert live.behind(node, name), (ast.unparse(node), name)
