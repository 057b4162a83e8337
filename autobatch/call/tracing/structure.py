"""What is known of the structure of a function for some types of its arguments: classes, compounds, the program."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import sys
import sysconfig
import textwrap
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.call.arguments import ArgumentNode, ArgumentSlot, BoundArguments, Form, Raw, Sharing
from autobatch.call.batch import Batch, pack_fresh
from autobatch.call.packed import Group
from autobatch.call.plain import plainly
from autobatch.call.tracing.classes import Instances, OperationClasses, equal_numbers
from autobatch.call.tracing.filled import Filling, TraceCopier, filling
from autobatch.call.tracing.log import (
    OWN,
    ExampleNumber,
    Fixed,
    Kinds,
    Log,
    TooLongError,
    TracedRun,
    checked,
    span_of_place,
)
from autobatch.call.tracing.returned import ResultGraph, RunPrinting, TracedResults, noted_in
from autobatch.call.tracing.rows import OtherTypesError, columns, examples
from autobatch.call.tracing.source import Compounds, TracedRow, TraceSource, TraceWriter
from autobatch.call.tracing.symbols import ASKED, AskedError, Recording, Symbol, UserCode, record
from autobatch.call.tracing.templates import Type, noted, noting_of, type_of
from autobatch.call.tracing.templates import found as functions_found
from autobatch.common.runtime import collecting_later
from autobatch.data.columns import Columns
from autobatch.errors import NOWHERE, ExampleError, Failure, PlanError, Span, UnsupportedError
from autobatch.ir.core import Input
from autobatch.ir.ops import same_constant

# ---- free
#
# What a function reads that is no argument: closures and globals, of it and of the user's functions that it names.
#
# Arrays among them are hidden shared arguments, so that derivatives reach them and another value is no other trace;
# where anything else is no longer what it was, traces that were kept are made again.


Name = tuple[int, str, str]
"""The function that reads a variable, by its number, the variable, and the way from it to an array in it."""


class FreeVariables:
    """The free variables of a function, as they are now. `held`: what they hold; in two parts `values` and `arrays`."""

    MISSING = object()
    """What a variable holds that does not exist."""

    def __init__(self, function: Callable[..., Any], user: UserCode) -> None:
        self.held: dict[tuple[int, str], Any] = {}
        self.values: dict[tuple[int, str], Any] = {}
        self.arrays: dict[Name, Any] = {}
        self._user, self._seen = user, dict[Any, int]()
        self._functions: list[types.FunctionType] = []
        self._follow(function)

    def _follow(self, function: Any) -> None:
        waiting = [function]
        while waiting:
            found = _function_of(waiting.pop())
            if found is None or found.__code__ in self._seen:
                continue
            if found.__code__.co_filename.startswith(self._user.folders):
                continue
            number = self._seen[found.__code__] = len(self._seen)
            self._functions.append(found)
            for name, value in _variables(found):
                waiting.append(value)
                self.held[number, name] = value
                arrays, self.values[number, name] = _apart(value)
                self.arrays.update({(number, name, path): x for path, x in arrays})

    def refuse_type_questions(self, *questions: str) -> None:
        """Refuse a run that would answer `type(x) is float` or `isinstance(x, int)` by the class of what stands for a
        number in it. `questions`: those of the two that it would."""
        for function in self._functions:
            if line := next((n for q, n in _questions(function.__code__) if q in questions), 0):
                span = Span(function.__code__.co_filename, line)
                words = "whether this is a number of Python is asked where the function runs with numbers unknown"
                raise UnsupportedError(words, span, "test for the other classes, and let a number be what remains")

    def rebind(self, where: tuple[int, str], value: Any) -> None:
        """Let a variable hold something else; MISSING: nothing."""
        number, name = where
        function = self._functions[number]
        if name in function.__code__.co_freevars:
            cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
            if value is not self.MISSING:
                cell.cell_contents = value
            else:
                del cell.cell_contents
        elif value is not self.MISSING:
            function.__globals__[name] = value
        else:
            del function.__globals__[name]

    def is_same(self, other: FreeVariables) -> bool:
        """Is all that is no array what it was? Arrays are what they were by their types."""
        if self.values.keys() != other.values.keys() or self.arrays.keys() != other.arrays.keys():
            return False
        if any(_type_of(x) != _type_of(other.arrays[k]) for k, x in self.arrays.items()):
            return False
        return all(_equal(x, other.values[k]) for k, x in self.values.items())

    def lasting(self) -> FreeVariables:
        """The same with the types of its arrays alone."""
        made: FreeVariables = object.__new__(FreeVariables)
        made.values, made.held = self.values, {}
        made._user, made._seen, made._functions = self._user, self._seen, []
        made.arrays = {k: jax.ShapeDtypeStruct(x.shape, x.dtype) for k, x in self.arrays.items()}
        return made


_NUMBERS = {"bool", "int", "float", "complex"}


@lru_cache(maxsize=1024)
def _questions(code: types.CodeType) -> tuple[tuple[str, int], ...]:
    """The lines of a function where `type` or `isinstance` asks for a number of Python."""
    try:
        lines, first = inspect.getsourcelines(code)
        text = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return ()
    found = []
    for node in ast.walk(text):
        parts = list(ast.iter_child_nodes(node))
        names = {n.id for p in parts for n in (p, *ast.iter_child_nodes(p)) if isinstance(n, ast.Name)}
        if names.isdisjoint(_NUMBERS):
            continue
        called = [n.func.id for n in (node, *parts) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        if isinstance(node, ast.Compare) and "type" in called:
            found.append(("type", first + node.lineno - 1))
        elif isinstance(node, ast.Call) and called[:1] == ["isinstance"]:
            found.append(("isinstance", first + node.lineno - 1))
    return tuple(found)


def _function_of(value: Any) -> types.FunctionType | None:
    value = getattr(value, "__wrapped__", value)
    value = value.__func__ if isinstance(value, types.MethodType) else value
    return value if isinstance(value, types.FunctionType) else None


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, globals_ = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not yet bound
    codes = [code]
    while codes:
        inner = codes.pop()
        codes += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
        for name in inner.co_names:
            if name in globals_ and not isinstance(globals_[name], types.ModuleType):
                yield name, globals_[name]


LARGE = 1000
"""A container of more entries is compared by what it is, and arrays in it are constants."""


@dataclass(frozen=True)
class _Rest:
    """A container without its arrays."""

    structure: Any
    others: tuple[Any, ...]


def _apart(value: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The arrays in a value, by the way to each, and what else there is to compare."""
    if isinstance(value, (jax.Array, np.ndarray)):
        return [("", value)], None
    if not isinstance(value, (dict, list, tuple)) or len(value) > LARGE:
        return [], value
    try:
        found, structure = jax.tree_util.tree_flatten_with_path(value)
    except (ValueError, TypeError, RecursionError):
        return [], value  # keys that have no order, or a container that holds itself: no pytree of JAX
    arrays = [(jax.tree_util.keystr(p), x) for p, x in found if isinstance(x, (jax.Array, np.ndarray))]
    return arrays, _Rest(structure, tuple(x for _, x in found if not isinstance(x, (jax.Array, np.ndarray))))


