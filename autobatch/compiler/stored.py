"""Programs of machine code between runs of Python: what a call needs of one, and by what it is found again.

    key      what is known before lowering: the function, the types of its arguments, static values, options, versions,
             the processor: the name of a file
    reads    what lowering has read: the code and the lines of every function reached, globals, closures and defaults;
             each is read again, and has to be what it was
    facts    what a call needs besides the machine code: operands, results, where examples can fail

A file holds some programs that differ in their reads. It is JSON with a hash of itself, written whole: a file that was
cut off, or that somebody else has changed, is none. What cannot be compared between processes (an object of a class of
the user, say) is not kept, and such a function is lowered in each process.
"""

from __future__ import annotations

import base64
import builtins
import functools
import hashlib
import importlib.util
import json
import linecache
import logging
import os
import platform
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autobatch.backends.llvm.code import WholeCode
from autobatch.backends.llvm.lanes.program import CodeOperand as Given
from autobatch.backends.llvm.lanes.program import CodeSignature, EmittedCode, Result
from autobatch.backends.llvm.machine_code import UnavailableError, host
from autobatch.common import cache
from autobatch.compiler.executables import InMemory
from autobatch.data.columns import Schema
from autobatch.data.spec import depth_of, element_type
from autobatch.errors import Span
from autobatch.frontend.lowering.lower import LoweredModule
from autobatch.frontend.lowering.state import FreeVariable
from autobatch.frontend.syntax.sources import LIBRARIES, is_user_function
from autobatch.frontend.types.specialisation import read_again
from autobatch.frontend.types.statics import MISSING, is_array
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
    Array,
    Container,
    HeapTemplate,
    Input,
    List,
    Module,
    Operand,
    Output,
    Template,
    Type,
    heap_renumbered,
    is_numpy,
    renumbered,
    walk,
)
from autobatch.ir.leaf import Site
from autobatch.options import Options

# ---- fingerprints
#
# What a Python value is, in words that another process would use: for what is kept between runs of Python.
#
# Numbers, strings and containers are their values; functions of the user their code and lines; objects of libraries are
# their names, under the versions of the libraries. Whatever else there is may hold anything: it is refused.


Words = tuple[Any, ...]
"""Strings, and tuples of them."""


class NotComparable(Exception):
    """A value that cannot be told by words."""


def fingerprint(value: Any) -> Words:
    """What a value is. Raises Unknown."""
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() if type(value) in _PLAIN:
            return (type(value).__name__, repr(value))
        case tuple() | list() if type(value) in (tuple, list):
            if type(value) is tuple and value and value[0] == "id":
                raise NotComparable("an object that is known by its identity")
            return (type(value).__name__, *map(fingerprint, value))
        case dict() if type(value) is dict:
            return ("dict", *((fingerprint(k), fingerprint(x)) for k, x in value.items()))
        case set() | frozenset() if type(value) in (set, frozenset):
            return (type(value).__name__, *sorted(map(fingerprint, value)))
        case range() | slice() | np.dtype() | Input():
            return (type(value).__name__, repr(value))
        case types.ModuleType():
            return ("module", value.__name__)
        case types.FunctionType() if is_user_function(value):
            defaults = fingerprint((value.__defaults__, value.__kwdefaults__))
            return ("function", value.__module__, value.__qualname__, *_code(value.__code__), lines_of(value), defaults)
        case _ if hasattr(value, "__autobatch_function__") and not isinstance(value, type):
            return ("batched", fingerprint(value.__autobatch_function__))
        case _:
            return _of_library(value)


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def type_words(array: Any) -> str:
    """What the type of an array is, and whose it is."""
    if not is_array(array):
        return "no array"
    return f"{jax_compat.type_of(array)} of {'numpy' if is_numpy(array) else 'jax'}"


