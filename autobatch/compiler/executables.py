"""Executables: what a program computes, those of its derivatives, and how an error leaves them.

A program computes arrays, ragged arrays and columns of structure, before they are put together as the function's
result.

Derivatives are one executable for a value with its gradient, and two for a pullback, by size class. `compute(shared,
tables, signature)` is the program. A `Wrt` says which of its inputs move; results are flattened to their floats, which
are all that a derivative has.

An error from inside a compiled computation is a callback in JAX. A program with such is not kept in the compilation
cache, and each call of it goes through Python. On a CPU a function of ours is called instead, and only where something
has failed: it finds what the numbers mean in the call itself, so a program that was compiled by another process can
report too, and hands the error to XLA, which raises it when the computation ends. On other platforms, and under
`jax.vmap`, the callback remains.
"""

from __future__ import annotations

import ctypes
import json
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.backends.interface import Mode
from autobatch.backends.llvm import machine_code
from autobatch.common import runtime
from autobatch.common.cache import Bounded
from autobatch.common.runtime import until_ready
from autobatch.errors import ExampleError, Failure, PlanError, Span, UnsupportedError
from autobatch.ir import buffers, jax_compat
from autobatch.ir.core import INT, Array, List, Ref, Type
from autobatch.ir.jax_compat import as_jax, as_one_over_axes, by_numpy, taken, xp
from autobatch.ir.leaf import Site

# ---- results


@dataclass(frozen=True)
class ArrayResult:
    """One array, examples on axis 0."""

    values: Any


@dataclass(frozen=True)
class RaggedResult:
    """Values of all elements behind one another, and int32[B + 1] offsets."""

    values: ArrayResult | RaggedResult | StructureResult
    offsets: Any


@dataclass(frozen=True)
class StructureResult:
    """Rows of the input, one an example or element: references, tags or lists (-1 is null); or rows of the objects that
    the program has made, and which class they are. `of_example`: they are numbered among those of their example."""

    rows: Any
    type: Type
    of_example: bool = False


Result = ArrayResult | RaggedResult | StructureResult


def first_rows(x: Any, count: int) -> Any:
    """The first rows of an array. Nothing is compiled for their number where the host can look at the array."""
    if x.shape[0] == count:
        return x
    if isinstance(x, jax.core.Tracer) or is_key(x) or {d.platform for d in x.devices()} != {"cpu"}:
        return x[:count]
    return as_jax(np.asarray(x)[:count])


def with_chosen(result: Result, type: Type) -> Result:
    """A result that is numbers of rows in the place of objects or lists of the examples, as such."""
    match result:
        case ArrayResult(values=rows) if isinstance(type, Ref | List):
            return StructureResult(rows, type, of_example=True)
        case RaggedResult(values=values):
            return replace(result, values=with_chosen(values, type))
        case _:
            return result


def offsets(tables: Mapping[str, Any], k: int, depth: int) -> Any:
    """Where the lists of a result begin, at a depth."""
    return jnp.asarray(tables[f"offsets{k}" + (f".{depth}" if depth else "")], jnp.int32)


def masked_elements(values: Any, tables: Mapping[str, Any], k: int, depth: int) -> ArrayResult:
    """The elements of lists; capacity past the last one is zero."""
    live = jnp.arange(values.shape[0]) < offsets(tables, k, depth - 1)[-1]
    mask = live.reshape(live.shape + (1,) * (values.ndim - 1))
    return ArrayResult(jnp.where(mask, values, jnp.zeros_like(values)))


# ---- lists in memory


@dataclass(frozen=True)
class InMemory:
    """Result `at` is how long lists are, and the `depth` ones behind it are their buffers, the last of them with the
    elements, which are of the type `elem`."""

    at: int
    depth: int
    elem: Type


def with_lists(results: Sequence[Result], lists: Sequence[InMemory], numbered: bool) -> Sequence[Result]:
    """The results with lists that the program has left in memory as such. `numbered`: words in them are numbers
    (`ir.texts.number`), not places in a vocabulary, and objects those of rows of their example."""
    if not lists:
        return results
    made = list(results)
    for held in lists:
        lengths, *buffers = (array_of(r) for r in results[held.at : held.at + held.depth + 1])
        found = _in_memory(lengths, buffers, INT if numbered else held.elem)
        made[held.at] = with_chosen(found, held.elem)
    return made


