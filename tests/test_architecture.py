"""The shape of the code as tests: size of files, direction of imports, where JAX's less public parts are touched."""

import ast
import re
from pathlib import Path

from importlinter.api import read_configuration
from importlinter.application.use_cases import lint_imports

ROOT = Path(__file__).parent.parent
FOLDERS = ("autobatch", "benchmarks", "examples", "tests")
SOURCES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
TEXTS = SOURCES + sorted(
    p
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/*", "*/**/*.md", "*/**/*.txt")
    for p in ROOT.glob(pattern)
    if not any(part.startswith(".venv") for part in p.parts)
)
MAX_LINES = 1000


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {module} | {f"{module}.{alias.name}" for alias in names}
    return found


def test_no_file_is_too_long():
    lengths = {name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {path: lines for path, lines in lengths.items() if lines > MAX_LINES}, "split these by topic"


def test_imports_point_one_way():
    """The contracts in pyproject.toml, as `lint-imports` checks them."""
    assert read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"], "no contracts found"
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None), "see `make imports`"


def test_every_import_stands_at_the_top_of_its_file():
    """An import inside a function hides a cycle."""
    for path in SOURCES:
        if path.parts[len(ROOT.parts)] != "autobatch":
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = [n for n in ast.walk(function) if isinstance(n, (ast.Import, ast.ImportFrom))]
                assert not inner, f"{name(path)}:{inner[0].lineno}: import inside {function.name}"


def test_private_jax_is_never_touched_and_semi_public_jax_in_one_module():
    for path in SOURCES:
        names = imports(path)
        if name(path) == "autobatch/ir/jax_compat.py":
            names = [n for n in names if n not in ("jaxlib.xla_client", "jaxlib.xla_client.batched_device_put")]
        private = [n for n in names if n.startswith(("jax._src", "jaxlib"))]
        assert not private, f"{name(path)} imports {private}"
        if name(path) != "autobatch/ir/jax_compat.py":
            semi_public = [n for n in names if n.startswith(("jax.extend", "jax.interpreters"))]
            assert not semi_public, f"{name(path)} imports {semi_public}; that belongs in ir/jax_compat.py"


def test_no_path_of_somebodys_machine():
    absolute = re.compile(r"(?<![\w.~/$}])/" + r"(?:home|root|work|farm|opt|Users)/\w")
    for path in TEXTS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not absolute.search(line), f"{name(path)}:{number}: {line.strip()}"


def test_package_is_typed():
    assert (ROOT / "autobatch" / "py.typed").exists()
