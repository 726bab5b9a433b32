"""The examples of the guide run, one after another."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/guide/python.md", ROOT / "python/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert examples
    names = {}
    for example in examples:
        line = text[: text.index(example)].count("\n")
        exec(compile("\n" * line + example, str(page), "exec"), names)
