"""Symbols: what stands in the place of numbers while a function runs for one example. Every operation is noted in its
run; where machine code does it, the methods here are for what was not met before (`slots.py`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import packed
from autobatch.call.tracing import templates
from autobatch.call.tracing.filled import Filled, whole
from autobatch.call.tracing.log import (
    FIXED,
    FOLDED,
    INTEGER,
    NO_PLACE,
    OUTS,
    CodePlace,
    ExampleNumber,
    Fixed,
    Guarded,
    Kinds,
    Log,
    OperationKind,
    SharedMarker,
    TooLongError,
    TracedRun,
    Uniform,
    of_equation,
    sliced,
)
from autobatch.call.tracing.returned import formatted, is_noted
from autobatch.call.tracing.slots import AT_ONCE, Methods, Noted, register
from autobatch.call.tracing.templates import (
    FLOATS,
    IN_MESSAGE,
    FixedType,
    KnownType,
    Template,
    Type,
    is_of_jax,
    original,
    paused,
    type_of,
    type_of_value,
)
from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat

# ---- attributes
#
# What names of arrays are for symbols: operators, methods and properties; and parts of arrays by their numbers.


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and_", "or_", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def update(name: str) -> Callable[..., Any]:
    return lambda x, index, *args, **kwargs: getattr(x.at[index], name)(*args, **kwargs)


def swapped(fun: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator whose operands stand the other way round."""
    return lambda a, b: fun(b, a)


def method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


class Updates:
    """`x.at`, and `x.at[index]`."""

    def __init__(self, symbol: Any, *index: Any) -> None:
        self._symbol, self._index = symbol, index

    def __getitem__(self, index: Any) -> Updates:
        return Updates(self._symbol, index)

    def __getattr__(self, name: str) -> Any:
        (index,) = self._index
        return lambda *args, **kwargs: self._symbol._run.call(
            f".at.{name}", update(name), (self._symbol, index, *args), kwargs
        )


def row(memo: dict[Any, Template | None], of: Type, count: int) -> Template:
    """The template of `x[k]` or `x[k, n]`, of a part by its numbers: these are operands, so that all parts are read by
    one operation."""
    key = "row", of, count
    found = memo.get(key)
    if found is None:
        rest = of.shape[count:]
        sizes, zeros = (*(1,) * count, *rest), (0,) * len(rest)
        made = (jax.ShapeDtypeStruct(rest, of.dtype),)
        kind = OperationKind(("row", of, count), lambda x, *at: (sliced(x, (*at, *zeros), sizes).reshape(rest),), made)
        result = type_of(rest, of.dtype, of.weak)
        reads, types = tuple(range(1 + count)), (of.pair, *(INTEGER,) * count)
        found = memo[key] = Template(kind, reads, types, ((0, 0),), None, (result,), True)
    return found


def _attributes() -> dict[str, str]:
    """What names of arrays are: properties, methods, or questions for their values."""
    made = {"weak_type": "property", "aval": "property"}
    for name in dir(jax.Array):
        if not name.startswith("_"):
            made[name] = "method" if callable(getattr(jax.Array, name)) else "property"
    asked = ("item", "tolist", "tobytes", "addressable_data", "block_until_ready", "copy_to_host_async", "devices")
    return {**made, **dict.fromkeys((*asked, "delete", "is_deleted", "is_ready", "unsafe_buffer_pointer"), "asked")}


ATTRIBUTES = _attributes()


def typed(x: Any) -> Type:
    """The type of an operand."""
    if type(x) is Symbol:
        found: Type = x._key.type
        return found
    return FLOATS[type(x), packed.x64()] if type(x) in PYTHON else type_of_value(x)


PYTHON = frozenset((float, complex, int, bool))
_CLASSES = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_PLACES = frozenset((int, type(None)))
_getframe = sys._getframe
_new = object.__new__  # without `__init__`, which Python runs


