"""The interpreter is the meaning of the IR: Python's results, Python's failures, at any depth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobatch.errors import Failure, Span
from autobatch.ir.core import Apply, Call, For, If, Map, While, walk
from autobatch.ir.interpret import ExampleFailure, interpret
from autobatch.ir.ops import OWN
from autobatch.ir.printer import dump, parse
from tests.ir.strategies import FakeMemory, arguments, memories, modules


def node(**fields):
    return {"label": 0, "weight": 0.0, "vector": np.zeros(3, np.float32), "word": 0, "left": -1, "kids": -1} | fields


MEMORY = FakeMemory(
    [node(label=3, left=1, kids=0, word=1), node(label=4, left=2, kids=1), {"label": 5, "kids": 2}],
    ["Inner", "Inner", "Leaf"],
    lists=[[1, 2], [], [2]],
)


def run(body, args=(), last="return", parameters="", shared=(), header=""):
    text = f"module({header})\nfunc @f({parameters}) -> ():\n{body}\n{last}\n"
    return interpret(parse(text), shared, args, MEMORY)


def value(expression, type, *args, parameters=""):
    """The value of one operation."""
    (result,) = run(f"%9: {type} = {expression}", args, "return %9", parameters)
    return result


def fails(body, *args, parameters=""):
    with pytest.raises(ExampleFailure) as raised:
        run(body, args, "return", parameters)
    return raised.value.kind, raised.value.message


@given(modules(), memories())
def test_random_programs_are_deterministic_and_survive_printing(module, memory):
    args, shared = arguments(module)

    def outcome(m):
        try:
            return [np.asarray(x).tolist() for x in interpret(m, shared, args, memory)]
        except ExampleFailure as failure:
            return failure.kind, failure.message

    first = outcome(module)
    np.testing.assert_equal(outcome(module), first)
    np.testing.assert_equal(outcome(parse(dump(module))), first)


def test_drawn_modules_reach_every_instruction_and_operation():
    found = set()

    @settings(max_examples=400)
    @given(modules())
    def draw(module):
        for function in module.functions:
            for instruction in walk(function.region):
                found.add(type(instruction))
                if isinstance(instruction, Apply):
                    found.add("jax" if instruction.op.is_jax else instruction.op.name)

    draw()
    inside_of_masked, made_operations_first, of_columns = {"within"}, {"gradient"}, {"take_row"}
    wanted = {Apply, Call, For, If, Map, While, "jax", *OWN}
    assert found == wanted - inside_of_masked - made_operations_first - of_columns


# ---- numbers


def test_python_numbers_are_exact():
    (result,) = run(
        "%1: int32*[] = mul(%0, %0)\n%2: int32*[] = floordiv(%1, -7: int32*[])",
        [2**31 - 1],
        "return %2",
        "%0: int32*[]",
    )
    assert result == (2**31 - 1) ** 2 // -7 and type(result) is int


def test_python_numbers_do_not_wrap():
    body = "%1: int32*[] = mul(%0, %0)\n%2: int32*[] = mul(%1, %1)"
    assert fails(body, 2**31, parameters="%0: int32*[]")[0] == "OverflowError"


def test_arrays_wrap():
    (result,) = run("%1: int32[] = add(%0, %0)", [np.int32(2**30)], "return %1", "%0: int32[]")
    assert result == -(2**31) and result.dtype == np.int32


@pytest.mark.parametrize(
    ("expression", "type", "want"),
    [
        ("truediv(7: int32*[], 2: int32*[])", "float32*[]", 3.5),
        ("mod(-7: int32*[], 3: int32*[])", "int32*[]", 2),
        ("mod(-7.5: float32*[], 3.0: float32*[])", "float32*[]", 1.5),
        ("pow(2: int32*[], 40: int32*[])", "int32*[]", 2**40),
        ("round[ndigits=None](2.5: float32*[])", "int32*[]", 2),
        ("round[ndigits=2](1.115: float32*[])", "float32*[]", round(1.115, 2)),
        ("int(-2.7: float32*[])", "int32*[]", -2),
        ("undefined[type=float32[2]]()", "float32[2]", [0.0, 0.0]),
    ],
)
def test_arithmetic(expression, type, want):
    assert np.asarray(value(expression, type)).tolist() == want


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("%1: int32*[] = floordiv(1: int32*[], 0: int32*[])", "ZeroDivisionError"),
        ("%1: float32*[] = truediv(1.0: float32*[], 0: int32*[])", "ZeroDivisionError"),
        ("%1: float32*[] = pow(0.0: float32*[], -1.0: float32*[])", "ZeroDivisionError"),
        ("%1: int32*[] = int(inf: float32*[])", "OverflowError"),
        ("%1: int32*[] = int(nan: float32*[])", "ValueError"),
        ("%1: float32*[] = pow(10.0: float32*[], 400.0: float32*[])", "OverflowError"),
    ],
)
def test_arithmetic_that_fails(body, kind):
    assert fails(body)[0] == kind


def test_shared_numbers_are_those_of_jax():
    """A division by zero on the device gives infinity."""
    (result,) = run(
        "%1: float32*[] = truediv(1.0: float32*[], %0)", [], "return %1", "", [jnp.float32(0)], "shared %0: float32*[]"
    )
    assert isinstance(result, jax.Array) and jnp.isinf(result)


def test_a_number_too_wide_for_the_device():
    body = "%2: int32*[] = add(%0, %1)"
    if not jax.config.jax_enable_x64:
        with pytest.raises(ExampleFailure, match="OverflowError: an int does not fit into the int32"):
            run(body, [2**40], "return", "%1: int32*[]", [jnp.int32(1)], "shared %0: int32*[]")


def test_random_keys_are_data():
    (result,) = run(
        "%1: uint32[2] = random_bits[bit_width=32, shape=(2,)](%0)",
        [jax.random.key(3)],
        "return %1",
        "%0: key<fry>[]",
    )
    np.testing.assert_array_equal(result, jax.random.bits(jax.random.key(3), (2,), "uint32"))


# ---- structure


@pytest.mark.parametrize(
    ("expression", "type", "want"),
    [
        ("load[field='label'](%0)", "int32*[]", 3),
        ("load[field='left'](%0)", "ref<Node>", 1),
        ("load[field='word'](%0)", "tag<str>", "b"),
        ("load_is_none[field='label', type=int32*[]](%0)", "bool[]", False),
        ("is_none(%0)", "bool[]", False),
        ("is_none(None: ref<Node>)", "bool[]", True),
        ("none()", "ref<Node>", -1),
        ("is_class[names=('Leaf', 'Inner')](%0)", "bool[]", True),
        ("is_class[names=('Leaf',)](%0)", "bool[]", False),
        ("is_class[names=('Leaf',)](None: ref<Node>)", "bool[]", False),
        ("same(%0, %0)", "bool[]", True),
        ("length(%1)", "int32*[]", 2),
        ("item(%1, -1: int32*[])", "ref<Node>", 2),
        ("tag[value='zz']()", "tag<str>", "zz"),
        ("tag_equal('a': tag<str>, 'zz': tag<str>)", "bool[]", False),
        ("tag_index[keys=('b', 'a')](%2)", "int32*[]", 1),
        ("word('z': tag<str>)", "int32*[]", ord("z")),
        ("pack_list(1: int32*[], 2: int32*[])", "list<int32*[]>", [1, 2]),
    ],
)
def test_structure(expression, type, want):
    parameters = "%0: ref<Node>, %1: list<ref<Node> in Node.kids>, %2: tag<str>"
    assert value(expression, type, 0, 0, 0, parameters=parameters) == want


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ("%1: int32*[] = load[field='label'](%0)", ("AttributeError", "'NoneType' object has no attribute 'label'")),
        (
            "%1: ref<Node> = none()\n%2: bool[] = load_is_none[field='label', type=int32*[]](%1)",
            ("AttributeError", "'NoneType' object has no attribute 'label'"),
        ),
        (
            "%1: int32*[] = length(None: list<ref<Node> in Node.kids>)",
            ("TypeError", "object of type 'NoneType' has no len()"),
        ),
        ("%1: int32*[] = tag_index[keys=('b',)]('a': tag<str>)", ("KeyError", "a")),
        (
            "check[kind='AssertionError', message='{} of {!r}'](False: bool[], 3: int32*[], 'a': tag<str>)",
            ("AssertionError", "3 of 'a'"),
        ),
        ("check[kind='ValueError', message='{x}'](False: bool[])", ("ValueError", "{x}")),
        (
            "%1: list<int32*[]> = pack_list(1: int32*[])\n%2: int32*[] = item(%1, 1: int32*[])",
            ("IndexError", "list index out of range"),
        ),
        (
            "%1: list<int32*[]> = map 0: int32*[] do (%2: int32*[]):\nyield %2\n%3: int32*[] = reduce[kind='max'](%1)",
            ("ValueError", None),
        ),
    ],
)
def test_structure_that_fails(body, failure):
    kind, message = fails(body, -1, parameters="%0: ref<Node>")
    assert kind == failure[0] and message == (failure[1] or message)


def test_a_class_without_the_field():
    body = "%1: float32*[] = load[field='weight'](%0)"
    assert fails(body, 2, parameters="%0: ref<Node>") == (
        "AttributeError",
        "'Leaf' object has no attribute 'weight'",
    )


def test_the_first_failure_in_program_order_counts():
    body = """
      for 3: int32*[] () do (%0: int32*[]):
        %1: bool[] = lt(%0, 1: int32*[])
        check[kind='A', message='turn {}'](%1, %0)
        yield
      check[kind='B', message=''](False: bool[])
    """
    assert fails(body) == ("A", "turn 1")


def test_a_failure_has_the_place_of_its_instruction():
    module = parse("module()\nfunc @f() -> ():\n%0: int32*[] = mod(1: int32*[], 0: int32*[])\nreturn\n")
    (apply,) = module.functions[0].region.body
    object.__setattr__(apply, "span", Span("f.py", 7, 3))
    with pytest.raises(ExampleFailure) as raised:
        interpret(module, [], [], MEMORY)
    failure = raised.value.failure(4)
    assert isinstance(failure, Failure) and failure.line == 7 and failure.kind == "ZeroDivisionError"
    assert str(failure).startswith("example 4 at f.py:7:3: ZeroDivisionError: integer")


# ---- lists


@pytest.mark.parametrize(
    ("kind", "type", "want"),
    [
        ("sum", "int32*[]", 6),
        ("prod", "int32*[]", 0),
        ("max", "int32*[]", 3),
        ("min", "int32*[]", 0),
        ("any", "bool[]", True),
        ("all", "bool[]", False),
    ],
)
def test_reductions(kind, type, want):
    body = f"%1: list<int32*[]> = map 4: int32*[] do (%2: int32*[]):\nyield %2\n%3: {type} = reduce[kind='{kind}'](%1)"
    assert run(body, last="return %3") == [want]


@pytest.mark.parametrize(("kind", "want"), [("sum", 0), ("prod", 1), ("any", False), ("all", True)])
def test_reductions_of_nothing(kind, want):
    body = f"%1: list<bool[]> = pack_list()\n%3: {'int32*[]' if kind in ('sum', 'prod') else 'bool[]'} = "
    (result,) = run(body + f"reduce[kind='{kind}'](%1)", last="return %3")
    assert result == want and type(result) is type(want)


def test_a_list_on_the_device():
    body = """
      %1: list<float32[3]> = map 2: int32*[] do (%2: int32*[]):
        %3: float32[] = convert_element_type[new_dtype=float32, sharding=None, weak_type=False](%2)
        %4: float32[3] = mul(%0, %3)
        yield %4
      %5: float32[3] = reduce[kind='sum'](%1)
      %6: float32[2x3] = stack(%1)
    """
    total, stacked = run(body, [], "return %5, %6", "", [jnp.arange(3.0)], "shared %0: float32[3]")
    np.testing.assert_array_equal(total, [0, 1, 2])
    np.testing.assert_array_equal(stacked, [[0, 0, 0], [0, 1, 2]])


def test_filtered_and_nested_comprehensions():
    body = """
      %1: list<list<int32*[]>> = map 3: int32*[] do (%2: int32*[]):
        %3: list<int32*[]> = filter %2 do (%4: int32*[]):
          %5: bool[] = gt(%4, 0: int32*[])
          yield %5, %4
        yield %3
    """
    assert run(body, last="return %1") == [[[], [], [1]]]


@given(st.lists(st.floats(-1e3, 1e3, width=32), max_size=6))
def test_stack_on_the_host(values):
    text = ", ".join(f"{v!r}: float32[]" for v in values)
    body = f"%1: list<float32[]> = pack_list({text})\n%2: float32[{len(values)}] = stack(%1)"
    (result,) = run(body, last="return %2")
    assert result.dtype == np.float32 and result.tolist() == values


# ---- calls and depth


class Chain:
    """A list of nodes: row k has the child k + 1."""

    def __init__(self, depth):
        self.depth = depth

    def load(self, type, row, field):
        return row % 7 if field == "label" else (row + 1 if row + 1 < self.depth else -1)


CHAIN = """
module(shared %0: float32[])
func @sum(%1: ref<Node>, %2: int32*[]) -> (int32*[], float32[], int32*[]):
  %3: bool[] = is_none(%1)
  %4: int32*[], %5: float32[], %6: int32*[] = if %3 then:
    yield 0: int32*[], %0, %2
  else:
    %7: ref<Node> = load[field='left'](%1)
    %8: int32*[] = load[field='label'](%1)
    %9: int32*[] = add(%2, 1: int32*[])
    %10: int32*[], %11: float32[], %12: int32*[] = call @sum(%7, %9)
    %13: int32*[] = add(%8, %10)
    %14: float32[] = tanh(%11)
    yield %13, %14, %12
  return %4, %5, %6
