"""What leaf operations and folds compute, on the values of one lane: the meaning that every back end batches.

JAX primitives are bound; our own numeric operations are rows of `NUMERIC`, written in `jax.numpy`. Structure
(`OWN` operations with `host=True`) has no value on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.errors import NOWHERE, Span
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Operand,
    Region,
    Value,
    While,
)
from autobatch.ir.ops import Op
from autobatch.ir.regions import limit_of
from autobatch.ir.system import Fold

# ---- blocks
#
# Programs of basic blocks: recursion for which no rows can be laid out ahead.
#
#     func @fib(%n):                                 blocks fib(%n) -> (%r):
#       if %n < 2 then: yield %n                       0 fib: %c = lt(%n, 2); branch %c 1 2
#       else: call @fib(%n - 1) + call @fib(%n - 2)    1: %r := %n; return %r
#                                                      2: %t = sub(%n, 1); %n := %t; enter 0 saving (%n) then 3
#                                                      3 restores (%n): %a := %r; %u = sub(%n, 2); %n := %u; enter 0 ...
#                                                      4 restores (%a): %b := %r; %s = add(%a, %b); %r := %s; return %r
#
# Each example has a program counter, registers (values that one block sets and another one reads) and a stack. `Enter`
# pushes the block to go on with and the registers that it will need, and jumps; a block that `restores` pops them. A
# tail call is a jump. (Radul, Patton, Maclaurin, Hoffman and Saurous: Automatically Batching Control-Intensive Programs
# for Modern Accelerators, MLSys 2020.)


@dataclass(frozen=True, slots=True)
class Move:
    """`register := source`. The moves of a block happen at once: all sources are read before any register is set."""

    register: Value
    source: Operand


@dataclass(frozen=True, slots=True)
class Jump:
    target: int


@dataclass(frozen=True, slots=True)
class Branch:
    condition: Operand
    then: int
    orelse: int


@dataclass(frozen=True, slots=True)
class Enter:
    """A call: push the block `after` and the registers `saved`, then go on at `target`."""

    target: int
    saved: tuple[Value, ...]
    after: int
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Return:
    """Go on with the block on top of the stack, which pops it; the example is done where there is none. The function
    returns what its moves have set the registers `results` to."""

    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """The example is done: it fails with `BlockProgram.failures[failure]`."""

    failure: int


End = Jump | Branch | Enter | Return | Fail
"""The closed set of ends of blocks."""


@dataclass(frozen=True, slots=True)
class Block:
    """Straight-line code. First the registers `restores` are popped (None: this block is behind no call), then `takes`
    happen, the `body`, and `moves`."""

    name: str
    restores: tuple[Value, ...] | None
    takes: tuple[Move, ...]
    body: tuple[Apply, ...]
    moves: tuple[Move, ...]
    end: End


@dataclass(frozen=True, slots=True)
class Site:
    """What an example can fail with, and where: the name of Python's exception, and its message."""

    kind: str
    message: str
    span: Span = field(default=NOWHERE, compare=False)


ENDLESS = "RuntimeError"
"""What an example fails with whose recursion has taken as many steps as it may."""
DEEP = "RecursionError"
"""The same of its depth."""


def _endless(steps: int) -> str:
    return f"this recursion never ends, presumably: max_steps={steps}"


_TOO_DEEP = "maximum recursion depth exceeded: max_depth="


def is_endless(kind: str, message: str, steps: int) -> bool:
    """Is it what an example fails with that may take so many steps?"""
    return kind == ENDLESS and message.startswith(f"{_endless(steps)} ")


