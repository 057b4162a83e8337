"""What windows cost: measured, kept in a file, and measured again where the file is of no use."""

import json
import logging
import threading
from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.xla import program
from autobatch.passes.costs import TYPICAL, MachineCosts
from tests.passes.frames.programs import parameters, tree_lstm
from tests.properties.strategies import Node

MADE = MachineCosts(1.5, 0.25, 0.0002, 12.0, ((4, 50.0), (64, 100.0)))


@pytest.fixture
def measured(monkeypatch):
    """A measurement that takes no time; returns how often it was made. What other tests have read is forgotten."""
    count = []

    def measure():
        count.append(1)
        return MADE

    monkeypatch.setattr(program, "measure", measure)
    monkeypatch.setattr(program, "_known", {})
    return count


def forget(monkeypatch):
    """As in another process."""
    monkeypatch.setattr(program, "_known", {})


def kept(folder):
    (path,) = folder.glob("*.json")
    return path


# ---- the file


def test_measured_once_and_then_read(tmp_path, measured, monkeypatch):
    assert program.machine(tmp_path / "new") == MADE
    assert program.machine(tmp_path / "new") == MADE
    forget(monkeypatch)
    assert program.machine(tmp_path / "new") == MADE, "numbers come back from the file as they were"
    assert len(measured) == 1
    assert [p.name for p in (tmp_path / "new").iterdir()] == [kept(tmp_path / "new").name], "no temporary file is left"


def test_measured_means_the_cache_folder_of_the_user(tmp_path, measured, monkeypatch):
    monkeypatch.setattr(program, "user_cache_folder", lambda: tmp_path)
    program.machine("measured")
    assert kept(tmp_path / "costs").exists()


def test_typical_costs_need_neither_file_nor_measurement(measured):
    assert program.machine("typical") is TYPICAL
    assert not measured


def changed(**parts):
    """Texts of a file whose machine says something else."""
    return json.dumps({"identity": program.identify(), "machine": {**asdict(MADE), **parts}})


