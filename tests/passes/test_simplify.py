"""The region that machine code is written of: what it leaves out, and that it computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.ir.core import Apply, If, Value, walk
from autobatch.ir.printer import parse
from autobatch.passes.simplify import eliminate_common, forward

MASKED = """module()

func @f(%0: float32[], %1: bool[]) -> (float32[]):
  %2: float32[] = exp[accuracy=None](%0)
  %3: float32[] = masked (%1, %0) do (%10: bool[], %11: float32[]):
    %16: float32[], %17: float32[] = if %10 then:
      %12: float32[] = exp[accuracy=None](%11)
      %13: float32[] = sin[accuracy=None](%12)
      yield %12, %13
    else:
      %14: float32[] = cos[accuracy=None](%11)
      yield %11, %14
    yield %16
  %4: float32[] = add(%2, %3)
  %5: float32[] = tanh[accuracy=None](%4)
  return %4
"""


def names(region):
    return [i.op.name if isinstance(i, Apply) else type(i).__name__ for i in walk(region)]


def test_what_is_computed_is_computed_once_and_for_somebody():
    assert names(forward(parse(MASKED).functions[0].region)) == ["exp", "If", "add"]


def test_an_operation_in_two_places_has_its_own_values_in_each():
    region = parse(MASKED).functions[0].region
    masked = region.body[1]
    c, again = region.args[1], (Value(50, region.args[0].type),)
    twice = type(region)(region.args, (masked, Apply(again, masked.op, (c, masked.results[0]))), again)
    found = forward(twice)
    defined = [r for i in walk(found) for r in i.results]
    assert len(set(defined)) == len(defined)
    assert names(found) == ["If", "exp", "If", "exp"]
    branches = [i for i in found.body if isinstance(i, If)]
    assert branches[1].then.body[0].operands == branches[0].results
    assert found.results == branches[1].results


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        ("%9: bool[] = eq(17: int32[], 0: int32[])", "False: bool[]"),
        ("%9: bool[] = lt(-3: int32[], 2: int32[])", "True: bool[]"),
        ("%9: bool[] = and(%1, True: bool[])", "%1"),
        ("%9: bool[] = ne(False: bool[], %1)", "%1"),
        ("%9: bool[] = or(%1, True: bool[])", "True: bool[]"),
        ("%9: int32[] = sign(-5: int32[])", "-1: int32[]"),
        ("%9: int32[] = select_n(True: bool[], 17: int32[], %2)", "%2"),
        ("%9: bool[] = eq(1.0: float32[], 2.0: float32[])", None),
        ("%9: bool[] = and(%1, %1)", None),
        ("%9: bool[] = eq(4294967296: int32[], 0: int32[])", None),
    ],
)
def test_constants(line, is_known):
    text = f"module()\n\nfunc @f(%0: float32[], %1: bool[], %2: int32[]) -> ({line.split(' ')[1]}):\n  {line}\n"
    region = eliminate_common(parse(f"{text}  return %9\n")).functions[0].region
    assert str(region.results[0]) == (is_known or "%9")
    assert len(region.body) == (is_known is None)


def guards_a_square_root(x, n):
    y = jnp.sqrt(x) / (1 + n % 7)
    z = jnp.exp(y)
    if z > 3:
        return y * z
    if n // 3 % 2 == 0:
        return z - y
    return y


def test_arms_and_their_derivatives():
    xs, ns = np.linspace(0, 4, 33, dtype=np.float32), np.arange(-16, 17, dtype=np.int32)
    f = ab.batched(guards_a_square_root, backend="llvm")
    np.testing.assert_allclose(f(xs, ns), f.loop(xs, ns), rtol=1e-6)
    assert f.lower(xs, ns).compile().executable.text.count("@llvm.sqrt.v") == 2  # declared and called
    _, derivative = jax.value_and_grad(lambda x: jnp.sum(f(x, ns)))(xs)
    assert np.all(np.isfinite(derivative[1:]))


def beside_the_branches(count):
    """A module whose function hands a quotient on beside so many branches."""
    lines = ["def f(x):", "    y = 1.0 / (2.0 + x)"]
    for k in range(count):
        lines += [f"    if x > {k}.5:", f"        x = x * y - {k}.0", f"    y = y / (1.0 + y * y) + 0.125 * {k + 1}"]
    return "\n".join([*lines, "    return x + y"])


def test_code_is_as_long_as_the_function(tmp_path, monkeypatch):
    """Derivatives compute what an arm reads inside it; without one there are no copies."""
    monkeypatch.syspath_prepend(tmp_path)
    sizes = []
    for count in (10, 20):
        (tmp_path / f"beside{count}.py").write_text(beside_the_branches(count))
        f = ab.batched(__import__(f"beside{count}").f, backend="llvm")
        xs = np.linspace(0, 4, 9, dtype=np.float32)
        np.testing.assert_allclose(f(xs), f.loop(xs), rtol=1e-5)
        module = f.lower(xs).program.compiled.native.whole.module
        inside = [i for i in walk(module.functions[0].region) if isinstance(i, Apply)]
        sizes.append(sum(len(list(walk(i.op["region"]))) if i.op.name == "masked" else 1 for i in inside))
    assert sizes[1] < 2.2 * sizes[0]


def not_where_it_is_infinite(x):
    y = jnp.sqrt(x)
    if jnp.exp(x) > 3:
        return y * 2
    return x


def test_derivatives_are_of_arms_that_compute_it_inside():
    f = ab.batched(not_where_it_is_infinite, backend="llvm")
    xs = jnp.asarray([0.0, 0.5, 4.0], jnp.float32)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(f(x)))(xs), [1.0, 1.0, 0.5], rtol=1e-6)
