"""The ways to run a batched function on some examples, and where one of them differs from plain Python."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.api.batched import Batched, batched
from autobatch.api.derivatives import vjp
from autobatch.call.gradients import derivative_of, fit_examples
from autobatch.call.results import unbatch
from autobatch.errors import BatchError, ExampleError
from autobatch.options import options
from autobatch.testing import gradients
from autobatch.testing.compare import Difference, default_tolerance, differences
from autobatch.testing.gradients import Cotangents
from autobatch.testing.numbers import floats, mapped, moved, roundings, slopes

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
        ours = gradients.Derivatives(floats(found.pulled[0]), [floats(x) for x in found.pulled[1]])
        if self.grads == "differences":
            directions = gradients.random_directions(self.shared, examples)
            wanted = gradients.slope(self.run, self.shared, examples, cotangents, directions)
            for d in differences(gradients.along(ours, directions), wanted, OF_DIFFERENCES, "slope along a direction"):
                yield None, d
            return
        theirs = gradients.traced(self.run, self.shared, examples, cotangents)
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
