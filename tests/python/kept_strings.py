"""Functions that keep strings which they put together, and the class of `drawn_kept_strings.py`."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass
class Name:
    text: str | None
    x: float
    next: Name | None


@dataclass
class Token:
    kind: str
    text: str
    at: int


@dataclass
class Tree:
    name: str
    x: float
    kids: list[Tree]


NAMES = [["ab", "a", "cat"], ["b"], ["abc", "ba", "a", "a", "bab"]]
XS = [[0.5, -1.0, 0.25], [2.0], [0.1, -0.2, 0.3, -0.4, 0.5]]
TEXTS = ["x + 12 * foo", "7", "foo*3 + bar+x"]
TREES = [
    Tree("ab", 0.5, [Tree("c", -1.0, []), Tree("abc", 0.25, [Tree("a", 2.0, [])])]),
    Tree("a", 1.0, []),
    Tree("ba", -0.5, [Tree("cab", 0.75, [])]),
]


def tokens(text):
    made, i = [], 0
    while i < len(text):
        if text[i] == " ":
            i += 1
            continue
        j = i
        if text[i].isdigit():
            while j < len(text) and text[j].isdigit():
                j += 1
            made.append(Token("number", text[i:j], i))
        elif text[i].isalpha():
            while j < len(text) and text[j].isalpha():
                j += 1
            made.append(Token("name", text[i:j], i))
        else:
            j = i + 1
            made.append(Token("sign", text[i:j], i))
        i = j
    return made


def renamed(t):
    return Tree(t.name + "!", t.x * 2.0, [renamed(k) for k in t.kids])


def in_order(names, xs):
    heap = []
    for n, x in zip(names, xs, strict=True):
        heapq.heappush(heap, (x, n + "?"))
    return [heapq.heappop(heap)[1] for _ in range(len(heap))]


def last_of_each(names, xs):
    scopes = [{}]
    for n, x in zip(names, xs, strict=True):
        if len(n) > 2:
            scopes.append({})
        scopes[-1][n + "'"] = x
    s = 0.0
    for n in names:
        for scope in scopes:
            if n + "'" in scope:
                s += scope[n + "'"] ** 2
    return s


def _put(kept, word):
    kept.append(word)


def put_by_a_function(names):
    """A list in memory, whose strings are put together, as a result."""
    kept = []
    for k, name in enumerate(names):
        _put(kept, f"{k}: {name}")
    return kept


def paths(tree):
    """All paths from the root of a tree to its leaves, by one list that is changed on the way."""
    kept, path = [], []

    def walk(node):
        path.append(node.name)
        if not node.kids:
            kept.append("/".join(path))
        for kid in node.kids:
            walk(kid)
        path.pop()

    walk(tree)
    return kept


def grouped(names):
    kept = {}
    for name in names:
        _put(kept.setdefault(len(name), []), name + "!")
    return [f"{n}: {', '.join(words)}" for n, words in sorted(kept.items())], kept
