"""What runs do on symbols, as numbers: for each operation its site, and a word for each operand.

    def f(p, xs):                    p["W"] is Shared(0), xs == [2.0, 3.0]
        h = 0.0                      site 0: mul, from line 4, of (Shared(0), a float)     words: FIXED, number 0.0
        for x in xs:                 site 1: add, from line 4                              words: result 0, given row 0
            h = p["W"] * h + x       site 2: mul, from line 4, of (Shared(0), float32)     words: FIXED, result 1
        return h                     site 1                                                words: result 2, given row 1

A site is what all of this has in common: so an operation that was met before costs a lookup, and what is made of runs
is computed for all of them at once, by NumPy.
"""

from __future__ import annotations

import dis
import enum
import itertools
import math
import operator
from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from autobatch.errors import NOWHERE, Span, UnsupportedError
from autobatch.frontend.library.domains import DOMAINS, FINE, MOST, Domain
from autobatch.ir import jax_compat
from autobatch.ir.ops import Op, constant_key

FOLDED = 4096
"""Numbers that an array may have whose operation is done at once."""
INTEGER = ((), np.dtype(np.int32))


class CodePlace:
    """Where an operation stands: the code of the user, an instruction of it, and which one inside functions of JAX.
    There is one object for each (`Kinds.place`)."""

    __slots__ = ("code", "inner", "instruction")

    def __init__(self, code: CodeType | None, instruction: int, inner: tuple[int, ...]) -> None:
        self.code, self.instruction, self.inner = code, instruction, inner


NO_PLACE = CodePlace(None, 0, ())