"""


def test_a_chain_20000_deep():
    depth = 20_000
    total, numeric, levels = interpret(parse(CHAIN), [jnp.float32(0.5)], [0, 0], Chain(depth))
    assert total == sum(row % 7 for row in range(depth)) and levels == depth
    assert 0 < numeric < 0.01


def test_recursion_without_end():
    module = parse("module()\nfunc @f() -> ():\n call @f()\n return\n")
    with pytest.raises(ExampleFailure, match="RecursionError"):
        interpret(module, [], [], MEMORY, max_depth=1000)


def test_mutual_recursion_and_while():
    text = """
    module()
    func @even(%0: int32*[]) -> (bool[]):
      %1: bool[] = eq(%0, 0: int32*[])
      %2: bool[] = if %1 then:
        yield True: bool[]
      else:
        %3: int32*[] = sub(%0, 1: int32*[])
        %4: bool[] = call @odd(%3)
        yield %4
      return %2
    func @odd(%5: int32*[]) -> (bool[]):
      %6: bool[] = eq(%5, 0: int32*[])
      %7: bool[] = if %6 then:
        yield False: bool[]
      else:
        %8: int32*[] = sub(%5, 1: int32*[])
        %9: bool[] = call @even(%8)
        yield %9
      return %7
    """
    assert interpret(parse(text), [], [7], MEMORY) == [False]
    collatz = """
      %1: int32*[], %2: int32*[] = while (%0, 0: int32*[]) test (%3: int32*[], %4: int32*[]):
        %5: bool[] = gt(%3, 1: int32*[])
        yield %5
      do (%6: int32*[], %7: int32*[]):
        %8: int32*[] = mod(%6, 2: int32*[])
        %9: bool[] = eq(%8, 1: int32*[])
        %10: int32*[] = if %9 then:
          %11: int32*[] = mul(%6, 3: int32*[])
          %12: int32*[] = add(%11, 1: int32*[])
          yield %12
        else:
          %13: int32*[] = floordiv(%6, 2: int32*[])
          yield %13
        %14: int32*[] = add(%7, 1: int32*[])
        yield %10, %14
    """
    assert run(collatz, [27], "return %2", "%0: int32*[]") == [111]


def test_a_negative_number_of_turns_is_none():
    body = "%1: int32*[] = for -2: int32*[] (5: int32*[]) do (%2: int32*[], %3: int32*[]):\n yield %2"
    assert run(body, last="return %1") == [5]
