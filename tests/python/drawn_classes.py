"""Random classes: what `__init__` does in branches, loops, tries and where it raises, defaults of the class, properties
with setters, `__setattr__`, a base class, methods that change the object, an `__exit__` that may end what is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.programs import Program

Pick = Callable[[Any], Any]
VALUES = ("n", "n - 2", "m + 1", "n * m", "3", "abs(n)")
TESTS = ("n > 1", "m < 2", "n == m", "n % 2 == 0", "n + m > 3")


def _set(pick: Pick, attribute: str, depth: int = 0) -> list[str]:
    """Statements of `__init__` that set an attribute, on most paths."""
    value, other, test = pick(VALUES), pick(VALUES), pick(TESTS)
    kinds = ["plain", "branch", "choice", "twice", "raise", "try", "sometimes"] if depth < 2 else ["plain"]
    indented = lambda lines: [f"    {line}" for line in lines]
    match pick(kinds):
        case "plain":
            return [f"self.{attribute} = {value}"]
        case "choice":
            return [f"self.{attribute} = {value} if {test} else {other}"]
        case "twice":
            return [f"self.{attribute} = {value}", f"if {test}:", f"    self.{attribute} += 1"]
        case "branch":
            then, orelse = _set(pick, attribute, depth + 1), _set(pick, attribute, depth + 1)
            return [f"if {test}:", *indented(then), "else:", *indented(orelse)]
        case "raise":
            kind = pick(["ValueError", "KeyError"])
            return [f"if {test}:", f"    raise {kind}('no {attribute}')", *_set(pick, attribute, depth + 1)]
        case "try":
            handler = _set(pick, attribute, depth + 1)
            return [
                "try:",
                f"    self.{attribute} = {value} // (m - 1)",
                "except ZeroDivisionError:",
                *indented(handler),
            ]
        case _:
            return [f"if {test}:", *indented(_set(pick, attribute, depth + 1))]


def _class(pick: Pick, name: str, base: str | None) -> list[str]:
    lines = [f"class {name}({base}):" if base else f"class {name}:"]
    if pick([True, False]) or base is None:
        lines += [f"    {attribute} = {pick(['0', '-1', '7'])}" for attribute in "ab"]
    inits = [line for attribute in pick(["ab", "ba", "a"]) for line in _set(pick, attribute)]
    inits = ["super().__init__(n, m)", *inits] if base else inits
    if pick([True, False]):
        lines += ["    @property", "    def b(self):", "        return self.kept"]
        lines += [
            "    @b.setter",
            "    def b(self, value):",
            f"        self.kept = {pick(['max(value, 0)', 'value * 2'])}",
        ]
        inits = [f"self.kept = {pick(VALUES)}", *inits]
    elif base is None and pick([True, False, False]):
        lines += ["    def __setattr__(self, name, value):", "        super().__setattr__(name, value + (name == 'a'))"]
    lines += ["    def __init__(self, n, m):", *(f"        {line}" for line in inits)]
    lines += ["    def grow(self, k):", f"        if {pick(['self.a > k', 'self.b < 3', 'k > 0'])}:"]
    lines += [f"            self.{pick('ab')} += k", f"        return self.a {pick('+-')} self.b"]
    return lines


GUARD = """
class Guard:
    def __init__(self):
        self.seen = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self.seen += 1 if kind is ValueError else 10
        return kind is KeyError
"""


def _turn(pick: Pick, classes: list[str]) -> list[str]:
    """What is done with a number."""
    made, value = pick(classes), pick(VALUES)
    match pick(["try", "else", "guard", "keep"]):
        case "try":
            return [
                "try:",
                f"    total += {made}({value}, m).grow(n)",
                "except (ValueError, KeyError):",
                "    total -= 1",
            ]
        case "else":
            start = ["try:", f"    made = {made}({value}, m)", "except ValueError as error:"]
            start += ["    total += len(str(error))", "except KeyError:", f"    made = {pick(['None', 'last'])}"]
            last = ["else:", "    last = made", "if last is not None:", "    total += last.grow(1) + last.a"]
            return [*start, *last]
        case "guard":
            return [
                "try:",
                "    with guard:",
                f"        total += {made}(n, {value}).grow(2)",
                "except ValueError:",
                "    pass",
            ]
        case _:
            return ["try:", f"    kept.append({made}(n, m))", "except (ValueError, KeyError):", "    total += 100"]


@st.composite
def programs(draw: Callable[..., Any]) -> tuple[Program, list[Any]]:
    """A function `main(ns)` and three examples of it."""
    pick = lambda options: draw(st.sampled_from(list(options)))
    classes = ["First", "Second"]
    text = [*_class(pick, "First", None), *_class(pick, "Second", pick([None, "First"]))]
    turns = [line for _ in range(pick([1, 2, 3])) for line in _turn(pick, classes)]
    body = [
        "total, last, kept, guard = 0, None, [], Guard()",
        "for m, n in enumerate(ns):",
        *(f"    {x}" for x in turns),
    ]
    end = "return total, sum([x.grow(1) for x in kept]), len(kept), guard.seen"
    source = "\n".join([GUARD, *text, "def main(ns):", *(f"    {line}" for line in [*body, end])]) + "\n"
    lists = st.lists(st.integers(-3, 5), min_size=1, max_size=4)
    return Program(source), [draw(lists) for _ in range(4)]
