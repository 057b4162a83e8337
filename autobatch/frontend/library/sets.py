"""Sets, counters and dicts with a default, whose elements the function makes: tables (`tables.py`) with other methods.

What a method means is written in Python, and lowered like a function of the user where the method is called. A set has
an order here, that of insertion, but Python's is another one: so nothing may run over a set but what does not depend
on the order. Which code that is, is read from the text alone; `iterated` looks at what the variables hold.

    sorted(f(x) for x in s)      any(...), all(...), sum(...), min(...), max(...), {f(x) for x in s}
    for x in s: total += f(x)    for x in s: found.add(x)
"""

from __future__ import annotations

import ast
import collections
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from autobatch.frontend.library import tables
from autobatch.frontend.library.tables import EMPTY
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import is_number, present
from autobatch.frontend.lowering.sequences import begin, sequence
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import list_heap
from autobatch.frontend.memory.heap import SETS
from autobatch.frontend.syntax.scopes import MUTATORS
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table, constant, is_static_set
from autobatch.ir.core import Ref

# ---- where the order does not matter


CONSUMERS = frozenset({"sorted", "min", "max", "any", "all", "sum", "set", "frozenset"})
"""Functions that take what a comprehension gives in any order."""
_PURE = frozenset(
    {"abs", "min", "max", "len", "int", "float", "bool", "round", "sum", "sorted", "tuple", "range", "divmod"}
)
_MODULES = frozenset({"math", "np", "numpy", "jnp"})
_READERS = frozenset({"get"})
_KINDS = {ast.Add: "+", ast.Sub: "+", ast.Mult: "*", ast.BitOr: "|", ast.BitAnd: "&", ast.BitXor: "^"}
_OF_SETS = {"add": "|", "update": "|", "discard": "-"}


class Walk(NamedTuple):
    """What runs over a set: the variables that it adds to, where these are numbers or sets, and those that it reads,
    where reading them changes nothing."""

    added: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def order_free(function: ast.AST) -> Mapping[ast.expr, Walk]:
    """The iterables of a function whose items may come in any order."""
    found: dict[ast.expr, Walk] = {}
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef) and n is not function]
    changing = frozenset(f.name for f in inner if _changes_outside(f))
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Name(id=name),
                args=[ast.GeneratorExp() | ast.ListComp() | ast.SetComp() as made, *more],
                keywords=named,
            ) if name in CONSUMERS and not more and all(k.arg != "key" for k in named):
                # (of equal keys the first comes first; sum() with a start may put lists together)
                found |= _iterated(made, changing)
            case ast.SetComp():
                found |= _iterated(node, changing)
            case ast.For(orelse=[]) if (walk := _turns(node, function)) is not None:
                found[node.iter] = walk
    return found


def _iterated(made: ast.GeneratorExp | ast.ListComp | ast.SetComp, changing: frozenset[str]) -> Mapping[ast.expr, Walk]:
    """What a comprehension runs over; nothing where it changes something on the way, or calls a function that does."""
    nodes = list(ast.walk(made))
    calls = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    if calls & changing or any(isinstance(n, ast.NamedExpr) or _changed(n) is not None for n in nodes):
        return {}
    return dict.fromkeys((g.iter for g in made.generators), Walk())


def _changes_outside(function: ast.FunctionDef) -> bool:
    """Does a function change a variable, or what one holds, that is not its own?"""
    nodes = list(ast.walk(function))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(isinstance(n, ast.Nonlocal | ast.Global) for n in nodes):
        return True
    return any(not isinstance(x, ast.Name) or x.id not in own for x in map(_changed, nodes) if x is not None)


