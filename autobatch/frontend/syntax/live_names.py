"""Where the variables of a function are live: read on some way from there before they are set again.

for c in xs:          c is not live behind the loop, though another one reads a variable of that name
    out.append(c)
for c in ys:
    s = s + c

A backward walk over the statements (Aho, Lam, Sethi, Ullman: Compilers, 2nd edition, 9.2.5); what is live is a set of
bits, one for each variable. Where the flow is not followed (`try`, functions inside that hold a variable), it is live.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
Names = int
"""A set of variables, as bits."""


@dataclass(frozen=True)
class _Ways:
    """What is live behind a statement; where `break` leads to, and `continue`."""

    behind: Names = 0
    broken: Names = 0
    continued: Names = 0

    def then(self, behind: Names) -> _Ways:
        return replace(self, behind=behind)


class LiveNames:
    """The live variables of a function of this body."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._bits: dict[str, Names] = {}
        self._known: dict[ast.AST, Names] = {}
        self._live: dict[ast.stmt, Names] = {}
        self._held = self._held_inside(body)
        self._sequence(body, _Ways())

    def behind(self, node: ast.AST, name: str) -> bool | None:
        """Is a variable live behind a statement? None where that is none of this function."""
        found = self._live.get(node) if isinstance(node, ast.stmt) else None
        return None if found is None else bool((found | self._held) & self._bits.get(name, 0))

    def _bit(self, name: str) -> Names:
        return self._bits.setdefault(name, 1 << len(self._bits))

    # ---- statements: what is live in front of them

    def _sequence(self, statements: Sequence[ast.stmt], ways: _Ways) -> Names:
        behind = ways.behind
        for statement in reversed(statements):
            # paths that have left the turn run on beside the others, behind flags, to where the loop ends
            self._live[statement] = self._live.get(statement, 0) | behind | ways.broken | ways.continued
            behind = self._statement(statement, ways.then(behind))
        return behind

    def _statement(self, node: ast.stmt, ways: _Ways) -> Names:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._reads(test) | self._sequence(body, ways) | self._sequence(orelse, ways)
            case ast.For(target=target, iter=source, body=body, orelse=orelse):
                turns = self._loop(body, orelse, ways, self._reads(target), self._sets(target))
                return self._reads(source) | turns
            case ast.While(test=test, body=body, orelse=orelse):
                return self._loop(body, orelse, ways, self._reads(test), 0)
            case ast.Break():
                return ways.broken
            case ast.Continue():
                return ways.continued
            case ast.Return() | ast.Raise():
                return self._reads(node)
            case ast.With(items=items, body=body):
                return self._read_by(items) | self._sequence(body, ways)
            case ast.Match(subject=subject, cases=cases):
                found = self._reads(subject) | ways.behind
                for c in cases:
                    found |= self._reads(c.pattern) | self._sequence(c.body, ways)
                    found |= self._reads(c.guard) if c.guard is not None else 0
                return found
            case ast.Try() | ast.TryStar():
                return self._guarded(node, ways)
            case _:
                return self._reads(node) | (ways.behind & ~self._sets(node))

    def _loop(
        self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], ways: _Ways, reads: Names, sets: Names
    ) -> Names:
        """Where a loop begins a turn, or ends. `reads`, `sets`: what its head does in front of each turn."""
        begins = reads | self._sequence(orelse, ways)
        while True:
            turn = self._sequence(body, _Ways(begins, ways.behind, begins))
            found = begins | (turn & ~sets)
            if found == begins:
                return begins
            begins = found

    def _guarded(self, node: ast.Try | ast.TryStar, ways: _Ways) -> Names:
        """Any statement of the body may be the last one in front of a handler: what is read anywhere in it, or behind
        it, is live in all of it."""
        live = ways.behind | ways.broken | ways.continued | self._reads(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.stmt) and inner is not node:
                self._live[inner] = self._live.get(inner, 0) | live
        return live

    # ---- what one reads and sets

    def _reads(self, node: ast.AST) -> Names:
        """What an expression, or a whole statement, reads. The variables of comprehensions are their own."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._find_reads(node)
        return found

    def _read_by(self, nodes: Sequence[ast.AST]) -> Names:
        found = 0
        for node in nodes:
            found |= self._find_reads(node)
        return found

    def _find_reads(self, node: ast.AST) -> Names:
        match node:
            case ast.Name(id=name, ctx=context):
                return self._bit(name) if isinstance(context, ast.Load) else 0
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                return self._bit(name) | self._find_reads(value)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                first, *rest = node.generators
                own = 0
                for generator in node.generators:
                    own |= self._named(generator.target)
                values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                inside = self._read_by([*values, *first.ifs, first.target, *rest])
                return self._find_reads(first.iter) | (inside & ~own)
            case _:
                return self._read_by(list(ast.iter_child_nodes(node)))

    def _sets(self, node: ast.AST) -> Names:
        """What a statement, or the head of one, sets whatever happens."""
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                return self._bit(name)
            case ast.Assign(targets=parts) | ast.Delete(targets=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                found = 0
                for part in parts:
                    found |= self._sets(part)
                return found
            case ast.AnnAssign(target=target, value=ast.expr()) | ast.Starred(value=target):
                return self._sets(target)
            case _:
                return 0

    def _named(self, node: ast.AST) -> Names:
        """Every variable that is named inside."""
        found = 0
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                found |= self._bit(inner.id)
        return found

    def _held_inside(self, body: Sequence[ast.stmt]) -> Names:
        """The variables that inner functions may read at any time, or that are those of other functions."""
        found = 0
        for inner in (n for statement in body for n in ast.walk(statement)):
            if isinstance(inner, INNER):
                found |= self._named(inner)
            elif isinstance(inner, ast.Global | ast.Nonlocal):
                for name in inner.names:
                    found |= self._bit(name)
        return found