def is_too_deep(kind: str, message: str) -> bool:
    """Is it what an example fails with whose stack is full?"""
    return kind == DEEP and message.startswith(_TOO_DEEP)


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """A function that ran by blocks, and all that it calls. `blocks[0]` is its entry. Operands of the operation set the
    registers `parameters`, then those of `captured`, which never change. `results` are registers. `forced`: the control
    that no row can be laid out for; `functions`: the names of what became blocks; `structured`: these functions before
    that, the first one with the arguments `parameters` (`blocks.py`). Two programs are equal if they are
    one."""

    name: str
    parameters: tuple[Value, ...]
    captured: tuple[Value, ...]
    results: tuple[Value, ...]
    blocks: tuple[Block, ...]
    failures: tuple[Site, ...]
    forced: Span
    functions: tuple[str, ...] = ()
    structured: tuple[Function, ...] = ()

    def __str__(self) -> str:
        return print_blocks(self)

    @property
    def types(self) -> tuple[Array, ...]:
        """The types of the results of the operation: those of the function, then its status."""
        found = [r.type for r in self.results]
        return (*(t for t in found if isinstance(t, Array)), STATUS)

    def sites(self, depth: int, steps: int) -> tuple[Site, ...]:
        """What each status from 1 means: the failures of the program, then for each block that a stack of `depth`
        entries was full there, then that `steps` blocks were not enough and it was the next one."""
        deep = (
            f"{_TOO_DEEP}{depth} entries of the stack; test for the end of the "
            "recursion before this call, or raise ab.options(max_depth=...) if it is meant to go so deep"
        )
        long = (
            f"{_endless(steps)} blocks were not enough; test for its end before the call, or raise "
            "ab.options(max_steps=...) if it is meant to run so long"
        )
        ends = [b.end.span if isinstance(b.end, Enter) else self.forced for b in self.blocks]
        return (
            *self.failures,
            *(Site(DEEP, deep, span) for span in ends),
            *(Site(ENDLESS, long, self.span_of(b)) for b in self.blocks),
        )

    def span_of(self, block: Block) -> Span:
        """A place in the source that a block stems from."""
        if isinstance(block.end, Enter):
            return block.end.span
        return next((i.span for i in block.body if i.span != NOWHERE), self.forced)

    def spans(self) -> Iterator[Span]:
        """The place of each operation and of each call."""
        for block in self.blocks:
            yield from (i.span for i in block.body)
            if isinstance(block.end, Enter):
                yield block.end.span

    def too_deep(self, block: int) -> int:
        """The status of an example whose stack is full at the end of a block."""
        return 1 + len(self.failures) + block

    def too_long(self, block: int) -> int:
        """The status of an example that is stopped before a block."""
        return 1 + len(self.failures) + len(self.blocks) + block


STATUS = Array(INT.dtype)
"""The type of a status: 0, or 1 + the position of what the example failed with."""


def targets(end: End) -> tuple[int, ...]:
    """The blocks that may run next."""
    match end:
        case Jump(target=target):
            return (target,)
        case Branch(then=then, orelse=orelse):
            return (then, orelse)
        case Enter(target=target, after=after):
            return (target, after)
        case Return() | Fail():
            return ()
        case _:
            assert_never(end)


