"""One version: that of pyproject.toml is the one to cite, and the newest with a date in the changelog.

The metadata of the installed package are not read: those of an editable install are as old as the installation.
"""

import re
import tomllib

from structure.imports import ROOT


def test_the_citation_and_the_changelog_have_the_version_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", citation, re.MULTILINE))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.findall(r"^## (\S+) \((?!unreleased)(\S+)\)$", changelog, re.MULTILINE)
    assert cited["version"] == project["version"]
    assert dated[0] == (cited["version"], cited["date-released"])
