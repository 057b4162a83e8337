"""Random well-typed modules: every instruction, own operations and JAX primitives, structure and numbers.

Programs are drawn over one store of nodes (`Node`: label, weight, word, left, right, kids), so that they can run on a
`FakeMemory`. Recursion goes to children only, so every program ends; any of them may fail.
"""

from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from autobatch.errors import Span
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    FLOAT,
    INT,
    MADE,
    STR,
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    List,
    Literal,
    Map,
    Module,
    Ref,
    Region,
    Value,
    While,
)
from autobatch.ir.leaf import STATUS, Site
from autobatch.ir.ops import Op, own

NODE = Ref("Node")
KIDS = List(NODE, "Node.kids")
VECTOR = Array("float32", (3,))
FIELDS = {"label": INT, "weight": FLOAT, "vector": VECTOR, "word": STR, "left": NODE, "kids": KIDS}
SPAN = Span("program.py", 1)
SITES = (Site("RuntimeError", "too many turns", SPAN),)


@dataclass
class FakeMemory:
    """Rows of nodes as Python dicts; implements `ir.memory.Memory`."""

    nodes: list[dict]
    classes: list[str]
    words: tuple[str, ...] = ("a", "b", "c")
    lists: list[list[int]] = field(default_factory=list)

    def load(self, type, row, name):
        if name not in self.nodes[row]:
            raise AttributeError(f"{self.classes[row]!r} object has no attribute {name!r}")
        return self.nodes[row][name]

    def is_missing(self, type, row, name):
        return self.nodes[row].get(name) is None

    def class_name(self, type, row):
        return self.classes[row]

    def length(self, type, row):
        return len(self.lists[row])

    def item(self, type, row, index):
        return self.lists[row][index]

    def place(self, space, holder, row):
        return 0, sum(map(len, self.lists)) if space.endswith("#values") else len(self.nodes)

    def list_of(self, store, element):
        ends = np.cumsum([len(x) for x in self.lists])
        return int(np.searchsorted(ends, element, side="right"))

    def tag_value(self, vocabulary, tag):
        return self.words[tag]

    def tag_of(self, vocabulary, value):
        return self.words.index(value) if value in self.words else -1


@st.composite
def memories(draw, size=6):
    """Trees of up to `size` nodes: children have larger rows, so there is no cycle."""
    count = draw(st.integers(1, size))
    memory = FakeMemory([], [])
    for row in range(count):
        later = st.integers(row + 1, count - 1) if row + 1 < count else st.nothing()
        memory.lists.append(draw(st.lists(later, max_size=2 if row + 1 < count else 0)))
        memory.classes.append(draw(st.sampled_from(["Leaf", "Inner"])))
        memory.nodes.append(
            {
                "label": draw(st.integers(-3, 3)),
                "weight": draw(st.sampled_from([0.0, 0.5, -1.5, 2.0])),
                "vector": np.arange(3, dtype=np.float32) * row,
                "word": draw(st.integers(0, 2)),
                "left": draw(later | st.just(-1)),
                "kids": row,
            }
        )
    return memory


JAX_FUNCTIONS = [
    (jnp.add, (INT, INT)),
    (jnp.multiply, (FLOAT, FLOAT)),
    (jnp.tanh, (VECTOR,)),
    (jnp.dot, (VECTOR, VECTOR)),
    (lambda a, i: a[i], (VECTOR, INT)),
    (lambda a: jnp.where(a > 0, a, 2.0), (VECTOR,)),
    (lambda x: jnp.stack([x, x, x]).astype(jnp.float32), (FLOAT,)),
    (lambda a: jnp.cumsum(a), (VECTOR,)),
    (lambda x: lax.cond(x > 0, lambda v: v * 2, lambda v: -v, x), (FLOAT,)),
    (lambda x: lax.while_loop(lambda v: v < 3, lambda v: v + 1, x), (FLOAT,)),
    (lambda a: a @ jnp.arange(9.0).reshape(3, 3), (VECTOR,)),
    (lax.lt, (INT, INT)),
    (lax.bitwise_and, (BOOL, BOOL)),
    (lambda x: x ** jnp.float32(0.5), (FLOAT,)),
    (lambda x: jnp.round(x), (FLOAT,)),
]


