"""A call that looks like one before it: it takes the program of that call, without a look at what else it might take.

Only calls whose arguments are numbers, arrays, and containers of Python with these: each number stands where it stood,
with the class, dtype and shape that it had; and, where machine code runs, lists of examples that are
packed now, or were before, and are of the types that those were of. What such a call does beside that is what every
call does (`prepared.py`). A call that fails is made again the long way, which finds the words.

A call that computes arrays of arrays by XLA, and cannot fail, is `jax.jit` of the call (`Staged`): that is one
executable from arguments to result, and it is JAX that takes the arguments apart.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import native, packed
from autobatch.call.arguments import BoundArguments, Order, order_of
from autobatch.call.batch import Batch, pack_batch
from autobatch.call.examples import NOTHING, Examples, raw
from autobatch.call.native import in_same_places
from autobatch.call.packed import Group, with_rows
from autobatch.call.prepared import NeedsWideIntegers, OtherBackend, OutOfRoom, Prepared
from autobatch.data.columns import Schema, without_numpy
from autobatch.data.together import together
from autobatch.errors import BatchError, Error, PlanError
from autobatch.ir import jax_compat
from autobatch.options import Options

# ---- recognise
#
# A shared argument that looks like one that a program was found for takes that program, without a key.
#
#     pattern of {"W": array, "b": (array, 1.0)}     a dict of W and b; W is a JAX array float32[3,4], b a tuple of ...
#
# Only containers of Python and numbers that are run-time values have patterns, and only where each stands once: what
# else a shared argument may hold says what is compiled by its value.


@dataclass(frozen=True, slots=True)
class LeafPattern:
    """A number or an array: its class and type. `aval` is the type as JAX has it: arrays that came from one place share
    it, and are alike at a glance."""

    cls: type
    dtype: Any = None
    shape: tuple[int, ...] = ()
    weak: bool = False
    aval: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ContainerPattern:
    """A dict, tuple or list. `names`: the keys of a dict in `canonical` order; `order`: that which it must have, where
    that matters, or where keys may be equal and not the same, as 1 and True are."""

    cls: type
    names: tuple[Any, ...]
    children: tuple[LeafPattern | ContainerPattern, ...]
    order: Order | None = None


Pattern = LeafPattern | ContainerPattern


def pattern_of(value: Any, name: str = "", ordered: Container[str] = ()) -> Pattern | None:
    """How a shared argument looks, None where it may hold more than run-time numbers. `ordered`: the dicts whose order
    matters, by the names that `sharing` gives them."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return LeafPattern(type(value), value.dtype, value.shape, _is_weak(value), getattr(value, "aval", None))
    if type(value) is np.ndarray:
        return LeafPattern(np.ndarray, value.dtype, value.shape)
    if type(value) in (float, complex):
        return LeafPattern(type(value))
    if type(value) not in (dict, tuple, list):
        return None
    places: Sequence[Any] = range(len(value))
    names: tuple[Any, ...] = ()
    order = None
    if isinstance(value, dict):
        try:
            places = names = tuple(sorted(value))
        except TypeError:
            return None  # JAX does not take it apart
        order = order_of(value) if name in ordered or not all(type(k) is str for k in names) else None
        if len(set(map(repr, names))) < len(names):
            return None  # names do not tell what it holds apart
    children = [pattern_of(value[k], f"{name}[{k!r}]", ordered) for k in places]
    known = tuple(c for c in children if c is not None)
    return ContainerPattern(type(value), names, known, order) if len(known) == len(children) else None


def _is_weak(array: Any) -> bool:
    return bool(getattr(array, "weak_type", False))  # typed random keys have no such thing


