"""Is a module well formed at a stage? A failed check prints the function with the offending line marked.

    VerifierError: example: operand 1 of is_none is a reference or list, not int32*[]

    func @f(%0: int32*[]) -> (bool[]):
      %1: bool[] = is_none(%0)
      ^^^^^^^^^^^^^^^^^^^^^^^^ operand 1 of is_none is a reference or list, not int32*[]
      return %1

Checked: every value is defined once and before it is read, in the region at hand or one around it; literals are of
their type; operands and results of operations, regions and calls agree; nothing but the stage's instructions occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NoReturn, assert_never

import jax
import numpy as np

from autobatch.errors import NOWHERE, Error
from autobatch.ir import jax_compat, leaf, strings
from autobatch.ir.core import (
    BOOL,
    INT,
    MADE,
    STR,
    Apply,
    Array,
    BuiltObject,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Type,
    Value,
    While,
    operands,
)
from autobatch.ir.leaf import BlockProgram, problems
from autobatch.ir.ops import OWN, Op
from autobatch.ir.printer import Marked, Note, print_function, print_type

# ---- stages
#
# What a module may hold at each stage of the pipeline: an executable specification, one row a stage.
#
# A `Stage` lists its instructions and the type rules of its own operations; JAX primitives are typed by JAX itself
# (abstract evaluation). `ir/verifier.py` applies a stage to a module.


Scalar = bool | int | float | complex | None


class RuleError(Exception):
    """Operands, params or results that an operation does not take; the message says what it takes."""


# ---- kinds of operands


def _is_int(type: Type) -> bool:
    return isinstance(type, Array) and type.is_scalar and type.is_integer


KINDS: Mapping[str, Callable[[Type], bool]] = {
    "a reference": lambda t: isinstance(t, Ref),
    "a list": lambda t: isinstance(t, List),
    "a reference or list": lambda t: isinstance(t, Ref | List),
    "a reference, list or made object": lambda t: isinstance(t, Ref | List | BuiltObject),
    "a list of ints": lambda t: t == List(INT),
    "code points or an int": lambda t: t == List(INT) or (isinstance(t, Array) and t.is_scalar and t.is_integer),
    "a tag": lambda t: isinstance(t, Tag),
    "an int": _is_int,
    "a bool": lambda t: t == BOOL,
    "an array": lambda t: isinstance(t, Array),
    "a value": lambda t: True,
}
"""By the words that an error uses for them."""


@dataclass(frozen=True)
class TypeRule:
    """The type rule of an operation of our own: the kinds of its operands (the last may repeat), the types of its
    results, its params, those it may have besides, and what must hold between them."""

    operands: tuple[str, ...]
    results: Callable[[Apply], tuple[Type, ...]]
    params: frozenset[str] = frozenset()
    repeat: bool = False
    optional: frozenset[str] = frozenset()

    def check(self, apply: Apply) -> None:
        """Raises RuleError."""
        params = frozenset(name for name, _ in apply.op.params)
        if params - self.optional != self.params:
            raise RuleError(f"{apply.op.name} has the params {_words(self.params)}, not {_words(params)}")
        self._check_operands(apply)
        wanted, found = self.results(apply), tuple(r.type for r in apply.results)
        if wanted != found:
            raise RuleError(f"{apply.op.name} gives {_words(wanted)}, not {_words(found)}")

    def _check_operands(self, apply: Apply) -> None:
        kinds, count = self.operands, len(apply.operands)
        if self.repeat:
            *fixed, last = kinds
            kinds = (*fixed, *[last] * (count - len(fixed)))
        if len(kinds) != count:
            raise RuleError(f"{apply.op.name} takes {len(kinds)} operands, not {count}")
        for position, (kind, operand) in enumerate(zip(kinds, apply.operands, strict=True), 1):
            if not KINDS[kind](operand.type):
                raise RuleError(f"operand {position} of {apply.op.name} is {kind}, not {operand.type}")


def _words(items: Sequence[Any] | frozenset[str]) -> str:
    names = sorted(map(str, items)) if isinstance(items, frozenset) else [str(i) for i in items]
    return f"({', '.join(names)})"


# ---- results


def _always(*types: Type) -> Callable[[Apply], tuple[Type, ...]]:
    return lambda apply: types


def _one_of(name: str) -> Callable[[Apply], tuple[Type, ...]]:
    """One result, of that kind: its type is stored data, not decided by the operands."""

    def results(apply: Apply) -> tuple[Type, ...]:
        if len(apply.results) != 1 or not KINDS[name](apply.results[0].type):
            raise RuleError(f"{apply.op.name} gives {name}, not {_words([r.type for r in apply.results])}")
        return (apply.results[0].type,)

    return results


def _is_plain(type: Type) -> bool:
    return isinstance(type, Tag) or (isinstance(type, Array) and type.is_scalar)


def _text(apply: Apply) -> tuple[Type, ...]:
    letters = apply.op["function"] == "of_letters"
    if not all(x.type == List(INT) if letters else _is_plain(x.type) for x in apply.operands):
        raise RuleError(f"{apply.op.name} takes {'a list of ints' if letters else 'strings and ints'}")
    return (strings.FUNCTIONS[apply.op["function"]][1],)


def _element(apply: Apply) -> tuple[Type, ...]:
    listed = apply.operands[0].type
    assert isinstance(listed, List)
    return (listed.elem,)


def _packed(apply: Apply) -> tuple[Type, ...]:
    elems = {x.type for x in apply.operands}
    if len(elems) > 1:
        raise RuleError(f"the elements of a list have one type, not {_words(frozenset(map(str, elems)))}")
    if elems:
        return (List(elems.pop()),)
    _one_of("a list")(apply)
    return (List(apply.results[0].type.elem),) if isinstance(apply.results[0].type, List) else ()


def _flat(apply: Apply) -> tuple[Type, ...]:
    type = apply.operands[0].type
    if not isinstance(type, List) or not isinstance(type.elem, List):
        raise RuleError(f"{type} is no list of lists")
    return (List(type.elem.elem),)


def _found(apply: Apply) -> tuple[Type, ...]:
    types = [x.type for x in apply.operands]
    lists, elements = types[: len(types) // 2], types[len(types) // 2 :]
    if not types or len(lists) != len(elements):
        raise RuleError("find takes as many lists as parts of an element")
    for items, element in zip(lists, elements, strict=True):
        if not isinstance(items, List) or items.elem != element:
            raise RuleError(f"a {element} is no element of {items}")
    return (INT,)


def _spelt(apply: Apply) -> tuple[Type, ...]:
    match apply.op["function"]:
        case "packed":
            return (Array("int32", (apply.op["room"] + 1,)),)
        case "__eq__" | "fits_int":
            return (BOOL,)
        case name:
            found = STR if name == "centred" else strings.FUNCTIONS[name][1]
            return (List(INT) if found == STR else found,)


def _put(apply: Apply) -> tuple[Type, ...]:
    items, _, element = (x.type for x in apply.operands)
    if not isinstance(items, List) or items.elem != element:
        raise RuleError(f"a {element} is no element of {items}")
    return (List(element),)


def _tags(apply: Apply) -> tuple[Type, ...]:
    a, b = (x.type for x in apply.operands)
    if a != b:
        raise RuleError(f"tags of two vocabularies are never equal: {a} and {b}")
    return (BOOL,)


def _references(apply: Apply) -> tuple[Type, ...]:
    a, b = (x.type for x in apply.operands)
    if isinstance(a, Ref) != isinstance(b, Ref):
        raise RuleError(f"an object is never a list: {a} and {b}")
    return (BOOL,)


def _reduced(apply: Apply) -> tuple[Type, ...]:
    (elem,), kind = _element(apply), apply.op["kind"]
    if kind not in ("sum", "prod", "max", "min", "any", "all"):
        raise RuleError(f"there is no reduction {kind!r}")
    if not isinstance(elem, Array):
        raise RuleError(f"only numbers are reduced, not {elem}")
    if kind in ("any", "all"):
        return (BOOL,)
    return (INT,) if elem == BOOL and kind in ("sum", "prod") else (elem,)


def _padded(apply: Apply) -> tuple[Type, ...]:
    (elem,) = _element(apply)
    if not isinstance(elem, Array):
        raise RuleError(f"only arrays are padded, not {elem}")
    return (Array(str(jax_compat.device_dtype(elem)), (apply.op["room"], *elem.shape)),)


def _stacked(apply: Apply) -> tuple[Type, ...]:
    (elem,) = _element(apply)
    (result,) = _one_of("an array")(apply)
    assert isinstance(result, Array)
    if not isinstance(elem, Array):
        raise RuleError(f"only arrays are stacked, not {elem}")
    if not result.shape:
        raise RuleError("stack gives an array with a leading axis")
    return (Array(elem.dtype, (result.shape[0], *elem.shape)),)


def _numeric(apply: Apply) -> tuple[Type, ...]:
    types = [x.type for x in apply.operands]
    try:
        return (leaf.result_type(apply.op, [t for t in types if isinstance(t, Array)], literals(apply)),)
    except (TypeError, ValueError) as error:
        raise RuleError(f"{apply.op.name}: {_first_line(error)}") from error


def literals(apply: Apply) -> list[Scalar]:
    """For each operand the Python scalar that it is, or None."""
    held: list[Scalar] = []
    for x in apply.operands:
        scalar = x.value if isinstance(x, Literal) and x.constant < 0 else None
        held.append(None if isinstance(scalar, str) else scalar)
    return held


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _masked(apply: Apply) -> tuple[Type, ...]:
    wanted, found = [a.type for a in apply.op["region"].args], [x.type for x in apply.operands]
    if wanted != found:
        raise RuleError(f"the region of masked takes {_words(wanted)}, not {_words(found)}")
    return tuple(x.type for x in apply.op["region"].results)


def _row(apply: Apply) -> tuple[Type, ...]:
    column = apply.operands[0].type
    if not isinstance(column, Array) or not column.shape:
        raise RuleError(f"{column} is no array with rows")
    return (replace(column, shape=column.shape[1:]),)


def _like_seeds(apply: Apply) -> tuple[Type, ...]:
    return tuple(_derivative(x.type) for x in apply.operands[1:])


def _gradients(apply: Apply) -> tuple[Type, ...]:
    region, wrt = apply.op["region"], apply.op["wrt"]
    wanted, found = [a.type for a in region.args], [x.type for x in apply.operands]
    if wanted != found:
        raise RuleError(f"the region of gradient_of takes {_words(wanted)}, not {_words(found)}")
    if len(region.results) != 1 or not _is_number(region.results[0].type):
        raise RuleError("the region of gradient_of yields one number")
    return tuple(_derivative(region.args[k].type) for k in wrt)


def _is_number(type: Type) -> bool:
    return isinstance(type, Array) and type.is_scalar and type.dtype.startswith("float")


def _derivative(type: Type) -> Array:
    assert isinstance(type, Array)
    return jax_compat.cotangent_type(type)


_PAIR = TypeRule(("an array", "an array"), _numeric)

OWN_RULES: Mapping[str, TypeRule] = {
    "load": TypeRule(("a reference",), _one_of("a value"), frozenset({"field"})),
    "load_is_none": TypeRule(("a reference",), _always(BOOL), frozenset({"field", "type"})),
    "is_none": TypeRule(("a reference or list",), _always(BOOL)),
    "none": TypeRule((), _one_of("a reference, list or made object")),
    "make": TypeRule(("a value",), _always(MADE), frozenset({"of"}), repeat=True),
    "adopt": TypeRule(("a reference",), _always(MADE)),
    "is_class": TypeRule(("a reference",), _always(BOOL), frozenset({"names"})),
    "same": TypeRule(("a reference or list", "a reference or list"), _references),
    "length": TypeRule(("a list",), _always(INT)),
    "item": TypeRule(("a list", "an int"), _element, optional=frozenset({"there"})),
    "row": TypeRule(("a reference or list",), _always(INT)),
    "row_of": TypeRule(("an int",), _one_of("a reference or list")),
    "rows_of": TypeRule(("a reference or list",), _always(INT), frozenset({"space"}), repeat=True),
    "row_at": TypeRule(
        ("an int", "a reference or list"), _one_of("a reference or list"), frozenset({"space"}), repeat=True
    ),
    "first": TypeRule(("a list",), _always(INT)),
    "pack_list": TypeRule(("a value",), _packed, repeat=True),
    "flatten": TypeRule(("a list",), _flat),
    "sort_order": TypeRule(("a list",), _always(List(INT)), frozenset({"reverse"}), repeat=True),
    "find": TypeRule(("a list", "a value"), _found, repeat=True),
    "put": TypeRule(("a list", "an int", "a value"), _put),
    "tag": TypeRule((), _one_of("a tag"), frozenset({"value"})),
    "tag_equal": TypeRule(("a tag", "a tag"), _tags),
    "tag_index": TypeRule(("a tag",), _always(INT), frozenset({"keys"})),
    "word": TypeRule(("a tag",), _always(INT)),
    "word_of": TypeRule(("an int",), _one_of("a tag")),
    "text": TypeRule(("a value",), _text, frozenset({"function", "args"}), repeat=True),
    "spelt": TypeRule(
        ("code points or an int",), _spelt, frozenset({"function"}), repeat=True, optional=frozenset({"room"})
    ),
    "check": TypeRule(("a bool", "a value"), _always(), frozenset({"kind", "message"}), repeat=True),
    "bounds": TypeRule(("an array",), _always(), frozenset({"axis", "size"})),
    "undefined": TypeRule((), lambda apply: (apply.op["type"],), frozenset({"type"})),
    "reduce": TypeRule(("a list",), _reduced, frozenset({"kind"}), optional=frozenset({"ties"})),
    "padded": TypeRule(("a list",), _padded, frozenset({"room"})),
    "stack": TypeRule(("a list",), _stacked),
    "take_row": TypeRule(("an array", "an int"), _row),
    "floordiv": _PAIR,
    "mod": _PAIR,
    "truediv": _PAIR,
    "pow": _PAIR,
    "round": TypeRule(("an array",), _numeric, frozenset({"ndigits"})),
    "int": TypeRule(("an array",), _numeric),
    "masked": TypeRule(
        ("an array",), _masked, frozenset({"region", "sites"}), repeat=True, optional=frozenset({"cut", "refill"})
    ),
    "seed": TypeRule(("an array",), lambda apply: (apply.operands[0].type,)),
    "unknown": TypeRule(("an array",), lambda apply: (apply.operands[0].type,)),
    "gradient": TypeRule(("an array", "an array"), _like_seeds, repeat=True),
    "gradient_of": TypeRule(("an array",), _gradients, frozenset({"region", "wrt"}), repeat=True),
    "within": TypeRule(("an int",), lambda apply: (apply.operands[0].type,), frozenset({"site", "states", "turns"})),
}
"""One row for each operation of our own."""


# ---- JAX primitives


def check_primitive(apply: Apply) -> None:
    """Raises RuleError where JAX's abstract evaluation gives other types than the results have, or refuses."""
    for position, operand in enumerate(apply.operands, 1):
        if not isinstance(operand.type, Array):
            raise RuleError(f"operand {position} of {apply.op.name} is an array, not {operand.type}")
    types = tuple(x.type for x in apply.operands if isinstance(x.type, Array))
    wanted = _abstract(apply.op, types, tuple(literals(apply)), apply.results)
    found = tuple(r.type for r in apply.results)
    if tuple(map(_strong_bool, wanted)) != tuple(map(_strong_bool, found)):
        raise RuleError(f"{apply.op.name} gives {_words(wanted)}, not {_words(found)}")


