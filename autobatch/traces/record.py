"""A run of a function for one example, with symbols in the place of numbers: what it did on them, what it returns.

    def f(p, xs):                    p["W"] is Shared(0), xs == [2.0, 3.0]
        h = 0.0                      Step(mul, from line 3, (Shared(0), 0.0))
        for x in xs:                 Step(add, from line 3, (Out(0), 2.0))
            h = p["W"] * h + x       Step(mul, from line 3, (Shared(0), Out(1)))
        return h                     ...                                            result: Out(3)

JAX records (`jax.make_jaxpr`), so every function of arrays is known. What only computes with what is known is done at
once, and arithmetic on shared values alone is done once for all examples.
"""

from __future__ import annotations

import dis
import enum
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op

INLINED = ("jit", "pjit", "closed_call", "core_call")
"""Operations that are nothing but a call of others."""

FOLDED = 4096
"""Numbers that an array may have whose operation is done at once."""


class Place:
    """Where an operation stands: the code of the user, an instruction of it, and which one inside functions of JAX.
    There is one object for each (`Kinds.place`)."""

    __slots__ = ("code", "inner", "instruction")

    def __init__(self, code: CodeType | None, instruction: int, inner: tuple[int, ...]) -> None:
        self.code, self.instruction, self.inner = code, instruction, inner


NO_PLACE = Place(None, 0, ())


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared run-time value, by its number."""

    number: int


class Out:
    """A result of a step of the same run."""

    __slots__ = ("number", "step")
    __match_args__ = ("step", "number")

    def __init__(self, step: int, number: int = 0) -> None:
        self.step, self.number = step, number


class Known:
    """A number that Python knows."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A number of the example. It lies in row `row` of the column `source`, from there on where rows of lists of
    arrays are one array; -1: in none, and `value` is what it is."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool
    source: int = -1
    row: int = 0
    value: Any = None

    @classmethod
    def of(cls, value: Any) -> Given:
        """A number that lies in no column."""
        return cls(np.shape(value), jax.dtypes.result_type(value), _is_weak(value), value=value)


@dataclass(frozen=True, slots=True)
class Uniform:
    """What an operation gives that reads shared values alone. `key` tells it from others."""

    key: Hashable
    make: Callable[..., Sequence[Any]] = field(compare=False)
    operands: tuple[Shared | Uniform, ...] = field(compare=False)
    number: int = 0


Operand = Shared | Out | Known | Given | Uniform


@dataclass(frozen=True, eq=False)
class Kind:
    """What an operation is, wherever it stands: there is one of each for a function. `make(*operands)` does it."""

    key: Hashable
    make: Callable[..., Sequence[Any]]
    outs: tuple[jax.ShapeDtypeStruct, ...]

    @cached_property
    def size(self) -> int:
        """Numbers of the largest result."""
        return max((math.prod(x.shape) for x in self.outs), default=0)


class Step:
    """An operation that a run did. `types`: of its operands."""

    __slots__ = ("kind", "operands", "place", "types")

    def __init__(self, kind: Kind, place: Place, operands: tuple[Operand, ...], types: tuple[Any, ...]) -> None:
        self.kind, self.place, self.operands, self.types = kind, place, operands, types


@dataclass
class Run:
    """What a function did for one example. `leaves`: the numbers in its result, in which a `Leaf` stands for each."""

    steps: list[Step]
    leaves: list[Operand]
    result: Any


@dataclass(frozen=True)
class Leaf:
    """Stands in the result of a run for its leaf `number`."""

    number: int


@dataclass(frozen=True)
class Items:
    """Stands in the result of a run for a list of so many elements as the example has. In the structure of a class,
    `number` is the operand that it is."""

    elements: tuple[Any, ...] = ()
    number: int = -1


@dataclass(frozen=True, slots=True)
class Rows:
    """The operand that a list is: steps, one for each element."""

    steps: tuple[int, ...]


# ---- running


