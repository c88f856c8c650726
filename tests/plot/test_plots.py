"""Plots draw the numbers of results, on given axes; tables hold them; summaries in notebooks stay short."""

import inspect
import io
import json
import re

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import optax
import pytest
from scipy import stats

import attsvm
import attsvm.inspect
from attsvm import plot
from attsvm._utils.displays import PLOTS
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.plot import style

pd, xr = pytest.importorskip("pandas"), pytest.importorskip("xarray")


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def problem():
    return random_problem(6, 8, 10, seed=0)


@pytest.fixture(scope="module")
def run(problem):
    return attsvm.train(problem, steps=300)


@pytest.fixture(scope="module")
def batch():
    problem = random_problem(6, 8, 10, seed=0, batch=(3,))
    return problem, attsvm.train(problem, steps=30, record=4)


def test_a_run_draws_its_history_and_the_error_to_a_direction(problem, run):
    solution = attsvm.solve_svm(problem, run.selected)
    axes = run.plot(solution)
    later = run.history["steps"] > 0
    errors = [attsvm.direction_error(W, solution.direction) for W in run.history["weights"][later]]
    expected = [run.history["loss"][later], 1 - run.history["probability"][later].min(axis=1), errors]
    for axis, values in zip(axes, expected, strict=True):
        (line,) = axis.lines
        np.testing.assert_array_equal(line.get_xdata(), run.history["steps"][later])
        np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-12, atol=1e-300)
    # the prediction for plain gradient descent is that solution
    (line,) = run.plot(problem)[-1].lines
    np.testing.assert_allclose(line.get_ydata(), errors, rtol=1e-6)


def test_every_plot_takes_axes_and_draws_on_them_alone(problem, run, batch):
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected)
    drawings = [
        problem.plot,
        batch[0].plot,
        run.plot,
        batch[1].plot,
        solution.plot,
        attsvm.solve_svm(batch[0], attsvm.optimal_tokens(batch[0])).plot,
        attsvm.predict_direction(problem, run).plot,
        attsvm.regularization_path(problem, [1.0, 10.0]).plot,
        lambda ax: plot.compare(problem, {"a": run, "b": run}, solution, ax=ax),
        lambda ax: plot.attention(problem, run, ax=ax),
        lambda ax: plot.margins(problem, run, ax=ax),
        lambda ax: plot.selection(problem, run, ax=ax),
        lambda ax: plot.paths(problem, {"GD": run}, {"Att-SVM": solution}, ax=ax),
    ]
    for draw in drawings:
        figure, axis = plt.subplots()
        assert draw(ax=axis) is axis
        assert axis.has_data()
        assert plt.get_fignums() == [figure.number]
        plt.close(figure)
    with pytest.raises(ProblemError, match="ax: expected 1 Matplotlib axes, got Axes, Axes"):
        solution.plot(ax=plt.subplots(1, 2)[1])


def test_each_plot_describes_its_own_options():
    paths = (attsvm.regularization.RegularizationPath, attsvm.regularization.PenaltyPath)
    others = (attsvm.Solution, attsvm.Prediction, attsvm.profiles.MarginProfile, attsvm.StackRun)
    drawn = (attsvm.Problem, attsvm.Run, attsvm.inspect.Inspection, *paths, *others)
    assert {kind.kind for kind in drawn} == set(PLOTS)
    for kind in drawn:
        described = inspect.getdoc(kind.plot)
        assert all(f"\n{name} : " in described for name in list(inspect.signature(kind.plot).parameters)[1:]), kind
    assert not hasattr(attsvm.theory.Classification, "plot")


def test_a_batch_draws_margin_ratios_and_the_interval_of_their_mean(batch):
    problem, run = batch
    later = run.history["steps"] > 0
    (axis,) = np.atleast_1d(run.plot(problem, quantities=["margin ratio"], band="interval"))
    ratios = np.array([attsvm.margin_ratio(problem, W, run.selected) for W in run.history["weights"][later]])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), ratios.mean(axis=1), rtol=1e-9)
    low, high = stats.t.interval(0.95, 2, ratios.mean(axis=1), stats.sem(ratios, axis=1))
    drawn = axis.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose([drawn[:, 1].min(), drawn[:, 1].max()], [low.min(), high.max()], rtol=1e-9)
    compared = plot.compare(problem, {"a": run}, quantity="margin ratio", band="interval")
    np.testing.assert_array_equal(compared.lines[0].get_ydata(), axis.lines[0].get_ydata())
    with pytest.raises(
        ProblemError, match="target: expected the Problem of the run, for the margin ratio, got Solution"
    ):
        run.plot(attsvm.solve_svm(problem, run), quantities=["margin ratio"])
    with pytest.raises(ProblemError, match='band: expected "range" or "interval", got \'sd\''):
        plot.compare(problem, {"a": run}, band="sd")


