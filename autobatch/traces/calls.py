"""A call of a function whose structure is traced, as a call of the program over its traces.

f(p, xs)   ->   main((p["W"], p["b"]), [trace of xs[0], trace of xs[1], ...])
"""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch import transfer
from autobatch.arguments import Bound, Slot
from autobatch.batch import Batch
from autobatch.cache import Bounded
from autobatch.errors import ExampleError, Failure, PlanError, SourceError, StructureWarning, UnsupportedError
from autobatch.groups import Group
from autobatch.packing import pack_fresh
from autobatch.plain import plainly
from autobatch.sharing import Sharing
from autobatch.source import NOWHERE, Span
from autobatch.traces.classes import Classes
from autobatch.traces.compounds import Compounds
from autobatch.traces.copying import Copier, rebuilt
from autobatch.traces.free import Free
from autobatch.traces.record import Items, Kinds, Leaf, Run, UserCode, record
from autobatch.traces.source import Row, Source, Writer, examples

ASKED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
         jax.errors.TracerBoolConversionError, jax.errors.TracerIntegerConversionError)  # fmt: skip
"""What JAX raises where Python asks a symbol for its value."""


Make = Callable[[Callable[..., Any]], Any]


class _Symbols(Sharing):
    """Shared values with symbols in the place of their arrays and floats."""

    def __init__(self, name: str, symbols: Sequence[Any] | None) -> None:
        super().__init__(name)
        self.symbols = symbols

    def leaf(self, value: Any, name: str) -> Any:
        made = super().leaf(value, name)
        k = len(self.leaves) - 1
        if isinstance(value, (int, np.integer, np.bool_)) or _is_table(value):
            return value, made[1]
        return (value if self.symbols is None else self.symbols[k]), made[1]


def _is_table(value: Any) -> bool:
    """Is it an array of integers that Python may read?"""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biu"


@dataclass
class Call:
    """A call of the program over traces, `function(*args)`. `failures`: the examples that failed while they were
    traced, which are rows that fail there."""

    name: str
    function: Any
    args: tuple[Any, ...]
    failures: tuple[Failure, ...] = ()
    because: Exception | None = None

    def refused(self, error: SourceError) -> Exception:
        """What to raise where the program over traces does not compile."""
        if self.because is not None:
            self.because.add_note(f"As its structure is traced: {error.message}")
            return self.because
        return UnsupportedError(f"{self.name}: its structure is traced, and {error.message}", NOWHERE, error.cure)


@dataclass
class _Kept:
    """The traces of packed examples. `free`, `decided`: what else they depend on."""

    free: Free
    decided: Any
    function: Any
    rows: Batch
    failures: tuple[Failure, ...]


STRUCTURES = 32
"""For so many types of its arguments a function remembers what its structure is."""


