"""Overflow of Python's integers: which operations may need more bits than the device has, and who checks them.

Intervals tell which operations have enough bits, by abstract interpretation (Cousot and Cousot, POPL 1977).
Loop-carried values, and arguments and results of calls, are widened where they still grow when they have changed a few
times: first to 2**30, which nothing reaches that is counted one by one.

    for length(%xs) do (%i):   %i: [0, 2**28]
      %k = mul(%i, 2)          [0, 2**29]
      %m = mul(%k, %k)         may overflow 32 bits

All others are marked. The host computes these: it has 64 bits, and sees for itself what leaves them. Where only the
device can, it checks:

    %3 = mul(%1, %2)                 ->     %3 = mul[exact=True](%1, %2)

    %3 = mul[exact=True](%1, %2)     ->     %3 = mul(%1, %2)
                                            %4, ... = the product in floats, and whether it is small
                                            check[kind='OverflowError', message='an int needs more bits ...'](%4)

Where no host knows any number, a sum over a list becomes a loop that adds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, assert_never

import jax
import jax.numpy as jnp
from jax import lax

from autobatch.errors import Span
from autobatch.ir import jax_compat
from autobatch.ir.buffers import TOO_LARGE
from autobatch.ir.core import (
    BOOL,
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
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, about, own
from autobatch.ir.regions import Fresh, with_regions
from autobatch.passes.fallible import deciding, depending_on
from autobatch.passes.loops import is_bounds
from autobatch.passes.structure import StructureFacts, decided

# ---- intervals


LONGEST = 1 << 28
"""Elements that no list has: they would take a GiB."""

COUNTED = 1 << 30
"""What nothing reaches that is counted one by one: a run takes fewer turns."""

CHANGES = 3
"""So often an interval may grow before it is widened."""

LARGEST_CHARACTER = 0x10FFFF

Interval = tuple[int, int]


def is_python_integer(type: Type) -> bool:
    """Is it one that has no end in Python?"""
    return isinstance(type, Array) and type.is_integer and type.weak


class Ranges:
    """The intervals of the integers of a module, and of the elements of its lists of integers. `bits`: of those that
    it is given; `computed`: of those that it computes, which fail where they need more."""

    def __init__(self, module: Module, bits: int, computed: int) -> None:
        self.module, self.all, self.widest = module, _of_bits(bits), _of_bits(computed)
        self.known: dict[Value, Interval] = {}
        self.changes: dict[Value, int] = {}
        self.functions = {f.name: f.region for f in module.functions}
        self.changed = True
        for value in (*module.shared, *module.functions[0].region.args):
            self.known[value] = self.all
        while self.changed:
            self.changed = False
            for function in module.functions:
                self.region(function.region)

    def of(self, x: Operand) -> Interval | None:
        """None: nothing is known yet, as nothing has got here."""
        if isinstance(x, Literal):
            return (int(x.value), int(x.value)) if isinstance(x.value, int) else self.all
        return self.known.get(x) if is_integers(x.type) else self.all

    def may_overflow(self, i: Apply) -> bool:
        """May the result of an operation need more bits than the device's integers have?"""
        if i.op.name not in ARITHMETIC or not any(is_python_integer(r.type) for r in i.results):
            return False
        return self.is_wide(self.exact(i))

    def reads_wide(self, i: Apply) -> bool:
        """Does an operation on integers read one that may need more bits than it would have as data?"""
        return all(is_integers(r.type) for r in i.results) and any(self.is_wide(self.of(x)) for x in i.operands)

    def is_wide(self, found: Interval | None) -> bool:
        return found is not None and not (self.all[0] <= found[0] and found[1] <= self.all[1])

    def exact(self, i: Apply) -> Interval | None:
        """What an operation of `ARITHMETIC` has as a result, of any size."""
        xs = [self.of(x) for x in i.operands]
        if i.op.name == "reduce":
            return self.reduced(i.op["kind"], xs[0])
        makes = ARITHMETIC[i.op.name]
        if makes is None:
            return -(1 << 99), 1 << 99
        given = [*(x for x in xs if x is not None), *([(i.op["y"],) * 2] if i.op.name == "integer_pow" else [])]
        return makes(*given) if len(given) == len(xs) + (i.op.name == "integer_pow") else None

    @staticmethod
    def reduced(kind: str, elements: Interval | None) -> Interval | None:
        if elements is None:
            return None
        if kind in ("max", "min"):
            return elements
        low, high = min(elements[0], 0), max(elements[1], 0)
        return (low * LONGEST, high * LONGEST) if kind == "sum" else (-(1 << 99), 1 << 99)

    # ---- the instructions

    def region(self, region: Region) -> None:
        for i in region.body:
            self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                self.apply(i)
            case If(then=then, orelse=orelse):
                self.region(then)
                self.region(orelse)
                self.join(i.results, then.results, orelse.results)
            case For(count=count, init=init, body=body):
                self.turn(body.args[0], count)
                self.join(body.args[1:], init, body.results, widen=True)
                self.region(body)
                self.join(i.results, init, body.results)
            case While(init=init, condition=test, body=body):
                self.join(body.args, init, body.results, widen=True)
                self.join(test.args, init, body.results, widen=True)
                self.region(test)
                self.region(body)
                self.join(i.results, init, body.results)
            case Map(count=count, body=body, filtered=filtered):
                self.turn(body.args[0], count)
                self.region(body)
                self.join(i.results, body.results[filtered:])
            case Call(callee=callee, operands=xs):
                called = self.functions[callee]
                self.join(called.args, xs, widen=True)
                self.join(i.results, called.results, widen=True)
            case _:
                assert_never(i)

    def turn(self, index: Value, count: Operand) -> None:
        """The index of a loop of so many turns."""
        turns = self.of(count)
        if turns is not None:
            self.widen(index, (0, max(turns[1] - 1, 0)))

    def apply(self, i: Apply) -> None:
        for r in i.results:
            if not is_integers(r.type):
                continue
            if i.op.name in ARITHMETIC and is_python_integer(r.type):
                found = self.exact(i)
            elif i.op.name in BOUNDED:
                given = [self.of(x) for x in i.operands]
                known = [x for x in given if x is not None]
                found = BOUNDED[i.op.name](*known) if len(known) == len(given) else None
            else:
                found = (0, 1) if is_bool(r.type) else self.all
            if found is not None:
                self.set(r, found)

    # ---- what is known

    def set(self, value: Value, found: Interval) -> None:
        found = max(found[0], self.widest[0]), min(found[1], self.widest[1])
        if found[0] > found[1]:
            found = self.widest
        if self.known.get(value) != found:
            self.known[value] = found
            self.changed = True

    def join(self, values: Sequence[Value], *sources: Sequence[Operand], widen: bool = False) -> None:
        """Each value is what one of its sources is. `widen`: values that are made of themselves, by a loop or calls."""
        for k, value in enumerate(values):
            found = [x for xs in sources if (x := self.of(xs[k])) is not None] if is_integers(value.type) else []
            if found:
                (self.widen if widen else self.set)(value, joined(*found))

    def widen(self, value: Value, found: Interval) -> None:
        """Join with what is known, widened where that has grown before. A bound that was widened to `COUNTED` stays
        there where a turn adds one."""
        old = self.known.get(value, found)
        low, high = joined(old, found)
        low = old[0] if old[0] == -COUNTED and low == -COUNTED - 1 else low
        high = old[1] if old[1] == COUNTED and high == COUNTED + 1 else high
        if (low, high) == old:
            self.set(value, old)
            return
        self.changes[value] = self.changes.get(value, 0) + 1
        if self.changes[value] > CHANGES:
            if low < old[0]:
                low = -COUNTED if low >= -COUNTED else self.widest[0]
            if high > old[1]:
                high = COUNTED if high <= COUNTED else self.widest[1]
        self.set(value, (low, high))


