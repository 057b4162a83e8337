"""A loop over structure that computed numbers may end early runs all its turns: in the rest, a row does nothing.

    %5 = while (0, %h, False)                          %5 = for %n (0, %h, False)
      test (%i, %g, %broken):                            do (%turn, %i, %g, %broken):
        yield %i < %n and not %broken                      yield if not %broken then:
      do (%i, %g, %broken):                       ->                 %x = item(%xs, %turn)
        %x = item(%xs, %i)                                           ...
        ...                                                          yield %turn + 1, %y, %stop
        yield %i + 1, %y, %stop                                    else: yield %i, %g, %broken

How many turns the loop can have is structure, so they are laid out ahead; a branch in each of them is a mask. What the
turns read of structure is read by the turn that the host knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autobatch.ir.core import Apply, For, If, Instruction, Literal, Module, Operand, Region, Value, While
from autobatch.ir.rewrite import Fresh, copy_region, region_values, with_regions
from autobatch.ir.types import INT


def run_all_turns(module: Module, device: frozenset[Value], stands: Callable[[While], bool]) -> Module:
    """The module with such loops as loops of as many turns as structure says; the same module where there is none.
    `device`: the values that computed numbers decide. `stands`: can a loop not stay as it is?"""
    fresh, changed = Fresh(module), []

    def each(instruction: Instruction) -> Instruction:
        whole = with_regions(instruction, in_region)
        if not isinstance(whole, While) or whole.condition.results[0] not in device or not stands(whole):
            return whole
        made = _counted(whole, device, fresh)
        changed.append(made is not None)
        return made or whole

    def in_region(region: Region) -> Region:
        return replace(region, body=tuple(map(each, region.body)))

    functions = tuple(replace(f, region=in_region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if any(changed) else module


def _counted(loop: While, device: frozenset[Value], fresh: Fresh) -> For | None:
    """The loop as one whose number of turns is known; None where no part of its test says so."""
    test, body = loop.condition, loop.body
    makers = {r: i for i in test.body if isinstance(i, Apply) for r in i.results}
    inside = set(region_values(test))
    for part in _parts(test.results[0], makers):
        made = makers.get(part) if isinstance(part, Value) else None
        if made is None or made.op.name != "lt" or made.operands[0] not in test.args:
            continue
        k, count = test.args.index(made.operands[0]), made.operands[1]
        known = isinstance(count, Literal) or (count not in inside and count not in device)
        if known and _counts_from_zero(loop, k):
            turn, carried = fresh.value(INT), fresh.like(body.args)
            env: dict[Value, Operand] = dict(zip(test.args, carried, strict=True))
            env[test.args[k]] = turn
            tested = copy_region(replace(test, args=()), env, fresh)
            env = dict(zip(body.args, carried, strict=True))
            env[body.args[k]] = turn
            then = copy_region(replace(body, args=()), env, fresh)
            results = fresh.like(loop.results)
            branch = If(results, tested.results[0], then, Region((), (), carried), loop.span)
            whole = Region((turn, *carried), (*tested.body, branch), results)
            return For(loop.results, count, loop.init, whole, loop.span)
    return None


def _parts(condition: Operand, makers: dict[Value, Apply]) -> list[Operand]:
    """What must all hold for a condition to hold."""
    made = makers.get(condition) if isinstance(condition, Value) else None
    if made is None or made.op.name != "and":
        return [condition]
    return [part for x in made.operands for part in _parts(x, makers)]


def _counts_from_zero(loop: While, k: int) -> bool:
    """Is a carried value the number of the turn?"""
    start, following = loop.init[k], loop.body.results[k]
    step = next((i for i in loop.body.body if isinstance(i, Apply) and following in i.results), None)
    if step is None or step.op.name != "add" or not isinstance(start, Literal) or start.value != 0:
        return False
    x, one = step.operands
    return x == loop.body.args[k] and isinstance(one, Literal) and one.value == 1
