"""Derivatives of batched functions, and of any function that JAX can trace.

    ab.vjp(f, p, batch)               the result, and the pullback of its cotangents
    ab.grad(f)(p, batch)              of the SUM over examples of the number that one example returns
    ab.jvp, ab.hvp                    forward mode, and forward over reverse
    ab.per_example_grad(f)(p, batch)  one gradient of the shared arguments for each example

Structure is constant under differentiation: the derivative is that of the path taken. A call outside `jax.jit` runs one
executable for value and gradient, compiled once for each size class; inside, these are operations like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.api.batched import Batched
from autobatch.call import linear, plain
from autobatch.call.arguments import ArgumentSlot, BoundArguments, Form, Raw, describe, fill, is_array, one_level, parts
from autobatch.call.batch import Batch
from autobatch.call.gradients import Selection, count_floats, derivative_of, fit, fit_examples, has_derivative, select
from autobatch.call.linear import Linear, LinearCall, Tree
from autobatch.call.prepared import Prepared
from autobatch.call.warm import MISS
from autobatch.compiler.executables import forward_mode, forward_over_reverse, moves
from autobatch.errors import BatchError, entry

# ---- traced
#
# Derivatives of any function that JAX can trace: floats among its arguments move, everything else stays.
#
# What is no float (integers, strings, columns of structure in a Batch) is passed on as it is, and its derivative is
# None.


Function = Callable[..., Any]


class FloatSplit:
    """Some arguments of a call, as floats and the rest."""

    def __init__(self, args: Sequence[Any], chosen: Sequence[int]) -> None:
        self.args, self.chosen = tuple(args), tuple(chosen)
        self.leaves, self.structure = jax.tree.flatten([args[k] for k in self.chosen])
        self.floats = [jnp.asarray(x) for x in self.leaves if has_derivative(x)]

    def call(self, function: Function, kwargs: Mapping[str, Any], floats: Sequence[Any]) -> Any:
        given = iter(floats)
        parts = jax.tree.unflatten(self.structure, [next(given) if has_derivative(x) else x for x in self.leaves])
        args = list(self.args)
        for k, part in zip(self.chosen, parts, strict=True):
            args[k] = part
        return function(*args, **kwargs)

    def entries(self, derivatives: Sequence[Any]) -> list[Any]:
        """Derivatives in the structure of the arguments."""
        given = iter(derivatives)
        return [derivative_of(self.args[k], given, has_derivative) for k in self.chosen]

    def tangents(self, given: Sequence[Any], what: str) -> list[Any]:
        """One tangent for each float; None stands for zeros."""
        arrays = [jax.tree.map(lambda x: jnp.asarray(x) if has_derivative(x) else x, self.args[k]) for k in self.chosen]
        made: list[Any] = []
        for k, (argument, tangent) in enumerate(zip(arrays, given, strict=True)):
            made += fit(argument, tangent, f"{what} of argument {k}", missing=True)
        return made


def traced_vjp(function: Function, args: Sequence[Any], what: str) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result, and its pullback."""
    split = FloatSplit(args, range(len(args)))

    def run(floats: Sequence[Any]) -> tuple[list[Any], Any]:
        result = split.call(function, {}, floats)
        return [x for x in jax.tree.leaves(result) if moves(x)], result

    _, back, result = jax.vjp(run, split.floats, has_aux=True)

    def pullback(given: Any) -> tuple[Any, ...]:
        by_example = isinstance(given, list) and not isinstance(result, list)
        fitted = fit_examples(result, given, len(given), what) if by_example else fit(result, given, what)
        return tuple(split.entries(back(fitted)[0]))

    return result, pullback


def with_gradient(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], chosen: Sequence[int], has_aux: bool, what: str
) -> tuple[Any, list[Any]]:
    """The result, and the derivative of the sum of its numbers."""
    split = FloatSplit(args, chosen)
    gradient, result = jax.grad(lambda xs: _summed(split.call(function, kwargs, xs), has_aux, what), has_aux=True)(
        split.floats
    )
    return result, split.entries(gradient)