def print_blocks(program: BlockProgram) -> str:
    """The program as text, one line for each operation."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: BlockProgram) -> Iterator[str]:
    held = f" with {_values(program.captured)}" if program.captured else ""
    yield f"blocks {program.name}({_values(program.parameters)}){held} -> ({_values(program.results)}):"
    for number, block in enumerate(program.blocks):
        restored = "" if block.restores is None else f" restores ({_values(block.restores)})"
        yield f"  {number} {block.name}{restored}:"
        yield from (f"    {m.register} := {m.source}" for m in block.takes)
        for i in block.body:
            yield f"    {_values(i.results)} = {i.op.name}({', '.join(map(str, i.operands))})"
        yield from (f"    {m.register} := {m.source}" for m in block.moves)
        yield f"    {_end(block.end)}"


def _end(end: End) -> str:
    match end:
        case Jump(target=target):
            return f"jump {target}"
        case Branch(condition=condition, then=then, orelse=orelse):
            return f"branch {condition} {then} {orelse}"
        case Enter(target=target, saved=saved, after=after):
            return f"enter {target} saving ({_values(saved)}) then {after}"
        case Return(results=results):
            return f"return {_values(results)}"
        case Fail(failure=failure):
            return f"fail {failure}"
        case _:
            assert_never(end)


def _values(values: Iterable[Value]) -> str:
    return ", ".join(map(str, values))


def problems(program: BlockProgram) -> Iterator[str]:
    """What is wrong with a program, in words."""
    blocks, captured = program.blocks, frozenset(program.captured)
    given = {v for b in blocks for v in _given(b)} | {*program.parameters, *captured}
    behind = {b.end.after: b.end for b in blocks if isinstance(b.end, Enter)}
    for number, block in enumerate(blocks):
        where = f"block {number}"
        if any(not 0 <= t < len(blocks) for t in targets(block.end)):
            yield f"{where} leads to a block that there is not"
        if (number in behind) != (block.restores is not None):
            yield f"{where} pops what no call has pushed, or leaves it there"
        if block.restores is not None and number in behind and block.restores != behind[number].saved:
            yield f"{where} restores ({_values(block.restores)}), saved are ({_values(behind[number].saved)})"
        for x in _read(block):
            if isinstance(x, Value) and x not in given:
                yield f"{where} reads {x}, which nothing sets"
            if not isinstance(x, Value) and x.constant >= 0:
                yield f"{where} reads an array of the module, which should be captured"
        for v in _given(block):
            if v in captured:
                yield f"{where} sets {v}, which never changes"
        if isinstance(block.end, Branch) and block.end.condition.type != BOOL:
            yield f"{where} tests {block.end.condition.type}"
        if isinstance(block.end, Fail) and not 0 <= block.end.failure < len(program.failures):
            yield f"{where} fails with what is not listed"


def _given(block: Block) -> Iterator[Value]:
    yield from block.restores or ()
    yield from (m.register for m in (*block.takes, *block.moves))
    yield from (r for i in block.body for r in i.results)


def _read(block: Block) -> Iterator[Operand]:
    yield from (m.source for m in (*block.takes, *block.moves))
    yield from (x for i in block.body for x in i.operands)
    if isinstance(block.end, Branch):
        yield block.end.condition
    if isinstance(block.end, Enter):
        yield from block.end.saved


# ---- run blocks
#
# Runs a program of blocks for one example, with a stack of Python: what such a program means.


Evaluate = Callable[..., Sequence[Any]]
"""`evaluate(op, types of results, *operands)`: a leaf operation on the values of one example."""


@dataclass
class Activity:
    """One example on its way through a program: the block that is next, None where it is done; registers; the stack of
    blocks to go on with and of what they need; how many blocks it has run, and what it failed with."""

    program: BlockProgram
    evaluate: Evaluate
    depth: int
    steps: int
    registers: dict[Value, Any]
    block: int | None = 0
    stack: list[tuple[int, list[Any]]] = field(default_factory=list)
    taken: int = 0
    status: int = 0

    def step(self) -> None:
        """Run one block."""
        assert self.block is not None
        if self.taken == self.steps:
            self.fail(self.program.too_long(self.block))
            return
        self.taken += 1
        block = self.program.blocks[self.block]
        env = self.registers
        if block.restores is not None:
            _, held = self.stack.pop()
            env.update(zip(block.restores, held, strict=True))
        self.move(block.takes)
        for i in block.body:
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            made = self.evaluate(i.op, types, *map(self.read, i.operands))
            env.update((r, cast(x, t)) for r, x, t in zip(i.results, made, types, strict=True))
        self.leave(block, self.block)

    def leave(self, block: Block, number: int) -> None:
        match block.end:
            case Jump(target=target):
                self.block = target
            case Branch(condition=condition, then=then, orelse=orelse):
                self.block = then if bool(self.read(condition)) else orelse
            case Enter(target=target, saved=saved, after=after):
                if len(self.stack) == self.depth:
                    self.fail(self.program.too_deep(number))
                    return
                self.stack.append((after, [self.read(x) for x in saved]))
                self.block = target
            case Return():
                self.block = self.stack[-1][0] if self.stack else None
            case Fail(failure=failure):
                self.fail(1 + failure)
                return
            case _:
                assert_never(block.end)
        self.move(block.moves)

    def fail(self, status: int) -> None:
        self.status, self.block = status, None

    def move(self, moves: Sequence[Move]) -> None:
        values = [cast(self.read(m.source), m.register.type) for m in moves]
        self.registers.update(zip((m.register for m in moves), values, strict=True))

    def read(self, x: Operand) -> Any:
        if isinstance(x, Value):
            return self.registers[x]
        assert isinstance(x.type, Array) and x.constant < 0
        return jax_compat.literal(x.value, x.type)

    @property
    def results(self) -> list[Any]:
        """Those of the operation: zeros for an example that failed, then its status."""
        types = self.program.types
        found = [
            jax_compat.zeros(t.shape, jax_compat.device_dtype(t)) if self.status else self.registers[r]
            for r, t in zip(self.program.results, types, strict=False)
        ]
        return [*found, jnp.asarray(self.status, jax_compat.device_dtype(types[-1]))]


def activity(op: Op, evaluate: Evaluate, operands: Sequence[Any]) -> Activity:
    """An example that is about to start."""
    program: BlockProgram = op["program"]
    inputs = (*program.parameters, *program.captured)
    registers = {v: cast(x, v.type) for v, x in zip(inputs, operands, strict=True)}
    return Activity(program, evaluate, op["depth"], op["steps"], registers)


def run_blocks(op: Op, evaluate: Evaluate, operands: Sequence[Any]) -> list[Any]:
    """The results of an operation `blocks` for one example."""
    example = activity(op, evaluate, operands)
    while example.block is not None:
        example.step()
    return example.results


def cast(value: Any, type: Any) -> Any:
    """A value as a register of a type holds it."""
    assert isinstance(type, Array)
    if type.dtype.startswith("key<"):
        return value
    return jnp.broadcast_to(jnp.asarray(value, jax_compat.device_dtype(type)), type.shape)


def extreme(kind: str, even: bool, so_far: Any, x: Any) -> Any:
    """What a fold by max or min holds after one more element, as in Python: the first of equal elements, whose the
    derivative is, and NaN only where it is the first of all. Or (`even`) as in arrays: NaN stays, wherever it is, and
    equal elements share the derivative."""
    if even:
        return (jnp.maximum if kind == "max" else jnp.minimum)(so_far, x)
    return jnp.where(x > so_far if kind == "max" else x < so_far, x, so_far)


def shared_extreme(kind: str, so_far: Any, count: Any, x: Any) -> tuple[Any, Any]:
    """The same with the number of elements that are equal to it so far: all of these have one derivative."""
    found, equal = extreme(kind, True, so_far, x), so_far - x == 0
    even = so_far - (so_far - x) / (count + 1)  # the number itself, and the mean of the derivatives
    return jnp.where(equal, even, found), jnp.where(equal, count + 1, jnp.where(found == x, 1, count))


# ---- folds
#
# The meaning of folds, and of data columns on the device, as all back ends that compute rows have it.

NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda dtype: np.zeros((), dtype),
    "prod": lambda dtype: np.ones((), dtype),
    "max": lambda dtype: _extreme(dtype, -1),
    "min": lambda dtype: _extreme(dtype, 1),
    "any": lambda dtype: np.zeros((), np.bool_),
    "all": lambda dtype: np.ones((), np.bool_),
}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "any": jnp.logical_or,
    "all": jnp.logical_and,
}


def combine(fold: Fold) -> Callable[[Any, Any], Any]:
    """What a fold holds after one more element."""
    return _COMBINE.get(fold.kind) or partial(extreme, fold.kind, fold.even)


def _extreme(dtype: Any, sign: int) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(sign * np.inf, dtype)
    if dtype == np.bool_:
        return np.asarray(sign > 0)
    info = np.iinfo(dtype)
    return np.asarray(info.max if sign > 0 else info.min, dtype)


def data_column(values: Any, type: Array) -> Any:
    """A column of the examples as the device computes with it."""
    if type.dtype.startswith("key<"):
        return jax.random.wrap_key_data(jnp.asarray(values), impl=jax_compat.key_implementation(type.dtype))
    return jnp.asarray(values).astype(jax_compat.device_dtype(type))


# ---- derivatives


@dataclass(frozen=True)
class DerivativeRule:
    """What the derivative of an operation depends on: types, the Python numbers among the operands, which results have
    cotangents, and the operands `wrt` whose cotangents are wanted."""

    op: Op
    operands: tuple[Array, ...]
    numbers: tuple[Any, ...]
    results: tuple[Array, ...]
    cotangents: tuple[bool, ...]
    wrt: tuple[int, ...]


def pull_back(rule: DerivativeRule, given: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
    """The cotangents of the operands `rule.wrt`. `given`: the operands that are no numbers."""
    rest = iter(given)
    xs = [
        next(rest) if number is None else jax_compat.literal(number, type)
        for type, number in zip(rule.operands, rule.numbers, strict=True)
    ]

    moving = moved_together(rule.op, xs, rule.wrt)

    def primal(*moved: Any) -> list[Any]:
        held = list(xs)
        for k, x in zip(moving, moved, strict=True):
            held[k] = x
        outputs = evaluate(rule.op, rule.results, *held)
        return [y for y, has in zip(outputs, rule.cotangents, strict=True) if has]

    _, pull = jax.vjp(primal, *(jnp.asarray(xs[k]) for k in moving))
    found: Sequence[Any] = pull(list(cotangents))
    return found[: len(rule.wrt)]


def moved_together(op: Op, xs: Sequence[Any], wrt: Sequence[int]) -> list[int]:
    """The operands to differentiate by for the cotangents of `wrt`, which come first. JAX's rule of a linear solve
    fails where only some of the operands move that hold the one matrix: there all do."""
    while op.name == "pullback":
        op = op["rule"].op
    if op.name != "custom_linear_solve":
        return list(wrt)
    others = [k for k, x in enumerate(xs) if k not in wrt and jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return [*wrt, *others]


def _pullback(op: Op, *xs: Any) -> Any:
    rule: DerivativeRule = op["rule"]
    given = sum(number is None for number in rule.numbers)
    (found,) = pull_back(rule, xs[:given], xs[given:])
    return found


def _floordiv(x: Any, y: Any) -> Any:
    """JAX's, with the sign of a zero that Python and NumPy give it."""
    found = jnp.floor_divide(x, y)
    if not jnp.issubdtype(found.dtype, jnp.floating):
        return found
    return jax.lax.stop_gradient(jnp.where(found == 0, (x / y * 0).astype(found.dtype), found))