def test_a_comparison_draws_what_it_can_and_names_what_it_cannot(problem, run):
    unknown = attsvm.train(problem, optimizer=optax.sgd(0.1, momentum=0.5), steps=20)
    alone = plot.compare(problem, {"a": run})
    axis = plot.compare(problem, {"mine": unknown, "a": run})
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a"]
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), alone.lines[0].get_ydata())
    note = axis.get_title(loc="left").replace("\n", " ")
    assert note.startswith("not drawn: runs['mine']: norm: expected the norm of the Att-SVM to compare with, because")
    assert not alone.get_title(loc="left")
    assert len(plot.compare(problem, {"mine": unknown, "a": run}, quantity="loss").lines) == 2
    with pytest.raises(ProblemError, match=r"^runs\['mine'\]: norm: expected"):
        plot.compare(problem, {"mine": unknown})
    with pytest.raises(ProblemError, match=r"^quantity: expected"):
        plot.compare(problem, {"mine": unknown, "a": run}, quantity="error")


def test_a_comparison_names_the_norms_where_they_differ(problem, run):
    sign = attsvm.train(problem, optimizer=attsvm.optimizers.steepest_descent(0.1, norm="linf"), steps=20)
    for quantity in ("margin ratio", "direction error"):
        legend = plot.compare(problem, {"GD": run, "sign": sign}, quantity=quantity).get_legend()
        assert [text.get_text() for text in legend.get_texts()] == ["GD (frobenius)", "sign (linf)"]
    legend = plot.compare(problem, {"GD": run, "sign": sign}, quantity="loss").get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["GD", "sign"]


def test_what_the_user_has_set_wins_over_the_style(problem, run):
    ours = {"font.size": 8, "axes.labelsize": 8.0, "xtick.labelsize": 7.0}
    theirs = {
        "font.size": 16,
        "figure.dpi": 77,
        "figure.figsize": (5.0, 4.0),
        "axes.prop_cycle": mpl.cycler(color=["#112233", "#445566"]),
        "axes.linewidth": 2.0,
        "ytick.labelsize": 5.0,
    }
    with mpl.rc_context():
        before = dict(mpl.rcParams)
        axis = run.plot(quantities="loss")
        assert dict(mpl.rcParams) == before
        found = (axis.yaxis.label.get_fontsize(), axis.get_xticklabels()[0].get_fontsize())
        assert found == (ours["axes.labelsize"], ours["xtick.labelsize"])
        assert axis.lines[0].get_color() == "#0072B2"
        summary, first = problem._repr_html_(), axis.figure
        # a notebook saves the figure when the style is no longer set
        outside, inside = io.BytesIO(), io.BytesIO()
        first.savefig(outside)
        with style.applied():
            first.savefig(inside)
        assert outside.getvalue() == inside.getvalue()
        mpl.rcParams.update(theirs)
        axis = plot.compare(problem, {"a": run, "b": run})
        assert [line.get_color() for line in axis.lines] == ["#112233", "#445566"]
        figure = axis.figure
        assert (figure.dpi, tuple(figure.get_size_inches())) == (77, (5.0, 4.0))
        assert axis.spines["left"].get_linewidth() == 2.0
        assert not axis.spines["right"].get_visible()
        assert axis.yaxis.label.get_fontsize() == 2 * ours["axes.labelsize"]  # relative to the user's size
        assert axis.get_xticklabels()[0].get_fontsize() == 2 * ours["xtick.labelsize"]
        assert axis.get_yticklabels()[0].get_fontsize() == 5.0
        # a summary and a page keep their style
        assert re.sub("attsvm-[0-9a-f]+", "", problem._repr_html_()) == re.sub("attsvm-[0-9a-f]+", "", summary)


def test_margins_attention_selection_and_paths_show_the_numbers(problem, run):
    logits = np.einsum("ntd,de,ne->nt", problem.tokens, run.weights, problem.queries)
    kept = np.take_along_axis(logits, run.selected[:, None], axis=1)
    dropped = (kept - logits)[np.arange(8) != run.selected[:, None]]
    points = plot.margins(problem, run).collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 1], dropped / dropped.min(), rtol=1e-9)
    image = plot.attention(problem, run).images[0].get_array()
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(image, exponentials / exponentials.sum(axis=1, keepdims=True), rtol=1e-9)
    shares = plot.selection(problem, run).lines[0].get_ydata()
    hits = run.history["selected"] == attsvm.optimal_tokens(problem)
    np.testing.assert_allclose(shares, hits[run.history["steps"] > 0].mean(axis=1))
    # in two dimensions a path is drawn as it is
    source = random_problem(3, 4, 2, seed=0)
    plane = attsvm.Problem(source.tokens, labels=source.labels, head=source.head)
    path = attsvm.train(plane, steps=20)
    drawn = plot.paths(plane, path).lines[0].get_xydata()
    weights = path.history["weights"]
    radius = np.linalg.norm(weights, axis=1)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), np.log10(1 + radius), rtol=1e-9)
    np.testing.assert_allclose(drawn[1:, 0] * weights[1:, 1], drawn[1:, 1] * weights[1:, 0], atol=1e-9)


