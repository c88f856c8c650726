"""Every figure appears below the cell of a notebook that makes it, and what the user has set stays."""

import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
import nbformat  # noqa: E402

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
FIRST = """
import attsvm
problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
"""
LAST = "import matplotlib; print(matplotlib.is_interactive(), plt.get_fignums(), plt.rcParams['font.size'])"
# what makes a figure in the tutorials
OURS = r"(?:(?:axes|_) = )?(?:run|problem|profile|adam|rows|inspection)\.plot\(|attsvm\.plot\."
FIGURE = re.compile(rf"^(?:fig, \S.* = plt\.subplots|{OURS})", re.M)


def run_in_a_kernel(cells, folder):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook.cells


def images(cell):
    return sum("image/png" in output.get("data", {}) for output in cell.outputs)


def test_every_figure_of_a_session_appears_and_its_settings_stay(tmp_path):
    # the first figure of the session is ours, after a summary, which draws without pyplot
    made = {
        "problem.plot();": 1,
        "problem.plot(); solution.plot();": 2,
        "attsvm.plot.margins(problem, solution);": 1,
        "import matplotlib.pyplot as plt; plt.plot([1, 2]);": 1,
    }
    settings = "%config InlineBackend.rc = {'font.size': 11}"  # applied when the first figure loads the backend
    *cells, last = run_in_a_kernel([settings, FIRST, "problem", *made, LAST], str(tmp_path))
    assert ["image/png" in cell.outputs[0].data for cell in cells[2:3]] == [False]
    assert {cell.source: images(cell) for cell in cells[3:]} == made
    assert last.outputs[0].text == "True [] 11.0\n"


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("plot_*.py")), ids=lambda path: path.stem)
def test_every_figure_of_a_tutorial_appears_in_its_notebook(path, tmp_path):
    gallery = pytest.importorskip("sphinx_gallery.gen_gallery", reason="sphinx-gallery is not installed")
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    _, blocks = split_code_and_text_blocks(str(path))
    notebook = jupyter_notebook(blocks, gallery.DEFAULT_GALLERY_CONF, str(tmp_path))
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = run_in_a_kernel(sources, str(tmp_path))
    assert FIGURE.search("\n".join(sources))
    assert [images(cell) for cell in cells] == [len(FIGURE.findall(source)) for source in sources]
