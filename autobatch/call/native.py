"""A call of a function that is machine code as a whole: no plan and no tables, arrays in and arrays out.

Arrays of JAX come back where one of them goes in, else arrays of NumPy. What JAX traces is no array: then the program
runs as XLA runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import repeat
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from autobatch.backends.cuda.device import DeviceArray, Foreign, driver, is_foreign
from autobatch.backends.cuda.program import ones
from autobatch.backends.interface import FunctionCode, FunctionProgram, Placement
from autobatch.backends.llvm.lanes.tensors import KEY
from autobatch.backends.llvm.program import MachineCode
from autobatch.call.arguments import BoundArguments, one_level
from autobatch.call.batch import Batch
from autobatch.call.examples import Examples, raw
from autobatch.call.packed import ARGUMENT, Tables
from autobatch.call.results import texts_of
from autobatch.call.specialise import SpecialisedProgram, parameters
from autobatch.compiler.choice import CallFacts, use_of
from autobatch.compiler.executables import ArrayResult, Result, StructureResult
from autobatch.data import columns
from autobatch.data.columns import WORDS, ColumnInput, Schema
from autobatch.errors import BatchError, DeviceError, UnsupportedError
from autobatch.ir.core import INT, Array, List, Ref
from autobatch.ir.jax_compat import as_jax, integers_are_wide, to_device
from autobatch.options import Options

# ---- containers
#
# Containers of arrays, level by level: dicts keep the order of their own keys, which `jax.tree` sorts.


Whole = tuple[type, ...]
"""Classes whose objects have no parts."""


def leaves(value: Any, whole: Whole) -> Iterator[Any]:
    """What is no container, in order."""
    children, _ = _parts(value, whole)
    if children is None:
        yield value
    else:
        for x in children:
            yield from leaves(x, whole)


def with_leaves(value: Any, given: Iterator[Any], whole: Whole) -> Any:
    """The same containers with other leaves."""
    children, rebuild = _parts(value, whole)
    return next(given) if children is None else rebuild([with_leaves(x, given, whole) for x in children])


def in_same_places(value: Any, given: Mapping[Any, Any], whole: Whole) -> Callable[[Mapping[Any, Any]], Any] | None:
    """How to make the like of a value from others for all that is `given`, by their names: its leaves are these very
    objects, or None. Where they are not, None."""
    names = {id(x): name for name, x in given.items()}
    held = list(leaves(value, whole))
    if not all(x is None or id(x) in names for x in held):
        return None
    wanted = iter([None if x is None else (names[id(x)],) for x in held])

    def maker(blank: Any) -> Callable[[Mapping[Any, Any]], Any]:
        children, rebuild = _parts(blank, whole)
        if children is None:
            name = next(wanted)
            return (lambda new: None) if name is None else (lambda new: new[name[0]])
        makers = [maker(x) for x in children]
        return lambda new: rebuild([make(new) for make in makers])

    return maker(with_leaves(value, repeat(None), whole))  # which holds none of the objects


def _parts(value: Any, whole: Whole) -> tuple[Sequence[Any] | None, Callable[[Sequence[Any]], Any]]:
    if isinstance(value, whole):
        return None, lambda xs: value
    children, _, rebuild = one_level(value)
    return None if children is None else [x for _, x in children], rebuild


# ---- on gpu
#
# Arguments that lie on a GPU: arrays of libraries that this package does not import.


T = TypeVar("T")

WHOLE = (Batch, np.ndarray, jax.Array, DeviceArray, int, float, str)
"""Arguments that are looked at no closer."""


def adopted(value: T) -> T:
    """Arguments with arrays on a GPU, of whichever library, as the compiler knows them."""
    if not any(map(is_foreign, leaves(value, WHOLE))):
        return value  # the objects of the caller themselves
    made: T = with_leaves(value, (Foreign(x) if is_foreign(x) else x for x in leaves(value, WHOLE)), WHOLE)
    return made


def is_there() -> bool:
    """Is there a GPU that kernels of ours run on?"""
    try:
        driver()
    except DeviceError:
        return False
    return True


def for_backend(
    asked: str, taken: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments of a call, adopted where they are for a kernel: one was asked for, or nothing was and they lie on a
    GPU."""
    if taken == "cuda" or (asked == "auto" and any_of((*args, *kwargs.values()))):
        return adopted((args, dict(kwargs)))
    return args, kwargs


def any_of(arguments: Iterable[Any]) -> bool:
    """Is one of the arguments itself such an array?"""
    return any(map(_is_there, arguments))


