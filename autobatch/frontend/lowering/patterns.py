"""`match`: a chain of tests and bindings over classes, constants, sequences and mappings."""

from __future__ import annotations

import ast
import collections.abc
import operator
from collections.abc import Sequence
from typing import Any

from autobatch.frontend.library.builtin_functions import is_instance
from autobatch.frontend.lowering.access import expand
from autobatch.frontend.lowering.attributes import attribute, fields_of
from autobatch.frontend.lowering.branches import both, branch_on, condition, truth
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import combine, traced
from autobatch.frontend.lowering.operators import compare_with, equal, identical
from autobatch.frontend.lowering.sequences import arithmetic, length, sequence, sliced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import record_heap
from autobatch.frontend.types import values as v
from autobatch.ir.core import Operand
from autobatch.ir.types import Ref, Tag

Truth = bool | Operand


def match_statement(s: LoweringState, node: ast.Match, rest: Sequence[ast.stmt]) -> None:
    """`match`, with the statements behind it."""
    subject = s.evaluate(node.subject)
    _alternatives(s, subject, subject.alternatives if isinstance(subject, v.Choice) else [subject], rest, node)


def _alternatives(
    s: LoweringState, subject: v.Abstract, alternatives: Sequence[v.Abstract], rest: Sequence[ast.stmt], node: ast.Match
) -> None:
    """The cases of each value that the subject may be, of another type than others."""
    first, *others = alternatives
    if not others:
        _cases(s, first, node.cases, rest, node)
        return
    assert isinstance(subject, v.Choice)
    position = len(subject.alternatives) - len(alternatives)
    chosen = truth(s, traced(s, operator.eq, v.Leaf(subject.index), v.Static(position)))
    then = lambda t: _cases(t, first, node.cases, (), node)
    branch_on(s, chosen, then, lambda t, tail: _alternatives(t, subject, others, tail, node), rest, node)


def _cases(
    s: LoweringState, subject: v.Abstract, cases: Sequence[ast.match_case], rest: Sequence[ast.stmt], node: ast.Match
) -> None:
    execute = s.context.rules.execute
    if not cases:
        execute(s, rest)
        return
    case, *others = cases

    def then(t: LoweringState) -> None:
        _bind(t, case.pattern, subject)
        execute(t, case.body)

    with s.at(case.pattern):
        test = _with_guard(s, case, subject)
    branch_on(s, test, then, lambda t, tail: _cases(t, subject, others, tail, node), rest, node)


def _with_guard(s: LoweringState, case: ast.match_case, subject: v.Abstract) -> Truth:
    fit = fits(s, case.pattern, subject)
    if case.guard is None or fit is False:
        return fit
    guard = case.guard

    def holds(t: LoweringState) -> v.Abstract:
        inner = t
        before = dict(inner.env)
        _bind(inner, case.pattern, subject)
        result = _abstract(condition(inner, guard))
        inner.restore(before)
        return result

    return _and(s, fit, holds)


def _abstract(condition: Truth) -> v.Abstract:
    return v.Static(condition) if isinstance(condition, bool) else v.Leaf(condition)


def _and(s: LoweringState, first: Truth, rest: Any) -> Truth:
    """`first and rest()`, the rest evaluated only where the first holds."""
    if isinstance(first, bool):
        return truth(s, rest(s)) if first else False
    return truth(s, both(s, first, rest))


def fits(s: LoweringState, pattern: ast.pattern, subject: v.Abstract) -> Truth:
    """Does a value match a pattern?"""
    with s.at(pattern):
        match pattern:
            case ast.MatchValue(value=value):
                return truth(s, equal(s, subject, s.evaluate(value)))
            case ast.MatchSingleton(value=value):
                return truth(s, identical(s, subject, v.Static(value)))
            case ast.MatchAs(pattern=None):
                return True
            case ast.MatchAs(pattern=inner) if inner is not None:
                return fits(s, inner, subject)
            case ast.MatchOr(patterns=patterns):
                return _fits_one(s, patterns, subject)
            case ast.MatchClass():
                return _fits_class(s, pattern, subject)
            case ast.MatchSequence(patterns=patterns):
                return _fits_sequence(s, patterns, subject)
            case ast.MatchMapping(keys=keys, patterns=patterns):
                return _fits_mapping(s, keys, patterns, subject)
    s.refuse("this pattern cannot be compiled", "use `if`")


