"""A compilation that takes long shows a line on stderr, where it is wanted."""

from __future__ import annotations

import time

import pytest

import autobatch as ab
from autobatch.common import progress


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "STEP", 0.01)


def test_what_is_compiled_and_its_stage(capfd):
    with progress.compiling("f", "example", True):
        time.sleep(0.1)
        progress.at("masks")
        time.sleep(0.1)
        with progress.compiling("g", "XLA", True):
            time.sleep(0.1)
    shown = capfd.readouterr().err
    assert "compiling f: example [00:00]" in shown and "compiling f: masks" in shown and "compiling f: XLA" in shown
    assert shown.endswith("\r")  # the line is gone
    progress.at("behind it")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("wanted", ["auto", False])
def test_nothing_where_it_is_not_wanted(capfd, wanted):
    with progress.compiling("f", "example", wanted):
        time.sleep(0.05)
    assert capfd.readouterr().err == ""


def test_what_compiles_quickly_shows_nothing(capfd, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with progress.compiling("f", "example", True):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("backend", ["xla", "llvm"])
def test_calls_and_derivatives(capfd, backend):
    @ab.batched(in_axes=(None, 0), backend=backend)
    def walked(w, xs):
        h = 0.0
        for x in xs:
            h = h * 0.5 + x * w
        return h

    with ab.options(progress=True, compilation_cache=False):
        ab.value_and_grad(walked)(2.0, [[1.0, 2.0], [3.0]])
        assert "compiling walked: " in capfd.readouterr().err
        ab.value_and_grad(walked)(2.0, [[1.0, 2.0], [3.0]])
    assert capfd.readouterr().err == ""


def test_it_ends_where_compiling_fails(capfd):
    with pytest.raises(ValueError), progress.compiling("f", "example", True):
        raise ValueError
    with progress.compiling("g", "example", True):
        time.sleep(0.05)
    assert "compiling g" in capfd.readouterr().err
