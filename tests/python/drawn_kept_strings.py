"""Random functions that keep strings which they put together: in fields of objects, None among them, in lists in lists,
as keys and values of dicts in dicts, in tuples; and what they read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from autobatch.testing.programs import Program

HEADER = "from tests.python.kept_strings import Name\n\n\n"
MADE = (
    "n + '!'",
    "n[1:]",
    "n[::-1]",
    "n + n",
    "f'{n}{k}'",
    "n.upper()",
    "n[:1]",
    "n",
    "'a'",
    "''",
    "n.replace('a', '-')",
)
TESTS = ("x > 0.0", "len(n) > 2", "n[0] == 'a'", "k % 2 == 0", "n < 'c'")
KEEPS = {
    "objects": (
        "held = []",
        "held.append(Name({a} if {t} else {maybe}, x, None))",
        "if len(held) > 2:\n    held[-2].text = {b}",
        "for o in held:\n    s = s * 0.9 + (o.x if o.text is None else o.x * len(o.text))\n"
        "    s = s + (p[0] if o.text == {c} else 0.0)",
    ),
    "chain": (
        "held = None",
        "held = Name({a}, x * p[0], held) if {t} else Name({b}, x, held)",
        "",
        "while held is not None:\n    s = s * 0.8 + held.x * (1 + len(held.text))\n"
        "    s = s + p[1] * (held.text > {c})\n    held = held.next",
    ),
    "rows": (
        "held = [[]]",
        "held[-1].append({a})",
        "if {t}:\n    held.append([{b}])",
        "for row in held:\n    for w in row:\n        s = s * 0.7 + len(w) * p[0]\n        if {c} in w:\n"
        "            s = s - p[1]",
    ),
    "dicts": (
        "held = {{}}",
        "if {a} not in held:\n    held[{a}] = {{}}",
        "held[{a}][{b}] = held[{a}].get({b}, 0.0) + x",
        "for w, row in held.items():\n    for u, y in row.items():\n        s = s * 0.9 + y * len(u) + p[0] * len(w)\n"
        "        s = s + (y if u == {c} else 0.0)",
    ),
    "pairs": (
        "held = {{}}",
        "held.setdefault(len(n), []).append(({a}, x))",
        "if {t}:\n    held[len(n)].pop()",
        "for m in held:\n    for w, y in held[m]:\n        s = s * 0.9 + y * len(w)\n        s = s + p[1] * (w == {c})",
    ),
}
CONSTANTS = ("'a'", "'ab!'", "'b'", "''")


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    """A function `main(p, names, xs)`."""

    def pick(options: Sequence[str]) -> str:
        return draw(st.sampled_from(options))

    kind = pick(sorted(KEEPS))
    given = {"a": pick(MADE), "b": pick(MADE), "t": pick(TESTS), "c": pick(CONSTANTS)}
    begin, first, then, end = (x.format(**given, maybe=pick(["None", given["b"]])) for x in KEEPS[kind])
    body = [begin, "s = 0.0", "for k, (n, x) in enumerate(zip(names, xs)):"]
    body += ["    " + line for line in (*first.split("\n"), *then.split("\n"))]
    result = "return held" if kind in ("objects", "chain", "rows") and draw(st.booleans()) else f"{end}\nreturn s"
    lines = "\n".join("    " + line for part in (*body, result) for line in part.split("\n"))
    return Program(f"{HEADER}def main(p, names, xs):\n{lines}\n", (kind,))
