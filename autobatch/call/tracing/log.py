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
from array import array
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
from autobatch.ir.constants import constant_key
from autobatch.ir.ops import Op
from autobatch.source import NOWHERE, Span

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
    `guard`: which operator of Python's numbers it is, if it may raise (`guards.py`)."""

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

SMALL, MOST = 16, 16
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
                if self._small >= MOST:
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