def pushed(function: Function, args: Sequence[Any], tangents: Sequence[Any], what: str) -> tuple[Any, Any]:
    """The result and its tangent."""
    split = FloatSplit(args, range(len(args)))
    given = split.tangents(tangents, what)

    def run(floats: Sequence[Any]) -> tuple[list[Any], Any]:
        result = split.call(function, {}, floats)
        return [x for x in jax.tree.leaves(result) if moves(x)], result

    with forward_mode():
        _, dots, result = jax.jvp(run, (split.floats,), (given,), has_aux=True)
    return result, derivative_of(result, iter(dots))


def curvature(
    function: Function, args: Sequence[Any], tangents: Sequence[Any], chosen: Sequence[int], what: str
) -> list[Any]:
    """How the gradient changes along tangents."""
    split = FloatSplit(args, range(len(args)))
    given = split.tangents(tangents, what)
    gradient = jax.grad(lambda xs: _summed(split.call(function, {}, xs), False, what)[0])
    with forward_over_reverse():
        _, dots = jax.jvp(gradient, (split.floats,), (given,))
    entries = split.entries(dots)
    return [entries[k] for k in chosen]


def _summed(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise BatchError(f"{what}: with has_aux=True the function returns a pair (number, anything)")
    values = result[0] if has_aux else result
    known = getattr(values, "dtype", None)
    if known not in (jnp.float32, jnp.float64) or values.ndim > 1:
        words = f"{known}[{','.join(map(str, values.shape))}]" if known is not None else type(values).__name__
        raise BatchError(
            f"{what}: the function returns {words}, and the derivative is that of a number, a float32[], or of the "
            "numbers of a batch, float32[B]"
        )
    return values.sum(), result


Argnums = int | Sequence[int]


@entry
def vjp(f: Function, *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The result of a call, and its pullback.

    `pullback(ct)` is a tuple with one entry for each argument: of a shared one in its structure, summed over the batch;
    of a batched one a `Batch` for a list or a `Batch`, stacked arrays for stacked arrays. What has no derivative is
    None. Where several arguments are packed, each `Batch` has the columns of all of them, as `pairs.args` have.

    `ct` has the structure of the result, or is a list with one cotangent for each example, in the structure of what one
    example returns; where there are no floats anything is accepted.

    Raises BatchError where a float of the result has no cotangent, or one of another shape.

    >>> import autobatch as ab
    >>> scaled = ab.batched(lambda w, x: w * x, in_axes=(None, 0))
    >>> out, pullback = ab.vjp(scaled, 2.0, np.arange(3.0))
    >>> pullback(out)
    (Array(10., dtype=float32), Array([0., 4., 8.], dtype=float32))
    """
    what = f"ab.vjp({_name(f)}): the cotangent"
    if (batched := _batched(f)) is None:
        return traced_vjp(f, args, what)
    selection = _select(batched, batched.bound(args, {}), range(len(args)), len(args))

    def linear() -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        found = Linear(_name(f), batched.programs(selection.bound, bool(selection.slots)), selection, what)
        return found.result, found.pull

    return batched.room.enough_for(linear)


@entry
def grad(f: Function, argnums: Argnums = 0, has_aux: bool = False, sparse: bool = False) -> Function:
    """The derivative of the SUM over examples of the float32[] (float64[] under x64) that one example returns.

    Args:
      f: a batched function, or any function that JAX can trace and that returns float32[] or float32[B].
      argnums: which positional arguments to differentiate by: a number, or several, then the result is a tuple.
      has_aux: one example returns a pair (number, anything), and the result is (gradient, anything of all examples).
      sparse: the gradient of a shared array of which `f`, a batched function, reads nothing but rows (`table[word]`,
        `jnp.take(table, word, axis=0)`, also several times and by computed numbers) is an `ab.SparseRows`: one row for
        each activation that reads one, or for each distinct word where activations share them. No array of the size of
        the table is made. What is read as a whole too, or by a loop over numbers that became one `scan`, and all else
        has dense gradients; so has everything inside `ab.disable()`. `ab.sparse(optimiser)` and `ab.apply_updates`
        take both.

    The function that is returned takes the arguments of `f`. Gradients have the structure of `ab.vjp`'s. With
    `on_error="mask"` failed examples have no gradient. Decisions are constant: a number that depends on an argument
    only through them (how many turns a loop had, which arm was taken) has the derivative zero.

    Raises BatchError where `f` returns no such number, or an argument holds no floats; with `sparse=True` where `f` is
    no batched function.

    >>> import autobatch as ab
    >>> square = ab.batched(lambda w, x: (w * x) ** 2, in_axes=(None, 0))
    >>> ab.grad(square)(1.0, np.array([1.0, 2.0])).item()
    10.0
    >>> squares = ab.batched(lambda table, word: jnp.sum(table[word] ** 2), in_axes=(None, 0))
    >>> gradient = ab.grad(squares, sparse=True)(jnp.ones((1000, 2)), [7, 3, 7])
    >>> gradient.shape, gradient.to_dense()[jnp.array([3, 5, 7])].tolist()
    ((1000, 2), [[2.0, 2.0], [0.0, 0.0], [4.0, 4.0]])
    """
    _check_sparse(f, sparse)
    return _Transformed("grad", _gradient, f, (argnums, has_aux, sparse))


def _gradient(f: Function, argnums: Argnums, has_aux: bool, sparse: bool, args: Any, kwargs: Any) -> Any:
    def made(value: Any, found: Any) -> Any:
        if not has_aux:
            return found
        return found, (value[0][1] if _masks(f) else value[1])

    return _reverse("grad", f, argnums, has_aux, sparse, args, kwargs, made)


@entry
def value_and_grad(f: Function, argnums: Argnums = 0, has_aux: bool = False, sparse: bool = False) -> Function:
    """As `grad`, with what `f` returns before it: (values[B], gradient), or ((values[B], aux), gradient).

    >>> import autobatch as ab
    >>> square = ab.batched(lambda w, x: (w * x) ** 2, in_axes=(None, 0))
    >>> values, gradient = ab.value_and_grad(square)(1.0, np.array([1.0, 2.0]))
    >>> values.tolist(), gradient.item()
    ([1.0, 4.0], 10.0)
    """
    _check_sparse(f, sparse)
    return _Transformed("value_and_grad", _value_and_gradient, f, (argnums, has_aux, sparse))


def _value_and_gradient(f: Function, argnums: Argnums, has_aux: bool, sparse: bool, args: Any, kwargs: Any) -> Any:
    return _reverse("value_and_grad", f, argnums, has_aux, sparse, args, kwargs, lambda value, found: (value, found))


def _reverse(
    transform: str,
    f: Function,
    argnums: Argnums,
    has_aux: bool,
    sparse: bool,
    args: Any,
    kwargs: Any,
    made: Callable[[Any, Any], Any],
) -> Any:
    """What `made` says of the value of a call and its gradient; "grad" asks for no value but that beside the number."""
    what, alone = f"ab.grad of {_name(f)}", transform == "grad" and not has_aux
    chosen, is_one, batched = _positions(argnums, args, what), _is_one(argnums), _batched(f)
    asked = transform, chosen, is_one, has_aux
    simple = batched is not None and not (kwargs or sparse or batched.arguments_before)
    if batched is not None and simple:
        again = batched.warm[asked].call(args, batched.options())
        if again is not MISS:
            return again

    def result(value: Any, found: Sequence[Any]) -> Any:
        return made(value, found[0] if is_one else tuple(found))

    if batched is None:
        for k in chosen:
            _refuse_without(any(map(has_derivative, jax.tree.leaves(args[k]))), what, k, args[k])
        return result(*with_gradient(f, args, kwargs, chosen, has_aux, what))
    selection = _select(batched, batched.bound(args, kwargs), chosen, len(args))
    for k, form in zip(chosen, selection.forms, strict=True):
        if isinstance(form, Raw) and form.static:
            raise BatchError(f"{what}: argument {k} ({form.name}) is named in static, so it is no number that moves")
        _refuse_without(_holds_floats(selection, form), what, k, args[k])

    def gradient(tree: Tree, selection: Selection) -> Any:
        return result(*linear.with_gradient(_name(f), tree, selection, has_aux, what, sparse, alone))

    def of_traced(prepared: Prepared, args: tuple[Any, ...]) -> Any:
        selection = _select(batched, batched.bound(args, {}), chosen, len(args))
        return gradient(LinearCall(prepared, selection.bound), selection)

    def run() -> Any:
        tree = batched.programs(selection.bound, bool(selection.slots), True)
        if not simple or not isinstance(tree, LinearCall):
            return gradient(tree, selection)
        seen, here = batched.warm[asked], (args, selection.bound, batched.options())
        staged = seen.staged(*here, tree.given, of_traced, asked, ordered=True)
        if staged is not MISS:
            return staged
        found = gradient(tree, selection)
        if tree.again is not None:
            prepared, again = tree.again
            seen.note(*here, prepared, lambda p: result(*again(p)), ordered=True)
        return found

    return batched.enough_for(run)


@entry
def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The result of `f(*primals)` and its tangent, by forward mode.

    A tangent has the structure of its argument: an array, a pytree, for a batched argument a Batch of derivatives as
    `ab.vjp` gives one, or a list of objects. None, also in the place of a part, is zero. What has no derivative in
    the result is None in its tangent.

    `jax.jvp` of a batched function is refused, as its derivative in reverse is a rule of its own (`jax.custom_vjp`).
    Inside `jax.jit`, which `jax.jvp` takes apart when our code has run, and in what `jax.linearize` returns, it is JAX
    that says so ("can't apply forward-mode autodiff (jvp) to a custom_vjp function"); the cure is this function, which
    takes functions with `jax.jit` inside, as does `ab.hvp` in the place of `jax.jvp` of `jax.grad`.

    >>> import autobatch as ab
    >>> scaled = ab.batched(lambda w, x: w * x, in_axes=(None, 0))
    >>> out, dot = ab.jvp(scaled, (2.0, np.arange(3.0)), (1.0, None))
    >>> dot.tolist()
    [0.0, 1.0, 2.0]
    """
    what = f"ab.jvp({_name(f)}): the tangent"
    _check_tangents(primals, tangents, what)
    if (batched := _batched(f)) is None:
        return pushed(f, primals, tangents, what)
    selection = _select(batched, batched.bound(tuple(primals), {}), range(len(primals)), len(primals))

    def run() -> tuple[Any, Any]:
        tree = batched.programs(selection.bound, bool(selection.slots))
        return linear.pushed(tree, linear.tangents_of(tree, selection, tangents, what))

    return batched.room.enough_for(run)


@entry
def hvp(f: Function, args: Sequence[Any], tangents: Sequence[Any], argnums: Argnums = 0) -> Any:
    """How `ab.grad(f, argnums)(*args)` changes along tangents of the arguments: forward over reverse.

    >>> import autobatch as ab
    >>> cube = ab.batched(lambda w, x: w**3 * x, in_axes=(None, 0))
    >>> ab.hvp(cube, (2.0, np.array([1.0, 2.0])), (1.0, None)).item()
    36.0
    """
    what = f"ab.hvp({_name(f)}): the tangent"
    _check_tangents(args, tangents, what)
    chosen = _positions(argnums, args, f"ab.hvp of {_name(f)}")
    if (batched := _batched(f)) is None:
        found = curvature(f, args, tangents, chosen, what)
    else:
        every = _select(batched, batched.bound(tuple(args), {}), range(len(args)), len(args))
        selection = _select(batched, every.bound, chosen, len(args))

        def curved() -> list[Any]:
            tree = batched.programs(selection.bound, bool(selection.slots))
            moved = linear.tangents_of(tree, every, tangents, what)
            return linear.curvature(_name(f), tree, selection, moved, f"ab.hvp of {_name(f)}")

        found = batched.room.enough_for(curved)
    return found[0] if _is_one(argnums) else tuple(found)


@entry
def per_example_grad(f: Function, argnums: Argnums = 0) -> Function:
    """As `grad`, with one gradient of the shared arguments for each example: arrays with a leading axis B.

    The shared floats by which it differentiates are given to each example as its own, and no row that reads them is
    shared between examples. Memory grows with the number of activations times the size of the arrays that they read
    as a whole: take few examples at once where these are large. Of a table that is read by rows there is one array
    for each example, as in the result.

    >>> import autobatch as ab
    >>> square = ab.batched(lambda w, x: (w * x) ** 2, in_axes=(None, 0))
    >>> ab.per_example_grad(square)(1.0, np.array([1.0, 2.0])).tolist()
    [2.0, 8.0]
    """
    if not isinstance(f, Batched):
        raise BatchError(f"ab.per_example_grad takes a function made by ab.batched, not {f!r}")
    return _Transformed("per_example_grad", _gradients, f, (argnums,))


def _gradients(f: Batched[..., Any], argnums: Argnums, args: Any, kwargs: Any) -> Any:
    what = f"ab.per_example_grad of {_name(f)}"
    chosen = _positions(argnums, args, what)
    bound = f.bound(args, kwargs)
    forms = _forms(f, bound, chosen, len(args))
    axes, given = f.axes(), list(args)
    for k, form in zip(chosen, forms, strict=True):
        name = _parameter(f, bound, k)
        if name is None:
            raise BatchError(f"{what}: argument {k} is one of *args, which have one axis together; name it")
        axes[name] = fill(form, lambda slot: slot.axis, lambda raw: _axes(raw, what))
        given[k] = fill(form, lambda slot: slot.values, lambda raw: _copies(raw.value, bound.size))
    return grad(f.with_axes(axes), argnums)(*given, **kwargs)


_TRANSFORMS: tuple[Any, ...] = (vjp, grad, value_and_grad, jvp, hvp)
for _transform in _TRANSFORMS:
    _transform.__autobatch_transform__ = True  # an ordinary operation in per-example code


# ---- the arguments of a call


def _batched(f: Function) -> Batched[..., Any] | None:
    """The function where it is batched, and not run as plain Python here."""
    return f if isinstance(f, Batched) and plain.is_ordinary() else None


def _masks(f: Function) -> bool:
    return isinstance(f, Batched) and f.settings.on_error == "mask" and not plain.is_plain()


def _name(f: Function) -> str:
    return getattr(f, "__name__", type(f).__name__)


class _Transformed:
    """What a transform of a function returns: a function of the same arguments. It pickles where that one does."""

    def __init__(self, transform: str, run: Callable[..., Any], f: Function, settings: tuple[Any, ...]) -> None:
        self.__name__, self.__doc__ = f"{transform}_{_name(f)}", f"ab.{transform} of {_name(f)}."
        self._run, self._f, self._settings = run, f, settings

    @entry
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._f, *self._settings, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def _check_sparse(f: Function, sparse: bool) -> None:
    if sparse and not isinstance(f, Batched):
        raise BatchError(
            f"ab.grad of {_name(f)} with sparse=True: it knows what a function made by ab.batched reads by rows, and "
            f"{_name(f)} is none; differentiate the batched function itself, and scale the gradient"
        )


def _is_one(argnums: Argnums) -> bool:
    """Is it the number of one argument, of Python or NumPy?"""
    return isinstance(argnums, (int, np.integer))


def _positions(argnums: Argnums, args: Sequence[Any], what: str) -> tuple[int, ...]:
    """The positions of the arguments that are differentiated by."""
    given = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    for k in given:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not -len(args) <= k < len(args):
            raise BatchError(f"{what}: argnums={argnums!r}, but the call has {len(args)} positional arguments")
    return tuple(int(k) % len(args) for k in given)


def _forms(f: Batched[..., Any], bound: BoundArguments, chosen: Sequence[int], count: int) -> list[Form]:
    """The positional arguments of a call as they were bound."""
    found: list[Form] = []
    for name, form in bound.forms.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += form.children  # type: ignore[union-attr]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(form)
    given = found[f.arguments_before : f.arguments_before + count]
    return [given[k] for k in chosen]


def _parameter(f: Batched[..., Any], bound: BoundArguments, position: int) -> str | None:
    """The name of the parameter of a positional argument; None for one of `*args`."""
    names = list(bound.signature.parameters.values())[f.arguments_before + position :]
    return names[0].name if names and names[0].kind is not names[0].VAR_POSITIONAL else None


def _select(f: Batched[..., Any], bound: BoundArguments, chosen: Sequence[int], count: int) -> Selection:
    return select(bound, lambda found: _forms(f, found, chosen, count))


def _holds_floats(selection: Selection, form: Form) -> bool:
    """Is there anything in an argument to differentiate by?"""
    if selection.shared_in(form):
        return True
    for slot in parts(form, ArgumentSlot):
        if slot.kind == "list":
            return True  # known when it is packed; a list without floats has a Batch of None
        if slot.kind == "batch" and slot.values.floats():
            return True
        if slot.kind == "array" and moves(slot.values):
            return True
    return False


def _refuse_without(has_floats: bool, what: str, position: int, value: Any) -> None:
    if has_floats:
        return
    if plain.is_disabled() and isinstance(value, (list, Batch)):
        raise BatchError(
            f"{what}: argument {position} is {describe(value)}; inside ab.disable() derivatives are those by shared "
            "arguments and stacked arrays"
        )
    integer = isinstance(value, (int, np.integer)) or (is_array(value) and not moves(value))
    words = "an integer" if integer and not isinstance(value, bool) else describe(value)
    raise BatchError(
        f"{what}: argument {position} is {words}, which holds no floats: there is no gradient of an integer; leave it "
        "out of argnums, or pass it as a float"
    )


def _check_tangents(primals: Sequence[Any], tangents: Sequence[Any], what: str) -> None:
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise BatchError(f"{what}s and arguments are tuples, as in jax.jvp")
    if len(primals) != len(tangents):
        raise BatchError(f"{what}s are {len(tangents)} for {len(primals)} arguments; None is zero")


# ---- per-example gradients


def _axes(raw: Raw, what: str) -> Any:
    """The axes of a shared value whose floats are given to each example; refuses floats that no pytree leads to."""

    def axes(value: Any) -> Any:
        children, _, rebuild = one_level(value)
        if children is not None:
            return rebuild([axes(x) for _, x in children])
        return 0 if has_derivative(value) else None

    made = axes(raw.value)
    reached = [x for x in jax.tree.leaves(made) if x == 0]
    if raw.static or len(reached) < count_floats(raw):
        raise BatchError(
            f"{what}: {raw.name} holds floats in an object that is no pytree, or is static; register its class with "
            "jax.tree_util.register_dataclass"
        )
    return made


def _copies(value: Any, size: int) -> Any:
    children, _, rebuild = one_level(value)
    if children is not None:
        return rebuild([_copies(x, size) for _, x in children])
    return jnp.broadcast_to(jnp.asarray(value), (size, *jnp.shape(value))) if has_derivative(value) else value
