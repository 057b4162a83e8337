"""Reverse mode: the adjoint of a system of recurrence equations is one again, every edge reversed.

    hl = gather[left](leaf.h, node.h)          hl~ = z~ @ Ul^T
    z  = hl @ Ul + hr @ Ur               ->    h~  = collect h(hl~ by left, hr~ by right) + ...
    h  = tanh(z)                               z~  = h~ * (1 - h * h)
                                               Ul~ = contract dot_general(hl, z~)       in no cycle: once, for all rows

The adjoint reads values of the primal under their own names. Its cycles lie within the mirror of those of the primal:
each task runs on the rows, in the order and by the windows of the primal's, levels and tasks last first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from itertools import count
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from autobatch.errors import NOWHERE, Span, UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.core import CONSTANT, FINITE_DERIVATIVE, INFINITE, Array, Literal, is_infinite, stays_finite
from autobatch.ir.leaf import DerivativeRule
from autobatch.ir.ops import Op, of_derivatives
from autobatch.ir.regions import cut, is_masked
from autobatch.ir.system import (
    PLACED,
    Atom,
    Collect,
    Compute,
    Constant,
    Contract,
    Data,
    Equation,
    Fold,
    Follow,
    Gather,
    Given,
    PathSum,
    RowRead,
    RowReader,
    Scatter,
    Selected,
    Shared,
    Space,
    Spread,
    System,
    Taken,
    Variable,
    reads,
    results,
)
from autobatch.passes.derivative_rules import (
    Policy,
    as_operation,
    as_pullback,
    complete,
    has_derivative,
    imported,
    operands_read,
    row_rule,
    rule_of,
)
from autobatch.passes.equations import lookups, reads_rows, rows_alone
from autobatch.passes.fission import RowOrder, Schedule, mirror, sink_into_loops
from autobatch.passes.liveness import is_number

# ---- cut
#
# Rows that have failed, or do not use a value, are cut off from derivatives: what they contribute is zero, whatever
# they have computed.
#
#     y = sqrt(x)             x~ = y~ * (0.5 / y)
#     check(x >= 0)     ->    x~ = 0 where y~ is 0 and that is not finite
#
# The rows of an example that has failed have cotangents of zero (`on_error="mask"`), so have rows that do not use what
# they have computed (`liveness.py`), and zero times infinity is not a number. A row of another example whose
# cotangent happens to be zero keeps its derivatives, second ones too, wherever they are finite.


def without_failed(type: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """As a closed jaxpr, for one row: `x` of this type and its cotangents -> `x`, or `other` where it is not finite and
    they are zero."""
    return _traced(type, cotangents, other, jax_compat.settings())


def as_checked(type: Array, given: Array, cotangents: tuple[Array, ...], other: float) -> Any:
    """The same for `x`, `y` and cotangents: `x`, or `other` where `y` is not finite and they are zero."""
    return _by_another(type, given, cotangents, other, jax_compat.settings())


def in_part(run: Callable[[Sequence[Any]], Sequence[Any]], xs: Sequence[Any], rows: Sequence[bool]) -> list[Any]:
    """`run(xs)`, where a row whose cotangents are zero has derivatives of zero where they would not be finite. `rows`:
    which of `xs` have a leading axis of rows; without one there is one row.

    JAX can push the derivative forward, but not differentiate the operation itself in forward mode."""
    moving = [k for k, x in enumerate(xs) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    many = any(rows)
    cut = [rows[k] or not many for k in moving]

    def whole(moved: Sequence[Any], held: Sequence[Any]) -> list[Any]:
        found = list(held)
        for k, x in zip(moving, moved, strict=True):
            found[k] = x
        return list(run(found))

    @jax.custom_vjp
    def apply(moved: list[Any], held: list[Any]) -> list[Any]:
        return whole(moved, held)

    def forward(*given: Any) -> tuple[list[Any], Any]:
        moved, held = jax.tree.map(lambda x: x.value, given)
        return whole(moved, held), (moved, held)

    def backward(residuals: Any, all_cotangents: list[Any]) -> Any:
        moved, held = residuals
        # the zeros of one result would reach what is not finite, where another one is read
        read = [
            k for k, ct in enumerate(all_cotangents) if not (type(ct) is SymbolicZero or (not many and _is_zero(ct)))
        ]
        cotangents = [all_cotangents[k] for k in read]
        floats = [ct for ct in cotangents if jnp.issubdtype(ct.dtype, jnp.inexact)]
        zero = [jnp.all(ct == 0, axis=tuple(range(many, ct.ndim))) for ct in floats]
        idle = reduce(jnp.logical_and, zero, jnp.bool_(True))

        def finite(x: Any) -> Any:
            unused = idle.reshape(-1, *(1,) * (x.ndim - 1)) if many else idle
            return jnp.where(jnp.isfinite(x) | ~unused, x, jnp.zeros_like(x))

        safe = [finite(x) if c else x for x, c in zip(moved, cut, strict=True)]
        _, pull = jax.vjp(lambda moved: [whole(moved, held)[k] for k in read], safe)
        (found,) = pull(cotangents)
        return [finite(x) if c else x for x, c in zip(found, cut, strict=True)], None

    apply.defvjp(forward, backward, symbolic_zeros=True)
    made: list[Any] = apply(
        [jnp.asarray(xs[k]) for k in moving], [None if k in moving else x for k, x in enumerate(xs)]
    )
    return made


def _is_zero(ct: Any) -> bool:
    """Is it known to be zero?"""
    return not isinstance(ct, jax.core.Tracer) and not jnp.any(ct)


@lru_cache(maxsize=1024)
def _traced(type: Array, cotangents: tuple[Array, ...], other: float, settings: Hashable) -> Any:
    def keep(x: Any, *cts: Any) -> Any:
        return jnp.where(jnp.isfinite(x) | _any_moves(x, cts, True), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, *cotangents)[0]


@lru_cache(maxsize=1024)
def _by_another(type: Array, given: Array, cotangents: tuple[Array, ...], other: float, settings: Hashable) -> Any:
    def keep(x: Any, y: Any, *cts: Any) -> Any:
        finite = _for_each(x, jnp.min, jnp.where(jnp.isfinite(y), jnp.float32(1), jnp.float32(0))) != 0
        return jnp.where(finite | _any_moves(x, cts, False), x, jnp.asarray(other, x.dtype))

    return jax_compat.trace(keep, type, given, *cotangents)[0]


def _any_moves(x: Any, cotangents: Any, by_number: bool) -> Any:
    """Is a cotangent of the row not zero? For each number of `x`; `by_number`: each for itself, where they have its
    shape. (What is reduced is a number, and compared behind that: level loops have a kernel for that.)"""
    if by_number and all(ct.shape == x.shape for ct in cotangents):
        found = [ct != 0 for ct in cotangents]
    else:
        found = [_for_each(x, jnp.max, jnp.abs(ct)) != 0 for ct in cotangents]
    return reduce(jnp.logical_or, found)


def _for_each(x: Any, reduction: Callable[..., Any], y: Any) -> Any:
    """A number that a row has, for each number of `x`."""
    return jnp.broadcast_to(reduction(y, initial=0) if y.size == 0 else reduction(y), x.shape)


# ---- activity
#
# Which values of a system a derivative is about: facts, read from the equations.
#
# active     an output depends on them, and they on an input, by numbers that can move
# live       the equations that some outputs depend on


def active(system: System) -> frozenset[Variable]:
    """The variables through which an output depends on an input, by numbers that can move."""
    readers: dict[Variable, list[Equation]] = defaultdict(list)
    for equation in system.equations:
        for variable in reads(equation):
            readers[variable].append(equation)
    inputs = [e for e in system.equations if isinstance(e, Shared | Data | Given)]
    moved: set[Variable] = set()
    todo = [r for e in inputs for r in results(e) if has_derivative(r.type)]
    while todo:
        variable = todo.pop()
        if variable not in moved:
            moved.add(variable)
            todo += [r for e in readers[variable] for r in _moves(e, variable) if has_derivative(r.type)]
    maker = {r: e for e in system.equations for r in results(e)}
    found: set[Variable] = set()
    todo = [v for v in system.outputs if v in moved]
    while todo:
        variable = todo.pop()
        if variable not in found:
            found.add(variable)
            todo += [v for v in reads(maker[variable]) if v in moved and variable in _moves(maker[variable], v)]
    return frozenset(found)


def _moves(equation: Equation, variable: Variable) -> tuple[Variable, ...]:
    """The results of an equation that move with a variable that it reads."""
    if isinstance(equation, Selected) or (isinstance(equation, Compute) and equation.op.name in CONSTANT):
        return ()
    return results(equation)


def live(equations: Sequence[Equation], outputs: Sequence[Variable]) -> list[Equation]:
    """The equations that outputs depend on; what none of them makes is a value of the primal, or handed in."""
    maker = {r: e for e in equations for r in results(e)}
    kept: set[int] = set()
    todo = list(outputs)
    while todo:
        equation = maker.get(todo.pop())
        if equation is not None and id(equation) not in kept:
            kept.add(id(equation))
            todo.extend(reads(equation))
    return [e for e in equations if id(e) in kept]


# ---- declared
#
# Cotangents are declared before they are defined, since cycles read them. Here equations that read what was declared
# come to read what defines it.


def resolve(variable: Variable, same: Mapping[Variable, Variable]) -> Variable:
    """The variable that defines a declared one; any other is itself."""
    while variable in same:
        variable = same[variable]
    return variable


def substitute(equation: Equation, same: Mapping[Variable, Variable]) -> Equation:
    """An equation that reads the variables that stand for cotangents."""

    def put(x: Any) -> Any:
        return resolve(x, same) if isinstance(x, Variable) else x

    match equation:
        case Compute(operands=xs):
            return replace(equation, operands=tuple(map(put, xs)))
        case Contract(operands=xs, cotangents=cts):
            return replace(equation, operands=tuple(map(put, xs)), cotangents=tuple(map(put, cts)))
        case Scatter(rows=rows, into=into):
            return replace(equation, rows=tuple(replace(r, cotangent=put(r.cotangent)) for r in rows), into=put(into))
        case Collect(readers=readers):
            return replace(equation, readers=tuple(replace(r, cotangent=put(r.cotangent)) for r in readers))
        case Taken(reader=reader):
            return replace(equation, reader=replace(reader, cotangent=put(reader.cotangent)))
        case Follow(source=source):
            return replace(equation, source=put(source))
        case _:
            return equation


@dataclass(frozen=True)
class RowCotangents:
    """Rows of a shared input that were read, in place of its cotangent: what `of` has read. Output `cotangent` of the
    adjoint is that of what was read; `indices` are outputs too, or the same for all."""

    of: Compute
    cotangent: int
    indices: tuple[int | Literal, ...]


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of a schedule, as a schedule.

    It is handed `residuals`, values of the primal, and then the cotangents of the outputs at `seeds`. Its outputs are
    the cotangents of the shared inputs `shared`, of the columns `columns` and of what the primal was handed at
    `given`, in this order, then those that `rows` has: what stands for the cotangents of the shared inputs that are its
    keys. What is missing there has no influence on any output. `constants` are those of the primal and more."""

    schedule: Schedule
    residuals: tuple[Variable, ...]
    seeds: tuple[int, ...]
    shared: tuple[int, ...]
    columns: tuple[str, ...]
    given: tuple[int, ...]
    rows: Mapping[int, tuple[RowCotangents, ...]]
    constants: tuple[Any, ...]


