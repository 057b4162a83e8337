"""What a call means: by the kind of the callee. "Trace what JAX can trace, parse what it can't." """

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import types
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np

from autobatch.errors import Span, UnsupportedError
from autobatch.frontend.library import dynamic_arrays, equality, object_graphs, prelude
from autobatch.frontend.library.builtin_functions import BUILTINS, METHODS, packed
from autobatch.frontend.library.domains import TRACED_FAILURES, guard
from autobatch.frontend.library.gradients import gradient, has_gradient, transform_of
from autobatch.frontend.library.graphs import viewed
from autobatch.frontend.library.numpy_arrays import (
    OUTSIDE,
    REFUSED,
    is_of_numpy,
    jax_name,
    marked,
    of_numpy,
    takes_array,
)
from autobatch.frontend.library.object_graphs import COPIES
from autobatch.frontend.library.prelude import CHOICES, LIBRARY, STANDARD, index_of, join
from autobatch.frontend.library.stacking import stacking
from autobatch.frontend.library.strings import call_method, method_of
from autobatch.frontend.lowering import functions, iterators, printing, unions
from autobatch.frontend.lowering.attributes import attribute, bind, class_list, classes_of, is_class, written
from autobatch.frontend.lowering.calls import call_function, call_local, lookup
from autobatch.frontend.lowering.construct import construct, replaced
from autobatch.frontend.lowering.functions import with_names_copied
from autobatch.frontend.lowering.joins import captured, conditional, stored
from autobatch.frontend.lowering.numbers import as_number, is_number, present
from autobatch.frontend.lowering.operators import OPERATORS
from autobatch.frontend.lowering.selection import apply_choice, of_each
from autobatch.frontend.lowering.state import (
    Ended,
    Impure,
    LoweringState,
    UnseenInTraces,
    expand,
    fold_call,
    hand_out,
    wrap,
)
from autobatch.frontend.lowering.tracing import Untraceable, trace, trace_numbers
from autobatch.frontend.lowering.unions import taken_as
from autobatch.frontend.memory import list_heap
from autobatch.frontend.memory.heap import NeedsMemory, is_dict_value, is_list
from autobatch.frontend.memory.list_heap import copied
from autobatch.frontend.memory.mutation import changes, refuse_by_another_name
from autobatch.frontend.syntax import generators
from autobatch.frontend.syntax.generators import begun
from autobatch.frontend.syntax.scopes import MUTATORS
from autobatch.frontend.syntax.sources import LIBRARIES, is_bound_method, is_user_function, mutated
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import inputs, is_array
from autobatch.ir.core import Array, Ref

