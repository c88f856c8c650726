import numpy as np
import pytest
from scipy.stats import binomtest

import attsvm
from attsvm.datasets import Sequences
from attsvm.norms import parse_norm
from attsvm.profiles.trained_by import trained_by
from attsvm.theory import norm_for


def planted(kind, n=40, T=5, d=8, seed=0):
    """Sequences, queries and the tokens that planted weights select."""
    rng = np.random.default_rng(seed)
    tokens, queries = rng.standard_normal((n, T, d)), rng.standard_normal((n, d))
    weights = np.zeros((d, d))
    if kind == "rank one":
        weights = np.outer(rng.standard_normal(d), rng.standard_normal(d))
    else:
        weights[rng.integers(0, d, 3), rng.integers(0, d, 3)] = 1.0
    return tokens, queries, np.einsum("ntd,de,ne->nt", tokens, weights, queries).argmax(axis=1)


def by_hand(tokens, queries, selected, norm, folds):
    """Whether CVXPY's Att-SVM of the other folds gives the selected token of each sequence the largest logit."""
    cvxpy = pytest.importorskip("cvxpy")
    size = {"frobenius": lambda w: cvxpy.norm(w, "fro"), "l1": lambda w: cvxpy.norm(cvxpy.vec(w, order="C"), 1)}
    size |= {"nuclear": cvxpy.normNuc}
    right = np.zeros(len(tokens), dtype=bool)
    for fold in folds:
        weights = cvxpy.Variable((tokens.shape[2], queries.shape[1]))
        rest = np.setdiff1d(np.arange(len(tokens)), fold)
        kept = tokens[rest, selected[rest]]
        rows = [
            (kept[i] - tokens[j, t]) @ weights @ queries[j] >= 1
            for i, j in enumerate(rest)
            for t in range(tokens.shape[1])
            if t != selected[j]
        ]
        cvxpy.Problem(cvxpy.Minimize(size[norm](weights)), rows).solve(solver="CLARABEL")
        logits = np.einsum("ntd,de,ne->nt", tokens[fold], weights.value, queries[fold])
        right[fold] = logits.argmax(axis=1) == selected[fold]
    return right


@pytest.mark.parametrize("norm", ["frobenius", "l1", "nuclear"])
def test_shares_are_those_of_cvxpy_for_folds_of_unequal_size(norm):
    tokens, queries, selected = planted("rank one", n=14, T=4, d=6, seed=3)
    found = attsvm.recommend(attsvm.Problem(tokens, queries=queries), selected, [norm], folds=4, seed=5)
    folds = np.array_split(np.random.default_rng(5).permutation(14), 4)
    expected = by_hand(tokens, queries, selected, norm, folds)
    at = found.norms.index(norm)
    assert np.array_equal(found.right[at], expected)
    assert found.share[at] == pytest.approx(expected.mean())
    # Wilson's interval divides by n where the standard error divides by n - 1 = 13
    wilson = binomtest(int(expected.sum()), 14).proportion_ci(method="wilson")
    np.testing.assert_allclose([found.low[at], found.high[at]], wilson, atol=0.02)
    both = expected - found.right[0]
    assert found.gain[at] == pytest.approx(both.mean())
    assert found.gain_error[at] == pytest.approx(both.std(ddof=1) / np.sqrt(14))


@pytest.mark.parametrize(("kind", "norm"), [("sparse", "l1"), ("rank one", "nuclear")])
def test_the_norm_of_planted_weights_is_found_in_most_problems(kind, norm):
    found = []
    for seed in range(6):
        tokens, queries, selected = planted(kind, seed=seed)
        found.append(
            attsvm.recommend(attsvm.Problem(tokens, queries=queries), selected, ["l1", "nuclear", "linf"]).verdict
        )
    assert found.count(norm) >= 4, found
    assert "linf" not in found


