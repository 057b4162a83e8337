"""Where the values of options come from, and what they may be."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autobatch.options import OptionError, Options, current, options


def test_defaults(monkeypatch):
    monkeypatch.delenv("AUTOBATCH_COMPILATION_CACHE", raising=False)
    seen = current()
    assert (seen.backend, seen.max_rows, seen.verify, seen.dump) == ("auto", 50_000_000, False, None)
    assert seen.compilation_cache is not None and seen.compilation_cache.name == "xla"


def test_argument_wins_over_context_over_process_over_environment(monkeypatch):
    monkeypatch.setattr(sys.modules[options.__module__], "_process", ())
    monkeypatch.setenv("AUTOBATCH_MAX_ROWS", "10")
    assert current().max_rows == 10
    options(max_rows=20).make_default()
    assert current().max_rows == 20
    with options(max_rows=30, verify=True):
        assert current().max_rows == 30
        with options(max_rows=40) as seen:
            assert seen == current() and seen.max_rows == 40
            assert current().verify, "an inner context keeps what it does not name"
        assert current().max_rows == 30
        assert current({"max_rows": 50}).max_rows == 50
        assert current(options(max_rows=60)).max_rows == 60
    assert current().max_rows == 20


def test_contexts_are_left_when_an_error_passes_and_may_be_entered_again():
    setting = options(backend="interpret")
    for _ in range(2):
        with pytest.raises(KeyError), setting, setting:
            raise KeyError
        assert current().backend == "auto"


def test_contexts_belong_to_their_thread():
    seen = []
    with options(max_rows=1):
        thread = threading.Thread(target=lambda: seen.append(current().max_rows))
        thread.start()
        thread.join()
    assert seen == [50_000_000]


def test_unknown_option_lists_the_known_ones():
    with pytest.raises(OptionError, match="no option 'max_row'; did you mean 'max_rows'.*backend, max_rows, verify"):
        options(max_row=3)
    with pytest.raises(OptionError, match="no option 'colour'"):
        current({"colour": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "fortran"),
        ("max_rows", 0),
        ("max_rows", True),
        ("max_rows", 1.5),
        ("verify", "maybe"),
        ("dump", 3),
        ("compilation_cache", 3),
        ("widths", ()),
        ("widths", (8, 16)),
        ("widths", (8, 0)),
        ("widths", 8),
        ("cache_size", "many"),
        ("residuals", "save_some"),
        ("residuals", True),
        ("window_costs", "quick"),
        ("window_costs", 3),
    ],
)
def test_bad_values_say_what_is_expected(name, value):
    with pytest.raises(OptionError, match=f"option '{name}' is .*; it takes "):
        options(**{name: value})


def test_environment(monkeypatch, tmp_path):
    texts = {
        "BACKEND": "xla",
        "MAX_ROWS": "7",
        "VERIFY": "1",
        "DUMP": str(tmp_path),
        "COMPILATION_CACHE": "0",
        "TRACE": "1",
        "WIDTHS": "32, 4",
        "WINDOW_COSTS": "measured",
    }
    for name, text in texts.items():
        monkeypatch.setenv(f"AUTOBATCH_{name}", text)
    assert current() == Options(
        backend="xla", max_rows=7, verify=True, dump=tmp_path, compilation_cache=None, widths=(32, 4)
    )
    monkeypatch.setenv("AUTOBATCH_MAX_ROWS", "lots")
    with pytest.raises(OptionError, match="environment variable AUTOBATCH_MAX_ROWS is 'lots'; it takes a positive int"):
        current()


def test_paths_are_absolute_so_that_a_change_of_folder_does_not_move_them():
    assert options(dump="here").values == (("dump", Path.cwd() / "here"),)
    assert options(window_costs="./here").values == (("window_costs", Path.cwd() / "here"),)


def test_key_holds_what_changes_the_program_and_nothing_else():
    assert Options(widths=(8,)).key != Options().key
    assert Options(verify=True, max_rows=3, cache_size=1).key == Options().key


SCRIPT = """
import jax, jax.numpy as jnp
{before}
jnp.ones(3) + 1
from pathlib import Path
from autobatch.options import enable_compilation_cache
enable_compilation_cache(Path({folder!r}))
enable_compilation_cache(Path({folder!r}) / "second")
jax.jit(lambda x: jnp.sin(x) * 2)(jnp.arange(5.0))
print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def run_fresh(before: str, folder: Path) -> str:
    code = SCRIPT.format(before=before, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_compilation_cache_is_filled_even_after_an_earlier_compile(tmp_path):
    folder = tmp_path / "cache"
    assert run_fresh("", folder) == f"{folder} 0.0"
    assert list(folder.iterdir()), "the cache stayed empty"
    assert not (folder / "second").exists()


def test_compilation_cache_leaves_the_users_choice(tmp_path):
    mine = tmp_path / "mine"
    text = run_fresh(f"jax.config.update('jax_compilation_cache_dir', {str(mine)!r})", tmp_path / "other")
    assert text == f"{mine} 1.0" and not (tmp_path / "other").exists()
    text = run_fresh("jax.config.update('jax_enable_compilation_cache', False)", tmp_path / "other")
    assert text == "None 1.0" and not (tmp_path / "other").exists()
