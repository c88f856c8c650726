"""Where problems come from: digits as patches, parts for training and testing, random problems."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import attsvm
from attsvm.datasets import find_source, random_problem
from attsvm.datasets.digits import digit_patches, digit_pictures
from attsvm.problem import take_sequences


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_patches_put_together_are_the_pictures(patch):
    problem = digit_patches((4, 9), patch)
    data = load_digits()
    chosen = np.isin(data.target, (4, 9))
    assert np.array_equal(digit_pictures(problem.tokens) * 16, data.images[chosen])
    assert np.array_equal(problem.labels == 1, data.target[chosen] == 4)
    # the second token of a picture is the patch to the right of the first
    second = data.images[chosen][:, :patch, patch : 2 * patch].reshape(-1, patch * patch) / 16
    T = problem.num_tokens
    assert np.array_equal(problem.tokens[:, 1 % T, : patch * patch], second if T > 1 else problem.tokens[:, 0, :16])
    assert np.array_equal(problem.tokens[0, :, patch * patch :], np.eye(T))


def test_a_part_has_the_rows_asked_for():
    problem = random_problem(5, 4, 3, seed=2, num_queries=2)
    part = take_sequences(problem, np.array([3, 1]))
    assert np.array_equal(part.tokens, problem.tokens[[3, 1]])
    assert np.array_equal(part.queries, problem.queries[[3, 1]])
    assert np.array_equal(part.head, problem.head)
    shared = random_problem(5, 4, 3, seed=2, num_heads=4, key_groups=2)
    part = take_sequences(shared, np.array([3, 1]))
    assert (part.num_heads, part.key_groups) == (4, 2)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"tokens": np.ones((2, 3, 4))}, "attsvm solve"),
        ({"tokens": np.ones((5, 2, 3, 4)), "labels": np.ones(2)}, "batch axes"),
        ({"tokens": np.ones((2, 3, 4)), "labels": [0, 2], "head": np.ones((3, 4))}, "3 classes"),
    ],
)
def test_files_without_something_to_classify_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "problem.npz", **arrays)
    with pytest.raises(attsvm.ProblemError, match=said):
        find_source(tmp_path / "problem.npz").load()


def test_random_problems_have_unit_rows_and_are_the_same_for_a_seed():
    problem = random_problem(4, 5, 6, seed=3, num_queries=2, batch=(7,))
    for array in (problem.tokens, problem.queries, problem.head):
        assert np.allclose(np.linalg.norm(array, axis=-1), 1, atol=1e-15)
    assert problem.batch_shape == (7,)
    assert problem.data_hash == random_problem(4, 5, 6, seed=3, num_queries=2, batch=(7,)).data_hash
    assert problem.data_hash != random_problem(4, 5, 6, seed=4, num_queries=2, batch=(7,)).data_hash
    with pytest.raises(attsvm.ProblemError, match="num_tokens: expected an integer >= 1, got 0"):
        random_problem(4, 0, 6)


def test_the_queries_of_self_attention_are_the_first_tokens():
    crossed, first = (random_problem(4, 5, 6, seed=3, batch=(7,), self_attention=flag) for flag in (False, True))
    np.testing.assert_array_equal(first.queries, crossed.tokens[:, :, 0])
    for name in ("tokens", "labels", "head"):
        np.testing.assert_array_equal(getattr(first, name), getattr(crossed, name))
    each = random_problem(4, 5, 6, seed=3, num_queries=3, self_attention=True)
    np.testing.assert_array_equal(each.queries, each.tokens[:, :3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": [2, 4]}, r"dim: expected an integer >= 1, got \[2, 4\]"),
        ({"num_tokens": 2.0}, "num_tokens: expected an integer >= 1, got 2.0"),
        ({"num_sequences": None}, "num_sequences: expected an integer >= 1, got None"),
        ({"num_queries": 0}, "num_queries: expected an integer >= 1, got 0"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
        ({"seed": "1"}, "seed: expected an integer >= 0, got '1'"),
        ({"self_attention": True, "prompt": True}, "self_attention: expected at most one query .*, got a prompt"),
        ({"self_attention": True, "num_queries": 9}, "self_attention: .* for each token, got 9 queries of 8 tokens"),
        ({"batch": 3}, "batch: expected a tuple of integers, got 3"),
        ({"batch": (2, 0.5)}, "batch: expected an integer >= 0, got 0.5"),
    ],
)
def test_sizes_and_seeds_of_random_problems_are_integers(changes, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        random_problem(**changes)


def test_canvases_hold_one_digit_of_the_classes_and_share_no_picture():
    made = attsvm.datasets.digit_canvases(150, 100, classes=(4, 9), test_fraction=0.4, seed=3)
    data = load_digits()
    of_picture = {picture.tobytes(): digit for picture, digit in zip(data.data, data.target, strict=True)}
    shown = []
    for part, places, digits in (
        (made.train, made.train_places, made.train_digits),
        (made.test, made.test_places, made.test_digits),
    ):
        pictures = [[(16 * token).tobytes() for token in tokens] for tokens in part.tokens]
        assert np.array_equal([[of_picture[picture] for picture in row] for row in pictures], digits)
        telling = np.isin(digits, (4, 9))
        assert (telling.sum(axis=1) == 1).all()
        assert np.array_equal(telling.argmax(axis=1), places)
        assert np.array_equal(part.labels, np.where(digits[telling] == 4, 1, -1))
        assert abs(part.labels.sum()) <= 1
        assert all(len(set(row)) == 9 for row in pictures)
        assert set(places) == set(range(9))
        shown.append({picture for row in pictures for picture in row})
    assert not shown[0] & shown[1]


def test_the_canvas_is_its_nine_pictures():
    source = find_source("digits", {"train": "20", "test": "10"})
    drawing = source.drawing(2, 0.3)
    canvases, regions = source.pictures(drawing.problem.tokens)
    for token, (top, left, height, width) in enumerate(regions):
        cut = canvases[:, top : top + height, left : left + width]
        assert np.array_equal(cut.reshape(-1, 64), drawing.problem.tokens[:, token])
    assert (regions[:, 0] * 3 // 8 + regions[:, 1] // 8).tolist() == list(range(9))
    assert drawing.test_rows.tolist() == list(range(20, 30))
