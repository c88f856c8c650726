"""Evenness of attention in closed form, and the scale of a sentence, measured on whole models."""

import numpy as np
import pytest
import torch

from attsvm.papers.experiments.blocks import Blocks
from attsvm.papers.experiments.measurements import attention_evenness
from attsvm.papers.experiments.models import PictureShape, TextShape
from attsvm.papers.experiments.reviews import encoded
from attsvm.papers.experiments.sentences import SENTENCES, read_sentences


@pytest.mark.parametrize("attended", [1, 3, 17])
def test_evenness_of_a_model_that_attends_to_some_tokens_equally(attended):
    """Of T = 17 tokens the model attends to ``attended`` alike: evenness is attended / T."""
    model = PictureShape(Blocks(width=8, layers=1, heads=2, hidden=4, bias=True), size=16, patch=4).build()
    block = model.blocks[0]

    def keys_by_hand(_module, _inputs, keys):
        """Logits of one size for the first tokens, and of 0 for the others, whatever the picture."""
        return torch.where(torch.arange(keys.shape[1])[:, None] < attended, 1e4, 0.0).expand_as(keys)

    with torch.no_grad():
        block.attention_norm.weight.zero_()  # so that queries are their bias
        block.attention.query.bias.fill_(1.0)
        block.attention.key.register_forward_hook(keys_by_hand)
    pictures = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8)
    found = attention_evenness(model, pictures)
    # float32 softmax of equal logits rounds in the last digit
    assert found["class"] == pytest.approx([attended / 17], rel=1e-6)
    assert found["all"] == pytest.approx([attended / 17], rel=1e-6)


class Words:
    """A tokenizer of words, with [CLS] and [SEP]."""

    def __init__(self):
        self.length = None

    def enable_truncation(self, length):
        self.length = length

    def no_truncation(self):
        self.length = None

    def encode(self, text):
        found, at = [(0, 0)], 0
        for word in text.split():
            begin = text.index(word, at)
            at = begin + len(word)
            end = at - (not word[-1].isalpha())
            found += [(begin, end), (end, at)] if end < at else [(begin, end)]
        found.append((0, 0))
        offsets = found[: self.length]
        ids = [1 + sum(map(ord, text[a:b])) % 97 for a, b in offsets]
        return type("Encoding", (), {"ids": ids, "offsets": offsets})()

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]


def test_sentences_are_scaled_from_0_to_1_with_all_their_tokens():
    model = TextShape(Blocks(width=12, layers=2, heads=3, hidden=8), length=40, vocabulary=100).build()
    with torch.no_grad():
        for weights in (model.tokens.weight, model.blocks[1].attention.query.weight):
            weights.mul_(20)
    tokenizer = Words()
    found = read_sentences(model, tokenizer, 40)
    inputs = encoded([sentence.text for sentence in SENTENCES], tokenizer, 40)
    rows = model.attention_maps(inputs)[-1][:, :, 0].mean(1).numpy()
    of_keys = []
    for sentence, row, reading in zip(SENTENCES, rows, found.sentences, strict=True):
        offsets = np.array(tokenizer.encode(sentence.text).offsets)
        row = row[: len(offsets)]
        expected = (row - row.min()) / np.ptp(row)
        words = offsets[:, 0] < offsets[:, 1]
        np.testing.assert_allclose(reading["scaled"], expected[words], atol=1e-6)  # float32
        keys = [any(a <= begin and end <= b for a, b in sentence.keys) for begin, end in offsets[words]]
        assert 1 <= sum(keys) <= 2
        of_keys.append(np.mean(expected[words][keys]))
        assert reading["others_scaled"] == pytest.approx(np.mean(expected[words][np.invert(keys)]), abs=1e-6)
    assert np.std(of_keys) > 0.05
    assert found.scaled == pytest.approx(np.mean(of_keys), abs=1e-6)
