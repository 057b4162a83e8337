"""Programs that change objects, dicts and sets of the examples, and what makes their arguments. Each is a function and
the functions that make one argument each of an example."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

Program = tuple[Callable[..., Any], tuple[Callable[[random.Random], Any], ...]]
PROGRAMS: list[Program] = []


def program(*makers: Callable[[random.Random], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append((function, makers))
        return function

    return put


class State(Enum):
    IDLE = 0
    RUNS = 1
    DONE = 2


@dataclass
class Account:
    balance: float
    count: int = 0
    log: list[float] = field(default_factory=list)


@dataclass
class Job:
    name: str
    left: float
    state: State = State.IDLE
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    value: float
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Cell:
    value: float
    next: Cell | None = None


class Body:
    def __init__(self, x, v, mass):
        self.x, self.v, self.mass = x, v, mass

    def step(self, dt):
        self.x += self.v * dt
        if self.x > 1.0:
            self.v = -self.v

    def push(self, force):
        self.v += force / self.mass


class Vertex:
    def __init__(self, number):
        self.number, self.edges, self.distance, self.seen, self.parent = number, [], 1e9, False, None


class Square:
    def __init__(self, side):
        self.side, self.hits = side, 0


class Circle(Square):
    def __init__(self, radius):
        super().__init__(radius)
        self.radius = radius


class Stack:
    def __init__(self):
        self.top, self.size = None, 0

    def push(self, x):
        self.top = Cell(x, self.top)
        self.size += 1

    def pop(self):
        if self.top is None:
            return -1.0
        x = self.top.value
        self.top = self.top.next
        self.size -= 1
        return x


class Folder:
    def __init__(self, name, size):
        self.name, self.size, self.inside, self.up = name, size, [], None

    def add(self, folder):
        self.inside.append(folder)
        folder.up = self


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class Temperature:
    def __init__(self, celsius):
        self._celsius = celsius

    @property
    def fahrenheit(self):
        return self._celsius * 1.8 + 32

    @fahrenheit.setter
    def fahrenheit(self, value):
        self._celsius = (value - 32) / 1.8


@dataclass
class Box:
    held: Any
    count: int = 0


@dataclass
class Store:
    items: dict[Any, int]
    cash: float


def number(rng):
    return round(rng.uniform(0.1, 2.0), 3)


def small(rng):
    return rng.randrange(5)


def accounts(rng):
    return [Account(number(rng), rng.randrange(3)) for _ in range(rng.randrange(1, 5))]


def tree(rng, depth=3):
    below = [tree(rng, depth - 1) if depth and rng.random() < 0.8 else None for _ in range(2)]
    return Tree(number(rng), *below)


def chain(rng):
    made = None
    for _ in range(rng.randrange(1, 6)):
        made = Cell(number(rng), made)
    return made


def graph(rng):
    found = [Vertex(k) for k in range(4)]
    for vertex in found:
        vertex.edges = [(rng.choice(found), number(rng)) for _ in range(2)]
    return found


def folders(rng, depth=2):
    made = Folder(f"folder {depth}", number(rng))
    for _ in range(rng.randrange(1, 3) if depth else 0):
        made.add(folders(rng, depth - 1))
    return made


def one_account_twice(rng):
    first = Account(number(rng))
    return [first, Account(number(rng)), first]


def by_two_keys(rng):
    shared = Box(number(rng))
    return {"x": shared, "y": shared, "z": Box(number(rng))}


@program(accounts, number)
def charge(ps, x):
    for p in ps:
        if p.balance > x:
            p.balance -= x * 0.5
        else:
            p.count += 1
    return sum(p.balance for p in ps)


@program(tree, number)
def halve(t, x):
    def go(n):
        if n is None:
            return 0.0
        if n.value > x:
            n.value = n.value * 0.5
        return n.value + go(n.left) + go(n.right)

    return go(t)


@program(tree)
def mirror(t):
    def flip(n):
        if n is not None:
            n.left, n.right = n.right, n.left
            flip(n.left)
            flip(n.right)

    flip(t)
    found = []

    def walk(n):
        if n is not None:
            walk(n.left)
            found.append(n.value)
            walk(n.right)

    walk(t)
    return found


@program(tree, lambda rng: [number(rng) for _ in range(3)])
def insert(t, xs):
    for x in xs:
        n = t
        while True:
            if x < n.value:
                if n.left is None:
                    n.left = Tree(x)
                    break
                n = n.left
            else:
                if n.right is None:
                    n.right = Tree(x)
                    break
                n = n.right

    def size(n):
        return 0 if n is None else 1 + size(n.left) + size(n.right)

    return size(t)


@program(chain)
def reverse(c):
    before = None
    while c is not None:
        c.next, before, c = before, c, c.next
    total, k = 0.0, 1.0
    while before is not None:
        total += k * before.value
        k += 1
        before = before.next
    return total


@program(chain, number)
def insert_in_order(c, x):
    n = c
    while n.next is not None and n.next.value < x:
        n = n.next
    n.next = Cell(x, n.next)
    found = []
    while c is not None:
        found.append(c.value)
        c = c.next
    return found


@program(lambda rng: [Body(number(rng) * 0.5, number(rng) - 1.0, number(rng)) for _ in range(3)])
def simulate(bodies):
    for _ in range(5):
        for body in bodies:
            body.step(0.3)
        bodies[0].push(0.1)
    return [body.x for body in bodies]


@program(graph)
def dijkstra(vertices):
    vertices[0].distance = 0.0
    queue = [(0.0, 0)]
    while queue:
        distance, k = heapq.heappop(queue)
        vertex = vertices[k]
        if vertex.seen:
            continue
        vertex.seen = True
        for other, cost in vertex.edges:
            if distance + cost < other.distance:
                other.distance, other.parent = distance + cost, vertex
                heapq.heappush(queue, (other.distance, other.number))
    return [v.distance for v in vertices if v.seen]


@program(graph)
def breadth_first(vertices):
    queue = deque([vertices[0]])
    vertices[0].seen = True
    order = []
    while queue:
        vertex = queue.popleft()
        order.append(vertex.number)
        for other, _ in vertex.edges:
            if not other.seen:
                other.seen = True
                queue.append(other)
    return order


@program(graph)
def union_find(vertices):
    for v in vertices:
        v.parent = v

    def root(v):
        while v.parent is not v:
            v = v.parent
        return v

    for v in vertices:
        for w, cost in v.edges:
            if cost < 1.2:
                a, b = root(v), root(w)
                if a is not b:
                    a.parent = b
    return sum(1 for v in vertices if v.parent is v)


@program(lambda rng: [rng.choice([Square, Circle])(number(rng)) for _ in range(4)], number)
def of_several_classes(shapes, x):
    for s in shapes:
        area = 3.0 * s.radius**2 if isinstance(s, Circle) else s.side**2
        if area > x:
            s.hits += 1
    return sum(s.hits for s in shapes)


@program(lambda rng: Stack(), lambda rng: [number(rng) - 0.7 for _ in range(6)])
def by_methods(stack, xs):
    total = 0.0
    for x in xs:
        if x > 0:
            stack.push(x)
        else:
            total += stack.pop()
    return total + stack.size


@program(folders, number)
def with_links_upwards(folder, x):
    todo, count = [folder], 0
    while todo:
        here = todo.pop()
        if here.size > x:
            here.size = x
            count += 1
            if here.up is not None:
                here.up.size += 0.1
        for inner in here.inside:
            todo.append(inner)
    return count


@program(folders, number)
def appended_by_a_method(folder, x):
    if folder.size > x:
        folder.add(Folder("new", x))
    return len(folder.inside)


@program(lambda rng: {"a": Account(number(rng)), "b": Account(number(rng))}, lambda rng: [
    (rng.choice("ab"), number(rng)) for _ in range(4)
])  # fmt: skip
def in_a_dict(by_name, moves):
    for name, x in moves:
        account = by_name[name]
        if account.balance < x:
            account.count += 1
        else:
            account.balance -= x
    return by_name["a"].balance + 2 * by_name["b"].balance


@program(accounts, small)
def greatest_and_least(ps, k):
    best = max(ps, key=lambda p: p.balance)
    best.count = k
    worst = min(ps, key=lambda p: p.balance)
    worst.balance = best.balance
    return [p.count for p in ps]


@program(one_account_twice, number)
def one_object_twice(ps, x):
    for p in ps:
        p.balance += x
    return sum(p.balance for p in ps)


@program(by_two_keys, number)
def one_object_by_two_keys(d, x):
    for k in ("x", "y", "z"):
        d[k].held += x
    return d["x"].held


@program(accounts, accounts, number)
def two_arguments(ps, qs, x):
    for p, q in zip(ps, qs):  # noqa: B905
        if p.balance + q.balance > x:
            p.balance, q.balance = q.balance, p.balance
    return sum(p.balance for p in ps) - sum(q.balance for q in qs)


@program(lambda rng: Account(number(rng)), lambda rng: [number(rng) for _ in range(4)])
def lists_in_objects(account, xs):
    for x in xs:
        if x > 0.9:
            account.log.append(x)
    return len(account.log)


@program(lambda rng: [Job("x", number(rng), tags=["u"]) for _ in range(3)], number)
def other_lists_in_objects(jobs, x):
    for job in jobs:
        if job.left > x:
            job.tags.append("hot")
        else:
            job.tags = ["cold"]
    return sum(len(job.tags) for job in jobs)


@program(accounts)
def sorted_in_place(ps):
    ps.sort(key=lambda p: p.balance)
    ps[0].count = 9
    return [p.balance for p in ps]


@program(lambda rng: [Box(number(rng)) for _ in range(4)], number)
def popped_and_appended(xs, t):
    while xs and xs[-1].held > t:
        xs.pop()
    xs.append(Box(t, 1))
    return len(xs)


@program(lambda rng: [Job(rng.choice("ab"), number(rng)) for _ in range(3)], number)
def strings_and_members(jobs, dt):
    for job in jobs:
        job.state = State.RUNS
        job.left -= dt
        if job.left <= 0:
            job.state = State.DONE
            job.name = "done"
    return sum(1 for job in jobs if job.state is State.DONE)


@program(lambda rng: [Slotted(number(rng), small(rng)) for _ in range(3)])
def slots(xs):
    for x in xs:
        if x.b > 2:
            x.a, x.b = 0.0, 0
    return [x.a for x in xs]


@program(lambda rng: Temperature(number(rng) * 50), number)
def by_a_property(t, x):
    t.fahrenheit = t.fahrenheit + x
    return t._celsius


@program(lambda rng: Body(number(rng), number(rng), 1.0), number)
def by_setattr(body, x):
    setattr(body, "x", x)  # noqa: B010
    body.v = body.v if body.x > 1 else 0.0
    return body.v


@program(lambda rng: Box(np.array([number(rng) for _ in range(3)], np.float32)), number)
def arrays(box, x):
    box.held = box.held * x
    box.count += 1
    return box.held.sum()


@program(lambda rng: Box(None), number)
def none_at_first(box, x):
    if box.held is None:
        box.held = Box(x)
    box.held.count += 1
    return box.held.held


@program(lambda rng: [Box(small(rng)) for _ in range(4)])
def kept_in_a_dict(xs):
    seen = {}
    for x in xs:
        if x.held in seen:
            seen[x.held].count += 1
        else:
            seen[x.held] = x
    return [x.count for x in xs]


@program(lambda rng: Box(number(rng)), number)
def by_an_inner_function(box, x):
    def add(y):
        box.held += y

    for k in range(3):
        if box.held < x * k:
            add(x)
    return box.held


@program(lambda rng: Cell(number(rng)), number)
def in_a_try(cell, x):
    try:
        if x > 1:
            raise ValueError("no")
        cell.value = x
    except ValueError:
        cell.value = -1.0
    return cell.value


@program(lambda rng: Store({"a": small(rng), "b": small(rng)}, number(rng)), lambda rng: rng.choice("ab"))
def dicts_in_objects(store, name):
    if store.items[name] > 0:
        store.items[name] -= 1
        store.cash += 2.0
    return store.cash


@program(lambda rng: Store({small(rng): small(rng), 7: 1}, number(rng)), small)
def dicts_of_numbers_in_objects(store, k):
    store.items[k] = store.items.get(k, 0) + 1
    if len(store.items) > 2:
        store.cash = 0.0
    return store.cash


@program(lambda rng: {small(rng): number(rng) for _ in range(3)}, number)
def keys_deleted(d, x):
    for k in list(d):
        if d[k] < x:
            del d[k]
    return len(d)


@program(lambda rng: {small(rng) for _ in range(3)}, lambda rng: [small(rng) for _ in range(3)])
def sets(s, xs):
    for x in xs:
        if x in s:
            s.remove(x)
        else:
            s.add(x)
    return len(s)


@program(lambda rng: {"k": [number(rng), number(rng)], "n": number(rng)}, number)
def dicts_of_fields(d, x):
    if d["n"] > x:
        d["k"].append(x)
    d["n"] = x
    return sum(d["k"])


@program(lambda rng: [{"value": number(rng), "ok": False} for _ in range(3)], number)
def records(rows, x):
    for row in rows:
        row["ok"] = row["value"] > x
        if row["ok"]:
            row["value"] = 0.0
    return sum(row["value"] for row in rows)