def test_paths_show_the_name_of_every_ray(problem, run):
    norms = ("frobenius", "nuclear", "spectral")
    axis = plot.paths(problem, {"GD": run}, {norm: attsvm.solve_svm(problem, run, norm=norm) for norm in norms})
    axis.figure.canvas.draw()
    shown = [text for text in axis.get_legend().get_texts() if text.get_visible()]
    assert [text.get_text() for text in shown] == ["GD", *norms]
    whole = axis.figure.bbox
    for text in shown:
        place = text.get_window_extent()
        assert whole.contains(place.x0, place.y0)
        assert whole.contains(place.x1, place.y1)
    # by default, the direction that is predicted for each run, once if two runs have the same
    axis = plot.paths(problem, {"a": run, "b": run})
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b", "frobenius Att-SVM"]


def test_tables_hold_the_numbers(run, batch):
    frame = run.to_frame()
    assert list(frame.index) == run.history["steps"].tolist()
    assert frame["loss"].tolist() == run.history["loss"].tolist()
    assert frame["lowest_probability"].tolist() == run.history["probability"].min(axis=1).tolist()
    _, several = batch
    frame = several.to_frame()
    assert frame.index.names == ["steps", "trial"]
    step = several.history["steps"][-1]
    assert frame.loc[(step, 2), "loss"] == several.history["loss"][-1, 2]
    dataset = several.to_xarray()
    assert dataset["weights"].dims == ("trial", "key_entry", "query_entry")
    np.testing.assert_array_equal(dataset["history_weights"][-1], several.weights)
    assert dataset["loss"].dims == ("trial",)
    assert dataset["history_weights"].dims == ("step", *dataset["weights"].dims)
    assert dataset["step"].values.tolist() == several.history["steps"].tolist()
    assert dataset["last_step"].values.tolist() == several.step.tolist()
    path = attsvm.regularization_path(batch[0][0], [1.0, 10.0])
    assert path.to_frame()["direction_error"].tolist() == path.direction_errors.tolist()
    assert path.to_xarray()["record"].values.tolist() == [1.0, 10.0]
    solution = attsvm.solve_svm(batch[0], attsvm.optimal_tokens(batch[0]))
    rows = solution.to_frame()
    assert rows["value"].tolist() == solution.value.tolist()
    assert rows["status"].tolist() == ["optimal"] * 3
    assert "direction" not in rows
    assert solution[0].to_frame()["value"].tolist() == [solution[0].value]


def test_summaries_in_notebooks_are_short_and_have_a_figure(problem, run, batch):
    solution = attsvm.solve_svm(problem, run.selected)
    shown = [problem, run, solution, attsvm.predict_direction(problem, run), *batch]
    for one in shown:
        page = one._repr_html_()
        assert "<svg" in page
        assert len(page) < 60_000
    assert f"{solution.value:.6g}" in solution._repr_html_()
    assert "array of shape (6, 8, 10)" in problem._repr_html_()
    assert not plt.get_fignums()
    assert "frobenius" in solution._repr_html_()
    infeasible = attsvm.solve_svm(attsvm.Problem([[[1.0], [2.0], [3.0]]]), [1])
    assert "infeasible" in infeasible._repr_html_()
    assert json.dumps(infeasible.to_frame()["status"].tolist()) == '["infeasible"]'


def test_summaries_and_plots_of_empty_long_and_joint_results(problem, run, batch):
    stopped = attsvm.train(problem, steps=0)
    for one in (stopped, batch[1][0:0], attsvm.solve_svm(batch[0], attsvm.optimal_tokens(batch[0]))[0:0]):
        assert "<table" in one._repr_html_()
        one.to_frame()
        one.to_xarray()
    long = attsvm.Problem(np.random.default_rng(0).standard_normal((6, 3000, 2)))
    assert len(long._repr_html_()) < 200_000
    prompt = attsvm.solve_svm(attsvm.Problem(np.eye(2000)[None, :2]), [0])
    assert len(prompt._repr_html_()) < 200_000
    heads = attsvm.Problem(problem.tokens, queries=problem.queries, num_heads=2)
    selected = np.stack([run.selected, (run.selected + 1) % 8])
    joint = attsvm.solve_svm(heads, selected, attsvm.norms.SumOfHeads(attsvm.norms.parse_norm("nuclear")))
    assert "<svg" in joint._repr_html_()
    # every optimal token of a sequence with two queries is circled
    two = attsvm.Problem(
        problem.tokens[:2],
        queries=problem.tokens[:2, :2],
        labels=[[1, -1], [1, -1]],
        head=problem.head,
    )
    circles = two.plot().collections[-1].get_offsets()
    assert len(circles) == len({(i, t) for i, row in enumerate(attsvm.optimal_tokens(two)) for t in row})
