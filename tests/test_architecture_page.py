"""The page on architecture names files that exist, and shows what the passes really make of its example."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import autobatch as ab
from autobatch.compiler.passes import PASSES

PACKAGE = Path(__file__).parent.parent / "autobatch"
PAGE = PACKAGE / "ARCHITECTURE.md"
SHOWN = re.compile(r"(<!-- after: (.+?) -->\n```text\n)(.*?)(```)", re.S)


@dataclass
class Node:
    value: float
    children: list["Node"]


@ab.batched(in_axes=(None, 0))
def energy(scale, node):
    below = [energy(scale, child) for child in node.children]
    return scale * node.value + sum(below) / 2


def test_the_page_shows_the_source_that_is_tested_here():
    source = Path(__file__).read_text()
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    for paragraph in code.strip().split("\n\n"):
        assert paragraph in source


def test_the_page_shows_what_the_passes_make(tmp_path, request):
    with ab.options(dump=tmp_path, verify=True, backend="xla"):
        leaf = Node(1.0, [])
        assert energy(3.0, [leaf, Node(2.0, [leaf, Node(4.0, [leaf])])]).tolist() == [3.0, 14.25]
    made = {path.stem.split("-", 1)[1]: path.read_text().strip() + "\n" for path in tmp_path.iterdir()}
    page = PAGE.read_text()
    true = SHOWN.sub(lambda shown: shown[1] + made[shown[2]] + shown[4], page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(true)
    elif true != page:
        for (_, name, text, _), (_, _, now, _) in zip(SHOWN.findall(page), SHOWN.findall(true), strict=True):
            assert text == now, f"the program after {name!r} is another now; --update-golden writes the page anew"


def test_the_table_has_each_pass_of_the_list():
    rows = [row.split("|") for row in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", row)]
    assert sorted(n for row in rows for n in re.findall(r"`([\w-]+)`", row[3])) == sorted(p.name for p in PASSES)


@pytest.mark.parametrize("line", [row for row in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", row)])
def test_the_page_names_files_that_exist(line):
    """In each row of the table: `data/pack.py`, `infer.py` means two files of one folder."""
    folder = ""
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", line):
        folder, _, file = name.rpartition("/") if "/" in name else (folder, "", name)
        assert (PACKAGE / folder / file).exists(), f"no {folder}/{file}"