def _changed(node: ast.AST) -> ast.expr | None:
    """What a node changes in place, without attributes and items on the way there; None where it changes nothing."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr=attr)) if attr in MUTATORS:
            pass
        case (
            ast.Attribute(value=held, ctx=ast.Store() | ast.Del())
            | ast.Subscript(value=held, ctx=ast.Store() | ast.Del())
        ):
            pass
        case _:
            return None
    while isinstance(held, ast.Attribute | ast.Subscript):
        held = held.value
    return held


def _turns(loop: ast.For, function: ast.AST) -> Walk | None:
    """What the turns of a loop read and add to; None where their order may matter."""
    body = _Turns()
    body.read |= set(_names(loop.iter))
    if not body.bind(loop.target) or not body.run(loop.body, set(body.own)):
        return None
    outside = set(_loads(function, frozenset(), loop))
    kept = body.read & body.added.keys() or body.own & (outside | body.added.keys())
    several = any(len(kinds) > 1 for kinds in body.added.values()) or len(body.returned) > 1
    if kept or several or (body.returned and body.added):
        return None
    return Walk(frozenset(body.added), frozenset(body.read))


def _loads(node: ast.AST, bound: frozenset[str], without: ast.For) -> Iterator[str]:
    """The variables that are read outside of a loop, and not in another one that sets them."""
    if node is without:
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
        yield node.id
    targets = [node.target] if isinstance(node, ast.For) else [g.target for g in getattr(node, "generators", ())]
    within = bound | {name for target in targets for name in _names(target)}
    for child in ast.iter_child_nodes(node):
        yield from _loads(child, bound if child is getattr(node, "iter", None) else within, without)


class _Turns:
    """What the turns of a loop do. `added`: the variables that they add to, and how; `own`: those that each turn sets
    before it reads them; `read`: those that it reads; `returned`: the constants that it returns."""

    def __init__(self) -> None:
        self.added: dict[str, set[str]] = {}
        self.own: set[str] = set()
        self.read: set[str] = set()
        self.returned: set[str] = set()
        self.early: set[str] = set()

    def bind(self, target: ast.expr) -> bool:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        self.own |= {n.id for n in names if isinstance(n, ast.Name)}
        return all(isinstance(n, ast.Name) for n in names)

    def run(self, statements: Sequence[ast.stmt], known: set[str]) -> bool:
        """May these come in any order, in which `known` are set in the turn?"""
        return all(self.one(x, known) for x in statements) and not self.early & self.own

    def one(self, statement: ast.stmt, known: set[str]) -> bool:
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in _KINDS:
                self.added.setdefault(name, set()).add(_KINDS[type(op)])
                return self.reads(value, known)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=args, keywords=[])
            ):
                self.added.setdefault(name, set()).add(_OF_SETS.get(attr, "?"))
                return attr in _OF_SETS and all(self.reads(x, known) for x in args)
            case ast.Assign(targets=[target], value=value):
                fits = self.reads(value, known) and self.bind(target)
                known |= set(_names(target))
                return fits
            case ast.If(test=test, body=body, orelse=orelse):
                first, second = set(known), set(known)
                fits = self.reads(test, known) and self.run(body, first) and self.run(orelse, second)
                known |= first & second
                return fits
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                inner = known | set(_names(target))
                return self.reads(iterated, known) and self.bind(target) and self.run(body, inner)
            case ast.Return(value=ast.Constant() as constant):
                self.returned.add(ast.dump(constant))
                return True
            case ast.Continue() | ast.Pass():
                return True
        return False

    def reads(self, expression: ast.expr, known: set[str]) -> bool:
        """Note what an expression reads; does it call nothing that may change something?"""
        names = set(_names(expression))
        self.read |= names
        self.early |= names - known
        return all(map(_is_pure, ast.walk(expression)))


def _names(expression: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(expression) if isinstance(n, ast.Name))


def _is_pure(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _PURE
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attr)):
            return module in _MODULES or attr in _READERS
        case ast.Call() | ast.NamedExpr() | ast.Lambda() | ast.Await() | ast.Yield() | ast.YieldFrom():
            return False
        case _:
            return True


# ---- sets, counters, dicts with a default


Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def is_set(value: v.Abstract) -> bool:
    """Is it a set, of constants or of what the function makes?"""
    return is_static_set(value) or (isinstance(value, v.Record) and value.kind == "table" and value.cls in SETS)


def is_frozen(value: v.Abstract) -> bool:
    """Is it a `frozenset`?"""
    return (value.cls if isinstance(value, v.Record) else type(getattr(value, "value", None))) is frozenset


def members(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """The elements of a set as a list, for what does not depend on their order; other values as they are."""
    if isinstance(value, v.Optional) and tables.is_table(value.value):
        value = present(s, value)
    if isinstance(value, v.MemoryRow) and value.heap.is_set:
        return list_heap.column(s, list_heap.there(s, value), 0)
    if isinstance(value, v.Record) and value.kind == "table" and value.cls in SETS:
        return tables.keys_of(value)
    return value


def iterated(s: LoweringState, node: ast.expr) -> v.Abstract:
    """What a loop or a comprehension runs over: of a set its members, where their order does not matter."""
    value = s.evaluate(node)
    walk = order_free(s.frame.source.node).get(node)
    if walk is None or not all(_takes_any_order(s, n) for n in walk.added) or any(_makes_keys(s, n) for n in walk.read):
        return begin(s, value)
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref) and (parts := s.context.rules.parts(s, value)):
        value = parts if is_set(parts) else value
    return begin(s, members(s, value))


def _takes_any_order(s: LoweringState, name: str) -> bool:
    """Is a variable, to which a loop adds, a number or a set?"""
    held = s.env[name].value if name in s.env else None
    if isinstance(held, v.MemoryRow):
        return held.heap.is_set
    if isinstance(held, v.Record):
        return held.kind == "table" and held.cls is set
    return held is not None and (is_number(held) or is_static_set(held))


def _makes_keys(s: LoweringState, name: str) -> bool:
    """Is a variable a dict that has a key from where it is asked for?"""
    held = s.env[name].value if name in s.env else None
    cls = held.heap.cls if isinstance(held, v.MemoryRow) else held.cls if isinstance(held, v.Record) else None
    return cls is collections.defaultdict


def make_set(s: LoweringState, cls: type, items: Sequence[v.Abstract]) -> v.Abstract:
    """A set of elements that are known one by one."""
    made: v.Abstract = v.Static(cls())
    for x in items:
        made = with_member(s, made, x)
    return made


def with_member(s: LoweringState, whole: v.Abstract, x: v.Abstract) -> v.Abstract:
    """A set with one more element. One of constants stays such where this is one."""
    x = constant(x)
    if isinstance(whole, v.Static) and isinstance(x, v.Static):
        tables.hashable(s, x)
        return v.Static(type(whole.value)([*whole.value, x.value]))
    return tables.store(s, as_table(whole), x)


def set_of(s: LoweringState, value: v.Abstract | None, cls: type = set) -> v.Abstract:
    """`set(value)` or `frozenset(value)`"""
    if value is None:
        return v.Static(cls())
    value = list_heap.copied(s, value) if list_heap.is_dict_row(value) else value
    if is_set(value):
        return v.Static(cls(value.value)) if isinstance(value, v.Static) else _kept(cls, members(s, value))
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return make_set(s, cls, found.items)
    made = s.call(v.Static(_united), [v.Record("table", ("keys",), (EMPTY,), set), stored(s, found)])
    assert isinstance(made, v.Record)
    return _kept(cls, made.items[0])


def _kept(cls: type | None, keys: v.Abstract) -> v.Record:
    """A set of elements that are all different."""
    return v.Record("table", ("keys",), (keys,), cls)


# ---- what methods mean: compiled, not run


def elements(value: Any) -> Any:
    """The elements of a set or sequence, in any order; only the compiler calls it."""
    raise AssertionError("compiled, never run")


def alike(like: Any, items: Any) -> Any:
    """A set of the class of another one, of different elements; only the compiler calls it."""
    raise AssertionError("compiled, never run")


def _united(a: Any, b: Any) -> Any:
    made = a.copy()
    for x in elements(b):
        made.add(x)
    return made


def _union(a: Any, b: Any) -> Any:
    return alike(a, elements(a) + [x for x in elements(b) if x not in a])


def _intersection(a: Any, b: Any) -> Any:
    return alike(a, [x for x in elements(a) if x in b])


def _difference(a: Any, b: Any) -> Any:
    return alike(a, [x for x in elements(a) if x not in b])


def _symmetric_difference(a: Any, b: Any) -> Any:
    return alike(a, [x for x in elements(a) if x not in b] + [x for x in elements(b) if x not in a])


def _is_subset(a: Any, b: Any) -> Any:
    return all(x in b for x in elements(a))


def _is_superset(a: Any, b: Any) -> Any:
    return all(x in a for x in elements(b))


def _is_proper_subset(a: Any, b: Any) -> Any:
    return len(a) < len(b) and all(x in b for x in elements(a))


def _is_proper_superset(a: Any, b: Any) -> Any:
    return len(b) < len(a) and all(x in a for x in elements(b))


def _is_disjoint(a: Any, b: Any) -> Any:
    return not any(x in b for x in elements(a))


def _same_set(a: Any, b: Any) -> Any:
    return len(a) == len(b) and all(x in b for x in elements(a))


def _same_dict(a: Any, b: Any) -> Any:
    return len(a) == len(b) and all(k in b and b[k] == x for k, x in a.items())


def _sum_of_counters(a: Any, b: Any) -> Any:
    made = a.copy()
    for key, count in b.items():
        made[key] += count
    return collections.Counter({key: count for key, count in made.items() if count > 0})


def _difference_of_counters(a: Any, b: Any) -> Any:
    made = a.copy()
    for key, count in b.items():
        made[key] -= count
    return collections.Counter({key: count for key, count in made.items() if count > 0})


def _greater_counts(a: Any, b: Any) -> Any:
    made = a.copy()
    for key, count in b.items():
        made[key] = max(count, made[key])
    return collections.Counter({key: count for key, count in made.items() if count > 0})


def _smaller_counts(a: Any, b: Any) -> Any:
    return collections.Counter({key: min(count, b[key]) for key, count in a.items() if min(count, b[key]) > 0})


COUNTERS: dict[Any, Callable[..., Any]] = {
    operator.add: _sum_of_counters,
    operator.sub: _difference_of_counters,
    operator.or_: _greater_counts,
    operator.and_: _smaller_counts,
}
OPERATORS: dict[Any, Callable[..., Any]] = {
    operator.or_: _union,
    operator.and_: _intersection,
    operator.sub: _difference,
    operator.xor: _symmetric_difference,
    operator.le: _is_subset,
    operator.ge: _is_superset,
    operator.lt: _is_proper_subset,
    operator.gt: _is_proper_superset,
}
NAMED: dict[str, Callable[..., Any]] = {
    "union": _union,
    "intersection": _intersection,
    "difference": _difference,
    "symmetric_difference": _symmetric_difference,
    "issubset": _is_subset,
    "issuperset": _is_superset,
    "isdisjoint": _is_disjoint,
}


def operate(s: LoweringState, function: Callable[..., Any], a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """An operator of two sets, or `|` of two dicts; None for other values."""
    a, b = (list_heap.copied(s, x) if list_heap.is_dict_row(x) else x for x in (a, b))
    if function in OPERATORS and is_set(a) and is_set(b):
        return s.call(v.Static(OPERATORS[function]), [as_table(a), as_table(b)])
    if function in COUNTERS and _is_counter(a) and _is_counter(b):
        return s.call(v.Static(COUNTERS[function]), [a, b])
    if function is operator.or_ and tables.is_dict(a) and tables.is_dict(b):
        return tables.updated(s, tables.copied(a), b)
    return None


def _is_counter(value: v.Abstract) -> bool:
    return isinstance(value, v.Record) and value.kind == "table" and value.cls is collections.Counter


def _is_ordered(value: v.Abstract) -> bool:
    """Is it an `OrderedDict`, which is equal to another one of the same order?"""
    return isinstance(value, v.Record) and value.cls is collections.OrderedDict


def _same_order(a: Any, b: Any) -> Any:
    return list(a.items()) == list(b.items())


def equal(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract | None:
    """`a == b` where one is a table; None for other values."""
    a, b = (list_heap.copied(s, x) if list_heap.is_dict_row(x) else x for x in (a, b))
    if not (tables.is_table(a) or tables.is_table(b)):
        return None
    if is_set(a) and is_set(b):
        return s.call(v.Static(_same_set), [as_table(a), as_table(b)])
    if _is_ordered(a) and _is_ordered(b):
        return s.call(v.Static(_same_order), [a, b])
    if tables.is_dict(a) and tables.is_dict(b):
        return s.call(v.Static(_same_dict), [as_table(a), as_table(b)])
    return v.Static(False)


def method(s: LoweringState, name: str, receiver: v.Abstract, args: Arguments) -> v.Abstract:
    """`receiver.name(...)` of a set, which reads it."""
    receiver, args = list_heap.copied(s, receiver), [list_heap.copied(s, x) for x in args]
    if len(args) > 1 and name in ("union", "intersection", "difference"):
        return method(s, name, method(s, name, receiver, args[:1]), args[1:])
    if len(args) != 1:
        s.refuse(f"{name}() of a set takes one other set here", "call it once for each")
    other = args[0]
    if not is_set(other):
        other = set_of(s, other)
    return s.call(v.Static(NAMED[name]), [as_table(receiver), as_table(other)])


# ---- methods that change a set


def added(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    """`whole.add(x)`"""
    return v.Static(None), with_member(s, whole, args[0])


def discarded(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    """`whole.discard(x)`"""
    return v.Static(None), tables.dropped(s, as_table(whole), args[0])


def removed(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    """`whole.remove(x)`; KeyError where it is not there."""
    left = tables.delete(s, as_table(whole), args[0])
    s.dead = s.dead or left is None
    return v.Static(None), whole if left is None else left


def united(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    """`whole.update(...)`"""
    for more in args:
        whole = s.call(v.Static(_union), [as_table(whole), as_table(set_of(s, more))])
    return v.Static(None), whole


def cleared(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    """`whole.clear()`"""
    return v.Static(None), v.Static(set())


def in_place(name: str) -> Callable[[LoweringState, v.Abstract, Arguments, Named], tuple[v.Abstract, v.Abstract]]:
    """The method `name_update`."""

    def change(s: LoweringState, whole: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
        return v.Static(None), method(s, name, whole, args)

    return change


CHANGES: dict[Any, Callable[[LoweringState, v.Abstract, Arguments, Named], tuple[v.Abstract, v.Abstract]]] = {
    set.add: added,
    set.discard: discarded,
    set.remove: removed,
    set.update: united,
    set.clear: cleared,
    set.intersection_update: in_place("intersection"),
    set.difference_update: in_place("difference"),
    set.symmetric_difference_update: in_place("symmetric_difference"),
}


# ---- counters and dicts with a default


def make_counter(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`collections.Counter(...)`"""
    made = v.Record("table", ("keys", "values"), (EMPTY, EMPTY), collections.Counter)
    for more in (*args, *([v.Record("dict", tuple(kwargs), tuple(kwargs.values()))] if kwargs else [])):
        made = counted(s, made, more)
    return made


