"""What a function reads from outside itself: a change of it is seen by the next call, and by the next process."""

import math

import pytest

import autobatch as ab

BACKENDS = ["llvm", "xla"]
TABLE = {"op": math.sqrt}
operation = math.sqrt


class Held:
    op = math.sqrt

    def __init__(self, op):
        self.op = op


HELD = Held(math.sqrt)


def item(x):
    return TABLE["op"](x)


def of_module(x):
    return operation(x)


def attribute(x):
    return HELD.op(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fun", [item, of_module, attribute], ids=lambda f: f.__name__)
def test_another_function_of_python(fun, backend, monkeypatch):
    batched = ab.batched(fun, backend=backend)
    assert batched([4.0, 9.0]).tolist() == [2.0, 3.0]
    monkeypatch.setitem(TABLE, "op", math.fabs)
    monkeypatch.setattr(HELD, "op", math.fabs)
    monkeypatch.setitem(globals(), "operation", math.fabs)
    assert batched([4.0, -9.0]).tolist() == [4.0, 9.0]


def made(op, factor, by):
    if by == "default":
        return lambda x, op=op, factor=factor: op(x) * factor
    if by == "keyword":

        def of_keywords(x, *, op=op, factor=factor):
            return op(x) * factor

        return of_keywords
    if by == "closure":
        return lambda x: op(x) * factor

    def helper(x, op=op, factor=factor):
        return op(x) * factor

    return lambda x: helper(x) * 1.0


@pytest.mark.parametrize("by", ["default", "keyword", "closure", "helper"])
def test_kept_programs_know_defaults_and_closures(by, tmp_path):
    """Functions of one text differ in what they were made with."""
    wanted = {}
    for again in range(2):
        for op in (math.sqrt, math.fabs):
            for factor in (1.0, 2.0, -0.0, 0.0):
                with ab.options(compilation_cache=tmp_path):
                    found = ab.batched(made(op, factor, by), backend="llvm")([4.0, 9.0])
                wanted[op, str(factor)] = [op(4.0) * factor, op(9.0) * factor]
                assert list(map(str, found.tolist())) == list(map(str, wanted[op, str(factor)])), again