MEANINGS = {
    **BUILTINS, **OPERATORS, **STANDARD, **CHOICES, **LIBRARY, **COPIES, **object_graphs.MARKS, **equality.MARKS,
    **TRACED_FAILURES,
    print: printing.called,
}  # fmt: skip
"""What functions of Python and of its library do; the last table that has one tells."""
FOLDED = (hash, vars, dir)
"""Of a known object they give what is known; without one, `vars()` and `dir()` name variables, of whoever calls."""
_BY_METHOD: Mapping[Any, str] = {int: "__int__", float: "__float__", abs: "__abs__", round: "__round__"}
"""Functions that objects of the user have methods for."""
_PURE = frozenset(
    {abs, all, any, enumerate, float, frozenset, int, len, list, max, min, ord, reversed, round, set, sorted, str, sum}
    | {tuple, zip}
)
"""Functions that may be tried on samples: which types they take says what the others raise."""
TRANSFORMS = frozenset(
    {jax.vmap, jax.grad, jax.value_and_grad, jax.jit, jax.checkpoint, jax.jacfwd, jax.jacrev, jax.hessian, jax.jacobian}
)

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def call(s: LoweringState, function: v.Abstract, args: Arguments, kwargs: Named, span: Span) -> v.Abstract:
    """The result of a call."""
    if s.dead:  # what is called has no such attribute in any example that comes here
        raise Ended
    function = present(s, function)
    match function:
        case v.Static():
            if changes(function):  # `list.append(xs, x)`
                refuse_by_another_name(s, function)
            return call_object(s, function, args, kwargs)
        case v.LocalFunction():
            generator = begun(s, function, args, kwargs)
            functions.check_keys(s, function, [*args, *kwargs.values()])
            return call_local(s, function, args, kwargs) if generator is None else generator
        case v.Method(name=v.DEFERRED):
            return library(s, _run_deferred, [function, *args], kwargs)
        case v.Method(function=v.Static(value=None), receiver=v.Leaf() as receiver):
            return _by_class(s, receiver, function.name, args, kwargs)
        case v.Method(function=v.Static(value=None), receiver=v.MemoryRow()):
            return list_heap.called(s, function, bind, args, kwargs)
        case v.Method(function=inner, receiver=receiver):
            if isinstance(inner, v.Static) and inner.value in (list.index, tuple.index):
                return index_of(s, receiver, args, kwargs)
            if isinstance(inner, v.Static) and inner.value in METHODS:
                method = METHODS[inner.value]
                made = None if changes(inner) else of_each(s, args, lambda t, *xs: method(t, receiver, xs, kwargs))
                return method(s, receiver, args, kwargs) if made is None else made
            if isinstance(inner, v.Static) and changes(inner):
                refuse_by_another_name(s, inner)
            return call(s, inner, [receiver, *args], kwargs, span)
        case v.Choice():
            return apply_choice(s, function, lambda t, f: call(t, f, args, kwargs, span))
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return call(s, attribute(s, function, "__call__"), args, kwargs, span)
        case v.Record(kind="object") | v.MemoryRow():
            return call(s, attribute(s, function, "__call__"), args, kwargs, span)
        case v.Record(kind="pytree", cls=cls) if cls is not None:
            s.refuse(
                f"an object of {cls.__name__} that is made for each example cannot be called",
                "make it outside and pass it as a shared argument",
            )
        case _:
            s.refuse("this value cannot be called", "call a function, a class, or an object with __call__")


def _by_class(s: LoweringState, receiver: v.Leaf, name: str, args: Arguments, kwargs: Named) -> v.Abstract:
    """A method that classes of the examples define each in its own way: a chain of class tests."""
    assert isinstance(receiver.type, Ref)
    classes = class_list(s, receiver.type)
    groups: dict[Any, set[int]] = {}
    for position in sorted(classes_of(s, receiver)):
        cls = classes[position].cls
        found = inspect.getattr_static(cls, name, None) if cls is not None else None
        if found is not None:
            groups.setdefault(found, set()).add(position)
    ordered = list(groups.items())

    def at(t: LoweringState, k: int) -> v.Abstract:
        found, positions = ordered[k]
        cls = classes[min(positions)].cls
        assert cls is not None
        if k == len(ordered) - 1:
            narrowed = v.Leaf(receiver.operand, frozenset(positions))
            return t.call(bind(t, found, narrowed, cls, name), args, kwargs)
        hit = is_class(t, receiver.operand, frozenset(positions))
        narrowed = v.Leaf(receiver.operand, frozenset(positions))
        return conditional(
            t, hit, lambda u: u.call(bind(u, found, narrowed, cls, name), args, kwargs), lambda u: at(u, k + 1)
        )

    return at(s, 0)


