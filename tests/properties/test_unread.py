"""Random programs with reads that may fail and that nobody uses: an example fails as plain Python does first."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.errors import Failure
from autobatch.testing import Program, assert_same, trees
from autobatch.testing.programs import load, typical_tree
from autobatch.testing.writing import INTEGER, DrawnScope, StatementWriter

PROBE = '''
def probe(t, depth):
    """Fails below some nodes; its result depends on nothing that does."""
    if t.next is None or depth == 0:
        t.kids[depth].x
        return 0.0
    for c in t.kids:
        probe(c, depth - 1)
    t.next.xs[0]
    return probe(t.next, depth - 1) + t.x


'''
WORDED = ("AttributeError", "IndexError", "KeyError", "ZeroDivisionError", "AssertionError")
"""Kinds whose messages are Python's own; those of others change from version to version."""


class Reader(StatementWriter):
    """Draws programs whose statements are now and then reads that may fail."""

    def read(self, s: DrawnScope, number: bool = False) -> str:
        t, i = self.pick(s.nodes), self.pick(["0", "1", "-1", "-2", *s.of(INTEGER)])
        numbers = [f"{t}.next.x", f"{t}.next.n", f"{t}.xs[{i}]", f"{t}.ns[{i}]", f"[1.0, {t}.x][{i}]"]
        numbers += [f"7 // {t}.n", f"{t}.n % {t}.n", f"1 << {t}.n", f"{t}.n >> {t}.n", f"len({t}.next.kids)"]
        numbers += [f'{{"a": 1, "b": {t}.x}}[{t}.tag]', f"probe({t}, {self.pick('12')})"]
        others = [f"{t}.next.next.tag", f"{t}.kids[{i}]", f"{t}.kids[{i}].next.v", f"{t}.tag[{i}]"]
        others += [f"{t}.next.kids[{i}].xs"]
        reads = numbers if number else numbers + others
        return str(self.pick(reads))

    def unread(self, s: DrawnScope) -> list[str]:
        c, t = self.fresh("c"), self.pick(s.nodes)
        inner = s.node(c)
        forms = [
            lambda: [self.read(s)],
            lambda: [self.read(s)],
            lambda: [f"{self.fresh('u')} = {self.read(s)}"],
            lambda: [f"({self.read(s)}, {self.read(s)})"],
            lambda: [f"{self.read(s, True)} if {self.boolean(s, 0)} else {self.read(s, True)}"],
            lambda: [f"[{self.read(inner)} for {c} in {t}.kids]"],
            lambda: [f"[{self.read(inner)} for {c} in {t}.kids if {self.boolean(inner, 0)}]"],
            lambda: [f"for {c} in {t}.kids:", f"    {self.read(inner)}"],
            lambda: [f"if {self.boolean(s, 1)}:", f"    {self.read(s)}", "else:", f"    {self.read(s)}"],
            lambda: [f"max({t}.ns)"],
            lambda: [f"{self.fresh('u')}, {self.fresh('u')} = {t}.xs"],
            lambda: [f"assert {t}.n != 1, 'one'"],
        ]
        return list(self.pick(forms)())

    def statement(self, s: DrawnScope, depth: int) -> tuple[list[str], DrawnScope]:
        lines = self.unread(s) if self.chance(3) else []
        more, s = super().statement(s, depth)
        return [*lines, *more], s

    def program(self) -> str:
        head, rest = super().program().split("def mix", 1)
        rest = rest.replace("in_axes=(None, 0)", 'in_axes=(None, 0), on_error="mask"')
        return head + PROBE.lstrip("\n") + "def mix" + rest


@st.composite
def readers(draw: Any) -> str:
    """The source of a program."""
    return Reader(draw).program()


def plain_failure(main: Any, index: int, example: Any) -> tuple[Failure | None, int, Any]:
    """What plain Python fails with, at which line; or what it returns."""
    try:
        return None, 0, main.example(Program.parameters(), example)
    except Exception as error:
        (place,) = traceback.extract_tb(error.__traceback__)[-1:]
        return Failure(index, type(error).__name__, str(error)), place.lineno or 0, None


def check(source: str, batch: list[Any]) -> None:
    note(source)
    main, batch = load(source), [typical_tree(), *batch]
    plain = [plain_failure(main, k, t) for k, t in enumerate(batch)]
    expected = [(f, line) for f, line, _ in plain if f is not None]
    try:
        result, failures = main(Program.parameters(), batch)
    except ab.ExampleError as error:
        assert len(expected) == len(batch), error
        result, failures = None, error.failures
    except ab.UnsupportedError as error:  # every path of a function fails
        assert "never returns" in error.message and len(expected) == len(batch), error
        return
    found = [(f.index, f.kind, f.line) for f in failures]
    assert found == [(f.index, f.kind, line) for f, line in expected]
    for ours, (theirs, _) in zip(failures, expected, strict=True):
        assert theirs.kind not in WORDED or ours.message == theirs.message
    if result is not None:
        for k, row in enumerate(ab.unbatch(result)):
            if plain[k][0] is None:
                assert_same(row, plain[k][2], f"example {k}")


BATCH = st.lists(trees(), min_size=2, max_size=3)


@settings(max_examples=3)
@given(source=readers(), batch=BATCH)
def test_row_by_row(source, batch):
    with ab.options(backend="interpret"):
        check(source, batch)


@settings(max_examples=3)
@given(source=readers(), batch=BATCH)
def test_compiled(source, batch):
    check(source, batch)


@pytest.mark.long
@settings(max_examples=300)
@given(source=readers(), batch=BATCH, backend=st.sampled_from(["xla", "interpret"]))
def test_many(source, batch, backend):
    with ab.options(backend=backend):
        check(source, batch)
