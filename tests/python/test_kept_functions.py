"""Functions that lists, fields and dicts keep, that are returned or passed on, and called later: what they read is what
it is then, and what they change is changed for all; tapes and graphs of automatic differentiation written with them."""

from __future__ import annotations

import heapq
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

import autobatch as ab
from autobatch.testing import assert_same
from tests.python import drawn_functions

A = np.array([1.0, -2.0, 0.5])
B = np.array([0.3, 0.7, -1.1])
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


class Op:
    def __init__(self, fn, nxt):
        self.fn = fn
        self.nxt = nxt


class Box:
    def __init__(self, v):
        self.v = v
        self.g = 0.0
        self.back = lambda: None


class Ev:
    def __init__(self, t, act):
        self.t = t
        self.act = act

    def __lt__(self, o):
        return self.t < o.t


class Btn:
    def __init__(self):
        self.handlers = []

    def on(self, h):
        self.handlers.append(h)

    def click(self, x):
        for h in self.handlers:
            h(x)


class Counter:
    def __init__(self):
        self.total = 0.0

    def add(self, x):
        self.total += x

    def sub(self, x):
        self.total -= x / 2


class Sim:
    def __init__(self):
        self.q = []
        self.now = 0.0
        self.log = 0.0

    def at(self, t, f):
        heapq.heappush(self.q, Ev(t, f))

    def run(self):
        while self.q:
            e = heapq.heappop(self.q)
            self.now = e.t
            e.act()


class Number:
    """A number that knows of what it was computed, and hands the slope that it is given on to that."""

    def __init__(self, value, sources=()):
        self.value, self.slope = value, 0.0
        self.sources = set(sources)
        self.hand_on = lambda: None

    def computed(self, value, others, hand_on):
        made = Number(value, [self, *others])
        made.hand_on = lambda: hand_on(made.slope)
        return made

    def __add__(self, other):
        other = other if isinstance(other, Number) else Number(other)

        def hand_on(slope):
            for source in (self, other):
                source.slope += slope

        return self.computed(self.value + other.value, [other], hand_on)

    def __mul__(self, other):
        other = other if isinstance(other, Number) else Number(other)
        product = Number(self.value * other.value, (other, self))

        def both():
            self.slope += product.slope * other.value
            other.slope += product.slope * self.value

        product.hand_on = both
        return product

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, n):
        def hand_on(slope):
            self.slope += slope * n * self.value ** (n - 1)

        return self.computed(self.value**n, [], hand_on)

    def __sub__(self, other):
        return self + other * -1.0

    def positive(self):
        def hand_on(slope):
            if self.value > 0:
                self.slope += slope

        return self.computed(max(self.value, 0.0), [], hand_on)

    def exp(self):
        found = Number(math.exp(self.value), (self,))
        found.hand_on = lambda: self.take(found.slope * found.value)
        return found

    def take(self, slope):
        self.slope += slope

    def differentiate(self):
        order, seen = [], set()

        def visit(number):
            if number in seen:
                return
            seen.add(number)
            for source in number.sources:
                visit(source)
            order.append(number)

        visit(self)
        self.slope = 1.0
        while order:
            order.pop().hand_on()


class Tape:
    def __init__(self):
        self.ops = []
        self.vals = []
        self.grads = []

    def var(self, v):
        self.vals.append(v)
        self.grads.append(0.0)
        return len(self.vals) - 1

    def mul(self, i, j):
        k = self.var(self.vals[i] * self.vals[j])

        def back():
            self.grads[i] += self.vals[j] * self.grads[k]
            self.grads[j] += self.vals[i] * self.grads[k]

        self.ops.append(back)
        return k

    def sin(self, i):
        k = self.var(math.sin(self.vals[i]))
        self.ops.append(lambda: self.add(i, math.cos(self.vals[i]) * self.grads[k]))
        return k

    def add(self, i, g):
        self.grads[i] += g

    def back(self, k):
        self.grads[k] = 1.0
        while self.ops:
            self.ops.pop()()