def record(
    run: Callable[[Sequence[Any]], Any],
    shared: Sequence[Given],
    numbers: Sequence[Given],
    hidden: Mapping[int, int],
    user: UserCode,
    kinds: Kinds,
) -> Run:
    """Record `run(symbols)`: symbols of shared values, then of the numbers of an example. It returns leaves, as arrays,
    and the structure that they stand in. `shared`: the types of shared values. `hidden`: the numbers of arrays that it
    reads as free variables, by `id`."""
    structure: list[Any] = []

    def flat(*symbols: Any) -> list[Any]:
        leaves, result = run(symbols)
        structure.append(result)
        found: list[Any] = leaves
        return found

    given = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak) for x in (*shared, *numbers)]
    closed = jax.make_jaxpr(flat)(*given)
    reader = _Reader(user, kinds, hidden)
    values: list[Operand] = [*(Shared(k) for k in range(len(shared))), *numbers]
    leaves = reader.read(closed.jaxpr, closed.consts, values, NO_PLACE)
    return Run(reader.steps, leaves, structure[0])


def _is_weak(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex)) or getattr(getattr(x, "aval", None), "weak_type", False)


class UserCode:
    """Which frames of a traceback are the user's: those outside the packages that compute for them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)
        self._known: dict[CodeType, bool] = {}
        self.known: dict[int, bool] = {}
        """Is code the user's, by its `id`; the code is kept."""

    def learn(self, code: CodeType) -> bool:
        self._known[code] = found = not code.co_filename.startswith(self.folders)
        self.known[id(code)] = found
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


