"""Where lowering stands: the module under construction, the function, the block, and the variables.

    Context   one lowering: functions, shared values, constants, assumptions about results
    Frame     one function being lowered: its text, what encloses it
    Block     one region under construction, inside another; what is known there (facts)
    State     a point of the program: frame, block, variables

A `LoweringState` forks at a branch and is joined behind it (`joins.py`).
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from autobatch.data.columns import Field, Schema, nullable_types
from autobatch.errors import NOWHERE, SourceError, Span, UnsupportedError
from autobatch.frontend.memory.heap import Heap, Identities, ReturnedIdentity, Sites, add_heap, is_state
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.syntax.sources import FunctionSource, Inlined, attributes_set
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import (
    CONTENTS,
    KEYS,
    children,
    container_kind,
    contents,
    inputs,
    is_array,
    keys_of,
)
from autobatch.frontend.types.values import Layout, MadeClass
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    Apply,
    Array,
    Function,
    Input,
    Instruction,
    Literal,
    Operand,
    OwnField,
    Ref,
    Type,
    Value,
    is_numpy,
)
from autobatch.ir.ops import Op, own

# ---- cached functions


@dataclass(frozen=True)
class Cached:
    """A function under such a decorator: where it stands, and how many results are kept; None: all of them."""

    place: Span
    bound: int | None


@dataclass
class Caches:
    """`known`: by their texts. `remembered`: where those stand whose results are kept in a dict; `exact`: which are so
    because it matters how often they run. `owners`: the functions, by their texts, with the names of such dicts that
    are variables of them; None: of the example. `beginnings`: the statements that make such dicts, by name; `written`:
    the functions that use them."""

    known: dict[ast.AST, Cached] = field(default_factory=dict)
    remembered: set[Span] = field(default_factory=set)
    exact: set[Span] = field(default_factory=set)
    owners: set[tuple[ast.AST | None, str]] = field(default_factory=set)
    beginnings: dict[str, ast.Assign] = field(default_factory=dict)
    written: set[ast.AST] = field(default_factory=set)

    def run_with_effect(self, functions: Iterable[ast.AST]) -> bool:
        """Note that it matters how often functions run. Was that new of one?"""
        found = {self.known[f].place for f in functions if f in self.known} - self.exact
        self.exact |= found
        self.remembered |= found
        return bool(found)

    @property
    def left_out(self) -> frozenset[Span]:
        """Where decorators stand that are left out."""
        return frozenset(x.place for x in self.known.values()) - self.remembered


# ---- caught
#
# What one round of lowering knows of failures that a `try` catches (`exceptions.py`, `exceptions.py`).


@dataclass
class Caught:
    """Instructions whose failure is `handled`, the variables `before` each that may fail, and what calls of `guarded`
    functions have raised; instructions by identity, so that they are kept alive here."""

    handled: dict[int, Instruction] = field(default_factory=dict)
    before: dict[int, tuple[Instruction, dict[str, v.BoundVariable]]] = field(default_factory=dict)
    raisings: dict[int, dict[str, v.Abstract]] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)


RETURNED, BROKE, CONTINUED, RAISED, RESULT = "<returned>", "<broke>", "<continued>", "<raised>", "<result>"
_FIRST_ID = 1_000_000
"""Shared values come first; `lower.py` numbers all values anew in the end."""
FLAGS = (RETURNED, BROKE, CONTINUED, RAISED)


class UnknownResult(Exception):
    """The result of a recursive call is not known yet: the path ends here, in this round of the fixpoint."""


class Ended(Exception):
    """Nothing behind this point of an expression runs: something in it always fails."""


class Restart(Exception):
    """Lower everything again: an argument of a recursive function has to become a run-time value."""


class MemoryChanged(Restart):
    """Lower everything again: a class has memory, a field of it other types, or a function needs it (`heaps.py`)."""


class Impure(UnsupportedError):
    """A call with an effect or a hidden state: neither lowered nor traced."""


class ChangesGiven(Impure):
    """A list of the examples is changed. Where it is an argument, the function is lowered with a list of its own."""


class ChangesObjects(Impure):
    """Objects or dicts of the examples are changed, or meet some that the function makes. It is possible where the
    entry is given all that each example has of some kinds: `kinds` are those, the ones that lie in the same columns.
    Dicts of constant keys are of a kind that is the tuple of these, sorted; other dicts, sets and objects of their
    class. `store`: where they lie, while the kinds are not known; `error`: what is refused else."""

    def __init__(self, kinds: Iterable[Hashable], error: SourceError, store: str = "") -> None:
        super().__init__(error.message, error.span, error.cure, error.also)
        self.kinds, self.error, self.store = frozenset(kinds), error, store


class DictsDiffer(UnsupportedError):
    """What is refused of dicts of the examples, as their keys differ: it is possible where their keys are data."""


class UnseenInTraces(UnsupportedError):
    """What would go unseen in a trace, too, or look different there: an array that something else holds is changed in
    place, the class of an array is asked for."""


class SeenInMemory(UnsupportedError):
    """Raised where a function compiles in memory, and a trace would not see what it changes in place."""


@dataclass(frozen=True, slots=True)
class FreeVariable:
    """A variable that a lowered function read from its closure, globals or an object found there. `value` is guarded
    when `shared` is None, otherwise the array became `Module.shared[shared]`."""

    owner: Any
    name: str
    path: tuple[Any, ...]
    value: Any
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a reference: the classes it may have (None: any), whether it may be None. `tested`: classes
    were ruled out by testing for them. Of a reference and a name: which constants the tag may be."""

    classes: frozenset[Any] | None = None
    null: bool = True
    tested: bool = False


