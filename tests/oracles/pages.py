"""What a page may not do, load anything from the network, and what it does in a browser."""

import re
import shutil
import subprocess

import pytest

_LOADS = re.compile(
    r"""\bsrc(?:set)?=["'](?!\#|data:)|<(?:link|image|use|feImage)\b[^>]*\bhref=["'](?!\#|data:)|@import|url\((?!\#)"""
)


def loads(page: str) -> list[str]:
    """The parts of a page that load a resource."""
    return [found[0] for found in _LOADS.finditer(page)]


def opened(page: str, folder) -> str:
    """A page after its scripts ran in a browser, without an error."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium to open the page with")
    (folder / "index.html").write_text(page)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += ["--enable-logging=stderr", f"--user-data-dir={folder}/profile", "--dump-dom"]
    command += ["--virtual-time-budget=1000", f"file://{folder}/index.html"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "CONSOLE" not in shown.stderr
    return shown.stdout


def said(page: str, script: str, folder) -> list[str]:
    """The text of the elements ``output`` that a script, with the closing tag of the body, adds to a page."""
    return re.findall(r"<output>(.*?)</output>", opened(page.replace("</body>", script), folder))


def codes_that_run(pages: list[str], folder) -> list[str]:
    """The messages of code in pages that are opened side by side in a browser; the first page has such code."""
    pages = ["<svg onload=top.postMessage(`expected`,`*`)>", *pages]
    for number, page in enumerate(pages):
        (folder / f"{number}.html").write_text(page)
    frames = "".join(f'<iframe src="{number}.html"></iframe>' for number in range(len(pages)))
    heard = "<script>addEventListener('message', (e) => document.body.append(Object.assign("
    heard += "document.createElement('output'), { textContent: e.data })))</script>"
    return re.findall(r"<output>(.*?)</output>", opened(f"<body>{heard}{frames}</body>", folder))