def _strong_bool(type: Type) -> Type:
    """JAX has weak bools (comparisons of Python numbers), the IR has one."""
    return Array("bool", type.shape) if isinstance(type, Array) and type.is_bool else type


def _abstract(op: Op, types: tuple[Array, ...], held: tuple[Scalar, ...], results: Sequence[Any]) -> tuple[Type, ...]:
    key = (
        op,
        types,
        tuple((type(h), h) for h in held),
        tuple(r.type for r in results),
        jax_compat.settings(),
    )
    try:
        hash(key)
    except TypeError:  # params that cannot be hashed, such as NumPy arrays
        return _evaluate(*key[:4])
    return _evaluate_once(*key)


@cache
def _evaluate_once(op: Op, types: Any, held: Any, results: Any, settings: Hashable) -> tuple[Type, ...]:
    return _evaluate(op, types, held, results)


def _evaluate(
    op: Op, types: tuple[Array, ...], held: tuple[tuple[Any, Scalar], ...], results: tuple[Array, ...]
) -> tuple[Type, ...]:
    scalars = [None if h is None else jax_compat.literal(h, t) for (_, h), t in zip(held, types, strict=True)]

    def apply(*values: Any) -> Sequence[Any]:
        rest = iter(values)
        return leaf.evaluate(op, results, *(next(rest) if s is None else s for s in scalars))

    avals = [jax_compat.aval_of(t) for t, s in zip(types, scalars, strict=True) if s is None]
    try:
        return tuple(jax_compat.type_of(out) for out in jax.eval_shape(apply, *avals))
    except (TypeError, ValueError) as error:
        raise RuleError(f"{op.name}: {_first_line(error)}") from error


