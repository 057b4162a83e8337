"""Random recursions with strings: built of what calls return and passed to them, over trees and over one string, by
places and by slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

WORDS = ("t.name", "s", "'ab'", "t.name.upper()", "t.name[0]", "s[1:]", "s[-2:]", "(t.name * 2)", "t.name[::-1]")
JOINS = ("{a} + {b}", "{b} + {a}", 'f"{{{a}}}-{{{b}}}"', "'.'.join([{a}, {b}])", "({a} if len({a}) > 2 else {b})")
TESTS = (
    "s.startswith('a')",
    "'b' in {a}",
    "{a} > {b}",
    "{a} == {b}",
    "{a}.endswith(t.name)",
    "len({a}) > 3",
    "t.name in ('a', 'cab')",
    "t.x > 0.0",
)
SHORT = "{a}[:9]"
LETTERS = ("s[i]", "s[i].upper()", "s[i] * 2", "chr(ord(s[i]) + 1)", "'-'", "s[i:]", "s[i:i + 2]")


class TextWriter:
    """Draws the text of a function `main(p, t)` of a tree, or of a string that it is named `s` in."""

    def __init__(self, draw: Callable[..., str]) -> None:
        self.draw = draw

    def pick(self, options: Sequence[str]) -> str:
        return self.draw(st.sampled_from(options))

    def word(self) -> str:
        return self.pick(JOINS).format(a=self.pick(WORDS), b=self.pick(WORDS))

    def test(self) -> str:
        return self.pick(TESTS).format(a=self.pick(WORDS), b=self.pick(WORDS))

    def tree(self) -> list[str]:
        """A recursion over a tree, which returns a string, or a number and a string."""
        pair = self.draw(st.booleans())
        joined = self.pick(["a = a + k[:6]", "a = k + a[-4:]", "a = k if k > a[:3] else a", "a += ',' + k[-3:]"])
        lines = ["def go(t, s):", f"    a, v = {self.word()}, t.x * p[0]", "    for c in t.children:"]
        call = f"go(c, {self.pick(WORDS)})"
        lines += [f"        k, w = {call}", f"        v = v + w * {self.pick(['0.5', 'p[1]', 'len(k) * 0.1'])}"]
        lines += ["        " + joined, f"    if {self.test()}:", f"        a = {self.word()}", "        v = v * 0.5"]
        lines += [f"    return {SHORT.format(a='a')}, v"]
        end = "a, v" if pair else self.pick(["v * len(a)", "v if a > 'b' else v * p[1]"])
        return ["def main(p, t):", *("    " + line for line in lines), "    a, v = go(t, 'root')", f"    return {end}"]

    def walk(self) -> list[str]:
        """A recursion over the places of a string."""
        letter, other = self.pick(LETTERS), self.pick(LETTERS)
        test = self.pick(["s[i] > 'b'", "s[i] in 'ac'", "i % 2 == 0", "s[i] == s[-1]", "s[i:].startswith('ab')"])
        lines = ["def go(i):", "    if i >= len(s):", f"        return {self.pick(['', '$'])!r}", "    r = go(i + 1)"]
        lines += [f"    if {test}:", f"        return ({letter} + r)[:12]", f"    return (r + {other})[-12:]"]
        whole = ["def main(p, t):", "    s = t.name + 'abc'", *("    " + line for line in lines), "    r = go(0)"]
        return [*whole, f"    return {self.pick(['r', 'len(r) * p[0] * t.x', 'r, p[1] * t.x'])}"]

    def slices(self) -> list[str]:
        """A recursion over slices of a string, directly."""
        step, value = self.pick(["s[1:]", "s[:-1]", "s[1:-1]"]), self.pick(["v * 0.5 + p[0]", "v + len(s) * p[1]", "v"])
        test = self.pick(["s[0] == s[-1]", "s < 'b'", "s.endswith('c')", "s[0] in 'xab'", "'a' in s"])
        lines = [
            "def go(s, v):",
            "    if not s:",
            "        return v",
            f"    if {test}:",
            f"        return go({step}, v * 2)",
        ]
        lines += [f"    return go(s[1:], {value})"]
        return ["def main(p, t):", *("    " + line for line in lines), "    return go(t.name + 'cab', t.x)"]

    def program(self) -> Program:
        lines = self.draw(st.sampled_from([self.tree, self.walk, self.slices]))()  # type: ignore[operator]
        return Program("\n".join(lines) + "\n")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    return TextWriter(draw).program()