class Editor:
    def __init__(self):
        self.text = []
        self.undo_stack = []

    def push(self, v):
        self.text.append(v)
        self.undo_stack.append(lambda: self.text.pop())

    def scale(self, f):
        old = list(self.text)
        self.text = [x * f for x in self.text]

        def undo():
            self.text = old

        self.undo_stack.append(undo)

    def undo(self):
        if self.undo_stack:
            self.undo_stack.pop()()


def memo(f):
    cache = {}

    def g(n):
        if n not in cache:
            cache[n] = f(n)
        return cache[n]

    return g


class Node:
    def __init__(self, val):
        self.val = val
        self.subs = []

    def subscribe(self, f):
        self.subs.append(f)

    def set(self, v):
        if v != self.val:
            self.val = v
            for f in self.subs:
                f(v)


class Lazy:
    def __init__(self, thunk):
        self.thunk = thunk
        self.done = False
        self.v = 0.0

    def get(self):
        if not self.done:
            self.v = self.thunk()
            self.done = True
        return self.v


def mk(f):
    return Op(f, None)


def run_it(op):
    return op.fn()


def apply(f, n):
    t = 0.0
    for _ in range(n):
        t += f()
    return t


class Acc:
    def __init__(self, s):
        tot = s

        def add(x):
            nonlocal tot
            tot += x
            return tot

        self.add = add


def top(x):
    return x * 2


class M:
    def __init__(self):
        self.h = []

    def add(self, f):
        self.h.append(f)

    def rem(self, f):
        self.h = [x for x in self.h if x is not f]

    def fire(self, x):
        t = 0.0
        for f in self.h:
            t += f(x)
        return t


@program
def linked_lambdas(a, b):
    # linked list of closures
    head = None
    for k in range(4):
        w = a * k
        head = Op(lambda x: x * w + b, head)
    # late binding: all see the last w
    t = 1.0
    while head is not None:
        t = head.fn(t)
        head = head.nxt
    return t


@program
def made_by_functions(a, b):
    def scale(w):
        return lambda x: x * w

    def shift(w):
        return lambda x: x + w

    fs = []
    for k in range(3):
        if a > k * 0.5:
            fs.append(scale(a + k))
        else:
            fs.append(shift(b - k))
    t = 1.0
    for f in fs:
        t = f(t)
    return t


@program
def tape_of_closures(a, b):
    tape = []
    x = Box(a)
    y = Box(b)

    def mul(p, q):
        o = Box(p.v * q.v)

        def back():
            p.g += q.v * o.g
            q.g += p.v * o.g

        tape.append(back)
        return o

    def tanh(p):
        t = math.tanh(p.v)
        o = Box(t)

        def back():
            p.g += (1 - t * t) * o.g

        tape.append(back)
        return o

    z = mul(tanh(mul(x, y)), x)
    z.g = 1.0
    for f in reversed(tape):
        f()
    return z.v, x.g, y.g


@program
def own_gradient(a, b):
    x = Box(a)
    y = Box(b)
    o = Box(x.v * y.v)

    def back():
        x.g += y.v * o.g
        y.g += x.v * o.g

    o.back = back
    o.g = 1.0
    o.back()
    x.back()
    return o.v, x.g, y.g


@program
def partials(a, b):

    def f(w, x):
        return w * x + 1

    q = [partial(f, a), partial(f, b)]
    q.append(partial(f, a + b))
    t = 1.0
    for g in q:
        t = g(t)
    return t


@program
def events(a, b):
    import heapq

    q = []
    log = []

    def arrive(t):
        log.append(t * 2)
        if t < 3.0:
            heapq.heappush(q, Ev(t + abs(a) + 0.5, lambda: arrive(t + abs(a) + 0.5)))

    heapq.heappush(q, Ev(0.1, lambda: arrive(0.1)))
    heapq.heappush(q, Ev(0.2, lambda: log.append(b)))
    n = 0
    while q and n < 20:
        e = heapq.heappop(q)
        e.act()
        n += 1
    return sum(log), len(log)


