"""Functions that make values of several types: a number on one path, a string, a tuple or an object on another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass
class Token:
    kind: str
    value: object


@dataclass
class Cell:
    content: object
    next: Any = None


@dataclass
class Tree:
    value: float
    kids: list[Tree]


class Box:
    def __init__(self) -> None:
        self.state: Any = "new"

    def push(self, x: float) -> None:
        self.state = x if x > 0 else "neg"


def returned(x):
    return x if x > 0 else "neg"


def one_of_four(x):
    y = x if x > 1 else ("small" if x > 0 else ([x, x] if x > -2 else None))
    if y is None:
        return 0.0
    if isinstance(y, str):
        return 1.0
    return sum(y) if isinstance(y, list) else y


def matched(x):
    y = x if x > 1 else ("small" if x > 0 else [x, x])
    match y:
        case float():
            return y
        case str():
            return 10.0
        case [a, b]:
            return a + b


def by_type(x):
    y = x if x > 1 else "s"
    return y * 2 if type(y) is float else 5.0


def table_of_types(x):
    y = x if x > 1 else ("s" if x > 0 else (x,))
    return {float: 1.0, str: 2.0, tuple: 3.0}[type(y)]


def an_error_string(x):
    def root(z):
        return "error" if z < 0 else math.sqrt(z)

    r = root(x)
    return -1.0 if r == "error" else r + 1.0


def flagged(x):
    ok, value = (True, x) if x > 0 else (False, "bad")
    if ok:
        return value * 3
    return len(value) * 1.0


def overloaded(x):
    y = x if x > 0 else "neg"
    z = y + y
    return z if isinstance(z, float) else len(z) * 1.0


def given_to_a_helper(x):
    def area(shape):
        if isinstance(shape, tuple):
            return shape[0] * shape[1]
        return 0.0 if isinstance(shape, str) else shape * shape

    return area((x, 2.0) if x > 1 else (x if x > 0 else "none"))


def caught(x):
    y = x if x > 0 else "neg"
    try:
        return y + 1.0
    except TypeError:
        return -7.0


def no_length(x):
    y = x if x > 0 else "neg"
    try:
        return len(y) * 1.0
    except TypeError:
        return x


def as_a_number(x):
    return float(x if x > 0 else "2.5")


def its_truth(x):
    return 1.0 if (x - 2.0 if x > 0 else ("" if x < -1 else "a")) else 0.0


def formatted(x):
    return f"<{3 if x > 0 else 'neg'}>"


def upper(x):
    y = "abc" if x > 0 else x
    return y.upper() if isinstance(y, str) else "num"


def in_a_tuple(x):
    return 1.0, x if x > 0 else None, "a" if x > 0 else 3


def in_a_dict(x):
    return {"ok": x > 0, "value": x if x > 0 else "bad"}


OF_A_NUMBER = [
    returned, one_of_four, matched, by_type, table_of_types, an_error_string, flagged, overloaded, given_to_a_helper,
    caught, no_length, as_a_number, its_truth, formatted, upper, in_a_tuple, in_a_dict,
]  # fmt: skip


def tokens(xs):
    found = []
    for x in xs:
        found.append(Token("num", x) if x > 0 else Token("op", "+" if x == 0 else "-"))
    total = 0.0
    for t in found:
        if t.kind == "num":
            total += t.value
        elif t.value == "+":
            total *= 2.0
        else:
            total -= 1.0
    return total


def pairs(xs):
    found = [("num", x) if x > 0 else ("op", "neg") for x in xs]
    total = 0.0
    for kind, value in found:
        if kind == "num":
            total += value * 2
        elif value == "neg":
            total -= 1
    return total


def on_a_stack(xs):
    stack = []
    for x in xs:
        if x > 1:
            stack.append(x)
        elif x > 0:
            stack.append(("pair", x))
        else:
            stack.append("op")
    total = 0.0
    while stack:
        top = stack.pop()
        if isinstance(top, tuple):
            total += top[1]
        elif isinstance(top, str):
            total *= 0.5
        else:
            total += 10 * top
    return total


def replaced_on_top(xs):
    stack = []
    for x in xs:
        if x > 0:
            stack.append(x)
        elif len(stack) > 0 and isinstance(stack[-1], float):
            stack.pop()
            stack.append("dropped")
    return sum(1 if s == "dropped" else 10 for s in stack)


def best_so_far(xs):
    best = "none"
    for x in xs:
        if best == "none" or x > best:
            best = x
    return -1.0 if best == "none" else best


def none_too(xs):
    state = None
    for x in xs:
        if x < 0:
            state = "neg"
        elif state is None or state == "neg":
            state = x
        else:
            state = state + x
    if state is None:
        return 0.0
    return -1.0 if state == "neg" else state


def exchanged(xs):
    a, b = 1.0, "s"
    for x in xs:
        if x > 0:
            a, b = b, a
    return a if isinstance(a, float) else b * 2


def an_attribute(xs):
    box = Box()
    for x in xs:
        box.push(x)
    if box.state == "new":
        return 0.0
    return box.state if isinstance(box.state, float) else -3.0


def in_a_chain(xs):
    head = None
    for x in xs:
        head = Cell(x if x > 0 else "neg", head)
    total = 0.0
    while head is not None:
        if isinstance(head.content, str):
            total -= 1.0
        else:
            total += head.content
        head = head.next
    return total


def fields_are_set(xs):
    cells = [Cell(0.0), Cell("empty")]
    for x in xs:
        if x > 0:
            cells[0].content, cells[1].content = x, x * 2
        else:
            cells[0].content = "n"
    total = 0.0
    for c in cells:
        if isinstance(c.content, float):
            total += c.content
        elif c.content == "n":
            total -= 5
    return total


def values_of_a_dict(xs):
    held = {}
    for i, x in enumerate(xs):
        held[i % 2] = x if x > 0 else "bad"
    return sum(1.0 if v == "bad" else v for v in held.values())


def searched(xs):
    ys = [x if x > 0 else "n" for x in xs]
    total = sum(y for y in ys if isinstance(y, float))
    return total + ys.count("n") + (10.0 if "n" in ys else 0.0)


def sorted_pairs(xs):
    items = [(x, "p") if x > 0 else (-x, 3) for x in xs]
    items.sort(key=lambda t: t[0])
    return sum((1.0 if v == "p" else v) * k for k, v in items)


def lists_or_numbers(xs):
    out = []
    for x in xs:
        out.append([x, x] if x > 0 else x)
    return sum(sum(o) if isinstance(o, list) else o for o in out)


def a_list_of_both(xs):
    return [x if x > 0 else "n" for x in xs]


OF_A_LIST = [
    tokens, pairs, on_a_stack, replaced_on_top, best_so_far, none_too, exchanged, an_attribute, in_a_chain,
    fields_are_set, values_of_a_dict, searched, sorted_pairs, lists_or_numbers, a_list_of_both,
]  # fmt: skip


def a_node_or_a_string(t):
    def find(n):
        if n.value > 0.4:
            return n
        for k in n.kids:
            found = find(k)
            if not isinstance(found, str):
                return found
        return "none"

    found = find(t)
    return -1.0 if isinstance(found, str) else found.value


def an_error_in_a_recursion(t):
    def total(n):
        if n.value < -0.9:
            return "overflow"
        found = n.value
        for k in n.kids:
            inner = total(k)
            if isinstance(inner, str):
                return inner
            found = found + inner
        return found

    found = total(t)
    return 100.0 if found == "overflow" else found


OF_A_TREE = [a_node_or_a_string, an_error_in_a_recursion]
