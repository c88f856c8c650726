"""Names that are more than names to a terminal, a page, a file system, a spreadsheet or a pattern, and their effects.

Nothing here computes with attsvm.
"""

import csv
import io
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

RUNS = "top.postMessage(`pwned`,`*`)"
"""The code in names. ``opened_together`` says if it runs."""

NAMES = (
    "[/INST]",
    "[unused1]",
    "[bold red]bold[/]",
    ":smile:",
    f'"><svg onload={RUNS}>',
    f"</script><script>{RUNS}</script>",
    f"'><img src=x onerror={RUNS}>",
    "&lt;b&gt; &amp; {{ 7 * 7 }}",
    r"\1 \g<0> \x",
    r"$\frac{1$",
    "costs $5 or $6",
    "_hidden",
    "../../victim",
    "/victim",
    "..",
    '=HYPERLINK("x")',
    "@SUM(A1)",
    "-2+3",
    "'quoted",
    'a,"b"\nc',
    "\x1b[31mred\x1b[0m \x07",
    "\x9b2J",
    "\u202etxt.exe\u2066",
    "\u05e9\u05dc\u05d5\u05dd \u200f",
    "one\u2028two\u2029three",
    "x" * 300,
    "\u00e9" * 299 + "x",
)

_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "article",
    "section",
    "div",
    "span",
    "small",
    "mark",
    "code",
    "em",
    "b",
    "br",
    "dl",
    "dt",
    "dd",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "ol",
    "li",
    "a",
    "details",
    "summary",
    "figure",
    "figcaption",
    "label",
    "input",
    "output",
    "select",
    "option",
    "button",
    "canvas",
    "script",
    "footer",
    "svg",
    "g",
    "path",
    "pattern",
    "defs",
    "clippath",
    "use",
    "rect",
    "text",
    "tspan",
    "circle",
    "line",
    "image",
    "polygon",
    "polyline",
    "ellipse",
}


def is_control(letter: str) -> bool:
    """Whether a terminal or a reader obeys a character in place of showing it."""
    category = unicodedata.category(letter)
    direction = unicodedata.bidirectional(letter) in _DIRECTIONS or letter in "\u200e\u200f\u061c"
    return (category in ("Cc", "Cs", "Zl", "Zp") and letter not in "\n\t") or direction


def escaped(name: str) -> str:
    """A name with escapes in place of its control characters, and without blanks."""
    shown = (letter.encode("unicode_escape").decode() if is_control(letter) else letter for letter in name)
    return "".join("".join(shown).split())


def faults_of_output(text: str, names=()) -> list[str]:
    """What is wrong with what a command prints: control characters, and names that are not shown in full."""
    found = [f"prints {letter!r}" for letter in sorted({letter for letter in text if is_control(letter)})]
    plain = "".join(text.split())
    # a cell of a table shows the end of a line, and a tab
    cells = {name: name.replace("\n", r"\n").replace("\t", r"\t") for name in names}
    forms = {name: (escaped(name), escaped(cell)) for name, cell in cells.items()}
    return found + [f"does not show {name!r}" for name in names if not any(form in plain for form in forms[name])]


class _Parts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.files: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in _TAGS:
            self.faults.append(f"has an element {tag}")
        self.faults += [f"has {tag} {name}" for name in values if name.startswith("on")]
        href = values.get("href") or ""
        if href.strip().lower().startswith(("javascript:", "data:text/html")):
            self.faults.append(f"links {href[:40]}")
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a" and href.startswith("data:text/csv"):
            self.files.append((values["download"], unquote(href.partition(",")[2])))

    handle_startendtag = handle_starttag


def faults_of_page(page: str) -> list[str]:
    """What is wrong with a page: elements, handlers and links of names, ids that occur twice, and formulas in files."""
    parts = _Parts(page)
    found = [*parts.faults, *(f"prints {letter!r}" for letter in sorted({c for c in page if is_control(c)}))]
    if twice := sorted({one for one in parts.ids if parts.ids.count(one) > 1}):
        found.append(f"has the ids {twice} twice")
    if "could not be drawn" in page:
        found.append(re.search(r"The figure [^<]*could not be drawn[^<]*", page)[0])
    return found + [f"{file}: {fault}" for file, text in parts.files for fault in faults_of_csv(text)]


def faults_of_csv(text: str, names=()) -> list[str]:
    """The formulas in a CSV file, and the names that are not read back from it as the docs say."""
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    numbers = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
    found = [f"the formula {x[:40]!r}" for x in cells if x.startswith(_FORMULA) and not numbers.fullmatch(x)]
    read = {cell.removeprefix("'") for cell in cells}
    return found + [f"does not hold {name!r}" for name in names if name not in read]


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