def function_of(value: Any) -> types.FunctionType | None:
    """The function whose text is lowered where a value is called."""
    for _ in range(8):
        if isinstance(value, types.FunctionType):
            inner = getattr(value, "__wrapped__", None)
            return value if inner is None or not is_user_function(inner) else inner
        if isinstance(value, type):
            return None
        value = getattr(value, "__autobatch_function__", None) or getattr(value, "__wrapped__", None)
    return None


def _of_library(value: Any) -> Words:
    """An object that is found under its name in a module of a library whose version is known."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))
    if isinstance(value, types.BuiltinFunctionType) and module is None:
        module = getattr(type(value.__self__), "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or not is_library(module):
        raise NotComparable(f"an object of the type {type(value).__name__}")
    held: Any = sys.modules.get(module)
    for part in name.split("."):
        held = getattr(held, part, None)
    if held is not value:
        raise NotComparable(f"{module}.{name} is another object")
    return ("library", module, name)


def is_library(module: str) -> bool:
    """Is a module one whose version is among those of `environment`?"""
    top = module.split(".")[0]
    return top in _VERSIONED or top in sys.stdlib_module_names


_VERSIONED = frozenset({"jax", "jaxlib", "numpy", "math", "autobatch", "builtins"})


# ---- functions


def _code(code: types.CodeType) -> Words:
    """All that code says, but for what is found out while it runs."""
    digest = hashlib.sha256(code.co_code)
    digest.update(code.co_linetable)
    parts = (
        (code.co_filename, code.co_firstlineno, code.co_name, code.co_flags),
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        tuple(_code(x) if isinstance(x, types.CodeType) else _constant(x) for x in code.co_consts),
    )
    digest.update(repr(parts).encode())
    return (digest.hexdigest(),)


def _constant(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(_constant, x))
    return ("frozenset", *sorted(map(repr, x))) if isinstance(x, frozenset) else (type(x).__name__, repr(x))


def lines_of(function: types.FunctionType) -> str:
    """A hash of the lines that a function is written in: the front end reads annotations too, which leave no code."""
    code = function.__code__
    last = max((line for c in _codes(code) for _, _, line in c.co_lines() if line), default=code.co_firstlineno)
    text = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 : last]
    return hashlib.sha256("".join(text).encode()).hexdigest()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Some code and the code of what is defined in it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from _codes(x)


def names_of(function: types.FunctionType) -> Words:
    """For the names that a function reads: which modules they are, which functions of libraries, and which are no
    variables of its module, so that they are builtins. Everything else is a free variable that is compared itself."""
    names = sorted({n for c in _codes(function.__code__) for n in c.co_names})
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = dict(function.__globals__)
    held.update((n, c.cell_contents) for n, c in cells if not _is_empty(c))
    return tuple((n, _kind(held, n, names, 4)) for n in (*names, *function.__code__.co_freevars))


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  it raises
    except ValueError:
        return True
    return False


def _kind(held: dict[str, Any], name: str, names: list[str], depth: int) -> Any:
    if name not in held:
        return "builtin" if hasattr(builtins, name) else "nothing"
    value = held[name]
    if isinstance(value, types.BuiltinFunctionType):
        return (str(value.__module__), value.__qualname__)
    if not isinstance(value, types.ModuleType):
        return "a variable"
    if is_library(value.__name__) or value.__name__.split(".")[0] in LIBRARIES or not depth:
        return value.__name__
    inside = vars(value)
    modules = (n for n in names if isinstance(inside.get(n), types.ModuleType | types.BuiltinFunctionType))
    return (value.__name__, *((n, _kind(inside, n, names, depth - 1)) for n in modules))


# ---- everything else that a program depends on


def environment() -> Words:
    """What is the same for all programs of a process: versions, this package, how JAX is configured."""
    config: Any = jax.config
    flags = (
        "jax_enable_x64",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_threefry_partitionable",
    )
    return (*_versions(), *(str(getattr(config, f, None)) for f in flags), str(jax_compat.integers_are_wide()))


@functools.cache
def _versions() -> Words:
    return (
        sys.version,
        platform.machine(),
        jax.__version__,
        np.__version__,
        _stamp("llvmlite", deep=False),
        _stamp("autobatch", deep=True),
    )


def _stamp(package: str, deep: bool) -> str:
    """When the files of a package were written, and how long they are: who works on it has many versions in a day."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    digest = hashlib.sha256()
    folders = [Path(found.origin).parent]
    while folders:
        with os.scandir(folders.pop()) as held:
            for entry in sorted(held, key=lambda e: e.name):
                if deep and entry.is_dir() and entry.name != "__pycache__":
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    about = entry.stat()
                    digest.update(f"{entry.name} {about.st_mtime_ns} {about.st_size}\n".encode())
    return digest.hexdigest()