class Build:
    """One module being drawn."""

    def __init__(self, draw, signatures):
        self.draw, self.signatures = draw, signatures
        self.ids, self.constants, self.used = 0, [], set()

    def value(self, type):
        self.ids += 1
        return Value(self.ids - 1, type, self.draw(st.sampled_from(["", "x"])))

    def pick(self, scope, type):
        """A value of that type in scope, or a literal, or None."""
        known = [v for v in scope if v.type == type]
        if type in (INT, FLOAT, BOOL) and (not known or self.draw(st.integers(0, 3)) == 0):
            values = {INT: st.integers(-3, 3), FLOAT: st.sampled_from([0.0, 1.5, -2.0]), BOOL: st.booleans()}
            return Literal(self.draw(values[type]), type)
        return self.draw(st.sampled_from(known)) if known else None

    def ensure(self, scope, body, type):
        """A value of that type; made if there is none."""
        found = self.pick(scope, type)
        if found is not None:
            return found
        match type:
            case Ref():
                op = own("none")
            case List(store=None):
                x = self.ensure(scope, body, type.elem)
                if self.draw(st.booleans()):
                    return self.apply(scope, body, own("pack_list"), (x,), type)
                inner = self.apply(scope, body, own("pack_list"), (x,), type)
                lists = self.apply(scope, body, own("pack_list"), (inner, inner), List(type))
                return self.apply(scope, body, own("flatten"), (lists,), type)
            case _ if type == STR:
                op = own("tag", value="b")
            case Array():
                op = own("undefined", type=type)
            case _:
                node = self.ensure(scope, body, NODE)
                return self.apply(scope, body, own("load", field="kids"), (node,), type)
        return self.apply(scope, body, op, (), type)

    def apply(self, scope, body, op, xs, *types):
        results = tuple(self.value(t) for t in types)
        body.append(Apply(results, op, tuple(xs), SPAN))
        scope.extend(results)
        self.used.add("jax" if op.is_jax else op.name)
        return results[0] if results else None

    # ---- one statement each

    def structure(self, scope, body):
        node = self.ensure(scope, body, NODE)
        choice = self.draw(st.integers(0, 12))
        match choice:
            case 0 | 1:
                name = self.draw(st.sampled_from(sorted(FIELDS)))
                self.apply(scope, body, own("load", field=name), (node,), FIELDS[name])
            case 2:
                self.apply(scope, body, own("is_none"), (node,), BOOL)
            case 3:
                self.apply(scope, body, own("is_class", names=("Leaf",)), (node,), BOOL)
            case 4:
                kids = self.ensure(scope, body, KIDS)
                size = self.apply(scope, body, own("length"), (kids,), INT)
                self.apply(scope, body, own("item"), (kids, self.draw(st.sampled_from([size, Literal(0, INT)]))), NODE)
            case 5:
                word = self.ensure(scope, body, STR)
                self.apply(scope, body, own("tag_index", keys=("b", "a")), (word,), INT)
                number = self.apply(scope, body, own("word"), (word,), INT)
                self.apply(scope, body, own("word_of"), (number,), STR)
                other = self.apply(scope, body, own("tag", value="zzz"), (), STR)
                self.apply(scope, body, own("tag_equal"), (word, other), BOOL)
            case 6:
                other = self.apply(scope, body, own("none"), (), NODE)
                self.apply(scope, body, own("same"), (node, self.draw(st.sampled_from([node, other]))), BOOL)
                self.apply(scope, body, own("load_is_none", field="weight", type=FLOAT), (node,), BOOL)
            case 7:
                keys = self.ensure(scope, body, List(INT))
                reverse = self.draw(st.booleans())
                self.apply(scope, body, own("sort_order", reverse=reverse), (keys,), List(INT))
                place = self.apply(scope, body, own("find"), (keys, self.ensure(scope, body, INT)), INT)
                self.apply(scope, body, own("put"), (keys, Literal(0, INT), place), List(INT))
            case 8:
                word = self.ensure(scope, body, STR)
                function, type = self.draw(st.sampled_from([("upper", STR), ("ord", INT)]))
                self.apply(scope, body, own("text", function=function, args=(...,)), (word,), type)
                letters = self.apply(scope, body, own("pack_list"), (Literal(97, INT), Literal(98, INT)), List(INT))
                self.apply(scope, body, own("spelt", function="__eq__"), (letters, letters), BOOL)
            case 9:
                adopted = self.apply(scope, body, own("adopt"), (node,), MADE)
                label = self.ensure(scope, body, INT)
                self.apply(scope, body, own("make", of="Pair"), (label, adopted), MADE)
            case 10:
                kids = self.ensure(scope, body, KIDS)
                first = self.apply(scope, body, own("first"), (kids,), INT)
                found = self.apply(scope, body, own("row_at", space=f"{KIDS.store}.#values"), (first, node, kids), KIDS)
                held = self.draw(st.sampled_from([node, kids, found]))
                number = self.apply(scope, body, own("row"), (held,), INT)
                self.apply(scope, body, own("row_of"), (number,), held.type)
                self.apply(scope, body, own("rows_of", space=NODE.store), (node, kids), INT)
            case 11:
                index = self.ensure(scope, body, INT)
                self.apply(scope, body, own("bounds", axis=0, size=self.draw(st.integers(0, 5))), (index,))
            case _:
                condition = self.ensure(scope, body, BOOL)
                label = self.ensure(scope, body, INT)
                self.apply(scope, body, own("check", kind="ValueError", message="it's {}"), (condition, label))

    def number(self, scope, body):
        kinds = ["jax", "jax", "binary", "round", "int", "reduce", "stack", "padded", "undefined", "masked", "slope"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "masked":
            x = self.ensure(scope, body, FLOAT)
            self.apply(
                scope, body, own("masked", region=self.masked(), sites=SITES, cut=True), (x,), FLOAT, INT, STATUS
            )
        elif kind == "slope":
            x = self.apply(scope, body, own("seed"), (self.ensure(scope, body, FLOAT),), FLOAT)
            region = self.masked()
            of_number = replace(region, results=region.results[:1])
            self.apply(scope, body, own("gradient_of", region=of_number, wrt=(0,)), (x,), Array("float32"))
        elif kind == "jax":
            fun, types = self.draw(st.sampled_from(JAX_FUNCTIONS))
            xs = [self.ensure(scope, body, t) for t in types]
            closed, _ = jax_compat.trace(fun, *types)
            made = jax_compat.inline(closed, xs, self.value, self.constant, body.append, SPAN)
            scope.extend(v for v in made if isinstance(v, Value))
            self.used.add("jax")
        elif kind == "binary":
            name = self.draw(st.sampled_from(["floordiv", "mod", "truediv", "pow"]))
            type = self.draw(st.sampled_from([INT, FLOAT]))
            xs = [self.ensure(scope, body, type) for _ in range(2)]
            if name == "pow" and type == INT and isinstance(xs[1], Literal):
                xs[1] = Literal(abs(xs[1].value), INT)
            self.apply(scope, body, own(name), xs, FLOAT if name == "truediv" else type)
        elif kind == "round":
            x = self.ensure(scope, body, FLOAT)
            digits = self.draw(st.sampled_from([None, 1]))
            self.apply(scope, body, own("round", ndigits=digits), (x,), INT if digits is None else FLOAT)
        elif kind == "undefined":
            type = self.draw(st.sampled_from([INT, VECTOR]))
            self.apply(scope, body, own("undefined", type=type), (), type)
        elif kind == "int":
            whole = self.apply(scope, body, own("int"), (self.ensure(scope, body, FLOAT),), INT)
            self.apply(scope, body, own("unknown"), (whole,), INT)
        else:
            listed = self.ensure(scope, body, List(FLOAT))
            if kind == "stack":
                self.apply(scope, body, own("stack"), (listed,), Array("float32", (1,)))
            elif kind == "padded":
                self.apply(scope, body, own("padded", room=64), (listed,), Array("float32", (64,)))
            else:
                reduction = self.draw(st.sampled_from(["sum", "prod", "max", "min"]))
                self.apply(scope, body, own("reduce", kind=reduction), (listed,), FLOAT)

    def masked(self):
        """`while n < 3 and x < 4: x = -x if x < 0 else x + 1.5; n += 1`, two turns at most"""
        x, types = self.value(FLOAT), (FLOAT, INT, STATUS)
        tested, turned, last = ([self.value(t) for t in types] for _ in range(3))
        few, small, both, negative = (self.value(BOOL) for _ in range(4))
        minus, plus, new, more, status = (self.value(t) for t in (FLOAT, FLOAT, FLOAT, INT, STATUS))

        def step(result, primitive, *xs):
            return Apply((result,), _primitive(primitive), xs, SPAN)

        test = Region(
            tuple(tested),
            (
                step(few, lax.lt_p, tested[1], Literal(3, INT)),
                step(small, lax.lt_p, tested[0], Literal(4.0, FLOAT)),
                step(both, lax.and_p, few, small),
            ),
            (both,),
        )
        branch = If(
            (new,),
            negative,
            Region((), (step(minus, lax.neg_p, turned[0]),), (minus,)),
            Region((), (step(plus, lax.add_p, turned[0], Literal(1.5, FLOAT)),), (plus,)),
            SPAN,
        )
        body = (
            step(negative, lax.lt_p, turned[0], Literal(0.0, FLOAT)),
            branch,
            step(more, lax.add_p, turned[1], Literal(1, INT)),
            Apply((status,), own("within", site=1, states=2, turns=1), (turned[2],), SPAN),
        )
        init = (x, Literal(0, INT), Literal(0, STATUS))
        loop = While(tuple(last), init, test, Region(tuple(turned), body, (new, more, status)), SPAN)
        return Region((x,), (loop,), tuple(last))

    def constant(self, array):
        self.constants.append(array)
        return Literal(None, jax_compat.type_of(array), len(self.constants) - 1)

    def region(self, scope, depth, args, types, first=None):
        """A region with these arguments that yields values of `types`; `first` forces the first result."""
        inner, body = [*scope, *args], []
        self.statements(inner, body, depth)
        results = [self.ensure(inner, body, t) for t in types]
        return Region(tuple(args), tuple(body), ((first,) if first is not None else ()) + tuple(results))

    def branch(self, scope, body, depth):
        condition = self.ensure(scope, body, BOOL)
        types = self.draw(st.lists(st.sampled_from([INT, FLOAT, NODE]), max_size=2))
        then, orelse = (self.region(scope, depth, (), types) for _ in range(2))
        self.finish(scope, body, If(tuple(map(self.value, types)), condition, then, orelse, SPAN))

    def loop(self, scope, body, depth):
        types = self.draw(st.lists(st.sampled_from([INT, FLOAT, NODE]), max_size=2))
        count = self.draw(st.sampled_from([Literal(2, INT), Literal(0, INT), Literal(-1, INT)]))
        init = tuple(self.ensure(scope, body, t) for t in types)
        args = tuple(self.value(t) for t in [INT, *types])
        inner = self.region(scope, depth, args, types)
        self.finish(scope, body, For(tuple(map(self.value, types)), count, init, inner, SPAN))

    def repeat(self, scope, body, depth):
        """`while turn < 2`: the first carried value is the turn."""
        node = self.draw(st.booleans())
        types = [INT, NODE] if node else [INT]
        init = (Literal(0, INT), *(self.ensure(scope, body, t) for t in types[1:]))
        tested, turned = ([self.value(t) for t in types] for _ in range(2))
        less, more = self.value(BOOL), self.value(INT)
        test = Region(
            tuple(tested), (Apply((less,), _primitive(lax.lt_p), (tested[0], Literal(2, INT)), SPAN),), (less,)
        )
        turn = Apply((more,), _primitive(lax.add_p), (turned[0], Literal(1, INT)), SPAN)
        inner = self.region(scope, depth, turned, types[1:], more)
        inner = Region(inner.args, (turn, *inner.body), inner.results)
        self.finish(scope, body, While(tuple(map(self.value, types)), init, test, inner, SPAN))

    def comprehension(self, scope, body, depth):
        filtered = self.draw(st.booleans())
        arg = self.value(INT)
        keep = self.ensure(scope, body, BOOL) if filtered else None
        inner = self.region(scope, depth, (arg,), [FLOAT], keep)
        self.finish(scope, body, Map((self.value(List(FLOAT)),), Literal(2, INT), inner, filtered, SPAN))

    def call(self, scope, body, depth):
        name = self.draw(st.sampled_from(sorted(self.signatures)))
        params, results = self.signatures[name]
        node = self.ensure(scope, body, NODE)
        child = self.apply(scope, body, own("load", field="left"), (node,), NODE)
        xs = tuple(child if t == NODE else self.ensure(scope, body, t) for t in params)
        # Recursion ends where there is no child.
        empty = self.apply(scope, body, own("is_none"), (child,), BOOL)
        made = tuple(self.value(t) for t in results)
        recurse = Region((), (Call(made, name, xs, SPAN),), made)
        stop = self.region(scope, 0, (), results)
        self.used.add("Call")
        self.finish(scope, body, If(tuple(map(self.value, results)), empty, stop, recurse, SPAN))

    def finish(self, scope, body, instruction):
        body.append(instruction)
        scope.extend(instruction.results)
        self.used.add(type(instruction).__name__)

    def statements(self, scope, body, depth):
        simple = [self.structure, self.number]
        nested = [self.branch, self.loop, self.repeat, self.comprehension, self.call]
        for _ in range(self.draw(st.integers(0, 3 if depth else 1))):
            step = self.draw(st.sampled_from(simple + nested if depth else simple))
            step(scope, body) if step in simple else step(scope, body, depth - 1)


def _primitive(primitive):
    return Op(primitive.name, (), primitive)


@st.composite
def modules(draw, depth=2):
    """A module of one or two functions; `shared` is one vector and one float."""
    types = st.lists(st.sampled_from([INT, FLOAT, VECTOR]), max_size=2)
    names = ["main", "f.1"][: draw(st.integers(1, 2))]
    signatures = {n: ((NODE, *draw(types)), tuple(draw(types))) for n in names}
    build = Build(draw, signatures)
    shared = (build.value(VECTOR), build.value(FLOAT))
    functions = []
    for name, (params, results) in signatures.items():
        args = tuple(build.value(t) for t in params)
        functions.append(Function(name, build.region(shared, depth, args, results), SPAN))
    return Module(tuple(functions), shared, tuple(build.constants))


def arguments(module):
    """Arguments for the entry of a drawn module: the first node, then small numbers."""
    values = {INT: 2, FLOAT: 0.5, VECTOR: np.array([1.0, -1.0, 0.5], np.float32), NODE: 0}
    return [values[v.type] for v in module.functions[0].region.args], [
        jnp.array([0.5, 1.0, -2.0], jnp.float32),
        jnp.float32(0.25),
    ]