class Matcher:
    """How several values look, each as its pattern says. JAX takes them apart, so that what a call of many arrays costs
    is little more than a look at each. `structure`: as JAX has it; `orders`: those
    of keys that matter."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.numbers = tuple(x for p in patterns for x in _leaves(p))
        self.looks: list[tuple[type[Any], Any, LeafPattern]] = [(n.cls, n.aval, n) for n in self.numbers]
        self.structure: Any = jax.tree.structure(tuple(map(_like, patterns)))
        self.orders = tuple(x for p in patterns for x in _orders(p))
        self.ordered = any(x is not None for x in self.orders)

    def match(self, values: Sequence[Any]) -> list[Any] | None:
        """The numbers of values that look like these, in order; None where one does not."""
        values = tuple(values)
        try:
            numbers, structure = jax.tree_util.tree_flatten(values)
        except (TypeError, ValueError):  # it holds what JAX does not take apart
            return None
        if structure != self.structure:
            return None
        x: Any
        for x, (cls, aval, leaf) in zip(numbers, self.looks, strict=True):
            if type(x) is not cls:
                return None
            if leaf.dtype is None or (aval is not None and x.aval is aval):
                continue
            if x.shape != leaf.shape or x.dtype != leaf.dtype:
                return None
            if leaf.cls is not np.ndarray and _is_weak(x) != leaf.weak:
                return None
        return numbers if self.in_order(values) else None

    def in_order(self, values: Sequence[Any]) -> bool:
        """Have the dicts in values of this structure their keys in the order that they must have?"""
        return not self.ordered or all(map(_in_order, self.patterns, values))


def _orders(pattern: Pattern) -> Iterator[Order | None]:
    if isinstance(pattern, ContainerPattern):
        yield pattern.order
        for child in pattern.children:
            yield from _orders(child)


def _leaves(pattern: Pattern) -> Iterator[LeafPattern]:
    if isinstance(pattern, LeafPattern):
        yield pattern
    else:
        for child in pattern.children:
            yield from _leaves(child)


def _like(pattern: Pattern) -> Any:
    """A value of the same structure."""
    if isinstance(pattern, LeafPattern):
        return 0
    parts = map(_like, pattern.children)
    return dict(zip(pattern.names, parts, strict=True)) if pattern.cls is dict else pattern.cls(parts)


def _in_order(pattern: Pattern, value: Any) -> bool:
    """Have the dicts in a value of this structure their keys in the order that they must have?"""
    if isinstance(pattern, LeafPattern):
        return True
    if isinstance(value, dict):
        if pattern.order is not None and order_of(value) != pattern.order:
            return False
        value = [value[k] for k in pattern.names]
    return all(map(_in_order, pattern.children, value))


RECENT = 4
"""So many calls are remembered."""

RUN = "run"
"""The key of calls that are no gradients."""

MISS = object()
"""No call that was remembered looks like this one."""


@dataclass(frozen=True)
class _Remembered:
    """A call of a function with some `options`, and what was done with it. `shared` and `arrays`: which of its numbers,
    in order, are the shared inputs of the program, and its batched arrays; `tables`: what XLA calls these, and how many
    rows it has for them; `lists`: which of its arguments are examples that are packed; `slots`: the numbers of its
    batched arrays among all batched leaves; `like`: the types of its lists, but where arrays of NumPy are among them,
    as every call says anew which these are; `reads`: the columns that are its operands, where nothing else is."""

    options: Options
    x64: int
    matcher: Matcher
    prepared: Prepared
    run: Callable[[Prepared], Any]
    shared: tuple[int, ...]
    arrays: tuple[int, ...]
    tables: tuple[tuple[str, int], ...]
    lists: tuple[int, ...]
    slots: tuple[int, ...]
    like: Schema | None
    reads: list[tuple[str, bool]] | None

    def result(self, args: tuple[Any, ...]) -> Any:
        """The result for other arguments; MISS where they do not look like its own."""
        try:
            found = None if self.x64 != packed.widths() else self.with_args(args)
            return MISS if found is None else self.run(found)
        except (Error, OutOfRoom, OtherBackend, NeedsWideIntegers):
            return MISS

    def with_args(self, args: tuple[Any, ...]) -> Prepared | None:
        """The call with other arguments; None where they do not look like its own."""
        if not self.lists:
            numbers = self.matcher.match(args)
            return None if numbers is None else self.again(numbers, self.prepared.examples)
        given = [args[k] for k in self.lists if k < len(args)]
        numbers = self.matcher.match([x for k, x in enumerate(args) if k not in self.lists])
        if numbers is None or len(given) < len(self.lists):
            return None
        like = self.prepared.examples
        group = group_of(given) if like.kept else _packed(given, self.like)
        if group is not None and like.kept:
            group.mark(self.prepared.program.planner)
        if group is None or group.schema != like.schema or (self.arrays and group.count != like.count):
            return None
        return self.again(numbers, replace(like, count=group.count, group=group))

    def again(self, numbers: Sequence[Any], examples: Examples) -> Prepared | None:
        """The call with other numbers; None where the function is another one by now: what it reads has changed."""
        held = self.prepared
        if not held.program.is_current():
            return None
        shared = held.program.shared([numbers[k] for k in self.shared])
        if len(shared) > len(self.shared) and any(isinstance(x, jax.core.Tracer) for x in shared):
            return None
        arrays = [numbers[k] for k in self.arrays]
        if held.operands is not None:
            if not self.lists:
                return held.on(shared, examples, held.ready, [*shared, *arrays])
            if self.reads is not None:
                column, count = examples.on_host().column, examples.count
                read = [column(name)[:count] if is_cut else column(name) for name, is_cut in self.reads]
                return held.on(shared, examples, held.ready, [*shared, *read])
            given = replace(examples, arrays=dict(zip(self.slots, arrays, strict=True)))
            operands = native.operands(held.program, given, shared, True)
            return None if operands is None else held.on(shared, examples, held.ready, operands)
        if self.lists:
            ready = examples.ready(held.program)
            return None if ready.failures else held.on(shared, examples, ready, None)
        of = zip(self.tables, arrays, strict=True)
        tables = {name: with_rows(x, rows) for (name, rows), x in of if name in held.ready.tables}
        return held.on(shared, examples, held.ready.with_tables(tables), None)


def _packed(lists: Sequence[Any], like: Schema | None) -> Group | None:
    """Lists of examples, packed; None where there are none, or they cannot be."""
    count = len(lists[0]) if type(lists[0]) is list else 0
    if not count or any(type(x) is not list or len(x) != count for x in lists):
        return None
    try:
        return Group(pack_batch(lists[0] if len(lists) == 1 else together(lists), like), len(lists))
    except BatchError:
        return None


def group_of(batches: Sequence[Any]) -> Group | None:
    """The group that batches on the host are, all of its arguments in order; None where they are something else."""
    if any(type(x) is not Batch for x in batches):
        return None
    group: Group | None = batches[0].on_host
    if group is None or group.width != len(batches) or any(x.on_host is not group for x in batches):
        return None
    components = [None] if len(batches) == 1 else list(range(len(batches)))
    return group if [x.component for x in batches] == components else None


def _as_jax(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tables that every call has alike, as arrays of JAX: one of NumPy is copied in each, which takes ten
    microseconds."""
    with jax.ensure_compile_time_eval():
        return {n: jnp.asarray(x) for n, x in tables.items() if type(x) is np.ndarray}