def with_none(results: Sequence[Result], lengths: Collection[int], failed: Any) -> Sequence[Result]:
    """The results where lists and memory are empty in examples that have failed. `lengths`: the results that say how
    long they are."""

    def emptied(x: Any) -> ArrayResult:
        return ArrayResult(jnp.where(failed, jnp.zeros_like(x), x))

    return [emptied(array_of(r)) if k in lengths else r for k, r in enumerate(results)]


def array_of(result: Result) -> Any:
    """The array that a result is."""
    assert isinstance(result, ArrayResult)
    return result.values


def _in_memory(lengths: Any, buffers: Sequence[Any], elem: Type) -> RaggedResult:
    """Lists of these lengths. `buffers`: of lists of lists the lengths of the inner ones come first."""
    rows = CutBuffers(lengths, buffers[0].shape[1])
    first, *others = map(rows.of, buffers)
    if others:
        return RaggedResult(_in_memory(first, others, elem), rows.offsets)
    array = isinstance(elem, Array) or first.ndim == 2  # of strings their letters
    return RaggedResult(ArrayResult(first) if array else StructureResult(first, elem), rows.offsets)


class CutBuffers:
    """What is in buffers up to the length of each, one behind another. Where JAX traces the lengths there are as many
    rows as there is room for, or `most` of them, and those behind the last one are zero.

    lengths 2, 0, 1    buffers [a b .] [. . .] [c . .]    ->    a b c    offsets 0 2 2 3
    """

    def __init__(self, lengths: Any, room: int, most: int | None = None) -> None:
        self.is_known = not isinstance(lengths, jax.core.Tracer)
        if self.is_known:
            held = np.clip(np.asarray(lengths), 0, room)  # an example that fails may say anything
            self.example: Any
            self.place: Any
            self.example, self.place = np.nonzero(np.arange(room) < held[:, None])
            ends = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
            self.offsets: Any = ends if isinstance(lengths, np.ndarray) else as_jax(ends)
            return
        whole = jnp.cumsum(jnp.clip(lengths, 0, room), dtype=jnp.int32)
        self.offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), whole])
        rows = jnp.arange(lengths.shape[0] * room if most is None else most, dtype=jnp.int32)
        self.live = rows < self.offsets[-1]
        found = jnp.searchsorted(self.offsets, rows, side="right").astype(jnp.int32) - 1
        self.example = jnp.where(self.live, found, 0)
        self.place = jnp.where(self.live, rows - self.offsets[self.example], 0)

    def at(self, example: Any, place: Any) -> CutBuffers:
        """The same of other buffers, in which what is read stands elsewhere."""
        made = copy(self)
        made.example, made.place = example, place
        return made

    def of(self, buffer: Any) -> Any:
        """The rows of one of the buffers."""
        if self.is_known and not isinstance(buffer, jax.core.Tracer) and not is_key(buffer):
            found = np.asarray(buffer)[self.example, self.place]
            return found if isinstance(buffer, np.ndarray) else as_jax(found)
        found = buffer[self.example, self.place]
        if self.is_known or is_key(buffer):
            return found
        live = self.live.reshape(self.live.shape + (1,) * (found.ndim - 1))
        return jnp.where(live, found, jnp.zeros_like(found))


def is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


class Segments:
    """The elements of lists that stand in segments, those of one list behind those of another. `rows`: the lists, by
    example; `lengths` and `table`: of those of each example how long they are, and where their segments begin."""

    def __init__(self, rows: CutBuffers, lengths: Any, table: Any, room: int) -> None:
        width, most = buffers.segments(room), buffers.elements(room)
        inside = CutBuffers(rows.of(lengths), most, int(lengths.shape[0]) * most)
        firsts = np.array([buffers.start_of(k) for k in range(width)])
        with by_numpy() if inside.is_known else nullcontext():
            self.example, row = taken(rows.example, inside.example), taken(rows.place, inside.example)
            segment = xp.searchsorted(firsts, inside.place, side="right") - 1
            begin = xp.asarray(table)[self.example, row * width + segment]
            place = begin - 1 + inside.place - taken(firsts, segment)
        self.offsets, self._cut = inside.offsets, inside.at(self.example, place)

    def of(self, column: Any) -> Any:
        """The elements in one of the columns."""
        return self._cut.of(column)


# ---- derivatives


Compute = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]
"""What a program computes of shared inputs and tables: a pytree of arrays."""


