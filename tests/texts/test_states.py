"""Texts as states of a transformer, against the transformer called on one text at a time."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest

from attsvm.errors import ProblemError
from attsvm.texts import states
from attsvm.texts.states import load_states
from attsvm.texts.tokenizers import find_tokenizer

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


class Malicious:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def changed(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def pickle_weights(model, victim):
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": Malicious(victim)}))


def pickle_weights_in_zip(model, victim):
    (model / "model.safetensors").unlink()
    torch.save({"weights": Malicious(victim)}, model / "pytorch_model.bin")


def bring_code(model, victim):
    (model / "code.py").write_text(f"open({str(victim)!r}, 'w')")
    changed(model / "config.json", model_type="mine", auto_map={"AutoConfig": "code.C", "AutoModel": "code.M"})


def rename_a_weight(model, victim):
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    name = next(name for name in weights if "query.weight" in name)
    weights["other"] = weights.pop(name)
    save_file(weights, model / "model.safetensors", {"format": "pt"})


def spoil_a_weight(model, victim):
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = torch.nan
    save_file(weights, model / "model.safetensors", {"format": "pt"})


def make_tokenizer_print(model, victim):
    """The native code prints about the unknown entry, before the limit is refused."""
    words = json.loads((model / "tokenizer.json").read_text())
    words["added_tokens"][0]["unknown"] = False
    (model / "tokenizer.json").write_text(json.dumps(words))
    changed(model / "tokenizer_config.json", model_max_length="x")


def block(model, victim):
    (model / "config.json").rename(model / "old.json")
    os.mkfifo(model / "model.safetensors.index.json")
    (model / "old.json").rename(model / "config.json")


HOSTILE = {
    "a pickle": (pickle_weights, "pickled objects are never loaded"),
    "a pickle in an archive": (pickle_weights_in_zip, "pickled objects are never loaded"),
    "code of its own": (bring_code, r"needs its own code \(auto_map\), which attsvm does not run"),
    "a missing weight": (rename_a_weight, "1 weight is missing: .*query.weight"),
    "a weight of NaN": (spoil_a_weight, "holds NaN or infinity"),
    "other sizes": (
        lambda model, _: changed(model / "config.json", hidden_size=4),
        "do not have the sizes of its conf",
    ),
    "a million layers": (
        lambda model, _: changed(model / "config.json", num_hidden_layers=10**6),
        "expected at most 1,000 layers, got 1,000,000",
    ),
    "a tokenizer that prints": (make_tokenizer_print, "cannot be"),
    "half the weights": (lambda model, _: os.truncate(model / "model.safetensors", 400), "cannot be loaded"),
    "a FIFO": (block, "expected a file, got a FIFO"),
    "sizes that are words": (lambda model, _: changed(model / "config.json", hidden_size="big"), "cannot be loaded"),
    "a list for a config": (lambda model, _: (model / "config.json").write_text("[]"), "cannot be loaded"),
    "half a tokenizer": (lambda model, _: os.truncate(model / "tokenizer.json", 300), "the tokenizer cannot be loaded"),
    "a limit of words": (lambda model, _: changed(model / "tokenizer_config.json", model_max_length="x"), "cannot be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_damaged_folder_is_one_line_and_runs_nothing(folder, tmp_path, name, capfd, monkeypatch):
    from attsvm.pretrained import load_model, read_input

    def inspected(path):
        return read_input(str(path), load_model(str(path)), ["good film"], None)

    damage, message = HOSTILE[name]
    model, victim = tmp_path / "model", tmp_path / "victim"
    shutil.copytree(folder, model)
    damage(model, victim)
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    for load in (load_states, inspected):
        with pytest.raises(ProblemError, match=message) as raised:
            load(model)
        assert str(raised.value).startswith(f"{model}")
        assert "\n" not in str(raised.value)
        assert "weights_only" not in str(raised.value)
    assert not victim.exists()
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_of_hugging_face_splits_texts_into_its_tokens(folder):
    tokenizer = find_tokenizer(str(folder))
    assert tokenizer.words("Good films, the") == ["good", "film", "##s", "[UNK]", "the"]
    assert tokenizer.places("Good films") == [(0, 4), (5, 9), (9, 10)]
    with pytest.raises(
        ProblemError, match=r"tokenizer: expected 'words', .* or a tokenizer of Hugging Face \(./none: "
    ):
        find_tokenizer("./none")
