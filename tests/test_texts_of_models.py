"""Texts as the input of saved models: padding, special tokens, and the names of tokens."""

import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: E402

import attsvm.inspect  # noqa: E402
from attsvm.pretrained import read_input  # noqa: E402


def tokenized(name, texts, model, **options):
    return read_input(name, model, texts, None, **options)


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


def llama(vocabulary=300):
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    return transformers.LlamaModel(transformers.LlamaConfig(vocab_size=vocabulary, **sizes))


def test_tokens_of_bytes_are_named_by_the_characters_that_they_hold(tmp_path):
    by_bytes(tmp_path)
    texts = ["café 東", "a\tb  c\r\nd", "Ġ is a letter", "é€𝄞"]
    given = tokenized(str(tmp_path), texts, llama())
    for i, text in enumerate(texts):
        names = [name for name, there in zip(given.tokens[i], given.batch["attention_mask"][i], strict=True) if there]
        expected = ["<s>"]
        for character in text:
            size, shown = len(character.encode()), {" ": "␣", "\t": "⇥", "\r": "␍", "\n": "⏎"}.get(character, character)
            expected += [shown] if size == 1 else [f"{shown} {k + 1}/{size}" for k in range(size)]
        assert names == expected
    numbers = given.batch["input_ids"][0].tolist()
    assert given.words(numbers)[:7] == ["<s>", "c", "a", "f", r"\xc3", r"\xa9", "␣"], "by themselves they hold bytes"
    assert given.words([299]) == ["(unused)"]


def test_tokens_of_sentence_piece_and_word_piece_keep_their_letters(tmp_path):
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "▁", "cat", "Ġ"]
    tokenizer = Tokenizer(
        models.BPE({w: i for i, w in enumerate(dict.fromkeys(words))}, [], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(tmp_path)
    assert tokenized(str(tmp_path), ["東 Ġ"], llama()).tokens == [["␣", "東 1/3", "東 2/3", "東 3/3", "␣", "Ġ"]]
    (tmp_path / "words").mkdir()
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "caf", "##é", "Ġ"]), encoding="utf-8"
    )
    transformers.BertTokenizer(str(tmp_path / "vocab.txt"), strip_accents=False).save_pretrained(tmp_path / "words")
    given = tokenized(str(tmp_path / "words"), ["café what [MASK]"], llama())
    assert given.tokens == [["[CLS]", "caf", "##é", "[UNK]", "[MASK]", "[SEP]"]]
    assert given.batch["special_tokens_mask"].tolist() == [[1, 0, 0, 0, 1, 1]], "an unknown word is text"


def test_special_tokens_are_found_wherever_they_stand(tmp_path):
    by_bytes(tmp_path)
    given = tokenized(str(tmp_path), ["<s><|im_start|>hi<|im_end|>", "hi"], llama())
    assert given.tokens[0] == ["<s>", "<s>", "<|im_start|>", "h", "i", "<|im_end|>"]
    assert given.batch["special_tokens_mask"].tolist() == [[1, 1, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0]], "padding is none"


def test_texts_without_special_tokens_in_a_template_or_in_pairs(tmp_path):
    saved = by_bytes(tmp_path)
    model = llama()
    assert tokenized(str(tmp_path), ["hi"], model, special_tokens=False).tokens == [["h", "i"]]
    pair = tokenized(str(tmp_path), ["hi\tyou"], model, pairs=True)
    assert pair.tokens == [["<s>", "h", "i", "</s>", "y", "o", "u"]]
    with pytest.raises(
        attsvm.ProblemError,
        match="--pairs: expected two sentences with one tab between them, got 0 in text 1, counted from 0",
    ):
        tokenized(str(tmp_path), ["hi\tyou", "hi"], model, pairs=True)
    with pytest.raises(attsvm.ProblemError, match="--chat: the tokenizer of"):
        tokenized(str(tmp_path), ["hi"], model, chat=True)
    saved.chat_template = "<s>{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
    saved.save_pretrained(tmp_path)
    chat = tokenized(str(tmp_path), ["hi"], model, chat=True)
    assert chat.tokens == [["<s>", "<|im_start|>", "h", "i", "<|im_end|>", "<|im_start|>"]]
    assert chat.batch["special_tokens_mask"].tolist() == [[1, 1, 0, 0, 1, 1]]
