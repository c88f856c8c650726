"""Texts with their pictures as the input of one model, and folders of models whose tables are not saved."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")
Image = pytest.importorskip("PIL.Image")

import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

import attsvm.inspect  # noqa: E402
from attsvm.errors import ProblemError  # noqa: E402
from attsvm.pretrained import load_model, read_input  # noqa: E402

SIZES = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
TEMPLATE = (
    "{% for m in messages %}U:{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}"
    "{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def saved_llava(folder):
    """A model whose pictures have four patches, with its processor and four pictures."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: k for k, token in enumerate(["<s>", "</s>", "<pad>", "<image>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>", "<image>"])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    of_pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    transformers.LlavaProcessor(
        image_processor=of_pictures, tokenizer=fast, patch_size=8, vision_feature_select_strategy="default",
        image_token="<image>", num_additional_image_tokens=1, chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(vocab_size=len(vocabulary), **SIZES).to_dict(),
        vision_config=transformers.CLIPVisionConfig(image_size=16, patch_size=8, **SIZES).to_dict(),
        image_token_index=3,
    )
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    pictures = folder / "pictures"
    pictures.mkdir()
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 255, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(pictures / f"{i}.png")
    return pictures


def test_each_text_has_its_pictures_in_front_of_it_or_where_it_says(tmp_path):
    pictures = saved_llava(tmp_path)
    model = load_model(str(tmp_path))

    def read(texts, **options):
        return read_input(str(tmp_path), model, texts, pictures, **options)

    given = read(["ab", "c"])
    first = [f"<image> {k}" for k in range(8)]
    assert given.tokens == [[*first, "a", "b"], [*first, "c", "<pad>"]]
    assert len(given.batch["pixel_values"]) == 4
    assert read(["a<image>b<image><image><image>"]).tokens[0][:6] == ["a", *(f"<image> {k}" for k in range(1, 5)), "b"]
    assert read(["ab", "c"], chat=True).tokens[0] == ["U", ":", *(f"<image> {k}" for k in range(2, 10)), "a", "b"]
    with pytest.raises(ProblemError, match="equally many pictures for each of 3 texts, got 4 pictures"):
        read(["a", "b", "c"])

    found = attsvm.inspect.inspect(model, given.batch, margins=False)
    assert [group[:2] for group in found.groups] == [([0], 4), ([1], 2)]
    assert found.rebuilt_error.max() < 1e-5
    # pictures without text are those of the tower
    tower = load_model(str(tmp_path), pictures=True)
    assert attsvm.inspect.inspect(tower, {"pixel_values": given.batch["pixel_values"]}, margins=False).num_tokens == 20


def test_tables_of_sines_need_not_be_saved(tmp_path):
    """Marian leaves them out of its files."""
    sides = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in
             (("layers", 1), ("attention_heads", 4), ("ffn_dim", 32))}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=50, d_model=24, max_position_embeddings=16, pad_token_id=0, decoder_start_token_id=0, **sides
    )
    model = transformers.MarianMTModel(config)
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    table = model.model.encoder.embed_positions.weight
    assert torch.equal(loaded.encoder.embed_positions.weight, table)
    assert table.abs().max() == 1
