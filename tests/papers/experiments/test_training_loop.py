"""The loop resumes bit for bit after kill -9, stops where it should, and refuses what it cannot do in one line."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from safetensors.torch import load_file

from attsvm.errors import ProblemError
from attsvm.papers.experiments.folder import CHECKPOINT
from attsvm.papers.experiments.options import Options
from attsvm.papers.experiments.tables import TaskRows
from attsvm.papers.experiments.tasks import find_task
from attsvm.papers.experiments.training import Hooks, fit

pytestmark = pytest.mark.slow

OPTIMIZERS = ["mirror-1.1", "mirror-2", "mirror-3", "sgd", "adam"]
EPOCHS, BATCHES = 3, 7

KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_training_loop as tests
import torch._dynamo  # what every optimiser loads when it is made, here once for all
for folder, step in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    child = os.fork()
    if child == 0:
        tests.run(Path(folder), Path(folder).name, callback=lambda at: at.step >= int(step) and os.kill(os.getpid(), 9))
        os._exit(0)
    os.waitpid(child, 0)
"""


def texts(n, seed=0):
    """Texts of class 1 hold token 7."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    inputs = torch.randint(10, 40, (n, 12), generator=generator)
    inputs[:, 0] = 1
    inputs[labels == 1, 3] = 7
    inputs[::3, 8:] = 0
    return TaskRows(inputs, labels, padding=0)


def run(folder, optimizer, *, resume=False, callback=None, augment=None, train=None, **changes):
    folder.mkdir(exist_ok=True)
    options = replace(Options(optimizer, 1e-3, epochs=EPOCHS, batch=8, checkpoint_every=2, seed=3), **changes)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(options.seed)
        model = replace(find_task("imdb").preset("tiny").shape, vocabulary=40).build()
        outcome = fit(
            model,
            train or texts(50),
            texts(20, 1),
            options,
            folder,
            resume=resume,
            hooks=Hooks(augment, record=lambda: float(model.head.weight.detach().sum()), callback=callback),
        )
    finally:
        torch.set_num_threads(threads)
    return model, outcome


def step_of(folder):
    return json.loads((folder / CHECKPOINT / "trainer_state.json").read_text())["global_step"]


def tensors(folder):
    """What the next step depends on: weights, mirror variables or moments, and PyTorch's generator."""
    state = torch.load(folder / CHECKPOINT / "optimizer.pt")["state"]
    moments = {(index, name): value for index, one in state.items() for name, value in one.items()}
    generators = torch.load(folder / CHECKPOINT / "rng_state.pth", weights_only=False)
    return {**load_file(folder / CHECKPOINT / "model.safetensors"), **moments, "generator": generators["cpu"]}