def span_of_place(place: CodePlace) -> Span:
    """The place of an operation in the user's source."""
    code = place.code
    if code is None:
        return NOWHERE
    positions = next(itertools.islice(code.co_positions(), place.instruction // 2, None), (None,) * 4)
    line, end, column, stop = (x or 0 for x in positions)
    return Span(code.co_filename, line, column + 1, end, stop + 1)


@dataclass(frozen=True, slots=True)
class SharedMarker:
    """A shared run-time value, by its number."""

    number: int


class ExampleNumber:
    """A number of the example. It lies in row `row` of the column `source`, from there on where rows of lists of
    arrays are one array; -1: in none, and `value` is what it is."""

    __slots__ = ("dtype", "row", "shape", "source", "value", "weak")

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, weak: bool, source: int = -1, row: int = 0, value: Any = None
    ) -> None:
        self.shape, self.dtype, self.weak = shape, dtype, weak
        self.source, self.row, self.value = source, row, value

    @classmethod
    def of(cls, value: Any) -> ExampleNumber:
        """A number that lies in no column."""
        return cls(np.shape(value), jax.dtypes.result_type(value), _is_weak(value), value=value)


@dataclass(frozen=True, slots=True, eq=False)
class Uniform:
    """What an operation gives that reads shared values alone: there is one of each for a function (`Kinds.uniform`)."""

    make: Callable[..., Sequence[Any]]
    operands: tuple[SharedMarker | Uniform, ...]
    number: int


Fixed = SharedMarker | Uniform


@dataclass(frozen=True, eq=False)
class OperationKind:
    """What an operation is, wherever it stands: there is one of each for a function. `make(*operands)` does it.
    `guard`: which operator of Python's numbers it is, if it may raise."""

    key: Hashable
    make: Callable[..., Sequence[Any]]
    outs: tuple[jax.ShapeDtypeStruct, ...]
    guard: Any = None

    @cached_property
    def size(self) -> int:
        """Numbers of the largest result."""
        return max((math.prod(x.shape) for x in self.outs), default=0)


@dataclass(frozen=True, eq=False, slots=True)
class OperationSite:
    """An operation at a place, for operands of these types. `fixed`: those that are shared values; None elsewhere."""

    number: int
    kind: OperationKind
    place: CodePlace
    types: tuple[Any, ...]
    fixed: tuple[Fixed | None, ...]


# ---- words

OUTS = 20
"""A result of a step of the same run is `step << OUTS | number`, so not negative."""
FIXED = -1
"""What stands for an operand that is a shared value: its site says which."""
OWN = -(1 << 60)
"""`OWN + k` is entry k of the values of the run itself: numbers of the example that lie in no column, and arrays."""
GIVEN = -(1 << 62)
"""`GIVEN + (source << ROWS | row)` is a number of the example."""
ROWS = 40
NUMBERS = 1 << 20
"""So many numbers are known by words of their own, -2 - k, in all runs of a function."""

SMALL, MOST_SMALL = 16, 16
"""Of operations on shared values whose results are of so few numbers, so many are done once for all examples."""

_SCALARS = (float, int, bool, complex)


class Log:
    """What one run does."""

    def __init__(self, kinds: Kinds, most: int) -> None:
        self.kinds, self.most = kinds, most
        self.sites, self.words, self.own = array("q"), array("q"), list[Any]()
        self.guarded: list[Any] = []
        """Operations that have a guard, besides the steps whose kinds have one."""

    def step(
        self, kind: OperationKind, place: CodePlace, operands: Sequence[Fixed | int], types: tuple[Any, ...]
    ) -> int:
        """Note an operation; returns the word of its first result."""
        site = self.kinds.site(kind, place, operands, types)
        return self.at(site.number, [x if isinstance(x, int) else FIXED for x in operands])

    def at(self, site: int, words: Sequence[int]) -> int:
        """Note an operation at a site."""
        step = len(self.sites)
        self.sites.append(site)
        self.words.extend(words)
        if step >= self.most:
            raise TooLongError(self.kinds.sites[site].place)
        return step << OUTS

    def number(self, value: Any) -> int:
        """The word of a number that Python knows."""
        kinds, kind = self.kinds, type(value)
        if kind in _SCALARS:
            key = (kind, value) if value and value == value and kind is not complex else constant_key(value)
        elif isinstance(value, np.ndarray | np.generic) and value.nbytes <= FOLDED and value.dtype.kind in "biufc":
            key = constant_key(value)
        else:
            return self.owned(value)
        found = kinds.numbered.get(key)
        if found is None:
            if len(kinds.numbers) >= NUMBERS:
                return self.owned(value)
            found = kinds.numbered[key] = -2 - len(kinds.numbers)
            kinds.numbers.append(value)
        return found

    def owned(self, value: Any) -> int:
        self.own.append(value)
        return OWN + len(self.own) - 1

    def given(self, x: ExampleNumber) -> int:
        """The word of a number of the example."""
        return self.owned(x) if x.source < 0 else GIVEN + (x.source << ROWS | x.row)

    def is_known(self, word: int) -> bool:
        """Does Python know the number?"""
        return OWN + len(self.own) <= word < FIXED or (
            OWN <= word < OWN + len(self.own) and not isinstance(self.own[word - OWN], ExampleNumber)
        )

    def value(self, word: int) -> Any:
        """The number that Python knows, or that of the example which lies in no column."""
        return value_of(word, self.kinds.numbers, self.own)


def value_of(word: int, numbers: Sequence[Any], own: Sequence[Any]) -> Any:
    """What a word stands for that is no result, and lies in no column."""
    if word >= OWN + len(own):
        return numbers[-2 - word]
    held = own[word - OWN]
    return held.value if isinstance(held, ExampleNumber) else held


class TooLongError(Exception):
    """A run has more operations than memory has room for."""

    def __init__(self, place: CodePlace) -> None:
        self.place = place


@dataclass
class TracedRun:
    """What a function did for one example. `leaves`: the numbers in its result, each with its type, in which a
    `LeafMarker` stands for each. `printed`: what it has printed. `checks`: the leaves that say whether it has
    failed."""

    log: Log
    leaves: list[tuple[Fixed | int, Any]]
    result: Any
    printed: list[Any]
    checks: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class LeafMarker:
    """Stands in the result of a run for its leaf `number`."""

    number: int


@dataclass(frozen=True)
class ItemsMarker:
    """Stands in the result of a run for a list of so many elements as the example has; `of` says what these are. In the
    structure of a class, `number` is the operand that it is."""

    elements: tuple[Any, ...] = ()
    number: int = -1
    of: Any = None


def _is_weak(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex)) or getattr(getattr(x, "aval", None), "weak_type", False)


# ---- operations


