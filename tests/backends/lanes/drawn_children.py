"""Random recursions over trees of any number of children, whose results are in a list that is read in several ways: by
reductions, loops, places, in another order, beside the children, more than once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

HEADER = "import math\nimport jax.numpy as jnp\n\n\n"
READS = (
    "a = a + sum({ks}) * 0.5",
    "a = a + max({ks}, default=0.25) * p[1]",
    "a = a - min({ks}, default=v) * 0.3",
    "a = a + len({ks}) * 0.1",
    "a = a + {ks}[0] * 0.4 if {ks} else a - p[2]",
    "a = a + ({ks}[-1] - {ks}[len({ks}) // 2]) * p[0] if len({ks}) > 1 else a",
    "a = a + sum(jnp.tanh(k * p[1]) for k in {ks})",
    "a = a + sum(k * c.x for k, c in zip({ks}, t.children)) * 0.2",
    "a = a + sum(k * i for i, k in enumerate({ks})) * 0.1",
    "a = a + sum([k for k in {ks} if k > p[0]]) * 0.3",
    "a = a + (0.1 if any(k > 0.5 for k in {ks}) else v * 0.2)",
)
BLOCKS = (
    ["for k in {ks}:", "    a = a * 0.9 + k * 0.1"],
    ["for k in {ks}:", "    if k > a:", "        a = k"],
    ["for i in range(len({ks})):", "    a = a + {ks}[i] * {ks}[i - 1] * 0.1"],
    ["m = max({ks}, default=0.0)", "z = sum(jnp.exp(k - m) for k in {ks}) + 1.0", "a = a + jnp.log(z)"],
    ["for k in reversed({ks}):", "    a = (a + k) * 0.5"],
    ["i = 0", "while i < len({ks}) and {ks}[i] < 0.7:", "    a = a + {ks}[i] * 0.2", "    i += 1"],
    ["{ks}.append(v * p[0])", "a = a + {ks}[-1] * 0.5"],
    ["for k in {ks}[1:]:", "    a = a - k * 0.2"],
)
SECONDS = ("ls = [k * p[1] + 0.1 for k in ks]", "ls = list(ks)", "ls = [k for k in ks if k > 0.0]")
DOWN = ("v", "v * 0.5", "v + t.x * 0.1", "p[1]")


class ChildrenWriter:
    """Draws the text of a function `main(p, t, v=0.5)`, directly recursive or with a recursion inside."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def body(self, name: str) -> list[str]:
        down, two = self.pick(DOWN), self.draw(st.booleans())
        call = f"{name}(p, c, {down})"
        lines = ["a = t.x * p[0]"]
        if self.draw(st.booleans()):
            lines += [f"ks = [{call} for c in t.children]"]
        else:
            test = self.pick(["", "if c.x > 0.0:", "if len(t.children) > 1:"])
            inner = [test, f"    ks.append({call})"] if test else [f"ks.append({call})"]
            lines += ["ks = []", "for c in t.children:", *("    " + line for line in inner)]
        if two:
            lines += [
                self.pick(["ls = [k * p[1] + 0.1 for k in ks]", "ls = list(ks)", "ls = [k for k in ks if k > 0.0]"])
            ]
        for _ in range(self.draw(st.integers(1, 3))):
            ks = self.pick(["ks", "ls"]) if two else "ks"
            if self.draw(st.booleans()):
                lines.append(self.pick(READS).format(ks=ks))
            else:
                lines += [line.format(ks=ks) for line in self.draw(st.sampled_from(BLOCKS))]
        return [*lines, f"return {self.pick(['a', 'jnp.tanh(a)', 'a * 0.5 + v * 0.1'])}"]

    def program(self) -> Program:
        if self.draw(st.booleans()):
            lines = ["def main(p, t, v=0.5):", *("    " + line for line in self.body("main"))]
        else:
            lines = ["def main(p, t):", "    def go(p, t, v):", *("        " + line for line in self.body("go"))]
            lines += ["    return go(p, t, 0.5) + go(p, t, p[2])"]
        return Program(HEADER + "\n".join(lines) + "\n")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return ChildrenWriter(draw).program()