class Symbol:
    """A number that a run has not computed. Operators, methods and properties are those of arrays of JAX."""

    __slots__ = ("_key", "_run", "_word")
    __array_priority__ = 1000

    def __init__(self, run: Recording, key: Type | FixedType | KnownType, word: int) -> None:
        self._run, self._key, self._word = run, key, word

    def _asked_class(self) -> type:
        """What `isinstance` asks for: that of a number of Python."""
        of = self._key.type
        kind = np.dtype(of.dtype).kind
        return _CLASSES[kind] if not of.shape and (of.weak or kind == "b") else Symbol

    __class__: Any = property(_asked_class)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._key.type.shape

    @property
    def dtype(self) -> Any:
        return self._key.type.dtype

    @property
    def weak_type(self) -> bool:
        return self._key.type.weak

    @property
    def ndim(self) -> int:
        return len(self._key.type.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self._key.type.shape))

    def __len__(self) -> int:
        if not self._key.type.shape:
            raise TypeError("len() of unsized object")
        return self._key.type.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._key.type.shape:
            raise TypeError("iteration over a 0-d array")
        return iter([self[k] for k in range(self._key.type.shape[0])])

    def __getitem__(self, index: Any) -> Any:
        run, kind = self._run, type(index)
        if kind is int:
            shape = self._key.type.shape
            if shape and -shape[0] <= index < shape[0]:
                return run.row(self, sys._getframe(1), (index % shape[0],))
        elif kind is slice:
            if type(index.start) in _PLACES and type(index.stop) in _PLACES and type(index.step) in _PLACES:
                return run.part(self, index, sys._getframe(1))
        elif kind is tuple:
            shape = self._key.type.shape
            if 0 < len(index) <= len(shape) and all(map(_is_inside, index, shape)):
                return run.row(self, sys._getframe(1), tuple([k % n for k, n in zip(index, shape, strict=False)]))
        return run.call("getitem", operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        words = "an array of the examples, or of JAX, is changed in place"
        raise UnsupportedError(words, cure="change a copy: np.array(x), or x.at[i].set(y)")

    def __getattr__(self, name: str) -> Any:
        if name == "__jax_array__" or name == "_is_traced_array":
            self._run.refused = True  # a function of JAX that is not intercepted, or a question for what class it has
        found = ATTRIBUTES.get(name)
        if found is None or name.startswith("__"):
            raise AttributeError(f"{name} of a number that is computed")
        if found == "asked":
            raise self._run.ask(f".{name}")
        if found == "property":
            return self._run.call(f".{name}", operator.attrgetter(name), (self,), {})
        return lambda *args, **kwargs: self._run.call(f".{name}", method(name), (self, *args), kwargs)

    @property
    def at(self) -> Updates:
        return Updates(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        same = getattr(jnp, ufunc.__name__, None)
        if same is None or method != "__call__" or kwargs:
            raise self._run.ask(f"NumPy's {ufunc.__name__}")
        return self._run.call(ufunc.__name__, original(same), inputs, {})

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        same = getattr(jnp, function.__name__, None)
        if same is None:
            raise self._run.ask(f"NumPy's {function.__name__}")
        return self._run.call(function.__name__, original(same), args, kwargs)

    def _known(self, words: str) -> Any:
        """The value where it is known without the example."""
        if type(self._key) is KnownType:
            return np.asarray(self._run.value(self._word))
        raise self._run.ask(words)

    def __bool__(self) -> bool:
        return bool(self._known("bool() or a condition"))

    def __int__(self) -> int:
        return int(self._known("int()"))

    def __float__(self) -> float:
        return float(self._known("float()"))

    def __complex__(self) -> complex:
        return complex(self._known("complex()"))

    def __index__(self) -> int:
        return operator.index(self._known("an index")[()])

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self._known("NumPy"), *args)

    def __format__(self, spec: str) -> str:
        if is_of_jax(sys._getframe(1).f_globals):
            return IN_MESSAGE
        mark = None if type(self._key) is KnownType else formatted(self, spec, sys._getframe(1))
        return mark or format(self._known("text")[()], spec)

    def __str__(self) -> str:
        return IN_MESSAGE if is_of_jax(sys._getframe(1).f_globals) else str(self._known("text")[()])

    def __hash__(self) -> int:
        raise self._run.ask("a key of a dict or an element of a set")

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self

    def __repr__(self) -> str:
        return repr(self._known("text")[()]) if is_noted() else f"Symbol({self._key.type})"

    def __round__(self, digits: int = 0) -> Any:
        return self._run.call("round", method("round"), (self, digits), {})


def _is_inside(index: Any, size: int) -> bool:
    return type(index) is int and -size <= index < size


# ---- operators


def _binary(name: str, fun: Callable[[Any, Any], Any], outer: int = 1) -> Callable[[Any, Any], Any]:
    """`outer`: so many frames out is what has the operation."""

    def method(self: Symbol, other: Any) -> Any:
        kind, run, frame = type(other), self._run, _getframe(outer)
        if kind is Symbol:
            key: Any = (name, id(frame.f_code), frame.f_lasti, self._key, other._key)
            word = other._word
        elif kind in PYTHON:
            key = (name, id(frame.f_code), frame.f_lasti, self._key, kind)
            word = run.number(other)
            if run.seen is not None:
                run.saw_number(other, word)
        else:
            return _of_array(self, other, name, fun, frame)
        met = run.met.get(key)
        if met is None:
            return _learnt(self, other, name, fun, frame, key)
        if run.seen is not None or met[0] < 0:
            return run.again(key, met, (self._word, word))
        made = _new(Symbol)  # as `again` does, without its call
        made._run = run
        site, made._key = met
        sites, words = run.sites, run.words
        step = len(sites)
        if step >= run.most:
            raise TooLongError(run.kinds.sites[site].place)
        sites.append(site)
        words.append(self._word)
        words.append(word)
        made._word = step << OUTS
        return made

    return method


def _of_array(x: Symbol, other: Any, name: str, fun: Callable[[Any, Any], Any], frame: Any) -> Any:
    if not isinstance(other, (np.ndarray, np.generic, jax.Array)):
        return NotImplemented
    return _learnt(x, other, name, fun, frame, None)


def _learnt(x: Symbol, other: Any, name: str, fun: Callable[[Any, Any], Any], frame: Any, key: Any) -> Any:
    """An operation that was not met before, at this place and for such operands."""
    run, given = x._run, (x, other)
    types = [x._key.type, typed(other)]
    of = name, *types
    template = run.memo.get(of)
    if template is None:
        template = run.learn(of, name, fun, given, {}, types, list(given))
    return run.apply(template, given, frame, key)


def _power(self: Symbol, exponent: Any) -> Any:
    if type(exponent) is not int:
        return _of_powers(self, exponent)
    run, frame = self._run, _getframe(1)
    key = "power", id(frame.f_code), frame.f_lasti, self._key, exponent
    met = run.met.get(key)
    if met is not None:
        return run.again(key, met, (self._word,))
    template, given = run.found("pow", operator.pow, (self, exponent), {}, True)
    assert template is not None
    return run.apply(template, given, frame, key)


def _unary(name: str, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: Symbol) -> Any:
        run, frame = self._run, _getframe(1)
        key = name, id(frame.f_code), frame.f_lasti, self._key
        met = run.met.get(key)
        if met is not None:
            return run.again(key, met, (self._word,))
        type = self._key.type
        template = run.memo.get((name, type))
        if template is None:
            template = run.learn((name, type), name, fun, (self,), {}, [type], [self])
        return run.apply(template, (self,), frame, key)

    return method


_of_powers = _binary("pow", operator.pow, 2)
BINARIES: dict[str, tuple[str, Callable[..., Any]]] = {"pow": ("__pow__", _power)}
"""The methods of two operands, by their names as operations, with their names in the class."""
for _name in BINARY:
    _fun = getattr(operator, _name)
    BINARIES[_name] = f"__{_name.strip('_')}__", _binary(_name, _fun)
    BINARIES[f"r{_name}"] = f"__r{_name.strip('_')}__", _binary(f"r{_name}", swapped(_fun))
BINARIES["rpow"] = "__rpow__", _binary("rpow", swapped(operator.pow))
BINARIES |= {n: (f"__{n}__", _binary(n, getattr(operator, n))) for n in COMPARISONS}
UNARIES = {n: (f"__{n}__", _unary(n, getattr(operator, n))) for n in ("neg", "pos", "abs", "invert")}
for _place, _method in (*BINARIES.values(), *UNARIES.values()):
    setattr(Symbol, _place, _method)
setattr(Symbol, "__divmod__", lambda a, b: a._run.call("divmod", divmod, (a, b), {}))  # noqa: B010  no attribute that a checker knows, like these
setattr(Symbol, "__rdivmod__", lambda a, b: a._run.call("rdivmod", swapped(divmod), (a, b), {}))  # noqa: B010


# ---- asked
#
# Questions for the values of symbols, which have none.


ASKED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
         jax.errors.TracerBoolConversionError, jax.errors.TracerIntegerConversionError)  # fmt: skip
