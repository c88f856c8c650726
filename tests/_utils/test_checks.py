"""Arguments that are no numbers, or out of range, are named before the work begins, on the command line, too."""

import inspect
import re
import sys
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import optax
import pytest

import attsvm
from attsvm import ProblemError, fit, statistics
from attsvm._fit import fit_text, read_texts
from attsvm.cli.main import main
from attsvm.datasets import Sequences
from attsvm.heads import Linear
from attsvm.optimizers import mirror_descent, normalized, normalized_gradient_descent, polyak

NO_INTEGERS = (-1, 1.5, True, np.True_, float("nan"), "3", 1j)
HUGE = 2**70
NO_NUMBERS = (-1, float("nan"), float("inf"), True, "0.1", 1j, [0.1, 0.2])
PROBLEM = attsvm.datasets.random_problem(6, 4, 3, seed=0)
SELECTED = attsvm.optimal_tokens(PROBLEM)
PROMPT = attsvm.Problem(PROBLEM.tokens, labels=PROBLEM.labels, head=PROBLEM.head)


def test_masked_entries_are_refused_and_bfloat16_is_read():
    tokens = np.ma.masked_array(PROMPT.tokens, mask=np.zeros(PROMPT.tokens.shape, dtype=bool))
    np.testing.assert_array_equal(attsvm.Problem(tokens).tokens, PROMPT.tokens)
    tokens[0, 1] = np.ma.masked
    with pytest.raises(ProblemError, match=r"^tokens: expected real numbers, got 3 masked entries; fill them first$"):
        attsvm.Problem(tokens)
    for make, given, name in (
        (Sequences.from_padded, tokens, "tokens"),
        (Sequences.from_arrays, [PROMPT.tokens[0], tokens[0]], r"sequences\[1\]"),
        (partial(Sequences, ids=[0], offsets=[0, 1]), tokens[0], "table"),
    ):
        with pytest.raises(ProblemError, match=rf"^{name}: expected real numbers, got 3 masked entries; fill them"):
            make(given)
    torch = pytest.importorskip("torch")
    half = torch.tensor([[[0.5, -2.0], [1.5, 3.0]]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(attsvm.Problem(half).tokens, [[[0.5, -2.0], [1.5, 3.0]]])


TAKE_A_PROBLEM = [
    function
    for function in map(attsvm.__getattr__, attsvm.__all__)
    if inspect.isfunction(function) and next(iter(inspect.signature(function).parameters)) == "problem"
]


@pytest.mark.parametrize("function", TAKE_A_PROBLEM, ids=lambda function: function.__name__)
def test_every_function_of_a_problem_says_in_one_line_what_it_got_instead(function):
    needs = [x for x in inspect.signature(function).parameters.values() if x.default is inspect.Parameter.empty][1:]
    for wrong, said in (
        (PROBLEM.tokens, r"an array of shape \(6, 4, 3\): attsvm\.Problem\(X, labels=\.\.\.\)"),
        (PROBLEM.tokens.tolist(), r"list: attsvm\.Problem\(X, labels=\.\.\.\)"),
        (None, "NoneType"),
    ):
        with pytest.raises(ProblemError, match=f"^problem: expected a Problem, got {said}$"):
            function(wrong, *(SELECTED for _ in needs))


def test_weights_are_no_run():
    for function in (attsvm.predict_direction, attsvm.theory.observed_rates):
        with pytest.raises(ProblemError, match=r"^run: expected a Run, got an array of shape \(3, 3\): attsvm\.train"):
            function(PROBLEM, np.ones((3, 3)))
    with pytest.raises(ProblemError, match=r"^problems: expected a Problem, got an array of shape \(6, 4, 3\)"):
        attsvm.margin_profile("adam", PROBLEM.tokens)


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (optax.adam, "the function adam; call it: optax.adam(learning_rate)"),
        (polyak, "the function polyak; call it: polyak()"),
    ],
)
def test_what_is_no_optimizer_yet_is_said(optimizer, said):
    for use in (normalized, lambda given: train(optimizer=given)):
        with pytest.raises(ProblemError, match=re.escape(said)):
            use(optimizer)


def train(**options):
    return attsvm.train(PROBLEM, **{"steps": 2, **options})


