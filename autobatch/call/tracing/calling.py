"""Calls that are to be traced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from autobatch.call.arguments import BoundArguments
from autobatch.call.batches.data import Examples
from autobatch.call.prepared import Prepared
from autobatch.call.tracing.structure import Make
from autobatch.errors import BatchError
from autobatch.options import Options


class TracedFunction(Protocol):
    """A batched function, as far as its traces know it."""

    __name__: str
    __wrapped__: Callable[..., Any]
    planner: Any
    settings: Any

    def prepare(self, bound: BoundArguments, chosen: Options, runs: bool, *, derives: bool) -> Prepared: ...


@dataclass(frozen=True)
class TraceRequest:
    """A call that is to be traced. `refused`: what the compiler said, for the first one. `runs`: nothing but to run it;
    `derives`: it is differentiated. `over` makes another function batched like this one, for the program over traces;
    `examples` packs the call's."""

    function: TracedFunction
    bound: BoundArguments
    refused: Exception | None
    chosen: Options
    runs: bool
    derives: bool
    over: Make
    examples: Callable[[], Examples]

    @property
    def masks(self) -> bool:
        """May examples fail?"""
        return bool(self.function.settings.on_error == "mask")

    def prepared(self, function: Any, args: tuple[Any, ...]) -> Prepared:
        """A call of the program over traces."""
        bound = function.bound(args, {})
        found: Prepared = function.prepare(bound, replace(self.chosen, trace=False), self.runs, derives=self.derives)
        return replace(found, bound=bound)

    def compiled(self) -> Prepared:
        """The call, whatever else might be traced."""
        return self.function.prepare(self.bound, replace(self.chosen, trace=False), self.runs, derives=self.derives)

    def packed(self, moving: bool) -> Examples | None:
        """Its examples, where they are packed, or have to be."""
        traced = is_traced(self.bound)
        if not (moving or traced or all(s.kind == "batch" for s in self.bound.slots)):
            return None
        try:
            return self.examples()
        except BatchError:
            if traced:
                raise
            return None  # of objects that cannot be packed there are traces, but no derivatives


def is_traced(bound: BoundArguments) -> bool:
    """Does JAX trace a batched argument?"""
    return any(s.is_traced or (s.kind == "batch" and s.values.is_traced) for s in bound.slots)
