"""Layers of encoder-decoders and towers have their names on pages: a number alone does not say what they are."""

import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402

import attsvm.inspect  # noqa: E402
from attsvm._utils.text import head_label  # noqa: E402
from attsvm.pages.inspection import layer_rows, notes  # noqa: E402


def test_layers_of_several_kinds_have_their_names_on_pages():
    """Layer 3 of this encoder-decoder is cross-attention of the first block of the decoder."""
    sizes = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    model = transformers.T5Model(transformers.T5Config(vocab_size=50, **sizes)).eval()
    ids = torch.randint(50, (2, 5))
    found = attsvm.inspect.inspect(model, {"input_ids": ids, "decoder_input_ids": ids}, margins=False)
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