class Traced:
    """The traced structure of one function, and its programs. Safe under threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.RLock()
        self._structures: Bounded[Any, Structure] = Bounded(STRUCTURES)
        self._known: set[Any] = set()

    def knows(self, bound: Bound) -> bool:
        """Is a call like this one known not to compile?"""
        return bool(self._known) and bound.key in self._known

    def call(self, asked: Asked, planner: Any, made_for: Any, make: Make) -> Call:
        """A call as one of the program over its traces. `make` makes a function batched, for each `made_for`."""
        with self._lock:
            sharing = asked.sharing
            key = asked.bound.key, tuple(sharing.keys), tuple(sharing.types), transfer.x64(), id(made_for)
            structure = self._structures.get_or_make(key, lambda: Structure(self.name, made_for, make))
            try:
                group, indices = _group(asked.bound, planner)
                if group is None:
                    rows, failures = asked.traced(structure)
                    made = Call(self.name, structure.function(), (asked.leaves, rows), failures, asked.refused)
                else:
                    kept = self._kept(group, key, structure, asked)
                    cut = kept.rows if indices is None else kept.rows[indices]
                    failures = _taken(kept.failures, indices)
                    made = Call(self.name, kept.function, (asked.leaves, cut), failures, asked.refused)
            except _UnknownError:
                raise asked.refused or PlanError(
                    f"{self.name}: its structure is traced, and under jax.jit the examples are not known; call it "
                    "outside, or close over what is computed here"
                ) from None
            if asked.refused is not None:
                self._known.add(asked.bound.key)
                _warn(self.name, asked.refused)
            return made

    def _kept(self, group: Group, key: Any, structure: Structure, asked: Asked) -> _Kept:
        """The traces of packed examples, which are made again only where something that they depend on has changed."""
        decided = tuple(_decided(x) for x in asked.sharing.leaves)
        found: _Kept | None = group.traced.get((self, key))
        if found is None or found.decided != decided or not found.free.is_same(asked.free):
            rows, failures = asked.all_of(group).traced(structure)
            inner = structure.function()
            found = _Kept(asked.free, decided, inner, inner.pack(rows), failures)
            group.traced.put((self, key), found)
        return found


@dataclass(frozen=True)
class Asked:
    """A call that is to be traced. `refused`: what the compiler said, for the first one, raised again where not
    structure alone decides. `masks`: examples may fail."""

    name: str
    function: Callable[..., Any]
    bound: Bound
    refused: Exception | None
    masks: bool

    @cached_property
    def sharing(self) -> Sharing:
        """Its shared values."""
        made = Sharing(self.name)
        self.bound.rebuild(lambda slot: None, made.raw)
        return made

    @cached_property
    def free(self) -> Free:
        """Its free variables."""
        return Free(self.function, user_code())

    @property
    def leaves(self) -> tuple[Any, ...]:
        """What the program over traces shares: shared values, then arrays that are free variables."""
        return (*self.sharing.leaves, *self.free.arrays.values())

    def all_of(self, group: Group) -> Asked:
        """The same call for all examples of a group."""
        bound = self.bound.with_slots(
            lambda s: replace(s, kind="list", values=Batch(group, s.values.component).to_list())
        )
        return replace(self, bound=bound)

    def traced(self, structure: Structure) -> tuple[list[Row], tuple[Failure, ...]]:
        """A row for each example, and the examples that failed."""
        slots = [_rows(s) for s in self.bound.slots]
        first_hidden = len(self.sharing.leaves)
        hidden = {id(x): first_hidden + k for k, x in enumerate(self.free.arrays.values())}
        runs, failures, first = list[Run | None](), list[Failure](), None
        for k in range(self.bound.size):
            try:
                given = [rows[k] for rows in slots]
                runs.append(_run(self, given, hidden, structure.kinds))
            except ASKED as error:
                raise _asked(self.name, self.refused, error) from error
            except UnsupportedError as error:
                raise (self.refused or error) from error
            except Exception as error:
                failures.append(Failure(k, type(error).__name__, str(error), span_of(error)))
                runs.append(None)
                first = first or error
        if len(failures) == self.bound.size and self.refused is not None:
            self.refused.add_note(f"As plain Python, {failures[0]}")
            raise self.refused from first
        if failures and (not self.masks or len(failures) == self.bound.size):
            raise ExampleError(failures) from first
        return structure.rows(runs), tuple(failures)


class Structure:
    """What is known of the structure of a function for some types of its arguments, and the program over it."""

    def __init__(self, name: str, made_for: Any, make: Make) -> None:
        self.name, self.made_for, self._make = name, made_for, make
        self.classes, self.compounds, self.kinds = Classes(), Compounds(), Kinds()
        self._roots: dict[int, None] = {}
        self._state: Any = None
        self.source: Source | None = None
        self._function: Any = None
        self._samples: list[Run] = []

    def function(self) -> Any:
        """The program, batched. It knows the types of all rows that there have been, so that a batch which shows less
        runs on the program that is there."""
        assert self.source is not None
        if self._function is None:
            self._function = self._make(self.source.main)
            self._function.learn(pack_fresh(self._rows(self._samples)).schema)
        return self._function

    def rows(self, runs: Sequence[Run | None]) -> list[Row]:
        """Runs as rows of the program, which is made again where they show more than was known."""
        known = [r for r in runs if r is not None]
        found = self.classes.add(known)
        self._samples += [known[k] for k in sorted(found.new)]
        self.compounds.add(self.classes, found)
        self._roots.update(dict.fromkeys(found.classes[found.roots].tolist()))
        fails = any(r is None for r in runs) or (self.source is not None and self.source.fails)
        state = (self.classes.version, tuple(self._roots), self.compounds.state, fails)
        if self.source is None or self._state != state:
            self.source = Writer(self.classes, self.compounds, list(self._roots), self.name, fails).write()
            self._state, self._function = state, None
        made = iter(examples(self.classes, self.compounds, self.source, found))
        return [self.source.failed() if r is None else next(made) for r in runs]

    def _rows(self, runs: Sequence[Run]) -> list[Row]:
        """Runs that showed nothing new as rows."""
        assert self.source is not None
        found = self.classes.add(runs)
        return examples(self.classes, self.compounds, self.source, found)


@contextmanager
def deeply() -> Iterator[None]:
    """Let the front end follow calls as deep as those of a program over traces may be, whose functions each call those
    of what they read."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


DEEP = 30_000

PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


class _UnknownError(Exception):
    """The examples of a call are not known here."""


def _group(bound: Bound, planner: Any) -> tuple[Group | None, Any]:
    """The packed examples whose traces are kept, where all that is batched is packed; and which of them are meant."""
    groups = [s.values.on_host if s.kind == "batch" else None for s in bound.slots]
    group = groups[0]
    if group is None or any(g is not group for g in groups):
        return None, None
    if group.origin is not None and planner in group.origin[0].planners:
        origin, indices = group.origin
        return origin, indices
    return group, None


