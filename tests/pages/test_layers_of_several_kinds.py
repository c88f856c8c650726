"""Layers of encoder-decoders and towers have their names on pages: a number alone does not say what they are."""

import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402

import attsvm.inspect  # noqa: E402
from attsvm._utils.text import head_label  # noqa: E402
from attsvm.pages.inspection import layer_rows, notes  # noqa: E402
from attsvm.pages.records import read_records  # noqa: E402


def test_layers_of_several_kinds_have_their_names_on_pages():
    """Layer 3 of this encoder-decoder is cross-attention of the first block of the decoder."""
    sizes = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    model = transformers.T5Model(transformers.T5Config(vocab_size=50, **sizes)).eval()
    ids = torch.randint(50, (2, 5))
    found = attsvm.inspect.inspect(model, {"input_ids": ids, "decoder_input_ids": ids}, margins=False)
    assert not any("\n" in cell for row in layer_rows(found)[1] for cell in row)  # the terminal would print it as \n
    assert layer_rows(found)[1][3][0] == "3 decoder.block.0.layer.1.EncDecAttention"
    said = "2 and 4 decoder.block.*.layer.*.SelfAttention; 3 and 5 decoder.block.*.layer.*.EncDecAttention."
    assert any(said in note for note in notes(found))
    assert head_label(found.layer_names, 3, 1) == "3.1 decoder.block.0.layer.1.EncDecAttention"
    llama = transformers.LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4
    )
    one = attsvm.inspect.inspect(transformers.LlamaModel(llama), {"input_ids": ids}, margins=False)
    assert layer_rows(one)[1][0][0] == "0"
    assert head_label(one.layer_names, 0, 1) == "0.1"
    assert not any("kinds" in note for note in notes(one))


def test_heads_of_a_monitor_have_the_names_of_layers_of_several_kinds(tmp_path):
    ids = torch.randint(50, (2, 5))
    sizes = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    model = transformers.T5Model(transformers.T5Config(vocab_size=50, **sizes)).train()
    with attsvm.inspect.AttentionMonitor(model, log=tmp_path / "log.csv") as monitor:
        model(input_ids=ids, decoder_input_ids=ids)
        monitor.step()
    assert "3.1 decoder.block.0.layer.1.EncDecAttention" in monitor.heads
    assert read_records(tmp_path / "log.csv").heads == monitor.heads


def test_a_page_shows_the_attention_of_layers_that_see_the_text_and_says_what_others_see():
    """Two prompts, each with two pictures of four patches and a class token."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(vocab_size=50, **sizes).to_dict(),
        vision_config=transformers.CLIPVisionConfig(image_size=16, patch_size=8, **sizes).to_dict(),
        image_token_index=49,
    )
    model = transformers.LlavaModel(config).eval()
    ids = torch.tensor([[49] * 8 + [5, 6]] * 2)
    found = attsvm.inspect.inspect(model, {"input_ids": ids, "pixel_values": torch.randn(4, 3, 16, 16)}, margins=False)
    tokens = [[str(k) for k in range(10)]] * 2
    seen, read = found.view(sequence=1, tokens=tokens).grids
    assert (seen.total, seen.sequences[0].number, len(seen.sequences[0].levels)) == (4, 1, 4)
    assert (read.total, read.sequences[0].tokens, {layer for layer, _ in read.sequences[0].levels}) == (
        2,
        tokens[1],
        {1},
    )
    # the tokens of pictures are the patches, and not words
    assert seen.sequences[0].tokens == ["[CLS]", "0,0", "0,1", "1,0", "1,1"]
    said = "vision_tower.encoder.layers.*.self_attn: 4 sequences with 20 tokens; language_model.layers.*.self_attn: 2"
    assert any(said in note for note in notes(found))
    alone = attsvm.inspect.inspect(model, {"input_ids": ids[:, 8:]}, margins=False)
    assert "The input does not run 1 attention layer: 1 vision_tower.encoder.layers.*.self_attn." in notes(alone)