def _mod(x: Any, y: Any) -> Any:
    """As `_floordiv`: a zero has the sign of the divisor."""
    found = jnp.remainder(x, y)
    return _zero_of_sign(found, y) if jnp.issubdtype(found.dtype, jnp.floating) else found


@jax.custom_jvp
def _zero_of_sign(x: Any, y: Any) -> Any:
    return jnp.where((x == 0) & (jnp.signbit(x) != jnp.signbit(y)), -x, x)


_zero_of_sign.defjvps(lambda moved, value, x, y: moved, None)


def _round(x: Any, ndigits: int | None) -> Any:
    if ndigits is not None and ndigits < 0 and jnp.issubdtype(jnp.result_type(x), jnp.integer):
        return _round_to(x, 10**-ndigits)
    rounded = jnp.round(x, ndigits or 0)
    return rounded.astype(int) if ndigits is None else rounded


def _round_to(x: Any, unit: int) -> Any:
    """The multiple of `unit` that is nearest, the even one of two."""
    below = jnp.floor_divide(x, unit)
    over = 2 * (x - below * unit)
    return (below + ((over > unit) | ((over == unit) & (below % 2 == 1)))) * unit


def _int(x: Any) -> Any:
    x = jnp.asarray(x)
    return jnp.trunc(x).astype(int) if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(int)