def _type_of(x: Any) -> Any:
    return x.shape, x.dtype


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, _Rest) and isinstance(b, _Rest):
        same = a.structure == b.structure and len(a.others) == len(b.others)
        return bool(same) and all(map(_equal, a.others, b.others))
    return isinstance(a, (int, float, complex, str, bytes, bool)) and same_constant(a, b)


# ---- leaks
#
# Symbols that a run leaves behind: in a list, dict, set or object that the function finds outside of it.
#
#     SEEN = []
#     def f(w, xs):
#         SEEN.append(xs[0] * w)      a symbol, which means nothing once the trace has ended
#         return xs[0]
#
# Where one is found, all that the run has changed there is put back, and the function is refused. What it leaves there
# that is no symbol stays, as plain Python leaves it: it is not looked at.


DEEP = 4
"""Containers inside of so many others are not looked into."""


class LeakWatch:
    """What free variables hold, before a run."""

    def __init__(self, free: FreeVariables) -> None:
        self._before = [(where, x, _copy(x)) for where, x in _containers(free)]
        self._names = dict(free.held)

    def leaked(self, now: FreeVariables) -> str | None:
        """The variable that holds a symbol now, where there is one: then everything is as it was before."""
        found = next((where for where, x in _containers(now) if any(map(_is_symbol, _parts(x)))), None)
        found = found or next((where for where, x in now.held.items() if _is_symbol(x)), None)
        if found is None:
            return None
        for _, container, copy in self._before:
            _restore(container, copy)
        for where, x in now.held.items():
            if _is_symbol(x):
                now.rebind(where, self._names.get(where, FreeVariables.MISSING))
        return found[1]


