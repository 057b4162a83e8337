"""The arguments of a call without their numbers: with symbols in their place the function runs, once for each example.

f({"W": array, "n": 3}, xs)   ->   ({"W": Input(0), "n": 3}, Slot)
"""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.call.arguments import ArgumentNode, ArgumentSlot, BoundArguments, Form, Raw
from autobatch.call.plain import plainly
from autobatch.call.sharing import Sharing
from autobatch.call.tracing.asked import AskedError
from autobatch.call.tracing.copying import TraceCopier
from autobatch.call.tracing.filled import Filling, filling
from autobatch.call.tracing.free import FreeVariables
from autobatch.call.tracing.graphs import ResultGraph
from autobatch.call.tracing.guards import checked
from autobatch.call.tracing.intercepted import noted, noting_of
from autobatch.call.tracing.log import ExampleNumber, Kinds, Log, TooLongError, TracedRun
from autobatch.call.tracing.printing import RunPrinting, noted_in
from autobatch.call.tracing.record import UserCode, record
from autobatch.call.tracing.recording import Recording
from autobatch.call.tracing.symbols import Symbol
from autobatch.call.tracing.templates import Type, type_of
from autobatch.ir.template import Input
from autobatch.source import NOWHERE, Span

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

        copies = TraceCopier(symbol).copy(list(values))
        shared = recording.all_shared(self.types)
        args, kwargs = self._filled(shared, copies)
        leaves: list[Any] = []
        printing = RunPrinting(leaves, Symbol, lambda x: isinstance(x, Symbol))
        with jax.ensure_compile_time_eval(), plainly(), noted(recording), noted_in(printing):
            structure = ResultGraph(leaves, Symbol).whole(self.function(*args, **kwargs))
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
        numbers: list[ExampleNumber] = []

        def note(x: Any) -> Any:
            numbers.append(x if isinstance(x, ExampleNumber) else ExampleNumber.of(x))
            return x

        TraceCopier(note).copy(list(values))
        hidden = {id(x): len(self.shared) + k for k, x in enumerate(free.arrays.values())}

        def run(symbols: Sequence[Any]) -> tuple[list[Any], Any]:
            given = iter(symbols[len(self.shared) :])
            args, kwargs = self._filled(symbols, TraceCopier(lambda _: next(given)).copy(list(values)))
            leaves: list[Any] = []
            printing = RunPrinting(leaves, Symbol, lambda x: isinstance(x, jax.core.Tracer))
            with noted_in(printing):
                found = self.function(*args, **kwargs)
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
