"""Numbers: operands, conversions, Python's arithmetic and comparisons.

Python's `/ // % ** round int` on Python numbers are operations of our own (`ir/leaf.py` has their meaning), as are
those on integers of the examples; everything on arrays is what JAX does.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.numpy_arrays import kind_of
from autobatch.frontend.lowering.state import ClassTest, LoweringState
from autobatch.frontend.lowering.tracing import Untraceable, trace_numbers
from autobatch.frontend.memory.heap import Form, NeedsMemory
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import need
from autobatch.frontend.types.values import enum_class, is_python, static_type
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import BOOL, STR, Array, BuiltObject, Literal, Operand, Ref, Tag, Type, Value
from autobatch.ir.ops import Op, own

OWN_ARITHMETIC: dict[Any, str] = {
    operator.truediv: "truediv",
    operator.floordiv: "floordiv",
    operator.mod: "mod",
    operator.pow: "pow",
}
_DIVISIONS: dict[Any, str] = {
    operator.truediv: "division by zero",
    operator.floordiv: "integer division or modulo by zero",
    operator.mod: "integer modulo by zero",
}
ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, *OWN_ARITHMETIC})


def is_number(value: v.Abstract) -> bool:
    """A number or array of the program, or a static Python number."""
    if isinstance(value, v.Leaf):
        return isinstance(value.type, Array)
    return isinstance(value, v.Static) and isinstance(value.value, (bool, int, float, complex))


def as_number(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A member of an `IntEnum` as the number that it is; other values as they are."""
    if isinstance(value, v.Static) and isinstance(value.value, enum.Enum) and isinstance(value.value, int):
        return v.Static(int(value.value))
    if isinstance(value, v.Leaf) and isinstance(value.type, Tag) and value.type != STR:
        cls = enum_class(value.type)
        return s.context.rules.attribute(s, value, "value") if cls is not None and issubclass(cls, int) else value
    return value


def operand_of(s: LoweringState, value: v.Abstract) -> Operand:
    """The operand of a number, tag, reference or list; static scalars become literals, strings tags."""
    if isinstance(value, v.Leaf):
        return value.operand
    if isinstance(value, v.Optional):
        return operand_of(s, present(s, value))
    if isinstance(value, v.Static):
        type = static_type(value.value)
        if isinstance(type, Array):
            return Literal(value.value, type)
        if isinstance(type, Tag):
            return tag(s, value.value, type)
    s.refuse("a number is needed here", "give an int, a float, a bool or an array")


def tag(s: LoweringState, value: Any, type: Tag) -> Operand:
    """A string or enum member as a value of the program."""
    made = s.apply(own("tag", value=value), (), type)
    s.context.meanings[made] = ("one_of", frozenset({value}))
    return made


_NONE = ("TypeError", "None where a value is needed")


def present(
    s: LoweringState, value: v.Abstract, unset: str = "UnboundLocalError", none: tuple[str, str] = _NONE
) -> v.Abstract:
    """The value of an optional one, after a check that it is there. `unset`: what reading a variable that is
    not set fails with; `none`: what None fails with here."""
    refuse_made(s, value)
    while isinstance(value, v.Optional):
        if s.block.truth(value.missing) is not False:
            there = s.apply(own_not(), (value.missing,), BOOL)
            s.context.meanings[there] = ("not", value.missing)
            if value.unset:
                s.check(there, unset, v.not_set(value.unset))
            else:
                s.check(there, *none)
        value = value.value
    return value


def without(name: str) -> tuple[str, str]:
    """What an attribute of None fails with."""
    return "AttributeError", f"'NoneType' object has no attribute {name!r}"


def _boxed_forms(s: LoweringState) -> list[Form]:
    """The kinds of containers that are passed on whole. Before one of them is made that way, those of all objects."""
    memory = s.context.memory
    made = [form for form in memory.made if form[1] is None or form[1] not in memory.heaps]
    classes = sorted((c for c in s.context.built if c not in memory.heaps), key=lambda c: c.__qualname__)
    return made or [("object", cls, ()) for cls in classes]


def refuse_made(s: LoweringState, value: v.Abstract) -> None:
    """What an object is that the program makes is known when everything has run."""
    if isinstance(value, v.Leaf) and isinstance(value.type, BuiltObject):
        words = "an object that the function makes, in a recursion or of one of several classes, is handed on, not read"
        cure = "read its parts before it is made, return them beside it, or read it in a function that takes the result"
        raise NeedsMemory((), UnsupportedError(words, s.span, cure), forms=_boxed_forms(s))


def own_not() -> Op:
    return Op("not", (), lax.not_p)


def negate(s: LoweringState, condition: Operand) -> Operand:
    """The logical not of a bool."""
    if isinstance(condition, Literal) and condition.constant < 0:
        return s.scalar(not condition.value)
    match s.context.meanings.get(condition) if not isinstance(condition, Literal) else None:
        case ("not", other):
            found: Operand = other
            return found
    result = s.apply(own_not(), (condition,), BOOL)
    s.context.meanings[result] = ("not", condition)
    return result


