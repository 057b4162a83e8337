"""Where Python raises for numbers: the domains of its operators and of the functions of `math`, a table; and in traces.

    x ** y                  ->      check[kind='ZeroDivisionError', ...](x != 0 or y >= 0)
                                    check[kind='OverflowError', ...](...)
                                    %3 = pow(%x, %y)

Numbers of Python raise wherever they are computed. Elements of arrays follow NumPy and JAX (infinity, NaN): an operator
raises for them only where a `try` catches what Python's numbers raise, a function of `math` always does. Of a float the
device alone is told whether it is in the domain: no float of an example decides structure by being divided by.

What is raised, and in which words, this Python says itself: each row has arguments that fail (`sample`).

Where structure is traced, the operations of a trace are no Python. So each that may fail has a check, a number, which
the program over traces looks at:

    first = min([failure_at(k, check(x)) for k, x in enumerate(n.checks)], default=FINE)
    fail(first, 0, 'ZeroDivisionError', 'float division by zero', 'f.py', 7, ...)
->  check[kind='ZeroDivisionError', message='float division by zero'](...)       at line 7 of f.py
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.errors import Span
from autobatch.frontend.lowering.exceptions import is_caught
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import is_python
from autobatch.ir.buffers import TOO_LARGE
from autobatch.ir.core import BOOL, Array, Operand
from autobatch.ir.jax_compat import float_dtype
from autobatch.ir.ops import own


@dataclass(frozen=True)
class Domain:
    """`holds(*numbers)`: has the function a result for these of its arguments (`reads`)? Where not, it raises what it
    raises for `sample`, or what `says` has. `always`: does it hold whatever the others are, for arguments that are
    known?"""

    function: Callable[..., Any]
    holds: Callable[..., Any]
    sample: tuple[float, ...]
    reads: tuple[int, ...] = (0,)
    always: Callable[..., bool] = lambda *known: False
    says: tuple[str, str] | None = None

    def raised(self, types: Sequence[type]) -> tuple[str, str] | None:
        """The name of the exception, and its message, for arguments of some of Python's types; None where those never
        fail so."""
        whole = all(issubclass(cls, int) for cls in types)
        if self.says is not None:
            return self.says if whole == (self.function is operator.floordiv) else None
        if whole and not all(map(math.isfinite, self.sample)):
            return None
        try:
            self.function(*(cls(x) for cls, x in zip(types, self.sample, strict=True)))
        except (ArithmeticError, ValueError) as error:
            return type(error).__name__, str(error)
        except TypeError:  # floats are not shifted: that is refused elsewhere
            return None
        return None


def is_wide() -> bool:
    """Have the floats of the device as many bits as Python's?"""
    return bool(float_dtype() == np.float64)


def _bits_of_integers() -> int:
    return 64 if jax.config.read("jax_enable_x64") else 32


# ---- conditions, of numbers as JAX has them


def _not_zero(x: Any) -> Any:
    return x != 0


def _not_negative(x: Any) -> Any:
    return x >= 0


def _is_no_pole_of_power(x: Any, y: Any) -> Any:
    return jnp.not_equal(x, 0) | jnp.greater_equal(y, 0) | ~jnp.isfinite(y)


def _is_real_power(x: Any, y: Any) -> Any:
    return jnp.greater_equal(x, 0) | jnp.equal(y, jnp.floor(y)) | ~(jnp.isfinite(x) & jnp.isfinite(y))


def _power_in_range(x: Any, y: Any) -> Any:
    """By the logarithm, where the floats of the device are shorter than Python's."""
    finite, size = jnp.isfinite(x) & jnp.isfinite(y), jnp.abs(x)
    if is_wide():
        return ~(finite & (size > 0) & jnp.isinf(jnp.power(size * 1.0, y)))
    return ~(finite & (y * jnp.log2(jnp.where(size > 0, size * 1.0, 1.0)) >= 1024))


def _is_whole_power(_: Any, y: float | None) -> bool:
    return y is not None and y == math.floor(y)


def _power_never_leaves_range(_: Any, y: float | None) -> bool:
    return y is not None and (0 <= y <= 1 or (not is_wide() and abs(y) < 6.8))  # the least float is 2 ** -149


def _above(least: float, *, open: bool = False) -> Callable[..., Any]:
    return (lambda x: ~(x <= least)) if open else (lambda x: ~(x < least))


