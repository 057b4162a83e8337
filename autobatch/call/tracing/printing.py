"""What a function prints while it is traced: noted, with the numbers that are computed, and printed example by example
when these are known.

    print("loss", h)        ->   ["loss", Leaf(0)]
    print(f"loss {h:.3f}")  ->   [["loss ", (Leaf(0), ".3f")]]

The text of a number is not known where an f-string is made. In its place stands a mark, where the source shows that the
string goes to `print` and nowhere else.
"""

from __future__ import annotations

import ast
import builtins
import dis
import itertools
import linecache
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

from autobatch.call.blueprints import TextPieces
from autobatch.call.tracing.graphs import ListNode, Node, ResultGraph, Tuple

FORMATTING = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
"""The instructions that an f-string formats a value with."""

MARK = re.compile("\ue000(\\d+)\ue001")


class RunPrinting:
    """What one run prints. `leaves` receives the numbers; `is_symbol`: is a value not known?"""

    def __init__(self, leaves: list[Any], symbol: type, is_symbol: Callable[[Any], bool]) -> None:
        self.leaves, self.symbol, self.is_symbol = leaves, symbol, is_symbol
        self.lines: list[Node] = []
        self._formatted: list[tuple[Any, str]] = []

    def format(self, value: Any, spec: str, frame: FrameType) -> str | None:
        """A mark for the text of a number; None where the text may be looked at."""
        code, at = frame.f_code, frame.f_lasti
        if dis.opname[code.co_code[at]] not in FORMATTING:
            return None
        line, end, column, stop = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
        if line is None or end is None or column is None or stop is None:
            return None
        if not any(a <= (line, column) and (end, stop) <= b for a, b in _printed(code)):
            return None
        self._formatted.append((value, spec))
        return f"\ue000{len(self._formatted) - 1}\ue001"

    def print(self, args: tuple[Any, ...], sep: Any, end: Any, file: Any) -> None:
        """Note a call of `print`."""
        stream = "stderr" if file is sys.stderr else "stdout"
        texts = [" " if sep is None else sep, "\n" if end is None else end, stream]
        self.lines.append(ListNode([ListNode(list(map(self._argument, args))), *texts]))

    def _argument(self, value: Any) -> Node:
        if isinstance(value, str) and MARK.search(value):
            pieces = MARK.split(value)
            return Tuple(TextPieces(), [self._formatted_node(x) if k % 2 else x for k, x in enumerate(pieces)])
        known = len(self.leaves)
        try:
            node = ResultGraph(self.leaves, self.symbol).whole(value)
        except Exception:  # it is no object that can be copied: `str` says whether a number is in it
            del self.leaves[known:]
            return str(value)
        if any(map(self.is_symbol, self.leaves[known:])):
            return node
        del self.leaves[known:]
        return str(value)

    def _formatted_node(self, number: str) -> Node:
        value, spec = self._formatted[int(number)]
        return Tuple((), [ResultGraph(self.leaves, self.symbol).of(value), spec])


@cache
def _printed(code: CodeType) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where f-strings begin and end that go to `print` and nowhere else: lines and columns in bytes."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            for text in itertools.chain.from_iterable(map(_texts, node.args)):
                nested = any(isinstance(x, ast.JoinedStr) for v in text.values for x in ast.walk(_value(v)))
                if not nested and text.end_lineno is not None and text.end_col_offset is not None:
                    found.append(((text.lineno, text.col_offset), (text.end_lineno, text.end_col_offset)))
    return found


def _value(part: ast.expr) -> ast.AST:
    return part.value if isinstance(part, ast.FormattedValue) else part


def _texts(node: ast.expr) -> list[ast.JoinedStr]:
    """The f-strings that an argument is put together of."""
    match node:
        case ast.JoinedStr():
            return [node]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_texts(left), *_texts(right)]
        case _:
            return []


# ---- print itself


class _PrintingLocal(threading.local):
    printing: RunPrinting | None = None


_local = _PrintingLocal()
_lock = threading.Lock()
_depth = 0
_print = builtins.print


def _noting(*args: Any, sep: Any = None, end: Any = None, file: Any = None, flush: bool = False) -> None:
    printing = _local.printing
    if printing is None or not (file is None or file is sys.stdout or file is sys.stderr):
        _print(*args, sep=sep, end=end, file=file, flush=flush)
    else:
        printing.print(args, sep, end, file)


def formatted(value: Any, spec: str, frame: FrameType) -> str | None:
    """A mark for the text of a number that a traced function of this thread formats."""
    return None if _local.printing is None else _local.printing.format(value, spec, frame)


def is_noted() -> bool:
    """Is a function of this thread traced?"""
    return _local.printing is not None


@contextmanager
def noted_in(printing: RunPrinting) -> Iterator[None]:
    """Let `print` of this thread be noted."""
    global _depth, _print
    before, _local.printing = _local.printing, printing
    with _lock:
        _depth += 1
        if _depth == 1:
            _print, builtins.print = builtins.print, _noting
    try:
        yield
    finally:
        _local.printing = before
        with _lock:
            _depth -= 1
            if _depth == 0 and builtins.print is _noting:
                builtins.print = _print
