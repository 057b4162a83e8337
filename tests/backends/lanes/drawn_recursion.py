"""Random functions of integers that call themselves and each other: in branches, in loops, last or not, under
checks.

They are exact: what a row gives does not depend on how floats are rounded, and rows fail where Python fails. `n` falls
in each call, so every recursion ends; what `k` is decides who is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

HEADER = "import autobatch as ab\n\n\n"
FUNCTIONS = ("f", "g", "h")


class RecursionWriter:
    """Draws the text of a program."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw
        self.callees = FUNCTIONS[: draw(st.integers(1, 3))]
        self.names = 0

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def number(self) -> str:
        return self.pick(["k", "a", "n", "d", "k + a", "a - n", "k * 2", "a % 7", "(k ^ a) % 5", "p"])

    def test(self) -> str:
        return self.pick(["k % 2 == 0", "a < k", "n % 3 == 1", "d < 2", "k > p", "a % 3 != 0", "d % 2 == p"])

    def call(self) -> str:
        below = self.pick(["n - 1", "n - 1", "n - 2", "n // 2 - 1"])
        down = self.pick(["d + 1", "d + 1", "d", "k % 4"])
        return f"{self.pick(self.callees)}(p, {below}, ({self.number()}) % 9, {down})"

    def name(self) -> str:
        self.names += 1
        return f"i{self.names}"

    def statement(self, depth: int) -> list[str]:
        kinds = ["assign", "call", "check"] + (["branch", "branch", "counted", "waiting", "early"] if depth else [])
        match self.pick(kinds):
            case "assign":
                return [f"{self.pick('ak')} = ({self.number()}) % 11"]
            case "call":
                return [f"a = (a + {self.call()}) % 13"]
            case "check":
                if self.draw(st.integers(0, 2)):
                    return [f"a = (a * 3 + {self.number()}) % 17"]
                return [f"assert a + k != {self.draw(st.integers(0, 30))}, 'no'"]
            case "branch":
                orelse = [["else:", *self.block(depth - 1)]] if self.draw(st.booleans()) else [[]]
                return [f"if {self.test()}:", *self.block(depth - 1), *orelse[0]]
            case "early":
                returned = self.pick(["a", self.call(), f"{self.call()} + 1"])
                return [f"if {self.test()}:", f"    return {returned}"]
            case "counted":
                count = self.pick(["2", "k % 3", "d % 3"])
                return [f"for {self.name()} in range({count}):", *self.block(depth - 1)]
            case _:
                turn = self.name()
                end = self.pick([f"{turn} < k % 3", f"{turn} < d % 2", f"{turn} + a % 2 < 2"])
                return [f"{turn} = 0", f"while {end}:", *self.block(depth - 1), f"    {turn} += 1"]

    def block(self, depth: int) -> list[str]:
        count = self.draw(st.integers(1, 2))
        return ["    " + line for _ in range(count) for line in self.statement(depth)]

    def function(self, name: str) -> list[str]:
        body = [line for _ in range(self.draw(st.integers(1, 3))) for line in self.statement(2)]
        end = self.pick([self.call(), f"a + {self.call()}", "a * 2 + k", f"{self.call()} - {self.call()}"])
        lines = ["a = k + 1", "if n <= 0:", f"    return {self.number()}", *body, f"return {end}"]
        return [f"def {name}(p, n, k, d):", *("    " + line for line in lines), "", ""]

    def program(self) -> Program:
        lines = [line for name in self.callees for line in self.function(name)]
        lines += ["@ab.batched(in_axes=(None, 0, 0))", "def main(p, n, k):", "    return f(p, n, k, 0)"]
        return Program(HEADER + "\n".join(lines) + "\n")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return RecursionWriter(draw).program()
