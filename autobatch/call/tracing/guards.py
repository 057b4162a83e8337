"""Where Python raises for numbers that a trace computes: each such operation has a check, one more result of its run.

    def f(x):                  step 0: truediv, of (number 1.0, given row 0)
        return 1.0 / x         step 1: check, of (given row 0): FINE, or which failure this is
                               result: Checked(step 0, [step 1])

The program over traces fails with the first check that is not fine (`traced_failures.py`). What a `try` around
the operation would do then no trace knows, as Python has gone on without it: the example fails.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call.tracing.log import INTEGER, CodePlace, Fixed, Kinds, Log, OperationKind, TracedRun, span_of_place
from autobatch.errors import UnsupportedError
from autobatch.frontend.library.domains import DOMAINS, Domain
from autobatch.frontend.tracing.traced_failures import FINE, MOST
from autobatch.ir.constants import constant_key

OPERATORS: dict[str, Callable[..., Any]] = {
    "truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
    "divmod": divmod,
}  # fmt: skip
_OF_JAX = {"div": "truediv", "floor_divide": "floordiv", "remainder": "mod", "pow": "pow", "integer_pow": "pow",
           "divmod": "divmod"}  # fmt: skip
_SIGNS = {"truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}
_PYTHON = (bool, int, float)


@dataclass(frozen=True)
class TracedOperand:
    """Argument of an operation that is its operand `number`, of this class of Python."""

    number: int
    cls: type


@dataclass(frozen=True)
class Guard:
    """An operator of Python, and what it is given: its operands, and numbers that are the same whenever it is met.
    `key`: what these are compared by."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = field(compare=False)
    key: Hashable

    @classmethod
    def of(cls, name: str, args: Sequence[Any]) -> Guard | None:
        """That of an operation by its name. Each of `args` is a number, or the operand that it is, by its number and
        type. None where they are no numbers of Python: arrays follow NumPy."""
        function = OPERATORS.get(name)
        if function is None and (function := OPERATORS.get(name[1:])) is not None and name[0] == "r":
            args = args[::-1]
        if function is None:
            return None
        made = [x if isinstance(x, _PYTHON) else _operand(*x) if isinstance(x, tuple) else None for x in args]
        return None if None in made else cls(function, tuple(made), tuple(map(_key, made)))

    def raised(self, operands: Sequence[Any]) -> Exception | None:
        """What Python raises for operands that are known."""
        numbers = [np.asarray(operands[a.number]).item() if isinstance(a, TracedOperand) else a for a in self.args]
        return _raised(self.function, numbers)


def _key(x: Any) -> Hashable:
    return x if isinstance(x, TracedOperand) else constant_key(x)


def _raised(function: Callable[..., Any], numbers: Sequence[Any]) -> Exception | None:
    try:
        function(*numbers)
    except (ArithmeticError, ValueError) as error:
        return error
    return None


def _operand(number: int, type: Any) -> TracedOperand | None:
    if type.shape or not type.weak_type or type.dtype.kind not in "biuf":
        return None
    return TracedOperand(number, float if type.dtype.kind == "f" else int)


def of_equation(equation: Any, place: CodePlace) -> Guard | None:
    """The guard of an equation that JAX has noted for an operator in the user's source."""
    name = _OF_JAX.get(equation.params.get("name", equation.primitive.name))
    if name is None or (name in _SIGNS and _sign(place).rstrip("=") != _SIGNS[name]):
        return None
    args: list[Any] = [(k, x.aval) for k, x in enumerate(equation.invars)]
    return Guard.of(name, [*args, equation.params["y"]] if equation.primitive.name == "integer_pow" else args)


def _sign(place: CodePlace) -> str:
    return "" if place.code is None else _signs(place.code).get(place.instruction, "")


@cache
def _signs(code: Any) -> dict[int, str]:
    """The signs of the operators of a code, by their instructions."""
    return {i.offset: i.argrepr for i in dis.get_instructions(code) if i.opname == "BINARY_OP"}


# ---- checks of a run


@dataclass(frozen=True)
class Guarded:
    """An operation of a run that has a guard."""

    guard: Guard
    operands: Sequence[Fixed | int]
    types: tuple[Any, ...]
    place: CodePlace