Moving = tuple[list[Any], dict[str, Any]]
"""Values, tangents or cotangents of shared inputs and tables."""


@dataclass(frozen=True)
class Wrt:
    """The inputs that move: positions of shared ones, names of tables."""

    shared: tuple[int, ...]
    tables: tuple[str, ...]

    def of(self, shared: Sequence[Any], tables: Mapping[str, Any]) -> Moving:
        return [jnp.asarray(shared[k]) for k in self.shared], {n: jnp.asarray(tables[n]) for n in self.tables}

    def into(
        self, shared: Sequence[Any], tables: Mapping[str, Any], moving: Moving
    ) -> tuple[list[Any], dict[str, Any]]:
        """All inputs, those that move replaced."""
        new = dict(zip(self.shared, moving[0], strict=True))
        return [new.get(k, x) for k, x in enumerate(shared)], {**tables, **moving[1]}


def moves(x: Any) -> bool:
    """Has it a derivative: is it a float or complex?"""
    return hasattr(x, "dtype") and bool(jnp.issubdtype(x.dtype, jnp.inexact))


def floats(tree: Any) -> list[Any]:
    """The leaves that have a derivative."""
    return [x for x in jax.tree.leaves(tree) if moves(x)]


def with_floats(tree: Any, new: Sequence[Any]) -> Any:
    """The tree with other floats."""
    leaves, structure = jax.tree.flatten(tree)
    given = iter(new)
    return jax.tree.unflatten(structure, [next(given) if moves(x) else x for x in leaves])


# ---- what is compiled


def linearised(compute: Compute, shared: Sequence[Any], tables: Mapping[str, Any], wrt: Wrt) -> tuple[Any, Any]:
    """What is computed, and the pullback from cotangents of its floats."""

    def run(moving: Moving) -> tuple[list[Any], Sequence[Any]]:
        found = compute(*wrt.into(shared, tables, moving))
        return floats(found), found

    _, pullback, found = jax.vjp(run, wrt.of(shared, tables), has_aux=True)
    return found, pullback


def with_gradient(
    compute: Compute, shared: Sequence[Any], tables: Mapping[str, Any], weight: Any, wrt: Wrt, output: int
) -> tuple[Any, Moving]:
    """What is computed, and the derivative of the sum of result `output`, its rows weighted; `weight` None: by 1."""
    return _gradient(*linearised(compute, shared, tables, wrt), weight, output)


def _gradient(found: Any, pullback: Any, weight: Any, output: int) -> tuple[Any, Moving]:
    seeded = jax.tree.leaves(found[output])[0]
    ones = jnp.ones_like(seeded) if weight is None else jnp.broadcast_to(weight, seeded.shape).astype(seeded.dtype)
    zeros = [
        jax.tree.map(jnp.zeros_like, x) if k != output else jax.tree.map(lambda _: ones, x) for k, x in _each(found)
    ]
    (gradient,) = pullback(floats(zeros))
    return found, gradient


def _each(found: Sequence[Any]) -> list[tuple[int, Any]]:
    """The floats of each result; an extended dtype, as typed random keys have, has no zero."""
    return [(k, floats(x)) for k, x in enumerate(found)]


def pushed(
    compute: Compute, shared: Sequence[Any], tables: Mapping[str, Any], tangents: Moving, wrt: Wrt
) -> tuple[Any, list[Any]]:
    """What is computed, and the tangents of its floats."""

    def run(moving: Moving) -> tuple[list[Any], Sequence[Any]]:
        found = compute(*wrt.into(shared, tables, moving))
        return floats(found), found

    _, dots, found = jax.jvp(run, (wrt.of(shared, tables),), (tangents,), has_aux=True)
    return found, dots


def curvature(
    compute: Compute,
    shared: Sequence[Any],
    tables: Mapping[str, Any],
    tangents: Moving,
    weight: Any,
    wrt: Wrt,
    moved: Wrt,
    output: int,
) -> tuple[Any, Moving]:
    """What is computed, and how the gradient by `wrt` changes along tangents of the inputs `moved`."""

    def run(moving: Moving) -> tuple[Moving, Any]:
        found, gradient = with_gradient(compute, *moved.into(shared, tables, moving), weight, wrt, output)
        return gradient, found

    _, changed, found = jax.jvp(run, (moved.of(shared, tables),), (tangents,), has_aux=True)
    return found, changed