def call_object(s: LoweringState, function: v.Static, args: Arguments, kwargs: Named) -> v.Abstract:
    """A call of a Python object known while compiling."""
    held = function.value
    if (made := with_names_copied(held, args)) is not None:
        return made
    if isinstance(held, functools.partial):
        given = [_part(s, function, a, ("attribute", "args"), ("item", k)) for k, a in enumerate(held.args)]
        named = {k: _part(s, function, a, ("attribute", "keywords"), ("item", k)) for k, a in held.keywords.items()}
        return s.call(_part(s, function, held.func, ("attribute", "func")), [*given, *args], {**named, **kwargs})
    if inner := getattr(held, "__autobatch_function__", None):
        return s.call(v.Static(inner), args, kwargs)
    if isinstance(held, functools._lru_cache_wrapper):
        return functions.call_cached(s, held, args, kwargs)
    if (bound := functions.bound_of(function)) is not None and args and isinstance(args[0], v.LocalFunction):
        return functions.cached(s, args[0], bound)
    if is_bound_method(held):
        receiver = _part(s, function, held.__self__, ("attribute", "__self__"))
        return s.call(v.Static(held.__func__), [receiver, *args], kwargs)
    if held is iterators.step_by_step:
        return iterators.generator_of(s, args[0])
    if (stepped := generators.called(s, held, args, kwargs)) is not None:
        return stepped
    if held is next and args and written(s, present(s, args[0]), "__next__"):
        return prelude.stepped(s, args, kwargs)
    if held is iter and len(args) == 1 and s.frame.source.name.endswith("__iter__"):
        return args[0]  # `__iter__` says what a loop runs over; it is not stepped through
    if held is iter and len(args) == 1:
        return iterators.iterator_of(s, args[0])
    if (message := _refused(held)) is not None and not (held in FOLDED and args and _all_static(args, kwargs)):
        raise Impure(message[0], s.span, message[1])
    if (method := method_of(held)) is not None and not _all_static(args, kwargs):
        return _of_string(s, held, method, args, kwargs)
    if _takes_numbers(held, args):
        args = [as_number(s, taken_as(s, a, unions.is_number)) for a in args]
    elif held in (float, int):
        args = [as_number(s, a) for a in args]
    if args and _hashable(held) and (name := _BY_METHOD.get(held)) and written(s, viewed(s, args[0]), name):
        return s.call(attribute(s, viewed(s, args[0]), name), args[1:], kwargs)
    of_one = lambda t, *xs: call_object(t, function, xs, kwargs)
    takes_one = not is_user_function(held) and held not in (isinstance, type)
    python = held if _hashable(held) and (held in _PURE or getattr(held, "__module__", "") == "math") else None
    if takes_one and (made := of_each(s, args, of_one, python)) is not None:
        return made
    if _hashable(held) and held in MEANINGS:
        return MEANINGS[held](s, args, kwargs)
    if (made := packed(s, held, args)) is not None:
        return made
    if (made := replaced(s, held, args, kwargs)) is not None:
        return made
    if _hashable(held) and (made := dynamic_arrays.made(s, held, args, kwargs)) is not None:
        return made
    if is_of_numpy(held) and jax_name(held) is not held:
        if args and takes_array(held) and _holds_numbers(args[0]):
            args = [s.call(v.Static(np.array), [args[0]]), *args[1:]]
        made = call_object(s, v.Static(jax_name(held)), args, kwargs)
        return marked(made, of_numpy(held, (*args, *kwargs.values())))
    guard(s, held, args)
    held = jax_name(held)
    if isinstance(held, type) and held.__module__.split(".")[0] not in ("jax", "jaxlib", "numpy"):
        return construct(s, held, args, kwargs)
    if is_user_function(held):
        generator = begun(s, function, args, kwargs)
        return generator if generator is not None else user_function(s, held, args, kwargs)
    if isinstance(held, types.WrapperDescriptorType) and held.__name__ in _CHANGES:
        s.refuse(f"{held.__name__} of {held.__objclass__.__name__} is called by name", "write the assignment")
    if inspect.isfunction(held) or inspect.isbuiltin(held) or callable(held):
        return _other(s, function, held, args, kwargs)
    s.refuse(f"{type(held).__name__!r} object is not callable", "call a function, a class, or an object with __call__")


_CHANGES = ("__setattr__", "__delattr__", "__setitem__", "__delitem__", "__iadd__", "__ior__", "__imul__")
"""What Python's own classes do to an object."""


