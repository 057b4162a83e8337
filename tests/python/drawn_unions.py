"""Random programs that walk data of several types, by the type that each part has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program


@dataclass
class Two:
    left: Any
    right: Any


@dataclass
class One:
    arg: Any


TESTS = {
    "float": ("isinstance(t, float)", "type(t) is float", "isinstance(t, (float, complex))"),
    "str": ("isinstance(t, str)", "type(t) == str"),
    "list": ("isinstance(t, list)", "type(t) is list"),
    "tuple": ("isinstance(t, tuple)", "type(t) is tuple"),
    "Two": ("isinstance(t, Two)", "hasattr(t, 'left')", "type(t) is Two"),
    "One": ("isinstance(t, One)", "hasattr(t, 'arg')"),
    "None": ("t is None",),
}
RESULTS = {
    "float": ("t * x", "t + p[0]", "x - t", "t", "t if t > x else x", "abs(t)", "max(t, x)"),
    "str": ("x * len(t)", "x if t == 'a' else p[1]", "p[0] if t in ('a', 'c') else 0.5", "1.0 if t else x"),
    "list": (
        "sum(main(p, k, x) for k in t) + p[0]",
        "max([main(p, k, x) for k in t], default=0.0)",
        "sum([main(p, t[i], x) * i for i in range(len(t))]) * 0.5",
        "sum([k for k in t if isinstance(k, float)]) + x",
        "x * len([k for k in t if not isinstance(k, (float, str))])",
        "x if not t else main(p, t[0], x)",
        "x * sum([1 for k in t if k == 'a' or k == 1.0])",
    ),
    "tuple": ("main(p, t[0], x) - main(p, t[1], x)", "main(p, t[1], p[0])", "main(p, t[0], x) * p[1] + len(t)"),
    "Two": (
        "main(p, t.left, x) * p[0] + main(p, t.right, x)",
        "main(p, t.left, x) if isinstance(t.right, float) else main(p, t.right, x)",
        "t.left * 2.0 if type(t.left) is float and t.left > 0.0 else main(p, t.right, x)",
    ),
    "One": ("-main(p, t.arg, x)", "main(p, t.arg, x * 0.5)", "x if t.arg is None else main(p, t.arg, x)"),
    "None": ("p[1]", "x"),
}
PATTERNS = {
    "float": "float()", "str": "str()", "list": "list()", "tuple": "tuple()", "Two": "Two()", "One": "One()",
    "None": "None",
}  # fmt: skip
FLOATS, WORDS = st.sampled_from([0.5, 1.0, -2.0, 3.25]), st.sampled_from(["a", "b", "cc", ""])


def data(kinds: Sequence[str]) -> st.SearchStrategy[Any]:
    """Values of these kinds in one another."""
    ends = {"float": FLOATS, "str": WORDS, "None": st.none()}
    inner = st.recursive(
        st.one_of([ends[k] for k in kinds if k in ends]),
        lambda x: st.one_of(
            {
                "list": st.lists(x, max_size=3),
                "tuple": st.tuples(x, x),
                "Two": st.builds(Two, x, x),
                "One": st.builds(One, x),
            }[k]
            for k in kinds
            if k not in ends
        ),
        max_leaves=8,
    )
    return st.lists(inner, min_size=4, max_size=4)


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(p, t, x)` that says for each kind what to do, and four examples of `t`."""
    pick = lambda options: draw(st.sampled_from(options))
    kinds = ["float", *draw(st.permutations(["str", "None", "list", "tuple", "Two", "One"]))[: pick([2, 3, 4])]]
    if not set(kinds) & {"list", "tuple", "Two", "One"}:
        kinds.append("list")
    order = draw(st.permutations(kinds))
    if draw(st.booleans()):
        lines = ["match t:"]
        for k in order:
            lines += [f"    case {PATTERNS[k]}:", f"        return {pick(RESULTS[k])}"]
    else:
        lines = []
        for k in order[:-1]:
            lines += [f"if {pick(TESTS[k])}:", f"    return {pick(RESULTS[k])}"]
        lines.append(f"return {pick(RESULTS[order[-1]])}")
    start = ["from tests.python.drawn_unions import One, Two", "", "", "def main(p, t, x):"]
    return Program("\n".join([*start, *(f"    {line}" for line in lines)]) + "\n"), draw(data(kinds))
