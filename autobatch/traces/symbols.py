"""Symbols: what stands in the place of numbers while a function runs for one example. Every operation is noted.

    x * 2.0     Symbol.__mul__   ->   the template of mul for float32[] and a float   ->   a step

What an operation is for operands of some types JAX says once (`templates.py`); from then on it costs a lookup.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch import transfer
from autobatch.traces import templates
from autobatch.traces.intercepted import original, paused
from autobatch.traces.record import (
    FOLDED,
    INTEGER,
    NO_PLACE,
    Given,
    Kind,
    Kinds,
    Known,
    Operand,
    Out,
    Place,
    Shared,
    Step,
    Uniform,
    UserCode,
    sliced,
)
from autobatch.traces.templates import FLOATS, Template, Type, type_of, type_of_value

ASKED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
         jax.errors.TracerBoolConversionError, jax.errors.TracerIntegerConversionError)  # fmt: skip
"""What JAX raises where Python asks for the value of what is traced."""


class AskedError(TypeError):
    """Python has asked a symbol for its value."""


class TooLongError(Exception):
    """A run has more operations than memory has room for."""

    def __init__(self, place: Place) -> None:
        self.place = place


class Recording:
    """One run of a function. `asked`: Python has asked a symbol for its value, even where that was caught. `refused`:
    something has met a symbol that takes arrays of JAX alone, so the run says nothing."""

    def __init__(self, user: UserCode, kinds: Kinds, most: int) -> None:
        self.user, self.kinds, self.most = user, kinds, most
        self.steps: list[Step] = []
        self.at = kinds.at
        self.asked: AskedError | None = None
        self.refused = False
        self.memo: dict[Any, Template | None] = _memo(transfer.x64())

    def symbol(self, given: Given, operand: Operand) -> Symbol:
        return Symbol(self, type_of(given.shape, given.dtype, given.weak), operand)

    def call(self, name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `fun` gives for symbols among other arguments."""
        if len(args) == 1 and not kwargs and type(args[0]) is Symbol:
            template = self.memo.get((name, True, args[0]._type))
            if template is not None:
                return self.apply(template, args)
        template, given = self.found(name, fun, args, kwargs, True)
        if template is None:
            template, given = self.found(name, fun, args, kwargs, False)
            assert template is not None
        return self.apply(template, given)

    def found(
        self, name: str, fun: Callable[..., Any], args: Any, kwargs: dict[str, Any], floats: bool
    ) -> tuple[Template | None, list[Any]]:
        """The template of a call, and its operands; none where floats among its arguments have to be known (`floats`:
        they are operands)."""
        given: list[Any] = []
        try:
            keys = [templates.key_of(x, Symbol, given, floats) for x in (*args, *kwargs.values())]
        except templates.Unknown:
            self.refused = True
            raise
        key = (name, floats, *kwargs, *keys)
        if key in self.memo:
            return self.memo[key], given
        try:
            return self.learn(key, name, fun, args, kwargs, keys, given), given
        except ASKED:
            if not floats or not any(type(x) in _PYTHON for x in given):
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
        avals = [_type(x).aval for x in given]
        with paused():
            made = templates.made(name, fun, parts, tuple(kwargs), avals)
        self.memo[key] = made
        return made

    def apply(self, template: Template, given: Any) -> Any:
        """A call whose template is known, of its operands."""
        kind = template.kind
        results: list[Any] = []
        if kind is not None:
            operands = []
            for k in template.reads:
                x = given[k]
                operands.append(x._operand if type(x) is Symbol else Known(x))
            if template.single:
                return Symbol(self, template.result[0], self.operation(kind, operands, template.types)[0])
            made = self.operation(kind, operands, template.types)
            results = [Symbol(self, t, x) for t, x in zip(template.result, made, strict=True)]
        leaves = [results[x] if where == 0 else given[x] if where == 1 else self.constant(x)
                  for where, x in template.leaves]  # fmt: skip
        return jax.tree.unflatten(template.tree, leaves)

    def constant(self, x: Any) -> Any:
        return Symbol(self, type_of_value(x), Known(x)) if isinstance(x, (jax.Array, np.ndarray)) else x

    def operation(self, kind: Kind, operands: list[Any], types: tuple[Any, ...]) -> list[Operand]:
        """An operation on operands: a step, or what is known of it."""
        sorts = set(map(type, operands))
        if sorts == _KNOWN and kind.size <= FOLDED:
            return list(self.kinds.folded(kind, [x.value for x in operands], types))
        if sorts <= _SHARED:
            return [Uniform((kind, *operands), kind.make, tuple(operands), k) for k in range(len(kind.outs))]
        steps = self.steps
        n = len(steps)
        frame: Any = sys._getframe(3)
        at = self.at.get((id(frame.f_code), frame.f_lasti))
        steps.append(Step(kind, at or self.place(frame), tuple(operands), types))
        if n >= self.most:
            raise TooLongError(steps[-1].place)
        return [Out(n)] if len(kind.outs) == 1 else [Out(n, k) for k in range(len(kind.outs))]

    def place(self, frame: Any) -> Place:
        """The innermost instruction of the user."""
        inner, known = frame, self.user.known
        while frame is not None:
            code: CodeType = frame.f_code
            is_users = known.get(id(code))
            if is_users is None:
                is_users = self.user.learn(code)
            if is_users:
                found = self.kinds.place(code, frame.f_lasti)
                if frame is inner:
                    self.at[id(code), frame.f_lasti] = found
                return found
            frame = frame.f_back
        return NO_PLACE

    def ask(self, words: str) -> AskedError:
        """Note that Python asks for the value of a number."""
        self.asked = self.asked or AskedError(f"{words} asks for the value of a number that is computed")
        return self.asked


