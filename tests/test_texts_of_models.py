"""Texts as the input of saved models: padding, special tokens, and the names of tokens."""

import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: E402

import attsvm.inspect  # noqa: E402
from attsvm.pretrained.inputs import tokenized  # noqa: E402

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SIZES = {"vocab_size": 300, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1}


def by_bytes(folder, special=("<s>", "</s>", "<|im_start|>", "<|im_end|>"), **options):
    """Save a tokenizer with one token for each byte, and one that is put before each text."""
    words = {word: number for number, word in enumerate([*special, *BYTES])}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B:1", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    saved = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<s>",
        additional_special_tokens=list(special[2:]), **options,
    )  # fmt: skip
    saved.save_pretrained(folder)
    return saved


def gpt2():
    return transformers.GPT2Model(transformers.GPT2Config(n_embd=24, n_head=4, n_layer=2, **SIZES))


def opt():
    return transformers.OPTModel(
        transformers.OPTConfig(
            hidden_size=24, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=24, **SIZES
        )
    )


def bert():
    return transformers.BertModel(
        transformers.BertConfig(
            hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=300
        )
    )


@pytest.mark.parametrize("make", [gpt2, opt, bert])
def test_a_sentence_in_a_batch_selects_as_it_does_alone_whichever_side_its_tokenizer_pads(make, tmp_path):
    """Models with learned positions count them from the first place of the batch, also where padding is there."""
    by_bytes(tmp_path, padding_side="left")
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 2)
    texts = ["the cat sat on the mat", "a dog ran", "hi"]
    batch = tokenized(str(tmp_path), texts, model).batch
    both = attsvm.inspect.inspect(model, batch, margins=False)
    for i, text in enumerate(texts):
        alone = attsvm.inspect.inspect(model, tokenized(str(tmp_path), [text], model).batch, margins=False)
        length = alone.selected.shape[2]
        assert (both.positions[i, :length] == range(length)).all()
        assert (both.selected[:, i, :length] == alone.selected[:, 0]).all()
