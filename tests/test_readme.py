"""The README's examples run, as one program, and print what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
EXAMPLE = re.compile(r"(```python\n((?:(?!```).)*)```\n\n```text\n)((?:(?!```).)*)(```)", re.S)
MARK = "----"


def test_the_examples_print_what_the_readme_says(tmp_path, request):
    page = README.read_text()
    script = tmp_path / "example.py"  # a file: the compiler reads source
    script.write_text("\n".join(f"{code}print({MARK!r})" for _, code, _, _ in EXAMPLE.findall(page)))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr
    printed = iter(done.stdout.split(f"{MARK}\n"))
    true = EXAMPLE.sub(lambda shown: shown[1] + next(printed) + shown[4], page)
    if request.config.getoption("--update-golden"):
        README.write_text(true)
    for (_, _, said, _), (_, _, now, _) in zip(EXAMPLE.findall(page), EXAMPLE.findall(true), strict=True):
        assert said == now or request.config.getoption("--update-golden")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "AUTOBATCH_TRACE": "1"}