def _of_bits(bits: int) -> Interval:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def is_integers(type: Type) -> bool:
    """Integers of any dtype, or a list of such."""
    held = type.elem if isinstance(type, List) else type
    return isinstance(held, Array) and (held.is_integer or held.is_bool)


def is_bool(type: Type) -> bool:
    return isinstance(type, Array) and type.is_bool


def joined(*xs: Interval) -> Interval:
    if not xs:  # the elements of an empty list
        return 0, 0
    return min(x[0] for x in xs), max(x[1] for x in xs)


def _corners(of: Callable[[int, int], int]) -> Callable[..., Interval]:
    def found(x: Interval, y: Interval) -> Interval:
        values = [of(a, b) for a in x for b in y]
        return min(values), max(values)

    return found


def _sum(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _negative(x: Interval) -> Interval:
    return -x[1], -x[0]


def _size(x: Interval) -> Interval:
    least = 0 if x[0] <= 0 <= x[1] else min(abs(x[0]), abs(x[1]))
    return least, max(abs(x[0]), abs(x[1]))


def _power(x: Interval, y: Interval) -> Interval:
    most = max(abs(x[0]), abs(x[1]))
    size = most ** max(y[1], 0) if most < 2 or max(y[1], 0) < 99 else 1 << 99
    return (0 if x[0] >= 0 else -size), max(size, 1)


def _shifted(x: Interval, y: Interval) -> Interval:
    most = min(max(y[1], 0), 99)
    return min(x[0] << most, x[0]), max(x[1] << most, x[1])


def _quotient(x: Interval, y: Interval) -> Interval:
    """Towards zero or down."""
    most = max(abs(x[0]), abs(x[1]))
    return (0 if x[0] >= 0 and y[0] >= 0 else -most), most


def _remainder(x: Interval, y: Interval) -> Interval:
    return (min(y[0] + 1, 0), max(y[1] - 1, 0)) if y[0] <= y[1] else x


def _chosen(which: Interval, *xs: Interval) -> Interval:
    return joined(*xs)


def _same(x: Interval, *more: Interval) -> Interval:
    return x


ARITHMETIC: Mapping[str, Callable[..., Interval] | None] = {
    "add": _sum,
    "sub": lambda x, y: _sum(x, _negative(y)),
    "mul": _corners(lambda a, b: a * b),
    "neg": _negative,
    "abs": _size,
    "square": lambda x: _power(x, (2, 2)),
    "integer_pow": _power,
    "pow": _power,
    "shift_left": _shifted,
    "reduce": None,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "cumsum", "cumprod", "dot_general")),
}
"""Operations that may overflow, and what their result is; None: anything."""

BOUNDED: Mapping[str, Callable[..., Interval]] = {
    **dict.fromkeys(("squeeze", "reshape", "broadcast_in_dim", "transpose", "slice", "rev", "unknown", "copy"), _same),
    **dict.fromkeys(("item", "dynamic_slice", "expand_dims", "stop_gradient", "take_row"), _same),
    **dict.fromkeys(("int", "convert_element_type"), _same),
    **dict.fromkeys(("concatenate", "pack_list", "stack"), joined),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "select_n": _chosen,
    "floordiv": _quotient,
    "div": _quotient,
    "mod": _remainder,
    "sign": lambda x: (-1, 1),
    "length": lambda x: (0, LONGEST),
    "word": lambda x: (0, LARGEST_CHARACTER),
    "undefined": lambda: (0, 0),
}
"""Operations that cannot overflow, and what their result is."""


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