OF_ARRAYS = ("of arrays",)
"""The meaning of a bool that is one of arrays."""


def combine(s: LoweringState, kind: str, a: Operand, b: Operand) -> Operand:
    """`a and b` or `a or b` of bools that are both evaluated."""
    result = s.apply(Op(kind, (), lax.and_p if kind == "and" else lax.or_p), (a, b), BOOL)
    note_connected(s, result, kind, a, b)
    return result


def note_connected(s: LoweringState, result: Value, kind: str, a: Operand, b: Operand) -> None:
    """Note what `a and b` or `a or b` means; of two tests of the class of one object it is such a test."""
    match [s.context.meanings.get(x) if isinstance(x, Value) else None for x in (a, b)]:
        case ("is_class", *left), ("is_class", *right) if left[0].of == right[0].of:
            s.context.meanings[result] = ("is_class", *_connected(kind == "and", left, right))
        case ("not", x), ("is_class", test, *_) as told if kind == "and" and s.context.meanings.get(x) == (
            "is_none",
            test.of,
        ):
            s.context.meanings[result] = told  # None has no class
        case _:
            s.context.meanings[result] = (kind, a, b)


def _connected(both: bool, left: Sequence[ClassTest], right: Sequence[ClassTest]) -> list[ClassTest]:
    """What two tests of one reference, and of its tag, say together: where both hold, or else one of them."""
    tests = list[ClassTest]()
    for test in {x.of: x for x in (*left, *right)}.values():
        a, b = _told(left, test), _told(right, test)
        if a is not None and b is not None:
            true = a.true & b.true if both else a.true | b.true
            false = a.false | b.false if both else a.false & b.false
            tests.append(test._replace(true=true, false=false))
    first, *of_tags = tests
    for test in of_tags:  # a class of which no constant is left is ruled out
        by_class = test.by_class or {}
        true, false = (
            frozenset(k for k in classes if k not in by_class or by_class[k] & constants)
            for classes, constants in ((first.true, test.true), (first.false, test.false))
        )
        first = first._replace(true=true, false=false)
    return [first, *of_tags]


def _told(tests: Sequence[ClassTest], about: ClassTest) -> ClassTest | None:
    """What a test says of a reference or tag that another one is about; None where it is not known which constants all
    its classes have."""
    known = next((x for x in tests if x.of == about.of), None)
    if known is not None or about.by_class is None or not about.by_class.keys() >= tests[0].true | tests[0].false:
        return known
    constants = about.by_class
    true, false = (frozenset[Any]().union(*map(constants.__getitem__, x)) for x in (tests[0].true, tests[0].false))
    return about._replace(true=true, false=false)


def own_number(s: LoweringState, name: str, *operands: Operand, python: bool = False, **params: Any) -> v.Leaf:
    """One of our own numeric operations."""
    op = own(name, **params)
    types = [x.type for x in operands]
    literals = [x.value if isinstance(x, Literal) and x.constant < 0 else None for x in operands]
    arrays = [t for t in types if isinstance(t, Array)]
    type = leaf.result_type(op, arrays, literals)
    weak = type.is_scalar and (python or all(is_python(t) for t in arrays))
    return v.Leaf(s.apply(op, operands, Array(type.dtype, type.shape, weak or type.weak)))