def test_masked_tokens_and_padded_queries_count_for_nothing():
    tokens, queries, selected = planted("sparse", n=16, T=4, d=6)
    alone = attsvm.recommend(attsvm.Problem(tokens, queries=queries), selected, ["l1"])
    padded = np.concatenate([tokens, np.full((16, 2, 6), 50.0)], axis=1)
    two = np.stack([queries, np.ones((16, 6))], axis=1)
    mask = np.arange(6) < np.full((16, 1), 4)
    problem = attsvm.Problem(padded, queries=two, mask=mask, query_mask=np.tile([True, False], (16, 1)))
    found = attsvm.recommend(problem, np.stack([selected, np.zeros(16, dtype=int)], axis=1), ["l1"])
    assert np.array_equal(found.right, alone.right)
    assert found.reason == alone.reason


class Frame(attsvm.norms.Norm):
    """ℓ1 as a norm of one's own, which no name stands for."""

    name = "frame"
    dual = attsvm.norms.Lp(np.inf)

    def value(self, x, axes=2):
        return float(np.abs(x).sum())

    def prox(self, x, step):
        return np.sign(x) * np.maximum(np.abs(x) - step, 0.0)

    def steepest(self, g):
        return np.where(np.arange(g.size).reshape(g.shape) == np.abs(g).argmax(), np.sign(g), 0.0)


def test_a_norm_of_ones_own_is_recommended_and_saved(tmp_path):
    tokens, queries, selected = planted("sparse", seed=1)
    found = attsvm.recommend(attsvm.Problem(tokens, queries=queries), selected, [Frame()])
    assert found.verdict == "frame"
    assert found.optimizer.norm.name == "frame"
    found.save(tmp_path / "found.npz")
    assert isinstance(attsvm.Recommendation.load(tmp_path / "found.npz").norm, attsvm.norms.Norm)


def test_sequences_without_an_att_svm_count_by_the_soft_margin_for_every_norm():
    rng = np.random.default_rng(0)
    problem = attsvm.Problem(rng.standard_normal((30, 4, 2)), queries=rng.standard_normal((30, 2)))
    selected = rng.integers(0, 4, 30)
    found = attsvm.recommend(problem, selected, ["nuclear", "l1"])
    assert found.soft.all()
    assert (found.right == found.right[0]).all()
    assert found.verdict == "frobenius"
    assert "no Att-SVM" in found.reason
    with pytest.raises(attsvm.ProblemError, match="soft margins work only for single tokens"):
        attsvm.recommend(problem, np.arange(4) < 1 + (selected % 2)[:, None], ["l1"])


def test_without_a_selection_classifiers_are_compared():
    rng = np.random.default_rng(0)
    labels = rng.choice([-1, 1], 40)
    tokens = rng.standard_normal((40, 4, 3))
    tokens[:, 1] += 3 * labels[:, None]
    mask = np.arange(4) < rng.integers(2, 5, 40)[:, None]
    problem = attsvm.Problem(tokens, labels=labels, mask=mask)
    found = attsvm.recommend(problem, norms=["linf"], folds=2)
    classifier = attsvm.AttentionClassifier(norm="linf", random_state=0)
    fold, rest = np.array_split(np.random.default_rng(0).permutation(40), 2)
    rest.sort()
    classifier.fit(Sequences.from_padded(tokens[rest], mask[rest]), labels[rest])
    expected = classifier.predict(Sequences.from_padded(tokens[fold], mask[fold])) == labels[fold]
    assert expected.mean() > 0.7
    assert np.array_equal(found.right[1, fold], expected)


@pytest.mark.parametrize(("names", "has_queries"), [(("nuclear", "l1", "l2,1", "gamma2"), True), (("l3",), False)])
def test_the_recommended_training_reaches_the_margin_of_its_norm(names, has_queries):
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=2)
    if not has_queries:
        problem = attsvm.Problem(problem.tokens, labels=problem.labels, head=problem.head)
    for name in names:
        norm = parse_norm(name) if has_queries else parse_norm(name).of_vectors
        training = trained_by(norm, has_queries)
        run = attsvm.train(problem, attention=training.attention, optimizer=training.optimizer, steps=3000)
        assert norm_for(run, None) == norm, name
        # at least 0.97 after 10,000 steps
        assert attsvm.margin_ratio(problem, run, run.selected, norm=norm) > 0.9, name


