"""Unknown arguments: the error names the one that was meant."""

import numpy as np
import pytest
from sklearn.base import clone

import attsvm

PROBLEM = attsvm.datasets.random_problem(2, 3, 4, seed=0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: attsvm.train(PROBLEM, lr=0.1), "'lr'; did you mean learning_rate?"),
        (lambda: attsvm.train(PROBLEM, weight_decay=0.1), r"'weight_decay'; it is an option of optimisers, as in "),
        (lambda: attsvm.train(PROBLEM, random_state=0), "'random_state'; did you mean seed?"),
        (lambda: attsvm.train(PROBLEM, sead=0), "'sead'; did you mean seed?"),
        (lambda: attsvm.solve_svm(PROBLEM, verbose=True), "'verbose'; did you mean progress?"),
        (lambda: attsvm.datasets.random_problem(2, 3, 4, random_state=0), "did you mean seed?"),
        (lambda: attsvm.AttentionClassifier(seed=0), "did you mean random_state?"),
        (lambda: attsvm.TextClassifier(lr=0), "did you mean learning_rate?"),
        (lambda: attsvm.optimizers.adam(lr=0.1), "did you mean learning_rate?"),
        (lambda: attsvm.optimizers.mirror_descent(norm=1.5), "did you mean p?"),
        (lambda: attsvm.solve_svm(PROBLEM, [0, 0], C=1.0), "did you mean slack?"),
        (lambda: attsvm.solve_svm(PROBLEM, [0, 0], p=1.5), "did you mean norm?"),
        (lambda: attsvm.solve_svm(PROBLEM), "'selected'; give a Run, or attsvm.optimal_tokens(problem)"),
        (lambda: attsvm.Problem(PROBLEM.tokens, y=[0, 1]), "did you mean labels?"),
        (lambda: attsvm.Problem(X=PROBLEM.tokens), "did you mean tokens?"),
        (lambda: attsvm.Problem(PROBLEM.tokens, query=PROBLEM.queries), "did you mean queries?"),
        (lambda: attsvm.train(PROBLEM.tokens, PROBLEM.labels), "attsvm.Problem(tokens, labels) makes a problem"),
    ],
)
def test_an_unknown_argument_is_answered_by_the_one_that_was_meant(call, says):
    with pytest.raises(TypeError) as raised:
        call()
    assert says in str(raised.value)
    assert "Did you mean" not in str(raised.value)


def test_arrays_are_mentioned_only_if_arrays_were_given():
    with pytest.raises(TypeError, match=r"were given$"):
        attsvm.train(PROBLEM, "factored")


def test_errors_of_the_function_itself_stay_as_they_are():
    def callback(_):
        raise TypeError("got an unexpected keyword argument 'lr'")

    with pytest.raises(TypeError, match=r"argument 'lr'$"):
        attsvm.train(PROBLEM, steps=2, callback=callback)


def test_estimators_keep_their_parameters():
    assert clone(attsvm.AttentionClassifier(random_state=3)).get_params()["random_state"] == 3
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'nothing'$"):
        attsvm.AttentionClassifier(nothing=np.pi)
