"""Leaf operations: JAX primitives with their params, and the few of our own that JAX has no name for.

An `Op` is plain data. For a JAX primitive, `primitive` holds it and JAX supplies type rule, value, derivative and
batching rule. Our own operations are listed in `OWN`, one row each.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from autobatch.common.record import record

# ---- constants
#
# When two constants are one: they have the same type and the same bits.
#
# `==` is not enough: 0.0 and -0.0 divide differently, 1, 1.0 and True print differently, and a NaN is itself. Whatever
# keeps constants in a table (caches of programs, common subexpressions, joins, pools of arrays) asks here.


_BY_VALUE = frozenset({type(None), bool, int, str, bytes})


def constant_key(value: Any) -> Hashable:
    """A hashable key that two constants share where they have one type and the same bits, part by part. What is no
    number, string, array or container is compared by its own `==`; of a dataclass the fields are looked at, too.

    Raises TypeError for what has no hash.

    >>> constant_key((1, 0.0)) == constant_key((1, -0.0)), constant_key(1) == constant_key(True)
    (False, False)
    """
    kind = type(value)
    if kind in _BY_VALUE:
        return (kind, value)
    if kind is float:
        return (kind, struct.pack("d", value))
    if kind is complex:
        return (kind, struct.pack("dd", value.real, value.imag))
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return (kind, value.dtype, value.shape, value.tobytes())
    if isinstance(value, tuple | list):
        return (kind, *map(constant_key, value))
    if isinstance(value, dict):
        return (kind, *((constant_key(k), constant_key(x)) for k, x in value.items()))
    if isinstance(value, set | frozenset):
        return (kind, frozenset(map(constant_key, value)))
    if isinstance(value, slice):
        return (kind, constant_key(value.start), constant_key(value.stop), constant_key(value.step))
    hash(value)
    parts: list[Any] = [kind, value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts += (constant_key(getattr(value, f.name, None)) for f in dataclasses.fields(value) if f.compare)
    return tuple(parts)


def same_constant(a: Any, b: Any) -> bool:
    """Are two constants one? As the equality of their keys; what has no hash is one with itself alone."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in _BY_VALUE or isinstance(a, enum.Enum):
        return bool(a == b)
    try:
        return constant_key(a) == constant_key(b)
    except TypeError:
        return False


