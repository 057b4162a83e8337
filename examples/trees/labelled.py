"""Binary trees with labels, split for training: sentences of the Stanford Sentiment Treebank, or functions of Python's
standard library.

*Sentences* (Socher et al., EMNLP 2013): every phrase has one of five labels, from very negative to very positive. The
split is the treebank's. Words are lower case; those that occur once in the part for training are one unknown word.

*Functions*: is this function a method, that is, defined in the body of a class? Only the root of a tree has that label.
The answer must not stand in the tree, so a tree holds the statements of the body alone, and of these the kinds of
syntax, the kinds of constants, and the names of attributes and of Python's built-in functions. Hidden are

- the name, the parameters and their number, decorators and annotations (`self`, `@property`);
- the docstring, which often says "method";
- names of variables (`self`, `cls`), also those of nested functions; `super`, which only methods call.

What is left is how methods are written: which attributes they read and set, how long they are, what they return. Whole
modules are held out, so that no function is judged by its neighbours; functions without a statement are left out.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.trees.data import Phrase, sentiment_trees, stdlib_modules

UNKNOWN = 0
"""The word for all words that are too rare to be learnt."""
NO_LABEL = -1
HIDDEN_NAMES = {"super", "__class__"}
"""Built-in names that only methods use."""
LARGEST = 400
"""Functions of more leaves than this are left out."""
MODULES = 8
"""A name is a word if so many modules use it: others would only tell which module a function is of."""
HELD_OUT = 5
"""One module of so many is for judging."""


@dataclass
class Tree:
    """A node of a binary tree. `number` tells the nodes of a data set apart; a leaf has a word."""

    number: int
    label: int
    word: int = UNKNOWN
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Task:
    """Trees to train on and to judge by. Words are below `words`, labels below `len(classes)`, or NO_LABEL."""

    title: str
    train: list[Tree]
    dev: list[Tree]
    words: int
    classes: tuple[str, ...]

    @property
    def labels_inside(self) -> bool:
        """Do nodes other than roots have labels?"""
        return len(labels(self.dev, roots_only=False)) > len(self.dev)

    def baseline(self, roots_only: bool) -> float:
        """The accuracy, on `dev`, of always answering what is most frequent in `train`."""
        (most, _), *_ = Counter(labels(self.train, roots_only)).most_common(1)
        return float(np.mean([label == most for label in labels(self.dev, roots_only)]))


def nodes_of(tree: Tree) -> Iterator[Tree]:
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in (node.right, node.left) if child is not None)


def labels(trees: Sequence[Tree], roots_only: bool) -> list[int]:
    nodes = trees if roots_only else (node for tree in trees for node in nodes_of(tree))
    return [node.label for node in nodes if node.label != NO_LABEL]


class Numbering:
    """Makes trees of phrases: numbers nodes in their order, and words by how often they were met."""

    def __init__(self, met: Counter[str], least: int) -> None:
        kept = [word for word, times in met.items() if times >= least]
        self.words = {word: number for number, word in enumerate(kept, UNKNOWN + 1)}
        self.nodes = 0

    def trees(self, phrases: Sequence[Phrase], words: Sequence[str]) -> list[Tree]:
        return [self._tree(phrase, words) for phrase in phrases]

    def _tree(self, phrase: Phrase, words: Sequence[str]) -> Tree:
        self.nodes += 1
        tree = Tree(self.nodes, phrase.label)
        if phrase.left is None or phrase.right is None:
            tree.word = self.words.get(words[phrase.word], UNKNOWN)
        else:
            tree.left, tree.right = self._tree(phrase.left, words), self._tree(phrase.right, words)
        return tree


def _leaves(phrase: Phrase) -> Iterator[Phrase]:
    stack = [phrase]
    while stack:
        node = stack.pop()
        if node.left is None or node.right is None:
            yield node
        else:
            stack += [node.right, node.left]


def sentences(folder: Path, limit: int | None = None) -> Task:
    """The treebank in a folder with `train.txt` and `dev.txt`; at most `limit` trees of each."""
    read = [sentiment_trees(folder / name) for name in ("train.txt", "dev.txt")]
    (train, train_words), (dev, dev_words) = ((trees[:limit], [w.lower() for w in words]) for trees, words in read)
    numbering = Numbering(Counter(train_words[leaf.word] for tree in train for leaf in _leaves(tree)), least=2)
    return Task(
        "sentences of the Stanford Sentiment Treebank, five labels",
        numbering.trees(train, train_words),
        numbering.trees(dev, dev_words),
        len(numbering.words) + 1,
        ("very negative", "negative", "neutral", "positive", "very positive"),
    )


# ---- code


def functions(limit: int | None = None) -> Task:
    """The functions of the standard library's top-level modules; at most `limit` for training, and as many for judging.
    The same Python version gives the same trees on every machine."""
    words: dict[str, int] = {}
    parts: tuple[list[Phrase], list[Phrase]] = ([], [])
    met = Counter[str]()
    for number, module in enumerate(stdlib_modules()):
        trees = list(_of_module(module, words))
        parts[number % HELD_OUT == 0].extend(trees)
        names = list(words)
        if number % HELD_OUT:
            met.update({names[leaf.word] for tree in trees for leaf in _leaves(tree)})
        if limit is not None and min(map(len, parts)) >= limit:
            break
    train, dev = (part[:limit] for part in parts)
    numbering = Numbering(met, MODULES)
    return Task(
        "functions of Python's standard library: which are methods?",
        numbering.trees(train, names),
        numbering.trees(dev, names),
        len(numbering.words) + 1,
        ("function", "method"),
    )


def _of_module(module: ast.Module, words: dict[str, int]) -> Iterator[Phrase]:
    for function, is_method in _definitions(module):
        body = _body(function)
        if body and _count(body) <= LARGEST:
            tree = _joined([_binary(statement, words) for statement in body])
            tree.label = int(is_method)
            yield tree


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(syntax: ast.AST) -> Iterator[tuple[Function, bool]]:
    """All functions in a piece of syntax, and whether each is a method."""
    for part in ast.iter_child_nodes(syntax):
        if isinstance(part, Function):
            yield part, isinstance(syntax, ast.ClassDef)
        yield from _definitions(part)


def _body(function: Function) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    return function.body[ast.get_docstring(function, clean=False) is not None :]


def _parts(syntax: ast.AST) -> list[ast.AST]:
    """What a piece of syntax consists of, without what is hidden and marks of loading and storing."""
    hidden = (ast.expr_context, ast.arguments)
    return [part for part in ast.iter_child_nodes(syntax) if not isinstance(part, hidden)]


def _count(syntax: Sequence[ast.AST]) -> int:
    return sum(1 + _count(_parts(part)) for part in syntax)


def _word(syntax: ast.AST) -> str:
    """What is shown of a node itself."""
    kind = type(syntax).__name__
    match syntax:
        case ast.Name(id=name) if hasattr(builtins, name) and name not in HIDDEN_NAMES:
            return f"{kind} {name}"
        case ast.Attribute(attr=name):
            return f"{kind} {name}"
        case ast.Constant(value=value):
            return f"{kind} {type(value).__name__}"
    return kind


def _binary(syntax: ast.AST, words: dict[str, int]) -> Phrase:
    """A binary tree with a leaf for each node of the syntax: (word, parts), as in Lisp."""
    leaf = Phrase(NO_LABEL, word=words.setdefault(_word(syntax), len(words)))
    parts = [_binary(part, words) for part in _parts(syntax)]
    return Phrase(NO_LABEL, left=leaf, right=_joined(parts)) if parts else leaf


def _joined(trees: Sequence[Phrase]) -> Phrase:
    """One tree over several, as flat as can be: fewer levels run one after the other."""
    if len(trees) == 1:
        return trees[0]
    middle = len(trees) // 2
    return Phrase(NO_LABEL, left=_joined(trees[:middle]), right=_joined(trees[middle:]))
