"""Configuration of the site. `make docs` builds it; docs/README.md says how its parts are organised."""

import os
import re
import sys
import warnings
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

import attsvm
from attsvm.playground import page

# Each example is one process of few steps, where compiling takes most of the time; two run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# the workers of the galleries import it
HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

project = "attsvm"
author = "The attsvm developers"
copyright = "The attsvm developers, Apache-2.0"
version = release = attsvm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas are shown without a network
    "sphinx_design",
    "glossary_terms",
    "optimizer_catalogue",
]
templates_path = ["_templates"]
# README.md is the index of the same pages on GitHub
exclude_patterns = ["_build", "README.md", "tutorials", "gallery", "generated/**/*.ipynb", "generated/**/*.py"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
default_role = "code"
nitpicky = True  # a reference that does not resolve is an error
nitpick_ignore_regex = [
    # other packages, whose inventories are not at hand without a network
    ("py:class", r"(abc|collections|enum|numpy|optax|torch|typing)\..*"),
    ("py:(func|class)", r"sklearn\..*"),
    # bases that are not public
    ("py:class", r"attsvm\.(results\.(Batched|Result)|_utils\.displays\.Displayed)"),
    (
        "py:class",
        r"attsvm\.estimator\.[a-z_]+\.(SequenceEstimator|SequenceClassifier|PromptEstimator|LearnedUnit|Saveable)",
    ),
    ("py:class", r"attsvm\.(estimator\.bag_tokens\.BagTokens|_fit\.page_result\.PageResult)"),
    ("py:class", r"attsvm\.(norms|optimizers|regularization|stack|torch)\.[a-z_]+\.[A-Za-z_]+"),
    ("py:obj", r"attsvm\.extensions\.T"),
]
suppress_warnings = ["config.cache"]  # functions in the settings of sphinx-gallery cannot be stored

# Markdown
myst_enable_extensions = ["deflist", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

# docstrings
autosummary_generate = True
autosummary_ignore_module_all = False
# names that differ only in case would be one file on some systems
autosummary_filename_map = {
    "attsvm.Fit": "attsvm.Fit-class",
    "attsvm.papers.Verdict": "attsvm.papers.Verdict-class",
}
autodoc_typehints = "none"  # the docstrings say the types, with shapes
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"  # the list beside the page has no room for Class.method
numpydoc_show_class_members = False  # the template of classes lists the members
numpydoc_use_plots = False

# tutorials and gallery
sphinx_gallery_conf = {
    "examples_dirs": ["tutorials", "gallery"],
    "gallery_dirs": ["generated/tutorials", "generated/gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("attsvm",),
    "reference_url": {"attsvm": None},
    "abort_on_example_error": False,
    "subsection_order": [f"gallery/{part}" for part in ("att_svm", "training", "theory", "data")],
    "nested_sections": False,
    "reset_modules": ("gallery_style.apply",),
    "parallel": 2,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "copyfile_regex": r".*\.rst",
    "image_srcset": ["2x"],
    "ignore_repr_types": "matplotlib",  # the figure is shown, not the text of its axes
}

# pages
html_theme = "pydata_sphinx_theme"
html_title = "attsvm"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = f"{HERE}/search_scorer.js"  # guides come first
html_context = {"default_mode": "auto"}  # otherwise the theme reports an error to the console at the first visit
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "attsvm"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "glossary": [], "howto": [], "guide/which_call": []}


# In docstrings * and | are the field's symbols: N*, shapes (*batch, n, T), |x|. Literals keep theirs.
SYMBOLS = re.compile(r"(``.*?``|`[^`]*`|^\s*(?:>>>|\.\.\. ).*$)|\*(?=[a-z_]+[,)\]])|\|")


def escape_symbols(app, what, name, obj, options, lines):
    """Let reStructuredText take the symbols of mathematics as text."""
    lines[:] = [SYMBOLS.sub(lambda match: match[1] or f"\\{match[0]}", line) for line in lines]


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out members that are inherited from classes of other packages, whose documentation has them.

    So are fields of named tuples without a docstring: the docstring of the class describes them.
    """
    if str(getattr(obj, "__doc__", "")).startswith("Alias for field number"):
        return True
    function = getattr(obj, "fget", obj)
    owner = getattr(function, "__objclass__", function)
    module = getattr(owner, "__module__", None) or "attsvm"
    return skip or not module.startswith("attsvm") or None


def hide_attributes(app, env):
    """Leave attributes out of the search: every result inherits some, and they would come before the guides."""
    objects = env.domains["py"].objects
    hidden = {name: one for name, one in objects.items() if one.objtype in ("attribute", "property")}
    # Sphinx searches no aliases; references to them resolve
    objects.update({name: one._replace(aliased=True) for name, one in hidden.items()})


# Sphinx takes the module of all objects of a source file from one of them; the page of an object has its whole name.
BACK_LINK = re.compile(r"(generated/api/(attsvm(?:\.\w+)*?\.(\w+))\.html#)attsvm(?:\.\w+)*\.\3\b")


def mend_back_links(app, pagename, templatename, context, doctree):
    """Let the links from sources to the documentation end at the object."""
    if pagename.startswith("_modules/"):
        context["body"] = BACK_LINK.sub(r"\1\2", context["body"])


# A link of the list of pages with the arrow that unfolds the pages below it, to which the theme gives no name.
ARROW = re.compile(r"(<a [^>]*>([^<]*)</a><details[^>]*><summary)>")


def name_arrows(app, pagename, templatename, context, doctree):
    """Let screen readers say what an arrow in the list of pages unfolds."""
    made = context.get("generate_toctree_html")
    if made is None:  # a page without this list
        return
    context["generate_toctree_html"] = lambda *arguments, **options: ARROW.sub(
        r'\1 aria-label="Pages of \2">', str(made(*arguments, **options))
    )


# Browsers break a line after the hyphen of such a number.
HYPHENATED = re.compile(r"(\d[\d.]*e?-\d[\d.]*)")
VERBATIM = (nodes.FixedTextElement, nodes.literal, nodes.math, addnodes.desc_sig_element)


def keep_numbers(app, doctree, docname):
    """Keep 1e-8 and 10-90 on one line, above all in the narrow columns of tables."""
    for text in list(doctree.findall(nodes.Text)):
        parts = HYPHENATED.split(text)
        if len(parts) > 1 and not isinstance(text.parent, VERBATIM):
            written = [nodes.inline("", part, classes=["text-nowrap"]) for part in parts]
            written[::2] = [nodes.Text(part) for part in parts[::2]]
            text.parent.replace(text, written)


def copy_playground(app, exception):
    """Put the playground into the site, where its guide page shows it."""
    if exception is None and app.builder.format == "html":
        folder = Path(app.outdir) / "playground"
        folder.mkdir(exist_ok=True)
        text = page().replace("<html ", '<html data-guides="../guide/" ', 1)
        (folder / "index.html").write_text(text, encoding="utf-8")


def setup(app):
    """Connect the functions above."""
    app.connect("autodoc-process-docstring", escape_symbols, priority=100)  # before numpydoc
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("env-check-consistency", hide_attributes)
    app.connect("doctree-resolved", keep_numbers)
    app.connect("html-page-context", mend_back_links)
    app.connect("html-page-context", name_arrows, priority=900)  # after the theme
    app.connect("build-finished", copy_playground)
