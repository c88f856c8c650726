"""Attention maps are the attention that the model used; padding is invisible; sizes are as the papers give them."""

from pathlib import Path

import pytest
import torch

from attsvm.errors import ProblemError
from attsvm.papers.experiments.blocks import Blocks
from attsvm.papers.experiments.models import PictureShape, TextShape
from attsvm.papers.experiments.tasks import TASKS, find_task

BLOCKS = Blocks(width=12, layers=3, heads=3, hidden=20, dropout=0.3)


def cases():
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(1, 30, (5, 9), generator=generator)
    texts[1, 4:] = 0
    texts[2, 1:] = 0
    pictures = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=generator)
    torch.manual_seed(1)
    return [
        pytest.param(TextShape(BLOCKS, length=9, vocabulary=30).build(), texts, id="texts"),
        pytest.param(PictureShape(BLOCKS, size=16, patch=4).build(), pictures, id="pictures"),
    ]


def states_by_hand(model, inputs, maps):
    """The model's forward pass with the given maps in the place of attention."""
    states, _ = model.embedded(inputs)
    for block, attention in zip(model.blocks, maps, strict=True):
        normed = block.attention_norm(states)
        values = block.attention.value(normed).unflatten(-1, (attention.shape[1], -1))
        mixed = torch.einsum("bhqk,bkhd->bqhd", attention, values).flatten(2)
        states = states + block.attention.output(mixed)
        states = states + block.hidden(block.hidden_norm(states))
    return model.head(model.norm(states)[:, 0]).squeeze(-1)


@pytest.mark.parametrize(("model", "inputs"), cases())
def test_maps_are_distributions_and_rebuild_the_output(model, inputs):
    maps = model.train().attention_maps(inputs)
    assert model.training
    assert len(maps) == 3
    for attention in maps:
        assert attention.shape[:2] == (len(inputs), 3)
        assert torch.allclose(attention.sum(-1), torch.ones(attention.shape[:3]), atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(model.eval()(inputs), states_by_hand(model, inputs, maps), atol=1e-5)


def test_padding_changes_nothing():
    model, texts = cases()[0].values
    model.eval()
    short = model(texts[1:2, :4])
    assert torch.allclose(model(texts)[1:2], short, atol=1e-6)
    assert all((attention[1, :, :, 4:] == 0).all() for attention in model.attention_maps(texts))


def test_presets_have_the_papers_sizes():
    for name, depth in (("paper-3", 3), ("paper-4", 4), ("paper-6", 6)):
        of_text = find_task("imdb").preset(name)
        blocks = of_text.shape.blocks
        assert (blocks.layers, blocks.heads, blocks.width, blocks.dropout) == (depth, depth, 384, 0.2)
        assert (of_text.shape.length, of_text.batch, of_text.reduction, of_text.stop_at) == (512, 100, "sum", 0.995)
        assert not blocks.bias
    of_pictures = find_task("cifar10").preset("paper")
    blocks = of_pictures.shape.blocks
    assert (blocks.layers, blocks.heads, blocks.width) == (6, 8, 512)
    assert (of_pictures.shape.size, of_pictures.shape.patch, of_pictures.epochs) == (48, 4, 1000)
    assert [
        name for name, _ in find_task("imdb").preset("tiny").shape.build().named_parameters() if name.endswith("bias")
    ] == []
    assert {name: set(task.presets) for name, task in TASKS.items()} == {
        "imdb": {"paper-3", "paper-4", "paper-6", "paper-3-third", "small", "tiny"},
        "cifar10": {"paper", "vit-sparsity", "vit-sparsity-small", "small", "tiny"},
    }


def test_a_third_of_the_paper_has_as_many_steps_an_epoch():
    whole, third = find_task("imdb").preset("paper-3"), find_task("imdb").preset("paper-3-third")
    assert (third.shape.blocks.width, third.shape.blocks.hidden, third.shape.length) == (126, 504, 170)
    assert (third.shape.blocks.layers, third.shape.blocks.heads) == (3, 3)
    assert third.train_rows / third.batch == pytest.approx(25_000 / whole.batch, rel=0.05)
    assert third.published == whole.published == {"mirror-1.1": 0.8347, "mirror-2": 0.8166, "mirror-3": 0.8257}


def test_the_vision_transformer_of_the_first_paper_is_vit_base():
    preset = find_task("cifar10").preset("vit-sparsity")
    assert (preset.epochs, preset.learning_rates["sgd"], preset.learning_rates["adam"]) == (400, 3e-3, 3e-3)
    with torch.device("meta"):
        model = preset.shape.build()
    # ViT-base/16 with 1,000 classes has 86,567,656 weights (Dosovitskiy et al., 2021; torchvision's vit_b_16)
    assert sum(weights.numel() for weights in model.parameters()) == 86_567_656 - 990 * (768 + 1)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ProblemError, match="heads: expected a divisor of the width 12, got 5"):
        Blocks(width=12, layers=1, heads=5, hidden=4)
    with pytest.raises(ProblemError, match="patch: expected a divisor of the size 16, got 5"):
        PictureShape(BLOCKS, size=16, patch=5)
    with pytest.raises(ProblemError, match=r"preset: expected one of paper-3, .*, got 'huge'"):
        find_task("imdb").preset("huge")


@pytest.mark.parametrize(("task", "heading"), [("imdb", "Movie reviews"), ("cifar10", "Pictures")])
def test_small_presets_use_the_step_sizes_that_were_best(task, heading):
    """Each row of the note names an optimiser and its best step size."""
    note = (Path(__file__).parents[3] / "docs" / "notes" / "real_data.md").read_text(encoding="utf-8")
    section = note.split(f"## {heading}")[1].split("\n## ")[0]
    best = {
        row[1].strip(): float(row[2]) for row in (line.split("|") for line in section.splitlines()) if "±" in str(row)
    }
    names = {"ℓ1.1 mirror descent": "mirror-1.1", "ℓ2 mirror descent": "mirror-2", "ℓ3 mirror descent": "mirror-3"}
    rates = find_task(task).preset("small").learning_rates
    assert len(best) >= 2
    assert {name: rates[names.get(name, name.lower())] for name in best} == best
