"""The ways to run a batched function on some examples, and where one of them differs from plain Python."""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.api.batched import Batched, batched
from autobatch.api.derivatives import vjp
from autobatch.call.gradients import derivative_of, fit_examples
from autobatch.call.results import unbatch
from autobatch.errors import BatchError, ExampleError
from autobatch.options import options
from autobatch.testing.examples import Difference, attributes, default_tolerance, differences

# ---- numbers
#
# Floats wherever they stand in examples and results: in containers, and in the fields of objects.


Place = str


def is_float(value: Any) -> bool:
    """Is it a Python float, or an array of floats?"""
    return isinstance(value, float) or (hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating))


def mapped(value: Any, fn: Callable[[Place, Any], Any]) -> Any:
    """A copy with `fn(place, x)` in the place of every float `x`; an object that stands twice is one object again.

    >>> mapped({"a": [1, 2.0], "b": 0.5}, lambda place, x: (place, 2 * x))
    {'a': [1, ("['a'][1]", 4.0)], 'b': ("['b']", 1.0)}
    """
    return _Copy(fn).of(value, "")


def floats(value: Any, wanted: Collection[Place] = ()) -> dict[Place, Any]:
    """All floats by their places, an object that stands twice once, but for places that are wanted.

    >>> row = [0.5]
    >>> floats([row, row]), floats([row, row], ["[1][0]"])
    ({'[0][0]': 0.5}, {'[0][0]': 0.5, '[1][0]': 0.5})
    """
    found: dict[Place, Any] = {}
    _Copy(found.__setitem__, wanted).of(value, "")
    return found