@program
def handlers(a, b):
    btn = Btn()
    c = Counter()
    d = Counter()
    btn.on(c.add)
    btn.on(d.sub)
    btn.on(c.sub)
    btn.click(a)
    btn.click(b)
    return c.total, d.total


@program
def composed(a, b):
    def compose(f, g):
        return lambda x: f(g(x))

    f = lambda x: x
    for k in range(3):
        f = compose(f, lambda x: x * a + b)
    return f(1.0)


@program
def of_a_call_around(a, b):
    def rec(n, cb):
        count = 0

        def inc():
            nonlocal count
            count += 1

        if n == 0:
            cb()
            cb()
            return count
        r = rec(n - 1, inc)
        return count * 10 + r

    def z():
        pass

    n = 1
    if a > 0:
        n = 2
    return rec(n, z) + 0.0


@program
def counters_in_a_list(a, b):
    hooks = []

    def make(k):
        n = 0.0

        def h(x):
            nonlocal n
            n += x * k
            return n

        hooks.append(h)

    make(a)
    make(b)
    t = 0.0
    for h in hooks:
        t += h(1.0)
    for h in hooks:
        t += h(2.0)
    return t


@program
def counter_in_a_field(a, b):
    p = Acc(a)
    q = Acc(b)
    p.add(1.0)
    q.add(2.0)
    p.add(b)
    return p.add(0.0) * q.add(0.0)


@program
def assigned_in_a_loop(a, b):
    head = None
    k = 1.0
    head = Op(lambda: k * a, head)
    n = 0
    while n < 3:
        head = Op(lambda: k + b, head)
        n += 1
        k = k + a
    t = 0.0
    while head is not None:
        t += head.fn()
        head = head.nxt
    return t


@program
def assigned_later(a, b):
    box = Box(a)
    k = 1.0
    box.back = lambda: k * a
    k = b
    return box.back()


@program
def in_comprehensions(a, b):
    fs = []
    for k in range(3):
        fs.append(lambda: k * a)
    s = 0.0
    for f in fs:
        s += f()
    gs = [lambda: k * b for k in range(3)]
    for g in gs:
        s += g()
    hs = [lambda k=k: k * b for k in range(3)]
    for h in hs:
        s += h()
    return s


@program
def heap_of_the_function_around(a, b):
    q = []

    def push(t):
        heapq.heappush(q, t)

    push(a)
    push(b)
    push(a + b)
    s = 0.0
    while q:
        s = s * 2 + heapq.heappop(q)
    return s


@program
def simulation(a, b):
    sim = Sim()

    def arrive():
        sim.log += sim.now
        if sim.now < 3.0:
            sim.at(sim.now + abs(a) + 0.3, depart)

    def depart():
        sim.log -= b
        if sim.now < 2.0:
            sim.at(sim.now + abs(b), arrive)

    sim.at(0.5, arrive)
    sim.at(0.7, lambda: sim.at(1.0, depart))
    sim.run()
    return sim.log, sim.now


@program
def compared(a, b):
    def f(x):
        return x + a

    def g(x):
        return x * b

    fs = [f, g, f]
    if a > 0:
        fs.append(g)
    n = 0.0
    for h in fs:
        if h is f:
            n += 1
        if h == g:
            n += 10
    return n


@program
def taken_out(a, b):
    def f(x):
        return x + a

    def g(x):
        return x * b

    m = M()
    m.add(f)
    m.add(g)
    m.add(top)
    u = m.fire(a)
    m.rem(f)
    v = m.fire(b)
    if a > 0:
        m.rem(top)
    return u, v, m.fire(1.0)


@program
def assigned_after_a_choice(a, b):
    x = Box(a)
    y = Box(b)
    k = 1.0
    z = x if a > b else y
    z.back = lambda: k * a
    k = b
    return z.back()


@program
def set_in_a_loop(a, b):
    x = Box(a)
    y = Box(b)
    k = 1.0
    z = x if a > b else y
    for k in range(3):
        z.back = lambda: k * a
        if k == 1:
            y.back = z.back
    return z.back() + (y.back() or 0.0)