def _containers(free: FreeVariables) -> Iterator[tuple[tuple[int, str], Any]]:
    """Everything in free variables that can be changed, with the variable that it is found by."""
    seen = set[int]()
    for where, value in free.held.items():
        level = [value]
        for _ in range(DEEP):
            below: list[Any] = []
            for x in level:
                parts = _parts(x)
                if not parts and not _is_changeable(x):
                    continue
                if id(x) in seen or len(parts) > LARGE:
                    continue
                seen.add(id(x))
                if _is_changeable(x):
                    yield where, x
                below += parts
            level = below


def _is_changeable(x: Any) -> bool:
    return isinstance(x, (list, dict, set, deque)) or _has_fields(x)


def _has_fields(x: Any) -> bool:
    """Is it an object of the user's with a dict of its own?"""
    kind = type(x)
    return (
        isinstance(getattr(x, "__dict__", None), dict)
        and not isinstance(x, (type, types.FunctionType, types.ModuleType, types.MethodType, jax.core.Tracer))
        and kind.__module__.split(".")[0] not in ("autobatch", "jax", "jaxlib", "numpy", "builtins")
    )


def _parts(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [*x.keys(), *x.values()]
    if isinstance(x, (list, tuple, set, frozenset, deque)):
        return [*x]
    return [*vars(x).values()] if _has_fields(x) else []


def _is_symbol(x: Any) -> bool:
    return isinstance(x, (Symbol, jax.core.Tracer))


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, (list, dict, set, deque)) else dict(vars(x))


def _restore(x: Any, copy: Any) -> None:
    """Give a container what it held."""
    held = vars(x) if _has_fields(x) else x
    held.clear()
    held.extend(copy) if isinstance(held, (list, deque)) else held.update(copy)


# ---- outline
#
# The arguments of a call without their numbers: with symbols in their place the function runs, once for each example.
#
# f({"W": array, "n": 3}, xs)   ->   ({"W": Input(0), "n": 3}, Slot)


PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


class _Emptied(Sharing):
    """Shared values with `Input` leaves in the place of their arrays and floats; what Python may look at stays."""

    def leaf(self, value: Any, name: str) -> Any:
        made = super().leaf(value, name)
        return (value, made[1]) if is_seen(value) else made


class _Filled(Sharing):
    """Such values with symbols in the place of `Input` leaves."""

    def __init__(self, name: str, symbols: Sequence[Any]) -> None:
        super().__init__(name)
        self.symbols = symbols

    def share(self, value: Any, name: str) -> Any:
        return (self.symbols[value.index], None) if isinstance(value, Input) else super().share(noting_of(value), name)

    def leaf(self, value: Any, name: str) -> Any:
        return value, None