class _UnlikeError(Exception):
    """JAX is about to compile a staged call for other arguments, or for a result that it would not return as it is."""


class Staged:
    """A call with `args` as an executable from arguments to result: `jax.jit` of `call` of one `like` it, on arguments
    that JAX traces. `types`: of the numbers that it was called with; `shape`: of the one at a place, which has a row
    for each example."""

    def __init__(self, args: Any, like: _Remembered, call: Callable[[Prepared, tuple[Any, ...]], Any]) -> None:
        self.program, self.in_order, self.types = like.prepared.program, like.matcher.in_order, set[type]()
        self.x64 = like.x64
        self.place, self.shape = like.arrays[0], tuple[int, ...]()
        self._form: tuple[Any, list[Any]] | None = None
        self._placed: Callable[[Mapping[int, Any]], Any] | None = None

        arranged = _order_of_its_own(args)

        def run(*args: Any) -> Any:
            numbers, structure = jax.tree.flatten(args)
            args = args if arranged is None else arranged(dict(enumerate(numbers)))
            form = structure, [jax.typeof(x) for x in numbers]
            prepared = like.again(numbers, like.prepared.examples) if self._form in (None, form) else None
            if prepared is None:
                raise _UnlikeError
            self._form, result = form, call(prepared, args)
            self._placed = _order_of_its_own(result)
            return result

        run.__name__ = run.__qualname__ = like.prepared.function
        self._jitted = jax.jit(run)

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result."""
        jax_compat.check_process()
        found = self._jitted(*args)
        return found if self._placed is None else self._placed(dict(enumerate(jax.tree.leaves(found))))

    def takes(self, args: tuple[Any, ...]) -> None:
        """It is called with such arguments."""
        numbers = jax.tree.leaves(args)
        self.types.update(map(type, numbers))
        self.shape = numbers[self.place].shape

    def result(self, args: tuple[Any, ...]) -> Any:
        """The result for other arguments; MISS where they do not look like its own. It is JAX that takes the most part
        of the look; what it has not compiled costs more than a look at the number of examples."""
        try:
            numbers = jax_compat.leaves_of(args)
            if len(numbers) <= self.place or not self.types.issuperset(map(type, numbers)):
                return MISS
            if self.x64 != packed.widths():
                return MISS
            if numbers[self.place].shape != self.shape or not self.program.is_current() or not self.in_order(args):
                return MISS
            return self.run(args)
        except (_UnlikeError, AttributeError, LookupError, TypeError, ValueError, jax.errors.JaxRuntimeError):
            return MISS


def _order_of_its_own(value: Any) -> Callable[[Mapping[int, Any]], Any] | None:
    """How to make containers of their numbers, which come as `jax.tree` has them; None where the order of keys is that,
    too."""
    theirs = jax.tree.leaves(value)
    placed = in_same_places(value, dict(enumerate(theirs)), native.ARRAYS)
    if placed is None:
        raise _UnlikeError
    blank = placed(dict.fromkeys(range(len(theirs))))
    return None if repr(blank) == repr(jax.tree.map(lambda _: None, value)) else placed


@dataclass(frozen=True)
class _RememberedStaged:
    """A staged call of a function with some `options`."""

    options: Options
    result: Callable[[tuple[Any, ...]], Any]


class _All:
    """Holds everything."""

    def __contains__(self, x: object) -> bool:
        return True


_ALL = _All()


def _the_long_way() -> Prepared:
    raise PlanError("a call that is remembered is not made by another back end")


class Warm:
    """The last calls of one batched function."""

    def __init__(self) -> None:
        self._calls: tuple[_Remembered | _RememberedStaged, ...] = ()

    def _keep(self, one: _Remembered | _RememberedStaged) -> None:
        self._calls = (one, *self._calls[: RECENT - 1])

    def call(self, args: tuple[Any, ...], options: Options) -> Any:
        """The result of a call that looks like one of them; MISS where none does."""
        for one in self._calls:
            if one.options is options and (found := one.result(args)) is not MISS:
                return found
        return MISS

    def staged(
        self,
        args: tuple[Any, ...],
        bound: BoundArguments,
        options: Options,
        made: Prepared,
        call: Callable[[Prepared, tuple[Any, ...]], Any] = lambda prepared, args: prepared.run(),
        asked: Hashable = RUN,
        ordered: bool = False,
    ) -> Any:
        """The result of a call, staged and remembered; MISS where it cannot be. `call` computes it of the call on
        arguments that JAX traces, and these; `asked` says what. `ordered`: as in `note`."""
        like = _remembered(args, bound, options, made, ordered=ordered) if made.is_pure else None
        if like is None or like.lists:
            return MISS
        program, signature = made.program, made.ready.signature
        form = like.matcher.structure, tuple(map(jax.typeof, jax.tree.leaves(args)))
        key = asked, *form, like.matcher.orders, signature
        one, new = program.staged.get(key), False
        if one is None:
            one, new = Staged(args, replace(like, prepared=replace(like.prepared, concrete=False)), call), True
        try:
            with program.compiling() if new else nullcontext(), program.in_memory(signature):
                found = one.run(args)
                if new:
                    jax.block_until_ready(found)
        except _UnlikeError:
            return MISS
        one.takes(args)
        if new:
            program.staged.put(key, one)
        self._keep(_RememberedStaged(options, one.result))
        return found

    def note(
        self,
        args: tuple[Any, ...],
        bound: BoundArguments,
        options: Options,
        made: Prepared,
        run: Callable[[Prepared], Any] = Prepared.run_or_grow,
        ordered: bool = False,
    ) -> None:
        """Remember a call, where that can be done. `ordered`: what it gives has the keys of dicts in the order of this
        call."""
        if (one := _remembered(args, bound, options, made, run, ordered)) is not None:
            self._keep(one)


def _remembered(
    args: tuple[Any, ...],
    bound: BoundArguments,
    options: Options,
    made: Prepared,
    run: Callable[[Prepared], Any] = Prepared.run_or_grow,
    ordered: bool = False,
) -> _Remembered | None:
    """A call of which all that it was given are numbers that stand in one place each; None where there is more."""
    program, examples = made.program, made.examples
    on_host = any(program.components[k].array for k in program.on_host)
    simple = made.bound is None and not (made.packed or program.deciding or on_host or program.orders)
    if not simple or made.ready.checks:
        return None
    if made.operands is not None and jax.default_backend() != "cpu":
        return None
    given_lists = [s.values for s in bound.slots if s.kind != "array"]
    kinds = (Batch,) if examples.kept else (list,)
    lists = tuple(k for x in given_lists for k, given in enumerate(args) if x is given and type(x) in kinds)
    just_arrays = not lists and (made.operands is None or not native.program_of(program).inputs)
    new = examples.own == examples.schema
    if examples.kept:
        new = new and group_of(given_lists) is not None and (made.operands is not None or not examples.arrays)
    else:
        new = new and made.operands is not None
    if len(lists) != len(given_lists) or not (new if lists else just_arrays):
        return None
    args = tuple(x for k, x in enumerate(args) if k not in lists)
    patterns = [pattern_of(x, ordered=_ALL if ordered else ()) for x in args]
    known = tuple(p for p in patterns if p is not None)
    matcher = Matcher(known)
    numbers = matcher.match(args) if len(known) == len(args) else None
    if numbers is None or len({id(x) for x in numbers}) < len(numbers):
        return None
    place = {id(x): k for k, x in enumerate(numbers)}
    given, arrays = made.shared[: len(made.shared) - program.hidden], [*examples.arrays.values()]
    if not all(id(x) in place for x in (*given, *arrays)) or len(given) + len(arrays) < len(numbers):
        return None  # it reads something that was made of a number, or not all
    if any(hasattr(x, "dtype") and raw(x) is not x for x in numbers):
        return None  # random keys
    bare, ready = replace(examples, arrays={}, group=None), made.ready
    tables: tuple[tuple[str, int], ...] = ()
    if made.operands is None:
        names = [program.array_table(k) for k in examples.arrays]
        tables = tuple((n, len(ready.tables[n]) if n in ready.tables else 0) for n in names)
        given_anew = dict.fromkeys(n for n in names if n in ready.tables)
        ready = NOTHING if lists else ready.with_tables({**_as_jax(ready.tables), **given_anew})
    kept = replace(
        made,
        examples=bare,
        shared=[],
        ready=ready,
        operands=None if made.operands is None else [],
        chosen=None if made.chosen is None else _the_long_way,
        concrete=True,
    )
    of_shared, of_arrays = (tuple(place[id(x)] for x in xs) for xs in (given, arrays))
    like = examples.schema if without_numpy(examples.schema) == examples.schema else None
    reads = None if made.operands is None or not lists else native.columns_read(program, examples.schema)
    slots = (*examples.arrays,)
    key = options, packed.widths()
    return _Remembered(*key, matcher, kept, run, of_shared, of_arrays, tables, lists, slots, like, reads)
