"""What Python's integers of a program may be, as intervals: which operations may overflow.

    for length(%xs) do (%i):   %i: [0, 2**28]
      %k = mul(%i, 2)          [0, 2**29]
      %m = mul(%k, %k)         may overflow 32 bits

Abstract interpretation over intervals (Cousot and Cousot, POPL 1977). Loop-carried values, and arguments and results of
calls, are widened where they still grow when they have changed a few times: first to 2**30, which nothing reaches that
is counted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from autobatch.ir.core import (
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
)

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