@program
def assigned_on_a_path(a, b):
    k = 1.0
    op = mk(lambda: k * a)
    t = op.fn()
    if a > 0:
        k = b
    return t + op.fn()


@program
def defaults(a, b):
    q = []
    n = 2
    if a > 0:
        n = 3
    for k in range(n):

        def act(x, k=k):
            return x * k + b

        q.append(Op(act, None))
    t = a
    while q:
        t = q.pop().fn(t)
    return t


@program
def graph_of_numbers(a, b):
    x, y = Number(a), Number(b)
    total = 3 * x + y * y
    for k in range(3):
        total = total * 0.5 + (x - y).positive() * (k + 1) + (x * 0.1).exp()
    if total.value > 1:
        total = total**2 + x
    total.differentiate()
    return total.value, x.slope, y.slope


@program
def tape(a, b):
    t = Tape()
    i = t.var(a)
    j = t.var(b)
    k = t.mul(i, j)
    n = 1
    if a > 0:
        n = 3
    for _ in range(n):
        k = t.mul(t.sin(k), i)
    t.back(k)
    return t.vals[k], t.grads[i], t.grads[j]


@program
def undone(a, b):
    e = Editor()
    e.push(a)
    e.push(b)
    e.scale(2.0)
    if a > b:
        e.undo()
    e.push(1.0)
    if b > 0:
        e.undo()
        e.undo()
    return sum(e.text), len(e.text)


@program
def callbacks(a, b):
    # promises / callbacks
    cbs = []
    done = {"v": 0.0}

    def then(f):
        cbs.append(f)
        return len(cbs)

    then(lambda x: done.update(v=done["v"] + x))
    then(lambda x: done.update(v=done["v"] * x))
    if a > 0:
        then(lambda x: done.update(v=done["v"] - 1))
    for f in cbs:
        f(b)
    return done["v"]


@program
def observed(a, b):
    x = Node(0.0)
    y = Node(0.0)
    z = Node(0.0)
    x.subscribe(lambda v: y.set(v * 2))
    y.subscribe(lambda v: z.set(v + b))
    log = []
    z.subscribe(log.append)
    x.set(a)
    x.set(b)
    return x.val, y.val, z.val, len(log)


@program
def states(a, b):
    # state machine: functions return the next state
    out = []

    def start(x):
        out.append(x)
        return low if x < 0 else high

    def low(x):
        out.append(-x)
        return start

    def high(x):
        out.append(x * 2)
        return low if x > 1 else high

    st = start
    for x in [a, b, a + b, a * b, 2.0]:
        st = st(x)
    return sum(k * v for k, v in enumerate(out))


@program
def delayed(a, b):
    n = [0]

    def work():
        n[0] += 1
        return a * 2

    l = Lazy(work)
    m = Lazy(lambda: l.get() + b)
    t = m.get() + l.get()
    if a > 0:
        t += m.get()
    return t, n[0]


class Operations:
    def __init__(self):
        self.acc = 0.0
        self.n = 0
        self.table = {"add": self.add, "mul": self.mul, "neg": self.neg}

    def add(self, v):
        self.acc += v
        self.n += 1

    def mul(self, v):
        self.acc *= v
        self.n += 1

    def neg(self, v):
        self.acc = -self.acc

    def run(self, prog):
        for op, v in prog:
            self.table[op](v)


@program
def methods_by_name(a, b):
    m = Operations()
    m.run([("add", a), ("mul", b), ("neg", 0.0), ("add", 1.0)])
    if a > 0:
        m.table["add"](5.0)
    return m.acc, m.n


class Hooks:
    def __init__(self, v):
        self.hooks = [self.up]
        self.v = v
        self.hooks.append(self.down)
        self.extra = lambda x: x + self.v

    def up(self, x):
        self.v += x
        return self.v

    def down(self, x):
        self.v -= x / 2
        return self.v


@program
def methods_in_a_list(a, b):
    m = Hooks(a)
    t = 0.0
    for h in m.hooks:
        t += h(b)
    m.v = b
    return t, m.v, m.extra(1.0), m.hooks[1](a)