def same(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_killed_in_mid_epoch_and_resumed_a_run_ends_with_the_same_bits(tmp_path):
    steps = {name: int(step) for name, step in zip(OPTIMIZERS, torch.randint(3, EPOCHS * BATCHES, (5,)), strict=True)}
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    cut.mkdir()
    whole.mkdir()
    arguments = [text for name, step in steps.items() for text in (str(cut / name), str(step))]
    subprocess.run([sys.executable, "-c", KILLED, os.path.dirname(__file__), *arguments], check=True, timeout=120)
    for name, step in steps.items():
        assert 0 < step_of(cut / name) < step + 1, (name, step)
        _, uncut = run(whole / name, name)
        _, resumed = run(cut / name, name, resume=True)
        first, second = tensors(whole / name), tensors(cut / name)
        assert first.keys() == second.keys()
        assert all(same(value, second[key]) for key, value in first.items()), (name, step)
        clockless = [[{**row, "seconds": 0} for row in outcome.history] for outcome in (uncut, resumed)]
        assert clockless[0] == clockless[1]
        assert uncut.records == resumed.records
        assert [at for at, _ in uncut.records] == [0, 1, 2, 4, 8, 16]


def test_it_learns_and_stops_at_the_accuracy_asked_for(tmp_path):
    model, outcome = run(tmp_path, "adam", learning_rate=2e-2, epochs=60, stop_at=0.95)
    assert outcome.status == "finished"
    assert outcome.history[-1]["epoch"] < 60
    assert outcome.history[-1]["train_accuracy"] >= 0.95
    assert outcome.best["test_accuracy"] >= 0.9
    # a finished run is not trained further
    before = [x.clone() for x in model.parameters()]
    again, _ = run(tmp_path, "adam", learning_rate=2e-2, epochs=60, stop_at=0.95, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(before, again.parameters(), strict=True))


@pytest.fixture
def handled_ctrl_c():
    """Python's own handler of Ctrl-C, which a test that runs in the background of a shell does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_after_a_whole_step_and_the_run_goes_on_from_there(tmp_path, handled_ctrl_c):
    def interrupt(at):
        if at.step == 9:
            os.kill(os.getpid(), signal.SIGINT)

    _, whole = run(tmp_path / "whole", "mirror-1.1")
    _, cut = run(tmp_path / "cut", "mirror-1.1", callback=interrupt)
    assert (cut.status, cut.steps, step_of(tmp_path / "cut")) == ("interrupted", 9, 9)
    _, resumed = run(tmp_path / "cut", "mirror-1.1", resume=True)
    assert resumed.status == "finished"
    assert resumed.history[-1]["train_loss"] == whole.history[-1]["train_loss"]


def test_a_callback_that_returns_true_interrupts_the_run_which_can_be_resumed(tmp_path):
    _, whole = run(tmp_path / "whole", "adam")
    _, cut = run(tmp_path / "cut", "adam", callback=lambda at: at.step == 5)
    assert (cut.status, cut.steps, step_of(tmp_path / "cut")) == ("interrupted", 5, 5)
    _, resumed = run(tmp_path / "cut", "adam", resume=True)
    assert resumed.history[-1]["train_loss"] == whole.history[-1]["train_loss"]


@pytest.mark.parametrize("optimizer", ["sgd", "mirror-1.1"])
def test_a_run_that_diverges_says_so_and_leaves_finite_weights(tmp_path, optimizer):
    _, outcome = run(tmp_path, optimizer, learning_rate=1e30)
    assert outcome.status == "non_finite"
    assert all(row["test_loss"] < float("inf") for row in outcome.history)


def test_the_gradient_is_that_of_the_sum_or_of_the_mean(tmp_path):
    once = {"epochs": 1, "train": texts(8)}
    torch.manual_seed(3)
    start = replace(find_task("imdb").preset("tiny").shape, vocabulary=40).build().state_dict()
    of_sum, _ = run(tmp_path / "sum", "sgd", learning_rate=1e-3, reduction="sum", **once)
    of_mean, _ = run(tmp_path / "mean", "sgd", learning_rate=8e-3, reduction="mean", **once)
    for name, value in of_sum.state_dict().items():
        assert torch.allclose(value, of_mean.state_dict()[name], rtol=0, atol=1e-7)
    assert not torch.equal(of_sum.head.weight, start["head.weight"])


def test_bfloat16_trains_nearly_the_same_model_and_keeps_weights_in_float32(tmp_path):
    _, plain = run(tmp_path / "float", "adam", epochs=2)
    _, half = run(tmp_path / "half", "adam", epochs=2, precision="bf16")
    assert half.history[-1]["test_loss"] == pytest.approx(plain.history[-1]["test_loss"], rel=0.02)
    weights = {name: value.dtype for name, value in tensors(tmp_path / "half").items() if name != "sums"}
    assert set(weights.values()) == {torch.float32, torch.uint8}  # uint8: of the generator


def test_the_order_of_the_data_is_a_function_of_seed_and_epoch(tmp_path):
    train = texts(50)
    train.inputs[:, 1] = torch.arange(50) % 30 + 10
    train.inputs[:, 2] = torch.arange(50) // 30 + 10

    def orders(name, **changes):
        """The numbers of the rows of each epoch, in their order."""
        seen = []

        def see(inputs):
            seen.extend((inputs[:, 1] - 10 + 30 * (inputs[:, 2] - 10)).tolist())
            return inputs

        run(tmp_path / name, "sgd", augment=see, train=train, **changes)
        return [seen[start : start + 50] for start in range(0, len(seen), 50)]

    first = orders("first")
    assert first == orders("slower", learning_rate=1e-6)
    assert len(first) == EPOCHS
    assert all(sorted(order) == list(range(50)) for order in first)
    different = [*first, *orders("other", seed=4)]
    assert all(a != b for a, b in combinations(different, 2))


def test_another_run_is_not_resumed(tmp_path):
    run(tmp_path, "adam", epochs=1)
    with pytest.raises(ProblemError, match=r"expected a run with learning_rate 0\.01, got one with 0\.001"):
        run(tmp_path, "adam", epochs=1, learning_rate=1e-2, resume=True)
    for file in ("trainer_state.json", "optimizer.pt", "model.safetensors", "rng_state.pth"):
        whole = (tmp_path / CHECKPOINT / file).read_bytes()
        (tmp_path / CHECKPOINT / file).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ProblemError, match="not a checkpoint of attsvm") as caught:
            run(tmp_path, "adam", epochs=1, resume=True)
        assert "\n" not in str(caught.value)
        (tmp_path / CHECKPOINT / file).write_bytes(whole)
    assert run(tmp_path, "adam", epochs=1, resume=True)[1].status == "finished"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "lion"}, "optimizer: expected .*mirror-P.* got 'lion'"),
        ({"optimizer": "mirror-1"}, "optimizer: expected .* got 'mirror-1'"),
        ({"optimizer": "mirror-inf"}, "optimizer: expected .* got 'mirror-inf'"),
        ({"learning_rate": 0.0}, "learning_rate: expected .* got 0"),
        ({"epochs": 0}, "epochs: expected .* got 0"),
        ({"seed": -1}, "seed: expected .* got -1"),
        ({"precision": "fp8"}, "precision: expected .* got 'fp8'"),
        ({"reduction": "max"}, "reduction: expected .* got 'max'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(ProblemError, match=message) as caught:
        Options(**{"optimizer": "adam", "learning_rate": 1e-3, "epochs": 1, "batch": 1, **changes})
    assert "\n" not in str(caught.value)