def checked(run: TracedRun) -> TracedRun:
    """A run with a check for each operation that may raise."""
    log, checks = run.log, list[int]()
    for x in (*_steps(log), *log.guarded):
        if (word := _check(log, x)) is not None:
            checks.append(len(run.leaves))
            run.leaves.append((word, INTEGER))
    run.checks = checks
    return run


def _steps(log: Log) -> Iterator[Guarded]:
    """The steps that have guards, of those that there are now."""
    guarded = log.kinds.guarded
    if not guarded:
        return
    site = np.array(log.sites, np.int64)
    (steps,) = np.nonzero(np.isin(site, guarded))
    if not len(steps):
        return
    arity = np.array(log.kinds.arity, np.int64)[site]
    first = (np.cumsum(arity) - arity)[steps]
    for k, begin in zip(site[steps].tolist(), first.tolist(), strict=True):
        at = log.kinds.sites[k]
        words = log.words[begin : begin + len(at.types)].tolist()
        operands = [w if f is None else f for w, f in zip(words, at.fixed, strict=True)]
        assert at.kind.guard is not None
        yield Guarded(at.kind.guard, operands, at.types, at.place)


def _check(log: Log, x: Guarded) -> Fixed | int | None:
    """What says whether an operation fails, and with what. None where it never does."""
    kinds = log.kinds
    args = [_known(log, x.operands[a.number], a) if isinstance(a, TracedOperand) else a for a in x.guard.args]
    key = x.guard, tuple(map(_key, args)), x.place, x.types
    made = kinds.checks.get(key)
    if made is None:
        made = kinds.checks[key] = _made(kinds, x, args)
    kind, reads = made
    if isinstance(kind, int):
        return None if kind == FINE else log.number(np.int32(kind))
    return log.step(kind, x.place, [x.operands[k] for k in reads], tuple([x.types[k] for k in reads]))


def _known(log: Log, operand: Fixed | int, otherwise: TracedOperand) -> Any:
    """The number that an operand is, where Python knows it."""
    if not isinstance(operand, int) or not log.is_known(operand):
        return otherwise
    return np.asarray(log.value(operand)).item()


def _made(kinds: Kinds, x: Guarded, args: Sequence[Any]) -> tuple[OperationKind | int, tuple[int, ...]]:
    """The check of an operation, some arguments of which are known, and the operands that it reads; or what it always
    gives."""
    if not any(isinstance(a, TracedOperand) for a in args):
        error = _raised(x.guard.function, args)
        return FINE if error is None else _failure(kinds, (type(error).__name__, str(error)), x.place), ()
    classes = [a.cls if isinstance(a, TracedOperand) else type(a) for a in args]
    rows: dict[Domain, int] = {}
    for row in DOMAINS[x.guard.function]:
        known = [None if isinstance(args[k], TracedOperand) else args[k] for k in row.reads]
        raised = row.raised(classes)
        if raised is None or row.always(*known):
            continue
        if None not in known:
            if bool(row.holds(*map(np.asarray, known))):
                continue
            if not rows:
                return _failure(kinds, raised, x.place), ()
        rows[row] = _failure(kinds, raised, x.place)
    if not rows:
        return FINE, ()
    read = dict.fromkeys(a.number for r in rows for k in r.reads if isinstance(a := x.guard.args[k], TracedOperand))
    key = x.guard, tuple(rows.items()), tuple(read)
    found = kinds.checking.get(key)
    if found is None:
        make = _checking(x.guard, rows, tuple(read))
        found = kinds.checking[key] = OperationKind(("check", *key), make, (jax.ShapeDtypeStruct(*INTEGER),))
    return found, tuple(read)


def _failure(kinds: Kinds, raised: tuple[str, str], place: CodePlace) -> int:
    number = kinds.failures.setdefault((*raised, place), len(kinds.failures))
    if number >= MOST:
        what = f"its structure is traced, and has over {MOST:,} operations that may raise"
        raise UnsupportedError(what, span_of_place(place), "let functions that are called at several places hold them")
    return number


def _checking(guard: Guard, rows: dict[Domain, int], reads: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
    def make(*operands: Any) -> Sequence[Any]:
        of = dict(zip(reads, operands, strict=True))
        args = [of.get(a.number) if isinstance(a, TracedOperand) else a for a in guard.args]
        code = jnp.int32(FINE)
        for row, number in reversed(rows.items()):
            code = jnp.where(row.holds(*(args[k] for k in row.reads)), code, jnp.int32(number))
        return (code,)

    return make
