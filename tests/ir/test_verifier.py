"""The verifier accepts what is well formed, and names the line of what is not: one case for each rule."""

import numpy as np
import pytest
from hypothesis import given

from autobatch.ir.core import BOOL, INT, Apply, Array, Function, List, Literal, Map, Module, Region, Value
from autobatch.ir.ops import OWN, Op
from autobatch.ir.printer import parse
from autobatch.ir.verifier import FUNCTIONS, OWN_RULES, STAGES, VerifierError, verify
from tests.ir.strategies import modules


@given(modules())
def test_random_modules_are_accepted(module):
    verify(module)


def test_every_operation_of_our_own_has_a_type_rule():
    assert OWN_RULES.keys() == OWN.keys()


def test_stages_are_found_by_name():
    assert [STAGES[n].name for n in STAGES] == list(STAGES)


def rejected(text, table=()):
    from autobatch.ir.printer import Dump

    with pytest.raises(VerifierError) as raised:
        verify(parse(Dump(text, table)))
    return raised.value


def function(body, args="", results="", last="return", shared=""):
    return f"module({shared})\nfunc @f({args}) -> ({results}):\n{body}\n{last}\n"


# name: (body, the parameters, the last line, what is wrong)
CASES = {
    "defined twice": ("%0: int32*[] = int(1: int32*[])", "%0: int32*[]", "return", "%0 is defined twice"),
    "read out of its region": (
        "if %0 then:\n %1: bool[] = not(%0)\n yield\n else:\n yield",
        "%0: bool[]",
        "return %1",
        "%1 is not visible here",
    ),
    "read in the other branch": (
        "if %0 then:\n %1: bool[] = not(%0)\n yield\n else:\n %2: bool[] = not(%1)\n yield",
        "%0: bool[]",
        "return",
        "%1 is not visible here",
    ),
    "literal": ("%0: int32*[] = int(1.5: int32*[])", "", "return", "1.5 is no literal of int32*[]"),
    "literal bool": ("%0: int32*[] = int(True: int32*[])", "", "return", "True is no literal of int32*[]"),
    "literal tag": ("%0: bool[] = tag_equal(3: tag<str>, 'a': tag<str>)", "", "return", "3 is no literal of tag<str>"),
    "literal array": ("%0: float32[2] = tanh(3.0: float32[2])", "", "return", "3.0 is no literal of float32[2]"),
    "no such constant": ("%0: float32[2] = tanh(const3: float32[2])", "", "return", "there is no constant 3"),
    # control
    "condition": (
        "if %0 then:\n yield\n else:\n yield",
        "%0: int32*[]",
        "return",
        "a condition is bool[], not int32*[]",
    ),
    "condition array": ("if %0 then:\n yield\n else:\n yield", "%0: bool[2]", "return", "not bool[2]"),
    "branch argument": ("if %0 then (%1: bool[]):\n yield\n else:\n yield", "%0: bool[]", "return", "the region takes"),
    "branch result": (
        "%1: int32*[] = if %0 then:\n yield 1: int32*[]\n else:\n yield 1.0: float32*[]",
        "%0: bool[]",
        "return",
        "the region yields (float32*[]) and the instruction needs (int32*[]) differ",
    ),
    "branch count": (
        "%1: int32*[] = if %0 then:\n yield 1: int32*[]\n else:\n yield",
        "%0: bool[]",
        "return",
        "the region yields ()",
    ),
    "turns": ("for 1.0: float32*[] () do (%1: int32*[]):\n yield", "", "return", "a number of turns is an int"),
    "turn": ("for 1: int32*[] () do (%1: int32[]):\n yield", "", "return", "the region takes (int32[])"),
    "for carried": (
        "%0: float32*[] = for 1: int32*[] (1: int32*[]) do (%1: int32*[], %2: int32*[]):\n yield %2",
        "",
        "return",
        "the results (float32*[]) and the carried values (int32*[]) differ",
    ),
    "for arguments": (
        "%0: int32*[] = for 1: int32*[] (1: int32*[]) do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "the region takes (int32*[]) and the instruction gives it (int32*[], int32*[]) differ",
    ),
    "for yields": (
        "%0: int32*[] = for 1: int32*[] (1: int32*[]) do (%1: int32*[], %2: int32*[]):\n yield",
        "",
        "return",
        "the region yields ()",
    ),
    "while condition": (
        "while () test:\n yield\n do:\n yield",
        "",
        "return",
        "the region yields () and the instruction needs (bool[])",
    ),
    "while arguments": (
        "%0: int32*[] = while (1: int32*[]) test:\n yield True: bool[]\n do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "the region takes ()",
    ),
    "while yields": (
        "%0: int32*[] = while (1: int32*[]) test (%2: int32*[]):\n yield True: bool[]\n do (%1: int32*[]):\n yield",
        "",
        "return",
        "the region yields ()",
    ),
    "map count": ("map True: bool[] do (%1: int32*[]):\n yield", "", "return", "a number of turns is an int"),
    "map turn": ("map 1: int32*[] do:\n yield", "", "return", "the region takes ()"),
    "map result": (
        "%0: int32*[] = map 1: int32*[] do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "a Map gives lists that lie in no",
    ),
    "map store": (
        "%0: list<int32*[] in x> = map 1: int32*[] do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "lie in no store",
    ),
    "map element": (
        "%0: list<float32*[]> = map 1: int32*[] do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "the region yields",
    ),
    "filter": (
        "%0: list<int32*[]> = filter 1: int32*[] do (%1: int32*[]):\n yield %1",
        "",
        "return",
        "the region yields (int32*[]) and the instruction needs (bool[], int32*[])",
    ),
    "callee": ("call @g()", "", "return", "there is no function 'g'"),
    "call operands": ("call @f()", "%0: int32*[]", "return", "the operands () and the parameters (int32*[]) differ"),
    "call results": ("%0: bool[] = call @f()", "", "return", "the results (bool[]) and what it returns () differ"),
    # operations of JAX
    "primitive shape": ("%2: float32[2] = add(%0, %1)", "%0: float32[2], %1: float32[3]", "return", "add"),
    "primitive result": ("%2: float32[3] = neg(%0)", "%0: float32[2]", "return", "neg gives (float32[2]), not"),
    "primitive weak": ("%2: int32[] = neg(%0)", "%0: int32*[]", "return", "neg gives (int32*[]), not (int32[])"),
    "primitive operand": ("%2: float32[3] = neg(%0)", "%0: ref<Node>", "return", "operand 1 of neg is an array"),
    # operations of our own, a row of the table each
    "load": ("%1: bool[] = load[field='x'](%0)", "%0: int32*[]", "return", "operand 1 of load is a reference"),
    "load results": ("load[field='x'](%0)", "%0: ref<N>", "return", "load gives a value, not ()"),
    "params": ("%1: bool[] = load[name='x'](%0)", "%0: ref<N>", "return", "load has the params (field), not (name)"),
    "operand count": ("%1: bool[] = is_none(%0, %0)", "%0: ref<N>", "return", "is_none takes 1 operands, not 2"),
    "load_is_none": (
        "%1: int32*[] = load_is_none[field='x', type=bool[]](%0)",
        "%0: ref<N>",
        "return",
        "gives (bool[])",
    ),
    "is_none": ("%1: bool[] = is_none(%0)", "%0: int32*[]", "return", "operand 1 of is_none is a reference or list"),
    "none": ("%1: int32*[] = none()", "", "return", "none gives a reference, list or made object"),
    "make": ("%1: ref<N> = make[of='N'](1: int32*[])", "", "return", "make gives (made<>), not (ref<N>)"),
    "adopt": ("%1: made<> = adopt(%0)", "%0: int32*[]", "return", "operand 1 of adopt is a reference"),
    "sort_order": (
        "%1: list<bool[]> = sort_order[reverse=False](%0)",
        "%0: list<int32*[]>",
        "return",
        "sort_order gives (list<int32*[]>)",
    ),
    "find": (
        "%1: int32*[] = find(%0, 0.5: float32*[])",
        "%0: list<int32*[]>",
        "return",
        "a float32*[] is no element of list<int32*[]>",
    ),
    "find parts": ("%1: int32*[] = find(%0, %0, 1: int32*[])", "%0: list<int32*[]>", "return", "as many lists as"),
    "put": (
        "%1: list<int32*[]> = put(%0, 0: int32*[], 0.5: float32*[])",
        "%0: list<int32*[]>",
        "return",
        "a float32*[] is no element of list<int32*[]>",
    ),
    "text": (
        "%1: tag<str> = text[function='upper', args=(...,)](%0)",
        "%0: ref<N>",
        "return",
        "text takes strings and ints",
    ),
    "is_class": ("%1: bool[] = is_class[names=('N',)](%0)", "%0: list<int32*[] in x>", "return", "is a reference"),
    "same": ("%2: bool[] = same(%0, %1)", "%0: ref<N>, %1: list<bool[] in x>", "return", "an object is never a list"),
    "row": ("%1: int32*[] = row(%0)", "%0: int32*[]", "return", "operand 1 of row is a reference or list"),
    "row_of": ("%1: int32*[] = row_of(%0)", "%0: int32*[]", "return", "row_of gives a reference or list"),
    "rows_of": ("%1: bool[] = rows_of[space='N'](%0)", "%0: ref<N>", "return", "rows_of gives (int32*[])"),
    "row_at": ("%1: ref<N> = row_at[space='N'](%0, %0)", "%0: ref<N>", "return", "operand 1 of row_at is an int"),
    "first": ("%1: int32*[] = first(%0)", "%0: ref<N>", "return", "operand 1 of first is a list"),
    "padded": ("%1: float32[2] = padded[room=4](%0)", "%0: list<float32[]>", "return", "padded gives (float32[4])"),
    "length": ("%1: int32[] = length(%0)", "%0: list<bool[] in x>", "return", "length gives (int32*[])"),
    "item": ("%1: int32*[] = item(%0, 0: int32*[])", "%0: list<bool[] in x>", "return", "item gives (bool[])"),
    "item index": ("%1: bool[] = item(%0, 0.5: float32*[])", "%0: list<bool[] in x>", "return", "is an int"),
    "pack_list": (
        "%1: list<bool[]> = pack_list(1: int32*[], True: bool[])",
        "",
        "return",
        "the elements of a list have one type",
    ),
    "pack_list store": ("%1: list<int32*[] in x> = pack_list(1: int32*[])", "", "return", "pack_list gives"),
    "pack_list of nothing": ("%1: int32*[] = pack_list()", "", "return", "pack_list gives a list"),
    "flatten": ("%1: list<bool[]> = flatten(%0)", "%0: list<bool[] in x>", "return", "is no list of lists"),
    "tag": ("%1: int32*[] = tag[value='x']()", "", "return", "tag gives a tag"),
    "tag_equal": ("%2: bool[] = tag_equal(%0, %1)", "%0: tag<str>, %1: tag<C>", "return", "two vocabularies"),
    "word": ("%1: bool[] = word(%0)", "%0: tag<str>", "return", "word gives (int32*[])"),
    "word_of": ("%1: tag<str> = word_of(%0)", "%0: bool[]", "return", "operand 1 of word_of is an int"),
    "tag_index": ("%2: bool[] = tag_index[keys=('a',)](%0)", "%0: tag<str>", "return", "tag_index gives (int32*[])"),
    "spelt": ("%1: bool[] = spelt[function='__len__'](%0)", "%0: list<int32*[]>", "return", "spelt gives (int32*[])"),
    "check": ("check[kind='E', message=''](%0)", "%0: int32*[]", "return", "operand 1 of check is a bool"),
    "check results": ("%1: bool[] = check[kind='E', message=''](%0)", "%0: bool[]", "return", "check gives ()"),
    "bounds": ("bounds[axis=0, size=3](%0)", "%0: tag<str>", "return", "operand 1 of bounds is an array"),
    "check nothing": ("check[kind='E', message='']()", "", "return", "check takes 1 operands, not 0"),
    "undefined": ("%1: bool[] = undefined[type=int32*[]]()", "", "return", "undefined gives (int32*[])"),
    "reduce": ("%1: bool[] = reduce[kind='sum'](%0)", "%0: list<int32*[]>", "return", "reduce gives (int32*[])"),
    "reduce bools": ("%1: bool[] = reduce[kind='sum'](%0)", "%0: list<bool[]>", "return", "reduce gives (int32*[])"),
    "reduce any": ("%1: int32*[] = reduce[kind='any'](%0)", "%0: list<int32*[]>", "return", "reduce gives (bool[])"),
    "reduce kind": ("%1: int32*[] = reduce[kind='mean'](%0)", "%0: list<int32*[]>", "return", "no reduction 'mean'"),
    "reduce objects": ("%1: ref<N> = reduce[kind='sum'](%0)", "%0: list<ref<N>>", "return", "only numbers"),
    "stack": ("%1: float32[2x4] = stack(%0)", "%0: list<float32[3]>", "return", "stack gives (float32[2x3])"),
    "stack scalars": ("%1: float32[] = stack(%0)", "%0: list<float32[]>", "return", "with a leading axis"),
    "stack objects": ("%1: float32[2] = stack(%0)", "%0: list<ref<N>>", "return", "only arrays"),
    "floordiv": ("%1: float32*[] = floordiv(%0, %0)", "%0: int32*[]", "return", "floordiv gives (int32*[])"),
    "mod": ("%1: float32*[] = mod(%0, %0)", "%0: int32*[]", "return", "mod gives (int32*[])"),
    "truediv": ("%1: int32*[] = truediv(%0, %0)", "%0: int32*[]", "return", "truediv gives (float32*[])"),
    "pow": ("%1: float32*[] = pow(%0, %0)", "%0: ref<N>", "return", "operand 1 of pow is an array"),
    "shapes": ("%2: float32[2] = mod(%0, %1)", "%0: float32[2], %1: float32[3]", "return", "mod:"),
    "round": ("%1: float32*[] = round[ndigits=None](%0)", "%0: float32*[]", "return", "round gives (int32*[])"),
    "int": ("%1: float32*[] = int(%0)", "%0: float32*[]", "return", "int gives (int32*[])"),
    "masked": (
        "%1: float32*[] = masked (%0) do (%2: bool[]):\n yield 1.0: float32*[]",
        "%0: float32*[]",
        "return",
        "the region of masked takes (bool[]), not (float32*[])",
    ),
    "gradient": ("%1: float32*[] = gradient(%0, %0)", "%0: float32*[]", "return", "gradient gives (float32[])"),
    "gradient_of": (
        "%1: float32[] = gradient_of[wrt=(0,)] (%0) do (%2: float32*[]):\n yield 1: int32*[]",
        "%0: float32*[]",
        "return",
        "the region of gradient_of yields one number",
    ),
    "seed": ("%1: float32[] = seed(%0)", "%0: float32*[]", "return", "seed gives (float32*[])"),
    "unknown": ("%1: float32[] = unknown(%0)", "%0: int32*[]", "return", "unknown gives (int32*[])"),
    "take_row": (
        "%2: int32[] = take_row(%0, %1)",
        "%0: float32[5x2], %1: int32*[]",
        "return",
        "take_row gives (float32[2]), not (int32[])",
    ),
    "within": (
        "%1: float32*[] = within[site=1, states=2, turns=2](%0)",
        "%0: float32*[]",
        "return",
        "operand 1 of within is an int, not float32*[]",
    ),
    "masked sees nothing outside": (
        "%1: float32*[] = masked (%0) do (%2: float32*[]):\n yield %0",
        "%0: float32*[]",
        "return",
        "%0 is not defined before",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rejected(name):
    body, args, last, complaint = CASES[name]
    error = rejected(function(body, args, "", last))
    assert complaint in error.complaint
    marked = [line for line in str(error).splitlines() if line.lstrip().startswith("^")]
    assert len(marked) == 1 and marked[0].endswith(error.complaint)


def test_every_rule_of_the_table_has_a_rejection():
    assert {name.split()[0] for name in CASES} >= OWN.keys()


def test_a_wrong_constant():
    text = "module()\nconstant 0 = @0\nfunc @f() -> ():\n %0: float32[2] = tanh(const0: float32[2])\n return\n"
    verify(parse_with(text, np.zeros(2, np.float32)))
    assert "constant 0 is int32[2], not float32[2]" in rejected(text, (np.zeros(2, np.int32),)).complaint


def parse_with(text, *table):
    from autobatch.ir.printer import Dump

    return parse(Dump(text, table))


def test_a_module_without_functions():
    with pytest.raises(VerifierError, match="a module has an entry function"):
        verify(Module(()))


def test_two_functions_of_one_name():
    text = "module()\nfunc @f() -> ():\n return\nfunc @f() -> ():\n return\n"
    assert "two functions have one name" in rejected(text).complaint


def test_an_unknown_operation():
    apply = Apply((), Op("mystery"), ())
    with pytest.raises(VerifierError, match="no operation 'mystery' at the stage 'example'"):
        verify(Module((Function("f", Region((), (apply,), ())),)))


def test_a_value_with_two_types():
    function = Function("f", Region((Value(0, INT),), (), (Value(0, BOOL),)))
    with pytest.raises(VerifierError, match=r"%0 is read as bool\[\] and defined as int32\*\[\]"):
        verify(Module((function,)))


def test_a_value_before_its_definition():
    x = Value(0, INT)
    body = Apply((x,), Op("int"), (x,))
    with pytest.raises(VerifierError, match="%0 is not defined before"):
        verify(Module((Function("f", Region((), (body,), ())),)))


def test_values_of_other_functions_and_shared_values():
    text = "module(shared %0: int32*[])\nfunc @f(%1: int32*[]) -> ():\n return\nfunc @g() -> (int32*[]):\n return %0\n"
    verify(parse(text))
    assert "%1 is not visible here" in rejected(text.replace("return %0", "return %1")).complaint


def test_loops_do_not_occur_once_they_are_functions():
    text = "module()\nfunc @f() -> ():\n for 1: int32*[] () do (%0: int32*[]):\n yield\n return\n"
    verify(parse(text))
    with pytest.raises(VerifierError, match="functions: For does not occur at this stage"):
        verify(parse(text), FUNCTIONS)
    turn = Value(0, INT)
    loop = Map((Value(1, List(INT)),), Literal(2, INT), Region((turn,), (), (turn,)))
    verify(Module((Function("f", Region((), (loop,), ())),)), FUNCTIONS)


def test_the_error_shows_the_source_line():
    from autobatch.errors import Span

    apply = Apply((Value(1, BOOL),), Op("is_none"), (Value(0, INT),), Span(__file__, 1, 1))
    with pytest.raises(VerifierError) as raised:
        verify(Module((Function("f", Region((Value(0, INT),), (apply,), ())),)))
    assert f"{__file__}:1:1" in str(raised.value) and "The verifier accepts" in str(raised.value)


def test_params_that_cannot_be_hashed():
    import jax.numpy as jnp

    from tests.ir.test_printer import traced

    module = traced(lambda a: a.at[0].set(2.0), Array("float32", (3,)))
    verify(module)
    verify(traced(lambda a: a + jnp.arange(3.0), Array("float32", (3,))))