def _check_blocks(apply: Apply) -> None:
    """Raises RuleError where operands or results are not those of the program."""
    program: BlockProgram = apply.op["program"]
    wanted = [x.type for x in (*program.parameters, *program.captured)]
    found = [x.type for x in apply.operands]
    if not all(isinstance(t, Array) for t in found) or len(found) != len(wanted):
        raise RuleError(f"the program {program.name} takes {_words(wanted)}, not {_words(found)}")
    if program.types != tuple(r.type for r in apply.results):
        raise RuleError(f"the program {program.name} gives {_words(program.types)}")
    for words in problems(program):
        raise RuleError(f"the program {program.name}: {words}")


# ---- stages


@dataclass(frozen=True)
class Stage:
    """The form of a module between two passes."""

    name: str
    instructions: tuple[type, ...]
    own: Mapping[str, TypeRule] = field(default_factory=lambda: OWN_RULES)

    def check(self, apply: Apply) -> None:
        """Type one leaf operation. Raises RuleError."""
        if apply.op.is_jax:
            check_primitive(apply)
        elif apply.op.name == "blocks":
            _check_blocks(apply)
        elif apply.op.name not in OWN or apply.op.name not in self.own:
            raise RuleError(f"there is no operation {apply.op.name!r} at the stage {self.name!r}")
        else:
            self.own[apply.op.name].check(apply)


