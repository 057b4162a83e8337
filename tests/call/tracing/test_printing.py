"""What traced functions print: as the loop prints it, example by example, when the numbers are known."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import autobatch as ab

pytestmark = pytest.mark.usefixtures("quiet")

BATCH = [[0.5, 1.25], [2.0], [], [0.25, 3.0, 1.0]]
OFFSET = jnp.float32(2.0)


@dataclass
class Cell:
    value: Any

    def __str__(self) -> str:
        return f"<{float(self.value):.2f}>"


def structure(w: Any, xs: list[float]) -> Any:
    print("n", len(xs), sep="=")
    for k in range(len(xs)):
        print(k, end=" ")
    print()
    return w * len(xs)


def numbers(w: Any, xs: list[float]) -> Any:
    total = 0.0 * w
    for k, x in enumerate(xs):
        total = total + w * x
        print("turn", k, f"{total:.3f}" + f", of {len(xs)}: {x:8.2f}|", f"{w}")
    return total


def containers(w: Any, xs: list[float]) -> Any:
    held = [1, "a"]
    print(held, Cell(2.5))
    print(Cell(w * len(xs)), {"n": len(xs)})
    held.append(len(xs))
    print(held, jnp.ones(2), file=sys.stdout, flush=True)
    return w


def arrays(w: Any, xs: list[float]) -> Any:
    print(jnp.ones(2) * w * len(xs) + OFFSET)
    return w


PROGRAMS = (structure, numbers, containers, arrays)


def printed(run: Callable[[], Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as found:
        jax.block_until_ready(run())
        jax.effects_barrier()
    return found.getvalue()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_the_loop_prints(program: Callable[..., Any]) -> None:
    f, w = ab.batched(program, in_axes=(None, 0)), jnp.float32(1.5)
    wanted = printed(lambda: f.loop(w, BATCH))
    assert len(wanted.splitlines()) >= len(BATCH)
    for _ in range(2):  # at every call
        assert printed(lambda: f(w, BATCH)) == wanted
    data = ab.pack(BATCH).plan(f)
    assert printed(lambda: f(w, data)) == printed(lambda: f(w, data)) == wanted
    assert printed(lambda: jax.jit(f)(w, data)) == wanted
    assert printed(lambda: ab.unbatch(f(w, data))) == wanted


def test_derivatives_print_once() -> None:
    f, w = ab.batched(numbers, in_axes=(None, 0)), jnp.float32(1.5)
    wanted = printed(lambda: f.loop(w, BATCH))
    assert printed(lambda: ab.value_and_grad(f)(w, BATCH)) == wanted
    assert printed(lambda: jax.grad(lambda w: f(w, BATCH).sum())(w)) == wanted


def test_another_stream_and_a_file() -> None:
    def written(w: Any, xs: list[float]) -> Any:
        file = io.StringIO()
        print(len(xs), file=file)
        print("to stderr", file=sys.stderr)
        return file.getvalue(), w

    f = ab.batched(written, in_axes=(None, 0))
    with contextlib.redirect_stderr(io.StringIO()) as found:
        assert [text for text, _ in ab.unbatch(f(1.0, BATCH))] == ["2\n", "1\n", "0\n", "3\n"]
    assert found.getvalue().count("to stderr\n") == 4


def test_examples_that_fail_print_nothing() -> None:
    def failing(w: Any, xs: list[float]) -> Any:
        print(len(xs))
        return w * xs[1]

    f = ab.batched(failing, in_axes=(None, 0), on_error="mask")
    assert printed(lambda: f(1.0, BATCH)) == "2\n3\n"


def shown(w: Any, xs: list[float]) -> Iterator[Any]:
    """Where the text of a number may be looked at, it is asked for."""
    text = f"{w:.2f}"
    print(text)
    yield len(text)


def inner(w: Any, xs: list[float]) -> Any:
    print(f"{len(f'{w}')}")
    return w


def listed(w: Any, xs: list[float]) -> Any:
    print("held", str([w]))
    return w


@pytest.mark.parametrize("program", (lambda w, xs: next(shown(w, xs)), inner, listed))
def test_texts_that_are_looked_at_are_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(ab.UnsupportedError) as caught:
        ab.batched(program, in_axes=(None, 0))(jnp.float32(1.0), BATCH)
    assert "asks for a computed number" in "".join(caught.value.__notes__)


def test_print_is_itself_again() -> None:
    before = print
    ab.batched(structure, in_axes=(None, 0))(1.0, [[1.0]])
    assert print is before
