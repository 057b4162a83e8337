"""`match`: alternatives that bind, sequences, mappings, guards, classes with positional patterns."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.frontend.batches import Programs, agree
from tests.frontend.examples import ITEMS, Item, Kind


@dataclass
class Num:
    v: float


@dataclass
class Var:
    name: str


@dataclass
class Add:
    a: Expr
    b: Expr


@dataclass
class Mul:
    a: Expr
    b: Expr


@dataclass
class Neg:
    of: Expr


Expr = Num | Var | Add | Mul | Neg
EXPRESSIONS = [
    Num(1.0),
    Var("x"),
    Add(Num(2.0), Var("y")),
    Mul(Neg(Var("x")), Add(Num(1.0), Num(3.0))),
    Neg(Neg(Num(4.0))),
]


programs = Programs()


@programs.over(EXPRESSIONS)
def alternatives_bind(e):
    match e:
        case Num(v):
            return v
        case Var():
            return 0.5
        case Add(a=x, b=y) | Mul(a=x, b=y):
            return alternatives_bind(x) * 2 + alternatives_bind(y)
        case Neg(of):
            return -alternatives_bind(of)


@programs.over(EXPRESSIONS)
def positional(e):
    match e:
        case Num(v):
            return v
        case Var(name="x"):
            return 1.0
        case Var(_):
            return 2.0
        case Add(Num(1.0), Num(w)):
            return w * 10
        case Add(a, b):
            return positional(a) + positional(b)
        case Mul(a, b) as m if isinstance(m.a, Neg):
            return positional(a) * positional(b) * 3
        case Mul(a, b):
            return positional(a) * positional(b)
        case Neg(Neg(x)) | Neg(x):
            return positional(x)


@programs.over(ITEMS)
def sequences(i):
    match i.xs:
        case []:
            return 0
        case [a]:
            return a
        case [a, b]:
            return a * b
        case [first, *rest]:
            return first + sum(rest)


@programs.over(ITEMS)
def stars(i):
    match i.xs:
        case [*_, last] if last > 5:
            return last
        case [a, *mid, b]:
            return len(mid) + a - b
        case (x,):
            return x
        case _:
            return -1


@programs.over(ITEMS)
def members(i):
    match i.kind:
        case Kind.A:
            return 1
        case Kind.B | Kind.C:
            return 2


@programs.over(ITEMS)
def strings(i):
    match i.name:
        case "start" | "stop" as w:
            return 1 if w == "start" else 2
        case str():
            return 3


@programs.over(ITEMS)
def tuples(i):
    match i.pt:
        case (0, 0):
            return 0
        case (0, y):
            return y
        case (x, 0):
            return -x
        case (x, y):
            return x * y


@programs.over(ITEMS)
def mappings(i):
    match i.opt:
        case {"a": 1}:
            return 10
        case {"a": a, "b": b} if a > 1:
            return a + b
        case {"a": int(a), **rest}:
            return a - len(rest)


@programs.over(ITEMS)
def none_and_guard(i):
    match i.tag:
        case None:
            return 0
        case "q":
            return 1
        case s if s > "a":
            return 2
        case _:
            return 3


@programs.over(ITEMS)
def several_subjects(i):
    match (i.kind, len(i.xs)):
        case (Kind.A, n) if n > 2:
            return n
        case (Kind.A, _) | (Kind.B, 0):
            return -1
        case (k, n):
            return n * k.value


@programs.over(ITEMS)
def numbers(i):
    match i.pt[0] - 1:
        case -1:
            return "neg" == "neg"
        case 0 | 1:
            return False


@programs.over(ITEMS)
def bound_behind(i):
    match i:
        case Item(kind=Kind.A, xs=[x, *_]):
            y = x
        case Item(name="stop"):
            y = 100
        case Item(xs=[x]):
            y = -x
    return y


# strings


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)
