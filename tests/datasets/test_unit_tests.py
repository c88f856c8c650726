"""The unit tests of the multiple-instance assumption: the true rule separates their labels, and the other one fails."""

import numpy as np
import pytest
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