_KNOWN, _SHARED = {Known}, {Shared, Uniform}
_memos: dict[bool, dict[Any, Template | None]] = {}


def _memo(x64: bool) -> dict[Any, Template | None]:
    return _memos.setdefault(x64, {})


def _type(x: Any) -> Type:
    return x._type if type(x) is Symbol else FLOATS[type(x), transfer.x64()] if type(x) in _PYTHON else type_of_value(x)


_PYTHON = (float, complex, int, bool)


class Symbol:
    """A number that a run has not computed. Operators, methods and properties are those of arrays of JAX."""

    __slots__ = ("_operand", "_run", "_type")
    __array_priority__ = 1000

    def __init__(self, run: Recording, type: Type, operand: Operand) -> None:
        self._run, self._type, self._operand = run, type, operand

    @property
    def shape(self) -> tuple[int, ...]:
        return self._type.shape

    @property
    def dtype(self) -> Any:
        return self._type.dtype

    @property
    def weak_type(self) -> bool:
        return self._type.weak

    @property
    def ndim(self) -> int:
        return len(self._type.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self._type.shape))

    def __len__(self) -> int:
        if not self._type.shape:
            raise TypeError("len() of unsized object")
        return self._type.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._type.shape:
            raise TypeError("iteration over a 0-d array")
        return iter([self[k] for k in range(self._type.shape[0])])

    def __getitem__(self, index: Any) -> Any:
        shape = self._type.shape
        if type(index) is int and shape and -shape[0] <= index < shape[0]:
            return self._run.apply(_row(self._run, self._type, 1), (self, index % shape[0]))
        if type(index) is tuple and 0 < len(index) <= len(shape) and all(map(_is_inside, index, shape)):
            places = [k % n for k, n in zip(index, shape, strict=False)]
            return self._run.apply(_row(self._run, self._type, len(index)), (self, *places))
        return self._run.call("getitem", operator.getitem, (self, index), {})

    def __getattr__(self, name: str) -> Any:
        if name == "__jax_array__" or name == "_is_traced_array":
            self._run.refused = True  # a function of JAX that is not intercepted, or a question for what class it has
        found = _ATTRIBUTES.get(name)
        if found is None or name.startswith("__"):
            raise AttributeError(f"{name} of a number that is computed")
        if found == "asked":
            raise self._run.ask(f".{name}")
        if found == "property":
            return self._run.call(f".{name}", operator.attrgetter(name), (self,), {})
        return lambda *args, **kwargs: self._run.call(f".{name}", _method(name), (self, *args), kwargs)

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
        if isinstance(self._operand, Known):
            return np.asarray(self._operand.value)
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
        return format(self._known("text")[()], spec)

    def __str__(self) -> str:
        return str(self._known("text")[()])

    def __hash__(self) -> int:
        raise self._run.ask("a key of a dict or an element of a set")

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self

    def __repr__(self) -> str:
        return f"Symbol({self._type})"

    def __round__(self, digits: int = 0) -> Any:
        return self._run.call("round", _method("round"), (self, digits), {})


