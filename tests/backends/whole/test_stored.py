"""Programs between runs of Python: found again without lowering, and never where something they depend on differs."""

import errno
import importlib
import json
import linecache
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import autobatch as ab
from autobatch.api import batched as api
from autobatch.backends.llvm.text import is_checking
from autobatch.common import cache
from autobatch.common.cache import user_cache_folder
from autobatch.compiler import passes
from autobatch.compiler.passes import LOWER, Pass

pytestmark = pytest.mark.skipif(is_checking(), reason="nothing is kept on disk")

MODULE = """\
import math
import numpy as np
import jax.numpy as jnp

SCALE = 2.0
TABLE = (1.0, 3.0)
WEIGHTS = np.float32([1.0, 2.0, 3.0])


def helper(x):
    return x * 3.0 + SCALE


def made(offset):
    def inner(x):
        return x - offset
    return inner


shifted = made(0.5)


def f(x, n, power=2):
    k: int = 0
    while x * x > 1.0 and k < n:
        x = x / 2 if x > 0 else x / 4
        k = k + 1
    total = helper(x) + shifted(x) * TABLE[1] + abs(math.sin(x)) + WEIGHTS[1]
    return total ** power, {"turns": k}, jnp.where(x > 0, 1, 10 // n)


def unrelated(x):
    return x
"""

X, N = np.linspace(-9, 9, 20, dtype=np.float32), np.arange(1, 21, dtype=np.int32)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """`world(text)` calls `f` of a module with this text, as a new process would, and says how often it was lowered."""
    lowered = []
    monkeypatch.setattr(api, "enable_compilation_cache", lambda folder: None)
    noted = Pass("lower", lambda *a, lower=LOWER.run: lowered.append(a[0]) or lower(*a))
    monkeypatch.setattr(passes, "LOWER", noted)
    monkeypatch.setattr(cache, "_told", set())
    monkeypatch.syspath_prepend(tmp_path)

    def call(text=MODULE, arguments=(X, N), **options):
        (tmp_path / "kept_functions.py").write_text(text)
        sys.modules.pop("kept_functions", None)
        linecache.clearcache()
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        module = importlib.import_module("kept_functions")
        sys.dont_write_bytecode = before
        lowered.clear()
        g = ab.batched(module.f, backend="llvm", options={"compilation_cache": tmp_path / "kept", **options})
        result = g(*arguments)
        count = len(lowered)
        for found, wanted in zip(ab.unbatch(result), g.loop(*arguments), strict=True):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, wanted)
        return count, g

    call.folder = tmp_path / "kept" / "programs"
    return call