def differentiate(
    schedule: Schedule,
    root: Schedule,
    constants: Sequence[Any],
    policy: Policy = "save_dots",
    by_rows: bool = False,
    cut: bool = False,
) -> Adjoint | None:
    """The adjoint of a schedule; None where no output depends on anything that can move. `root` is the schedule that
    the tables were made for: that of the program of which this is a derivative, or itself. `by_rows`: of the shared
    inputs whose rows alone are read there are the cotangents of these rows. `cut`: examples may have failed
    (`passes/adjoint.py`)."""
    return _Adjoint(schedule, root, constants, cut).build(policy, by_rows)


class _Adjoint:
    """The state of one differentiation. Every active variable has a cotangent, declared ahead because cycles read it;
    the equations of the primal add contributions to those of what they read."""

    def __init__(self, schedule: Schedule, root: Schedule, constants: Sequence[Any], cut: bool) -> None:
        self.cut = cut
        self.schedule, self.root, self.constants = schedule, root, list(constants)
        self.system = schedule.system
        self.active = active(self.system)
        self.lookups = lookups(schedule)
        made = [r for e in self.system.equations for r in results(e)]
        self.ids = count(1 + max((r.id for r in made), default=-1))
        self.home: dict[Variable, RowOrder] = dict(schedule.home)
        self.equations: list[Equation] = []
        self.is_used = True
        """Is all used that the operation gives whose contributions are added now?"""
        self.known: dict[Any, tuple[Variable, ...]] = {}
        self.contributions: dict[Variable, list[Variable]] = defaultdict(list)
        self.rows: dict[Variable, list[RowRead]] = defaultdict(list)
        self.readers: dict[Variable, list[tuple[int | None, RowReader]]] = defaultdict(list)
        self.loop_of = {
            r: n.index for n in schedule.recurrences() for t in n.tasks for e in t.equations for r in results(e)
        }
        ordered = [v for v in made if v in self.active]
        self.cotangent = {
            v: self.fresh(jax_compat.cotangent_type(v.type), v.space, schedule.home.get(v)) for v in ordered
        }
        for equation in self.system.equations:
            if isinstance(equation, Compute):
                self.remember(equation)

    def build(self, policy: Policy, by_rows: bool) -> Adjoint | None:
        if not self.active:
            return None
        seeds = [k for k, v in enumerate(self.system.outputs) if v in self.active]
        handed = [self.seed(self.system.outputs[k]) for k in seeds]
        for equation in self.system.equations:
            self.visit(equation)
        same: dict[Variable, Variable] = {}
        for variable, cotangent in self.cotangent.items():
            self.define(variable, cotangent, same)
        tables = rows_alone(self.system, self.active) if by_rows else {}
        return self.assemble(policy, seeds, handed, same, tables)

    # ---- building equations

    def fresh(self, type: Array, space: Space | None, order: RowOrder | None) -> Variable:
        variable = Variable(next(self.ids), type, space)
        if space is not None:
            assert order is not None and order.space == space
            self.home[variable] = order
        return variable

    def key(self, op: Op, operands: Sequence[Atom], order: RowOrder | None) -> Any:
        try:
            hash(found := (op, tuple(operands), order))
        except TypeError:
            return None
        return found

    def remember(self, equation: Compute) -> None:
        key = self.key(equation.op, equation.operands, self.home.get(equation.results[0]))
        if key is not None:
            self.known.setdefault(key, equation.results)

    def emit(
        self, types: Sequence[Array], op: Op, operands: Sequence[Atom], order: RowOrder | None, span: Span
    ) -> tuple[Variable, ...]:
        """The results of an operation: on the rows of `order` where it reads any, once where it does not. What is known
        already, of the primal too, is not computed again."""
        if not any(isinstance(x, Variable) and x.space is not None for x in operands):
            order = None
        key = self.key(op, operands, order)
        if key is not None and key in self.known:
            return self.known[key]
        space = None if order is None else order.space
        made = tuple(self.fresh(t, space, order) for t in types)
        equation = Compute(made, op, tuple(operands), space, span, self.used_of(made))
        self.equations.append(equation)
        self.remember(equation)
        return made

    def used_of(self, made: Sequence[Variable]) -> frozenset[int]:
        """Of a contribution all is used where all is of the operation that it comes of."""
        return frozenset(range(len(made))) if self.is_used else frozenset()

    def paste(self, closed: Any, operands: Sequence[Atom], order: RowOrder | None, span: Span) -> list[Atom]:
        """The results of a traced function of one row."""
        return imported(closed, operands, self.constants, lambda t, op, xs: self.emit(t, op, xs, order, span))

    def seed(self, output: Variable) -> Variable:
        """The cotangent of an output, which is handed in."""
        made = self.fresh(jax_compat.cotangent_type(output.type), output.space, self.home.get(output))
        self.contributions[output].append(made)
        return made

    # ---- equations of the primal

    def visit(self, equation: Equation) -> None:
        """Add what an equation contributes to the cotangents of what it reads."""
        self.is_used = True
        if self.active.isdisjoint(results(equation)):
            return
        match equation:
            case Compute(results=made):
                cotangents = [self.cotangent[r] if r in self.active else None for r in made]
                self.compute(equation, cotangents, self.home.get(made[0]))
            case Contract(space=space):
                order = self.home[equation.of.results[0]]
                row = as_operation(equation, self.fresh(equation.result.type, space, order))
                self.compute(row, [self.cotangent[equation.result]], order)
            case Scatter():
                self.scatter(equation)
            case Collect():
                self.collect(equation)
            case Taken(reader=reader) if reader.cotangent in self.active:
                self.follow(equation, reader)
            case Follow(source=source, equation=read, member=member, factor=factor):
                self.read_by(source, RowReader(read, member, self.cotangent[equation.result], factor), equation.result)
            case Gather(result=result) if result in self.lookups:
                pass  # what reads it adds to the cotangent of its source
            case Gather() | Fold() | PathSum():
                self.gather(equation)
            case Spread(source=source):
                self.read_by(source, RowReader(equation, 0, self.cotangent[equation.result]), equation.result)
            case _:
                pass

    def compute(self, equation: Compute, held: Sequence[Variable | None], order: RowOrder | None) -> None:
        """The contributions of an operation, for the cotangents of its results (None: it has none)."""
        self.is_used = not any(equation.unused())
        if equation.op.name in ("masked", "blocks") and self.is_cut(equation):
            equation = replace(equation, op=cut(equation.op))
        flags = [ct is not None for ct in held]
        cotangents = [ct for ct in held if ct is not None]
        varying = any(ct.space is not None for ct in cotangents)
        moving = [k for k, x in enumerate(equation.operands) if x in self.active]
        if moving == [0] and reads_rows(equation, table := cast(Variable, equation.operands[0])):
            through = self.lookups.get(table)
            if table.space is None or through is not None:
                (cotangent,) = cotangents
                self.rows[through.sources[0] if through else table].append(RowRead(equation, cotangent, through))
                return
        rows = [k for k in moving if equation.space is None or _space(equation.operands[k]) is not None]
        if rows:
            rule = rule_of(equation, flags, rows)
            given = [x for x, number in zip(equation.operands, rule.numbers, strict=True) if number is None]
            found = self.pulled(rule, [*given, *cotangents], order, equation.span)
            for k, x in zip(rows, self.without_failed(equation, rows, found, cotangents, order), strict=True):
                operand = equation.operands[k]
                assert isinstance(operand, Variable)
                if isinstance(x, Variable) and (x.space is not None or not varying):
                    self.contributions[operand].append(x)  # anything else does not depend on a cotangent: it is zero
        for k in moving:
            if k not in rows:
                self.contract(equation, held, k)

    def pulled(
        self, rule: DerivativeRule, operands: Sequence[Atom], order: RowOrder | None, span: Span
    ) -> Sequence[Atom]:
        """The cotangents of operands of one operation on its rows."""
        if not is_masked(rule.op):
            return self.paste(row_rule(rule, span), operands, order, span)
        types = [jax_compat.cotangent_type(rule.operands[k]) for k in rule.wrt]
        return self.emit(types, as_pullback(rule, span), operands, order, span)

    def contract(self, equation: Compute, held: Sequence[Variable | None], wrt: int) -> None:
        """The contribution of all rows to the cotangent of a uniform operand."""
        weight = equation.operands[wrt]
        assert isinstance(weight, Variable) and equation.space is not None
        read = operands_read(equation, [ct is not None for ct in held], wrt)
        if self.is_cut(equation) and not is_masked(equation.op):
            equation = self.of_finite_rows(equation, held, wrt, read)
        operands = tuple(x if k in read else None for k, x in enumerate(equation.operands))
        assert equation.space is not None
        made = self.fresh(jax_compat.cotangent_type(weight.type), None, None)
        self.equations.append(Contract(made, equation, wrt, operands, tuple(held), equation.space, equation.span))
        self.contributions[weight].append(made)

    # ---- examples that have failed, rows that are not used

    def is_cut(self, equation: Compute) -> bool:
        """May there be rows that contribute nothing, where a derivative is not finite?"""
        if self.cut and equation.space is not None:
            return True
        return equation.op.name not in FINITE_DERIVATIVE and not self.active.isdisjoint(equation.unused())

    def without_failed(
        self,
        equation: Compute,
        wrt: Sequence[int],
        found: Sequence[Atom],
        cotangents: Sequence[Variable],
        order: RowOrder | None,
    ) -> Sequence[Atom]:
        """Contributions of rows to the cotangents of operands: none of rows that have failed."""
        if not self.is_cut(equation):
            return found
        types = tuple(ct.type for ct in cotangents)
        flags = [r in self.active for r in equation.results]
        infinite = any(map(is_infinite, equation.operands))

        def kept(k: int, x: Atom) -> Atom:
            read = operands_read(equation, flags, k)
            moves = infinite or self.moves_by_rows(equation, read) or self.has_infinite(equation, read)
            if not isinstance(x, Variable) or not moves:
                return x
            rule = without_failed(x.type, types, 0.0)
            return self.paste(rule, [x, *cotangents], order, equation.span)[0]

        return [kept(k, x) for k, x in zip(wrt, found, strict=True)]

    def has_infinite(self, equation: Compute, read: Iterable[int]) -> bool:
        """Is an operand among those that a rule reads the same in all rows, and perhaps no finite number?"""
        xs = [equation.operands[k] for k in read]
        return any(x in self.infinite if isinstance(x, Variable) else _holds_infinite(self.constants, x) for x in xs)

    @cached_property
    def infinite(self) -> frozenset[Variable]:
        """The variables that are: numbers that all examples share, and what operations make."""
        found = set[Variable]()
        for equation in self.system.equations:
            match equation:
                case Shared(result=x) | Given(result=x) if x.space is None and is_number(x.type):
                    found.add(x)
                case Constant(result=x, literal=literal) if _holds_infinite(self.constants, literal):
                    found.add(x)
                case Compute(made, op, operands, None):
                    if not stays_finite(op, operands) or any(x in found for x in operands):
                        found.update(made)
        return frozenset(found)

    def moves_by_rows(self, equation: Compute, read: Iterable[int]) -> list[int]:
        """The operands among those that a rule reads which are floats of rows; of an operation that all rows share, all
        floats."""
        xs, whole = equation.operands, equation.space is None
        floats = [k for k in sorted(read) if has_derivative(cast(Array, xs[k].type))]
        return [k for k in floats if whole or _space(xs[k]) is not None]

    def of_finite_rows(
        self, equation: Compute, held: Sequence[Variable | None], wrt: int, read: frozenset[int]
    ) -> Compute:
        """The operation with other operands in rows that have failed, which contribute zero to a uniform operand."""
        cotangents = [ct for ct in held if ct is not None]
        types = tuple(ct.type for ct in cotangents)
        order, operands = self.home[equation.results[0]], list(equation.operands)
        whole: Atom | None = None
        if equation.op.name in INFINITE:
            rule = rule_of(equation, [ct is not None for ct in held], (wrt,))
            given = [x for x, number in zip(operands, rule.numbers, strict=True) if number is None]
            (whole,) = self.paste(row_rule(rule, equation.span), [*given, *cotangents], order, equation.span)
        for k in self.moves_by_rows(equation, read):
            x = cast(Variable, equation.operands[k])
            if isinstance(whole, Variable):
                kept, xs = as_checked(x.type, whole.type, types, 1.0), [x, whole, *cotangents]
            else:
                kept, xs = without_failed(x.type, types, 0.0), [x, *cotangents]
            (operands[k],) = self.paste(kept, xs, order, equation.span)
        return replace(equation, operands=tuple(operands))

    def scatter(self, equation: Scatter) -> None:
        """What was added to rows reads the cotangents of these rows."""
        total = self.cotangent[equation.result]
        if equation.into in self.active:
            self.contributions[equation.into].append(total)
        for row in equation.rows:
            if row.cotangent in self.active:
                like = self.cotangent[row.cotangent]
                table = total if row.through is None else self.followed(row.through, total)
                operands = (table, *row.of.operands[1:])
                (made,) = self.emit([like.type], row.of.op, operands, self.home.get(like), row.of.span)
                self.contributions[row.cotangent].append(made)

    def followed(self, through: Gather, source: Variable) -> Variable:
        """The rows of `source` that a gather has read of the variable that it stands for."""
        made = self.fresh(source.type, through.result.space, self.home[through.result])
        self.equations.append(Follow(made, source, through.sources[0], through, 0, None, through.span))
        return made

    def collect(self, equation: Collect) -> None:
        """Rows whose cotangents were added up read the cotangent of the sum."""
        for reader in equation.readers:
            if reader.cotangent in self.active:
                self.follow(equation, reader)

    def follow(self, equation: Collect | Taken, reader: RowReader) -> None:
        like, total = self.cotangent[reader.cotangent], self.cotangent[equation.result]
        made = self.fresh(like.type, like.space, self.home.get(like))
        read, member, factor = reader.equation, reader.member, reader.factor
        span = NOWHERE if isinstance(read, Spread) else read.span
        self.equations.append(Follow(made, total, equation.of, read, member, factor, span))
        self.contributions[reader.cotangent].append(made)

    def gather(self, equation: Gather | Fold | PathSum) -> None:
        factor = None
        if isinstance(equation, Fold) and equation.kind in ("max", "min"):
            order = next(o for o in self.schedule.orders if o.space == equation.elements)
            factor = self.fresh(jax_compat.cotangent_type(equation.result.type), equation.elements, order)
            self.equations.append(Selected(factor, equation))
        elif isinstance(equation, Fold) and equation.kind == PLACED:
            pass  # the cotangent of each element lies in its place
        elif isinstance(equation, Fold) and equation.kind != "sum":
            raise UnsupportedError(
                f"the derivative of a product of a list ({equation.kind}) is not supported",
                equation.span,
                "multiply in a loop: `for x in xs: total = total * x`",
            )
        for member, source in enumerate(_sources(equation)):
            if source in self.active and source not in _sources(equation)[:member]:
                self.read_by(
                    source, RowReader(equation, member, self.cotangent[equation.result], factor), equation.result
                )

    def read_by(self, source: Variable, reader: RowReader, result: Variable) -> None:
        """Note a reader: those in the loop that makes the source apart from those behind it."""
        if isinstance(reader.equation, Fold) and reader.equation.kind == PLACED:
            cotangent = self.cotangent[source]
            made = self.fresh(cotangent.type, source.space, self.home.get(source))
            self.equations.append(Taken(made, source, reader))
            self.contributions[source].append(made)
            return
        loop = self.loop_of.get(result)
        self.readers[source].append((loop if loop == self.loop_of.get(source) else None, reader))

    # ---- cotangents

    def define(self, variable: Variable, cotangent: Variable, same: dict[Variable, Variable]) -> None:
        """The equations of a cotangent: the sum of what has been contributed to it."""
        parts = list(self.contributions[variable])
        order = self.home.get(variable)
        grouped: dict[int | None, list[RowReader]] = defaultdict(list)
        for loop, reader in self.readers[variable]:
            grouped[loop].append(reader)
        if not parts and not grouped and not self.rows[variable]:
            grouped[None] = []
        for readers in grouped.values():
            span = next((r.equation.span for r in readers if not isinstance(r.equation, Spread)), NOWHERE)
            made = self.fresh(cotangent.type, variable.space, order)
            self.equations.append(Collect(made, variable, tuple(readers), span))
            parts.append(made)
        rows = tuple(self.rows[variable])
        if rows and variable.space is not None:
            parts.append(self.scattered(rows, None, cotangent.type, order))
        total: Variable | None = None
        for x in [self.conform(x, cotangent.type, order) for x in parts]:
            total = x if total is None else self.added(total, x, order)
        if rows and variable.space is None:
            total = self.scattered(rows, total, cotangent.type, None)
        assert total is not None
        same[cotangent] = total

    def scattered(
        self, rows: tuple[RowRead, ...], into: Variable | None, type: Array, order: RowOrder | None
    ) -> Variable:
        made = self.fresh(type, None if order is None else order.space, order)
        self.equations.append(Scatter(made, rows, into, rows[0].of.span))
        return made

    def added(self, a: Variable, b: Variable, order: RowOrder | None) -> Variable:
        closed, _ = jax_compat.trace(lambda a, b: a + b, a.type, b.type)
        (found,) = self.paste(closed, [a, b], order, NOWHERE)
        assert isinstance(found, Variable)
        return found

    def conform(self, x: Variable, type: Array, order: RowOrder | None) -> Variable:
        """A contribution in the type and order of the cotangent."""
        if x.type == type and self.home.get(x) == order:
            return x
        space = None if order is None else order.space
        made = self.fresh(type, space, order)
        self.equations.append(Compute((made,), of_derivatives("convert", dtype=type.dtype), (x,), space))
        return made

    def assemble(
        self,
        policy: Policy,
        seeds: Sequence[int],
        handed: Sequence[Variable],
        same: Mapping[Variable, Variable],
        tables: Mapping[int, Variable],
    ) -> Adjoint:
        shared: list[tuple[int, Variable]] = []
        columns: list[tuple[str, Variable]] = []
        given: list[tuple[int, Variable]] = []
        for equation in self.system.equations:
            match equation:
                case Shared(result=result, index=index) if result in self.active and index not in tables:
                    shared.append((index, self.cotangent[result]))
                case Data(result=result, column=column) if result in self.active:
                    columns.append((column, self.cotangent[result]))
                case Given(result=result, index=index) if result in self.active:
                    given.append((index, self.cotangent[result]))
                case _:
                    pass
        found = [v for _, v in (*shared, *columns, *given)]
        rows = {index: tuple(self.rows_of(row, found) for row in self.rows[x]) for index, x in tables.items()}
        outputs = tuple(resolve(v, same) for v in found)
        own = live([substitute(e, same) for e in self.equations], outputs)
        equations, residuals = complete(self.schedule, self.root, own, outputs, handed, policy)
        equations += [Given(v, len(residuals) + k) for k, v in enumerate(handed)]
        system = System(self.system.spaces, tuple(equations), outputs)
        return Adjoint(
            sink_into_loops(mirror(system, self.schedule, self.home)),
            residuals,
            tuple(seeds),
            tuple(k for k, _ in shared),
            tuple(c for c, _ in columns),
            tuple(k for k, _ in given),
            rows,
            tuple(self.constants),
        )

    def rows_of(self, row: RowRead, outputs: list[Variable]) -> RowCotangents:
        """What was read of a table, by outputs that are added for it: all in the order of what was read."""
        order = self.home.get(row.of.results[0])
        numbers: list[int | Literal] = []
        for x in row.of.operands[1:]:
            if isinstance(x, Variable):
                outputs.append(x if x.space is None else self.conform(x, jax_compat.cotangent_type(x.type), order))
            numbers.append(len(outputs) - 1 if isinstance(x, Variable) else x)
        outputs.append(self.conform(row.cotangent, row.cotangent.type, order))
        return RowCotangents(row.of, len(outputs) - 1, tuple(numbers))


def _space(x: Atom) -> Space | None:
    return x.space if isinstance(x, Variable) else None


def _sources(equation: Gather | Fold | PathSum) -> tuple[Variable, ...]:
    return equation.terms if isinstance(equation, PathSum) else equation.sources


def _holds_infinite(constants: Sequence[Any], x: Literal) -> bool:
    """Is it an array of constants that are not all finite?"""
    held = constants[x.constant] if x.constant >= 0 else 0.0
    return has_derivative(cast(Array, x.type)) and not np.isfinite(np.asarray(held)).all()