def on_host(value: T) -> T:
    """Arguments with copies of such arrays on the host."""
    if not any(map(_is_there, leaves(value, WHOLE))):
        return value
    copies = (np.asarray(Foreign(x) if is_foreign(x) else x) if _is_there(x) else x for x in leaves(value, WHOLE))
    made: T = with_leaves(value, copies, WHOLE)
    return made


def _is_there(x: Any) -> bool:
    return isinstance(x, DeviceArray) or is_foreign(x)


def _any(given: Iterable[Any]) -> bool:
    return any(isinstance(x, DeviceArray) for x in given)


def refuse_for_xla(function: str, given: Iterable[Any]) -> None:
    """UnsupportedError where arrays lie on a GPU, and XLA, which computes what is asked for, does not know them."""
    if _any(given):
        raise UnsupportedError(
            f"{function}: what is asked for here is computed by XLA, and an argument is an array on a GPU that is not "
            "one of JAX",
            cure="pass jax.numpy.from_dlpack(x), or numpy.asarray(x)",
        )


def refuse(function: str, backend: str, given: Iterable[Any]) -> None:
    """BatchError where an array lies on a GPU, and a back end is asked for that does not read it there."""
    if _any(given):
        raise BatchError(
            f"{function}: an argument is an array on a GPU, which backend={backend!r} does not read there; use "
            "backend='cuda', or pass numpy.asarray(x)"
        )


ARRAYS = (np.ndarray, jax.Array, DeviceArray)


def operands(
    program: SpecialisedProgram, examples: Examples, shared: Sequence[Any], runs: bool, traced: bool = False
) -> list[Any] | None:
    """What the code reads: shared inputs, what comes with the examples, then batched ones. None where the call is not
    its own: it is to do more than run, the program is no machine code, or JAX traces it (`traced`: also then)."""
    if program.key.backend != "cuda":
        refuse(program.name, program.key.backend, (*shared, *examples.arrays.values()))
    if program.compiled.native is None or not runs:
        return None
    if _is_traced(examples) and not traced:
        return None
    given = [raw(x) if hasattr(x, "dtype") else x for x in shared]
    found = [*given, *_of_examples(program, examples), *_batched(program, examples)]
    return None if _traced(found) and not traced else found


def _traced(xs: Iterable[Any]) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in xs)


def shares_traced(bound: BoundArguments) -> bool:
    """Does JAX trace an argument that all examples share?"""
    return _traced(leaves([r.value for r in bound.shared], ARRAYS))


def _is_traced(examples: Examples) -> bool:
    """Does JAX trace columns of packed examples?"""
    return bool(examples.width) and examples.leaves is not None and _traced(examples.leaves[0].columns.values())


def _of_examples(program: SpecialisedProgram, examples: Examples) -> Iterator[Any]:
    """The columns that the program reads, and where strings stand in the vocabularies."""
    assert program.compiled.native is not None
    words = dict[str, dict[Any, int]]()
    for x in program.compiled.native.inputs:
        if isinstance(x, ColumnInput) and x.name.startswith(WORDS):
            yield columns.column(program.extended(_vocabularies(examples)).get("str", ()), x.name)
            continue
        if isinstance(x, ColumnInput):
            yield examples.column(x.name)
            continue
        if x.vocabulary not in words:
            known = program.extended(_vocabularies(examples))
            words[x.vocabulary] = {w: k for k, w in enumerate(known[x.vocabulary])}
        yield np.int32(words[x.vocabulary].get(x.value, -1))


def columns_read(program: SpecialisedProgram, schema: Schema) -> list[tuple[str, bool]] | None:
    """The columns that are the operands of a function of packed examples alone, behind those that are shared, and of
    which it reads a row for each example. None where others are."""
    inputs = program_of(program).inputs
    if any(not isinstance(x, ColumnInput) or x.name.startswith(WORDS) for x in inputs):
        return None
    if any(c.array for c in program.components):
        return None
    columns = [(x.name, False) for x in inputs if isinstance(x, ColumnInput)]
    return columns + [(name, True) for name in program.argument_columns(schema).values()]


def _batched(program: SpecialisedProgram, examples: Examples) -> Iterator[Any]:
    """A column for each parameter of the entry."""
    packed = program.argument_columns(examples.schema)
    for k, (position, component) in enumerate(parameters(program.components)):
        if component.array:
            yield raw(examples.arrays[k])
            continue
        for table in range(position, position + 1 + component.optional):
            yield examples.column(packed[f"#argument{table}"])[: examples.count]


SOMEWHERE = Placement()


def program_of(program: SpecialisedProgram) -> FunctionProgram:
    """The code of a function that is such code as a whole."""
    assert program.compiled.native is not None
    return program.compiled.native


Moved = tuple[str, Any]
"""What a derivative is by: ("shared", the number of an input), ("batched", that of a leaf), ("column", a name)."""


