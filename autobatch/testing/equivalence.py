"""`check_equivalence`: a batched function agrees with plain Python, on every back end.

    plain Python, one example at a time         the batch, on each way of running it
      results, or the exceptions raised    ==     results, or the failures reported
      derivatives of all floats            ==     what `ab.vjp` pulls back

Where they differ, examples are dropped from the batch as long as it still differs somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from autobatch.testing.ways import Mismatch, Subject, Way

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
