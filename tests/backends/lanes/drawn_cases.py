"""Random recursions over trees whose kinds are cases of their own: each calls no, one or two children, in one place or
inside of other calls, hands a number down, and keeps floats over calls that the derivative needs, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

HEADER = "import jax.numpy as jnp\n\n\n"
KINDS = 4
ALONE = ("jnp.sin", "jnp.sin", "jnp.tanh", "jnp.arctan", "abs")
TOGETHER = (
    *("({a} + {b})", "({a} - {b})", "({a} * {b})") * 2,
    *("({a} / (1.5 + abs({b})))", "jnp.divide({a}, 2.0 + jnp.sin({b}))", "jnp.hypot({a}, {b} + 0.1)"),
    *("jnp.maximum({a}, {b})", "jnp.mean(jnp.stack([{a}, {b}]))", "jnp.where({a} < 0.4, {a}, {b})"),
)


class CaseWriter:
    """Draws the text of a function `f(p, t, v)`."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw
        self.callees = ("f", "g") if draw(st.booleans()) else ("f",)

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def call(self) -> str:
        down = self.pick(["v", "v", "v * p[1]", "jnp.sin(v)", "t.x", "0.5"])
        return f"{self.pick(self.callees)}(p, t.{self.pick(['left', 'right'])}, {down})"

    def number(self, depth: int, calls: int) -> str:
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return self.call() if calls else self.pick(["p[0]", "p[1]", "p[2]", "t.x", "v", "0.5"])
        if self.draw(st.integers(0, 2)) == 0:
            return f"{self.pick(ALONE)}({self.number(depth - 1, calls)})"
        first = self.draw(st.integers(0, calls))
        a, b = self.number(depth - 1, first), self.number(depth - 1, calls - first)
        return self.pick(TOGETHER).format(a=a, b=b)

    def function(self, name: str) -> list[str]:
        lines = [f"def {name}(p, t, v):", "    if t is None:", f"        return {self.pick(['p[0]', 'v', '0.25'])}"]
        for kind in range(KINDS):
            lines.append(f"    if t.kind == {kind}:" if kind < KINDS - 1 else "    if t.x < 2.0:")
            if self.draw(st.integers(0, 2)) == 0:
                lines.append(f"        v = {self.number(1, self.draw(st.integers(0, 1)))}")
            lines.append(f"        return {self.number(2, self.draw(st.integers(0, 2)))}")
        return [*lines, f"    return {self.number(1, 0)}", "", ""]

    def program(self) -> Program:
        lines = [line for name in self.callees for line in self.function(name)]
        return Program(HEADER + "\n".join([*lines, "def main(p, t):", "    return f(p, t, p[2])"]) + "\n")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return CaseWriter(draw).program()