def places(program: SpecialisedProgram, schema: Schema, shared: int) -> dict[Moved, int]:
    """Where what the code reads is among its operands, behind the first `shared`."""
    inputs = program_of(program).inputs
    found: dict[Moved, int] = {("shared", k): k for k in range(shared)}
    found |= {("column", x.name): shared + k for k, x in enumerate(inputs) if isinstance(x, ColumnInput)}
    behind = shared + len(inputs)
    found |= {("batched", k): behind + at for k, (at, _) in enumerate(parameters(program.components))}
    of_arguments = program.argument_columns(schema).items()
    return found | {("column", name): behind + int(table.removeprefix(ARGUMENT)) for table, name in of_arguments}


def gradient_of(program: SpecialisedProgram, output: int, wrt: Sequence[int]) -> FunctionCode | None:
    """The derivative of result `output` by some operands; None where there is no machine code for it."""
    compiled, key = program_of(program), (output, tuple(wrt))
    with nullcontext() if key in compiled.gradients else program.compiling("the derivative's machine code"):
        return compiled.gradient(*key)


_ONES: dict[Any, Any] = {}
"""Arrays of ones, of which calls read as many as they need."""
MOST_ONES = 1 << 22


def ones_of(count: int, dtype: Any) -> Any:
    """So many ones, which nobody writes to."""
    held = _ONES.get(dtype)
    if held is None or len(held) < count:
        held = np.ones(max(count, 64), dtype)
        held.flags.writeable = False
        if count <= MOST_ONES:
            _ONES[dtype] = held
    return held[:count]


def weights(given: Sequence[Any], status: Any, dtype: Any, wrong: bool, place: Placement) -> Any:
    """One for each example, zero for those that have failed; where the arrays of a call are."""
    if isinstance(status, DeviceArray) and not wrong:
        return ones(status, dtype, place.stream)
    return np.asarray(np.asarray(status) == 0, dtype) if wrong else ones_of(len(status), dtype)


