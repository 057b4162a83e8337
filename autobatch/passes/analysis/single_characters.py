"""Which strings have one character, whatever they are: such are code points under data-dependent control flow.

%4 = text['__getitem__', args=('abc', ...)](%k)      one character, and so is what chooses between such
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from autobatch.ir.core import Apply, Call, For, If, List, Map, Operand, Region, Tag, Value, While, walk
from autobatch.ir.rewrite import region_values


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