def binary(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Leaf:
    """Arithmetic or comparison of two numbers, at least one of the program."""
    x, y = operand_of(s, a), operand_of(s, b)
    x, y = _wide_as_float(s, x, y), _wide_as_float(s, y, x)
    of_python = _of_python(s, x) and _of_python(s, y)
    if of_python and function in ARITHMETIC:
        x, y = integer(s, x), integer(s, y)
        if function is operator.pow and _is_integer(x) and _is_integer(y):
            return _integer_power(s, x, y)
        if function in OWN_ARITHMETIC:
            return own_number(s, OWN_ARITHMETIC[function], x, y)
    if function in _DIVISIONS and isinstance(x, Value) and s.context.meanings.get(x) == ("sum", y):
        # of nothing it is the int 0, whatever the elements are: 0 / 0
        some = traced(s, operator.gt, v.Leaf(y), v.Static(0)).operand
        s.check(some, "ZeroDivisionError", _DIVISIONS[function])
    return _noted(s, of_python, replace(traced(s, function, v.Leaf(x), v.Leaf(y)), numpy=kind_of((a, b))))


def _of_python(s: LoweringState, x: Operand) -> bool:
    """Is it a number or bool of Python? What arrays are compared to is theirs: `~` of it is its opposite."""
    return is_python(x.type) and not (isinstance(x, Value) and s.context.meanings.get(x) == OF_ARRAYS)


def _noted(s: LoweringState, of_python: bool, found: v.Leaf) -> v.Leaf:
    """A result, of which it is known from now on where it is a bool of arrays."""
    type = found.operand.type
    if not of_python and isinstance(found.operand, Value) and isinstance(type, Array) and type.is_bool:
        s.context.meanings[found.operand] = OF_ARRAYS
    return found


def _wide_as_float(s: LoweringState, x: Operand, other: Operand) -> Operand:
    """An int that needs more than 32 bits beside a float is the float that it becomes."""
    inexact = isinstance(other.type, Array) and not (other.type.is_integer or other.type.is_bool)
    if inexact and isinstance(x, Literal) and x.is_wide and isinstance(x.value, int):
        return s.scalar(float(x.value))
    return x


def _is_integer(x: Operand) -> bool:
    return isinstance(x.type, Array) and x.type.is_integer


def _integer_power(s: LoweringState, x: Operand, y: Operand) -> v.Leaf:
    """`int ** int` is an int in Python unless the exponent is negative, which only a constant may be (a shared one
    becomes such), or what is written `-n`: that power is a float, which where paths join an int is too."""
    if isinstance(y, Literal) and isinstance(y.value, int) and y.constant < 0:
        if y.value < 0:
            return own_number(s, "pow", operand_of(s, to_float(s, v.Leaf(x))), s.scalar(float(y.value)))
        return own_number(s, "pow", x, y)
    if isinstance(y, Value) and s.context.meanings.get(y, ("",))[0] == "neg":
        return own_number(s, "pow", operand_of(s, to_float(s, v.Leaf(x))), operand_of(s, to_float(s, v.Leaf(y))))
    need(s, v.Leaf(y))
    positive = traced(s, operator.ge, v.Leaf(y), v.Static(0))
    s.check(
        positive.operand,
        "ValueError",
        "an int to the power of a negative int is a float; write float(x) ** n",
    )
    return own_number(s, "pow", x, y)


def integer(s: LoweringState, x: Operand) -> Operand:
    """A bool as the int that it is in Python's arithmetic."""
    if not (isinstance(x.type, Array) and x.type.is_bool):
        return x
    if isinstance(x, Literal) and x.constant < 0:
        return s.scalar(int(bool(x.value)))
    return traced(s, _bool_to_int, v.Leaf(x)).operand


def _bool_to_int(x: Any) -> Any:
    return x * 1


def _to_float(x: Any) -> Any:
    """A number of Python again, whatever it was of."""
    return jax_compat.weakened(lax.convert_element_type(x, float))


def to_float(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """`float(x)`."""
    if isinstance(value, v.Static):
        return v.Static(float(value.value))
    x = operand_of(s, value)
    if isinstance(x, Literal) and x.constant < 0 and isinstance(x.value, (bool, int, float)):
        return v.Leaf(s.scalar(float(x.value)))
    return traced(s, _to_float, v.Leaf(x))


def unary(s: LoweringState, function: Callable[..., Any], value: v.Abstract) -> v.Leaf:
    x = operand_of(s, value)
    of_python = _of_python(s, x)
    if of_python:
        x = integer(s, x)
    result = _noted(s, of_python, replace(traced(s, function, v.Leaf(x)), numpy=kind_of((value,))))
    if function is operator.neg and isinstance(result.operand, Value):
        s.context.meanings[result.operand] = ("neg", x)
    return result


def traced(s: LoweringState, function: Callable[..., Any], *args: v.Abstract) -> v.Leaf:
    """A function of numbers, traced; it must give one number."""
    args = tuple(as_number(s, x) for x in args)
    try:
        result = trace_numbers(s, function, args)
    except Untraceable as error:
        s.refuse(_first_line(error.error), "check the shapes and types of the operands")
    assert isinstance(result, v.Leaf)
    return result


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def coerce(s: LoweringState, operand: Operand, type: Type) -> Operand:
    """An operand as a value of another type: a wider number, an array filled with a scalar."""
    if operand.type == type or not isinstance(type, Array) or not isinstance(operand.type, Array):
        return operand
    if isinstance(operand, Literal) and operand.constant < 0 and type.is_scalar:
        value = operand.value
        if type.dtype.startswith(("float", "bfloat")) and isinstance(value, (bool, int)):
            value = float(value)
        return Literal(value, type)
    key = _coercion(type)
    return traced(s, key, v.Leaf(operand)).operand


_COERCIONS: dict[Array, Callable[[Any], Any]] = {}


def _coercion(type: Array) -> Callable[[Any], Any]:
    """A function that converts to a type; one for each type, so that its traces are found again."""
    if type not in _COERCIONS:

        def convert(x: Any) -> Any:
            if type.weak and type.is_scalar:
                return x * {"i": 1, "f": 1.0, "c": 1.0 + 0.0j}[type.dtype[0]]  # a conversion would not be weak
            return jnp.broadcast_to(lax.convert_element_type(x, jax_compat.dtype_of(type.dtype)), type.shape)

        _COERCIONS[type] = convert
    return _COERCIONS[type]


def undefined(s: LoweringState, type: Type) -> Operand:
    """A value of a type that is never read."""
    if isinstance(type, Ref | BuiltObject):
        return s.apply(own("none"), (), type)
    return s.apply(own("undefined", type=type), (), type)
