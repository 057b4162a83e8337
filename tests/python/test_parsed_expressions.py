"""Expressions that a function parses into trees on a stack, and evaluates: classes with names of operations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest

import autobatch as ab


class Kind(Enum):
    ADD = 1
    MULTIPLY = 2


@dataclass
class Number:
    value: float


@dataclass
class Operation:
    op: str
    left: Any
    right: Any


@dataclass
class Node:
    op: Any
    value: float = 0.0
    left: Any = None
    right: Any = None


@dataclass
class Word:
    kind: str
    text: str


def of_characters(tokens: list[str]) -> float:
    stack: list[Any] = []
    for t in tokens:
        if t == "+":
            b, a = stack.pop(), stack.pop()
            stack.append(Operation("+", a, b))
        elif t == "*":
            b, a = stack.pop(), stack.pop()
            stack.append(Operation("*", a, b))
        else:
            stack.append(Number(float(t)))

    def value(e: Any) -> Any:
        match e:
            case Number(value=x):
                return x
            case Operation(op="+", left=a, right=b):
                return value(a) + value(b)
            case Operation(left=a, right=b):
                return value(a) * value(b)

    return value(stack[0])  # type: ignore[no-any-return]


def of_words(tokens: list[str]) -> float:
    stack: list[Node] = []
    for t in tokens:
        if t == "+":
            b, a = stack.pop(), stack.pop()
            stack.append(Node("add", 0.0, a, b))
        elif t == "*":
            b, a = stack.pop(), stack.pop()
            stack.append(Node("multiply", 0.0, a, b))
        else:
            stack.append(Node("number", float(t)))

    def value(n: Node) -> float:
        if n.op == "number":
            return n.value
        a, b = value(n.left), value(n.right)
        return a + b if n.op == "add" else a * b

    return value(stack[-1])


def of_enums(tokens: list[str]) -> float:
    stack: list[Node] = []
    for t in tokens:
        if t == "+":
            b, a = stack.pop(), stack.pop()
            stack.append(Node(Kind.ADD, 0.0, a, b))
        elif t == "*":
            b, a = stack.pop(), stack.pop()
            stack.append(Node(Kind.MULTIPLY, 0.0, a, b))
        else:
            stack.append(Node(Kind.ADD, float(t)))

    def value(n: Node) -> float:
        if n.left is None:
            return n.value
        a, b = value(n.left), value(n.right)
        return a + b if n.op is Kind.ADD else a * b

    return value(stack[-1])


def of_texts(tokens: list[str]) -> float:
    words = [Word("number", t) if t.isdigit() else Word("operation", t) for t in tokens]
    total = 0.0
    for w in words:
        if w.kind == "number":
            total += float(w.text)
        elif w.text == "+":
            total *= 2
    return total


def renamed(tokens: list[str]) -> float:
    held, top, best = [Node("start")], 0.0, "none"
    for t in tokens:
        if t == "+":
            held[0].op = "+"
        elif t == "*":
            held[0].op = "times"
        elif float(t) > top:
            top, best = float(t), held[0].op
    return top + (1 if best == "start" else 2 if best == "+" else 4)


TOKENS = [x.split() for x in ("1 2 + 3 *", "4", "0 5 + 2 *", "0 1 *", "1 2 3 4 + + * 5 + 6 *")]
PROGRAMS = (of_characters, of_words, of_enums, of_texts, renamed)


@pytest.mark.parametrize("backend", ["auto", "llvm", pytest.param("xla", marks=pytest.mark.xla)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_python_does(program: Any, backend: str) -> None:
    np.testing.assert_allclose(ab.batched(program, backend=backend)(TOKENS), [program(x) for x in TOKENS])
