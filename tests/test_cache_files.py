"""Files between runs of Python: used only where this user has written them, under this name, in a private folder."""

import json
import logging
import multiprocessing
import os
import random
import stat

import numpy as np
import pytest

import autobatch as ab
from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.text import is_checking
from autobatch.backends.xla import program as machines
from autobatch.common import cache
from autobatch.common.cache import KEY, is_name, read, user_cache_folder, write
from autobatch.passes.costs import TYPICAL

COUNT = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 100


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "_told", set())
    return tmp_path / "home" / "autobatch"


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_what_is_written_is_read(tmp_path, home, caplog):
    path = tmp_path / "folder" / "entry.o"
    assert read(path) is None
    for content in (b"", b"code", bytes(100_000)):
        write(path, content)
        assert read(path) == content
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (home / KEY, path, path.parent, home)]
    assert modes == [0o600, 0o600, 0o700, 0o700]
    assert warnings(caplog) == []


def test_an_entry_under_another_name_is_none(tmp_path):
    path = tmp_path / "folder" / "entry"
    write(path, b"code")
    path.rename(path.with_name("other"))
    assert read(path.with_name("other")) is None


def test_an_entry_by_another_key_is_none(tmp_path, home, caplog):
    path = tmp_path / "folder" / "entry"
    write(path, b"code")
    (home / KEY).write_bytes(bytes(32))
    assert [read(path), read(path)] == [None, None]
    assert len(warnings(caplog)) == 1 and "is damaged, or another user or machine has written it" in caplog.text
    write(path, b"code")
    assert read(path) == b"code"


@pytest.mark.parametrize("what", ["file", "folder", "key"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_is_not_opened(tmp_path, home, caplog, what, mode):
    path = tmp_path / "folder" / "entry"
    write(path, b"code")
    place = {"file": path, "folder": path.parent, "key": home / KEY}[what]
    place.chmod(stat.S_IMODE(place.stat().st_mode) | mode)
    assert [read(path), read(path)] == [None, None]
    assert len(warnings(caplog)) == 1
    if what != "key":  # what is made again is private
        write(path, b"code")
        assert read(path) == b"code"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["file", "folder", "key"])
def test_what_belongs_to_another_is_not_opened(tmp_path, home, caplog, what):
    path = tmp_path / "folder" / "entry"
    write(path, b"code")
    os.chown({"file": path, "folder": path.parent, "key": home / KEY}[what], 12345, 12345)
    assert [read(path), read(path)] == [None, None]
    assert len(warnings(caplog)) == 1


def test_a_link_is_not_followed(tmp_path):
    path = tmp_path / "folder" / "entry"
    write(path, b"code")
    path.rename(tmp_path / "folder" / "elsewhere")
    path.symlink_to(tmp_path / "folder" / "elsewhere")
    assert read(path) is None


@pytest.mark.parametrize("name", ["..", "../..", "a/b", "/etc/passwd", ".hidden", "", "a b", 3, None])
def test_names_that_lead_elsewhere_are_none(name):
    assert not is_name(name)
    if isinstance(name, str):
        with pytest.raises(ValueError, match="is no name of a file"):
            machine_code.held(name, (), {})


def test_a_relative_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for relative in ("cache", "./cache", "../cache", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert user_cache_folder() == tmp_path / ".cache" / "autobatch"


def key(home):
    os.environ["XDG_CACHE_HOME"] = home
    return cache._key(make=True)


def test_processes_that_begin_together_have_one_key(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(key, [str(tmp_path / "fresh")] * 16))) == 1
    assert [p.name for p in (tmp_path / "fresh" / "autobatch").iterdir()] == [KEY]


def edited(rng, content):
    at, n = rng.randrange(len(content)), rng.choice([1, 1, 4, 64])
    other = [content[:at], content[:at] + content[at + n :], content[:at] + rng.randbytes(n) + content[at + n :]]
    return rng.choice([*other, content[:at] + rng.randbytes(n) + content[at:]])


@pytest.mark.skipif(is_checking(), reason="nothing is kept on disk")
def test_code_and_programs_that_something_changed_are_made_again(tmp_path, home, caplog):
    rng, x = random.Random(0), np.linspace(-1, 1, 5).astype(np.float32)
    options = {"compilation_cache": tmp_path / "kept"}

    def call():
        return ab.batched(cubed, backend="llvm", options=options)(x)

    wanted = call()
    paths = [*(home / "kernels").glob("*.o"), *(tmp_path / "kept" / "programs").glob("*.json")]
    whole = {path: path.read_bytes() for path in paths}
    assert len(whole) == 2
    for k in range(COUNT):
        path = paths[k % 2]
        path.write_bytes(edited(rng, whole[path]))
        np.testing.assert_array_equal(call(), wanted)
        assert read(path) is not None  # it is whole again
        path.write_bytes(whole[path])
    assert len(warnings(caplog)) == 2


def cubed(x):
    return x * x * x - 1.0


def test_costs_that_something_changed_are_measured_again(tmp_path):
    rng, path, identity = random.Random(1), tmp_path / "costs.json", {"processor": "one", "cores": 2}
    machines.write(path, identity, TYPICAL)
    whole = path.read_bytes()
    assert machines.read(path, identity) == TYPICAL
    for _ in range(COUNT):
        path.write_bytes(edited(rng, whole))
        try:
            assert machines.read(path, identity) == TYPICAL
        except ValueError as error:
            assert "damaged" in str(error) or "something else" in str(error) or "elsewhere" in str(error)
    path.write_text(json.dumps({"identity": identity, "machine": []}))
    with pytest.raises(ValueError, match="its hash is another"):
        machines.read(path, identity)
