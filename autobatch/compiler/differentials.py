"""The executables of a program's derivatives: one for a value with its gradient, two for a pullback, by size class.

`compute(shared, tables, signature)` is the program. A `Wrt` says which of its inputs move; results are flattened to
their floats, which are all that a derivative has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from autobatch.backends.interface import Mode
from autobatch.common.cache import Bounded
from autobatch.common.runtime import until_ready
from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.jax_compat import as_one_over_axes

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