EXAMPLE = Stage("example", (Apply, If, For, While, Map, Call))
"""What the front end makes, and the passes over the per-example IR keep."""

FUNCTIONS = Stage("functions", (Apply, If, Map, Call))
"""Every loop has become a function that calls itself (`passes/loops.py`)."""

MASKED = (Apply, If, For, While)
"""What the region of the operation `masked` may hold."""

STAGES: Mapping[str, Stage] = {stage.name: stage for stage in (EXAMPLE, FUNCTIONS)}


class VerifierError(Error):
    """A module that breaks a rule of its stage: a mistake of a pass, never of the user. `about` is what breaks it."""

    def __init__(
        self, stage: str, complaint: str, function: Function | None = None, about: Marked | None = None
    ) -> None:
        self.complaint, self.function, self.about = complaint, function, about
        text = f"{stage}: {complaint}"
        span = getattr(about, "span", NOWHERE)
        if span != NOWHERE:
            text += f"\n{span}\n{span.excerpt()}"
        if function is not None:
            text += "\n\n" + print_function(function, Note(about, complaint) if about is not None else None)
        super().__init__(text)


def verify(module: Module, stage: Stage = EXAMPLE) -> None:
    """Check a module. Raises VerifierError."""
    _Verifier(module, stage).module()


class _Verifier:
    def __init__(self, whole: Module, stage: Stage) -> None:
        self.whole, self.stage = whole, stage
        self.functions = {f.name: f for f in whole.functions}
        self.defined: dict[int, Value] = {}
        self.function: Function | None = None

    def fail(self, complaint: str, about: Marked | None = None) -> NoReturn:
        raise VerifierError(self.stage.name, complaint, self.function, about or self.function)

    def module(self) -> None:
        if not self.whole.functions:
            self.fail("a module has an entry function")
        if len(self.functions) != len(self.whole.functions):
            self.fail("two functions have one name")
        scope: dict[int, Value] = {}
        self.define(self.whole.shared, scope, None)
        for function in self.whole.functions:
            self.function = function
            self.region(function.region, dict(scope), function)

    # ---- values

    def define(self, values: Iterable[Value], scope: dict[int, Value], about: Marked | None) -> None:
        for value in values:
            if value.id in self.defined:
                self.fail(f"{value} is defined twice", about)
            self.defined[value.id] = scope[value.id] = value

    def read(self, xs: Iterable[Operand], scope: dict[int, Value], about: Marked) -> None:
        for x in xs:
            if isinstance(x, Literal):
                self.literal(x, about)
            elif x.id not in scope:
                where = "not visible here" if x.id in self.defined else "not defined before"
                self.fail(f"{x} is {where}", about)
            elif scope[x.id].type != x.type:
                held = print_type(scope[x.id].type)
                self.fail(f"{x} is read as {print_type(x.type)} and defined as {held}", about)

    def literal(self, x: Literal, about: Marked) -> None:
        if x.constant >= 0:
            if x.constant >= len(self.whole.constants):
                self.fail(f"there is no constant {x.constant}", about)
            array = self.whole.constants[x.constant]
            held, wanted = jax_compat.type_of(array), x.type
            if not isinstance(wanted, Array) or (held.dtype, held.shape) != _stored(wanted):
                self.fail(f"constant {x.constant} is {held}, not {print_type(wanted)}", about)
        elif not _is_literal_of(x.value, x.type):
            self.fail(f"{x.value!r} is no literal of {print_type(x.type)}", about)

    # ---- regions and instructions

    def region(self, region: Region, scope: dict[int, Value], about: Marked) -> None:
        """Check a region in its own copy of the scope."""
        self.define(region.args, scope, about)
        for instruction in region.body:
            if not isinstance(instruction, self.stage.instructions):
                self.fail(f"{type(instruction).__name__} does not occur at this stage", instruction)
            self.read(operands(instruction), scope, instruction)
            self.instruction(instruction, scope)
            self.define(instruction.results, scope, instruction)
        self.read(region.results, scope, region)

    def instruction(self, instruction: Instruction, scope: dict[int, Value]) -> None:
        match instruction:
            case Apply():
                try:
                    self.stage.check(instruction)
                except RuleError as error:
                    self.fail(str(error), instruction)
                if instruction.op.name in ("masked", "gradient_of"):
                    self.closed(instruction.op["region"], instruction)
            case Call():
                self.call(instruction)
            case If():
                self.branches(instruction, scope)
            case For(count=count, init=init, body=body):
                self.count(count, instruction)
                self.carried(init, instruction)
                self.body(body, [INT, *_types(init)], _types(init), scope, instruction)
            case While(init=init, condition=condition, body=body):
                self.carried(init, instruction)
                self.body(condition, _types(init), [BOOL], scope, instruction)
                self.body(body, _types(init), _types(init), scope, instruction)
            case Map(count=count, body=body, filtered=filtered):
                self.count(count, instruction)
                kept = [BOOL] if filtered else []
                self.body(body, [INT], [*kept, *self.elements(instruction)], scope, instruction)
            case _:
                assert_never(instruction)

    def closed(self, region: Region, about: Instruction) -> None:
        """Check the region that an operation holds: it sees its arguments alone, and its names are its own."""
        inner = _Verifier(self.whole, replace(self.stage, instructions=MASKED))
        inner.function = self.function
        inner.region(region, {}, about)

    def call(self, call: Call) -> None:
        callee = self.functions.get(call.callee)
        if callee is None:
            self.fail(f"there is no function {call.callee!r}", call)
        self.agree("the operands", _types(call.operands), "the parameters", _types(callee.region.args), call)
        self.agree("the results", _types(call.results), "what it returns", _types(callee.region.results), call)

    def branches(self, branch: If, scope: dict[int, Value]) -> None:
        if branch.condition.type != BOOL:
            self.fail(f"a condition is bool[], not {print_type(branch.condition.type)}", branch)
        for region in (branch.then, branch.orelse):
            self.body(region, [], _types(branch.results), scope, branch)

    def count(self, count: Operand, about: Instruction) -> None:
        if not (isinstance(count.type, Array) and count.type.is_scalar and count.type.is_integer):
            self.fail(f"a number of turns is an int, not {print_type(count.type)}", about)

    def carried(self, init: Sequence[Operand], loop: For | While) -> None:
        self.agree("the results", _types(loop.results), "the carried values", _types(init), loop)

    def elements(self, loop: Map) -> list[Type]:
        found = []
        for result in loop.results:
            if not isinstance(result.type, List) or result.type.store is not None:
                self.fail(f"a Map gives lists that lie in no store, not {print_type(result.type)}", loop)
            found.append(result.type.elem)
        return found

    def body(
        self,
        region: Region,
        args: Sequence[Type],
        results: Sequence[Type],
        scope: dict[int, Value],
        about: Instruction,
    ) -> None:
        """Check a region inside an instruction: its signature, then what it holds."""
        self.agree("the region takes", _types(region.args), "the instruction gives it", args, about)
        self.region(region, dict(scope), about)
        self.agree("the region yields", _types(region.results), "the instruction needs", results, region)

    def agree(self, a: str, found: Sequence[Type], b: str, wanted: Sequence[Type], about: Marked) -> None:
        if list(found) != list(wanted):
            self.fail(f"{a} {_list(found)} and {b} {_list(wanted)} differ", about)


def _types(xs: Iterable[Operand]) -> list[Type]:
    return [x.type for x in xs]


def _list(types: Iterable[Type]) -> str:
    return f"({', '.join(map(print_type, types))})"


def _stored(type: Array) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape of an array that holds values of a type."""
    dtype = type.dtype if type.dtype.startswith("key") else str(jax_compat.device_dtype(type))
    return dtype, type.shape


def _is_literal_of(value: object, type: Type) -> bool:
    match type:
        case Array(dtype=dtype, shape=shape):
            if shape or dtype.startswith("key"):
                return False
            kinds = {bool: "b", int: "iu", float: "fV", complex: "c"}
            for cls, kind in kinds.items():
                if isinstance(value, cls):
                    return np.dtype(jax_compat.dtype_of(dtype)).kind in kind
            return False
        case Tag():
            return isinstance(value, str)
        case Ref() | List() | BuiltObject():
            return value is None
        case _:
            assert_never(type)