class Kinds:
    """The operations that runs have met."""

    def __init__(self) -> None:
        self._known: dict[Hashable, OperationKind] = {}
        self._folded: dict[Hashable, list[Any]] = {}
        self._places: dict[Hashable, CodePlace] = {}
        self._sites: dict[Hashable, OperationSite] = {}
        self.sites: list[OperationSite] = []
        self.arity = array("q")
        self.guarded: list[int] = []
        """Of each site the number of its operands; and those whose kind has a guard."""
        self.checks: dict[Hashable, Any] = {}
        self.checking: dict[Hashable, OperationKind] = {}
        self.changes_arguments = False
        """Has a run changed what it was given?"""
        self.failures: dict[tuple[str, str, CodePlace], int] = {}
        """What examples may fail with: the exception, its message, and where; each has a number."""
        self.met: dict[Hashable, tuple[int, Any]] = {}
        """What symbols have met: the site of an operation, and what its result is; see `symbols.py`. In its keys places
        in the user's code are the `id` of the code, which is kept, and the instruction."""
        self.fixed: dict[Hashable, Any] = {}
        self._uniform: dict[Hashable, tuple[Uniform, ...]] = {}
        self._small = 0
        self.numbers: list[Any] = []
        self.numbered: dict[Hashable, int] = {}
        self.shared: dict[Hashable, Sequence[Any]] = {}
        """What the shared values of a call are as symbols, by their types."""
        self.seen: Any = None
        """The same for machine code; see `slots.py`."""
        self.by_jax = False
        """Do runs need arrays that JAX traces?"""

    def place(self, code: CodeType, instruction: int, inner: tuple[int, ...] = ()) -> CodePlace:
        """A place in the user's source."""
        key = (id(code), instruction, inner) if inner else (id(code), instruction)
        found = self._places.get(key)
        if found is None:
            begin = _begin(code, instruction)
            found = CodePlace(code, begin, inner) if begin == instruction else self.place(code, begin, inner)
            self._places[key] = found  # which keeps the code, and so its `id`
        return found

    def site(
        self, kind: OperationKind, place: CodePlace, operands: Sequence[Fixed | int], types: tuple[Any, ...]
    ) -> OperationSite:
        """The site of an operation."""
        fixed = tuple([None if isinstance(x, int) else x for x in operands])
        key = kind, place, types, fixed
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = OperationSite(len(self.sites), kind, place, types, fixed)
            self.sites.append(found)
            self.arity.append(len(types))
            if kind.guard is not None:
                self.guarded.append(found.number)
        return found

    def uniform(self, kind: OperationKind, operands: tuple[Fixed, ...]) -> Sequence[Uniform] | None:
        """What an operation on shared values gives, which is computed once. None where there are many of those by now
        and their results are small: where structure decides which numbers meet, as in an interpreter, there would be
        more with each example, and each would be one more kind of row; then it is an operation of the example."""
        found = self._uniform.get((kind, operands))
        if found is None:
            if kind.size <= SMALL:
                if self._small >= MOST_SMALL:
                    return None
                self._small += 1
            found = tuple([Uniform(kind.make, operands, k) for k in range(len(kind.outs))])
            self._uniform[kind, operands] = found
        return found

    def of(self, equation: Any) -> tuple[OperationKind, Sequence[int]]:
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
            found = self._known[key] = OperationKind(key, make, outs)
        return found, params["start_indices"] if is_slice else ()

    def folded(self, kind: OperationKind, xs: Sequence[Any], types: Sequence[Any]) -> list[Any]:
        """What an operation gives for numbers that are known, computed once."""
        key = (kind, types, *(repr(x) if isinstance(x, (int, float, complex)) else np.asarray(x).tobytes() for x in xs))
        found = self._folded.get(key)
        if found is None:
            with jax.ensure_compile_time_eval():
                found = [x if _is_key(x) else np.asarray(x) for x in kind.make(*xs)]
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


# ---- guards
#
# Where Python raises for numbers that a trace computes: each such operation has a check, one more result of its run.
#
#     def f(x):                  step 0: truediv, of (number 1.0, given row 0)
#         return 1.0 / x         step 1: check, of (given row 0): FINE, or which failure this is
#                                result: Checked(step 0, [step 1])
#
# The program over traces fails with the first check that is not fine (`domains.py`). What a `try` around
# the operation would do then no trace knows, as Python has gone on without it: the example fails.


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
        return None if None in made else cls(function, tuple(made), tuple(map(_guard_key, made)))

    def raised(self, operands: Sequence[Any]) -> Exception | None:
        """What Python raises for operands that are known."""
        numbers = [np.asarray(operands[a.number]).item() if isinstance(a, TracedOperand) else a for a in self.args]
        return _raised(self.function, numbers)


def _guard_key(x: Any) -> Hashable:
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
    key = x.guard, tuple(map(_guard_key, args)), x.place, x.types
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