# ---- tables that are read by rows


def linearised_by_rows(
    program: DifferentiableProgram,
    shared: Sequence[Any],
    tables: Mapping[str, Any],
    signature: Any,
    mode: Mode,
    wrt: Wrt,
) -> tuple[Any, Any]:
    """As `linearised`; cotangents of tables that are read by rows are `SparseRows`."""
    arrays, pull = program.linearised(shared, tables, signature, mode)

    def run(moving: list[Any]) -> tuple[list[Any], Sequence[Any]]:
        found = program.results(with_floats(arrays, moving), tables, signature)
        return floats(found), found

    _, back, found = jax.vjp(run, floats(arrays), has_aux=True)
    return found, jax.tree_util.Partial(_ByRows(wrt, tuple(map(moves, arrays))), pull, back)


@dataclass(frozen=True)
class _ByRows:
    """A pullback but for its arrays. `moving`: which of the arrays that results are made of are floats."""

    wrt: Wrt
    moving: tuple[bool, ...]

    def __call__(self, pull: Any, back: Any, cotangents: Any) -> tuple[Moving]:
        given = iter(back(cotangents)[0])
        of_shared, of_tables = pull([next(given) if moving else None for moving in self.moving])
        return (([of_shared[k] for k in self.wrt.shared], {n: of_tables[n] for n in self.wrt.tables}),)


# ---- forward mode


_mode: Any = jax.make_user_context("reverse")
"""Which derivatives are about to be taken: a part of the key of `jax.jit`, so that what it has traced for others is
traced again."""


@contextmanager
def forward_mode() -> Iterator[None]:
    """Inside, programs run as operations of JAX alone, which `jax.jvp` can differentiate."""
    with _mode("forward"):
        yield


@contextmanager
def forward_over_reverse() -> Iterator[None]:
    """Inside, `jax.jvp` of `jax.grad` is taken of programs, also of those in `jax.jit`, which show nothing of it."""
    with _mode("forward" if _mode.value == "forward" else "reverse once"):
        yield


def mode_of(arrays: Iterable[Any]) -> Mode:
    """Which derivatives JAX is about to take, as far as the arrays of a call show it."""
    known: Mode = _mode.value
    if known != "reverse":
        return known
    traced = [x for x in arrays if isinstance(x, jax.core.Tracer)]
    return "reverse once" if any(map(jax_compat.is_pushed_forward, traced)) else "reverse"


@contextmanager
def refusing_forward(function: str) -> Iterator[None]:
    """JAX's refusal to push a tangent through a rule for reverse mode, in our words."""
    try:
        yield
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise UnsupportedError(
            f"jax.jvp of {function}, which has a rule for reverse mode only",
            cure=f"call ab.jvp({function}, primals, tangents); jax.jvp of jax.grad works, with jax.jit around both",
        ) from error


# ---- executables


class DifferentiableProgram(Protocol):
    """A program by the signature of its size class and the derivatives that are taken of it."""

    def run(self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Mode) -> Sequence[Any]: ...

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Any, mode: Mode
    ) -> tuple[list[Any], Any]:
        """The arrays that results are made of; the pullback of their cotangents, tables that are read by rows apart."""

    def results(self, arrays: Sequence[Any], tables: Mapping[str, Any], signature: Any) -> Sequence[Any]: ...

    @property
    def may_run_long(self) -> bool: ...