NUMERIC: dict[str, Callable[..., Any]] = {
    "floordiv": lambda op, x, y: _floordiv(x, y),
    "mod": lambda op, x, y: _mod(x, y),
    "truediv": lambda op, x, y: jnp.true_divide(x, y),
    "pow": lambda op, x, y: jnp.power(x, y),
    "round": lambda op, x: _round(x, op["ndigits"]),
    "int": lambda op, x: _int(x),
    "convert": lambda op, x: jnp.asarray(x).astype(op["dtype"]),
    "pullback": _pullback,
    "within": lambda op, x: x,
    "seed": lambda op, x: jnp.asarray(x),
    "take_row": lambda op, column, row: jnp.asarray(column)[row],
    "unknown": lambda op, x: jnp.asarray(x),
    "undefined": lambda op: jnp.zeros(op["type"].shape, jax_compat.device_dtype(op["type"])),
}
"""One row for each operation of our own with `host=False` that works on arrays (not on lists)."""


def evaluate(op: Op, results: Sequence[Array], *xs: Any) -> Sequence[Any]:
    """The results of a leaf operation on arrays or tracers. `results` are its result types."""
    if op.name == "blocks":
        return _finished(op, run_blocks(op, evaluate, xs))  # one example: a back end runs the rows of a batch together
    if op.is_jax:
        return jax_compat.narrowed(jax_compat.bind(op, results, *jax_compat.narrowed(xs)))
    if op.name == "masked":
        return masked(op["region"], jax_compat.narrowed(xs))
    if op.name == "gradient_of":
        return gradient_of(op, jax_compat.narrowed(xs))
    return jax_compat.narrowed([NUMERIC[op.name](op, *jax_compat.narrowed_numbers(xs))])


def _finished(op: Op, made: Sequence[Any]) -> list[Any]:
    """The results of a program, whose status is one among those of the whole program."""
    *found, status = made
    return [*found, jnp.where(status > 0, status + op["base"], status)]


