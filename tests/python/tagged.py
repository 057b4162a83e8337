"""Programs that make trees and lists of tuples, lists, dicts and objects of several kinds, told apart by a constant
that each holds, by its length or by its class; what stands at a place then depends on the kind."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Op(enum.Enum):
    NUM = 1
    VAR = 2
    NEG = 3
    ADD = 4
    MUL = 5


def indexed(tokens, x):
    stack = []
    for t in tokens:
        if t == -1:
            b, a = stack.pop(), stack.pop()
            stack.append(("add", a, b))
        elif t == -2:
            b, a = stack.pop(), stack.pop()
            stack.append(("mul", a, b))
        elif t == -3:
            stack.append(("neg", stack.pop()))
        elif t == -4:
            stack.append(("var",))
        else:
            stack.append(("num", t))

    def evaluate(e):
        if e[0] == "num":
            return e[1]
        if e[0] == "var":
            return x
        if e[0] == "neg":
            return -evaluate(e[1])
        if e[0] == "add":
            return evaluate(e[1]) + evaluate(e[2])
        return evaluate(e[1]) * evaluate(e[2])

    return evaluate(stack[0])


def matched(tokens, x):
    stack = []
    for t in tokens:
        if t == -1 or t == -2:
            b, a = stack.pop(), stack.pop()
            stack.append(("+", a, b) if t == -1 else ("*", a, b))
        elif t == -3:
            stack.append(("neg", stack.pop()))
        else:
            stack.append(("var",) if t == -4 else ("num", t))

    def evaluate(e):
        match e:
            case ("num", v):
                return v
            case ("var",):
                return x
            case ("neg", a):
                return -evaluate(a)
            case ("+", a, b):
                return evaluate(a) + evaluate(b)
            case ("*", a, b):
                return evaluate(a) * evaluate(b)

    return evaluate(stack[-1])


def folded(tokens, x):
    stack = []
    for t in tokens:
        if t >= 0:
            stack.append(("num", t))
        elif t == -4:
            stack.append(("var",))
        elif t == -3:
            stack.append(("neg", stack.pop()))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(("add" if t == -1 else "mul", a, b))

    def fold(e):
        if e[0] == "num" or e[0] == "var":
            return e
        if e[0] == "neg":
            a = fold(e[1])
            return ("num", -a[1]) if a[0] == "num" else ("neg", a)
        a, b = fold(e[1]), fold(e[2])
        if a[0] == "num" and b[0] == "num":
            return ("num", a[1] + b[1]) if e[0] == "add" else ("num", a[1] * b[1])
        return (e[0], a, b)

    def size(e):
        if e[0] in ("num", "var"):
            return 1
        return 1 + sum(size(c) for c in e[1:])

    def evaluate(e):
        if e[0] == "num":
            return e[1]
        if e[0] == "var":
            return x
        if e[0] == "neg":
            return -evaluate(e[1])
        return evaluate(e[1]) + evaluate(e[2]) if e[0] == "add" else evaluate(e[1]) * evaluate(e[2])

    made = fold(stack[0])
    return evaluate(made) + 100.0 * size(made)


def members_of_enums(tokens, x):
    stack = []
    for t in tokens:
        if t == -1 or t == -2:
            b, a = stack.pop(), stack.pop()
            stack.append((Op.ADD if t == -1 else Op.MUL, a, b))
        elif t == -3:
            stack.append((Op.NEG, stack.pop()))
        else:
            stack.append((Op.VAR,) if t == -4 else (Op.NUM, t))

    def evaluate(e):
        op = e[0]
        if op is Op.NUM:
            return e[1]
        if op == Op.VAR:
            return x
        if op is Op.NEG:
            return -evaluate(e[1])
        a, b = evaluate(e[1]), evaluate(e[2])
        return a + b if op is Op.ADD else a * b

    return evaluate(stack[0])


def integers(tokens, x):
    num, var, neg, add, mul = range(5)
    stack = []
    for t in tokens:
        if t == -1:
            b, a = stack.pop(), stack.pop()
            stack.append((add, a, b))
        elif t == -2:
            b, a = stack.pop(), stack.pop()
            stack.append((mul, a, b))
        elif t == -3:
            stack.append((neg, stack.pop()))
        else:
            stack.append((var,) if t == -4 else (num, t))

    def evaluate(e):
        if e[0] == num:
            return e[1]
        if e[0] == var:
            return x
        if e[0] == neg:
            return -evaluate(e[1])
        if e[0] == add:
            return evaluate(e[1]) + evaluate(e[2])
        return evaluate(e[1]) * evaluate(e[2])

    return evaluate(stack[0])


def of_lists(tokens, x):
    stack = []
    for t in tokens:
        if t >= 0:
            stack.append(["num", t])
        elif t == -4:
            stack.append(["var"])
        elif t == -3:
            stack.append(["neg", stack.pop()])
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(["add" if t == -1 else "mul", a, b])

    def evaluate(e):
        op = e[0]
        if op == "num":
            return e[1]
        if op == "var":
            return x
        if op == "neg":
            return -evaluate(e[1])
        a, b = evaluate(e[1]), evaluate(e[2])
        return a + b if op == "add" else a * b

    return evaluate(stack[0])


def of_dicts(tokens, x):
    stack = []
    for t in tokens:
        if t >= 0:
            stack.append({"op": "num", "a": t, "b": None})
        elif t == -4:
            stack.append({"op": "var", "a": None, "b": None})
        elif t == -3:
            stack.append({"op": "neg", "a": stack.pop(), "b": None})
        else:
            b, a = stack.pop(), stack.pop()
            stack.append({"op": "add" if t == -1 else "mul", "a": a, "b": b})

    def evaluate(e):
        if e["op"] == "num":
            return e["a"]
        if e["op"] == "var":
            return x
        if e["op"] == "neg":
            return -evaluate(e["a"])
        if e["op"] == "add":
            return evaluate(e["a"]) + evaluate(e["b"])
        return evaluate(e["a"]) * evaluate(e["b"])

    return evaluate(stack[0])


@dataclass
class Num:
    value: Any


@dataclass
class Neg:
    value: Any


@dataclass
class Both:
    value: Any
    other: Any


@dataclass
class Text:
    value: Any


def of_classes(tokens, x):
    """A field of one name holds a number in one class, an object in others."""
    stack = []
    for t in tokens:
        if t >= 0 or t == -4:
            stack.append(Num(x if t == -4 else t))
        elif t == -3:
            stack.append(Neg(stack.pop()))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(Both(a, b))

    def evaluate(e):
        if isinstance(e, Num):
            return e.value
        if isinstance(e, Neg):
            return -evaluate(e.value)
        return evaluate(e.value) * 0.5 + evaluate(e.other)

    return evaluate(stack[0])


def unpacked(tokens, x):
    stack = []
    for t in tokens:
        if t >= 0:
            stack.append(("num", t, 0.0))
        elif t == -4:
            stack.append(("var", 0.0, 0.0))
        elif t == -3:
            stack.append(("neg", stack.pop(), 0.0))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(("add" if t == -1 else "mul", a, b))

    def evaluate(e):
        op, a, b = e
        if op == "num":
            return a
        if op == "var":
            return x
        if op == "neg":
            return -evaluate(a)
        return evaluate(a) + evaluate(b) if op == "add" else evaluate(a) * evaluate(b)

    return evaluate(stack[0])


def returned(tokens, x):
    stack = []
    for t in tokens:
        if t >= 0:
            stack.append(("num", t * x))
        elif t == -4:
            stack.append(("var", "x"))
        elif t == -3:
            stack.append(("neg", stack.pop()))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(("add" if t == -1 else "mul", a, b))
    return stack[0]


def instructions(tokens, x):
    program = []
    for t in tokens:
        if t > 1:
            program.append(("push", t))
        elif t > 0:
            program.append(("double",))
        elif t > -2:
            program.append(("name", "y"))
        else:
            program.append(("jump", len(program)))
    total, n = x, 0
    for one in program:
        if one[0] == "push":
            total += one[1]
        elif one[0] == "double":
            total *= 2
        elif one[0] == "name":
            n += 1 if one[1] == "y" else 0
        else:
            n += one[1]
    return total, n


def classes_in_a_list(tokens, x):
    items = []
    for t in tokens:
        if t > 1:
            items.append(Text("big"))
        elif t > -2:
            items.append(Num(t * x))
        else:
            items.append(Both(t, -x))
    total = 0.0
    for i in items:
        if isinstance(i, Num):
            total += i.value
        elif isinstance(i, Text):
            total += len(i.value)
        else:
            total += i.value * 2 + i.other
    return total


def tags_that_are_set(tokens, x):
    """Then they say nothing of what else there is."""
    found = [["new", t * x] if t > 0 else ["none", "nothing"] for t in tokens]
    for f in found:
        if f[0] == "new" and f[1] > 1:
            f[0] = "old"
    return sum(1 for f in found if f[0] == "old") + 10 * len([f for f in found if f[0] == "none"])


def peephole(tokens, x):
    e = ("add", ("num", 0.0), ("var",))
    for t in tokens:
        if t > 1:
            e = ("add", e, ("num", t))
        elif t > 0:
            e = ("mul", ("num", 1.0), e)
        else:
            e = ("neg", ("neg", e))

    def simple(e):
        if e[0] == "neg":
            a = simple(e[1])
            return a[1] if a[0] == "neg" else ("neg", a)
        if e[0] == "add":
            a, b = simple(e[1]), simple(e[2])
            return b if a[0] == "num" and a[1] == 0.0 else ("add", a, b)
        if e[0] == "mul":
            a, b = simple(e[1]), simple(e[2])
            return b if a[0] == "num" and a[1] == 1.0 else ("mul", a, b)
        return e

    def evaluate(e):
        if e[0] == "num":
            return e[1]
        if e[0] == "var":
            return x
        if e[0] == "neg":
            return -evaluate(e[1])
        return evaluate(e[1]) + evaluate(e[2]) if e[0] == "add" else evaluate(e[1]) * evaluate(e[2])

    return evaluate(simple(e))


def fields_that_are_set(tokens, x):
    """In objects of several classes, in each of which the field holds something else."""
    made = []
    for t in tokens:
        if t > 1:
            made.append(Both(t * x, "name"))
        elif t > -2:
            made.append(Pair("name", t))
        else:
            made.append(Three(Num(t), None))
    for one in made:
        one.other = 2.5 * x
    return made


@dataclass
class Pair:
    value: Any
    other: Any


@dataclass
class Three:
    value: Any
    other: Any


def a_tree_of_dicts(tokens, x):
    made = {"op": "var", "a": None, "b": None}
    for t in tokens:
        if t > 0:
            made = {"op": "add", "a": made, "b": {"op": "num", "a": t * x, "b": None}}
        else:
            made = {"op": "neg", "a": made, "b": None}
    return made


OF_NUMBERS = [
    indexed, matched, folded, members_of_enums, integers, of_lists, of_dicts, of_classes, unpacked, peephole,
    classes_in_a_list,
]  # fmt: skip
PROGRAMS = [*OF_NUMBERS, returned, instructions, tags_that_are_set, fields_that_are_set, a_tree_of_dicts]

TOKENS = [[2.0, -4, -1, 3.0, -2], [-4, -4, -2, -3], [5.0], [1.0, 2.0, -1, -4, -2, 0.5, -3, -1]]
NUMBERS = [0.5, 1.5, 2.0, 0.25]
