"""Functions that are written for each call: `itertools`' choices of some elements, and products of some sequences, are
as many nested loops; what `operator` gets or calls by name is a lambda.

    itertools.combinations(q, 3)      found = list(q);  n = len(found)
                                      [(found[i0], found[i1], found[i2])
                                       for i0 in range(n) for i1 in range(i0 + 1, n) for i2 in range(i1 + 1, n)]

How many elements are chosen has to be known when the function is compiled.
"""

from __future__ import annotations

import itertools
import linecache
import operator
import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from autobatch.frontend.library.prelude import run
from autobatch.frontend.lowering.sequences import sequence
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
MOST = 8
"""So many elements are chosen at most: each is a loop of its own."""


def _head(k: int, first: Callable[[str], str]) -> str:
    return f"for i{k} in range({first(f'i{k - 1}') if k else '0'}, n)"


def _differ(k: int) -> str:
    tests = " and ".join(f"i{k} != i{j}" for j in range(k))
    return f"for i{k} in range(n)" + (f" if {tests}" if tests else "")


_LOOPS: dict[Any, Callable[[int], str]] = {
    itertools.combinations: lambda k: _head(k, lambda before: f"{before} + 1"),
    itertools.combinations_with_replacement: lambda k: _head(k, lambda before: before),
    itertools.permutations: _differ,
}


@lru_cache(maxsize=64)
def _of_one(function: Any, size: int) -> Any:
    chosen = "".join(f"found[i{k}], " for k in range(size))
    loops = " ".join(map(_LOOPS[function], range(size)))
    return _made(
        f"{function.__name__}{size}",
        f"def choose(items):\n    found = list(items)\n    n = len(found)\n    return [({chosen}) {loops}]\n",
    )


@lru_cache(maxsize=64)
def _of_several(size: int) -> Any:
    names = [f"x{k}" for k in range(size)]
    lists = "".join(f"    l{k} = list(s{k})\n" for k in range(size))
    loops = " ".join(f"for {x} in l{k}" for k, x in enumerate(names))
    given = ", ".join(f"s{k}" for k in range(size))
    return _made(f"product{size}", f"def choose({given}):\n{lists}    return [({', '.join(names)},) {loops}]\n")


def _made(name: str, text: str) -> Any:
    """The function of this text, whose source can be read."""
    file = f"<itertools.{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    held: dict[str, Any] = {}
    exec(compile(text, file, "exec"), held)
    return next(f for f in held.values() if isinstance(f, types.FunctionType))


def _choosing(function: Any) -> Callable[[LoweringState, Arguments, Named], v.Abstract]:
    def chosen(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
        given = [*args, *kwargs.values()]
        size = given[1].value if len(given) == 2 and isinstance(given[1], v.Static) else None
        if size is None and function is itertools.permutations and isinstance(found := sequence(s, given[0]), v.Record):
            size = len(found.items)
        if not isinstance(size, int) or not 0 < size <= MOST:
            s.refuse(
                f"how many elements itertools.{function.__name__}() chooses is not known here, or more than {MOST}",
                f"give a constant from 1 to {MOST}; of all elements of a list, swap them in a recursion",
            )
        return run(s, _of_one(function, size), given[:1], {})

    return chosen


def _product(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    repeat = kwargs.get("repeat", v.Static(1))
    again = repeat.value if isinstance(repeat, v.Static) else 0
    size = len(args) * again if isinstance(again, int) else 0
    if not 0 < size <= MOST:
        words = f"how many lists itertools.product() takes is not known here, or more than {MOST}"
        s.refuse(words, f"give a constant: from 1 to {MOST} lists")
    return run(s, _of_several(size), [*args] * again, {})


@lru_cache(maxsize=64)
def _reading(names: tuple[str, ...]) -> Any:
    reads = [f"x.{n}" for n in names]
    given = reads[0] if len(reads) == 1 else f"({', '.join(reads)})"
    return _made(f"attrgetter {names}", f"def choose():\n    return lambda x: {given}\n")


def _attributes(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`operator.attrgetter("a.b", "c")`"""
    names = [a.value if isinstance(a, v.Static) else None for a in args]
    if not names or not all(isinstance(n, str) and all(p.isidentifier() for p in n.split(".")) for n in names):
        s.refuse("operator.attrgetter() takes constant names of attributes here", "write a lambda")
    return run(s, _reading(tuple(str(n) for n in names)), [], {})


@lru_cache(maxsize=64)
def _calling(name: str, positional: int, named: tuple[str, ...]) -> Any:
    given = [f"a{k}" for k in range(positional)]
    passed = ", ".join([*given, *(f"{n}={n}" for n in named)])
    text = f"def choose({', '.join([*given, *named])}):\n    return lambda x: x.{name}({passed})\n"
    return _made(f"methodcaller {name} {positional} {named}", text)


def _method(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`operator.methodcaller("count", 1.0)`"""
    name = args[0].value if args and isinstance(args[0], v.Static) else None
    if not isinstance(name, str) or not name.isidentifier():
        s.refuse("operator.methodcaller() takes a constant name of a method here", "write a lambda")
    return run(s, _calling(name, len(args) - 1, tuple(kwargs)), args[1:], kwargs)


CHOICES: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    **{function: _choosing(function) for function in _LOOPS},
    itertools.product: _product,
    operator.attrgetter: _attributes,
    operator.methodcaller: _method,
}