logger = logging.getLogger("autobatch")

MOST = 8
"""Programs that a file keeps: those used last."""


@dataclass(frozen=True)
class ProgramFacts:
    """What calls need of a lowered function. `kinds`: the types of its results; `is_plain`: it makes no
    strings; `lists`: which results are lists in memory (`computed.with_lists`). For the other fields see
    `frontend.lower.Lowered`."""

    result: Template
    free: tuple[FreeVariable, ...]
    kinds: tuple[Type, ...]
    sites: tuple[Site, ...] = ()
    asks_numpy: bool = False
    ordered: frozenset[str] = frozenset()
    orders_batched: bool = False
    is_plain: bool = False
    lists: tuple[InMemory, ...] = ()
    heaps: tuple[HeapTemplate, ...] = ()

    @property
    def lengths(self) -> frozenset[int]:
        """The results that say how long lists are, or how many objects there are in memory."""
        return frozenset((*(x.at for x in self.lists), *(h.count for h in self.heaps)))


def facts_of(lowered: LoweredModule, results: Sequence[Operand], sites: tuple[Site, ...]) -> ProgramFacts:
    """What calls need of a function. `results`: those of its entry behind the passes, where a list in memory is its
    length and its buffers, and what says how an example has failed comes behind all."""
    kinds: list[Type] = []
    lists: list[InMemory] = []
    places: list[int] = []
    for asked in (r.type for r in lowered.module.functions[0].region.results):
        at = len(kinds)
        places.append(at)
        if isinstance(asked, List) and asked.store is None and not isinstance(results[at].type, List):
            depth = depth_of(asked)
            kinds += [r.type for r in results[at : at + depth + 1]]
            lists.append(InMemory(at, depth, element_type(asked)))
        else:
            kinds.append(asked)
    return ProgramFacts(
        renumbered(lowered.result, places),
        lowered.free,
        tuple(kinds),
        sites,
        lowered.asks_numpy,
        lowered.ordered,
        lowered.orders_batched,
        lists=tuple(lists),
        heaps=tuple(heap_renumbered(h, places) for h in lowered.heaps),
    )


@dataclass(frozen=True)
class Stored:
    """A program of a file: `code` is the name of its object."""

    facts: ProgramFacts
    made: WholeCode
    code: str


class ProgramStore:
    """The programs under one key, in a file of a folder."""

    def __init__(self, folder: Path, key: str, fun: Callable[..., Any]) -> None:
        self.path, self.fun = folder / f"{key}.json", fun

    def find(self) -> Stored | None:
        """The program whose reads are what they were; None where there is none."""
        for entry in self._entries():
            try:
                found = _restored(entry, self.fun)
            except (NotComparable, KeyError, TypeError, ValueError, IndexError) as error:
                logger.debug("a program of %s is not usable: %r", self.path, error)
                continue
            if found is not None:
                return found
        return None

    def keep(self, facts: ProgramFacts, sources: Sequence[Any], made: WholeCode, code: str) -> None:
        """Add a program, where what it depends on can be compared by another process."""
        try:
            entry = _entry(self.fun, facts, sources, made, code)
            text = json.dumps([entry, *self._entries()[: MOST - 1]]).encode()
        except (NotComparable, TypeError, ValueError) as error:
            logger.debug("the program of %s is for this process only: %s", self.fun, error)
            return
        cache.write(self.path, text)

    def _entries(self) -> list[Any]:
        held = cache.read(self.path)
        if held is None:
            return []
        try:
            found = json.loads(held)
        except ValueError:
            return []
        return found if isinstance(found, list) else []


