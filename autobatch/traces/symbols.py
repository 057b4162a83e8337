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
from autobatch.errors import UnsupportedError
from autobatch.traces import templates
from autobatch.traces.asked import ASKED, AskedError
from autobatch.traces.attributes import ATTRIBUTES, BINARY, COMPARISONS, Updates, method, row, swapped
from autobatch.traces.filled import Filled, whole
from autobatch.traces.intercepted import IN_MESSAGE, is_of_jax, original, paused
from autobatch.traces.log import (
    FIXED,
    FOLDED,
    NO_PLACE,
    OUTS,
    Fixed,
    Given,
    Kind,
    Kinds,
    Log,
    Place,
    TooLongError,
    Uniform,
)
from autobatch.traces.printing import formatted, is_noted
from autobatch.traces.record import UserCode
from autobatch.traces.templates import FLOATS, FixedType, KnownType, Template, Type, type_of, type_of_value


class Recording(Log):
    """One run of a function. `asked`: Python has asked a symbol for its value, even where that was caught. `refused`:
    something has met a symbol that takes arrays of JAX alone, so the run says nothing."""

    def __init__(self, user: UserCode, kinds: Kinds, most: int) -> None:
        super().__init__(kinds, most)
        self.user = user
        self.met = kinds.met
        self.asked: AskedError | None = None
        self.refused = False
        self.memo: dict[Any, Template | None] = _memo(transfer.x64())

    def symbol(self, given: Given) -> Symbol:
        """A number of the example."""
        return Symbol(self, type_of(given.shape, given.dtype, given.weak), self.given(given))

    def shared(self, type: Type, operand: Fixed) -> Symbol:
        """A shared value."""
        key = type, operand
        found = self.kinds.fixed.get(key)
        if found is None:
            found = self.kinds.fixed[key] = FixedType(type, operand)
        return Symbol(self, found, FIXED)

    def known(self, type: Type, value: Any) -> Symbol:
        """A number that Python knows."""
        return Symbol(self, type.known, self.number(value))

    def call(self, name: str, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `fun` gives for symbols among other arguments."""
        if len(args) == 1 and not kwargs and type(args[0]) is Symbol:
            x = args[0]
            frame: Any = sys._getframe(2)
            key = name, id(frame.f_code), frame.f_lasti, x._key
            met = self.met.get(key)
            if met is not None:
                return self.again(met, x._word)
            template = self.memo.get((name, True, x._key.type))
            if template is not None:
                return self.apply(template, args, frame, key)
        if any(type(x) in _FILLED for x in args):
            args, kwargs = tuple(map(whole, args)), {k: whole(x) for k, x in kwargs.items()}
        template, given = self.found(name, fun, args, kwargs, True)
        if template is None:
            template, given = self.found(name, fun, args, kwargs, False)
            assert template is not None
        return self.apply(template, given, sys._getframe(1))

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

    def again(self, met: tuple[int, Any], word: int) -> Symbol:
        """The result of an operation on one operand that was met before, at this place and for such an operand."""
        made = _new(Symbol)
        made._run = self
        site, made._key = met
        if site < 0:
            made._word = FIXED
            return made
        sites = self.sites
        step = len(sites)
        if step >= self.most:
            raise TooLongError(self.kinds.sites[site].place)
        sites.append(site)
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

    def row(self, x: Symbol, frame: Any, places: tuple[int, ...]) -> Any:
        """A part of an array by its numbers."""
        key = "row", id(frame.f_code), frame.f_lasti, x._key, len(places)
        met = self.met.get(key)
        if met is not None:
            made = self.again(met, x._word)
            if made._word >= 0:
                self.words.extend(map(self.number, places))
            return made
        return self.apply(row(self.memo, x._key.type, len(places)), (x, *places), frame, key)

    def part(self, x: Symbol, index: slice, frame: Any) -> Any:
        """A part of an array from one place to another."""
        key = "slice", id(frame.f_code), frame.f_lasti, x._key, index.start, index.stop, index.step
        met = self.met.get(key)
        if met is not None:
            return self.again(met, x._word)
        template, given = self.found("getitem", operator.getitem, (x, index), {}, True)
        assert template is not None
        return self.apply(template, given, frame, key)

    def constant(self, x: Any) -> Any:
        return self.known(type_of_value(x), x) if isinstance(x, (jax.Array, np.ndarray)) else x

    def operation(self, kind: Kind, given: list[Any], template: Template, frame: Any) -> list[Symbol]:
        """An operation on operands: a step, or what is known of it."""
        operands: list[Fixed | int] = []
        for x in given:
            if type(x) is not Symbol:
                operands.append(self.number(x))
            else:
                operands.append(x._key.operand if type(x._key) is FixedType else x._word)
        words = [x for x in operands if isinstance(x, int)]
        if not words:
            shared: Any = tuple(operands)
            each = [Uniform((kind, *shared), kind.make, shared, k) for k in range(len(kind.outs))]
            return [self.shared(t, x) for t, x in zip(template.result, each, strict=True)]
        if len(words) == len(operands) and kind.size <= FOLDED and all(map(self.is_known, words)):
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

    def place(self, frame: Any) -> Place:
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
_memos: dict[bool, dict[Any, Template | None]] = {}


def _memo(x64: bool) -> dict[Any, Template | None]:
    return _memos.setdefault(x64, {})


def _type(x: Any) -> Type:
    return (
        x._key.type
        if type(x) is Symbol
        else FLOATS[type(x), transfer.x64()]
        if type(x) in _PYTHON
        else type_of_value(x)
    )


_PYTHON = frozenset((float, complex, int, bool))
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


def _binary(name: str, fun: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Symbol, other: Any) -> Any:
        kind, run, frame = type(other), self._run, _getframe(1)
        if kind is Symbol:
            key: Any = (name, id(frame.f_code), frame.f_lasti, self._key, other._key)
            word = other._word
        elif kind in _PYTHON:
            key = (name, id(frame.f_code), frame.f_lasti, self._key, kind)
            word = run.number(other)
        else:
            return _of_array(self, other, name, fun, frame)
        met = run.met.get(key)
        if met is None:
            return _learnt(self, other, name, fun, frame, key)
        made = _new(Symbol)
        made._run = run
        site, made._key = met
        if site < 0:
            made._word = FIXED
            return made
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
    types = [x._key.type, _type(other)]
    of = name, *types
    template = run.memo.get(of)
    if template is None:
        template = run.learn(of, name, fun, given, {}, types, list(given))
    return run.apply(template, given, frame, key)


def _power(self: Symbol, exponent: Any) -> Any:
    if type(exponent) is int:
        return self._run.call("pow", operator.pow, (self, exponent), {})
    return _of_powers(self, exponent)


def _unary(name: str, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: Symbol) -> Any:
        run, frame = self._run, _getframe(1)
        key = name, id(frame.f_code), frame.f_lasti, self._key
        met = run.met.get(key)
        if met is not None:
            return run.again(met, self._word)
        type = self._key.type
        template = run.memo.get((name, type))
        if template is None:
            template = run.learn((name, type), name, fun, (self,), {}, [type], [self])
        return run.apply(template, (self,), frame, key)

    return method


for _name in BINARY:
    _fun = getattr(operator, _name)
    setattr(Symbol, f"__{_name.strip('_')}__", _binary(_name, _fun))
    setattr(Symbol, f"__r{_name.strip('_')}__", _binary(f"r{_name}", swapped(_fun)))
for _name in COMPARISONS:
    setattr(Symbol, f"__{_name}__", _binary(_name, getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Symbol, f"__{_name}__", _unary(_name, getattr(operator, _name)))
_of_powers = _binary("pow", operator.pow)
setattr(Symbol, "__pow__", _power)  # noqa: B010  no attribute that a checker knows, like those above
setattr(Symbol, "__rpow__", _binary("rpow", swapped(operator.pow)))  # noqa: B010
setattr(Symbol, "__divmod__", lambda a, b: (a // b, a % b))  # noqa: B010
