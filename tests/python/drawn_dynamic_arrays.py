"""Random programs that fill arrays of NumPy whose shape depends on the lengths of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

TESTS = ("a[i] > b[j]", "a[i] == b[j]", "b[j] > 1.0", "(i + j) % 2 == 0", "i <= j", "a[i] > x")
NUMBERS = ("a[i] * p[0]", "b[j] + p[1]", "p[0] * p[1]", "a[i] - b[j]", "float(i - j)", "x * p[0]")
TABLES = ("np.zeros((n, m))", "np.ones((n, m))", "np.full((n, m), 0.5)", "np.zeros((n, m)) + x", "np.outer(a, b)")
ROWS = ("np.zeros(n)", "np.array(a)", "np.full(n, x)", "np.array(a) * p[0]", "np.linspace(0.0, 1.0, n)", "np.ones(n)")
OF_TABLE = (
    "t.sum()", "t.max()", "t[0, 0]", "t[-1, -1]", "t[0].sum()", "t[:, 0].sum()", "t.mean(axis=0).max()", "len(t) * x",
    "np.sum(t * t)", "t.T[0].sum()", "t[1:, 1:].sum()", "t[::-1][0].max()", "np.exp(-np.abs(t)).sum()",
    "t.shape[1] * x",
    "(t > x).sum()", "sum(r.max() for r in t)", "float(t[0].argmax())", "t[i0, :2].sum()", "t", "t[1]", "t.sum(axis=1)",
)  # fmt: skip
OF_ROW = (
    "t.sum()", "t.max()", "t[0]", "t[-1]", "t[1:].sum()", "t[::-1][0]", "np.sum(t * t)", "t.dot(t)",
    "float(t.argmin())",
    "np.where(t > x, t, x).sum()", "t[t > x].sum()", "np.cumsum(t)[-1]", "sorted(t)[0]", "max(t)", "len(t) * x", "t",
    "t[[0, 1]].sum()", "np.append(t, x).sum()", "np.concatenate([t, t[1:]])", "t.copy()", "t * 2.0 - 1.0",
)  # fmt: skip


class ArrayWriter:
    """Draws the text of a function `main(p, a, b, x)` of two lists and a number."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def table(self) -> list[str]:
        """Two axes, filled in two loops."""
        before = self.pick(["t[i - 1, j]", "t[i, j - 1]", "t[i - 1, j - 1]", "t[0, j]", "t[i, 0]"])
        stores = (
            f"t[i, j] = {before} + {self.pick(NUMBERS)}",
            f"t[i, j] = max({before}, {self.pick(NUMBERS)})",
            f"t[i, j] += {self.pick(NUMBERS)}",
            f"t[i][j] = {self.pick(NUMBERS)}",
            f"put(t, i, j, {self.pick(NUMBERS)})",
            f"t[i, j:] = {self.pick(NUMBERS)}",
            f"row = t[i]; row[j] = {self.pick(NUMBERS)}",
            "t[i] *= 0.5",
        )
        after = (
            "t[:, 0] = 1.0", "t[0] = b", "t[t > 1.0] = 0.25", "t[t < 0.5] += p[0]", "t += p[1]", "t[1] = t[0]",
            "u = t; u[0, 0] = 3.0", "t = t.copy()", "t = t * 0.5", "t[:2, :1] -= x", "pass",
        )  # fmt: skip
        return [
            f"t = {self.pick(TABLES)}",
            "for i in range(1, n):",
            "    for j in range(1, m):",
            f"        if {self.pick(TESTS)}:",
            f"            {self.pick(stores)}",
            *self.maybe(["        else:", f"            {self.pick(stores)}"]),
            self.pick(after),
            f"return {self.pick(OF_TABLE)}, {self.pick(OF_TABLE)}",
        ]

    def row(self) -> list[str]:
        """One axis, filled where a loop comes to."""
        stores = (
            f"t[i] = t[i - 1] + {self.pick(NUMBERS)}",
            f"t[i] += {self.pick(NUMBERS)}",
            "t[i - 1], t[i] = t[i], t[i - 1]",
            "t[i:] = t[i] * 0.5",
            "t[-i] = t[i - 1]",
            f"held[i % 2][i] = {self.pick(NUMBERS)}",
            "t = np.append(t, t[i])",
        )
        after = ("t *= p[0]", "t[1:] = x", "t[t > x] = 0.5", "t = t - 1.0", "u = t[1:]; u[0] = 2.0", "pass")
        return [
            f"t = {self.pick(ROWS)}",
            "held = [np.zeros(n), np.ones(n)]",
            "i, j = 1, 0",
            "while i < n:",
            f"    if {self.pick(TESTS)}:",
            f"        {self.pick(stores)}",
            *self.maybe(["    else:", f"        {self.pick(stores)}"]),
            "    i += 1",
            self.pick(after),
            f"return {self.pick(OF_ROW)}, {self.pick(OF_ROW)}, held[0].sum() + held[1].max()",
        ]

    def wide(self) -> list[str]:
        """Rows of a fixed length."""
        stores = (
            f"t[i, {self.pick(['0', '1', '2', 'j % 3', '-1'])}] = {self.pick(NUMBERS)}",
            f"t[i] = t[i - 1] * 0.5 + {self.pick(NUMBERS)}",
            "t[i] += t[i - 1]",
            "t[i, 1:] = p[0]",
            "t[i] = np.array([a[i], b[0], p[1]])",
            "r = t[i]; r[0] += 1.0",
        )
        ends = ("t.sum()", "t.sum(axis=1)", "t @ np.ones((3, 2))", "t[0]", "t[:, 1].max()", "t", "t.max(axis=0)")
        return [
            "t = " + self.pick(["np.zeros((n, 3))", "np.ones((n, 3))", "np.full((n, 3), x)"]),
            "j = 0",
            "for i in range(1, n):",
            f"    if {self.pick(TESTS)}:",
            f"        {self.pick(stores)}",
            f"    {self.pick(stores)}",
            f"return {self.pick(ends)}, {self.pick(ends)}",
        ]

    def fixed(self) -> list[str]:
        """Arrays of a fixed shape under several names, in containers and objects, changed by helpers."""
        made = ("np.zeros(3)", "np.ones(3)", "np.array([x, p[0], 1.0])", "np.full(3, x) * 2.0", "-np.ones(3)")
        stores = (
            f"t[{self.pick(['0', 'j % 3', '-1'])}] = {self.pick(NUMBERS)}",
            f"u[{self.pick(['1', 'i % 3'])}] += {self.pick(NUMBERS)}",
            f"held[{self.pick(['0', 'i % 2'])}][j % 3] = {self.pick(NUMBERS)}",
            f"named['a'] {self.pick(['+=', '*=', '-='])} {self.pick(['p[0]', 't', 'held[1] * 0.5'])}",
            f"u {self.pick(['+=', '*='])} {self.pick(NUMBERS)}",
            f"add({self.pick(['u', 'held[1]', 't'])}, p[1])",
            "t = t * 0.5 + 1.0",
            "u = t",
            "u = t.copy()",
            "held[1] = t",
            "t[1:] = u[:-1]",
            "u[:] = p[0]",
            "u = t if x > 0.0 else held[0]",
            f"v {self.pick(['+=', '*='])} {self.pick(NUMBERS)}",
            f"v[{self.pick(['0', '-1', 'i % 2'])}] = {self.pick(NUMBERS)}",
            "v = u[:2]",
        )
        ends = (
            "t.sum()",
            "u",
            "v",
            "v.max()",
            "held[0] + held[1]",
            "named['a'].max()",
            "t.dot(u)",
            "t",
            "held[0][1]",
            "len(u) * x",
        )
        return [
            f"t, w = {self.pick(made)}, {self.pick(made)}",
            f"u = {self.pick(['t', 'w', 't.copy()', 't * 1.0'])}",
            f"held = [{self.pick(['t', 'u', 'np.zeros(3)'])}, {self.pick(['u', 'w', 'w.copy()'])}]",
            f"named = {{'a': {self.pick(['t', 'w', 'held[0]', 'np.ones(3)'])}}}",
            f"v = {self.pick(['t[:2]', 'u[1:]', 'w[::-2]', 't[0:2]'])}",
            "for i in range(min(n, m)):",
            "    j = i + 1",
            "    j = min(j, m - 1)",
            f"    if {self.pick(TESTS)}:",
            f"        {self.pick(stores)}",
            f"        {self.pick(stores)}",
            *self.maybe(["    else:", f"        {self.pick(stores)}"]),
            self.pick(stores).replace("i % 2", "0").replace("i % 3", "1").replace("j % 3", "2"),
            f"return {self.pick(ends)}, {self.pick(ends)}, t.sum() + u.max()",
        ]

    def maybe(self, lines: list[str]) -> list[str]:
        return lines if self.draw(st.booleans()) else []

    def program(self) -> Program:
        body = self.draw(st.sampled_from([self.table, self.row, self.wide, self.fixed]))()  # type: ignore[operator]
        start = ["import numpy as np", "", "", "def main(p, a, b, x):", "    n, m, i0 = len(a), len(b), 0"]
        helper = ["    def put(t, i, j, x):", "        t[i, j] = x", "    def add(t, x):", "        t += x"]
        return Program("\n".join([*start, *helper, *(f"    {line}" for line in body)]) + "\n")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return ArrayWriter(draw).program()