"""What JAX raises where Python asks for the value of what is traced."""


class AskedError(TypeError):
    """Python has asked a symbol for its value."""


# ---- record
#
# A run of a function for one example where symbols of our own cannot run it: JAX records it (`jax.make_jaxpr`), so
# every function of arrays is known, and its equations are noted.
#
# What only computes with what is known is done at once, and arithmetic on shared values alone is done once for all
# examples.


INLINED = ("jit", "pjit", "closed_call", "core_call")
"""Operations that are nothing but a call of others."""


def record(
    run: Callable[[Sequence[Any]], Any],
    shared: Sequence[ExampleNumber],
    numbers: Sequence[ExampleNumber],
    hidden: Mapping[int, int],
    user: UserCode,
    log: Log,
) -> TracedRun:
    """Record `run(symbols)`: symbols of shared values, then of the numbers of an example. It returns leaves, as arrays,
    and the structure that they stand in, with what it has printed. `shared`: the types of shared values. `hidden`: the
    numbers of arrays that it
    reads as free variables, by `id`."""
    structure: list[Any] = []

    def flat(*symbols: Any) -> list[Any]:
        leaves, result = run(symbols)
        structure.append(result)
        found: list[Any] = leaves
        return found

    given = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak) for x in (*shared, *numbers)]
    closed = jax.make_jaxpr(flat)(*given)
    reader = _JaxprReader(user, log, hidden)
    values: list[Operand] = [*(SharedMarker(k) for k in range(len(shared))), *map(log.given, numbers)]
    leaves = reader.read(closed.jaxpr, closed.consts, values, NO_PLACE)
    types = [(x.aval.shape, x.aval.dtype) for x in closed.jaxpr.outvars]
    return TracedRun(log, list(zip(leaves, types, strict=True)), *structure[0])


