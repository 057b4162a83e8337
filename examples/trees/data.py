"""Real trees: the code of Python's standard library, and the Stanford Sentiment Treebank where a copy is at hand."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SYNTAX = sorted({c.__name__: c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, ast.AST)}.items())
KINDS = {cls: kind for kind, (_, cls) in enumerate(_SYNTAX)}
"""The number of each class of syntax: the label of a code tree's nodes."""
CLASSES = 5
"""Labels of phrases: five in the treebank, from very negative to very positive."""


@dataclass
class Node:
    """A node of a code tree: the kind of syntax it is, and its parts from left to right."""

    kind: int
    children: list[Node]


@dataclass
class Phrase:
    """A node of a binary tree: a leaf holds a word, an inner node two parts; both have a label."""

    label: int
    word: int = -1
    left: Phrase | None = None
    right: Phrase | None = None


def stdlib_modules() -> Iterator[ast.Module]:
    """The syntax of the top-level modules of the standard library, by name."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in old modules
            yield ast.parse(path.read_bytes())


def code_trees(limit: int | None = None, largest: int | None = None) -> list[Node]:
    """One tree for each function definition in the top-level modules of the standard library, sorted by module.

    At most `limit` trees; functions of more than `largest` nodes are left out. The same Python version gives the same
    trees on every machine.
    """
    trees: list[Node] = []
    for module in stdlib_modules():
        for syntax in ast.walk(module):
            if isinstance(syntax, (ast.FunctionDef, ast.AsyncFunctionDef)):
                tree = node_of(syntax)
                if largest is None or size(tree) <= largest:
                    trees.append(tree)
                if len(trees) == limit:
                    return trees
    return trees


def node_of(syntax: ast.AST) -> Node:
    """The tree of a piece of syntax. `Load` and `Store` marks are left out: they say nothing that parents do not."""
    parts = [p for p in ast.iter_child_nodes(syntax) if not isinstance(p, ast.expr_context)]
    return Node(KINDS[type(syntax)], [node_of(p) for p in parts])


def nodes_of(tree: Node) -> Iterator[Node]:
    """All nodes of a tree, a parent before its children."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def size(tree: Node) -> int:
    return sum(1 for _ in nodes_of(tree))


def binarised(tree: Node) -> Phrase:
    """A code tree as a binary tree: children join from left to right, a node with one child becomes that child."""
    if not tree.children:
        return Phrase(tree.kind % CLASSES, word=tree.kind)
    joined, *others = (binarised(child) for child in tree.children)
    for other in others:
        joined = Phrase(tree.kind % CLASSES, left=joined, right=other)
    return joined


def sentiment_trees(file: Path) -> tuple[list[Phrase], list[str]]:
    """The trees of a treebank file, one `(label left right)` or `(label word)` a line, and the words by number."""
    words: dict[str, int] = {}
    lines = file.read_text(encoding="utf-8").split("\n")
    trees = [_parse(line, words) for line in lines if line]
    return trees, list(words)


def _parse(line: str, words: dict[str, int]) -> Phrase:
    """Read one tree. Only ' ' separates: some words contain other white space, such as U+00A0."""
    stack: list[list[Phrase]] = [[]]
    labels: list[int] = []
    for token in line.split(" "):
        if token.startswith("("):
            labels.append(int(token[1:]))
            stack.append([])
            continue
        word = token.rstrip(")")
        depth = len(token) - len(word)
        for closing in range(depth):
            parts, label = stack.pop(), labels.pop()
            if closing == 0:
                made = Phrase(label, word=words.setdefault(word, len(words)))
            else:
                left, right = parts
                made = Phrase(label, left=left, right=right)
            stack[-1].append(made)
    [tree] = stack.pop()
    return tree