def masked(
    region: Region, xs: Sequence[Any], apply: Callable[[Apply, Sequence[Any]], Sequence[Any]] | None = None
) -> Sequence[Any]:
    """A region on the values of one lane, whose decisions are known: branches and loops are Python's own. `apply`: what
    an operation gives, in the place of `evaluate`.

    The meaning of the operation `masked`; JAX may trace it for a derivative, but not compile it."""
    env: dict[Value, Any] = {}

    def read(operands: Sequence[Operand]) -> list[Any]:
        return [literal_value(x) if isinstance(x, Literal) else env[x] for x in operands]

    def cast(values: Sequence[Any], like: Sequence[Operand]) -> list[Any]:
        return [jax_compat.conform(x, y.type) for x, y in zip(values, like, strict=True)]

    def run(region: Region, args: Sequence[Any]) -> list[Any]:
        env.update(zip(region.args, args, strict=True))
        for instruction in region.body:
            env.update(zip(instruction.results, step(instruction), strict=True))
        return cast(read(region.results), region.results)

    def step(instruction: Instruction) -> Sequence[Any]:
        match instruction:
            case Apply():
                return (apply or applied)(instruction, read(instruction.operands))
            case If(condition=condition, then=then, orelse=orelse):
                return run(then if bool(read([condition])[0]) else orelse, ())
            case While(init=init, condition=condition_region, body=body):
                carried, turns, limit = cast(read(init), init), 0, limit_of(instruction)
                while bool(run(condition_region, carried)[0]):
                    if limit is not None and turns == limit.turns.most:
                        return [*carried[:-1], jnp.asarray(limit.site, carried[-1].dtype)]
                    carried, turns = run(body, carried), turns + 1
                return carried
            case For(count=count, init=init, body=body):
                carried = cast(read(init), init)
                for turn in range(int(read([count])[0])):
                    carried = run(body, (jnp.asarray(turn, int), *carried))
                return carried
            case Map() | Call():
                raise AssertionError("no calls and no lists in a masked region")
            case _:
                assert_never(instruction)

    return run(region, xs)


def applied(i: Apply, xs: Sequence[Any]) -> Sequence[Any]:
    """What an operation gives."""
    return evaluate(i.op, [r.type for r in i.results if isinstance(r.type, Array)], *xs)


def gradient_of(op: Op, xs: Sequence[Any]) -> Sequence[Any]:
    """The derivatives of the number that a region yields, on the values of one lane, as `masked` has it."""
    wrt: Sequence[int] = op["wrt"]

    def of(*moved: Any) -> Any:
        whole = list(xs)
        for k, x in zip(wrt, moved, strict=True):
            whole[k] = x
        return masked(op["region"], whole)[0]

    found: Sequence[Any] = jax.grad(of, tuple(range(len(wrt))))(*(jnp.asarray(xs[k]) for k in wrt))
    return found


def literal_value(x: Literal) -> Any:
    """A literal of a region that an operation holds: its arrays are operands of the operation."""
    assert isinstance(x.type, Array) and x.constant < 0
    return jax_compat.literal(x.value, x.type)


def result_type(op: Op, operands: Sequence[Array], literals: Sequence[Any]) -> Array:
    """The type of the result of one of our own numeric operations. `literals[k]` is the Python scalar that operand k
    is, or None where it is a value. Of Python numbers alone it is a Python number, and so is what `int()` gives."""
    held = tuple((type(c), c) for c in literals)  # 1, 1.0 and True are equal, and not the same
    try:
        return _result_type(op, tuple(operands), held, jax_compat.settings())
    except TypeError:  # of an operand that the operation does not take: JAX's words, or params that cannot be hashed
        return _evaluated_type(op, operands, held)


@lru_cache(maxsize=4096)
def _result_type(op: Op, operands: tuple[Array, ...], held: tuple[tuple[type, Any], ...], settings: Hashable) -> Array:
    return _evaluated_type(op, operands, held)


def _evaluated_type(op: Op, operands: Sequence[Array], held: Sequence[tuple[type, Any]]) -> Array:
    def apply(*values: Any) -> Any:
        rest = iter(values)
        xs = [next(rest) if c is None else c for _, c in held]
        return NUMERIC[op.name](op, *jax_compat.narrowed_numbers(xs))

    avals = [jax_compat.aval_of(t) for t, (_, c) in zip(operands, held, strict=True) if c is None]
    result = jax.eval_shape(apply, *avals)
    python = result.dtype != bool and all(t.is_scalar and (t.weak or t.is_bool) for t in operands)
    python |= op.name == "int" and result.shape == ()  # of an array's number too
    return jax_compat.type_of(jax.ShapeDtypeStruct(result.shape, result.dtype, weak_type=python or result.weak_type))