def _fits_one(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    result: Truth = False
    for pattern in patterns:
        hit = fits(s, pattern, subject)
        if hit is True:
            return True
        if not isinstance(hit, bool):
            result = hit if isinstance(result, bool) else combine(s, "or", result, hit)
    return result


def _all(s: LoweringState, pairs: Sequence[tuple[ast.pattern, Any]]) -> v.Abstract:
    """Do all parts match? A later part is looked at only where the earlier ones match."""
    if not pairs:
        return v.Static(True)
    (pattern, part), *rest = pairs
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return _all(s, rest)
    return _abstract(_and(s, fits(s, pattern, part(s)), lambda t: _all(t, rest)))


def _parts(s: LoweringState, pattern: ast.MatchClass, cls: type) -> list[tuple[ast.pattern, str]]:
    names = getattr(cls, "__match_args__", ())
    if len(pattern.patterns) > len(names):
        if cls in _SELF and len(pattern.patterns) == 1:
            return [(pattern.patterns[0], "")]
        s.refuse(
            f"{cls.__name__} has {len(names)} positional patterns, {len(pattern.patterns)} are given",
            "name the attributes: `Class(field=pattern)`",
        )
    positional = zip(pattern.patterns, names, strict=False)
    return [*positional, *zip(pattern.kwd_patterns, pattern.kwd_attrs, strict=True)]


_SELF = (bool, int, float, str, list, tuple, dict)


def _class(s: LoweringState, pattern: ast.MatchClass) -> type:
    cls = s.evaluate(pattern.cls)
    if not isinstance(cls, v.Static) or not isinstance(cls.value, type):
        s.refuse("a class pattern needs a class", "write the name of a class before the brackets")
    return cls.value


def _part(subject: v.Abstract, name: str) -> Any:
    return lambda t: attribute(t, subject, name) if name else subject


def _fits_class(s: LoweringState, pattern: ast.MatchClass, subject: v.Abstract) -> Truth:
    cls = _class(s, pattern)
    fit = truth(s, is_instance(s, subject, cls))
    if fit is False:
        return False
    pairs = [(p, _part(subject, n)) for p, n in _parts(s, pattern, cls)]
    return _and(s, fit, lambda t: _all(t, pairs))


def _fits_sequence(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    fit = _is_sequence(s, subject)
    return False if fit is False else _and(s, fit, lambda t: _abstract(_fits_parts(t, patterns, subject)))


def _fits_parts(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> Truth:
    """Does a sequence match, by how long it is and what it holds?"""
    stars = [k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)]
    count = length(s, sequence(s, subject))
    needed = len(patterns) - len(stars)
    enough = truth(s, compare_with(s, operator.ge if stars else operator.eq, count, v.Static(needed)))
    if enough is False:
        return False
    pairs = [
        (p, lambda t, k=k: _element(t, subject, k, len(patterns), stars))
        for k, p in enumerate(patterns)
        if not isinstance(p, ast.MatchStar)
    ]
    return _and(s, enough, lambda t: _all(t, pairs))


def _is_sequence(s: LoweringState, subject: v.Abstract) -> Truth:
    """Does a pattern of a sequence look at its elements? At those of strings none does."""
    is_text = isinstance(subject, v.Static) and isinstance(subject.value, str | bytes | bytearray)
    if is_text or (isinstance(subject, v.Leaf) and isinstance(subject.type, Tag)):
        return False
    return truth(s, is_instance(s, subject, collections.abc.Sequence))


def _element(s: LoweringState, subject: v.Abstract, position: int, size: int, stars: Sequence[int]) -> v.Abstract:
    found = sequence(s, subject)
    if isinstance(found, v.Record):
        index = position if not stars or position < stars[0] else position - size
        return found.items[index]
    if not stars or position < stars[0]:
        return found.item(s, v.Static(position))
    return found.item(s, arithmetic(s, operator.sub, found.length, v.Static(size - position)))


def _fits_mapping(
    s: LoweringState, keys: Sequence[ast.expr], patterns: Sequence[ast.pattern], subject: v.Abstract
) -> Truth:
    if record_heap.is_record_row(subject):
        return _fits_record(s, keys, patterns, subject)
    table = _mapping(s, subject)
    if table is None:
        return False
    pairs = []
    for key, pattern in zip(keys, patterns, strict=True):
        name = s.evaluate(key)
        found = table.get(name.value) if isinstance(name, v.Static) else None
        if found is None:
            return False
        pairs.append((pattern, lambda t, x=found: x))
    return truth(s, _all(s, pairs))


def _fits_record(
    s: LoweringState, keys: Sequence[ast.expr], patterns: Sequence[ast.pattern], row: v.MemoryRow
) -> Truth:
    """A dict in memory, which may be None, or have other keys."""
    names = [s.evaluate(k) for k in keys]
    held = [(p, lambda t, k=k: record_heap.load(t, row, k)) for p, k in zip(patterns, names, strict=True)]
    return _and(s, record_heap.has_keys(s, row, names), lambda t: _all(t, held))


def _mapping(s: LoweringState, subject: v.Abstract) -> v.Record | None:
    table = expand(s, record_heap.as_value(s, subject))
    if isinstance(table, v.Leaf) and isinstance(table.type, Ref):
        table = fields_of(s, table) or table
    if isinstance(table, v.Record) and table.kind == "dict":
        return table
    return None


def _bind(s: LoweringState, pattern: ast.pattern, subject: v.Abstract) -> None:
    """Bind the names of a pattern that fits."""
    match pattern:
        case ast.MatchAs(pattern=inner, name=name):
            if inner is not None:
                _bind(s, inner, subject)
            if name is not None:
                s.bind(name, subject)
        case ast.MatchClass():
            for part, attr in _parts(s, pattern, _class(s, pattern)):
                if _binds(part):
                    _bind(s, part, _part(subject, attr)(s))
        case ast.MatchSequence(patterns=patterns):
            _bind_sequence(s, patterns, subject)
        case ast.MatchMapping(keys=keys, patterns=patterns, rest=rest):
            if record_heap.is_record_row(subject) and rest is None:
                for key, part in zip(keys, patterns, strict=True):
                    _bind(s, part, record_heap.load(s, subject, s.evaluate(key)))
                return
            table = _mapping(s, subject)
            if table is None:
                s.refuse("`**rest` of a dict that may have different keys", "ask for its keys with `in`")
            names = [k.value for k in map(s.evaluate, keys) if isinstance(k, v.Static)]
            for name_, part in zip(names, patterns, strict=True):
                found = table.get(name_)
                assert found is not None
                _bind(s, part, found)
            if rest is not None:
                left = {k: x for k, x in zip(table.keys, table.items, strict=True) if k not in names}
                s.bind(rest, v.Record("dict", tuple(left), tuple(left.values())))
        case ast.MatchOr(patterns=patterns):
            _bind_one(s, patterns, subject)


def _bind_one(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> None:
    """Bind the names of the first alternative that fits; all alternatives bind the same names."""
    names = sorted(n for n in map(_name, ast.walk(patterns[0])) if n is not None)
    if not names:
        return

    def bound(t: LoweringState, pattern: ast.pattern) -> v.Record:
        before = dict(t.env)
        _bind(t, pattern, subject)
        values = tuple(t.env[n].value for n in names)
        t.restore(before)
        return v.Record("tuple", tuple(range(len(names))), values)

    def at(t: LoweringState, k: int) -> v.Abstract:
        hit = True if k == len(patterns) - 1 else fits(t, patterns[k], subject)
        if isinstance(hit, bool):
            return bound(t, patterns[k]) if hit else at(t, k + 1)
        return conditional(t, hit, lambda u: bound(u, patterns[k]), lambda u: at(u, k + 1))

    found = at(s, 0)
    assert isinstance(found, v.Record)
    for name, value in zip(names, found.items, strict=True):
        s.bind(name, value)


def _name(node: ast.AST) -> str | None:
    """The variable that this part of a pattern binds."""
    match node:
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
            return name
        case _:
            return None


def _binds(pattern: ast.pattern) -> bool:
    return any(_name(n) is not None for n in ast.walk(pattern))


def _bind_sequence(s: LoweringState, patterns: Sequence[ast.pattern], subject: v.Abstract) -> None:
    stars = [k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)]
    for k, part in enumerate(patterns):
        if not isinstance(part, ast.MatchStar):
            if _binds(part):
                _bind(s, part, _element(s, subject, k, len(patterns), stars))
        elif part.name is not None:
            behind = len(patterns) - k - 1
            bounds = [v.Static(k), v.Static(-behind if behind else None), v.Static(None)]
            s.bind(part.name, s.context.rules.materialise(s, sliced(s, sequence(s, subject), bounds)))
