"""Functions as they are written: their lines, and the lines on which something is done."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autobatch.errors import UnsupportedError
from autobatch.frontend.syntax.sources import source_of
from autobatch.source import Span

Where = tuple[str, int]
"""A line: file and number."""


@dataclass(frozen=True)
class WrittenLines:
    """The lines `first` to `last` of a file. `statements`: the lines of each, without those of the body inside it."""

    name: str
    file: str
    first: int
    last: int
    statements: tuple[tuple[int, int], ...]

    def lines(self) -> list[tuple[int, str]]:
        """Numbers and texts, without the indentation that they all have."""
        found = [linecache.getline(self.file, n).rstrip().expandtabs() for n in range(self.first, self.last + 1)]
        indent = self.indent
        return [(n, text[indent:]) for n, text in enumerate(found, self.first)]

    @property
    def indent(self) -> int:
        """How many blanks stand before all lines."""
        texts = (linecache.getline(self.file, n).expandtabs() for n in range(self.first, self.last + 1))
        return min((len(t) - len(t.lstrip()) for t in texts if t.strip()), default=0)

    def holds(self, other: WrittenLines) -> bool:
        """Is the other text a part of this one?"""
        return self.file == other.file and self.first <= other.first and other.last <= self.last


def written(function: Callable[..., Any]) -> WrittenLines | None:
    """A Python function as it is written; None where its text is not available."""
    function = inspect.unwrap(getattr(function, "__autobatch_function__", function))
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return None
    try:
        source = source_of(function)
    except UnsupportedError:
        return None
    return _described(source.node, source.file, source.name)


def around(place: Span) -> WrittenLines | None:
    """The innermost function around a place; None where there is none."""
    nodes = [n for n in ast.walk(_parsed(place.file)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [n for n in nodes if _first(n) <= place.line <= (n.end_lineno or n.lineno)]
    inner = max(found, key=_first, default=None)
    return None if inner is None else _described(inner, place.file, inner.name)


def outermost(found: Iterable[WrittenLines | None]) -> list[WrittenLines]:
    """Every text once, without those that lie inside another one."""
    kept: list[WrittenLines] = []
    for text in found:
        if text is not None and not any(other.holds(text) for other in kept):
            kept = [other for other in kept if not text.holds(other)] + [text]
    return kept


@lru_cache(maxsize=64)
def _parse(file: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except SyntaxError:
        return ast.Module([], [])


def _parsed(file: str) -> ast.Module:
    return _parse(file, "".join(linecache.getlines(file)))


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


def _described(node: Any, file: str, name: str) -> WrittenLines:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    statements = tuple(sorted({extent for part in body for extent in _statements(part)}))
    return WrittenLines(name.rpartition("<locals>.")[2], file, _first(node), node.end_lineno or node.lineno, statements)


def _statements(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Where each statement stands, inner ones too; texts that document, and names of other scopes, do nothing."""
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    declares = isinstance(node, ast.Global | ast.Nonlocal)
    if isinstance(node, ast.match_case):
        yield node.pattern.lineno, node.body[0].lineno - 1
    elif isinstance(node, ast.expr) or (isinstance(node, ast.stmt) and not documents and not declares):
        inner = getattr(node, "body", None)
        last = inner[0].lineno - 1 if isinstance(inner, list) else node.end_lineno or node.lineno
        yield node.lineno, max(node.lineno, last)
    if isinstance(node, ast.stmt | ast.match_case):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.match_case):
                yield from _statements(child)
