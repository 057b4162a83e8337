"""Operations on Python's integers that may need more bits than those of the device have.

    %3 = mul(%1, %2)     ->     %3 = mul[exact=True](%1, %2)

The host computes these: it has 64 bits, and sees for itself what leaves them. Where only the device can, it checks:

    %3 = mul[exact=True](%1, %2)     ->     %3 = mul(%1, %2)
                                            %4, ... = the product in floats, and whether it is small
                                            check[kind='OverflowError', message='an int needs more bits ...'](%4)

No operation is marked where intervals tell that it has enough bits (`ranges.py`). Where no host knows any
number, a sum over a list becomes a loop that adds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autobatch.ir import jax_compat
from autobatch.ir.capacity import TOO_LARGE
from autobatch.ir.core import (
    BOOL,
    Apply,
    Array,
    For,
    Instruction,
    Literal,
    Module,
    Operand,
    Region,
    Type,
    Value,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, about, own
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.passes.analysis.fallible import deciding, depending_on
from autobatch.passes.analysis.ranges import ARITHMETIC, Ranges, is_python_integer
from autobatch.passes.analysis.structure import StructureFacts, decided
from autobatch.passes.control.uniform_loops import is_bounds
from autobatch.source import Span

# ---- indices
#
# Indices of NumPy's arrays: an example fails where one is out of range.
#
# bounds[axis=0, size=5](%2)     ->     (the same)                         %2 derives from example data: the host looks
#                                ->     %3 = ge(%2, -5); %4 = lt(%2, 5)    %2 is computed: the device looks
#                                       check[kind='IndexError'](%3 and %4)
#                                ->     (nothing)                          what is left behind uniform loops, and clamps


UNKNOWN = "<...>"
"""What stands in a message for numbers that only the device knows."""


def check_computed_indices(module: Module, device: frozenset[Value]) -> Module:
    """The module in which indices that only the device knows (`device`) are looked at by checks of it."""
    if not any(is_bounds(i) and not device.isdisjoint(operands(i)) for f in module.functions for i in walk(f.region)):
        return module
    fresh = Fresh(module)

    def each(instruction: Instruction) -> list[Instruction]:
        if not isinstance(instruction, Apply) or not is_bounds(instruction) or instruction.operands[0] not in device:
            return [with_regions(instruction, region)]
        return check_of(instruction, fresh)

    def region(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def check_of(bounds: Apply, fresh: Fresh) -> list[Instruction]:
    """What looks on the device whether an index is in range, whoever knows it."""
    made: list[Instruction] = []
    op, span, told = bounds.op, bounds.span, fresh.value(BOOL)
    (inside,) = in_place(is_inside, bounds.operands, fresh, made.append, span, op["size"])
    made.append(Apply((told,), own("unknown"), (inside,), span))
    message = f"index {UNKNOWN} is out of bounds for axis {op['axis']} with size {op['size']}"
    return [*made, Apply((), own("check", kind="IndexError", message=message), (told,), span)]


def in_place(
    function: Callable[..., Any],
    xs: Sequence[Operand],
    fresh: Fresh,
    emit: Callable[[Apply], None],
    span: Span,
    *known: Hashable,
) -> Sequence[Operand]:
    """What a function of JAX that holds no arrays gives of scalars or arrays, in place. `known`: what it is given
    first; for that and the types it is traced once."""
    closed = _traced(function, known, tuple(x.type for x in xs if isinstance(x.type, Array)), jax_compat.settings())
    return jax_compat.inline(closed, xs, fresh.value, _no_constant, emit, span)


@lru_cache(maxsize=4096)
def _traced(
    function: Callable[..., Any], known: tuple[Hashable, ...], types: tuple[Array, ...], settings: Hashable
) -> Any:
    return jax_compat.trace(partial(function, *known), *types)[0]


def is_inside(size: int, index: Any) -> Any:
    """Are all numbers of an index within an axis of this size?"""
    return jnp.all((index >= -size) & (index < size))


def _no_constant(array: Any) -> Literal:
    raise AssertionError("a comparison with a number holds no array")


def keep_known_bounds(module: Module, find: Callable[[], StructureFacts], numbers: frozenset[int]) -> Module:
    """The module without the checks of indices that only the device computes; the same module when there is none.
    `find` are the facts of the module, asked for where there is a check; `numbers` are shared integers, by position,
    that the host may be told."""
    if not any(is_bounds(i) for f in module.functions for i in walk(f.region)):
        return module
    facts = find()
    shared = frozenset(module.shared[k] for k in numbers)
    told = shared | decided(module, shared)
    dropped = 0

    def is_known(instruction: Instruction) -> bool:
        nonlocal dropped
        if not isinstance(instruction, Apply) or not is_bounds(instruction):
            return True
        known = facts.is_host(instruction.operands[0]) or instruction.operands[0] in told
        dropped += not known
        return known

    def kept(region: Region) -> Region:
        return replace(region, body=tuple(with_regions(i, kept) for i in region.body if is_known(i)))

    functions = tuple(replace(f, region=kept(f.region)) for f in module.functions)
    return replace(module, functions=functions) if dropped else module


_FOLDS: Mapping[str, tuple[Callable[..., Any], int]] = {"sum": (lax.add, 0), "prod": (lax.mul, 1)}


def mark_integers(module: Module, alone: bool) -> Module:
    """The module with a mark on each operation that may overflow, or that reads what the host has more bits for.
    `alone`: no host computes anything."""
    if not any(is_python_integer(r.type) for i in _applies(module) for r in i.results):
        return module
    bits = 64 if jax.config.read("jax_enable_x64") else 32
    ranges, wrapped = Ranges(module, bits, bits if alone else 64), _wrapped(module)

    def marked(region: Region) -> Region:
        return replace(region, body=tuple(map(each, region.body)))

    def each(i: Instruction) -> Instruction:
        if not isinstance(i, Apply):
            return with_regions(i, marked)
        exact = _is_computed(i) and (ranges.may_overflow(i) or ranges.reads_wide(i))
        exact = exact and i.results[0] not in wrapped and not any(x in wrapped for x in i.operands)
        return replace(i, op=replace(i.op, exact=True)) if exact else i

    return replace(module, functions=tuple(replace(f, region=marked(f.region)) for f in module.functions))


_OF_LOW_BITS = frozenset({"add", "sub", "mul", "neg", "and", "or", "xor", "not", "square", "integer_pow"})
"""Operations whose low bits those of their operands decide; of `shift_left`, those of the first one."""


def _wrapped(module: Module) -> frozenset[Value]:
    """The integers of which the program reads low bits alone, as of `x * 33` in `(x * 33 + y) & 0xffff`: whatever else
    they have may be lost."""
    readers: dict[Value, list[Apply | None]] = {}
    for function in module.functions:
        for region in _regions(function.region):
            for x in region.results:
                readers.setdefault(x, []).append(None)  # type: ignore[arg-type]
            for i in region.body:
                for x in operands(i):
                    readers.setdefault(x, []).append(i if isinstance(i, Apply) else None)  # type: ignore[arg-type]
    found = set[Value]()
    for i in reversed([*_applies(module)]):
        if i.op.name not in _OF_LOW_BITS | {"shift_left"} or not all(is_python_integer(r.type) for r in i.results):
            continue
        (result,) = i.results
        if result in readers and all(r is not None and _reads_low(r, result, found) for r in readers[result]):
            found.add(result)
    return frozenset(found)


def _reads_low(i: Apply, x: Value, wrapped: Collection[Value]) -> bool:
    """Does an operation read low bits of a value alone?"""
    constants = [y.value for y in i.operands if isinstance(y, Literal) and isinstance(y.value, int)]
    if i.op.name == "and" and any(y >= 0 for y in constants):
        return True
    closed = i.op.name in _OF_LOW_BITS or (i.op.name == "shift_left" and i.operands[1] is not x)
    return closed and i.results[0] in wrapped


def _regions(region: Region) -> Iterator[Region]:
    yield region
    for i in region.body:
        for inner in regions(i):
            yield from _regions(inner)


def unchecked(module: Module) -> Iterator[tuple[Span, str]]:
    """Where the device could not tell that an integer has overflowed, and what makes it."""
    for i in _applies(module):
        if i.op.exact and i.op.name in ARITHMETIC and i.op.name != "reduce" and not _can_be_checked(i):
            yield i.span, i.op.name


def of_shared_alone(module: Module, numbers: Collection[int]) -> frozenset[Value]:
    """Marked results that shared integers alone decide (`numbers`: by position), and that decide nothing themselves:
    the device computes them once, so that a plan is for any value of theirs."""
    known, found = {module.shared[k] for k in numbers}, set[Value]()
    for i in _applies(module):
        read = [x for x in i.operands if isinstance(x, Value)]
        if read and known.issuperset(read) and _is_computed(i):
            known.update(i.results)
            found.update(i.results if i.op.exact else ())
    return frozenset(x for x in found if not _decides(module, depending_on(module, [x])))


def _decides(module: Module, values: Collection[Value]) -> bool:
    """Does the host need some of these values, for control or for what it reads?"""
    for i in (i for f in module.functions for i in walk(f.region)):
        reads = isinstance(i, Apply) and not _is_computed(i) and not about(i.op).effect
        if any(x in values for x in (operands(i) if reads else deciding(i))):
            return True
    return False


def _is_computed(i: Apply) -> bool:
    """Does the device know the operation?"""
    return i.op.is_jax or not about(i.op).host


def check_computed_integers(module: Module, device: Collection[Value]) -> Module:
    """The module in which integers that only the device knows (`device`) are looked at by checks of it."""
    if not any(i.op.exact and not set(i.results).isdisjoint(device) for i in _applies(module)):
        return module
    fresh = Fresh(module)
    functions = (replace(f, region=check_integers_in(f.region, fresh, device)) for f in module.functions)
    return replace(module, functions=tuple(functions))


def check_integers_in(region: Region, fresh: Fresh, device: Collection[Value] | None = None) -> Region:
    """A region with such checks; None: the device computes all that is in it."""

    def checked(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    def each(i: Instruction) -> list[Instruction]:
        if not isinstance(i, Apply) or not i.op.exact or (device is not None and i.results[0] not in device):
            return [with_regions(i, checked)]
        return checked_integer(i, fresh)

    return checked(region)


def checked_integer(i: Apply, fresh: Fresh) -> list[Instruction]:
    """An operation of the device, and behind it what lets the example fail where it has left the bits of its result."""
    if i.op.name == "reduce" and i.op["kind"] in _FOLDS:
        return _added_up(i, fresh, lambda made: checked_integer(made, fresh))
    made: list[Instruction] = [replace(i, op=replace(i.op, exact=False))]
    if _can_be_checked(i):
        (fine,) = in_place(_fits, (*i.operands, *i.results), fresh, made.append, i.span, i.op)
        told = fresh.value(BOOL)
        made.append(Apply((told,), own("unknown"), (fine,), i.span))  # the device looks, whatever it is computed from
        made.append(Apply((), own("check", kind=TOO_LARGE[0], message=TOO_LARGE[1]), (told,), i.span))
    return made


def add_up_by_loops(module: Module) -> Module:
    """The module whose sums and products of lists that may overflow are loops."""
    fresh = Fresh(module)

    def looped(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    def each(i: Instruction) -> list[Instruction]:
        if isinstance(i, Apply) and i.op.exact and i.op.name == "reduce" and i.op["kind"] in _FOLDS:
            return _added_up(i, fresh, lambda made: [made])
        return [with_regions(i, looped)]

    return replace(module, functions=tuple(replace(f, region=looped(f.region)) for f in module.functions))


def _added_up(i: Apply, fresh: Fresh, of_turn: Callable[[Apply], list[Instruction]]) -> list[Instruction]:
    """The sum or product of a list as a loop; what takes the place of its turn's operation."""
    (xs,), (result,) = i.operands, i.results
    step, first = _FOLDS[i.op["kind"]]
    count, turn = fresh.value(_scalar(result.type)), fresh.value(_scalar(result.type))
    before, element = fresh.value(result.type), fresh.value(result.type)
    inside: list[Apply] = [Apply((element,), own("item"), (xs, turn), i.span)]
    (after,) = in_place(step, (before, element), fresh, inside.append, i.span)
    *steps, last = inside
    turns = (*steps, *of_turn(replace(last, op=replace(last.op, exact=True))))
    init: tuple[Operand, ...] = (Literal(first, result.type),)
    loop = For((result,), count, init, Region((turn, before), turns, (after,)), i.span)
    return [Apply((count,), own("length"), (xs,), i.span), loop]