class Differentials:
    """The executables of one program: the `most` that were used last. `by_rows`: cotangents of tables that are read by
    rows alone are `SparseRows`."""

    def __init__(
        self,
        program: DifferentiableProgram,
        most: int,
        compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.program, self.most, self._compiling = program, most, compiling
        self._kept: Bounded[Hashable, Any] = Bounded(most)
        self._pull: Any = jax.jit(lambda pull, cotangents: pull(cotangents))

    @property
    def executables(self) -> int:
        return len(self._kept)

    def linearised(
        self, shared: Sequence[Any], tables: Mapping[str, Any], signature: Hashable, wrt: Wrt, by_rows: bool = False
    ) -> Any:
        static = (signature, mode_of((*shared, *tables.values())), wrt, by_rows)
        make = self._linearised
        found, pullback = self._run("linearised", make, (list(shared), dict(tables)), static)
        return found, lambda cotangents: as_one_over_axes(self._pull, pullback, cotangents)

    def with_gradient(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        weight: Any,
        signature: Hashable,
        wrt: Wrt,
        output: int,
        by_rows: bool = False,
        concrete: bool = False,
    ) -> Any:
        def make(shared: Any, tables: Any, weight: Any, *static: Any) -> Any:
            *rest, output = static
            found, pullback = self._linearised(shared, tables, *rest)
            return _gradient(found, pullback, weight, output)

        mode = mode_of(() if concrete else (*shared, *tables.values()))
        static = (signature, mode, wrt, by_rows, output)
        return self._run("gradient", make, (list(shared), dict(tables), weight), static, concrete)

    def _linearised(self, shared: Any, tables: Any, signature: Any, mode: Mode, wrt: Wrt, by_rows: bool) -> Any:
        if by_rows:
            return linearised_by_rows(self.program, shared, tables, signature, mode, wrt)
        return linearised(lambda s, t: self.program.run(s, t, signature, mode), shared, tables, wrt)

    def pushed(
        self, shared: Sequence[Any], tables: Mapping[str, Any], tangents: Moving, signature: Hashable, wrt: Wrt
    ) -> Any:
        def make(shared: Any, tables: Any, tangents: Any, signature: Any, wrt: Wrt) -> Any:
            return pushed(lambda s, t: self.program.run(s, t, signature, "forward"), shared, tables, tangents, wrt)

        return self._run("pushed", make, (list(shared), dict(tables), tangents), (signature, wrt))

    def curvature(
        self,
        shared: Sequence[Any],
        tables: Mapping[str, Any],
        tangents: Moving,
        weight: Any,
        signature: Hashable,
        wrt: Wrt,
        moved: Wrt,
        output: int,
    ) -> Any:
        def make(shared: Any, tables: Any, tangents: Any, weight: Any, signature: Any, *static: Any) -> Any:
            def compute(s: Any, t: Any) -> Any:
                return self.program.run(s, t, signature, "reverse once")

            return curvature(compute, shared, tables, tangents, weight, *static)

        given = (list(shared), dict(tables), tangents, weight)
        return self._run("curvature", make, given, (signature, wrt, moved, output))

    def _run(
        self,
        kind: str,
        make: Callable[..., Any],
        given: tuple[Any, ...],
        static: tuple[Hashable, ...],
        concrete: bool = False,
    ) -> Any:
        jax_compat.check_process()
        key = kind, *static
        run = self._kept.get(key)
        if new := run is None:
            self._kept.put(key, run := jax.jit(lambda *given: make(*given, *static)))
        with self._compiling() if new else nullcontext():
            found = run(*given) if concrete else as_one_over_axes(run, *given)
        return until_ready(found) if self.program.may_run_long else found


# ---- errors


logger = logging.getLogger("autobatch")

TARGET = "autobatch_report"
"""What XLA knows the function by."""


def failures_of(sites: Sequence[Site], status: Any) -> tuple[Failure, ...]:
    """What the examples failed with whose `status` is not 0: 1 + the position among `sites`."""
    found = np.asarray(status)
    wrong = np.flatnonzero(found).tolist()
    return tuple(Failure(k, (site := sites[int(found[k]) - 1]).kind, site.message, site.span) for k in wrong)


def raise_failures(sites: Sequence[Site], status: Any) -> None:
    """ExampleError where an example has failed."""
    if failures := failures_of(sites, status):
        raise ExampleError(failures)


def raise_words(words: Sequence[str], failed: Any) -> None:
    """PlanError with the words of the first flag that is not 0."""
    for text, wrong in zip(words, np.asarray(failed).tolist(), strict=True):
        if wrong:
            raise PlanError(text)


def report_failures(sites: Sequence[Site], status: Any) -> Any:
    """The same `status`, int[B]; raises `raise_failures` when the computation ends. What is computed of the result
    makes sure that this is not dropped."""
    rows = [[s.kind, s.message, *(getattr(s.span, f.name) for f in fields(Span))] for s in sites]
    return _where_any(json.dumps({"sites": rows}), status.astype(np.int32)).astype(status.dtype)


def report_words(words: Sequence[str], failed: Any) -> Any:
    """The same `failed`, bool[k]; raises `raise_words` when the computation ends."""
    return _where_any(json.dumps({"words": list(words)}), failed.astype(np.int32)) != 0


def _where_any(what: str, numbers: Any) -> Any:
    if not runtime.is_for_here():
        return numbers  # nothing of this process is there to be called: the rows that failed are NaN

    def report(numbers: Any) -> Any:
        (found,) = _report.bind(numbers, what=what)
        return found

    return as_one_over_axes(lambda x: jax.lax.cond((x != 0).any(), report, lambda x: x, x), numbers)


def raise_what(what: str, numbers: Any) -> None:
    """The error that numbers mean."""
    held = json.loads(what)
    if "words" in held:
        raise_words(held["words"], numbers)
    else:
        raise_failures([Site(kind, message, Span(*span)) for kind, message, *span in held["sites"]], numbers)


def by_callback(what: str, numbers: Any) -> Any:
    """What JAX has for it."""
    jax.debug.callback(lambda found: raise_what(what, found), numbers)
    return numbers


_report = jax_compat.host_report(TARGET, by_callback)


# ---- the function that XLA calls


def _called(frame: int) -> int | None:
    """`XLA_FFI_Handler`: an error of XLA's, or nothing."""
    try:
        return _handle(frame)
    except Exception as error:  # nothing can be raised into XLA; the computation must not seem to have gone well
        logger.error("what failed cannot be said: %s", error)
        return _error(frame, f"a check failed, and what it was cannot be said: {error}")


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_handler = _FUNCTION(_called)
"""XLA keeps its address for as long as the process lives."""


def _handle(frame: int) -> int | None:
    extension = _pointer(frame + machine_code.FRAME_EXTENSION)
    if extension and _integer(extension + machine_code.EXTENSION_TYPE) == machine_code.METADATA:
        metadata = _pointer(extension + machine_code.EXTENSION_METADATA)
        for place, value in (
            (machine_code.METADATA_MAJOR, machine_code.VERSION[0]),
            (machine_code.METADATA_MINOR, machine_code.VERSION[1]),
        ):
            ctypes.c_int32.from_address(metadata + place).value = value
        ctypes.c_int32.from_address(metadata + machine_code.METADATA_TRAITS).value = 0
        return None
    argument = _pointer(_pointer(frame + machine_code.FRAME_ARGUMENTS))
    rows = ctypes.c_int64.from_address(_pointer(argument + machine_code.BUFFER_DIMENSIONS)).value
    numbers = (ctypes.c_int32 * rows).from_address(_pointer(argument + machine_code.BUFFER_DATA))
    try:
        raise_what(dict(_attributes(frame))["what"], np.array(numbers))
    except (ExampleError, PlanError) as error:
        return _error(frame, f"{type(error).__name__}: {error}")
    result = _pointer(_pointer(frame + machine_code.FRAME_RESULTS))
    ctypes.memmove(_pointer(result + machine_code.BUFFER_DATA), numbers, 4 * rows)
    return None


def _pointer(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def _integer(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def _span(address: int) -> str:
    length = ctypes.c_size_t.from_address(address + 8).value
    return ctypes.string_at(_pointer(address), length).decode()


def _attributes(frame: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the attributes of a call."""
    count = ctypes.c_int64.from_address(frame + machine_code.FRAME_ATTRIBUTE_COUNT).value
    names, values = (
        _pointer(frame + machine_code.FRAME_ATTRIBUTE_NAMES),
        _pointer(frame + machine_code.FRAME_ATTRIBUTES),
    )
    for k in range(count):
        yield _span(_pointer(names + 8 * k)), _span(_pointer(values + 8 * k))


class _ErrorArguments(ctypes.Structure):
    """`XLA_FFI_Error_Create_Args`."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int32),
    )


INTERNAL = 13
"""`XLA_FFI_Error_Code_INTERNAL`."""


def _error(frame: int, message: str) -> int | None:
    create: Callable[..., int | None] = _FUNCTION(
        _pointer(_pointer(frame + machine_code.FRAME_API) + machine_code.API_ERROR_CREATE)
    )
    size = _ErrorArguments.code.offset + 4
    given = _ErrorArguments(size, None, message.encode("utf-8", "replace"), INTERNAL)
    return create(ctypes.byref(given))


def register() -> None:
    """Make the function known to XLA."""
    address = ctypes.cast(_handler, ctypes.c_void_p).value
    assert address is not None
    jax.ffi.register_ffi_target(
        TARGET, machine_code.capsule(address), platform="cpu", api_version=machine_code.INTERFACE
    )


register()
