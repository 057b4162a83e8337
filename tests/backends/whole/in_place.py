"""Programs that change arrays, as text: drawn statement by statement."""

from __future__ import annotations

import random
from collections.abc import Iterator

SIZE = 20
HEAD = """import jax.numpy as jnp


def changed(a, b, x, k):
    s, n = x, 0
"""


def program(seed: int, branches: bool = False) -> str:
    """A function `changed(a, b, x, k)` of two arrays of `SIZE` numbers, a number and an index. `branches`: many, both
    of whose arms change arrays, inside each other and inside loops."""
    block = _branches if branches else _block
    lines = list(block(random.Random(seed), depth=0, loops="m"))
    return HEAD + "".join(f"    {line}\n" for line in lines) + "    return a, b, s\n"


def of_stores(seed: int) -> str:
    """A function of the same whose arrays change here and there alone, in branches and loops of all kinds; it returns a
    number that depends on all of them."""
    lines = list(_stores(random.Random(seed), depth=0))
    weighed = "jnp.sum(a * jnp.arange(1.0, 1.0 + a.shape[0])) + jnp.sum(b * b) + s"
    return HEAD + "".join(f"    {line}\n" for line in lines) + f"    return {weighed}\n"


def _stores(draw: random.Random, depth: int) -> Iterator[str]:
    for _ in range(draw.randint(2, 4)):
        kind, turn = draw.random(), f"m{depth}"
        heads = [f"range({draw.randint(2, 4)})", f"range(k % {draw.randint(2, 5)} + 1)"]
        if depth == 3 or kind > 0.62:
            yield _store(draw)
        elif kind < 0.3:
            yield draw.choice(
                [f"if s > {draw.randint(-1, 1)}:", f"if k % 3 == {draw.randrange(3)}:", "if a[k] > b[k]:"]
            )
            yield from (f"    {line}" for line in _stores(draw, depth + 1))
            if draw.random() < 0.6:
                yield "else:"
                yield from (f"    {line}" for line in _stores(draw, depth + 1))
        elif kind < 0.5:
            yield f"for {turn} in {draw.choice(heads)}:"
            yield from (f"    {line}" for line in _stores(draw, depth + 1))
        else:
            yield f"{turn} = 0"
            yield f"while {turn} < k % {draw.randint(2, 6)} + 1 and s < 50.0:"
            yield f"    {turn} += 1"
            yield from (f"    {line}" for line in _stores(draw, depth + 1))


def _names(draw: random.Random, most: int, *more: str) -> tuple[str, str, str, int, int, int]:
    """Two arrays, a place, and of two slices where they begin and how long they are: at most so many."""
    to, of = draw.choice("ab"), draw.choice("ab")
    place = draw.choice([str(draw.randrange(SIZE)), "k", f"(k + {draw.randrange(SIZE)}) % {SIZE}", *more])
    return to, of, place, draw.randrange(8), draw.randrange(8), draw.randint(2, most)


def _store(draw: random.Random) -> str:
    to, of, place, low, other, n = _names(draw, 6, f"(k + n) % {SIZE}")
    return draw.choice(
        [
            f"{to} = {to}.at[{place}].set(s)",
            f"{to} = {to}.at[{place}].set({to}[{low}] * 0.5 + {of}[k] * s * 0.1)",
            f"{to} = {to}.at[{place}].set(jnp.sin({of}[{other}]) + {to}[{place}])",
            f"{to} = {to}.at[{low}:{low + n}].set({of}[{other}:{other + n}] * 0.9)",
            f"s = s * 0.7 + jnp.tanh({of}[{place}])",
            f"s = {to}[{place}] * {of}[{low}] * 0.3",
            f"s = 0.2 * s + {to}[{place}]",
            "n = n + 1",
        ]
    )


def _block(draw: random.Random, depth: int, loops: str) -> Iterator[str]:
    for _ in range(draw.randint(2, 5)):
        kind = draw.random()
        if depth < 2 and kind < 0.15:
            yield f"for {loops} in range({draw.randint(2, 4)}):"
            yield from _indented(draw, depth, loops)
        elif depth < 2 and kind < 0.3:
            count = f"n{depth}"
            yield f"{count} = 0"
            yield f"while {count} < k % {draw.randint(2, 5)} + 1:"
            yield f"    {count} += 1"
            yield from _indented(draw, depth, loops)
        elif depth < 2 and kind < 0.4:
            yield f"if s > {draw.randint(-2, 2)}:"
            yield from _indented(draw, depth, loops)
        else:
            yield _statement(draw)


def _branches(draw: random.Random, depth: int, loops: str) -> Iterator[str]:
    for _ in range(draw.randint(1, 3)):
        kind = draw.random()
        if depth < 3 and kind < 0.5:
            yield draw.choice(
                [f"if s > {draw.randint(-2, 2)}:", f"if k % 3 == {draw.randrange(3)}:", "if a[k] > b[k]:"]
            )
            yield from (f"    {line}" for line in _branches(draw, depth + 1, loops))
            if draw.random() < 0.6:
                yield "else:"
                yield from (f"    {line}" for line in _branches(draw, depth + 1, loops))
        elif depth < 2 and kind < 0.7:
            head = draw.choice([f"range({draw.randint(2, 4)})", f"range(k % {draw.randint(2, 5)} + 1)"])
            yield f"for {loops} in {head}:"
            yield from (f"    {line}" for line in _branches(draw, depth + 1, loops + "m"))
        else:
            yield _statement(draw)


def _indented(draw: random.Random, depth: int, loops: str) -> Iterator[str]:
    yield from (f"    {line}" for line in _block(draw, depth + 1, loops + "m"))


def _statement(draw: random.Random) -> str:
    to, of, place, low, other, n = _names(draw, 12)
    return draw.choice(
        [
            f"{to} = {of}.at[{place}].set(s)",
            f"{to} = {of}.at[{place}].add(0.5 * {to}[k])",
            f"{to} = {of}.at[{low}:{low + n}].set({to}[{other}:{other + n}])",
            f"{to} = {of}.at[{low}:{low + n}].set({of}[{other}:{other + n}])",
            f"{to} = {to}.at[{place}].set({to}[{low}] + {of}[k])",
            f"{to} = 0.5 * {of}[::-1] + 0.25 * {to}",
            f"{to} = jnp.roll({of}, {low})",
            "a, b = b, a",
            f"a, b = b.at[{place}].set(s), a.at[{low}].set(b[{other}])",
            f"s = {of}[{place}] - 0.5 * s",
            f"s = ({to} * {of}).sum() / {SIZE} - {of}[0]",
            f"s = jnp.minimum(jnp.maximum(s, -4.0), 4.0) + {of}[{low}]",
        ]
    )