def counted(s: LoweringState, counter: v.Record, more: v.Abstract) -> v.Record:
    """A counter behind `counter.update(more)`"""
    more = list_heap.copied(s, more) if list_heap.is_dict_row(more) else more
    if tables.is_dict(more):
        found = s.call(v.Static(_added_counts), [counter, as_table(more) if tables.is_table(more) else more])
    else:
        found = s.call(v.Static(_counted), [counter, members(s, more)])
    assert isinstance(found, v.Record)
    return found


def _counted(counter: Any, items: Any) -> Any:
    made = counter.copy()
    for x in items:
        made[x] += 1
    return made


def _added_counts(counter: Any, more: Any) -> Any:
    made = counter.copy()
    for key, count in more.items():
        made[key] += count
    return made


def _subtracted(counter: Any, items: Any) -> Any:
    made = counter.copy()
    for x in items:
        made[x] -= 1
    return made


def _most_common(counter: Any) -> Any:
    return sorted(counter.items(), key=lambda pair: pair[1], reverse=True)


def most_common(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    """`counter.most_common(n)`"""
    found = s.call(v.Static(_most_common), [receiver])
    if not args or args[0] == v.Static(None):
        return found
    return tables.first_of(s, found, args[0])


def total(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    """`counter.total()`"""
    return s.call(v.Static(_total), [receiver])


def _total(counter: Any) -> Any:
    return sum(counter.values())


def counter_updated(
    s: LoweringState, whole: v.Abstract, args: Arguments, named: Named
) -> tuple[v.Abstract, v.Abstract]:
    """`counter.update(more)`"""
    assert isinstance(whole, v.Record)
    return v.Static(None), counted(s, whole, args[0])


def counter_subtracted(
    s: LoweringState, whole: v.Abstract, args: Arguments, named: Named
) -> tuple[v.Abstract, v.Abstract]:
    """`counter.subtract(items)`"""
    return v.Static(None), s.call(v.Static(_subtracted), [whole, members(s, args[0])])


CHANGES |= {
    collections.Counter.update: counter_updated,
    collections.Counter.subtract: counter_subtracted,
}


def make_ordered_dict(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`collections.OrderedDict(...)`"""
    return _filled(s, v.Record("table", ("keys", "values"), (EMPTY, EMPTY), collections.OrderedDict), args, kwargs)


def make_defaultdict(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`collections.defaultdict(factory, ...)`"""
    factory = args[0] if args else v.Static(None)
    made = v.Record("table", ("keys", "values", "factory"), (EMPTY, EMPTY, factory), collections.defaultdict)
    return _filled(s, made, args[1:], kwargs)


def _filled(s: LoweringState, made: v.Record, args: Arguments, kwargs: Named) -> v.Record:
    """A dict with what its class is called with."""
    for more in (*args, *([v.Record("dict", tuple(kwargs), tuple(kwargs.values()))] if kwargs else [])):
        made = tables.updated(s, made, more)
    return made
