"""Texts as states of a transformer, against the transformer called on one text at a time."""

import numpy as np
import pytest

from attsvm.apps.texts import states
from attsvm.apps.texts.states import load_states
from attsvm.errors import ProblemError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "the", "a", "[MASK]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A transformer of one layer with weights as they are before training."""
    path = tmp_path_factory.mktemp("model")
    (path / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
    )
    transformers.BertModel(config).save_pretrained(path)
    transformers.BertTokenizerFast(vocab=str(path / "vocab.txt"), model_max_length=32).save_pretrained(path)
    return path


def test_states_are_those_of_each_text_alone(folder):
    found = load_states(folder)
    texts = ["Good films", "the bad film", "a " * 200, "\u200b", "a good, bad thing"]
    sequences, words = found.encode(texts)
    assert list(sequences.lengths) == [3, 3, 30, 1, 5]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = {0: [4, 6, 7], 1: [8, 5, 6], 4: [9, 4, 1, 5, 1]}
    for row, inner in tokens.items():
        with torch.no_grad():
            alone = model(input_ids=torch.tensor([[2, *inner, 3]])).last_hidden_state[0, 1:-1]
        np.testing.assert_allclose(sequences[row], alone.numpy(), atol=1e-5)
        assert words[sequences.offsets[row] : sequences.offsets[row + 1]].tolist() == inner
    np.testing.assert_array_equal(sequences[3], np.zeros((1, 8)))
    assert words[sequences.offsets[3]] == len(found.vocabulary) == len(WORDS)
    places = found.known(texts[0])
    assert [texts[0][begin:end] for _, begin, end in places] == ["Good", "film", "s"]


def test_what_is_no_model_or_too_much_is_refused(folder, tmp_path, monkeypatch):
    with pytest.raises(ProblemError, match=r"expected a folder with a Hugging Face model, got no config\.json"):
        load_states(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ProblemError, match="the model cannot be loaded"):
        load_states(tmp_path)
    monkeypatch.setattr(states, "BYTES", 1 << 10)
    with pytest.raises(
        ProblemError, match=r"--embed: expected states of at most .*got 100 tokens of 8 numbers .*lower --max-length"
    ):
        load_states(folder).encode(["a " * 10] * 10)
