"""Data-dependent control is one operation of its rows: a branch or loop under a mask.

    %4 = gt(%3, 0.0)                      %4 = gt(%3, 0.0)
    %7 = if %4 then:                      %7 = masked (%4, %3) do (%9, %10):
      %5 = sqrt(%3)                 ->      %11 = if %9 then: %5 = sqrt(%10); yield %5
      yield %5                                    else: yield 0.0
    else: yield 0.0                         yield %11

The host does not know which arm a row takes, or how many turns: frames cannot be made of it. Its content has to be
arithmetic alone. Reads of structure whose operands are known before move in front, behind the tests of structure that
they stand behind; where they may fail, what Python checks of them is tested in front, and fails the row inside. A loop
that all rows run equally often joins what it holds: the whole is one operation. Each back end says what it means by a
mask (`backends/xla/masks.py`); the meaning is `ir/leaf.py: masked`.

What stays is refused behind (`passes/failures.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, assert_never

import jax
import jax.numpy as jnp

from autobatch.data.columns import Schema
from autobatch.errors import Span
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    For,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.leaf import STATUS
from autobatch.ir.ops import OWN, Op, own
from autobatch.ir.regions import Allowed, Fresh, copy_region, free_values, region_values, with_operands, with_regions
from autobatch.passes.failures import Failing, ReadChecks, Statuses, may_be_infinite
from autobatch.passes.fallible import deciding, depending_on, device_values
from autobatch.passes.loops import is_bounds, numbers_of
from autobatch.passes.overflows import (
    check_computed_indices,
    check_computed_integers,
    check_integers_in,
    check_of,
    of_shared_alone,
)
from autobatch.passes.speculate import (
    Definitions,
    definitions,
    implied,
    speculate,
    with_implied_tests,
    with_tests_in_front,
    without_tests,
)

# ---- inner gradients
#
# Derivatives that a function takes of what it computes itself, where that branches or loops on computed numbers.
#
#     %2 = seed(%1)                            %9 = gradient_of[wrt=(0,)](%1, %3) do (%6, %7):
#     %4 = gt(%2, %3)                            %4 = gt(%6, %7)
#     %8 = if %4 then:                           %8 = if %4 then:
#       %5 = mul(%2, %2)                  ->       %5 = mul(%6, %6)
#       yield %5                                   yield %5
#     else: yield %2                             else: yield %6
#     %9 = gradient(%8, %2)                      yield %8
#
# What lies on the paths from the seeds to the number is copied into the region of one operation; what does not depend
# on a seed stays outside, and is read by it. The number itself is computed outside too, where something reads it or it
# can fail: there its checks are made. Derivatives inside are made first.


Closed = Callable[[Sequence[Instruction], Apply], tuple[list[Instruction], Apply] | None]
"""Instructions as the operation `gradient_of` in place of a `gradient`, behind instructions that stand in front of it;
None where something is in the way."""


def has_gradients(module: Module) -> bool:
    """Does a function take a derivative that is no operation yet?"""
    return any(_is_gradient(i) for f in module.functions for i in walk(f.region))


def close_gradients(module: Module, closed: Closed) -> Module:
    """The module whose derivatives inside functions are operations, where they can be. Seeds of which no derivative is
    left are gone."""
    functions = tuple(replace(f, region=_closed(f.region, closed)) for f in module.functions)
    made = replace(module, functions=functions)
    wanted = {x for f in functions for i in walk(f.region) if _is_gradient(i) for x in operands(i)[1:]}
    return replace(made, functions=tuple(replace(f, region=_without_seeds(f.region, wanted)) for f in functions))


def _is_gradient(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "gradient" and not instruction.op.is_jax


def is_seed(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "seed" and not instruction.op.is_jax


def _closed(region: Region, closed: Closed) -> Region:
    body: list[Instruction] = []
    for instruction in region.body:
        made = with_regions(instruction, lambda r: _closed(r, closed))
        if _is_gradient(made):
            assert isinstance(made, Apply)
            found = closed(_between(body, made), made)
            if found is not None:
                front, made = found
                body += front
        body.append(made)
    return replace(region, body=tuple(body))


def _between(body: Sequence[Instruction], gradient: Apply) -> list[Instruction]:
    """The instructions on paths from the seeds of a derivative to its number."""
    number, *seeds = gradient.operands
    reached: set[Operand] = set(seeds)
    behind = []
    for i in body:
        if not reached.isdisjoint(_read(i)):
            reached.update(i.results)
            behind.append(i)
    needed: set[Operand] = {number}
    found = []
    for i in reversed(behind):
        if not needed.isdisjoint(i.results):
            needed.update(_read(i))
            found.append(i)
    return found[::-1]


def _read(instruction: Instruction) -> list[Operand]:
    inside: list[Value] = [x for r in regions(instruction) for x in free_values(r)]
    return [*operands(instruction), *inside]


def _without_seeds(region: Region, wanted: set[Operand]) -> Region:
    """A seed is the number that it is made of."""
    env: dict[Value, Operand] = {}

    def clean(region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            if is_seed(i) and i.results[0] not in wanted and isinstance(x := operands(i)[0], Value):
                env[i.results[0]] = env.get(x, x)
            else:
                body.append(with_regions(i, clean))
        return replace(region, body=tuple(body))

    cleaned = clean(region)
    return copy_region(cleaned, env, None) if env else cleaned


# ---- breaks
#
# A loop over structure that computed numbers may end early runs all its turns: in the rest, a row does nothing.
#
#     %5 = while (0, %h, False)                          %5 = for %n (0, %h, False)
#       test (%i, %g, %broken):                            do (%turn, %i, %g, %broken):
#         yield %i < %n and not %broken                      yield if not %broken then:
#       do (%i, %g, %broken):                       ->                 %x = item(%xs, %turn)
#         %x = item(%xs, %i)                                           ...
#         ...                                                          yield %turn + 1, %y, %stop
#         yield %i + 1, %y, %stop                                    else: yield %i, %g, %broken
#
# How many turns the loop can have is structure, so they are laid out ahead; a branch in each of them is a mask. What
# the turns read of structure is read by the turn that the host knows.


def run_all_turns(module: Module, device: frozenset[Value], stands: Callable[[While], bool]) -> Module:
    """The module with such loops as loops of as many turns as structure says; the same module where there is none.
    `device`: the data-dependent values. `stands`: can a loop not stay as it is?"""
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


# ---- float loops
#
# Which loops run on the device although the host could count their turns: those that floats of the examples end.
#
#     while abs(x * x - a) > 1e-6:          x and a are rows of an array: the host could compute them, turn after turn,
#         x = x - (x * x - a) / (2 * x)     and lay out a row for each; the device runs the loop under a mask
#
# Laid out, a turn costs the host fifty microseconds for every few the device needs, and the numbers are computed twice.
# Only loops whose numbers are the same on both sides leave the host: Python's floats have 64 bits there, so they stay
# unless the device's have too; so do integers that a turn does more with than count. A loop has to hold arithmetic
# alone. Under `jax.jit`, which hides arrays from the host, these loops run the same way.


GROWING = frozenset(("mul", "integer_pow", "pow", "dot_general", "cumsum", "cumprod", "reduce_prod", "shift_left"))
"""What makes an integer too large for the device: the host counts in 64 bits, and says where they are not enough."""


def loops_of_floats(module: Module, obstructed: Callable[[While], bool]) -> frozenset[Value]:
    """The floats that such loops carry, and that decide their turns. `obstructed`: can a loop not run on the device?"""
    found: set[Value] = set()
    for function in module.functions:
        for instruction in walk(function.region):
            if isinstance(instruction, While) and not obstructed(instruction) and _same_on_device(instruction):
                for k in _deciding_floats(instruction):
                    found.update((instruction.body.args[k], instruction.condition.args[k], instruction.results[k]))
    return frozenset(found)


def _deciding_floats(loop: While) -> list[int]:
    """The positions of carried floats that turns change and that the test depends on, through any number of turns."""
    test, body = loop.condition, loop.body
    deciding: set[int] = set()
    tested = _sources(test, test.results[:1])
    new = {k for k, a in enumerate(test.args) if a in tested}
    while new - deciding:
        deciding |= new
        read = _sources(body, [body.results[k] for k in deciding])
        new = {k for k, a in enumerate(body.args) if a in read}
    return [k for k in sorted(deciding) if _is_float(body.args[k]) and body.results[k] != body.args[k]]


def _sources(region: Region, results: Sequence[Operand]) -> set[Operand]:
    """What some results of a region are computed from; whatever an instruction with regions reads, it may depend on."""
    makers: Mapping[Value, Instruction] = {r: i for i in region.body for r in i.results}
    found: set[Operand] = set()
    todo = list(results)
    while todo:
        x = todo.pop()
        if x in found:
            continue
        found.add(x)
        if isinstance(x, Value) and x in makers:
            todo += _reads(makers[x])
    return found


def _reads(instruction: Instruction) -> list[Operand]:
    inner = [x for r in regions(instruction) for i in r.body for x in _reads(i)]
    return [*operands(instruction), *inner, *(x for r in regions(instruction) for x in r.results)]


def _same_on_device(loop: While) -> bool:
    """Does the device compute every number of the loop as the host does?"""
    inside = [loop, *(i for r in regions(loop) for i in walk(r))]
    carried = [a for i in inside for r in regions(i) for a in r.args]
    read = [x for i in inside for x in operands(i)]
    return all(_is_wide(x) for x in (*carried, *read)) and not any(_grows(i) for i in inside)


def _is_wide(x: Operand) -> bool:
    """Has a number on the device the bits that it has on the host?"""
    if isinstance(x, Literal) or not _is_float(x):
        return True
    assert isinstance(x.type, Array)
    return not x.type.weak or jax_compat.device_dtype(x.type).itemsize == 8


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and jnp.issubdtype(jax_compat.dtype_of(x.type.dtype), jnp.inexact)


def _grows(instruction: Instruction) -> bool:
    if not isinstance(instruction, Apply) or instruction.op.name not in GROWING:
        return False
    return any(isinstance(r.type, Array) and r.type.is_integer for r in instruction.results)


# ---- obstacles
#
# What stands in the way of data-dependent control: what is no arithmetic, and where it is written.


Obstacle = tuple[str, Span]
"""Why control is no masked operation, and where that is written."""

READS = frozenset(("load", "load_is_none", "item", "length", "is_none", "is_class", "tag_index", "tag_equal", "word"))

LIST_IN_IT = (
    "it hands on a list, of which only numbers say how long it is or which it is: write into an array of a fixed size "
    "(out = out.at[k].set(x)) and count in k"
)
OBJECT_IN_IT = "it hands on an object that numbers choose: choose between what is read of each (x = a.x if c else b.x)"


def obstacle_in(instruction: Instruction) -> Obstacle | None:
    """The first thing inside that is no operation on arrays, no branch and no loop; None where there is none."""
    for i in [instruction, *(i for r in regions(instruction) for i in walk(r))]:
        if (what := what_stands_in_the_way(i)) is not None:
            return what, i.span
    return None


def what_stands_in_the_way(instruction: Instruction) -> str | None:
    """Why this instruction by itself is no arithmetic; None where it is."""
    match instruction:
        case Call(callee=callee):
            return f"{callee} is called in it, which calls itself"
        case Map():
            return "a list is made in it"
        case Apply(op=op) if op.name == "check":
            return None
        case Apply(op=op) if not (op.is_jax or op.name in leaf.NUMERIC or op.name in ("masked", "gradient_of")):
            return "an object or a list is read in it" if op.name in READS else "a list, an object or a string is in it"
        case Apply() | If() | For() | While():
            carried = (*instruction.results, *(a for r in regions(instruction) for a in r.args))
            if any(isinstance(x.type, List) for x in carried):
                return LIST_IN_IT
            return None if all(isinstance(x.type, Array) for x in carried) else OBJECT_IN_IT
        case _:
            assert_never(instruction)


def mask_numeric_control(
    module: Module,
    fallible: Callable[[Module], frozenset[Value]],
    traced: frozenset[int],
    numbers: frozenset[int],
    turns: Allowed,
    schema: Schema,
    floats: bool = False,
    unknown: Collection[int] = (),
    all_numbers: bool = False,
) -> Masked:
    """Every data-dependent branch and loop as one operation, where it holds arithmetic alone; for the
    others, by their places, what stands in the way.

    `fallible` finds the reads that an example can fail in; `traced` and `numbers` as in `passes/structure.py`.
    `turns`: those that a loop may have, for each row. `floats`: loops that floats of the examples end too, as
    this file says. `unknown`: shared integers that decide structure only once they are known, so what they
    decide is not run ahead. `all_numbers`: of no number does the host know anything."""
    if not any(
        isinstance(i, If | For | While) or _is_check(i) or is_bounds(i) or (isinstance(i, Apply) and i.op.exact)
        for f in module.functions
        for i in walk(f.region)
    ):
        return Masked(module, {}, False, False, {})
    if all_numbers:
        module = _with_constants_on_device(module)
    moved = False

    def on_device(module: Module) -> frozenset[Value]:
        nonlocal moved
        if all_numbers:
            return numbers_of(module)
        left = loops_of_floats(module, lambda loop: obstacle_in(loop) is not None) if floats else frozenset()
        found = device_values(module, traced, numbers)
        moved |= bool(left - found)
        return device_values(module, traced, numbers, left) if left else found

    device = on_device(module)
    alone = frozenset() if all_numbers else of_shared_alone(module, numbers)
    checked = check_computed_integers(check_computed_indices(module, device), device | alone)
    if checked is not module:
        module, device = checked, on_device(checked)
    refused, ahead, in_front = NOTHING, False, dict[Span, Span]()
    whole = run_all_turns(module, device, lambda loop: obstacle_in(loop) is not None)
    if whole is not module:
        module, device = whole, on_device(whole)
    if not _is_arithmetic(module) and any(
        isinstance(i, If) and i.condition in device for f in module.functions for i in walk(f.region)
    ):

        def stands(branch: If) -> bool:
            trial = _Masker(fresh, makers, device, reads, turns, schema)
            return obstacle_in(trial.hoisted(with_regions(branch, trial.with_checks))[1]) is not None

        module = with_tests_in_front(
            module, device, lambda i: _is_test(i) and not any(x in device for x in operands(i))
        )
        fresh, makers, reads = Fresh(module), definitions(module), fallible(without_tests(module, device))
        later = depending_on(module, [module.shared[k] for k in unknown])
        whole, refused, found = speculate(
            module, device, reads, schema, obstacle_in, lambda b: b.condition not in later and stands(b)
        )
        if whole is not module:
            module, device, ahead = whole, on_device(whole), True
            in_front.update(found)
    while True:
        reads = fallible(module if all_numbers else with_implied_tests(module, device))
        masker = _Masker(Fresh(module), definitions(module), device, reads, turns, schema)
        functions = tuple(replace(f, region=masker.region(f.region)) for f in module.functions)
        made = replace(module, functions=functions)
        held = {v for f in module.functions for v in region_values(f.region)}
        more = (depending_on(made, _of_masks(made)) & held) - device
        checked = check_computed_integers(module, more)
        if all_numbers or (checked is module and not _decides_more(made, more)):
            return Masked(made, {**masker.obstacles, **refused}, ahead, moved, in_front)
        # masked anew: what has become an operation would hide its checks from what is around it
        module, device = checked, on_device(checked) | depending_on(checked, more)


def _with_constants_on_device(module: Module) -> Module:
    """The same where checks and loops by constants are decided on the device: the host decides nothing."""
    fresh = Fresh(module)

    def unknown(x: Operand, body: list[Instruction], span: Span) -> Operand:
        if not isinstance(x, Literal):
            return x
        made = fresh.value(x.type)
        body.append(Apply((made,), own("unknown"), (x,), span))
        return made

    def changed(region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            if isinstance(i, Apply) and _is_check(i):
                i = replace(i, operands=(unknown(i.operands[0], body, i.span), *i.operands[1:]))
            elif isinstance(i, While):
                test = list(i.condition.body)
                holds = unknown(i.condition.results[0], test, i.span)
                i = replace(i, condition=replace(i.condition, body=tuple(test), results=(holds,)))
            body.append(with_regions(i, changed))
        return replace(region, body=tuple(body))

    return replace(module, functions=tuple(replace(f, region=changed(f.region)) for f in module.functions))


def _of_masks(module: Module) -> Iterator[Value]:
    """What masked operations compute, integers too that the host could know before."""
    inside = (i for f in module.functions for i in walk(f.region))
    return (r for i in inside if isinstance(i, Apply) and i.op.name == "masked" for r in i.results)


def _decides_more(module: Module, values: Collection[Value]) -> bool:
    """Do some values decide a loop, a branch or a check?"""
    inside = [i for f in module.functions for i in walk(f.region)]
    control = [x for i in inside if isinstance(i, If | For | While) for x in deciding(i)]
    return any(x in values for x in (*control, *(operands(i)[0] for i in inside if _is_check(i))))


def _is_arithmetic(module: Module) -> bool:
    """Is there nothing in any branch or loop that could not stand in an operation?"""
    return all(what_stands_in_the_way(i) is None for f in module.functions for i in walk(f.region))


def _is_test(i: Instruction) -> bool:
    """Is this arithmetic that decides what can be read?"""
    if not isinstance(i, Apply) or not i.op.is_jax:
        return False
    type = i.results[0].type
    return (type == BOOL and i.op.name in TESTS) or (type == INT and i.op.name in COUNTING)


TESTS = frozenset(("and", "eq", "ge", "gt", "le", "lt", "ne", "not", "or"))
COUNTING = frozenset(("add", "neg", "sub"))
"""Operations on numbers of structure that decide what can be read."""

NOTHING: Mapping[Span, Obstacle] = {}


class Masked(NamedTuple):
    """A module whose control on computed numbers is operations; what stood in the way of the others; and does anything
    run ahead, also for rows that Python does not bring there (`speculate.py`)? `moved`: are loops among the operations
    that only floats of the examples end? `in_front`: of the loops and calls that run
    ahead, the branch that they stood in."""

    module: Module
    obstacles: Mapping[Span, Obstacle]
    ahead: bool
    moved: bool
    in_front: Mapping[Span, Span]


def take_gradients(
    module: Module,
    fallible: Callable[[Module], frozenset[Value]],
    traced: frozenset[int],
    numbers: frozenset[int],
    turns: Allowed,
    schema: Schema,
    all_numbers: bool = False,
) -> tuple[Module, Mapping[Span, Obstacle]]:
    """Every derivative that a function takes of its own control on numbers as one operation, where it is of arithmetic
    alone, or of recursion that is a program of blocks already; for the others, what stands in the way. The arguments
    are those of `mask_numeric_control`."""
    if not has_gradients(module):
        return module, NOTHING
    device = numbers_of(module) if all_numbers else device_values(module, traced, numbers)
    reads = fallible(module if all_numbers else with_implied_tests(module, device))
    masker = _Masker(Fresh(module), definitions(module), device, reads, turns, schema)
    return close_gradients(module, masker.closed), masker.obstacles


class _ArmTest(NamedTuple):
    """An arm of a branch that structure decides."""

    condition: Operand
    holds: bool


class _Masker:
    def __init__(
        self,
        fresh: Fresh,
        made: Definitions,
        device: frozenset[Value],
        fallible: frozenset[Value],
        turns: Allowed,
        schema: Schema,
    ) -> None:
        self.device, self.fallible, self.turns = set(device), set(fallible), turns
        self.fresh, self.made, self.schema = fresh, made, schema
        self.statuses = Statuses(self.fresh)
        self.obstacles: dict[Span, Obstacle] = {}

    def region(self, region: Region, alive: Operand | None = None) -> Region:
        """`alive`: has the row failed no check so far? None where there is none."""
        body: list[Instruction] = []
        for instruction in region.body:
            made = self.instruction(instruction, alive)
            body += made
            if (checked := self.checked(made[-1])) is not None:
                alive = self.still(alive, checked, body)
        return replace(region, body=tuple(body))

    def checked(self, instruction: Instruction) -> Value | None:
        """The status of a masked operation with a check in it: behind it a row may be one that has failed."""
        if not isinstance(instruction, Apply) or instruction.op.name != "masked":
            return None
        inside = walk(instruction.op["region"])
        late = {i.op["site"] for i in inside if isinstance(i, Apply) and i.op.name == "within"}
        return instruction.results[-1] if len(late) < len(instruction.op["sites"]) else None

    def still(self, alive: Operand | None, status: Value, body: list[Instruction]) -> Operand:
        alone = fine = self.statuses.is_fine(status, body)
        if alive is not None:
            fine = self.statuses.both(alive, alone, body)
        self.device.update((alone, fine))
        return fine

    def instruction(self, instruction: Instruction, alive: Operand | None) -> Sequence[Instruction]:
        if isinstance(instruction, Apply):
            return [self.apply(instruction, alive)]
        if isinstance(instruction, If | For | While) and self.is_decided_by_numbers(instruction):
            instruction, fallible = self.for_alive(instruction, alive), set(self.fallible)
            front, rest = self.hoisted(with_regions(instruction, self.with_checks))
            obstacle = obstacle_in(rest)
            if obstacle is None:
                return [*front, self.as_operation(with_regions(rest, lambda r: check_integers_in(r, self.fresh)))]
            self.fallible = fallible  # what is inside has no checks yet
            self.obstacles.setdefault(instruction.span, obstacle)
        return [with_regions(instruction, lambda r: self.region(r, alive))]

    def for_alive(self, instruction: Instruction, alive: Operand | None) -> Instruction:
        """The same with loops that rows which have failed do not enter: they might never leave them."""
        if alive is None:
            return instruction
        found = with_regions(instruction, lambda r: replace(r, body=tuple(self.for_alive(i, alive) for i in r.body)))
        if not isinstance(found, While) or not self.on_device(found.condition.results[0]):
            return found
        test = list(found.condition.body)
        goes_on = self.statuses.both(found.condition.results[0], alive, test)
        self.device.add(goes_on)
        return replace(found, condition=replace(found.condition, body=tuple(test), results=(goes_on,)))

    def apply(self, apply: Apply, alive: Operand | None) -> Apply:
        """A check of computed numbers as a masked operation; what may be infinite, behind one, for the rows that have
        not failed."""
        if _is_check(apply) and self.on_device(apply.operands[0]):
            return self.as_operation(apply)
        if alive is None or not may_be_infinite(apply) or not self.device.issuperset(apply.results):
            return apply
        blanks = self.fresh.like(apply.results)
        none = tuple(Apply((b,), own("undefined", type=b.type), ()) for b in blanks)
        inside = self.fresh.like(apply.results)
        then = Region((), (replace(apply, results=inside),), inside)
        return self.as_operation(If(apply.results, alive, then, Region((), none, blanks), apply.span))

    # ---- which

    def is_decided_by_numbers(self, instruction: If | For | While) -> bool:
        """Does a number of the device decide it? A loop that counts in some other way does where one inside does."""
        if isinstance(instruction, If):
            return self.on_device(instruction.condition)
        if self.on_device(*deciding(instruction)):
            return True
        inside = [i for r in regions(instruction) for i in walk(r)]
        control = (x for i in inside if isinstance(i, If | For | While) for x in deciding(i))
        checks = (operands(i)[0] for i in inside if _is_check(i))
        return any(map(self.on_device, (*control, *checks)))

    def on_device(self, x: Operand) -> bool:
        return isinstance(x, Value) and x in self.device

    # ---- what moves in front

    def with_checks(self, region: Region) -> Region:
        """A region whose reads of structure stand behind the checks that Python makes of them, where these may fail;
        and where the device looks whether indices are in range, also those that the host knows."""
        body: list[Instruction] = []
        for i in region.body:
            if isinstance(i, Apply) and is_bounds(i):
                checked = check_of(i, self.fresh)
                self.device.update(operands(checked[-1])[:1])  # type: ignore[arg-type]  # a check is of a value
                body += checked
                continue
            checks = ReadChecks(self.fresh, self.schema)
            can_fail = isinstance(i, Apply) and not self.fallible.isdisjoint(i.results)
            if can_fail and not any(map(self.on_device, operands(i))) and checks.read(i):  # type: ignore[arg-type]
                body += checks.made
                self.fallible.difference_update(i.results)
            body.append(with_regions(i, self.with_checks))
        return replace(region, body=tuple(body))

    def hoisted(self, instruction: Instruction) -> tuple[list[Instruction], Instruction]:
        """The reads of structure inside that can stand in front, and what is left of the instruction. One that stands
        behind a test of structure inside (`if node.left is not None`), or a check, stands behind it in front too."""
        defined = {r for region in regions(instruction) for r in _defined(region)}
        front: list[Instruction] = []

        def is_outside(x: Operand) -> bool:
            return isinstance(x, Literal) or x not in defined

        def clean(region: Region, tests: tuple[_ArmTest, ...]) -> Region:
            body: list[Instruction] = []
            for i in region.body:
                if self.is_harmless(i) and all(map(is_outside, (*operands(i), *(t.condition for t in tests)))):
                    front.append(self.behind(i, tests))
                    defined.difference_update(i.results)
                else:
                    body.append(inner(i, tests))
                    if _is_check(i) and not self.on_device(operands(i)[0]):
                        tests = (*tests, _ArmTest(operands(i)[0], True))
            return replace(region, body=tuple(body))

        def inner(i: Instruction, tests: tuple[_ArmTest, ...]) -> Instruction:
            if isinstance(i, If):
                then, orelse = (
                    clean(r, (*tests, *says(i.condition, t))) for r, t in ((i.then, True), (i.orelse, False))
                )
                return replace(i, then=then, orelse=orelse)
            if isinstance(i, While):
                test = clean(i.condition, tests)
                return replace(i, condition=test, body=clean(i.body, (*tests, *says(test.results[0], True))))
            return with_regions(i, partial(clean, tests=tests))

        def says(condition: Operand, truth: bool) -> Iterator[_ArmTest]:
            if isinstance(condition, Value) and not self.on_device(condition):
                yield _ArmTest(condition, truth)
            else:
                yield from (_ArmTest(*t) for t in implied(condition, truth, self.made, self.device))

        return front, inner(instruction, ())

    def behind(self, read: Instruction, tests: Sequence[_ArmTest]) -> Instruction:
        """A read in the arms of tests; something else where they do not hold."""
        made = read
        for test in reversed(tests):
            inside, blanks = self.fresh.like(read.results), self.fresh.like(read.results)
            arm = Region((), (replace(made, results=inside),), inside)
            none = tuple(Apply((b,), own("undefined", type=b.type), ()) for b in blanks)
            arms = (arm, Region((), none, blanks))
            then, orelse = arms if test.holds else arms[::-1]
            made = If(read.results, test.condition, then, orelse, read.span)
        return made

    def is_harmless(self, instruction: Instruction) -> bool:
        """Is this a read of structure, or a test of it, that every example may do?"""
        if not isinstance(instruction, Apply) or not instruction.results:
            return False
        if any(map(self.on_device, instruction.operands)) or not self.fallible.isdisjoint(instruction.results):
            return False
        if instruction.op.is_jax:
            return _is_test(instruction)
        return OWN[instruction.op.name].host and not OWN[instruction.op.name].effect

    # ---- the operation

    def as_operation(self, instruction: Instruction) -> Apply:
        failing, inside = self.inside([instruction], instruction.results)
        region, reads = self.with_arguments(inside, ())
        can_fail = len(inside.results) > len(instruction.results)
        status_here = (self.fresh.value(STATUS),) if can_fail else ()
        refill = {} if self.turns.refill is None else {"refill": self.turns.refill}
        op = own("masked", region=region, sites=tuple(failing.sites), **refill)
        return Apply((*instruction.results, *status_here), op, reads, instruction.span)

    def closed(self, instructions: Sequence[Instruction], gradient: Apply) -> tuple[list[Instruction], Apply] | None:
        """What a derivative is taken of, as one operation, behind the reads of structure that stand in front of it."""
        fronts: list[Instruction] = []
        rests: list[Instruction] = []
        for instruction in instructions:
            front, rest = self.hoisted(with_regions(instruction, self.with_checks))
            fronts += front
            rests.append(rest)
            is_program = isinstance(rest, Apply) and rest.op.name == "blocks"
            if not is_program and (obstacle := obstacle_in(rest)) is not None:
                self.obstacles.setdefault(gradient.span, obstacle)
                return None
        number, *seeds = gradient.operands
        _, inside = self.inside(rests, (number,))
        region, reads = self.with_arguments(replace(inside, results=inside.results[:1]), seeds)
        op = own("gradient_of", region=region, wrt=tuple(range(len(seeds))))
        return fronts, replace(gradient, op=op, operands=reads)

    def inside(self, instructions: Sequence[Instruction], results: Sequence[Operand]) -> tuple[Failing, Region]:
        """Instructions that an operation is to hold: loops that test whether they go on, and in place of checks a last
        result, the status, where there is one."""
        counts: dict[Value, int] = {}
        failing = Failing(self.fresh, self.turns, counts)
        whole = [self.without_counts(i, counts) for i in instructions]
        body, results, status = failing.body(whole, results, ())
        return failing, Region((), tuple(body), (*results, *(() if status is None else (status,))))

    def with_arguments(self, inside: Region, first: Sequence[Operand]) -> tuple[Region, tuple[Operand, ...]]:
        """A region that reads what is outside through arguments, and whose names are its own; what it reads: `first`,
        then everything else."""
        reads = tuple(dict.fromkeys((*first, *free_values(inside), *_constants(inside))))
        args = tuple(self.fresh.value(x.type, x.hint if isinstance(x, Value) else "") for x in reads)
        given: dict[Operand, Operand] = dict(zip(reads, args, strict=True))
        held = with_operands(inside, lambda x: given.get(x, x))
        names: dict[Value, Operand] = {}
        return copy_region(Region(args, held.body, held.results), names, self.fresh), reads

    def without_counts(self, instruction: Instruction, counts: dict[Value, int]) -> Instruction:
        """Loops whose number of turns is not in the program, or so large that a derivative cannot keep them all, as
        loops that test it. `counts` gets the number of turns of the latter, by their first result."""
        each = partial(self.without_counts, counts=counts)
        whole = with_regions(instruction, lambda r: replace(r, body=tuple(map(each, r.body))))
        count = whole.count.value if isinstance(whole, For) and isinstance(whole.count, Literal) else None
        if not isinstance(whole, For) or (isinstance(count, int) and count <= self.turns.counted):
            return whole
        turn = whole.body.args[0]
        tested = self.fresh.like(whole.body.args)
        more, following, last = self.fresh.value(BOOL), self.fresh.value(turn.type), self.fresh.value(turn.type)
        span = whole.span
        test = Region(tested, (Apply((more,), Op("lt", (), jax.lax.lt_p), (tested[0], whole.count), span),), (more,))
        step = Apply((following,), Op("add", (), jax.lax.add_p), (turn, Literal(1, INT)), span)
        body = Region(whole.body.args, (*whole.body.body, step), (following, *whole.body.results))
        if isinstance(count, int):
            counts[last] = count
        return While((last, *whole.results), (Literal(0, INT), *whole.init), test, body, span)


def _defined(region: Region) -> Iterable[Value]:
    yield from region.args
    for i in region.body:
        yield from i.results
        for inner in regions(i):
            yield from _defined(inner)


def _constants(region: Region) -> Iterable[Literal]:
    """The arrays of the module that are read inside."""
    for i in walk(region):
        read = (*operands(i), *(x for r in regions(i) for x in r.results))
        yield from (x for x in read if isinstance(x, Literal) and x.constant >= 0)


def _is_check(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "check"
