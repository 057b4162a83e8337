"""Constant words that recursions read as numbers: the entry hands them on.

    func @f(%1: int32*):                      func @main(...):
      %2 = tag[value='in']()                    %8 = tag[value='in'](); %9 = word(%8)
      %3 = word(%2)                    ->       call @f(0, %9)
      ... eq(%1, %3) ... call @f(..)          func @f(%1: int32*, %3: int32*): ... call @f(.., %3)

What number a word has, the host says of each batch; a recursion on the device holds numbers alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autobatch.ir.core import Apply, Instruction, Module, Operand, Region, Value, operands, regions, walk
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh, with_operands, with_regions
from autobatch.ir.types import INT
from autobatch.passes.memory.chosen_rows import handing_on
from autobatch.passes.simplify.inline import recursive_functions

Words = dict[Any, Value]
"""The numbers of words, by their type and what they are."""


def with_words_handed(module: Module) -> Module:
    """The module whose recursions are given the numbers of the constant words that they read."""
    fresh, recursive = Fresh(module), recursive_functions(module)
    entry, *others = module.functions
    if entry.name in recursive:
        return module
    found: dict[str, Words] = {f.name: {} for f in module.functions}
    made = [replace(f, region=_without(f.region, found[f.name], fresh)) if f.name in recursive else f for f in others]
    if not any(found.values()):
        return module
    entry, *others = handing_on([entry, *made], found, fresh.like)
    first: list[Instruction] = []
    for (type, word), number in found[entry.name].items():
        tag = fresh.value(type)
        first.append(Apply((tag,), own("tag", value=word), (), entry.span))
        first.append(Apply((number,), own("word"), (tag,), entry.span))
    entry = replace(entry, region=replace(entry.region, body=(*first, *entry.region.body)))
    return replace(module, functions=(entry, *others))


def _without(region: Region, numbers: Words, fresh: Fresh) -> Region:
    """A region without such words; notes the values that their numbers are."""
    inside = [i for i in walk(region) if isinstance(i, Apply)]
    tags = {i.results[0]: (i.results[0].type, i.op["value"]) for i in inside if i.op.name == "tag"}
    names: dict[Operand, Value] = {}
    for i in inside:
        if i.op.name == "word" and i.operands[0] in tags:
            key = tags[i.operands[0]]
            if key not in numbers:
                numbers[key] = fresh.value(INT)
            names[i.results[0]] = numbers[key]
    if not names:
        return region
    made = with_operands(_dropping(region, set(names)), lambda x: names.get(x, x))
    read = {x for i in walk(made) for x in (*operands(i), *(x for r in regions(i) for x in r.results))}
    return _dropping(made, set(tags) - read - {*made.results})


def _dropping(region: Region, results: set[Any]) -> Region:
    """A region without the operations that compute these values."""
    kept = (i for i in region.body if not isinstance(i, Apply) or results.isdisjoint(i.results) or not i.results)
    return replace(region, body=tuple(with_regions(i, lambda r: _dropping(r, results)) for i in kept))