class _Reader:
    """Turns a jaxpr into steps."""

    def __init__(self, user: UserCode, kinds: Kinds, hidden: Mapping[int, int]) -> None:
        self.user, self.kinds, self.hidden, self.steps = user, kinds, hidden, list[Step]()

    def read(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Operand], inside: Place) -> list[Operand]:
        held: dict[Any, Operand] = {}
        for v, x in zip(jaxpr.constvars, consts, strict=True):
            held[v] = Shared(self.hidden[id(x)]) if id(x) in self.hidden else Known(x)
        held.update(zip(jaxpr.invars, given, strict=True))

        def value(x: Any) -> Operand:
            return Known(_plain(x.val)) if jax_compat.is_literal(x) else held[x]

        for number, equation in enumerate(jaxpr.eqns):
            place = self.place(equation, inside, number)
            operands = [value(x) for x in equation.invars]
            name = equation.primitive.name
            if name in INLINED:
                inner = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
                code, consts_ = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
                found: Sequence[Operand] = self.read(code, consts_, operands, place)
            else:
                found = self.step(equation, operands, place)
            held.update(zip(equation.outvars, found, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def place(self, equation: Any, inside: Place, number: int) -> Place:
        if inside.code is not None:
            return self.kinds.place(inside.code, inside.instruction, (*inside.inner, number))
        code, instruction = self.user.place(equation.source_info.traceback)
        return NO_PLACE if code is None else self.kinds.place(code, instruction)

    def step(self, equation: Any, operands: Sequence[Operand], place: Place) -> Sequence[Operand]:
        types = tuple((x.aval.shape, x.aval.dtype) for x in equation.invars)
        kind, more = self.kinds.of(equation)
        if more:
            operands = (*operands, *(Known(int(k)) for k in more))
            types += (INTEGER,) * len(more)
        known = [x for x in operands if isinstance(x, Known)]
        if len(known) == len(operands) and kind.size <= FOLDED:
            return self.kinds.folded(kind, [x.value for x in known], types)
        shared = tuple(x for x in operands if isinstance(x, (Shared, Uniform)))
        if shared and len(shared) == len(operands):
            return [Uniform((kind, *shared), kind.make, shared, k) for k in range(len(kind.outs))]
        self.steps.append(Step(kind, place, tuple(operands), types))
        return [Out(len(self.steps) - 1, k) for k in range(len(kind.outs))]


INTEGER = ((), np.dtype(np.int32))


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


# ---- operations


class Kinds:
    """The operations that runs have met."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Kind] = {}
        self._folded: dict[Hashable, list[Known]] = {}
        self._places: dict[Hashable, Place] = {}
        self.at: dict[tuple[int, int], Place] = {}
        """Places in the user's code, by the `id` of the code, which is kept, and the instruction."""
        self.by_jax = False
        """Do runs need arrays that JAX traces?"""

    def place(self, code: CodeType, instruction: int, inner: tuple[int, ...] = ()) -> Place:
        """A place in the user's source."""
        key = (id(code), instruction, inner) if inner else (id(code), instruction)
        found = self._places.get(key)
        if found is None:
            begin = _begin(code, instruction)
            found = Place(code, begin, inner) if begin == instruction else self.place(code, begin, inner)
            self._places[key] = found  # which keeps the code, and so its `id`
        return found

    def of(self, equation: Any) -> tuple[Kind, Sequence[int]]:
        """The kind of an operation, and integers that it reads behind its operands: where a slice begins is a number
        like any other, so that a row of a table is the same operation whichever row it is."""
        params, name = equation.params, equation.primitive.name
        out = tuple((v.aval.shape, v.aval.dtype, v.aval.weak_type) if hasattr(v.aval, "weak_type") else v.aval
                    for v in equation.outvars)  # fmt: skip
        is_slice = name == "slice" and params["strides"] is None
        key: Hashable = (name, out) if is_slice else (name, _key(params), out)
        found = self._known.get(key)
        if found is None:
            outs = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.outvars)
            make = _slicer(outs[0].shape) if is_slice else _bound(equation)
            found = self._known[key] = Kind(key, make, outs)
        return found, params["start_indices"] if is_slice else ()

    def folded(self, kind: Kind, xs: Sequence[Any], types: Sequence[Any]) -> list[Known]:
        """What an operation gives for numbers that are known, computed once."""
        key = (kind, types, *(x if isinstance(x, (int, float, complex)) else np.asarray(x).tobytes() for x in xs))
        found = self._folded.get(key)
        if found is None:
            with jax.ensure_compile_time_eval():
                found = [Known(np.asarray(x)) if not _is_key(x) else Known(x) for x in kind.make(*xs)]
            if len(self._folded) >= REMEMBERED:
                self._folded.clear()
            self._folded[key] = found
        return found


def _begin(code: CodeType, instruction: int) -> int:
    """Where an instruction begins: the interpreter may point into the room behind it, once it has specialised it. Of
    the two that a call is in Python 3.11 it may point at either: the first one."""
    instruction = _without_room(code, instruction)
    if PRECALL is not None and instruction > 0 and code.co_code[instruction] == CALL:
        before = _without_room(code, instruction - 2)
        return before if code.co_code[before] == PRECALL else instruction
    return instruction


def _without_room(code: CodeType, instruction: int) -> int:
    while instruction > 0 and code.co_code[instruction] == CACHE:
        instruction -= 2
    return instruction


CALL, PRECALL = dis.opmap.get("CALL"), dis.opmap.get("PRECALL")
CACHE = dis.opmap.get("CACHE", -1)

REMEMBERED = 10_000
"""So many results of operations on known numbers are kept."""


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _slicer(sizes: Sequence[int]) -> Callable[..., Sequence[Any]]:
    return lambda x, *starts: (sliced(x, starts, sizes),)


def sliced(x: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    if all(isinstance(s, (int, np.integer)) for s in starts):
        return lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    return lax.dynamic_slice(x, starts, sizes)


def _bound(equation: Any) -> Callable[..., Sequence[Any]]:
    op = Op(equation.primitive.name, tuple(sorted(equation.params.items())), equation.primitive)
    results = [jax_compat.type_of(v.aval) for v in equation.outvars]
    return lambda *xs: jax_compat.bind(op, results, *xs)


def _key(params: Mapping[str, Any]) -> Hashable:
    """Parameters as a key: jaxprs by their text, functions by nothing, as jaxprs stand beside them."""
    return tuple([_hashable(x) for x in params.values()])


SIMPLE = (str, int, float, bool, type(None), np.dtype, enum.Enum, lax.GatherDimensionNumbers)


def _hashable(x: Any) -> Hashable:
    if isinstance(x, SIMPLE):
        return x
    if isinstance(x, (tuple, list)):
        return tuple(map(_hashable, x))
    if hasattr(x, "eqns") or hasattr(x, "jaxpr"):
        return str(x)
    if isinstance(x, np.ndarray):
        return x.tobytes(), x.shape, str(x.dtype)
    if callable(x) and not isinstance(x, type):
        return getattr(x, "__qualname__", type(x).__name__)
    return str(x)


def spread(uniform: Iterator[Uniform]) -> list[Uniform]:
    """Uniform values with all that they read, each after what it reads, each once."""
    found: dict[Uniform, None] = {}

    def add(x: Uniform) -> None:
        if x in found:
            return
        for y in x.operands:
            if isinstance(y, Uniform):
                add(y)
        found[x] = None

    for x in itertools.chain(uniform):
        add(x)
    return list(found)
