"""What each pass of the list makes of a program, before and after, as golden files: of the programs here, the smallest
that the pass changes. What is before and after is read back as it was written, and well formed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.compiler.passes import PASSES, Pass, PassManager
from autobatch.ir.core import Module
from autobatch.ir.printer import dump, parse, print_module
from autobatch.ir.system import System, print_system
from autobatch.ir.verifier import verify
from autobatch.passes.fission import Schedule, print_schedule


@dataclass
class Node:
    value: float
    children: list[Node] = field(default_factory=list)


@dataclass
class Pair:
    value: float
    left: Pair | None = None
    right: Pair | None = None


def energy(w, t):
    return w * t.value + sum([energy(w, c) for c in t.children]) / 2


def encoded(w, t):
    if t.left is None:
        return jnp.tanh(w[0] * t.value)
    a, b = encoded(w, t.left), encoded(w, t.right)
    return jnp.tanh(w @ a + w @ b) if t.value > 0 else a


def shared_work(w, t):
    return jnp.tanh(w * t.value) + sum([shared_work(w, c) for c in t.children])


def below(w, t):
    s = 0.0
    while t.left is not None:
        t = t.left
        s = s + w * t.value
    return s


def halved(x):
    return x * 0.5


def settled(x):
    n = 0
    while x > 1.0:
        x = halved(x) + 0.0 * (halved(x) - halved(x))
        n += 1
    return x, n


def collected(x):
    found = [x]
    while found[-1] > 1.0:
        found.append(found[-1] * 0.5)
    return found


def counted(xs, n):
    s = 0.0
    for k in range(3):
        s = s + k * n
    return s + sum(range(n))


def slope(w, x):
    return ab.grad(lambda w: w * x * x if x > 0 else w)(w)


def reached(w, x):
    return x * w if x < 0.3 else reached(w, x * 0.5) + reached(w, x - 0.4)


def chosen(pair):
    a, b = pair
    return (a if a.value > 1.0 else b).value


def spelt(x):
    return "big" if x > 1.0 else "small"


def joined(pair):
    word, x = pair
    return len(word.upper() + ("!" if x > 0 else ""))


def taken(w, t):
    return w[int(t.value * w[1])]


def made(xs):
    squares = [x * x for x in xs]
    return sum(s * 2.0 for s in squares)


def nearest(points, x):
    best = points[0]
    for p in points:
        if abs(p.value - x) < abs(best.value - x):
            best = p
    return best.value


def best(w, xs):
    found = xs[0]
    for x in xs:
        if x.value * w > found.value:
            found = x
    return sum([c.value for c in found.children])


def lengths(pair):
    word, n = pair
    s = 0
    for k in range(n):
        s = s + len(word.upper()) * k
    return s


def sign(w, pair):
    word, x = pair
    found = word if x * w > 0 else "minus"
    return found == "a", found


def waves(w, t):
    x = w * t.value
    for k in range(40):
        x = jnp.sin(x) + k
    return x


def at(w, t):
    s = 0.0
    for k in range(40):
        s = s * t.value + w[k]
    return s


def unused(xs):
    _ = xs[1]
    return len(xs)


def embedded(w, xs):
    h = 0.0
    for x in xs:
        h = jnp.tanh(h + w[x] @ w)
    return h


def behind_a_branch(w, t):
    x = w[0] * t.value if t.left is None else behind_a_branch(w, t.left) + behind_a_branch(w, t.right)
    return jnp.tanh(x @ w)


def scored(w, t):
    """A product of what a branch gives, which is narrower than that."""
    if t.left is None:
        h, below = jnp.tanh(w[0] * t.value), 0.0
    else:
        (a, x), (b, y) = scored(w, t.left), scored(w, t.right)
        h, below = jnp.tanh(a @ w + b), x + y
    return h, below + (h @ w[:, :1]).sum()


TREE = Node(1.0, [Node(2.0), Node(3.0, [Node(2.0)])])
PAIRS = Pair(1.0, Pair(-2.0, Pair(3.0), Pair(4.0)), Pair(5.0))
W = jnp.eye(3) * 0.5
POINTS = [Node(1.0), Node(4.0)]


class Case(NamedTuple):
    """A function, where its examples are among its arguments, and these."""

    function: Callable[..., Any]
    axes: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any] = {}


CASES = [
    Case(energy, (None, 0), (2.0, [TREE])),
    Case(encoded, (None, 0), (W, [PAIRS])),
    Case(shared_work, (None, 0), (2.0, [TREE])),
    Case(below, (None, 0), (2.0, [PAIRS])),
    Case(settled, 0, (jnp.asarray([8.0]),)),
    Case(collected, 0, (jnp.asarray([8.0]),)),
    Case(counted, (0, None), ([[1.0]], 4)),
    Case(slope, (None, 0), (2.0, jnp.asarray([3.0]))),
    Case(reached, (None, 0), (0.7, jnp.asarray([2.0]))),
    Case(chosen, 0, ([(Node(1.0), Node(2.0))],)),
    Case(spelt, 0, (jnp.asarray([2.0]),)),
    Case(joined, 0, ([("ab", 1.0)],)),
    Case(taken, (None, 0), (np.arange(4.0, dtype=np.float32), [TREE]), {"on_error": "mask"}),
    Case(made, 0, ([[1.0, 2.0]],)),
    Case(nearest, (None, 0), (POINTS, jnp.asarray([2.0]))),
    Case(best, (None, 0), (0.5, [[TREE, Node(2.0, [TREE])]])),
    Case(unused, 0, ([[1.0, 2.0]],)),
    Case(behind_a_branch, (None, 0), (W, [PAIRS])),
    Case(lengths, 0, ([("ab", 3)],)),
    Case(sign, (None, 0), (0.5, [("a", 1.0)])),
    Case(waves, (None, 0), (2.0, [PAIRS])),
    Case(at, (None, 0), (np.arange(40.0, dtype=np.float32), [TREE])),
    Case(embedded, (None, 0), (W, [[1, 2, 1]])),
    Case(scored, (None, 0), (W, [PAIRS])),
]


class Ran(NamedTuple):
    case: Case
    backend: str
    before: Any
    after: Any


def text_of(program: Any) -> str | None:
    match program:
        case Module():
            return print_module(program)
        case System():
            return print_system(program)
        case Schedule():
            return print_schedule(program)
        case tuple() if program:
            return text_of(program[0])
    return text_of(program.module) if hasattr(program, "module") else None


@pytest.fixture(scope="module")
def ran() -> dict[str, list[Ran]]:
    """What each pass has made of what, in all cases."""
    found: dict[str, list[Ran]] = {p.name: [] for p in PASSES}
    run = PassManager.run
    where: list[Any] = [None, None]

    def noted(self: PassManager, one: Pass[..., Any], *args: Any, **kwargs: Any) -> Any:
        after = run(self, one, *args, **kwargs)
        found[one.name].append(Ran(*where, args[0], after))
        return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassManager, "run", noted)
        for case in CASES:
            for backend in ("xla", "llvm"):
                where[:] = case, backend
                f = ab.batched(case.function, in_axes=case.axes, backend=backend, **case.options)
                with ab.options(trace=False):
                    f.lower(*case.arguments)
    return found


OTHERS = {"structure", "indices"}
"""The one makes facts, no program; the other drops what only shared integers under `jax.jit` leave."""


@pytest.mark.parametrize("one", [p for p in PASSES if p.name not in OTHERS], ids=lambda p: p.name)
def test_before_and_after(one, ran, golden):
    changed = [(text_of(r.before), text_of(r.after), r) for r in ran[one.name]]
    changed = [(b, a, r) for b, a, r in changed if a is not None and a != b]
    assert changed, "no program here is changed by it"
    for program in (x for _, _, r in changed for x in (r.before, r.after) if isinstance(x, Module)):
        verify(program)
        if "= blocks[" not in print_module(program):  # which no text has in full
            assert print_module(parse(dump(program))) == print_module(program)
    before, after, r = min(changed, key=lambda c: len(c[1]) + len(c[0] or ""))
    heading = f"{one.name}: {one.when}\n\n{r.case.function.__name__}, {r.backend}\n"
    before, after = (re.sub(r"Span\([^)]*\)", "Span(...)", text or "(Python)\n") for text in (before, after))
    golden("passes", one.name, f"{heading}\n---- before\n{before}\n---- after\n{after}")
