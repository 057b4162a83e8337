"""The form of printed modules and of verifier errors, as golden files; and the golden files themselves."""

import jax.numpy as jnp
import pytest

from autobatch.ir.printer import Dump, dump, parse
from autobatch.ir.verifier import VerifierError, verify

ENCODE = """
module(shared %0: float32[5x4])
func @encode(%1: ref<Node>) -> ():
  %2: ref<Node> = load[field='left'](%1)
  %3: bool[] = is_none(%2)
  %4: float32[4] = if %3 then:
    %5: int32*[] = load[field='word'](%1)
    %6: float32[1x4] = dynamic_slice[slice_sizes=(1, 4)](%0, %5, 0: int32*[])
    %7: float32[4] = squeeze[dimensions=(0,)](%6)
    yield %7
  else:
    %8: list<ref<Node> in Node.kids> = load[field='kids'](%1)
    %9: int32*[] = length(%8)
    %10: float32[4], %11: int32*[] = for %9 (const0: float32[4], 0: int32*[])
    do (%12: int32*[], %13: float32[4], %14: int32*[]):
      %15: ref<Node> = item(%8, %12)
      %16: float32[4] = call @encode(%15)
      %17: float32[4] = add(%13, %16)
      %18: int32*[] = while (%14) test (%19: int32*[]):
        %20: bool[] = lt(%19, 3: int32*[])
        yield %20
      do (%21: int32*[]):
        %22: int32*[] = add(%21, 1: int32*[])
        yield %22
      yield %17, %18
    %23: list<float32*[]> = filter %9 do (%24: int32*[]):
      %25: float32*[] = pow(2.0: float32*[], -1.5: float32*[])
      %26: float32[4] = jax.pow(%10, 0.5: float32[])
      yield True: bool[], %25
    check[kind='ValueError', message="{} kids, that's few"](True: bool[], %9)
    yield %10
  return %4
"""


def test_the_form_of_a_module(golden):
    table = (jnp.arange(4, dtype="float32"),)
    module = parse(Dump(ENCODE.replace("\nfunc", "\nconstant 0 = @0\nfunc", 1), table))
    verify(module)
    printed = dump(module)
    assert parse(printed) == module
    golden("ir", "module", printed.text)


def test_the_form_of_a_verifier_error(golden):
    with pytest.raises(VerifierError) as raised:
        verify(parse(ENCODE.replace("const0: float32[4]", "%0").replace("is_none(%2)", "is_none(True: bool[])")))
    golden("ir", "verifier_error", f"{raised.value}")


def test_a_difference_is_shown(request, golden, tmp_path, monkeypatch):
    if request.config.getoption("--update-golden"):
        pytest.skip("golden files are being written")
    monkeypatch.setitem(golden.__globals__, "GOLDEN", tmp_path)
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / "name.txt").write_text("module()\n")
    golden("topic", "name", "module()\n")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)-module\(\).*\+other.*--update-golden"):
        golden("topic", "name", "other\n")


def test_a_missing_file_is_a_failure(request, golden):
    if request.config.getoption("--update-golden"):
        pytest.skip("golden files are being written")
    with pytest.raises(pytest.fail.Exception, match="does not exist: run this test with --update-golden"):
        golden("topic", "nowhere", "text")