class Getter:
    def __init__(self, v):
        self.v = v
        self.f = self.get

    def get(self):
        return self.v


@program
def method_in_a_field(a, b):
    x = Getter(a)
    y = Getter(b)
    z = x if a > b else y
    z.v += 10
    return x.f(), y.f(), z.f() + z.get()


@pytest.mark.parametrize("backend", ["auto", "xla"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_that_are_kept(name, backend):
    function = PROGRAMS[name]
    found = ab.unbatch(ab.batched(function, backend=backend)(A, B))
    assert_same(found, [function(a, b) for a, b in zip(A, B, strict=True)])


def test_a_graph_of_numbers_compiles():
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(graph_of_numbers, backend="llvm")(A, B))
    assert_same(found, [graph_of_numbers(a, b) for a, b in zip(A, B, strict=True)])


@pytest.mark.parametrize("function", [tape_of_closures, graph_of_numbers, composed, undone], ids=lambda f: f.__name__)
def test_derivatives_through_kept_functions(function):
    def first(a, b):
        found = function(a, b)
        return found[0] if isinstance(found, tuple) else found

    step = 1e-6
    found = ab.grad(ab.batched(first, backend="llvm"), argnums=(0, 1))(A, B)
    by_a = [(first(a + step, b) - first(a - step, b)) / (2 * step) for a, b in zip(A, B, strict=True)]
    by_b = [(first(a, b + step) - first(a, b - step)) / (2 * step) for a, b in zip(A, B, strict=True)]
    assert_same([np.asarray(x) for x in found], [np.asarray(by_a), np.asarray(by_b)], tolerance=1e-3)


class StackMachine:
    def __init__(self):
        self.stack = []
        self.ops = {0: self.push, 1: self.add, 2: self.dup}

    def push(self, v):
        self.stack.append(v)

    def add(self, v):
        self.stack.append(self.stack.pop() + self.stack.pop())

    def dup(self, v):
        self.stack.append(self.stack[-1])


def stack_machine(code):
    vm = StackMachine()
    for op, v in code:
        vm.ops[op](v)
    return sum(vm.stack), len(vm.stack)


def test_methods_that_data_choose():
    programs = [[(0, 1.0), (2, 0.0), (1, 0.0)], [(0, 2.0), (0, 3.0), (1, 0.0), (2, 0.0)], [(0, 5.0)]]
    found = ab.unbatch(ab.batched(stack_machine)(programs))
    assert_same(found, [stack_machine(x) for x in programs])


def lists_of_functions(ns):
    kept = []
    for n in ns:
        inner = lambda x: x - n
        kept.append(lambda x: inner(x) + 1)
    return kept


def test_functions_of_a_list_that_is_returned_read_variables_of_their_own():
    def f(ns):
        n = 100
        return sum([g(2) for g in lists_of_functions(ns)]) + n

    examples = [[1, 2, 3], [4, 5], [0]]
    with ab.options(trace=False):
        assert ab.unbatch(ab.batched(f)(examples)) == [f(x) for x in examples]


@settings(max_examples=30, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(drawn_functions.programs())
def test_random_programs(drawn):
    made, data = drawn
    wanted = []
    for numbers in data:
        try:
            wanted.append((numbers, made.function(list(numbers))))
        except RecursionError:  # a function that calls itself by way of an attribute
            pass
    assume(wanted)
    with ab.options(trace=False):
        found = ab.unbatch(ab.batched(made.function, backend="llvm")([numbers for numbers, _ in wanted]))
    assert_same(found, [result for _, result in wanted])


class Left:
    def on(self):
        return 1.0

    def off(self):
        return 2.0


class Right(Left):
    def off(self):
        return 3.0


def test_methods_of_several_classes_are_compared():
    def f(a, b):
        x, y = Left(), Right()
        z = x if a > b else y
        y.kept = x.kept = a
        return z.on == z.off, z.off == z.off, z.off == x.off, z.off() + z.kept

    found = ab.unbatch(ab.batched(f, backend="llvm")(A, B))
    assert_same(found, [f(a, b) for a, b in zip(A, B, strict=True)])