class ConstantKey:
    """A constant as a part of a key: equal to what is one with it. Raises TypeError for what has no hash."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.key, self.value = constant_key(value), value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return repr(self.value)


@record
class Op:
    """A leaf operation: a name and its static parameters. `exact`: on Python's integers, with a result that may need
    more bits than the device's have (`overflows.py`). `choice`: a `select_n` that stands for a branch, as
    Python's `max` does, or a read of one element of a list in memory, so that a row uses what it has chosen and nothing
    else (`jax_compat.choosing`, `passes/liveness.py`)."""

    name: str
    params: tuple[tuple[str, Any], ...] = ()
    primitive: Any = None
    exact: bool = False
    choice: bool = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        same = self.name == other.name and self.params == other.params and self.marks == other.marks
        return same and same_constant(self.params, other.params)

    def __hash__(self) -> int:
        return hash((self.name, self.params))

    def __getitem__(self, key: str) -> Any:
        return dict(self.params)[key]

    @property
    def marks(self) -> tuple[str, ...]:
        """What is said of it beside its parameters."""
        return tuple(mark for mark in MARKS if getattr(self, mark))

    @property
    def is_jax(self) -> bool:
        return self.primitive is not None


MARKS = ("exact", "choice")


def _of_no_elements(function: Callable[[Any], Any]) -> str:
    try:
        function(())
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{function} does not fail")


NO_ELEMENTS = {"max": _of_no_elements(max), "min": _of_no_elements(min)}
"""What this version of Python says of an empty sequence."""


def own(name: str, **params: Any) -> Op:
    """An operation of our own; raises KeyError for a name that is not in `OWN`."""
    OWN[name]  # a typing mistake fails here
    return Op(name, tuple(sorted(params.items())))


@record
class OwnOp:
    """`host`: works on structure, so it exists on the host alone. `fails`: an example can fail in it.
    `effect`: it is kept even if nothing reads its results."""

    summary: str
    host: bool = True
    fails: bool = False
    effect: bool = False


OWN: dict[str, OwnOp] = {
    # structure: objects, lists, tags
    "load": OwnOp("load[field](ref): a field of an object; None fails with AttributeError", fails=True),
    "load_is_none": OwnOp(
        "load_is_none[field, type](ref): is this array or tag field, of that type, None?", fails=True
    ),
    "is_none": OwnOp("is_none(ref)"),
    "none": OwnOp("none(): the null reference"),
    "is_class": OwnOp("is_class[names](ref): is it of one of these classes? False for None"),
    "same": OwnOp("same(ref, ref): `is` on objects and lists"),
    "length": OwnOp("length(list): int"),
    "item": OwnOp(
        "item(list, int): Python's indexing, negative from the end; IndexError; or (`there`) an index from the front "
        "that is in range wherever the element is read",
        fails=True,
    ),
    # rows of the examples, by their numbers among those of one example (`passes/chosen_rows.py`)
    "row": OwnOp("row(ref or list): the number of this row; -1 for None"),
    "row_of": OwnOp("row_of(int): the object or list of the example whose number (`row`) this is"),
    "rows_of": OwnOp(
        "rows_of[space](ref or list, ...): how many rows a store, a list store or the elements of all of its lists "
        "(`#values`) have; the operands are what the example is given"
    ),
    "row_at": OwnOp(
        "row_at[space](int, ref or list, ...): the object or list with this number; of elements the list that holds it"
    ),
    "first": OwnOp("first(list): the number of the first of its elements"),
    "pack_list": OwnOp("pack_list(x, ...): a list of as many elements, all of one type"),
    "flatten": OwnOp("flatten(list of lists): the elements of all of them, in order"),
    "make": OwnOp("make[of](x, ...): a new object of the class `of`, whose columns hold these values"),
    "adopt": OwnOp("adopt(ref): an object of the examples as one that may stand beside those that are made"),
    "sort_order": OwnOp(
        "sort_order[reverse](list, ...): the positions of elements in ascending order, as sorted() has it; the lists "
        "are the parts of their keys"
    ),
    "find": OwnOp(
        "find(list, ..., x, ...): the position of the last element that is x; -1 where none is; several lists are the "
        "parts of elements, and as many x those of one"
    ),
    "put": OwnOp("put(list, int, x): the list with x at a place from the front; at its length, behind it"),
    "tag": OwnOp("tag[value](): a string or enum member"),
    "tag_equal": OwnOp("tag_equal(tag, tag): bool"),
    "tag_index": OwnOp("tag_index[keys](tag): int position among `keys`; KeyError when it is none of them", fails=True),
    "word": OwnOp("word(tag): a number for a string or enum member; of one character, its code point"),
    "word_of": OwnOp("word_of(int): the string or enum member whose number (`word`) this is"),
    "text": OwnOp(
        "text[function, args](x, ...): a function of strings and ints (`ir/strings.py`); `...` in `args`: the operands",
        fails=True,
    ),
    "spelt": OwnOp(
        "spelt[function](x, ...): a function of strings, by their code points, and of ints; "
        "'packed'[room]: an array, the length and behind it the code points, with room for so many"
    ),
    "check": OwnOp(
        "check[kind, message](bool, ...): the example fails with exception `kind` when false; "
        "`message` is a format string for the other operands",
        fails=True,
        effect=True,
    ),
    "bounds": OwnOp(
        "bounds[axis, size](int or array of ints): the example fails with IndexError where an index of NumPy's is out "
        "of range; dropped where the host does not know it",
        fails=True,
        effect=True,
    ),
    "undefined": OwnOp("undefined(): a value that is never read, for a variable unset on this path", host=False),
    "unknown": OwnOp("unknown(x): the same number, which the device alone is told", host=False),
    # reductions of lists that a Map (or pack_list) made; in order, from the first element
    "reduce": OwnOp(
        "reduce[kind](list): kind is sum|prod|max|min|any|all; max and min of [] fail with ValueError; their "
        "derivative is that of the first of equal elements, as in Python, or (ties='even') that of all, as in arrays",
        host=False,
        fails=True,
    ),
    "padded": OwnOp(
        "padded[room](list): an array with room for so many elements, zeros behind those of a list that structure "
        "decides; it has as many at most",
        host=False,
    ),
    "stack": OwnOp("stack(list): an array with a leading axis; not for ragged results", host=False),
    "take_row": OwnOp(
        "take_row(column, int): a row of an array that has as many rows as the examples have; the row is there",
        host=False,
    ),
    # Python's arithmetic on numbers, where it differs from JAX's primitives; broadcasts scalars with arrays
    # (checks of the front end stand before them where Python raises)
    "floordiv": OwnOp("floordiv(x, y): floor", host=False),
    "mod": OwnOp("mod(x, y): sign of the divisor", host=False),
    "truediv": OwnOp("truediv(x, y): float", host=False),
    "pow": OwnOp("pow(x, y): `**`", host=False),
    "round": OwnOp("round[ndigits](x): half to even; int when ndigits is None", host=False),
    "int": OwnOp("int(x): towards zero", host=False),
    # data-dependent control (`ir/regions.py`)
    "masked": OwnOp(
        "masked[region, sites](x, ...): a region of arithmetic, branches and loops, lane by lane; where there are "
        "`sites`, its last result is a status: 0, or 1 + the position of what the lane has failed with; `cut`: lanes "
        "that fail, here or behind it, have no derivative",
        host=False,
    ),
    # a derivative inside the function, of what it computes (`passes/masks.py`)
    "seed": OwnOp("seed(x): the same number or array, which a derivative is taken by", host=False),
    "gradient": OwnOp(
        "gradient(y, x, ...): the derivatives of a number by seeds, on the paths from them to it", host=False
    ),
    "gradient_of": OwnOp(
        "gradient_of[region, wrt](x, ...): the derivatives of the number that a region of arithmetic, branches and "
        "loops yields, by its arguments `wrt`, lane by lane",
        host=False,
    ),
    "within": OwnOp(
        "within[site, turns](status): the same; behind more turns than that of the loop whose last value it is, `site`",
        host=False,
    ),
}
"""`host=False` operations compute numbers: they run on the device too, through `ir/leaf.py`."""

OF_CONTROL: dict[str, str] = {
    "blocks": "blocks[program, base, depth, steps](x, ...): what a program of blocks gives (`ir/leaf.py`), and its "
    "status: 0, or `base` more than the program's own; at most `depth` entries of the stack, and `steps` blocks",
}
"""Operations that stand for data-dependent control: they are made by the compiler, and run on the device
alone. Their last result is a status: 0, or the number of what the example has failed with."""


INHERENT = frozenset((*OF_CONTROL, "padded", "masked", "seed", "gradient", "gradient_of", "unknown", "word_of"))
"""Operations that the device computes, whatever they are computed from."""


def of_control(name: str, **params: Any) -> Op:
    """An operation of `OF_CONTROL`; raises KeyError for another name."""
    OF_CONTROL[name]
    return Op(name, tuple(sorted(params.items())))


def about(op: Op) -> OwnOp:
    """What holds for one of our own operations."""
    return OwnOp(OF_CONTROL[op.name], host=False) if op.name in OF_CONTROL else OWN[op.name]


OF_DERIVATIVES: dict[str, str] = {
    "convert": "convert[dtype](x): the same numbers in another dtype, on all rows where x is the same for all",
    "pullback": "pullback[rule, loops](x, ...): the cotangent of an operand of another operation, from its operands, "
    "then the cotangents of its results",
}
"""Operations that stand in the equations of derivatives alone."""


def of_derivatives(name: str, **params: Any) -> Op:
    """An operation of `OF_DERIVATIVES`; raises KeyError for another name."""
    OF_DERIVATIVES[name]
    return Op(name, tuple(sorted(params.items())))