def _holds_numbers(value: v.Abstract) -> bool:
    """Is it a list or tuple of numbers, as JAX takes none?"""
    return isinstance(value, v.Record) and value.kind in ("list", "tuple") and all(map(is_number, value.items))


def _part(s: LoweringState, whole: v.Static, part: Any, *steps: tuple[str, Any]) -> v.Abstract:
    """Something that a Python object holds, with the way there."""
    origin = functools.reduce(v.FreeOrigin.child, steps, whole.origin) if whole.origin is not None else None
    return wrap(s.context, part, origin)


def _of_string(s: LoweringState, held: Any, name: str, args: Arguments, kwargs: Named) -> v.Abstract:
    """A method of `str`, called on a string of the examples or with one."""
    if kwargs:
        s.refuse(f"{name}() of a string takes no named arguments here", "pass them by position")
    if isinstance(held, types.BuiltinFunctionType):
        args = [v.Static(held.__self__), *args]
    if name == "join" and isinstance(args[1], v.Generator):
        args = [args[0], s.context.rules.materialise(s, args[1])]
    if name == "join" and not isinstance(words := expand(s, copied(s, args[1])), v.Record):
        return join(s, [args[0], words])
    return call_method(s, name, args[0], args[1:])


def _other(s: LoweringState, function: v.Static, held: Any, args: Arguments, kwargs: Named) -> v.Abstract:
    """A library function, a function transformed by JAX, or an object with `__call__`."""
    method = inspect.getattr_static(type(held), "__call__", None)
    if is_user_function(method) and not hasattr(held, "__wrapped__"):
        return s.call(v.Static(method), [function, *args], kwargs)
    if isinstance(held, types.BuiltinFunctionType) and _all_static(args, kwargs):
        return fold_call(s, held, args, kwargs)
    if not isinstance(held, types.FunctionType | types.BuiltinFunctionType) and not jax.tree_util.all_leaves([held]):
        return library(s, type(held).__call__, [function, *args], kwargs)  # a module: its arrays may be free variables
    return library(s, held, args, kwargs)


def _refused(held: Any) -> tuple[str, str] | None:
    module = getattr(held, "__module__", None) or ""
    if not isinstance(module, str):
        return None
    owner = getattr(held, "__self__", None)
    if isinstance(owner, types.ModuleType) or owner is None:
        pass
    else:
        module = type(owner).__module__
        if isinstance(owner, (list, dict, set, deque)) and held.__name__ in MUTATORS:
            return (
                f"{held.__name__}() of a {type(owner).__name__} that was made outside this function would run once, "
                "not for each example",
                "make it in the function, and return it",
            )
    if module == "random" or module.startswith("numpy.random"):
        return REFUSED["random"]
    if module.split(".")[0] in OUTSIDE:
        return (
            f"{module}.{getattr(held, '__name__', '')}() cannot be compiled: it would run once, not for each example",
            "call it outside and pass the result",
        )
    return REFUSED.get(getattr(held, "__name__", "")) if module == "builtins" else None


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _takes_numbers(held: Any, args: Arguments) -> bool:
    """Is it a function of numbers or arrays?"""
    if held in (min, max):
        return len(args) > 1
    module = getattr(held, "__module__", None) or ""
    return held in (complex, abs, round, pow, divmod) or str(module).split(".")[0] in LIBRARIES


def _all_static(args: Arguments, kwargs: Named) -> bool:
    return all(isinstance(a, v.Static) and not inputs(a.value) for a in (*args, *kwargs.values()))


def user_function(s: LoweringState, function: types.FunctionType, args: Arguments, kwargs: Named) -> v.Abstract:
    """A function of the user: lowered; traced where its text has something that cannot be lowered."""
    if not _traceable(args, kwargs):
        return call_function(s, function, args, kwargs)
    take_back = s.mark()
    try:
        return call_function(s, function, args, kwargs)
    except (Impure, UnseenInTraces, NeedsMemory):
        raise
    except UnsupportedError as refusal:
        text = lookup(s, function).node
        if not may_be_traced(text) or (any(map(_is_container, (*args, *kwargs.values()))) and _changes_given(text)):
            raise
        take_back()
        try:
            return trace(s, function, args, kwargs)
        except (Untraceable, UnsupportedError):
            raise refusal from None


