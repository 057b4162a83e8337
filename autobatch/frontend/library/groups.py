"""`itertools.groupby`: its groups are lists, which Python's are not: there a group is read once, before the next one.

    for key, group in groupby(xs, f):         found = list(xs);  keys = [f(x) for x in found]
        s = s + sum(group)            ->      (start, k: where a group begins and ends)
                                                  key, group = keys[start], found[start:k]
                                                  s = s + sum(group)

What may read a group twice, or keep it, is refused.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v


def groups(items: Any, key: Any) -> Any:
    """Lowered like a generator of the user."""
    found = list(items)
    keys = [key(x) for x in found]
    k = 0
    while k < len(found):
        start = k
        k = k + 1
        while k < len(found) and keys[k] == keys[start]:
            k = k + 1
        yield keys[start], found[start:k]


GROUPS = "run over it with `for key, group in ...`, and read each group once: list(group)"


def is_groups(value: v.Abstract) -> bool:
    """Is it what `groupby` gives?"""
    return isinstance(value, v.Generator) and value.source.function is groups


def refuse_whole(s: LoweringState, value: v.Generator) -> None:
    """Refuse to read all groups before what is done with each."""
    if is_groups(value):
        s.refuse("what itertools.groupby() gives is read to its end before any group is", GROUPS)


def refuse_second_reads(s: LoweringState, node: ast.For, generator: v.Generator) -> None:
    """Refuse a loop over groups that may read one twice, or behind its turn: Python finds nothing there."""
    if generator.source.function is not groups:
        return
    match node.target:
        case ast.Tuple(elts=[_, ast.Name(id=name)]):
            reads = [n for b in node.body for n in ast.walk(b) if isinstance(n, ast.Name) and n.id == name]
        case _:
            s.refuse("a group of itertools.groupby() has no name of its own here", GROUPS)
    if len(reads) > 1 or not all(_is_read_once(b, name) for b in node.body):
        s.refuse(f"{name}, a group of itertools.groupby(), may be read more than once, or kept", GROUPS)


_READERS = frozenset({"dict", "list", "max", "min", "set", "sorted", "sum", "tuple"})


def _is_read_once(node: ast.AST, name: str) -> bool:
    """Is a variable given to a function that reads all of it at once, or run over, and not in what runs again?"""
    match node:
        case ast.Name(id=found):
            return found != name
        case ast.Call(func=ast.Name(id=reader), args=[ast.Name(id=found), *rest]) if (
            reader in _READERS and found == name
        ):
            return all(_is_read_once(x, name) for x in (*rest, *node.keywords))
        case ast.For(iter=ast.Name(id=found)) if found == name:
            return True
        case ast.comprehension(iter=ast.Name(id=found)) if found == name:
            return True
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            first, *others = node.generators
            again = [x for x in ast.iter_child_nodes(node) if x is not first]
            return _is_read_once(first, name) and not any(map(partial(_reads, name), (*others, *again)))
        case ast.For(iter=items, body=body, orelse=orelse):
            return _is_read_once(items, name) and not any(map(partial(_reads, name), (*body, *orelse)))
        case ast.While() | ast.FunctionDef() | ast.Lambda():
            return not _reads(name, node)
        case _:
            return all(_is_read_once(x, name) for x in ast.iter_child_nodes(node))


def _reads(name: str, node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