class ClassTest(NamedTuple):
    """What a test says of a reference, or of a reference and the name of its tag: the classes, or constants, that it
    may have where the test holds, and where it does not. `by_class`: of a tag, the constants of each class."""

    of: Hashable
    true: frozenset[Any]
    false: frozenset[Any]
    by_class: Mapping[int, frozenset[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The chapters of the lowering that call each other."""

    evaluate: Callable[[LoweringState, ast.expr], v.Abstract]
    execute: Callable[[LoweringState, Sequence[ast.stmt]], None]
    call: Callable[[LoweringState, v.Abstract, Sequence[v.Abstract], dict[str, v.Abstract], Span], v.Abstract]
    materialise: Callable[[LoweringState, v.Abstract], v.Abstract]
    attribute: Callable[[LoweringState, v.Abstract, str], v.Abstract]
    stacked: Callable[[LoweringState, Any, Sequence[v.Abstract]], v.Abstract]
    make_set: Callable[[LoweringState, v.Abstract], v.Abstract]
    boxed: Callable[[LoweringState, v.Abstract], Operand]
    parts: Callable[[LoweringState, v.Leaf], v.Record | None]
    made_by: Callable[[LoweringState, v.Abstract, object], v.Abstract]
    initialised: Callable[[LoweringState, v.Record, Sequence[v.Abstract]], v.Abstract]
    adopted: Callable[[LoweringState, Heap, v.Abstract], v.Abstract]
    string_of: Callable[[LoweringState, v.MemoryRow], v.Leaf]
    tell_apart: Callable[[LoweringState, Heap], None]
    brought_in: Callable[[LoweringState, v.Abstract], v.Abstract]
    iterator: Callable[[LoweringState, v.Generator], v.Abstract]


@dataclass
class Specialisation:
    """A function of the module, for one key. `result` is None until some path is known to return. `guessed`: as in
    `OpenBlock`."""

    name: str
    result: Layout | None = None
    done: bool = False
    can_fail: bool = True
    guessed: bool = False


@dataclass
class LoweringMemory:
    """What rounds of one lowering remember: assumed results and what they may be, the classes of objects that are made,
    how often the result of a recursion has nested deeper, arguments made dynamic, traced functions. `needed`: shared
    integers whose values were used; `numpy`: parameters of functions that are arrays of NumPy in some of the calls;
    `asks_numpy`: was an array indexed that is one of NumPy, or could be given as one? `dicts`: the names of shared
    dicts, by identity; `ordered`, `orders_batched`: `state.py`. `heaps`: the classes whose objects have memory
    (`refused`: why), `capacity` of them at most, and `sites`, the expressions whose lists have some; `rows`: are
    they planned? `letters`: are strings there code points? `deques`: are deques objects? `adopting`: how many of
    these adopt objects of the examples? `filled`: the expressions whose arrays of data-dependent length are changed in
    place (`dynamic_arrays.py`);
    `unseen`: would a trace not see one of these changes? `own_lists`: are arguments that are lists of the examples
    copied, as they are changed? `unread`: in how many rounds, in which nothing else was found, a memory was read before
    it was known what is in it.
    `read` and `written`: functions and loops, by their text, and what they need. `nulls`: the stores of the objects in
    whose place the function puts None. `outliving`: variables that are fields of an object, as one of the functions
    that change them outlives theirs: its file and line, and their name. `related`: the functions in which it matters
    whether two of their arguments may be one object, or hold one, and which these are, by their places. See `graphs.py`
    for `plain`, `printing.py`."""

    assumed: dict[Any, Layout] = field(default_factory=dict)
    returned: dict[Any, ReturnedIdentity] = field(default_factory=dict)
    made: dict[Any, MadeClass] = field(default_factory=dict)
    grown: dict[Any, int] = field(default_factory=dict)
    settled: dict[Any, Mapping[str, Layout]] = field(default_factory=dict)
    widened: set[tuple[Any, Any]] = field(default_factory=set)
    listed: dict[tuple[Any, Any], Layout] = field(default_factory=dict)
    traces: dict[Any, Any] = field(default_factory=dict)
    sources: dict[Any, FunctionSource] = field(default_factory=dict)
    hidden: list[Value] = field(default_factory=list)
    free: dict[Any, FreeVariable] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    needed: set[int] = field(default_factory=set)
    numpy: set[tuple[Any, Any]] = field(default_factory=set)
    asks_numpy: bool = False
    dicts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ordered: set[str] = field(default_factory=set)
    orders_batched: bool = False
    heaps: dict[object, Heap] = field(default_factory=dict)
    sites: dict[object, Heap] = field(default_factory=dict)
    refused: UnsupportedError | None = None
    capacity: int = 0
    rows: bool = True
    letters: bool = False
    deques: bool = False
    adopting: int = 0
    unread: Counter[Heap] = field(default_factory=Counter)
    filled: set[object] = field(default_factory=set)
    unseen: bool = False
    own_lists: bool = False
    read: set[tuple[ast.AST, str]] = field(default_factory=set)
    written: set[tuple[ast.AST, str]] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    outliving: set[tuple[str, int, str]] = field(default_factory=set)
    inlined: dict[Any, Inlined] = field(default_factory=dict)
    consumers: dict[Any, ast.For] = field(default_factory=dict)
    raised: list[type[BaseException]] = field(default_factory=list)
    looked_at: dict[type[BaseException], int | None] = field(default_factory=dict)  # these two: `exceptions.py`
    plain: set[ast.AST] = field(default_factory=set)
    rewritten: dict[Any, Any] = field(default_factory=dict)
    printing: Any = None
    caches: Caches = field(default_factory=Caches)
    nulls: set[str] = field(default_factory=set)
    related: dict[Any, frozenset[tuple[int, int]]] = field(default_factory=dict)

    def ask_for_related(self, sources: Iterable[Any]) -> None:
        """Let it be known of these functions which of their arguments may be one object."""
        new = [x for x in sources if x not in self.related]
        self.related.update(dict.fromkeys(new, frozenset()))
        if new:
            raise Restart

    def forget_results(self) -> None:
        """Let the layouts of results and variables be found anew, in which others stand for some objects now."""
        for known in (self.assumed, self.made, self.grown, self.settled, self.listed):
            known.clear()

    def sets_attribute(self, name: str) -> bool:
        """Does a function that was met set an attribute of this name?"""
        return any(name in attributes_set(source.node) for source in self.sources.values())

    def add_sites(self, sites: Mapping[object, type]) -> None:
        """Let the lists and dicts that these expressions make have memory, if they have none."""
        new = {site: cls for site, cls in sites.items() if site not in self.sites}
        for site, cls in new.items():
            self.sites[site] = add_heap(self.heaps, site, cls)
        if new:
            raise MemoryChanged

    def let_deques_be_objects(self) -> None:
        """Let deques have memory, as objects of a class in Python (`tables.py`), if they have none."""
        if not self.deques:
            self.deques = True
            raise MemoryChanged

    def fill(self, sites: Collection[object]) -> None:
        """Let the arrays whose length is data that these expressions make have memory, if they have none."""
        if not self.filled.issuperset(sites):
            self.filled.update(sites)
            raise MemoryChanged


class Context:
    """One round of lowering: the module under construction.

    `kinds`: of the arrays that calls pass for a parameter, which are NumPy's. `reached`: lines that lowering came to;
    `traced`: texts that JAX traced, and where they were handed over. `deferred`: the first error on a path with a guess
    (`State.guess`). `built`: the classes of objects that were made here. `again`: memory is not what it was taken for,
    so this round goes on for what else it finds, and is lowered again whatever it comes to. `adopts`: are objects
    of the examples in memory from the start, so that the entry is handed memory? `fields_set`: the attributes that are
    set, of the objects of each memory; "" where lists or dicts are changed."""

    def may_be_none(self, type: Ref) -> bool:
        """May a reference be None: one of the examples, or one that the function makes?"""
        return type.store in self._nulls or type.store in self.memory.nulls

    def puts_none(self, type: Type) -> None:
        """The function puts None where an object of the examples may stand. That is found anew."""
        if isinstance(type, Ref) and not self.may_be_none(type):
            self.memory.nulls.add(type.store)
            self.memory.settled.clear()
            self.again = True

    def __init__(
        self, schema: Schema, shared: Sequence[Array], rules: Rules, memory: LoweringMemory, integers: Mapping[int, int]
    ) -> None:
        self.schema, self.rules, self.memory = schema, rules, memory
        self.own_lists: dict[str, Heap] = {}
        self.adopts = False
        self.fields_set: defaultdict[Heap, dict[str, None]] = defaultdict(dict)
        self._ids = _FIRST_ID
        self._nulls = {t.store for t in nullable_types(schema) if isinstance(t, Ref)}
        self.shared = [Value(k, t, "shared") for k, t in enumerate(shared)] + memory.hidden
        self.integers = {self.shared[k]: n for k, n in integers.items()}
        self._decided = {x: frozenset([x]) for x in self.shared}
        self.constants: list[Any] = []
        self.functions: dict[Any, Function] = {}
        self.kinds: dict[tuple[Any, str, int], list[bool]] = {}
        self.specialisations: dict[Any, Specialisation] = {}
        self.active: list[tuple[FunctionSource, dict[str, v.Abstract]]] = []
        self.entry: FunctionSource | None = None
        self.recursive: set[Any] = set()
        self.hints: dict[Value, str] = {}
        self.names: dict[str, int] = {}
        self.free = memory.free
        self.sources: dict[Any, None] = {}
        self.meanings: dict[Value, tuple[Any, ...]] = {}
        self.reached: set[tuple[str, int]] = set()
        self.traced: set[tuple[Span, Span]] = set()
        self.caught = Caught()
        self.raisable: dict[str, type[BaseException]] = {}
        self.changed = self.again = False
        self.waited = set[Heap]()
        self.deferred: SourceError | None = None
        self.identities = Identities()
        self.sites = Sites(self.identities)
        self.built: set[type] = set()
        self._failure: tuple[Exception | None, Span] = (None, NOWHERE)
        self.inputs: dict[int, v.Abstract] = {}
        self.alternatives: dict[str, dict[int, Field]] = {}

    def value(self, type: Type, hint: str = "") -> Value:
        self._ids += 1
        return Value(self._ids - 1, type, hint)

    def note(self, known: set[Any], found: set[Any]) -> None:
        """Add to what rounds remember of memory."""
        self.again |= not found <= known
        known |= found

    def hide(self, type: Type, hint: str) -> int:
        """A new hidden shared value; its index in `Module.shared`. Rounds agree on them."""
        value = Value(len(self.shared), type, hint)
        self.memory.hidden.append(value)
        self.shared.append(value)
        return len(self.shared) - 1

    def decided_by(self, operands: Iterable[Operand]) -> frozenset[Value]:
        """The shared values that decide some of these operands, each of them alone or with other shared values."""
        found = (self._decided.get(x) for x in operands if isinstance(x, Value))
        return frozenset().union(*(x for x in found if x is not None))

    def note_decided(self, instruction: Instruction) -> None:
        """Remember what shared values decide alone: the results of operations on them."""
        if not isinstance(instruction, Apply) or not instruction.operands:
            return
        if all(isinstance(x, Literal) or x in self._decided for x in instruction.operands):
            found = self.decided_by(instruction.operands)
            self._decided.update((r, found) for r in instruction.results)

    @property
    def shared_values(self) -> frozenset[Value]:
        return frozenset(self.shared)

    def note_failure(self, error: Exception, span: Span) -> None:
        """Remember the innermost place that an exception has left."""
        if self._failure[0] is not error:
            self._failure = (error, span)

    def place_of(self, error: Exception) -> Span:
        return self._failure[1] if self._failure[0] is error else NOWHERE

    def constant(self, array: Any) -> Literal:
        """An array that was made while compiling."""
        for position, known in enumerate(self.constants):
            if known is array:
                return Literal(None, jax_compat.type_of(array), position)
        self.constants.append(array)
        return Literal(None, jax_compat.type_of(array), len(self.constants) - 1)

    def unique(self, name: str) -> str:
        """A name for a function of the module."""
        name = (
            "".join(c if c.isalnum() or c in "_." else "_" for c in name.replace("<locals>.", "")).strip("_")
            or "function"
        )
        count = self.names[name] = self.names.get(name, 0) + 1
        return name if count == 1 else f"{name}.{count}"

    def keep(self, value: Any) -> None:
        """Keep an object alive whose identity is part of a key."""
        self.memory.alive.append(value)


@dataclass
class FunctionFrame:
    """A function being lowered.

    enclosing       the variables of the functions around it
    loops           the loops around the statement at hand
    unknown         did some path end at a call whose result is not known yet?
    constructing    the object whose attributes `__init__` may set; `tried`: how many of `trying` are around its call,
                    which see no more of the object where it raises something; -1 where `finally` may see it
    borrowed        its arguments, which it may not change
    generators      those that the statement at hand is written into
    trying          what the `try` around the statement at hand catch, outer ones first; `handling`: see `exceptions.py`
    settling        variables that loops carry and that nothing before them has set, with the first place that read one
    """

    context: Context
    source: FunctionSource
    enclosing: dict[str, v.Abstract]
    unknown: bool = False
    constructing: str = ""
    tried: int = -1
    borrowed: list[v.Abstract] = field(default_factory=list)
    settling: dict[str, Span | None] = field(default_factory=dict)
    handling: tuple[str, tuple[int, ...], str | None] | None = None
    generators: list[FunctionSource] = field(default_factory=list)
    trying: list[tuple[type[BaseException], ...]] = field(default_factory=list)

    @property
    def owner(self) -> Any:
        """The Python function whose closure and globals are read."""
        return self.source.function


class OpenBlock:
    """A region under construction. What the blocks around it know holds here too. `guessed`: something in it, or in a
    block inside it, is taken to be what it may not be (`State.guess`)."""

    def __init__(self, parent: OpenBlock | None, context: Context | None = None) -> None:
        self.parent = parent
        self.context: Context | None = context if parent is None else parent.context
        self.body: list[Instruction] = []
        self.known: dict[Operand, bool] = {}
        self.facts: dict[Hashable, Fact] = {}
        self.memo: dict[Any, v.Abstract] = {}
        self.stores: dict[Heap, tuple[v.Abstract, Mapping[str | OwnField, tuple[Operand, v.Abstract]]]] = {}
        """Of a memory as stores have left it, the fields that are known: the row, and what it holds."""
        self.guessed = False

    def chain(self) -> Iterator[OpenBlock]:
        block: OpenBlock | None = self
        while block is not None:
            yield block
            block = block.parent

    def recall(self, key: Any) -> v.Abstract | None:
        return next((b.memo[key] for b in self.chain() if key in b.memo), None)

    def fact(self, of: Hashable) -> Fact:
        found = next((b.facts[of] for b in self.chain() if of in b.facts), None)
        if found is None and self.context is not None and isinstance(of, Value) and isinstance(of.type, Ref):
            return Fact(null=self.context.may_be_none(of.type))
        return found or Fact()

    def truth(self, operand: Operand) -> bool | None:
        """The value of a bool operand, where it is known."""
        if isinstance(operand, Literal):
            return bool(operand.value) if operand.constant < 0 else None
        return next((b.known[operand] for b in self.chain() if operand in b.known), None)


@dataclass
class LoweringState:
    """A point of the program. `dead`: no path leads here."""

    frame: FunctionFrame
    block: OpenBlock
    env: dict[str, v.BoundVariable]
    dead: bool = False
    span: Span = NOWHERE

    @property
    def context(self) -> Context:
        return self.frame.context

    def mark(self) -> Callable[[], None]:
        """A function that takes back all that is lowered from here on."""
        block, env, dead, length = self.block, dict(self.env), self.dead, len(self.block.body)
        known, facts, memo = dict(block.known), dict(block.facts), dict(block.memo)

        def restore() -> None:
            del block.body[length:]
            block.known, block.facts, block.memo = dict(known), dict(facts), dict(memo)
            self.env, self.dead = dict(env), dead

        return restore

    def restore(self, before: dict[str, v.BoundVariable], own: Collection[str] | None = None) -> None:
        """Go back to the variables of before, but for the memory of objects and cells: those stay as they are now.
        `own`: the only variables that were assigned meanwhile; the others may hold what was changed in place."""
        kept = {n: b for n, b in self.env.items() if is_state(n) or (own is not None and n in before and n not in own)}
        self.env = before | kept

    def guess(self) -> None:
        """Note that a list whose elements are not known yet, in this round, is taken to be empty here; or an attribute
        to be None that is set."""
        self.frame.unknown = True
        for block in self.block.chain():
            block.guessed = True

    def defer(self, error: SourceError) -> bool:
        """May the error be one of a guess? Then its path ends here, in this round: the next one knows more. Where there
        is no next round, it is raised."""
        if isinstance(error, Impure | UnseenInTraces) or not any(b.guessed for b in self.block.chain()):
            return False
        self.frame.unknown = True
        self.context.deferred = self.context.deferred or error
        return True

    def fork(self) -> LoweringState:
        """The same point, in a new block inside this one."""
        return LoweringState(self.frame, OpenBlock(self.block), dict(self.env), span=self.span)

    def evaluate(self, node: ast.expr) -> v.Abstract:
        return self.context.rules.evaluate(self, node)

    def call(
        self,
        function: v.Abstract,
        args: Sequence[v.Abstract],
        kwargs: dict[str, v.Abstract] | None = None,
        span: Span | None = None,
    ) -> v.Abstract:
        return self.context.rules.call(self, function, args, kwargs or {}, span or self.span)

    def bind(self, name: str, value: v.Abstract, span: Span | None = None) -> None:
        self.env[name] = v.BoundVariable(value, span or self.span)
        if isinstance(value, v.Leaf) and isinstance(value.operand, Value):
            self.context.hints.setdefault(value.operand, shown(name))

    def flag(self, name: str) -> v.Abstract:
        bound = self.env.get(name)
        return bound.value if bound is not None else v.Static(False)

    @property
    def left(self) -> bool:
        """Does every path leave the statements at hand, by return, break, continue or failure?"""
        return self.dead or any(self.is_set(name) for name in FLAGS)

    def is_set(self, name: str) -> bool:
        """Is this flag known to be set here? Where every other path has failed, a test of it tells."""
        flag = self.flag(name)
        return flag == v.Static(True) or (isinstance(flag, v.Leaf) and self.block.truth(flag.operand) is True)

    def emit(self, instruction: Instruction) -> None:
        self.block.body.append(instruction)
        if self.frame.trying and isinstance(instruction, Apply) and not instruction.op.is_jax:
            self.context.caught.before[id(instruction)] = (instruction, dict(self.env))
        self.context.note_decided(instruction)

    def apply(self, op: Op, operands: Sequence[Operand], type: Type, hint: str = "") -> Value:
        """Emit a leaf operation with one result."""
        result = self.context.value(type, hint)
        self.emit(Apply((result,), op, tuple(operands), self.span))
        return result

    def check(
        self, condition: Operand, kind: str, message: str, operands: Sequence[Operand] = (), span: Span | None = None
    ) -> None:
        """Emit a check: the example fails with exception `kind` where the condition is false. `span`: where, if it is
        not here."""
        if self.block.truth(condition) is True:
            return
        self.emit(Apply((), own("check", kind=kind, message=message), (condition, *operands), span or self.span))
        self.assume(condition, True)

    def assume(self, condition: Operand, truth: bool) -> None:
        """Note what a condition says about other values, for the code of this block."""
        if not isinstance(condition, Value):
            return
        self.block.known[condition] = truth
        match self.context.meanings.get(condition):
            case ("not", other):
                self.assume(other, not truth)
            case ("and", *parts) if truth:
                for part in parts:
                    self.assume(part, True)
            case ("or", *parts) if not truth:
                for part in parts:
                    self.assume(part, False)
            case ("is_none", reference):
                fact = self.block.fact(reference)
                if truth:
                    self.block.facts[reference] = Fact(frozenset(), True, False)
                else:
                    self.block.facts[reference] = replace(fact, null=False)
            case ("is_class", *tests):
                for test in tests:
                    fact, fit = self.block.fact(test.of), test.true if truth else test.false
                    fit = fit if fact.classes is None else fit & fact.classes
                    self.block.facts[test.of] = Fact(fit, fact.null and not truth, True)

    def one_of(self, x: Operand) -> frozenset[Any] | None:
        """The strings, or members of enums, that a value may be, where these are known."""
        match self.context.meanings.get(x) if isinstance(x, Value) else None:
            case ("one_of", words):
                known: frozenset[Any] = words
                return known
            case ("of_class", _, by_class, _) if None not in by_class.values():
                return frozenset[Any]().union(*by_class.values())
            case _:
                return None

    def possible(self, reference: Operand) -> frozenset[int]:
        """The classes that a reference may have here, as positions in its store."""
        known = self.block.fact(reference).classes
        if known is not None:
            return known
        assert isinstance(reference.type, Ref)
        return frozenset(range(len(self.context.schema.store(reference.type.store).classes)))

    def positions(self, row: v.MemoryRow | v.Leaf) -> frozenset[int]:
        """The classes that an object may have here; of those in memory, of which one is made."""
        if isinstance(row, v.Leaf):
            return self.possible(row.operand)
        made = frozenset(k for k, c in enumerate(row.heap.members) if c in row.heap.forms or len(row.heap.members) == 1)
        known = self.block.fact(row.operand).classes if isinstance(row.operand, Value) else None
        for fewer in (row.classes, known):
            made = made if fewer is None else made & fewer
        return made

    def scalar(self, value: bool | int | float | complex) -> Literal:
        """A Python scalar as an operand."""
        return Literal(value, BOOL if isinstance(value, bool) else jax_compat.type_of(value))

    def refuse(self, message: str, cure: str = "", span: Span | None = None) -> NoReturn:
        raise UnsupportedError(message, span or self.span, cure)

    def at(self, node: ast.AST) -> _At:
        """Within, instructions and errors carry the place of `node`."""
        return _At(self, node)


class _At:
    """Sets the place of a state, and puts back the one before. (A class: of a generator it would take three times as
    long, and there is one for each expression.)"""

    __slots__ = ("before", "node", "state")

    def __init__(self, state: LoweringState, node: ast.AST) -> None:
        self.state, self.node = state, node

    def __enter__(self) -> None:
        state, node = self.state, self.node
        self.before = state.span
        source = state.frame.source
        if hasattr(node, "lineno") and source.is_shown:
            state.span = span = source.places.get(node) or source.at(node)
            state.frame.context.reached.add((span.file, span.line))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception):
            self.state.context.note_failure(error, self.state.span)
        self.state.span = self.before


# ---- key order
#
# Which dicts the function runs over: the order of their keys is a part of the program, that of others is not.
#
#     p["W"], "b" in p, len(p), p.get("b")              any order of the keys of p is the same program
#     for k in p, p.items(), {**p}, tree.map(g, p)      the order that p has now; another is another program
#
# JAX hands dicts back with their keys sorted, so that a dict comes in several orders where nobody thinks of one.


_SCALARS = (int, float, complex, str, bytes, type(None))


def names_of(dicts: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """The names of shared dicts, by identity; a dict that stands twice has two."""
    found: dict[int, tuple[str, ...]] = {}
    for name, held in dicts.items():
        found[id(held)] = (*found.get(id(held), ()), name)
    return found


def run_over(context: Context, value: v.Abstract) -> None:
    """Note that the keys of a value, if it is a dict, are met in their order."""
    match value:
        case v.Static(value=held):
            context.memory.ordered.update(context.memory.dicts.get(id(held), ()))
        case v.Record(kind="dict"):
            context.memory.orders_batched = True  # which dict it stems from, nobody remembers


def hand_out(context: Context, *values: Any) -> None:
    """Note that Python code gets these objects, and may run over any dict inside."""
    if not context.memory.dicts:
        return
    todo, seen = list(values), set[int]()
    while todo:
        held = todo.pop()
        if isinstance(held, _SCALARS) or id(held) in seen:
            continue
        seen.add(id(held))
        context.memory.ordered.update(context.memory.dicts.get(id(held), ()))
        todo += (part for _, part in children(held))
        if isinstance(held, functools.partial):
            todo += (held.func, held.args, held.keywords)


# ---- access
#
# Reading what is already there: Python objects, free variables, the fields of objects in the examples.
#
# Arrays found in free variables become hidden shared values; static values found there are noted, so that the caller
# can read them again and see that they changed.


def wrap(context: Context, value: Any, origin: v.FreeOrigin | None = None) -> v.Abstract:
    """The abstract value of a Python object. With `origin` it is a free variable, and is noted."""
    if isinstance(value, Input):
        return context.inputs[value.index] if not value.shared else _shared(context, value)
    if isinstance(value, v.Static | v.Leaf | v.Record | v.Optional):
        return value
    if is_array(value):
        if origin is not None:
            return v.Leaf(hidden(context, value, origin), numpy=is_numpy(value))
        if np.ndim(value) == 0 and not jax_compat.type_of(value).dtype.startswith("key"):
            return v.Leaf(Literal(np.asarray(value).item(), jax_compat.type_of(value)), numpy=is_numpy(value))
        return v.Leaf(context.constant(value), numpy=is_numpy(value))
    is_container = isinstance(value, types.ModuleType | list | dict)  # of these, what is read of them is noted
    if origin is not None and not is_container and not _is_own_name(origin, value):
        note(context, origin, value)
    return v.Static(value, origin)


def _is_own_name(origin: v.FreeOrigin, value: Any) -> bool:
    """Is it a function of Python's under the name that it has there (`len`, `math.sqrt`)?"""
    step = origin.path[-1] if origin.path else ("attribute", origin.name)
    return isinstance(value, types.BuiltinFunctionType) and step == ("attribute", value.__name__)


def _shared(context: Context, leaf: Input) -> v.Leaf:
    return v.Leaf(context.shared[leaf.index], numpy=leaf.numpy)


def note(context: Context, origin: v.FreeOrigin, value: Any, shared: int | None = None) -> None:
    """Remember that a free variable was read."""
    key = (id(origin.owner), origin.name, origin.path)
    context.keep(origin.owner)
    if key not in context.free:
        context.free[key] = FreeVariable(origin.owner, origin.name, origin.path, value, shared)


def note_contents(context: Context, value: v.Static) -> None:
    """Remember that the function has looked at all that a container holds."""
    if value.origin is not None and (container_kind(value.value) is not None or isinstance(value.value, set)):
        note(context, value.origin.child(CONTENTS), contents(value.value))


def hidden(context: Context, array: Any, origin: v.FreeOrigin) -> Operand:
    """The shared value that an array in a free variable is."""
    key = (id(origin.owner), origin.name, origin.path)
    known = context.free.get(key)
    if known is not None and known.shared is not None:
        return context.shared[known.shared]
    for other in context.free.values():
        if other.value is array and other.shared is not None:
            note(context, origin, array, other.shared)
            return context.shared[other.shared]
    index = context.hide(jax_compat.type_of(array), origin.name)
    note(context, origin, array, index)
    return context.shared[index]


def enter(context: Context, value: Any) -> v.Abstract:
    """An argument of the entry: containers that hold leaves of an example are taken apart, the rest is static."""
    if isinstance(value, Input) or all(i.shared for i in inputs(value)):
        return wrap(context, value)
    return take_apart(context, value, enter)


def take_apart(context: Context, value: Any, part: Callable[[Context, Any], v.Abstract] | None = None) -> v.Record:
    """A Python container or object as a record of abstract values."""
    part = part or wrap
    pairs = list(children(value))
    kind = container_kind(value) or "object"
    keys = tuple(k for k, _ in pairs)
    return v.Record(kind, keys, tuple(part(context, x) for _, x in pairs), type(value))


def expand(s: LoweringState, value: v.Abstract, ordered: bool = True) -> v.Abstract:
    """A static tuple, list, dict or NamedTuple as a record of its elements; other values as they are. `ordered`: of a
    dict, not only single keys are looked up."""
    if ordered:
        run_over(s.context, value)
    if not isinstance(value, v.Static) or (kind := container_kind(value.value)) is None:
        return value
    origin = value.origin
    if origin is not None:
        note(s.context, origin.child(KEYS), keys_of(value.value))
    items = tuple(
        wrap(s.context, x, origin.child(("item" if kind != "namedtuple" else "attribute", k)) if origin else None)
        for k, x in children(value.value)
    )
    return v.Record(kind, keys_of(value.value), items, type(value.value) if kind == "namedtuple" else None)


def enclosing_value(s: LoweringState, name: str) -> v.Abstract | None:
    """The value of a variable of an enclosing function, or of a closure; None when there is none."""
    bound = s.env.get(name)
    if bound is not None:
        return bound.value
    if name in s.frame.enclosing:
        return s.frame.enclosing[name]
    owner = s.frame.owner
    if owner is None or owner.__closure__ is None or name not in owner.__code__.co_freevars:
        return None
    cell = owner.__closure__[owner.__code__.co_freevars.index(name)]
    try:
        held = cell.cell_contents
    except ValueError:
        return None
    return wrap(s.context, held, v.FreeOrigin(owner, name))


def unset(name: str, span: Span) -> UnsupportedError:
    """A variable is read that no path has set."""
    name = shown(name)
    return UnsupportedError(
        f"the variable {name!r} is read before it is set", span, f"give {name} a value on every path before this line"
    )


def variable(s: LoweringState, name: str) -> v.Abstract:
    """The value of a name, by Python's rules: local, enclosing, global, builtin."""
    bound = s.env.get(name)
    if bound is not None and not isinstance(bound.value, v.Unset):
        return bound.value
    if name in s.frame.settling:  # a later turn may find what an earlier one has set
        s.frame.settling[name] = s.frame.settling[name] or s.span
        s.check(s.scalar(False), "UnboundLocalError", v.not_set(name))
        raise Ended
    if bound is not None or name in s.frame.source.locals:
        raise unset(name, s.span)
    found = enclosing_value(s, name)
    if found is not None:
        return found
    source = s.frame.source
    if name in source.globals:
        return wrap(s.context, source.globals[name], v.FreeOrigin(s.frame.owner, name))
    if hasattr(builtins, name):
        return v.Static(getattr(builtins, name))
    s.refuse(f"the name {name!r} is not defined", "check the spelling, or import it")


# ---- folding
#
# Pure functions of values that are known while compiling: called there. What fails in Python fails in the program.


FAILURES = (ArithmeticError, ValueError, LookupError)
"""What a function raises for values that it has no result for; with a TypeError the program itself is wrong."""


ORDERLESS = (operator.eq, operator.getitem)
"""Operators that do not see in which order a dict holds its keys."""


def fold(s: LoweringState, function: Callable[..., Any], *args: Any, origin: v.FreeOrigin | None = None) -> v.Abstract:
    """The result of a call of plain values. `origin`: where it is found."""
    if function not in ORDERLESS or container_kind(args[0]) is None:
        hand_out(s.context, *args)
    try:
        return wrap(s.context, function(*args), origin)
    except FAILURES as error:
        s.check(s.scalar(False), type(error).__name__, str(error).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return v.Static(None)
    except Exception as error:
        s.refuse(f"{type(error).__name__}: {error}", "plain Python raises this too: check the arguments")


def fold_call(
    s: LoweringState, function: Callable[..., Any], args: Sequence[v.Abstract], kwargs: Mapping[str, v.Abstract]
) -> v.Abstract:
    """The result of a call whose arguments are all known."""
    given = [a.value for a in args if isinstance(a, v.Static)]
    named = {k: a.value for k, a in kwargs.items() if isinstance(a, v.Static)}
    hand_out(s.context, *named.values())
    return fold(s, functools.partial(function, **named), *given)