def store_of(fun: Callable[..., Any], schema: Schema, options: Options, needs: tuple[Any, ...]) -> ProgramStore | None:
    """Where programs of a function for some types are kept; None where they are not. `needs`: what else they depend
    on."""
    folder = options.compilation_cache
    if folder is None or options.verify or options.dump is not None or schema.stores or schema.lists:
        return None
    try:
        about = (environment(), host().identity, fingerprint(fun), repr(schema), fingerprint(_plain(needs)))
    except (NotComparable, UnavailableError) as error:
        logger.debug("programs of %s are for this process only: %s", fun, error)
        return None
    return ProgramStore(folder / "programs", hashlib.sha256(repr((about, options.key)).encode()).hexdigest()[:32], fun)


def _plain(x: Any) -> Any:
    """Mappings of other kinds as dicts, and types of arrays as what they say."""
    if isinstance(x, Mapping):
        return {k: _plain(y) for k, y in x.items()}
    if type(x) in (tuple, list):
        return tuple(map(_plain, x))
    return str(x) if isinstance(x, Array) else x


# ---- a program as JSON


def _entry(
    fun: Callable[..., Any], facts: ProgramFacts, sources: Sequence[Any], made: WholeCode, code: str
) -> dict[str, Any]:
    if made.arrays or any(x != Given(x.dtype, x.shape, x.varies) for x in made.signature.operands):
        raise NotComparable("it holds arrays of its own, or reads columns")
    if facts.lists:
        raise NotComparable("it returns lists")
    reached = _Reached(fun)
    free = [_free(reached, k, f) for k, f in enumerate(facts.free)]
    return {
        "code": code,
        "free": free,
        "sources": [[reached.place(f), reached.words(f)] for f in sources if not _is_ours(f)],
        "result": _template(facts.result),
        "kinds": [_type_as_json(x) for x in facts.kinds],
        "sites": [[s.kind, s.message, _span(s.span)] for s in facts.sites],
        "asks_numpy": facts.asks_numpy,
        "ordered": sorted(facts.ordered),
        "orders_batched": facts.orders_batched,
        "operands": [[x.dtype, x.shape, x.varies] for x in made.signature.operands],
        "results": [[x.dtype, x.shape, x.summed, x.seldom] for x in made.signature.results],
        "constants": [_array(x) for x in made.program.constants],
        "scratch": made.program.scratch,
        "width": made.width,
    }


def _restored(entry: Mapping[str, Any], fun: Callable[..., Any]) -> Stored | None:
    reached, free = _Reached(fun), []
    for number, (place, name, path, words, shared) in enumerate(entry["free"]):
        owner = reached.owner(place)
        variable = FreeVariable(owner, name, tuple(map(_step, path)), None, shared)
        value = read_again(variable, _GONE)
        if value is _GONE or value is MISSING or _words(value, shared) != words:
            return None
        free.append(FreeVariable(owner, name, variable.path, value, shared))
        reached.learn(value, number)
    if any(reached.words(reached.owner(place)) != words for place, words in entry["sources"]):
        return None
    facts = ProgramFacts(
        _restored_template(entry["result"]),
        tuple(free),
        tuple(Array(d, tuple(shape), weak) for d, shape, weak in entry["kinds"]),
        tuple(Site(kind, message, Span(*span)) for kind, message, span in entry["sites"]),
        entry["asks_numpy"],
        frozenset(entry["ordered"]),
        entry["orders_batched"],
        True,
    )
    operands = tuple(Given(d, tuple(s), v) for d, s, v in entry["operands"])
    results = tuple(Result(d, tuple(s), v, seldom) for d, s, v, seldom in entry["results"])
    program = EmittedCode("", [_restored_array(x) for x in entry["constants"]], entry["scratch"])
    if not cache.is_name(entry["code"]):
        raise ValueError("the name of its code is none")
    return Stored(facts, WholeCode(program, CodeSignature(operands, results, False), entry["width"]), entry["code"])