def _is_container(value: v.Abstract) -> bool:
    is_object = isinstance(value, v.MemoryRow) or (isinstance(value, v.Record) and value.kind == "object")
    is_static = isinstance(value, v.Static) and isinstance(value.value, list | dict)
    return is_object or is_static or is_list(value) or is_dict_value(value)


def _changes_given(node: ast.AST) -> bool:
    """May a function change lists and dicts that it is given? A trace would hand it copies."""
    given = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)} | {"list", "dict"}
    return not given.isdisjoint(mutated(node))


def may_be_traced(node: ast.AST) -> bool:
    """Has the text nothing that a trace would run once, or answer by the type of the tracer?"""
    for n in ast.walk(node):
        match n:
            case ast.Global() | ast.Nonlocal() | ast.With() | ast.Try():
                return False
            case ast.Name(id=name) if name in REFUSED or name in ("isinstance", "type"):
                return False
            case ast.Compare(ops=ops, comparators=others):
                identity = any(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                if identity and not all(isinstance(o, ast.Constant) and o.value is None for o in others):
                    return False
    return True


def _traceable(args: Arguments, kwargs: Named) -> bool:
    """Are all arguments numbers, shared or static?"""
    return all(_is_traceable(a) for a in (*args, *kwargs.values()))


def _is_traceable(value: v.Abstract) -> bool:
    match value:
        case v.Static():
            return True
        case v.Leaf(operand=operand):
            return isinstance(operand.type, Array)
        case v.Record(items=items):
            return all(map(_is_traceable, items))
        case _:
            return False


def library(s: LoweringState, function: Any, args: Arguments, kwargs: Named) -> v.Abstract:
    """A function of JAX or of another library."""
    args = [_argument(s, a) for a in args]
    kwargs = {k: _argument(s, a) for k, a in kwargs.items()}
    if (found := stacking(s, function, args, kwargs)) is not None:
        return found
    if args and ((_hashable(function) and function in TRANSFORMS) or hasattr(function, "__autobatch_transform__")):
        receiver = v.Record("tuple", (0, 1, 2), (v.Static(function), _tuple(args), _dict(kwargs)))
        return v.Method(v.Static(_transform), receiver, v.DEFERRED)
    if _all_static(args, kwargs):
        static = _try_static(s, function, args, kwargs)
        if static is not None:
            return static
    try:
        if not kwargs and _is_of_numbers(function, args):
            return trace_numbers(s, function, args)
        return trace(s, function, args, kwargs)
    except Untraceable as error:
        if function is _run_deferred and _is_of_control(error.error):
            assert isinstance(args[0], v.Method)
            if has_gradient(transform_of(args[0])):
                return gradient(s, args[0], args[1:], kwargs, functools.partial(call, span=s.span))
            s.refuse(
                f"{_called(function, args)}() of a function that branches or loops on computed numbers", OF_CONTROL
            )
        s.refuse(
            f"{_called(function, args)}() cannot be traced: {_reason(error.error)}", _cure(error.error, function, args)
        )


def _is_of_numbers(function: Any, args: Arguments) -> bool:
    """Is this a function of JAX's, of single floats? (What it does with arrays may depend on where it is called, and an
    integer may be a shape, whose value a trace has found out.)"""
    if not str(getattr(function, "__module__", "")).startswith("jax.") or not _hashable(function):
        return False
    return all(isinstance(a, v.Leaf) and isinstance(a.type, Array) and _is_single_float(a.type) for a in args)


def _is_single_float(type: Array) -> bool:
    return type.is_scalar and type.dtype.startswith(("float", "bfloat"))


OF_CONTROL = (
    "inside it write a choice as jnp.where or jax.lax.cond, a loop as jax.lax.scan; of jax.grad and jax.value_and_grad "
    "it may branch and loop as it likes"
)


def _is_of_control(error: Exception) -> bool:
    """Did JAX stop where a number of the program was to decide something?"""
    return isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError
    ) or "of an example was given where an array" in str(error)