def _below(most: float) -> Callable[..., Any]:
    return lambda x: (x <= most) | ~jnp.isfinite(x)


def _within(most: float, *, open: bool = False) -> Callable[..., Any]:
    return (lambda x: ~(jnp.abs(x) >= most)) if open else (lambda x: ~(jnp.abs(x) > most))


def _no_larger(most: float) -> Callable[..., Any]:
    return lambda x: (jnp.abs(x) <= most) | ~jnp.isfinite(x)


def _not_infinite(x: Any) -> Any:
    return ~jnp.isinf(x)


def _is_number(x: Any) -> Any:
    return ~jnp.isnan(x)


def _is_no_pole(x: Any) -> Any:
    """Gamma has poles at zero and at integers below, and no limit at minus infinity."""
    return (x > 0) | (x != jnp.floor(x)) | jnp.isnan(x)


def _is_no_pole_of_log(x: Any) -> Any:
    return _is_no_pole(x) | jnp.isinf(x)


def _has_remainder(x: Any, y: Any) -> Any:
    return jnp.isnan(x) | jnp.isnan(y) | (jnp.not_equal(y, 0) & ~jnp.isinf(x))


def _not_one(x: Any) -> Any:
    return x != 1


def _fits_integer(x: Any) -> Any:
    return ~(jnp.abs(x) >= 2.0 ** (_bits_of_integers() - 1))


def _quotient_fits(x: Any, y: Any) -> Any:
    """The least integer by -1 is more than the device's can hold."""
    return jnp.not_equal(y, -1) | (x != -(2 ** (_bits_of_integers() - 1)))


COMPLEX = ("ValueError", "a negative number to the power of a fraction is complex; write complex(x) ** y")
EXP_MOST, GAMMA_MOST, COSH_MOST = 709.782712893384, 171.6243769563027, 710.4758600739439
"""The largest numbers of which a float of 64 bits holds exp, gamma and cosh."""

_TO_INTEGER = (int, round, math.floor, math.ceil, math.trunc)
_positive, _from_zero = _above(0.0, open=True), _above(0.0)

_ROWS = (
    *(Domain(f, _not_zero, (1.0, 0.0), (1,)) for f in (operator.truediv, operator.floordiv, operator.mod, divmod)),
    *(Domain(f, _not_negative, (1.0, -1.0), (1,)) for f in (operator.lshift, operator.rshift)),
    *(
        Domain(f, _is_no_pole_of_power, (0.0, -1.0), (0, 1), lambda x, y: y is not None and y >= 0)
        for f in (operator.pow, math.pow)
    ),
    Domain(operator.floordiv, _quotient_fits, (), (0, 1), lambda x, y: y not in (None, -1), TOO_LARGE),
    Domain(math.pow, _is_real_power, (-1.0, 0.5), (0, 1), _is_whole_power),
    Domain(operator.pow, _is_real_power, (), (0, 1), _is_whole_power, COMPLEX),
    *(Domain(f, _power_in_range, (10.0, 400.0), (0, 1), _power_never_leaves_range) for f in (operator.pow, math.pow)),
    Domain(math.sqrt, _from_zero, (-1.0,)),
    *(Domain(f, _positive, (0.0,)) for f in (math.log, math.log2, math.log10)),
    Domain(math.log, _positive, (2.0, 0.0), (1,)),
    Domain(math.log, _not_one, (2.0, 1.0), (1,)),
    Domain(math.log1p, _above(-1.0, open=True), (-1.0,)),
    *(Domain(f, _below(EXP_MOST), (1e3,)) for f in (math.exp, math.expm1)),
    Domain(math.exp2, _below(math.nextafter(1024.0, 0.0)), (2e3,)),
    *(Domain(f, _no_larger(COSH_MOST), (1e3,)) for f in (math.sinh, math.cosh)),
    *(Domain(f, _not_infinite, (math.inf,)) for f in (math.sin, math.cos, math.tan)),
    *(Domain(f, _within(1.0), (2.0,)) for f in (math.asin, math.acos)),
    Domain(math.acosh, _above(1.0), (0.0,)),
    Domain(math.atanh, _within(1.0, open=True), (1.0,)),
    Domain(math.gamma, _is_no_pole, (0.0,)),
    Domain(math.gamma, _below(GAMMA_MOST), (1e3,)),
    Domain(math.lgamma, _is_no_pole_of_log, (0.0,)),
    Domain(math.fmod, _has_remainder, (1.0, 0.0), (0, 1)),
    *(Domain(f, _is_number, (math.nan,)) for f in _TO_INTEGER),
    *(Domain(f, _not_infinite, (math.inf,)) for f in _TO_INTEGER),
    *(Domain(f, _fits_integer, (), says=TOO_LARGE) for f in _TO_INTEGER),
)
DOMAINS: Mapping[Any, tuple[Domain, ...]] = {
    f: tuple(row for row in _ROWS if row.function is f) for f in dict.fromkeys(row.function for row in _ROWS)
}
"""In the order in which Python looks at them."""


