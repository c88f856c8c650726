"""Problem: every shape the contract names, and every wrong one refused with its name."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm import fit
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.problem import ARRAY_NAMES, Problem

RNG = np.random.default_rng(0)
TOKENS = RNG.standard_normal((3, 4, 5))
BATCH = RNG.standard_normal((2, 3, 4, 5))


def array(*shape):
    return np.random.default_rng(1).standard_normal(shape)


@pytest.mark.parametrize(
    ("arguments", "query_shape", "weights"),
    [
        ({"tokens": TOKENS}, (3,), (5, 1)),
        ({"tokens": TOKENS, "queries": array(3, 6)}, (3,), (5, 6)),
        ({"tokens": TOKENS, "queries": array(3, 2, 6)}, (3, 2), (5, 6)),
        ({"tokens": TOKENS, "queries": array(3, 6), "keys": array(3, 4, 7)}, (3,), (7, 6)),
        ({"tokens": BATCH, "queries": array(3, 6)}, (2, 3), (5, 6)),
        ({"tokens": BATCH, "queries": array(2, 3, 6)}, (2, 3), (5, 6)),
        ({"tokens": BATCH, "queries": array(3, 7, 6)}, (2, 3, 7), (5, 6)),
        ({"tokens": BATCH, "queries": array(2, 3, 7, 6), "query_mask": np.ones((3, 7))}, (2, 3, 7), (5, 6)),
    ],
)
def test_every_shape_of_the_contract(arguments, query_shape, weights):
    problem = Problem(**arguments)
    keys, queries, allowed, active = problem.canonical
    assert problem.query_shape == query_shape
    assert (problem.key_dim, problem.query_dim) == weights
    assert keys.shape[:-2] == queries.shape[:-2] == allowed.shape[:-2] == active.shape[:-1]
    assert (keys.shape[-1], queries.shape[-1]) == weights
    assert allowed.all()
    assert active.all()


def test_what_is_shared_is_not_copied():
    problem = Problem(BATCH, queries=array(3, 6), head=array(5), labels=[1, -1, 1])
    for name in ("queries", "head"):
        assert getattr(problem, name).strides[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": np.ones((4, 5))}, "tokens: expected shape (*batch, n, T, d) without empty axes, got (4, 5)"),
        ({"tokens": np.ones((0, 4, 5))}, "tokens: expected shape (*batch, n, T, d) without empty axes, got (0, 4, 5)"),
        ({"tokens": TOKENS * 1j}, "tokens: expected real numbers, got entries of type complex128"),
        ({"tokens": [["a"]]}, "tokens: expected real numbers, got entries of type <U1"),
        (
            {"tokens": TOKENS, "labels": ["no"] * 3},
            "-1 or 1, or class numbers of a head (`attsvm fit` takes two words), got",
        ),
        ({"tokens": [[[1.0], [1.0, 2.0]]]}, "tokens: expected real numbers, got list"),
        (
            {"tokens": [np.ones((2, 3)), np.ones((4, 3))]},
            "expected sequences of one length, got lengths from 2 to 4; attsvm.Problem.from_sequences pads them",
        ),
        (
            {"tokens": np.where(TOKENS[1, 2, 3] == TOKENS, np.nan, TOKENS)},
            "tokens: expected finite numbers, got nan at (1, 2, 3)",
        ),
        ({"tokens": TOKENS, "queries": array(4, 5)}, "to fit tokens of shape (3, 4, 5), got (4, 5)"),
        ({"tokens": TOKENS, "queries": array(3, 0)}, "tokens of shape (3, 4, 5), got (3, 0)"),
        ({"tokens": TOKENS, "queries": array(3, 5) * np.inf}, "queries:"),
        (
            {"tokens": TOKENS, "keys": array(3, 3, 5)},
            "keys: expected shape (3, 4, ·), to fit tokens of shape (3, 4, 5), got (3, 3, 5)",
        ),
        ({"tokens": TOKENS, "labels": [1, 0, -1]}, "labels: expected -1 and 1, or 0 and 1, got -1, 0, 1 (class"),
        ({"tokens": TOKENS, "labels": [1, 0, np.nan]}, "labels: expected -1 and 1, or 0 and 1, got 0, 1, nan"),
        (
            {"tokens": TOKENS, "labels": [1, 1]},
            "labels: expected shape (3,), to fit tokens of shape (3, 4, 5), got (2,)",
        ),
        (
            {"tokens": TOKENS, "labels": [0, 1, 2], "head": array(2, 5)},
            "labels: expected class numbers 0..1 of the head, got 2",
        ),
        (
            {"tokens": TOKENS, "head": array(4)},
            "head: expected shape (5,) or (·, 5), to fit tokens of dimension d = 5, got (4,)",
        ),
        ({"tokens": TOKENS, "mask": np.full((3, 4), 2)}, "mask: expected booleans, got entries other than 0 and 1"),
        ({"tokens": TOKENS, "mask": [[1] * 4, [0] * 4, [1] * 4]}, "mask: query (1,) may attend to no token"),
        (
            {"tokens": TOKENS, "query_mask": np.ones((3, 2))},
            "query_mask: expected queries of shape (n, Q, d_q), got a problem without a query axis",
        ),
        ({"tokens": BATCH, "queries": array(2, 4, 6)}, "with or without the batch axes (2,) in front"),
        (
            {"tokens": TOKENS, "queries": array(3, 5), "num_heads": 4, "key_groups": 3},
            "key_groups: expected a divisor of 4 attention heads, got 3",
        ),
        (
            {"tokens": TOKENS, "queries": array(3, 5), "num_heads": 4, "key_groups": 0},
            "key_groups: expected an integer >= 1, got 0",
        ),
        (
            {"tokens": TOKENS, "queries": array(3, 5), "key_groups": 1},
            "num_heads: expected the number of attention heads, because key_groups=1 is given",
        ),
        (
            {"tokens": TOKENS, "num_heads": 2, "key_groups": 1},
            "key_groups: expected None for a problem without queries, got 1",
        ),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ProblemError, match=re.escape(message)):
        Problem(**arguments)


@pytest.mark.parametrize("head", [None, array(5)])
def test_labels_0_and_1_are_those_of_a_vector_head(head):
    labels = np.array([[1, 0], [1, 1], [0, 7]])
    query_mask = labels < 2
    problem = Problem(TOKENS, labels=labels, queries=array(3, 2, 6), query_mask=query_mask, head=head)
    assert problem.labels.tolist() == [[1, -1], [1, 1], [-1, 0]]
    assert Problem(TOKENS, labels=[0, 1, 1], head=array(2, 5)).labels.tolist() == [0, 1, 1]


def test_padding_may_hold_anything_and_never_leaks():
    tokens, queries = TOKENS.copy(), array(3, 2, 6)
    mask, query_mask = np.ones((3, 4), bool), np.ones((3, 2), bool)
    mask[0, 3], query_mask[2, 1] = False, False
    tokens[0, 3], queries[2, 1] = np.nan, np.inf
    labels = np.array([[1, -1], [1, 1], [1, np.nan]])
    problem = Problem(tokens, labels=labels, queries=queries, mask=mask, query_mask=query_mask)
    for name in ("tokens", "queries", "labels"):
        assert np.isfinite(getattr(problem, name)).all()
    assert not problem.canonical.allowed[0, :, 3].any()
    assert not problem.canonical.allowed[2, 1].any()


def test_one_batch_axis_of_heads_or_of_classes_is_told_by_the_labels():
    heads = array(2, 5)
    assert Problem(BATCH, labels=[1, -1, 1], head=heads).num_classes is None
    with pytest.raises(ProblemError, match=r"shape \(2, 2, 5\) for classes, got labels 0 and 1"):
        Problem(BATCH, labels=[1, 0, 1], head=heads)
    assert Problem(BATCH, labels=[1, 0, 1], head=[heads, heads]).num_classes == 2
    assert Problem(BATCH, labels=[1, 0, 2], head=array(3, 5)).num_classes == 3


def test_ragged_sequences_and_queries():
    tokens = [array(t, 5) for t in (1, 4, 2)]
    queries = [array(q, 3) for q in (2, 1, 3)]
    problem = Problem.from_sequences(tokens, labels=[[1, -1], [1], [-1, -1, 1]], queries=queries)
    assert problem.query_shape == (3, 3)
    assert problem.canonical.allowed.sum() == 1 * 2 + 4 * 1 + 2 * 3
    np.testing.assert_array_equal(problem.tokens[1], tokens[1])
    np.testing.assert_array_equal(problem.labels, [[1, -1, 0], [1, 0, 0], [-1, -1, 1]])
    with pytest.raises(
        ProblemError, match=re.escape("tokens[1]: expected shape (length, 5) with length >= 1, got (0, 5)")
    ):
        Problem.from_sequences([array(1, 5), array(0, 5)])
    with pytest.raises(ProblemError, match=r"^tokens\[0\]: expected shape \(length, d\) with .*, got \(5,\)$"):
        Problem.from_sequences([array(5), array(5)])
    with pytest.raises(ProblemError, match=r"^labels\[1\]: expected shape \(length,\) with .*, got \(0,\)$"):
        Problem.from_sequences(tokens, labels=[[1, -1], [], [1, 1, 1]], queries=queries)


def test_a_fitted_head_is_that_of_fit_for_each_problem_and_ignores_padding():
    labels = np.array([1.0, -1.0, 1.0])
    ragged = [TOKENS[0, :2], TOKENS[1], TOKENS[2, :3]]
    headless = Problem([[row.mean(axis=0)] for row in ragged], labels=labels)
    alone = headless.with_head("mean")
    np.testing.assert_allclose(Problem.from_sequences(ragged, labels).with_head("mean").head, alone.head, rtol=1e-12)
    done = fit(headless, test_fraction=0, steps=1, train_head=False)
    np.testing.assert_array_equal(done.train.head, alone.head)
    batch = Problem(BATCH, labels=labels).with_head("mean")
    np.testing.assert_array_equal(batch.head, [Problem(one, labels=labels).with_head("mean").head for one in BATCH])
    assert batch.with_head(np.ones(5)).head.tolist() == np.ones((2, 5)).tolist()


@pytest.mark.parametrize(
    ("arguments", "head", "said"),
    [
        ({}, "mean", "problem: expected labels, but it has none"),
        ({"labels": [1, 1, 1]}, "mean", "labels: expected both -1 and 1 to fit a head, got only 1"),
        ({"labels": [1, -1, 1]}, "max", "head: expected \"mean\" or an array, got 'max'"),
        ({"labels": [1, -1, 1], "num_heads": 2}, "mean", 'problem with several attention heads, got "mean"'),
        ({"labels": [0, 1, 2], "head": np.ones((3, 5))}, "mean", 'problem with 3 classes, got "mean"'),
    ],
)
def test_a_head_that_cannot_be_fitted_is_named(arguments, head, said):
    with pytest.raises(ProblemError, match=said):
        Problem(TOKENS, **arguments).with_head(head)


def test_a_trial_whose_head_cannot_be_fitted_is_named():
    labels = np.ones(BATCH.shape[:2])
    labels[0, 0] = 0
    with pytest.raises(ProblemError, match=r"expected both -1 and 1 to fit a head, got only 1 in trial 1$"):
        Problem(BATCH, labels=labels).with_head("mean")


def test_attention_projections_make_logits_of_the_identity():
    q, k = array(3, 2, 6), array(3, 4, 6)
    problem = Problem.from_attention(q, k)
    np.testing.assert_array_equal(problem.canonical.keys, k)
    np.testing.assert_array_equal(problem.canonical.queries, q)


@given(st.integers(0, 2**7 - 1), st.booleans(), st.booleans())
def test_save_and_load_give_the_problem_back(tmp_path_factory, present, query_axis, batched):
    generator = np.random.default_rng(present)
    batch = (2,) if batched else ()
    extra = (3,) if query_axis else ()
    full = {
        "tokens": generator.standard_normal((*batch, 3, 4, 5)),
        "labels": generator.choice([-1, 1], (*batch, 3)),
        "queries": generator.standard_normal((*batch, 3, *extra, 6)),
        "head": generator.standard_normal((*batch, 5)),
        "keys": generator.standard_normal((*batch, 3, 4, 2)),
        "mask": generator.random((*batch, 3, 4)) < 0.9,
        "query_mask": generator.random((*batch, 3, *extra)) < 0.9,
    }
    full["mask"][..., 0] = True
    chosen = {name: full[name] for bit, name in enumerate(ARRAY_NAMES) if bit == 0 or present >> bit & 1}
    if not (query_axis and "queries" in chosen):
        chosen.pop("query_mask", None)
    problem = Problem(**chosen)
    path = tmp_path_factory.mktemp("problem") / "problem.npz"
    problem.save(path)
    loaded = Problem.load(path)
    assert loaded.data_hash == problem.data_hash
    assert repr(loaded) == repr(problem)


def test_a_problem_file_with_an_unknown_name_or_cut_short_is_refused(tmp_path):
    path = tmp_path / "problem.npz"
    np.savez(path, tokens=TOKENS, weights=TOKENS)
    with pytest.raises(ProblemError, match="got 'weights'"):
        Problem.load(path)
    np.savez(path, tokens=TOKENS)
    assert Problem.load(path).num_sequences == 3
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ProblemError, match=r"not a readable \.npz archive"):
        Problem.load(path)
    with pytest.raises(ProblemError, match="no such file"):
        Problem.load(tmp_path / "absent.npz")


def test_batch_indexing_takes_the_members():
    problem = random_problem(3, 4, 5, seed=2, batch=(2, 3), num_queries=2)
    member = problem[1, 2]
    np.testing.assert_array_equal(member.tokens, problem.tokens[1, 2])
    np.testing.assert_array_equal(member.labels, problem.labels[1, 2])
    assert problem[:, 1].batch_shape == (2,)
    assert len(list(problem[0])) == 3
    with pytest.raises(TypeError, match="without batch axes"):
        member[0]
    with pytest.raises(IndexError):
        problem[0, 0, 0]


@pytest.mark.parametrize(("batch", "index"), [((), 1), ((2,), (slice(None), 1))])
def test_what_takes_one_attention_head_says_how_to_get_it(batch, index):
    problem = random_problem(3, 4, 5, seed=0, num_heads=2, batch=batch)
    with pytest.raises(ProblemError, match=r"problem\[:, h\] is" if batch else r"problem\[h\] is"):
        problem.check_one_head()
    problem[index].check_one_head()


def test_groups_of_heads_stay_with_all_heads_and_are_part_of_the_data(tmp_path):
    problem = random_problem(3, 4, 5, seed=2, batch=(2,), num_heads=4, key_groups=2)
    apart = random_problem(3, 4, 5, seed=2, batch=(2,), num_heads=4)
    assert problem.data_hash != apart.data_hash
    assert [part.key_groups for part in (problem[0], problem[:, 1], problem[:, ::2])] == [2, None, None]
    problem.save(tmp_path / "problem.npz")
    loaded = Problem.load(tmp_path / "problem.npz")
    assert (loaded.key_groups, loaded.data_hash) == (2, problem.data_hash)
    assert loaded.with_head(np.ones((4, 5))).key_groups == 2
    assert "4 attention heads in 2 groups" in repr(loaded)


def test_a_problem_does_not_follow_its_input_and_cannot_be_changed():
    tokens = TOKENS.copy()
    problem = Problem(tokens)
    tokens[:] = 0
    np.testing.assert_array_equal(problem.tokens, TOKENS)
    with pytest.raises(ValueError, match="read-only"):
        problem.tokens[0] = 0
