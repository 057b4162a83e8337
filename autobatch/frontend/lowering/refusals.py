"""What cannot be compiled, and what to write instead: one row for each construct of Python."""

from __future__ import annotations

import ast

from autobatch.frontend.memory.heap import Heap
from autobatch.frontend.types.values import Layout, RecordLayout, describe

_TRACED = "compute it before packing, or write it with jax.numpy"

STATEMENT_REFUSALS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.AsyncFunctionDef: ("`async def` cannot be compiled", "write it with `def`"),
    ast.AsyncFor: ("`async for` cannot be compiled", "use `for`"),
    ast.AsyncWith: ("`async with` cannot be compiled", "compute without it"),
    ast.Global: ("`global` cannot be compiled: free variables are read, never written", "return the new value"),
}
if hasattr(ast, "TryStar"):
    STATEMENT_REFUSALS[ast.TryStar] = ("`except*` cannot be compiled", "test for the condition with `if`")
if hasattr(ast, "TypeAlias"):
    STATEMENT_REFUSALS[ast.TypeAlias] = ("`type` cannot be compiled", "define the alias at the top of the module")

EXPRESSION_REFUSALS: dict[type[ast.expr], tuple[str, str]] = {
    ast.Await: ("`await` cannot be compiled", "write an ordinary function"),
    ast.Yield: (
        "generators cannot be compiled, but where a loop runs over them",
        "write `for x in g(...)`, `list(g(...))`, `sum(g(...))`; or return a list: [... for ...]",
    ),
    ast.YieldFrom: (
        "generators cannot be compiled, but where a loop runs over them",
        "write `for x in g(...)`, `list(g(...))`, `sum(g(...))`; or return a list: [... for ...]",
    ),
    ast.Set: ("a set of values of the program cannot be compiled", "use a tuple, or a list"),
    ast.SetComp: ("a set comprehension cannot be compiled", "use a list comprehension"),
    ast.JoinedStr: (
        "an f-string of numbers cannot be compiled",
        "strings are made before packing; in raise and assert messages f-strings are fine",
    ),
    ast.FormattedValue: ("a formatted number cannot be compiled", _TRACED),
    ast.Starred: ("`*` is not possible here", "name the elements"),
}


def refused_field(heap: Heap, key: str, field: Layout) -> tuple[str, str]:
    """What to refuse, and the cure, where memory cannot hold what a field, element, key or value is."""
    cure = "keep numbers, arrays, and such lists, dicts and objects in them"
    if heap.is_record:
        kind, place = ("dicts", f"key {key!r}") if heap.is_dict else ("lists", f"element {key}")
        return f"{kind} that other containers hold are changed, and their {place} holds {describe(field)}", cure
    if heap.is_dict and isinstance(field, RecordLayout):
        found, value = map(describe, field.items)
        words = f"dicts that other containers hold are changed, with keys of {found}, values of {value}"
        if not heap.no_record:
            return words, cure
        return f"{words}; {heap.no_record}", "make such a dict with all its keys at once, each a constant string"
    if heap.in_segments:
        return f"lists that other containers hold are changed, and hold {describe(field)}", cure
    return (
        f"objects of {heap.name} are changed or linked under control that numbers decide, and their field {key!r} "
        f"holds {describe(field)}",
        "keep numbers, arrays, strings and other such objects in them: of a node of an example its number",
    )