class UserCode:
    """Which frames of a traceback are the user's: those outside the packages that compute for them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)
        self._known: dict[CodeType, bool] = {}
        self.known: dict[int, bool] = {}
        """Is code the user's, by its `id`; the code is kept."""
        self._kept: list[CodeType] = []  # equal code, which is one key above, may be several objects

    def learn(self, code: CodeType) -> bool:
        self._known[code] = found = not code.co_filename.startswith(self.folders)
        self.known[id(code)] = found
        self._kept.append(code)
        return found

    def place(self, traceback: Any) -> tuple[CodeType | None, int]:
        """The innermost instruction of the user."""
        if traceback is None:
            return None, 0
        codes, instructions = traceback.raw_frames()
        for code, instruction in zip(codes, instructions, strict=True):
            known = self._known.get(code)
            if known is None:
                known = self._known[code] = not code.co_filename.startswith(self.folders)
            if known:
                return code, instruction
        return None, 0


Operand = Fixed | int


class _JaxprReader:
    """Notes a jaxpr."""

    def __init__(self, user: UserCode, log: Log, hidden: Mapping[int, int]) -> None:
        self.user, self.kinds, self.hidden, self.log = user, log.kinds, hidden, log

    def read(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Operand], inside: CodePlace) -> list[Operand]:
        held: dict[Any, Operand] = {}
        for v, x in zip(jaxpr.constvars, consts, strict=True):
            held[v] = SharedMarker(self.hidden[id(x)]) if id(x) in self.hidden else self.log.number(x)
        held.update(zip(jaxpr.invars, given, strict=True))

        def value(x: Any) -> Operand:
            return self.log.number(_plain(x.val)) if jax_compat.is_literal(x) else held[x]

        for number, equation in enumerate(jaxpr.eqns):
            place = self.place(equation, inside, number)
            operands = [value(x) for x in equation.invars]
            name = equation.primitive.name
            if inside is NO_PLACE and (guard := of_equation(equation, place)) is not None:
                types = tuple((x.aval.shape, x.aval.dtype) for x in equation.invars)
                self.log.guarded.append(Guarded(guard, operands, types, place))
            if name in INLINED:
                inner = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
                code, consts_ = (inner.jaxpr, inner.consts) if hasattr(inner, "jaxpr") else (inner, ())
                found: Sequence[Operand] = self.read(code, consts_, operands, place)
            else:
                found = self.step(equation, operands, place)
            held.update(zip(equation.outvars, found, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def place(self, equation: Any, inside: CodePlace, number: int) -> CodePlace:
        if inside.code is not None:
            return self.kinds.place(inside.code, inside.instruction, (*inside.inner, number))
        code, instruction = self.user.place(equation.source_info.traceback)
        return NO_PLACE if code is None else self.kinds.place(code, instruction)

    def step(self, equation: Any, operands: Sequence[Operand], place: CodePlace) -> Sequence[Operand]:
        log = self.log
        types = tuple((x.aval.shape, x.aval.dtype) for x in equation.invars)
        kind, more = self.kinds.of(equation)
        if more:
            operands = (*operands, *(log.number(int(k)) for k in more))
            types += (INTEGER,) * len(more)
        known = [log.value(x) for x in operands if isinstance(x, int) and log.is_known(x)]
        if len(known) == len(operands) and kind.size <= FOLDED:
            return list(map(log.number, self.kinds.folded(kind, known, types)))
        shared = tuple(x for x in operands if isinstance(x, (SharedMarker, Uniform)))
        if shared and len(shared) == len(operands) and (uniform := self.kinds.uniform(kind, shared)) is not None:
            return uniform
        first = log.step(kind, place, operands, types)
        return [first | k for k in range(len(kind.outs))]


def _plain(x: Any) -> Any:
    """A literal as a number of Python or an array of NumPy: JAX has subclasses of these that know a dtype."""
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, int):
        return int(x)
    if isinstance(x, float):
        return float(x)
    if isinstance(x, complex):
        return complex(x)
    return np.asarray(x)


# ---- recording
#
# One run of a function: what its symbols do is noted, by Python or by machine code.
#
#     x * 2.0     Symbol.__mul__   ->   the template of mul for float32[] and a float   ->   a step
#
# What an operation is for operands of some types JAX says once (`templates.py`); from then on it costs a lookup.


class Recording(Noted):
    """One run of a function. `asked`: Python has asked a symbol for its value, even where that was caught. `refused`:
    something has met a symbol that takes arrays of JAX alone, so the run says nothing."""

    def __init__(self, user: UserCode, kinds: Kinds, most: int) -> None:
        super().__init__(kinds, most)
        self.user = user
        self.met = kinds.met
        self.asked: AskedError | None = None
        self.refused = False
        self.memo: dict[Any, Template | None] = _memo(packed.x64())

    def symbol(self, given: ExampleNumber) -> Symbol:
        """A number of the example."""
        return Symbol(self, type_of(given.shape, given.dtype, given.weak), self.given(given))

    def shared(self, type: Type, operand: Fixed) -> Symbol:
        """A shared value."""
        key = type, operand
        found = self.kinds.fixed.get(key)
        if found is None:
            found = self.kinds.fixed[key] = FixedType(type, operand)
        return Symbol(self, found, FIXED)

    def all_shared(self, types: tuple[Type, ...]) -> list[Symbol]:
        """The shared values of a call."""
        known = self.kinds.shared.get(types)
        if known is None:
            known = self.kinds.shared[types] = [self.shared(t, SharedMarker(k))._key for k, t in enumerate(types)]
        return [Symbol(self, key, FIXED) for key in known]

    def known(self, type: Type, value: Any) -> Symbol:
        """A number that Python knows."""
        return Symbol(self, type.known, self.number(value))

    def call(self, name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `fun` gives for symbols among other arguments."""
        if not kwargs and len(args) <= AT_ONCE:
            types = [x._key if type(x) is Symbol else float for x in args if type(x) in _OPERANDS]
            if len(types) == len(args) > 0:
                frame: Any = sys._getframe(2)
                key = name, id(frame.f_code), frame.f_lasti, *types
                met = self.met.get(key)
                if met is not None:
                    return self.again(key, met, [self.word(x) for x in args])
                template, given = self.found(name, fun, args, kwargs, True)
                if template is not None:
                    return self.apply(template, given, frame, key)
        if any(type(x) in _FILLED for x in args):
            args, kwargs = tuple(map(whole, args)), {k: whole(x) for k, x in kwargs.items()}
        template, given = self.found(name, fun, args, kwargs, True)
        if template is None:
            template, given = self.found(name, fun, args, kwargs, False)
            assert template is not None
        return self.apply(template, given, sys._getframe(1))

    def word(self, x: Any) -> int:
        """The word of a symbol, or of a number of Python."""
        return x._word if type(x) is Symbol else self.saw_number(x, self.number(x))

    def is_symbol(self, value: Any) -> bool:
        return type(value) is Symbol

    def is_users(self, code: CodeType) -> bool:
        """Is it code of the user?"""
        found = self.user.known.get(id(code))
        return self.user.learn(code) if found is None else found

    def found(
        self, name: str, fun: Callable[..., Any], args: Any, kwargs: dict[str, Any], floats: bool
    ) -> tuple[Template | None, list[Any]]:
        """The template of a call, and its operands; none where floats among its arguments have to be known (`floats`:
        they are operands)."""
        given: list[Any] = []
        try:
            keys = [templates.key_of(x, Symbol, given, floats) for x in (*args, *kwargs.values())]
        except templates.UnknownCall:
            self.refused = True
            raise
        key = (name, floats, *kwargs, *keys)
        if key in self.memo:
            return self.memo[key], given
        try:
            return self.learn(key, name, fun, args, kwargs, keys, given), given
        except ASKED:
            if not floats or not any(type(x) in PYTHON for x in given):
                raise
            self.memo[key] = None
            return None, given

    def learn(
        self, key: Any, name: str, fun: Callable[..., Any], args: Any, kwargs: Any, keys: list[Any], given: list[Any]
    ) -> Template:
        """Let JAX say what a call is."""
        if len(self.memo) >= templates.REMEMBERED:
            self.memo.clear()
        number = iter(range(len(given)))
        whole = (*args, *kwargs.values())
        parts = [templates.emptied(x, k, number) for x, k in zip(whole, keys, strict=True)]
        avals = [typed(x).aval for x in given]
        with paused(), self.closed():
            made = templates.made(name, fun, parts, tuple(kwargs), avals)
        self.memo[key] = made
        return made

    def again(self, key: Any, met: tuple[int, Any], words: Sequence[int]) -> Symbol:
        """The result of an operation that was met before, at this place and for such operands."""
        site, result = met
        if site < 0:
            self.saw(key, site, result)
            return Symbol(self, result, FIXED)
        if self.seen is not None:
            self.saw(key, site, result)
            return Symbol(self, result, self.at(site, words))
        made = _new(Symbol)
        made._run, made._key = self, result
        step = len(self.sites)
        if step >= self.most:
            raise TooLongError(self.kinds.sites[site].place)
        self.sites.append(site)
        for word in words:
            self.words.append(word)
        made._word = step << OUTS
        return made

    def apply(self, template: Template, given: Any, frame: Any, key: Any = None) -> Any:
        """A call whose template is known, of its operands, in a frame. `key`: by which it is met again; its operands
        are then those of the operation."""
        kind = template.kind
        results: list[Any] = []
        if kind is not None:
            results = self.operation(kind, [given[k] for k in template.reads], template, frame)
            if template.single:
                if key is not None and len(template.reads) == len(given) and self.user.known.get(id(frame.f_code)):
                    self.meet(key, results[0])
                return results[0]
        leaves = [results[x] if where == 0 else given[x] if where == 1 else self.constant(x)
                  for where, x in template.leaves]  # fmt: skip
        return jax.tree.unflatten(template.tree, leaves)

    def meet(self, key: Any, result: Symbol) -> None:
        """Remember the operation that has given a result."""
        if result._word >= 0:
            self.met[key] = self.sites[result._word >> OUTS], result._key
        elif result._word == FIXED:
            self.met[key] = -1, result._key
        else:
            return
        self.saw(key, *self.met[key])

    def row(self, x: Symbol, frame: Any, places: tuple[int, ...]) -> Any:
        """A part of an array by its numbers."""
        key = "row", id(frame.f_code), frame.f_lasti, x._key, len(places)
        met = self.met.get(key)
        if met is not None:
            return self.again(key, met, (x._word, *map(self.word, places)))
        return self.apply(row(self.memo, x._key.type, len(places)), (x, *places), frame, key)

    def part(self, x: Symbol, index: slice, frame: Any) -> Any:
        """A part of an array from one place to another."""
        key = "slice", id(frame.f_code), frame.f_lasti, x._key, index.start, index.stop, index.step
        met = self.met.get(key)
        if met is not None:
            return self.again(key, met, (x._word,))
        template, given = self.found("getitem", operator.getitem, (x, index), {}, True)
        assert template is not None
        return self.apply(template, given, frame, key)

    def constant(self, x: Any) -> Any:
        return self.known(type_of_value(x), x) if isinstance(x, (jax.Array, np.ndarray)) else x

    def operation(self, kind: OperationKind, given: list[Any], template: Template, frame: Any) -> list[Symbol]:
        """An operation on operands: a step, or what is known of it."""
        operands: list[Fixed | int] = []
        for x in given:
            if type(x) is not Symbol:
                operands.append(self.number(x))
            else:
                operands.append(x._key.operand if type(x._key) is FixedType else x._word)
        words = [x for x in operands if isinstance(x, int)]
        shared: Any = tuple(operands)
        if not words and kind.guard is None and (uniform := self.kinds.uniform(kind, shared)) is not None:
            return [self.shared(t, x) for t, x in zip(template.result, uniform, strict=True)]
        if len(words) == len(operands) and kind.size <= FOLDED and all(map(self.is_known, words)):
            if kind.guard is not None and (error := kind.guard.raised([self.value(w) for w in words])) is not None:
                raise error
            found = self.kinds.folded(kind, [self.value(w) for w in words], template.types)
            return [self.known(t, x) for t, x in zip(template.result, found, strict=True)]
        first = self.step(kind, self.place(frame), operands, template.types)
        return [Symbol(self, t, first | k) for k, t in enumerate(template.result)]

    def leaf(self, x: Any) -> tuple[Fixed | int, Any]:
        """A number of a result, and its type."""
        if isinstance(x, Symbol):
            key = x._key
            return key.operand if type(key) is FixedType else x._word, key.type.pair
        held = np.asarray(x)
        return self.number(x), (held.shape, held.dtype)

    def place(self, frame: Any) -> CodePlace:
        """The innermost instruction of the user."""
        known = self.user.known
        while frame is not None:
            code: CodeType = frame.f_code
            is_users = known.get(id(code))
            if is_users is None:
                is_users = self.user.learn(code)
            if is_users:
                return self.kinds.place(code, frame.f_lasti)
            frame = frame.f_back
        return NO_PLACE

    def ask(self, words: str) -> AskedError:
        """Note that Python asks for the value of a number."""
        self.asked = self.asked or AskedError(f"{words} asks for the value of a number that is computed")
        return self.asked


_FILLED = frozenset((Filled, list, tuple))
_OPERANDS = frozenset((Symbol, float))
_memos: dict[bool, dict[Any, Template | None]] = {}


def _memo(x64: bool) -> dict[Any, Template | None]:
    return _memos.setdefault(x64, {})


register(Methods(Symbol, Recording, BINARIES, UNARIES, Symbol.__getitem__))