def is_seen(value: Any) -> bool:
    """May Python look at a shared value: is it an integer, or an array of NumPy of integers?"""
    return isinstance(value, (int, np.integer, np.bool_)) or _is_table(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biu"


@dataclass(frozen=True)
class Outline:
    """`bound`: the call, its shared values emptied. `shared`: the types of its shared numbers. `decided`: what Python
    sees of them. `key`: what calls with the same structure have in common."""

    name: str
    function: Callable[..., Any]
    bound: BoundArguments
    shared: tuple[ExampleNumber, ...]
    decided: tuple[Any, ...]
    key: Any

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], bound: BoundArguments) -> tuple[Outline, list[Any]]:
        """The outline of a call, and its shared numbers."""
        sharing = _Emptied(name)
        form_of: dict[int, Any] = {}
        bound.rebuild(lambda slot: None, lambda raw: form_of.setdefault(id(raw), sharing.raw(raw)))

        def emptied(form: Form) -> Form:
            if isinstance(form, ArgumentNode):
                return replace(form, children=tuple(map(emptied, form.children)))
            if isinstance(form, ArgumentSlot):
                return replace(form, values=None)
            return replace(form, value=form_of[id(form)])

        made = replace(bound, forms={n: emptied(f) for n, f in bound.forms.items()}, slots=())
        shared = tuple(_emptied(ExampleNumber.of(x)) for x in sharing.leaves)
        decided = tuple(_decided(x) for x in sharing.leaves)
        key = bound.key, tuple(sharing.keys), tuple(sharing.types)
        return cls(name, function, made, shared, decided, key), sharing.leaves

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """Of its shared numbers."""
        return tuple([type_of(t.shape, t.dtype, t.weak) for t in self.shared])

    @cached_property
    def _filling(self) -> Filling | None:
        return filling(self.bound)

    def free(self) -> FreeVariables:
        """The free variables of the function, as they are now."""
        return FreeVariables(self.function, user_code())

    def run(self, values: Sequence[Any], free: FreeVariables, kinds: Kinds, most: int) -> TracedRun:
        """Run one example; `values`: one for each batched leaf; `most`: so many operations it may have. A function that
        symbols cannot run is run with arrays that JAX traces."""
        free.refuse_type_questions("type")
        if free.arrays or kinds.by_jax:
            return self._by_jax(values, free, kinds)
        recording = Recording(user_code(), kinds, most)
        try:
            made = self._noted(values, recording)
            if recording.asked is not None:
                raise recording.asked
        except (TooLongError, AskedError):
            raise
        except Exception:  # JAX's too, whose message asks for the text of a symbol that it was given
            made = None
        finally:
            recording.close()
        if made is not None and not recording.refused:
            return checked(made)
        found = self._by_jax(values, free, kinds)
        kinds.by_jax = True
        return found

    def _noted(self, values: Sequence[Any], recording: Recording) -> TracedRun:
        """A run with symbols of our own."""

        def symbol(x: Any) -> Symbol:
            return recording.symbol(x if isinstance(x, ExampleNumber) else ExampleNumber.of(x))

        copier = TraceCopier(symbol)
        copies = copier.copy(list(values))
        copier.remember()
        shared = recording.all_shared(self.types)
        args, kwargs = self._filled(shared, copies)
        leaves: list[Any] = []
        printing = RunPrinting(leaves, Symbol, lambda x: isinstance(x, Symbol))
        with jax.ensure_compile_time_eval(), plainly(), noted(recording), noted_in(printing):
            structure = ResultGraph(leaves, Symbol).whole(self.function(*args, **kwargs))
        recording.kinds.changes_arguments |= copier.are_changed()
        found = [recording.leaf(x) for x in leaves]
        return TracedRun(recording, found, structure, printing.lines)

    def _filled(self, symbols: Sequence[Any], copies: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one example."""
        if self._filling is not None:
            return self._filling(symbols, copies)
        filled = _Filled(self.name, symbols)

        def shared(raw: Raw) -> Any:
            return noting_of(raw.value) if raw.static else filled.share(raw.value, raw.name)[0]

        return self.bound.rebuild(lambda slot: copies[slot.index], shared)

    def _by_jax(self, values: Sequence[Any], free: FreeVariables, kinds: Kinds) -> TracedRun:
        """A run that JAX records."""
        free.refuse_type_questions("type", "isinstance")
        numbers: list[ExampleNumber] = []

        def note(x: Any) -> Any:
            numbers.append(x if isinstance(x, ExampleNumber) else ExampleNumber.of(x))
            return x

        TraceCopier(note).copy(list(values))
        hidden = {id(x): len(self.shared) + k for k, x in enumerate(free.arrays.values())}

        def run(symbols: Sequence[Any]) -> tuple[list[Any], Any]:
            given = iter(symbols[len(self.shared) :])
            copier = TraceCopier(lambda _: next(given))
            args, kwargs = self._filled(symbols, copier.copy(list(values)))
            copier.remember()
            leaves: list[Any] = []
            printing = RunPrinting(leaves, Symbol, lambda x: isinstance(x, jax.core.Tracer))
            with noted_in(printing):
                found = self.function(*args, **kwargs)
            kinds.changes_arguments |= copier.are_changed()
            return leaves, (ResultGraph(leaves, Symbol).whole(found), printing.lines)

        with plainly():
            return checked(record(run, self.shared, numbers, hidden, user_code(), Log(kinds, sys.maxsize)))


def _emptied(given: ExampleNumber) -> ExampleNumber:
    return ExampleNumber(given.shape, given.dtype, given.weak)


def _decided(leaf: Any) -> Any:
    """What Python sees of a shared value."""
    if isinstance(leaf, (int, np.integer, np.bool_)):
        return leaf
    return leaf.tobytes() if _is_table(leaf) else None


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


# ---- repeat
#
# Does a function do the same on the same example again? Where it does not, its trace says nothing of later calls.


def check(name: str, first: TracedRun, again: Callable[[], TracedRun], returned: TracedResults) -> None:
    """Raise UnsupportedError, at the line of the first operation that differs, unless `again` gives the same run."""
    try:
        second = again()
    except Exception as error:
        raise _differs(name, f"the second time it raised {type(error).__name__}: {error}", NOWHERE) from error
    step = _first_difference(first.log, second.log)
    if step is not None:
        log = first.log if step < len(first.log.sites) else second.log
        place = log.kinds.sites[log.sites[step]].place
        raise _differs(name, "the second time it did something else here", span_of_place(place))
    same = len(first.leaves) == len(second.leaves) and returned.same(first, second)
    if not same or not all(
        _same(a, first.log, b, second.log) for (a, _), (b, _) in zip(first.leaves, second.leaves, strict=True)
    ):
        raise _differs(name, "the second time it returned something else", NOWHERE)


def _first_difference(first: Log, second: Log) -> int | None:
    """The first operation that two runs do not have in common."""
    if first.sites == second.sites and first.words == second.words and not first.own and not second.own:
        return None
    at = 0
    for step, (a, b) in enumerate(itertools.zip_longest(first.sites, second.sites)):
        if a != b:
            return step
        end = at + len(first.kinds.sites[a].types)
        if not all(_same(x, first, y, second) for x, y in zip(first.words[at:end], second.words[at:end], strict=True)):
            return step
        at = end
    return None


def _differs(name: str, how: str, span: Span) -> UnsupportedError:
    return UnsupportedError(
        f"{name}: its structure is traced, which runs it once for all calls, but it does not do the same on the same "
        f"example again: {how}",
        span,
        "pass what changes from call to call as an argument: random numbers, the time, what an earlier example left",
    )


def _same(a: Fixed | int, first: Log, b: Fixed | int, second: Log) -> bool:
    if not isinstance(a, int) or not isinstance(b, int) or not (_is_own(a) and _is_own(b)):
        return a == b
    x, y = first.own[a - OWN], second.own[b - OWN]
    if isinstance(x, ExampleNumber) or isinstance(y, ExampleNumber):
        return isinstance(x, ExampleNumber) and isinstance(y, ExampleNumber)
    return equal_numbers(x, y)


def _is_own(word: int) -> bool:
    return OWN <= word < OWN // 2


Make = Callable[[Callable[..., Any]], Any]
TOGETHER = 1024
"""Examples that are run before Python may look for garbage again: what the user's function leaves in cycles is the
garbage of so many runs at most."""


class TracedStructure:
    """What is known of the structure of a function for some types of its arguments, and the program over it."""

    def __init__(self, name: str, made_for: Any, make: Make) -> None:
        self.name, self.made_for, self._make = name, made_for, make
        self.classes, self.compounds, self.kinds, self.returned = (
            OperationClasses(),
            Compounds(),
            Kinds(),
            TracedResults(),
        )
        self._roots: dict[int, None] = {}
        self._state: Any = None
        self.source: TraceSource | None = None
        self._function: Any = None
        self._samples: list[TracedRun] = []
        self._schema: Any = None

    def function(self) -> Any:
        """The program, batched. It knows the types of all rows that there have been, so that a batch which shows less
        runs on the program that is there."""
        assert self.source is not None
        if self._function is None:
            self._function = self._make(self.source.main)
            failed = [self.source.failed()] if self.source.fails else []
            self._schema = pack_fresh([*self._objects(self._samples), *failed]).schema
            self._function.learn(self._schema)
        return self._function

    @collecting_later
    def rows(self, runs: Sequence[TracedRun | None]) -> Columns:
        """Runs as rows of the program, which is made again where they show more than was known."""
        known = [r for r in runs if r is not None]
        if self.returned.add(known):  # results have another form now
            self.classes, self.compounds, self._roots = OperationClasses(), Compounds(), {}
            self._learn(self._samples)
        found = self._learn(known)
        self._samples += [known[k] for k in sorted(found.new)]
        fails = len(known) < len(runs) or (self.source is not None and self.source.fails)
        versions = self.returned.version, self.classes.version  # where results have another form, classes are new ones
        state = (versions, tuple(self._roots), self.compounds.state, fails, len(self.kinds.failures))
        if self.source is None or self._state != state:
            self.source = TraceWriter(
                self.classes,
                self.compounds,
                list(self._roots),
                self.name,
                fails,
                self.returned.constants,
                self.kinds.failures,
            ).write()
            self._state, self._function = state, None
        function = self.function()
        try:
            failed = [r is None for r in runs]
            return columns(self.classes, self.compounds, self.source, found, self._schema, failed)
        except OtherTypesError:  # strings, say
            made = iter(examples(self.classes, self.compounds, self.source, found))
            packed: Batch = function.pack([self.source.failed() if r is None else next(made) for r in runs])
            return packed.group().columns

    def _objects(self, runs: Sequence[TracedRun]) -> list[TracedRow]:
        """Runs that showed nothing new as rows."""
        assert self.source is not None
        return examples(self.classes, self.compounds, self.source, self._met(runs))

    def _met(self, runs: Sequence[TracedRun]) -> Instances:
        return self.classes.add([self.returned.formed(r) for r in runs], self.kinds)

    def _learn(self, runs: Sequence[TracedRun]) -> Instances:
        """Meet what runs have done."""
        general = self.classes.general
        found = self._met(runs)
        if self.classes.general > general:  # what was known of classes is known of others now
            self.compounds.add(self.classes, self._met(self._samples))
        self.compounds.add(self.classes, found)
        self._roots.update(dict.fromkeys(np.unique(found.classes[found.roots]).tolist()))
        return found


@dataclass(frozen=True)
class Tracing:
    """How a call is traced. `refused`: what the compiler said, for the first one, raised again where not structure
    alone decides. `masks`: examples may fail. `most`: so many operations one example may have."""

    outline: Outline
    structure: TracedStructure
    refused: Exception | None
    masks: bool
    most: int

    def rows(self, examples: Sequence[Sequence[Any]], free: FreeVariables) -> tuple[Columns, tuple[Failure, ...]]:
        """The traces of examples as rows of the program, and the examples that failed. `examples[k]`: its values, for
        each batched leaf."""
        runs, failures = self.runs(examples, free)
        return self.structure.rows(runs), failures

    def runs(
        self, examples: Sequence[Sequence[Any]], free: FreeVariables
    ) -> tuple[list[TracedRun | None], tuple[Failure, ...]]:
        """A run for each example, and the examples that failed, which have none."""
        watch = LeakWatch(free)
        try:
            with functions_found():
                return self._runs(examples, free)
        finally:
            if (variable := watch.leaked(self.outline.free())) is not None:
                raise _left(self.outline, variable, self.refused)

    def _runs(
        self, examples: Sequence[Sequence[Any]], free: FreeVariables
    ) -> tuple[list[TracedRun | None], tuple[Failure, ...]]:
        found = _RunsSoFar()
        for begin in range(0, len(examples), TOGETHER):
            self._run(examples[begin : begin + TOGETHER], begin, free, found)
        runs, failures, refused = found.runs, found.failures, self.refused
        unknown = failures and len(failures) == len(runs) and self.structure.source is None
        if unknown and refused is not None:
            refused.add_note(f"As plain Python, {failures[0]}")
            raise refused from found.first
        if failures and (unknown or not self.masks):  # of what the function returns nothing is known, or all is asked
            raise ExampleError(failures) from found.first
        return runs, tuple(failures)

    @collecting_later
    def _run(self, examples: Sequence[Sequence[Any]], begin: int, free: FreeVariables, found: _RunsSoFar) -> None:
        """Run some examples, the first of which is example `begin`."""
        name, refused = self.outline.name, self.refused
        for k, values in enumerate(examples, begin):
            try:
                made = self.outline.run(values, free, self.structure.kinds, self.most)
                if k == 0 and self.structure.source is None:
                    again = partial(self.outline.run, values, free, self.structure.kinds, self.most)
                    check(name, made, again, self.structure.returned)
                found.runs.append(made)
            except TooLongError as error:
                raise _too_long(name, k, self.most, error) from None
            except (*ASKED, AskedError) as error:
                raise _asked(name, refused, error) from error
            except UnsupportedError as error:
                if refused is None:
                    raise
                refused.add_note(f"Its structure cannot be traced either: {error}")
                raise refused from error
            except Exception as error:
                found.failures.append(Failure(k, type(error).__name__, _in_words(error), span_of(error)))
                found.runs.append(None)
                found.first = found.first or error


@dataclass
class _RunsSoFar:
    """What runs have given so far. `first`: the error of the first example that failed."""

    runs: list[TracedRun | None] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    first: Exception | None = None


def _left(outline: Outline, variable: str, refused: Exception | None) -> Exception:
    """A run has left a computed number outside of the function."""
    what = f"it leaves a computed number in {variable}, which is made outside of it"
    if refused is not None:
        refused.add_note(f"Its structure cannot be traced either: {what}")
        return refused
    code = getattr(outline.function, "__code__", None)
    span = Span(code.co_filename, code.co_firstlineno) if code is not None else NOWHERE
    return UnsupportedError(
        f"{outline.name}: its structure is traced, which runs it once for all calls, and {what}", span,
        "return what it computes",
    )  # fmt: skip


def _too_long(name: str, example: int, most: int, error: TooLongError) -> PlanError:
    return PlanError(
        f"{name}: example {example} is traced, and has more than {most:,} operations, which is what memory or "
        f"ab.options(max_rows=...) allows; the last one is at {span_of_place(error.place)}: look for a loop that never "
        "ends there"
    )


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


@dataclass(frozen=True)
class Kept:
    """The traces of examples. `free`, `decided`: what else they depend on. `function`: the program over them, for which
    they are planned."""

    free: FreeVariables
    decided: Any
    function: Any
    rows: Batch
    failures: tuple[Failure, ...]

    def still_holds(self, decided: Any, free: FreeVariables) -> bool:
        return self.decided == decided and self.free.is_same(free)

    @property
    def group(self) -> Group:
        return self.rows.group()


def _in_words(error: Exception) -> str:
    """What Python says, of numbers where symbols stand for them."""
    return re.sub(r"(['\"])(Symbol|\w*Tracer)\1", r"\1float\1", str(error))