def _applies(module: Module) -> Iterator[Apply]:
    return (i for f in module.functions for i in walk(f.region) if isinstance(i, Apply))


def _scalar(type: Type) -> Type:
    assert isinstance(type, Array)
    return replace(type, shape=())


def _can_be_checked(i: Apply) -> bool:
    integers = all(isinstance(x.type, Array) and (x.type.is_integer or x.type.is_bool) for x in i.operands)
    return integers and i.op.name in (*_ABOUT, "integer_pow")


_ABOUT: Mapping[str, Callable[..., Any]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "neg": lax.neg,
    "abs": lax.abs,
    "square": lax.square,
    "pow": jnp.power,
    "shift_left": lambda x, y: x * jnp.exp2(y),
}
"""What operations on integers give in floats."""


def _fits(op: Op, *xs: Any) -> Any:
    """Is a result what Python has? In floats it is nearly that, and what has overflowed is off by 2**32 or more. (XLA
    takes the sign of `k * k` for known, as if it could not overflow.)"""
    *operands, result = xs
    bits = 8 * result.dtype.itemsize
    wide = jnp.float64 if bits == 64 else jnp.float32
    given = [jnp.asarray(x).astype(wide) for x in operands]
    about = lax.integer_pow(given[0], op["y"]) if op.name == "integer_pow" else _ABOUT[op.name](*given)
    return jnp.all(jnp.abs(about - result.astype(wide)) < 2.0 ** (bits - 2))
