"""Functions of floats that work number by number: one table of formulas, for each dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autobatch.backends.llvm import single, wide, wide_special
from autobatch.backends.llvm.double import arcs, circle, errors, exponentials, factorials, logarithms, steps
from autobatch.backends.llvm.formulas import Formula, called, in_double, inline
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir import jax_compat
from autobatch.ir.ops import Op

Written = Callable[..., str]
"""`written(vectors, *xs)`."""


def of_floats(name: str, written: Mapping[str, Written]) -> Callable[..., LaneValue]:
    """A function of floats of one dtype, by the dtype."""

    def make(w: LaneWriter, op: Op, *xs: LaneValue) -> LaneValue:
        if jax_compat.has_tolerance(op):
            raise RefusedError(f"{name} of a given accuracy")
        if xs[0].dtype not in written or any(x.dtype != xs[0].dtype for x in xs):
            raise RefusedError(f"{name} of {' and '.join(x.dtype for x in xs)}")
        return w.function(written[xs[0].dtype], *xs)

    return make


def _once(name: str, formula: Formula) -> Written:
    """A function that gangs call. One lane has it in place, where LLVM can make vectors of the loop around it."""
    in_gangs, alone = called(f"ab_{name}", formula), inline(formula)
    return lambda v, *xs: alone(v, *xs) if v.lanes == 1 else in_gangs(v, *xs)


def _both(name: str, single: Formula, double: Formula) -> Callable[..., LaneValue]:
    return of_floats(name, {"float32": _once(name, single), "float64": _once(name, double)})


def _short(name: str, single: Formula, double: Formula) -> Callable[..., LaneValue]:
    """A formula of floats that is short enough to stand wherever it is used; in a function that is long already it is
    called, for there the compiler's time is what counts."""
    in_place, once = inline(single), _once(name, single)
    written = lambda v, *xs: (once if v.f.is_long else in_place)(v, *xs)
    return of_floats(name, {"float32": written, "float64": _once(name, double)})


def _rounded(name: str, double: Formula) -> Callable[..., LaneValue]:
    """The double, rounded."""
    return _both(name, in_double(double), double)


def whole_power(w: LaneWriter, x: LaneValue, n: int) -> LaneValue:
    """Products of doubles are exact enough for float32."""
    if x.dtype == "float32":
        return w.function(inline(in_double(lambda x: steps.power_by_squares(x, n))), x)
    return w.function(inline(lambda x: steps.whole_power(x, n)), x)


FLOATS: Mapping[str, Callable[..., LaneValue]] = {
    "acos": _both("acos", wide.acos, arcs.acos),
    "acosh": _both("acosh", wide.acosh, logarithms.acosh),
    "asin": _both("asin", wide.asin, arcs.asin),
    "asinh": _both("asinh", wide.asinh, logarithms.asinh),
    "atan": _both("atan", wide.atan, arcs.atan),
    "atan2": _both("atan2", wide.atan2, arcs.atan2),
    "atanh": _both("atanh", wide.atanh, logarithms.atanh),
    "cbrt": _rounded("cbrt", steps.cbrt),
    "cos": _short("cos", single.cos, circle.cos),
    "cosh": _both("cosh", wide.cosh, exponentials.cosh),
    "digamma": _both("digamma", wide_special.digamma, factorials.digamma),
    "erf": _both("erf", wide_special.erf, errors.erf),
    "erf_inv": _both("erf_inv", wide_special.erf_inv, errors.inverse_of_erf),
    "erfc": _both("erfc", wide_special.erfc, errors.erfc),
    "exp": _short("exp", single.exp, exponentials.exp),
    "exp2": _both("exp2", wide.exp2, exponentials.exp2),
    "expm1": _both("expm1", wide.expm1, exponentials.expm1),
    "lgamma": _both("lgamma", wide_special.lgamma, factorials.lgamma),
    "log": _short("log", single.log, logarithms.log),
    "log1p": _both("log1p", wide.log1p, logarithms.log1p),
    "logistic": _both("logistic", wide.logistic, exponentials.logistic),
    "nextafter": _both("nextafter", steps.neighbour, steps.neighbour),
    "pow": _both("pow", single.pow, logarithms.pow),
    "rem": _both("rem", steps.remainder, steps.remainder),
    "sin": _short("sin", single.sin, circle.sin),
    "sinh": _both("sinh", wide.sinh, exponentials.sinh),
    "tan": _both("tan", wide.tan, circle.tan),
    "tanh": _short("tanh", single.tanh, exponentials.tanh),
}
"""By the name of JAX's primitive."""
