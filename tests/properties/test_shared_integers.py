"""Random functions of shared integers, a bool and a tree: the batched call gives what plain Python gives.

The programs mix what integers may do: arithmetic, comparisons, loops that they count, indices and slices that they
choose, arguments of recursion that they become; some examples fail.
"""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab


@dataclass
class Tree:
    x: float
    k: int
    kids: list[Tree] = field(default_factory=list)


class Writer:
    """Writes the text of a function. Every choice comes from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def integer(self) -> str:
        return self.rng.choice(
            "n|m|n - 1|n + m|abs(m)|n * m|max(n, m)|len(t.kids)|t.k|t.k + n|(n if n > m else m)|n % 3|t.k - m".split(
                "|"
            )
        )

    def condition(self) -> str:
        bound = self.rng.randint(-1, 2)
        return self.rng.choice(
            [
                f"{self.integer()} > {bound}",
                f"{self.integer()} == {bound}",
                "flag",
                f"not flag and {self.integer()} > 0",
                f"{self.integer()} < {self.integer()}",
                "t.kids",
                "t.k in (n, 1)",
            ]
        )

    def number(self) -> str:
        n = self.integer()
        return self.rng.choice(
            [
                f"t.x * ({n})",
                f"t.x + ({n})",
                f"(t.x if {self.condition()} else -t.x)",
                f"t.x / (1 + abs({n}))",
                "jnp.where(n > m, t.x, 1.0)",
                "jnp.where(flag, t.x, n)",
                f"sum(c.x * ({n}) for c in t.kids)",
                f"sum(i * t.x for i in range({self.count()}))",
            ]
        )

    def count(self) -> str:
        return self.rng.choice("n|m|t.k|abs(m)|n - 1".split("|"))

    def block(self, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        match self.rng.randint(0, 6) if depth else 0:
            case 3:
                return [f"if {self.condition()}:", *indented(self.block(depth - 1))]
            case 4:
                leave = [f"    if i > {self.integer()}: break"] if self.rng.random() < 0.3 else []
                return [f"for i in range({self.count()}):", *indented(self.block(depth - 1)), *leave]
            case 5:
                again = f"f(n {self.rng.choice(['- 1', '// 2'])}, m{self.rng.choice([' + 1', ''])}, flag, c)"
                return [f"for c in t.kids[:{self.count()}]: acc = acc + {again} if n > 0 else acc"]
            case 6:
                index = self.rng.choice(["0", "n", "m", "-1"])
                return [f"acc = acc + (f(n - 1, m, flag, t.kids[{index}]) if n > 0 and len(t.kids) > 1 else 0.0)"]
            case _:
                return [f"acc = acc + {self.number()}"]


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def tree(rng: random.Random, depth: int) -> Tree:
    kids = [tree(rng, depth - 1) for _ in range(rng.randint(0, 3))] if depth else []
    return Tree(rng.random(), rng.randint(0, 3), kids)


def outcome(function: Any, *args: Any) -> float | str:
    try:
        return float(function(*args))
    except (IndexError, ZeroDivisionError) as error:
        return type(error).__name__


def check(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    body = textwrap.indent("\n".join(Writer(rng).block(2)), "    ")
    text = f"def f(n, m, flag, t):\n    acc = 0.0\n{body}\n    return acc\n"
    file = folder / f"program{seed}.py"
    file.write_text(text)
    names: dict[str, Any] = {"jnp": jnp, "__name__": f"program{seed}"}
    exec(compile(text, str(file), "exec"), names)
    f = ab.batched(names["f"], in_axes=(None, None, None, 0), on_error="mask")
    trees = [tree(rng, 2) for _ in range(3)]
    data = ab.pack(trees).plan(f)
    for _ in range(3):
        shared = rng.randint(-1, 3), rng.randint(-2, 2), rng.random() < 0.5
        values, failures = f(*shared, data)
        found: list[float | str] = [float(v) for v in np.asarray(values)]
        for failure in failures:
            found[failure.index] = failure.kind
        expected = [outcome(names["f"], *shared, t) for t in trees]
        for got, want in zip(found, expected, strict=True):
            assert (got == want) if isinstance(want, str) else np.isclose(float(got), want, rtol=1e-4, atol=1e-4), (
                f"{shared}: {found}, not {expected}\n{text}"
            )
    assert f.cache_info().specialisations <= 2, f"one program for each value of the bool\n{text}"


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed, tmp_path):
    check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 80))
def test_many_random_programs(seed, tmp_path):
    check(seed, tmp_path)