def _called(function: Any, args: Arguments) -> str:
    """The name of what is called; of an object that is called, its class; of what a transform made, the transform."""
    if function is _run_deferred and isinstance(args[0], v.Method) and isinstance(args[0].receiver, v.Record):
        function = next((i.value for i in args[0].receiver.items if isinstance(i, v.Static)), function)
    name: str = getattr(function, "__name__", type(function).__name__)
    return type(args[0].value).__name__ if name == "__call__" and isinstance(args[0], v.Static) else name


def _try_static(s: LoweringState, function: Any, args: Arguments, kwargs: Named) -> v.Abstract | None:
    """The result of a call without any value of the program, unless it is made of arrays."""
    given = [a.value for a in args if isinstance(a, v.Static)]
    named = {k: a.value for k, a in kwargs.items() if isinstance(a, v.Static)}
    hand_out(s.context, *given, *named.values())
    try:
        result = function(*given, **named)
    except Exception:
        return None
    if any(map(is_array, jax.tree.leaves(result))):
        return None
    return v.Static(result)


def _transform(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _run_deferred(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _tuple(args: Arguments) -> v.Record:
    return v.Record("tuple", tuple(range(len(args))), tuple(args))


def _dict(kwargs: Named) -> v.Record:
    return v.Record("dict", tuple(kwargs), tuple(kwargs.values()))


def _argument(s: LoweringState, value: v.Abstract) -> v.Abstract:
    value = dynamic_arrays.as_value(s, stored(s, copied(s, as_number(s, present(s, value)))))
    if isinstance(value, v.Record):
        items = tuple(_argument(s, i) for i in value.items)
        return v.Record(value.kind, value.keys, items, value.cls, value.treedef)
    return captured(s, value)


def _reason(error: Exception) -> str:
    if _needs_constant(error):
        return "a shape, or a Python number that it needs, is known only when the program runs"
    first = str(error).strip().split("\n")[0]
    if "__array__()" in first or "Tracer" in first:
        return "it takes arrays of NumPy, whose numbers are known only when the program runs"
    return first.replace("traced array with shape", "an array")


def _of_jax(function: Any, args: Arguments) -> str:
    """What to write for a function of SciPy: JAX's, where it has one."""
    receiver = args[0].value if args and isinstance(args[0], v.Static) else None
    name, owner = getattr(function, "__name__", ""), getattr(receiver, "name", "")  # scipy.stats.norm is an object
    path = f"{owner}.{name}" if isinstance(owner, str) and owner else name
    if callable(getattr(jnp.linalg, name, None)):
        return f"write jnp.linalg.{name}"
    for part in (m.name for m in pkgutil.iter_modules(jax.scipy.__path__)):
        held: Any = importlib.import_module(f"jax.scipy.{part}")
        for step in path.split("."):
            held = getattr(held, step, None)
        if callable(held):
            return f"write jax.scipy.{part}.{path}"
    return "write it with jax.numpy and jax.scipy, or call it outside of the function"


def _needs_constant(error: Exception) -> bool:
    return isinstance(error, jax.errors.ConcretizationTypeError) or "concrete values" in str(error)


def _cure(error: Exception, function: Any, args: Arguments) -> str:
    if str(getattr(function, "__module__", None)).startswith("scipy.") or isinstance(function, np.ufunc):
        return _of_jax(function, args)
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return "write jnp.where(mask, new, x), which is of one shape whatever the mask is"
    if _needs_constant(error):
        return "name the argument that decides it in static=(...), or use a size that does not depend on the example"
    return "check the types and shapes of its arguments"
