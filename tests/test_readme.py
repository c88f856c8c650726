"""The Python of the README runs as it stands, block after block, and says what it says there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_blocks_run_one_after_the_other(capsys):
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    names = {"model": torch.nn.Linear(4, 2)}
    assert len(BLOCKS) >= 4
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out
    # the direction error: falls like 1/k² under steps of constant length, and is 1.4e-5 after 20,000
    assert float(re.search(r"^(\S+e-\d+)$", printed, re.MULTILINE)[1]) < 2e-5
    said = float(re.search(r"classifier\.score.*# (0\.\d+);", README.read_text(encoding="utf-8"))[1])
    assert round(names["classifier"].score(names["bags"].test, names["bags"].test_labels), 2) == said