def train_factors(**options):
    return train(attention="factored", **options)


def solve(**options):
    return attsvm.solve_svm(PROBLEM, SELECTED, **options)


def fit_prompt(**options):
    return fit(PROMPT, **{"steps": 2, **options})


def fit_texts(**options):
    with TemporaryDirectory() as folder:
        path = Path(folder, "texts.csv")
        path.write_text("text,label\n" + "good film,+\nbad film,-\n" * 5)
        return fit_text(read_texts(path), **options)


def random_problem(**options):
    return attsvm.datasets.random_problem(6, 4, 3, **options)


@pytest.mark.parametrize(
    ("function", "name", "values"),
    [
        (train, "steps", (*NO_INTEGERS, HUGE, None)),
        (train, "seed", (*NO_INTEGERS, HUGE)),
        (train, "record", (*NO_INTEGERS, HUGE)),
        (train, "batch_size", (*NO_INTEGERS, 0, 7)),
        (train_factors, "rank", NO_INTEGERS),
        (train, "penalty", NO_NUMBERS),
        (train, "init", (1j * np.ones((3, 3)), np.full((3, 3), "a"), np.full((3, 3), np.nan), "x", 5)),
        (train, "head", (Linear, 5, object())),
        (train, "loss", (attsvm.losses.Loss, 5)),
        (train, "optimizer", (optax.lbfgs(), optax.adam, optax.GradientTransformation, "nope", 5)),
        (train, "train_head", ("no", 2)),
        (train, "callback", (5,)),
        (normalized_gradient_descent, "learning_rate", (*NO_NUMBERS, -0.1, None)),
        (mirror_descent, "p", (*NO_NUMBERS, 1, 0.5, None)),
        (polyak, "target", NO_NUMBERS[1:]),
        (attsvm.Stopping, "margin_tol", NO_NUMBERS),
        (attsvm.Stopping, "gradient_tol", NO_NUMBERS),
        (solve, "tol", (*NO_NUMBERS, None)),
        (solve, "max_steps", (*NO_INTEGERS, 0)),
        (solve, "slack", (*NO_NUMBERS, 0)),
        (fit_prompt, "steps", (*NO_INTEGERS, HUGE, 0)),
        (fit_prompt, "seed", (*NO_INTEGERS, HUGE)),
        (fit_prompt, "learning_rate", (*NO_NUMBERS, 0)),
        (fit_prompt, "test_fraction", (*NO_NUMBERS, 1)),
        (random_problem, "seed", (*NO_INTEGERS, HUGE, None)),
        (fit_texts, "seed", (*NO_INTEGERS, HUGE)),
        (fit_texts, "dim", (-1, 0, 1.5, True)),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_was_expected(function, name, values):
    for value in values:
        with pytest.raises(ProblemError, match=rf"^{name}: expected .*got |^{name}: expected (finite|arrays|a value)"):
            function(**{name: value})


NO_RUN = attsvm.train(attsvm.datasets.random_problem(6, 4, 3, seed=0, batch=(2,)), steps=2)[[]]
NONE = {
    "selected": np.zeros((0, 6), int),
    "weights": np.zeros((2, 0, 3, 3)),
    "a": [],
    "init": np.zeros((0, 3, 3)),
    "run": NO_RUN,
    "steps": [],
    "values": np.zeros((0,)),
    "tokens": np.zeros((0, 6, 4, 3)),
}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (partial(attsvm.solve_svm, PROBLEM), "selected"),
        (partial(attsvm.solve_head, PROBLEM), "selected"),
        (partial(attsvm.feasibility, PROBLEM), "selected"),
        (partial(attsvm.margin_ratio, PROBLEM, np.eye(3)), "selected"),
        (partial(attsvm.finite_part, PROBLEM, np.eye(3)), "selected"),
        (partial(attsvm.plot.margins, PROBLEM, np.eye(3)), "selected"),
        (partial(attsvm.margin, PROBLEM, selected=SELECTED), "weights"),
        (partial(attsvm.classify, PROBLEM), "weights"),
        (partial(attsvm.direction_error, b=[]), "a"),
        (partial(attsvm.correlation, b=[]), "a"),
        (partial(attsvm.measures.in_cone, direction=[], epsilon=0.1), "weights"),
        (partial(attsvm.train, PROBLEM, steps=2), "init"),
        (partial(attsvm.predict_direction, PROBLEM), "run"),
        (partial(attsvm.theory.convergence_rate, errors=[]), "steps"),
        (statistics.mean, "values"),
        (attsvm.Problem, "tokens"),
    ],
)
def test_an_empty_array_is_named_in_one_line(function, name):
    with pytest.raises(ProblemError, match=rf"^{name}[:,].* expected .*got .*0"):
        function(**{name: NONE[name]})


