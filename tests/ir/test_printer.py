"""Text is a first-class form: what is printed is read back."""

import enum

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    FLOAT,
    INT,
    STR,
    Apply,
    Array,
    Function,
    List,
    Literal,
    Module,
    Ref,
    Region,
    Tag,
    Value,
)
from autobatch.ir.ops import Op, own
from autobatch.ir.printer import Note, ParseError, dump, parse, print_function, print_module
from tests.ir.strategies import modules


class Color(enum.Enum):
    RED = 1


def module_of(*instructions, results=(), args=()):
    return Module((Function("f", Region(tuple(args), tuple(instructions), tuple(results))),))


def traced(fun, *types):
    """A module with one function, whose body is a traced function."""
    ids = iter(range(10**6))
    constants, body = [], []
    args = tuple(Value(next(ids), t) for t in types)

    def constant(array):
        constants.append(array)
        return Literal(None, jax_compat.type_of(array), len(constants) - 1)

    closed, _ = jax_compat.trace(fun, *types)
    from autobatch.errors import NOWHERE

    results = jax_compat.inline(closed, args, lambda t: Value(next(ids), t), constant, body.append, NOWHERE)
    return Module((Function("f", Region(args, tuple(body), tuple(results))),), (), tuple(constants))


@given(modules())
def test_random_modules_are_read_back(module):
    assert parse(dump(module)) == module


VECTOR = Array("float32", (5,))


@pytest.mark.parametrize(
    "fun",
    [
        lambda a: a[jnp.array([0, 1])],
        lambda a: a.at[2].set(1.0),
        lambda a: jax.nn.relu(a),
        lambda a: jax.nn.softmax(a),
        lambda a: jax.random.normal(jax.random.key(0), (3,)) + a[0],
        lambda a: lax.scan(lambda c, x: (c + x, c), 0.0, a),
        lambda a: lax.while_loop(lambda v: v[0] < 3, lambda v: v + 1, a),
        lambda a: lax.cond(a[0] > 0, jnp.sin, jnp.cos, a),
        lambda a: jnp.linalg.solve(jnp.eye(5), a),
        lambda a: lax.conv_general_dilated(a[None, None], jnp.ones((1, 1, 3), a.dtype), (1,), "SAME"),
        lambda a: jnp.fft.rfft(a),
        lambda a: jnp.sort(a)[::-1] ** 2.5,
        lambda a: jax.checkpoint(jnp.sin)(a),
        lambda a: lax.dot(a, a, precision=lax.Precision.HIGHEST),
        lambda a: (a.astype(jnp.bfloat16), a * 1j, a > jnp.inf, -jnp.inf),
    ],
)
def test_traced_functions_are_read_back(fun):
    module = traced(fun, VECTOR)
    assert parse(dump(module)) == module
    assert " at 0x" not in print_module(module)


def test_params_are_readable():
    text = print_module(traced(lambda a: a[jnp.array([0, 1])], VECTOR))
    assert "GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)," in text
    assert "mode=GatherScatterMode." in text
    text = print_module(traced(lambda a: lax.cond(a[0] > 0, jnp.sin, jnp.cos, a), VECTOR))
    assert "branches=(@0, @1)" in text
    assert "# @0: ClosedJaxpr {" in text or "# @0: Jaxpr {" in text  # JAX 0.12 closes jaxprs by other means


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -4,
        0.1,
        1e-30,
        float("inf"),
        -float("inf"),
        2 + 3j,
        'it\'s "#" \n',
        (),
        (1,),
        (1, (2.0, "a")),
        [1, []],
        {"a": 1, 2: ()},
        np.dtype("int8"),
        jnp.dtype("bfloat16"),
        INT,
        BOOL,
        Array("key<fry>", (2, 0)),
        Ref("Node"),
        List(List(Ref("a b>"), "x.y"), None),
        Tag("m.f.<locals>.C"),
        STR,
        Color.RED,
        lax.GatherScatterMode.CLIP,
        lax.RoundingMethod.TO_NEAREST_EVEN,
    ],
)
def test_every_param_is_read_back(value):
    module = module_of(Apply((), Op("check", (("kind", value), ("z", 1))), ()))
    (apply,) = parse(dump(module)).functions[0].region.body
    assert apply.op["kind"] == value and type(apply.op["kind"]) is type(value)


@pytest.mark.parametrize("value", [True, 5, -2, 0.5, float("inf"), 1 - 2j, "text", None])
def test_literals_are_read_back(value):
    module = module_of(results=[Literal(value, FLOAT), Literal(None, FLOAT, 3)])
    assert parse(print_module(module)) == module


def test_names_that_need_quotes():
    function = Function("<a b>'", Region((Value(0, Ref("<>")),), (), ()))
    assert parse(print_module(Module((function,)))) == Module((function,))


def test_a_primitive_of_our_name_is_told_apart():
    x, y, z = (Value(k, FLOAT) for k in range(3))
    module = module_of(
        Apply((y,), own("pow"), (x, x)), Apply((z,), Op("pow", (), lax.pow_p), (x, y)), args=(x,), results=(z,)
    )
    text = print_module(module)
    assert " pow(" in text and "jax.pow(" in text and parse(text) == module


def test_an_unknown_primitive_goes_into_the_table():
    module = module_of(Apply((), Op("mine", (), lax.add_p), ()))
    assert "mine@0()" in print_module(module)
    assert parse(dump(module)) == module
    with pytest.raises(ParseError, match="@0 is not in the table"):
        parse(print_module(module))


def test_a_note_marks_its_line():
    instruction = Apply((Value(1, BOOL),), own("is_none"), (Value(0, INT),))
    function = module_of(instruction, args=[Value(0, INT)]).functions[0]
    text = print_function(function, Note(instruction, "no reference"))
    line, mark = text.splitlines()[1:3]
    assert line == "  %1: bool[] = is_none(%0)" and mark == "  ^^^^^^^^^^^^^^^^^^^^^^^^ no reference"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modul()", "line 1, column 1: expected 'module'"),
        ("module()\nfunc @f() -> ():\n  return %3\n", "line 3, column 10: %3 is not defined"),
        ("module()\nfunc @f() -> ():\n  nonsense()\n  return\n", "no operation is called 'nonsense'"),
        ("module()\nfunc @f(%0: what) -> ():\n  return\n", "expected a type"),
        ("module()\nfunc @f() -> ():\n  check[kind=blue]()\n  return\n", "'blue' is no literal"),
    ],
)
def test_errors_name_the_place(text, message):
    with pytest.raises(ParseError) as raised:
        parse(text)
    assert message in str(raised.value)
