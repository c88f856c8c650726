"""The main job from Python: what it finds, against plain loops over the sequences."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import attsvm
from attsvm import Fit, fit
from attsvm.datasets import Drawing, Sequences, find_source
from attsvm.pages import make_page
from oracles.attention import softmax
from oracles.pages import loads
from oracles.schemas import check_result


def test_ragged_sequences_with_several_queries_are_measured_as_loops_do():
    generator = np.random.default_rng(7)
    tokens = [generator.standard_normal((length, 5)) for length in generator.integers(1, 7, 14)]
    queries = [generator.standard_normal((number, 3)) for number in generator.integers(1, 4, 14)]
    labels = [np.where(of[:, 0] > 0, 1.0, -1.0) for of in queries]
    problem = attsvm.Problem.from_sequences(tokens, labels=labels, queries=queries)
    done = fit(problem, steps=300, seed=4)
    W, v = done.run.parameters["W"], done.run.parameters["v"]
    for rows, found in ((np.setdiff1d(np.arange(14), done.test_rows), done.on_train), (done.test_rows, done.on_test)):
        correct, largest = [], []
        for i in rows:
            for query, label in zip(queries[i], labels[i], strict=True):
                logits = tokens[i] @ W @ query
                attention = softmax(logits)
                correct.append(label * (attention @ tokens[i] @ v) > 0)
                largest.append(attention.max())
        assert np.array_equal(found.correct, correct)
        assert np.allclose(found.largest, largest, rtol=1e-12)
    of_train = np.setdiff1d(np.arange(14), done.test_rows)
    selected = [[int(np.argmax(tokens[i] @ W @ query)) for query in queries[i]] for i in of_train]
    assert [row[row >= 0].tolist() for row in done.run.selected] == selected


def bags_of_cases(bags=240, most=8):
    """Bags of at most 8 rows of the breast cancer data, 1 where a row is malignant; 30 standardised columns."""
    data, generator = load_breast_cancer(), np.random.default_rng(0)
    rows = StandardScaler().fit_transform(data.data)
    benign, malignant = np.flatnonzero(data.target == 1), np.flatnonzero(data.target == 0)
    tokens = np.zeros((bags, most, 30))
    labels, lengths = np.arange(bags) % 2, generator.integers(2, most + 1, bags)
    for bag, length in enumerate(lengths):
        tokens[bag, :length] = rows[generator.choice(benign, length, replace=False)]
        if labels[bag]:
            tokens[bag, generator.integers(length)] = rows[generator.choice(malignant)]
    return tokens, labels, np.arange(most) < lengths[:, None]


def test_a_trained_head_predicts_as_the_classifier_does(tmp_path):
    tokens, labels, mask = bags_of_cases(bags=400)
    np.savez(tmp_path / "cases.npz", tokens=tokens, labels=np.array(["healthy", "ill"])[labels], mask=mask)
    source = find_source(tmp_path / "cases.npz")
    assert source.label_names() == ("ill", "healthy")
    done = fit(source.load(), seed=4)
    train = np.setdiff1d(np.arange(len(labels)), done.test_rows)
    bags = Sequences.from_padded(tokens, mask)
    classifier = attsvm.AttentionClassifier(random_state=4).fit(bags[train], labels[train])
    for rows, found in ((train, done.on_train), (done.test_rows, done.on_test)):
        assert np.array_equal(found.correct, classifier.predict(bags[rows]) == labels[rows])
    assert done.on_test.accuracy > done.baseline["test"] + 0.02
    assert (done.run.step, done.run.status) == (classifier.kept_step_, "converged")
    assert done.run.history["steps"][-1] == classifier.kept_step_ < classifier.n_iter_
    assert done.chosen is None
    result = done.numbers()
    check_result(result)
    assert result["theory"] is None
    assert "no theorem covers" in make_page(done, command="attsvm fit").verdict
    done.run.save(tmp_path / "run.npz")
    loaded = attsvm.Run.load(tmp_path / "run.npz")
    assert all(np.array_equal(loaded.parameters[name], x) for name, x in done.run.parameters.items())


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0, 1, 0, 1], ("1", "0")),
        ([False, True, False, True], ("True", "False")),
        ([1.0, 2.5, 1.0, 2.5], ("2.5", "1")),
        (["no", "yes", "no", "yes"], ("yes", "no")),
        ([-1, 1, -1, 1], None),
    ],
)
def test_two_labels_of_any_kind_are_read(tmp_path, labels, names):
    np.savez(tmp_path / "problem.npz", tokens=np.arange(24.0).reshape(4, 2, 3), labels=labels)
    source = find_source(tmp_path / "problem.npz")
    assert source.load().labels.tolist() == [-1, 1, -1, 1]
    assert source.label_names() == names


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["a", "b", "c", "a"], r"problem.npz: labels: expected two different labels, got 3 \(a, b, c\)"),
        ([0, 1, 2, 0], r"labels: expected two different labels, got 3 \(0, 1, 2\)"),
        ([0, 0, 0, 0], r"labels: expected two different labels, got 1 \(0\)"),
        ([0, 1, np.nan, 0], "labels: expected -1 and 1, or 0 and 1, got 0, 1, nan"),
    ],
)
def test_other_labels_are_refused(tmp_path, labels, said):
    np.savez(tmp_path / "problem.npz", tokens=np.arange(24.0).reshape(4, 2, 3), labels=labels)
    with pytest.raises(attsvm.ProblemError, match=said):
        find_source(tmp_path / "problem.npz").load()


def test_labels_of_queries_that_are_not_in_use_count_as_no_class(tmp_path):
    tokens, labels = np.arange(24.0).reshape(4, 2, 3), np.array([[1, 0], [-1, 1], [1, 0], [-1, 1]])
    np.savez(tmp_path / "problem.npz", tokens=tokens, queries=tokens, labels=labels, query_mask=labels != 0)
    assert find_source(tmp_path / "problem.npz").load().labels.tolist() == labels.tolist()


@pytest.mark.parametrize("unit", [1e-60, 1, 1e60])
def test_the_head_starts_as_logistic_regression_on_the_mean_token(unit):
    generator = np.random.default_rng(1)
    labels = generator.choice([-1.0, 1.0], 60)
    tokens = generator.standard_normal((60, 3, 4)) + 0.2 * labels[:, None, None]
    done = fit(attsvm.Problem(unit * tokens, labels=labels), train_head=False, steps=1, test_fraction=0)
    v = done.run.parameters["v"]
    margins = labels[:, None] * tokens.mean(axis=1)
    best = minimize(lambda v: np.logaddexp(0, -margins @ v).sum(), np.zeros(4), tol=1e-10).x
    assert np.linalg.norm(v) == pytest.approx(1, rel=1e-12)
    # the penalty that keeps it finite on separable data turns it by less than this
    assert np.allclose(v, best / np.linalg.norm(best), atol=1e-4)


TOKENS, LABELS = np.arange(24.0).reshape(4, 2, 3), [1, -1, 1, -1]


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (attsvm.Problem(TOKENS), {}, "expected labels to train with"),
        (TOKENS, {"labels": LABELS, "steps": 0}, "steps: expected an integer >= 1, got 0"),
        (TOKENS, {"labels": LABELS, "seed": -1}, "seed: expected an integer >= 0, got -1"),
        (TOKENS, {"labels": LABELS, "learning_rate": 0.0}, "learning_rate: expected a positive number, got 0"),
        (TOKENS, {"labels": LABELS, "test_fraction": 1.0}, r"test_fraction: expected a number in \[0, 1\), got 1"),
        (attsvm.Problem(TOKENS, labels=[1, 1, 1, 1]), {}, "none with label -1"),
        (attsvm.Problem(TOKENS, labels=[1, 1, 1, -1]), {"test_fraction": 0.6}, "none with label -1"),
        (
            attsvm.Problem(0 * TOKENS, labels=LABELS),
            {"train_head": False},
            "head: expected an array, because logistic regression on the mean token gives zero",
        ),
        (attsvm.Problem(np.ones((5, 4, 2, 3)), labels=LABELS), {}, "batch axes"),
        (attsvm.Problem(TOKENS, labels=[0, 1, 2, 0], head=np.ones((3, 3))), {}, "3 classes"),
        (np.zeros((4, 2, 3)), {}, "labels: expected the label of each sequence"),
        ("digits", {"labels": [1, -1]}, "labels: expected none beside data that have labels, got some"),
        (np.zeros((4, 2, 3)), {"labels": list("abca")}, r"to set apart 0.25 of them"),
        (np.zeros((4, 2, 3)), {"labels": [0, 1, 2, 0]}, "to set apart 0.25 of them"),
        (np.ones((4, 2, 3)), {"labels": [0, 1, 0, 1], "seeds": 2}, "seeds: expected 1 for arrays"),
        (np.ones((4, 2, 3)), {"labels": [0, 1, 0, 1], "options": {"a": "b"}}, "options: expected None"),
        ("digits", {"seeds": 0}, "seeds: expected an integer >= 1, got 0"),
        ("nothing", {}, "source: expected digits"),
    ],
)
def test_what_cannot_be_fitted_raises_a_problem_error(data, options, said):
    with pytest.raises(attsvm.ProblemError, match=said):
        fit(data, **options)


def test_the_steps_of_all_draws_are_counted_and_a_stop_in_a_later_draw_keeps_the_finished_ones():
    options = {"classes": "3,8", "train": "60", "test": "40"}
    seen, kept = [], []

    def callback(at):
        seen.append((at.stage, at.step, at.steps))
        return at.stage == "draw 2 of 3"

    done = fit("digits", options=options, seeds=3, steps=300, callback=callback, keep=kept.append)
    run, alone, compared = kept
    assert run is done.run
    assert isinstance(alone, Fit)
    assert (alone.run, alone.comparison) == (run, None)
    for one in (compared, done):
        assert (one.comparison.seeds, one.comparison.draws, one.comparison.interrupted) == ((0,), 3, True)
    assert not done.interrupted
    assert len(done.comparison.scores["this layer"].accuracy) == 1
    stages, steps, totals = zip(*seen, strict=True)
    assert set(stages) == {"draw 1 of 3", "draw 2 of 3"}
    assert set(totals) == {900}
    assert list(steps) == sorted(steps)
    assert steps[-1] > 300
    assert "not finished for any draw" in make_page(alone, command="attsvm fit", interrupted=True).notes[0]
    result = done.numbers()
    assert (result["status"], result["interrupted"]) == ("finished", True)
    assert result["seconds"] == pytest.approx(done.seconds["everything"] + done.comparison.seconds)


def labelled_bags(number=60):
    """Sequences of five tokens, one of which carries the label: its second entry is 2 or -2."""
    generator = np.random.default_rng(0)
    tokens, is_ill = 0.3 * generator.standard_normal((number, 5, 4)), np.arange(number) % 2
    tokens[np.arange(number), generator.integers(5, size=number), :2] += np.array([[2, -2], [2, 2]])[is_ill]
    return tokens, is_ill


@pytest.mark.parametrize("kind", ["array", "list", "ragged"])
def test_arrays_and_their_labels_are_fitted_as_the_problem_that_they_make(kind):
    tokens, is_ill = labelled_bags()
    labels = np.where(is_ill, "ill", "healthy")
    signs = np.where(is_ill, 1.0, -1.0)
    data = {"array": tokens, "list": list(tokens), "ragged": [one[i % 2 :] for i, one in enumerate(tokens)]}[kind]
    problem = (attsvm.Problem if kind == "array" else attsvm.Problem.from_sequences)(data, labels=signs)
    # "ill" is the last word in their order
    found, by_hand = fit(data, labels=labels, steps=60), fit(problem, steps=60)
    assert np.array_equal(found.run.weights, by_hand.run.weights)
    assert (found.classes, by_hand.classes) == (("ill", "healthy"), None)
    assert found.problem.data_hash == by_hand.problem.data_hash
    as_objects = fit(data, labels=labels.astype(object), steps=60)
    assert as_objects.classes == found.classes
    assert np.array_equal(as_objects.run.weights, found.run.weights)


def test_a_fit_draws_writes_and_shows_itself(tmp_path):
    tokens, is_ill = labelled_bags()
    found = fit(tokens, labels=is_ill, train_head=False, steps=3000)
    accuracy = f"test accuracy {found.on_test.accuracy:.3g}, of the mean token 1, of one class 0.5"
    assert repr(found) == f"Fit(finished, 3,000 steps; {accuracy})"
    assert "<td" in found._repr_html_()
    assert "finished, 3,000 steps" in found._repr_html_()
    direction = np.column_stack([line.get_ydata() for line in found.plot()[2].get_lines()[:1]])[:, 0]
    assert direction[-1] == pytest.approx(found.history["direction_error"][-1], rel=1e-9)
    assert len(fit(tokens, labels=is_ill, steps=30).plot()) == 2  # with a trained head there is no direction error
    found.save(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "result.json", "run.npz", "figures"}
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    check_result(result)
    assert result == found.numbers()
    assert result["data"]["classes"] == ["1", "0"]
    html = found.page()
    assert loads(html) == []
    assert html.count("<figure") == len(list((tmp_path / "out" / "figures").iterdir()))
    with pytest.raises(attsvm.ProblemError, match="exists already"):
        found.save(tmp_path / "out")
    found.save(tmp_path / "out", force=True)


def labels_in_queries(number=60, d=8, has_head=True):
    """Sequences whose head reads the first entry of a token, and whose queries have the label in their first entry."""
    generator = np.random.default_rng(0)
    labels = np.where(np.arange(number) % 2, 1.0, -1.0)
    queries = generator.standard_normal((number, d))
    queries[:, 0] = labels * (1 + np.abs(queries[:, 0]))
    tokens = generator.standard_normal((number, 4, d))
    return attsvm.Problem(tokens, labels=labels, queries=queries, head=np.eye(d)[0] if has_head else None)


@pytest.mark.parametrize(
    ("tokens", "named"), [("optimal", "the optimal token in"), ("relevant", "the token that decides the label in")]
)
def test_a_norm_that_selects_better_on_held_out_sequences_than_the_default_is_named(tokens, named):
    data = labels_in_queries()
    if tokens == "relevant":  # the same tokens, which the source of the data knows
        data = Drawing(data, relevant=attsvm.optimal_tokens(data))
    done = fit(data, steps=50, test_fraction=0)
    norms = done.other_norms
    # Student's interval of paired differences, with the normal quantile of 1 - 0.025/9 for nine norms
    gains = norms.found.right[norms.better] - norms.found.right[0]
    half = 2.7729 * gains.std(ddof=1) / np.sqrt(60)
    assert gains.mean() > half
    result = done.numbers()
    check_result(result)
    compared = result["other_norms"]
    assert compared["tokens"] == tokens
    assert compared["half_width"][norms.better] == pytest.approx(half, rel=1e-4)
    assert compared["share"][norms.better] == max(compared["share"]) == np.mean(norms.found.right[norms.better])
    said = f"The {compared['norms'][norms.better]} norm suits these data better than frobenius"
    [note] = [note for note in make_page(done, command="attsvm fit").notes if said in note]
    assert named in note
    assert f"{gains.mean():.1%} ± {half:.1%}" in note


@pytest.mark.parametrize(
    ("problem", "options", "is_compared"),
    [
        (attsvm.datasets.random_problem(20, 3, 7, seed=0), {}, True),
        (attsvm.datasets.random_problem(19, 3, 7, seed=0), {}, False),
        (attsvm.datasets.random_problem(20, 3, 7, seed=0), {"train_head": True}, False),
        (labels_in_queries(20, has_head=False), {"train_head": False}, False),
        (attsvm.datasets.random_problem(201, 2, 5, seed=0), {}, False),
        (attsvm.datasets.random_problem(40, 6, 3, seed=0), {}, False),  # infeasible
    ],
    ids=["small", "few sequences", "trained head", "no head", "many sequences", "infeasible"],
)
def test_norms_are_compared_where_the_tokens_are_known_and_it_takes_little(problem, options, is_compared):
    done = fit(problem, steps=5, test_fraction=0, **options)
    assert (done.other_norms is not None) == is_compared
    result = done.numbers()
    check_result(result)
    assert (result["other_norms"] is not None) == is_compared
    assert not any("suits these data better" in note for note in make_page(done, command="attsvm fit").notes)