DAMAGED = {
    "empty": "",
    "no JSON": "{'overhead': 1",
    "bytes": "\x00\xff\x00",
    "a list": "[1, 2]",
    "no identity": json.dumps({"machine": asdict(MADE)}),
    "no machine": json.dumps({"identity": program.identify()}),
    "not a number": changed(overhead="fast"),
    "NaN": changed(element=float("nan")),
    "infinite": changed(step=float("inf")),
    "negative": changed(expensive=-1.0),
    "true": changed(step=True),
    "no products": changed(products=[]),
    "products of three": changed(products=[[8, 50.0, 1.0]]),
    "products out of order": changed(products=[[64, 50.0], [8, 60.0]]),
    "no rows": changed(products=[[0.5, 60.0]]),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_measured_anew_and_replaced(text, tmp_path, measured, monkeypatch, caplog):
    program.machine(tmp_path)
    path = kept(tmp_path)
    path.write_text(text, encoding="latin-1")
    forget(monkeypatch)
    with caplog.at_level(logging.WARNING, "autobatch"):
        assert program.machine(tmp_path) == MADE
    (line,) = [r.getMessage() for r in caplog.records]
    assert str(path) in line and "again" in line
    assert len(measured) == 2 and program.read(path, program.identify()) == MADE


@pytest.mark.parametrize("part", ["format", "processor", "cores", "flags", "jax", "jaxlib", "platform", "device"])
def test_a_file_of_another_machine_or_version_is_measured_anew(part, tmp_path, measured, monkeypatch, caplog):
    program.machine(tmp_path)
    path = kept(tmp_path)
    held = json.loads(path.read_text())
    held["identity"][part] = "another"
    path.write_text(json.dumps(held))
    forget(monkeypatch)
    with caplog.at_level(logging.WARNING, "autobatch"):
        program.machine(tmp_path)
    assert f"measured elsewhere ({part} was 'another', is" in caplog.text
    assert len(measured) == 2 and json.loads(path.read_text())["identity"] == program.identify()


def test_machines_that_share_a_home_have_a_file_each(tmp_path, measured, monkeypatch):
    program.machine(tmp_path)
    here = program.identify()
    monkeypatch.setattr(program, "identify", lambda: {**here, "processor": "another"})
    program.machine(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 2 and len(measured) == 2


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path, measured, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.INFO, "autobatch"):
        assert program.machine(tmp_path / "file" / "costs") == MADE
    assert "not kept" in caplog.text


def test_a_user_without_home_measures_in_each_process(measured, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(program, "user_cache_folder", homeless)
    assert program.machine("measured") == MADE


def test_readers_see_a_whole_file_while_others_write_it(tmp_path):
    identity = program.identify()
    path = program.file_of(tmp_path, identity)
    program.write(path, identity, MADE)
    done = threading.Event()

    def write():
        while not done.is_set():
            program.write(path, identity, MADE)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for w in writers:
        w.start()
    try:
        assert {program.read(path, identity) for _ in range(200)} == {MADE}
    finally:
        done.set()
        for w in writers:
            w.join()


# ---- the measurement


def test_the_machine_follows_from_the_times_of_the_loops():
    """Times as a machine with these numbers would take come back as its numbers."""
    overhead, step, element, expensive = 2.0, 0.5, 0.0001, 20.0
    rows, columns = program.BROAD
    broad = overhead + rows * columns * element * (program.CHEAP + 1)
    turn = {
        "short": overhead,
        "long": overhead + 3 * program.LINKS * step,
        "cheap": broad,
        "expensive": broad + rows * columns * element * expensive * program.EXPENSIVE,
    }
    speeds = {n: 10.0 + n for n in program.PRODUCT_ROWS}
    for n, speed in speeds.items():
        turn[f"product {n}"] = overhead + 2 * n * program.INNER * program.OUTER / speed / 1000
    found = program.machine_of(turn)
    assert (found.overhead, found.step, found.element, found.expensive) == pytest.approx((2.0, 0.5, 0.0001, 20.0))
    assert dict(found.products) == pytest.approx(speeds)


def test_times_that_a_busy_machine_has_spoilt_still_make_positive_costs():
    """The wide product came out slower a row than the narrow one, and differences came out as nothing."""
    turn = dict.fromkeys(program.LOOPS, program.LEAST)
    turn["short"], turn["product 128"] = 5.0, 1e9
    found = program.machine_of(turn)
    speeds = [speed for _, speed in found.products]
    assert speeds == sorted(speeds) and min(found.overhead, found.step, found.element, *speeds) > 0
    assert found.expensive >= 1


def test_this_machine_is_measured_inside_another_trace(tmp_path, monkeypatch):
    """The one test that measures: the first call may be one under `jax.jit`."""
    forget(monkeypatch)
    f = ab.batched(tree_lstm.__wrapped__, in_axes=(None, 0), options={"window_costs": tmp_path, "loops": "xla"})
    trees = ab.pack(TREES).plan(f)
    found = jax.jit(lambda p: f(p, trees))(parameters())
    for got, wanted in zip(found, tree_lstm(parameters(), TREES)):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    made = program.read(kept(tmp_path), program.identify())
    numbers = [made.overhead, made.step, made.element, made.expensive, *(s for _, s in made.products)]
    assert min(numbers) > 0 and [n for n, _ in made.products] == list(program.PRODUCT_ROWS)


# ---- what it decides


def perfect(depth, x=0.5):
    return Node(x, int(8 * x) % 5) if depth == 0 else Node(x, 0, perfect(depth - 1, x + 0.125), perfect(depth - 1, -x))


TREES = [perfect(depth) for depth in (5, 3, 0, 4)]
MACHINES = {
    "wide windows only": MachineCosts(1e6, 1.0, 1e-4, 4.0, ((8, 100.0),)),
    "narrow windows only": MachineCosts(1e-6, 1e-6, 1.0, 4.0, ((1, 100.0),)),
}


def windows(f, *args):
    loops = f.explain(*args).data["recurrences"]
    return [(w["width"], w["count"]) for loop in loops for t in loop["tasks"] for w in t["windows"]]


def test_results_do_not_depend_on_the_costs(tmp_path, monkeypatch):
    covers = {}
    wanted = tree_lstm(parameters(), TREES)
    for name, made in MACHINES.items():
        forget(monkeypatch)
        program.write(program.file_of(tmp_path / name, program.identify()), program.identify(), made)
        f = ab.batched(
            tree_lstm.__wrapped__, in_axes=(None, 0), options={"window_costs": tmp_path / name, "loops": "xla"}
        )
        for got, want in zip(f(parameters(), TREES), wanted):
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
        covers[name] = windows(f, parameters(), TREES)
    wide, narrow = covers.values()
    assert sum(count for _, count in wide) == 5, "a window for each level, wide enough for its rows"
    assert {w for w, _ in narrow} == {4}


def test_programs_without_levels_and_the_reference_measure_nothing(measured, tmp_path):
    with ab.options(window_costs=tmp_path):
        ab.batched(lambda x: x * 2.0)(jnp.arange(3.0))
        ab.batched(tree_lstm.__wrapped__, in_axes=(None, 0), backend="interpret")(parameters(), TREES[:1])
        assert not measured
        ab.batched(tree_lstm.__wrapped__, in_axes=(None, 0), options={"loops": "xla"})(parameters(), TREES[:1])
        assert len(measured) == 1
