"""Strings, enum members and objects of the examples in memory: as keys of dicts that others hold, as elements of lists
that are changed, as fields of objects that are linked, and of all of these as results."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import pytest

import autobatch as ab
from autobatch.testing import check_equivalence

LONG = pytest.mark.long
BACKENDS = ["interpret", "llvm", pytest.param("xla", marks=LONG)]
ONE = jnp.float32(1.1)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Tree:
    value: float
    name: str
    children: list[Tree]


@dataclass
class Frame:
    node: Tree | None
    kids: list[Tree]
    label: str | None
    below: Frame | None


@dataclass
class Dot:
    color: Color
    text: str
    next: Dot | None


def chart(w: Any, sentence: Any) -> Any:
    """Keys that are added to the dicts of a list: constant, chosen, words of the example, enum members."""
    words, x = sentence
    y, rows, colors = w * x, [{} for _ in range(3)], [{} for _ in words]
    for i, word in enumerate(words):
        rows[i % 3]["noun" if y > 1.0 else "verb"] = y
        if y > 1.4:
            rows[0][word] = 2.0 * y
        colors[i][Color.RED if y > 1.0 else Color.BLUE] = word
        y = y * 1.4
    return rows, colors, rows[0].get("noun", 0.0), "the" in rows[0]


def counts(w: Any, sentence: Any) -> Any:
    """Dicts of dicts: `defaultdict` of `Counter`, of dict and of a function, and `setdefault`."""
    words, x = sentence
    y, last = w * x, "<s>"
    seen, sums, pairs, graph = defaultdict(Counter), defaultdict(dict), defaultdict(lambda: defaultdict(float)), {}
    for word in words:
        tag = "big" if y > 1.2 else "small"
        seen[last][tag] += 1
        sums[tag]["last"] = y
        pairs[last, tag][word] += y
        if y > 0.5:
            graph.setdefault(last, {})[word] = y
            last = word
        y = y * 1.4
    total = sum(sum(d.values()) for d in pairs.values())
    return total + seen["<s>"]["small"], sums["big"].get("last", 0.5), graph, len(pairs)


def groups(w: Any, sentence: Any) -> Any:
    """Records that hold lists of words, and lists of such lists."""
    words, x = sentence
    y, parts = w * x, [["<s>"]]
    held = {"low": {"words": [], "sum": 0.0}, "high": {"words": [], "sum": 0.0}}
    for word in words:
        if y > 1.0:
            parts.append([])
        parts[-1].append(word)
        one = held["high" if y > 1.0 else "low"]
        one["words"].append(word)
        one["sum"] += y
        y = y * 1.4
    return held, parts, parts[-1][-1], sum(1 for p in parts if "the" in p)


def dots(w: Any, sentence: Any) -> Any:
    """Objects with strings and enum members, linked, changed and returned."""
    words, x = sentence
    y, head = w * x, None
    for word in words:
        head = Dot(Color.RED if y > 1.0 else Color.BLUE, word, head)
        y = y * 1.4
    if head is not None and head.next is not None and y > 2.0:
        head.next.text = "changed"
    return head


def adds(w: Any, sentence: Any) -> Any:
    """A key that is added makes the records dicts of any keys."""
    words, x = sentence
    y, rows = w * x, [{"n": 0.0, "s": w}]
    for word in words:
        if y > 1.0:
            rows[0][word] = y
        y = y * 1.4
    return rows


def tagger(w: Any, sentence: Any) -> Any:
    """The best tags, by pointers back: dicts of tags, kept in a list, in loops that are functions of their turn."""
    words, x = sentence
    y, back, score = w * x, [], {"N": w * x, "V": 0.3}
    for _ in words:
        new, pointers = {}, {}
        for tag in ("N", "V"):
            best, of = -1.0, "N"
            for last in ("N", "V"):
                value = score[last] * (0.9 if last == tag else 0.4) + 0.1 * y
                if value > best:
                    best, of = value, last
            new[tag], pointers[tag] = best, of
        score, y = new, y * 0.7
        back.append(pointers)
    tag = "N" if score["N"] > score["V"] else "V"
    tags = [tag]
    for pointers in reversed(back):
        tag = pointers[tag]
        tags.append(tag)
    return tags


def beam(w: Any, sentence: Any) -> Any:
    """Lists of constant words that grow, sorted by their scores."""
    beams, k = [(w * sentence[1], [])], 0
    while beams[0][0] < 3.0 and k < 3:
        new = []
        for score, tags in beams:
            for tag in ("N", "V"):
                new.append((score * (1.3 if tag == "N" else 1.2), [*tags, tag]))
        new.sort(key=lambda one: -one[0])
        beams, k = new[:2], k + 1
    return beams[0]


SENTENCES = [(["the", "cat", "sat"], 0.9), (["a", "dog"], 2.2), (["cat", "the"], 0.3), (["a"], 3.5)]


def frames(w: Any, tree: Tree) -> Any:
    """A stack of objects that hold nodes, lists of nodes, and what may be None."""
    top, s, done = Frame(None, tree.children, None, None), 0.0, []
    while top is not None:
        at, top = top, top.below
        s = s * 0.5 + (at.node.value if at.node is not None else 7.0) * len(at.kids)
        done.append(at)
        for kid in at.kids:
            if kid.value * w > 0.25:
                top = Frame(kid, kid.children, kid.name if kid.value > 1.0 else None, top)
    return s, done


def recursion(w: Any, tree: Tree) -> Any:
    """A dict that a local function fills, which calls itself where numbers say so, and is handed words."""
    seen = {}

    def go(node: Tree, above: str, d: Any) -> None:
        seen[node.name] = d * (2.0 if above == "b" else 1.0)
        for kid in node.children:
            if kid.value * d > 0.25:
                go(kid, node.name, d * 0.9)

    go(tree, "", w)
    return seen


def by_name(w: Any, tree: Tree) -> Any:
    """Dicts of lists of nodes, and of names of nodes."""
    found, parents, todo = {}, {tree.name: ""}, [tree]
    while todo:
        node = todo.pop()
        found.setdefault(node.name, []).append(node)
        if node.value * w > 0.3:
            for kid in node.children:
                parents[kid.name] = node.name
                todo.append(kid)
    return found["a"][0].value if "a" in found else -1.0, parents, found


TREES = [
    Tree(0.5, "r", [Tree(1.2, "a", []), Tree(0.1, "b", [Tree(3.0, "c", []), Tree(0.7, "d", [])])]),
    Tree(2.0, "s", [Tree(0.3, "a", []), Tree(1.1, "q", [Tree(0.9, "a", [])])]),
    Tree(0.2, "t", []),
]
PROGRAMS: list[tuple[Callable[..., Any], Any]] = [
    *((f, SENTENCES) for f in (chart, counts, groups, dots, adds, tagger, beam)),
    *((f, TREES) for f in (frames, by_name, recursion)),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "batch"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_agreement(function: Callable[..., Any], batch: Any, backend: str) -> None:
    f = ab.batched(function, in_axes=(None, 0))
    check_equivalence(f, batch, (ONE,), grads=False, backends=(backend,), jit=False, tolerance=2e-5)


@LONG
@pytest.mark.parametrize("function", [counts, frames], ids=lambda f: f.__name__)
def test_derivatives(function: Callable[..., Any]) -> None:
    f = ab.batched(lambda w, x: function(w, x)[0], in_axes=(None, 0))
    batch = SENTENCES if function is counts else TREES
    check_equivalence(f, batch, (ONE,), backends=("xla",), jit=False, tolerance=2e-4)


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_failures(backend: str) -> None:
    def missing(w: Any, sentence: Any) -> Any:
        words, x = sentence
        y, rows = w * x, [{}, {}]
        for word in words:
            rows[1 if y > 1.0 else 0][word] = y
            y = y * 1.4
        return rows[0]["cat"], rows

    f = ab.batched(missing, in_axes=(None, 0), backend=backend, on_error="mask")  # type: ignore[call-overload]
    (values, rows), failures = f(ONE, SENTENCES)
    assert [(x.index, x.kind, x.message) for x in failures] == [(k, "KeyError", "'cat'") for k in (0, 1, 3)]
    assert [list(r[0]) for r in ab.unbatch(rows)[2:3]] == [["cat", "the"]]