class _Copy:
    def __init__(self, fn: Callable[[Place, Any], Any], again: Collection[Place] = ()) -> None:
        self.fn, self.again = fn, again
        self.made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, place: Place) -> Any:
        if is_float(value):
            return self.fn(place, value)
        if _is_leaf(value):
            return value
        if id(value) in self.made and not any(p.startswith(place) for p in self.again):
            return self.made[id(value)][0]
        if isinstance(value, tuple):
            names = (
                [f".{n}" for n in value._fields] if hasattr(value, "_fields") else [f"[{k}]" for k in range(len(value))]
            )
            parts = [self.of(x, place + name) for name, x in zip(names, value, strict=True)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        twin = copy.copy(value)
        self.made[id(value)] = twin, value  # the value too: its id stays its own
        if isinstance(value, dict):
            twin.update((k, self.of(x, f"{place}[{k!r}]")) for k, x in value.items())
        elif isinstance(value, (list, deque)):
            parts = [self.of(x, f"{place}[{k}]") for k, x in enumerate(value)]
            twin.clear()
            twin.extend(parts)
        else:
            for name, part in attributes(value).items():
                object.__setattr__(twin, name, self.of(part, f"{place}.{name}"))
        return twin


def _is_leaf(value: Any) -> bool:
    if value is None or isinstance(
        value, (bool, int, complex, str, enum.Enum, np.ndarray, np.generic, jax.Array, type)
    ):
        return True
    return callable(value) and not dataclasses.is_dataclass(value)  # functions; modules of parameters are dataclasses


def moved(examples: Sequence[Any], directions: Sequence[dict[Place, Any]], step: float) -> list[Any]:
    """The examples, each with its floats moved along a direction. What is shared between examples is apart."""

    def along(direction: dict[Place, Any]) -> Callable[[Place, Any], Any]:
        return lambda place, x: like(x, np.asarray(x) + step * direction[place])

    return [mapped(x, along(d)) for x, d in zip(examples, directions, strict=True)]


def roundings(value: Any, rng: np.random.Generator) -> Any:
    """A random direction for a float or an array, in proportion to it. Numbers of few bits, such as 0.25, stay what
    they are: a batch compares and adds them exactly, so that a difference there is never one of rounding.

    >>> float(abs(roundings(0.25, np.random.default_rng(0))))
    0.0
    """
    x = np.asarray(value, np.float64)
    exact = ~np.isfinite(x) | (np.round(x * 1024) == x * 1024)
    return np.where(exact, 0.0, x) * rng.uniform(-1, 1, x.shape)


def like(value: Any, new: Any) -> Any:
    """A number or array of the type of another."""
    if isinstance(value, float):
        return float(new)
    made = np.asarray(new).astype(value.dtype)
    return jnp.asarray(made) if isinstance(value, jax.Array) else made


def weigh(result: Any) -> float:
    """A number that depends on every float of a result, and not linearly."""
    return float(sum(np.sum(x * (x + weight(place))) for place, x in _wide(result).items()))


def slopes(result: Any) -> Any:
    """The cotangent of `weigh`, in the structure of the result."""
    return mapped(result, lambda place, x: like(x, 2 * np.asarray(x, np.float64) + weight(place)))


def weight(place: Place) -> float:
    """What a float at a place weighs by itself: nothing that two places have in common, so that no cotangents cancel.

    >>> weight("[0]") == weight("[1]")
    False
    """
    return 0.5 + zlib.crc32(place.encode()) % 9973 / 9973


def _wide(result: Any) -> dict[Place, Any]:
    return {place: np.asarray(x, np.float64) for place, x in floats(result).items()}


# ---- gradients
#
# Derivatives of plain Python, which those of a batch are held against.
#
# Two oracles. `traced`: JAX differentiates the plain function, with tracers in the place of floats; exact, but what is
# no operation of JAX (`math.sin(x)`, `float(x)`) has no derivative there, or fails. `slope`: a central difference along
# one direction of all floats; takes any Python, needs 64 bits, and wants functions that are smooth where they are
# called.


STEP = 1e-6

Run = Callable[[Any, Any], Any]
"""`run(shared, example)`: the plain function for one example."""
Cotangents = dict[Place, Any]
"""A cotangent for each float of one result, by its place."""


@dataclass(frozen=True)
class Derivatives:
    """By the floats of the shared arguments, summed over the examples, and by those of each example; by place."""

    shared: dict[Place, Any]
    examples: list[dict[Place, Any]]


def traced(run: Run, shared: Any, examples: Sequence[Any], cotangents: Sequence[Cotangents | None]) -> Derivatives:
    """The derivatives of the sum of all results, each float of which weighs its cotangent. None: the example failed."""
    parameters = _arrays(floats(shared))
    total = {place: jnp.zeros_like(x) for place, x in parameters.items()}
    found: list[dict[Place, Any]] = []
    for example, weights in zip(examples, cotangents, strict=True):
        own = _arrays(floats(example))
        if weights is None:
            found.append({place: jnp.zeros_like(x) for place, x in own.items()})
            continue

        def weighed(given: Any, values: Any, example: Any = example, weights: Any = weights) -> Any:
            result = floats(run(_with(shared, given), _with(example, values)), weights)
            return sum((_product(x, weights[p]) for p, x in result.items() if p in weights), jnp.zeros(()))

        of_shared, of_own = jax.grad(weighed, (0, 1))(parameters, own)
        total = {place: x + of_shared[place] for place, x in total.items()}
        found.append(of_own)
    return Derivatives(total, found)


def slope(
    run: Run,
    shared: Any,
    examples: Sequence[Any],
    cotangents: Sequence[Cotangents | None],
    directions: Sequence[dict[Place, Any]],
) -> float:
    """How the weighed sum of the results changes along directions: of the shared arguments, then of each example."""

    def total(step: float) -> float:
        (given,) = moved([shared], directions[:1], step)
        summed = 0.0
        for example, direction, weights in zip(examples, directions[1:], cotangents, strict=True):
            if weights is None:
                continue
            (x,) = moved([example], [direction], step)
            result = floats(run(given, x), weights)
            summed += sum(float(_product(v, weights[p])) for p, v in result.items() if p in weights)
        return summed

    return (total(STEP) - total(-STEP)) / (2 * STEP)


def along(derivatives: Derivatives, directions: Sequence[dict[Place, Any]]) -> float:
    """The same slope, by derivatives."""
    parts = zip([derivatives.shared, *derivatives.examples], directions, strict=True)
    return sum(
        float(np.sum(np.asarray(d) * direction[place])) for held, direction in parts for place, d in held.items()
    )


def random_directions(shared: Any, examples: Sequence[Any]) -> list[dict[Place, Any]]:
    """A direction for each float of the shared arguments and of each example, the same for the same structure."""
    rng = np.random.default_rng(0)
    return [{place: rng.normal(size=np.shape(v)) for place, v in floats(x).items()} for x in (shared, *examples)]


def _product(x: Any, cotangent: Any) -> Any:
    """The sum of a float times its cotangent. A number that the batch holds as an array weighs what that array does."""
    shape = jnp.shape(x)
    given = jnp.asarray(cotangent)
    if given.shape != shape:
        given = given.reshape(-1, *shape).sum(0)
    return jnp.sum(jnp.asarray(x) * given)


def _arrays(values: dict[Place, Any]) -> dict[Place, Any]:
    """Floats as JAX differentiates by them: those of Python stay Python's, in type and in how they promote."""
    return {place: x if isinstance(x, float) else jnp.asarray(x) for place, x in values.items()}


def _with(value: Any, new: dict[Place, Any]) -> Any:
    return mapped(value, lambda place, _: new[place])


OF_DIFFERENCES = 1e-5
"""Tolerance of difference quotients with 64 bits."""
NEARBY, ROUNDINGS = 24, (4, 32, 256)
"""Points near those of a difference where plain Python is run, and how far away, in units of the last place."""


@dataclass(frozen=True)
class Way:
    """A back end, with options that are not the default, outside or inside `jax.jit`."""

    backend: str
    options: Mapping[str, Any]
    jit: bool

    def __str__(self) -> str:
        with_ = ", ".join(f"{k}={v!r}" for k, v in self.options.items())
        return self.backend + (f" with {with_}" if with_ else "") + (" under jax.jit" if self.jit else "")


@dataclass(frozen=True)
class Mismatch:
    """Where a way differs; `example` is its number in the batch, None for what belongs to no single one."""

    way: Way
    example: int | None
    difference: Difference

    def __str__(self) -> str:
        return f"{'' if self.example is None else f'example {self.example}, '}{self.difference}"


@dataclass(frozen=True)
class Plain:
    """What plain Python does with one example: what it returns, or raises."""

    result: Any
    error: Exception | None


@dataclass(frozen=True)
class BatchOutcome:
    """What a batch gave: a result for each example, and the kind of exception of those that failed (empty where it is
    not known). `pulled`: the derivatives by the shared arguments and by each example."""

    rows: Sequence[Any]
    failed: Mapping[int, str]
    pulled: tuple[Any, Sequence[Any]] | None = None


class Subject:
    """A function with examples and shared arguments."""

    def __init__(
        self,
        f: Callable[..., Any],
        examples: list[Any],
        shared: tuple[Any, ...],
        grads: bool | str,
        tolerance: float | None,
    ) -> None:
        if grads not in (True, False, "differences"):
            raise BatchError(f"grads={grads!r}: it takes True, False or 'differences'")
        if not examples:
            raise BatchError("check_equivalence takes at least one example")
        if grads == "differences" and jnp.zeros(()).dtype != jnp.float64:
            raise BatchError("grads='differences' needs 64 bits: `with jax.enable_x64(True):` around the call")
        function = f if isinstance(f, Batched) else _batched(f, len(shared))
        self.name = str(getattr(f, "__name__", type(f).__name__))
        self.examples, self.shared, self.grads = examples, shared, grads
        self.tolerance = default_tolerance() if tolerance is None else tolerance
        names = _parameters(function, len(shared))
        self.order = list(names.values())
        self.batched_count = self.order.count(True)
        axes = {name: 0 if is_batched else None for name, is_batched in names.items()}
        self.function = function if function.axes() == axes else function.with_axes(axes)
        self.known: dict[int, Plain] = {}

    # -- plain Python

    def plain(self, k: int) -> Plain:
        """What plain Python does with an example; run once."""
        if k not in self.known:
            try:
                self.known[k] = Plain(self.run(self.shared, self.examples[k]), None)
            except Exception as error:
                self.known[k] = Plain(None, error)
        return self.known[k]

    def run(self, shared: Sequence[Any], example: Any) -> Any:
        parts = (example,) if self.batched_count == 1 else example
        return self.function.example(*self.arguments(shared, parts))

    def arguments(self, shared: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
        """The arguments of a call, from those that are shared and those that are batched."""
        given = {False: iter(shared), True: iter(parts)}
        return [next(given[is_batched]) for is_batched in self.order]

    # -- the batch

    def mismatch(self, way: Way, chosen: Sequence[int]) -> Mismatch | None:
        """The first difference between plain Python and a batch of some of the examples."""
        plain = [self.plain(k) for k in chosen]
        examples = [self.examples[k] for k in chosen]
        with options(backend=way.backend, **way.options):
            try:
                return next(self.mismatches(way, plain, examples), None)
            except Exception as error:
                error.add_note(f"autobatch.testing: {self.name} on {way}, {len(examples)} examples")
                raise

    def mismatches(self, way: Way, plain: Sequence[Plain], examples: list[Any]) -> Iterator[Mismatch]:
        yield from self.compared(way, self.found(way, plain, examples), plain, examples)

    def found(self, way: Way, plain: Sequence[Plain], examples: list[Any]) -> BatchOutcome:
        fails = any(p.error is not None for p in plain)
        # by the option: what `f` compiles for other calls with it is compiled once
        function = self.function.with_settings(backend="auto", out_axes=0, on_error="mask" if fails else "raise")
        return self.inside_jit(function, examples) if way.jit else self.outside(function, examples)

    def compared(
        self, way: Way, found: BatchOutcome, plain: Sequence[Plain], examples: list[Any]
    ) -> Iterator[Mismatch]:
        yield from (Mismatch(way, k, d) for k, d in self.of_failures(found, plain))
        for k, (p, row) in enumerate(zip(plain, found.rows, strict=True)):
            if p.error is None:
                yield from (Mismatch(way, k, d) for d in differences(row, p.result, self.tolerance))
        if found.pulled is not None:
            yield from (Mismatch(way, k, d) for k, d in self.of_derivatives(found, plain, examples))

    # -- jumps

    def jumps(self, way: Way, chosen: Sequence[int]) -> bool:
        """Does plain Python give what the batch gives, once its floats are changed by a few roundings? Then a
        comparison, a rounding or an index stands at its threshold there, and numbers that a batch rounds in another
        order decide it the other way: neither is wrong."""
        plain, examples = [self.plain(k) for k in chosen], [self.examples[k] for k in chosen]
        with options(backend=way.backend, **way.options):
            found = self.found(way, plain, examples)
            for near in map(self.nearby, range(NEARBY)):
                moved_plain, moved_examples = [near.plain(k) for k in chosen], [near.examples[k] for k in chosen]
                if next(near.compared(way, found, moved_plain, moved_examples), None) is None:
                    return True
        return False

    def nearby(self, seed: int) -> Subject:
        """The same function where each float is changed at random, by a few roundings at most."""
        subject = copy.copy(self)
        step = min(ROUNDINGS[seed % len(ROUNDINGS)] * float(np.finfo(jnp.zeros(()).dtype).eps), self.tolerance / 10)
        rng = np.random.default_rng(seed)
        near = [{p: roundings(x, rng) for p, x in floats(value).items()} for value in (self.shared, *self.examples)]
        subject.shared, *subject.examples = moved([self.shared, *self.examples], near, step)
        subject.known = {}
        return subject

    def of_failures(self, found: BatchOutcome, plain: Sequence[Plain]) -> Iterator[tuple[int, Difference]]:
        for k, p in enumerate(plain):
            ours, theirs = found.failed.get(k), type(p.error).__name__ if p.error is not None else None
            if (ours is None) != (theirs is None) or (ours and ours != theirs):
                words = f"{'no failure' if ours is None else ours or 'a failure'}, not {theirs or 'a result'}"
                yield k, Difference("failure", ours, p.error, words + (f" ({p.error})" if p.error else ""))

    def outside(self, function: Batched[..., Any], examples: list[Any]) -> BatchOutcome:
        """A call outside `jax.jit`, by lists."""
        args = self.arguments(self.shared, self.columns(examples))
        masks = function.settings.on_error == "mask"
        try:
            result = function(*args)
        except ExampleError as error:  # of all examples, or of some that plain Python has results of
            failed = {f.index: f.kind for f in error.failures}
            return BatchOutcome([None] * len(examples), failed)
        result, failures = result if masks else (result, ())
        failed = {f.index: f.kind for f in failures}
        rows = _rows(result, len(examples))
        if not self.has_derivatives(rows, examples):
            return BatchOutcome(rows, failed)
        _, pull = vjp(function, *args)
        return BatchOutcome(rows, failed, self.entries(pull(_weights(rows))))

    def inside_jit(self, function: Batched[..., Any], examples: list[Any]) -> BatchOutcome:
        """A call inside `jax.jit`: the examples are packed, their floats and the shared ones are traced."""
        masks = function.settings.on_error == "mask"
        try:
            data = function.pack(*self.columns(examples))
        except ExampleError as error:
            return BatchOutcome([None] * len(examples), {f.index: f.kind for f in error.failures})

        def call(given: Any, packed: Any) -> tuple[Any, Any]:
            args = self.arguments(
                mapped(self.shared, lambda place, _: given[place]),
                (packed,) if self.batched_count == 1 else packed.args,
            )
            return function, args

        parameters = floats(self.shared)
        result = jax.jit(lambda given, packed: _called(call(given, packed)))(parameters, data)
        failed: dict[int, str] = {}
        if masks:
            failed = dict.fromkeys(jnp.flatnonzero(result[1].failed).tolist(), "")
        rows = _rows(result[0] if masks else result, len(examples))
        if not self.has_derivatives(rows, examples):
            return BatchOutcome(rows, failed)
        weights = fit_examples(result[0] if masks else result, _weights(rows), len(rows), "the weights of results")
        cotangents = derivative_of(result, iter(weights))

        def pulled(given: Any, packed: Any) -> Any:
            f, args = call(given, packed)
            return vjp(f, *args)[1](cotangents)

        return BatchOutcome(rows, failed, self.entries(jax.jit(pulled)(parameters, data)))

    def columns(self, examples: list[Any]) -> list[Any]:
        """The batched arguments: a list of examples each."""
        if self.batched_count == 1:
            return [examples]
        return [list(column) for column in zip(*examples, strict=True)]

    def entries(self, pulled: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The derivatives by the shared arguments, and by each example."""
        shared = tuple(x for x, is_batched in zip(pulled, self.order, strict=True) if not is_batched)
        columns = [unbatch(x) for x, is_batched in zip(pulled, self.order, strict=True) if is_batched]
        return shared, columns[0] if self.batched_count == 1 else list(zip(*columns, strict=True))

    # -- derivatives

    def has_derivatives(self, rows: Sequence[Any], examples: list[Any]) -> bool:
        """Are there floats on both sides?"""
        return bool(self.grads and any(map(floats, rows)) and any(map(floats, (self.shared, *examples))))

    def of_derivatives(
        self, found: BatchOutcome, plain: Sequence[Plain], examples: list[Any]
    ) -> Iterator[tuple[int | None, Difference]]:
        assert found.pulled is not None
        cotangents: list[Cotangents | None] = [
            floats(w) if p.error is None else None for w, p in zip(_weights(found.rows), plain, strict=True)
        ]
        ours = Derivatives(floats(found.pulled[0]), [floats(x) for x in found.pulled[1]])
        if self.grads == "differences":
            directions = random_directions(self.shared, examples)
            wanted = slope(self.run, self.shared, examples, cotangents, directions)
            for d in differences(along(ours, directions), wanted, OF_DIFFERENCES, "slope along a direction"):
                yield None, d
            return
        theirs = traced(self.run, self.shared, examples, cotangents)
        yield from ((None, d) for d in self.of_floats(ours.shared, theirs.shared, "derivative by shared"))
        for k, (own, wanted_of_k) in enumerate(zip(ours.examples, theirs.examples, strict=True)):
            yield from ((k, d) for d in self.of_floats(own, wanted_of_k, "derivative by example"))

    def of_floats(self, found: dict[str, Any], expected: dict[str, Any], where: str) -> Iterator[Difference]:
        # packed together, arguments that share an object have its derivative each
        others = [p for p in found if p not in expected] if self.batched_count == 1 else []
        for place in [*expected, *others]:
            if place not in found or place not in expected:
                words = "a derivative where there is no float" if place in found else "no derivative"
                yield Difference(where + place, found.get(place), expected.get(place), words)
            else:
                yield from differences(found[place], expected[place], 10 * self.tolerance, where + place)


@lru_cache(maxsize=64)
def _batched(f: Callable[..., Any], shared: int) -> Batched[..., Any]:
    """A plain function, whose first arguments are shared. Kept, so that a check that is repeated compiles once."""
    return batched(f, in_axes=(*([None] * shared), 0))


def _parameters(f: Batched[..., Any], shared: int) -> dict[str, bool]:
    """The parameters that a call is given, in order, and whether they are batched."""
    axes, names = f.axes(), dict[str, bool]()
    for parameter in list(inspect.signature(f.__wrapped__).parameters.values())[f.arguments_before :]:
        axis, has_default = axes.get(parameter.name), parameter.default is not parameter.empty
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if not positional or not (axis is None or isinstance(axis, int)):
            if axis is None and has_default:
                continue
            raise BatchError(
                f"check_equivalence: parameter {parameter.name} of {f.__name__} is not simply batched or shared; "
                "check a function of positional parameters whose axes are None or 0"
            )
        taken = list(names.values())
        if has_default and (True in taken if axis is not None else taken.count(False) == shared):
            break
        names[parameter.name] = axis is not None
    takes = list(names.values()).count(False)
    if takes != shared:
        raise BatchError(f"check_equivalence: {shared} shared arguments were given, {f.__name__} takes {takes}")
    return names


def _called(call: tuple[Callable[..., Any], Sequence[Any]]) -> Any:
    function, args = call
    return function(*args)


def _rows(result: Any, size: int) -> Sequence[Any]:
    """The result of each example."""
    return unbatch(result) if jax.tree.leaves(result) else [result] * size


def _weights(rows: Sequence[Any]) -> list[Any]:
    """The cotangent of each example's result: what each of its floats weighs."""
    return [slopes(row) for row in rows]


# ---- equivalence
#
# `check_equivalence`: a batched function agrees with plain Python, on every back end.
#
#     plain Python, one example at a time         the batch, on each way of running it
#       results, or the exceptions raised    ==     results, or the failures reported
#       derivatives of all floats            ==     what `ab.vjp` pulls back
#
# Where they differ, examples are dropped from the batch as long as it still differs somewhere.


MOST_TRIES = 40
"""Batches that are run in search of the smallest one: each is a call, and may be a compilation."""


class NotEquivalent(AssertionError):
    """A batched function and plain Python differ.

    `way`: the back end, its options, and whether under `jax.jit`. `example`: its number in the batch that was given;
    None for a derivative by shared arguments. `place`, `found`, `expected`: what differs. `smallest`: the examples of
    the smallest batch that was found to differ. `at_a_jump`: plain Python gives what that batch gave, once its floats
    are changed by a few units in the last place: a comparison, a rounding or an index stands at its threshold, and
    neither is wrong. A test that draws its numbers may reject such a draw.
    """

    def __init__(
        self, name: str, first: Mismatch, size: int, smallest: list[Any], last: Mismatch, at_a_jump: bool
    ) -> None:
        self.way, self.example, self.smallest, self.at_a_jump = str(first.way), first.example, smallest, at_a_jump
        self.place, self.found, self.expected = (
            first.difference.place,
            first.difference.found,
            first.difference.expected,
        )
        lines = [f"{name} on {first.way} differs from plain Python", f"  {first}"]
        if len(smallest) < size:
            lines += [f"  {len(smallest)} of the {size} examples are enough; with these: {last}"]
        if at_a_jump:
            lines.append("  plain Python jumps there: floats that differ in the last place give what the batch gave")
        lines += [f"    [{k}] {_shown(x)}" for k, x in enumerate(smallest)]
        super().__init__("\n".join(lines))


def _shown(example: Any) -> str:
    text = repr(example)
    return text if len(text) <= 2000 else f"{text[:2000]} ..."


def check_equivalence(
    f: Callable[..., Any],
    examples: Sequence[Any],
    shared: Sequence[Any] = (),
    *,
    grads: bool | Literal["differences"] = True,
    jit: bool = True,
    backends: Sequence[str] = ("interpret", "xla"),
    options: Sequence[Mapping[str, Any]] = (),
    tolerance: float | None = None,
) -> None:
    """Check that a batched function gives what plain Python gives for each example, on every back end.

    Compared are results (integers, strings and structure exactly), which examples fail and with which exception, and
    derivatives: all floats of the results, weighed, by the floats of the shared arguments and by those of the examples.
    Failed examples leave the others alone, so examples that fail are welcome in a batch.

    Args:
      f: a function made by `ab.batched`; or a plain one, whose last argument is batched and whose others are shared.
      examples: a list of examples, or a Batch. Where `f` has several batched arguments, each example is a tuple of
        them. Batched arguments with a default keep it.
      shared: the arguments without an axis, in their order.
      grads: True compares derivatives with those that JAX takes of plain Python, "differences" with difference
        quotients along one direction (JAX with 64 bits only), False compares none. JAX sees no derivative of what is
        Python's own (`math.sin`, `float(x)`), and takes the path that the example takes; a quotient goes wrong where
        the function jumps or has a kink.
      jit: run the batch inside `jax.jit` too, packed, with its floats and the shared ones traced.
      backends: the back ends that are checked.
      options: further ways to run the last of them: for each entry once with these options of `ab.options`.
      tolerance: of floats, relative and absolute: 1e-9 with 64 bits, else 1e-5; ten times that for derivatives.

    Raises:
      NotEquivalent: they differ. The message names the back end, the example, the place in its result and both values,
        and the examples of the smallest batch that was found to differ, and says where plain Python jumps.
      UnsupportedError, TypeConflictError, BatchError: what a call of `f` raises.

    >>> check_equivalence(lambda scale, words: scale * sum(words), [[1.0, 2.5], [], [4.0]], (0.5,))
    """
    subject = Subject(f, list(examples), tuple(shared), grads, tolerance)
    ways = [Way(b, {}, under) for b in backends for under in ((False, True) if jit else (False,))]
    ways += [Way(backends[-1], dict(values), False) for values in options]
    everything = tuple(range(len(subject.examples)))
    for way in ways:
        first = subject.mismatch(way, everything)
        if first is not None:
            smallest, last = _smallest(partial(subject.mismatch, way), everything, first)
            held = [subject.examples[k] for k in smallest]
            jumps = subject.jumps(way, smallest)
            raise NotEquivalent(subject.name, first, len(everything), held, last, jumps)


Numbers = tuple[int, ...]


def _smallest(
    check: Callable[[Numbers], Mismatch | None], failing: Numbers, first: Mismatch
) -> tuple[Numbers, Mismatch]:
    """Examples of which none can be dropped (in so many tries): first to one alone, then by halves, quarters, ..."""
    last, tries = first, 0
    for smaller in _candidates(failing, first.example):
        found = check(smaller)
        tries += 1
        if found is not None:
            return smaller, found
    size = len(failing) // 2
    while size and tries < MOST_TRIES:
        for start in range(0, len(failing), size):
            smaller = failing[:start] + failing[start + size :]
            found = check(smaller) if smaller else None
            tries += 1
            if found is not None:
                failing, last = smaller, found
                break
        else:
            size //= 2
    return failing, last


def _candidates(failing: Numbers, example: int | None) -> Iterator[Numbers]:
    """Single examples, the one that differs first."""
    if len(failing) == 1:
        return
    yield from ((k,) for k in ([failing[example]] if example is not None else failing[:8]))