class Updates:
    """`x.at`, and `x.at[index]`."""

    def __init__(self, symbol: Symbol, *index: Any) -> None:
        self._symbol, self._index = symbol, index

    def __getitem__(self, index: Any) -> Updates:
        return Updates(self._symbol, index)

    def __getattr__(self, name: str) -> Any:
        (index,) = self._index
        return lambda *args, **kwargs: self._symbol._run.call(
            f".at.{name}", _update(name), (self._symbol, index, *args), kwargs
        )


def _update(name: str) -> Callable[..., Any]:
    return lambda x, index, *args, **kwargs: getattr(x.at[index], name)(*args, **kwargs)


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _is_inside(index: Any, size: int) -> bool:
    return type(index) is int and -size <= index < size


def _row(run: Recording, of: Type, count: int) -> Template:
    """The template of `x[k]` or `x[k, n]`, of a part by its numbers: these are operands, so that all parts are read by
    one operation."""
    key = "row", of, count
    found = run.memo.get(key)
    if found is None:
        rest = of.shape[count:]
        sizes, zeros = (*(1,) * count, *rest), (0,) * len(rest)
        made = (jax.ShapeDtypeStruct(rest, of.dtype),)
        kind = Kind(("row", of, count), lambda x, *at: (sliced(x, (*at, *zeros), sizes).reshape(rest),), made)
        result = type_of(rest, of.dtype, of.weak)
        reads, types = tuple(range(1 + count)), (of.pair, *(INTEGER,) * count)
        found = run.memo[key] = Template(kind, reads, types, ((0, 0),), None, (result,), True)
    return found


def _attributes() -> dict[str, str]:
    """What names of arrays are: properties, methods, or questions for their values."""
    array: Any = type(jnp.zeros(()))
    made = {}
    for name in dir(array):
        held = getattr(array, name, None)
        if not name.startswith("_"):
            made[name] = "method" if callable(held) else "property"
    asked = ("item", "tolist", "tobytes", "addressable_data", "block_until_ready", "copy_to_host_async")
    return {**made, **dict.fromkeys(asked, "asked")}


_ATTRIBUTES = _attributes()


# ---- operators


def _binary(name: str, fun: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Symbol, other: Any) -> Any:
        kind = type(other)
        run = self._run
        if kind is Symbol:
            of: Any = other._type
        elif kind in _PYTHON:
            of = FLOATS[kind, transfer.x64()]
        elif isinstance(other, (np.ndarray, np.generic, jax.Array)):
            of = type_of_value(other)
        else:
            return NotImplemented
        key = name, self._type, of
        template = run.memo.get(key)
        given = (self, other)
        if template is None:
            template = run.learn(key, name, fun, given, {}, [self._type, of], list(given))
        return run.apply(template, given)

    return method


def _power(self: Symbol, exponent: Any) -> Any:
    if type(exponent) is int:
        return self._run.call("pow", operator.pow, (self, exponent), {})
    return _of_powers(self, exponent)


def _unary(name: str, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: Symbol) -> Any:
        run = self._run
        template = run.memo.get((name, self._type))
        if template is None:
            template = run.learn((name, self._type), name, fun, (self,), {}, [self._type], [self])
        return run.apply(template, (self,))

    return method


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and_", "or_", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _swapped(fun: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: fun(b, a)


for _name in BINARY:
    _fun = getattr(operator, _name)
    setattr(Symbol, f"__{_name.strip('_')}__", _binary(_name, _fun))
    setattr(Symbol, f"__r{_name.strip('_')}__", _binary(f"r{_name}", _swapped(_fun)))
for _name in COMPARISONS:
    setattr(Symbol, f"__{_name}__", _binary(_name, getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Symbol, f"__{_name}__", _unary(_name, getattr(operator, _name)))
_of_powers = _binary("pow", operator.pow)
setattr(Symbol, "__pow__", _power)  # noqa: B010  no attribute that a checker knows, like those above
setattr(Symbol, "__rpow__", _binary("rpow", _swapped(operator.pow)))  # noqa: B010
setattr(Symbol, "__divmod__", lambda a, b: (a // b, a % b))  # noqa: B010
