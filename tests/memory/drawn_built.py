"""Random functions in which objects of the examples and objects that the function makes stand in the same places: in
variables, fields, lists, results, arguments of recursions, over trees of one class and expressions of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

HEADER = "from tests.memory.branching import T, total\nfrom tests.memory.built import Add, Mul, N, Num\n\n\n"
FLOATS = ("t.x", "t.x * p[0]", "p[1]", "t.x + 0.5", "t.x * t.x - p[0]", "d * 0.25")
TESTS = ("t.x > 0.0", "t.left is None", "t.left is not None and t.left.x > p[1]", "d > 1", "t.right is None")
CHILDREN = ("t.left", "t.right", "None", "go(t.left, d + 1)", "go(t.right, d + 1)", "t", "N(p[0], t.right)")
ENDS = ("t", "None", "N(t.x * p[1])", "t.left", "N(d * p[0], None, t)")
FOLDS = (
    "def s(t):\n    return 0.0 if t is None else t.x + 0.5 * s(t.left) - 0.25 * s(t.right)\nreturn s({x})",
    "r, q = 0.0, [{x}]\nwhile q:\n    t = q.pop()\n    if t is not None:\n        r = r * 0.9 + t.x\n"
    "        q.append(t.left)\n        q.append(t.right)\nreturn r",
    "r, t = 0.0, {x}\nwhile t is not None:\n    r = r * 0.5 + t.x\n    t = t.left if t.x > 0.1 else t.right\nreturn r",
    "return {x}",
)
LISTS = (
    "[go(k) for k in t.kids]",
    "t.kids",
    "t.kids[1:]",
    "[T(p[0], [])] + t.kids",
    "t.kids + [T(t.x, [])]",
    "[k for k in t.kids if k.x > p[1]]",
    "[k if k.x > 0.2 else go(k) for k in t.kids]",
    "sorted([go(k) for k in t.kids], key=lambda k: k.x)",
    "[t, T(p[1], t.kids)][: len(t.kids)]",
    "made",
)
BRANCHES = ("len(t.kids) > 1", "t.x > 0.3", "not t.kids", "t.kids and t.kids[0].x > 0.0")
KEPT = ("t", "T(t.x * p[0], t.kids)", "T(p[0], [])", "t.kids[-1] if t.kids else t")
EXPRESSIONS = ("e", "Num(p[0])", "e.l", "e.r", "go(e.l)", "go(e.r)", "Mul(go(e.l), e.r)", "Add(e.l, Num(1.0))")


class BuiltWriter:
    """Draws the text of a function `main(p, t)` of a tree, or of an expression."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def node(self) -> str:
        return f"N({self.pick(FLOATS)}, {self.pick(CHILDREN)}, {self.pick(CHILDREN)})"

    def tree(self) -> list[str]:
        """A recursion that returns trees, and what is read of its result."""
        lines = ["def go(t, d):", "    if t is None or d > 5:", f"        return {self.pick(['t', 'None', 'N(p[0])'])}"]
        lines += [f"    if {self.pick(TESTS)}:", f"        return {self.pick([*ENDS, self.node(), self.node()])}"]
        lines += [f"    return {self.node()}"]
        return [*lines, *self.pick(FOLDS).format(x="go(t, 0)").split("\n")]

    def loop(self) -> list[str]:
        """Trees in a variable that a loop changes."""
        new, start = self.pick(["N(p[0], t)", "N(t.x * p[1], t, b)", "t.left", "b", "t"]), self.pick(["t", "N(p[1])"])
        lines = [f"b, d = {start}, 0", "for i in range(3):", "    if t is not None:", f"        if {self.pick(TESTS)}:"]
        lines += [f"            b = {new}", f"        t = {self.pick(['t.left', 't.right', 'N(t.x + p[0], t.right)'])}"]
        return [*lines, *self.pick(FOLDS).format(x="b").split("\n")]

    def expression(self) -> list[str]:
        """A recursion over expressions of three classes."""
        lines = ["def go(e):", "    if isinstance(e, Num):", f"        return {self.pick(['e', 'Num(e.v * p[0])'])}"]
        lines += ["    if isinstance(e, Add):", f"        return {self.pick([*EXPRESSIONS, 'Add(go(e.l), go(e.r))'])}"]
        lines += [f"    return {self.pick([*EXPRESSIONS, 'Mul(go(e.l), go(e.r))'])}", "def value(e):"]
        lines += ["    match e:", "        case Num(v):", "            return v"]
        lines += ["        case Add(l, r):", "            return value(l) + value(r)"]
        lines += ["        case _:", "            return value(e.l) * value(e.r) * 0.5"]
        return [*lines, self.pick(["return value(go(t))", "return value(go(t)) + value(t)", "return go(t)"])]

    def branching(self) -> list[str]:
        """A recursion over trees with lists of nodes, in which lists of the examples stand beside others."""
        lines = ["def go(t):", f"    if {self.pick(BRANCHES)}:", f"        return {self.pick(KEPT)}", "    made = []"]
        lines += ["    for k in t.kids:", f"        made.append({self.pick(['go(k)', 'k', 'T(k.x * p[1], k.kids)'])})"]
        lines += [f"    return T(t.x + p[0], {self.pick(LISTS)})"]
        return [*lines, self.pick(["return total(go(t))", "return go(t)", "return total(go(go(t)))"])]

    def program(self) -> Program:
        kind = self.draw(st.sampled_from(["tree", "loop", "expression", "branching"]))
        lines = getattr(self, kind)()
        text = "\n".join("    " + line for line in lines)
        return Program(f"{HEADER}def main(p, t):\n{text}\n", (kind,))


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return BuiltWriter(draw).program()
