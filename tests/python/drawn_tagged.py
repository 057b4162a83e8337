"""Random languages: trees of several kinds of nodes, which a function makes of tokens, rewrites and reads, or which the
examples are. Drawn are the kinds, what stands for a node and how it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

ONE = {"neg": "-{a}", "half": "{a} * 0.5", "square": "{a} * {a}"}
TWO = {"add": "{a} + {b}", "mul": "{a} * {b}", "less": "({a} if {a} < {b} else {b})"}
PLACES = ("op", "left", "right")
NUMBERS = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0])
CLASSES = {"num": "Num", "var": "Var", "neg": "Neg", "half": "Half", "square": "Square"}


class _Language:
    def __init__(self, pick: Callable[[Any], Any], forms: Sequence[str]) -> None:
        self.form = pick(forms)
        self.look = pick(["each", "first"] if self.form in ("dict", "class") else ["each", "first", "match"])
        self.ones = [k for k in ONE if pick([True, False])] or ["neg"]
        self.twos = [k for k in TWO if pick([True, False])] or ["add"]
        self.kinds = ["num", "var", *self.ones, *self.twos]
        if self.form in ("enum", "integer") and self.look == "match":
            self.look = "first"

    def tag(self, kind: str) -> str:
        match self.form:
            case "enum":
                return f"Op.{kind}"
            case "integer":
                return str(self.kinds.index(kind))
            case "class":
                return f"{kind.capitalize()}"
            case _:
                return repr(kind)

    def node(self, kind: str, *parts: str) -> str:
        match self.form:
            case "class":
                return f"{self.tag(kind)}({', '.join(parts)})"
            case "dict":
                return "{" + ", ".join(f"{k!r}: {x}" for k, x in zip(PLACES, (self.tag(kind), *parts))) + "}"
            case "list":
                return f"[{', '.join((self.tag(kind), *parts))}]"
            case _:
                return f"({', '.join((self.tag(kind), *parts))},)"

    def part(self, e: str, k: int) -> str:
        if self.form == "class":
            return f"{e}.{PLACES[k]}"
        return f"{e}[{PLACES[k]!r}]" if self.form == "dict" else f"{e}[{k}]"

    def is_kind(self, e: str, kind: str) -> str:
        if self.form == "class":
            return f"isinstance({e}, {self.tag(kind)})"
        return f"{'op' if self.look == 'first' and e == 'e' else self.part(e, 0)} == {self.tag(kind)}"

    def cases(self, bodies: dict[str, list[str]]) -> list[str]:
        """The lines that do one thing for each kind of `e`; in them are `{a}` and `{b}`, its parts."""
        lines = ["match e:"] if self.look == "match" else []
        if self.look == "first" and self.form != "class":
            lines.append(f"op = {self.part('e', 0)}")
        for kind, body in bodies.items():
            count = 2 if kind in TWO else 0 if kind == "var" else 1
            if self.look == "match":
                parts = ", ".join([self.tag(kind), *"ab"[:count]])
                lines.append(f"    case ({parts},):" if self.form == "tuple" else f"    case [{parts}]:")
                names = {"a": "a", "b": "b"}
            else:
                lines.append(f"if {self.is_kind('e', kind)}:")
                names = {"a": self.part("e", 1), "b": self.part("e", 2)}
            indent = "        " if self.look == "match" else "    "
            lines += [indent + line.format(**names) for line in body]
        return lines

    def definitions(self) -> list[str]:
        match self.form:
            case "enum":
                return ["import enum", "class Op(enum.Enum):", *(f"    {k} = {n}" for n, k in enumerate(self.kinds))]
            case "class":
                lines = []
                for kind in self.kinds:
                    fields = PLACES[1 : 1 + (2 if kind in TWO else 0 if kind == "var" else 1)]
                    lines += [f"class {self.tag(kind)}:", f"    def __init__({', '.join(('self', *fields))}):"]
                    lines += [f"        self.{name} = {name}" for name in fields] or ["        pass"]
                return lines
            case _:
                return []

    def builder(self) -> list[str]:
        """The lines that make a stack of trees of tokens."""
        arms = [("t >= 0", [f"stack.append({self.node('num', 't')})"])]
        arms += [(f"t == {-1 - n}", [f"stack.append({self.node(k, 'stack.pop()')})"]) for n, k in enumerate(self.ones)]
        for n, kind in enumerate(self.twos):
            arms.append(
                (f"t == {-11 - n}", ["b, a = stack.pop(), stack.pop()", f"stack.append({self.node(kind, *'ab')})"])
            )
        lines = ["stack = []", "for t in tokens:"]
        for n, (test, body) in enumerate(arms):
            lines += [f"    {line}" for line in _block(f"{'elif' if n else 'if'} {test}:", body)]
        return [*lines, "    else:", f"        stack.append({self.node('var')})"]

    def readers(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """What `value` and `size` do with each kind."""
        values = {"num": ["return {a}"], "var": ["return x"]}
        values |= {k: ["u = value({a})", "return " + ONE[k].format(a="u")] for k in self.ones}
        values |= {k: ["u, w = value({a}), value({b})", "return " + TWO[k].format(a="u", b="w")] for k in self.twos}
        sizes = {"num": ["return 1"], "var": ["return 1"]}
        sizes |= {k: ["return 1 + size({a})"] for k in self.ones}
        sizes |= {k: ["return size({a}) + size({b})"] for k in self.twos}
        return values, sizes

    def rewriter(self, pick: Callable[[Any], Any]) -> dict[str, list[str]]:
        """What `rewrite` does with each kind: of some it is the node itself, a part of one, or another node."""
        one, two = self.ones[0], self.twos[0]
        found = {"num": ["u = {a} + 1.0", f"return {_escaped(self.node('num', 'u'))}"]}
        found |= {"var": [f"return {pick(['e', _escaped(self.node('num', '0.5'))])}"]}
        for k in self.ones:
            found[k] = ["a1 = rewrite({a})"]
            if k == one and pick([True, False]):
                test, inner = self.is_kind("a1", k), self.part("a1", 1)
                found[k] += [_escaped(f"if {test}:"), f"    return {_escaped(inner)}"]
            found[k].append(f"return {_escaped(self.node(k, 'a1'))}")
        for k in self.twos:
            found[k] = ["a1, b1 = rewrite({a}), rewrite({b})"]
            if k == two and pick([True, False]):
                test = f"{self.is_kind('a1', 'num')} and {self.is_kind('b1', 'num')}"
                folded = self.node("num", f"{self.part('a1', 1)} + {self.part('b1', 1)}")
                found[k] += [_escaped(f"if {test}:"), f"    return {_escaped(folded)}"]
            found[k].append(f"return {_escaped(self.node(k, *pick([('a1', 'b1'), ('b1', 'a1')])))}")
        return found

    def tokens(self, draw: Callable[..., Any], pick: Callable[[Any], Any]) -> list[float]:
        """Of trees that the builder makes."""
        found, depth = [draw(NUMBERS)], 1
        for _ in range(draw(st.integers(0, 7))):
            kind = pick(["num", "var", "one", *(["two"] * 2 if depth > 1 else [])])
            depth += {"num": 1, "var": 1, "one": 0, "two": -1}[kind]
            what = {"num": [0.5, 2.0], "var": [-20.0], "one": range(-len(self.ones), 0)}
            what["two"] = range(-10 - len(self.twos), -10)
            found.append(float(pick(what[kind])))
        return found


def _escaped(line: str) -> str:
    """A line that is formatted later, as it is."""
    return line.replace("{", "{{").replace("}", "}}")


def _block(head: str, lines: list[str]) -> list[str]:
    return [head, *(f"    {line}" for line in lines)]


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(tokens, x)` and three examples of it."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    language = _Language(pick, ["tuple", "list", "dict", "class", "enum", "integer"])
    values, sizes = language.readers()
    rewritten = language.rewriter(pick)
    order = draw(st.permutations(language.kinds))
    functions = [
        *_block("def size(e):", language.cases({k: sizes[k] for k in order})),
        *_block("def rewrite(e):", language.cases({k: rewritten[k] for k in order})),
    ]
    inner = _block("def value(e):", language.cases({k: values[k] for k in order}))
    end = pick([
        ["return value(stack[-1]) + size(stack[-1])"],
        ["return value(rewrite(stack[-1])), size(rewrite(stack[0]))"],
        ["return [value(e) for e in stack]"],
    ])  # fmt: skip
    source = "\n".join(
        [*language.definitions(), *functions, *_block("def main(tokens, x):", [*language.builder(), *inner, *end])]
    )
    return Program(source + "\n"), [(language.tokens(draw, pick), draw(NUMBERS)) for _ in range(3)]


@st.composite
def readers(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(trees, x)` of lists of trees, and six examples of it, of which the first has all kinds."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    language = _Language(pick, ["tuple", "dict", "class", "enum", "integer"])
    values, sizes = language.readers()
    rewritten = language.rewriter(pick)
    order = draw(st.permutations(language.kinds))
    inner = _block("def value(e):", language.cases({k: values[k] for k in order}))
    end = pick([
        ["return value(trees[-1]) + size(trees[0])"],
        ["return sum([value(e) for e in trees]), max([size(e) for e in trees])"],
        ["return [value(e) for e in trees]"],
        ["total = 0.0", "for e in trees:", "    if size(e) > 1:", "        total += value(e)", "return total"],
        ["return value(rewrite(trees[-1])), size(rewrite(trees[0]))"],
        ["return rewrite(trees[-1])"],
        ["return [rewrite(e) if size(e) > 1 else e for e in trees]"],
        ["best = trees[0]", "for e in trees:", "    if value(e) > value(best):", "        best = rewrite(e)",
         "return value(best), best"],
    ])  # fmt: skip
    source = [
        *language.definitions(),
        *_block("def build(tokens):", [*language.builder(), "return stack"]),
        *_block("def size(e):", language.cases({k: sizes[k] for k in order})),
        *_block("def rewrite(e):", language.cases({k: rewritten[k] for k in order})),
        *_block("def main(trees, x):", [*inner, *end]),
    ]
    program = Program("\n".join(source) + "\n")
    build = program.function.__globals__["build"]
    of_all = [0.5, *(-1.0 - k for k in range(len(language.ones)))]
    for k in range(len(language.twos)):
        of_all += [-20.0, -11.0 - k]
    return program, [(build(x), draw(NUMBERS)) for x in (of_all, *(language.tokens(draw, pick) for _ in range(5)))]