def test_the_recommended_training_is_the_one_that_was_measured():
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=5)
    for name in ("nuclear", "l1.5"):
        training = trained_by(parse_norm(name), has_queries=True)
        run = attsvm.train(problem, attention=training.attention, optimizer=training.optimizer, steps=5000)
        assert attsvm.predict_direction(problem, run).standing == "measured", name


def test_an_interval_has_a_length_where_no_sequence_is_right():
    problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]]] * 2, queries=[[1.0], [1.0]])
    wrong = attsvm.recommend(problem, [0, 1], ["l1"])  # of equal sequences, that select different tokens
    assert wrong.reason.endswith("; no weights give the selections of all sequences at once.")
    assert (wrong.share == 0).all()
    assert wrong.high == pytest.approx(binomtest(0, 2).proportion_ci(method="wilson").high, abs=1e-4)


def test_a_recommendation_is_saved_and_shown(tmp_path):
    tokens, queries, selected = planted("sparse", n=12, T=3, d=4)
    found = attsvm.recommend(attsvm.Problem(tokens, queries=queries), selected, ["l1"], folds=20)
    found.save(tmp_path / "found.npz")
    read = attsvm.Recommendation.load(tmp_path / "found.npz")
    assert str(read) == str(found)
    assert read.optimizer.name == found.optimizer.name
    assert list(read.to_frame().columns) == ["share", "low", "high", "gain", "gain_error"]
    assert read.to_xarray().right.dims == ("norm_name", "sequence")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"folds": 1}, "folds: expected an integer >= 2, got 1"),
        ({"selected": None}, "selected: expected the tokens to select, because"),
        ({"problem": attsvm.Problem(np.ones((1, 2, 3)))}, "problem: expected at least two sequences, got 1"),
        ({"problem": attsvm.Problem(np.ones((2, 4, 2, 3)))}, r"problem: expected one problem, got batch axes \(2,\)"),
        ({"problem": 3}, "problem: expected"),
        ({"norms": []}, "norms: expected at least one norm to compare with frobenius"),
        ({"norms": "nuclear"}, "norms: expected a list of norms, got 'nuclear'"),
        (
            {
                "problem": attsvm.Problem(
                    np.ones((6, 3, 4)), queries=np.ones((6, 1, 4)), query_mask=np.zeros((6, 1), bool)
                ),
                "selected": np.zeros((6, 1), int),
            },
            "problem: expected at least one query in use",
        ),
        (
            {"problem": attsvm.Problem(np.ones((4, 2, 3)), [1, -1, 1, -1], keys=np.ones((4, 2, 2))), "selected": None},
            "problems with labels and without queries and keys",
        ),
        (
            {"problem": attsvm.Problem(np.ones((4, 2, 3)), [1, -1, -1, -1]), "selected": None},
            "labels: expected several",
        ),
    ],
)
def test_bad_input_is_refused(changed, message):
    tokens, queries, selected = planted("sparse", n=6, T=3, d=4)
    given = {"problem": attsvm.Problem(tokens, queries=queries), "selected": selected} | changed
    with pytest.raises(attsvm.ProblemError, match=message):
        attsvm.recommend(**given)


def test_a_norm_for_the_classifier_is_that_of_its_optimizer():
    bags = attsvm.datasets.digit_bags(30, 5, seed=0)
    for norm, options in {
        "l1.5": {"optimizer": "mirror_descent", "p": 1.5},
        "frobenius": {"optimizer": "gradient_descent"},
        "linf": {},
    }.items():
        one, other = (
            attsvm.AttentionClassifier(max_steps=30, random_state=0, **given).fit(bags.train, bags.train_labels)
            for given in ({"norm": norm}, options)
        )
        assert np.array_equal(one.prompt_, other.prompt_)
    for given in ({"norm": "l1"}, {"norm": "nuclear"}, {"norm": "l3", "optimizer": "gradient_descent"}):
        with pytest.raises(attsvm.ProblemError, match="norm: expected None"):
            attsvm.AttentionClassifier(**given).fit(bags.train, bags.train_labels)
