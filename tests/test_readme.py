"""The README's example runs, and prints what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_example_prints_what_the_readme_says(tmp_path):
    code, printed = re.search(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    ).groups()
    script = tmp_path / "example.py"  # a file: the compiler reads source
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
