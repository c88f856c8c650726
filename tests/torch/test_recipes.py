"""The recipes of docs/guide/torch_optimizers.md, run as they stand there, and resumed."""

import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "torch_optimizers.md"


def recipe(heading):
    """The last Python block under a heading of the page."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(heading))
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[-1]


class Classifier(torch.nn.Module):
    """A model in the manner of Hugging Face's, which returns its loss where it is given labels."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

    def forward(self, inputs, labels=None):
        logits = self.layers(inputs)
        return logits if labels is None else {"loss": torch.nn.functional.cross_entropy(logits, labels)}


def examples(count=64):
    inputs = torch.randn(count, 6)
    return inputs, inputs[:, :3].argmax(-1)


def loss_of(model, inputs, classes):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(inputs), classes).item()


@pytest.fixture
def in_scratch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # transformers would take the folder tests/datasets for the package of that name
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place) != Path(__file__).parents[1]])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_the_learning_rate_recipe_makes_an_optimiser_that_learns():
    inputs, classes = examples()
    model = Classifier()

    def loss_of_batch(batch):
        return model(*batch)["loss"]

    names = {"model": model, "loss_of": loss_of_batch, "batch": (inputs, classes)}
    exec(recipe("Which learning rate"), names)
    before = loss_of(model, inputs, classes)
    for _ in range(20):
        names["optimizer"].zero_grad()
        loss_of_batch((inputs, classes)).backward()
        names["optimizer"].step()
    assert loss_of(model, inputs, classes) < before


def test_hugging_face_trainer_trains_and_resumes(in_scratch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    inputs, classes = examples()
    dataset = [{"inputs": x, "labels": y} for x, y in zip(inputs, classes, strict=True)]
    model = Classifier()
    before = loss_of(model, inputs, classes)
    names = {"model": model, "train_dataset": dataset}
    exec(recipe("Hugging Face Trainer"), names)
    assert loss_of(model, inputs, classes) < before
    optimizer = names["trainer"].optimizer
    assert isinstance(getattr(optimizer, "optimizer", optimizer), MirrorDescent)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.01, 0.0}

    ends = []
    for checkpoint in (None, "resumed/checkpoint-10"):
        torch.manual_seed(0)
        trainer = transformers.Trainer(
            model=Classifier(),
            args=transformers.TrainingArguments("resumed", max_steps=20, save_steps=10, use_cpu=True, report_to=[]),
            train_dataset=dataset,
            optimizer_cls_and_kwargs=(MirrorDescent, {"lr": 1e-2, "p": 1.5, "momentum": 0.9}),
        )
        trainer.train(resume_from_checkpoint=checkpoint)
        ends.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
    for whole, resumed in zip(*ends, strict=True):
        assert torch.equal(whole, resumed)


def test_lightning_trains(in_scratch):
    pytest.importorskip("lightning")
    inputs, classes = examples()
    model = Classifier()
    before = loss_of(model, inputs, classes)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, classes), batch_size=16)
    exec(recipe("Lightning"), {"torch": torch, "model": model, "loader": loader})
    assert loss_of(model, inputs, classes) < before