BEYOND = 2**53 + 1
TABLE = {"bag": [0, 0], "big": [BEYOND, 1], "small": [0.5, 1.0]}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: attsvm.Problem([x, x]), "tokens"),
        (lambda x: attsvm.Problem.from_sequences([x, x]), "tokens"),
        (lambda x: attsvm.direction_error(x, np.eye(2)), "a"),
        (lambda x: Sequences.from_arrays([x]), "tokens"),
        (lambda x: Sequences.from_padded([x]), "tokens"),
        (lambda x: attsvm.AttentionClassifier(max_steps=1).fit(np.array(x), [0, 1]), "X"),
    ],
)
def test_integers_that_float64_rounds_are_said_once(make, name):
    def warnings_of(number):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            make([[number, 1], [2, 3]])
        return [str(one.message) for one in caught if "2^53" in str(one.message)]

    assert warnings_of(BEYOND - 1) == []  # 2^53 is exact
    assert warnings_of(2**54 + 4) == []  # so are multiples of 4 from 2^54 on
    (said,) = warnings_of(BEYOND)
    assert re.match(rf"{name}: integers beyond 2\^53 are rounded to float64", said)


def test_a_column_of_integers_that_a_column_beside_it_rounds_is_named():
    pandas = pytest.importorskip("pandas")
    with pytest.warns(RuntimeWarning, match="column 'big': integers beyond"):
        Sequences.from_table(pandas.DataFrame(TABLE), bag="bag")


@pytest.mark.parametrize("value", ["two", "0", "-1", "1.5"])
def test_the_variable_for_threads_is_a_positive_integer(value, monkeypatch):
    monkeypatch.setenv("ATTSVM_THREADS", value)
    with pytest.raises(ProblemError, match=rf"^ATTSVM_THREADS: expected an integer >= 1, got '{re.escape(value)}'$"):
        attsvm.train(PROBLEM, steps=2)


def test_numbers_of_numpy_are_numbers():
    run = train(steps=np.int64(3), seed=np.uint32(1), penalty=np.float32(0.5), record=np.int32(2))
    assert run.steps == 3


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["problem.npz"]),
        ("solve", ["problem.npz", "--selected", "optimal"]),
        ("fit", ["problem.npz"]),
        ("fit-text", ["texts.csv", "--min-documents", "1"]),
        ("inspect", ["model", "--text", "texts.csv"]),
        ("experiment", ["imdb", "--data", "data", "--preset", "tiny", "--out", "out"]),
    ],
)
def test_every_number_of_the_command_line_is_checked(command, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    PROBLEM.save("problem.npz")
    (tmp_path / "texts.csv").write_text("text,label\n" + "good film,+\nbad film,-\n" * 5)
    before = sorted(tmp_path.iterdir())
    module = import_module(f"attsvm.cli.{command.replace('-', '_')}")
    checked = []
    for name, option in inspect.signature(getattr(module, module.__name__.rpartition(".")[2])).parameters.items():
        kinds = inspect.formatannotation(option.annotation).partition(",")[0]
        bad = [value for kind, value in (("float", "nan"), ("float", "inf"), ("int", "-1")) if kind in kinds]
        for value in bad:
            switch = f"--{name.replace('_', '-')}"
            monkeypatch.setattr(sys, "argv", ["attsvm", command, *arguments, switch, value])
            with pytest.raises(SystemExit) as ended:
                main()
            stderr = capsys.readouterr().err
            assert (ended.value.code, stderr.count("\n")) == (2, 1), (switch, value, stderr)
            assert name in stderr.replace("-", "_") or "not an option" in stderr, (switch, value, stderr)
            checked.append(switch)
    assert "--threads" in checked
    assert sorted(tmp_path.iterdir()) == before
