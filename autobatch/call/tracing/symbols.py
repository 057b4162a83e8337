"""Symbols: what stands in the place of numbers while a function runs for one example. Every operation is noted in its
run (`recording.py`); where machine code does it, the methods here are for what was not met before (`slots.py`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.call import transfer
from autobatch.call.tracing.intercepted import IN_MESSAGE, is_of_jax, original
from autobatch.call.tracing.log import INTEGER, OUTS, OperationKind, TooLongError, sliced
from autobatch.call.tracing.printing import formatted, is_noted
from autobatch.call.tracing.templates import FLOATS, FixedType, KnownType, Template, Type, type_of, type_of_value
from autobatch.errors import UnsupportedError

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


if TYPE_CHECKING:
    from autobatch.call.tracing.recording import Recording


def typed(x: Any) -> Type:
    """The type of an operand."""
    if type(x) is Symbol:
        found: Type = x._key.type
        return found
    return FLOATS[type(x), transfer.x64()] if type(x) in PYTHON else type_of_value(x)


PYTHON = frozenset((float, complex, int, bool))
_PLACES = frozenset((int, type(None)))
_getframe = sys._getframe
_new = object.__new__  # without `__init__`, which Python runs


class Symbol:
    """A number that a run has not computed. Operators, methods and properties are those of arrays of JAX."""

    __slots__ = ("_key", "_run", "_word")
    __array_priority__ = 1000

    def __init__(self, run: Recording, key: Type | FixedType | KnownType, word: int) -> None:
        self._run, self._key, self._word = run, key, word

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
