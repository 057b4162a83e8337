"""One run of a function: what its symbols do is noted, by Python or by machine code.

    x * 2.0     Symbol.__mul__   ->   the template of mul for float32[] and a float   ->   a step

What an operation is for operands of some types JAX says once (`templates.py`); from then on it costs a lookup.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import jax
import numpy as np

from autobatch.call import transfer
from autobatch.call.tracing import templates
from autobatch.call.tracing.asked import ASKED, AskedError
from autobatch.call.tracing.filled import Filled, whole
from autobatch.call.tracing.intercepted import paused
from autobatch.call.tracing.log import (
    FIXED,
    FOLDED,
    NO_PLACE,
    OUTS,
    CodePlace,
    ExampleNumber,
    Fixed,
    Kinds,
    OperationKind,
    SharedMarker,
    TooLongError,
)
from autobatch.call.tracing.record import UserCode
from autobatch.call.tracing.slots import AT_ONCE, Methods, Noted, register
from autobatch.call.tracing.symbols import BINARIES, PYTHON, UNARIES, Symbol, row, typed
from autobatch.call.tracing.templates import FixedType, Template, Type, type_of, type_of_value


class Recording(Noted):
    """One run of a function. `asked`: Python has asked a symbol for its value, even where that was caught. `refused`:
    something has met a symbol that takes arrays of JAX alone, so the run says nothing."""

    def __init__(self, user: UserCode, kinds: Kinds, most: int) -> None:
        super().__init__(kinds, most)
        self.user = user
        self.met = kinds.met
        self.asked: AskedError | None = None
        self.refused = False
        self.memo: dict[Any, Template | None] = _memo(transfer.x64())

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
_new = object.__new__  # without `__init__`, which Python runs


def _memo(x64: bool) -> dict[Any, Template | None]:
    return _memos.setdefault(x64, {})


register(Methods(Symbol, Recording, BINARIES, UNARIES, Symbol.__getitem__))
