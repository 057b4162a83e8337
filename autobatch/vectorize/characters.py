"""Strings of one character, as code points: which strings are such, and what functions of them compute.

%4 = text['__getitem__', args=('abc', ...)](%k)      one character, and so is what chooses between such
%5 = text['isdigit', args=(...,)](%4)           ->   a bit of a table of all code points
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import jax.numpy as jnp
import numpy as np

from autobatch.ir import texts
from autobatch.ir.core import Apply, Call, For, If, Map, Operand, Region, Value, While, walk
from autobatch.ir.rewrite import region_values
from autobatch.ir.types import List, Tag
from autobatch.vectorize.indices import UNKNOWN


def all_single(region: Region) -> frozenset[Value]:
    """The strings, and lists of strings, of which every one has one character: the greatest fixpoint."""
    sources: dict[Value, list[Operand] | None] = {}

    def flow(given: Sequence[Operand], targets: Sequence[Value]) -> None:
        for x, y in zip(given, targets, strict=True):
            held = sources.setdefault(y, [])
            if held is not None:
                held.append(x)

    for i in walk(region):
        match i:
            case Apply(results=results):
                for y in results:
                    sources[y] = _sources(i)
            case If(results=results, then=then, orelse=orelse):
                flow(then.results, results)
                flow(orelse.results, results)
            case For(results=results, init=init, body=body):
                for given in (init, body.results):
                    flow(given, body.args[1:])
                flow(body.args[1:], results)
            case While(results=results, init=init, condition=test, body=body):
                for given in (init, body.results):
                    flow(given, body.args)
                flow(body.args, test.args)
                flow(body.args, results)
            case Map(results=results, body=body, filtered=filtered):
                flow(body.results[filtered:], results)
            case Call():
                pass
            case _:
                assert_never(i)
    single = {x for x in region_values(region) if _of_strings(x.type) and sources.get(x) is not None}
    size = -1
    while size != len(single):
        size = len(single)
        single = {x for x in single if all(y in single for y in sources[x] or ())}
    return frozenset(single)


def _of_strings(type: Any) -> bool:
    while isinstance(type, List):
        type = type.elem
    return isinstance(type, Tag)


def _sources(i: Apply) -> list[Operand] | None:
    """What decides whether a string has one character; None where it may have more."""
    op, xs = i.op, i.operands
    match op.name:
        case "tag":
            return [] if isinstance(op["value"], str) and len(op["value"]) == 1 else None
        case "text":
            return [] if op["function"] in ("__getitem__", "chr") else None
        case "pack_list" | "flatten" | "undefined":
            return list(xs)
        case "item":
            return [xs[0]]
        case "put":
            return [xs[0], xs[2]]
        case _:
            return None


@dataclass(frozen=True)
class Known:
    """What a function of characters computes of code points; `check`: where it fits them, else `message`."""

    meaning: Callable[..., Any]
    check: Callable[..., Any] | None = None
    message: str = ""


@functools.cache
def _table(name: str) -> Any:
    """For each code point, a bit: what a method of `str` says of it."""
    method = getattr(str, name)
    return np.packbits([method(chr(k)) for k in range(texts.BEHIND)], bitorder="little")


def _predicate(name: str) -> Known:
    def holds(code: Any) -> Any:
        table = jnp.asarray(_table(name))
        return ((table[code >> 3] >> (code & 7).astype(jnp.uint8)) & 1).astype(bool)

    return Known(holds)


@functools.cache
def _zeros() -> Any:
    """The code points of the digits 0: those of the others follow them."""
    return np.array([k for k in range(texts.BEHIND) if chr(k).isdecimal() and int(chr(k)) == 0], np.int32)


def _digit(code: Any) -> Any:
    zeros = jnp.asarray(_zeros())
    return code - zeros[jnp.maximum(jnp.searchsorted(zeros, code, side="right") - 1, 0)]


def _is_decimal(code: Any) -> Any:
    return (_digit(code) >= 0) & (_digit(code) < 10)


PREDICATES = (
    *("isalpha", "isdigit", "isalnum", "isupper", "islower", "isspace", "istitle", "isnumeric", "isdecimal"),
    *("isascii", "isidentifier", "isprintable"),
)
KNOWN: dict[str, Known] = {
    "ord": Known(lambda code: code),
    "__len__": Known(jnp.ones_like),
    "__lt__": Known(lambda a, b: a < b),
    "__le__": Known(lambda a, b: a <= b),
    "__gt__": Known(lambda a, b: a > b),
    "__ge__": Known(lambda a, b: a >= b),
    "int": Known(_digit, _is_decimal, f"invalid literal for int() with base 10: {UNKNOWN}"),
    **{name: _predicate(name) for name in PREDICATES},
}
"""By name of the function of strings."""
