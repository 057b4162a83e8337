"""Random programs whose variables, lists and fields hold values of several types, as floats of the examples decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

MADE = {
    "float": ("x", "x * 2.0", "x + total", "abs(x)"),
    "str": ("'a'", "'bc'", "''", "'a' if x > 1.0 else 'd'"),
    "tuple": ("(x, 1.0)", "(x, total)", "(1.0, x * x)"),
    "list": ("[x, x]", "[x]", "[total, 2.0, x]"),
    "int": ("3", "i", "len(xs)"),
    "None": ("None",),
}
TESTS = {
    "float": ("isinstance(v, float)", "type(v) is float"),
    "str": ("isinstance(v, str)", "type(v) == str"),
    "tuple": ("isinstance(v, tuple)", "type(v) is tuple"),
    "list": ("isinstance(v, list)",),
    "int": ("isinstance(v, int)",),
    "None": ("v is None",),
}
USES = {
    "float": ("v", "v * 0.5", "x - v", "v if v > x else 1.0"),
    "str": ("len(v) * 1.0", "2.0 if v == 'a' else x", "1.0 if 'b' in v else 0.5", "1.0 if v else -1.0"),
    "tuple": ("v[0] + v[1]", "v[1]", "sum(v)"),
    "list": ("sum(v)", "v[0] * len(v)", "max(v)"),
    "int": ("v * 1.0", "float(v) + x", "v % 2 * x"),
    "None": ("0.0", "x"),
}
PATTERNS = {"float": "float()", "str": "str()", "tuple": "tuple()", "list": "list()", "int": "int()", "None": "None"}
PLACES = {
    "a variable": (["v = @", "last = v"], "v = last", ["last = 1.0"]),
    "a list": (["kept.append(@)"], "for v in kept:", ["kept = []"]),
    "a stack": (["kept.append(@)"], "while kept:", ["kept = []"]),
    "a dict": (["kept[i % 3] = @"], "for v in kept.values():", ["kept = {}"]),
    "a field": (["kept.append(Held(@))"], "for h in kept:", ["kept = []"]),
    "a pair": (["kept.append((x, @))"], "for w, v in kept:", ["kept = []"]),
}


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(xs)` that keeps a value of one of several types for each number of a list, and adds up what it
    makes of them; and four lists."""
    pick = lambda options: draw(st.sampled_from(options))
    kinds = draw(st.permutations(list(MADE)))[: pick([2, 3, 4])]
    if {"float", "int"} <= set(kinds):  # on two paths they are one number
        kinds.remove("int")
    place = pick(list(PLACES))
    keep, walk, start = PLACES[place]
    if "int" in kinds and place == "a variable":
        start = ["last = 3"]
    limits = sorted(draw(st.lists(st.sampled_from([-1.0, 0.0, 0.75, 1.5]), min_size=len(kinds) - 1, unique=True)))
    made = pick(MADE[kinds[-1]])
    for kind, limit in zip(kinds[-2::-1], limits[len(kinds) - 2 :: -1], strict=False):
        made = f"{pick(MADE[kind])} if x < {limit} else ({made})"
    body = [line.replace("@", made) for line in keep]
    if draw(st.booleans()):
        use = ["match v:"]
        for kind in kinds:
            use += [f"    case {PATTERNS[kind]}:", f"        total += {pick(USES[kind])}"]
        use += ["    case _:", "        total -= 1.0"]
    else:
        use = []
        for k, kind in enumerate(draw(st.permutations(kinds))):
            head = "else:" if k == len(kinds) - 1 and kind == kinds[-1] and place != "a variable" else ""
            use += [head or f"{'if' if k == 0 else 'elif'} {pick(TESTS[kind])}:", f"    total += {pick(USES[kind])}"]
    walked = [walk]
    if place == "a variable":
        lines = [*start, "for i, x in enumerate(xs):", *(f"    {b}" for b in body), *(f"    {u}" for u in use)]
        lines += ["x = 0.5", walk, *use]
    else:
        first = {"a stack": ["    v = kept.pop()"], "a field": ["    v = h.v"]}.get(place, [])
        lines = [*start, "for i, x in enumerate(xs):", *(f"    {b}" for b in body), "x = 0.25", *walked, *first]
        lines += [f"    {u}" for u in use]
    head = [
        "class Held:",
        "    def __init__(self, v):",
        "        self.v = v",
        "",
        "",
        "def main(xs):",
        "    total = 0.5",
    ]
    text = "\n".join([*head, *(f"    {line}" for line in lines), "    return total"]) + "\n"
    numbers = st.lists(st.sampled_from([-2.0, -0.5, 0.25, 1.0, 2.5]), min_size=1, max_size=4)
    return Program(text), draw(st.lists(numbers, min_size=4, max_size=4))