def guard(s: LoweringState, function: Any, args: Sequence[v.Abstract]) -> None:
    """Checks that Python has a result for numbers, where it is one of Python's operators or functions of numbers."""
    if not _is_hashable(function):
        return
    for row in DOMAINS.get(function, ()):
        if max(row.reads) >= len(args):
            continue
        numbers = [args[k] for k in row.reads]
        if not all(map(_is_scalar, numbers)) or _is_settled(row, numbers):
            continue
        raised = row.raised([_class_of(a) for a in args[: max(len(row.sample), 1)]])
        if raised is None or not _raises(s, function, args, getattr(builtins, raised[0])):
            continue
        operands = tuple(operand_of(s, x) for x in numbers)
        key = ("domain", row.holds, operands)
        if s.block.recall(key) is not None:
            continue
        if all(isinstance(x, v.Static) for x in numbers):  # as they are not in the domain, it is known to fail
            fine: Operand = s.scalar(False)
        else:
            fine = operand_of(s, traced(s, row.holds, *numbers))
            if any(_is_float(x) for x in operands):
                fine = s.apply(own("unknown"), (fine,), BOOL)
        s.check(fine, *raised)
        s.block.memo[key] = v.Static(True)


def _is_hashable(function: Any) -> bool:
    return isinstance(function, type | BuiltinFunctionType)


def _raises(s: LoweringState, function: Any, args: Sequence[v.Abstract], kind: type[BaseException]) -> bool:
    """Does Python raise, where JAX and NumPy have a value?"""
    if getattr(function, "__module__", "") == "math" or function in _TO_INTEGER:
        return True
    return all(isinstance(a, v.Static) or is_python(operand_of(s, a).type) for a in args) or is_caught(s, kind)


def _is_settled(row: Domain, numbers: Sequence[v.Abstract]) -> bool:
    """Is it known while compiling that the function has a result?"""
    known = [x.value if isinstance(x, v.Static) else None for x in numbers]
    if row.always(*known):
        return True
    return all(x is not None for x in known) and bool(row.holds(*map(np.asarray, known)))


def _is_scalar(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, bool | int | float)
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and type.is_scalar and not type.dtype.startswith(("complex", "key"))


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and not (x.type.is_integer or x.type.is_bool)


def _class_of(value: v.Abstract) -> type:
    if isinstance(value, v.Static):
        return type(value.value)
    assert isinstance(value, v.Leaf) and isinstance(value.type, Array)
    return int if value.type.is_integer or value.type.is_bool else float


# ---- failures of traces


FINE = 2**31 - 1
"""What a check gives of an operation that does not fail; else the number of the failure."""
MOST = 1 << 12
"""So many different failures one function may have."""
_LAST = FINE // MOST - 1


@jax.jit
def failure_at(place: Any, number: Any) -> Any:
    """A number that orders failures by their places in a run."""
    return jnp.where(number == FINE, FINE, jnp.minimum(place, _LAST) * MOST + number)


def fail(first: Any, number: int, kind: str, message: str, *span: Any) -> None:
    """Fail an example if its first failure has this number."""
    if first != FINE and first % MOST == number:
        raise getattr(builtins, kind)(message)


def _is_other(first: Any, number: Any) -> Any:
    return (first == FINE) | (first % MOST != number)


def _failing(s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract:
    first, number, *told = args
    kind, message, *span = (x.value for x in told if isinstance(x, v.Static))
    fine = operand_of(s, traced(s, _is_other, first, number))
    s.check(s.apply(own("unknown"), (fine,), BOOL), kind, message, span=Span(*span))
    return v.Static(None)


TRACED_FAILURES = {fail: _failing}