def results(program: SpecialisedProgram, arrays: Sequence[Any], failed: Any = None) -> list[Result]:
    """What the program has computed, as XLA would have given it. `failed`: examples whose results are blank."""
    texts = texts_of(program.result) if failed is not None else ()
    dtypes = [r.dtype for r in program_of(program).results]
    kinds = program.kinds
    made: list[Result] = []
    for k, (x, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
        kind = kinds[k] if k < len(kinds) else INT
        held = x if isinstance(kind, Array) else np.asarray(x, np.int32)  # rows are put together on the host
        if failed is not None and not isinstance(held, DeviceArray):  # what stays on a GPU is zero there already
            held[failed] = -1 if isinstance(kind, Ref | List) or k in texts else 0
        array = isinstance(kind, Array) or held.ndim == 2  # of strings their letters
        made.append(ArrayResult(_typed(held, dtype)) if array else StructureResult(held, kind))
    return made


def words(program: SpecialisedProgram, examples: Examples) -> Tables:
    """The vocabularies of strings and members of enums among the results."""
    return program.words(_vocabularies(examples)) if program.returned_words else {}


def _vocabularies(examples: Examples) -> Mapping[str, tuple[Any, ...]]:
    return examples.on_host().vocabularies if examples.width else {}


def _typed(x: Any, dtype: str) -> Any:
    return jax.random.wrap_key_data(_of_jax(x)) if dtype == KEY else x


def backend_for(examples: Examples, shared: Sequence[Any], runs: bool, derives: bool, options: Options) -> str:
    """What a call takes for which nobody asked a back end: a `Use` is machine code, if it pays. Not where JAX moves
    arguments of the call, nor where it was said how XLA is to run loops or products."""
    if any_of((*examples.arrays.values(), *shared)):
        return "cuda"
    free = options.loops == "auto" and options.products == "auto" and examples.unfit is None
    platform = jax.default_backend()
    call = CallFacts(
        runs and free,
        derives,
        examples.structure is not None,
        examples.count,
        examples.kept,
        all(isinstance(c.type, Array) for c in examples.components),
        _is_traced(examples) or _traced(leaves(list(shared), ARRAYS)),
        platform,
        platform == "gpu" and is_there(),
    )
    return use_of(call) or "xla"


def as_given(result: Any, given: Sequence[Any], of_jax: bool = False) -> Any:
    """The result with arrays of the kind that the operands are of; or of JAX's in any case."""
    if isinstance(result, np.ndarray) and not isinstance(result, ARRAYS[1:]):
        to_jax = (of_jax or any(isinstance(x, jax.Array) for x in given)) and not _is_wide(result)
        return as_jax(result) if to_jax else result
    if type(result) is list and all(type(x) is np.ndarray for x in result):
        return as_arrays(result, given, of_jax)
    all_of_them = list(leaves(result, ARRAYS))
    found = list({id(x): x for x in all_of_them}.values())  # what parts of a result have in common stays one array
    if not of_jax and not any(isinstance(x, jax.Array) for x in given):
        made = [_numpy(x) for x in found]
    else:
        narrow = [x for x in found if not _is_wide(x)]
        of_device = any(isinstance(x, DeviceArray) for x in narrow)
        rest = iter([_of_jax(x) for x in narrow] if of_device else as_jax(narrow))
        made = [x if _is_wide(x) else next(rest) for x in found]
    of = {id(x): y for x, y in zip(found, made, strict=True)}
    return with_leaves(result, (of[id(x)] for x in all_of_them), ARRAYS)


def as_arrays(xs: Sequence[Any], given: Sequence[Any], of_jax: bool) -> Sequence[Any]:
    """As `as_given`, of arrays of NumPy."""
    to_jax = of_jax or any(isinstance(x, jax.Array) for x in given)
    return [x if _is_wide(x) else to_device(x) for x in xs] if to_jax else xs


def _is_wide(x: Any) -> bool:
    """Has it integers for which JAX has no bits? Its next operation would drop those above 32, and say nothing."""
    return isinstance(x, np.ndarray) and x.dtype == np.int64 and integers_are_wide()


def _of_jax(x: Any) -> Any:
    return jnp.from_dlpack(x) if isinstance(x, DeviceArray) else jnp.asarray(x)


def _numpy(x: Any) -> Any:
    is_key = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(x) if isinstance(x, jax.Array) and not is_key else x


# ---- called back
#
# Machine code inside of what JAX traces: a callback of XLA's executable, with derivatives in reverse.
#
#     jax.jit(f)(p, batch)     XLA has no form for it, or the batch no plan:     pure_callback(code, p, columns)
#     jax.grad(...)            its derivative is machine code too:               pure_callback(gradient, p, columns, ct)
#
# XLA copies the operands for each call of the host, and fuses nothing with it: a plan (`batch.plan(f)`) is faster where
# XLA computes whole levels at once.


def fits(program: SpecialisedProgram) -> bool:
    """Are the results arrays whose shapes are known when JAX traces?"""
    code = program.compiled.native
    return isinstance(code, MachineCode) and program.returns_arrays and not program.masks


def called(code: MachineCode, operands: Sequence[Any], rows: int, place: Placement) -> list[Any]:
    """The results of machine code for operands that JAX traces."""
    types = zip(code.shapes(operands, rows), code.writes, strict=True)
    shapes = [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in types]

    def on_host(*given: Any) -> list[Any]:
        found, _ = code.run([np.asarray(x) for x in given], rows, place)
        return [*found[:-1], found[-1].copy()] if code.seldom else found  # the next call has that memory

    return list(jax.pure_callback(on_host, shapes, *operands, vmap_method="sequential"))


def differentiable(
    program: SpecialisedProgram, operands: Sequence[Any], rows: int, place: Placement, refused: Exception
) -> list[Any]:
    """The results of a function that is machine code as a whole, which JAX can differentiate in reverse. `refused`: why
    it is not XLA's, which is raised where its derivative is no machine code."""
    code = program_of(program)
    assert isinstance(code, MachineCode)

    @jax.custom_vjp
    def call(*given: Any) -> list[Any]:
        return called(code, given, rows, place)

    def forward(*given: Any) -> tuple[list[Any], tuple[Sequence[Any], Wanted]]:
        values = [x.value for x in given]
        return call(*values), (values, Wanted(k for k, x in enumerate(given) if x.perturbed))

    def backward(kept: tuple[Sequence[Any], Wanted], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        given, wrt = kept
        total: list[Any] = [None] * len(given)
        for number, ct in enumerate(cotangents):
            if isinstance(ct, SymbolicZero):
                continue
            for k, x in zip(wrt, pulled(program, number, wrt, [*given, ct], rows, place, refused), strict=True):
                total[k] = x if total[k] is None else total[k] + x
        return tuple(total)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call(*operands)


@jax.tree_util.register_static
class Wanted(tuple[int, ...]):
    """The operands by which a derivative is taken."""


def pulled(
    program: SpecialisedProgram,
    output: int,
    wrt: Sequence[int],
    operands: Sequence[Any],
    rows: int,
    place: Placement,
    refused: Exception,
) -> list[Any]:
    """The derivative of the sum of a result, weighted by the last operand."""
    made = gradient_of(program, output, wrt)
    if not isinstance(made, MachineCode):
        raise refused
    return called(made, operands, rows, place)
