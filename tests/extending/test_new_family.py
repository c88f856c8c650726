"""A transformer family defined outside the package: inspected from Python and by the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

# docs: begin
from attsvm.inspect.families import HuggingFace, projections_of  # noqa: E402


class Electra(HuggingFace):
    """ELECTRA: linear layers ``query`` and ``key`` in each attention module."""

    name = "ELECTRA"
    modules = ("ElectraSelfAttention",)

    def projections(self, module):
        query, key = module.query, module.key
        return projections_of(
            (query.weight, query.bias),
            (key.weight, key.bias),
            heads=module.num_attention_heads,
            scale=module.scaling,
        )


# docs: end

import torch  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.errors import ProblemError  # noqa: E402

HERE = "test_new_family:Electra"
WORDS = "[PAD] [UNK] [CLS] [SEP] the a cat dog sat ran on mat road . and then home"


def small_model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "embedding_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = transformers.ElectraConfig(
        vocab_size=len(WORDS.split()), intermediate_size=16, max_position_embeddings=16, **sizes
    )
    return transformers.ElectraModel(config).eval()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "words.txt").write_text(WORDS.replace(" ", "\n"))
    transformers.BertTokenizer(str(tmp_path / "words.txt"), model_max_length=16).save_pretrained(tmp_path / "model")
    small_model().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\na dog ran home\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("family", [Electra, Electra(), HERE])
def test_its_attention_is_that_of_the_model(family):
    batch = {"input_ids": torch.tensor([[2, 4, 6, 8, 3], [2, 5, 7, 3, 0]])}
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    inspection = attsvm.inspect.inspect(small_model(), batch, family=family)
    assert inspection.family == "ELECTRA"
    assert [(head.layer, head.head) for head in inspection.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in inspection.heads:
        assert head.rebuilt_error < 1e-5
        assert 0 < head.margin.lower <= head.margin.upper <= 1


def test_without_it_the_model_is_refused():
    with pytest.raises(ProblemError, match=r"expected attention of a known family \(BERT"):
        attsvm.inspect.inspect(small_model(), {"input_ids": torch.tensor([[2, 4, 3]])})


def test_a_family_without_projections_is_refused_by_name():
    class Incomplete(HuggingFace):
        name = "Incomplete"
        modules = ()

    with pytest.raises(ProblemError, match=r"^family: Incomplete cannot be created .*projections"):
        attsvm.inspect.inspect(small_model(), {"input_ids": torch.tensor([[2, 4, 3]])}, family=Incomplete)


def test_the_command_line_inspects_it_and_writes_the_page(command, folder):
    options = ("--text", "text.txt", "--family", HERE, "--no-twin", "--json", "--view", "1.0", "--out", "page")
    code, out, error = command("inspect", "model", *options)
    assert code == 0, error
    result = json.loads(out)
    assert result["model"]["family"] == "ELECTRA"
    assert len(result["heads"]) == 4
    assert np.all(np.diff([head["margin_ratio"] for head in result["heads"]], axis=1) >= 0)
    assert "ELECTRA" in (folder / "page" / "index.html").read_text()