def test_a_program_is_found_again_and_lowered_only_for_what_calls_do_not_need(world):
    first, f = world()
    again, g = world()
    assert (first, again) == (1, 0)
    jax.tree.map(np.testing.assert_array_equal, f(X, N), g(X, N))
    handle = g.lower(X, N).compile()
    assert "@run(" in handle.executable.text
    assert "llvm" in str(g.explain(X, N))
    for a, b in zip(jax.tree.leaves(jax.jit(g)(X, N)), jax.tree.leaves(g(X, N)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


def test_a_program_that_was_found_has_derivatives(world):
    text = MODULE[: MODULE.index("    total =")] + "    return helper(x) * x\n"
    one, f = world(text)
    two, g = world(text)
    assert (one, two) == (1, 0)
    for a, b in zip(ab.grad(f)(X, N), ab.grad(g)(X, N), strict=True):
        np.testing.assert_array_equal(a, b)


EDITS = {
    "a helper": ("x * 3.0 + SCALE", "x * 4.0 + SCALE"),
    "a global number": ("SCALE = 2.0", "SCALE = 2.5"),
    "a global container": ("TABLE = (1.0, 3.0)", "TABLE = (1.0, 3.5)"),
    "the type of a global array": ("np.float32([1.0", "np.float64([1.0"),
    "what a closure holds": ("made(0.5)", "made(0.25)"),
    "a default": ("power=2", "power=3"),
    "the function": ("x / 4", "x / 3"),
    "an annotation": ("k: int = 0", "k: float = 0"),
    "a module of the same name": ("import math\n", "import numpy as math\n"),
    "a builtin that is a global now": ("SCALE = 2.0", "SCALE = 2.0\n\n\ndef abs(x):\n    return x * x\n"),
    "where it is written": ("SCALE = 2.0", "SCALE = 2.0\n"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_has_changed_is_compiled_again(world, name):
    before, after = EDITS[name]
    assert before in MODULE
    world()
    assert world(MODULE.replace(before, after))[0] == 1
    assert world()[0] == 0, "the program before is kept beside the new one"
    assert world(MODULE.replace(before, after))[0] == 0


@pytest.mark.parametrize(
    "before, after", [("    return x\n", "    return -x\n"), ("[1.0, 2.0, 3.0]", "[1.0, 5.0, 3.0]")]
)
def test_what_a_program_does_not_depend_on_may_change(world, before, after):
    """Another function of the file; the numbers in an array, which are read at every call."""
    world()
    assert world(MODULE.replace(before, after))[0] == 0


def test_types_and_options_are_a_part_of_the_key(world):
    world()
    assert world(arguments=(X, N.astype(np.int16)))[0] == 1
    assert world(max_iterations=1000)[0] == 1
    assert world(threads=1)[0] == 0


def test_failures_name_their_lines(world):
    text = MODULE.replace("    total =", "    if k > 100:\n        raise ValueError('far')\n    total =")
    for count in (1, 0):
        lowered, f = world(text)
        assert lowered == count
        with pytest.raises(ab.ExampleError) as caught:
            f(X * 1e38, N + 200)
        failure = caught.value.failures[0]
        assert (failure.kind, failure.message) == ("ValueError", "far")
        assert "raise ValueError" in linecache.getline(failure.span.file, failure.span.line)


@pytest.mark.parametrize("damage", [b"", b"[]", b"nonsense" * 50, None])
def test_a_damaged_file_is_made_again(world, damage):
    world()
    (path,) = world.folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    assert world()[0] == 1
    assert world()[0] == 0


@pytest.mark.parametrize("entry", [{}, {"code": 3}, [], None, {"free": [[7, "x", [], "", None]]}])
def test_a_whole_file_with_something_else_is_made_again(world, entry):
    world()
    (path,) = world.folder.iterdir()
    cache.write(path, json.dumps([entry]).encode())
    assert world()[0] == 1
    assert world()[0] == 0


def test_without_its_object_a_program_is_compiled_again(world, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    world()
    for path in (user_cache_folder() / "kernels").iterdir():
        path.unlink()
    assert world()[0] == 1
    for path in (user_cache_folder() / "kernels").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert world()[0] == 1
    assert world()[0] == 0


def test_on_a_full_disk_everything_works_and_the_log_says_so_once(world, monkeypatch, caplog, tmp_path):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache.tempfile, "NamedTemporaryFile", full)
    with caplog.at_level(logging.WARNING, logger="autobatch"):
        assert [world()[0], world()[0]] == [1, 1]
    told = [r.getMessage() for r in caplog.records]
    assert sorted("programs" in t for t in told) == [False, True] and all("No space left" in t for t in told)


def test_where_no_folder_can_be_made_everything_works(world, caplog, tmp_path):
    (tmp_path / "kept").write_text("a file, where the folder should be")
    with caplog.at_level(logging.WARNING, logger="autobatch"):
        assert [world()[0], world()[0]] == [1, 1]
    assert sum("nothing is kept in" in r.getMessage() for r in caplog.records) == 1


def test_writers_do_not_meet(tmp_path):
    path = tmp_path / "folder" / "file"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: cache.write(path, bytes([k]) * 100_000), range(64)))
        assert len(set(cache.read(path))) == 1
    assert [p.name for p in path.parent.iterdir()] == ["file"]


OPAQUE = """\
class Rate:
    def __init__(self, value):
        self.value = value


RATE = Rate(2.0)


def f(x, n):
    return x * RATE.value, {"turns": n}, n
"""


def test_what_other_processes_cannot_compare_is_not_kept(world):
    assert world(OPAQUE)[0] == 1
    assert world(OPAQUE.replace("2.0", "3.0"))[0] == 1


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import kept_functions, autobatch as ab, numpy as np
f = ab.batched(kept_functions.f, backend="llvm", options={"compilation_cache": sys.argv[2]})
print(float(f(np.float32([3.0]), np.int32([4]))[0][0]), "llvmlite" in sys.modules)
"""


def test_processes_find_what_others_have_left(tmp_path):
    (tmp_path / "kept_functions.py").write_text(MODULE)
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(tmp_path / "kept")]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "home"), "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    said = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout for _ in "12"]
    value, compiler = said[0].split()
    assert compiler == "True" and said[1].split() == [value, "False"]