def _taken(failures: Sequence[Failure], indices: Any) -> tuple[Failure, ...]:
    if indices is None or not failures:
        return tuple(failures)
    held = {f.index: f for f in failures}
    return tuple(replace(held[k], index=n) for n, k in enumerate(indices.tolist()) if k in held)


def _decided(leaf: Any) -> Any:
    """What Python sees of a shared value."""
    if isinstance(leaf, (int, np.integer, np.bool_)):
        return leaf
    return leaf.tobytes() if _is_table(leaf) else None


def _rows(slot: Slot) -> Sequence[Any]:
    """The values of a batched leaf, one an example."""
    if slot.is_traced or (slot.kind == "batch" and slot.values.is_traced):
        raise _UnknownError
    if slot.kind == "batch":
        found: Sequence[Any] = slot.values.to_list()
        return found
    rows: Sequence[Any] = list(np.asarray(slot.leading())) if slot.kind == "array" else slot.values
    return rows


def _run(asked: Asked, rows: Sequence[Any], hidden: Mapping[int, int], kinds: Kinds) -> Run:
    """Trace one example. `hidden`: the numbers of arrays that are free variables, by `id`."""
    numbers: list[Any] = []
    shared = asked.sharing.leaves

    def note(x: Any) -> Any:
        numbers.append(x)
        return x

    Copier(note).copy(list(rows))

    def run(symbols: Sequence[Any]) -> tuple[list[Any], Any]:
        sharing = _Symbols(asked.name, symbols[: len(shared)])
        given = iter(symbols[len(shared) :])
        copies = Copier(lambda _: next(given)).copy(list(rows))
        place = {s.index: copy for s, copy in zip(asked.bound.slots, copies, strict=True)}
        args, kwargs = asked.bound.rebuild(lambda slot: place[slot.index], sharing.raw)
        leaves: list[Any] = []
        return leaves, _flat(asked.function(*args, **kwargs), leaves)

    with plainly():
        return record(run, shared, numbers, hidden, user_code(), kinds)


def _asked(name: str, refused: Exception | None, error: Exception) -> Exception:
    """Python has asked for the value of a number: the compiler has to take the function, and says why it does not."""
    span = span_of(error)
    if refused is None:
        return UnsupportedError(
            f"{name}: its structure is traced, and here Python asks for a number that is computed", span,
            "decide by integers and other structure, or select with jnp.where",
        )  # fmt: skip
    refused.add_note(f"Its structure cannot be traced either: Python asks for a computed number at {span}")
    return refused


def _warn(name: str, refused: Exception) -> None:
    message = str(refused).splitlines()[0]
    warnings.warn(
        f"{name}: structure is traced, example by example, as it does not compile: {message}",
        StructureWarning,
        _callers_level(),
    )


def _callers_level() -> int:
    """How many frames up the user's call is, as `warnings.warn` counts them from where this is called."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


# ---- results


def _flat(result: Any, leaves: list[Any]) -> Any:
    """The structure of a result, with a `Leaf` for each number."""
    if isinstance(result, (bool, int, float, complex, np.ndarray, np.generic, jax.Array)):
        leaves.append(result)
        return Leaf(len(leaves) - 1)
    if isinstance(result, list):
        return Items(tuple(_flat(x, leaves) for x in result))
    if isinstance(result, tuple):
        parts = [_flat(x, leaves) for x in result]
        return rebuilt(result, parts)
    if type(result) is dict:
        return {k: _flat(x, leaves) for k, x in result.items()}
    if result is None or isinstance(result, str):
        return result
    raise UnsupportedError(
        f"a result of type {type(result).__name__} of a function whose structure is traced", NOWHERE,
        "return numbers, arrays, strings, and lists, tuples or dicts of them",
    )  # fmt: skip


# ---- places in the user's source


@cache
def user_code() -> UserCode:
    """Code outside of Python, its packages, and this one."""
    paths = sysconfig.get_paths()
    return UserCode([PACKAGE, *(paths[k] + os.sep for k in ("stdlib", "purelib", "platlib")), "<frozen"])


def span_of(error: BaseException) -> Span:
    """The innermost line of the user in the traceback of an error."""
    found, at = NOWHERE, error.__traceback__
    user = user_code()
    while at is not None:
        code = at.tb_frame.f_code
        if not code.co_filename.startswith(user.folders):
            positions = next(itertools.islice(code.co_positions(), at.tb_lasti // 2, None), (None,) * 4)
            line, end, column, stop = (x or 0 for x in positions)
            found = Span(code.co_filename, at.tb_lineno, column + 1, end if line else 0, stop + 1)
        at = at.tb_next
    return found
