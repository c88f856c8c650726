"""A transformer family defined outside the package: inspected from Python and by the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
transformers = pytest.importorskip("transformers", reason="transformers (extra `torch`) is not installed")

# docs: begin
from attsvm.torch.inspection.families import HuggingFace, projections_of  # noqa: E402


class DistilBert(HuggingFace):
    """DistilBERT: linear layers ``q_lin`` and ``k_lin`` in each attention module."""

    name = "DistilBERT"
    modules = ("DistilBertSelfAttention",)

    def projections(self, module):
        query, key = module.q_lin, module.k_lin
        return projections_of(
            (query.weight, query.bias), (key.weight, key.bias), heads=module.n_heads, scale=module.scaling
        )


# docs: end

import torch  # noqa: E402

import attsvm.torch  # noqa: E402
from attsvm.errors import ProblemError  # noqa: E402

HERE = "test_new_family:DistilBert"
WORDS = "[PAD] [UNK] [CLS] [SEP] the a cat dog sat ran on mat road . and then home"


def small_model():
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(WORDS.split()), dim=16, n_heads=2, n_layers=2, hidden_dim=16, max_position_embeddings=16
    )
    return transformers.DistilBertModel(config).eval()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "words.txt").write_text(WORDS.replace(" ", "\n"))
    transformers.BertTokenizer(str(tmp_path / "words.txt"), model_max_length=16).save_pretrained(tmp_path / "model")
    small_model().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\na dog ran home\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("family", [DistilBert, DistilBert(), HERE])
def test_its_attention_is_that_of_the_model(family):
    batch = {"input_ids": torch.tensor([[2, 4, 6, 8, 3], [2, 5, 7, 3, 0]])}
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    inspection = attsvm.torch.inspect(small_model(), batch, family=family)
    assert inspection.family == "DistilBERT"
    assert [(head.layer, head.head) for head in inspection.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in inspection.heads:
        assert head.rebuilt_error < 1e-5
        assert 0 < head.margin.lower <= head.margin.upper <= 1


def test_without_it_the_model_is_refused():
    with pytest.raises(ProblemError, match=r"expected attention of a known family \(BERT"):
        attsvm.torch.inspect(small_model(), {"input_ids": torch.tensor([[2, 4, 3]])})


def test_a_family_without_projections_is_refused_by_name():
    class Incomplete(HuggingFace):
        name = "Incomplete"
        modules = ()

    with pytest.raises(ProblemError, match=r"^family: Incomplete cannot be created .*projections"):
        attsvm.torch.inspect(small_model(), {"input_ids": torch.tensor([[2, 4, 3]])}, family=Incomplete)


def test_the_command_line_inspects_it_and_writes_the_page(command, folder):
    options = ("--text", "text.txt", "--family", HERE, "--no-twin", "--json", "--head", "1.0", "--out", "page")
    code, out, error = command("inspect", "model", *options)
    assert code == 0, error
    result = json.loads(out)
    assert result["model"]["family"] == "DistilBERT"
    assert len(result["heads"]) == 4
    assert np.all(np.diff([head["margin_ratio"] for head in result["heads"]], axis=1) >= 0)
    assert "DistilBERT" in (folder / "page" / "index.html").read_text()
