"""A run of a function for one example where symbols of our own cannot run it: JAX records it (`jax.make_jaxpr`), so
every function of arrays is known, and its equations are noted.

What only computes with what is known is done at once, and arithmetic on shared values alone is done once for all
examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import jax
import numpy as np

from autobatch.call.tracing.guards import Guarded, of_equation
from autobatch.call.tracing.log import (
    FOLDED,
    INTEGER,
    NO_PLACE,
    CodePlace,
    ExampleNumber,
    Fixed,
    Log,
    SharedMarker,
    TracedRun,
    Uniform,
)
from autobatch.ir import jax_compat

INLINED = ("jit", "pjit", "closed_call", "core_call")
"""Operations that are nothing but a call of others."""


def record(
    run: Callable[[Sequence[Any]], Any],
    shared: Sequence[ExampleNumber],
    numbers: Sequence[ExampleNumber],
    hidden: Mapping[int, int],
    user: UserCode,
    log: Log,
) -> TracedRun:
    """Record `run(symbols)`: symbols of shared values, then of the numbers of an example. It returns leaves, as arrays,
    and the structure that they stand in, with what it has printed. `shared`: the types of shared values. `hidden`: the
    numbers of arrays that it
    reads as free variables, by `id`."""
    structure: list[Any] = []

    def flat(*symbols: Any) -> list[Any]:
        leaves, result = run(symbols)
        structure.append(result)
        found: list[Any] = leaves
        return found

    given = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak) for x in (*shared, *numbers)]
    closed = jax.make_jaxpr(flat)(*given)
    reader = _JaxprReader(user, log, hidden)
    values: list[Operand] = [*(SharedMarker(k) for k in range(len(shared))), *map(log.given, numbers)]
    leaves = reader.read(closed.jaxpr, closed.consts, values, NO_PLACE)
    types = [(x.aval.shape, x.aval.dtype) for x in closed.jaxpr.outvars]
    return TracedRun(log, list(zip(leaves, types, strict=True)), *structure[0])


class UserCode:
    """Which frames of a traceback are the user's: those outside the packages that compute for them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)
        self._known: dict[CodeType, bool] = {}
        self.known: dict[int, bool] = {}
        """Is code the user's, by its `id`; the code is kept."""
        self._kept: list[CodeType] = []  # equal code, which is one key above, may be several objects

    def learn(self, code: CodeType) -> bool:
        self._known[code] = found = not code.co_filename.startswith(self.folders)
        self.known[id(code)] = found
        self._kept.append(code)
        return found

    def place(self, traceback: Any) -> tuple[CodeType | None, int]:
        """The innermost instruction of the user."""
        if traceback is None:
            return None, 0
        codes, instructions = traceback.raw_frames()
        for code, instruction in zip(codes, instructions, strict=True):
            known = self._known.get(code)
            if known is None:
                known = self._known[code] = not code.co_filename.startswith(self.folders)
            if known:
                return code, instruction
        return None, 0


Operand = Fixed | int


class _JaxprReader:
    """Notes a jaxpr."""

    def __init__(self, user: UserCode, log: Log, hidden: Mapping[int, int]) -> None:
        self.user, self.kinds, self.hidden, self.log = user, log.kinds, hidden, log

    def read(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Operand], inside: CodePlace) -> list[Operand]:
        held: dict[Any, Operand] = {}
        for v, x in zip(jaxpr.constvars, consts, strict=True):
            held[v] = SharedMarker(self.hidden[id(x)]) if id(x) in self.hidden else self.log.number(x)
        held.update(zip(jaxpr.invars, given, strict=True))

        def value(x: Any) -> Operand:
            return self.log.number(_plain(x.val)) if jax_compat.is_literal(x) else held[x]

        for number, equation in enumerate(jaxpr.eqns):
            place = self.place(equation, inside, number)
            operands = [value(x) for x in equation.invars]
            name = equation.primitive.name
            if inside is NO_PLACE and (guard := of_equation(equation, place)) is not None:
                types = tuple((x.aval.shape, x.aval.dtype) for x in equation.invars)
                self.log.guarded.append(Guarded(guard, operands, types, place))
            if name in INLINED:
                inner = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
                code, consts_ = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
                found: Sequence[Operand] = self.read(code, consts_, operands, place)
            else:
                found = self.step(equation, operands, place)
            held.update(zip(equation.outvars, found, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def place(self, equation: Any, inside: CodePlace, number: int) -> CodePlace:
        if inside.code is not None:
            return self.kinds.place(inside.code, inside.instruction, (*inside.inner, number))
        code, instruction = self.user.place(equation.source_info.traceback)
        return NO_PLACE if code is None else self.kinds.place(code, instruction)

    def step(self, equation: Any, operands: Sequence[Operand], place: CodePlace) -> Sequence[Operand]:
        log = self.log
        types = tuple((x.aval.shape, x.aval.dtype) for x in equation.invars)
        kind, more = self.kinds.of(equation)
        if more:
            operands = (*operands, *(log.number(int(k)) for k in more))
            types += (INTEGER,) * len(more)
        known = [log.value(x) for x in operands if isinstance(x, int) and log.is_known(x)]
        if len(known) == len(operands) and kind.size <= FOLDED:
            return list(map(log.number, self.kinds.folded(kind, known, types)))
        shared = tuple(x for x in operands if isinstance(x, (SharedMarker, Uniform)))
        if shared and len(shared) == len(operands) and (uniform := self.kinds.uniform(kind, shared)) is not None:
            return uniform
        first = log.step(kind, place, operands, types)
        return [first | k for k in range(len(kind.outs))]


def _plain(x: Any) -> Any:
    """A literal as a number of Python or an array of NumPy: JAX has subclasses of these that know a dtype."""
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, int):
        return int(x)
    if isinstance(x, float):
        return float(x)
    if isinstance(x, complex):
        return complex(x)
    return np.asarray(x)
