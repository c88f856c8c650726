"""The unit tests of the multiple-instance assumption: their distributions, the true rule, and the other rule."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

import attsvm
from attsvm.datasets import mil_unit_tests


def counts(sequences, roles, role):
    return np.add.reduceat((roles == role).astype(int), sequences.offsets[:-1])


@pytest.mark.parametrize("name", ["presence", "and", "false_frequency"])
def test_the_true_rule_holds_in_both_parts_and_the_other_one_turns_round(name):
    data = mil_unit_tests(name, seed=3, num_train=300, num_test=200)
    parts = (data.train, data.train_labels, data.train_roles), (data.test, data.test_labels, data.test_roles)
    for bags, labels, roles in parts:
        present = np.array([counts(bags, roles, concept) > 0 for concept in ((1,) if name == "presence" else (1, 2))])
        assert (present.all(axis=0) == labels).all()
        assert not bags.table.flags.writeable
        for role, mean in ((0, 0.0), (-1, -10.0)):
            tokens = bags.table[roles == role]
            assert not len(tokens) or abs(tokens.mean() - mean) < 0.1
    for (bags, labels, roles), poisoned in zip(parts, (0, 1), strict=True):
        if name == "false_frequency":
            tokens = counts(bags, roles, 1) + counts(bags, roles, 2)
            assert (roc_auc_score(labels, tokens) > 0.99) == (not poisoned)
        else:
            assert (counts(bags, roles, -1) == (labels == poisoned)).all()
    lengths = counts(data.train, data.train_roles, 0)
    assert (lengths.min(), lengths.max()) == ((10, 10) if name == "presence" else (1, 9))


def test_seeds_repeat_and_wrong_arguments_are_named():
    one, other = mil_unit_tests("and", 1), mil_unit_tests("and", 1)
    assert (one.test.table == other.test.table).all()
    assert (one.test_labels == other.test_labels).all()
    assert (one.test.table[:10] != mil_unit_tests("and", 2).test.table[:10]).any()
    with pytest.raises(attsvm.ProblemError, match="name: expected one of presence"):
        mil_unit_tests("or")
    with pytest.raises(attsvm.ProblemError, match="dim"):
        mil_unit_tests("and", dim=0)


def mixture(*parts):
    return lambda x: np.mean([stats.norm(mean, deviation).cdf(x) for mean, deviation in parts], axis=0)


BACKGROUND, POISON = mixture((0, 1)), mixture((-10, 0.1))
CONCEPTS = {0: BACKGROUND, 1: mixture((2, 0.1)), 2: mixture((3, 0.1)), -1: POISON}
DISTRIBUTIONS = {
    "presence": {0: BACKGROUND, 1: mixture((0, 3), (1, 1)), -1: POISON},
    "and": CONCEPTS,
    "false_frequency": CONCEPTS,
}


def allowed(name, label, testing):
    """For each role the numbers of tokens that a bag may have, as the definition states them."""
    if name == "presence":
        return {0: {10}, 1: {1, 2, 3} if label else {0}, 2: {0}, -1: {int(label == testing)}}
    each = {"and": {1, 2, 3}, "false_frequency": {1}}[name] if label else {0, 1}
    if name == "false_frequency" and testing and not label:
        each = {0, *range(35, 46)}
    return {0: set(range(1, 10)), 1: each, 2: each, -1: {int(label == testing) if name == "and" else 0}}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_tokens_and_numbers_are_those_of_the_definition(name):
    data = mil_unit_tests(name, seed=3)
    assert (data.train.dim, len(data.train), len(data.test)) == (16, 1000, 600)
    for sequences, labels, roles, testing in (
        (data.train, data.train_labels, data.train_roles, False),
        (data.test, data.test_labels, data.test_roles, True),
    ):
        assert labels.mean() == 0.5
        assert set(np.unique(roles)) == ({0, 1, 2, -1} if name == "and" else set(DISTRIBUTIONS[name]) - {-1}) | (
            {-1} if name == "presence" else set()
        )
        for role, cdf in DISTRIBUTIONS[name].items():
            tokens = sequences.table[sequences.ids[roles == role]]
            if not len(tokens):
                continue
            # one entry per token: those of a token share the part of the mixture
            for entry in (0, 15):
                assert stats.kstest(tokens[:, entry], cdf).pvalue > 1e-4, (role, entry)
        bags = np.repeat(np.arange(len(labels)), sequences.lengths)
        for label in (0, 1):
            expected, concepts = allowed(name, label, testing), []
            for role, numbers in expected.items():
                counts = np.bincount(bags[roles == role], minlength=len(labels))[labels == label]
                assert set(counts.tolist()) == numbers, (role, label)
                # each allowed number is as likely as the others
                if len(numbers) > 2 and 0 not in numbers:
                    observed = np.bincount(counts)[min(numbers) :]
                    assert stats.chisquare(observed).pvalue > 1e-4, (role, label)
                if role in (1, 2):
                    concepts.append(counts > 0)
            if name != "presence":
                # positive bags have both concepts, negative ones exactly one
                assert (np.sum(concepts, axis=0) == 1 + label).all()


def test_a_token_of_presence_is_of_one_part_of_the_mixture():
    data = mil_unit_tests("presence", seed=0)
    spread = data.train.table[data.train.ids[data.train_roles == 1]].std(axis=1)
    # entries of N(1, 1) have deviation 1 and those of N(0, 3) deviation 3, so no token is in between
    assert 0.45 < (spread < 1.8).mean() < 0.55
    assert ((spread > 1.75) & (spread < 1.85)).mean() < 0.02
