"""Functions of one string of the examples as columns over the vocabulary: each word is asked once, by the host.

    s.isdigit()                a bool for each word
    len(s.strip().upper())     each word of which is another one: a table of words, in the same rows
    s.split(",")               a table of all parts, and where those of each word begin

For programs that have no host while they run (`passes/memory/rows.py`). The name of a column says what it holds.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from autobatch.data.schema import column_of_words
from autobatch.ir import texts
from autobatch.ir.types import BOOL

Step = tuple[str, tuple[Any, ...]]
"""A function of strings with its operands; `...` is the word, and of a part of it which one (`ir/texts.py`)."""

LETTERS, OFFSETS, BEGINS, VALUES = ".#letters", ".#offsets", ".#begins", ".#values"
"""The code points of words behind one another; where those of each begin; where the parts of each begin; numbers."""


def name_of(steps: Sequence[Step], part: str) -> str:
    """The name of a column of what functions, one after another, make of the words."""
    return column_of_words((_written(tuple(steps)) if steps else "") + part)


def _written(x: Any) -> str:
    if isinstance(x, tuple):
        return f"({''.join(f'{_written(y)}, ' for y in x)})"
    return "..." if x is ... else repr(x)


def column(words: tuple[str, ...], name: str) -> Any:
    """A column of the vocabulary by its name."""
    return _column(words, name, jax.dtypes.canonicalize_dtype(int))


@functools.lru_cache(maxsize=64)
def _column(words: tuple[str, ...], name: str, whole: Any) -> Any:
    path, _, part = name.removeprefix(column_of_words("")).rpartition(".#")
    steps: list[Step] = list(ast.literal_eval(path or "()"))
    match f".#{part}":
        case ".#values":
            return _numbers(_table(words, steps[:-1]), *steps[-1], whole)
        case ".#begins":
            return _offsets([len(_parts(word, *steps[-1])) for word in _table(words, steps[:-1])])
        case kind:
            table = _table(words, steps)
            return _offsets([*map(len, table)]) if kind == OFFSETS else _letters(table)


def _table(words: Sequence[str], steps: Sequence[Step]) -> Sequence[str]:
    for name, args in steps:
        if name.endswith("_item"):
            words = [part for word in words for part in _parts(word, name, args)]
        else:
            words = [_called(word, name, args, "") for word in words]
    return words


def _parts(word: str, name: str, args: tuple[Any, ...]) -> list[str]:
    """All parts of a word; `args`: the word, which part, and how it is split."""
    how = args[2:]
    try:
        count = (
            3 if name.endswith("partition_item") else texts.call(name.replace("_item", "_count"), (..., *how), [word])
        )
        return [texts.call(name, (..., k, *how), [word]) for k in range(count)]
    except texts.FAILURES:
        return []


def _called(word: str, name: str, args: tuple[Any, ...], otherwise: Any) -> Any:
    try:
        return texts.call(name, args, [word])
    except texts.FAILURES:
        return otherwise


def _numbers(words: Sequence[str], name: str, args: tuple[Any, ...], whole: Any) -> Any:
    """0 where there is none, or where it is too wide for the device."""
    kind, width = bool if texts.FUNCTIONS[name][1] == BOOL else whole, np.iinfo(whole)
    found = [_called(word, name, args, 0) for word in words or ("",)]
    return np.array([int(x) if width.min <= x <= width.max else 0 for x in found], kind)


def _offsets(lengths: Sequence[int]) -> Any:
    return np.concatenate([[0], np.cumsum(lengths or [0])]).astype(np.int32)


def _letters(words: Sequence[str]) -> Any:
    return np.array([*map(ord, "".join(words)), 0], np.int32)
