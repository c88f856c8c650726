"""The documentation is consistent: links resolve, tables equal docstrings, included code equals its source.

Run this file as a script to copy the included code, and the glossary of the package, into the pages again.
"""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attsvm._utils.extensions import import_object
from attsvm.results import Status

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = ROOT / "src" / "attsvm" / "pages" / "glossary.md"
EXTENDING = ROOT / "docs" / "guide" / "extending.md"
EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n(?:\n```python\n(.*?)```\n)?", re.DOTALL)
BEGIN, END = "# docs: begin\n", "# docs: end"


def region(path):
    """The code between the markers of a file, without the remarks to the linter."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.sub(r"  # noqa.*", "", text[text.index(BEGIN) + len(BEGIN) : text.index(END)]).strip() + "\n"


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_in_the_index_once():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^]]*\]\(([^)#\s]+)\)", index, re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*/*.md")]
    assert sorted(listed) == sorted([*pages, "howto.md"])


def test_the_table_of_statuses_is_that_of_the_docstring():
    docstring = re.findall(r"^``(\w+)`` +(.*)$", inspect.getdoc(Status), re.MULTILINE)
    page = (ROOT / "docs" / "guide" / "statuses.md").read_text(encoding="utf-8")
    first = page.split("| result |")[0]
    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", first, re.MULTILINE) == docstring
    assert [status for status, _ in docstring] == [status.value for status in Status]


def test_examples_equal_the_files_that_are_tested():
    examples = EXAMPLE.findall(EXTENDING.read_text(encoding="utf-8"))
    assert len(examples) == 8
    for path, code in examples:
        if not (ROOT / path).exists():
            continue
        assert code == region(path), f"{path}: run `python tests/test_docs.py`"
        assert len(code.splitlines()) < 40, path


def test_the_table_of_extension_points_names_what_exists():
    rows = re.findall(
        r"^\| [^|]+ \| `([\w.]+)`[^|]* \| `([\w.]+)` \| `([\w.]+)` \|$", EXTENDING.read_text("utf-8"), re.M
    )
    assert len(rows) == 8
    for base, group, registry in rows:
        if base.startswith("attsvm.torch"):
            pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
        assert isinstance(import_object(":".join(base.rsplit(".", 1))), type)
        assert import_object(":".join(registry.rsplit(".", 1))).group == group


def test_the_glossary_is_that_of_the_pages():
    assert (ROOT / "docs" / "glossary.md").read_text() == GLOSSARY.read_text(), "run `python tests/test_docs.py`"


def test_the_search_of_the_site_leaves_out_attributes(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx (extra `dev`) is not installed")
    members = "\n\n".join(f"   .. py:{kind}:: {kind}" for kind in ("attribute", "property", "method"))
    (tmp_path / "index.rst").write_text(f"Page\n====\n\n.. py:class:: Result\n\n{members}\n", encoding="utf-8")
    settings = ["extensions=sphinx.ext.autodoc", "html_theme=basic"]
    options = ["-q", "-c", str(ROOT / "docs"), *(part for setting in settings for part in ("-D", setting))]
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(tmp_path), str(tmp_path / "site")], check=True)
    index = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    objects = json.loads(index[index.index("{") : index.rindex("}") + 1])["objects"]
    assert [name for *_, name in objects["Result"]] == ["method"]


def included(match):
    path = match[1]
    code = f"\n```python\n{region(path)}```\n" if (ROOT / path).exists() else ""
    return f"<!-- example: {path} -->\n{code}"


if __name__ == "__main__":
    page = EXTENDING.read_text(encoding="utf-8")
    EXTENDING.write_text(EXAMPLE.sub(included, page), encoding="utf-8")
    (ROOT / "docs" / "glossary.md").write_text(GLOSSARY.read_text(encoding="utf-8"), encoding="utf-8")