def is_plain(module: Module) -> bool:
    """Does a program make no strings and no members of enums?"""
    return not any(isinstance(i, Apply) and i.op.name == "tag" for f in module.functions for i in walk(f.region))


def _type_as_json(type: Type) -> list[Any]:
    if not isinstance(type, Array):
        raise NotComparable(f"a result of the type {type}")
    return [type.dtype, type.shape, type.weak]


_GONE = object()


class _Reached:
    """The functions that are reached from the entry, by the free variable that holds each; -1 is the entry itself."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self._places: dict[int, int] = {}
        self._functions: dict[int, Any] = {}
        self._held: dict[int, str] = {}
        self.learn(fun, -1)

    def learn(self, value: Any, place: int) -> None:
        function = function_of(value)
        if function is not None and id(function) not in self._places:
            self._places[id(function)], self._functions[place] = place, function

    def place(self, function: Any) -> int:
        """Raises Unknown for what no free variable before has led to."""
        found = self._places.get(id(function_of(function)))
        if found is None:
            raise NotComparable(f"{function!r} is held by no variable")
        return found

    def owner(self, place: int) -> Any:
        return self._functions[place]

    def words(self, function: Any) -> str:
        """What a function is: its code, its lines, and what its names are that are modules or builtins."""
        held = function_of(function)
        if held is None:
            raise NotComparable(f"{function!r} is no function of Python")
        if id(held) not in self._held:
            self._held[id(held)] = hashlib.sha256(repr((fingerprint(held), names_of(held))).encode()).hexdigest()
        return self._held[id(held)]


def _free(reached: _Reached, number: int, free: FreeVariable) -> list[Any]:
    place = reached.place(free.owner)
    reached.learn(free.value, number)
    return [place, free.name, [list(s) for s in free.path], _words(free.value, free.shared), free.shared]


def _words(value: Any, shared: int | None) -> str:
    """What a free variable has to be: a value, or an array of a type."""
    words = type_words(value) if shared is not None else repr(fingerprint(value))
    return words if len(words) < 200 else hashlib.sha256(words.encode()).hexdigest()


def _is_ours(function: Any) -> bool:
    """Is it a part of autobatch, whose version is in the key?"""
    return str(getattr(function, "__module__", "")).split(".")[0] == "autobatch"


def _step(held: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(x) if isinstance(x, list) else x for x in held)


def _span(span: Span) -> list[Any]:
    return [span.file, span.line, span.column, span.end_line, span.end_column]


def _array(x: Any) -> list[Any]:
    held = np.asarray(x)
    return [held.dtype.str, held.shape, base64.b64encode(held.tobytes()).decode()]


def _restored_array(held: Sequence[Any]) -> Any:
    dtype, shape, content = held
    return np.frombuffer(base64.b64decode(content), np.dtype(dtype)).reshape(shape).copy()


def _template(template: Template) -> list[Any]:
    match template:
        case Output(index=index, type=Array(dtype=dtype, shape=shape, weak=weak), python=python):
            return ["output", index, dtype, shape, weak, python]
        case Container(kind="tuple" | "list" | "mixture" | "dict" as kind, children=children, keys=keys, treedef=None):
            if any(type(k) not in (int, str) for k in keys):
                raise NotComparable("a key that is neither an int nor a string")
            return [kind, list(keys), [_template(x) for x in children]]
        case _:
            raise NotComparable(f"a result of the kind {template}")


def _restored_template(held: Sequence[Any]) -> Template:
    if held[0] == "output":
        _, index, dtype, shape, weak, python = held
        return Output(index, Array(dtype, tuple(shape), weak), python)
    kind, keys, children = held
    return Container(kind, tuple(map(_restored_template, children)), tuple(keys))
