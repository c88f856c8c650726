"""The names of the tokens of pictures are those that each model has, at the places where it has them."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")
Image = pytest.importorskip("PIL.Image")

import torch  # noqa: E402

from attsvm.errors import ProblemError  # noqa: E402
from attsvm.pretrained import read_input  # noqa: E402


def read_pictures(name, folder, model):
    return read_input(name, model, [], folder)


SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
WIDE = {"height": 16, "width": 32}
PATCHES = [f"{row},{column}" for row in range(2) for column in range(4)]
REGISTERS = [f"[REG {k}]" for k in range(3)]
NAMES = {
    "ViT": ["[CLS]", *PATCHES],
    "DeiT": ["[CLS]", "[DIST]", *PATCHES],
    "Beit": ["[CLS]", *PATCHES],
    "SiglipVision": PATCHES,
    "IJepa": PATCHES,
    "CLIPVision": ["[CLS]", *PATCHES],
    "Dinov2WithRegisters": ["[CLS]", *REGISTERS, *PATCHES],
    "DINOv3ViT": ["[CLS]", *REGISTERS, *PATCHES],
    "Yolos": ["[CLS]", *PATCHES, *(f"[DET {k}]" for k in range(4))],
}


def made(name, folder, count=2, **more):
    """A model of pictures of 2 × 4 patches, or of 4 × 4 where it takes squares alone, and as many pictures."""
    square = name in ("SiglipVision", "CLIPVision", "Beit", "Dinov2WithRegisters")
    size = {"height": 32, "width": 32} if square else WIDE
    options = (
        {"num_register_tokens": 3, "num_detection_tokens": 4, "image_size": 32 if square else [16, 32]} | SIZES | more
    )
    config = getattr(transformers, f"{name}Config")(patch_size=8, **options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    generator = np.random.default_rng(0)
    for i in range(count):
        Image.fromarray(generator.integers(0, 255, (40, 64, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return model


@pytest.mark.parametrize("name", NAMES)
def test_tokens_of_pictures_have_the_names_of_their_model(name, tmp_path):
    model = made(name, tmp_path)
    given = read_pictures(str(tmp_path), tmp_path, model)
    rows = given.batch["pixel_values"].shape[-2] // 8
    patches = [f"{row},{column}" for row in range(rows) for column in range(4)]
    at = NAMES[name].index("0,0")
    assert given.tokens == [[*NAMES[name][:at], *patches, *NAMES[name][at + 8 :]]] * 2
    with torch.no_grad():
        assert model(**given.batch).last_hidden_state.shape[:2] == (2, len(given.tokens[0]))


def test_tokens_that_are_not_where_their_names_would_be_are_numbered(tmp_path):
    """Of another number than the configuration says, or of patches in another order."""
    model = made("ViT", tmp_path)
    model.config.patch_size = 4
    assert read_pictures(str(tmp_path), tmp_path, model).tokens == [[f"#{k}" for k in range(9)]] * 2
    model.config.patch_size = [8, 8]
    assert read_pictures(str(tmp_path), tmp_path, model).tokens == [NAMES["ViT"]] * 2
    projected = model.embeddings.patch_embeddings.forward
    model.embeddings.patch_embeddings.forward = lambda *arguments, **options: projected(*arguments, **options).flip(1)
    assert read_pictures(str(tmp_path), tmp_path, model).tokens == [[f"#{k}" for k in range(9)]] * 2
    model.config = transformers.BertConfig()
    with pytest.raises(ProblemError, match="expected a model of pictures in patches, got ViTModel"):
        read_pictures(str(tmp_path), tmp_path, model)


def test_models_without_the_same_tokens_in_every_pass_or_one_sequence_for_each_picture_are_refused(tmp_path):
    for name, options, words in (
        ("ViTMAE", {}, "expected a model with the same tokens in every pass, but ViTMAEModel draws them"),
        (
            "PixtralVision",
            {"image_size": 32},
            "expected a sequence for each picture, got 1 for 2 from PixtralVisionModel",
        ),
    ):
        model = made(name, tmp_path, **options)
        with pytest.raises(ProblemError, match=words):
            read_pictures(str(tmp_path), tmp_path, model)
    (tmp_path / "1.png").unlink()
    assert read_pictures(str(tmp_path), tmp_path, model).tokens == [PATCHES]
